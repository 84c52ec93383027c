//! Nodes as queues: a place for clients, the thread of the rings with the engine, the thread that forwards, a network card,
//! and the uplink of each rack; and the ways that messages take through them.

use super::figures::Figures;
use super::world::{Spec, StationId, Step, World};

/// A thread takes what is worth so many nanoseconds before it passes anything on.
pub const BATCH_NS_MAX: u64 = 50_000;

/// The stations of one node.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    /// Its programs.
    pub client: StationId,
    /// The daemon's loop: rings and engine.
    pub ring: StationId,
    /// The daemon's thread for other nodes.
    pub net: StationId,
    out: StationId,
    into: StationId,
    rack: u32,
}

/// Where nodes are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Site {
    /// Each is a machine, in racks, behind a network.
    Network,
    /// All are on one machine and share its processors: how `docs/performance.md` measures several nodes.
    OneMachine,
}

/// All nodes of a cluster.
#[derive(Debug)]
pub struct Nodes {
    /// What drives them.
    pub figures: Figures,
    /// By number, from 0.
    pub all: Vec<Node>,
    /// Out and into each rack.
    uplinks: Vec<(StationId, StationId)>,
    site: Site,
}

impl Nodes {
    /// Makes the stations of so many nodes.
    pub fn new(world: &mut World, figures: &Figures, count: usize, site: Site) -> Self {
        let shared = (site == Site::OneMachine).then(|| world.processors(figures.cores.value as u32));
        let per_rack = figures.rack_nodes.value as usize;
        let node = |world: &mut World, number: usize| {
            let cores = shared.or_else(|| Some(world.processors(figures.cores.value as u32)));
            let awake = Spec { wake_ns: Figures::ns(figures.wake_us) as u64, cores, ..Spec::DEVICE };
            let awake = Spec { spin_ns: Figures::ns(figures.spin_us) as u64, ..awake };
            let thread = Spec { batch_ns_max: BATCH_NS_MAX, group_ns: Figures::ns(figures.syscall_us) as u64, ..awake };
            Node {
                client: world.station(awake),
                ring: world.station(Spec { group_ns: 0, ..thread }),
                net: world.station(Spec { servers: figures.net_threads.value as u32, ..thread }),
                out: world.station(Spec::DEVICE),
                into: world.station(Spec::DEVICE),
                rack: (number / per_rack) as u32,
            }
        };
        let all: Vec<Node> = (0..count).map(|number| node(world, number)).collect();
        let racks = if site == Site::Network { count.div_ceil(per_rack) } else { 0 };
        let uplinks = (0..racks).map(|_| (world.station(Spec::DEVICE), world.station(Spec::DEVICE))).collect();
        Self { figures: *figures, all, uplinks, site }
    }
    /// A node's daemon has so many connections to look at.
    pub fn connect(&self, world: &mut World, node: usize, connections: usize) {
        world.set_turn_ns(self.all[node].net, connections as f64 * self.figures.poll_ns.value);
    }
    /// All daemons have connections to and from so many others.
    pub fn connect_all(&self, world: &mut World, others: usize) {
        for node in 0..self.count() {
            self.connect(world, node, 2 * others.min(self.count() - 1));
        }
    }
    /// How many there are.
    pub fn count(&self) -> usize {
        self.all.len()
    }
    /// Adds a message of so many bytes from one node's daemon to another's, with what both do besides for it.
    pub fn send(&self, from: usize, to: usize, bytes: u64, way: &mut Vec<Step>) {
        let ns = self.figures.message_ns(bytes);
        self.send_as(from, to, bytes, (ns, ns), way);
    }
    /// As [`send`](Self::send), with the nanoseconds that either end needs.
    pub fn send_as(&self, from: usize, to: usize, bytes: u64, ns: (f64, f64), way: &mut Vec<Step>) {
        let (sender, receiver) = (&self.all[from], &self.all[to]);
        way.push(Step::at(sender.net, ns.0, bytes, 2 * to as u32));
        if self.site == Site::Network {
            self.cross(sender, receiver, bytes, way);
        }
        way.push(Step::at(receiver.net, ns.1, bytes, 2 * from as u32 + 1));
    }

