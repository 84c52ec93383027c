//! Writes: copies bytes into leased space with checksums, then pipelines the update that points at them.
#![allow(unsafe_code, reason = "copies into mapped segments that other processes read")]

use std::sync::Arc;

use cenote_device::sums::{SUM_UNIT_BYTES, copy_and_sum_raw};
use cenote_device::{aligned::AlignedBuf, lane};
use cenote_model::{
    ContainerId, DeviceId, Error, ErrorKind, Extent, OBJECT_BYTES_MAX, Result, Run, SUM_UNIT_SHIFT, Sums, Update,
};

use super::carried;
use crate::link::Link;
use crate::link::arena::{Arena, Chunk, Filling};
use crate::link::queue::{Ticket, Together};
use crate::link::subject::Subject;
use crate::map::cache::ObjectCache;
use crate::map::pieces::Source;

/// The destination of a write.
pub(crate) struct Target<'a> {
    pub object: &'a Arc<ObjectCache>,
    pub container: ContainerId,
    pub arena: &'a Arena,
}

/// Bytes in leased space, or on their way to a file there.
pub(crate) struct Stored {
    /// The space in use.
    pub run: Run,
    pub len: u32,
    pub extent: Extent,
    /// The source for readers.
    pub source: Source,
    /// For files: the bytes to be written before the extent is used.
    pub unwritten: Option<Unwritten>,
}

/// Bytes for a file, padded to the device's unit, with their destination.
pub(crate) struct Unwritten {
    chunk: Chunk,
    bytes: AlignedBuf,
}

impl Unwritten {
    /// Writes them to the file.
    pub fn write_out(&self) -> Result<()> {
        self.chunk.io.write_padded(self.chunk.inside, &self.bytes[..self.chunk.len as usize])
    }
}

impl Stored {
    fn new(chunk: Chunk, sums: Sums, unwritten: Option<AlignedBuf>) -> Self {
        let (run, len) = (chunk.run(), chunk.len);
        let extent = Extent::whole(chunk.device, chunk.offset, len, sums);
        let source = match chunk.address() {
            Some(address) => Source::Mapped(address as usize, chunk.device),
            None => Source::File { extent: Arc::new(extent.clone()), skip: 0 },
        };
        Self { run, len, extent, source, unwritten: unwritten.map(|bytes| Unwritten { chunk, bytes }) }
    }
    /// Writes the unwritten part, if any.
    pub fn write_out(&self) -> Result<()> {
        self.unwritten.as_ref().map_or(Ok(()), Unwritten::write_out)
    }
}

/// Announce the message this many bytes before the copy ends, to hide the daemon's wake-up.
const ANNOUNCED_BYTES: usize = 256 << 10;
/// Shorter writes are not announced.
const ANNOUNCED_MIN: usize = 32 << 10;

/// Handling of a write after the copy.
#[derive(Clone, Copy)]
pub(crate) enum SendMode {
    /// Its message is sent later, and the bytes of files are left unwritten.
    Later,
    /// This thread writes the bytes of files while it copies; the message is sent later.
    WrittenLater,
    /// Like `WrittenLater`, but the message is sent at once, and the caller waits for the answer.
    Sent,
}

