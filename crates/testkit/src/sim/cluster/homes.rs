//! What a view makes of the homes on a node: as `server/src/daemon/nodes/homes.rs` and `handover.rs` do it.

use std::collections::BTreeMap;

use cenote_ha::{Action, Debt, Decided, View, acts_from_us};
use cenote_model::{HomeId, NodeId};

use super::net::{ConnId, End};
use super::node::{Holding, Opening, Yielding};
use super::process::{Letter, Message, Proc};
use super::{Check, Cluster, What, of_ha, to_ha, trace};

/// A mirror that is about to be in the view counts for so long after it was last proposed.
const PROPOSED_US: u64 = 5_000_000;
/// What was told has to be at the next host in this time, or the home stays.
const FROZEN_US: u64 = 1_000_000;
const ASK_AGAIN_US: u64 = 500_000;
const ASK_SILENCE_US: u64 = 4_000_000;

impl Cluster {
    /// The term of a host of a home in the view that it knows; none if it is not.
    pub(super) fn term_of(&self, process: Proc, home: HomeId) -> Option<u64> {
        let view = self.view_of(process)?;
        let entry = view.home(to_ha(home))?;
        (entry.host == process.node).then_some(entry.term)
    }
    /// Takes up homes that the view gives to this node, and lets those go that it gives to others.
    pub(super) fn act_on_view(&mut self, process: Proc, view: &View) -> Check {
        self.node(process.node)
            .proposed
            .retain(|home, (node, _)| !view.home(to_ha(*home)).is_some_and(|entry| entry.mirrors.contains(node)));
        for entry in &view.homes {
            let home = of_ha(entry.id);
            if entry.host != process.node {
                self.let_go(process, home, entry.mirrors.contains(&process.node));
                let node = self.node(process.node);
                if entry.wanted_host == process.node && !node.asking.contains_key(&home) {
                    node.asking.insert(home, (None, 0));
                }
                continue;
            }
            let (is_own, is_opening) = {
                let node = self.node(process.node);
                node.asking.remove(&home);
                (home == node.home, node.opening.contains_key(&home))
            };
            let served = self.node(process.node).homes.get_mut(&home).filter(|open| open.term.is_some());
            if let Some(open) = served {
                open.term = Some(entry.term);
            } else if self.node(process.node).lost.contains(&home) && !entry.mirrors.is_empty() {
                // A mirror may have what this node has lost: it is excluded, or says that it has lost that, too.
            } else if is_own {
                self.take_up_own(process, entry.term)?;
                if !self.is_running(process) {
                    return Ok(()); // the daemon begins anew with the copy that came
                }
            } else if !is_opening {
                self.take_over(process, home, entry.term)?;
            }
        }
        self.require(process);
        Ok(())
    }
    fn take_up_own(&mut self, process: Proc, term: u64) -> Check {
        let node = self.node(process.node);
        let home = node.home;
        let noted = node.own.term;
        if noted == Some(term) || (noted.is_none() && term == 1) {
            node.own.term = Some(term);
            let Some(open) = node.homes.get_mut(&home).filter(|open| !open.is_fenced) else { return Ok(()) };
            open.term = Some(term);
            node.lost.remove(&home);
            if std::mem::take(&mut open.is_rolled_back) {
                node.own.is_rolled_back = false;
                self.goes_on_from_disk(process.node, home)?;
            }
            return Ok(());
        }
        let Some(mut place) = node.complete(home) else {
            return self.is_nowhere(process.node, home);
        };
        trace!(self.trace, "  {home} is back: the daemon of node {} begins anew with it", process.node.0);
        place.term = Some(term);
        place.sync();
        let node = self.node(process.node);
        node.copies.remove(&home);
        node.own = place;
        node.lost.remove(&home);
        self.end_process(process.node, false);
        self.start(process.node)
    }
    /// The host of a home has nothing of it: its copy went with the machine's memory, before anything was told in its term. People
    /// are told so, and may find it on its former host. Two nodes failed at once.
    fn is_nowhere(&mut self, node: NodeId, home: HomeId) -> Check {
        trace!(self.trace, "  {home} lies nowhere on node {}", node.0);
        self.check_two_failed(node, home)?;
        self.count.unavailable += 1;
        self.is_over = true;
        Ok(())
    }
    fn check_two_failed(&mut self, node: NodeId, home: HomeId) -> Check {
        let Some(lost_us) = self.node(node).power_us else {
            return Err(format!("node {} has nothing of what it should have of {home}, and lost no power", node.0));
        };
        let recent = lost_us.saturating_sub(2 * self.settings.silence_us_max);
        let is_alone = self.nodes.iter().all(|other| other.id == node || other.trouble_us < recent);
        if is_alone {
            return Err(format!("node {} is to serve {home} without what it had, and no other node failed", node.0));
        }
        Ok(())
    }
    /// A home is served again by a node that has lost its memory: two nodes failed at once, and one loss is what is survived.
    /// What was acknowledged and not flushed is gone, as after a loss of power of a single node.
    fn goes_on_from_disk(&mut self, node: NodeId, home: HomeId) -> Check {
        self.check_two_failed(node, home)?;
        trace!(self.trace, "  {home} goes on from the disks of node {}", node.0);
        self.count.rolled_back += 1;
        self.forget_known(home);
        Ok(())
    }
    /// Begins to open a home from the copy here; from now on no changes are taken from its former host.
    fn take_over(&mut self, process: Proc, home: HomeId, term: u64) -> Check {
        trace!(self.trace, "  node {} takes {home} over in term {term}", process.node.0);
        let node = self.node(process.node);
        if matches!(node.holding.get(&home), Some(Holding::Opening)) {
            return Err(format!("node {} opens {home} already", process.node.0));
        }
        if let Some(Holding::Kept(_, _, place, _)) = node.holding.insert(home, Holding::Opening) {
            place.world.kill();
        }
        let place = node.complete(home);
        let opened = match place {
            Some(mut place) => {
                place.world.kill();
                place.sync();
                self.node(process.node).copies.insert(home, place.clone());
                Some(self.open(&place)?)
            }
            None => None,
        };
        self.node(process.node).opening.insert(home, Opening { term, opened });
        let at = self.now_us + self.rng.between(1_000, 400_000);
        self.schedule(at, What::Letter(process, Letter::Opened(home, term)));
        Ok(())
    }
    /// A home was opened: it is served once its former hosts have stopped by themselves.
    pub(super) fn opened(&mut self, process: Proc, home: HomeId, term: u64) -> Check {
        let node = self.node(process.node);
        let Some(opening) = node.opening.get(&home).filter(|opening| opening.term == term) else { return Ok(()) };
        if opening.opened.is_none() {
            return self.is_nowhere(process.node, home);
        }
        self.activate(process, Some(home))
    }
    /// Serves what was opened, if it may be by now. `again`: of this home it looks again later.
    pub(super) fn activate(&mut self, process: Proc, again: Option<HomeId>) -> Check {
        let (now, settings) = (self.now_us, self.settings);
        for (home, term) in
            self.node(process.node).opening.iter().map(|(home, it)| (*home, it.term)).collect::<Vec<_>>()
        {
            let node = self.node(process.node);
            let clock = node.clock_us(now);
            let from = acts_from_us(to_ha(home), term, &node.known.history, &settings).unwrap_or(0);
            if clock < from {
                let wait = (from - clock).clamp(1_000, settings.beat_us);
                if again == Some(home) {
                    self.schedule(now + wait, What::Letter(process, Letter::Opened(home, term)));
                }
                continue;
            }
            let Some(opening) = self.node(process.node).opening.remove(&home) else { continue };
            let Some(mut open) = opening.opened else { continue };
            match self.term_of(process, home) {
                Some(current) if current == term => {
                    trace!(self.trace, "{:.3} node {} serves {home} in term {term}", now as f64 / 1e6, process.node.0);
                    open.term = Some(term);
                    if std::mem::take(&mut open.is_rolled_back) {
                        self.goes_on_from_disk(process.node, home)?;
                    }
                    let node = self.node(process.node);
                    open.lease_us = 0;
                    let leased = node.leased_us;
                    node.lost.remove(&home);
                    node.homes.insert(home, open);
                    // Nothing is told before its mirrors count.
                    self.require(process);
                    if let Some(open) = self.node(process.node).homes.get_mut(&home) {
                        open.lease_us = leased;
                    }
                    self.schedule(now, What::Work(process, home));
                }
                other => {
                    open.place.world.kill();
                    drop(open);
                    self.node(process.node).holding.remove(&home);
                    if let Some(current) = other {
                        self.take_over(process, home, current)?;
                    }
                }
            }
        }
        Ok(())
    }
    fn let_go(&mut self, process: Proc, home: HomeId, is_mirror: bool) {
        let node = self.node(process.node);
        let is_own = home == node.home;
        let Some(open) = node.homes.get_mut(&home) else { return };
        if open.term.is_none() && !is_own {
            return;
        }
        let was_served = open.term.take().is_some();
        open.lease_us = 0;
        if !was_served {
            return;
        }
        trace!(self.trace, "  node {} lets {home} go", process.node.0);
        let node = self.node(process.node);
        node.sending.retain(|(of, _), _| *of != home);
        let yielded = node.yielding.remove(&home);
        if let Some(it) = yielded {
            self.post(it.conn, 1, Message::Yielded);
            self.hang_up(it.conn, 1);
        }
        let node = self.node(process.node);
        if is_own {
            if let Some(open) = node.homes.get_mut(&home) {
                open.is_fenced = true;
            }
            return;
        }
        let open = node.homes.remove(&home);
        node.holding.remove(&home);
        if !is_mirror {
            node.copies.remove(&home);
        }
        let conns: Vec<ConnId> = open.iter().flat_map(|open| open.sessions.keys().copied()).collect();
        if let Some(open) = open {
            open.place.world.kill();
        }
        for conn in conns {
            self.hang_up(conn, 1);
        }
    }
    /// The mirrors without which a home acknowledges nothing.
    fn required(&self, process: Proc, home: HomeId) -> Vec<NodeId> {
        let node = &self.nodes[usize::from(process.node.0)];
        let view = node.known.view();
        let mut nodes: Vec<NodeId> =
            view.and_then(|view| view.home(to_ha(home))).map_or_else(Vec::new, |entry| entry.mirrors.clone());
        let proposed = node.proposed.get(&home).map(|(node, _)| *node);
        let heir = node.yielding.get(&home).filter(|it| it.frozen.is_some()).map(|it| it.to);
        let joining = node.joining.keys().filter(|(of, _)| *of == home).map(|(_, node)| *node);
        for node in proposed.into_iter().chain(heir).chain(joining) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }
    /// Sets which mirrors count, and begins to send to those that nothing is sent to.
    pub(super) fn require(&mut self, process: Proc) {
        let served: Vec<HomeId> = {
            let homes = self.node(process.node).homes.iter();
            homes.filter(|(_, open)| open.term.is_some()).map(|(home, _)| *home).collect()
        };
        for home in served {
            let required = self.required(process, home);
            self.node(process.node).homes[&home].stream.require(&required);
            for node in required {
                self.send_to(process, home, node);
            }
            self.pump(process, home);
        }
    }
    /// Carries out what was decided about mirrors.
    pub(super) fn act(&mut self, process: Proc, decided: &[Decided]) {
        let now = self.now_us;
        let mut wanted: BTreeMap<HomeId, NodeId> = BTreeMap::new();
        for decided in decided {
            match &decided.action {
                Action::Rebuild { what: Debt::Journal { home, node } } => drop(wanted.insert(of_ha(*home), *node)),
                Action::AddMirror { home, node } if self.term_of(process, of_ha(*home)).is_some() => {
                    wanted.insert(of_ha(*home), *node);
                    self.node(process.node).proposed.insert(of_ha(*home), (*node, now));
                }
                _ => {}
            }
        }
        self.node(process.node).proposed.retain(|_, (_, at)| now - *at < PROPOSED_US);
        for (home, to) in wanted {
            let required = self.required(process, home);
            let node = self.node(process.node);
            if node.homes.get(&home).is_none_or(|open| open.term.is_none()) {
                continue;
            }
            let heir = node.yielding.get(&home).map(|it| it.to);
            let is_new = |node: &NodeId| !required.contains(node) && Some(*node) != heir;
            if !node.sending.keys().any(|(of, to)| *of == home && is_new(to)) {
                self.send_to(process, home, to);
            }
        }
        if let Some(view) = self.view_of(process) {
            let node = self.node(process.node);
            let gone: Vec<_> = node.sending.keys().filter(|(_, to)| !view.is_live(*to)).copied().collect();
            for (home, to) in gone {
                self.stop_sending(process, home, to);
            }
        }
        self.require(process);
    }
    /// The register has granted a lease.
    pub(super) fn lease(&mut self, process: Proc, until_us: u64) {
        let homes: Vec<HomeId> = self.node(process.node).homes.keys().copied().collect();
        self.node(process.node).leased_us = until_us;
        for home in homes {
            let is_host = self.term_of(process, home).is_some();
            let node = self.node(process.node);
            let is_frozen = node.yielding.get(&home).is_some_and(|it| it.frozen.is_some());
            if let Some(open) = node.homes.get_mut(&home).filter(|open| open.term.is_some())
                && is_host
                && !is_frozen
            {
                open.lease_us = until_us;
            }
            self.pump(process, home);
        }
    }

