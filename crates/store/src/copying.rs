//! Copying of extents: read, verify, perhaps compress, and write elsewhere. This module must not know the state: it
//! runs in jobs, without the engine.

use std::sync::Arc;

use cenote_device::aligned::AlignedBuf;
use cenote_device::packing::{Method, Packer};
use cenote_device::{Clock, Device};
use cenote_model::{Error, ErrorKind, Packed, Result, Seen};

use crate::packing::Packing;
use crate::sums::{UNIT, sum_of};
use crate::syncs::Syncs;

/// Most bytes that a copy writes at once; a multiple of the checksum unit.
const GATHERED_BYTES: usize = 4 << 20;
/// Bytes read at once for compression or decompression; a multiple of the checksum unit.
const READ_BYTES: usize = 1 << 20;

/// Reads bytes at an offset of a device.
type Reading<'a> = &'a mut dyn FnMut(u64, &mut [u8]) -> Result<()>;

/// Whole checksum units of a run.
pub(crate) struct Part {
    pub device: Arc<dyn Device>,
    pub offset: u64,
    /// Of plain bytes.
    pub len: u32,
    pub sums: Vec<u32>,
    pub packed: Option<Arc<Packed>>,
}

/// A part, and where it is to be.
pub(crate) struct Piece {
    pub part: Part,
    pub at: u64,
    /// It must be compressed like this, to the same lengths.
    pub like: Option<Arc<Packed>>,
}

/// Reads parts, verifies them and writes them elsewhere.
pub(crate) struct Copy {
    pub pieces: Vec<Piece>,
    pub target: Arc<dyn Device>,
    /// Syncs the target before the copy counts.
    pub syncs: Option<Arc<Syncs>>,
    /// Compresses what gets smaller by it; pieces with adjacent room then move up.
    pub packing: Option<Packing>,
    /// Reads the copy back and verifies it before it counts.
    pub read_back: bool,
}

/// Where a part came to be.
#[derive(Clone, Debug)]
pub(crate) struct Landed {
    pub at: u64,
    pub packed: Option<Arc<Packed>>,
}

/// The result of a part.
pub(crate) type Copied = std::result::Result<Landed, CopyFailure>;

/// Why a part was not copied.
#[derive(Clone, Debug)]
pub(crate) enum CopyFailure {
    /// The source cannot be read, or its bytes do not match their checksums.
    Source(Error),
    /// The target did not take it.
    Target(Error),
    /// It was to be copied only if it became smaller.
    NoSmaller,
}

/// Bytes that were not read, and their device, if that failed.
pub(crate) struct Unread {
    pub device: Option<Arc<dyn Device>>,
    pub error: Error,
}