/// Copies bytes into as many chunks as necessary.
pub(crate) fn store(link: &Link, target: &Target<'_>, mut bytes: &[u8], mode: SendMode) -> Result<Vec<Stored>> {
    if link.channel.is_bound() {
        return carried::store(link, target, bytes);
    }
    let mut all: Vec<Stored> = Vec::with_capacity(1);
    let mut avoid = Vec::new();
    while !bytes.is_empty() {
        let stored = target
            .arena
            .take(&link.space, target.container, bytes.len() as u64, Filling::Copied, &mut avoid)
            .and_then(|chunk| copy_in(link, chunk, bytes, mode, &mut avoid));
        match stored {
            Ok(Some(stored)) => {
                bytes = &bytes[stored.len as usize..];
                all.push(stored);
            }
            Ok(None) => {} // its device is now to be avoided
            Err(error) => {
                link.channel.unlease(all.iter().map(|stored| stored.run).collect());
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// Fills a chunk with the first of `bytes`. Returns `None` if the machine has no memory left for the chunk's device,
/// which it adds to `avoid`.
fn copy_in(
    link: &Link,
    chunk: Chunk,
    bytes: &[u8],
    mode: SendMode,
    avoid: &mut Vec<DeviceId>,
) -> Result<Option<Stored>> {
    let is_last = bytes.len() == chunk.len as usize;
    let is_announced = matches!(mode, SendMode::Sent) && is_last && bytes.len() >= ANNOUNCED_MIN;
    let bytes = &bytes[..chunk.len as usize];
    // The offset in the copy, after whole checksum units; the end of the copy, and so never, if there is no
    // announcement.
    let early = bytes.len().saturating_sub(ANNOUNCED_BYTES).next_multiple_of(SUM_UNIT_BYTES);
    let announced_at = if is_announced { early } else { bytes.len() };
    if !matches!(mode, SendMode::Later) && !is_memory(&chunk) {
        let run = chunk.run();
        return write_through(link, chunk, bytes, announced_at)
            .map(Some)
            .inspect_err(|_| link.channel.unlease(vec![run]));
    }
    if !chunk.through_file {
        return Ok(Some(copy_mapped(link, chunk, bytes, announced_at)));
    }
    // Not through the mapping: the kernel fills fresh pages with these bytes instead of zeros.
    let (first, rest) = bytes.split_at(announced_at);
    let written = chunk.io.write_at(chunk.inside, first).and_then(|()| {
        if rest.is_empty() {
            return Ok(());
        }
        link.channel.announce();
        chunk.io.write_at(chunk.inside + first.len() as u64, rest)
    });
    match written {
        Ok(()) => Ok(Some(Stored::new(chunk, sums_in_place(bytes), None))),
        Err(error) => {
            link.channel.unlease(vec![chunk.run()]);
            if error.kind() != ErrorKind::Full || avoid.contains(&chunk.device) {
                return Err(error);
            }
            avoid.push(chunk.device);
            Ok(None)
        }
    }
}

/// Copies and computes checksums in one pass.
fn copy_mapped(link: &Link, chunk: Chunk, bytes: &[u8], announced_at: usize) -> Stored {
    let mut sums = Vec::with_capacity(Extent::units(chunk.len));
    let mut unwritten = None;
    let (first, rest) = bytes.split_at(announced_at);
    if let Some(address) = chunk.address() {
        // SAFETY: `address` is valid for `chunk.len == bytes.len()` bytes; the space is leased to this session alone, so
        // no reader has it and `bytes` cannot be in it.
        unsafe { copy_and_sum_raw(address, first, &mut sums) };
        if !rest.is_empty() {
            link.channel.announce();
            // SAFETY: as above; `rest` lies behind `first`.
            unsafe { copy_and_sum_raw(address.add(first.len()), rest, &mut sums) };
        }
        chunk.io.persist(chunk.inside, bytes.len());
    } else {
        let mut buffer = AlignedBuf::reused(bytes.len());
        // SAFETY: the buffer has at least `bytes.len()` bytes and overlaps nothing.
        unsafe { copy_and_sum_raw(buffer.as_mut_ptr(), bytes, &mut sums) };
        unwritten = Some(buffer);
    }
    Stored::new(chunk, Sums::from_slice(&sums), unwritten)
}

/// The same for a file: each piece is written while the next one is copied.
fn write_through(link: &Link, chunk: Chunk, bytes: &[u8], announced_at: usize) -> Result<Stored> {
    let mut sums = Vec::with_capacity(Extent::units(chunk.len));
    lane::write_filled(&chunk.io, chunk.inside, bytes.len(), |memory, from| {
        if from >= announced_at {
            link.channel.announce();
        }
        // SAFETY: `memory` is the lane's and overlaps nothing; the slice has its length.
        unsafe { copy_and_sum_raw(memory.as_mut_ptr(), &bytes[from..from + memory.len()], &mut sums) };
    })?;
    Ok(Stored::new(chunk, Sums::from_slice(&sums), None))
}

/// Reports an invalid range before anything is done.
pub(crate) fn check_range(link: &Link, object: &ObjectCache, offset: u64, len: u64) -> Result<()> {
    if offset.checked_add(len).is_some_and(|end| end < OBJECT_BYTES_MAX) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, link.channel.object_name(object.key))
        .because(format!("{len} bytes at {offset} reach past the largest object (2^63 bytes)"))
        .try_next("check the offset"))
}

/// Pipelines writes of ranges. With `here`, this thread does the file I/O.
pub(crate) fn pipeline(
    link: &Link,
    target: &Target<'_>,
    parts: &[(u64, &[u8])],
    together: &Together,
    here: bool,
) -> Result<Option<Ticket>> {
    link.channel.check_writable()?;
    let last = parts.len().saturating_sub(1);
    let (mut updates, mut subjects) = (Vec::with_capacity(parts.len()), Vec::with_capacity(parts.len()));
    let (mut files, mut pieces) = (Vec::new(), Vec::new());
    for (offset, bytes) in parts {
        check_range(link, target.object, *offset, bytes.len() as u64)?;
    }
    for (number, (offset, bytes)) in parts.iter().enumerate() {
        let mut offset = *offset;
        let mode = match here {
            false => SendMode::Later,
            true if number < last => SendMode::WrittenLater,
            true => SendMode::Sent,
        };
        let bytes = match carried::fill(link, target, offset, bytes)? {
            Some(filled) => {
                let rest = filled.rest;
                offset += (bytes.len() - rest.len()) as u64;
                updates.extend(filled.updates);
                pieces.extend(filled.pieces);
                subjects.extend(filled.subjects);
                rest
            }
            None => bytes,
        };
        for mut stored in store(link, target, bytes, mode)? {
            let (len, source, run) = (u64::from(stored.len), stored.source, stored.run);
            if let Some(unwritten) = stored.unwritten.take() {
                files.push((updates.len(), unwritten));
            }
            subjects.push(Subject::Write { object: target.object.clone(), offset, len, source, run });
            updates.push(Update::Write { key: target.object.key, offset, extent: stored.extent });
            offset += len;
        }
    }
    if updates.is_empty() {
        return Ok(None);
    }
    let ticket = link.queue.push_with(&pieces, updates, subjects, files.len(), together);
    for (index, unwritten) in files {
        if here {
            let result = unwritten.write_out();
            link.queue.io_done(&ticket, index, result);
        } else {
            let (weak, ticket) = (link.queue.myself(), ticket.clone());
            link.run_aside(Box::new(move || {
                let result = unwritten.write_out();
                if let Some(queue) = weak.upgrade() {
                    queue.io_done(&ticket, index, result);
                }
            }));
        }
    }
    Ok(Some(ticket))
}

/// Checksums of bytes in place.
pub(crate) fn sums_in_place(bytes: &[u8]) -> Sums {
    debug_assert_eq!(SUM_UNIT_SHIFT, 16);
    Sums::from_slice(&cenote_device::sums::sums_of(bytes))
}

/// Returns true if the chunk is in memory.
pub(crate) fn is_memory(chunk: &Chunk) -> bool {
    chunk.io.mode().is_mapped()
}
