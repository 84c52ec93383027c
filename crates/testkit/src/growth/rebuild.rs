//! How long it takes until everything that lay on a dead node has all its parts again: each home plans its own stripes by
//! `plan_rebuild`, and the places of the new parts fetch what they need.

use cenote_layout::plan::{RebuildTask, Segment, plan_rebuild};
use cenote_layout::{Candidate, Layout, Place, StripeKey, choose, hash_of, near};
use cenote_model::NodeId;

use super::figures::Figures;
use super::flow::{Flow, Load, Stages, drive, one};
use super::nodes::{Nodes, Site};
use super::places::{candidates, key};
use super::world::{Spec, StationId, Step};

/// Tasks that a home has under way.
const UNDER_WAY: u64 = 4;

/// Where bytes lie.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Nodes, one of which is dead.
    pub nodes: usize,
    /// How bytes are kept.
    pub layout: &'a Layout,
    /// Full stripes of each home.
    pub stripes: u64,
    /// How many candidates are looked at for each stripe.
    pub width: usize,
}

/// How repair goes on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Manner {
    /// Parts lie on disks, not in memory.
    pub is_on_disk: bool,
    /// Nodes are busy, so that repair has a part of their time only.
    pub is_busy: bool,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Bytes that the dead node had.
    pub lost_bytes: u64,
    /// Bytes that were read for them.
    pub read_bytes: u64,
    /// Bytes of new parts.
    pub written_bytes: u64,
    /// Seconds until the last part was there.
    pub seconds: f64,
    /// Nodes that read or wrote.
    pub helpers: usize,
    /// Most parts that one node received, and the mean of all helpers.
    pub received: (u64, f64),
    /// What was busiest, and its share of the time.
    pub busiest: (&'static str, f64),
}

type Stripe = (StripeKey, Layout, Segment);

/// A task of a home.
#[derive(Clone, Debug)]
struct Task {
    home: usize,
    rebuild: RebuildTask,
    /// Of a part.
    bytes: u64,
}

/// What is to be done after a node's death.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    setup: Setup<'a>,
    lost_bytes: u64,
    tasks: Vec<Task>,
}

/// Places all stripes, and plans the repair of those that a dead node had a part of.
pub fn plan<'a>(figures: &Figures, setup: Setup<'a>) -> Plan<'a> {
    let dead = NodeId((setup.nodes / 2) as u16);
    let all = candidates(setup.nodes, figures.rack_nodes.value as usize);
    let live: Vec<Candidate> = all.iter().copied().filter(|one| one.place.node != dead).collect();
    let homes = stripes_of(&setup, &all, dead);
    let lost_bytes = homes.iter().flat_map(|(_, of)| of).map(|(_, _, segment)| segment.part_len(0)).sum();
    let tasks = homes.iter().flat_map(|(home, of)| plan_home(&setup, *home, of, dead, &live)).collect();
    Plan { setup, lost_bytes, tasks }
}

/// Carries a plan out.
pub fn run(figures: &Figures, plan: &Plan<'_>, manner: Manner) -> Outcome {
    let (nodes, tasks) = (plan.setup.nodes, &plan.tasks);
    let mut received = vec![0_u64; nodes];
    let mut helps = vec![false; nodes];
    for Task { rebuild: task, .. } in tasks {
        for (_, place) in &task.targets {
            received[usize::from(place.node.0)] += 1;
        }
        for (_, place) in task.targets.iter().chain(&task.sources) {
            helps[usize::from(place.node.0)] = true;
        }
    }
    let helpers = helps.iter().filter(|helps| **helps).count();
    let (seconds, busiest) = carry_out(figures, plan, manner);
    let mean = received.iter().sum::<u64>() as f64 / f64::max(helpers as f64, 1.0);
    Outcome {
        nodes,
        lost_bytes: plan.lost_bytes,
        read_bytes: tasks.iter().map(|one| one.rebuild.sources.len() as u64 * one.bytes).sum(),
        written_bytes: tasks.iter().map(|one| one.rebuild.targets.len() as u64 * one.bytes).sum(),
        seconds,
        helpers,
        received: (received.iter().copied().max().unwrap_or(0), mean),
        busiest,
    }
}

