//! One client's rings: requests in, responses out.
#![allow(unsafe_code, reason = "rings lie in memory shared with the client")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cenote_device::control::ClientFile;
use cenote_model::{Error, ErrorKind, Request, Response, Result};
use cenote_rpc::{Consumer, Doorbell, Producer, RingMemory, Waker};
use cenote_store::SessionId;
use cenote_wire::{Assembly, MESSAGE_BYTES_MAX, decode_request, encode_response, parts};

use super::Daemon;
use crate::Client;
use crate::client_recovery::Gate;
use crate::handling::Handling;
use crate::service::lock;

/// Upper bound of the requests taken from one client before the next one's turn.
const TURN: usize = 64;

/// State shared between the socket's thread, threads that answer late, and the ring thread.
pub(super) struct Standing {
    pub session: SessionId,
    /// That of the ring thread.
    bell: Doorbell,
    left: AtomicBool,
    late: Mutex<Vec<(u64, Response)>>,
}

impl Standing {
    pub fn new(session: SessionId, bell: Doorbell) -> Self {
        Self { session, bell, left: AtomicBool::new(false), late: Mutex::default() }
    }
    /// Marks the client as gone: its rings are no longer read.
    pub fn leave(&self) {
        self.left.store(true, Ordering::SeqCst);
    }
}

/// A client, as the ring thread sees it.
pub(super) struct Peer {
    standing: Arc<Standing>,
    file: ClientFile,
    gate: Arc<Gate>,
    requests: Consumer,
    responses: Producer,
    assembly: Assembly,
    /// Encoded responses that do not fit the ring yet, and the number of frames of the first that were
    /// sent.
    waiting: VecDeque<Vec<u8>>,
    frames_sent: usize,
    buffer: Vec<u8>,
    /// Time of its last request.
    asked_at: Instant,
    is_lost: bool,
}

