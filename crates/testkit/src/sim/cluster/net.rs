//! The net: links that are slow, cut in one direction or both, and connections over them. What is on its way when a link
//! is cut comes later, as TCP sends again; what a process sent before it died can still arrive.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::NodeId;

use super::process::{Message, Proc};
use super::{Check, Cluster, What};

/// How long after a cut what was lost is sent again.
const AGAIN_US: u64 = 120_000;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ConnId(pub u64);

/// Who is at an end of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    Daemon(Proc),
    /// A client, and its node.
    Client(usize, NodeId),
}

impl End {
    fn node(self) -> NodeId {
        match self {
            Self::Daemon(process) => process.node,
            Self::Client(_, node) => node,
        }
    }
}

/// A connection; end 0 made it.
pub(super) struct Conn {
    pub ends: [End; 2],
    /// What is on its way to each end, in order.
    inbox: [VecDeque<Message>; 2],
    /// When the last of it arrives.
    last_us: [u64; 2],
    /// The end was closed: nothing is taken there any more.
    is_closed: [bool; 2],
}

#[derive(Default)]
pub(super) struct Net {
    pub cut: BTreeSet<(NodeId, NodeId)>,
    conns: BTreeMap<ConnId, Conn>,
    last: u64,
}

/// The place of the register in the net.
pub(super) const REGISTER: NodeId = NodeId(u16::MAX);

impl Net {
    pub fn is_open(&self, from: NodeId, to: NodeId) -> bool {
        from == to || !self.cut.contains(&(from, to))
    }
    pub fn peer(&self, conn: ConnId, end: usize) -> Option<End> {
        self.conns.get(&conn).map(|conn| conn.ends[1 - end])
    }
    /// Returns true while this end can send and receive.
    pub fn is_usable(&self, conn: ConnId, end: usize) -> bool {
        self.conns.get(&conn).is_some_and(|conn| !conn.is_closed[end])
    }
    /// All connections that a process has an end of.
    pub fn of(&self, process: Proc) -> Vec<(ConnId, usize)> {
        let ends = self.conns.iter().flat_map(|(id, conn)| [(*id, 0, conn.ends[0]), (*id, 1, conn.ends[1])]);
        ends.filter(|(_, _, end)| *end == End::Daemon(process)).map(|(id, end, _)| (id, end)).collect()
    }
}

impl Cluster {
    /// The time that something takes from one node to another.
    pub(super) fn delay_us(&mut self, from: NodeId, to: NodeId) -> u64 {
        if from == to {
            return 40;
        }
        let slow = |node: NodeId| self.nodes.get(usize::from(node.0)).map_or(0, |node| node.slow_us);
        let slow = slow(from) + slow(to);
        let jitter = if self.rng.chance(20) { self.rng.below(120_000) } else { self.rng.between(200, 4_000) };
        jitter + if slow > 0 { self.rng.below(slow) } else { 0 }
    }

    /// Connects to the process that runs on a node. `None`: nobody is reached there now.
    pub(super) fn connect(&mut self, from: End, to: NodeId) -> Option<ConnId> {
        let here = from.node();
        let there = self.nodes.get(usize::from(to.0))?;
        let is_reached = there.is_running && self.net.is_open(here, to) && self.net.is_open(to, here);
        if !is_reached {
            return None;
        }
        let ends = [from, End::Daemon(there.process())];
        self.net.last += 1;
        let id = ConnId(self.net.last);
        let now = self.now_us;
        let conn = Conn { ends, inbox: Default::default(), last_us: [now; 2], is_closed: [false; 2] };
        self.net.conns.insert(id, conn);
        Some(id)
    }

    /// Returns true if signs of life on a connection are refused: the process at its other end is gone, and its machine is there.
    pub(super) fn is_reset(&self, id: ConnId, end: usize) -> bool {
        let Some(conn) = self.net.conns.get(&id) else { return true };
        let (here, there) = (conn.ends[end].node(), conn.ends[1 - end]);
        let End::Daemon(process) = there else { return false };
        let is_up = self.nodes[usize::from(process.node.0)].is_machine_up;
        is_up
            && !self.is_running(process)
            && self.net.is_open(here, process.node)
            && self.net.is_open(process.node, here)
    }

    /// Sends from one end to the other, after all that was sent before.
    pub(super) fn post(&mut self, id: ConnId, from: usize, message: Message) {
        let Some(conn) = self.net.conns.get(&id).filter(|conn| !conn.is_closed[from]) else { return };
        let (sender, receiver) = (conn.ends[from].node(), conn.ends[1 - from].node());
        let at = self.now_us + self.delay_us(sender, receiver);
        let Some(conn) = self.net.conns.get_mut(&id) else { return };
        let to = 1 - from;
        conn.last_us[to] = conn.last_us[to].max(at);
        conn.inbox[to].push_back(message);
        let at = conn.last_us[to];
        self.schedule(at, What::Parcel(id, to));
    }

    /// Closes an end. The other one learns of it after all that was sent.
    pub(super) fn hang_up(&mut self, id: ConnId, end: usize) {
        self.post(id, end, Message::Ended);
        if let Some(conn) = self.net.conns.get_mut(&id) {
            conn.is_closed[end] = true;
            conn.inbox[end].clear();
        }
    }

    /// The machine with this end is gone: the other one hears nothing, not even that.
    pub(super) fn vanish(&mut self, id: ConnId, end: usize) {
        if let Some(conn) = self.net.conns.get_mut(&id) {
            conn.is_closed[end] = true;
            conn.inbox[end].clear();
        }
    }

    /// The next message on its way to an end arrives.
    pub(super) fn parcel(&mut self, id: ConnId, end: usize) -> Check {
        let Some(conn) = self.net.conns.get(&id) else { return Ok(()) };
        if conn.is_closed[end] {
            if conn.is_closed[1 - end] {
                self.net.conns.remove(&id);
            }
            return Ok(());
        }
        let (here, sender) = (conn.ends[end], conn.ends[1 - end].node());
        if !self.net.is_open(sender, here.node()) {
            self.schedule(self.now_us + AGAIN_US, What::Parcel(id, end));
            return Ok(());
        }
        if let End::Daemon(process) = here
            && self.is_stopped(process)
        {
            self.schedule(self.now_us + 30_000, What::Parcel(id, end));
            return Ok(());
        }
        let Some(message) = self.net.conns.get_mut(&id).and_then(|conn| conn.inbox[end].pop_front()) else {
            return Ok(());
        };
        if matches!(message, Message::Ended) {
            self.vanish(id, end);
        }
        match here {
            End::Daemon(process) if self.is_running(process) => self.daemon_gets(process, id, message),
            End::Daemon(_) => Ok(()),
            End::Client(client, _) => self.client_gets(client, id, message),
        }
    }
}
