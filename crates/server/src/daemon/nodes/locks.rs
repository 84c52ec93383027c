//! Locks of files among nodes, in the daemon: the agent of this node and the arbiters of the homes that it serves, with
//! the connections by which they talk to each other, and with clocks. What they decide is in `crate::locks`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cenote_device::control::{SharedControl, boot_ns};
use cenote_ha::{MemberState, View};
use cenote_model::{Error, ErrorKind, HomeId, LockAnswer, LockHow, NodeId, Result};
use cenote_rpc::net::Class;
use cenote_wire::{LockAsk, NodeLock, encode_locks};

use super::super::Daemon;
use super::Nodes;
use super::foreign::Outgoing;
use super::lock_files::LockFiles;
use super::outbox::{ConnectionId, Order, Outbox};
use crate::locks::{Agent, Arbiter};
use crate::service::lock;

/// How long nodes may claim what they had, at most.
const GRACE: Duration = Duration::from_secs(30);
/// Interval at which locks that keep other nodes waiting are looked at…
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// …and everything else.
const EVERY: Duration = Duration::from_millis(100);
const ROUND: Duration = Duration::from_secs(1);
/// How long a process waits for a node or a home that is away.
const AWAY: Duration = Duration::from_secs(30);
/// A process waits for an answer that is due for so long: longer than a grace.
const ANSWER: Duration = Duration::from_secs(45);
/// Interval at which a process that waits is looked at.
const WAIT: Duration = Duration::from_millis(50);
/// The term of a home that never had another host.
const FIRST: u64 = 1;

/// See the module.
pub(super) struct Locks {
    me: NodeId,
    own: HomeId,
    /// Nodes can lose what they have: there are leases.
    is_leased: bool,
    control: Arc<SharedControl>,
    outbox: Arc<Outbox>,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    agent: Agent,
    files: LockFiles,
    served: BTreeMap<HomeId, Served>,
    visitors: BTreeMap<(HomeId, NodeId), ConnectionId>,
    /// What nodes said of the own home before the register told that this node is its host.
    early: BTreeMap<NodeId, Vec<NodeLock>>,
    view: Option<Arc<View>>,
    /// When the locks of nodes end that do not take part any more: they know it by then.
    ends: Vec<(Instant, NodeId)>,
    /// Homes with a connection.
    up: BTreeSet<HomeId>,
    /// Homes that have another host, or another term: it waits for what this node claims.
    claims: BTreeSet<HomeId>,
    reaching: BTreeSet<HomeId>,
    is_watching: bool,
    /// Another node is the host of the own home, until this daemon begins anew.
    has_let_go: bool,
}

struct Served {
    arbiter: Arbiter,
    grace_until: Instant,
}

