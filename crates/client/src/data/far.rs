//! Reads of objects whose home is on another node: from bytes that this process keeps, as long as the daemon of this node
//! was told that they are current; else the home is asked, with several requests under way for a long range.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use cenote_model::{Request, Response, Result};

use super::carried;
use super::read::{ReadDone, Rescues, settle_own_writes, wanted};
use crate::answer::surprise;
use crate::labels::plain;
use crate::link::Link;
use crate::map::cache::{ObjectCache, Version};
use crate::map::pieces::Source;
use crate::sync::lock;

/// Bytes of one request: few enough that the home answers at once, and its answer is on its way while the one before it
/// is copied.
const PIECE_BYTES: u64 = 64 << 10;
/// Requests under way for one read: their answers fit the ring.
const UNDER_WAY_MAX: usize = 6;
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

/// A request under way.
struct UnderWay {
    from: u64,
    len: u64,
    answer: Arc<Mutex<Option<Response>>>,
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
        match ask(link, object, version.instance, wanted) {
            Ok(Some(done)) => return Ok(done),
            Ok(None) => attempts += 1,
            Err(error) => rescues.rescue(link, object, (offset, buf.len()), error)?,
        }
    }
    carried::read_at(link, object, offset, buf)
}

/// Asks for what is missing. `None`: the object was changed meanwhile.
fn ask(link: &Link, object: &Arc<ObjectCache>, instance: u64, mut wanted: Wanted<'_>) -> Result<Option<ReadDone>> {
    let (mut next, end) = range(object, &wanted);
    let mut under_way = VecDeque::with_capacity(UNDER_WAY_MAX);
    loop {
        while under_way.len() < UNDER_WAY_MAX && next < end {
            let len = (end - next).min(PIECE_BYTES);
            under_way.push_back(send(link, object, next, len));
            next += len;
        }
        let Some(first) = under_way.pop_front() else { return Ok(None) };
        let (size, version, bytes) = first.wait(link)?;
        if wanted.version.is_some_and(|known| known != version) {
            return Ok(None);
        }
        wanted.version = Some(version);
        let is_last = (bytes.len() as u64) < first.len;
        wanted.take(first.from, &bytes);
        learn(link, object, Version { instance, word: version }, (first.from, size), bytes);
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

fn send(link: &Link, object: &ObjectCache, from: u64, len: u64) -> UnderWay {
    let answer = Arc::new(Mutex::new(None));
    let filled = answer.clone();
    let request = Request::Read { key: object.key, offset: from, len: len as u32 };
    link.channel.submit(request, Box::new(move |response| *lock(&filled) = Some(response)));
    UnderWay { from, len, answer }
}

impl UnderWay {
    /// The object's size, its version, and the bytes.
    fn wait(&self, link: &Link) -> Result<(u64, u64, Vec<u8>)> {
        let mut answer = None;
        link.channel.wait_until(|| {
            answer = lock(&self.answer).take();
            answer.is_some()
        });
        match answer {
            Some(Response::Bytes { size, version, bytes }) => Ok((size, version, bytes)),
            Some(Response::Failed(error)) => Err(plain(error)),
            other => Err(surprise("bytes", &other.unwrap_or(Response::Done))),
        }
    }
}

impl Wanted<'_> {
    /// Copies what is wanted of the bytes from an offset on.
    fn take(&mut self, from: u64, bytes: &[u8]) {
        let at = self.offset + self.done as u64;
        let bytes = bytes.get(at.saturating_sub(from) as usize..).unwrap_or_default();
        let count = bytes.len().min(self.buf.len() - self.done);
        self.buf[self.done..self.done + count].copy_from_slice(&bytes[..count]);
        self.done += count;
    }
}

/// Keeps bytes that were read.
fn learn(link: &Link, object: &Arc<ObjectCache>, version: Version, (from, size): (u64, u64), bytes: Vec<u8>) {
    if !link.keeping.is_on() {
        return;
    }
    let len = bytes.len() as u64;
    let kept = link.keeping.keep(object, bytes);
    object.learn(version, size, from, from + len, vec![(from, len, Source::Kept(kept, 0))]);
}
