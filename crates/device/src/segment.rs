//! A segment as a descriptor that can be handed to clients.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_model::Result;

/// How the bytes of a segment are to be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentMode {
    /// Map it: memory.
    Mapped = 0,
    /// `pread` and `pwrite` at multiples of 4096 from buffers aligned to 4096: the descriptor has `O_DIRECT`.
    Direct = 1,
    /// `pread` and `pwrite` at will: the file system has no direct I/O.
    Buffered = 2,
    /// Map it, for writing with `MAP_SYNC`: persistent memory. Who writes through a mapping writes the cache lines back
    /// ([`crate::SegmentIo::persist`]) before anybody is told of the bytes; no sync of the device does it for them.
    Persistent = 3,
}

impl SegmentMode {
    /// The mode with this number, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Mapped, Self::Direct, Self::Buffered, Self::Persistent].into_iter().find(|mode| *mode as u8 == code)
    }
    /// True if the bytes are reached through a mapping.
    #[inline]
    pub fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped | Self::Persistent)
    }
}

/// One segment of a device: a file and where the data are in it. Device offset `number * segment_bytes + x` is at file
/// offset `data_offset + x`.
#[derive(Clone, Debug)]
pub struct SegmentFile {
    /// Open for reading and writing.
    pub fd: Arc<OwnedFd>,
    /// Where the data begin in the file.
    pub data_offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// How to reach them.
    pub mode: SegmentMode,
}

impl SegmentFile {
    /// A second descriptor of the same file through which nothing can be written or mapped writable.
    pub fn read_only(&self) -> Result<OwnedFd> {
        use rustix::fs::{Mode, OFlags};
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.fd.as_raw_fd());
        let mut flags = OFlags::RDONLY | OFlags::CLOEXEC;
        if self.mode == SegmentMode::Direct {
            flags |= OFlags::DIRECT;
        }
        rustix::fs::open(&path, flags, Mode::empty())
            .map_err(|error| cenote_model::Error::io("read-only descriptor of a segment", &error.into()))
    }
}
