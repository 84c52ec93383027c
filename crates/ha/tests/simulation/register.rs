//! The register: a view, replaced by compare-and-swap, and who was heard when. A board is one that looks at the register for
//! its view.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_ha::{Hello, Report, View};
use cenote_model::NodeId;

/// What a node sends: a sign of life, and perhaps a proposal.
#[derive(Clone)]
pub struct Beat {
    pub from: NodeId,
    pub incarnation: u64,
    /// By the sender's clock.
    pub asked_us: u64,
    pub hello: Option<Hello>,
    pub reports: Vec<Report>,
    pub in_view: u64,
    pub proposal: Option<View>,
}

/// What the register answers.
#[derive(Clone)]
pub struct Roster {
    /// Whose board answers; none if it is the register itself.
    pub board: Option<NodeId>,
    pub view: Arc<View>,
    pub asked_us: u64,
    /// Microseconds since each node was heard.
    pub ages: Vec<(NodeId, u64)>,
    /// With the view in which each node reports.
    pub reports: Vec<(NodeId, u64, Vec<Report>)>,
    pub hellos: Vec<(NodeId, Hello)>,
}

/// What the register knows of a node.
#[derive(Clone, Default)]
pub struct Known {
    pub heard_us: u64,
    /// Silences lately, and when each ended.
    gaps: Vec<(u64, u64)>,
    pub reports: Vec<Report>,
    pub in_view: u64,
    /// When more than half of the others last said that they do not hear it.
    pub reported_us: Option<u64>,
    /// When it last said that it stops.
    pub left_us: Option<u64>,
    pub hello: Option<Hello>,
    /// The views that it said hello with, and whether it had all its devices: it can die before the register decides.
    pub held: BTreeMap<u64, bool>,
    /// The last sign of life, by incarnation and the sender's clock: one that was overtaken tells nothing new.
    last: (u64, u64),
}

pub struct Register {
    pub view: Arc<View>,
    pub nodes: BTreeMap<NodeId, Known>,
}

impl Known {
    /// The longest silence lately.
    pub fn silence_us(&self, now_us: u64) -> u64 {
        self.gaps.iter().map(|(gap, _)| *gap).max().unwrap_or(0).max(now_us - self.heard_us)
    }
}

impl Register {
    pub fn new(view: View) -> Self {
        let nodes = view.members.iter().map(|member| (member.id, Known::default())).collect();
        Self { view: Arc::new(view), nodes }
    }

    /// A board that begins now.
    pub fn begin(view: &Arc<View>, now_us: u64) -> Self {
        let heard = || Known { heard_us: now_us, ..Known::default() };
        Self { view: Arc::clone(view), nodes: view.members.iter().map(|member| (member.id, heard())).collect() }
    }

    pub fn hear(&mut self, beat: &Beat, now_us: u64) {
        let known = self.nodes.entry(beat.from).or_default();
        if let Some(hello) = &beat.hello {
            known.held.insert(hello.holds_view, hello.lost_devices.is_empty());
        }
        if (beat.incarnation, beat.asked_us) < known.last {
            return;
        }
        known.last = (beat.incarnation, beat.asked_us);
        let gap = now_us - known.heard_us;
        known.gaps.retain(|(_, ended_us)| ended_us + 6_000_000 >= now_us);
        known.gaps.push((gap, now_us));
        known.heard_us = now_us;
        known.reports.clone_from(&beat.reports);
        known.in_view = beat.in_view;
        if beat.reports.contains(&Report::Goodbye { is_empty: false }) {
            known.left_us = Some(now_us);
        }
        known.hello.clone_from(&beat.hello);
        self.note_reports(now_us);
    }

    /// A beat that was overtaken is a sign of life, too, and asks for a lease.
    pub fn note(&mut self, beat: &Beat, now_us: u64) {
        self.hear(beat, now_us);
        self.nodes.entry(beat.from).or_default().heard_us = now_us;
    }

    /// What is answered; `age_us`: how long ago something was, by the clock of who answers.
    pub fn roster(&self, board: Option<NodeId>, asked_us: u64, age_us: impl Fn(u64) -> u64) -> Roster {
        Roster {
            board,
            view: Arc::clone(&self.view),
            asked_us,
            ages: self.nodes.iter().map(|(node, known)| (*node, age_us(known.heard_us))).collect(),
            reports: self.nodes.iter().map(|(node, known)| (*node, known.in_view, known.reports.clone())).collect(),
            hellos: self.nodes.iter().filter_map(|(node, known)| Some((*node, known.hello.clone()?))).collect(),
        }
    }

    fn note_reports(&mut self, now_us: u64) {
        let others = self.view.live().count() - 1;
        for node in self.nodes.keys().copied().collect::<Vec<_>>() {
            let says = |known: &&Known| known.reports.contains(&Report::Unheard(node));
            if self.nodes.values().filter(says).count() * 2 > others
                && let Some(known) = self.nodes.get_mut(&node)
            {
                known.reported_us = Some(now_us);
            }
        }
    }
}