impl Part {
    /// Returns the error for a failed read of this part.
    pub fn unread(&self, error: Error) -> Unread {
        Unread { device: Some(Arc::clone(&self.device)), error }
    }
    /// Reads and verifies the part, piece by piece through `buffer`.
    pub fn check(&self, buffer: &mut Vec<u8>) -> Result<()> {
        let mut packer = Packer::default();
        let mut at = 0;
        while at < self.len {
            let n = (self.len - at).min(READ_BYTES as u32);
            buffer.resize(n as usize, 0);
            self.read_units(at, buffer, &mut packer)?;
            at += n;
        }
        Ok(())
    }
    /// Reads any range of it, and verifies the units that it lies in. `buffer` is for these units.
    pub fn read_range(&self, from: u32, into: &mut [u8], buffer: &mut Vec<u8>) -> Result<()> {
        let mut packer = Packer::default();
        let end = from as usize + into.len();
        let mut at = from & !(UNIT - 1);
        while (at as usize) < end {
            let wanted = (end - at as usize).next_multiple_of(UNIT as usize).min(READ_BYTES) as u32;
            let n = self.len.saturating_sub(at).min(wanted);
            if n == 0 {
                return Err(Error::new(ErrorKind::Corrupt, "stored bytes").because("a map reaches past its run"));
            }
            buffer.resize(n as usize, 0);
            self.read_units(at, buffer, &mut packer)?;
            let (first, last) = ((from as usize).max(at as usize), end.min((at + n) as usize));
            into[first - from as usize..last - from as usize]
                .copy_from_slice(&buffer[first - at as usize..last - at as usize]);
            at += n;
        }
        Ok(())
    }
    /// Reads any range of plain bytes in memory. Like clients that map memory, it does not verify units of which it needs
    /// a part alone.
    pub fn copy_from_memory(&self, from: u32, into: &mut [u8]) -> Result<()> {
        self.device.copy_out(self.offset + u64::from(from), into)?;
        let skip = (from.next_multiple_of(UNIT) - from) as usize;
        let is_end = from as usize + into.len() == self.len as usize;
        let units = into.get(skip..).unwrap_or_default().chunks(UNIT as usize);
        let sums = self.sums.get(from.div_ceil(UNIT) as usize..).unwrap_or_default();
        let is_bad = |(unit, sum): (&[u8], &u32)| (unit.len() == UNIT as usize || is_end) && sum_of(unit) != *sum;
        if units.zip(sums).any(is_bad) {
            return Err(Error::new(ErrorKind::Corrupt, "stored bytes").because("they do not match their checksums"));
        }
        Ok(())
    }
    /// Reads and verifies the whole part.
    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.len as usize];
        self.read_units(0, &mut bytes, &mut Packer::default())?;
        Ok(bytes)
    }
    /// Writes pieces that cannot be read, or do not match their checksums, again as another copy of the device has them. Returns
    /// true if the part is good then. Its space must not be given to anybody else meanwhile, as that of a job's parts is not.
    pub fn heal(&self, buffer: &mut Vec<u8>) -> bool {
        self.device.has_twin() && self.try_heal(buffer).is_ok()
    }
    fn try_heal(&self, buffer: &mut Vec<u8>) -> Result<()> {
        let mut packer = Packer::default();
        for at in (0..self.len).step_by(READ_BYTES) {
            buffer.resize((self.len - at).min(READ_BYTES as u32) as usize, 0);
            if self.read_units(at, buffer, &mut packer).is_ok() {
                continue;
            }
            // As they are stored, so compressed units too.
            let (mut place, mut stored) = (0, Vec::new());
            let mut from_twin = |offset: u64, into: &mut [u8]| {
                if !self.device.read_twin(offset, into)? {
                    return Err(Error::new(ErrorKind::NotFound, "another copy of the device"));
                }
                (place, stored) = (offset, into.to_vec());
                Ok(())
            };
            self.units_by(&mut from_twin, at, buffer, &mut packer)?;
            self.device.write_at(place, &stored)?;
        }
        self.device.sync()?;
        self.check(buffer)
    }
    /// Reads and verifies the units from `from` on, a multiple of the checksum unit.
    fn read_units(&self, from: u32, into: &mut [u8], packer: &mut Packer) -> Result<()> {
        self.units_by(&mut |offset, into| self.device.read_at(offset, into), from, into, packer)
    }
    /// The same by another way to read stored bytes, which is called once.
    fn units_by(&self, read: Reading<'_>, from: u32, into: &mut [u8], packer: &mut Packer) -> Result<()> {
        match &self.packed {
            None => read(self.offset + u64::from(from), into)?,
            Some(packed) => self.unpack_units(read, packed, from, into, packer)?,
        }
        let sums = self.sums.get((from / UNIT) as usize..).unwrap_or_default();
        let bad = into.chunks(UNIT as usize).zip(sums).position(|(unit, sum)| sum_of(unit) != *sum);
        match bad {
            None => Ok(()),
            Some(unit) => {
                let at = match &self.packed {
                    None => u64::from(from) + unit as u64 * u64::from(UNIT),
                    Some(packed) => u64::from(packed.start((from / UNIT) as usize + unit)),
                };
                Err(Error::new(ErrorKind::Corrupt, "stored bytes")
                    .because(format!("the checksum of 64 KiB at {} of the device does not match", self.offset + at)))
            }
        }
    }
    fn unpack_units(
        &self,
        read: Reading<'_>,
        packed: &Packed,
        from: u32,
        into: &mut [u8],
        packer: &mut Packer,
    ) -> Result<()> {
        let first = (from / UNIT) as usize;
        let units = into.len().div_ceil(UNIT as usize);
        let begin = packed.start(first);
        let mut stored = AlignedBuf::reused((packed.start(first + units) - begin) as usize);
        let stored = &mut stored[..(packed.start(first + units) - begin) as usize];
        read(self.offset + u64::from(begin), stored)?;
        for (unit, plain) in (first..).zip(into.chunks_mut(UNIT as usize)) {
            packer.unpack_unit(packed, unit, &stored[(packed.start(unit) - begin) as usize..], plain)?;
        }
        Ok(())
    }
}

