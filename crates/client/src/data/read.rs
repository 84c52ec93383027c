//! Reads: from cached maps without a message if nothing has changed, otherwise after a lookup.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{Error, ErrorKind, Lookup, OBJECT_BYTES_MAX, Request, Response, Result};
use smallvec::SmallVec;

use super::source::{copy_parts, never_here, resolve};
use super::tiering;
use super::{carried, far};
use crate::link::Link;
use crate::link::attachment::Attachment;
use crate::map::cache::{ObjectCache, Planned, Version};
use crate::map::pieces::{Part, Pieces, Seek, SeekResult, Source};

/// Size of a lookup: large enough that sequential reads need no further message.
const LOOKUP_EXTENTS: u32 = 256;
const LOOKUP_BYTES: u64 = 64 << 20;
/// Parts of a small read, without allocation.
pub(crate) type Parts = SmallVec<[Part; 4]>;

/// Attempts to read a damaged range from other tiers before the read fails.
const RESCUES_MAX: u32 = 4;
/// Attempts to bring a range to a readable tier: others may need the room and evict it again.
const RESTORES_MAX: u32 = 16;

/// The result of a read.
pub(crate) struct ReadDone {
    /// Recorded size of the object at the time of the read.
    pub size: u64,
    /// Bytes of the range below that size, all of which were filled.
    pub bytes: usize,
}

/// Fills `buf` from `offset` up to the object's size.
pub(crate) fn read_at(link: &Link, object: &Arc<ObjectCache>, offset: u64, buf: &mut [u8]) -> Result<ReadDone> {
    settle_own_writes(link, object);
    let mut asked = false;
    let mut restored = 0;
    let mut rescues = Rescues::default();
    loop {
        let attachment = link.channel.attachment();
        if attachment.bound {
            return unmapped(&attachment)(link, object, offset, buf);
        }
        let slot = attachment.readers.enter();
        // The announcement precedes every look at a word: from here on the space of known maps is not reused.
        if !attachment.is_current() {
            drop(slot);
            link.channel.attach_again(&attachment)?;
            continue;
        }
        let beginning = slot.begin(object.is_tiered());
        let mut parts = Parts::new();
        let version = attachment.version(object.hash);
        let planned = object.plan(version, offset, buf.len(), 0, &mut parts);
        let (size, bytes) = match planned {
            Some(planned) if planned.bytes >= wanted(planned.size, offset, buf.len()) => (planned.size, planned.bytes),
            planned => {
                // The slot is held during the lookup: the space in the answer stays unchanged until the read is done.
                let begin = planned.map_or(0, |planned| planned.bytes);
                match look_up(link, object, offset, buf.len(), begin, version, &mut parts) {
                    Ok(found) => found,
                    Err(error) => {
                        drop(slot);
                        rescues.rescue(link, object, (offset, buf.len()), error)?;
                        continue;
                    }
                }
            }
        };
        if !attachment.is_current() {
            continue; // another engine took over during the lookup: its map may differ
        }
        if tiering::is_elsewhere(&parts) {
            drop(slot); // readers may hold the room that this needs
            restored += 1;
            if restored > RESTORES_MAX {
                return Err(never_here(link, object, offset, bytes));
            }
            tiering::restore(link, object.key, offset, bytes)?;
            asked = true;
            continue;
        }
        if !asked && tiering::is_slow(link, object, &parts) {
            drop(slot);
            tiering::fetch(link, object, offset, bytes);
            asked = true;
            continue;
        }
        if let Err(error) = copy_parts(link, object, offset, &parts, buf) {
            drop(slot);
            rescues.rescue(link, object, (offset, bytes), error)?;
            continue;
        }
        slot.count(&parts, &beginning);
        drop(slot);
        if object.is_tiered() {
            tiering::note_read(link, object, (offset, bytes), beginning.is_sampled, asked);
        }
        return Ok(ReadDone { size, bytes });
    }
}

/// How a session reads that maps nothing.
fn unmapped(attachment: &Attachment) -> fn(&Link, &Arc<ObjectCache>, u64, &mut [u8]) -> Result<ReadDone> {
    if attachment.place.far { far::read_at } else { carried::read_at }
}

/// Counts the fallbacks of one read to other tiers.
#[derive(Default)]
pub(super) struct Rescues(u32);

impl Rescues {
    /// Makes the engine read an unreadable range from another tier. The caller holds no reader slot, and reads again.
    /// Returns an error if there is no other copy.
    #[cold]
    pub fn rescue(
        &mut self,
        link: &Link,
        object: &ObjectCache,
        (offset, len): (u64, usize),
        error: Error,
    ) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) || self.0 >= RESCUES_MAX {
            return Err(error);
        }
        self.0 += 1;
        tiering::rescue(link, object.key, offset, len).map_err(|why| {
            let cause = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
            let next = if error.next_step().is_empty() { why.next_step() } else { error.next_step() };
            Error::new(error.kind(), error.subject()).because(format!("{cause}; {}", why.cause())).try_next(next)
        })
    }
}

