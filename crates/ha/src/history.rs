//! What was seen so far, in a bounded record that the caller keeps.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cenote_model::NodeId;

use crate::ending::Ending;
use crate::{
    Detector, Event, Hello, Home, HomeId, Loads, MemberState, MirrorState, Report, Seen, Settings, View, lease,
};

/// Events that are kept for people to read; decisions need none of them.
pub const LOG_EVENTS_MAX: usize = 256;

/// What is known of one node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Peer {
    pub detector: Detector,
    pub reports: Vec<Report>,
    /// The view in which it reports.
    pub reports_view: u64,
    /// The homes of which it says that it has lost them, and since when.
    pub lost_us: BTreeMap<HomeId, u64>,
    /// Since when its machine refuses connections without a sign of life between, and when it did last.
    pub refused_us: Option<(u64, u64)>,
    /// What it says of itself, since when, and when it last did.
    pub hello: Option<(u64, u64, Hello)>,
    /// When it was excluded, lately.
    pub exclusions_us: Vec<u64>,
    pub clock_off_us: i64,
    /// While it takes part: the view that admitted it, and when this node was told.
    pub admitted: Option<(u64, u64)>,
    /// While it is excluded: what boards say of it.
    pub ending: Option<Ending>,
}

impl Peer {
    fn note_lost(&mut self, reports: &[Report], at_us: u64) {
        let lost = reports.iter().filter_map(|report| match report {
            Report::Lost(home) => Some(*home),
            _ => None,
        });
        let before = std::mem::take(&mut self.lost_us);
        self.lost_us = lost.map(|home| (home, before.get(&home).copied().unwrap_or(at_us))).collect();
    }
}

/// The term of a home, as this node was told.
#[derive(Clone, Copy, Debug)]
struct Told {
    term: u64,
    host: NodeId,
    at_us: u64,
    /// The host of the term before and when this node was told of that, if it was.
    former: Option<(NodeId, u64)>,
}

/// What one node has seen. Make it anew when the process starts; what it lacks only makes it more patient.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub(crate) peers: BTreeMap<NodeId, Peer>,
    pub(crate) mirrors: BTreeMap<(HomeId, NodeId), (u64, MirrorState)>,
    pub(crate) failed_devices: Vec<(NodeId, cenote_model::DeviceId)>,
    view: Option<Arc<View>>,
    /// When the register was asked for its last answer, and when that came.
    answered: Option<(u64, u64)>,
    /// When a board was asked for the last answer that gives a lease.
    leased_us: Option<u64>,
    told: BTreeMap<HomeId, Told>,
    /// This node, and all that have a board; none if nodes ask the register without boards.
    boards: Option<(NodeId, Vec<NodeId>)>,
    log: VecDeque<Event>,
}

impl History {
    /// The history of node `me` in a cluster where these nodes have a board, for as long as the cluster lives. Leases come with
    /// [`Seen::Board`] then; without boards, with [`Seen::Register`].
    pub fn of(me: NodeId, boards: Vec<NodeId>) -> Self {
        Self { boards: Some((me, boards)), ..Self::default() }
    }
    /// What a node said of itself last.
    pub fn hello(&self, node: NodeId) -> Option<&Hello> {
        self.peers.get(&node)?.hello.as_ref().map(|(_, _, hello)| hello)
    }
    /// How loaded all nodes are, by what they reported last; nothing before there is a view.
    pub fn loads(&self) -> Loads {
        let reports = |node: NodeId| self.peers.get(&node).map_or(&[][..], |peer| &peer.reports);
        self.view().map_or_else(Loads::default, |view| Loads::of(view, reports))
    }
    /// Adds an event. Events come as they are seen; a sign of life may be older than the answer that tells of it.
    pub fn record(&mut self, event: Event, settings: &Settings) {
        let at_us = event.at_us;
        let view_before = self.view.as_ref().map(|view| view.number);
        match &event.seen {
            Seen::Register { view, asked_us } => self.told_view(view, *asked_us, at_us, settings),
            Seen::Board { board, view, asked_us, heard } => self.board_said(*board, *view, *asked_us, heard),
            Seen::Heard(node) => self.peer(*node).detector.heard(at_us),
            Seen::Reports { by, in_view, reports } => {
                let peer = self.peer(*by);
                peer.note_lost(reports, at_us);
                peer.reports.clone_from(reports);
                peer.reports_view = *in_view;
            }
            Seen::Refused(node) => {
                let heard = self.peer(*node).detector.heard_us().unwrap_or(0);
                let since = self.peer(*node).refused_us.filter(|(since, _)| *since > heard).map_or(at_us, |(at, _)| at);
                self.peer(*node).refused_us = Some((since, at_us));
            }
            Seen::DeviceFailed { node, device } => {
                if !self.failed_devices.contains(&(*node, *device)) {
                    self.failed_devices.push((*node, *device));
                }
            }
            Seen::Returned { node, hello } => {
                let peer = self.peer(*node);
                let before = peer.hello.as_ref().filter(|(_, _, before)| same_start(before, hello));
                let since_us = before.map_or(at_us, |(since, _, _)| *since);
                peer.hello = Some((since_us, at_us, hello.clone()));
            }
            Seen::Mirror { home, node, state } => {
                self.mirrors.insert((*home, *node), (at_us, *state));
            }
            Seen::ClockOff { node, by_us } => self.peer(*node).clock_off_us = *by_us,
        }
        let is_new_view = self.view.as_ref().map(|view| view.number) != view_before;
        self.keep(event, is_new_view);
    }

