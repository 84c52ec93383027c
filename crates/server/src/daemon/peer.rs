//! One client's rings: requests in, responses out.
#![allow(unsafe_code, reason = "rings lie in memory shared with the client")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote_device::control::ClientFile;
use cenote_model::{ClusterChange, Error, ErrorKind, HomeId, Request, Response, Result};
use cenote_rpc::{Consumer, Doorbell, Producer, RingMemory, Waker};
use cenote_store::SessionId;
use cenote_wire::{Assembly, MESSAGE_BYTES_MAX, PART_LAST, decode_request, encode_response, number_of, parts};

use super::Daemon;
use super::nodes::Nodes;
use crate::Client;
use crate::client_recovery::Gate;
use crate::handling::Handling;
use crate::mirroring::{Held, Mirroring};
use crate::service::lock;

/// A client that reads takes at most so long to make room in its ring…
const BLOCKED_BRIEFLY: Duration = Duration::from_millis(20);
/// …during which its thread looks this often,
const PAUSE_BRIEF: Duration = Duration::from_micros(30);
/// and later this often.
const PAUSE: Duration = Duration::from_millis(1);
/// Upper bound of the requests taken from one client before the next one's turn.
const TURN: usize = 64;

/// Answers a client's messages.
pub(super) trait Answering {
    /// Takes a message. Appends the encoded answer to `out`, unless it comes later. Returns true if the answer tells nothing
    /// of the home, so that it waits for no mirror.
    fn take(&mut self, standing: &Arc<Standing>, message: &[u8], out: &mut Vec<u8>) -> Result<bool>;
    /// Returns true for a message that needs nothing of the home: it is taken while mirrors are too far behind for others.
    fn needs_no_home(&self, _message: &[u8]) -> bool {
        false
    }
    /// Whether frames are handed on as they are.
    const FORWARDS: bool = false;
    /// Takes a frame that is a whole message behind its first byte.
    fn forward(&mut self, standing: &Arc<Standing>, frame: Vec<u8>) -> Result<()> {
        self.take(standing, &frame[1..], &mut Vec::new()).map(drop)
    }
    /// No more messages come for now.
    fn rest(&mut self) {}
    /// Returns true if a message of the session was put aside: those behind it stay in the ring, and it too, so that the
    /// next daemon finds it there.
    fn holds(&self, _session: SessionId) -> bool {
        false
    }
}

/// Answers from the engines of this process. Those that the last message asked stay locked until there are no more.
pub(super) struct FromEngines<'a> {
    daemon: &'a Daemon,
    engines: Option<Handling<'a>>,
}

impl<'a> FromEngines<'a> {
    pub fn of(daemon: &'a Daemon) -> Self {
        Self { daemon, engines: None }
    }
    /// Changes the cluster, on a thread of its own where the register may take its time. Returns true if it is done at once.
    fn change_cluster(
        &self,
        nodes: Arc<Nodes>,
        (standing, seq): (&Arc<Standing>, u64),
        change: ClusterChange,
        out: &mut Vec<u8>,
    ) -> bool {
        let request = Request::ChangeCluster { change };
        let may = self.daemon.host.service.with_engine(|engine| engine.may(standing.session, &request));
        let answer = |changed: Result<()>| changed.map_or_else(Response::Failed, |()| Response::Done);
        if let Err(error) = may.and_then(|may| may) {
            encode_answer(seq, &Response::Failed(error), out);
            return true;
        }
        if change == ClusterChange::Reread {
            encode_answer(seq, &answer(nodes.change(change)), out);
            return true;
        }
        let to = standing.clone();
        // It tells nothing of the home, whose mirrors may be what the change is about: nobody waits for them.
        let run = move || to.answer_apart(seq, answer(nodes.change(change)));
        if let Err(error) = std::thread::Builder::new().name("cenote-change".into()).spawn(run) {
            let error = Error::io("a thread that changes the cluster", &error);
            encode_answer(seq, &Response::Failed(error), out);
        }
        false
    }
}

