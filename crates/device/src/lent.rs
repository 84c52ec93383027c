//! Bytes of a device that lie in memory mapped by this process, lent without a copy.
#![allow(unsafe_code, reason = "a slice over a mapped segment")]

use std::sync::Arc;

use crate::SegmentIo;

/// Bytes in a mapped segment of a memory tier. They are there as long as this value lives. They stay the same as long as the
/// allocator gives their space to nobody else, which is the borrower's to ensure. Other processes map the segment too, so a
/// borrower that passes the bytes on passes their checksums on with them.
pub struct Lent {
    from: *const u8,
    len: usize,
    /// Keeps it mapped.
    segment: Arc<dyn InSegment>,
}

/// Whoever has a segment.
pub(crate) trait InSegment: Send + Sync {
    fn io(&self) -> &SegmentIo;
}

// SAFETY: plain bytes of a mapping, which lives as long as this value; nothing is tied to a thread.
unsafe impl Send for Lent {}
// SAFETY: as above, and nothing is written through it.
unsafe impl Sync for Lent {}

impl Lent {
    /// `len` bytes at an offset of a segment; `None` unless they lie in mapped memory whose truncation by another process this
    /// one survives, and which is whole.
    pub(crate) fn of(segment: Arc<dyn InSegment>, offset: u64, len: usize) -> Option<Self> {
        let from = segment.io().map_of_memory().filter(|map| !map.is_torn())?.at(offset, len)?;
        Some(Self { from, len, segment })
    }
    /// Returns false if another process has truncated the segment: then some of the bytes may be zeros.
    pub fn is_whole(&self) -> bool {
        self.segment.io().map().is_some_and(|map| !map.is_torn())
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `of` checked the bounds, and the mapping lives as long as `self`. The bytes are of a run that a map names,
        // which nobody writes to until its space is given to somebody else.
        unsafe { std::slice::from_raw_parts(self.from, self.len) }
    }
}
