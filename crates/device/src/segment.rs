//! A segment as a descriptor that clients can receive.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote_model::Result;

/// How to access the bytes of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum SegmentMode {
    /// Map it: memory.
    Mapped = 0,
    /// `pread` and `pwrite` at multiples of 4096 from buffers aligned to 4096: the descriptor has `O_DIRECT`.
    Direct = 1,
    /// `pread` and `pwrite` without alignment: the file system has no direct I/O.
    Buffered = 2,
    /// Map it, for writing with `MAP_SYNC`: persistent memory. A writer through a mapping writes the cache lines back
    /// ([`crate::SegmentIo::persist`]) before anybody learns of the bytes; no sync of the device does it.
    Persistent = 3,
}

impl SegmentMode {
    /// The mode with this code, if there is one.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Mapped, Self::Direct, Self::Buffered, Self::Persistent].into_iter().find(|mode| *mode as u8 == code)
    }
    /// Returns true if the bytes are accessed through a mapping.
    #[inline]
    pub fn is_mapped(self) -> bool {
        matches!(self, Self::Mapped | Self::Persistent)
    }
}

/// One segment of a device: a file and the place of the data in it. Device offset `number * segment_bytes + x` is file
/// offset `data_offset + x`.
#[derive(Clone, Debug)]
pub struct SegmentFile {
    /// Open for reading and writing.
    pub fd: Arc<OwnedFd>,
    /// Offset of the data in the file.
    pub data_offset: u64,
    /// Bytes of data.
    pub len: u64,
    /// Access mode.
    pub mode: SegmentMode,
}

impl SegmentFile {
    /// A second descriptor of the same file that permits neither writing nor writable mappings.
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
