//! All ways in which the kernel's calls read and write bytes.
#![allow(unsafe_code, reason = "mappings and calls that std has no way to")]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

use crate::mounted::{Mounted, checked, errno, pattern};

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap()
}

#[test]
fn what_is_written_is_read_in_any_pieces() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("big");
    let bytes = pattern(1, 9 << 20);
    fs::write(&path, &bytes).unwrap();
    assert!(fs::read(&path).unwrap() == bytes);
    let file = open(&path);
    file.write_all_at(b"in the middle", (1 << 20) - 5).unwrap();
    let mut got = [0; 17];
    file.read_exact_at(&mut got, (1 << 20) - 7).unwrap();
    assert_eq!(&got[2..15], b"in the middle");
    assert_eq!(got[..2], bytes[(1 << 20) - 7..(1 << 20) - 5]);
    file.set_len(100).unwrap();
    file.set_len(200).unwrap();
    let bytes_now = fs::read(&path).unwrap();
    assert!(bytes_now[..100] == bytes[..100] && bytes_now[100..] == [0; 100]);
    file.sync_all().unwrap();
    file.sync_data().unwrap();
}

#[test]
fn holes_are_seen_made_and_filled() {
    const MIB: u64 = 1 << 20;
    let Some(mounted) = Mounted::new() else { return };
    let file = open(&mounted.path("sparse"));
    file.write_all_at(&pattern(2, 1 << 20), 4 * MIB).unwrap();
    file.set_len(8 * MIB).unwrap();
    // SAFETY: these calls take numbers.
    let seek = |offset: u64, whence| checked(unsafe { libc::lseek(file.as_raw_fd(), offset.cast_signed(), whence) });
    assert_eq!(seek(0, libc::SEEK_DATA).unwrap(), 4 << 20);
    assert_eq!(seek(0, libc::SEEK_HOLE).unwrap(), 0);
    assert_eq!(seek(4 * MIB, libc::SEEK_HOLE).unwrap(), 5 << 20);
    assert_eq!(errno(seek(5 * MIB, libc::SEEK_DATA)), libc::ENXIO);
    assert_eq!(errno(seek(8 * MIB, libc::SEEK_HOLE)), libc::ENXIO);
    let used = file.metadata().unwrap().blocks();
    assert!(used <= 2 * 2048, "{used} blocks for a megabyte");
    let allocate = |mode, offset: u64, len: u64| {
        // SAFETY: as above.
        checked(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset.cast_signed(), len.cast_signed()) }.into())
    };
    allocate(libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 4 * MIB, MIB / 2).unwrap();
    assert_eq!(seek(0, libc::SEEK_DATA).unwrap(), (4 << 20) + (1 << 19));
    let mut bytes = vec![1; 1 << 20];
    file.read_exact_at(&mut bytes, 4 * MIB).unwrap();
    assert!(bytes[..1 << 19].iter().all(|byte| *byte == 0) && bytes[1 << 19..] == pattern(2, 1 << 20)[1 << 19..]);
    allocate(libc::FALLOC_FL_ZERO_RANGE, 7 * MIB, 2 * MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9 * MIB);
    allocate(libc::FALLOC_FL_KEEP_SIZE, 9 * MIB, MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 9 * MIB);
    allocate(0, 9 * MIB, MIB).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 10 * MIB);
    assert_eq!(errno(allocate(libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096)), libc::EOPNOTSUPP);
    // More than there is space for.
    for mode in [0, libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_ZERO_RANGE] {
        assert_eq!(errno(allocate(mode, 0, 100 << 30)), libc::ENOSPC, "{mode}");
    }
    assert_eq!(file.metadata().unwrap().len(), 10 * MIB);
}

#[test]
fn ranges_are_copied_inside_the_store() {
    let Some(mounted) = Mounted::new() else { return };
    let (from, to) = (open(&mounted.path("from")), open(&mounted.path("to")));
    let bytes = pattern(3, 3 << 20);
    from.write_all_at(&bytes, 0).unwrap();
    let (mut from_offset, mut to_offset) = (1000_i64, 70_000_i64);
    let mut left = 2 << 20;
    while left > 0 {
        // SAFETY: the call reads and writes the two offsets.
        let copied = unsafe {
            libc::copy_file_range(from.as_raw_fd(), &raw mut from_offset, to.as_raw_fd(), &raw mut to_offset, left, 0)
        };
        left -= usize::try_from(checked(copied as i64).unwrap()).unwrap();
    }
    let mut got = vec![0; 2 << 20];
    to.read_exact_at(&mut got, 70_000).unwrap();
    assert!(got == bytes[1000..1000 + (2 << 20)]);
    assert_eq!(to.metadata().unwrap().len(), 70_000 + (2 << 20));
}

/// A buffer aligned for direct I/O.
#[repr(align(4096))]
struct Aligned([u8; 8192]);

#[test]
fn direct_io_and_cached_io_see_the_same() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("direct");
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).custom_flags(libc::O_DIRECT);
    let (direct, cached) = (options.open(&path).unwrap(), open(&path));
    let mut buffer = Aligned([7; 8192]);
    direct.write_all_at(&buffer.0, 4096).unwrap();
    assert_eq!(fs::read(&path).unwrap().len(), 12_288);
    cached.write_all_at(&[9; 100], 5000).unwrap();
    direct.read_exact_at(&mut buffer.0, 4096).unwrap();
    assert_eq!(buffer.0[903..905], [7, 9]);
}

