//! A metadata cache that can only fail, so that libhdf5 reads no heap where no native file exists.
//!
//! Calls about old region references get a real file structure ([`crate::regions`]). If libhdf5 looks for a heap in any other
//! call, it looks in what it takes for its file structure. The metadata cache there is this block: it says that a "cache image" of
//! 2^63 bytes has to be loaded first, for which there is no memory, so that the call ends with an error. libhdf5 notes the attempt
//! in the block; [`reset`] undoes that.

use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Larger than libhdf5's cache structure, which contains a table of 65,536 pointers.
const BLOCK_BYTES: usize = 2 << 20;
/// Size of the unit that the block repeats.
const UNIT_BYTES: usize = 64 << 10;
/// Every byte: "yes" as a flag, more than any memory as a size.
const FILL: u8 = 0x7f;
/// The second word leads to the state of logging: zeros, so there is none.
const LOGGING_AT: usize = 8;
static LOGGING: [u64; 64] = [0; 64];

/// Address of the block; 0 before it is made, 1 if it could not be made.
static BLOCK: AtomicUsize = AtomicUsize::new(0);

/// The block's address; 0 if there is no memory for it.
pub fn block() -> usize {
    match BLOCK.load(Ordering::Acquire) {
        0 => {
            let made = make().unwrap_or(1);
            // If two threads make one at once, the second one stays unused.
            let _ = BLOCK.compare_exchange(0, made, Ordering::AcqRel, Ordering::Acquire);
            block()
        }
        1 => 0,
        address => address,
    }
}

/// Undoes what libhdf5 wrote into the block.
pub fn reset() {
    let address = BLOCK.load(Ordering::Acquire);
    if address > 1 {
        // SAFETY: the range is never unmapped; dropped pages of a private mapping are read again from its file.
        unsafe { libc::madvise(address as *mut c_void, BLOCK_BYTES, libc::MADV_DONTNEED) };
    }
}

fn make() -> Option<usize> {
    let mut unit = vec![FILL; UNIT_BYTES];
    unit[LOGGING_AT..LOGGING_AT + 8].copy_from_slice(&(LOGGING.as_ptr() as usize).to_ne_bytes());
    // SAFETY: a descriptor and an address range that nobody else knows; each unit is mapped inside that range.
    unsafe {
        let fd = libc::memfd_create(c"cenote-trap".as_ptr(), libc::MFD_CLOEXEC);
        if fd < 0 {
            return None;
        }
        let written = libc::write(fd, unit.as_ptr().cast(), UNIT_BYTES) == UNIT_BYTES as isize;
        let (none, anywhere) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE);
        let base = libc::mmap(std::ptr::null_mut(), BLOCK_BYTES, none, anywhere, -1, 0);
        let is_there = written && base != libc::MAP_FAILED;
        let whole = is_there
            && (0..BLOCK_BYTES / UNIT_BYTES).all(|i| {
                let at = base.byte_add(i * UNIT_BYTES);
                let (write, here) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_FIXED);
                libc::mmap(at, UNIT_BYTES, write, here, fd, 0) == at
            });
        libc::close(fd);
        whole.then_some(base as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_the_block_is_gone_after_a_reset() {
        let address = block();
        assert!(address > 1);
        let at = (address + BLOCK_BYTES - 100) as *mut u8;
        // SAFETY: inside of the block.
        unsafe {
            assert_eq!(at.read_volatile(), FILL);
            at.write_volatile(0);
            reset();
            assert_eq!(at.read_volatile(), FILL);
        }
    }
}
