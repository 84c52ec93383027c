//! Reading: from cached maps without a message when nothing changed, else after asking.
#![allow(unsafe_code, reason = "copies out of mapped segments that other processes write")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_device::lane;
use cenote_device::sums::{SUM_UNIT_BYTES, copy_and_sum, copy_raw, sum_of};
use cenote_model::{Encoding, Error, ErrorKind, Extent, Lookup, OBJECT_BYTES_MAX, Request, Response, Result};
use smallvec::SmallVec;

use super::cache::{ObjectCache, Planned, Version};
use super::carried;
use super::packed;
use super::pieces::{Part, Pieces, Place, Seek, Sought};
use super::tiering;
use crate::session::{Attachment, Session};

/// Asked for at once, so that reading on needs no further message.
const LOOKUP_EXTENTS: u32 = 256;
const LOOKUP_BYTES: u64 = 64 << 20;
/// Space for the parts of a small read without allocation.
pub(crate) type Parts = SmallVec<[Part; 4]>;

/// Bytes of a range that cannot be read where they are fall back to other tiers: so often before the read fails.
const RESCUES_MAX: u32 = 4;
/// A range that was brought leaves again if others need the room more: so often it is brought again.
const RESTORES_MAX: u32 = 16;

/// What a read came to.
pub(crate) struct ReadDone {
    /// Recorded size of the object at the time.
    pub size: u64,
    /// Bytes of the range below that size: these were filled.
    pub bytes: usize,
}

/// Fills `buf` from `offset` up to the object's size.
pub(crate) fn read_at(session: &Session, object: &Arc<ObjectCache>, offset: u64, buf: &mut [u8]) -> Result<ReadDone> {
    settle_own_writes(session, object);
    let mut asked = false;
    let mut restored = 0;
    let mut rescues = Rescues::default();
    loop {
        let attachment = session.attachment();
        if attachment.bound {
            return carried::read_at(session, object, offset, buf);
        }
        let slot = attachment.readers.enter();
        // The announcement comes before every look at a word: from here on no space that a map names is used again.
        if !attachment.is_current() {
            drop(slot);
            session.attach_again(&attachment)?;
            continue;
        }
        let beginning = slot.begin(object.is_tiered());
        let mut parts = Parts::new();
        let version = attachment.version(object.hash);
        let planned = object.plan(version, offset, buf.len(), 0, &mut parts);
        let (size, bytes) = match planned {
            Some(planned) if planned.bytes >= wanted(planned.size, offset, buf.len()) => (planned.size, planned.bytes),
            planned => {
                // The slot is held while asking: what the answer names stays as it is until we are done.
                let begin = planned.map_or(0, |planned| planned.bytes);
                match look_up(session, object, offset, buf.len(), begin, version, &mut parts) {
                    Ok(found) => found,
                    Err(error) => {
                        drop(slot);
                        rescues.rescue(session, object, (offset, buf.len()), error)?;
                        continue;
                    }
                }
            }
        };
        if !attachment.is_current() {
            continue; // another engine took over while we asked: its map may differ from the one that we have
        }
        if tiering::is_elsewhere(&parts) {
            drop(slot); // room may be needed that readers hold
            restored += 1;
            if restored > RESTORES_MAX {
                return Err(never_here(session, object, offset, bytes));
            }
            tiering::restore(session, object.key, offset, bytes)?;
            asked = true;
            continue;
        }
        if !asked && tiering::is_slow(session, object, &parts) {
            drop(slot);
            tiering::fetch(session, object, offset, bytes);
            asked = true;
            continue;
        }
        if let Err(error) = copy_parts(session, object, offset, &parts, buf) {
            drop(slot);
            rescues.rescue(session, object, (offset, bytes), error)?;
            continue;
        }
        slot.count(&parts, &beginning);
        drop(slot);
        if object.is_tiered() {
            tiering::note_read(session, object, (offset, bytes), beginning.is_sampled, asked);
        }
        return Ok(ReadDone { size, bytes });
    }
}

