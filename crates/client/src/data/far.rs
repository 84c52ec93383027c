//! Reads of objects whose home is on another node: from bytes that this process keeps, as long as the daemon of this node
//! was told that they are current; else the home is asked, directly or by that daemon, with several requests under way for a
//! long range.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use cenote_device::sums::{SUM_UNIT_BYTES, copy_and_sum, sum_of};
use cenote_model::{ObjectKey, Request, Response, Result, combine_sums};

use super::carried;
use super::read::{ReadDone, Rescues, settle_own_writes, wanted};
use crate::answer::surprise;
use crate::labels::plain;
use crate::link::Link;
use crate::link::attachment::Attachment;
use crate::link::direct::{Answer, Reading};
use crate::map::cache::{ObjectCache, Version};
use crate::map::pieces::Source;
use crate::sync::lock;

/// Bytes of one request: few enough that the home answers at once, and its answer is on its way while the one before it
/// is copied. Requests end at multiples of it, so that they are for whole checksum units.
const PIECE_BYTES: u64 = 64 << 10;
/// Requests under way for one read by the daemon: their answers fit the ring…
const UNDER_WAY_BY_RING: usize = 6;
/// …and directly.
const UNDER_WAY_DIRECTLY: usize = 16;
/// Reads are asked for in whole units of this many bytes, which are kept…
const UNIT_BYTES: u64 = 4 << 10;
/// …and if one follows another, with so many bytes in all.
const AHEAD_BYTES: u64 = 128 << 10;
/// Attempts to read a range in several requests, though others change the object all the time.
const ATTEMPTS_MAX: u32 = 3;

/// What one read wants, and how much of it is there already.
struct Wanted<'a> {
    offset: u64,
    buf: &'a mut [u8],
    done: usize,
    /// The version of what is there already.
    version: Option<u64>,
}

/// How the pieces of one read are asked for.
trait Asking {
    /// Most requests under way.
    const UNDER_WAY_MAX: usize;
    /// Asks for a piece.
    fn ask(&mut self, from: u64, len: u64);
    /// The next answer, in the order of requests. `None`: this way is lost.
    fn answer(&mut self) -> Result<Option<Answer>>;
    /// The bytes of an answer do not match their checksum: this way is lost.
    fn is_damaged(&mut self) {}
    /// Takes the bytes of an answer that nobody needs any more.
    fn recycle(&mut self, _bytes: Vec<u8>) {}
}

/// By the daemon of this node.
struct ByRing<'a> {
    link: &'a Link,
    key: ObjectKey,
    under_way: VecDeque<Arc<Mutex<Option<Response>>>>,
}

/// From the node that has the home.
struct Directly<'a> {
    reading: Reading<'a>,
    attachment: &'a Attachment,
    key: ObjectKey,
}

/// Fills `buf` from `offset` up to the object's size.
pub(super) fn read_at(link: &Link, object: &Arc<ObjectCache>, offset: u64, buf: &mut [u8]) -> Result<ReadDone> {
    settle_own_writes(link, object);
    let mut rescues = Rescues::default();
    let mut attempts = 0;
    while attempts < ATTEMPTS_MAX {
        let attachment = link.channel.attachment();
        if !attachment.is_current() {
            link.channel.attach_again(&attachment)?;
            continue;
        }
        let version = attachment.version(object.hash);
        let kept = object.copy_kept(version, offset, buf);
        if let Some((size, bytes)) = kept.filter(|(size, done)| *done >= wanted(*size, offset, buf.len())) {
            object.used_at(link.keeping.now());
            return Ok(ReadDone { size, bytes });
        }
        let done = kept.map_or(0, |(_, done)| done);
        let wanted = Wanted { offset, done, version: (done > 0).then_some(version.word), buf };
        let asked = if let Some(reading) = link.direct.begin(&link.channel, &attachment, wanted.left()) {
            let way = Directly { reading, attachment: &attachment, key: object.key };
            ask(way, link, object, version.instance, wanted)
        } else {
            let way = ByRing { link, key: object.key, under_way: VecDeque::with_capacity(UNDER_WAY_BY_RING) };
            ask(way, link, object, version.instance, wanted)
        };
        match asked {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => attempts += 1,
            Err(error) => rescues.rescue(link, object, (offset, buf.len()), error)?,
        }
    }
    carried::read_at(link, object, offset, buf)
}

/// Asks for what is missing. `None`: the object was changed meanwhile, or the way was lost.
fn ask<A: Asking>(
    mut way: A,
    link: &Link,
    object: &Arc<ObjectCache>,
    instance: u64,
    mut wanted: Wanted<'_>,
) -> Result<Option<ReadDone>> {
    let (mut next, end) = range(object, &wanted);
    let mut under_way = VecDeque::with_capacity(A::UNDER_WAY_MAX);
    loop {
        while under_way.len() < A::UNDER_WAY_MAX && next < end {
            let len = (end - next).min(PIECE_BYTES - next % PIECE_BYTES);
            way.ask(next, len);
            under_way.push_back((next, len));
            next += len;
        }
        let Some((from, len)) = under_way.pop_front() else { return Ok(None) };
        let Some(Answer { size, version, bytes, begin, unchecked }) = way.answer()? else { return Ok(None) };
        if wanted.version.is_some_and(|known| known != version) {
            return Ok(None);
        }
        wanted.version = Some(version);
        let is_last = ((bytes.len() - begin) as u64) < len;
        match unchecked {
            None => wanted.take(from, &bytes[begin..]),
            Some(unchecked) => {
                let is_whole = unchecked.from == begin;
                let sum = wanted.take_and_sum(from, &bytes[begin..]);
                if !is_whole || !unchecked.is_intact(sum, bytes.len() - begin) {
                    way.is_damaged();
                    return Ok(None);
                }
            }
        }
        if link.keeping.fits(size) || !wanted.scans(from, len) {
            learn(link, object, Version { instance, word: version }, (from, size), (bytes, begin));
            if let Some(buffer) = link.keeping.spare() {
                way.recycle(buffer);
            }
        } else {
            way.recycle(bytes);
        }
        if is_last || wanted.done == wanted.buf.len() {
            return Ok(Some(ReadDone { size, bytes: wanted.done }));
        }
    }
}

