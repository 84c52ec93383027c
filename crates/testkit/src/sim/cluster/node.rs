//! A node: its machine, its clock, its disks, and what its process knows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cenote_cluster::Board;
use cenote_device::mem::Keep;
use cenote_device::mirror::{MirroredDevices, MirroredFiles, Replica, Source, Stream};
use cenote_device::{Clock, Control, MetaDir};
use cenote_model::{HomeId, NodeId, Response, StoreConfig, StoreId};
use cenote_server::simulated::Known;
use cenote_store::{Engine, Outcome, Seams, SessionId, Ticket, Tuning, file_kind};

use super::net::ConnId;
use super::process::Proc;
use super::{Check, Cluster, What, trace};
use crate::world::World;

/// Where a home lies on a node: its own place, or a copy.
#[derive(Clone)]
pub(super) struct Place {
    pub world: World,
    /// Everything of the home is there.
    pub is_complete: bool,
    /// The term in which this node became the home's host there.
    pub term: Option<u64>,
    /// The boot of the machine in which it became complete: nothing of a copy is synced.
    pub boot: u64,
    /// It was opened here, and everything in it was synced before.
    pub is_opened: bool,
    /// It was opened after a loss of power, and was not served since.
    pub is_rolled_back: bool,
}

impl Place {
    /// Makes everything survive a power loss, as who opens a copy must before anybody is told that something does.
    pub fn sync(&mut self) {
        self.world.meta.sync_all();
        self.world.devices.sync_all();
        self.is_opened = true;
    }
}

/// A home that is open in a process.
pub(super) struct Open {
    pub place: Place,
    pub engine: Engine,
    pub stream: Arc<Stream>,
    pub source: Source,
    /// Tells this opening from others.
    pub number: u64,
    /// The term in which the view names this node as its host, once it is served.
    pub term: Option<u64>,
    /// What was not synced was lost with the machine's memory.
    pub is_rolled_back: bool,
    /// Another node is its host by now.
    pub is_fenced: bool,
    /// Until when it may answer, by the node's clock.
    pub lease_us: u64,
    /// Sessions by their connections.
    pub sessions: BTreeMap<ConnId, SessionId>,
    pub waiting: BTreeMap<Ticket, (ConnId, u64)>,
    /// Answers that may not be told yet, each with the number of changes that the mirrors must have first.
    pub held: VecDeque<(u64, ConnId, u64, Response)>,
}

/// What a node has of a home of which another node is the host.
pub(super) enum Holding {
    /// A copy that the host's changes keep, by the number of the host's opening; the connection that brings them.
    Kept(u64, Box<Replica>, Place, ConnId),
    /// It is being opened.
    Opening,
}

/// Sends the changes of a home to one node.
pub(super) struct Sending {
    pub conn: Option<ConnId>,
    /// The other node has said what it has, and changes follow.
    pub is_streaming: bool,
    pub has: u64,
    pub complete_at: Option<u64>,
    /// When the node last confirmed something, or had nothing to confirm.
    pub answered_us: u64,
    /// Since when it gets a copy of everything.
    pub began_us: Option<u64>,
    /// When the next attempt to connect is due.
    pub again_us: u64,
}

/// A home that goes to another node.
pub(super) struct Yielding {
    pub to: NodeId,
    pub conn: ConnId,
    /// How many changes may have been told, once nothing is told any more, and since when.
    pub frozen: Option<(u64, u64)>,
}

/// A home that is being opened, as its host in a term.
pub(super) struct Opening {
    pub term: u64,
    /// `None`: it could not be opened.
    pub opened: Option<Open>,
}

