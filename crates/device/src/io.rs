//! Reading and writing one segment through a descriptor: the same code in the engine's process and in a client's.

use std::os::fd::AsFd;

use cenote_model::{Error, ErrorKind, Result};
use rustix::io::Errno;

use crate::aligned::{ALIGN_BYTES, AlignedBuf, BOUNCE_BYTES, is_aligned};
use crate::map::{HUGE_BYTES, Mapping};
use crate::{SegmentFile, SegmentMode};

/// How to fill the rest of a 4096-byte unit that a write covers in part.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Keep,
    Zero,
}

/// A segment ready for I/O. Offsets count from the start of the segment's data.
#[derive(Debug)]
pub struct SegmentIo {
    file: SegmentFile,
    map: Option<Mapping>,
    /// On tmpfs, present pages stay, and reading a missing page creates it.
    is_tmpfs: bool,
    writable: bool,
    subject: String,
}

impl SegmentIo {
    /// Takes a descriptor from the device or the socket. `writable` if the descriptor is. `subject` names the segment
    /// in errors, e.g. ``segment 3 of device `memory` ``.
    pub fn new(file: SegmentFile, writable: bool, subject: impl Into<String>) -> Result<Self> {
        const TMPFS_MAGIC: u64 = 0x0102_1994;
        let subject = subject.into();
        let size = size_of(&*file.fd).map_err(|errno| fail(&subject, errno))?;
        let end = file.data_offset.checked_add(file.len);
        if file.len == 0 || end.is_none_or(|end| end > size) {
            return Err(Error::new(ErrorKind::Corrupt, subject)
                .because(format!("it has {size} bytes, {} at {} are expected", file.len, file.data_offset))
                .try_next("give it back its size, or drain and replace the device"));
        }
        let map = if file.mode.is_mapped() {
            let len = usize::try_from(file.len).map_err(|_| fail(&subject, Errno::FBIG))?;
            let map = if file.mode == SegmentMode::Persistent && writable {
                Mapping::persistent(&*file.fd, file.data_offset, len)
            } else {
                Mapping::new(&*file.fd, file.data_offset, len, writable)
            };
            let map = map.map_err(|errno| fail(&subject, errno))?;
            let _ = map.advise_huge(); // best effort
            Some(map)
        } else {
            None
        };
        let is_tmpfs = map.is_some() && rustix::fs::fstatfs(&*file.fd).is_ok_and(|fs| fs.f_type as u64 == TMPFS_MAGIC);
        Ok(Self { file, map, is_tmpfs, writable, subject })
    }
    /// The same for bytes that do not matter: if another process truncates the file, a process that asked to survive
    /// that ([`cenote_host::torn`]) continues with zeros.
    pub(crate) fn watched(mut self) -> Self {
        self.map = self.map.map(Mapping::watched);
        self
    }
    /// The mapping, in modes that are mapped.
    #[inline]
    pub fn map(&self) -> Option<&Mapping> {
        self.map.as_ref()
    }
    /// Data bytes.
    pub fn len(&self) -> u64 {
        self.file.len
    }
    /// Always false: empty segments are refused.
    pub fn is_empty(&self) -> bool {
        self.file.len == 0
    }
    /// Access mode of the segment.
    pub fn mode(&self) -> SegmentMode {
        self.file.mode
    }
    /// The descriptor and the place of the data in it.
    pub fn file(&self) -> &SegmentFile {
        &self.file
    }
    /// Returns true if some process has touched the range's memory. For untouched memory [`SegmentIo::write_at`] is
    /// about twice as fast as faulting it in and copying, since the kernel need not zero pages first.
    pub fn is_resident(&self, offset: u64, len: usize) -> bool {
        let map = self.map.as_ref().filter(|_| self.is_tmpfs);
        map.is_none_or(|map| map.is_resident(offset, len))
    }
    /// Faults in memory, so that writing to it through the mapping neither faults nor meets a full file system (which
    /// would be SIGBUS). Call it on newly leased space. Does nothing for files.
    pub fn populate(&self, offset: u64, len: usize) -> Result<()> {
        /// Long calls hold the address space's lock; slices let other threads in.
        const SLICE_BYTES: usize = 2 * HUGE_BYTES;
        let Some(map) = &self.map else { return Ok(()) };
        if !map.is_writable() || map.at(offset, len).is_none() {
            return Err(self.outside(offset, len));
        }
        let mut done = 0;
        let mut huge = HUGE_BYTES as u64;
        while done < len {
            let at = offset + done as u64;
            let whole = at.is_multiple_of(huge) && len - done >= huge as usize;
            let mut n = (len - done).min(SLICE_BYTES);
            if whole {
                n = huge as usize;
            }
            // A stretch is faulted in whole: its first page stands for the others.
            let is_there = self.is_tmpfs && map.is_resident(at, if whole { 1 } else { n });
            if whole && !is_there {
                // Fault in one page first: the kernel makes no huge page where no page is present. Small pages that are
                // present stay as they are: copying them costs more than it saves.
                if !(map.populate(at, 1).is_ok() && map.collapse(at, n)) {
                    huge = u64::MAX;
                }
            }
            match if is_there { map.populate_read(at, n) } else { map.populate(at, n) } {
                Ok(()) => done += n,
                Err(Errno::INTR | Errno::AGAIN) => {}
                // Kernels before 5.14: reserve the blocks instead.
                Err(Errno::INVAL) => {
                    let at = self.file.data_offset + offset + done as u64;
                    rustix::fs::fallocate(&*self.file.fd, rustix::fs::FallocateFlags::KEEP_SIZE, at, n as u64)
                        .map_err(|errno| fail(&self.subject, errno))?;
                    done += n;
                }
                // A write would have raised SIGBUS.
                Err(Errno::FAULT | Errno::NOMEM | Errno::NOSPC) => return Err(self.no_page()),
                Err(errno) => return Err(fail(&self.subject, errno)),
            }
        }
        Ok(())
    }
    #[cold]
    fn no_page(&self) -> Error {
        let (cause, next_step) = if self.is_tmpfs {
            ("the machine has no memory left for it", "make the memory tier smaller or give /dev/shm more room")
        } else {
            ("its file gives no page there: the file system is full, or the file was cut short", "check the file")
        };
        Error::new(ErrorKind::Full, self.subject.clone()).because(cause).try_next(next_step)
    }
    /// Call it after writing through the mapping and before anybody learns of the bytes. On return they survive power
    /// loss where that is the writer's task ([`SegmentMode::Persistent`]); in other modes this does nothing.
    #[inline]
    pub fn persist(&self, offset: u64, len: usize) {
        if self.file.mode == SegmentMode::Persistent
            && let Some(map) = &self.map
        {
            crate::write_back::persist(map, offset, len);
        }
    }
    /// The mapping, if it is one of memory whose truncation by another process this one survives.
    pub(crate) fn map_of_memory(&self) -> Option<&Mapping> {
        self.map.as_ref().filter(|map| self.is_tmpfs && map.is_watched())
    }
    /// Writes all of `bytes`, through the mapping if there is one of memory that is there: only then no page has to be made.
    pub fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        match self.map_of_memory().filter(|map| map.is_resident(offset, bytes.len())) {
            Some(map) if map.copy_in(offset, bytes) && !map.is_torn() => Ok(()),
            _ => self.write_at(offset, bytes), // which says what is wrong
        }
    }
    /// Fills `buf` with bytes that were written, through the mapping if there is one of memory.
    pub fn copy_out(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        match self.map_of_memory() {
            Some(map) if map.copy_out(offset, buf) && !map.is_torn() => Ok(()),
            _ => self.read_at(offset, buf), // which says what is wrong
        }
    }
    /// Fills `buf`.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.inside(offset, buf.len())?;
        let at = self.file.data_offset + offset;
        if self.file.mode != SegmentMode::Direct || is_aligned(buf, at) {
            return self.pread(at, buf);
        }
        let mut bounce = AlignedBuf::reused(BOUNCE_BYTES);
        let mut done = 0;
        while done < buf.len() {
            let (first, skip, n) = window(at + done as u64, buf.len() - done);
            let span = (skip + n).next_multiple_of(ALIGN_BYTES);
            self.pread(first, &mut bounce[..span])?;
            buf[done..done + n].copy_from_slice(&bounce[skip..skip + n]);
            done += n;
        }
        Ok(())
    }
    /// Writes exactly `bytes`. In [`SegmentMode::Direct`] partly covered 4096-byte units at the ends are read first; no
    /// other write to those units may run meanwhile.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, Rest::Keep)
    }
    /// Like [`SegmentIo::write_at`], for an offset that is a multiple of 4096 when the rest of the last unit also
    /// belongs to the caller: the rest may become zeros, which saves reading it.
    pub fn write_padded(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, Rest::Zero)
    }
    /// Fails unless the range is inside the segment.
    pub(crate) fn check_inside(&self, offset: u64, len: usize) -> Result<()> {
        self.inside(offset, len)
    }
    /// Fails unless the range is inside the segment and writable.
    pub(crate) fn check_writable(&self, offset: u64, len: usize) -> Result<()> {
        self.inside(offset, len)?;
        if self.writable {
            return Ok(());
        }
        Err(Error::new(ErrorKind::PermissionDenied, self.subject.clone()).because("it is open for reading"))
    }
    fn write(&self, offset: u64, bytes: &[u8], rest: Rest) -> Result<()> {
        self.check_writable(offset, bytes.len())?;
        let at = self.file.data_offset + offset;
        if self.file.mode != SegmentMode::Direct || is_aligned(bytes, at) {
            return self.pwrite(at, bytes);
        }
        let mut bounce = AlignedBuf::reused(BOUNCE_BYTES);
        let mut done = 0;
        while done < bytes.len() {
            let (first, skip, n) = window(at + done as u64, bytes.len() - done);
            let span = (skip + n).next_multiple_of(ALIGN_BYTES);
            if skip > 0 {
                self.pread(first, &mut bounce[..ALIGN_BYTES])?;
            }
            if skip + n < span {
                let last = span - ALIGN_BYTES;
                match rest {
                    Rest::Zero => bounce[skip + n..span].fill(0),
                    Rest::Keep if skip > 0 && last == 0 => {} // the first unit is also the last: read above
                    Rest::Keep => self.pread(first + last as u64, &mut bounce[last..span])?,
                }
            }
            bounce[skip..skip + n].copy_from_slice(&bytes[done..done + n]);
            self.pwrite(first, &bounce[..span])?;
            done += n;
        }
        Ok(())
    }
    /// Makes what was written through this descriptor (for files: by anyone) survive power loss.
    pub fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&*self.file.fd).map_err(|errno| fail(&self.subject, errno))
    }
    fn pread(&self, mut at: u64, mut buf: &mut [u8]) -> Result<()> {
        while !buf.is_empty() {
            match rustix::io::pread(&*self.file.fd, &mut *buf, at) {
                Ok(0) => {
                    return Err(Error::new(ErrorKind::Corrupt, self.subject.clone())
                        .because(format!("the file ends at {at}: it was cut short"))
                        .try_next("restore the file from a copy"));
                }
                Ok(n) => {
                    buf = &mut buf[n..];
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fail(&self.subject, errno)),
            }
        }
        Ok(())
    }
    fn pwrite(&self, mut at: u64, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(&*self.file.fd, bytes, at) {
                Ok(0) => return Err(fail(&self.subject, Errno::NOSPC)),
                Ok(n) => {
                    bytes = &bytes[n..];
                    at += n as u64;
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(fail(&self.subject, errno)),
            }
        }
        Ok(())
    }
    #[inline]
    fn inside(&self, offset: u64, len: usize) -> Result<()> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.file.len) {
            return Ok(());
        }
        Err(self.outside(offset, len))
    }
    #[cold]
    fn outside(&self, offset: u64, len: usize) -> Error {
        Error::new(ErrorKind::InvalidInput, self.subject.clone())
            .because(format!("{len} bytes at {offset} reach past its {} bytes", self.file.len))
    }
}

