//! Clients: each writes records and an object of its own, to a home on any node, and reads those of others. What they know of
//! who is the host is what the daemon of their node knows.

use std::collections::{BTreeMap, VecDeque};

use cenote_model::{
    ContainerId, ContainerSpec, Durability, ErrorKind, Extent, FlushTarget, HomeId, IndexId, IndexKey, NodeId,
    ObjectId, ObjectKey, Request, Response, Run, Sums, Update,
};
use cenote_store::{Engine, Outcome, SessionInfo};

use super::net::{ConnId, End};
use super::node::tuning;
use super::process::{Message, Proc};
use super::{Check, Cluster, FAULTS_END_US, What, to_ha, trace};
use crate::sim::client::brief;

/// Records that each client writes.
const RECORDS: u8 = 3;
/// Requests under way.
const WINDOW: usize = 4;
/// A client that hears nothing for so long connects anew.
const PATIENCE_US: u64 = 2_500_000;
const OBJECT_BYTES: usize = 3000;

/// What one client writes and all read: a record of it, or its object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Cell {
    writer: usize,
    /// The record; `RECORDS`: the object.
    which: u8,
}

/// The writes of a cell, which are numbered from 1 in the order of their requests.
#[derive(Default)]
struct Story {
    begun: u64,
    /// The highest number that was acknowledged, or read.
    known: u64,
}

/// What was written, and what of it was seen.
#[derive(Default)]
pub(super) struct Writes {
    cells: BTreeMap<Cell, Story>,
}

impl Writes {
    fn begin(&mut self, cell: Cell) -> u64 {
        let story = self.cells.entry(cell).or_default();
        story.begun += 1;
        story.begun
    }
    /// Whoever reads from now on sees this write or a later one.
    fn seen(&mut self, cell: Cell, number: u64) {
        let story = self.cells.entry(cell).or_default();
        story.known = story.known.max(number);
    }
    fn known(&self, cell: Cell) -> u64 {
        self.cells.get(&cell).map_or(0, |story| story.known)
    }
    /// A read that began when `least` was known found this.
    fn check(&mut self, cell: Cell, least: u64, found: u64) -> Check {
        let begun = self.cells.get(&cell).map_or(0, |story| story.begun);
        if found < least || found > begun {
            return Err(format!(
                "a read of {cell:?} finds write {found}; write {least} was known before it began, {begun} were begun"
            ));
        }
        self.seen(cell, found);
        Ok(())
    }
}

/// What a request is for.
#[derive(Clone, Copy, Debug)]
enum Goal {
    Write(Cell, u64),
    Read(Cell, u64),
    /// Space with the bytes of a write of the object.
    Room,
    Flush,
}

#[derive(Clone)]
struct Sent {
    seq: u64,
    request: Request,
    goal: Goal,
}

pub(super) struct Client {
    node: NodeId,
    home: HomeId,
    nonce: u128,
    is_alive: bool,
    seq: u64,
    conn: Option<ConnId>,
    sent: VecDeque<Sent>,
    /// Its turns are numbered: one that was planned before it was reset does not count.
    turn: u64,
    heard_us: u64,
    /// The object's write of which the bytes are in space that was given: its number is drawn when it is written.
    is_storing: bool,
}

/// The containers of homes.
fn container_of(home: HomeId) -> ContainerId {
    ContainerId(1000 + u64::from(home.0))
}

fn index_of(home: HomeId) -> IndexKey {
    IndexKey { container: container_of(home), index: IndexId(1) }
}

fn object_of(home: HomeId, writer: usize) -> ObjectKey {
    ObjectKey { container: container_of(home), object: ObjectId(1 + writer as u128) }
}

fn content_of(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(OBJECT_BYTES / 8)
}

/// The number of the write that all bytes are of.
fn number_of(bytes: &[u8]) -> Check<u64> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let first = bytes.get(..8).and_then(|first| first.try_into().ok()).map(u64::from_le_bytes);
    let number = first.ok_or_else(|| format!("an object of {} bytes", bytes.len()))?;
    if bytes == content_of(number) {
        Ok(number)
    } else {
        Err(format!("an object with bytes of write {number} and others"))
    }
}

