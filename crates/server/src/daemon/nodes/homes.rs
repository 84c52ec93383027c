//! What the view makes of the homes on this node: which it is the host of, who mirrors them, and which it takes over.

mod opening;
mod shared;
mod yielding;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_device::Control;
use cenote_ha::{Action, Debt, Decided, MirrorState, Seen, Settings, View, leases_over_us};
use cenote_model::{Error, ErrorKind, HaCopy, HomeId, NodeId, Result};

use super::super::location::clear_former;
use super::handover::{ask_for, is_in_place};
use super::mirrors::{Hosted, Mirror};
use super::outbox::Order;
use super::watch::{Acting, settings};
use super::{Daemon, Nodes};
use crate::Host;
use crate::service::lock;
pub(super) use yielding::Yielding;

/// A mirror that is about to be in the view counts for so long after it was last proposed.
const PROPOSED_FOR: Duration = Duration::from_secs(5);

/// What this node is host of, and where it sends changes.
#[derive(Default)]
pub(super) struct Homes {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    view: Option<Arc<View>>,
    hosted: BTreeMap<HomeId, Hosted>,
    mirrors: BTreeMap<(HomeId, NodeId), Mirror>,
    /// Mirrors that are proposed: they count before the register says so.
    proposed: BTreeMap<HomeId, (NodeId, Instant)>,
    /// Nodes that have a copy and count from now on, though the view does not say so yet, with the changes that may have been
    /// told before they did: until they have these, they do not have all that was acknowledged.
    joining: BTreeMap<(HomeId, NodeId), u64>,
    /// Homes that are being opened.
    opening: BTreeSet<HomeId>,
    /// Why some of them are not open yet.
    unopened: BTreeMap<HomeId, String>,
    /// Homes that go to another node, and whether they are frozen.
    yielding: BTreeMap<HomeId, (NodeId, bool)>,
    /// Homes that this node asks for, since it is to be their host.
    asking: BTreeSet<HomeId>,
    /// The homes that this node mirrors in the view, and when it was first told so.
    listed_at: BTreeMap<HomeId, Instant>,
    /// Until when this node may act as a host, by the clock that goes on while the machine sleeps.
    leased_ns: u64,
}

/// Acts on views and decisions, for the daemon of a node.
pub(super) struct Acts {
    nodes: Arc<Nodes>,
    daemon: Arc<Daemon>,
    settings: Settings,
}

fn of_ha(home: cenote_ha::HomeId) -> HomeId {
    HomeId(home.0)
}

fn to_ha(home: HomeId) -> cenote_ha::HomeId {
    cenote_ha::HomeId(home.0)
}

impl Homes {
    /// Fails if the view that this node knows does not name a node as host of a home, with this term or an older one.
    pub fn check_host(&self, home: HomeId, node: NodeId, term: u64) -> Result<()> {
        let state = lock(&self.state);
        let entry = state.view.as_ref().and_then(|view| view.home(to_ha(home)));
        // Its view may be newer than the one here.
        if entry.is_some_and(|entry| entry.host == node && entry.term <= term || entry.term < term) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Conflict, format!("home {home}"))
            .because(format!("node {} is not its host in the view that this node has", node.0))
            .try_next("see `cenote ha`"))
    }
    /// Returns true if this node opens a home to serve it.
    pub fn is_opening(&self, home: HomeId) -> bool {
        lock(&self.state).opening.contains(&home)
    }
    /// Returns true if this node, `me`, is to be the host of a home, and the view names another one.
    pub fn is_due(&self, home: HomeId, me: NodeId) -> bool {
        let state = lock(&self.state);
        let entry = state.view.as_ref().and_then(|view| view.home(to_ha(home)));
        entry.is_some_and(|entry| entry.wanted_host == me && entry.host != me)
    }
    /// The mirrors of a home that have everything, and count: node, address, the host's term, the number of its opening.
    pub fn complete_mirrors(&self, home: HomeId) -> Vec<(NodeId, SocketAddr, u64, u64)> {
        let state = lock(&self.state);
        let Some(hosted) = state.hosted.get(&home) else { return Vec::new() };
        let complete = state
            .mirrors
            .iter()
            .filter(|((of, node), mirror)| *of == home && state.is_mirror(*node, home) && mirror.far().is_caught_up);
        let address = |node: NodeId| state.view.as_ref()?.member(node)?.address.parse().ok();
        let known = complete.filter_map(|((_, node), _)| Some((*node, address(*node)?)));
        known.map(|(node, address)| (node, address, hosted.term, hosted.mirroring.number)).collect()
    }
    /// How far the copies are that this node sends.
    pub fn copies(&self) -> Vec<HaCopy> {
        let state = lock(&self.state);
        let copy = |((home, node), mirror): (&(HomeId, NodeId), &Mirror)| {
            let far = mirror.far();
            let (copied_bytes, total_bytes) = far.copied;
            HaCopy { home: *home, node: *node, complete: far.is_caught_up, copied_bytes, total_bytes }
        };
        state.mirrors.iter().map(copy).collect()
    }
    /// The host of a home, and where it listens.
    pub fn host_of(&self, home: HomeId) -> Result<(NodeId, SocketAddr)> {
        let state = lock(&self.state);
        let found = state.view.as_ref().and_then(|view| {
            let host = view.home(to_ha(home))?.host;
            Some((host, view.member(host)?.address.parse().ok()?))
        });
        found.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, format!("home {home}")).because("the view names no host of it")
        })
    }
}