/// Returns true if the cause of an error is a checksum mismatch, and not a failing device.
pub(crate) fn is_mismatch(why: &str) -> bool {
    why.contains("checksum")
}

/// Measures the time of accesses, device by device.
struct Watch<'a> {
    clock: &'a dyn Clock,
    seen: &'a mut Vec<(Arc<dyn Device>, Seen)>,
}

impl Watch<'_> {
    /// Does an access and counts it if it succeeds. A sync is part of writing and no access of its own (`bytes` 0).
    fn see<T>(
        &mut self,
        device: &Arc<dyn Device>,
        is_write: bool,
        bytes: usize,
        access: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begin = self.clock.now_ns();
        let done = access()?;
        let ns = self.clock.now_ns().saturating_sub(begin);
        let same =
            |(other, seen): &&mut (Arc<dyn Device>, Seen)| Arc::ptr_eq(other, device) && seen.is_write == is_write;
        if let Some((_, seen)) = self.seen.iter_mut().find(same) {
            seen.accesses += u32::from(bytes > 0);
            seen.bytes += bytes as u64;
            seen.ns += ns;
        } else {
            let seen = Seen { is_write, accesses: 1, bytes: bytes as u64, ns, sharing: 1 };
            self.seen.push((Arc::clone(device), seen));
        }
        Ok(done)
    }
}

/// Bytes gathered for one write: those that are adjacent at the target.
struct Gathered {
    /// Aligned for direct I/O.
    buffer: AlignedBuf,
    len: usize,
    /// Where on the target they go.
    at: u64,
    /// First part with bytes in it.
    first: usize,
}

/// A copy in progress.
struct Run<'a> {
    copy: &'a Copy,
    gathered: Gathered,
    results: Vec<Copied>,
    watch: Watch<'a>,
    packer: Packer,
    /// For compression: the bytes as read, and a compressed unit.
    plain: Vec<u8>,
    packed: Vec<u8>,
}

impl Copy {
    /// Returns the result of each part, and whether the target could not be synced.
    pub fn run(self, clock: &dyn Clock, seen: &mut Vec<(Arc<dyn Device>, Seen)>) -> (Vec<Copied>, bool) {
        let failed_before = self.syncs.as_ref().map_or(0, |syncs| syncs.failed());
        let mut run = Run {
            copy: &self,
            gathered: Gathered { buffer: AlignedBuf::reused(GATHERED_BYTES), len: 0, at: 0, first: 0 },
            results: Vec::with_capacity(self.pieces.len()),
            watch: Watch { clock, seen },
            packer: Packer::default(),
            plain: Vec::new(),
            packed: Vec::new(),
        };
        let mut end = 0;
        for (i, piece) in self.pieces.iter().enumerate() {
            let at = if self.moves_up(i) { end } else { piece.at };
            run.results.push(Ok(Landed { at, packed: None }));
            let landed = match (&piece.like, &self.packing) {
                (None, None) => run.plain(i, &piece.part, at).map(|()| None),
                (like, packing) => run.packed(i, piece, at, like.as_deref(), packing.as_ref()),
            };
            end = at;
            match landed {
                // A write that failed meanwhile has set the result to an error: leave it.
                Ok(packed) => {
                    end += self.room_of(&piece.part, packed.as_deref());
                    if let Ok(landed) = &mut run.results[i] {
                        landed.packed = packed;
                    }
                }
                // Write nothing more in its place: the target may hold the only good bytes.
                Err(failure) => run.results[i] = Err(failure),
            }
        }
        run.write();
        let Run { mut results, mut watch, .. } = run;
        let Some(syncs) = &self.syncs else {
            self.read_back(&mut results);
            return (results, false);
        };
        let synced = watch.see(&self.target, true, 0, || syncs.sync(self.target.as_ref()));
        // A failed sync of another job in between may have dropped these bytes.
        let trusted = syncs.failed() == failed_before;
        if synced.is_err() || !trusted {
            let meanwhile = || Error::new(ErrorKind::Io, "a device").because("a sync of it failed meanwhile");
            fail_all(&mut results, &synced.err().unwrap_or_else(meanwhile));
            return (results, true);
        }
        self.read_back(&mut results);
        (results, false)
    }