impl Cluster {
    pub(super) fn make_clients(&mut self) -> Check {
        let count = self.nodes.len();
        for node in 0..count {
            for _ in 0..self.rng.between(1, 2) {
                let home = if self.rng.chance(300) { node } else { self.rng.index(count) };
                self.clients.push(Client {
                    node: NodeId(node as u16),
                    home: HomeId(home as u16),
                    nonce: 0,
                    is_alive: false,
                    seq: 0,
                    conn: None,
                    sent: VecDeque::new(),
                    turn: 0,
                    heard_us: 0,
                    is_storing: false,
                });
            }
        }
        for node in 0..count {
            self.make_content(NodeId(node as u16))?;
            self.clients_begin(NodeId(node as u16));
        }
        Ok(())
    }
    /// The container of a home, with what its clients write.
    fn make_content(&mut self, id: NodeId) -> Check {
        let durability = *self.rng.pick(&[Durability::Async, Durability::Async, Durability::Sync]);
        let node = &self.nodes[usize::from(id.0)];
        let (home, world) = (node.home, &node.own.world);
        let (mut engine, _) =
            Engine::open_tuned(world.seams(), tuning()).map_err(|error| format!("open: {error:?}"))?;
        let who = SessionInfo { nonce: 1, pid: 1, started: 1, write: true, ..SessionInfo::default() };
        let session = engine.session_open(who).map_err(|error| format!("session: {error:?}"))?;
        let spec = ContainerSpec { durability, ..ContainerSpec::default() };
        let container = Update::ContainerCreate { id: container_of(home), label: format!("c{}", home.0), spec };
        let objects = (0..self.clients.len()).filter(|client| self.clients[*client].home == home);
        let mut content = vec![Update::IndexCreate { key: index_of(home) }];
        content.extend(objects.map(|it| Update::ObjectCreate { key: object_of(home, it), block_shift: 9 }));
        for (seq, updates) in [(1, vec![container]), (2, content)] {
            let outcome = engine.handle(session, seq, Request::Apply { checks: Vec::new(), updates, atomic: true });
            let failed = match outcome {
                Outcome::Ready(Response::Failed(error)) => Some(error),
                _ => None,
            };
            if let Some(error) = failed {
                return Err(format!("the content of {home}: {error:?}"));
            }
        }
        engine.session_close(session);
        engine.close().map_err(|error| format!("close: {error:?}"))?;
        drop(engine);
        world.kill();
        Ok(())
    }
    /// The programs of a node begin.
    pub(super) fn clients_begin(&mut self, node: NodeId) {
        for at in 0..self.clients.len() {
            if self.clients[at].node != node || self.clients[at].is_alive {
                continue;
            }
            let nonce = u128::from(self.rng.next_u64());
            let (now, turn) = (self.now_us, self.clients[at].turn + 1);
            let client = &mut self.clients[at];
            (client.nonce, client.is_alive, client.seq, client.conn) = (nonce, true, 0, None);
            client.sent.clear();
            (client.turn, client.heard_us, client.is_storing) = (turn, now, false);
            let begin = now + self.rng.below(200_000);
            self.schedule(begin, What::Client(at, turn));
        }
    }
    /// The machine of a node is gone, and its programs are.
    pub(super) fn clients_end(&mut self, node: NodeId) {
        for at in 0..self.clients.len() {
            if self.clients[at].node == node {
                self.clients[at].is_alive = false;
                if let Some(conn) = self.clients[at].conn.take() {
                    self.vanish(conn, 0);
                }
            }
        }
    }
    /// What is known of the cells of a home may be gone.
    pub(super) fn forget_known(&mut self, home: HomeId) {
        for (at, client) in self.clients.iter_mut().enumerate().filter(|(_, client)| client.home == home) {
            for (_, story) in self.writes.cells.iter_mut().filter(|(cell, _)| cell.writer == at) {
                story.known = 0;
            }
            // So is space that was leased, and what was read under way may be of before.
            client.turn += 1;
            (client.is_alive, client.conn) = (false, None);
        }
        for node in (0..self.nodes.len() as u16).map(NodeId) {
            self.clients_begin(node);
        }
    }
    pub(super) fn client_turn(&mut self, at: usize, turn: u64) -> Check {
        let now = self.now_us;
        if self.clients[at].turn != turn || !self.clients[at].is_alive {
            return Ok(());
        }
        match self.clients[at].conn {
            None => self.attach(at),
            Some(conn) if !self.clients[at].sent.is_empty() && now - self.clients[at].heard_us > PATIENCE_US => {
                self.hang_up(conn, 0);
                self.clients[at].conn = None;
            }
            Some(_) if self.clients[at].sent.len() < WINDOW => self.ask_something(at),
            Some(_) => {}
        }
        let pause =
            if self.rng.chance(100) { self.rng.between(100_000, 600_000) } else { self.rng.between(2_000, 90_000) };
        self.schedule(now + pause, What::Client(at, turn));
        Ok(())
    }
    /// Connects to the host that the daemon of its node knows, and sends again what was not answered.
    fn attach(&mut self, at: usize) {
        let (node, home, nonce) = (self.clients[at].node, self.clients[at].home, self.clients[at].nonce);
        let own = &self.nodes[usize::from(node.0)];
        if !own.is_running || own.is_stopped {
            return;
        }
        let Some(host) = self.view_of(own.process()).and_then(|view| view.home(to_ha(home)).map(|entry| entry.host))
        else {
            return;
        };
        let Some(conn) = self.connect(End::Client(at, node), host) else { return };
        self.post(conn, 0, Message::Open { home, nonce });
        for sent in self.clients[at].sent.clone() {
            self.post(conn, 0, Message::Request(sent.seq, Box::new(sent.request)));
        }
        trace!(self.trace, "  client {at} of {home} attaches at node {} by {conn:?}", host.0);
        (self.clients[at].conn, self.clients[at].heard_us) = (Some(conn), self.now_us);
    }
    fn ask_something(&mut self, at: usize) {
        let home = self.clients[at].home;
        let peers: Vec<usize> = (0..self.clients.len()).filter(|it| self.clients[*it].home == home).collect();
        let peer = *self.rng.pick(&peers);
        match self.rng.below(12) {
            0..=4 => {
                let which = self.rng.below(u64::from(RECORDS)) as u8;
                let cell = Cell { writer: at, which };
                let number = self.writes.begin(cell);
                let mut value = number.to_le_bytes().to_vec();
                value.resize(8 + self.rng.below(700) as usize, which);
                let update = Update::Put { index: index_of(home), key: key_of(cell), value, only_new: false };
                self.ask(at, apply(vec![update]), Goal::Write(cell, number));
            }
            5 | 6 => {
                let cell = Cell { writer: peer, which: self.rng.below(u64::from(RECORDS)) as u8 };
                let least = self.writes.known(cell);
                self.ask(at, Request::Get { index: index_of(home), keys: vec![key_of(cell)] }, Goal::Read(cell, least));
            }
            7 | 8 if !self.clients[at].is_storing => {
                self.clients[at].is_storing = true;
                let cell = Cell { writer: at, which: RECORDS };
                // The number is that of the write which follows: no other one begins in between.
                let next = self.writes.cells.get(&cell).map_or(0, |story| story.begun) + 1;
                let (container, bytes) = (container_of(home), content_of(next));
                self.ask(at, Request::Deposit { container, bytes, avoid: Vec::new(), durability: None }, Goal::Room);
            }
            9 | 10 => {
                let cell = Cell { writer: peer, which: RECORDS };
                let least = self.writes.known(cell);
                let request = Request::Read { key: object_of(home, peer), offset: 0, len: OBJECT_BYTES as u32 };
                self.ask(at, request, Goal::Read(cell, least));
            }
            11 => self.ask(at, Request::Flush { target: FlushTarget::Container(container_of(home)) }, Goal::Flush),
            _ => {}
        }
    }
    fn ask(&mut self, at: usize, request: Request, goal: Goal) {
        let client = &mut self.clients[at];
        client.seq += 1;
        let seq = client.seq;
        client.sent.push_back(Sent { seq, request: request.clone(), goal });
        if let Some(conn) = client.conn {
            self.post(conn, 0, Message::Request(seq, Box::new(request)));
        }
    }
    pub(super) fn client_gets(&mut self, at: usize, conn: ConnId, message: Message) -> Check {
        if self.clients[at].conn != Some(conn) {
            return Ok(());
        }
        if let Message::Response(seq, response) = message {
            return self.answered(at, seq, *response);
        }
        self.hang_up(conn, 0);
        self.clients[at].conn = None;
        Ok(())
    }
    fn answered(&mut self, at: usize, seq: u64, response: Response) -> Check {
        self.clients[at].heard_us = self.now_us;
        let Some(index) = self.clients[at].sent.iter().position(|sent| sent.seq == seq) else { return Ok(()) };
        let Some(sent) = self.clients[at].sent.remove(index) else { return Ok(()) };
        self.count.answers += 1;
        self.trace.note(seq);
        trace!(self.trace, "  client {at} #{seq} {:?} -> {}", sent.goal, brief(&response));
        let home = self.clients[at].home;
        match (sent.goal, response) {
            (Goal::Write(cell, number), Response::Applied { .. }) => {
                if cell.which == RECORDS {
                    self.clients[at].is_storing = false;
                }
                self.writes.seen(cell, number);
                Ok(())
            }
            (Goal::Read(cell, least), Response::Values(values)) => {
                let found = match values.first() {
                    Some(Some((value, _))) => {
                        value.get(..8).and_then(|it| it.try_into().ok()).map_or(0, u64::from_le_bytes)
                    }
                    _ => 0,
                };
                self.count.reads += 1;
                self.writes.check(cell, least, found)
            }
            (Goal::Read(cell, least), Response::Bytes { bytes, .. }) => {
                self.count.reads += 1;
                self.writes.check(cell, least, number_of(&bytes)?)
            }
            (Goal::Room, Response::Lease(lease)) => {
                let Some(run) = lease.runs.first() else { return Err("a lease without runs".into()) };
                let cell = Cell { writer: at, which: RECORDS };
                let number = self.writes.begin(cell);
                let update = write_of(object_of(home, at), *run, &content_of(number));
                self.ask(at, apply(vec![update]), Goal::Write(cell, number));
                Ok(())
            }
            (Goal::Flush, Response::Done) => Ok(()),
            // A small store that is being copied can be full for a while.
            (Goal::Room | Goal::Flush, Response::Failed(error))
                if matches!(error.kind(), ErrorKind::Full | ErrorKind::Busy) =>
            {
                self.clients[at].is_storing &= !matches!(sent.goal, Goal::Room);
                Ok(())
            }
            (goal, response) => Err(format!("client {at}: {goal:?} is answered by {response:?}")),
        }
    }
    pub(super) fn clients_are_answered(&self) -> Check {
        for (at, client) in self.clients.iter().enumerate() {
            if !client.is_alive || client.heard_us < FAULTS_END_US {
                return Err(format!("client {at} of {} was answered last at {}", client.home, client.heard_us));
            }
        }
        Ok(())
    }

