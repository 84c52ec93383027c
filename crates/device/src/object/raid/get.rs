//! Reads: directly from the data parts; what is missing there is computed from other parts.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use cenote_layout::plan::{Decode, ReadPlan, Speed, plan_read};
use cenote_layout::{Code, Place, pieces};
use cenote_model::ErrorKind;

use super::index::{Kept, Seat};
use super::part::{BLOCK_BYTES, Edition, PartName};
use super::service::Inner;
use super::shape::Shape;
use crate::object::service::{Answer, Refusal};
use crate::sums::verify;

/// Shorter reads are made one after the other: to begin a thread takes as long as to read this much.
const PARALLEL_BYTES: u64 = 256 << 10;
/// A read is planned anew so often at most: each time a part was found to be missing or bad.
const TRIES_MAX: usize = 600;

/// Why a part cannot be read.
pub(super) enum PartTrouble {
    /// Its place is away.
    Away,
    /// It is not there.
    Missing,
    /// Its bytes are not those that were written, or cannot be read.
    Bad(String),
}

/// Bytes of one part that are to be read, or were.
struct PartRead {
    part: usize,
    seat: Seat,
    range: Range<u64>,
}

impl Inner {
    pub fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        let mut is_last = false;
        for _ in 0..TRIES_MAX {
            match self.try_get(key, from, len) {
                Ok(Some(bytes)) => return Ok(bytes),
                Ok(None) => {}
                // A part that was bad once may be readable now, and is checked again.
                Err(_) if !is_last && self.pardon(key) => is_last = true,
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::passing("its parts come and go"))
    }
    /// Takes bad parts of an object for good ones until they are read again. Returns false if it has none.
    pub fn pardon(&self, key: &str) -> bool {
        let mut index = self.index.lock();
        let bad = index.bad_of_key(key);
        for (edition, part, seat) in &bad {
            index.add(key, *edition, *part, *seat);
        }
        !bad.is_empty()
    }
    fn try_get(&self, key: &str, from: u64, len: u64) -> Answer<Option<Bytes>> {
        let kept = match self.found(key)? {
            Some(kept) => kept,
            None => self.look_for(key)?,
        };
        let end = from.saturating_add(len).min(kept.edition.shape.len);
        if from >= end { Ok(Some(Bytes::new())) } else { self.read(key, &kept, from..end) }
    }
    /// An object that another process may have stored.
    fn look_for(&self, key: &str) -> Answer<Kept> {
        self.refresh(super::put::above(key));
        let none = || Refusal::new(ErrorKind::NotFound, "there is no such object at its places");
        self.found(key)?.ok_or_else(none)
    }

    /// One attempt; `None` if a part turned out to be missing or bad, which is noted.
    fn read(&self, key: &str, kept: &Kept, range: Range<u64>) -> Answer<Option<Bytes>> {
        let shape = kept.edition.shape;
        let seats = kept.seats(|seat| self.is_here(seat));
        let places: Vec<Place> = (0..shape.parts())
            .map(|part| seats[part].map_or_else(|| Self::nowhere(part), |seat| self.chair(seat).place.id()))
            .collect();
        let speeds = |place: Place| {
            let waiting = self.chair(self.seat_of(place)?).reads.load(Ordering::Relaxed);
            Some(Speed { latency_us: 200.0 * f64::from(1 + waiting), bytes_per_us: 1000.0 })
        };
        let plan = plan_read(&shape.segments(&range, &places), range.clone(), &speeds);
        let plan = plan.map_err(|_| self.too_few_parts(kept))?;
        let reads = gather(shape, &range, &plan, &seats);
        let mut buffers: Vec<Option<(u64, Bytes)>> = vec![None; shape.parts()];
        let mut is_whole = true;
        for (read, answer) in reads.iter().zip(self.read_at_once(key, kept.edition, &reads)) {
            match answer {
                Ok(bytes) => buffers[read.part] = Some((read.range.start, bytes)),
                Err(trouble) => {
                    is_whole = false;
                    self.note_trouble(key, kept.edition, read.part as u8, read.seat, trouble);
                }
            }
        }
        if is_whole { assemble(shape, &range, &plan, &buffers).map(Some) } else { Ok(None) }
    }