    /// Reads what was written at the target, if wanted, and verifies it.
    fn read_back(&self, results: &mut [Copied]) {
        if !self.read_back {
            return;
        }
        let mut buffer = Vec::new();
        for (piece, result) in self.pieces.iter().zip(results) {
            let Ok(landed) = result else { continue };
            let (device, sums) = (Arc::clone(&self.target), piece.part.sums.clone());
            let written = Part { device, offset: landed.at, len: piece.part.len, sums, packed: landed.packed.clone() };
            if let Err(error) = written.check(&mut buffer) {
                *result = Err(CopyFailure::Target(error));
            }
        }
    }

    /// Returns true if a piece's room directly follows that of the previous piece, in one segment: it then begins where
    /// that one ends, which may be earlier.
    fn moves_up(&self, i: usize) -> bool {
        let Some(packing) = self.packing.as_ref().filter(|_| i > 0) else { return false };
        let (before, piece) = (&self.pieces[i - 1], &self.pieces[i]);
        piece.at == before.at + self.room_of(&before.part, None) && !piece.at.is_multiple_of(packing.segment_bytes)
    }

    /// Bytes that a part takes on the target.
    fn room_of(&self, part: &Part, packed: Option<&Packed>) -> u64 {
        match packed {
            Some(packed) => u64::from(packed.stored_bytes()),
            None => u64::from(part.len).next_multiple_of(u64::from(self.target.unit_bytes())),
        }
    }
}

