//! The file of a shared page cache: bytes in shared memory that all processes of a machine see at once, in addition to
//! the store. It is a meeting file with content.
//!
//! The meaning of the bytes, and the time of their storage, is up to the caller.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};

use cenote_host::meeting::{Holder, LockKind, MeetingFile};
use rustix::fs::{FallocateFlags, Mode, OFlags, SeekFrom, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

/// The byte that a process locks to fill the page cache or write it back.
const WORK: u64 = i64::MAX as u64 - 1;

/// The file of a shared page cache; see the module. A drop leaves the file in place, whether other processes use it or not.
#[derive(Debug)]
pub struct PageCacheFile(ManuallyDrop<MeetingFile>);

/// The lock of the one process that works on a page cache. The drop releases it.
pub struct Working<'a>(&'a PageCacheFile);

impl Drop for PageCacheFile {
    #[allow(unsafe_code, reason = "a value is taken out of what is being dropped")]
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        unsafe { ManuallyDrop::take(&mut self.0) }.leave();
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        let _ = self.0.0.lock(Holder::Description, None, WORK, 1, false);
    }
}

impl PageCacheFile {
    /// Creates a page cache in this meeting file.
    pub fn new(here: MeetingFile) -> Self {
        Self(ManuallyDrop::new(here))
    }
    /// Returns the meeting file.
    pub fn meeting(&self) -> &MeetingFile {
        &self.0
    }
    /// Waits until no other process works on the page cache. Threads of one process need another lock among themselves.
    pub fn work(&self) -> io::Result<Working<'_>> {
        loop {
            match self.0.lock(Holder::Description, Some(LockKind::Exclusive), WORK, 1, true) {
                Ok(()) => return Ok(Working(self)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
    /// Returns true once the page cache was filled. The mark is in the file's mode, so that it disappears with the file.
    pub fn is_filled(&self) -> io::Result<bool> {
        Ok(rustix::fs::fstat(&*self.0)?.st_mode & Mode::XUSR.bits() != 0)
    }
    /// Sets the mark.
    pub fn set_filled(&self, is_filled: bool) -> io::Result<()> {
        let mode = Mode::RUSR | Mode::WUSR | if is_filled { Mode::XUSR } else { Mode::empty() };
        Ok(rustix::fs::fchmod(&*self.0, mode)?)
    }
    /// Returns the size, and the bytes of memory in use.
    pub fn usage(&self) -> io::Result<(u64, u64)> {
        let stat = rustix::fs::fstat(&*self.0)?;
        Ok((stat.st_size as u64, stat.st_blocks as u64 * 512))
    }
    /// Returns the time of the last write by a system call: seconds and nanoseconds since 1970.
    pub fn modified(&self) -> io::Result<(i64, u32)> {
        let stat = rustix::fs::fstat(&*self.0)?;
        Ok((stat.st_mtime, stat.st_mtime_nsec as u32))
    }
    /// Sets that time.
    pub fn set_modified(&self, s: i64, ns: u32) -> io::Result<()> {
        let modified = Timespec { tv_sec: s, tv_nsec: ns.into() };
        let times =
            Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: modified };
        Ok(rustix::fs::futimens(&*self.0, &times)?)
    }
    /// Sets the size; `ENOSPC` if memory lacks room for the bytes that it does not use yet.
    pub fn set_size(&self, size: u64) -> io::Result<()> {
        Ok(rustix::fs::ftruncate(&*self.0, size)?)
    }
    /// `ENOSPC` unless there is room for this many bytes, and as many again for others.
    pub fn check_room(&self, bytes: u64) -> io::Result<()> {
        let space = rustix::fs::fstatvfs(&*self.0)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if space.f_blocks == 0 || bytes <= free / 2 { Ok(()) } else { Err(Errno::NOSPC.into()) }
    }
    /// Reads into `buf`; returns fewer bytes only at the end.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&*self.0, &mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(done)
    }
    /// Writes all of `bytes`.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            match rustix::io::pwrite(&*self.0, &bytes[done..], offset + done as u64) {
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }
    /// Returns the next offset from `offset` on that is not known to be zeros.
    pub fn next_data(&self, offset: u64) -> io::Result<Option<u64>> {
        seek(&self.0, SeekFrom::Data(offset))
    }
    /// Returns the next hole from `offset` on; the end is one. `None` beyond the end.
    pub fn next_hole(&self, offset: u64) -> io::Result<Option<u64>> {
        seek(&self.0, SeekFrom::Hole(offset))
    }
    /// Punches a hole; the size stays.
    pub fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(rustix::fs::fallocate(&*self.0, how, offset, len)?)
    }
    /// Returns another descriptor of the same bytes, for a mapping or the kernel; it does not keep the page cache.
    pub fn descriptor(&self, writes: bool) -> io::Result<OwnedFd> {
        let flags = if writes { OFlags::RDWR } else { OFlags::RDONLY };
        let fd = rustix::fs::open(self.0.path(), flags | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
        let (one, other) = (rustix::fs::fstat(&*self.0)?, rustix::fs::fstat(&fd)?);
        if (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino) { Ok(fd) } else { Err(Errno::STALE.into()) }
    }
}

fn seek(file: &MeetingFile, to: SeekFrom) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file.as_fd(), to) {
        Ok(at) => Ok(Some(at)),
        Err(Errno::NXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;

    #[test]
    fn reads_give_what_was_written_and_end_where_that_does() {
        let fd = memfd_create("cache", MemfdFlags::CLOEXEC).unwrap();
        let cache = PageCacheFile::new(MeetingFile::adopt(fd, Path::new("cache")));
        cache.write_at(b"some bytes", 5).unwrap();
        let mut buf = [7; 20];
        assert_eq!(cache.read_at(&mut buf, 5).unwrap(), 10);
        assert_eq!(&buf[..12], b"some bytes\x07\x07");
        assert_eq!(cache.read_at(&mut buf[..4], 8).unwrap(), 4);
        assert_eq!(&buf[..4], b"e by");
        assert_eq!(cache.read_at(&mut buf, 15).unwrap(), 0);
    }

    /// A page cache that cannot be locked is an error rather than an endless wait.
    #[test]
    fn one_that_cannot_be_locked_is_an_error() {
        let fd = rustix::fs::open("/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let cache = PageCacheFile::new(MeetingFile::adopt(fd, Path::new("cache")));
        assert!(cache.work().is_err());
    }
}