pub(super) struct Node {
    pub id: NodeId,
    pub incarnation: u64,
    pub is_running: bool,
    pub is_machine_up: bool,
    pub is_stopped: bool,
    pub slow_us: u64,
    /// Boots of the machine.
    pub boot: u64,
    /// When the machine lost its memory last, and when something else last happened to the node.
    pub power_us: Option<u64>,
    pub trouble_us: u64,
    /// Homes of which it has lost what it had with its memory.
    pub lost: BTreeSet<HomeId>,
    clock_offset_us: u64,
    clock_ppm: i64,
    pub boards: Vec<NodeId>,
    // What its process knows.
    pub known: Known,
    pub board: Option<Board>,
    /// The beat to each board that is not answered: its number, when it was sent, and the view that was held then.
    pub asked: BTreeMap<NodeId, (u64, u64, u64)>,
    pub beats: u64,
    /// Since when a proposal is under way.
    pub proposing_us: Option<u64>,
    pub followed: u64,
    pub leased_us: u64,
    pub homes: BTreeMap<HomeId, Open>,
    pub opening: BTreeMap<HomeId, Opening>,
    pub holding: BTreeMap<HomeId, Holding>,
    pub sending: BTreeMap<(HomeId, NodeId), Sending>,
    /// Mirrors that count before the register says so, and since when.
    pub proposed: BTreeMap<HomeId, (NodeId, u64)>,
    /// Nodes with a copy that count from now on, with the changes that may have been told before.
    pub joining: BTreeMap<(HomeId, NodeId), u64>,
    pub yielding: BTreeMap<HomeId, Yielding>,
    /// Homes that this node asks for: by which connection, or when again.
    pub asking: BTreeMap<HomeId, (Option<ConnId>, u64)>,
    pub probing: BTreeSet<NodeId>,
    // On its disks.
    pub disk_view: u64,
    pub left_in_view: u64,
    /// The number of this node's own home.
    pub home: HomeId,
    pub own: Place,
    /// Complete copies of homes: one stays until the next one is complete.
    pub copies: BTreeMap<HomeId, Place>,
}

impl Node {
    pub fn process(&self) -> Proc {
        Proc { node: self.id, incarnation: self.incarnation }
    }
    /// Its clock at a true time.
    pub fn clock_us(&self, now_us: u64) -> u64 {
        (self.clock_offset_us + now_us).saturating_add_signed(now_us as i64 * self.clock_ppm / 1_000_000)
    }
    /// The complete copy of a home that is here.
    pub fn complete(&self, home: HomeId) -> Option<Place> {
        self.copies.get(&home).filter(|place| place.is_opened || place.boot == self.boot).cloned()
    }
    /// All places of homes on its disks.
    fn places(&self) -> impl Iterator<Item = &Place> {
        let kept = self.holding.values().filter_map(|holding| match holding {
            Holding::Kept(_, _, place, _) => Some(place),
            Holding::Opening => None,
        });
        self.copies.values().chain(kept).chain([&self.own])
    }
    /// What its process knows is gone.
    fn forget(&mut self) {
        self.known = Known::new(self.id, self.boards.clone());
        self.board = None;
        self.asked.clear();
        (self.beats, self.proposing_us, self.followed, self.leased_us) = (0, None, 0, 0);
        self.homes.clear();
        self.opening.clear();
        self.holding.clear();
        self.sending.clear();
        self.proposed.clear();
        self.joining.clear();
        self.yielding.clear();
        self.asking.clear();
        self.probing.clear();
    }
}

pub(super) fn store_of(home: HomeId) -> StoreId {
    StoreId(0xC1E0_0000 + u128::from(home.0))
}

pub(super) fn tuning() -> Tuning {
    Tuning {
        log_bytes: 32 << 10,
        checkpoint_bytes: 24 << 10,
        copy_bytes: 64 << 10,
        copy_jobs: 2,
        burst_bytes: 64 << 10,
        check_checkpoints: true,
        ..Tuning::default()
    }
}

/// An empty world for a home.
pub(super) fn new_world() -> World {
    World::new(256 << 10, 64)
}

/// An empty world for a copy of a home: who opens it there believes that nothing was lost, since each change that came was
/// carried out.
pub(super) fn new_copy(home: HomeId) -> Check<World> {
    let world = new_world();
    world.control.attach(store_of(home)).map_err(|error| format!("a control table: {error:?}"))?;
    world.control.instance_raise();
    Ok(world)
}

impl Cluster {
    pub(super) fn node(&mut self, id: NodeId) -> &mut Node {
        &mut self.nodes[usize::from(id.0)]
    }

