//! Boards on nodes: each notes what it hears, looks at the register, and answers. What is under way is late, lost, or waits
//! in the buffers of a process that is stopped; what a process has noted goes with it.

use std::sync::Arc;

use cenote_ha::{View, acts_from_us, leases_over_us};
use cenote_model::NodeId;

use crate::cluster::{Cluster, REGISTER, What};
use crate::register::{Beat, Register};

/// A question to a process that has a board: another process of that node has other sockets.
#[derive(Clone)]
pub struct Asked {
    board: NodeId,
    incarnation: u64,
    beat: Beat,
}

impl Cluster {
    /// Sends a beat to all boards; one of them carries what is proposed.
    pub fn tell_boards(&mut self, beat: &Beat) {
        let boards: Vec<NodeId> = self.boards.keys().copied().collect();
        let carries = self.rng.index(boards.len());
        for (at, board) in boards.into_iter().enumerate() {
            let proposal = beat.proposal.clone().filter(|_| at == carries);
            let incarnation = self.nodes[usize::from(board.0)].incarnation;
            let asked = Asked { board, incarnation, beat: Beat { proposal, ..beat.clone() } };
            self.carry(beat.from, board, What::AtBoard(Box::new(asked)));
        }
    }

    /// A message to a node that may be late or lost, unless it is from the node itself.
    fn carry(&mut self, from: NodeId, to: NodeId, what: What) {
        let delay = if from == to { 50 } else { self.delay_us(from, to) };
        if from == to || (self.is_open(from, to) && !self.is_lost()) {
            self.schedule(self.now_us + delay, what);
        }
    }

    /// Returns true if the process that was asked takes what has come; if it is stopped, it does so later.
    fn takes(&mut self, asked: &Asked, later: impl FnOnce() -> What) -> bool {
        let node = &self.nodes[usize::from(asked.board.0)];
        if !node.is_running || node.incarnation != asked.incarnation {
            return false;
        }
        if node.is_stopped {
            self.schedule(self.now_us + 50_000, later());
            return false;
        }
        true
    }

    pub fn at_board(&mut self, asked: Box<Asked>) {
        if !self.takes(&asked, || What::AtBoard(asked.clone())) {
            return;
        }
        let (now, board) = (self.now_us, asked.board);
        if let Some(notes) = self.boards.get_mut(&board) {
            notes.note(&asked.beat, now);
        }
        self.register.hear(&asked.beat, now); // for the checks: what any board knows
        self.carry(board, REGISTER, What::Look(asked));
    }

    /// The board's question is at the register.
    pub fn look(&mut self, asked: Box<Asked>) {
        if let Some(next) = &asked.beat.proposal {
            self.swap(&asked.beat, next);
        }
        let (board, view) = (asked.board, Arc::clone(&self.register.view));
        self.carry(REGISTER, board, What::Looked(asked, view));
    }

    /// The register's answer is at the board.
    pub fn looked(&mut self, asked: Box<Asked>, view: Arc<View>) {
        if !self.takes(&asked, || What::Looked(asked.clone(), Arc::clone(&view))) {
            return;
        }
        let (now, board, beat) = (self.now_us, asked.board, asked.beat);
        let node = &self.nodes[usize::from(board.0)];
        let Some(notes) = self.boards.get_mut(&board) else { return };
        notes.view = view;
        let age_us = |heard_us| node.clock_us(now) - node.clock_us(heard_us);
        let roster = Box::new(notes.roster(Some(board), beat.asked_us, age_us));
        self.carry(board, beat.from, What::Answer(beat.from, beat.incarnation, roster));
    }

    /// The process with a board starts: it knows nothing of what the former one heard.
    pub fn begin_board(&mut self, id: NodeId) {
        let begun = Register::begin(&self.register.view, self.now_us);
        if let Some(notes) = self.boards.get_mut(&id) {
            *notes = begun;
        }
    }

    /// Checks that nobody else acts at the moments at which this node may begin to, as it knows now.
    pub fn check_beginnings(&mut self, id: NodeId) {
        let node = &self.nodes[usize::from(id.0)];
        let Some(view) = node.history.view().cloned() else { return };
        let mut checks = Vec::new();
        for home in view.homes.iter().filter(|home| home.host == id && home.term > 1) {
            let Some(told) = node.history.told_us(home.id, home.term) else { continue };
            let Some(from) = acts_from_us(home.id, home.term, &node.history, &self.settings) else { continue };
            let full = leases_over_us(told, &self.settings);
            if from < full {
                self.tally.shortened += u64::from(self.shortened.insert((id, home.id, home.term)));
            }
            if node.clock_us(self.now_us) <= full {
                checks.push(node.true_us(from));
            }
        }
        for at in checks {
            self.schedule(at, What::Check);
        }
    }
}
