//! Counting large memory objects by the place in the program that asks for them.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::layout::{Keyed, SLOT_WORDS, Word};
use crate::{Tally, text};

/// What a word of a place's slot is.
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
/// From so many objects on their mean life says something.
const TELLING: u64 = 16;

/// What was counted of the objects that one place of the program makes.
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
    /// Names of the functions that asked, innermost first, one a line.
    pub fn set_text(&self, text: &[u8]) {
        text::write(&self.words[TEXT..], text);
        self.word(Field::Ready).store(1, Release);
    }
    /// True if objects of this place are known to live for less than that on the mean.
    pub fn is_short_lived(&self, ns: u64) -> bool {
        let gone = self.word(Field::Gone).load(Relaxed);
        gone >= TELLING && self.word(Field::LifeNs).load(Relaxed) / gone < ns
    }
}

impl Tally {
    /// An object was made at a place; `kind` of [`crate::memory_kind`].
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
    /// An object is freed, if it is one that is counted: its bytes and its place.
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
