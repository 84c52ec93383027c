//! One node: its process, its machine, its clock, its disks.

use std::collections::{BTreeMap, BTreeSet};

use cenote_ha::{
    ClusterId, Event, Hello, History, HomeId, Identity, MemberState, Report, Seen, Settings, View, may_act,
};
use cenote_model::{DeviceId, NodeId};

use crate::register::Roster;

pub const CLUSTER: ClusterId = ClusterId(0xC1);

#[expect(clippy::struct_excessive_bools, reason = "process, machine, signal and disks fail apart from each other")]
pub struct Node {
    pub id: NodeId,
    /// Raised with each start of the process.
    pub incarnation: u64,
    pub is_running: bool,
    pub is_machine_up: bool,
    pub is_stopped: bool,
    pub is_leaving: bool,
    pub slow_us: u64,
    clock_offset_us: u64,
    clock_ppm: i64,
    /// The nodes with a board.
    boards: Vec<NodeId>,
    pub history: History,
    /// When the last sign of life of each other node came, or will have.
    pub heard_us: BTreeMap<NodeId, u64>,
    pub beats: u64,
    /// On its disks: the last view, and the journals.
    pub disk_view: u64,
    left_in_view: u64,
    /// The first view that this process read.
    first_view: u64,
    pub journals: BTreeMap<HomeId, u64>,
    pub has_devices: bool,
    /// As host: what is being made good, until when; and what is.
    pub paying: BTreeMap<(HomeId, NodeId, u64), u64>,
    pub paid: BTreeSet<(HomeId, NodeId, u64)>,
    /// As host: mirrors to be, and those of proposals whose outcome is unknown, with the view that they build on.
    pub candidates: BTreeMap<HomeId, NodeId>,
    pub pending: Vec<(HomeId, NodeId, u64)>,
}

impl Node {
    pub fn new(id: NodeId, clock_offset_us: u64, clock_ppm: i64, boards: Vec<NodeId>) -> Self {
        Self {
            history: history(id, &boards),
            boards,
            id,
            incarnation: 0,
            is_running: true,
            is_machine_up: true,
            is_stopped: false,
            is_leaving: false,
            slow_us: 0,
            clock_offset_us,
            clock_ppm,
            heard_us: BTreeMap::new(),
            beats: 0,
            disk_view: 0,
            left_in_view: 0,
            first_view: 0,
            journals: BTreeMap::new(),
            has_devices: true,
            paying: BTreeMap::new(),
            paid: BTreeSet::new(),
            candidates: BTreeMap::new(),
            pending: Vec::new(),
        }
    }

    /// Its clock at a true time.
    pub fn clock_us(&self, now_us: u64) -> u64 {
        (self.clock_offset_us + now_us).saturating_add_signed(now_us as i64 * self.clock_ppm / 1_000_000)
    }
    /// The true time at which its clock shows this, to a few microseconds.
    pub fn true_us(&self, clock_us: u64) -> u64 {
        let local = clock_us.saturating_sub(self.clock_offset_us) as i64;
        (local * 1_000_000 / (1_000_000 + self.clock_ppm)) as u64 + 2
    }
    pub fn answers(&self) -> bool {
        self.is_running && !self.is_stopped
    }
    pub fn view(&self) -> Option<&View> {
        self.history.view().map(AsRef::as_ref)
    }
    pub fn may_act(&self, home: HomeId, settings: &Settings, now_us: u64) -> bool {
        let view = self.view().filter(|_| self.answers());
        let view = view.filter(|view| self.journals.contains_key(&home) || view.is_shared());
        view.is_some_and(|view| may_act(self.id, view, home, &self.history, settings, self.clock_us(now_us)))
    }
    pub fn record(&mut self, seen: Seen, now_us: u64, settings: &Settings) {
        let at_us = self.clock_us(now_us);
        self.history.record(Event { at_us, seen }, settings);
    }

