//! Reading: from cached maps without a message when nothing changed, else after asking.
#![allow(unsafe_code, reason = "copies out of mapped segments that other processes write")]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_device::sums::{SUM_UNIT_BYTES, copy_raw, sum_of};
use cenote_device::{SegmentIo, SegmentMode, aligned::AlignedBuf};
use cenote_model::{Encoding, Error, ErrorKind, Extent, Lookup, Request, Response, Result};
use smallvec::SmallVec;

use super::cache::{ObjectCache, Planned};
use super::pieces::{Part, Place};
use crate::session::{Attachment, Session};

/// Asked for at once, so that reading on needs no further message.
const LOOKUP_EXTENTS: u32 = 256;
const LOOKUP_BYTES: u64 = 64 << 20;
/// Space for the parts of a small read without allocation.
pub(crate) type Parts = SmallVec<[Part; 4]>;

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
    loop {
        let attachment = session.attachment();
        let slot = attachment.readers.enter();
        // The announcement comes before every look at a word: from here on no space that a map names is used again.
        if !attachment.is_current() {
            drop(slot);
            session.attach_again(&attachment)?;
            continue;
        }
        let mut parts = Parts::new();
        let version = attachment.readers.word(object.hash);
        let planned = object.plan(version, offset, buf.len(), 0, &mut parts);
        let (size, bytes) = match planned {
            Some(planned) if planned.bytes >= wanted(planned.size, offset, buf.len()) => (planned.size, planned.bytes),
            planned => {
                // The slot is held while asking: what the answer names stays as it is until we are done.
                let begin = planned.map_or(0, |planned| planned.bytes);
                look_up(session, object, offset, buf.len(), begin, version, &mut parts)?
            }
        };
        if !attachment.is_current() {
            continue; // another engine took over while we asked: its map may differ from the one that we have
        }
        copy_parts(session, object, offset, &parts, buf)?;
        drop(slot);
        return Ok(ReadDone { size, bytes });
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
    version: u64,
    parts: &mut Parts,
) -> Result<(u64, usize)> {
    /// An object that others change all the time is read in pieces of different age rather than never.
    const FRESH_STARTS_MAX: u32 = 3;
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
        if version.is_some_and(|version| version != found.version) && done > 0 && fresh_starts < FRESH_STARTS_MAX {
            fresh_starts += 1;
            // Begin again with this younger map; the engine keeps all of what we hold until the slot is free.
            parts.clear();
            done = 0;
            version = None;
            continue;
        }
        version = Some(found.version);
        let pieces = resolve(session, &found)?;
        let wanted = wanted(found.size, offset, len);
        // From the answer itself rather than from the cache, which others may have replaced meanwhile.
        let mut known = super::pieces::Pieces::default();
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
        object.learn(found.version, found.size, from, found.covered_to, pieces);
        if done >= wanted {
            return Ok((found.size, wanted));
        }
    }
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
    if extent.encoding != Encoding::Plain || extent.node.0 != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "an extent").because("it is encoded, or on another node"));
    }
    let (io, inside) = session.segments.locate(session, extent.device, extent.device_offset())?;
    let address = io.map().map(|map| map.at(inside, extent.len as usize));
    match address {
        Some(Some(address)) => Ok(Place::Memory(address as usize)),
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
            Place::Memory(address) => unsafe {
                copy_raw(target.as_mut_ptr(), *address as *const u8, target.len());
            },
            Place::File { extent, skip } => {
                read_file(session, object, offset + part.at as u64, extent, *skip, target)?;
            }
        }
    }
    Ok(())
}

