//! Writing: copy into leased space with checksums, then launch the update that points at it.
#![allow(unsafe_code, reason = "copies into mapped segments that other processes read")]

use std::sync::Arc;

use cenote_device::sums::copy_and_sum_raw;
use cenote_device::{SegmentMode, aligned::AlignedBuf, lane};
use cenote_model::{
    ContainerId, DeviceId, Error, ErrorKind, Extent, OBJECT_BYTES_MAX, Result, SUM_UNIT_SHIFT, Sums, Update,
};

use super::arena::{Arena, Chunk, Filling};
use super::cache::ObjectCache;
use super::pieces::Place;
use super::queue::{Subject, Ticket};
use crate::session::Session;

/// Where a write goes.
pub(crate) struct Target<'a> {
    pub object: &'a Arc<ObjectCache>,
    pub container: ContainerId,
    pub arena: &'a Arena,
}

/// Bytes that were put into leased space, or are on their way to a file there.
pub(crate) struct Stored {
    pub chunk: Chunk,
    pub extent: Extent,
    /// For files: the bytes, padded to the device's unit. To be written before the extent is used.
    pub unwritten: Option<AlignedBuf>,
}

impl Stored {
    /// Where readers find the bytes.
    pub fn place(&self) -> Place {
        match self.chunk.address() {
            Some(address) => Place::Memory(address as usize),
            None => Place::File { extent: Arc::new(self.extent.clone()), skip: 0 },
        }
    }
    /// Writes a file's bytes.
    pub fn write_out(chunk: &Chunk, bytes: &[u8]) -> Result<()> {
        chunk.io.write_padded(chunk.inside, &bytes[..chunk.len as usize])
    }
}

/// Copies bytes into as many chunks as it takes.
///
/// With `here`, what goes to files is written by this thread while it copies; else it is left to be written out.
pub(crate) fn store(session: &Session, target: &Target<'_>, mut bytes: &[u8], here: bool) -> Result<Vec<Stored>> {
    let mut all: Vec<Stored> = Vec::with_capacity(1);
    let mut avoid = Vec::new();
    while !bytes.is_empty() {
        let stored = target
            .arena
            .take(session, target.container, bytes.len() as u64, Filling::Copied, &mut avoid)
            .and_then(|chunk| copy_in(session, chunk, bytes, here, &mut avoid));
        match stored {
            Ok(Some(stored)) => {
                bytes = &bytes[stored.chunk.len as usize..];
                all.push(stored);
            }
            Ok(None) => {} // its device is to be avoided
            Err(error) => {
                session.unlease(all.iter().map(|stored| stored.chunk.run()).collect());
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// Fills a chunk with the first of `bytes`. `None` if the machine has no memory left for its device, which from then on
/// is among those to avoid.
fn copy_in(
    session: &Session,
    chunk: Chunk,
    bytes: &[u8],
    here: bool,
    avoid: &mut Vec<DeviceId>,
) -> Result<Option<Stored>> {
    let bytes = &bytes[..chunk.len as usize];
    if here && !is_memory(&chunk) {
        let run = chunk.run();
        return write_through(chunk, bytes).map(Some).inspect_err(|_| session.unlease(vec![run]));
    }
    if !chunk.through_file {
        return Ok(Some(copy_mapped(chunk, bytes)));
    }
    // Not through the mapping: the kernel fills fresh pages with these bytes rather than with zeros first.
    match chunk.io.write_at(chunk.inside, bytes) {
        Ok(()) => {
            let extent = Extent::whole(chunk.device, chunk.offset, chunk.len, sums_in_place(bytes));
            Ok(Some(Stored { chunk, extent, unwritten: None }))
        }
        Err(error) => {
            session.unlease(vec![chunk.run()]);
            if error.kind() != ErrorKind::Full || avoid.contains(&chunk.device) {
                return Err(error);
            }
            avoid.push(chunk.device);
            Ok(None)
        }
    }
}

/// One pass: copy and checksums.
fn copy_mapped(chunk: Chunk, bytes: &[u8]) -> Stored {
    let mut sums = Vec::with_capacity(Extent::units(chunk.len));
    let mut unwritten = None;
    if let Some(address) = chunk.address() {
        // SAFETY: `address` is valid for `chunk.len == bytes.len()` bytes; the space is leased to this session alone, so
        // no reader has it and `bytes` cannot be in it.
        unsafe { copy_and_sum_raw(address, bytes, &mut sums) };
    } else {
        let mut buffer = AlignedBuf::reused(bytes.len());
        // SAFETY: the buffer has at least `bytes.len()` bytes and overlaps nothing.
        unsafe { copy_and_sum_raw(buffer.as_mut_ptr(), bytes, &mut sums) };
        unwritten = Some(buffer);
    }
    let extent = Extent::whole(chunk.device, chunk.offset, chunk.len, Sums::from_slice(&sums));
    Stored { chunk, extent, unwritten }
}

/// The same for a file, written piece by piece while the next one is copied.
fn write_through(chunk: Chunk, bytes: &[u8]) -> Result<Stored> {
    let mut sums = Vec::with_capacity(Extent::units(chunk.len));
    lane::write_filled(&chunk.io, chunk.inside, bytes.len(), |memory, from| {
        // SAFETY: `memory` is the lane's and overlaps nothing; the slice has its length.
        unsafe { copy_and_sum_raw(memory.as_mut_ptr(), &bytes[from..from + memory.len()], &mut sums) };
    })?;
    let extent = Extent::whole(chunk.device, chunk.offset, chunk.len, Sums::from_slice(&sums));
    Ok(Stored { chunk, extent, unwritten: None })
}

/// Says what is wrong with a range, before anything is done.
pub(crate) fn check_range(session: &Session, object: &ObjectCache, offset: u64, len: u64) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end < OBJECT_BYTES_MAX) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, session.object_name(object.key))
        .because(format!("{len} bytes at {offset} reach past the largest object (2^63 bytes)"))
        .try_next("check the offset"))
}

