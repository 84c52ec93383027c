//! Pieces of mapped memory in one contiguous range of addresses, by a second mapping of the same pages.
#![allow(unsafe_code, reason = "mappings are made and undone by address")]

use std::ffi::c_void;

use rustix::mm::{MapFlags, MprotectFlags, MremapFlags, ProtFlags, mmap_anonymous, mprotect, mremap_fixed, munmap};

const PAGE: usize = 4096;

/// The range; see the module. The drop unmaps it.
pub struct Stitched {
    base: *mut c_void,
    len: usize,
    /// Address of the first byte.
    pub first: usize,
}

// SAFETY: it is a range of addresses that only this value unmaps; its content is plain shared memory.
unsafe impl Send for Stitched {}
// SAFETY: as above.
unsafe impl Sync for Stitched {}

impl Stitched {
    /// Maps these pieces (address, length) of shared mappings that outlive the result. Returns `None` if pages do not
    /// permit it: all pieces but the first must begin, and all but the last end, at a page boundary.
    pub fn of(pieces: &[(usize, usize)]) -> Option<Self> {
        let inside = pieces.first()?.0 % PAGE;
        let (mut at, mut moves) = (inside, Vec::with_capacity(pieces.len()));
        for (i, (address, len)) in pieces.iter().enumerate() {
            let is_aligned = (i == 0 || address % PAGE == 0) && (i + 1 == pieces.len() || (at + len) % PAGE == 0);
            if !is_aligned {
                return None;
            }
            let from = address / PAGE * PAGE;
            moves.push((from, (address + len).next_multiple_of(PAGE) - from, at / PAGE * PAGE));
            at += len;
        }
        let made = Self::reserve(at.next_multiple_of(PAGE), inside)?;
        moves.into_iter().try_for_each(|(from, bytes, to)| made.show(from, bytes, to))?;
        Some(made)
    }
    /// The same at a page boundary, read-only, with zeros from the last byte to the end of its page. Returns `None`
    /// unless each piece begins at a page boundary and each but the last ends at one.
    pub fn pages(pieces: &[(usize, usize)]) -> Option<Self> {
        let len = pieces.iter().map(|(_, len)| len).sum::<usize>();
        let made = Self::reserve(len.next_multiple_of(PAGE), 0)?;
        let mut at = 0;
        for (address, len) in pieces {
            if address % PAGE != 0 || at % PAGE != 0 {
                return None;
            }
            let whole = len / PAGE * PAGE;
            if whole > 0 {
                made.show(*address, whole, at)?;
            }
            if len > &whole {
                made.copy(address + whole, len - whole, at + whole)?;
            }
            at += len;
        }
        // SAFETY: only this value uses these addresses.
        unsafe { mprotect(made.base, made.len, MprotectFlags::READ) }.ok()?;
        Some(made)
    }
    fn reserve(len: usize, inside: usize) -> Option<Self> {
        // SAFETY: new addresses of the kernel's choice.
        let base = unsafe {
            mmap_anonymous(std::ptr::null_mut(), len, ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE)
        };
        base.ok().map(|base| Self { base, len, first: base as usize + inside })
    }
    /// Maps pages of a shared mapping at `to`.
    fn show(&self, from: usize, bytes: usize, to: usize) -> Option<()> {
        // An old length of 0 leaves a shared mapping in place, and maps its pages again.
        // SAFETY: the target is inside of the reserved range; the source is a shared mapping, as the caller guarantees.
        let to = unsafe { self.base.byte_add(to) };
        // SAFETY: as above.
        unsafe { mremap_fixed(from as *mut c_void, 0, bytes, MremapFlags::MAYMOVE, to) }.ok().map(drop)
    }
    /// Copies less than a page to the start of a page.
    fn copy(&self, from: usize, bytes: usize, to: usize) -> Option<()> {
        // SAFETY: the target is inside of the reserved range; the source is mapped, as the caller guarantees.
        unsafe {
            let to = self.base.byte_add(to);
            mprotect(to, PAGE, MprotectFlags::READ | MprotectFlags::WRITE).ok()?;
            std::ptr::copy_nonoverlapping(from as *const u8, to.cast(), bytes);
        }
        Some(())
    }
}

impl Drop for Stitched {
    fn drop(&mut self) {
        // SAFETY: only this value uses these addresses, and their users held it. A failure leaves them mapped.
        let _ = unsafe { munmap(self.base, self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_seen_side_by_side_and_as_they_change() {
        let bytes = 16 * PAGE;
        // SAFETY: new addresses of the kernel's choice.
        let shared = unsafe {
            mmap_anonymous(std::ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED)
        };
        let base = shared.unwrap() as usize;
        // SAFETY: all of it was just mapped, and only this test uses it.
        let memory = unsafe { std::slice::from_raw_parts_mut(base as *mut u8, bytes) };
        for (i, byte) in memory.iter_mut().enumerate() {
            *byte = (i / PAGE) as u8;
        }
        let pieces = [(base + 5 * PAGE + 100, PAGE - 100), (base + 9 * PAGE, 2 * PAGE), (base + PAGE, 7)];
        let stitched = Stitched::of(&pieces).unwrap();
        let len: usize = pieces.iter().map(|(_, len)| len).sum();
        // SAFETY: the range has this many bytes.
        let seen = unsafe { std::slice::from_raw_parts(stitched.first as *const u8, len) };
        assert_eq!((seen[0], seen[PAGE - 101], seen[PAGE - 100], seen[2 * PAGE], seen[len - 1]), (5, 5, 9, 10, 1));
        // SAFETY: both are mapped. They are two addresses of the same byte, which the compiler must not take for
        // different ones.
        let (written, read) =
            unsafe { ((base as *mut u8).add(9 * PAGE), (stitched.first as *const u8).add(PAGE - 100)) };
        // SAFETY: as above.
        unsafe { written.write_volatile(77) };
        // SAFETY: as above.
        assert_eq!(unsafe { read.read_volatile() }, 77);
        assert!(Stitched::of(&[(base, 100), (base + PAGE, 100)]).is_none());
        assert!(Stitched::of(&[(base, PAGE), (base + 8, 100)]).is_none());
        drop(stitched);
        let paged = Stitched::pages(&[(base + 3 * PAGE, PAGE), (base + 6 * PAGE, PAGE + 5)]).unwrap();
        // SAFETY: the range has this many pages.
        let seen = unsafe { std::slice::from_raw_parts(paged.first as *const u8, 3 * PAGE) };
        assert_eq!((paged.first % PAGE, seen[0], seen[PAGE], seen[2 * PAGE + 4], seen[2 * PAGE + 5]), (0, 3, 6, 7, 0));
        assert!(Stitched::pages(&[(base, 100), (base + PAGE, 100)]).is_none());
        assert!(Stitched::pages(&[(base + 8, PAGE)]).is_none());
        drop(paged);
        // SAFETY: mapped above, and unused from here on.
        unsafe { munmap(base as *mut c_void, bytes) }.unwrap();
    }
}