/// Reads from a file tier: whole checksum units, verified.
fn read_file(
    session: &Session,
    object: &ObjectCache,
    offset: u64,
    extent: &Extent,
    skip: u32,
    target: &mut [u8],
) -> Result<()> {
    /// Read and verified at a time: bounds the buffer.
    const STRIDE: usize = 16 * SUM_UNIT_BYTES;
    let (io, run_inside) = session.segments.locate(session, extent.device, extent.run_offset)?;
    let sums = extent.sums.as_slice();
    let run_len = extent.run_len as usize;
    let mut from = extent.skip as usize + skip as usize; // in the run
    let mut done = 0;
    let mut buffer: Option<AlignedBuf> = None;
    while done < target.len() {
        let unit_first = from / SUM_UNIT_BYTES;
        let begin = unit_first * SUM_UNIT_BYTES;
        let end = (from + target.len() - done).next_multiple_of(SUM_UNIT_BYTES).min(begin + STRIDE).min(run_len);
        if end <= from {
            return Err(damaged(
                session,
                object,
                offset + done as u64,
                target.len() - done,
                extent,
                "its map reaches past the run",
            ));
        }
        let n = (end - from).min(target.len() - done);
        let units = sums.get(unit_first..end.div_ceil(SUM_UNIT_BYTES)).unwrap_or_default();
        let inside = run_inside + begin as u64;
        let direct_ok = io.mode() == SegmentMode::Buffered
            || (target[done..].as_ptr() as usize).is_multiple_of(4096) && n.is_multiple_of(4096);
        if begin == from && end == from + n && direct_ok {
            // Whole units into the caller's own buffer.
            let into = &mut target[done..done + n];
            io.read_at(inside, into)?;
            check_units(session, object, offset + done as u64, into, units, extent)?;
        } else {
            let buffer = buffer.get_or_insert_with(|| AlignedBuf::reused(STRIDE));
            let span = (end - begin).next_multiple_of(4096);
            read_padded(&io, inside, &mut buffer[..span], end - begin)?;
            let bytes = &buffer[..end - begin];
            let from_object = (offset + done as u64).saturating_sub((from - begin) as u64);
            check_units(session, object, from_object, bytes, units, extent)?;
            target[done..done + n].copy_from_slice(&bytes[from - begin..from - begin + n]);
        }
        from += n;
        done += n;
    }
    Ok(())
}

/// Reads `len` bytes, or up to the padding if the segment has it: direct I/O wants whole 4096-byte units.
fn read_padded(io: &SegmentIo, inside: u64, buffer: &mut [u8], len: usize) -> Result<()> {
    let fits = inside + buffer.len() as u64 <= io.len();
    let n = if fits { buffer.len() } else { len };
    io.read_at(inside, &mut buffer[..n])
}

fn check_units(
    session: &Session,
    object: &ObjectCache,
    offset: u64,
    bytes: &[u8],
    sums: &[u32],
    extent: &Extent,
) -> Result<()> {
    let mut sums = sums.iter();
    for (number, unit) in bytes.chunks(SUM_UNIT_BYTES).enumerate() {
        if sums.next().is_none_or(|sum| *sum != sum_of(unit)) {
            let begin = offset + (number * SUM_UNIT_BYTES) as u64;
            return Err(damaged(session, object, begin, unit.len(), extent, "the bytes do not match their checksum"));
        }
    }
    Ok(())
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

#[cold]
fn unexpected(session: &Session, object: &ObjectCache) -> Error {
    Error::new(ErrorKind::Internal, session.object_name(object.key))
        .because("the engine's answer to a lookup makes no sense")
}

/// True if the cache says that a range is in memory, so that reading it is a copy.
pub(crate) fn is_in_memory(session: &Session, object: &ObjectCache, offset: u64, len: usize) -> bool {
    let attachment = session.attachment();
    let version = attachment.readers.word(object.hash);
    let mut parts = Parts::new();
    let Some(planned) = object.plan(version, offset, len, 0, &mut parts) else { return false };
    planned.bytes >= wanted(planned.size, offset, len)
        && !parts.iter().any(|part| matches!(part.place, Place::File { .. }))
}

/// The address of a whole range, if one mapped extent holds it. The caller holds a reader slot of `attachment`.
/// `None` if it does not; `len` must not be 0.
pub(crate) fn address_of(
    session: &Session,
    attachment: &Attachment,
    object: &ObjectCache,
    offset: u64,
    len: usize,
) -> Result<Option<usize>> {
    let mut parts = Parts::new();
    let version = attachment.readers.word(object.hash);
    let enough = |planned: Planned| planned.bytes >= wanted(planned.size, offset, len);
    if !object.plan(version, offset, len, 0, &mut parts).is_some_and(enough) {
        parts.clear();
        look_up(session, object, offset, len, 0, version, &mut parts)?;
    }
    Ok(match parts.as_slice() {
        [Part { len: found, place: Place::Memory(address), .. }] if *found == len => Some(*address),
        _ => None,
    })
}