impl State {
    fn is_host(&self, me: NodeId, home: HomeId) -> bool {
        self.term_of(me, home).is_some()
    }
    /// The term of this host of a home; none if another node is the host.
    fn term_of(&self, me: NodeId, home: HomeId) -> Option<u64> {
        let entry = self.view.as_ref().and_then(|view| view.home(to_ha(home)));
        entry.filter(|entry| entry.host == me).map(|entry| entry.term)
    }
    fn is_mirror(&self, node: NodeId, home: HomeId) -> bool {
        let entry = self.view.as_ref().and_then(|view| view.home(to_ha(home)));
        entry.is_some_and(|entry| entry.mirrors.contains(&node))
    }
    fn has_mirrors(&self, home: HomeId) -> bool {
        let entry = self.view.as_ref().and_then(|view| view.home(to_ha(home)));
        entry.is_some_and(|entry| !entry.mirrors.is_empty())
    }
    /// The mirrors without which a home acknowledges nothing.
    fn required(&self, home: HomeId) -> Vec<NodeId> {
        let entry = self.view.as_ref().and_then(|view| view.home(to_ha(home)));
        if entry.is_some_and(|entry| entry.is_shared) {
            return Vec::new();
        }
        let mut nodes: Vec<NodeId> = entry.map_or_else(Vec::new, |entry| entry.mirrors.clone());
        let proposed = self.proposed.get(&home).map(|(node, _)| *node);
        let heir = self.yielding.get(&home).filter(|(_, is_frozen)| *is_frozen).map(|(node, _)| *node);
        let joining = self.joining.keys().filter(|(of, _)| *of == home).map(|(_, node)| *node);
        for node in proposed.into_iter().chain(heir).chain(joining) {
            if !nodes.contains(&node) {
                nodes.push(node);
            }
        }
        nodes
    }
    /// Returns true if a node has all that was acknowledged, and will have.
    fn has_joined(&self, home: HomeId, node: NodeId) -> bool {
        let (hosted, told) = (self.hosted.get(&home), self.joining.get(&(home, node)));
        hosted.zip(told).is_some_and(|(hosted, told)| hosted.mirroring.stream.confirmed(node) >= *told)
    }
}

