//! What arrives: bytes become frames, frames become messages. Bytes of a message that is begun go to their place at
//! once, without a copy in between.

use std::collections::VecDeque;

use cenote_model::Result;

use super::frame::{
    CLASSES, Class, HEAD_BYTES, Head, Kind, PAYLOAD_BYTES_MAX, STRANGE_BYTES_MAX, Unchecked, check, decode_head,
    malformed,
};

/// Longest message: as between processes of a node.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 << 20;
/// Bytes that are read at once beside those of a message that is begun: many short frames, and little of a long one, since
/// what is read here is copied once more.
const STAGING_BYTES: usize = 16 << 10;
/// Buffers of released messages that are kept for later ones.
const SPARE_MAX: usize = 8;
/// Longest buffer that is kept.
const SPARE_BYTES_MAX: usize = 2 << 20;

/// A message from the other end.
#[derive(Debug)]
pub struct Message {
    /// What it is for.
    pub class: Class,
    /// Number of the sender's view when it sent the end of it.
    pub view: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// The part of them that nobody has checked.
    pub unchecked: Option<Unchecked>,
    /// Credits that it holds.
    pub(super) cost: u64,
}

/// A frame that has arrived whole.
#[derive(Debug)]
pub(super) enum Arrived {
    Message(Message),
    /// A part of a long message under way, which holds no credits.
    Part(Class, u64),
    Other(Kind, Vec<u8>),
}

/// The message of a class that is being received.
#[derive(Default)]
struct Begun {
    /// Longer than what has arrived.
    bytes: Vec<u8>,
    filled: usize,
    /// Bytes behind the current frame; `None` before the first frame.
    more: Option<usize>,
    /// Credits that it holds.
    held: u64,
}

/// The state of one direction.
pub(super) struct Inbound {
    /// The bytes of a head that have arrived.
    head: [u8; HEAD_BYTES],
    have: usize,
    /// The frame whose payload is arriving, and how much of it has.
    open: Option<(Head, usize)>,
    /// The payload of a frame that is no message.
    small: Vec<u8>,
    begun: [Begun; CLASSES],
    windows: [u32; CLASSES],
    /// Bytes that the peer may still send.
    allowed: [u64; CLASSES],
    staging: Vec<u8>,
    spare: Vec<Vec<u8>>,
    pub arrived: VecDeque<Arrived>,
    /// The peer has proved that it has the key.
    pub is_trusted: bool,
    /// See [`super::Endpoint::defer_checks`].
    pub defers_checks: bool,
}