/// How often bytes of one read fell back to other tiers.
#[derive(Default)]
pub(super) struct Rescues(u32);

impl Rescues {
    /// Bytes cannot be read where they are: has what is on another tier too read from there. The caller holds no reader
    /// slot, and reads again. The error, if there is no other place.
    #[cold]
    pub fn rescue(
        &mut self,
        session: &Session,
        object: &ObjectCache,
        (offset, len): (u64, usize),
        error: Error,
    ) -> Result<()> {
        if !matches!(error.kind(), ErrorKind::Io | ErrorKind::Corrupt) || self.0 >= RESCUES_MAX {
            return Err(error);
        }
        self.0 += 1;
        tiering::rescue(session, object.key, offset, len).map_err(|why| {
            let cause = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
            let next = if error.next_step().is_empty() { why.next_step() } else { error.next_step() };
            Error::new(error.kind(), error.subject()).because(format!("{cause}; {}", why.cause())).try_next(next)
        })
    }
}

/// Bytes of the range that lie below the size.
fn wanted(size: u64, offset: u64, len: usize) -> usize {
    size.saturating_sub(offset).min(len as u64) as usize
}

/// Waits for this session's launched writes to the object: it must see them.
pub(crate) fn settle_own_writes(session: &Session, object: &ObjectCache) {
    let last = object.batch_last.load(Ordering::Acquire);
    if last > session.queue.settled() {
        session.queue.settle(session, last);
    }
}

/// Asks for the part of the map that is missing; the size, and how many bytes of the range lie below it.
/// The caller holds a reader slot.
fn look_up(
    session: &Session,
    object: &ObjectCache,
    offset: u64,
    len: usize,
    mut done: usize,
    version: Version,
    parts: &mut Parts,
) -> Result<(u64, usize)> {
    /// An object that others change all the time is read in pieces of different age rather than never.
    const FRESH_STARTS_MAX: u32 = 3;
    let instance = version.instance; // if its successor answers, nobody asks the cache for this any more
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
        let Response::Lookup(found) = session.ask(request)? else {
            return Err(unexpected(session, object));
        };
        let told = Version { instance, word: found.version };
        if version.is_some_and(|version| version != told) && done > 0 && fresh_starts < FRESH_STARTS_MAX {
            fresh_starts += 1;
            // Begin again with this younger map; the engine keeps all of what we hold until the slot is free.
            parts.clear();
            done = 0;
            version = None;
            continue;
        }
        version = Some(told);
        let pieces = resolve(session, &found).map_err(|error| out_of_reach(session, object, &error))?;
        let wanted = wanted(found.size, offset, len);
        // From the answer itself rather than from the cache, which others may have replaced meanwhile.
        let mut known = Pieces::default();
        let mut at = from;
        for (begin, piece_len, place) in &pieces {
            if *begin > at {
                known.set(at, begin - at, Place::Hole);
            }
            known.set(*begin, *piece_len, place.clone());
            at = at.max(begin + piece_len);
        }
        let end = found.covered_to.max(at);
        if end > at {
            known.set(at, end - at, Place::Hole);
        }
        if wanted > done {
            let more = known.parts(from, wanted - done, done, parts);
            if more == 0 {
                return Err(unexpected(session, object));
            }
            done += more;
        }
        object.learn(told, found.size, from, found.covered_to, pieces);
        if done >= wanted {
            return Ok((found.size, wanted));
        }
    }
}

/// The object's recorded size: without a message if what is cached of it still holds.
pub(crate) fn size_of(session: &Session, object: &ObjectCache) -> Result<u64> {
    /// Few extents, for who asks for the size may read next.
    const EXTENTS: u32 = 16;
    settle_own_writes(session, object);
    loop {
        let attachment = session.attachment();
        if !attachment.is_current() {
            session.attach_again(&attachment)?;
            continue;
        }
        let version = attachment.version(object.hash);
        if let Some(size) = object.size(version) {
            return Ok(size);
        }
        let found = learn_from(session, object, version.instance, (0, LOOKUP_BYTES), EXTENTS)?;
        if attachment.is_current() {
            return Ok(found.size);
        }
    }
}

