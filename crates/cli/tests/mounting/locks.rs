//! Advisory locks: the kernel's own, between all programs on one mount.
#![allow(unsafe_code, reason = "record locks have no way in std")]

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::process::Command;

use crate::mounted::{Mounted, checked, errno};

#[test]
fn whole_files_and_ranges_are_locked_between_programs() {
    let Some(mounted) = Mounted::new() else { return };
    let path = mounted.path("locked");
    let open = || OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
    let (one, two) = (open(), open());
    one.lock().unwrap();
    assert!(matches!(two.try_lock(), Err(std::fs::TryLockError::WouldBlock)));
    // By another process, which waits until it may.
    let waiting = Command::new("flock").arg(&path).args(["echo", "mine"]).stdout(std::process::Stdio::piped()).spawn();
    one.unlock().unwrap();
    let said = waiting.unwrap().wait_with_output().unwrap();
    assert_eq!(said.stdout, b"mine\n");

    // Ranges that belong to open files, so that one process can have both sides.
    let lock = |file: &std::fs::File, kind: libc::c_int, start: i64, len: i64| {
        // SAFETY: all fields are numbers.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        (range.l_type, range.l_whence, range.l_start, range.l_len) = (kind as i16, libc::SEEK_SET as i16, start, len);
        // SAFETY: the call reads the structure.
        checked(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const range) }.into())
    };
    lock(&one, libc::F_WRLCK, 0, 100).unwrap();
    assert_eq!(errno(lock(&two, libc::F_RDLCK, 99, 1)), libc::EAGAIN);
    lock(&two, libc::F_WRLCK, 100, 0).unwrap();
    drop(one);
    lock(&two, libc::F_WRLCK, 0, 100).unwrap();
}