    fn peer(&mut self, node: NodeId) -> &mut Peer {
        self.peers.entry(node).or_default()
    }

    /// Keeps what a person wants to read: not each heartbeat.
    fn keep(&mut self, event: Event, is_new_view: bool) {
        let is_news = match &event.seen {
            Seen::Heard(_)
            | Seen::Board { .. }
            | Seen::Reports { .. }
            | Seen::Mirror { state: MirrorState::Has(_), .. } => false,
            Seen::Register { .. } => is_new_view,
            seen => !self.log.iter().rev().take(16).any(|before| before.seen == *seen),
        };
        if is_news {
            self.log.push_back(event);
        }
        if self.log.len() > LOG_EVENTS_MAX {
            self.log.pop_front();
        }
    }

    fn told_view(&mut self, view: &Arc<View>, asked_us: u64, at_us: u64, settings: &Settings) {
        if self.view.as_ref().is_some_and(|before| before.number > view.number) {
            return; // an answer that was overtaken
        }
        if self.view.as_ref().is_none_or(|before| before.number < view.number) {
            self.adopt(view, asked_us, at_us, settings);
        }
        // An answer to a later question can come first; the later one counts.
        if self.answered.is_none_or(|(before, _)| before < asked_us) {
            self.answered = Some((asked_us, at_us));
        }
    }

    fn adopt(&mut self, view: &Arc<View>, asked_us: u64, at_us: u64, settings: &Settings) {
        for home in &view.homes {
            self.told_term(home, at_us);
        }
        let before = self.view.replace(Arc::clone(view));
        for member in &view.members {
            let was_live = before.as_ref().map(|before| before.is_live(member.id));
            let is_live = view.is_live(member.id);
            let peer = self.peers.entry(member.id).or_default();
            if was_live == Some(true) && !is_live {
                peer.exclusions_us.retain(|at| at + settings.flap_us_window > at_us);
                peer.exclusions_us.push(at_us);
            }
            if is_live && was_live != Some(true) {
                peer.detector.restart(at_us);
                (peer.hello, peer.refused_us) = (None, None);
            }
            match member.state {
                MemberState::Live { since_view } => {
                    let before = peer.admitted.filter(|(by, _)| *by == since_view);
                    (peer.admitted, peer.ending) = (before.or(Some((since_view, at_us))), None);
                }
                MemberState::Excluded { since_view, .. } | MemberState::GivenUp { since_view } => {
                    let before = peer.ending.take().filter(|ending| ending.is_by(since_view));
                    peer.ending = before.or_else(|| Some(Ending::new(since_view, view.number)));
                    peer.admitted = None;
                }
            }
        }
        // Leases count from a question that the new view answered.
        self.answered = Some((asked_us, at_us));
        let has = |home: HomeId, node: NodeId| view.home(home).is_some_and(|home| home.copies().any(|one| one == node));
        self.mirrors.retain(|(home, node), (_, state)| match state {
            MirrorState::CaughtUp { .. } => !has(*home, *node),
            _ => has(*home, *node),
        });
    }

