//! Borrowed bytes of an object.
#![allow(unsafe_code, reason = "a slice over a mapped segment")]

use std::sync::Arc;

use cenote_model::Result;

use crate::data::read;
use crate::link::readers::{Readers, ViewAnnouncement};
use crate::map::cache::ObjectCache;
use crate::session::Session;
use crate::stitched::Stitched;

/// Shorter ranges are faster to copy than to map contiguously.
const STITCHED_BYTES_MIN: usize = 1 << 20;

/// Borrowed bytes of an object, by reference. They stay unchanged whatever is written later: the space is not reused
/// while the view lives.
pub struct BorrowedBytes {
    address: usize,
    len: usize,
    /// A contiguous mapping of the range's pieces, if they are not contiguous by themselves.
    _stitched: Option<Stitched>,
    /// Ends the announcement; dropped before the session, which keeps the mapping.
    _held: Option<ViewAnnouncement>,
    _session: Arc<Session>,
}

impl std::fmt::Debug for BorrowedBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BorrowedBytes").field("len", &self.len).finish_non_exhaustive()
    }
}

impl BorrowedBytes {
    pub(crate) fn make(
        session: &Arc<Session>,
        object: &Arc<ObjectCache>,
        offset: u64,
        len: usize,
        in_pages: bool,
    ) -> Result<Option<Self>> {
        if len == 0 {
            return Ok(Some(Self { address: 0, len: 0, _stitched: None, _held: None, _session: session.clone() }));
        }
        let link = session.home(object.key.container);
        read::settle_own_writes(link, object);
        loop {
            let attachment = link.channel.attachment().clone();
            let held = Readers::hold(&attachment);
            if !attachment.is_current() {
                drop(held);
                link.channel.attach_again(&attachment)?;
                continue;
            }
            if attachment.bound {
                return Ok(None); // it maps nothing
            }
            let runs = read::runs_of(link, &attachment, object, offset, len)?;
            if !attachment.is_current() {
                continue;
            }
            let made = |address, stitched| Self {
                address,
                len,
                _stitched: stitched,
                _held: Some(held),
                _session: session.clone(),
            };
            return Ok(match runs.as_deref() {
                Some(runs) if in_pages => Stitched::pages(runs).map(|s| made(s.first, Some(s))),
                Some([(address, _)]) => Some(made(*address, None)),
                Some(runs) if len >= STITCHED_BYTES_MIN => Stitched::of(runs).map(|s| made(s.first, Some(s))),
                _ => None,
            });
        }
    }
}

impl std::ops::Deref for BorrowedBytes {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `runs_of` found the range inside mapped segments, which the session keeps mapped (or `Stitched` has
        // mapped it once more); extents are written once, before they are in any map, and the held announcement keeps
        // the space from being reused.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}