/// Its size and how many bytes it takes, if what is known once the size is tells that.
pub(crate) fn usage_of(session: &Session, object: &ObjectCache) -> Result<Option<(u64, u64)>> {
    let size = size_of(session, object)?;
    let version = session.attachment().version(object.hash);
    // Both of one version, or none.
    let taken = object.taken(version);
    Ok(taken.filter(|_| object.size(version) == Some(size)).map(|taken| (size, taken)))
}

/// Where from `offset` on data, or a hole, begins, if something of the kind does before the object's end.
pub(crate) fn seek(session: &Session, object: &ObjectCache, offset: u64, what: Seek) -> Result<Option<u64>> {
    settle_own_writes(session, object);
    let mut from = offset;
    loop {
        let attachment = session.attachment();
        if !attachment.is_current() {
            session.attach_again(&attachment)?;
            continue;
        }
        let version = attachment.version(object.hash);
        match object.seek(version, offset, what) {
            Some(Sought::At(at)) => return Ok(Some(at)),
            Some(Sought::None) => return Ok(None),
            Some(Sought::Unknown(at)) => from = from.max(at),
            None => {}
        }
        let len = OBJECT_BYTES_MAX.saturating_sub(from);
        let found = learn_from(session, object, version.instance, (from, len), LOOKUP_EXTENTS)?;
        if !attachment.is_current() {
            continue;
        }
        // From the answer itself: others may change the object all the time.
        let mut told = Pieces::default();
        let mut at = from;
        for (begin, extent) in &found.extents {
            told.set(at, begin.saturating_sub(at), Place::Hole);
            told.set(*begin, u64::from(extent.len), Place::Elsewhere);
            at = at.max(begin + u64::from(extent.len));
        }
        told.set(at, found.covered_to.saturating_sub(at), Place::Hole);
        match told.seek(from, found.size, what) {
            Sought::At(at) => return Ok(Some(at)),
            // It became shorter meanwhile.
            Sought::None => return Ok(Some(found.size).filter(|size| what == Seek::Hole && offset < *size)),
            Sought::Unknown(at) => from = at,
        }
    }
}

/// Asks for a part of the map, and keeps what the answer says. No byte is looked at, so that no reader slot is needed.
fn learn_from(
    session: &Session,
    object: &ObjectCache,
    instance: u64,
    (offset, len): (u64, u64),
    limit: u32,
) -> Result<Lookup> {
    let Response::Lookup(found) = session.ask(Request::Lookup { key: object.key, offset, len, limit })? else {
        return Err(unexpected(session, object));
    };
    // What is out of reach is an error for who reads it.
    if let Ok(pieces) = resolve(session, &found) {
        let version = Version { instance, word: found.version };
        object.learn(version, found.size, offset, found.covered_to, pieces);
    }
    Ok(found)
}

/// Where the extents of an answer are, for this process.
pub(crate) fn resolve(session: &Session, found: &Lookup) -> Result<Vec<(u64, u64, Place)>> {
    found
        .extents
        .iter()
        .map(|(offset, extent)| Ok((*offset, u64::from(extent.len), place_of(session, extent)?)))
        .collect()
}

fn place_of(session: &Session, extent: &Extent) -> Result<Place> {
    if session.is_bound() || !session.segments.shape(session, extent.device)?.kind.is_shareable() {
        return Ok(Place::Elsewhere);
    }
    if extent.node.0 != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "an extent").because("it is on another node"));
    }
    if extent.encoding != Encoding::Plain {
        return Ok(Place::File { extent: Arc::new(extent.clone()), skip: 0 });
    }
    let (io, inside) = session.segments.locate(session, extent.device, extent.device_offset()).map_err(|error| {
        let name =
            session.segments.shape(session, extent.device).map_or_else(|_| String::new(), |s| s.name.to_string());
        let cause = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
        Error::new(error.kind(), format!("device `{name}`")).because(cause)
    })?;
    let address = io.map().map(|map| map.at(inside, extent.len as usize));
    match address {
        Some(Some(address)) => Ok(Place::Memory(address as usize, extent.device)),
        Some(None) => Err(Error::new(ErrorKind::Corrupt, "an extent").because("it reaches past its segment")),
        None => Ok(Place::File { extent: Arc::new(extent.clone()), skip: 0 }),
    }
}

