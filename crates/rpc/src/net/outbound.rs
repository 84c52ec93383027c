//! What is sent: messages become frames, as far as the peer has given credits, the most urgent class first.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Bytes, BytesMut};

use super::frame::{CLASSES, Class, HEAD_BYTES, Kind, PAYLOAD_BYTES_MAX, encode_head};
use super::inbound::cost;

/// Bytes of frames that are made ready at a time: what is more urgent waits for no more than these.
const STAGED_BYTES: usize = 256 << 10;
/// Payloads up to this length are copied behind their heads: that costs less than a slice of their own.
const SHORT_BYTES: usize = 2 << 10;
/// Most parts of one write.
pub(super) const SLICES_MAX: usize = 64;

/// A message: its parts lie apart, so that a long one needs no copy to get a head.
struct Queued {
    head: Bytes,
    rest: Bytes,
}

impl Queued {
    fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }
    /// At most `len` bytes from an offset on, as far as they lie in one piece.
    fn piece(&self, from: usize, len: usize) -> Bytes {
        let (part, from) = match from.checked_sub(self.head.len()) {
            Some(from) => (&self.rest, from),
            None => (&self.head, from),
        };
        part.slice(from..part.len().min(from + len))
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
    /// Sends a message whose bytes are the head and the rest.
    pub fn send(&mut self, class: Class, head: Bytes, rest: Bytes) {
        let message = Queued { head, rest };
        self.queued_bytes[class as usize] += message.len() as u64;
        self.queues[class as usize].push_back(message);
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
    /// Forgets messages that were not made ready: the connection ends.
    pub fn forget_messages(&mut self) {
        self.queues = Default::default();
        (self.begun, self.queued_bytes) = Default::default();
    }
    fn put(&mut self, head: [u8; HEAD_BYTES], payload: Bytes) {
        self.staged_bytes += head.len() + payload.len();
        self.gathered.extend_from_slice(&head);
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
        let payload = message.piece(from, PAYLOAD_BYTES_MAX);
        let (len, more) = (payload.len(), message.len() - from - payload.len());
        let Some(left) = self.credits[at].checked_sub(cost(len)) else { return false };
        self.credits[at] = left;
        self.queued_bytes[at] -= len as u64;
        self.begun[at] = from + len;
        if more == 0 {
            self.queues[at].pop_front();
            self.begun[at] = 0;
        }
        self.put(encode_head((Kind::Message, class), self.view, &payload, more), payload);
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
