//! Tables of homes on other nodes: the daemon of this node keeps the words there that it was told, and until when they may
//! be trusted. And what a home remembers of the trust that it gave, so that its next daemon knows.

use std::sync::atomic::Ordering;

use rustix::time::{ClockId, clock_gettime};

use super::client::word_at;
use super::layout::{GRANTED_AT, GRANTEES_AT, TRUSTED_AT, WORDS, WORDS_AT};
use super::{ControlView, SharedControl};

/// Nanoseconds since the machine was started, with the time for which it slept.
#[must_use]
pub fn boot_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

impl SharedControl {
    /// Sets a word of a home on another node; `None`: nobody knows its value.
    pub fn tell(&self, word: u32, value: Option<u64>) {
        let at = WORDS_AT + (u64::from(word) % WORDS) * 8;
        word_at(self.map(), at).store(value.map_or(0, |value| value.wrapping_add(1)), Ordering::SeqCst);
    }
    /// Forgets all words.
    pub fn tell_nothing(&self) {
        (0..WORDS as u32).for_each(|word| self.tell(word, None));
    }
    /// Words of this table may be trusted until then ([`boot_ns`]); 0: no more.
    pub fn trust_until(&self, boot_ns: u64) {
        word_at(self.map(), TRUSTED_AT).store(boot_ns, Ordering::SeqCst);
    }
    /// Until when other nodes may trust words of this table ([`boot_ns`]), and which ([`SharedControl::grantee`]), as far
    /// as any daemon of this home said.
    pub fn granted(&self) -> (u64, u64) {
        let [until, nodes] = [GRANTED_AT, GRANTEES_AT].map(|at| word_at(self.map(), at).load(Ordering::SeqCst));
        (until, nodes)
    }
    /// Forgets what [`SharedControl::granted`] tells, after that time.
    pub fn forget_grants(&self) {
        word_at(self.map(), GRANTEES_AT).store(0, Ordering::SeqCst);
    }
    /// Records that a node may trust words of this table until then.
    pub fn grant(&self, node: u16, until_ns: u64) {
        word_at(self.map(), GRANTED_AT).fetch_max(until_ns, Ordering::SeqCst);
        word_at(self.map(), GRANTEES_AT).fetch_or(Self::grantee(node), Ordering::SeqCst);
    }
    /// The bit of a node in [`SharedControl::granted`].
    #[must_use]
    pub fn grantee(node: u16) -> u64 {
        if node < 63 { 1 << node } else { Self::OTHER_GRANTEES }
    }
    /// The bit that many nodes share.
    pub const OTHER_GRANTEES: u64 = 1 << 63;
}

impl ControlView {
    /// Until when the words of a home on another node may be trusted, on the clock of [`boot_ns`]. Load it first, then the
    /// clock, then a word: if the time has not come by then, the word was valid at that moment.
    #[inline]
    pub fn trusted_until(&self) -> u64 {
        word_at(&self.map, TRUSTED_AT).load(Ordering::SeqCst)
    }
    /// The word of a home on another node for keys with this hash; `None`: nobody knows its value.
    #[inline]
    pub fn told(&self, hash: u64) -> Option<u64> {
        self.word(hash).checked_sub(1)
    }
}
