//! The cached maps of a session, one per object, bounded in memory.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use cenote_model::ObjectKey;

use super::pieces::{Part, Pieces, Seek, SeekResult, Source};
use crate::sync::{lock, read, write};

const SHARDS: usize = 64;
/// Objects in a shard before it drops half of them: a quarter of a million in all.
const SHARD_OBJECTS_MAX: usize = 4096;
/// Pieces of an object before all of them are dropped: about 50 MB.
const PIECES_MAX: usize = 1 << 20;

/// The session's knowledge of one object.
pub(crate) struct ObjectCache {
    pub key: ObjectKey,
    /// Selects the object's version word.
    pub hash: u64,
    /// Number of the last batch with a write of this session to the object; 0 for none.
    pub batch_last: AtomicU64,
    /// The container's policy needs reports of reads.
    tiered: AtomicBool,
    /// Reads came from slow devices, so the stream of reads is followed.
    slow_reads: AtomicBool,
    /// Bytes of it are kept, and when they were used last.
    pub is_kept: AtomicBool,
    used_at: AtomicU64,
    /// Where the last read of another node's bytes ended.
    pub read_to: AtomicU64,
    state: RwLock<MapState>,
}

#[derive(Default)]
struct MapState {
    /// Version and size of `pieces`; `None` if nothing is known.
    known: Option<CachedMap>,
    pieces: Pieces,
}

impl MapState {
    /// Checks the invariants of the cached map.
    #[cfg(test)]
    fn check(&self) -> Result<(), String> {
        if self.known.is_none() && self.pieces.len() > 0 {
            return Err("it has pieces of no version".to_owned());
        }
        self.pieces.check()
    }
}

/// The version of a map. An engine that dies between its journal and a version word leaves the old word to its
/// successor, so the word alone does not identify the state that another engine reported.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Version {
    /// The instance word of the engine that reported it.
    pub instance: u64,
    /// The object's version word.
    pub word: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CachedMap {
    version: Version,
    size: u64,
}

/// The cached part of a range.
pub(crate) struct Planned {
    /// Recorded size of the object.
    pub size: u64,
    /// Bytes of the range, from its start, that the parts cover.
    pub bytes: usize,
}