    pub fn note_trouble(&self, key: &str, edition: Edition, part: u8, seat: Seat, trouble: PartTrouble) {
        let who = self.chair(seat).place.who();
        match trouble {
            PartTrouble::Away => {}
            PartTrouble::Missing => {
                tracing::warn!(place = %who, object = key, part, "a part is missing");
                self.index.lock().remove(key, edition, part, seat);
            }
            PartTrouble::Bad(why) => {
                tracing::warn!(place = %who, object = key, part, why, "a part is bad");
                self.tally.bad_parts.fetch_add(1, Ordering::Relaxed);
                self.index.lock().mark_bad(key, edition, part, seat);
            }
        }
        self.heads.drop_one(seat, edition, part);
        self.wake();
    }

    fn read_at_once(&self, key: &str, edition: Edition, reads: &[PartRead]) -> Vec<Result<Bytes, PartTrouble>> {
        let one = |read: &PartRead| {
            let name = PartName { key: key.to_owned(), part: read.part as u8, edition };
            self.read_part(read.seat, &name, read.range.clone())
        };
        let bytes: u64 = reads.iter().map(|read| read.range.end - read.range.start).sum();
        let Some((first, others)) = reads.split_first() else { return Vec::new() };
        if bytes < PARALLEL_BYTES {
            return reads.iter().map(one).collect();
        }
        std::thread::scope(|scope| {
            let threads: Vec<_> = others.iter().map(|read| scope.spawn(move || one(read))).collect();
            let mut answers = vec![one(first)];
            let died = |_| Err(PartTrouble::Bad("a thread that read it ended".into()));
            answers.extend(threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)));
            answers
        })
    }

    /// Bytes of a part, with the checksums of all blocks that they touch verified.
    pub fn read_part(&self, seat: Seat, name: &PartName, range: Range<u64>) -> Result<Bytes, PartTrouble> {
        let chair = self.chair(seat);
        chair.reads.fetch_add(1, Ordering::Relaxed);
        let answer = self.read_blocks(seat, name, range);
        chair.reads.fetch_sub(1, Ordering::Relaxed);
        answer
    }
    fn read_blocks(&self, seat: Seat, name: &PartName, range: Range<u64>) -> Result<Bytes, PartTrouble> {
        let file = name.encode();
        let sums = if let Some(sums) = self.heads.get(seat, name) {
            sums
        } else {
            let head = self.ask(seat, &file, 0, name.head_bytes() as u64)?;
            let sums = Arc::new(name.decode_head(self.owner, &head).map_err(PartTrouble::Bad)?);
            self.heads.put(seat, name, Arc::clone(&sums));
            sums
        };
        let begin = range.start / BLOCK_BYTES * BLOCK_BYTES;
        let end = range.end.next_multiple_of(BLOCK_BYTES).min(name.part_len());
        let bytes = self.ask(seat, &file, name.head_bytes() as u64 + begin, end - begin)?;
        if bytes.len() as u64 != end - begin {
            return Err(PartTrouble::Bad(format!("it ends after {} bytes", begin + bytes.len() as u64)));
        }
        let sums = &sums[(begin / BLOCK_BYTES) as usize..end.div_ceil(BLOCK_BYTES) as usize];
        if let Some(block) = verify(&bytes, sums) {
            let at = begin + block as u64 * BLOCK_BYTES;
            return Err(PartTrouble::Bad(format!("the checksum of its bytes at {at} does not match")));
        }
        Ok(bytes.slice((range.start - begin) as usize..(range.end - begin) as usize))
    }
    fn ask(&self, seat: Seat, file: &str, from: u64, len: u64) -> Result<Bytes, PartTrouble> {
        self.chair(seat).place.get(file, from, len).map_err(|refusal| match refusal.kind {
            _ if self.note(seat, &refusal) => PartTrouble::Away,
            ErrorKind::NotFound => {
                // Not the file alone, perhaps: a disk may have been unmounted.
                self.look_at(seat);
                if self.is_here(seat) { PartTrouble::Missing } else { PartTrouble::Away }
            }
            _ => PartTrouble::Bad(refusal.cause),
        })
    }
}

