//! The register and the board, on a node that keeps them.
//!
//! A beat is noted at once and answered after a look at the register that began later: leases count from the answers.
//! Questions to the register may wait for a disk. Each has a thread of its own.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use cenote_cluster::register::{GroupRegister, Held, Register, answer};
use cenote_cluster::{Beat, Board, Notice, first_view};
use cenote_model::{Error, ErrorKind, NodeId, Result};
use cenote_rpc::net::TcpConnection;
use cenote_wire::NodeMessage;

use super::super::roster::Roster;
use super::desk::{Desk, Line};
use super::looks::Looks;
use super::times::now_us;
use crate::service::lock;

/// Questions that may wait; more are not answered, as if they were lost.
const QUESTIONS_MAX: usize = 1024;
/// Interval at which a thread looks whether the daemon stops.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long a look at the register waits for more beats: nodes beat together.
const GATHER: Duration = Duration::from_millis(5);

/// Messages that wait for a thread.
struct Inbox<T> {
    waiting: Mutex<Vec<T>>,
    came: Condvar,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self { waiting: Mutex::default(), came: Condvar::new() }
    }
}

impl<T> Inbox<T> {
    /// Changes what waits, to which something is added.
    fn add(&self, add: impl FnOnce(&mut Vec<T>)) {
        add(&mut lock(&self.waiting));
        self.came.notify_one();
    }
    /// Takes all messages; waits for one until it is time to look whether the daemon stops, and then so long for more.
    fn take(&self, gather: Duration) -> Vec<T> {
        let waited = self.came.wait_timeout_while(lock(&self.waiting), LOOK_EVERY, |waiting| waiting.is_empty());
        let is_empty = waited.unwrap_or_else(std::sync::PoisonError::into_inner).0.is_empty();
        if !is_empty {
            std::thread::sleep(gather);
        }
        std::mem::take(&mut *lock(&self.waiting))
    }
    fn wake(&self) {
        self.came.notify_all();
    }
}

/// A question of another node about the register.
struct Question {
    line: Line,
    number: u64,
    request: Vec<u8>,
}

/// A beat that is not answered yet.
struct Waiting {
    line: Line,
    number: u64,
    holds_view: u64,
}

/// See the module.
pub(in super::super) struct Keeper {
    roster: Arc<Roster>,
    register: Arc<dyn Register>,
    /// This node's part of it, if nodes keep it together.
    group: Option<Arc<GroupRegister>>,
    board: Mutex<Board>,
    desk: Arc<Desk>,
    questions: Inbox<Question>,
    waiting: Inbox<Waiting>,
    looks: Looks<Result<Option<Held>>>,
}