impl Locks {
    /// Those of a node. `memory`: the directory of its home in shared memory.
    pub fn open(
        (me, own): (NodeId, HomeId),
        is_leased: bool,
        memory: &Path,
        control: Arc<SharedControl>,
        outbox: Arc<Outbox>,
    ) -> Result<Arc<Self>> {
        let mut files = LockFiles::new(memory, control.clone());
        // Until the register says that this node is the host.
        files.set_grace(true);
        control.set_lock_lease(if is_leased { 0 } else { u64::MAX });
        let kept = files.kept()?;
        let state = State {
            agent: Agent::new(me.0, own, kept, &mut files),
            files,
            served: BTreeMap::new(),
            visitors: BTreeMap::new(),
            early: BTreeMap::new(),
            view: None,
            ends: Vec::new(),
            up: BTreeSet::new(),
            claims: BTreeSet::new(),
            reaching: BTreeSet::new(),
            is_watching: false,
            has_let_go: false,
        };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let locks = Arc::new(Self { me, own, is_leased, control, outbox, state, changed });
        if !is_leased {
            locks.serve(own, FIRST);
        }
        Ok(locks)
    }
    /// This node is the host of a home from now on.
    pub fn serve(&self, home: HomeId, term: u64) {
        let mut state = lock(&self.state);
        let live: BTreeSet<u16> = state.view.iter().flat_map(|view| view.live()).map(|node| node.0).collect();
        let before = self.control.lock_words().term;
        let is_own = home == self.own;
        let mut awaited = match (is_own, before) {
            (true, before) if before == term => nodes_in(self.control.lock_nodes()),
            (true, 0) if term == FIRST => BTreeSet::new(),
            _ => live,
        };
        if is_own {
            awaited.remove(&self.me.0);
            self.control.set_lock_term(term);
        }
        let mut arbiter = Arbiter::new(is_own.then_some(self.me.0), awaited);
        if let Some(view) = &state.view {
            arbiter.note_admitted(admitted(Some(view)));
        }
        tracing::debug!(%home, term, grace = arbiter.is_in_grace(), "locks of a home are decided here");
        if is_own {
            for (node, messages) in std::mem::take(&mut state.early) {
                for message in messages {
                    arbiter.take(node.0, message);
                }
            }
            state.agent.reclaim(home);
        }
        state.served.insert(home, Served { arbiter, grace_until: Instant::now() + GRACE });
        self.settle(&mut state);
    }
    /// Another node is the host of a home from now on.
    pub fn let_go(&self, home: HomeId) {
        let mut state = lock(&self.state);
        state.served.remove(&home);
        if home == self.own {
            (state.has_let_go, state.early) = (true, BTreeMap::new());
            state.files.set_grace(true);
        }
        self.settle(&mut state);
    }
    /// A new view. `leases_over`: so long a node that does not take part any more may not know it.
    pub fn view(&self, view: &Arc<View>, leases_over: Duration) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let before = state.view.replace(view.clone());
        for entry in view.homes.iter().filter(|entry| entry.id.0 != self.own.0) {
            let known = before.as_ref().and_then(|before| before.home(entry.id));
            let is_same =
                known.map_or(entry.term == FIRST, |known| (known.host, known.term) == (entry.host, entry.term));
            if !is_same {
                state.claims.insert(HomeId(entry.id.0));
            }
        }
        let nodes = admitted(Some(view));
        state.agent.set_admitted(nodes.get(&self.me.0).copied().unwrap_or(0), &mut state.files);
        let at = Instant::now() + leases_over;
        for served in state.served.values_mut() {
            let over = served.arbiter.note_admitted(nodes.clone());
            state.ends.extend(over.into_iter().map(|node| (at, NodeId(node))));
        }
        self.settle(state);
    }
    /// This node takes part until then.
    pub fn lease(&self, until_ns: u64) {
        if self.is_leased {
            self.control.set_lock_lease(until_ns);
            self.changed.notify_all();
        }
    }
    /// There is a connection to a home.
    pub fn up(&self, home: HomeId) {
        let mut state = lock(&self.state);
        state.up.insert(home);
        state.claims.remove(&home);
        state.agent.reclaim(home);
        self.settle(&mut state);
    }
    /// There is none any more.
    pub fn down(&self, home: HomeId) {
        lock(&self.state).up.remove(&home);
    }
    /// A message of the host of a home.
    pub fn take_from_home(&self, home: HomeId, message: NodeLock) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.agent.take(home, message, &mut state.files);
        self.settle(state);
    }
    /// A node has a new connection for a home that is served here.
    pub fn came(&self, home: HomeId, node: NodeId, connection: ConnectionId) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        state.visitors.insert((home, node), connection);
        state.early.remove(&node);
        if let Some(served) = state.served.get_mut(&home) {
            // Nothing counts on the new connection before the node has said what it has.
            served.arbiter.gone(node.0);
        }
        self.settle(state);
    }
    /// That connection has ended.
    pub fn left(&self, home: HomeId, node: NodeId, connection: ConnectionId) {
        let mut state = lock(&self.state);
        if state.visitors.get(&(home, node)) == Some(&connection) {
            state.visitors.remove(&(home, node));
            state.early.remove(&node);
            if let Some(served) = state.served.get_mut(&home) {
                served.arbiter.gone(node.0);
            }
            self.settle(&mut state);
        }
    }
    /// A message of another node for a home that is served here.
    pub fn take_from_node(&self, home: HomeId, node: NodeId, connection: ConnectionId, message: NodeLock) {
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        if state.visitors.get(&(home, node)) != Some(&connection) {
            return;
        }
        if matches!(message, NodeLock::Reclaim { .. }) {
            // It knows what it has lost.
            state.ends.retain(|(_, gone)| *gone != node);
        }
        if let Some(served) = state.served.get_mut(&home) {
            served.arbiter.take(node.0, message);
        } else if home == self.own && !state.has_let_go {
            state.early.entry(node).or_default().push(message);
        }
        self.settle(state);
    }
    /// Hands messages on until there are none, and writes down what processes are to see.
    fn settle(&self, state: &mut State) {
        let mut told: Vec<(ConnectionId, Outgoing)> = Vec::new();
        loop {
            let (mut is_done, served) = (true, &mut state.served);
            for (home, message) in state.agent.take_out() {
                is_done = false;
                if home != self.own {
                    self.outbox.put(Order::ToHome(home, Class::Control, encoded(&message)));
                } else if let Some(served) = served.get_mut(&home) {
                    served.arbiter.take(self.me.0, message);
                }
            }
            for (home, served) in served.iter_mut() {
                for (node, message) in served.arbiter.take_out() {
                    is_done = false;
                    if *home == self.own && node == self.me.0 {
                        state.agent.take(*home, message, &mut state.files);
                    } else if let Some(connection) = state.visitors.get(&(*home, NodeId(node))) {
                        told.push((*connection, Outgoing::new(Class::Control, encoded(&message))));
                    }
                }
            }
            if is_done {
                break;
            }
        }
        if let Some(served) = state.served.get(&self.own) {
            // Before a node is told what it has: the next daemon must wait for what that one claims.
            let others = served.arbiter.others().iter().fold(0, |all, node| all | SharedControl::grantee(*node));
            self.control.set_lock_nodes(others);
            state.files.set_grace(served.arbiter.is_in_grace());
        }
        for (connection, message) in told {
            self.outbox.put(Order::Answer(connection, message));
        }
        state.is_watching = state.agent.is_watching();
        self.changed.notify_all();
    }
    fn wait<'a>(&self, state: MutexGuard<'a, State>, patience: Duration) -> MutexGuard<'a, State> {
        let waited = self.changed.wait_timeout(state, patience);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner).0
    }
    /// A process that was told that its node has a lock has locked, or does not want to any more.
    pub fn kept(&self, file: u64) {
        lock(&self.state).agent.kept(file);
    }
    /// Answers a process of this node, which waits. `is_over`: it does not any more. Whoever asked for a lock says
    /// [`Locks::kept`] after [`LockAnswer::Granted`].
    pub fn answer(&self, nodes: &Nodes, ask: &LockAsk, is_over: &dyn Fn() -> bool) -> Result<LockAnswer> {
        self.await_lease(is_over)?;
        if ask.term != self.control.lock_words().term {
            return Ok(LockAnswer::Lost); // it sees the table of a home that another node has had since
        }
        if ask.how == LockHow::Settle {
            return Ok(LockAnswer::Granted);
        }
        if let Some(error) = nodes.lost(ask.home) {
            return Err(error);
        }
        if ask.home != self.own {
            nodes.gateway(ask.home)?.reach()?;
        }
        let mut state = lock(&self.state);
        let asks = ask.home == self.own && state.served.get(&ask.home).is_none_or(|it| it.arbiter.is_in_grace());
        let number = match state.agent.ask(ask.home, ask.file, ask.wish, ask.how, asks) {
            Ok(answer) => return Ok(answer),
            Err(number) => number,
        };
        self.settle(&mut state);
        let (begin, mut away_since) = (Instant::now(), None);
        loop {
            if let Some(outcome) = state.agent.answer(number) {
                return outcome.ok_or_else(too_many);
            }
            let is_there = state.up.contains(&ask.home) || state.served.contains_key(&ask.home);
            let away = if is_there { None } else { Some(*away_since.get_or_insert_with(Instant::now)) };
            away_since = away;
            let is_late = ask.how != LockHow::Wait && begin.elapsed() > ANSWER;
            if is_over() || is_late || away.is_some_and(|since| since.elapsed() > AWAY) {
                state.agent.cancel(number);
                self.settle(&mut state);
                return Err(away_error(ask.home));
            }
            state = self.wait(state, WAIT);
        }
    }
    /// Waits until this node takes part for sure.
    fn await_lease(&self, is_over: &dyn Fn() -> bool) -> Result<()> {
        let begin = Instant::now();
        let mut state = lock(&self.state);
        while self.is_leased && self.control.lock_words().lease_until < boot_ns() {
            if is_over() || begin.elapsed() > AWAY {
                return Err(Error::new(ErrorKind::Disconnected, "locks of files")
                    .because("this node does not reach those that keep the register of the cluster")
                    .try_next("see `cenote ha`"));
            }
            state = self.wait(state, WAIT);
        }
        Ok(())
    }
    /// Does what time brings, until the daemon stops.
    pub fn run(self: &Arc<Self>, nodes: &Arc<Nodes>, daemon: &Arc<Daemon>) {
        let mut round_at = Instant::now();
        while !daemon.is_stopping() {
            let mut guard = lock(&self.state);
            let pause = if guard.is_watching { LOOK_EVERY } else { EVERY };
            // Others notify for what they changed: whoever waits for this thread waits for time.
            let until = Instant::now() + pause;
            while !guard.is_watching && Instant::now() < until {
                guard = self.wait(guard, until.saturating_duration_since(Instant::now()));
            }
            let state = &mut *guard;
            state.agent.look(&mut state.files);
            let now = Instant::now();
            if now.duration_since(round_at) >= ROUND {
                round_at = now;
                state.agent.end_round(&mut state.files);
                state.served.values_mut().for_each(|served| served.arbiter.retry_all());
            }
            let (due, later): (Vec<_>, Vec<_>) = state.ends.drain(..).partition(|(at, _)| *at <= now);
            state.ends = later;
            for served in state.served.values_mut() {
                for (_, node) in &due {
                    served.arbiter.end(node.0);
                }
                if served.grace_until <= now {
                    served.arbiter.end_grace();
                }
            }
            self.settle(state);
            let wanted: BTreeSet<HomeId> = state.agent.homes().chain(state.claims.iter().copied()).collect();
            // What was held of a home that is lost ends with it.
            let is_to_reach = |home: &HomeId| !state.up.contains(home) && nodes.lost(*home).is_none();
            for home in wanted.into_iter().filter(is_to_reach).collect::<Vec<_>>() {
                if state.reaching.insert(home) {
                    self.reach(nodes, home);
                }
            }
            let is_watching = guard.is_watching;
            drop(guard);
            if is_watching {
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
    /// Connects to a home, on a thread of its own.
    fn reach(self: &Arc<Self>, nodes: &Arc<Nodes>, home: HomeId) {
        let (locks, nodes) = (self.clone(), nodes.clone());
        let run = move || {
            let reached = nodes.gateway(home).and_then(|gateway| gateway.reach().map(drop));
            if let Err(error) = reached {
                tracing::debug!(%error, %home, "what this node has of its locks cannot be told yet");
                std::thread::sleep(EVERY);
            }
            lock(&locks.state).reaching.remove(&home);
        };
        if std::thread::Builder::new().name("cenote-lock-way".into()).spawn(run).is_err() {
            tracing::warn!(%home, "no thread to tell a home of locks");
        }
    }
}

/// The nodes that take part, each with the view that admitted it.
fn admitted(view: Option<&View>) -> BTreeMap<u16, u64> {
    let members = view.into_iter().flat_map(|view| &view.members);
    let live = members.filter_map(|member| match member.state {
        MemberState::Live { since_view } => Some((member.id.0, since_view)),
        MemberState::Excluded { .. } | MemberState::GivenUp { .. } => None,
    });
    live.collect()
}

/// The nodes of a mask; the last bit stands for all later ones.
fn nodes_in(mask: u64) -> BTreeSet<u16> {
    let others = if mask & SharedControl::OTHER_GRANTEES == 0 { 0..0 } else { 63..1024 };
    (0..63).filter(|node| mask & 1 << node != 0).chain(others).collect()
}

fn encoded(message: &NodeLock) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_locks(message, &mut bytes);
    bytes
}

#[cold]
fn too_many() -> Error {
    Error::new(ErrorKind::LimitExceeded, "locks of a file")
        .because("this node has too many ranges of it, or no memory for them")
        .try_next("lock fewer or longer ranges")
}

#[cold]
fn away_error(home: HomeId) -> Error {
    Error::new(ErrorKind::Disconnected, format!("locks of files of home {home}"))
        .because("its node did not answer in time")
        .try_next("`cenote cluster status` shows which nodes are alive")
}
