//! A client's reader slots.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::layout::{READER_SLOTS, SLOT_STRIDE, SLOTS_AT};
use crate::map::Mapping;

/// Value of a slot that is not in use.
const IDLE: u64 = u64::MAX;

thread_local! {
    /// The slot that this thread tries first.
    static FAVOURITE: Cell<usize> = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        Cell::new(NEXT.fetch_add(1, Ordering::Relaxed) % READER_SLOTS)
    };
}

/// Slots in which the threads of one client announce their reads. Only that client's process uses them (a
/// forked child must attach anew); the engine only reads them.
#[derive(Clone, Debug)]
pub struct ReaderSlots {
    map: Arc<Mapping>,
}

impl ReaderSlots {
    /// The caller has checked that the mapping is a client file's.
    pub(super) fn new(map: Arc<Mapping>) -> Self {
        assert!(map.len() as u64 >= SLOTS_AT + READER_SLOTS as u64 * SLOT_STRIDE, "a client file's size was checked");
        Self { map }
    }
    #[inline]
    fn slot(&self, number: usize) -> &AtomicU64 {
        let offset = SLOTS_AT + (number % READER_SLOTS) as u64 * SLOT_STRIDE;
        self.map.word(offset).expect("the size was checked in `new`")
    }
    /// Announces the begin of a read that may rely on everything that was current at `epoch`. Compare
    /// instance and version words only after this call. `None` if all 64 slots are taken.
    ///
    /// `epoch` must have been loaded from the control table before the call.
    #[inline]
    pub fn announce(&self, epoch: u64) -> Option<usize> {
        let favourite = FAVOURITE.get();
        // A locked exchange: takes the slot, announces, and is the full fence before the words are compared.
        if self.slot(favourite).compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok() {
            return Some(favourite);
        }
        self.announce_elsewhere(favourite, epoch)
    }
    #[cold]
    fn announce_elsewhere(&self, favourite: usize, epoch: u64) -> Option<usize> {
        let number = (1..READER_SLOTS).map(|i| (favourite + i) % READER_SLOTS).find(|number| {
            self.slot(*number).compare_exchange(IDLE, epoch, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        })?;
        FAVOURITE.set(number); // a long-lived view may hold the old one
        Some(number)
    }
    /// Ends the read for which [`ReaderSlots::announce`] returned `slot`. May be called on any thread.
    #[inline]
    pub fn clear(&self, slot: usize) {
        self.slot(slot).store(IDLE, Ordering::Release);
    }
    /// Like [`ReaderSlots::announce`], with a guard that clears the slot.
    #[inline]
    pub fn pin(&self, epoch: u64) -> Option<Pin<'_>> {
        self.announce(epoch).map(|slot| Pin { slots: self, slot })
    }
    /// The least announced epoch; `u64::MAX` if none.
    pub fn min(&self) -> u64 {
        (0..READER_SLOTS).map(|number| self.slot(number).load(Ordering::SeqCst)).min().unwrap_or(IDLE)
    }
    /// Marks all slots free, in a new file or in that of a dead client.
    pub(super) fn clear_all(&self) {
        (0..READER_SLOTS).for_each(|number| self.clear(number));
    }
}

/// An announcement, which ends when dropped.
#[derive(Debug)]
pub struct Pin<'a> {
    slots: &'a ReaderSlots,
    slot: usize,
}

impl Pin<'_> {
    /// Leaves the announcement in place and returns its slot, for a later [`ReaderSlots::clear`].
    pub fn keep(self) -> usize {
        let slot = self.slot;
        std::mem::forget(self);
        slot
    }
}

impl Drop for Pin<'_> {
    #[inline]
    fn drop(&mut self) {
        self.slots.clear(self.slot);
    }
}
