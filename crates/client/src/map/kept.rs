//! Bytes of another node's objects that this process keeps, bounded in memory: the objects whose bytes were not used for
//! longest go first. Whether kept bytes are current is checked like the maps that name them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cenote_model::{Error, ErrorKind, ObjectKey, Result, size};

use super::cache::ObjectCache;
use crate::sync::lock;

/// Environment variable with the bytes that a process keeps of the objects of each other node: a size, such as `64MiB`.
pub const FAR_CACHE_VARIABLE: &str = "CENOTE_FAR_CACHE";
/// The same without the variable.
const BYTES_MAX: usize = 64 << 20;
/// What a range costs beside its bytes.
const OVERHEAD: usize = 128;
/// Shorter buffers are not kept for later ranges: new ones cost less than looking for them.
const SPARE_BYTES_MIN: usize = 16 << 10;

/// A range of bytes.
pub(crate) struct Kept {
    pub bytes: Vec<u8>,
    memory: Arc<Memory>,
}

/// The memory of what is kept.
#[derive(Default)]
struct Memory {
    limit: usize,
    used: AtomicUsize,
    /// Buffers of ranges that are not kept any more: what comes next needs no new pages, which the system would clear first.
    spare: Mutex<Spare>,
}

#[derive(Default)]
struct Spare {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spare {
    /// Gives buffers back to the system until no more than `most` bytes are left.
    fn shrink(&mut self, most: usize) {
        while self.bytes > most
            && let Some(buffer) = self.buffers.pop()
        {
            self.bytes -= buffer.capacity();
        }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.bytes);
        let cost = buffer.capacity() + OVERHEAD;
        let used = self.memory.used.fetch_sub(cost, Ordering::Relaxed) - cost;
        let mut spare = lock(&self.memory.spare);
        if buffer.len() >= SPARE_BYTES_MIN && used + spare.bytes + buffer.capacity() <= self.memory.limit {
            spare.bytes += buffer.capacity();
            spare.buffers.push(buffer);
        }
    }
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Kept").field(&self.bytes.len()).finish()
    }
}

/// What a process keeps of one home.
pub(crate) struct Keeping {
    memory: Arc<Memory>,
    /// Rises with each range.
    now: AtomicU64,
    objects: Mutex<HashMap<ObjectKey, Weak<ObjectCache>>>,
}

impl Keeping {
    /// Keeps as much as the environment says.
    pub fn new() -> Self {
        Self::of(limit().unwrap_or(BYTES_MAX))
    }
    fn of(limit: usize) -> Self {
        let memory = Arc::new(Memory { limit, ..Memory::default() });
        Self { memory, now: AtomicU64::new(1), objects: Mutex::default() }
    }
    /// Fails if the variable makes no sense.
    pub fn check() -> Result<()> {
        limit().map(drop)
    }
    /// Returns true if anything is kept at all.
    pub fn is_on(&self) -> bool {
        self.memory.limit > 0
    }
    /// Returns true if an object of this size fits: what is read of a larger one in long pieces would only push out the rest.
    pub fn fits(&self, size: u64) -> bool {
        size <= self.memory.limit as u64
    }
    /// A moment, for [`ObjectCache::used_at`].
    #[inline]
    pub fn now(&self) -> u64 {
        self.now.load(Ordering::Relaxed)
    }
    /// Bytes that an object is about to know; makes room for them.
    pub fn keep(&self, object: &Arc<ObjectCache>, bytes: Vec<u8>) -> Arc<Kept> {
        let cost = bytes.capacity() + OVERHEAD;
        let used = self.memory.used.fetch_add(cost, Ordering::Relaxed) + cost;
        object.used_at(self.now.fetch_add(1, Ordering::Relaxed));
        if !object.is_kept.swap(true, Ordering::Relaxed) {
            lock(&self.objects).insert(object.key, Arc::downgrade(object));
        }
        if used > self.memory.limit {
            self.make_room();
        }
        lock(&self.memory.spare).shrink(self.memory.limit.saturating_sub(used));
        Arc::new(Kept { bytes, memory: self.memory.clone() })
    }
    /// A buffer of what is not kept any more.
    pub fn spare(&self) -> Option<Vec<u8>> {
        let mut spare = lock(&self.memory.spare);
        let buffer = spare.buffers.pop()?;
        spare.bytes -= buffer.capacity();
        Some(buffer)
    }
    /// Forgets objects until an eighth of the memory is free.
    #[cold]
    fn make_room(&self) {
        let mut objects = lock(&self.objects);
        let mut known: Vec<Arc<ObjectCache>> = objects.values().filter_map(Weak::upgrade).collect();
        known.sort_by_key(|object| object.last_used());
        objects.clear();
        let wanted = self.memory.limit - self.memory.limit / 8;
        for object in known {
            if self.memory.used.load(Ordering::Relaxed) > wanted {
                object.is_kept.store(false, Ordering::Relaxed);
                object.forget();
            } else {
                objects.insert(object.key, Arc::downgrade(&object));
            }
        }
    }
}