struct Mapping {
    at: *mut u8,
    len: usize,
}

impl Mapping {
    fn new(file: &File, len: usize, flags: libc::c_int) -> Self {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at any address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, rights, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self { at: at.cast(), len }
    }
    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: mapped until it is dropped, and used by one thread.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
    fn sync(&self) {
        // SAFETY: the mapping is ours.
        checked(unsafe { libc::msync(self.at.cast(), self.len, libc::MS_SYNC) }.into()).unwrap();
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nobody has a reference into it.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

#[test]
fn mappings_shared_and_private() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("mapped");
    let bytes = pattern(4, 1 << 20);
    fs::write(&path, &bytes).unwrap();
    let file = open(&path);
    let mut shared = Mapping::new(&file, 1 << 20, libc::MAP_SHARED);
    assert!(shared.bytes() == bytes);
    shared.bytes()[5000..5004].copy_from_slice(b"abcd");
    // Another descriptor of this mount sees it at once, and the mapping sees what is written.
    let mut got = [0; 4];
    open(&path).read_exact_at(&mut got, 5000).unwrap();
    assert_eq!(&got, b"abcd");
    file.write_all_at(b"efgh", 5002).unwrap();
    assert_eq!(&shared.bytes()[5000..5006], b"abefgh");
    let mut private = Mapping::new(&file, 1 << 20, libc::MAP_PRIVATE);
    private.bytes()[0..4].copy_from_slice(b"mine");
    drop(private);
    shared.sync();
    drop((shared, file));
    let got = fs::read(&path).unwrap();
    assert_eq!((&got[..4], &got[5000..5006]), (&bytes[..4], &b"abefgh"[..]));
    // From a new daemon, not from cached pages.
    mounted.unmount();
    let said = mounted.try_mount(&mounted.dir, &[]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(&fs::read(&path).unwrap()[5000..5006], b"abefgh");
}

#[test]
fn appends_of_many_come_one_behind_the_other() {
    const LINES: usize = 200;
    let Some(mut mounted) = Mounted::new() else { return };
    // From two mounts, each with its own idea of the end.
    let second = mounted.place.path("second");
    mounted.mount(&second, &[]);
    let paths = [mounted.path("log"), second.join("runs/log")];
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let path = paths[writer % 2].clone();
            std::thread::spawn(move || {
                let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
                for line in 0..LINES {
                    let text = format!("{writer} {line:06} {}\n", "x".repeat(writer * 50));
                    file.write_all(text.as_bytes()).unwrap();
                }
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    let text = fs::read_to_string(&paths[0]).unwrap();
    assert_eq!(text.lines().count(), 4 * LINES);
    for writer in 0..4 {
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with(&format!("{writer} "))).collect();
        let expected: Vec<String> =
            (0..LINES).map(|line| format!("{writer} {line:06} {}", "x".repeat(writer * 50))).collect();
        assert_eq!(lines, expected);
    }
    let mut file = OpenOptions::new().read(true).append(true).open(&paths[1]).unwrap();
    file.seek(SeekFrom::Start(0)).unwrap();
    let mut first = [0; 8];
    file.read_exact(&mut first).unwrap();
    assert_eq!(first, text.as_bytes()[..8]);
}

/// Reservations of `fallocate`: `statfs` counts them, writes into them do not grow the file, cuts return them, and more than the free space
/// is refused.
#[test]
fn what_is_kept_is_taken_and_is_the_files() {
    const MIB: u64 = 1 << 20;
    let Some(mounted) = Mounted::new() else { return };
    let dir = mounted.dir.join("runs");
    let free = || {
        let told = rustix::fs::statvfs(&dir).unwrap();
        told.f_bavail * told.f_frsize
    };
    let path = dir.join("kept");
    let allocate = |offset: u64, len: u64| {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        // SAFETY: a descriptor that is open, and numbers.
        checked(unsafe { libc::fallocate(file.as_raw_fd(), 0, offset.cast_signed(), len.cast_signed()) }.into())
    };
    let before = free();
    // The file is closed each time: the reservation stays its own.
    for (cut, kept) in [(100, 0), (64 * MIB, 64 * MIB), (128 * MIB, 64 * MIB), (192 * MIB, 65 * MIB)] {
        allocate(0, 64 * MIB).unwrap();
        if kept > 64 * MIB {
            allocate(128 * MIB, MIB).unwrap();
        }
        assert!(before - free() >= 64 * MIB, "{before} {}", free());
        OpenOptions::new().write(true).open(&path).unwrap().set_len(cut).unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.len(), found.blocks() * 512), (cut, kept));
        fs::remove_file(&path).unwrap();
    }
    assert_eq!(errno(allocate(0, 2 * before)), libc::ENOSPC);
    fs::remove_file(&path).unwrap();
    // Two bytes that touch two blocks.
    allocate(4095, 2).unwrap();
    let allocated = fs::metadata(&path).unwrap().blocks();
    assert_eq!(allocated, 16);
    OpenOptions::new().write(true).open(&path).unwrap().write_all_at(b"xy", 4095).unwrap();
    assert!(fs::metadata(&path).unwrap().blocks() <= allocated);
}
