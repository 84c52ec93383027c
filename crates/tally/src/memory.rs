//! Counts of large memory objects by allocation site.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::layout::{Keyed, SLOT_WORDS, Word};
use crate::{Tally, text};

/// The words of an allocation site's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub(crate) enum Field {
    Key,
    Ready,
    Kinds,
    Made,
    Gone,
    MadeBytes,
    LiveBytes,
    LiveBytesMax,
    ObjectBytesMax,
    LifeNs,
    FirstNs,
    LastNs,
}

pub(crate) const TEXT: usize = 16;
/// Number of objects from which their mean lifetime is meaningful.
const TELLING: u64 = 16;

/// The counts of one allocation site.
#[repr(C)]
pub struct SiteSlot {
    pub(crate) words: [Word; SLOT_WORDS],
}

impl Keyed for SiteSlot {
    fn key(&self) -> &Word {
        &self.words[Field::Key as usize]
    }
}

impl SiteSlot {
    fn word(&self, field: Field) -> &Word {
        &self.words[field as usize]
    }
    /// Names of the functions on the stack, innermost first, one a line.
    pub fn set_text(&self, text: &[u8]) {
        text::write(&self.words[TEXT..], text);
        self.word(Field::Ready).store(1, Release);
    }
    /// Returns true if objects of this site are known to live for less than `ns` on
    /// average.
    pub fn is_short_lived(&self, ns: u64) -> bool {
        let gone = self.word(Field::Gone).load(Relaxed);
        gone >= TELLING && self.word(Field::LifeNs).load(Relaxed) / gone < ns
    }
}

impl Tally {
    /// Records an allocation at a site; `kind` of [`crate::memory_kind`].
    pub fn memory_made(&self, site: usize, kind: u64, address: u64, bytes: u64, now_ns: u64) {
        let slot = &self.sites[site];
        slot.word(Field::Kinds).fetch_or(kind, Relaxed);
        slot.word(Field::Made).fetch_add(1, Relaxed);
        slot.word(Field::MadeBytes).fetch_add(bytes, Relaxed);
        let live = slot.word(Field::LiveBytes).fetch_add(bytes, Relaxed).wrapping_add(bytes);
        slot.word(Field::LiveBytesMax).fetch_max(live, Relaxed);
        slot.word(Field::ObjectBytesMax).fetch_max(bytes, Relaxed);
        let _ = slot.word(Field::FirstNs).compare_exchange(0, now_ns, Relaxed, Relaxed);
        slot.word(Field::LastNs).fetch_max(now_ns, Relaxed);
        self.object_made(address, bytes, site, now_ns);
    }
    /// Records that an object is freed; returns its bytes and site if it was counted.
    pub fn memory_gone(&self, address: u64, now_ns: u64) -> Option<(u64, usize)> {
        let (bytes, site, begin_ns) = self.object_gone(address)?;
        let slot = &self.sites[site];
        slot.word(Field::Gone).fetch_add(1, Relaxed);
        slot.word(Field::LiveBytes).fetch_sub(bytes, Relaxed);
        slot.word(Field::LifeNs).fetch_add(now_ns.saturating_sub(begin_ns), Relaxed);
        slot.word(Field::LastNs).fetch_max(now_ns, Relaxed);
        Some((bytes, site))
    }
}