impl Inbound {
    pub fn new(windows: [u32; CLASSES]) -> Self {
        Self {
            head: [0; HEAD_BYTES],
            have: 0,
            open: None,
            small: Vec::new(),
            begun: Default::default(),
            windows,
            allowed: windows.map(u64::from),
            staging: vec![0; STAGING_BYTES],
            spare: Vec::new(),
            arrived: VecDeque::new(),
            is_trusted: false,
            defers_checks: false,
        }
    }
    /// Returns where the next bytes go: first all of one part, then the other.
    pub fn spaces(&mut self) -> (&mut [u8], &mut [u8]) {
        // Behind a part of a message only the head of the next one is read: what follows goes to its place, too.
        let is_amid = self.open.is_some_and(|(head, _)| head.more > 0);
        let staging = if is_amid { HEAD_BYTES } else { STAGING_BYTES };
        (rest(self.open, &mut self.begun, &mut self.small), &mut self.staging[..staging])
    }
    /// Takes in the `count` bytes that were put into the spaces.
    pub fn received(&mut self, count: usize) -> Result<()> {
        let rest = self.open.map_or(0, |(head, at)| head.len - at);
        let direct = count.min(rest);
        self.fill(direct)?;
        let staging = std::mem::take(&mut self.staging);
        let taken = self.take(&staging[..count - direct]);
        self.staging = staging;
        taken
    }
    /// Takes bytes that lie elsewhere.
    fn take(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.open.is_none() {
                let count = bytes.len().min(HEAD_BYTES - self.have);
                self.head[self.have..self.have + count].copy_from_slice(&bytes[..count]);
                self.have += count;
                bytes = &bytes[count..];
                if self.have == HEAD_BYTES {
                    self.begin()?;
                }
                continue;
            }
            let space = rest(self.open, &mut self.begun, &mut self.small);
            let count = bytes.len().min(space.len());
            space[..count].copy_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            self.fill(count)?;
        }
        Ok(())
    }
    /// Begins the frame whose head has arrived.
    fn begin(&mut self) -> Result<()> {
        self.have = 0;
        let most = if self.is_trusted { PAYLOAD_BYTES_MAX } else { STRANGE_BYTES_MAX };
        let head = decode_head(&self.head, most)?;
        if head.kind == Kind::Message {
            self.begin_part(head)?;
        } else {
            self.small.clear();
            self.small.resize(head.len, 0);
        }
        self.open = Some((head, 0));
        self.fill(0)
    }
    /// Makes room for a part of a message.
    fn begin_part(&mut self, head: Head) -> Result<()> {
        if !self.is_trusted {
            return Err(malformed("a message before the proof of the key"));
        }
        let allowed = &mut self.allowed[head.class as usize];
        *allowed = allowed
            .checked_sub(cost(head.len))
            .ok_or_else(|| malformed(format!("more {:?} messages than it was given credits for", head.class)))?;
        let begun = &mut self.begun[head.class as usize];
        if begun.more.is_some_and(|more| more != head.len + head.more) {
            return Err(malformed("a part of a message of another length"));
        }
        let wanted = begun.filled + head.len + head.more;
        if wanted > MESSAGE_BYTES_MAX {
            return Err(malformed(format!("a message of {wanted} bytes")));
        }
        if begun.more.is_none() {
            begun.bytes = self.spare.pop().unwrap_or_default();
        }
        if begun.bytes.len() < wanted {
            begun.bytes.resize(wanted, 0);
        }
        begun.more = Some(head.more);
        Ok(())
    }
    /// Counts bytes of the open frame, and ends the frame with its last byte.
    fn fill(&mut self, count: usize) -> Result<()> {
        let Some((head, at)) = &mut self.open else { return Ok(()) };
        *at += count;
        if *at < head.len {
            return Ok(());
        }
        let head = *head;
        self.open = None;
        if head.kind == Kind::Message {
            return self.end_part(head);
        }
        check(&self.head, &self.small)?;
        self.arrived.push_back(Arrived::Other(head.kind, std::mem::take(&mut self.small)));
        Ok(())
    }
    fn end_part(&mut self, head: Head) -> Result<()> {
        let begun = &mut self.begun[head.class as usize];
        let end = begun.filled + head.len;
        let is_deferred = self.defers_checks && head.class == Class::Bulk && head.more == 0 && begun.filled > 0;
        let unchecked = is_deferred.then(|| Unchecked::of(&self.head, begun.filled));
        if unchecked.is_none() {
            check(&self.head, &begun.bytes[begun.filled..end])?;
        }
        begun.filled = end;
        if head.more > 0 {
            let held = begun.held + cost(head.len);
            if held <= u64::from(self.windows[head.class as usize] / 2) {
                begun.held = held;
            } else {
                // What is longer than half a window holds no more than that: a message may be longer than its window.
                self.allowed[head.class as usize] += cost(head.len);
                self.arrived.push_back(Arrived::Part(head.class, cost(head.len)));
            }
            return Ok(());
        }
        let Begun { mut bytes, held, .. } = std::mem::take(begun);
        bytes.truncate(end);
        let cost = held + cost(head.len);
        let message = Message { class: head.class, view: head.view, bytes, unchecked, cost };
        self.arrived.push_back(Arrived::Message(message));
        Ok(())
    }
    /// Lets the peer send as much again as a message took, and keeps its buffer. Returns the credits.
    pub fn release(&mut self, message: Message) -> u64 {
        let Message { class, bytes, cost, .. } = message;
        self.allowed[class as usize] += cost;
        self.recycle(bytes);
        cost
    }
    /// Keeps a buffer for a later message.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.spare.len() < SPARE_MAX && (1..=SPARE_BYTES_MAX).contains(&buffer.len()) {
            self.spare.push(buffer);
        }
    }
}

/// Returns what is missing of the open frame's payload.
fn rest<'a>(open: Option<(Head, usize)>, begun: &'a mut [Begun; CLASSES], small: &'a mut [u8]) -> &'a mut [u8] {
    match open {
        None => &mut [],
        Some((head, at)) if head.kind == Kind::Message => {
            let begun = &mut begun[head.class as usize];
            &mut begun.bytes[begun.filled + at..begun.filled + head.len]
        }
        Some((head, at)) => &mut small[at..head.len],
    }
}

/// Credits that a frame of a message takes: empty messages cost something, too.
pub(super) fn cost(len: usize) -> u64 {
    (len + HEAD_BYTES) as u64
}
