//! The data path of a session that may not map the store's devices, because owners and modes of containers bind it: the
//! daemon carries its bytes. This costs one or two copies and a message; the semantics are the same.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{
    CARRIED_BYTES_MAX, ErrorKind, Extent, ObjectKey, RUN_BYTES_MAX, Request, Response, Result, Run, Update,
};

use super::read::{ReadDone, Rescues, settle_own_writes};
use super::write::{Stored, Target, sums_in_place};
use crate::answer::surprise;
use crate::link::Link;
use crate::link::arena::Patience;
use crate::link::subject::Subject;
use crate::map::cache::ObjectCache;
use crate::map::pieces::Source;

/// Fills `buf` from `offset` up to the object's size. A range longer than a message is read in pieces, which may be of
/// different versions.
pub(super) fn read_at(link: &Link, object: &Arc<ObjectCache>, offset: u64, buf: &mut [u8]) -> Result<ReadDone> {
    settle_own_writes(link, object);
    let mut rescues = Rescues::default();
    let mut done = 0;
    loop {
        let len = (buf.len() - done).min(CARRIED_BYTES_MAX as usize);
        let from = offset.saturating_add(done as u64);
        let (size, bytes) = match read(link, object.key, from, len as u32) {
            Ok(answer) => answer,
            Err(error) => {
                rescues.rescue(link, object, (from, len), error)?;
                continue;
            }
        };
        let count = bytes.len().min(len);
        buf[done..done + count].copy_from_slice(&bytes[..count]);
        done += count;
        if done == buf.len() || count < len {
            return Ok(ReadDone { size, bytes: done });
        }
    }
}

fn read(link: &Link, key: ObjectKey, offset: u64, len: u32) -> Result<(u64, Vec<u8>)> {
    match link.channel.ask(Request::Read { key, offset, len })? {
        Response::Bytes { size, bytes, .. } => Ok((size, bytes)),
        other => Err(surprise("bytes", &other)),
    }
}

/// Stores bytes through the daemon, in space that belongs to this session afterwards.
pub(super) fn store(link: &Link, target: &Target<'_>, mut bytes: &[u8]) -> Result<Vec<Stored>> {
    let mut all: Vec<Stored> = Vec::with_capacity(1);
    while !bytes.is_empty() {
        match deposit(link, target, &bytes[..bytes.len().min(CARRIED_BYTES_MAX as usize)]) {
            Ok(runs) => {
                for run in runs {
                    bytes = &bytes[point(link, run, bytes, &mut all)?..];
                }
            }
            Err(error) => {
                link.channel.unlease(all.iter().map(|stored| stored.run).collect());
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// Writes whose bytes travel with them.
pub(super) struct Filled<'a> {
    pub updates: Vec<Update>,
    pub subjects: Vec<Subject>,
    /// The bytes of the updates that bring some.
    pub pieces: Vec<&'a [u8]>,
    /// What found no memory at the home.
    pub rest: &'a [u8],
}

/// Makes the updates of a write whose bytes travel with them, to memory that this session leases of another node. `None`
/// if the home is on this node, or gives no memory.
pub(super) fn fill<'a>(
    link: &Link,
    target: &Target<'_>,
    mut offset: u64,
    mut bytes: &'a [u8],
) -> Result<Option<Filled<'a>>> {
    if !link.is_far() {
        return Ok(None);
    }
    let mut filled = Filled {
        updates: Vec::with_capacity(2),
        subjects: Vec::with_capacity(2),
        pieces: Vec::with_capacity(1),
        rest: bytes,
    };
    while !bytes.is_empty() {
        let taken = target.arena.take_far(&link.space, target.container, bytes.len() as u64);
        let Some(run) = taken.inspect_err(|_| give_back(link, &filled.subjects))? else { break };
        let (piece, rest) = bytes.split_at(bytes.len().min(usize::try_from(run.len).unwrap_or(usize::MAX)));
        let len = piece.len() as u32;
        let extent = Extent::whole(run.device, run.offset, len, sums_in_place(piece));
        filled.updates.push(Update::Fill { container: target.container, run, bytes: Vec::new() });
        filled.pieces.push(piece);
        filled.updates.push(Update::Write { key: target.object.key, offset, extent });
        let (object, source) = (target.object.clone(), kept(link, target.object, piece));
        filled.subjects.push(Subject::Part { object: None, run: None, bytes: 0 });
        filled.subjects.push(Subject::Write { object, offset, len: u64::from(len), source, run });
        (offset, bytes) = (offset + u64::from(len), rest);
    }
    filled.rest = bytes;
    Ok(Some(filled))
}

/// The source of bytes that are written: they are kept if others of the object are.
fn kept(link: &Link, object: &Arc<ObjectCache>, bytes: &[u8]) -> Source {
    if object.is_kept.load(Ordering::Relaxed) {
        Source::Kept(link.keeping.keep(object, bytes.to_vec()), 0)
    } else {
        Source::ThroughLink
    }
}

/// Gives back the space of writes that are not made.
fn give_back(link: &Link, subjects: &[Subject]) {
    let run = |subject: &Subject| if let Subject::Write { run, .. } = subject { Some(*run) } else { None };
    link.channel.unlease(subjects.iter().filter_map(run).collect());
}

/// Creates extents for the part of `bytes` that a run holds, and returns the length of that part. Surplus space of the
/// run is given back.
fn point(link: &Link, run: Run, bytes: &[u8], all: &mut Vec<Stored>) -> Result<usize> {
    let shape = link.space.segments.shape(run.device)?;
    let held = bytes.len().min(usize::try_from(run.len).unwrap_or(usize::MAX));
    let mut at = 0;
    while at < held {
        let offset = run.offset + at as u64;
        let in_segment = shape.segment_bytes - offset % shape.segment_bytes;
        let len = ((held - at) as u64).min(in_segment).min(u64::from(RUN_BYTES_MAX));
        let padded = len.next_multiple_of(shape.unit_bytes).min(run.len - at as u64);
        let sums = sums_in_place(&bytes[at..at + len as usize]);
        all.push(Stored {
            run: Run { device: run.device, offset, len: padded },
            len: len as u32,
            extent: Extent::whole(run.device, offset, len as u32, sums),
            source: Source::ThroughLink,
            unwritten: None,
        });
        at += padded as usize;
    }
    if (at as u64) < run.len {
        link.channel.unlease(vec![Run {
            device: run.device,
            offset: run.offset + at as u64,
            len: run.len - at as u64,
        }]);
    }
    Ok(held)
}

/// Stores bytes with one message. Waits a bounded time for room while tiers are full and drain.
fn deposit(link: &Link, target: &Target<'_>, bytes: &[u8]) -> Result<Vec<Run>> {
    let mut patience = Patience::new();
    loop {
        let (container, durability) = (target.container, target.arena.durability());
        let request = Request::Deposit { container, bytes: bytes.to_vec(), avoid: Vec::new(), durability };
        match link.channel.ask(request) {
            Ok(Response::Lease(lease)) if !lease.runs.is_empty() => return Ok(lease.runs),
            Ok(other) => return Err(surprise("space", &other)),
            Err(error) if error.kind() == ErrorKind::Busy => {
                patience.check(&link.channel, &error)?;
                patience.pause();
            }
            Err(error) => return Err(error),
        }
    }
}
