//! Aggregate bandwidth: each node's program writes or reads stripes of its own home, several under way, and daemons carry
//! parts to and from the places that `layout` chose.

use cenote_layout::plan::{Segment, Speed, plan_read};
use cenote_layout::{Candidate, Layout, Place, WriteAs, part_lengths, plan_write};
use cenote_model::{DeviceId, NodeId};

use super::figures::Figures;
use super::flow::{Flow, Load, Stages, drive, one};
use super::nodes::{Nodes, Site};
use super::places::{candidates, key, places, places_instead, sharers};

/// Stripes that a program has under way.
const UNDER_WAY: u64 = 4;
/// Bytes of an operation: a full stripe of 4+2 with units of 1 MiB, and the same bytes of a mirror.
pub const BYTES: u64 = 4 << 20;

/// What programs do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// They write fresh stripes.
    Write,
    /// They read stripes that their own nodes wrote.
    Read,
    /// The same with one node dead.
    DegradedRead,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Nodes.
    pub nodes: usize,
    /// How bytes are kept.
    pub layout: &'a Layout,
    /// What programs do.
    pub work: Work,
    /// Operations of [`BYTES`] bytes on each node.
    pub each: u64,
    /// The first part lies on the writer's own node; the others where they are chosen.
    pub is_own_first: bool,
    /// Number of a home's first stripe: others have other places.
    pub first: u64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Bytes of programs.
    pub bytes: u64,
    /// GB/s of all programs together, without begin and tail.
    pub gb_s: f64,
    /// The same until the last one ends: what a parallel program sees that waits for all its ranks.
    pub gb_s_to_end: f64,
    /// Time of an operation: median and 99th percentile, in ms.
    pub ms: (f64, f64),
    /// Most and mean busy time of forwarding threads.
    pub imbalance: f64,
    /// What was busiest, and its share of the time.
    pub busiest: (&'static str, f64),
    /// Bytes that left nodes and that came to nodes.
    pub crossed: (u64, u64),
    /// Events of the model.
    pub events: u64,
}

struct Run<'a> {
    setup: Setup<'a>,
    nodes: Nodes,
    candidates: Vec<Candidate>,
}

/// Runs all operations to their end.
pub fn run(figures: &Figures, setup: Setup<'_>) -> Outcome {
    let mut flow = Flow::default();
    let nodes = Nodes::new(&mut flow.world, figures, setup.nodes, Site::Network);
    nodes.connect_all(&mut flow.world, sharers(setup.nodes));
    let candidates = candidates(setup.nodes, figures.rack_nodes.value as usize);
    let run = Run { setup, nodes, candidates };
    let load = Load { workers: setup.nodes, each: setup.each, under_way: UNDER_WAY };
    let pace = drive(&mut flow, load, |node, number| match setup.work {
        Work::Write => run.write(node, number),
        Work::Read | Work::DegradedRead => run.read(node, number),
    });
    assert!(run.nodes.is_idle(&flow.world), "something is left in a queue");
    let busy = run.nodes.all.iter().map(|node| flow.world.meter(node.net).busy_ns as f64);
    let (most, sum) = busy.fold((0.0, 0.0), |(most, sum), busy| (f64::max(most, busy), sum + busy));
    Outcome {
        nodes: setup.nodes,
        bytes: pace.done * BYTES,
        gb_s: pace.per_s * BYTES as f64 / 1e9,
        gb_s_to_end: pace.per_s_to_end * BYTES as f64 / 1e9,
        ms: (pace.p50_us / 1e3, pace.p99_us / 1e3),
        imbalance: most * setup.nodes as f64 / f64::max(sum, 1.0),
        busiest: run.nodes.busiest(&flow.world),
        crossed: run.nodes.crossed(&flow.world),
        events: flow.world.events,
    }
}

