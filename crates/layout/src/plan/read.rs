//! Plans of reads: the fastest copies, the parts of stripes, and what stands in for parts that cannot be reached.

use std::ops::Range;

use cenote_model::{Error, ErrorKind, Result};

use super::source::{Form, Segment, Speeds};
use crate::Place;

/// A read of consecutive bytes of one part.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Read {
    /// The segment, by its number among those given.
    pub segment: usize,
    /// The part (of copies: which).
    pub part: usize,
    /// Where it is.
    pub place: Place,
    /// First byte in the part.
    pub part_offset: u64,
    /// Bytes.
    pub len: u64,
    /// Microseconds that it should take.
    pub expected_us: f64,
}

/// Bytes of a data part that are to be computed.
#[derive(Clone, PartialEq, Debug)]
pub struct Decode {
    /// The segment, by its number among those given.
    pub segment: usize,
    /// The data part that cannot be reached.
    pub part: usize,
    /// First byte in the part.
    pub part_offset: u64,
    /// Bytes. Those that a source lacks here, because it is a shorter data part, count as zeros.
    pub len: u64,
    /// The parts to compute it from (`Code::rebuild`): as many as the stripe has data parts, all among the reads. Data
    /// parts without bytes in a short stripe need no read and are not named.
    pub sources: Vec<usize>,
}

/// What to read, and what to compute of it.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ReadPlan {
    /// The reads; they can all be under way at once.
    pub reads: Vec<Read>,
    /// What is computed when they are there.
    pub decodes: Vec<Decode>,
}

impl ReadPlan {
    /// Microseconds until the last read should be there.
    pub fn expected_us(&self) -> f64 {
        self.reads.iter().map(|read| read.expected_us).fold(0.0, f64::max)
    }
    /// Bytes read.
    pub fn bytes(&self) -> u64 {
        self.reads.iter().map(|read| read.len).sum()
    }
}

/// Plans the read of a range. Parts of it that no segment has are holes and need no read.
///
/// Of copies the one that should answer first is read. Of stripes the data parts are read; where one cannot be reached,
/// the same bytes of other parts are, those first that are read anyway and then the fastest.
///
/// # Errors
/// `Disconnected` if bytes of the range have fewer parts that can be reached than they need; it names the bytes and the
/// places.
pub fn plan_read(segments: &[Segment], range: Range<u64>, speeds: &Speeds<'_>) -> Result<ReadPlan> {
    let mut plan = ReadPlan::default();
    for (number, segment) in segments.iter().enumerate() {
        let wanted = segment.range().start.max(range.start)..segment.range().end.min(range.end);
        if wanted.is_empty() {
            continue;
        }
        let within = wanted.start - segment.offset..wanted.end - segment.offset;
        match segment.form {
            Form::Copies => plan.copies(number, segment, within, speeds)?,
            Form::Stripe { data, unit_bytes } => plan.stripe(number, segment, data, unit_bytes, within, speeds)?,
        }
    }
    Ok(plan)
}

impl Segment {
    /// A read of a range of one part; none if it cannot be reached.
    pub(super) fn read(&self, number: usize, part: usize, range: Range<u64>, speeds: &Speeds<'_>) -> Option<Read> {
        let (place, len) = (self.places[part], range.end - range.start);
        let expected_us = speeds(place)?.expected_us(len);
        Some(Read { segment: number, part, place, part_offset: range.start, len, expected_us })
    }
    #[cold]
    pub(super) fn unreachable(&self, speeds: &Speeds<'_>) -> Error {
        let (needed, all) = (self.sufficient(), self.places.len());
        let away: Vec<String> =
            self.places.iter().filter(|place| speeds(**place).is_none()).map(ToString::to_string).collect();
        let cause = format!("{needed} of {all} parts are needed and {} can be reached", all - away.len());
        Error::new(ErrorKind::Disconnected, format!("bytes {} to {}", self.offset, self.offset + self.len))
            .because(format!("{cause}; away are {}", away.join(", ")))
            .try_next("bring one of these places back; `cenote ha` says what became of them")
    }
}

impl ReadPlan {
    fn copies(&mut self, number: usize, segment: &Segment, range: Range<u64>, speeds: &Speeds<'_>) -> Result<()> {
        let reads = (0..segment.places.len()).filter_map(|part| segment.read(number, part, range.clone(), speeds));
        let fastest = reads.min_by(|one, other| one.expected_us.total_cmp(&other.expected_us));
        self.reads.push(fastest.ok_or_else(|| segment.unreachable(speeds))?);
        Ok(())
    }

    fn stripe(
        &mut self,
        number: usize,
        segment: &Segment,
        data: usize,
        unit: u64,
        range: Range<u64>,
        speeds: &Speeds<'_>,
    ) -> Result<()> {
        let mut lost: Vec<(usize, Range<u64>)> = Vec::new();
        let mut direct: Vec<Read> = Vec::new();
        for part in 0..data {
            let first = part as u64 * unit;
            let of_part = range.start.max(first)..range.end.min(first + unit);
            if of_part.is_empty() {
                continue;
            }
            let of_part = of_part.start - first..of_part.end - first;
            match segment.read(number, part, of_part.clone(), speeds) {
                Some(read) => direct.push(read),
                None => lost.push((part, of_part)),
            }
        }
        for (part, range) in lost {
            let sources = stand_in(number, segment, data, &mut direct, range.clone(), speeds)?;
            let (part_offset, len) = (range.start, range.end - range.start);
            self.decodes.push(Decode { segment: number, part, part_offset, len, sources });
        }
        self.reads.append(&mut direct);
        Ok(())
    }
}

/// Adds reads of enough parts to compute a lost range, and returns these parts.
fn stand_in(
    number: usize,
    segment: &Segment,
    data: usize,
    direct: &mut Vec<Read>,
    lost: Range<u64>,
    speeds: &Speeds<'_>,
) -> Result<Vec<usize>> {
    // Data parts of a short stripe that have no bytes there are known: zeros.
    let known = (0..data).filter(|part| segment.part_len(*part) <= lost.start).count();
    let parts = (0..segment.places.len()).filter(|part| segment.part_len(*part) > lost.start);
    let offer = |part: usize| offer(number, segment, part, lost.clone(), direct, speeds);
    let mut offers: Vec<(f64, Read)> = parts.filter_map(offer).collect();
    offers.sort_by(|one, other| one.0.total_cmp(&other.0));
    if offers.len() + known < data {
        return Err(segment.unreachable(speeds));
    }
    offers.truncate(data - known);
    let sources = offers.iter().map(|(_, read)| read.part).collect();
    for (_, read) in offers {
        match direct.iter_mut().find(|other| other.part == read.part) {
            Some(other) => *other = read,
            None => direct.push(read),
        }
    }
    Ok(sources)
}

/// A read of a part that covers the range and what is read of the part anyway, with the microseconds that it adds.
fn offer(
    number: usize,
    segment: &Segment,
    part: usize,
    range: Range<u64>,
    direct: &[Read],
    speeds: &Speeds<'_>,
) -> Option<(f64, Read)> {
    let end = range.end.min(segment.part_len(part));
    let anyway = direct.iter().find(|read| read.part == part);
    let hull = anyway
        .map_or(range.start..end, |read| read.part_offset.min(range.start)..(read.part_offset + read.len).max(end));
    let read = segment.read(number, part, hull, speeds)?;
    Some((read.expected_us - anyway.map_or(0.0, |read| read.expected_us), read))
}
