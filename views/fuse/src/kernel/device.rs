//! A descriptor of `/dev/fuse`. The answer to a request goes through the descriptor that it was read from.
#![allow(unsafe_code, reason = "the device's clones have no safe interface")]

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::abi::OUT_HEADER_BYTES;

/// `FUSE_DEV_IOC_CLONE`: `_IOR(229, 0, uint32_t)`.
const CLONE: libc::c_ulong = 0x8004_e500;

/// `FUSE_DEV_IOC_BACKING_OPEN`: `_IOW(229, 1, struct fuse_backing_map)`.
const BACKING_OPEN: libc::c_ulong = 0x4010_e501;
/// `FUSE_DEV_IOC_BACKING_CLOSE`: `_IOW(229, 2, uint32_t)`.
const BACKING_CLOSE: libc::c_ulong = 0x4004_e502;

/// A descriptor of `/dev/fuse`.
#[derive(Debug)]
pub struct Device(OwnedFd);

/// The result of a read.
pub enum Read {
    /// A request of this many bytes.
    Request(usize),
    /// No request, on a non-blocking descriptor.
    Nothing,
    /// The mount is over.
    Over,
}

impl Device {
    /// The descriptor of the mount itself.
    pub fn of_mount(fd: BorrowedFd<'_>) -> io::Result<Self> {
        Ok(Self(fd.try_clone_to_owned()?))
    }
    /// Another descriptor of the same mount, with its own requests in progress. It blocks if `waits`, otherwise it
    /// reports that there are none.
    pub fn another(&self, waits: bool) -> io::Result<Self> {
        let flags = if waits { OFlags::empty() } else { OFlags::NONBLOCK };
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty())?;
        let from = self.0.as_raw_fd();
        // SAFETY: the call reads one number.
        if unsafe { libc::ioctl(fd.as_raw_fd(), CLONE, &raw const from) } == 0 {
            Ok(Self(fd))
        } else {
            Err(io::Error::last_os_error())
        }
    }
    /// Reads one request.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<Read> {
        loop {
            match rustix::io::read(&self.0, &mut *buffer) {
                Ok(0) | Err(Errno::NODEV) => return Ok(Read::Over),
                Ok(len) => return Ok(Read::Request(len)),
                // Withdrawn by the caller, or a signal came.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Read::Nothing),
                Err(error) => return Err(error.into()),
            }
        }
    }
    /// Writes one answer. Returns false if nobody waits for it any more.
    pub fn write(&self, parts: &[IoSlice<'_>]) -> bool {
        match rustix::io::writev(&self.0, parts) {
            Ok(_) => true,
            Err(Errno::NOENT | Errno::NODEV) => false,
            Err(error) => {
                tracing::error!(%error, "the kernel did not take an answer");
                false
            }
        }
    }
    /// Gives the kernel a file for passthrough; returns its id. Only for root.
    pub fn open_backing(&self, fd: BorrowedFd<'_>) -> io::Result<u32> {
        // `struct fuse_backing_map`: descriptor, flags, padding.
        let map = [fd.as_raw_fd(), 0, 0, 0];
        // SAFETY: the call reads 16 bytes.
        match unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_OPEN, map.as_ptr()) } {
            number @ 1.. => Ok(number.cast_unsigned()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    /// Tests with a temporary file whether the kernel supports passthrough.
    pub fn can_pass_through(&self) -> io::Result<()> {
        let file = rustix::fs::memfd_create("passthrough", rustix::fs::MemfdFlags::CLOEXEC)?;
        self.open_backing(file.as_fd()).map(|number| self.close_backing(number))
    }
    /// Closes a backing file; the kernel releases it when its last user has closed it.
    pub fn close_backing(&self, number: u32) {
        // SAFETY: the call reads one number.
        if unsafe { libc::ioctl(self.0.as_raw_fd(), BACKING_CLOSE, &raw const number) } != 0 {
            tracing::warn!(error = %io::Error::last_os_error(), "the kernel keeps a file");
        }
    }
    /// Tells the kernel to look up again every name that it knows; waits for nothing. Kernels before 6.16 do not
    /// support this.
    pub fn forget_names(&self) -> io::Result<()> {
        // `FUSE_NOTIFY_INC_EPOCH`, which answers no request: number 0.
        const FORGET_NAMES: u32 = 8;
        let mut notice = [0; OUT_HEADER_BYTES];
        notice[..4].copy_from_slice(&(OUT_HEADER_BYTES as u32).to_ne_bytes());
        notice[4..8].copy_from_slice(&FORGET_NAMES.to_ne_bytes());
        rustix::io::write(&self.0, &notice)?;
        Ok(())
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