    // Handing over on purpose.

    /// Asks for the homes that this node is to have, and goes on with those that it gives away.
    pub(super) fn tend_homes(&mut self, process: Proc) -> Check {
        let now = self.now_us;
        // A host that is gone without a word is noticed by its silence.
        let silent: Vec<HomeId> = {
            let asking = self.nodes[usize::from(process.node.0)].asking.iter();
            let is_gone =
                |conn: ConnId| !matches!(self.net.peer(conn, 0), Some(End::Daemon(peer)) if self.is_running(peer));
            let silent = asking.filter(|(_, (conn, at))| conn.is_some_and(is_gone) && *at + ASK_SILENCE_US <= now);
            silent.map(|(home, _)| *home).collect()
        };
        for home in silent {
            self.node(process.node).asking.insert(home, (None, now));
        }
        let due = self.node(process.node).asking.iter();
        let due: Vec<HomeId> =
            due.filter(|(_, (conn, at))| conn.is_none() && *at <= now).map(|(home, _)| *home).collect();
        for home in due {
            let host = self.view_of(process).and_then(|view| view.home(to_ha(home)).map(|entry| entry.host));
            let conn = host.and_then(|host| self.connect(End::Daemon(process), host));
            if let Some(conn) = conn {
                self.post(conn, 0, Message::Yield(home));
            }
            self.node(process.node).asking.insert(home, (conn, now + ASK_AGAIN_US));
        }
        let yielding: Vec<HomeId> = self.node(process.node).yielding.keys().copied().collect();
        yielding.into_iter().try_for_each(|home| self.tend_yielding(process, home))
    }
    pub(super) fn begin_yielding(&mut self, process: Proc, conn: ConnId, home: HomeId) -> Check {
        let to = match self.net.peer(conn, 1) {
            Some(End::Daemon(peer)) => peer.node,
            _ => return Ok(()),
        };
        let is_live = self.view_of(process).is_some_and(|view| view.is_live(to));
        let is_host = self.term_of(process, home).is_some();
        let node = self.node(process.node);
        let is_served = node.homes.get(&home).is_some_and(|open| open.term.is_some());
        if !is_live || !is_host || !is_served || node.yielding.contains_key(&home) {
            self.post(conn, 1, Message::Declined);
            self.hang_up(conn, 1);
            return Ok(());
        }
        node.yielding.insert(home, Yielding { to, conn, frozen: None });
        self.send_to(process, home, to);
        Ok(())
    }
    fn tend_yielding(&mut self, process: Proc, home: HomeId) -> Check {
        let now = self.now_us;
        let Some(it) = self.node(process.node).yielding.get(&home) else { return Ok(()) };
        let (to, conn, is_frozen) = (it.to, it.conn, it.frozen.is_some());
        if !self.net.is_usable(conn, 1) && !is_frozen {
            self.node(process.node).yielding.remove(&home);
            return Ok(());
        }
        let node = self.node(process.node);
        let sending = node.sending.get(&(home, to));
        if sending.is_none() && !is_frozen {
            // The copy was given up: the node was excluded meanwhile. It asks again.
            node.yielding.remove(&home);
            self.post(conn, 1, Message::Declined);
            self.hang_up(conn, 1);
            return Ok(());
        }
        let is_caught_up = sending.is_some_and(|sending| sending.complete_at.is_some_and(|at| sending.has >= at));
        if !is_caught_up && !is_frozen {
            return Ok(());
        }
        node.proposed.insert(home, (to, now));
        if let Some(open) = node.homes.get_mut(&home).filter(|_| !is_frozen) {
            // From now on nothing is told: what was told before has to be there.
            open.lease_us = 0;
            let end = open.stream.end();
            if let Some(it) = node.yielding.get_mut(&home) {
                it.frozen = Some((end, now));
            }
        }
        self.require(process);
        let node = self.node(process.node);
        let kept = node.homes.get(&home).map_or(0, |open| open.stream.kept());
        let Some(it) = node.yielding.get(&home) else { return Ok(()) };
        match it.frozen {
            Some((told, _)) if kept >= told => self.hand_over(process, home, to, conn),
            Some((_, since_us)) if now - since_us <= FROZEN_US => {}
            _ => {
                node.yielding.remove(&home);
                self.post(conn, 1, Message::Declined);
                self.hang_up(conn, 1);
            }
        }
        Ok(())
    }
    /// Has the view name another node as host of a home; tried until the register has answered.
    fn hand_over(&mut self, process: Proc, home: HomeId, to: NodeId, conn: ConnId) {
        let Some(view) = self.view_of(process) else { return };
        let is_host = self.term_of(process, home).is_some();
        if !is_host || !view.is_live(to) {
            let is_done = view.home(to_ha(home)).is_some_and(|entry| entry.host == to);
            self.node(process.node).yielding.remove(&home);
            self.post(conn, 1, if is_done { Message::Yielded } else { Message::Declined });
            self.hang_up(conn, 1);
            return;
        }
        let mut next = View { number: view.number + 1, ..(*view).clone() };
        for entry in next.homes.iter_mut().filter(|entry| entry.id == to_ha(home)) {
            // This node has all of it until the next host tells anything.
            (entry.host, entry.term, entry.mirrors) = (to, entry.term + 1, vec![process.node]);
        }
        let seen = self.node(process.node).known.token();
        if let Some(seen) = seen {
            self.propose(process, seen, next);
        }
    }
    /// What was asked for is here, or is not given now.
    pub(super) fn yielded(&mut self, process: Proc, conn: ConnId) -> Check {
        let now = self.now_us;
        let asking = self.node(process.node).asking.iter_mut();
        for (_, (by, at)) in asking.filter(|(_, (by, _))| *by == Some(conn)) {
            (*by, *at) = (None, now + ASK_AGAIN_US);
        }
        Ok(())
    }
}