impl Answering for FromEngines<'_> {
    fn take(&mut self, standing: &Arc<Standing>, message: &[u8], out: &mut Vec<u8>) -> Result<bool> {
        let (seq, request) = decode_request(message)?;
        if matches!(request, Request::HaReport)
            && let Some(report) = self.daemon.nodes.as_ref().map(|nodes| nodes.report())
        {
            encode_answer(seq, &Response::Ha(Box::new(report)), out);
            return Ok(true);
        }
        if let (Request::Protect { losses }, Some(mirroring)) = (&request, &self.daemon.host.mirroring) {
            encode_answer(seq, &mirroring.protects(self.daemon.host.summary.home, *losses), out);
            return Ok(false);
        }
        if let (Request::ChangeCluster { change }, Some(nodes)) = (&request, self.daemon.nodes.clone()) {
            self.engines = None;
            return Ok(self.change_cluster(nodes, (standing, seq), *change, out));
        }
        let is_shutdown = matches!(request, Request::Shutdown { .. });
        let whole = matches!(request, Request::Shutdown { cluster: true });
        let (home, mirroring) = (self.daemon.host.summary.home, self.daemon.host.mirroring.as_ref());
        if let Some(error) = mirroring.and_then(|it| it.refusal_of_more(home)).filter(|_| !is_shutdown) {
            encode_answer(seq, &Response::Failed(error), out);
            return Ok(true);
        }
        let engines = self.engines.get_or_insert_with(|| self.daemon.host.service.lock());
        let later = || -> crate::Reply {
            let standing = standing.clone();
            Box::new(move |response| standing.answer_late(seq, response))
        };
        if let Some(response) = engines.handle(standing.session, seq, request, later) {
            if is_shutdown && matches!(response, Response::Done) {
                if let Some(nodes) = self.daemon.nodes.as_ref().filter(|_| whole) {
                    self.engines = None; // others go on meanwhile
                    nodes.say_closing();
                }
                self.daemon.end();
            }
            encode_answer(seq, &response, out);
        }
        Ok(is_shutdown)
    }
    fn needs_no_home(&self, message: &[u8]) -> bool {
        let request = decode_request(message).map(|(_, request)| request);
        matches!(request, Ok(Request::HaReport | Request::ChangeCluster { .. } | Request::Shutdown { .. }))
    }
    fn rest(&mut self) {
        self.engines = None;
    }
    fn holds(&self, session: SessionId) -> bool {
        self.daemon.host.service.words.get().is_some_and(|words| words.waits(session))
    }
}

/// Appends an encoded answer, or one that says that it is too long.
pub(super) fn encode_answer(seq: u64, response: &Response, out: &mut Vec<u8>) {
    let begin = out.len();
    encode_response(seq, response, out);
    let len = out.len() - begin;
    if len > MESSAGE_BYTES_MAX {
        let error = Error::new(ErrorKind::LimitExceeded, "answer")
            .because(format!("it has {len} bytes; a message has at most {MESSAGE_BYTES_MAX}"))
            .try_next("ask for less at a time");
        out.truncate(begin);
        encode_response(seq, &Response::Failed(error), out);
    }
}

/// An answer that another thread delivers.
struct Late {
    seq: u64,
    response: Response,
    /// It tells something of the home, which its mirrors are to have first.
    is_of_home: bool,
}

/// State shared between the socket's thread, threads that answer late, and the ring thread.
pub(super) struct Standing {
    pub session: SessionId,
    /// That of the ring thread.
    bell: Doorbell,
    left: AtomicBool,
    late: Mutex<Vec<Late>>,
}

