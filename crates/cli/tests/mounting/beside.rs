//! Writes concurrent with stores: one thread writes by calls while another changes other bytes of the same pages
//! through a mapping.
#![allow(unsafe_code, reason = "mappings and calls that std has no way to")]

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::mounted::{Mounted, checked, pattern};

const BYTES: usize = 1 << 20;

/// Memory that two threads use at once.
struct Shared(*mut u8);

// SAFETY: all access is by atomic words.
unsafe impl Sync for Shared {}

impl Shared {
    fn new(file: &File) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at any address, which stays until the process ends.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, rights, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(at.cast())
    }
    fn word(&self, at: usize) -> &AtomicU64 {
        assert!(at < BYTES && at.is_multiple_of(8));
        // SAFETY: mapped as long as the process lives, aligned, and used by atomic words only.
        unsafe { AtomicU64::from_ptr(self.0.add(at).cast()) }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.0.cast(), BYTES) };
    }
}

/// Ends a thread when the test ends, however it ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn make(path: &Path) -> File {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    file.set_len(BYTES as u64).unwrap();
    file
}

/// The first and last word are stored through the mapping, everything between is written: every reader must see
/// both.
fn beside(mounted: &Mounted, name: &str, write: impl Fn(&File, &[u8])) {
    const ROUNDS: u64 = 60;
    let path = mounted.path(name);
    let file = make(&path);
    let (mapping, is_over) = (Shared::new(&file), AtomicBool::new(false));
    let stored = std::thread::scope(|scope| {
        let storing = scope.spawn(|| {
            let mut count = 0;
            while !is_over.load(Ordering::SeqCst) {
                count += 1;
                let words = [0, BYTES - 8].map(|at| mapping.word(at));
                for word in words {
                    word.store(count, Ordering::SeqCst);
                }
                std::thread::yield_now();
                assert_eq!(words.map(|word| word.load(Ordering::SeqCst)), [count; 2], "a store was lost");
            }
            count
        });
        let over = Over(&is_over);
        for round in 0..ROUNDS {
            let bytes = pattern(round, BYTES - 16);
            write(&file, &bytes);
            let mut got = vec![0; BYTES - 16];
            let word = |at: usize| u64::from_ne_bytes(bytes[at - 8..at].try_into().unwrap());
            for at in [8, 4088, BYTES - 4096, BYTES - 16] {
                let seen = mapping.word(at).load(Ordering::SeqCst);
                assert_eq!(seen, word(at), "round {round}: the mapping shows old bytes at {at}");
            }
            file.read_exact_at(&mut got, 8).unwrap();
            let lost = (0..bytes.len()).find(|at| got[*at] != bytes[*at]);
            assert_eq!(lost, None, "round {round}: what was written is not there any more");
        }
        drop(over);
        storing.join().unwrap()
    });
    // SAFETY: the mapping is there.
    checked(unsafe { libc::msync(mapping.0.cast(), BYTES, libc::MS_SYNC) }.into()).unwrap();
    drop((mapping, file));
    let bytes = std::fs::read(&path).unwrap();
    assert!(bytes[..8] == stored.to_ne_bytes() && bytes[BYTES - 8..] == stored.to_ne_bytes(), "a store was lost");
    assert!(bytes[8..BYTES - 8] == pattern(ROUNDS - 1, BYTES - 16));
}

#[test]
fn bytes_that_are_written_beside_stores_stay() {
    let Some(mounted) = Mounted::new() else { return };
    beside(&mounted, "written", |file, bytes| file.write_all_at(bytes, 8).unwrap());
}

#[test]
fn bytes_that_are_copied_beside_stores_stay() {
    let Some(mounted) = Mounted::new() else { return };
    let from = make(&mounted.path("from"));
    beside(&mounted, "copied", |file, bytes| {
        from.write_all_at(bytes, 0).unwrap();
        let (mut from_offset, mut to_offset) = (0_i64, 8_i64);
        let end = 8 + bytes.len() as i64;
        while to_offset < end {
            let left = (end - to_offset) as usize;
            // SAFETY: the call reads and writes the two offsets.
            let copied = unsafe {
                libc::copy_file_range(
                    from.as_raw_fd(),
                    &raw mut from_offset,
                    file.as_raw_fd(),
                    &raw mut to_offset,
                    left,
                    0,
                )
            };
            assert!(checked(copied as i64).unwrap() > 0);
        }
    });
}