impl Acts {
    pub fn new(nodes: Arc<Nodes>, daemon: Arc<Daemon>) -> Self {
        Self { nodes, daemon, settings: settings() }
    }
    fn me(&self) -> NodeId {
        NodeId(self.nodes.who.node)
    }
    fn own(&self) -> HomeId {
        self.nodes.home
    }
    fn hosted(home: HomeId, term: u64, host: &Host) -> Option<Hosted> {
        let mirroring = host.mirroring.clone()?;
        Some(Hosted { home, term, store: host.id(), service: host.service.clone(), mirroring })
    }
    /// Sends this node's clients to the hosts that the view names.
    fn direct(&self, view: &View) {
        let members = self.nodes.roster.get();
        for entry in &view.homes {
            if view.is_lost(entry) {
                self.nodes.outbox.put(Order::Moved(of_ha(entry.id))); // its clients ask again, and are told so
                continue;
            }
            let Some(host) = view.member(entry.host) else { continue };
            let Ok(gateway) = self.nodes.gateway(of_ha(entry.id)) else { continue };
            if let (Ok(address), Some(known)) = (host.address.parse(), members.of(HomeId(entry.host.0)))
                && gateway.lies_on(&known.name, address)
            {
                self.nodes.outbox.put(Order::Moved(of_ha(entry.id)));
            }
        }
    }
    /// Ends what is over with a mirror that moved to another node: its host sends it nothing more, and it deletes its copy.
    fn end_moved(&self, state: &mut State, view: &View) {
        let Some(before) = state.view.clone() else { return };
        for home in &before.homes {
            let Some((from, to)) = home.moving else { continue };
            let now = view.home(home.id);
            if !now.is_some_and(|now| now.is_on(to) && !now.is_on(from) && now.wanted_host != from) {
                continue;
            }
            state.mirrors.remove(&(of_ha(home.id), from));
            state.joining.remove(&(of_ha(home.id), from));
            if from == self.me()
                && let Some(at) = state.listed_at.get(&of_ha(home.id))
            {
                self.nodes.copies.delete(of_ha(home.id), *at);
            }
        }
    }
    /// Takes up homes that the view gives to this node, and lets those go that it gives to others.
    fn take_up(&self, view: &View) {
        let mut state = lock(&self.nodes.homes.state);
        // Of one that is lost, there is nothing to ask for.
        for entry in view.homes.iter().filter(|entry| !view.is_lost(entry)) {
            let home = of_ha(entry.id);
            if entry.host != self.me() {
                if state.hosted.remove(&home).is_some() {
                    state.mirrors.retain(|(of, _), _| *of != home);
                    self.let_go(home, entry.mirrors.contains(&self.me()));
                }
                if self.share_homes() {
                    if home == self.own() {
                        self.leave_home(entry.wanted_host);
                    } else {
                        self.nodes.copies.clear_shared(home);
                    }
                    continue;
                }
                let is_wanted = entry.wanted_host == self.me() && self.daemon.host.mirroring.is_some();
                if is_wanted && state.asking.insert(home) {
                    self.ask_for(home);
                }
                continue;
            }
            self.stop_former(&mut state, entry);
            if let Some(hosted) = state.hosted.get_mut(&home) {
                hosted.term = entry.term;
            } else if self.nodes.losses.has(home) && !entry.mirrors.is_empty() {
                // A mirror may have more: then this node is excluded; else the mirror says that it has lost it, too.
                tracing::warn!(%home, "what this node has of it is older than what a mirror may have: it waits");
            } else if home == self.own() {
                self.take_up_own(&mut state, entry.term);
            } else if state.opening.insert(home) {
                self.take_over(home, entry.term);
            }
        }
    }
    fn take_up_own(&self, state: &mut State, term: u64) {
        let home = self.own();
        let Some(hosted) = Self::hosted(home, term, &self.daemon.host) else { return };
        if self.share_homes() {
            return self.confirm_own(state, hosted);
        }
        match is_in_place(&self.nodes, &self.daemon, term) {
            Ok(true) => {
                state.hosted.insert(home, hosted);
                self.nodes.losses.forget(home);
                self.nodes.locks.serve(home, term);
            }
            Ok(false) => self.nodes.losses.forget(home),
            Err(error) => tracing::error!(%error, "nothing is answered for the home of this node"),
        }
    }
    /// Asks for a home of which this node is to be the host, on a thread of its own.
    fn ask_for(&self, home: HomeId) {
        let (nodes, daemon) = (self.nodes.clone(), self.daemon.clone());
        let run = move || {
            ask_for(&nodes, &daemon, home);
            lock(&nodes.homes.state).asking.remove(&home);
        };
        if let Err(error) = std::thread::Builder::new().name("cenote-ask-for".into()).spawn(run) {
            tracing::error!(%error, %home, "no thread to ask for a home");
        }
    }
    /// Has the view name another node as host of a home.
    pub fn hand_over(&self, home: HomeId, to: NodeId) -> Result<()> {
        self.nodes.watch.hand_over(home, to, self)
    }
    /// Returns true if the daemon ends.
    pub fn is_stopping(&self) -> bool {
        self.daemon.is_stopping()
    }
    fn let_go(&self, home: HomeId, is_mirror: bool) {
        self.nodes.locks.let_go(home);
        if home == self.own() {
            tracing::warn!(%home, "another node has the home of this node by now: nothing is answered for it here");
            self.daemon.host.fence();
        } else if let Some(host) = self.nodes.copies.let_go(home, is_mirror) {
            tracing::warn!(%home, "another node has this home by now: it is closed here");
            host.fence();
            let nodes = self.nodes.clone();
            let close = move || {
                drop(host.close());
                if nodes.share_homes() {
                    nodes.copies.clear_shared(home);
                }
            };
            let _ = std::thread::Builder::new().name("cenote-let-go".into()).spawn(close);
        }
    }
    /// Has answers told as soon as the mirrors have what they tell.
    fn listen_to(&self, host: &Host) {
        if let Some(mirroring) = &host.mirroring {
            let daemon = Arc::downgrade(&self.daemon);
            mirroring.stream.on_kept(Box::new(move || {
                if let Some(daemon) = daemon.upgrade() {
                    daemon.ring_all();
                }
            }));
        }
    }
    /// Sets which mirrors count, and begins to send to those that nothing is sent to.
    fn require(&self, state: &mut State) {
        let hosted: Vec<Hosted> = state.hosted.values().cloned().collect();
        for hosted in hosted {
            let required = state.required(hosted.home);
            hosted.mirroring.stream.require(&required);
            for node in required {
                self.send_to(state, &hosted, node);
            }
        }
    }
    /// Lets nodes count whose copy is complete: nothing is told any more that they do not have.
    fn let_join(&self, state: &mut State, patience: Duration) {
        let able = |state: &State, home: HomeId, node: NodeId| {
            let far = state.mirrors.get(&(home, node)).map(Mirror::far);
            let is_able = far.is_some_and(|far| far.is_caught_up && far.silent_for <= patience);
            is_able && !state.is_mirror(node, home) && state.hosted.contains_key(&home)
        };
        let joining: Vec<(HomeId, NodeId)> =
            state.mirrors.keys().filter(|(home, node)| able(state, *home, *node)).copied().collect();
        state.joining.retain(|key, _| joining.contains(key));
        let fresh: Vec<_> = joining.into_iter().filter(|key| !state.joining.contains_key(key)).collect();
        state.joining.extend(fresh.iter().map(|key| (*key, u64::MAX)));
        self.require(state);
        for key in fresh {
            let told = state.hosted.get(&key.0).map_or(u64::MAX, |hosted| hosted.mirroring.stream.end());
            state.joining.insert(key, told);
        }
    }
    fn send_to(&self, state: &mut State, hosted: &Hosted, node: NodeId) {
        if state.mirrors.contains_key(&(hosted.home, node)) {
            return;
        }
        let address = state.view.as_ref().and_then(|view| view.member(node)?.address.parse().ok());
        let Some(address) = address else { return };
        match Mirror::start(hosted.clone(), node, address, self.nodes.who, self.nodes.key.clone()) {
            Ok(mirror) => drop(state.mirrors.insert((hosted.home, node), mirror)),
            Err(error) => tracing::warn!(%error, home = %hosted.home, "no mirror can be sent to"),
        }
    }
    /// Begins and ends the sending to nodes that are to become mirrors.
    fn follow(&self, state: &mut State, decided: &[Decided]) {
        let mut wanted: BTreeMap<HomeId, NodeId> = BTreeMap::new();
        for decided in decided {
            match &decided.action {
                Action::Rebuild { what: Debt::Journal { home, node } } => drop(wanted.insert(of_ha(*home), *node)),
                Action::AddMirror { home, node } if state.is_host(self.me(), of_ha(*home)) => {
                    wanted.insert(of_ha(*home), *node);
                    state.proposed.insert(of_ha(*home), (*node, Instant::now()));
                }
                _ => {}
            }
        }
        state.proposed.retain(|_, (_, at)| at.elapsed() < PROPOSED_FOR);
        for (home, node) in wanted {
            let Some(hosted) = state.hosted.get(&home).cloned() else { continue };
            let required = state.required(home);
            // One that is on its way to become one is kept, though another would do as well by now.
            let heir = state.yielding.get(&home).map(|(node, _)| *node);
            let is_new = |node: &NodeId| !required.contains(node) && Some(*node) != heir;
            let is_under_way = state.mirrors.keys().any(|(of, to)| *of == home && is_new(to));
            if !is_under_way {
                self.send_to(state, &hosted, node);
            }
        }
        let live = state.view.clone();
        let is_live = |node: NodeId| live.as_ref().is_some_and(|view| view.is_live(node));
        state.mirrors.retain(|(_, node), _| is_live(*node));
    }
}