/// Fills the buffer from parts that an announced reader may use.
pub(crate) fn copy_parts(
    session: &Session,
    object: &ObjectCache,
    offset: u64,
    parts: &[Part],
    buf: &mut [u8],
) -> Result<()> {
    for part in parts {
        let target = &mut buf[part.at..part.at + part.len];
        match &part.place {
            Place::Hole => target.fill(0),
            // SAFETY: the address was computed from an extent that lies inside a mapped segment (`place_of`, `Chunk`),
            // segments stay mapped while the session lives, and the caller's slot keeps the space from being reused.
            Place::Memory(address, _) => unsafe {
                copy_raw(target.as_mut_ptr(), *address as *const u8, target.len());
            },
            Place::Elsewhere => return Err(never_here(session, object, offset + part.at as u64, part.len)),
            Place::File { extent, skip } => {
                let at = offset + part.at as u64;
                read_file(session, object, at, extent, *skip, target)
                    .map_err(|error| named(session, object, (at, part.len), extent, error))?;
            }
        }
    }
    Ok(())
}

/// Reads from a file tier: whole checksum units, verified in the same pass that copies them, while the device reads on.
fn read_file(
    session: &Session,
    object: &ObjectCache,
    offset: u64,
    extent: &Extent,
    skip: u32,
    target: &mut [u8],
) -> Result<()> {
    let (io, run_inside) = session.segments.locate(session, extent.device, extent.run_offset)?;
    let damaged = |offset: u64, len: usize, why: &str| damaged(session, object, offset, len, extent, why);
    let from = extent.skip as usize + skip as usize; // in the run
    let begin = from / SUM_UNIT_BYTES * SUM_UNIT_BYTES;
    let end = (from + target.len()).next_multiple_of(SUM_UNIT_BYTES).min(extent.run_len as usize);
    if end < from + target.len() {
        return Err(damaged(offset, target.len(), "its map reaches past the run"));
    }
    let mut sums = extent.sums.as_slice().get(begin / SUM_UNIT_BYTES..).unwrap_or_default().iter();
    if let Encoding::Packed(packed) = &extent.encoding {
        if packed.run_len() != extent.run_len {
            return Err(damaged(offset, target.len(), "its map contradicts itself"));
        }
        return packed::read_units(&io, run_inside, packed, &mut sums, from, target).map_err(|(at, len, why)| {
            let Some(why) = why else {
                return damaged(offset + at as u64, len, "the bytes do not match their checksum");
            };
            if why.kind() == ErrorKind::Corrupt { damaged(offset + at as u64, len, why.cause()) } else { why }
        });
    }
    let mut found = Vec::with_capacity(1);
    lane::read_taken(&io, run_inside + begin as u64, end - begin, |piece, at| {
        for (number, unit) in piece.chunks(SUM_UNIT_BYTES).enumerate() {
            // What of this unit was asked for: from where on in the unit, and where in the target.
            let unit_at = begin + at + number * SUM_UNIT_BYTES;
            let wanted = from.max(unit_at)..(from + target.len()).min(unit_at + unit.len());
            let into = &mut target[wanted.start - from..wanted.end - from];
            found.clear();
            if into.len() == unit.len() {
                copy_and_sum(into, unit, &mut found);
            } else {
                found.push(sum_of(unit));
            }
            if sums.next() != found.first() {
                let at = (offset + unit_at as u64).saturating_sub(from as u64);
                return Err(damaged(at, unit.len(), "the bytes do not match their checksum"));
            }
            if into.len() != unit.len() {
                into.copy_from_slice(&unit[wanted.start - unit_at..wanted.end - unit_at]);
            }
        }
        Ok(())
    })
}