    /// A node with an empty home of its own.
    pub(super) fn make_node(&mut self, id: NodeId, boards: &[NodeId]) -> Check<Node> {
        let drift = self.settings.drift_ppm_max;
        let home = HomeId(id.0);
        let world = new_world();
        let config = StoreConfig { devices: super::super::draw_devices(&mut self.rng, 0), ..StoreConfig::default() };
        let made = Engine::create_tuned(world.seams(), store_of(home), &config, tuning());
        drop(made.map_err(|error| format!("create: {error:?}"))?);
        world.kill();
        Ok(Node {
            id,
            incarnation: 0,
            is_running: false,
            is_machine_up: true,
            is_stopped: false,
            slow_us: 0,
            boot: 0,
            power_us: None,
            trouble_us: 0,
            lost: BTreeSet::new(),
            clock_offset_us: self.rng.below(1 << 40),
            clock_ppm: self.rng.below(2 * drift + 1) as i64 - drift as i64,
            boards: boards.to_vec(),
            known: Known::new(id, boards.to_vec()),
            board: None,
            asked: BTreeMap::new(),
            beats: 0,
            proposing_us: None,
            followed: 0,
            leased_us: 0,
            homes: BTreeMap::new(),
            opening: BTreeMap::new(),
            holding: BTreeMap::new(),
            sending: BTreeMap::new(),
            proposed: BTreeMap::new(),
            joining: BTreeMap::new(),
            yielding: BTreeMap::new(),
            asking: BTreeMap::new(),
            probing: BTreeSet::new(),
            disk_view: 0,
            left_in_view: 0,
            home,
            own: Place { world, is_complete: true, term: None, boot: 0, is_opened: true, is_rolled_back: false },
            copies: BTreeMap::new(),
        })
    }

    /// The daemon of a node starts, if none runs: it opens its own home and tells that it lives.
    pub(super) fn start(&mut self, id: NodeId) -> Check {
        let now = self.now_us;
        let node = self.node(id);
        if node.is_running {
            return Ok(());
        }
        node.forget();
        node.incarnation += 1;
        (node.is_running, node.is_machine_up, node.is_stopped) = (true, true, false);
        node.left_in_view = node.disk_view;
        if node.boards.contains(&id) {
            node.board = Some(Board::new(node.clock_us(now)));
        }
        let (process, home, place) = (node.process(), node.home, node.own.clone());
        trace!(self.trace, "{:.3} node {} starts", now as f64 / 1e6, id.0);
        let mut open = self.open(&place)?;
        let node = self.node(id);
        // Until it is served, it stays what it is, however often the daemon is started.
        node.own.is_rolled_back |= open.is_rolled_back;
        open.is_rolled_back = node.own.is_rolled_back;
        node.homes.insert(home, open);
        self.schedule(now, What::Work(process, home));
        let at = now + self.rng.below(100_000);
        self.schedule(at, What::Beat(process));
        Ok(())
    }

    /// Opens a home where it lies; all its changes are noted.
    pub(super) fn open(&mut self, place: &Place) -> Check<Open> {
        self.openings += 1;
        let number = self.openings;
        self.set_clock(&place.world);
        let plain = place.world.seams();
        let stream = Arc::<Stream>::default();
        let inner: Arc<dyn MetaDir> = plain.meta.clone();
        let devices = Arc::new(MirroredDevices::new(plain.devices.clone(), stream.clone()));
        let source = Source::new(inner.clone(), &devices, stream.clone(), file_kind);
        let files = Arc::new(MirroredFiles::new(inner, stream.clone(), file_kind));
        let seams = Seams { meta: files, devices, ..plain };
        let (engine, report) = Engine::open_tuned(seams, tuning()).map_err(|error| format!("open: {error:?}"))?;
        trace!(self.trace, "  opening {number}: {report:?}");
        Ok(Open {
            place: place.clone(),
            engine,
            stream,
            source,
            number,
            term: None,
            is_rolled_back: report.power_lost,
            is_fenced: false,
            lease_us: 0,
            sessions: BTreeMap::new(),
            waiting: BTreeMap::new(),
            held: VecDeque::new(),
        })
    }

    /// Lets the clock of a home show what it is now.
    pub(super) fn set_clock(&self, world: &World) {
        let now_ns = 1_000_000_000 + self.now_us * 1000;
        world.clock.advance_ns(now_ns.saturating_sub(world.clock.now_ns()));
    }

