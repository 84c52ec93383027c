//! Processes of daemons, and what they say to each other.

use bytes::Bytes;
use cenote_cluster::register::{Held, Token};
use cenote_cluster::{Beat, Notice};
use cenote_ha::View;
use cenote_model::{HomeId, NodeId, Request, Response};

use super::net::ConnId;
use super::{Check, Cluster};

/// A process of a daemon.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Proc {
    pub node: NodeId,
    pub incarnation: u64,
}

/// What goes without a connection of its own: questions about the view, and their answers.
#[derive(Clone)]
pub(super) enum Letter {
    /// To a board.
    Beat(Proc, Box<Beat>),
    /// To the register: what does it hold? For a beat of a process with this number, which held a view with that one.
    Look { of: Proc, number: u64, holds_view: u64 },
    /// To the board that looked.
    Looked { of: Proc, number: u64, holds_view: u64, held: Option<Box<Held>> },
    /// From the board of a node, to the beat with this number.
    Notice(NodeId, u64, Box<Notice>),
    /// To the register.
    Swap { seen: Token, view: Box<View>, asked_us: u64 },
    /// From the register.
    Swapped { held: Option<Box<Held>>, asked_us: u64 },
    /// A machine refuses connections.
    Refused(NodeId),
    /// A home was opened here from its copy.
    Opened(HomeId, u64),
}

/// What goes over a connection.
#[derive(Clone, Debug)]
pub(super) enum Message {
    /// The changes of a home follow: its host in this term, the number of its opening.
    Mirror {
        home: HomeId,
        term: u64,
        stream: u64,
    },
    /// The number of the last chunk that is here.
    Has(u64),
    /// Changes of a home.
    Chunk(u64, Bytes),
    /// No more of this here.
    Declined,
    /// Whoever asks is to be the host of a home.
    Yield(HomeId),
    Yielded,
    /// A client's session of a home.
    Open {
        home: HomeId,
        nonce: u128,
    },
    Request(u64, Box<Request>),
    Response(u64, Box<Response>),
    /// The other end is closed.
    Ended,
}

impl Cluster {
    pub(super) fn is_running(&self, process: Proc) -> bool {
        let node = &self.nodes[usize::from(process.node.0)];
        node.is_running && node.incarnation == process.incarnation
    }
    /// Returns true if the process is there and does nothing.
    pub(super) fn is_stopped(&self, process: Proc) -> bool {
        self.is_running(process) && self.nodes[usize::from(process.node.0)].is_stopped
    }
    pub(super) fn daemon_gets(&mut self, process: Proc, id: ConnId, message: Message) -> Check {
        match message {
            Message::Mirror { home, term, stream } => self.keep(process, id, home, term, stream),
            Message::Chunk(number, bytes) => self.take_chunk(process, id, number, &bytes),
            Message::Has(number) => self.confirmed(process, id, number),
            Message::Declined => self.declined(process, id),
            Message::Yield(home) => self.begin_yielding(process, id, home),
            Message::Yielded => self.yielded(process, id),
            Message::Open { home, nonce } => self.open_session(process, id, home, nonce),
            Message::Request(seq, request) => self.take_request(process, id, seq, *request),
            Message::Response(..) => Err("a daemon got a response".into()),
            Message::Ended => {
                self.connection_ended(process, id);
                Ok(())
            }
        }
    }
}