impl Run<'_> {
    fn places(&self, node: usize, number: u64) -> Vec<Place> {
        let (key, layout) = (key(node, self.setup.first + number), self.setup.layout);
        if !self.setup.is_own_first {
            return places(key, layout, &self.candidates);
        }
        let mut kept = vec![None; layout.parts()];
        kept[0] = Some(Place { node: NodeId(node as u16), device: DeviceId(0) });
        places_instead(key, layout, &kept, &self.candidates)
    }

    /// A copy into leased memory, parity, parts to their places, the change of the map with its record on all mirrors.
    fn write(&self, node: usize, number: u64) -> Stages {
        let (figures, layout) = (&self.nodes.figures, self.setup.layout);
        let mut ns = Figures::ns_of(BYTES, figures.copy_sum_gb_s);
        if layout.has_units() && layout.losses_max() > 0 {
            ns += Figures::ns_of(BYTES, figures.encode_gb_s);
        }
        let mut prepare = Vec::new();
        self.nodes.client(node, ns, &mut prepare);
        let whole = plan_write(layout, 0..BYTES);
        assert!(whole.iter().all(|write| write.write_as == WriteAs::Stripe), "full stripes only");
        let lengths = part_lengths(layout, BYTES);
        let part = |(place, bytes): (&Place, &u64)| {
            let (to, mut way) = (usize::from(place.node.0), Vec::new());
            if to != node {
                self.nodes.send(node, to, *bytes, &mut way);
                self.nodes.send(to, node, 0, &mut way);
            }
            way
        };
        let parts = self.places(node, number).iter().zip(&lengths).map(part).collect();
        let mut change = Vec::new();
        self.nodes.ring(node, Figures::ns(figures.put_engine_us), &mut change);
        let record = figures.write_record_bytes.value as u64;
        vec![one(prepare), parts, one(change), self.nodes.mirrored(node, layout.losses_max(), record)]
    }

    /// The parts that `plan_read` names; then a copy, and what is missing is computed.
    fn read(&self, node: usize, number: u64) -> Stages {
        let (figures, layout) = (&self.nodes.figures, self.setup.layout);
        let segment = Segment::new(layout, 0, BYTES, self.places(node, number));
        let dead = (self.setup.work == Work::DegradedRead).then_some(NodeId((self.setup.nodes / 2) as u16));
        let speed = |gb_s: f64, latency_us: f64| Some(Speed { latency_us, bytes_per_us: gb_s * 1e3 });
        let speeds = |place: Place| match place.node {
            lost if Some(lost) == dead => None,
            own if usize::from(own.0) == node => speed(figures.copy_gb_s.value, 0.0),
            _ => speed(figures.tcp_gb_s.value, figures.wire_us.value),
        };
        let plan = plan_read(&[segment], 0..BYTES, &speeds).expect("one loss is survived");
        let lost_bytes: u64 = plan.decodes.iter().map(|decode| decode.len).sum();
        let part = |read: &cenote_layout::plan::Read| {
            let (from, mut way) = (usize::from(read.place.node.0), Vec::new());
            if from != node {
                self.nodes.send(node, from, figures.request_bytes.value as u64, &mut way);
                self.nodes.send(from, node, read.len, &mut way);
            }
            way
        };
        let decode_ns = Figures::ns_of(lost_bytes * layout.data_parts() as u64, figures.decode_gb_s);
        let mut take = Vec::new();
        self.nodes.client(node, Figures::ns_of(BYTES, figures.copy_gb_s) + decode_ns, &mut take);
        vec![plan.reads.iter().map(part).collect(), one(take)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(figures: &Figures, nodes: usize, layout: &str, work: Work, each: u64) -> Outcome {
        let layout: Layout = layout.parse().unwrap();
        run(figures, Setup { nodes, layout: &layout, work, each, is_own_first: false, first: 0 })
    }

    #[test]
    fn what_leaves_nodes_comes_to_nodes_and_is_what_the_layout_says() {
        let figures = Figures::measured();
        for (text, times) in [("mirror=2", 2.0), ("4+2", 1.5)] {
            let outcome = at(&figures, 30, text, Work::Write, 4);
            assert_eq!(outcome.crossed.0, outcome.crossed.1, "{text}");
            assert_eq!(outcome.bytes, 30 * 4 * BYTES);
            // Parts whose place is their writer's node cross no network: one in thirty.
            let share = outcome.crossed.0 as f64 / (outcome.bytes as f64 * times);
            assert!((0.90..1.01).contains(&share), "{text}: {share}");
        }
        let read = at(&figures, 30, "4+2", Work::DegradedRead, 4);
        assert_eq!(read.crossed.0, read.crossed.1);
        assert!((0.90..1.01).contains(&(read.crossed.0 as f64 / read.bytes as f64)), "{read:?}");
    }

    #[test]
    fn the_same_run_always_gives_the_same() {
        let once = || at(&Figures::measured(), 12, "4+2", Work::Write, 6);
        assert_eq!(once(), once());
    }

    #[test]
    fn better_hardware_is_not_slower() {
        let of = |name: &str, times: f64| {
            let mut figures = Figures::measured();
            let before = figures.all().iter().find(|(other, _)| *other == name).unwrap().1.value;
            assert!(figures.set(name, before * times));
            [Work::Write, Work::Read, Work::DegradedRead].map(|work| at(&figures, 50, "4+2", work, 6).gb_s_to_end)
        };
        let plain = of("nic_gb_s", 1.0);
        for (name, times) in [("nic_gb_s", 2.0), ("tcp_gb_s", 2.0), ("oversubscription", 0.25), ("wire_us", 0.5)] {
            let better = of(name, times);
            assert!(plain.iter().zip(&better).all(|(one, other)| *other >= one * 0.98), "{name}: {plain:?} {better:?}");
        }
        let faster = of("tcp_gb_s", 2.0);
        assert!(faster[0] > plain[0] * 1.2, "the forwarding thread is what writes wait for: {plain:?} {faster:?}");
    }

    #[test]
    fn the_first_copy_at_home_crosses_half_as_much() {
        let (figures, layout) = (Figures::measured(), "mirror=2".parse().unwrap());
        let setup = Setup { nodes: 40, layout: &layout, work: Work::Write, each: 6, is_own_first: false, first: 0 };
        let (spread, own) = (run(&figures, setup), run(&figures, Setup { is_own_first: true, ..setup }));
        // The second copy of each operation, and the record of its change to one mirror.
        assert_eq!(own.crossed.0, own.bytes + 40 * 6 * figures.write_record_bytes.value as u64);
        assert!(own.gb_s_to_end > spread.gb_s_to_end * 1.4, "{spread:?} {own:?}");
    }

    #[test]
    fn one_node_more_or_less_dead_costs_reads_little() {
        let figures = Figures::measured();
        let read = |work| at(&figures, 60, "4+2", work, 6).gb_s_to_end;
        let (whole, degraded) = (read(Work::Read), read(Work::DegradedRead));
        assert!(degraded <= whole * 1.05 && degraded > whole * 0.6, "{whole} {degraded}");
    }
}