/// The stripes of each home that have a part on the dead node.
fn stripes_of(setup: &Setup<'_>, all: &[Candidate], dead: NodeId) -> Vec<(usize, Vec<Stripe>)> {
    let at = all.iter().position(|one| one.place.node == dead).unwrap_or(0);
    let stripe_bytes = setup.layout.stripe_bytes();
    let stripe = |home: usize, number: u64| {
        let key = key(home, number);
        if !may_have(key, all.len(), setup.width, at) {
            return None;
        }
        let places = choose(key, setup.layout, &near(key, all, setup.width)).ok()?;
        let is_hit = places.iter().any(|place| place.node == dead);
        is_hit.then(|| (key, *setup.layout, Segment::new(setup.layout, 0, stripe_bytes, places)))
    };
    (0..setup.nodes)
        .map(|home| (home, (0..setup.stripes).filter_map(|number| stripe(home, number)).collect::<Vec<_>>()))
        .filter(|(_, stripes)| !stripes.is_empty())
        .collect()
}

/// Says whether the candidate at this index is among those that [`near`] gives: saves the choosing of stripes that have
/// nothing to do with it. A test holds it to `near`.
fn may_have(key: StripeKey, count: usize, width: usize, at: usize) -> bool {
    let begin = ((u128::from(hash_of(key)) * count as u128) >> 64) as usize;
    count <= width || (at + count - begin) % count < width
}

/// The tasks of a home. In a large cluster each stripe has candidates of its own.
fn plan_home(setup: &Setup<'_>, home: usize, stripes: &[Stripe], dead: NodeId, live: &[Candidate]) -> Vec<Task> {
    // The home of the dead node is hosted by its first mirror by now.
    let home = if home == usize::from(dead.0) { (home + 1) % setup.nodes } else { home };
    let is_live = |place: Place| place.node != dead;
    let plan_of = |some: &[Stripe], candidates: &[Candidate]| {
        let plan = plan_rebuild(some, is_live, candidates);
        assert!(plan.stuck.is_empty(), "one loss is survived and there is room: {:?}", plan.stuck);
        let task = |task: RebuildTask| {
            let bytes = some[task.segment].2.part_len(task.targets[0].0);
            Task { home, rebuild: task, bytes }
        };
        plan.tasks.into_iter().map(task).collect::<Vec<_>>()
    };
    if live.len() <= setup.width {
        return plan_of(stripes, live);
    }
    let alone = |stripe: &Stripe| plan_of(std::slice::from_ref(stripe), &near(stripe.0, live, setup.width));
    stripes.iter().flat_map(alone).collect()
}

/// Returns the seconds, and what was busiest.
fn carry_out(figures: &Figures, plan: &Plan<'_>, manner: Manner) -> (f64, (&'static str, f64)) {
    let mut flow = Flow::default();
    let mut slowed = *figures;
    if manner.is_busy {
        // A fifth of the time: everything takes five times as long.
        for figure in
            [&mut slowed.tcp_gb_s, &mut slowed.nic_gb_s, &mut slowed.nvme_read_gb_s, &mut slowed.nvme_write_gb_s]
        {
            figure.value *= figures.move_share.value;
        }
    }
    let count = plan.setup.nodes;
    let nodes = Nodes::new(&mut flow.world, &slowed, count, Site::Network);
    nodes.connect_all(&mut flow.world, 2 * plan.setup.width.min(count));
    let disks: Vec<StationId> = (0..count).map(|_| flow.world.station(Spec::DEVICE)).collect();
    let mut of_home: Vec<Vec<&Task>> = vec![Vec::new(); count];
    for task in &plan.tasks {
        of_home[task.home].push(task);
    }
    of_home.retain(|tasks| !tasks.is_empty());
    let longest = of_home.iter().map(Vec::len).max().unwrap_or(0) as u64;
    let load = Load { workers: of_home.len(), each: longest, under_way: UNDER_WAY };
    let pace = drive(&mut flow, load, |worker, number| match of_home[worker].get(number as usize) {
        Some(task) => stages(&nodes, if manner.is_on_disk { &disks } else { &[] }, task),
        None => Vec::new(),
    });
    assert!(nodes.is_idle(&flow.world), "something is left in a queue");
    let busy = |station: &StationId| flow.world.meter(*station).busy_ns as f64 / flow.world.now_ns().max(1) as f64;
    let disk = ("disk", disks.iter().map(busy).fold(0.0, f64::max));
    let busiest = nodes.busiest(&flow.world);
    (pace.seconds, if disk.1 > busiest.1 { disk } else { busiest })
}

