//! The control table as plain memory of one process.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use cenote_model::{Result, StoreId};
use parking_lot::Mutex;

use crate::Control;

/// A control table in this process: same meaning as the shared one, with reader slots that a test sets.
#[derive(Debug)]
pub struct MemControl {
    attached: Mutex<Option<StoreId>>,
    instance: AtomicU64,
    epoch: AtomicU64,
    words: Vec<AtomicU64>,
    slots: Vec<AtomicU64>,
    fresh: AtomicBool,
}

impl Default for MemControl {
    fn default() -> Self {
        Self::new(1024)
    }
}

impl MemControl {
    /// A table of `words` version words (a power of two).
    pub fn new(words: usize) -> Self {
        assert!(words.is_power_of_two(), "{words} version words");
        Self {
            attached: Mutex::new(None),
            instance: AtomicU64::new(0),
            epoch: AtomicU64::new(1),
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
            slots: (0..64).map(|_| AtomicU64::new(u64::MAX)).collect(),
            fresh: AtomicBool::new(true),
        }
    }
    /// Announces the current epoch in one of 64 slots; returns the epoch.
    pub fn announce(&self, slot: usize) -> u64 {
        let epoch = self.epoch();
        self.slots[slot].store(epoch, Ordering::SeqCst);
        epoch
    }
    /// Ends the announcement of a slot.
    pub fn clear(&self, slot: usize) {
        self.slots[slot].store(u64::MAX, Ordering::SeqCst);
    }
    /// Loses the shared memory: all values begin anew, and the next `attach` reports it.
    pub fn power_loss(&self) {
        *self.attached.lock() = None;
        self.instance.store(0, Ordering::SeqCst);
        self.epoch.store(1, Ordering::SeqCst);
        for word in &self.words {
            word.store(0, Ordering::SeqCst);
        }
        for slot in &self.slots {
            slot.store(u64::MAX, Ordering::SeqCst);
        }
        self.fresh.store(true, Ordering::SeqCst);
    }
    fn slot_of(&self, hash: u64) -> &AtomicU64 {
        &self.words[hash as usize & (self.words.len() - 1)]
    }
}

impl Control for MemControl {
    fn attach(&self, store: StoreId) -> Result<bool> {
        let same = self.attached.lock().replace(store) == Some(store);
        let found = !self.fresh.swap(false, Ordering::SeqCst) && same;
        Ok(found && self.instance.load(Ordering::SeqCst) > 0)
    }
    fn instance_raise(&self) -> u64 {
        self.instance.fetch_add(1, Ordering::SeqCst) + 1
    }
    fn word(&self, hash: u64) -> u64 {
        self.slot_of(hash).load(Ordering::SeqCst)
    }
    fn word_raise(&self, hash: u64) -> u64 {
        self.slot_of(hash).fetch_add(1, Ordering::SeqCst) + 1
    }
    fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }
    fn epoch_raise(&self) -> u64 {
        self.epoch.fetch_add(1, Ordering::SeqCst) + 1
    }
    fn slots_min(&self) -> u64 {
        self.slots.iter().map(|slot| slot.load(Ordering::SeqCst)).min().unwrap_or(u64::MAX)
    }
}
