//! The record cache of an index, and the proof that its records are current.
//!
//! A read checks the index's *version word* in the shared control table, as reads of objects do: as long as the word
//! has the value from before the request for the records, the engine would answer the same. A hit needs no message, and
//! a change by another process is visible to the next read after its acknowledgement.
//!
//! After a change of its own, this process applies the change to the cache if the word proves that there was no other
//! change in between.
//!
//! An index that no other process changes can be *pinned*: its cached records hold regardless of its word, until the
//! word of another index, the guard, changes. Own changes then need no answer, so they can be pipelined. This room must
//! not know the users of an index, nor the meaning of records.

use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use cenote_host::fork;
use cenote_model::{IndexKey, NextFrom, Records};
use smallvec::SmallVec;

use crate::link::channel::Channel;
use crate::sync::lock;

/// Records per load: most indices that are read like this have fewer.
pub(crate) const LOAD_RECORDS: u32 = 2048;
/// Bytes of records per load.
pub(crate) const LOAD_BYTES: u32 = 128 << 10;
/// Largest value that is sent back for a check.
const CHECKED_BYTES_MAX: usize = 4096;
/// A miss costs about as much as this many records in a load.
const RECORDS_PER_MISS: usize = 64;
/// Bits for the changes in a pin; more changes would reach the stamps of a later pin.
const CHANGES_BITS: u32 = 40;
/// Bits for the count of changes in flight.
const UNDER_WAY_BITS: u32 = 16;
const UNDER_WAY: u64 = (1 << UNDER_WAY_BITS) - 1;
/// Yields until the thread with the lock is assumed to be done.
const LOOKS_PASS: usize = 64;
/// Number of pins of this process.
static PINS: AtomicU64 = AtomicU64::new(0);
/// Largest size of the cache of an index.
const KEPT_BYTES_MAX: usize = 128 << 20;
/// Short keys lie inline in the nodes of the tree, so that comparisons during a search need no further memory access.
type Key = SmallVec<[u8; 24]>;

/// Instance and version word: equal stamps mean equal records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    pub instance: u64,
    pub word: u64,
}

impl Stamp {
    /// Returns the current stamp.
    pub fn now(channel: &Channel, index: IndexKey) -> Self {
        let attachment = channel.attachment();
        let readers = &attachment.readers;
        // The instance is read first: a word of a later instance must not pass for one of an earlier.
        let instance = readers.instance();
        Self { instance, word: readers.word(index.word_hash()) }
    }
    /// Returns the stamp of an index in a pin after this many changes of this process. It is unique.
    fn pinned(pin: u64, changes: u64) -> Self {
        Self { instance: u64::MAX, word: (pin << CHANGES_BITS).wrapping_add(changes) }
    }
    fn is_pinned(self) -> bool {
        self.instance == u64::MAX
    }
    /// Returns true if exactly one change came after `self`.
    pub fn is_before(self, next: Self) -> bool {
        self.instance == next.instance && self.word.wrapping_add(1) == next.word
    }
}

/// The cached records of one index, shared by the clones of a handle.
#[derive(Debug, Default)]
pub(crate) struct RecordCache {
    state: Mutex<RecordsState>,
    /// Fork generation, plus one, of the process that pinned the index; 0 if none did. Readable without the lock, which
    /// a child may have inherited in its locked state.
    pinned_by: AtomicU64,
    /// Number of unanswered changes of this process, below its fork generation.
    under_way: AtomicU64,
}

/// Keeps the cached records during a change of this process.
#[derive(Debug)]
pub(crate) struct UnderWay(Arc<RecordCache>, u64);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let ended = |now: u64| (now >> UNDER_WAY_BITS == self.1 && now & UNDER_WAY != 0).then(|| now - 1);
        let _ = self.0.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, ended);
    }
}

/// The pin of an index.
#[derive(Debug)]
struct Pin {
    guard: IndexKey,
    /// The guard's stamp while the pin holds.
    stamp: Stamp,
    /// Unique among the pins of this process.
    number: u64,
    /// Changes of this process since the pin.
    changes: u64,
}

impl Pin {
    fn now(&self) -> Stamp {
        Stamp::pinned(self.number, self.changes)
    }
}