/// Length of the part of a range below the size.
pub(super) fn wanted(size: u64, offset: u64, len: usize) -> usize {
    size.saturating_sub(offset).min(len as u64) as usize
}

/// Waits for this process's pipelined writes to the object, which its reads must see.
pub(crate) fn settle_own_writes(link: &Link, object: &ObjectCache) {
    let last = object.batch_last.load(Ordering::Acquire);
    if last > link.queue.settled() {
        link.queue.settle(last);
    }
}

/// Looks up the missing part of the map. Returns the size, and the length of the part of the range below it. The caller
/// holds a reader slot.
fn look_up(
    link: &Link,
    object: &ObjectCache,
    offset: u64,
    len: usize,
    mut done: usize,
    version: Version,
    parts: &mut Parts,
) -> Result<(u64, usize)> {
    /// An object that changes all the time is read in pieces of different versions rather than never.
    const FRESH_STARTS_MAX: u32 = 3;
    let instance = version.instance; // a successor's answers are never looked up in the cache
    let mut version = (done > 0).then_some(version);
    let mut fresh_starts = 0;
    loop {
        let from = offset + done as u64;
        let request = Request::Lookup {
            key: object.key,
            offset: from,
            len: ((len - done) as u64).max(LOOKUP_BYTES),
            limit: LOOKUP_EXTENTS,
        };
        let Response::Lookup(found) = link.channel.ask(request)? else {
            return Err(unexpected(link, object));
        };
        let told = Version { instance, word: found.version };
        if version.is_some_and(|version| version != told) && done > 0 && fresh_starts < FRESH_STARTS_MAX {
            fresh_starts += 1;
            // Start again with this younger map; the engine keeps the space of the older one until the slot is free.
            parts.clear();
            done = 0;
            version = None;
            continue;
        }
        version = Some(told);
        let pieces = resolve(link, &found).map_err(|error| out_of_reach(link, object, &error))?;
        let wanted = wanted(found.size, offset, len);
        // From the answer itself rather than from the cache, which others may have replaced.
        let mut known = Pieces::default();
        let mut at = from;
        for (begin, piece_len, place) in &pieces {
            if *begin > at {
                known.set(at, begin - at, Source::Hole);
            }
            known.set(*begin, *piece_len, place.clone());
            at = at.max(begin + piece_len);
        }
        let end = found.covered_to.max(at);
        if end > at {
            known.set(at, end - at, Source::Hole);
        }
        if wanted > done {
            let more = known.parts(from, wanted - done, done, parts);
            if more == 0 {
                return Err(unexpected(link, object));
            }
            done += more;
        }
        object.learn(told, found.size, from, found.covered_to, pieces);
        if done >= wanted {
            return Ok((found.size, wanted));
        }
    }
}

/// Returns the object's recorded size, without a message if the cached one still holds.
pub(crate) fn size_of(link: &Link, object: &ObjectCache) -> Result<u64> {
    /// Few extents: the caller may read next.
    const EXTENTS: u32 = 16;
    settle_own_writes(link, object);
    loop {
        let attachment = link.channel.attachment();
        if !attachment.is_current() {
            link.channel.attach_again(&attachment)?;
            continue;
        }
        let version = attachment.version(object.hash);
        if let Some(size) = object.size(version) {
            return Ok(size);
        }
        let found = learn_from(link, object, version.instance, (0, LOOKUP_BYTES), EXTENTS)?;
        if attachment.is_current() {
            return Ok(found.size);
        }
    }
}

/// Returns the size and the bytes in use, if the cache can tell both after the lookup of the size.
pub(crate) fn usage_of(link: &Link, object: &ObjectCache) -> Result<Option<(u64, u64)>> {
    if link.is_far() {
        return Ok(None); // its maps say nothing of allocation units
    }
    let size = size_of(link, object)?;
    let version = link.channel.attachment().version(object.hash);
    // Both of the same version, or none.
    let taken = object.taken(version);
    Ok(taken.filter(|_| object.size(version) == Some(size)).map(|taken| (size, taken)))
}