fn limit() -> Result<usize> {
    let Some(text) = std::env::var(FAR_CACHE_VARIABLE).ok().filter(|text| !text.is_empty()) else {
        return Ok(BYTES_MAX);
    };
    let bytes = size::parse(&text).map_err(|why| {
        Error::new(ErrorKind::InvalidInput, format!("{FAR_CACHE_VARIABLE}={text}"))
            .because(why)
            .try_next("give a size, as `64MiB` or `0`, or unset it")
    })?;
    Ok(usize::try_from(bytes).unwrap_or(usize::MAX / 2))
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerId, ObjectId};

    use super::*;
    use crate::map::cache::{Objects, Version};
    use crate::map::pieces::Source;

    #[test]
    fn what_was_not_used_for_longest_goes_first_and_the_memory_is_bounded() {
        let (objects, keeping) = (Objects::default(), Keeping::of(100_000));
        let version = Version { instance: 1, word: 1 };
        let object = |number: u128| objects.get(ObjectKey { container: ContainerId(1), object: ObjectId(number) }, 0);
        let learn = |number: u128| {
            let object = object(number);
            let kept = keeping.keep(&object, vec![number as u8; 10_000]);
            object.learn(version, 10_000, 0, 10_000, vec![(0, 10_000, Source::Kept(kept, 0))]);
        };
        let has = |number: u128| {
            let mut buf = vec![0; 10_000];
            let copied = object(number).copy_kept(version, 0, &mut buf);
            copied.is_some_and(|(_, bytes)| bytes == 10_000 && buf == vec![number as u8; 10_000])
        };
        for number in 1..=9 {
            learn(number);
        }
        assert!((1..=9).all(has));
        object(1).used_at(keeping.now());
        learn(10);
        assert!(has(1) && !has(2) && has(9) && has(10), "{:?}", (1..=10).map(has).collect::<Vec<_>>());
        for number in 11..=200 {
            learn(number);
            assert!(keeping.memory.used.load(Ordering::Relaxed) <= 100_000 + 10_128);
        }
        objects.forget_all();
        assert_eq!(keeping.memory.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn buffers_are_used_again_and_count() {
        let (objects, keeping) = (Objects::default(), Keeping::of(100_000));
        let object = objects.get(ObjectKey { container: ContainerId(1), object: ObjectId(1) }, 0);
        let bytes = || (0..4).map(|_| keeping.keep(&object, vec![1; 20_000])).collect::<Vec<_>>();
        drop(bytes());
        assert_eq!(lock(&keeping.memory.spare).bytes, 80_000);
        assert_eq!(keeping.spare().map(|buffer| buffer.len()), Some(20_000));
        let _others = bytes();
        assert_eq!(lock(&keeping.memory.spare).bytes, 0, "no more than may be kept in all");
        drop(keeping.keep(&object, vec![1; 1000]));
        assert_eq!(lock(&keeping.memory.spare).bytes, 0, "short ones are not worth it");
    }
}