/// The end of the complete part of the cache, in key order.
#[derive(Debug, Default, PartialEq, Eq)]
enum KnownRange {
    #[default]
    Nothing,
    Key(Vec<u8>),
    All,
}

impl KnownRange {
    /// Returns the start of the unknown part.
    fn end(&self) -> NextFrom {
        match self {
            Self::Key(last) => NextFrom::After(last.clone()),
            Self::Nothing | Self::All => NextFrom::Start,
        }
    }
}

#[derive(Debug, Default)]
struct RecordsState {
    stamp: Option<Stamp>,
    pin: Option<Pin>,
    /// `None`: known to be missing.
    records: BTreeMap<Key, Option<Vec<u8>>>,
    known_to: KnownRange,
    /// Prefixes with a complete set of records.
    prefixes: HashSet<Vec<u8>>,
    bytes: usize,
    /// Misses since the last reset of the cache.
    misses: usize,
    /// Records of the last load; `None`: never loaded.
    loaded: Option<usize>,
}

/// The cache's answer to a read.
pub(crate) enum CacheAnswer<T> {
    /// A hit.
    Hit(T),
    /// Ask the engine for the same.
    Ask,
    /// Load many records from here on, pass them to [`RecordCache::learn_many`], and try again.
    Load(NextFrom),
}