    fn told_term(&mut self, home: &Home, at_us: u64) {
        let before = self.told.get(&home.id).copied();
        if before.is_some_and(|before| before.term == home.term) {
            return;
        }
        // A term that was skipped had a host of which nothing is known.
        let is_next = |before: &Told| before.term + 1 == home.term;
        let former = before.filter(is_next).map(|before| (before.host, before.at_us));
        self.told.insert(home.id, Told { term: home.term, host: home.host, at_us, former });
    }

    fn board_said(&mut self, board: NodeId, view: u64, asked_us: u64, heard: &[(NodeId, u64)]) {
        if self.gives_lease(board) {
            self.leased_us = self.leased_us.max(Some(asked_us));
        }
        for (node, at_us) in heard {
            if let Some(ending) = self.peers.get_mut(node).and_then(|peer| peer.ending.as_mut()) {
                ending.said(board, view, *at_us);
            }
        }
    }

    /// Returns true if an answer of this board gives this node a lease, in the view that it knows.
    pub fn gives_lease(&self, board: NodeId) -> bool {
        let Some((me, boards)) = &self.boards else { return true };
        self.view().is_some_and(|view| lease::counts(*me, board, boards, view))
    }
    /// The nodes with a board; none if nodes ask without.
    pub(crate) fn boards(&self) -> &[NodeId] {
        self.boards.as_ref().map_or(&[], |(_, boards)| boards)
    }
    /// When this node asked for the last answer that gives a lease.
    pub(crate) fn leased_us(&self) -> Option<u64> {
        if self.boards.is_some() { self.leased_us } else { self.asked_us() }
    }
    /// The host of a home in the term before, and when this node was told of that term.
    pub(crate) fn former_host(&self, home: HomeId) -> Option<(NodeId, u64)> {
        self.told.get(&home)?.former
    }
    /// What boards say of a node that is excluded.
    pub(crate) fn ending(&self, node: NodeId) -> Option<&Ending> {
        self.peers.get(&node)?.ending.as_ref()
    }
    /// When this node was told that another one takes part.
    pub(crate) fn admitted_us(&self, node: NodeId) -> Option<u64> {
        self.peers.get(&node)?.admitted.map(|(_, at_us)| at_us)
    }
    /// The view that the register was last known to hold.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }
    /// When the register was asked for the last answer that came.
    pub fn asked_us(&self) -> Option<u64> {
        self.answered.map(|(asked, _)| asked)
    }
    /// When the last answer came.
    pub fn answered_us(&self) -> Option<u64> {
        self.answered.map(|(_, answered)| answered)
    }
    /// When this node was told of the present term of a home; none if it knows another term.
    pub fn told_us(&self, home: HomeId, term: u64) -> Option<u64> {
        self.told.get(&home).filter(|told| told.term == term).map(|told| told.at_us)
    }
    /// How long the register had not heard a node when it last answered: nothing that this node missed since counts
    /// against anybody. None if it never heard it.
    pub fn silence_us(&self, node: NodeId) -> Option<u64> {
        let heard = self.peers.get(&node)?.detector.heard_us()?;
        Some(self.answered_us()?.saturating_sub(heard))
    }
    /// What happened, oldest first.
    pub fn log(&self) -> impl Iterator<Item = &Event> {
        self.log.iter()
    }
    /// When a node that was excluded so often lately may be readmitted, counted from its return.
    pub(crate) fn damping_us(&self, node: NodeId, settings: &Settings, now_us: u64) -> u64 {
        let recent = |at: &&u64| **at + settings.flap_us_window > now_us;
        let times = self.peers.get(&node).map_or(0, |peer| peer.exclusions_us.iter().filter(recent).count());
        match u32::try_from(times).unwrap_or(u32::MAX) {
            0 => 0,
            times => (settings.damp_us_min << (times - 1).min(30)).min(settings.damp_us_max),
        }
    }
    pub(crate) fn exclusions(&self, node: NodeId) -> usize {
        self.peers.get(&node).map_or(0, |peer| peer.exclusions_us.len())
    }
}

/// A node repeats its hello as it reads later views; it is the same start all the while.
fn same_start(one: &Hello, other: &Hello) -> bool {
    (one.identity, &one.address, one.left_in_view) == (other.identity, &other.address, other.left_in_view)
}
