//! The reader's messages about tiers: requests to bring bytes to a faster tier before a read, predictions of the next
//! reads, and reports of reads that needed no message. They are sent only for objects whose container's policy uses
//! them, and for bytes that no client can read in place.

use std::collections::HashMap;

use cenote_device::control::READS_SAMPLED_IN;
use cenote_model::{ContainerId, ObjectKey, Request, Response, Result, Touch};
use cenote_policy::prefetch::{AccessProfile, Prefetcher};
use cenote_policy::speed_preset;

use super::read::{Parts, is_in_memory};
use crate::link::Link;
use crate::link::history::ReadSequence;
use crate::map::cache::ObjectCache;
use crate::map::pieces::{Part, Source};
use crate::sync::lock;

/// A read that takes longer than this asks the engine first: the message takes some 30 us.
const WORTH_ASKING_NS: f64 = 500_000.0;
/// Of reads shorter than this, one in [`READS_SAMPLED_IN`] is reported, and stands for all of them.
const SAMPLED_BELOW: usize = 64 << 10;
/// Reads are reported in batches of this size, or after this time.
const TOUCHES: usize = 128;
const TOUCHES_MS: u64 = 100;
/// Largest number of ranges that a stream prefetches.
const DEPTH_MAX: usize = 32;
/// Profiles with fewer steps are not saved.
const STEPS_MIN: usize = 2;
/// Longest name of a program.
const PROGRAM_BYTES_MAX: usize = 255;

/// Returns true if this process cannot read one of the parts in place.
pub(crate) fn is_elsewhere(parts: &[Part]) -> bool {
    parts.iter().any(|part| matches!(part.source, Source::ThroughLink))
}

/// Brings a range that this process cannot read in place to a readable tier. The caller holds no reader slot.
#[cold]
pub(crate) fn restore(link: &Link, key: ObjectKey, offset: u64, len: usize) -> Result<()> {
    let request = Request::Fetch { key, ranges: vec![(offset, len as u64)], ahead: false, must: true };
    link.channel.ask(request).map(drop)
}

/// Makes the engine read an unreadable range from another tier from now on; an error if no other tier has it. The
/// caller holds no reader slot.
#[cold]
pub(crate) fn rescue(link: &Link, key: ObjectKey, offset: u64, len: usize) -> Result<()> {
    link.channel.ask(Request::Unreadable { key, ranges: vec![(offset, len as u64)] }).map(drop)
}

/// Returns true if the device of these parts is so slow that the engine should be asked first: it may bring them to a
/// faster tier, which takes no longer than reading them.
pub(crate) fn is_slow(link: &Link, object: &ObjectCache, parts: &Parts) -> bool {
    if !object.is_tiered() {
        return false;
    }
    let ns = |part: &Part| match &part.source {
        Source::File { extent, .. } => link
            .space
            .segments
            .shape(extent.device)
            .map_or(0.0, |shape| shape.speed.unwrap_or_else(|| speed_preset(shape.kind)).read_ns(part.len as u64)),
        _ => 0.0,
    };
    parts.iter().map(ns).sum::<f64>() > WORTH_ASKING_NS
}

/// Asks the engine whether to bring a range to a faster tier before the read, and waits for that. The caller holds no
/// reader slot.
#[cold]
pub(crate) fn fetch(link: &Link, object: &ObjectCache, offset: u64, len: usize) {
    let ranges = vec![(offset, len as u64)];
    object.note_slow_read();
    // On failure, the bytes are read where they are.
    let _ = link.channel.ask(Request::Fetch { key: object.key, ranges, ahead: false, must: false });
}

/// Notes a finished read. `was_told`: the engine knows of it already.
#[inline]
pub(crate) fn note_read(
    link: &Link,
    object: &ObjectCache,
    (offset, len): (u64, usize),
    is_sampled: bool,
    was_told: bool,
) {
    if !was_told && (is_sampled || len >= SAMPLED_BELOW) {
        touch(link, object.key, offset, len);
    }
    if object.had_slow_reads() {
        look_ahead(link, object, offset, len);
    }
}