impl RecordCache {
    /// Creates a cache with the first records of an index; `more`: the index has more.
    pub fn loaded(stamp: Stamp, records: &Records, more: bool) -> Self {
        let cache = Self::default();
        lock(&cache.state).stamp = Some(stamp);
        cache.learn_many(stamp, &NextFrom::Start, records, more);
        cache
    }
    /// Returns the current stamp of `index`.
    pub fn stamp(&self, channel: &Channel, index: IndexKey) -> Stamp {
        if self.pinned_by.load(Ordering::Acquire) == fork::generation() + 1 {
            let mut state = lock(&self.state);
            if let Some(pin) = &state.pin {
                if Stamp::now(channel, pin.guard) == pin.stamp {
                    return pin.now();
                }
                self.unpin_state(&mut state);
            }
        }
        Stamp::now(channel, index)
    }
    /// Pins `index`: only this process changes it, until `guard` changes, which had the stamp `stamp` when that was
    /// verified.
    pub fn pin(&self, channel: &Channel, index: IndexKey, guard: IndexKey, stamp: Stamp) {
        let mut state = lock(&self.state);
        if state.stamp != Some(Stamp::now(channel, index)) {
            state.forget();
        }
        // An answer to a request from an earlier pin must not pass for one of this.
        let pin = Pin { guard, stamp, number: PINS.fetch_add(1, Ordering::Relaxed), changes: 0 };
        state.stamp = Some(pin.now());
        state.pin = Some(pin);
        self.pinned_by.store(fork::generation() + 1, Ordering::Release);
    }
    /// Ends the pin and empties the cache, since other processes may change the index again.
    pub fn unpin(&self) {
        self.unpin_state(&mut lock(&self.state));
    }
    fn unpin_state(&self, state: &mut RecordsState) {
        if state.pin.take().is_some() {
            state.forget();
            state.stamp = None;
        }
        self.pinned_by.store(0, Ordering::Release);
    }
    /// Returns true if the index is pinned.
    pub fn is_pinned(&self, channel: &Channel, index: IndexKey) -> bool {
        self.stamp(channel, index).is_pinned()
    }
    /// Applies pipelined changes of this process to a pinned index. Returns false if it is not pinned any more.
    pub fn changed_ahead(&self, changes: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>) -> bool {
        let mut state = lock(&self.state);
        let Some(pin) = &mut state.pin else { return false };
        pin.changes += 1;
        state.stamp = Some(pin.now());
        for (key, value) in changes {
            state.set(&key, value);
        }
        if state.bytes > KEPT_BYTES_MAX {
            state.forget();
        }
        true
    }
    /// Begins a change of this process. Until its answer is taken in, a new version does not invalidate the cache,
    /// since it may come from this change.
    pub fn begin_change(self: &Arc<Self>) -> UnderWay {
        let me = fork::generation();
        let begun = |now: u64| {
            if now >> UNDER_WAY_BITS != me {
                return Some(me << UNDER_WAY_BITS | 1);
            }
            (now & UNDER_WAY != UNDER_WAY).then_some(now + 1)
        };
        let counted = self.under_way.fetch_update(Ordering::AcqRel, Ordering::Acquire, begun).is_ok();
        UnderWay(self.clone(), if counted { me } else { u64::MAX })
    }
    fn is_changing(&self) -> bool {
        let now = self.under_way.load(Ordering::Acquire);
        now & UNDER_WAY != 0 && now >> UNDER_WAY_BITS == fork::generation()
    }
    /// Returns the state, if it holds at `now`; `None` while another thread reads (or did so at the fork of this
    /// process) or changes it.
    fn state(&self, now: Stamp) -> Option<MutexGuard<'_, RecordsState>> {
        let mut state = self.state.try_lock().ok()?;
        if state.stamp != Some(now) {
            if self.is_changing() {
                return None;
            }
            state.forget();
            state.pin = state.pin.take().filter(|_| now.is_pinned());
            state.stamp = Some(now);
        }
        Some(state)
    }
    /// Returns the values of all keys, if all are known.
    pub fn get(&self, now: Stamp, keys: &[&[u8]]) -> CacheAnswer<Vec<Option<Vec<u8>>>> {
        let Some(mut state) = self.state(now) else { return CacheAnswer::Ask };
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            match state.find(key) {
                Some(value) => values.push(value.map(<[u8]>::to_vec)),
                None => return state.missed(),
            }
        }
        CacheAnswer::Hit(values)
    }
    /// Returns the value of a key, if it is known.
    #[allow(clippy::option_option, reason = "whether it is known, and whether it is there, are two questions")]
    pub fn get_one(&self, now: Stamp, key: &[u8]) -> Option<Option<Vec<u8>>> {
        Some(self.state(now)?.find(key)?.map(<[u8]>::to_vec))
    }
    /// Returns up to `limit` records whose keys begin with `prefix`, from a key on, and whether there are more.
    pub fn next(&self, now: Stamp, prefix: &[u8], from: &NextFrom, limit: usize) -> CacheAnswer<(Records, bool)> {
        let Some(mut state) = self.state(now) else { return CacheAnswer::Ask };
        if !state.knows_prefix(prefix) {
            return state.missed();
        }
        let begin = match from {
            NextFrom::At(key) => Bound::Included(key.as_slice().max(prefix)),
            NextFrom::After(key) if key.as_slice() >= prefix => Bound::Excluded(key.as_slice()),
            NextFrom::Start | NextFrom::After(_) => Bound::Included(prefix),
        };
        let mut found = Records::default();
        for (key, value) in state.records.range::<[u8], _>((begin, Bound::Unbounded)) {
            if !key.starts_with(prefix) {
                break;
            }
            let Some(value) = value else { continue };
            if found.len() >= limit.max(1) {
                return CacheAnswer::Hit((found, true));
            }
            found.push(key, value);
        }
        CacheAnswer::Hit((found, false))
    }
    /// Caches the engine's answer to [`CacheAnswer::Load`], requested when the stamp was `asked`.
    pub fn learn_many(&self, asked: Stamp, from: &NextFrom, records: &Records, more: bool) {
        let Some(mut state) = self.state_at(asked).filter(|state| state.known_to.end() == *from) else { return };
        state.loaded = Some(records.len());
        state.misses = 0;
        state.known_to = match records.last() {
            Some((last, _)) if more => KnownRange::Key(last.to_vec()),
            _ => KnownRange::All,
        };
        for (key, value) in records.iter() {
            state.set(key, Some(value.to_vec()));
        }
    }
    /// Caches all records with a prefix, requested when the stamp was `asked`.
    pub fn learn_prefix(&self, asked: Stamp, prefix: &[u8], records: &Records) {
        let Some(mut state) = self.state_at(asked) else { return };
        for (key, value) in records.iter() {
            state.set(key, Some(value.to_vec()));
        }
        state.prefixes.insert(prefix.to_vec());
    }
    /// Caches values of keys, requested when the stamp was `asked`.
    pub fn learn<'a>(&self, asked: Stamp, values: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        let Some(mut state) = self.state_at(asked) else { return };
        for (key, value) in values {
            state.set(key, value.map(<[u8]>::to_vec));
        }
    }
    /// Applies acknowledged changes of this process. `before`: the stamp before they were sent. `fresh`: they are all
    /// records of an index that was created with them.
    pub fn changed(
        &self,
        before: Stamp,
        now: Stamp,
        fresh: bool,
        changes: impl Iterator<Item = (Vec<u8>, Option<Vec<u8>>)>,
    ) {
        if before.is_pinned() {
            self.changed_ahead(changes);
            return;
        }
        let Some(mut state) = self.state_soon() else { return };
        if !before.is_before(now) || !(fresh || state.stamp == Some(before)) {
            return;
        }
        if fresh {
            state.forget();
            state.known_to = KnownRange::All;
            state.loaded = Some(0);
        }
        for (key, value) in changes {
            state.set(&key, value);
        }
        state.stamp = Some(now);
        if state.bytes > KEPT_BYTES_MAX {
            state.forget();
        }
    }
    /// Returns the state when no other thread holds it; `None` if one does for long, which may be a thread that a
    /// forked child does not have.
    fn state_soon(&self) -> Option<MutexGuard<'_, RecordsState>> {
        for _ in 0..LOOKS_PASS {
            if let Ok(state) = self.state.try_lock() {
                return Some(state);
            }
            std::thread::yield_now();
        }
        None
    }
    fn state_at(&self, stamp: Stamp) -> Option<MutexGuard<'_, RecordsState>> {
        self.state.try_lock().ok().filter(|state| state.stamp == Some(stamp))
    }
}

