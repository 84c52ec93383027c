//! What a node knows of the cluster. Pure: times come with the calls, so that the simulation of clusters uses it as the daemon does.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_cluster::Notice;
use cenote_cluster::register::{Held, Token};
use cenote_ha::{Action, Event, History, Proposal, Report, Seen, Settings, View};
use cenote_model::{Error, HomeId, NodeId};

/// What the homes of which a node is the host have made good: all, once they have as many mirrors as they should. No
/// part of a home lies on nodes that are none.
fn paid(me: NodeId, view: &View) -> Vec<Report> {
    let others = view.live().count().saturating_sub(1);
    let whole =
        view.homes.iter().filter(|home| home.host == me && home.mirrors.len() >= home.mirrors_wanted.min(others));
    let paid =
        |home: cenote_ha::HomeId| view.owed().map(move |(node, since_view)| Report::Paid { home, node, since_view });
    whole.flat_map(|home| paid(home.id)).collect()
}

/// See the module.
pub struct Known {
    /// What it has seen.
    pub history: History,
    /// What was concluded last.
    pub proposal: Proposal,
    /// What is in the way of asking each board, or of a first view.
    troubles: BTreeMap<usize, String>,
    /// The record of the register that has the view.
    held: Option<(Arc<View>, Token)>,
    /// When this node last saw each node refuse a connection.
    refused_us: BTreeMap<NodeId, u64>,
    /// The version of the weights of users at each node, as a board said last.
    weights: Vec<(NodeId, u64)>,
}

impl Known {
    /// What node `me` knows, before it has asked any of these boards.
    pub fn new(me: NodeId, boards: Vec<NodeId>) -> Self {
        Self {
            history: History::of(me, boards),
            proposal: Proposal::default(),
            troubles: BTreeMap::new(),
            held: None,
            refused_us: BTreeMap::new(),
            weights: Vec::new(),
        }
    }
    /// The view.
    pub fn view(&self) -> Option<&Arc<View>> {
        self.held.as_ref().map(|(view, _)| view)
    }
    /// Its number; 0 if there is none.
    pub fn number(&self) -> u64 {
        self.view().map_or(0, |view| view.number)
    }
    /// What a swap is to replace.
    pub fn token(&self) -> Option<Token> {
        self.held.as_ref().map(|(_, token)| token.clone())
    }
    /// Takes in something that this node has seen now.
    pub fn see(&mut self, now_us: u64, seen: Seen, settings: &Settings) {
        if let Seen::Refused(node) = &seen {
            self.refused_us.insert(*node, now_us);
        }
        self.record(now_us, seen, settings);
    }
    fn record(&mut self, at_us: u64, seen: Seen, settings: &Settings) {
        self.history.record(Event { at_us, seen }, settings);
    }
    /// Takes in an answer of the board of a node, to what node `me` asked at `asked_us`.
    pub fn learn(
        &mut self,
        now_us: u64,
        (board, notice): (NodeId, Notice),
        asked_us: u64,
        me: NodeId,
        settings: &Settings,
    ) {
        let now = now_us;
        let at = |(node, ago_us): (NodeId, u64)| (node, now.saturating_sub(ago_us));
        // The board found the view first, and then said what it had heard itself.
        let heard: Vec<(NodeId, u64)> = notice.heard.into_iter().map(at).collect();
        for (node, at_us) in heard.iter().copied().chain(notice.heard_elsewhere.into_iter().map(at)) {
            self.record(at_us, Seen::Heard(node), settings);
        }
        let is_newer = notice.held.is_some_and(|held| self.hold(now, held, asked_us, settings));
        if let Some(view) = self.view().filter(|view| view.number == notice.view && !is_newer).cloned() {
            self.record(now, Seen::Register { view, asked_us }, settings);
        }
        self.record(now, Seen::Board { board, view: notice.view, asked_us, heard }, settings);
        for (by, in_view, reports) in notice.reports {
            self.record(now, Seen::Reports { by, in_view, reports }, settings);
        }
        self.weights = notice.weights;
        for (node, hello) in notice.hellos.into_iter().filter(|(node, _)| *node != me) {
            self.record(now, Seen::Returned { node, hello }, settings);
        }
    }
    /// The register said that it holds this. Returns true if it is newer than what was known.
    pub fn hold(&mut self, now_us: u64, (view, token): Held, asked_us: u64, settings: &Settings) -> bool {
        if view.number <= self.number() {
            return false;
        }
        let view = Arc::new(view);
        self.held = Some((Arc::clone(&view), token));
        self.record(now_us, Seen::Register { view, asked_us }, settings);
        true
    }
    /// What this node, `me`, tells all others. `lost`: homes of which it has lost what it had.
    pub fn reports(&mut self, now_us: u64, me: NodeId, lost: &[HomeId], settings: &Settings) -> Vec<Report> {
        self.refused_us.retain(|_, at| now_us.saturating_sub(*at) <= settings.silence_us_min);
        let refused = self.refused_us.keys().map(|node| Report::Refused(*node));
        let paid = self.view().into_iter().flat_map(|view| paid(me, view));
        let lost = lost.iter().map(|home| Report::Lost(cenote_ha::HomeId(home.0)));
        refused.chain(paid).chain(lost).collect()
    }
    /// The live nodes that the register has not heard for so long.
    pub fn silent(&self, silence_us: u64) -> Vec<NodeId> {
        let Some(view) = self.view() else { return Vec::new() };
        view.live().filter(|node| self.history.silence_us(*node).is_some_and(|us| us >= silence_us)).collect()
    }
    /// A home that another node than `me` hosts, and that has the latest version of the weights of users that is later than
    /// this one.
    pub fn home_with_weights_after(&self, version: u64, me: NodeId) -> Option<cenote_model::HomeId> {
        let view = self.view()?;
        let later = self.weights.iter().filter(|(node, its)| *node != me && *its > version && view.is_live(*node));
        let (node, _) = later.max_by_key(|(_, its)| *its)?;
        view.homes.iter().find(|home| home.host == *node).map(|home| cenote_model::HomeId(home.id.0))
    }
    /// Keeps a proposal, for people; a new conclusion goes into the log.
    pub fn note(&mut self, now_us: u64, proposal: Proposal) {
        let is_known = |action: &Action| self.proposal.decided.iter().any(|before| before.action == *action);
        let is_told = |action: &Action| !matches!(action, Action::Wait { .. } | Action::TakeOver { .. });
        for decided in proposal.decided.iter().filter(|it| is_told(&it.action) && !is_known(&it.action)) {
            tracing::info!(what = decided.action.text(now_us), why = %decided.why, "concluded");
        }
        self.proposal = proposal;
    }
    /// When the earliest thing happens that the last conclusion waits for.
    pub fn due_us(&self) -> Option<u64> {
        let times = self.proposal.decided.iter().filter_map(|decided| match decided.action {
            Action::Wait { until_us } => until_us,
            _ => None,
        });
        times.min()
    }
    /// Keeps what is in the way of asking a board.
    pub fn note_trouble(&mut self, board: usize, error: Option<Error>) {
        let trouble = error.map(|error| error.to_string()).unwrap_or_default();
        let before = self.troubles.insert(board, trouble.clone()).unwrap_or_default();
        if trouble != before && !trouble.is_empty() {
            tracing::warn!(trouble, "the view of the cluster");
        }
    }
    /// What is in the way of asking the register, or of a first view; empty if one board answers.
    pub fn trouble(&self) -> &str {
        let can_ask = self.troubles.values().any(String::is_empty);
        self.troubles.values().next().filter(|_| !can_ask).map_or("", String::as_str)
    }
}