impl Standing {
    pub fn new(session: SessionId, bell: Doorbell) -> Self {
        Self { session, bell, left: AtomicBool::new(false), late: Mutex::default() }
    }
    fn answer_late(&self, seq: u64, response: Response) {
        self.put(Late { seq, response, is_of_home: true });
    }
    /// The same for an answer that tells nothing of the home.
    fn answer_apart(&self, seq: u64, response: Response) {
        self.put(Late { seq, response, is_of_home: false });
    }
    fn put(&self, late: Late) {
        lock(&self.late).push(late);
        self.bell.ring();
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
    /// When the first of them did not fit.
    blocked_at: Instant,
    /// Time of its last request.
    asked_at: Instant,
    is_lost: bool,
    /// Its last request was put aside.
    is_held: bool,
    /// A request that was taken from the ring, and waits until the mirrors keep up. It stays in the ring, so that the next daemon
    /// finds it there.
    aside: Option<Vec<u8>>,
    /// Of a home with copies on other nodes: it says which answers may be told.
    mirroring: Option<Arc<Mirroring>>,
    home: HomeId,
    held: Held<Vec<u8>>,
}

impl Peer {
    /// `mirroring`: that of the home, if this process has it.
    pub fn new(
        client: &Client,
        standing: Arc<Standing>,
        home: HomeId,
        mirroring: Option<Arc<Mirroring>>,
    ) -> Result<Self> {
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
            blocked_at: Instant::now(),
            asked_at: Instant::now(),
            is_lost: false,
            is_held: false,
            aside: None,
            mirroring,
            home,
            held: Held::default(),
        })
    }
    /// Its session.
    pub fn session(&self) -> SessionId {
        self.standing.session
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
    /// Returns true if responses wait for the client to read, or for mirrors that are behind, or a request was put aside;
    /// until then its requests wait too.
    pub fn is_blocked(&self) -> bool {
        !self.waiting.is_empty() || self.is_held || self.aside.is_some()
    }
    /// How long to sleep at most, if responses wait for the client to read: it rings no doorbell when it does.
    pub fn pause(&self) -> Option<Duration> {
        let pause = if self.blocked_at.elapsed() < BLOCKED_BRIEFLY { PAUSE_BRIEF } else { PAUSE };
        self.is_blocked().then_some(pause)
    }
    /// Takes the client's requests and answers those that can be answered. Returns true if there was
    /// anything to do.
    pub fn turn(&mut self, mut answers: impl Answering) -> bool {
        match self.try_turn(&mut answers) {
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
    fn try_turn<A: Answering>(&mut self, answers: &mut A) -> Result<bool> {
        if self.file.mapping().is_torn() {
            return Err(Error::new(ErrorKind::Corrupt, "the rings of a client").because("it truncated their file"));
        }
        let mut busy = self.tell_held()? | self.send_late()?;
        if self.is_held && !answers.holds(self.session()) {
            self.is_held = false;
            self.requests.release();
        }
        let is_next = if self.aside.is_some() { self.may_take() } else { self.requests.is_ready() };
        if self.flush()? && !self.is_held && is_next {
            busy = true;
            let gate = self.gate.clone();
            let Some(_taking) = gate.enter() else {
                self.is_lost = true;
                return Ok(true);
            };
            self.asked_at = Instant::now();
            for _ in 0..TURN {
                if !self.one(answers)? || self.is_blocked() {
                    break;
                }
            }
            answers.rest();
            if !self.is_held && self.aside.is_none() {
                self.requests.release();
            }
        }
        self.responses.publish();
        Ok(busy)
    }
    /// Handles one frame. Returns false if there is none.
    fn one<A: Answering>(&mut self, answers: &mut A) -> Result<bool> {
        self.buffer.clear();
        let (standing, buffer) = (&self.standing, &mut self.buffer);
        let mut tells_nothing = None;
        if let Some(message) = self.aside.take() {
            tells_nothing = Some(answers.take(standing, &message, buffer)?);
        } else if A::FORWARDS {
            let Some(frame) = self.requests.take_owned()? else { return Ok(false) };
            if self.assembly.is_empty() && frame.first() == Some(&PART_LAST) {
                answers.forward(standing, frame)?;
            } else {
                self.assembly.take(&frame, |message| answers.take(standing, message, buffer))?.transpose()?;
            }
        } else {
            let may_take = self.mirroring.as_ref().is_none_or(|mirroring| mirroring.may_take(self.home));
            let aside = &mut self.aside;
            let Some(frame) = self.requests.take()? else { return Ok(false) };
            let taken = self.assembly.take(frame, |message| {
                if may_take || answers.needs_no_home(message) {
                    return answers.take(standing, message, buffer);
                }
                *aside = Some(message.to_vec());
                Ok(false)
            })?;
            tells_nothing = taken.transpose()?;
        }
        if tells_nothing == Some(true) && !self.buffer.is_empty() {
            self.send_now()?;
        } else {
            self.send_buffer()?;
        }
        if answers.holds(self.session()) {
            (self.is_held, self.blocked_at) = (true, Instant::now());
        }
        Ok(true)
    }
    /// Sends responses that other threads delivered.
    fn send_late(&mut self) -> Result<bool> {
        let late = std::mem::take(&mut *lock(&self.standing.late));
        let busy = !late.is_empty();
        for Late { seq, response, is_of_home } in late {
            self.buffer.clear();
            encode_answer(seq, &response, &mut self.buffer);
            if is_of_home { self.send_buffer()? } else { self.send_now()? }
        }
        Ok(busy)
    }
    /// Hands on an answer that is encoded already.
    pub fn pass_on(&mut self, answer: &[u8]) {
        if self.try_pass_on(answer).is_err() {
            self.close();
        }
    }
    fn try_pass_on(&mut self, answer: &[u8]) -> Result<()> {
        if self.waiting.is_empty() {
            let (sent, whole) = send(&mut self.responses, answer, 0)?;
            if whole {
                return Ok(());
            }
            (self.frames_sent, self.blocked_at) = (sent, Instant::now());
        }
        self.waiting.push_back(answer.to_vec());
        Ok(())
    }
    /// Makes the answers visible that were handed on.
    pub fn publish(&mut self) {
        self.responses.publish();
    }
    /// Returns true if requests may be taken: the mirrors keep up, and this node may act for the home.
    fn may_take(&self) -> bool {
        self.mirroring.as_ref().is_none_or(|mirroring| mirroring.may_take(self.home))
    }
    /// Sends answers that may be told by now. Returns true if there were any.
    fn tell_held(&mut self) -> Result<bool> {
        let Some(mirroring) = self.mirroring.clone().filter(|_| !self.held.is_empty()) else { return Ok(false) };
        let mut busy = false;
        while let Some((answer, refusal)) = self.held.next(&mirroring, self.home) {
            self.buffer = answer;
            if let (Some(error), Some(seq)) = (refusal, number_of(&self.buffer)) {
                self.buffer.clear();
                encode_answer(seq, &Response::Failed(error), &mut self.buffer);
            }
            self.send_now()?;
            busy = true;
        }
        Ok(busy)
    }
    /// Sends the answer in the buffer, if there is one, once the mirrors have what it tells.
    fn send_buffer(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        if let Some(mirroring) = &self.mirroring {
            let Some(answer) = self.held.keep(mirroring, std::mem::take(&mut self.buffer)) else { return Ok(()) };
            self.buffer = answer;
        }
        self.send_now()
    }
    fn send_now(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            let (sent, whole) = send(&mut self.responses, &self.buffer, 0)?;
            if whole {
                return Ok(());
            }
            self.frames_sent = sent;
            self.blocked_at = Instant::now();
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