impl ObjectCache {
    fn new(key: ObjectKey) -> Self {
        Self {
            key,
            hash: key.word_hash(),
            batch_last: AtomicU64::new(0),
            tiered: AtomicBool::new(false),
            slow_reads: AtomicBool::new(false),
            is_kept: AtomicBool::new(false),
            used_at: AtomicU64::new(0),
            read_to: AtomicU64::new(0),
            state: RwLock::default(),
        }
    }
    /// The container's policy moves hot ranges, and needs reports of reads.
    pub fn set_tiered(&self) {
        self.tiered.store(true, Ordering::Relaxed);
    }
    #[inline]
    pub fn is_tiered(&self) -> bool {
        self.tiered.load(Ordering::Relaxed)
    }
    pub fn note_slow_read(&self) {
        self.slow_reads.store(true, Ordering::Relaxed);
    }
    #[inline]
    pub fn had_slow_reads(&self) -> bool {
        self.slow_reads.load(Ordering::Relaxed)
    }
    /// Notes the use of kept bytes.
    #[inline]
    pub fn used_at(&self, moment: u64) {
        self.used_at.store(moment, Ordering::Relaxed);
    }
    pub fn last_used(&self) -> u64 {
        self.used_at.load(Ordering::Relaxed)
    }
    /// Fills the beginning of `buf` with the kept bytes from `offset` on, if they are of `version`. Returns the object's
    /// recorded size and how many bytes there were.
    pub fn copy_kept(&self, version: Version, offset: u64, buf: &mut [u8]) -> Option<(u64, usize)> {
        let state = read(&self.state);
        let known = state.known.filter(|known| known.version == version)?;
        let len = known.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        Some((known.size, state.pieces.copy_kept(offset, &mut buf[..len])))
    }
    /// Appends the parts of a range, if the cached map is of `version`. The range ends at the object's size.
    pub fn plan(
        &self,
        version: Version,
        offset: u64,
        len: usize,
        base: usize,
        parts: &mut impl Extend<Part>,
    ) -> Option<Planned> {
        let state = read(&self.state);
        let known = state.known.filter(|known| known.version == version)?;
        let len = known.size.saturating_sub(offset).min(len as u64) as usize;
        let bytes = state.pieces.parts(offset, len, base, parts);
        Some(Planned { size: known.size, bytes })
    }
    /// Returns the recorded size, if the cached map is of `version`.
    pub fn size(&self, version: Version) -> Option<u64> {
        read(&self.state).known.filter(|known| known.version == version).map(|known| known.size)
    }
    /// Returns the bytes in use, in allocation units, if the whole map is cached and of `version`.
    pub fn taken(&self, version: Version) -> Option<u64> {
        let state = read(&self.state);
        let known = state.known.filter(|known| known.version == version)?;
        state.pieces.taken(known.size)
    }
    /// Searches the cached map from `offset` on for data, or for a hole; `None` if it is not of `version`.
    pub fn seek(&self, version: Version, offset: u64, what: Seek) -> Option<SeekResult> {
        let state = read(&self.state);
        let known = state.known.filter(|known| known.version == version)?;
        Some(state.pieces.seek(offset, known.size, what))
    }
    /// Caches an answer of the engine for all of `[from, to)`; ranges outside of `pieces` are holes.
    pub fn learn(&self, version: Version, size: u64, from: u64, to: u64, pieces: Vec<(u64, u64, Source)>) {
        let mut state = write(&self.state);
        let known = Some(CachedMap { version, size });
        if state.known != known {
            // Versions only rise: an overtaken answer must not replace a younger one.
            if state.known.is_some_and(|old| old.version > version) {
                return;
            }
            state.pieces.clear();
            state.known = known;
        }
        if state.pieces.len() > PIECES_MAX {
            state.pieces.clear();
        }
        let mut at = from;
        for (begin, len, place) in pieces {
            if begin > at {
                state.pieces.set(at, begin - at, Source::Hole);
            }
            match place {
                Source::ThroughLink => state.pieces.set_around_kept(begin, len, &place),
                place => state.pieces.set(begin, len, place),
            }
            at = at.max(begin + len);
        }
        if to > at {
            state.pieces.set(at, to - at, Source::Hole);
        }
    }
    /// Returns true if there is a cached map for own writes to update.
    pub fn is_live(&self) -> bool {
        read(&self.state).known.is_some()
    }
    /// Applies own writes (`offset, len, place`), which changed the version word from `before` to `after`.
    pub fn apply(&self, before: u64, after: u64, writes: impl Iterator<Item = (u64, u64, Source)> + Clone) {
        let mut state = write(&self.state);
        let Some(known) = state.known.filter(|known| known.version.word == before) else { return };
        let mut size = known.size;
        state.pieces.touch(writes.clone().map(|(offset, ..)| offset));
        for (offset, len, place) in writes {
            state.pieces.set(offset, len, place);
            size = size.max(offset + len);
        }
        if state.pieces.len() > PIECES_MAX {
            state.pieces.clear();
        }
        state.known = Some(CachedMap { version: Version { word: after, ..known.version }, size });
    }
    /// Drops the cached map.
    pub fn forget(&self) {
        let mut state = write(&self.state);
        state.known = None;
        state.pieces.clear();
    }
}

/// All cached objects of a session.
pub(crate) struct Objects([Mutex<Shard>; SHARDS]);

type Shard = HashMap<ObjectKey, Arc<ObjectCache>, foldhash::fast::RandomState>;

impl Default for Objects {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Mutex::default()))
    }
}

impl Objects {
    /// Returns the cached object, empty at first. `settled` is the last finished batch: objects with younger writes are
    /// not dropped.
    pub fn get(&self, key: ObjectKey, settled: u64) -> Arc<ObjectCache> {
        let fresh = ObjectCache::new(key);
        let shard = &self.0[(fresh.hash >> 48) as usize % SHARDS];
        let mut shard = lock(shard);
        if let Some(cache) = shard.get(&key) {
            return cache.clone();
        }
        if shard.len() >= SHARD_OBJECTS_MAX {
            let mut odd = false;
            shard.retain(|_, cache| {
                odd = !odd;
                odd || Arc::strong_count(cache) > 1 || cache.batch_last.load(Ordering::Acquire) > settled
            });
        }
        let fresh = Arc::new(fresh);
        shard.insert(key, fresh.clone());
        fresh
    }
    /// Drops every map (but not the numbers of pending writes): for a new engine, or after a change of devices.
    pub fn forget_all(&self) {
        for shard in &self.0 {
            for cache in lock(shard).values() {
                cache.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests;