/// The aligned window of at most [`BOUNCE_BYTES`] for a transfer at `at`: (file offset, bytes to skip, payload bytes).
fn window(at: u64, len: usize) -> (u64, usize, usize) {
    let skip = (at % ALIGN_BYTES as u64) as usize;
    (at - skip as u64, skip, len.min(BOUNCE_BYTES - skip))
}

/// The error for the operating system's refusal of I/O on `subject`.
#[cold]
pub(crate) fn fail(subject: &str, errno: Errno) -> Error {
    let error = Error::io(subject, &errno.into());
    match error.kind() {
        ErrorKind::Full => error.try_next("free some space there, or add a device to the store"),
        ErrorKind::PermissionDenied => error.try_next("check who owns it and who may read and write it"),
        ErrorKind::NotFound => error.try_next("check the path of the device"),
        _ if errno == Errno::ROFS => error.try_next("mount that file system writable"),
        _ => error,
    }
}

/// Bytes of a file or block device; a block device's inode does not hold its size.
pub(crate) fn size_of(fd: impl AsFd) -> Result<u64, Errno> {
    use rustix::fs::{FileType, SeekFrom};
    let stat = rustix::fs::fstat(&fd)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::BlockDevice => rustix::fs::seek(&fd, SeekFrom::End(0)), // nobody uses the file position
        _ => Ok(stat.st_size as u64),
    }
}

/// Opens with direct I/O where the file system has it.
pub(crate) fn open_direct(
    dir: impl AsFd,
    name: &std::path::Path,
    flags: rustix::fs::OFlags,
) -> Result<(std::os::fd::OwnedFd, SegmentMode), Errno> {
    use rustix::fs::{Mode, OFlags};
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::openat(&dir, name, flags | OFlags::CLOEXEC | OFlags::DIRECT, mode) {
        Ok(fd) => {
            let mut probe = AlignedBuf::reused(ALIGN_BYTES);
            match rustix::io::pread(&fd, &mut probe[..ALIGN_BYTES], 0) {
                Err(Errno::INVAL) => {}
                _ => return Ok((fd, SegmentMode::Direct)),
            }
        }
        Err(Errno::INVAL) => {}
        Err(errno) => return Err(errno),
    }
    let again = flags.difference(OFlags::EXCL); // the attempt above may have created it
    let fd = rustix::fs::openat(&dir, name, again | OFlags::CLOEXEC, mode)?;
    Ok((fd, SegmentMode::Buffered))
}
