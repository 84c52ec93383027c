//! What a home's table says of the locks of its files: whether other nodes are interested in any, the term in which this
//! node is its host, and until when the node may act for it. A process on the node looks at these words after each lock.

use std::sync::atomic::Ordering;

use super::client::word_at;
use super::layout::{LOCK_INTEREST_AT, LOCK_LEASE_AT, LOCK_NODES_AT, LOCK_TERM_AT};
use super::{ControlView, SharedControl};

/// In [`LockWords::interest`]: nobody may lock anything without asking, since other nodes may still claim what they had.
pub const LOCK_GRACE: u64 = 1 << 63;

/// The words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockWords {
    /// Number of files of the home that other nodes have, or want, something of; and [`LOCK_GRACE`].
    pub interest: u64,
    /// The home's term; 0: none is known.
    pub term: u64,
    /// Until when locks of processes of this node stand for sure, in nanoseconds of [`super::boot_ns`].
    pub lease_until: u64,
}

impl SharedControl {
    /// The words.
    pub fn lock_words(&self) -> LockWords {
        let [interest, term, lease_until] =
            [LOCK_INTEREST_AT, LOCK_TERM_AT, LOCK_LEASE_AT].map(|at| word_at(self.map(), at).load(Ordering::SeqCst));
        LockWords { interest, term, lease_until }
    }
    /// Sets in how many files other nodes are interested, and whether they may still claim some.
    pub fn set_lock_interest(&self, interest: u64) {
        word_at(self.map(), LOCK_INTEREST_AT).store(interest, Ordering::SeqCst);
    }
    /// Sets the term.
    pub fn set_lock_term(&self, term: u64) {
        word_at(self.map(), LOCK_TERM_AT).store(term, Ordering::SeqCst);
    }
    /// Sets until when locks stand.
    pub fn set_lock_lease(&self, until_ns: u64) {
        word_at(self.map(), LOCK_LEASE_AT).store(until_ns, Ordering::SeqCst);
    }
    /// Which nodes have something of the locks of the home, as far as any daemon of it said: as
    /// [`SharedControl::granted`] does.
    pub fn lock_nodes(&self) -> u64 {
        word_at(self.map(), LOCK_NODES_AT).load(Ordering::SeqCst)
    }
    /// Sets them.
    pub fn set_lock_nodes(&self, nodes: u64) {
        word_at(self.map(), LOCK_NODES_AT).store(nodes, Ordering::SeqCst);
    }
}

impl ControlView {
    /// The words.
    pub fn lock_words(&self) -> LockWords {
        let [interest, term, lease_until] =
            [LOCK_INTEREST_AT, LOCK_TERM_AT, LOCK_LEASE_AT].map(|at| word_at(&self.map, at).load(Ordering::SeqCst));
        LockWords { interest, term, lease_until }
    }
}