impl Peer {
    pub fn new(client: &Client, standing: Arc<Standing>) -> Result<Self> {
        let [requests, responses] = ring_memories(&client.file)?;
        Ok(Self {
            standing,
            file: client.file.clone(),
            gate: client.gate.clone(),
            requests: Consumer::new(requests)?,
            responses: Producer::new(responses, Waker::Futex)?,
            assembly: Assembly::default(),
            waiting: VecDeque::new(),
            frames_sent: 0,
            buffer: Vec::new(),
            asked_at: Instant::now(),
            is_lost: false,
        })
    }
    /// Returns true if the client needs no more turns.
    pub fn is_gone(&self) -> bool {
        self.is_lost || self.standing.left.load(Ordering::SeqCst)
    }
    /// The ring of requests, to wait on.
    pub fn requests(&self) -> &Consumer {
        &self.requests
    }
    /// Time of the client's last request.
    pub fn asked_at(&self) -> Instant {
        self.asked_at
    }
    /// Returns true if responses wait for the client to read; until then its requests wait too.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty()
    }
    /// Takes the client's requests and answers those that can be answered. Returns true if there was
    /// anything to do.
    pub fn turn(&mut self, daemon: &Arc<Daemon>) -> bool {
        match self.try_turn(daemon) {
            Ok(busy) => busy,
            Err(error) => {
                if error.kind() != ErrorKind::Disconnected {
                    tracing::warn!(%error, session = self.standing.session.0, "a client is let go");
                }
                self.close();
                true
            }
        }
    }
    /// Tells the client that no more responses come.
    pub fn close(&mut self) {
        self.is_lost = true;
        self.responses.publish();
        self.responses.close();
        self.requests.close();
    }
    fn try_turn(&mut self, daemon: &Arc<Daemon>) -> Result<bool> {
        if self.file.mapping().is_torn() {
            return Err(Error::new(ErrorKind::Corrupt, "the rings of a client").because("it truncated their file"));
        }
        let mut busy = self.send_late()?;
        if self.flush()? && self.requests.is_ready() {
            busy = true;
            let gate = self.gate.clone();
            let Some(_taking) = gate.enter() else {
                self.is_lost = true;
                return Ok(true);
            };
            self.asked_at = Instant::now();
            let mut engine = None;
            for _ in 0..TURN {
                if !self.one(daemon, &mut engine)? || self.is_blocked() {
                    break;
                }
            }
            drop(engine);
            self.requests.release();
        }
        self.responses.publish();
        Ok(busy)
    }
    /// Handles one frame. Returns false if there is none.
    fn one<'a>(&mut self, daemon: &'a Arc<Daemon>, engine: &mut Option<Handling<'a>>) -> Result<bool> {
        let Some(frame) = self.requests.take()? else { return Ok(false) };
        let Some(decoded) = self.assembly.take(frame, decode_request)? else { return Ok(true) };
        let (seq, request) = decoded?;
        let is_shutdown = matches!(request, Request::Shutdown);
        let engine = engine.get_or_insert_with(|| daemon.host.service.lock());
        let standing = &self.standing;
        let later = || -> crate::Reply {
            let standing = standing.clone();
            Box::new(move |response| {
                lock(&standing.late).push((seq, response));
                standing.bell.ring();
            })
        };
        if let Some(response) = engine.handle(standing.session, seq, request, later) {
            if is_shutdown && matches!(response, Response::Done) {
                daemon.stop();
            }
            self.respond(seq, &response)?;
        }
        Ok(true)
    }
    /// Sends responses that other threads delivered.
    fn send_late(&mut self) -> Result<bool> {
        let late = std::mem::take(&mut *lock(&self.standing.late));
        let busy = !late.is_empty();
        for (seq, response) in late {
            self.respond(seq, &response)?;
        }
        Ok(busy)
    }
    fn respond(&mut self, seq: u64, response: &Response) -> Result<()> {
        self.buffer.clear();
        encode_response(seq, response, &mut self.buffer);
        if self.buffer.len() > MESSAGE_BYTES_MAX {
            let error = Error::new(ErrorKind::LimitExceeded, "answer")
                .because(format!("it has {} bytes; a message has at most {MESSAGE_BYTES_MAX}", self.buffer.len()))
                .try_next("ask for less at a time");
            self.buffer.clear();
            encode_response(seq, &Response::Failed(error), &mut self.buffer);
        }
        if self.waiting.is_empty() {
            let (sent, whole) = send(&mut self.responses, &self.buffer, 0)?;
            if whole {
                return Ok(());
            }
            self.frames_sent = sent;
        }
        self.waiting.push_back(std::mem::take(&mut self.buffer));
        Ok(())
    }
    /// Sends waiting responses; returns true if none is left.
    fn flush(&mut self) -> Result<bool> {
        while let Some(message) = self.waiting.front() {
            let (sent, whole) = send(&mut self.responses, message, self.frames_sent)?;
            if !whole {
                self.frames_sent = sent;
                return Ok(false);
            }
            self.frames_sent = 0;
            self.waiting.pop_front();
        }
        Ok(true)
    }
}

/// Pushes the frames of a message from number `from` on; returns the number of frames sent so far, and
/// whether that is all.
fn send(ring: &mut Producer, message: &[u8], from: usize) -> Result<(usize, bool)> {
    let mut sent = from;
    for (flag, piece) in parts(message, ring.frame_max()).skip(from) {
        if !ring.try_push(&[&[flag], piece])? {
            return Ok((sent, false));
        }
        sent += 1;
    }
    Ok((sent, true))
}

/// The memory of the two rings in a client's file: requests, responses.
pub fn ring_memories(file: &ClientFile) -> Result<[RingMemory; 2]> {
    let missing = || Error::new(ErrorKind::Corrupt, "client file").because("it has no rings");
    let [requests, responses] = file.rings().ok_or_else(missing)?;
    let wrap = |(base, len)| {
        // SAFETY: the memory belongs to the mapping, which the ring keeps alive; only rings use it.
        unsafe { RingMemory::new(base, len, file.mapping().clone()) }
    };
    Ok([wrap(requests)?, wrap(responses)?])
}