    /// The process of a daemon ends; what it had in files and shared memory stays.
    pub(super) fn end_process(&mut self, id: NodeId, with_machine: bool) {
        let now = self.now_us;
        let node = self.node(id);
        if !node.is_running {
            return;
        }
        let process = node.process();
        (node.is_running, node.is_stopped) = (false, false);
        for place in node.places() {
            place.world.kill();
            place.world.faults.heal();
        }
        node.forget();
        trace!(self.trace, "{:.3} the daemon of node {} ends", now as f64 / 1e6, id.0);
        self.count.ended += 1;
        for (conn, end) in self.net.of(process) {
            if with_machine { self.vanish(conn, end) } else { self.hang_up(conn, end) }
        }
    }

    /// The machine of a node is gone. `power`: with what was only in memory.
    pub(super) fn end_machine(&mut self, id: NodeId, power: bool) {
        let now = self.now_us;
        self.end_process(id, true);
        self.clients_end(id);
        let keep = Keep::Random(self.rng.next_u64());
        let node = self.node(id);
        node.is_machine_up = false;
        if power {
            node.places().for_each(|place| place.world.power_loss(keep));
            node.boot += 1;
            node.lost = node.copies.keys().copied().chain([node.home]).collect();
            node.power_us = Some(now);
            self.summary.power_losses += 1;
        }
    }

    /// An engine answers, or will.
    pub(super) fn handle(
        &mut self,
        process: Proc,
        home: HomeId,
        conn: ConnId,
        seq: u64,
        request: cenote_model::Request,
    ) {
        let Some(open) = self.nodes[usize::from(process.node.0)].homes.get(&home) else { return };
        self.set_clock(&open.place.world);
        let Some(open) = self.node(process.node).homes.get_mut(&home) else { return };
        let Some(session) = open.sessions.get(&conn).copied() else { return };
        match open.engine.handle(session, seq, request) {
            Outcome::Ready(response) => open.held.push_back((open.stream.end(), conn, seq, response)),
            Outcome::Wait(ticket) => drop(open.waiting.insert(ticket, (conn, seq))),
        }
        self.summary.requests += 1;
        self.end_if_dead(process, home);
    }

    /// The daemon died at one of its I/Os.
    pub(super) fn end_if_dead(&mut self, process: Proc, home: HomeId) -> bool {
        let open = self.nodes[usize::from(process.node.0)].homes.get(&home);
        let is_dead = open.is_some_and(|open| open.place.world.faults.is_dead());
        if is_dead {
            self.summary.deaths += 1;
            self.end_process(process.node, false);
        }
        is_dead
    }

    /// An engine does what it does by itself, and its answers are taken.
    pub(super) fn work(&mut self, process: Proc, home: HomeId) -> Check {
        if !self.is_running(process) {
            return Ok(());
        }
        if self.is_stopped(process) {
            self.schedule(self.now_us + 30_000, What::Work(process, home));
            return Ok(());
        }
        let jobs = self.rng.between(0, 6);
        let Some(open) = self.nodes[usize::from(process.node.0)].homes.get(&home) else { return Ok(()) };
        self.set_clock(&open.place.world);
        let Some(open) = self.node(process.node).homes.get_mut(&home) else { return Ok(()) };
        open.engine.tick();
        let mut done = 0;
        for _ in 0..jobs {
            let Some(job) = open.engine.next_job() else { break };
            let result = job.run();
            open.engine.finish_job(result);
            done += 1;
        }
        for (ticket, response) in open.engine.take_finished() {
            if let Some((conn, seq)) = open.waiting.remove(&ticket) {
                open.held.push_back((open.stream.end(), conn, seq, response));
            }
        }
        self.summary.jobs += done;
        if self.end_if_dead(process, home) {
            return Ok(());
        }
        let is_busy = done > 0 || !self.nodes[usize::from(process.node.0)].homes[&home].waiting.is_empty();
        self.pump(process, home);
        let pause = if is_busy { self.rng.between(1_000, 10_000) } else { 100_000 };
        self.schedule(self.now_us + pause, What::Work(process, home));
        Ok(())
    }
}