/// A task: the home tells the node of the new part, which fetches others, computes, writes and answers; the home records.
/// Without disks parts lie in memory.
fn stages(nodes: &Nodes, disks: &[StationId], Task { home, rebuild: task, bytes }: &Task) -> Stages {
    let (home, bytes) = (*home, *bytes);
    let figures = &nodes.figures;
    let target = usize::from(task.targets[0].1.node.0);
    let request = figures.request_bytes.value as u64;
    let mut tell = Vec::new();
    if home != target {
        nodes.send(home, target, request, &mut tell);
    }
    let fetch = |(_, place): &(usize, Place)| {
        let (from, mut way) = (usize::from(place.node.0), Vec::new());
        if from != target {
            nodes.send(target, from, request, &mut way);
        }
        if let Some(disk) = disks.get(from) {
            way.push(Step::at(*disk, Figures::ns_of(bytes, figures.nvme_read_gb_s), bytes, 0));
        }
        if from != target {
            nodes.send(from, target, bytes, &mut way);
        }
        way
    };
    let mut end = Vec::new();
    let decode_ns = Figures::ns_of(bytes * task.sources.len() as u64, figures.decode_gb_s);
    nodes.client(target, decode_ns + Figures::ns_of(bytes, figures.copy_sum_gb_s), &mut end);
    if let Some(disk) = disks.get(target) {
        end.push(Step::at(*disk, Figures::ns_of(bytes, figures.nvme_write_gb_s), bytes, 0));
    }
    if home != target {
        nodes.send(target, home, request, &mut end);
    }
    nodes.net(home, Figures::ns(figures.put_engine_us), &mut end);
    vec![one(tell), task.sources.iter().map(fetch).collect(), one(end)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nodes: usize, layout: &str, width: usize) -> Outcome {
        let layout: Layout = layout.parse().unwrap();
        let figures = Figures::measured();
        run(&figures, &plan(&figures, Setup { nodes, layout: &layout, stripes: 60, width }), Manner::default())
    }

    #[test]
    fn what_was_lost_is_made_again_from_as_much_as_the_layout_needs() {
        for (layout, sources) in [("4+2", 4), ("mirror=3", 1)] {
            let outcome = at(40, layout, 128);
            assert_eq!(outcome.written_bytes, outcome.lost_bytes, "{outcome:?}");
            assert_eq!(outcome.read_bytes, outcome.lost_bytes * sources, "{outcome:?}");
            assert!(outcome.lost_bytes > 0 && outcome.helpers == 39, "{outcome:?}");
        }
    }

    #[test]
    fn a_busy_cluster_repairs_at_its_share_and_disks_help_nobody() {
        let (figures, layout) = (Figures::measured(), "4+2".parse().unwrap());
        let plan = plan(&figures, Setup { nodes: 20, layout: &layout, stripes: 60, width: 128 });
        let of = |is_on_disk, is_busy| run(&figures, &plan, Manner { is_on_disk, is_busy }).seconds;
        let times = of(false, true) / of(false, false);
        assert!((3.5..5.5).contains(&times), "{times}");
        assert!(of(true, false) > of(false, false));
    }

    #[test]
    fn more_helpers_are_faster_until_the_neighbourhood_is_all() {
        let [few, more, many] = [12, 48, 600].map(|nodes| at(nodes, "4+2", 64));
        assert!(few.seconds > 2.0 * more.seconds, "{few:?} {more:?}");
        assert!(many.helpers <= 2 * 64 && many.seconds > more.seconds / 4.0, "{more:?} {many:?}");
        assert_eq!(few, at(12, "4+2", 64));
    }

    #[test]
    fn the_short_cut_is_what_near_says() {
        let all = candidates(300, 40);
        for number in 0..3000 {
            let key = key(1, number);
            let some = near(key, &all, 20);
            for at in [0, 7, 150, 299] {
                let is_there = some.iter().any(|one| one.place == all[at].place);
                assert_eq!(may_have(key, 300, 20, at), is_there, "{number} {at}");
            }
        }
    }
}
