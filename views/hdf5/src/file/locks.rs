//! Locks on a stub. They belong to descriptors, so that they end with their holder.
//!
//! *The rule* is HDF5's own, by the same call (`flock`): readers share the lock, a writer has it exclusively. A program that
//! opens the stub without this connector, or `flock(1)`, meets it as on a native file. Independently of the rule, bytes far
//! behind the text (`F_OFD_SETLK`) say who has the file *open*; who *writes* it; who is its SWMR writer; and whose *turn* it is
//! to change the stub. This module must not know stores.

use std::ffi::{c_int, c_short};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The lock bytes, one byte each.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i64)]
pub enum LockByte {
    /// Shared by all who have the file open.
    Open = 1 << 62,
    /// Held by the SWMR writer. There is one: see [`LockByte::Writes`].
    Swmr = (1 << 62) + 1,
    /// Held while the stub is changed.
    Turn = (1 << 62) + 2,
    /// Shared by all who write the file.
    Writes = (1 << 62) + 3,
}

fn described(kind: c_int, place: LockByte) -> libc::flock {
    libc::flock {
        l_type: kind as c_short,
        l_whence: libc::SEEK_SET as c_short,
        l_start: place as i64,
        l_len: 1,
        l_pid: 0,
    }
}

fn ask(file: &File, command: c_int, lock: &mut libc::flock) -> io::Result<()> {
    loop {
        // SAFETY: the descriptor is open, and the lock is described in full.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, std::ptr::from_mut(lock)) } != -1 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Returns true for errors by which a file system says that it has no locks: then there is no rule, as in HDF5.
fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOLCK | libc::EINVAL))
}

/// Takes a lock, exclusive or shared, if nobody else holds a conflicting one. Returns false if somebody does. The descriptor
/// must be open for that access.
pub fn take(file: &File, place: LockByte, alone: bool) -> io::Result<bool> {
    let mut lock = described(if alone { libc::F_WRLCK } else { libc::F_RDLCK }, place);
    match ask(file, libc::F_OFD_SETLK, &mut lock) {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) if has_no_locks(&e) => Ok(true),
        Err(e) => Err(e),
    }
}

/// Waits for a lock.
pub fn wait(file: &File, place: LockByte, alone: bool) -> io::Result<()> {
    let mut lock = described(if alone { libc::F_WRLCK } else { libc::F_RDLCK }, place);
    match ask(file, libc::F_OFD_SETLKW, &mut lock) {
        Err(e) if !has_no_locks(&e) => Err(e),
        _ => Ok(()),
    }
}

/// Releases a lock.
pub fn release(file: &File, place: LockByte) {
    // Closing the descriptor releases it, too.
    let _ = ask(file, libc::F_OFD_SETLK, &mut described(libc::F_UNLCK, place));
}

/// Returns true if somebody else holds a lock, through another descriptor.
pub fn is_taken(file: &File, place: LockByte) -> bool {
    let mut lock = described(libc::F_WRLCK, place);
    ask(file, libc::F_OFD_GETLK, &mut lock).is_ok() && lock.l_type != libc::F_UNLCK as c_short
}

/// The turn to change a stub, or to see it unchanged. Ends when dropped.
pub struct Turn<'a>(&'a File);

impl<'a> Turn<'a> {
    /// Waits for the turn. `alone`: to change the stub, through a descriptor that may write.
    pub fn wait(file: &'a File, alone: bool) -> io::Result<Self> {
        wait(file, LockByte::Turn, alone)?;
        Ok(Self(file))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        release(self.0, LockByte::Turn);
    }
}

/// Takes the rule's lock, exclusive or shared, without waiting. Returns false if somebody holds a conflicting one; a lock that
/// the descriptor had shared it then still has.
pub fn rule(file: &File, alone: bool, had_shared: bool) -> io::Result<bool> {
    let lock = |how: c_int| loop {
        // SAFETY: a plain call with an open descriptor.
        if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
            return Ok(true);
        }
        match io::Error::last_os_error() {
            e if e.kind() == io::ErrorKind::Interrupted => {}
            e if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            e if has_no_locks(&e) => return Ok(true),
            e => return Err(e),
        }
    };
    let got = lock(if alone { libc::LOCK_EX } else { libc::LOCK_SH })?;
    if !got && had_shared {
        // A failed conversion has released the old lock.
        lock(libc::LOCK_SH)?;
    }
    Ok(got)
}

/// Releases the rule's lock.
pub fn end_rule(file: &File) {
    // SAFETY: as above. Closing the last descriptor releases it, too.
    let _ = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_belong_to_descriptors_and_end_with_them() {
        let path = std::env::temp_dir().join(format!("cenote-locks-{}", std::process::id()));
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        let (a, b) = (open(), open());
        assert!(rule(&a, false, false).unwrap() && rule(&b, false, false).unwrap());
        assert!(!rule(&a, true, true).unwrap());
        drop(open());
        let c = open();
        assert!(!rule(&c, true, false).unwrap(), "both share it still");
        drop(b);
        assert!(rule(&a, true, true).unwrap() && !rule(&c, false, false).unwrap());
        end_rule(&a);
        assert!(rule(&c, false, false).unwrap());

        assert!(take(&a, LockByte::Open, false).unwrap() && take(&c, LockByte::Open, false).unwrap());
        assert!(is_taken(&a, LockByte::Open) && !take(&a, LockByte::Open, true).unwrap());
        drop(c);
        assert!(!is_taken(&a, LockByte::Open) && take(&a, LockByte::Open, true).unwrap());
        assert!(!is_taken(&a, LockByte::Turn));
        std::fs::remove_file(path).unwrap();
    }
}
