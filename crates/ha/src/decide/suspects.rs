//! Who is in doubt, and whether going on without them is safe.

use cenote_model::NodeId;

use super::{Facts, Plan};
use crate::history::Peer;
use crate::{Action, HomeId, MemberState, Reason, Report};

/// A live member that should be excluded.
pub(crate) struct Suspect {
    pub node: NodeId,
    why: Reason,
    /// Microseconds for which others could have proposed it.
    known_us: u64,
    /// Nothing lies there.
    is_empty: bool,
}

/// The members in doubt. Those that are waited for are not among them.
pub(crate) fn suspects(facts: &Facts<'_>, plan: &mut Plan<'_>) -> Vec<Suspect> {
    let others = facts.view.live().filter(|node| *node != facts.me);
    others.filter_map(|node| facts.doubt(node, plan)).collect()
}

impl Facts<'_> {
    fn doubt(&self, node: NodeId, plan: &mut Plan<'_>) -> Option<Suspect> {
        let peer = self.history.peers.get(&node)?;
        let suspect = |why, known_us| Suspect { node, why, known_us, is_empty: false };
        let is_of_now = self.live_since(node).is_some_and(|since_view| peer.reports_view >= since_view);
        if let Some(is_empty) = goodbye(&peer.reports).filter(|_| is_of_now) {
            return Some(Suspect { is_empty, ..suspect(Reason::Goodbye { node, is_empty }, u64::MAX) });
        }
        if let Some((at, hello)) = self.hello(peer).filter(|(_, hello)| self.has_lost_devices(node, hello)) {
            let why = Reason::LostDevices { node, devices: hello.lost_devices.len() };
            return Some(suspect(why, self.now_us.saturating_sub(at)));
        }
        if let Some((home, since_us)) = self.has_lost_what_another_has(node) {
            return Some(suspect(Reason::LostHome { node, home }, since_us));
        }
        self.silent(node, peer, plan).or_else(|| {
            let (by, of) = self.reporters(node, self.live_since(node)?);
            (by >= 2 && by * 2 > of).then(|| suspect(Reason::Reported { node, by, of }, u64::MAX))
        })
    }

    fn has_lost_devices(&self, node: NodeId, hello: &crate::Hello) -> bool {
        let is_it = self.view.member(node).is_some_and(|member| member.identity == hello.identity);
        let is_present = self.live_since(node).is_some_and(|since_view| hello.holds_view >= since_view);
        is_it && is_present && !hello.lost_devices.is_empty() && hello.cluster == self.view.cluster
    }

    /// A home of which a node is the host, and which it has lost with its memory while a mirror that was heard since has it; and
    /// for how long it has said so. A mirror on a machine that was started anew, too, has had time to say the same.
    fn has_lost_what_another_has(&self, node: NodeId) -> Option<(HomeId, u64)> {
        let peer =
            self.history.peers.get(&node).filter(|peer| !peer.lost_us.is_empty() && self.is_of_this_view(peer))?;
        let lost = &peer.lost_us;
        let is_heard_since = |mirror: NodeId, since: u64| {
            let heard = self.history.peers.get(&mirror).and_then(|peer| peer.detector.heard_us());
            let is_silent = self.history.silence_us(mirror).is_none_or(|us| us >= self.settings.silence_us_min);
            !is_silent && heard.is_some_and(|heard| heard > since + self.settings.beat_us)
        };
        let mut hosted = self.view.homes.iter().filter(|home| home.host == node);
        hosted.find_map(|home| {
            let since = *lost.get(&home.id)?;
            let said_us = self.now_us.saturating_sub(since);
            let has_it = |mirror: &&NodeId| {
                self.view.is_live(**mirror) && !self.has_lost(**mirror, home.id) && is_heard_since(**mirror, since)
            };
            let is_there = said_us >= 2 * self.settings.beat_us && home.mirrors.iter().any(|it| has_it(&it));
            is_there.then_some((home.id, said_us))
        })
    }

    /// What a node reports may be of before a copy came to it, and of before it was named host or mirror.
    fn is_of_this_view(&self, peer: &Peer) -> bool {
        peer.reports_view >= self.view.number
    }

    /// Returns true if a node says, knowing this view, that it has lost what it had of a home.
    pub fn says_lost(&self, node: NodeId, home: HomeId) -> bool {
        self.has_lost(node, home) && self.history.peers.get(&node).is_some_and(|peer| self.is_of_this_view(peer))
    }

    /// Returns true if a node said last that it has lost what it had of a home.
    pub fn has_lost(&self, node: NodeId, home: HomeId) -> bool {
        self.history.peers.get(&node).is_some_and(|peer| peer.lost_us.contains_key(&home))
    }

    /// The view that admitted a live node.
    fn live_since(&self, node: NodeId) -> Option<u64> {
        match self.view.member(node)?.state {
            MemberState::Live { since_view } => Some(since_view),
            MemberState::Excluded { .. } | MemberState::GivenUp { .. } => None,
        }
    }

    fn silent(&self, node: NodeId, peer: &Peer, plan: &mut Plan<'_>) -> Option<Suspect> {
        let silence_us = self.history.silence_us(node)?;
        let nodes = self.view.members.len();
        if !peer.detector.is_suspicious(silence_us, nodes, self.settings) {
            return None;
        }
        let suspect = |why, known_us| Some(Suspect { node, why, known_us, is_empty: false });
        if let Some(since) = self.refusing_since(node, peer) {
            let since_us = self.now_us.saturating_sub(since);
            let until = since + self.settings.restart_us_max;
            if self.now_us < until {
                plan.wait(Some(until), Reason::Refused { node, since_us });
                return None;
            }
            return suspect(Reason::RefusedTooLong { node, since_us }, self.now_us - until);
        }
        let phi = peer.detector.phi(silence_us, self.settings);
        // For how long it has been suspicious, as far as turns matter.
        let turn = self.turn_us(|other| self.history.silence_us(other) < Some(self.settings.silence_us_min));
        let was_before = peer.detector.is_suspicious(silence_us.saturating_sub(turn), nodes, self.settings);
        suspect(Reason::Silent { node, silence_us, phi }, if was_before { turn } else { 0 })
    }

    /// Since when the machine of a silent node refuses connections, by what this node or others saw lately.
    fn refusing_since(&self, node: NodeId, peer: &Peer) -> Option<u64> {
        let heard = peer.detector.heard_us().unwrap_or(0);
        let own = peer.refused_us.filter(|(_, last)| self.is_fresh(*last)).map(|(since, _)| since.max(heard));
        let told = self.view.live().any(|by| by != node && self.reports(by).contains(&Report::Refused(node)));
        own.or(told.then_some(heard))
    }

    /// How many of the others do not hear a node, by reports of this view or later ones, and how many others there are.
    /// Who is silent is no witness.
    pub fn reporters(&self, node: NodeId, since_view: u64) -> (usize, usize) {
        let is_witness = |by: &&NodeId| {
            let heard = || self.history.silence_us(**by) < Some(self.settings.silence_us_min);
            **by != node && self.view.is_live(**by) && (**by == self.me || heard())
        };
        let is_of_now = |by: &&NodeId| self.history.peers.get(by).is_some_and(|peer| peer.reports_view >= since_view);
        let others = self.live - usize::from(self.view.is_live(node));
        let says = self.unheard_by.get(&node).map_or(&[][..], Vec::as_slice);
        (says.iter().filter(is_of_now).filter(is_witness).count(), others)
    }
}