/// Writes ranges: launched together, or with `atomic` as one transaction. With `here`, file I/O is done by this thread.
pub(crate) fn launch(
    session: &Session,
    target: &Target<'_>,
    parts: &[(u64, &[u8])],
    atomic: bool,
    here: bool,
) -> Result<Option<Ticket>> {
    session.check_writable()?;
    let (mut updates, mut subjects, mut files) =
        (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()), Vec::new());
    for (offset, bytes) in parts {
        check_range(session, target.object, *offset, bytes.len() as u64)?;
    }
    for (offset, bytes) in parts {
        let mut offset = *offset;
        for mut stored in store(session, target, bytes, here)? {
            let (len, place, run) = (u64::from(stored.chunk.len), stored.place(), stored.chunk.run());
            if let Some(bytes) = stored.unwritten.take() {
                files.push((updates.len(), stored.chunk, bytes));
            }
            subjects.push(Subject::Write { object: target.object.clone(), offset, len, place, run });
            updates.push(Update::Write { key: target.object.key, offset, extent: stored.extent });
            offset += len;
        }
    }
    if updates.is_empty() {
        return Ok(None);
    }
    let ticket = session.queue.push(session, updates, subjects, files.len(), atomic);
    for (index, chunk, bytes) in files {
        if here {
            let result = Stored::write_out(&chunk, &bytes);
            session.queue.io_done(session, &ticket, index, result);
        } else {
            let (weak, ticket) = (session.myself(), ticket.clone());
            session.workers.run(Box::new(move || {
                let result = Stored::write_out(&chunk, &bytes);
                if let Some(session) = weak.upgrade() {
                    session.queue.io_done(&session, &ticket, index, result);
                }
            }));
        }
    }
    Ok(Some(ticket))
}

/// Checksums of bytes that are in place already.
pub(crate) fn sums_in_place(bytes: &[u8]) -> Sums {
    debug_assert_eq!(SUM_UNIT_SHIFT, 16);
    Sums::from_slice(&cenote_device::sums::sums_of(bytes))
}

/// True if the chunk is memory.
pub(crate) fn is_memory(chunk: &Chunk) -> bool {
    chunk.io.mode() == SegmentMode::Mapped
}
