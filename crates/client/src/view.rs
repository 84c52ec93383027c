//! Bytes of an object by reference.
#![allow(unsafe_code, reason = "a slice over a mapped segment")]

use std::sync::Arc;

use cenote_model::Result;

use crate::data::cache::ObjectCache;
use crate::data::read;
use crate::session::Session;
use crate::session::readers::{Held, Readers};

/// Bytes of an object by reference. They stay as they were when it was made, whatever is written meanwhile: the space
/// is not used again while the view lives.
pub struct View {
    address: usize,
    len: usize,
    /// Ends the announcement; before the session, which keeps the mapping.
    _held: Option<Held>,
    _session: Arc<Session>,
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("View").field("len", &self.len).finish_non_exhaustive()
    }
}

impl View {
    pub(crate) fn make(
        session: &Arc<Session>,
        object: &Arc<ObjectCache>,
        offset: u64,
        len: usize,
    ) -> Result<Option<Self>> {
        if len == 0 {
            return Ok(Some(Self { address: 0, len: 0, _held: None, _session: session.clone() }));
        }
        read::settle_own_writes(session, object);
        loop {
            let attachment = session.attachment().clone();
            let held = Readers::hold(&attachment);
            if !attachment.is_current() {
                drop(held);
                session.attach_again(&attachment)?;
                continue;
            }
            let address = read::address_of(session, &attachment, object, offset, len)?;
            if !attachment.is_current() {
                continue;
            }
            let view = address.map(|address| Self { address, len, _held: Some(held), _session: session.clone() });
            return Ok(view);
        }
    }
}

impl std::ops::Deref for View {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `address_of` found the range inside a mapped segment, which the session keeps mapped; extents are
        // written once, before they are in any map, and the held announcement keeps the space from being used again.
        unsafe { std::slice::from_raw_parts(self.address as *const u8, self.len) }
    }
}