fn touch(link: &Link, key: ObjectKey, offset: u64, len: usize) {
    let history = &link.history;
    let bytes = len as u64 * if len < SAMPLED_BELOW { u64::from(READS_SAMPLED_IN) } else { 1 };
    let now_ms = history.now_ms();
    let mut touches = lock(&history.touches);
    let (since_ms, reads) = &mut *touches;
    if reads.is_empty() {
        *since_ms = now_ms;
    }
    reads.push(Touch { key, offset, bytes });
    if reads.len() >= TOUCHES || now_ms - *since_ms >= TOUCHES_MS {
        let reads = std::mem::take(reads);
        drop(touches);
        link.channel.tell(Request::Touched { reads });
    }
}

/// Follows the stream of reads of a container, and prefetches the predicted ranges.
fn look_ahead(link: &Link, object: &ObjectCache, offset: u64, len: usize) {
    let history = &link.history;
    let is_known = lock(&history.streams).contains_key(&object.key.container);
    // Requested without the lock: other threads go on reading.
    let learned = if is_known { None } else { Some(learned_before(link, object.key.container)) };
    let ahead = {
        let mut streams = lock(&history.streams);
        let stream = streams.entry(object.key.container).or_insert_with(|| {
            let learned = learned.unwrap_or_default();
            ReadSequence { prefetcher: Prefetcher::new(DEPTH_MAX, learned.clone()), learned }
        });
        let stream = &mut stream.prefetcher;
        stream.read(history.now_ms(), object.key, offset, len as u64);
        stream.ahead()
    };
    let mut by_object: HashMap<ObjectKey, Vec<(u64, u64)>> = HashMap::new();
    for foreseen in ahead {
        let is_here = foreseen.object == object.key
            && is_in_memory(link, object, foreseen.offset, usize::try_from(foreseen.bytes).unwrap_or(usize::MAX));
        if !is_here {
            by_object.entry(foreseen.object).or_default().push((foreseen.offset, foreseen.bytes));
        }
    }
    for (key, ranges) in by_object {
        link.channel.tell(Request::Fetch { key, ranges, ahead: true, must: false });
    }
}

/// The reads of earlier runs of this program in a container; empty if they are unknown.
#[cold]
fn learned_before(link: &Link, container: ContainerId) -> AccessProfile {
    match link.channel.ask(Request::Habit { container, program: program() }) {
        Ok(Response::Habit(bytes)) => AccessProfile::decode(&bytes).unwrap_or_default(),
        _ => AccessProfile::default(),
    }
}

/// Saves the profile of this process's reads. Nothing depends on it.
pub(crate) fn keep_learned(link: &Link) {
    let streams = std::mem::take(&mut *lock(&link.history.streams));
    for (container, stream) in streams {
        let profile = stream.prefetcher.profile();
        if profile.len() >= STEPS_MIN && *profile != stream.learned && link.channel.check_writable().is_ok() {
            // This waits for the answer: requests in flight are lost at the end of a session.
            let learned = profile.encode();
            let _ = link.channel.ask(Request::HabitLearned { container, program: program(), learned });
        }
    }
}

/// Identifies a program: the name of its file, and for interpreters also that of the script.
fn program() -> String {
    let name = |path: std::ffi::OsString| {
        std::path::Path::new(&path).file_name().unwrap_or_default().to_string_lossy().into_owned()
    };
    let mut words = std::env::args_os();
    let first = words.next().map(name).unwrap_or_default();
    let script = words.find(|word| !word.to_string_lossy().starts_with('-')).map(name);
    let is_interpreter =
        ["python", "perl", "ruby", "Rscript", "julia", "bash", "sh"].iter().any(|i| first.starts_with(i));
    let mut both = match script.filter(|_| is_interpreter) {
        Some(script) => format!("{first} {script}"),
        None => first,
    };
    while both.len() > PROGRAM_BYTES_MAX {
        both.pop();
    }
    both
}
