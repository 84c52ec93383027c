//! Hedged reads: when a part is late, others are asked for what gives the same bytes (Dean and Barroso, *The tail at
//! scale*, CACM 2013), so that one slow node does not stop all.

use std::ops::Range;

use super::read::{Read, ReadPlan};
use super::source::{Form, Segment, Speeds};

/// A read is late after this many times what it should take…
pub const HEDGE_AFTER_TIMES: f64 = 3.0;
/// …and this many microseconds: the wake-up of a process on a busy machine.
pub const HEDGE_SLACK_US: f64 = 200.0;

/// Microseconds after its begin at which a read is late.
pub fn hedge_after_us(read: &Read) -> f64 {
    HEDGE_AFTER_TIMES * read.expected_us + HEDGE_SLACK_US
}

/// What to ask besides when the read `late` of a plan is: the next copy, or as many parts as give the same bytes without
/// it, those already asked for them not counted. The caller asks for them once, takes whatever comes first, and drops the
/// rest.
///
/// Returns nothing if the read is not late after `elapsed_us` microseconds, or if no other part can be reached that is
/// likely to answer: bytes that lie only there must be waited for.
pub fn hedge(plan: &ReadPlan, late: usize, elapsed_us: f64, segments: &[Segment], speeds: &Speeds<'_>) -> Vec<Read> {
    let read = &plan.reads[late];
    if elapsed_us < hedge_after_us(read) {
        return Vec::new();
    }
    let segment = &segments[read.segment];
    let range = read.part_offset..read.part_offset + read.len;
    match segment.form {
        Form::Copies => fastest(segment, read, range, |part| part != read.part, speeds).into_iter().take(1).collect(),
        Form::Stripe { data, .. } => other_parts(plan, read, segment, data, range, speeds),
    }
}

/// The reads of a range of the parts that may be asked, fastest first.
fn fastest(
    segment: &Segment,
    late: &Read,
    range: Range<u64>,
    may: impl Fn(usize) -> bool,
    speeds: &Speeds<'_>,
) -> Vec<Read> {
    let within = |part: usize| range.start..range.end.min(segment.part_len(part));
    let parts = (0..segment.places.len()).filter(|part| may(*part) && segment.part_len(*part) > range.start);
    let mut reads: Vec<Read> =
        parts.filter_map(|part| segment.read(late.segment, part, within(part), speeds)).collect();
    reads.sort_by(|one, other| one.expected_us.total_cmp(&other.expected_us));
    reads
}

fn other_parts(
    plan: &ReadPlan,
    late: &Read,
    segment: &Segment,
    data: usize,
    range: Range<u64>,
    speeds: &Speeds<'_>,
) -> Vec<Read> {
    let covers = |read: &&Read| {
        let end = range.end.min(segment.part_len(read.part));
        read.segment == late.segment && read.part_offset <= range.start && read.part_offset + read.len >= end
    };
    let asked: Vec<usize> =
        plan.reads.iter().filter(covers).map(|read| read.part).filter(|part| *part != late.part).collect();
    let zeros = (0..data).filter(|part| segment.part_len(*part) <= range.start).count();
    let missing = data.saturating_sub(asked.len() + zeros);
    let reads = fastest(segment, late, range.clone(), |part| part != late.part && !asked.contains(&part), speeds);
    if reads.len() < missing { Vec::new() } else { reads.into_iter().take(missing).collect() }
}
