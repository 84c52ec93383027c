//! Creations a second: objects and files in containers of the own node, in one container of one home, spread over all homes, and
//! containers with their labels.

use super::figures::Figures;
use super::flow::{Flow, Load, Pace, Stages, drive, one};
use super::nodes::{Nodes, Site};
use crate::rng::mix;

/// What is made, and where.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Make {
    /// Objects, each program in a container of its own node.
    OwnObjects,
    /// Files of a strict directory, each program in a tree of its own node.
    OwnFiles,
    /// Files of strict directories of one tree, which has one home.
    OneTree,
    /// Files of one tree whose directories are spread over all homes by hash: the design, not built.
    SpreadTree,
    /// Containers of the own node, whose labels the first home keeps.
    Containers,
}

/// All kinds with what they are called.
pub const ALL: [(Make, &str); 5] = [
    (Make::OwnObjects, "objects, own containers"),
    (Make::OwnFiles, "files, own trees"),
    (Make::SpreadTree, "files, one tree spread by hash"),
    (Make::OneTree, "files, one tree at one home"),
    (Make::Containers, "containers (labels at the first home)"),
];

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// How it went.
    pub pace: Pace,
    /// What was busiest, and its share of the time.
    pub busiest: (&'static str, f64),
    /// Jobs that the forwarding threads took at once, on average.
    pub batch: f64,
}

/// Nodes that work in containers of their own meet no others than their mirrors: beyond so many they are counted, not run.
const OWN_MAX: usize = 300;

/// Each node's programs make `each` of them, `under_way` at once.
pub fn run(figures: &Figures, nodes: usize, make: Make, each: u64, under_way: u64, survives: usize) -> Outcome {
    let is_own = matches!(make, Make::OwnObjects | Make::OwnFiles);
    if is_own && nodes > OWN_MAX {
        let mut some = run(figures, OWN_MAX, make, each, under_way, survives);
        let times = nodes as f64 / OWN_MAX as f64;
        some.nodes = nodes;
        (some.pace.per_s, some.pace.per_s_to_end) = (some.pace.per_s * times, some.pace.per_s_to_end * times);
        return some;
    }
    let mut flow = Flow::default();
    let made = Nodes::new(&mut flow.world, figures, nodes, Site::Network);
    match make {
        Make::OwnObjects | Make::OwnFiles => made.connect_all(&mut flow.world, survives),
        Make::SpreadTree => made.connect_all(&mut flow.world, nodes),
        Make::OneTree | Make::Containers => {
            made.connect_all(&mut flow.world, survives + 1);
            made.connect(&mut flow.world, 0, nodes + 2 * survives);
        }
    }
    let load = Load { workers: nodes, each, under_way };
    let pace = drive(&mut flow, load, |node, number| stages(&made, make, node, number, survives));
    assert!(made.is_idle(&flow.world), "something is left in a queue");
    let (served, batches) = made
        .all
        .iter()
        .map(|node| flow.world.meter(node.net))
        .fold((0, 0), |sum, meter| (sum.0 + meter.served, sum.1 + meter.batches));
    let batch = served as f64 / f64::max(batches as f64, 1.0);
    Outcome { nodes, pace, busiest: made.busiest(&flow.world), batch }
}

fn stages(nodes: &Nodes, make: Make, node: usize, number: u64, survives: usize) -> Stages {
    let figures = &nodes.figures;
    let (client_us, engine_us) = match make {
        Make::OwnObjects | Make::Containers => (figures.create_client_us, figures.create_engine_us),
        _ => (figures.file_client_us, figures.file_engine_us),
    };
    let record = figures.create_record_bytes.value as u64;
    let home = match make {
        Make::OwnObjects | Make::OwnFiles => node,
        Make::OneTree | Make::Containers => 0,
        Make::SpreadTree => mix(((node as u64) << 32) | number) as usize % nodes.count(),
    };
    let mut begin = Vec::new();
    nodes.client(node, Figures::ns(client_us), &mut begin);
    let mut stages = vec![one(begin)];
    if home == node || make == Make::Containers {
        let mut own = Vec::new();
        nodes.ring(node, Figures::ns(engine_us), &mut own);
        stages.extend([one(own), nodes.mirrored(node, survives, record)]);
    }
    if home != node {
        let request = figures.request_bytes.value as u64;
        let (mut there, mut back) = (Vec::new(), Vec::new());
        nodes.send(node, home, request, &mut there);
        nodes.net(home, Figures::ns(engine_us), &mut there);
        nodes.send(home, node, request, &mut back);
        stages.extend([one(there), nodes.mirrored(home, survives, record), one(back)]);
    }
    stages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_containers_grow_with_nodes_and_one_home_does_not() {
        let figures = Figures::measured();
        let rate = |make, nodes| run(&figures, nodes, make, 200, 16, 2).pace.per_s;
        for (make, least, most) in [
            (Make::OwnObjects, 7.0, 11.0),
            (Make::OwnFiles, 7.0, 11.0),
            (Make::SpreadTree, 5.0, 11.0),
            (Make::OneTree, 0.5, 1.6),
            (Make::Containers, 0.5, 2.5),
        ] {
            let times = rate(make, 60) / rate(make, 6);
            assert!((least..most).contains(&times), "{make:?}: {times}");
        }
    }

    #[test]
    fn no_home_makes_more_than_its_engine_can() {
        let figures = Figures::measured();
        let outcome = run(&figures, 50, Make::OneTree, 200, 16, 0);
        assert!(outcome.pace.per_s * figures.file_engine_us.value < 1e6, "{outcome:?}");
        assert_eq!(outcome.pace.done, 50 * 200);
    }
}
