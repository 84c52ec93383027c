//! The watch of a node: beats to boards, what they answer, decisions, and proposals to the register. As
//! `server/src/daemon/nodes/watch` does it, without threads.

use std::sync::Arc;

use cenote_cluster::register::Register;
use cenote_cluster::{Beat, Notice};
use cenote_ha::{Action, Hello, MirrorState, Seen, View, decide, lease_until_us};
use cenote_model::{HomeId, NodeId};

use super::net::REGISTER;
use super::process::{Letter, Proc};
use super::{CLUSTER, Check, Cluster, What, identity, to_ha, trace};

/// A node says who it is with so many of its first beats.
const HELLOS: u64 = 4;
/// A beat, and a proposal, that is not answered for so long is given up.
const PATIENCE_US: u64 = 1_200_000;

impl Cluster {
    /// A letter, unless it is lost on the way.
    pub(super) fn send(&mut self, from: NodeId, to: Proc, letter: Letter) {
        let delay = self.delay_us(from, to.node);
        if self.net.is_open(from, to.node) {
            self.schedule(self.now_us + delay, What::Letter(to, letter));
        }
    }
    fn ask_register(&mut self, from: Proc, letter: Letter) {
        let delay = self.delay_us(from.node, REGISTER);
        if self.net.is_open(from.node, REGISTER) {
            self.schedule(self.now_us + delay, What::Ask(from, letter));
        }
    }
    /// The register answers whoever is there.
    pub(super) fn at_register(&mut self, from: Proc, letter: Letter) -> Check {
        let answer = match letter {
            Letter::Look { of, number, holds_view } => {
                let held = self.register.read().map_err(|error| format!("register: {error}"))?.map(Box::new);
                Letter::Looked { of, number, holds_view, held }
            }
            Letter::Swap { seen, view, asked_us } => {
                let before = self.view();
                let swapped = self.register.swap(Some(&seen), &view).map_err(|error| format!("register: {error}"))?;
                let held = swapped.held(&view).map(Box::new);
                if held.as_ref().is_some_and(|held| held.0 == *view) {
                    self.changed(&before, &view, from);
                }
                Letter::Swapped { held, asked_us }
            }
            _ => return Err("the register got a letter of another kind".into()),
        };
        self.send(REGISTER, from, answer);
        Ok(())
    }
    fn changed(&mut self, before: &View, after: &View, by: Proc) {
        if before.number == after.number {
            return;
        }
        trace!(
            self.trace,
            "{:.3} view {} by node {}: {:?}",
            self.now_us as f64 / 1e6,
            after.number,
            by.node.0,
            in_short(after)
        );
        for member in &after.members {
            self.count.excluded += u64::from(before.is_live(member.id) && !member.is_live());
        }
        for home in &after.homes {
            if let Some(was) = before.home(home.id).filter(|was| was.host != home.host) {
                let is_given = before.is_live(was.host) && after.is_live(was.host);
                self.count.handed_over += u64::from(is_given);
                self.count.taken_over += u64::from(!is_given);
            }
        }
    }
    pub(super) fn letter(&mut self, process: Proc, letter: Letter) -> Check {
        if !self.is_running(process) {
            return Ok(());
        }
        if self.is_stopped(process) {
            self.schedule(self.now_us + 30_000, What::Letter(process, letter));
            return Ok(());
        }
        match letter {
            Letter::Beat(of, beat) => {
                self.at_board(process, of, *beat);
                Ok(())
            }
            Letter::Looked { of, number, holds_view, held } => {
                let now = self.now_us;
                let node = self.node(process.node);
                let clock = node.clock_us(now);
                if let Some(board) = &node.board {
                    let notice = board.answer(clock, holds_view, held.as_deref());
                    self.send(process.node, of, Letter::Notice(process.node, number, Box::new(notice)));
                }
                Ok(())
            }
            Letter::Notice(board, number, notice) => self.learn(process, board, number, *notice),
            Letter::Swapped { held, asked_us } => {
                let (now, settings) = (self.now_us, self.settings);
                let node = self.node(process.node);
                node.proposing_us = None;
                let clock = node.clock_us(now);
                let is_newer = held.is_some_and(|held| node.known.hold(clock, *held, asked_us, &settings));
                if is_newer {
                    self.follow(process)?;
                    self.decide(process)?;
                }
                Ok(())
            }
            Letter::Refused(other) => {
                let (now, settings) = (self.now_us, self.settings);
                let node = self.node(process.node);
                node.probing.remove(&other);
                let clock = node.clock_us(now);
                node.known.see(clock, Seen::Refused(other), &settings);
                self.decide(process)
            }
            Letter::Opened(home, term) => self.opened(process, home, term),
            Letter::Look { .. } | Letter::Swap { .. } => Err("a daemon got a letter to the register".into()),
        }
    }
    fn at_board(&mut self, process: Proc, of: Proc, beat: Beat) {
        let now = self.now_us;
        let node = self.node(process.node);
        let clock = node.clock_us(now);
        let (number, holds_view) = (beat.number, beat.holds_view);
        let Some(board) = &mut node.board else { return };
        board.beat(clock, beat);
        self.ask_register(process, Letter::Look { of, number, holds_view });
    }
    /// What a process does at each beat.
    pub(super) fn beat(&mut self, process: Proc) -> Check {
        if !self.is_running(process) {
            return Ok(());
        }
        if self.is_stopped(process) {
            self.schedule(self.now_us + 30_000, What::Beat(process));
            return Ok(());
        }
        let again = self.now_us + self.settings.beat_us;
        self.look(process);
        self.probe(process);
        self.decide(process)?;
        self.tell_boards(process);
        self.tend_mirrors(process)?;
        self.tend_homes(process)?;
        self.schedule(again, What::Beat(process));
        Ok(())
    }
    /// Lets nodes count whose copy is complete: nothing is told any more that they do not have.
    fn let_join(&mut self, process: Proc, patience: u64) {
        let now = self.now_us;
        let view = self.view_of(process);
        let is_in = |home: HomeId, of: NodeId| {
            let entry = view.as_ref().and_then(|view| view.home(to_ha(home)));
            entry.is_some_and(|entry| entry.mirrors.contains(&of))
        };
        let node = self.node(process.node);
        let able = node.sending.iter().filter(|((home, of), it)| {
            let is_whole =
                it.complete_at.is_some_and(|at| it.has >= at) && now.saturating_sub(it.answered_us) <= patience;
            is_whole && !is_in(*home, *of) && node.homes.get(home).is_some_and(|open| open.term.is_some())
        });
        let able: Vec<(HomeId, NodeId)> = able.map(|(key, _)| *key).collect();
        node.joining.retain(|key, _| able.contains(key));
        let fresh: Vec<_> = able.into_iter().filter(|key| !node.joining.contains_key(key)).collect();
        node.joining.extend(fresh.iter().map(|key| (*key, u64::MAX)));
        self.require(process);
        let node = self.node(process.node);
        for key in fresh {
            let told = node.homes.get(&key.0).map_or(u64::MAX, |open| open.stream.end());
            node.joining.insert(key, told);
        }
    }
    fn look(&mut self, process: Proc) {
        let (now, settings) = (self.now_us, self.settings);
        let patience = 2 * settings.silence_us_min;
        self.let_join(process, patience);
        let node = self.node(process.node);
        let clock = node.clock_us(now);
        let view = node.known.view().cloned();
        let is_mirror = |home, of: NodeId| {
            let entry = view.as_ref().and_then(|view| view.home(to_ha(home)));
            entry.is_some_and(|entry| entry.mirrors.contains(&of))
        };
        let has_joined = |home: HomeId, of: NodeId| {
            let (open, told) = (node.homes.get(&home), node.joining.get(&(home, of)));
            open.zip(told).is_some_and(|(open, told)| open.stream.confirmed(of) >= *told)
        };
        let mut seen = Vec::new();
        for ((home, of), sending) in &node.sending {
            let is_caught_up = sending.complete_at.is_some_and(|at| sending.has >= at);
            let copying = sending.began_us.filter(|_| !is_caught_up).map_or(0, |began| now.saturating_sub(began));
            let state = if now.saturating_sub(sending.answered_us) > patience
                || (is_mirror(*home, *of) && copying > patience)
            {
                MirrorState::Unanswered
            } else if is_caught_up && (is_mirror(*home, *of) || has_joined(*home, *of)) {
                MirrorState::CaughtUp { in_view: node.known.number() }
            } else {
                MirrorState::Has(sending.has)
            };
            seen.push(Seen::Mirror { home: to_ha(*home), node: *of, state });
        }
        for seen in seen {
            node.known.see(clock, seen, &settings);
        }
    }
    fn probe(&mut self, process: Proc) {
        let settings = self.settings;
        let silence = (2 * settings.beat_us).max(settings.silence_us_min / 2);
        let here = process.node;
        for other in self.nodes[usize::from(here.0)].known.silent(silence) {
            let target = &self.nodes[usize::from(other.0)];
            let connects = target.is_machine_up && self.net.is_open(here, other) && self.net.is_open(other, here);
            if other != here && connects && !target.is_running && self.node(here).probing.insert(other) {
                self.send(here, process, Letter::Refused(other));
            }
        }
    }
    fn next_beat(&mut self, process: Proc) -> Beat {
        let (now, settings) = (self.now_us, self.settings);
        let node = self.node(process.node);
        node.beats += 1;
        let (me, number, clock) = (node.id, node.beats, node.clock_us(now));
        let holds_view = node.known.number();
        let is_live = node.known.view().is_some_and(|view| view.is_live(me));
        let hello = (!is_live || number <= HELLOS * node.boards.len() as u64).then(|| Hello {
            cluster: CLUSTER,
            identity: identity(me),
            address: format!("n{}:7", me.0),
            left_in_view: node.left_in_view,
            holds_view,
            devices: Vec::new(),
            lost_devices: Vec::new(),
        });
        let lost: Vec<HomeId> = node.lost.iter().copied().collect();
        let reports = node.known.reports(clock, me, &lost, &settings);
        Beat { node: me, incarnation: process.incarnation, number, holds_view, reports, weights: 0, hello }
    }
    fn tell_boards(&mut self, process: Proc) {
        let now = self.now_us;
        for board in self.nodes[usize::from(process.node.0)].boards.clone() {
            let node = self.node(process.node);
            let clock = node.clock_us(now);
            let is_waiting = |asked: &(u64, u64, u64)| clock.saturating_sub(asked.1) < PATIENCE_US;
            if node.asked.get(&board).is_some_and(is_waiting) {
                continue;
            }
            let beat = self.next_beat(process);
            let (number, held) = (beat.number, beat.holds_view);
            self.node(process.node).asked.insert(board, (number, clock, held));
            if board == process.node {
                self.at_board(process, process, beat);
            } else if self.nodes[usize::from(board.0)].is_running {
                let there = self.nodes[usize::from(board.0)].process();
                self.send(process.node, there, Letter::Beat(process, Box::new(beat)));
            }
        }
    }
    /// Takes in what a board answers.
    fn learn(&mut self, process: Proc, board: NodeId, number: u64, notice: Notice) -> Check {
        let (now, settings) = (self.now_us, self.settings);
        let node = self.node(process.node);
        let clock = node.clock_us(now);
        let Some((_, asked_us, held)) = node.asked.get(&board).copied().filter(|asked| asked.0 == number) else {
            return Ok(());
        };
        node.asked.remove(&board);
        if board != process.node
            && let Some(own) = &mut node.board
        {
            own.heard_elsewhere(clock, &notice.heard);
        }
        if notice.view < held {
            return Err(format!("board {} has view {} after view {held}", board.0, notice.view));
        }
        node.known.learn(clock, (board, notice), asked_us, process.node, &settings);
        self.follow(process)?;
        let node = self.node(process.node);
        let is_live = node.known.view().is_some_and(|view| view.is_live(process.node));
        if node.known.history.gives_lease(board) && is_live {
            self.lease(process, lease_until_us(asked_us, &settings));
        }
        self.activate(process, None)
    }
    /// Acts on a view that is new.
    pub(super) fn follow(&mut self, process: Proc) -> Check {
        let node = self.node(process.node);
        let Some(view) = node.known.view().filter(|view| view.number > node.followed).cloned() else { return Ok(()) };
        node.followed = view.number;
        node.disk_view = node.disk_view.max(view.number);
        self.act_on_view(process, &view)
    }
    /// Decides, and proposes what has to be agreed on.
    pub(super) fn decide(&mut self, process: Proc) -> Check {
        let (now, settings) = (self.now_us, self.settings);
        let node = self.node(process.node);
        if node.proposing_us.is_some_and(|since| now - since < PATIENCE_US) {
            return Ok(());
        }
        let clock = node.clock_us(now);
        let proposal = decide(process.node, &node.known.history, &settings, clock);
        let (decided, view) = (proposal.decided.clone(), proposal.view.clone());
        let before = &self.nodes[usize::from(process.node.0)].known.proposal.decided;
        let is_told = |action: &Action| !matches!(action, Action::Wait { .. } | Action::TakeOver { .. });
        let is_new = |action: &Action| !before.iter().any(|it| it.action == *action);
        for decided in decided.iter().filter(|it| is_told(&it.action) && is_new(&it.action)) {
            trace!(
                self.trace,
                "{:.3} node {}: {}: {}",
                now as f64 / 1e6,
                process.node.0,
                decided.action.text(clock),
                decided.why
            );
        }
        let node = self.node(process.node);
        node.known.note(clock, proposal);
        let seen = node.known.token();
        self.act(process, &decided);
        if let (Some(view), Some(seen)) = (view, seen) {
            self.propose(process, seen, view);
        }
        Ok(())
    }
    pub(super) fn propose(&mut self, process: Proc, seen: cenote_cluster::register::Token, view: View) {
        let now = self.now_us;
        let node = self.node(process.node);
        node.proposing_us = Some(now);
        let asked_us = node.clock_us(now);
        self.ask_register(process, Letter::Swap { seen, view: Box::new(view), asked_us });
    }
    pub(super) fn view_of(&self, process: Proc) -> Option<Arc<View>> {
        self.nodes[usize::from(process.node.0)].known.view().cloned()
    }
}

/// A view in one line: who takes part, and of each home host, term and mirrors.
fn in_short(view: &View) -> String {
    let live: Vec<u16> = view.live().map(|node| node.0).collect();
    let home = |home: &cenote_ha::Home| {
        let mirrors: Vec<u16> = home.mirrors.iter().map(|node| node.0).collect();
        format!("home {} at {} t{} {mirrors:?}", home.id.0, home.host.0, home.term)
    };
    format!("live {live:?}; {}", view.homes.iter().map(home).collect::<Vec<_>>().join(", "))
}