/// The range that is asked for: whole units, and more if it follows the one before it.
fn range(object: &ObjectCache, wanted: &Wanted<'_>) -> (u64, u64) {
    use std::sync::atomic::Ordering::Relaxed;
    let begin = wanted.offset.saturating_add(wanted.done as u64);
    let end = wanted.offset.saturating_add(wanted.buf.len() as u64);
    let from = begin / UNIT_BYTES * UNIT_BYTES;
    let ahead = if object.read_to.load(Relaxed) == from { from.saturating_add(AHEAD_BYTES) } else { 0 };
    let end = end.checked_next_multiple_of(UNIT_BYTES).unwrap_or(end).max(ahead);
    object.read_to.store(end, Relaxed);
    (from, end)
}

impl Asking for ByRing<'_> {
    const UNDER_WAY_MAX: usize = UNDER_WAY_BY_RING;
    fn ask(&mut self, from: u64, len: u64) {
        let answer = Arc::new(Mutex::new(None));
        let filled = answer.clone();
        let request = Request::Read { key: self.key, offset: from, len: len as u32 };
        self.link.channel.submit(request, Box::new(move |response| *lock(&filled) = Some(response)));
        self.under_way.push_back(answer);
    }
    fn answer(&mut self) -> Result<Option<Answer>> {
        let Some(first) = self.under_way.pop_front() else { return Ok(None) };
        let mut answer = None;
        self.link.channel.wait_until(|| {
            answer = lock(&first).take();
            answer.is_some()
        });
        match answer {
            Some(Response::Bytes { size, version, bytes }) => {
                Ok(Some(Answer { size, version, bytes, begin: 0, unchecked: None }))
            }
            Some(Response::Failed(error)) => Err(plain(error)),
            other => Err(surprise("bytes", &other.unwrap_or(Response::Done))),
        }
    }
}

impl Asking for Directly<'_> {
    const UNDER_WAY_MAX: usize = UNDER_WAY_DIRECTLY;
    fn ask(&mut self, from: u64, len: u64) {
        self.reading.ask(self.key, from, len as u32);
    }
    fn answer(&mut self) -> Result<Option<Answer>> {
        self.reading.answer(self.attachment).map_err(plain)
    }
    fn is_damaged(&mut self) {
        self.reading.is_damaged();
    }
    fn recycle(&mut self, bytes: Vec<u8>) {
        self.reading.recycle(bytes);
    }
}

impl Wanted<'_> {
    /// Returns true if this is a long read that has all of a piece, as in a scan.
    fn scans(&self, from: u64, len: u64) -> bool {
        let is_long = self.buf.len() as u64 >= PIECE_BYTES;
        is_long && from >= self.offset && from + len <= self.offset.saturating_add(self.buf.len() as u64)
    }
    /// Bytes that are missing.
    fn left(&self) -> u64 {
        (self.buf.len() - self.done) as u64
    }
    /// Copies what is wanted of the bytes from an offset on.
    fn take(&mut self, from: u64, bytes: &[u8]) {
        let (_, wanted, into) = self.split(from, bytes);
        into.copy_from_slice(wanted);
        self.done += wanted.len();
    }
    /// The same, and the checksum of all these bytes in the same pass. If it is wrong, so is what was copied.
    fn take_and_sum(&mut self, from: u64, bytes: &[u8]) -> u32 {
        let (before, wanted, into) = self.split(from, bytes);
        let mut copied = Vec::with_capacity(wanted.len().div_ceil(SUM_UNIT_BYTES));
        copy_and_sum(into, wanted, &mut copied);
        let behind = &bytes[before.len() + wanted.len()..];
        let units = wanted.chunks(SUM_UNIT_BYTES).map(<[u8]>::len);
        let mut sum = sum_of(before);
        for (unit, len) in copied.iter().zip(units) {
            sum = combine_sums(sum, *unit, len as u32);
        }
        if !behind.is_empty() {
            sum = combine_sums(sum, sum_of(behind), behind.len() as u32);
        }
        self.done += wanted.len();
        sum
    }
    /// What is not wanted before the rest, what is, and where that goes.
    fn split<'a>(&mut self, from: u64, bytes: &'a [u8]) -> (&'a [u8], &'a [u8], &mut [u8]) {
        let at = self.offset + self.done as u64;
        let (before, bytes) = bytes.split_at(bytes.len().min(at.saturating_sub(from) as usize));
        let count = bytes.len().min(self.buf.len() - self.done);
        (before, &bytes[..count], &mut self.buf[self.done..self.done + count])
    }
}

/// Keeps bytes that were read.
fn learn(
    link: &Link,
    object: &Arc<ObjectCache>,
    version: Version,
    (from, size): (u64, u64),
    (bytes, begin): (Vec<u8>, usize),
) {
    if !link.keeping.is_on() {
        return;
    }
    let len = (bytes.len() - begin) as u64;
    let kept = link.keeping.keep(object, bytes);
    object.learn(version, size, from, from + len, vec![(from, len, Source::Kept(kept, begin as u32))]);
}