/// Whether a node says that it stops, and then whether nothing lies on it.
pub(crate) fn goodbye(reports: &[Report]) -> Option<bool> {
    reports.iter().find_map(|report| match report {
        Report::Goodbye { is_empty } => Some(*is_empty),
        _ => None,
    })
}

/// Excludes all suspects in one proposal, or freezes. Nobody guesses which of too many are dead.
pub(crate) fn exclude(facts: &Facts<'_>, plan: &mut Plan<'_>) {
    let orphans = orphans(facts);
    let is_in_doubt = |suspect: &&Suspect| !suspect.is_empty;
    let in_doubt: Vec<&Suspect> = facts.suspects.iter().filter(is_in_doubt).collect();
    let (owed, survives) = (facts.view.owed().count(), facts.view.survives);
    // Of shared homes no loss is too many: whoever has a register that answers can go on.
    let is_limited = !facts.view.is_shared();
    let is_too_many = is_limited && !in_doubt.is_empty() && in_doubt.len() + owed > survives;
    let nodes = || in_doubt.iter().map(|suspect| suspect.node).collect();
    if is_too_many {
        let why = Reason::TooMany { suspects: in_doubt.len(), owed, survives };
        plan.add(Action::Freeze { suspects: nodes(), homes: orphans.clone() }, why);
    } else if let Some(home) = orphans.first() {
        plan.add(Action::Freeze { suspects: nodes(), homes: orphans.clone() }, Reason::LastCopy { home: *home });
    }
    for suspect in &facts.suspects {
        let is_frozen = is_too_many && is_in_doubt(&suspect);
        if is_frozen || holds_one_of(facts, suspect.node, &orphans) {
            plan.wait(None, suspect.why.clone());
        } else {
            propose(facts, suspect, plan);
        }
    }
}

fn holds_one_of(facts: &Facts<'_>, node: NodeId, homes: &[HomeId]) -> bool {
    let has = |home: &crate::Home| home.copies().any(|copy| copy == node);
    homes.iter().any(|home| facts.view.home(*home).is_some_and(has))
}

fn propose(facts: &Facts<'_>, suspect: &Suspect, plan: &mut Plan<'_>) {
    let node = suspect.node;
    if suspect.known_us < facts.turn_us(|node| facts.is_sound(node)) {
        plan.wait(Some(facts.now_us + facts.settings.beat_us), Reason::OtherFirst { node });
        return;
    }
    let state = MemberState::Excluded { is_owed: !suspect.is_empty, since_view: facts.view.number + 1 };
    plan.propose(Action::Exclude { node }, suspect.why.clone(), |view| view.set_state(node, state));
}

/// Homes of which all copies are in doubt or gone. Who has lost a home is no copy of it, so excluding it loses nothing.
fn orphans(facts: &Facts<'_>) -> Vec<HomeId> {
    let homes = facts.view.homes.iter();
    let is_orphan = |home: &&crate::Home| {
        let is_copy = |suspect: &Suspect| home.copies().any(|node| node == suspect.node);
        let is_doubted =
            facts.suspects.iter().any(|suspect| is_copy(suspect) && !facts.has_lost(suspect.node, home.id));
        let has = |node: NodeId| facts.is_sound(node) && !facts.has_lost(node, home.id);
        !home.is_shared && is_doubted && !home.copies().any(has)
    };
    homes.filter(is_orphan).map(|home| home.id).collect()
}