/// Returns true if the value can be sent back for a check.
pub(crate) fn is_checkable(value: Option<&[u8]>) -> bool {
    value.is_none_or(|value| value.len() <= CHECKED_BYTES_MAX)
}

impl RecordsState {
    /// Checks that the counters and claims of the cache match its content.
    #[cfg(test)]
    fn check(&self) -> Result<(), String> {
        let bytes: usize = self.records.iter().map(|(key, value)| Self::size(key, value.as_deref())).sum();
        if bytes != self.bytes {
            return Err(format!("it counts {} bytes and has {bytes}", self.bytes));
        }
        if self.stamp.is_none() && !self.records.is_empty() {
            return Err("it has records without a stamp".to_owned());
        }
        if self.pin.is_some() != self.stamp.is_some_and(Stamp::is_pinned) {
            return Err("its pin and its stamp do not belong together".to_owned());
        }
        Ok(())
    }
    fn size(key: &[u8], value: Option<&[u8]>) -> usize {
        key.len() + value.map_or(0, <[u8]>::len) + 64
    }
    fn forget(&mut self) {
        self.records.clear();
        self.prefixes.clear();
        self.known_to = KnownRange::Nothing;
        self.bytes = 0;
        self.misses = 0;
    }
    fn set(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        self.bytes += Self::size(key, value.as_deref());
        if let Some(old) = self.records.insert(Key::from_slice(key), value) {
            self.bytes -= Self::size(key, old.as_deref());
        }
    }
    /// The outer option says whether the answer is known.
    #[allow(clippy::option_option, reason = "whether it is known, and whether it is there, are two questions")]
    fn find(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if let Some(value) = self.records.get(key) {
            return Some(value.as_deref());
        }
        let is_absent = match &self.known_to {
            KnownRange::All => true,
            KnownRange::Key(last) => key <= last.as_slice(),
            KnownRange::Nothing => false,
        };
        is_absent.then_some(None)
    }
    fn knows_prefix(&self, prefix: &[u8]) -> bool {
        match &self.known_to {
            KnownRange::All => true,
            KnownRange::Key(last) if last.as_slice() > prefix && !last.starts_with(prefix) => true,
            _ => self.prefixes.contains(prefix),
        }
    }
    /// A load pays once the misses have cost as much as a load, and at the beginning, when its cost is unknown. It is
    /// bounded in any case.
    fn missed<T>(&mut self) -> CacheAnswer<T> {
        self.misses += 1;
        let pays = self.loaded.is_none_or(|records| self.misses > records / RECORDS_PER_MISS);
        if pays && self.bytes < KEPT_BYTES_MAX { CacheAnswer::Load(self.known_to.end()) } else { CacheAnswer::Ask }
    }
}

#[cfg(test)]
mod tests;