    fn cross(&self, sender: &Node, receiver: &Node, bytes: u64, way: &mut Vec<Step>) {
        let nic_ns = Figures::ns_of(bytes, self.figures.nic_gb_s);
        way.push(Step::at(sender.out, nic_ns, bytes, 0));
        if sender.rack != receiver.rack {
            let uplink_ns = nic_ns * self.figures.oversubscription.value / self.figures.rack_nodes.value;
            way.push(Step::at(self.uplinks[sender.rack as usize].0, uplink_ns, bytes, 0));
            way.push(Step::at(self.uplinks[receiver.rack as usize].1, uplink_ns, bytes, 0));
        }
        way.push(Step::wait(Figures::ns(self.figures.wire_us)));
        way.push(Step::at(receiver.into, nic_ns, bytes, 0));
    }
    /// Service at a node's programs.
    pub fn client(&self, node: usize, ns: f64, way: &mut Vec<Step>) {
        way.push(Step::at(self.all[node].client, ns, 0, 0));
    }
    /// Service by a node's engine, for its own programs.
    pub fn ring(&self, node: usize, ns: f64, way: &mut Vec<Step>) {
        way.push(Step::at(self.all[node].ring, ns, 0, 0));
    }
    /// Service by a node's thread for other nodes, without a message.
    pub fn net(&self, node: usize, ns: f64, way: &mut Vec<Step>) {
        way.push(Step::at(self.all[node].net, ns, 0, u32::MAX));
    }
    /// A journal record to each mirror of a home and its answer. Records that wait travel together, so each adds little.
    pub fn mirrored(&self, home: usize, survives: usize, record_bytes: u64) -> Vec<Vec<Step>> {
        let ns = Figures::ns_of(record_bytes, self.figures.copy_sum_gb_s) * 2.0;
        let way = |mirror: usize| {
            let mut way = Vec::new();
            self.send_as(home, mirror, record_bytes, (ns, ns), &mut way);
            self.send_as(mirror, home, 0, (0.0, 0.0), &mut way);
            way
        };
        self.mirrors(home, survives).map(way).collect()
    }
    /// The mirrors of a node's journal: the next ones, as the first view has them.
    pub fn mirrors(&self, home: usize, survives: usize) -> impl Iterator<Item = usize> + use<> {
        let count = self.count();
        (1..=survives.min(count - 1)).map(move |step| (home + step) % count)
    }
    /// Bytes that left all nodes, and bytes that came to all nodes.
    pub fn crossed(&self, world: &World) -> (u64, u64) {
        let of = |which: fn(&Node) -> StationId| self.all.iter().map(|node| world.meter(which(node)).bytes).sum();
        (of(|node| node.out), of(|node| node.into))
    }
    /// The busiest of a kind of station, and its share of the time so far.
    pub fn busiest(&self, world: &World) -> (&'static str, f64) {
        let now = world.now_ns().max(1) as f64;
        let of = |station: StationId| world.meter(station).busy_ns as f64 / now;
        let most = |which: fn(&Node) -> StationId| self.all.iter().map(|node| of(which(node))).fold(0.0, f64::max);
        let uplink = self.uplinks.iter().flat_map(|(out, into)| [of(*out), of(*into)]).fold(0.0, f64::max);
        let kinds = [
            ("programs", most(|node| node.client)),
            ("engine", most(|node| node.ring)),
            ("forwarding thread", most(|node| node.net)),
            ("network card", most(|node| node.out).max(most(|node| node.into))),
            ("uplink of a rack", uplink),
        ];
        kinds.into_iter().fold(("nothing", 0.0), |best, kind| if kind.1 > best.1 { kind } else { best })
    }
    /// True if nothing waits or is served anywhere.
    pub fn is_idle(&self, world: &World) -> bool {
        let stations = |node: &Node| [node.client, node.ring, node.net, node.out, node.into];
        let uplinks = self.uplinks.iter().flat_map(|(out, into)| [*out, *into]);
        self.all.iter().flat_map(stations).chain(uplinks).all(|station| world.is_idle(station))
    }
}