    // The daemon's side.

    pub(super) fn open_session(&mut self, process: Proc, conn: ConnId, home: HomeId, nonce: u128) -> Check {
        // As a home ends the former connection of a node that connects anew: nothing comes out of that any more.
        if let Some(client @ End::Client(..)) = self.net.peer(conn, 1) {
            let former = |(id, end): &(ConnId, usize)| *id < conn && *end == 1 && self.net.peer(*id, 1) == Some(client);
            let former: Vec<ConnId> = self.net.of(process).into_iter().filter(former).map(|(id, _)| id).collect();
            for id in former {
                self.hang_up(id, 1);
                self.node(process.node).homes.values_mut().for_each(|open| open.sessions.retain(|conn, _| *conn != id));
            }
        }
        let from = self.net.peer(conn, 1).map(|end| match end {
            End::Daemon(process) => process.node,
            End::Client(_, node) => node,
        });
        let node = self.node(process.node);
        let Some(open) = node.homes.get_mut(&home).filter(|open| !open.is_fenced) else {
            self.post(conn, 1, Message::Declined);
            self.hang_up(conn, 1);
            return Ok(());
        };
        let who = SessionInfo { nonce, pid: 7, started: 7, write: true, node: from, ..SessionInfo::default() };
        let session = open.engine.session_open(who);
        match session {
            Ok(session) => drop(open.sessions.insert(conn, session)),
            Err(error) if open.place.world.faults.is_dead() => {
                trace!(self.trace, "no session: {error}");
                self.end_process(process.node, false);
            }
            Err(error) => return Err(format!("session_open: {error:?}")),
        }
        Ok(())
    }
    pub(super) fn take_request(&mut self, process: Proc, conn: ConnId, seq: u64, request: Request) -> Check {
        let homes = &self.nodes[usize::from(process.node.0)].homes;
        let home = homes.iter().find(|(_, open)| open.sessions.contains_key(&conn)).map(|(home, _)| *home);
        let Some(home) = home else {
            self.hang_up(conn, 1);
            return Ok(());
        };
        self.handle(process, home, conn, seq, request);
        if self.is_running(process) {
            self.pump(process, home);
        }
        Ok(())
    }
}

fn key_of(cell: Cell) -> Vec<u8> {
    format!("client {} record {}", cell.writer, cell.which).into_bytes()
}

fn apply(updates: Vec<Update>) -> Request {
    Request::Apply { checks: Vec::new(), updates, atomic: true }
}

/// The update that makes bytes in leased space a write.
fn write_of(key: ObjectKey, run: Run, bytes: &[u8]) -> Update {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    let extent = Extent::whole(run.device, run.offset, bytes.len() as u32, Sums::from_slice(&[sum]));
    Update::Write { key, offset: 0, extent }
}
