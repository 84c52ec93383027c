//! The table in shared memory through which readers and the engine agree without messages.
//!
//! `control` holds the instance, the reader epoch and the version words; clients map it read-only. `client-<n>` belongs
//! to one client: its reader slots and, behind them, space for its two rings and for its redo log of pipelined changes.
//! Both files survive the engine, and the files of a dead client stay until somebody has taken over what it left there.
//!
//! # Why a reader never copies bytes that were released
//!
//! The engine: (1) changes its map, (2) raises the object's word, (3) tags the retired run with the epoch and raises
//! the epoch, (4) later reads all slots and releases the run only if each is greater than the tag.
//! A reader: (a) loads the epoch, (b) puts it into its slot, (c) compares the word with the cached one, (d) copies,
//! (e) clears the slot. (2), (3), (4), (a), (b), (c) are sequentially consistent, so they have one total order `<`.
//! If (c) finds the old word then (c) < (2), so (a) < (2) < (3) and the announced epoch is at most the tag; and
//! (b) < (c) < (2) < (4), so the scan sees the announcement unless (e) came first, and the run stays.
//! (e) is a release store that the scan reads with acquire (or stronger), so the copy is over when the run is reused.
//! If (c) finds a new word, the reader does not copy. The announced epoch may be older than the current one; that only
//! delays the release.

mod client;
mod counters;
mod engine;
mod layout;
mod locks;
mod slots;
mod trust;

pub use client::{ClientFile, ControlView, unattached};
pub use counters::{ClientCounters, ClientCounts, READS_SAMPLED_IN, WRITES_TIMED_IN, is_counting};
pub(crate) use engine::TABLE_FILE;
pub use engine::{ClientRoom, SharedControl};
pub use layout::{CONTROL_VERSION, READER_SLOTS, WORDS};
pub use locks::{LOCK_GRACE, LockWords};
pub use slots::{Pin, ReaderSlots};
pub use trust::boot_ns;

pub(crate) use layout::{ClientHeader, ControlHeader};