    /// The process starts: all that it had in memory is gone.
    pub fn start(&mut self) {
        self.incarnation += 1;
        (self.is_running, self.is_machine_up, self.is_stopped, self.is_leaving) = (true, true, false, false);
        (self.history, self.beats, self.left_in_view, self.first_view) =
            (history(self.id, &self.boards), 0, self.disk_view, 0);
        self.heard_us.clear();
        self.paying.clear();
        self.paid.clear();
        self.candidates.clear();
        self.pending.clear();
    }

    /// What it says of itself while it does not take part, and when it starts.
    pub fn hello(&self) -> Option<Hello> {
        let is_live = self.view().is_some_and(|view| view.is_live(self.id));
        let lost_devices = if self.has_devices { Vec::new() } else { vec![DeviceId(0)] };
        (!is_live || (self.incarnation > 0 && self.beats < 4) || !self.has_devices).then(|| Hello {
            cluster: CLUSTER,
            identity: identity(self.id),
            address: address(self.id),
            left_in_view: self.left_in_view,
            holds_view: self.view().map_or(0, |view| view.number),
            devices: Vec::new(),
            lost_devices,
        })
    }

    /// Takes an answer of the register in.
    pub fn learn(&mut self, roster: &Roster, now_us: u64, settings: &Settings) {
        let at_us = self.clock_us(now_us);
        let before: Vec<NodeId> = self.view().map(|view| view.live().collect()).unwrap_or_default();
        for (node, age) in &roster.ages {
            let event = Event { at_us: at_us.saturating_sub(*age), seen: Seen::Heard(*node) };
            self.history.record(event, settings);
        }
        let view = Seen::Register { view: std::sync::Arc::clone(&roster.view), asked_us: roster.asked_us };
        self.record(view, now_us, settings);
        if let Some(board) = roster.board {
            let heard = roster.ages.iter().map(|(node, age)| (*node, at_us.saturating_sub(*age))).collect();
            let (view, asked_us) = (roster.view.number, roster.asked_us);
            self.record(Seen::Board { board, view, asked_us, heard }, now_us, settings);
        }
        let me = self.id;
        for (by, in_view, reports) in &roster.reports {
            let seen = Seen::Reports { by: *by, in_view: *in_view, reports: reports.clone() };
            self.record(seen, now_us, settings);
        }
        for (node, hello) in roster.hellos.iter().filter(|(node, _)| *node != me) {
            self.record(Seen::Returned { node: *node, hello: hello.clone() }, now_us, settings);
        }
        let after: Vec<NodeId> = self.view().map(|view| view.live().collect()).unwrap_or_default();
        for node in after.iter().filter(|node| !before.contains(node)) {
            self.heard_us.insert(*node, now_us); // it is new: its silence begins now
        }
        let number = self.view().map_or(0, |view| view.number);
        self.disk_view = self.disk_view.max(number);
        self.pending.retain(|(_, _, base)| *base == number);
        if self.first_view == 0 {
            self.first_view = number;
        }
        let state = self.view().and_then(|view| view.member(self.id)).map(|member| member.state);
        if matches!(state, Some(MemberState::Live { since_view }) if since_view > self.first_view) {
            self.has_devices = true; // what was lost is counted as lost, and the node is an empty one
        }
        let owed: BTreeSet<(NodeId, u64)> = self.view().map(|view| view.owed().collect()).unwrap_or_default();
        self.paid.retain(|(_, node, since)| owed.contains(&(*node, *since)));
        self.paying.retain(|(_, node, since), _| owed.contains(&(*node, *since)));
    }

    pub fn paid_reports(&self) -> impl Iterator<Item = Report> {
        self.paid.iter().map(|(home, node, since_view)| Report::Paid {
            home: *home,
            node: *node,
            since_view: *since_view,
        })
    }
}

fn history(id: NodeId, boards: &[NodeId]) -> History {
    if boards.is_empty() { History::default() } else { History::of(id, boards.to_vec()) }
}

pub fn identity(node: NodeId) -> Identity {
    Identity(0x1000 + u128::from(node.0))
}

pub fn address(node: NodeId) -> String {
    format!("h{}:7", node.0)
}