impl Acting for Acts {
    fn view(&self, view: &Arc<View>) {
        {
            let mut state = lock(&self.nodes.homes.state);
            if state.view.as_ref().is_some_and(|known| known.number > view.number) {
                return;
            }
            self.end_moved(&mut state, view);
            let mirrored = view.homes.iter().filter(|home| home.mirrors.contains(&self.me()));
            let before = std::mem::take(&mut state.listed_at);
            let since = |home: HomeId| before.get(&home).copied().unwrap_or_else(Instant::now);
            state.listed_at = mirrored.map(|home| (of_ha(home.id), since(of_ha(home.id)))).collect();
            state.view = Some(view.clone());
            let is_in = |home: &HomeId, node: &NodeId| {
                view.home(to_ha(*home)).is_some_and(|entry| entry.mirrors.contains(node))
            };
            state.proposed.retain(|home, (node, _)| !is_in(home, node));
        }
        if self.nodes.watch.is_ended_by(view) {
            lock(&self.nodes.homes.state).hosted.values().for_each(|hosted| hosted.mirroring.set_lease(0));
            self.daemon.host.fence();
            return self.daemon.end();
        }
        let leases_over = Duration::from_micros(leases_over_us(0, &self.settings));
        self.nodes.locks.view(view, leases_over);
        self.direct(view);
        self.take_up(view);
        self.require(&mut lock(&self.nodes.homes.state));
    }
    fn act(&self, decided: &[Decided]) {
        let mut state = lock(&self.nodes.homes.state);
        self.follow(&mut state, decided);
        self.require(&mut state);
    }
    fn seen(&self) -> Vec<Seen> {
        let patience = Duration::from_micros(2 * self.settings.silence_us_min);
        let mut state = lock(&self.nodes.homes.state);
        self.let_join(&mut state, patience);
        let view = state.view.as_ref().map_or(0, |view| view.number);
        let seen = |((home, node), mirror): (&(HomeId, NodeId), &Mirror)| {
            let is_in_view = state.is_mirror(*node, *home);
            let of_mirror = match mirror.state(patience, is_in_view, view) {
                MirrorState::CaughtUp { .. } if !is_in_view && !state.has_joined(*home, *node) => {
                    MirrorState::Has(mirror.far().has)
                }
                of_mirror => of_mirror,
            };
            Seen::Mirror { home: to_ha(*home), node: *node, state: of_mirror }
        };
        state.mirrors.iter().map(seen).collect()
    }
    fn lease(&self, until_us: u64) {
        let until_ns = until_us * 1000;
        let mut state = lock(&self.nodes.homes.state);
        state.leased_ns = until_ns;
        let is_frozen = |home: HomeId| state.yielding.get(&home).is_some_and(|(_, is_frozen)| *is_frozen);
        let may_act = |hosted: &&Hosted| state.is_host(self.me(), hosted.home) && !is_frozen(hosted.home);
        for hosted in state.hosted.values().filter(may_act) {
            hosted.mirroring.set_lease(until_ns);
        }
        let hosts = state.hosted.values().map(|hosted| &hosted.mirroring).chain(&self.daemon.host.mirroring);
        hosts.for_each(|mirroring| mirroring.heard(until_ns));
        self.nodes.locks.lease(until_ns);
        self.nodes.reach.lease(until_ns);
    }
}

impl Host {
    /// Answers nothing any more, and makes clients drop what they remember.
    fn fence(&self) {
        if let Some(mirroring) = &self.mirroring {
            mirroring.set_lease(0);
        }
        self.control.instance_raise();
    }
}

impl Nodes {
    /// Begins without a lease: nothing is answered before the register says that this node is the host of its home.
    pub(super) fn begin_homes(self: &Arc<Self>, daemon: &Arc<Daemon>) {
        let acts = Acts::new(self.clone(), daemon.clone());
        if let Some(mirroring) = &daemon.host.mirroring {
            mirroring.set_lease(0);
            acts.listen_to(&daemon.host);
            self.read_twins_of(&daemon.host);
            if let Err(error) = clear_former(&self.dir, &self.roster.get()) {
                tracing::warn!(%error, "what lay where the home was before stays there");
            }
        }
    }
}
