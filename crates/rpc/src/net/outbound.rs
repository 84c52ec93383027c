//! What is sent: messages become frames, as far as the peer has given credits, the most urgent class first.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};
use smallvec::{SmallVec, smallvec};

use super::frame::{CLASSES, Class, HEAD_BYTES, Kind, PAYLOAD_BYTES_MAX, encode_head, encode_head_summed};
use super::inbound::cost;

/// Bytes of frames that are made ready at a time: what is more urgent waits for no more than these.
const STAGED_BYTES: usize = 256 << 10;
/// Payloads up to this length are copied behind their heads: that costs less than a slice of their own.
const SHORT_BYTES: usize = 2 << 10;
/// Most parts of one write.
pub(super) const SLICES_MAX: usize = 64;

/// A message: its parts lie apart, so that a long one needs no copy to get a head.
struct Queued {
    /// The head, and what follows it.
    parts: SmallVec<[Bytes; 2]>,
    len: usize,
    /// The CRC-32C of all parts but the first, if it is known.
    sum: Option<u32>,
}

impl Queued {
    /// At most `len` bytes from an offset on, as far as they lie in one piece.
    fn piece(&self, mut from: usize, len: usize) -> Bytes {
        for part in &self.parts {
            if from < part.len() {
                return part.slice(from..part.len().min(from + len));
            }
            from -= part.len();
        }
        Bytes::new()
    }
    /// The payload of the frame that begins at this offset, its length, and its sum, if that is known: then it is all that
    /// follows the head, in as many parts.
    fn frame(&self, from: usize) -> (SmallVec<[Bytes; 1]>, usize, Option<u32>) {
        if let (Some(sum), Some((head, rest))) = (self.sum, self.parts.split_first()) {
            let len = self.len - head.len();
            if from == head.len() && (1..=PAYLOAD_BYTES_MAX).contains(&len) {
                return (rest.into(), len, Some(sum));
            }
        }
        let payload = self.piece(from, PAYLOAD_BYTES_MAX);
        let len = payload.len();
        (smallvec![payload], len, None)
    }
}

/// The state of one direction.
#[derive(Default)]
pub(super) struct Outbound {
    /// Number of this node's view, for the heads of frames.
    pub view: u64,
    /// Frames that need no credits.
    urgent: VecDeque<(Kind, Bytes)>,
    /// Messages, and how much of the first was staged.
    queues: [VecDeque<Queued>; CLASSES],
    begun: [usize; CLASSES],
    queued_bytes: [u64; CLASSES],
    /// Bytes that the peer takes now.
    credits: [u64; CLASSES],
    /// Heads and payloads in order; the first may be written in part.
    staged: VecDeque<Bytes>,
    /// Heads and short payloads that come behind those.
    gathered: BytesMut,
    staged_bytes: usize,
}

impl Outbound {
    /// Sends a frame that is no message.
    pub fn tell(&mut self, kind: Kind, payload: impl Into<Bytes>) {
        self.urgent.push_back((kind, payload.into()));
    }
    /// Sends a message whose bytes are these parts. `sum`: the CRC-32C of all but the first, if it is known.
    pub fn send(&mut self, class: Class, parts: SmallVec<[Bytes; 2]>, sum: Option<u32>) {
        let len = parts.iter().map(Bytes::len).sum();
        self.queued_bytes[class as usize] += len as u64;
        self.queues[class as usize].push_back(Queued { parts, len, sum });
    }
    /// Bytes of messages of this class that are not made ready yet.
    pub fn queued_bytes(&self, class: Class) -> u64 {
        self.queued_bytes[class as usize]
    }
    pub fn add_credits(&mut self, credits: [u32; CLASSES]) {
        for (have, more) in self.credits.iter_mut().zip(credits) {
            *have = have.saturating_add(u64::from(more));
        }
    }
    /// Returns true if nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.staged_bytes == 0 && self.urgent.is_empty() && self.queues.iter().all(VecDeque::is_empty)
    }
    /// Copies what waits to be written, so that nothing of it lies with whoever sent it.
    pub fn own(&mut self) {
        let queued = self.queues.iter_mut().flatten().flat_map(|message| &mut message.parts);
        for bytes in queued.chain(&mut self.staged) {
            *bytes = Bytes::copy_from_slice(bytes);
        }
    }
    /// Forgets messages that were not made ready: the connection ends.
    pub fn forget_messages(&mut self) {
        self.queues = Default::default();
        (self.begun, self.queued_bytes) = Default::default();
    }
    fn put(&mut self, head: [u8; HEAD_BYTES], payload: Bytes) {
        self.put_head(head);
        self.put_payload(payload);
    }
    fn put_head(&mut self, head: [u8; HEAD_BYTES]) {
        self.staged_bytes += head.len();
        self.gathered.extend_from_slice(&head);
    }
    fn put_payload(&mut self, payload: Bytes) {
        self.staged_bytes += payload.len();
        if payload.len() <= SHORT_BYTES {
            self.gathered.extend_from_slice(&payload);
        } else {
            self.end_gathering();
            self.staged.push_back(payload);
        }
    }
    /// Puts what was gathered behind what is staged.
    fn end_gathering(&mut self) {
        if !self.gathered.is_empty() {
            self.staged.push_back(self.gathered.split().freeze());
        }
    }
    /// Makes frames ready.
    fn stage(&mut self) {
        while self.staged_bytes < STAGED_BYTES {
            if let Some((kind, payload)) = self.urgent.pop_front() {
                self.put(encode_head((kind, Class::Control), self.view, &payload, 0), payload);
            } else if !Class::ALL.into_iter().any(|class| self.stage_message(class)) {
                return;
            }
        }
    }
    /// Makes the next frame of a class ready. Returns false if there is none, or no credit for it.
    fn stage_message(&mut self, class: Class) -> bool {
        let at = class as usize;
        let Some(message) = self.queues[at].front() else { return false };
        let from = self.begun[at];
        let (payload, len, sum) = message.frame(from);
        let Some(left) = self.credits[at].checked_sub(cost(len)) else { return false };
        let head = match sum {
            Some(sum) => encode_head_summed((Kind::Message, class), self.view, (len, sum)),
            None => encode_head((Kind::Message, class), self.view, &payload[0], message.len - from - len),
        };
        self.credits[at] = left;
        self.queued_bytes[at] -= len as u64;
        self.begun[at] = from + len;
        if self.begun[at] == message.len {
            self.queues[at].pop_front();
            self.begun[at] = 0;
        }
        self.put_head(head);
        payload.into_iter().for_each(|payload| self.put_payload(payload));
        true
    }
    /// Adds the bytes that are to be written next to `slices`.
    pub fn slices<'a>(&'a mut self, slices: &mut Vec<IoSlice<'a>>) {
        self.stage();
        self.end_gathering();
        slices.extend(self.staged.iter().take(SLICES_MAX).map(|bytes| IoSlice::new(bytes)));
    }
    /// Drops the `count` bytes that were written.
    pub fn written(&mut self, count: usize) {
        self.staged_bytes -= count;
        let mut count = count;
        while let Some(first) = self.staged.front_mut() {
            if count < first.len() {
                *first = first.slice(count..);
                return;
            }
            count -= first.len();
            self.staged.pop_front();
        }
    }
}
