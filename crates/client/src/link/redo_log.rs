//! The redo log of pipelined updates, which makes them safe from the death of this process when their call returns:
//! until their message is sent they are also in a log in the client's file, which the engine carries out if the process
//! dies ([`FrameLog`]).

use std::collections::VecDeque;
use std::sync::Mutex;

use cenote_model::{Check, Request, Result, Update};
use cenote_rpc::FrameLog;
use cenote_server::log_memory;
use cenote_wire::encode_request;

use super::precondition::Head;
use super::readers::Readers;
use crate::sync::lock;

/// Encoded updates of one call that fit into the redo log; larger calls wait for their outcome. A message of several
/// calls is one frame of a ring.
const CALL_BYTES_MAX: usize = 24 << 10;
/// Largest head of a message, before its updates.
const HEAD_BYTES: usize = 2 << 10;
/// Largest encoded updates of one message.
pub(crate) const MESSAGE_BYTES_MAX: usize = 56 << 10;

/// Updates encoded for the redo log.
pub(crate) struct Encoded(Vec<u8>);

impl Encoded {
    /// Encodes updates; `None` if they are too large for the redo log.
    pub fn new(updates: Vec<Update>, atomic: bool) -> (Option<Self>, Vec<Update>) {
        let (bytes, updates) = encode(Vec::new(), updates, atomic);
        ((bytes.len() <= CALL_BYTES_MAX).then_some(Self(bytes)), updates)
    }
    pub fn bytes(&self) -> usize {
        self.0.len()
    }
}

fn encode(checks: Vec<Check>, updates: Vec<Update>, atomic: bool) -> (Vec<u8>, Vec<Update>) {
    let mut bytes = Vec::with_capacity(512);
    let request = Request::Apply { checks, updates, atomic };
    encode_request(0, &request, &mut bytes);
    let Request::Apply { updates, .. } = request else { return (bytes, Vec::new()) };
    (bytes, updates)
}

/// The redo log in the current client file.
#[derive(Default)]
pub(crate) struct RedoLog(Mutex<LogState>);

#[derive(Default)]
struct LogState {
    log: Option<FrameLog>,
    /// Messages in the log: number and end.
    messages: VecDeque<(u64, u64)>,
}

impl RedoLog {
    /// Moves the unsent messages to the file of a new engine; for a moment they are in both files.
    pub fn move_to(&self, readers: &Readers) -> Result<()> {
        let mut state = lock(&self.0);
        // An engine of an older program has no redo log: calls that need safety then wait for their outcome.
        let Some(memory) = log_memory(readers.file())? else {
            *state = LogState::default();
            return Ok(());
        };
        let mut new = FrameLog::new(memory)?;
        if let Some(old) = &mut state.log {
            let (mut frames, mut messages) = (old.frames()?, VecDeque::new());
            while let Some(frame) = if frames.is_ready() { frames.take()? } else { None } {
                new.push(&[frame])?;
                let number = frame.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
                messages.push_back((number, new.end()));
            }
            old.take_back(old.end());
            state.messages = messages;
        }
        state.log = Some(new);
        Ok(())
    }
    /// Adds a part of a message that is not sent yet, together with its checks. Returns false if there is no room, or
    /// no log.
    pub fn put(&self, number: u64, head: &Head, part: &Encoded, atomic: bool) -> Result<bool> {
        let mut state = lock(&self.0);
        let LogState { log: Some(log), messages } = &mut *state else { return Ok(false) };
        let number_bytes = number.to_le_bytes();
        if !head.checks.is_empty() || !head.updates.is_empty() {
            let (first, _) = encode(head.checks.clone(), head.updates.clone(), atomic);
            if !log.push(&[&number_bytes, &first])? {
                return Ok(false);
            }
        }
        let is_in = log.push(&[&number_bytes, &part.0])?;
        let end = log.end();
        match messages.back_mut() {
            Some((last, at)) if *last == number => *at = end,
            _ => messages.push_back((number, end)),
        }
        Ok(is_in)
    }
    /// Returns false if messages in the log have to be sent first.
    pub fn has_room(&self, part: &Encoded) -> bool {
        let mut state = lock(&self.0);
        state.log.as_mut().is_none_or(|log| log.has_room(part.bytes() + HEAD_BYTES).unwrap_or(true))
    }
    /// Removes every message up to this number, since it is sent.
    pub fn sent(&self, number: u64) {
        let mut state = lock(&self.0);
        let LogState { log: Some(log), messages } = &mut *state else { return };
        let mut to = None;
        while messages.front().is_some_and(|(first, _)| *first <= number) {
            to = messages.pop_front().map(|(_, end)| end);
        }
        if let Some(to) = to {
            log.take_back(to);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::aligned::AlignedBuf;
    use cenote_model::{ContainerId, IndexId, IndexKey};
    use cenote_rpc::RingMemory;

    use super::*;

    #[allow(unsafe_code, reason = "memory of a ring")]
    fn memory() -> RingMemory {
        let mut buffer = AlignedBuf::new(256 << 10);
        let (base, len) = (buffer.as_mut_ptr(), buffer.len());
        // SAFETY: the buffer is as long, lives as long as the memory, and nobody else uses it.
        unsafe { RingMemory::new(base, len, Arc::new(buffer)) }.unwrap()
    }

    /// The preconditions of a message (checks, a record of a series, or both) precede its first part in the log.
    #[test]
    fn preconditions_of_a_message_precede_it() {
        let index = IndexKey { container: ContainerId(1), index: IndexId(1) };
        let put = Update::Put { index, key: b"key".to_vec(), value: b"value".to_vec(), only_new: false };
        let check = Check::Value { index, key: b"key".to_vec(), value: None };
        let (part, _) = Encoded::new(vec![put.clone()], true);
        let part = part.unwrap();
        for (checks, updates, frames) in [
            (vec![], vec![], 1),
            (vec![check.clone()], vec![], 2),
            (vec![], vec![put.clone()], 2),
            (vec![check], vec![put], 2),
        ] {
            let log = FrameLog::new(memory()).unwrap();
            let redo_log = RedoLog(Mutex::new(LogState { log: Some(log), messages: VecDeque::new() }));
            assert!(redo_log.put(7, &Head { checks, updates }, &part, true).unwrap());
            let mut found = lock(&redo_log.0).log.as_ref().unwrap().frames().unwrap();
            let mut count = 0;
            while found.is_ready() {
                let frame = found.take().unwrap().unwrap();
                assert_eq!(frame[..8], 7u64.to_le_bytes());
                count += 1;
            }
            assert_eq!(count, frames);
        }
    }
}