impl Keeper {
    /// The board of a node that reaches the register in this way.
    pub fn new(roster: &Arc<Roster>, register: Arc<dyn Register>, group: Option<Arc<GroupRegister>>) -> Result<Self> {
        Ok(Self {
            roster: roster.clone(),
            register,
            group,
            board: Mutex::new(Board::new(now_us())),
            desk: Arc::new(Desk::new()?),
            questions: Inbox::default(),
            waiting: Inbox::default(),
            looks: Looks::default(),
        })
    }
    /// Takes the connection of another node's watch, with its first message.
    pub fn adopt(&self, node: NodeId, tcp: TcpConnection, first: Vec<u8>) {
        self.desk.adopt(node, Box::new(tcp), first);
    }
    /// Serves the connections until the daemon stops.
    pub fn serve(&self, is_stopping: impl Fn() -> bool) {
        self.desk.run(&|node, line, message| self.take(node, line, message), is_stopping);
    }
    /// The daemon stops: makes the threads look whether it does, and waits for no other node any more.
    pub fn end(&self) {
        self.group.iter().for_each(|group| group.end());
        self.desk.wake();
        self.questions.wake();
        self.waiting.wake();
    }
    fn take(&self, node: NodeId, line: Line, message: NodeMessage) -> Result<Option<NodeMessage>> {
        match message {
            NodeMessage::Beat { number, beat } => match self.note(node, &beat) {
                Ok(holds_view) => {
                    // Whoever sends another one does not wait for the answer to the former any more.
                    self.waiting.add(|waiting| {
                        waiting.retain(|before| before.line != line);
                        waiting.push(Waiting { line, number, holds_view });
                    });
                    Ok(None)
                }
                Err(error) => Ok(Some(NodeMessage::Notice { number, notice: Notice::encode(Err(error)) })),
            },
            NodeMessage::AskRegister { number, request } => {
                self.questions.add(|questions| {
                    if questions.len() < QUESTIONS_MAX {
                        questions.push(Question { line, number, request });
                    }
                });
                Ok(None)
            }
            NodeMessage::AskGroup { number, message } => {
                let Some(group) = &self.group else {
                    return Err(out_of_turn("this node keeps no part of the register"));
                };
                let desk = self.desk.clone();
                group.answer(message, move |answer| desk.answer(line, NodeMessage::GroupSays { number, answer }));
                Ok(None)
            }
            _ => Err(out_of_turn("it is out of turn")),
        }
    }
    /// Notes a sign of life. Returns the view that its node holds.
    fn note(&self, node: NodeId, bytes: &[u8]) -> Result<u64> {
        let beat = Beat::decode(bytes)?;
        if beat.node != node {
            return Err(Error::new(ErrorKind::InvalidInput, "a sign of life")
                .because(format!("node {} says that it is node {}", node.0, beat.node.0)));
        }
        let holds_view = beat.holds_view;
        lock(&self.board).beat(now_us(), beat);
        Ok(holds_view)
    }
    /// Answers beats until the daemon stops.
    pub fn answer_beats(&self, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            let beats = self.waiting.take(GATHER);
            if beats.is_empty() {
                continue;
            }
            let held = self.looks.find(Duration::ZERO, || self.look());
            for Waiting { line, number, holds_view } in beats {
                let notice = held.as_ref().map_err(Clone::clone).map(|held| self.notice(holds_view, held.as_ref()));
                let notice = Notice::encode(notice.as_ref().map_err(Clone::clone));
                self.desk.answer(line, NodeMessage::Notice { number, notice });
            }
        }
    }
    /// Answers a beat of this node.
    pub fn beat(&self, beat: Beat) -> Result<Notice> {
        let holds_view = beat.holds_view;
        lock(&self.board).beat(now_us(), beat);
        let held = self.looks.find(GATHER, || self.look())?;
        if held.is_none() {
            return Err(self.waits_for(&first_view(&self.roster.get(), &lock(&self.board)).err().unwrap_or_default()));
        }
        Ok(self.notice(holds_view, held.as_ref()))
    }
    fn notice(&self, holds_view: u64, held: Option<&Held>) -> Notice {
        lock(&self.board).answer(now_us(), holds_view, held)
    }
    /// Takes in what another board heard.
    pub fn heard_elsewhere(&self, heard: &[(NodeId, u64)]) {
        lock(&self.board).heard_elsewhere(now_us(), heard);
    }
    /// What the register holds; makes the first view if there is none and all nodes have said who they are.
    fn look(&self) -> Result<Option<Held>> {
        if let Some(held) = self.register.read()? {
            return Ok(Some(held));
        }
        let Ok(view) = first_view(&self.roster.get(), &lock(&self.board)) else { return Ok(None) };
        Ok(self.register.swap(None, &view)?.held(&view))
    }
    fn waits_for(&self, silent: &[NodeId]) -> Error {
        let members = self.roster.get();
        let named = |node: &NodeId| {
            let member = members.of(cenote_model::HomeId(node.0));
            member.map_or_else(|| node.0.to_string(), |member| format!("`{}`", member.name))
        };
        let names: Vec<String> = silent.iter().map(named).collect();
        Error::new(ErrorKind::Busy, "the first view of the cluster")
            .because(format!("these nodes have not said yet who they are: {}", names.join(", ")))
            .try_next("start their daemons: `cenote cluster start DIR`")
    }
    /// Answers questions about the register until the daemon stops.
    pub fn answer_questions(&self, is_stopping: impl Fn() -> bool) {
        while !is_stopping() {
            for Question { line, number, request } in self.questions.take(Duration::ZERO) {
                let answer = answer(self.register.as_ref(), &request);
                self.desk.answer(line, NodeMessage::RegisterSays { number, answer });
            }
        }
    }
}

#[cold]
fn out_of_turn(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "message from another node").because(why)
}