/// An error of a device, with what was read.
#[cold]
fn named(session: &Session, object: &ObjectCache, (at, len): (u64, usize), extent: &Extent, error: Error) -> Error {
    if error.kind() == ErrorKind::Corrupt && error.subject().starts_with(&session.object_name(object.key)) {
        return error;
    }
    let device = session.segments.shape(session, extent.device).map_or_else(|_| String::new(), |s| s.name.to_string());
    let object = session.object_name(object.key);
    Error::new(error.kind(), format!("{object}, bytes {at} to {}, on device `{device}`", at + len as u64))
        .because(error.to_string())
        .try_next("see `cenote tiers` and the logs of the system for what is wrong with the device")
}

#[cold]
fn damaged(session: &Session, object: &ObjectCache, offset: u64, len: usize, extent: &Extent, why: &str) -> Error {
    let device = session
        .segments
        .shape(session, extent.device)
        .map_or_else(|_| extent.device.to_string(), |s| s.name.to_string());
    Error::new(
        ErrorKind::Corrupt,
        format!("{}, bytes {offset} to {}, on device `{device}`", session.object_name(object.key), offset + len as u64),
    )
    .because(why)
    .try_next("run `cenote verify` to see what else is damaged, and restore the range from a copy")
}

/// Bytes lie on a device that cannot be opened.
#[cold]
fn out_of_reach(session: &Session, object: &ObjectCache, error: &Error) -> Error {
    let kind = if error.kind() == ErrorKind::NotFound { ErrorKind::Io } else { error.kind() };
    Error::new(kind, session.object_name(object.key))
        .because(format!("some of it is out of reach: {error}"))
        .try_next("see `cenote tiers` for what is wrong with the device, and bring it back")
}

#[cold]
fn never_here(session: &Session, object: &ObjectCache, offset: u64, len: usize) -> Error {
    Error::new(
        ErrorKind::Busy,
        format!("{}, bytes {offset} to {}", session.object_name(object.key), offset + len as u64),
    )
    .because("they are on an object service, and leave the faster tier again before they are read")
    .try_next("read less at a time, or make the faster tiers larger")
}

#[cold]
fn unexpected(session: &Session, object: &ObjectCache) -> Error {
    Error::new(ErrorKind::Internal, session.object_name(object.key))
        .because("the engine's answer to a lookup makes no sense")
}

/// True if the cache says that a range is in memory, so that reading it is a copy.
pub(crate) fn is_in_memory(session: &Session, object: &ObjectCache, offset: u64, len: usize) -> bool {
    let attachment = session.attachment();
    let version = attachment.version(object.hash);
    let mut parts = Parts::new();
    let Some(planned) = object.plan(version, offset, len, 0, &mut parts) else { return false };
    planned.bytes >= wanted(planned.size, offset, len)
        && !parts.iter().any(|part| matches!(part.place, Place::File { .. } | Place::Elsewhere))
}

/// Addresses and lengths.
pub(crate) type Runs = SmallVec<[(usize, usize); 4]>;

/// Where a whole range is in mapped memory: addresses and lengths, those right behind each other joined. The caller holds a
/// reader slot of `attachment`. `None` if some of it is not; `len` must not be 0.
pub(crate) fn runs_of(
    session: &Session,
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
        look_up(session, object, offset, len, 0, version, &mut parts)?;
    }
    // What is written in one go is many extents, mostly right behind each other on the device.
    let mut runs = Runs::new();
    for part in &parts {
        let Place::Memory(address, _) = part.place else { return Ok(None) };
        match runs.last_mut() {
            Some((begin, run)) if *begin + *run == address => *run += part.len,
            _ => runs.push((address, part.len)),
        }
    }
    Ok(Some(runs).filter(|runs| runs.iter().map(|(_, run)| run).sum::<usize>() == len))
}