/// Reads of a plan, those of one part in one: its units of consecutive stripes lie one behind the other.
fn gather(shape: Shape, range: &Range<u64>, plan: &ReadPlan, seats: &[Option<Seat>]) -> Vec<PartRead> {
    let mut reads: Vec<PartRead> = Vec::new();
    for read in &plan.reads {
        let Some(seat) = seats[read.part] else { continue };
        let from = part_offset(shape, range, read.segment) + read.part_offset;
        let now = from..from + read.len;
        match reads.iter_mut().find(|other| other.part == read.part) {
            Some(other) => other.range = other.range.start.min(now.start)..other.range.end.max(now.end),
            None => reads.push(PartRead { part: read.part, seat, range: now }),
        }
    }
    reads
}

/// Where a stripe begins in every part. Segments are numbered from the first that the range touches.
fn part_offset(shape: Shape, range: &Range<u64>, segment: usize) -> u64 {
    (range.start / shape.stripe_bytes() + segment as u64) * shape.unit()
}

/// The bytes of the range, from those of the parts.
fn assemble(shape: Shape, range: &Range<u64>, plan: &ReadPlan, buffers: &[Option<(u64, Bytes)>]) -> Answer<Bytes> {
    if shape.is_copies() {
        let all = buffers.iter().flatten().next().map(|(_, bytes)| bytes.clone());
        return all.ok_or_else(|| Refusal::new(ErrorKind::Internal, "a plan without reads"));
    }
    let slice = |part: usize, from: u64, len: u64| -> Option<&[u8]> {
        let (begin, bytes) = buffers[part].as_ref()?;
        let from = from.checked_sub(*begin)? as usize;
        bytes.get(from..from + len as usize)
    };
    let mut out = vec![0; (range.end - range.start) as usize];
    let decoded: Vec<usize> = plan.decodes.iter().map(|decode| decode.part).collect();
    for piece in pieces(&shape.layout(cenote_layout::Domain::Device), range.clone()) {
        let at = piece.stripe * shape.unit() + piece.part_offset;
        if decoded.contains(&piece.part) {
            continue;
        }
        let into = (piece.offset - range.start) as usize;
        let found = slice(piece.part, at, piece.len);
        let found = found.ok_or_else(|| Refusal::new(ErrorKind::Internal, "a plan lacks bytes of a part"))?;
        out[into..into + found.len()].copy_from_slice(found);
    }
    let code = Code::new(usize::from(shape.data), usize::from(shape.parity));
    let code = code.map_err(|error| Refusal::new(ErrorKind::Internal, error.to_string()))?;
    for decode in &plan.decodes {
        let first = part_offset(shape, range, decode.segment);
        let stripe = first / shape.unit();
        let into = stripe * shape.stripe_bytes() + decode.part as u64 * shape.unit() + decode.part_offset;
        let into = (into - range.start) as usize;
        rebuild(shape, &code, decode, first, buffers, &mut out[into..into + decode.len as usize])?;
    }
    Ok(out.into())
}

/// Computes a range of a part from the same range of others.
fn rebuild(
    shape: Shape,
    code: &Code,
    decode: &Decode,
    first: u64,
    buffers: &[Option<(u64, Bytes)>],
    out: &mut [u8],
) -> Answer<()> {
    let from = first + decode.part_offset;
    let present = |part: usize| -> Option<&[u8]> {
        // What a short data part lacks counts as zeros; one that ends before needs no read.
        let len = shape.part_len(part).saturating_sub(from).min(decode.len) as usize;
        if len == 0 && part < usize::from(shape.data) {
            return Some(&[]);
        }
        let (begin, bytes) = buffers[part].as_ref().filter(|_| decode.sources.contains(&part))?;
        let from = (from - begin) as usize;
        bytes.get(from..from + len)
    };
    let present: Vec<Option<&[u8]>> = (0..shape.parts()).map(present).collect();
    let rebuilt = code.rebuild(&present, &mut [(decode.part, out)]);
    rebuilt.map_err(|error| Refusal::new(ErrorKind::Internal, error.to_string()))
}
