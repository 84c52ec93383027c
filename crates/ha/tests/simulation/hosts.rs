//! Hosts: journals, mirrors, and mirrors to be.

use std::collections::BTreeSet;

use cenote_ha::{Cost, Home, HomeId, MirrorState, Report, Room, Seen};
use cenote_model::NodeId;
use cenote_workload::Rng;

use crate::cluster::Cluster;
use crate::node::Node;

impl Cluster {
    /// Whatever the load of nodes is, and however it changes: nothing of it may matter to what is safe.
    pub fn load(&mut self, id: NodeId, reports: &mut Vec<Report>) {
        let amount = |rng: &mut Rng| 1_u64 << rng.below(31);
        reports.push(Report::Room(Room { memory: amount(&mut self.rng), disk: amount(&mut self.rng) }));
        for home in self.register.view.homes.iter().filter(|home| home.host == id).map(|home| home.id) {
            let (memory, disk, written) = (amount(&mut self.rng), amount(&mut self.rng), amount(&mut self.rng));
            reports.push(Report::Cost { home, cost: Cost { memory, disk, written } });
        }
    }
    /// As host: how far mirrors and mirrors to be are.
    pub fn watch_mirrors(&mut self, id: NodeId) {
        let Some(view) = self.nodes[usize::from(id.0)].history.view().cloned() else { return };
        for home in view.homes.iter().filter(|home| home.host == id) {
            for mirror in &home.mirrors {
                let is_silent =
                    self.unheard_us(id, *mirror).max(self.unheard_us(*mirror, id)) >= self.settings.silence_us_min;
                if is_silent {
                    self.mirror_is(id, home.id, *mirror, MirrorState::Unanswered);
                }
            }
            if let Some(candidate) = self.nodes[usize::from(id.0)].candidates.get(&home.id).copied() {
                let is_live = view.is_live(candidate); // nothing is sent to one that was given up
                let is_there = is_live && self.reaches(id, candidate) && self.copies_are_equal(id, candidate, home.id);
                let state =
                    if is_there { MirrorState::CaughtUp { in_view: view.number } } else { MirrorState::Unanswered };
                self.mirror_is(id, home.id, candidate, state);
                if !is_there || home.mirrors.contains(&candidate) {
                    self.node(id).candidates.remove(&home.id);
                }
            }
        }
    }

    fn mirror_is(&mut self, host: NodeId, home: HomeId, node: NodeId, state: MirrorState) {
        let (now, settings) = (self.now_us, self.settings);
        self.node(host).record(Seen::Mirror { home, node, state }, now, &settings);
    }

    fn copies_are_equal(&self, one: NodeId, other: NodeId, home: HomeId) -> bool {
        let journal = |node: NodeId| self.nodes[usize::from(node.0)].journals.get(&home);
        journal(one).is_some() && journal(one) == journal(other)
    }

    pub fn copy_journal(&mut self, host: NodeId, home: HomeId, to: NodeId) {
        if self.nodes[usize::from(host.0)].candidates.contains_key(&home) || !self.reaches(host, to) {
            return;
        }
        let is_able = self.nodes[usize::from(to.0)].has_devices;
        let Some(position) = self.nodes[usize::from(host.0)].journals.get(&home).copied().filter(|_| is_able) else {
            return;
        };
        if !self.nodes[usize::from(host.0)].may_act(home, &self.settings, self.now_us) {
            return;
        }
        self.node(to).journals.insert(home, position);
        self.node(host).candidates.insert(home, to);
    }

    /// Hosts append one record to each home for which they may act.
    pub fn append(&mut self, id: NodeId) {
        let Some(view) = self.nodes[usize::from(id.0)].history.view().cloned() else { return };
        for home in view.homes.iter().filter(|home| home.host == id) {
            if !self.nodes[usize::from(id.0)].may_act(home.id, &self.settings, self.now_us) {
                continue;
            }
            self.only_one_acts();
            if home.is_shared {
                self.append_to_pool(id, home);
                continue;
            }
            let position = self.nodes[usize::from(id.0)].journals[&home.id];
            let (acked, _) = self.acked[&home.id];
            assert!(position >= acked, "{}: node {} acts with {position} of {acked} acknowledged", home.id, id.0);
            self.append_to(id, home, position + 1);
        }
    }

    /// The pool takes what the term allows that sealed the journal last.
    fn append_to_pool(&mut self, id: NodeId, home: &Home) {
        let (now, acked) = (self.now_us, self.acked[&home.id].0);
        let (sealed, end) = self.pool.get_mut(&home.id).expect("a journal for each shared home");
        assert!(*sealed <= home.term, "{}: node {} acts in term {} after term {sealed}", home.id, id.0, home.term);
        assert!(*end >= acked, "{}: the pool has {end} of {acked} acknowledged", home.id);
        (*sealed, *end) = (home.term, *end + 1);
        let end = *end;
        self.acked.insert(home.id, (end, now));
        self.tally.appended += 1;
        self.tally.appended_to_pool += 1;
    }

    fn append_to(&mut self, id: NodeId, home: &Home, position: u64) {
        let node = &self.nodes[usize::from(id.0)];
        let pending = node.pending.iter().filter(|(of, _, _)| *of == home.id).map(|(_, node, _)| *node);
        let needed: BTreeSet<NodeId> = home.mirrors.iter().copied().chain(pending).collect();
        let candidate = node.candidates.get(&home.id).copied();
        let mut is_everywhere = true;
        for mirror in needed.iter().copied().chain(candidate) {
            let is_kept = self.reaches(id, mirror) && self.nodes[usize::from(mirror.0)].takes(home);
            if is_kept {
                self.node(mirror).journals.insert(home.id, position);
            } else {
                is_everywhere &= !needed.contains(&mirror);
            }
        }
        self.node(id).journals.insert(home.id, position);
        if is_everywhere {
            self.acked.insert(home.id, (position, self.now_us));
            self.tally.appended += 1;
        }
    }
}

impl Node {
    /// A mirror takes no records of a term that it knows to be over.
    fn takes(&self, home: &Home) -> bool {
        let knows_later = self.view().and_then(|view| view.home(home.id)).is_some_and(|known| known.term > home.term);
        !knows_later && self.journals.contains_key(&home.id)
    }
}