/// Returns the first offset from `offset` on with data, or with a hole; `None` if there is none before the object's
/// end.
pub(crate) fn seek(link: &Link, object: &ObjectCache, offset: u64, what: Seek) -> Result<Option<u64>> {
    settle_own_writes(link, object);
    let mut from = offset;
    loop {
        let attachment = link.channel.attachment();
        if !attachment.is_current() {
            link.channel.attach_again(&attachment)?;
            continue;
        }
        let version = attachment.version(object.hash);
        match object.seek(version, offset, what) {
            Some(SeekResult::At(at)) => return Ok(Some(at)),
            Some(SeekResult::None) => return Ok(None),
            Some(SeekResult::Unknown(at)) => from = from.max(at),
            None => {}
        }
        let len = OBJECT_BYTES_MAX.saturating_sub(from);
        let found = learn_from(link, object, version.instance, (from, len), LOOKUP_EXTENTS)?;
        if !attachment.is_current() {
            continue;
        }
        // From the answer itself: others may change the object all the time.
        let mut told = Pieces::default();
        let mut at = from;
        for (begin, extent) in &found.extents {
            told.set(at, begin.saturating_sub(at), Source::Hole);
            told.set(*begin, u64::from(extent.len), Source::ThroughLink);
            at = at.max(begin + u64::from(extent.len));
        }
        told.set(at, found.covered_to.saturating_sub(at), Source::Hole);
        match told.seek(from, found.size, what) {
            SeekResult::At(at) => return Ok(Some(at)),
            // The object was truncated in between.
            SeekResult::None => return Ok(Some(found.size).filter(|size| what == Seek::Hole && offset < *size)),
            SeekResult::Unknown(at) => from = at,
        }
    }
}

/// Looks up a part of the map and caches the answer. It reads no bytes, and so needs no reader slot.
fn learn_from(
    link: &Link,
    object: &ObjectCache,
    instance: u64,
    (offset, len): (u64, u64),
    limit: u32,
) -> Result<Lookup> {
    let Response::Lookup(found) = link.channel.ask(Request::Lookup { key: object.key, offset, len, limit })? else {
        return Err(unexpected(link, object));
    };
    // Unreachable bytes are an error for their reader.
    if let Ok(pieces) = resolve(link, &found) {
        let version = Version { instance, word: found.version };
        object.learn(version, found.size, offset, found.covered_to, pieces);
    }
    Ok(found)
}

/// The error for bytes on a device that cannot be opened.
#[cold]
fn out_of_reach(link: &Link, object: &ObjectCache, error: &Error) -> Error {
    let kind = if error.kind() == ErrorKind::NotFound { ErrorKind::Io } else { error.kind() };
    Error::new(kind, link.channel.object_name(object.key))
        .because(format!("some of it is out of reach: {error}"))
        .try_next("see `cenote tiers` for what is wrong with the device, and bring it back")
}

#[cold]
fn unexpected(link: &Link, object: &ObjectCache) -> Error {
    Error::new(ErrorKind::Internal, link.channel.object_name(object.key))
        .because("the engine's answer to a lookup makes no sense")
}

/// Returns true if the cache finds the whole range in memory, so that a read is a copy.
pub(crate) fn is_in_memory(link: &Link, object: &ObjectCache, offset: u64, len: usize) -> bool {
    let attachment = link.channel.attachment();
    let version = attachment.version(object.hash);
    let mut parts = Parts::new();
    let Some(planned) = object.plan(version, offset, len, 0, &mut parts) else { return false };
    planned.bytes >= wanted(planned.size, offset, len)
        && !parts.iter().any(|part| matches!(part.source, Source::File { .. } | Source::ThroughLink))
}

/// Addresses and lengths in memory.
pub(crate) type Runs = SmallVec<[(usize, usize); 4]>;

/// Finds a whole range in mapped memory: addresses and lengths, with adjacent runs joined. Returns `None` if a part is
/// not mapped. The caller holds a reader slot of `attachment`; `len` must not be 0.
pub(crate) fn runs_of(
    link: &Link,
    attachment: &Attachment,
    object: &ObjectCache,
    offset: u64,
    len: usize,
) -> Result<Option<Runs>> {
    let mut parts = Parts::new();
    let version = attachment.version(object.hash);
    let enough = |planned: Planned| planned.bytes >= wanted(planned.size, offset, len);
    if !object.plan(version, offset, len, 0, &mut parts).is_some_and(enough) {
        parts.clear();
        look_up(link, object, offset, len, 0, version, &mut parts)?;
    }
    // One large write has many extents, mostly adjacent on the device.
    let mut runs = Runs::new();
    for part in &parts {
        let Source::Mapped(address, _) = part.source else { return Ok(None) };
        match runs.last_mut() {
            Some((begin, run)) if *begin + *run == address => *run += part.len,
            _ => runs.push((address, part.len)),
        }
    }
    Ok(Some(runs).filter(|runs| runs.iter().map(|(_, run)| run).sum::<usize>() == len))
}