impl Run<'_> {
    /// Copies a part as it is.
    fn plain(&mut self, i: usize, part: &Part, to: u64) -> std::result::Result<(), CopyFailure> {
        let unit_bytes = self.copy.target.unit_bytes() as usize;
        let mut done = 0;
        while done < part.len {
            let at = to + u64::from(done);
            if self.gathered.at + self.gathered.len as u64 != at || self.gathered.len == GATHERED_BYTES {
                self.turn_to(i, at);
            }
            let room = (GATHERED_BYTES - self.gathered.len) as u32;
            let n = (part.len - done).min(room);
            // A checksum needs its whole unit.
            let n = if done + n < part.len { n - n % UNIT } else { n };
            if n == 0 {
                self.turn_to(i, at);
                continue;
            }
            let (gathered, packer) = (&mut self.gathered, &mut self.packer);
            let end = gathered.len + n as usize;
            let into = &mut gathered.buffer[gathered.len..end];
            let read = || part.read_units(done, into, packer);
            self.watch.see(&part.device, false, n as usize, read).map_err(CopyFailure::Source)?;
            let padded = end.next_multiple_of(unit_bytes).min(GATHERED_BYTES);
            gathered.buffer[end..padded].fill(0);
            gathered.len = padded;
            done += n;
        }
        Ok(())
    }

    /// Copies a part, compressed if that helps, or compressed `like` before.
    fn packed(
        &mut self,
        i: usize,
        piece: &Piece,
        to: u64,
        like: Option<&Packed>,
        packing: Option<&Packing>,
    ) -> std::result::Result<Option<Arc<Packed>>, CopyFailure> {
        let part = &piece.part;
        let grain = like.map_or(self.copy.target.unit_bytes() as usize, |like| 1 << like.grain_shift());
        let mut method = like.map(|like| Method { codec: like.codec(), stride_shift: like.stride_shift() });
        let mut lens: Vec<u32> = Vec::new();
        let (mut done, mut at) = (0, to);
        let (mut plain, mut packed) = (std::mem::take(&mut self.plain), std::mem::take(&mut self.packed));
        packed.resize(UNIT as usize, 0);
        while done < part.len {
            let n = (part.len - done).min(READ_BYTES as u32);
            plain.resize(n as usize, 0);
            let (packer, bytes) = (&mut self.packer, &mut plain[..]);
            let read = || part.read_units(done, bytes, packer);
            self.watch.see(&part.device, false, n as usize, read).map_err(CopyFailure::Source)?;
            if let (0, None, Some(packing)) = (done, like, packing) {
                method = packing.choose(&plain, &mut self.packer, self.watch.clock);
                if packing.only_smaller && method.is_none() {
                    return Err(CopyFailure::NoSmaller);
                }
            }
            for unit in plain.chunks(UNIT as usize) {
                let len = match (method, like, packing) {
                    (Some(method), Some(like), _) => self.again(method, like, lens.len(), unit, &mut packed)?,
                    (Some(method), None, Some(packing)) => packing.pack(method, unit, &mut self.packer, &mut packed),
                    _ => unit.len(),
                };
                let bytes = if len == unit.len() { unit } else { &packed[..len] };
                self.push(i, at, bytes, grain);
                at += len.next_multiple_of(grain) as u64;
                lens.push(len as u32);
            }
            done += n;
        }
        (self.plain, self.packed) = (plain, packed);
        if packing.is_some_and(|packing| packing.only_smaller) && at - to >= self.copy.room_of(part, None) {
            return Err(CopyFailure::NoSmaller);
        }
        let units = || lens.iter().enumerate();
        let is_plain = |(unit, len): (usize, &u32)| *len == (part.len - unit as u32 * UNIT).min(UNIT);
        let Some(method) = method.filter(|_| like.is_some() || !units().all(is_plain)) else { return Ok(None) };
        let (stride, grain) = (method.stride_shift, grain.trailing_zeros() as u8);
        let packed = Packed::new(method.codec, stride, grain, part.len, &lens).map(Arc::new);
        let odd = || CopyFailure::Target(Error::new(ErrorKind::Internal, "compressed bytes").because("of odd lengths"));
        packed.map(Some).ok_or_else(odd)
    }

    /// Compresses a unit again. Fails if it does not become as long as it was.
    fn again(
        &mut self,
        method: Method,
        like: &Packed,
        unit: usize,
        bytes: &[u8],
        out: &mut [u8],
    ) -> std::result::Result<usize, CopyFailure> {
        let wanted = like.len_of(unit) as usize;
        if wanted == bytes.len() || self.packer.pack(method, bytes, out) == Some(wanted) {
            return Ok(wanted);
        }
        let why = "its bytes, compressed anew, are not as long as they were: another version of the codec wrote them";
        Err(CopyFailure::Target(Error::new(ErrorKind::Unsupported, "a compressed extent").because(why)))
    }

    /// Appends bytes to the gathered ones, padded with zeros to whole units.
    fn push(&mut self, i: usize, at: u64, bytes: &[u8], grain: usize) {
        let padded = bytes.len().next_multiple_of(grain);
        if self.gathered.at + self.gathered.len as u64 != at || self.gathered.len + padded > GATHERED_BYTES {
            self.turn_to(i, at);
        }
        let gathered = &mut self.gathered;
        let (end, padded_end) = (gathered.len + bytes.len(), gathered.len + padded);
        gathered.buffer[gathered.len..end].copy_from_slice(bytes);
        gathered.buffer[end..padded_end].fill(0);
        gathered.len = padded_end;
    }

    /// Writes the gathered bytes; the next ones go to `at`, and belong to part `i`.
    fn turn_to(&mut self, i: usize, at: u64) {
        self.write();
        (self.gathered.at, self.gathered.first) = (at, i);
    }

    fn write(&mut self) {
        let (gathered, target) = (&self.gathered, &self.copy.target);
        let write = || target.write_at(gathered.at, &gathered.buffer[..gathered.len]);
        if gathered.len > 0
            && let Err(error) = self.watch.see(target, true, gathered.len, write)
        {
            fail_all(&mut self.results[gathered.first..], &error);
        }
        self.gathered.len = 0;
    }
}

/// Fails all parts that had succeeded so far: the target failed.
fn fail_all(results: &mut [Copied], error: &Error) {
    for result in results.iter_mut().filter(|result| result.is_ok()) {
        *result = Err(CopyFailure::Target(error.clone()));
    }
}

#[cfg(test)]
mod tests;
