//! Messages when one file is shared: a writer changes a word that all nodes have looked at, and in a strict container is
//! answered only when all of them know.

use super::figures::Figures;
use super::flow::{Flow, Load, Pace, Stages, drive, one};
use super::nodes::{Nodes, Site};
use super::world::Step;

/// How nodes are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tell {
    /// By the home, each.
    Each,
    /// By others: each node that knows tells so many more.
    Tree(usize),
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Nodes.
    pub nodes: usize,
    /// Messages between nodes for one write: to its mirrors and back, to all and back, and those of looking again.
    pub messages: f64,
    /// Writes: how often, how long.
    pub writes: Pace,
    /// Milliseconds until all have read again what was written.
    pub read_again_ms: f64,
    /// What was busiest, and its share of the time.
    pub busiest: (&'static str, f64),
}

/// A program on the home's node writes so often, each time when all nodes have looked at what it wrote before; once more with
/// the time that this takes.
pub fn run(figures: &Figures, nodes: usize, tell: Tell, writes: u64, survives: usize) -> Outcome {
    let fan = match tell {
        Tell::Each => nodes,
        Tell::Tree(fan) => fan,
    };
    let (told, _, _) = written(figures, nodes, writes, fan, |made| write(made, fan, survives));
    let (seen, messages, busiest) = written(figures, nodes, writes, fan, |made| {
        let mut stages = write(made, fan, survives);
        stages.push((1..nodes).map(|node| look(made, node)).collect());
        stages
    });
    Outcome { nodes, messages, writes: told, read_again_ms: (seen.p50_us - told.p50_us) / 1e3, busiest }
}

fn written(
    figures: &Figures,
    nodes: usize,
    writes: u64,
    fan: usize,
    stages: impl Fn(&Nodes) -> Stages,
) -> (Pace, f64, (&'static str, f64)) {
    let mut flow = Flow::default();
    let made = Nodes::new(&mut flow.world, figures, nodes, Site::Network);
    // All have looked at the home, so it has a connection to each.
    made.connect_all(&mut flow.world, fan.min(nodes) + 1);
    made.connect(&mut flow.world, 0, nodes - 1);
    let pace = drive(&mut flow, Load { workers: 1, each: writes, under_way: 1 }, |_, _| stages(&made));
    assert!(made.is_idle(&flow.world), "something is left in a queue");
    // The thread at either end of a message serves it, and the home each look-up.
    let served: u64 = made.all.iter().map(|node| flow.world.meter(node.net).served).sum();
    let of_home = stages(&made).iter().flatten().flatten().filter(|step| step.group == u32::MAX).count();
    (pace, (served as f64 / writes as f64 - of_home as f64) / 2.0, made.busiest(&flow.world))
}

/// A small write whose word all nodes have looked at: the change, its record on the mirrors, the word to all, their answers.
fn write(nodes: &Nodes, fan: usize, survives: usize) -> Stages {
    let figures = &nodes.figures;
    let mut change = Vec::new();
    nodes.client(0, Figures::ns(figures.put_client_us), &mut change);
    nodes.ring(0, Figures::ns(figures.put_engine_us), &mut change);
    let mut stages = vec![one(change), nodes.mirrored(0, survives, figures.write_record_bytes.value as u64)];
    let levels = levels(nodes.count(), fan);
    let way = |(from, to): &(usize, usize)| {
        let mut way: Vec<Step> = Vec::new();
        nodes.send(*from, *to, figures.request_bytes.value as u64, &mut way);
        way
    };
    let back = |(from, to): &(usize, usize)| way(&(*to, *from));
    stages.extend(levels.iter().map(|level| level.iter().map(way).collect()));
    stages.extend(levels.iter().rev().map(|level| level.iter().map(back).collect()));
    stages
}

/// Who tells whom, level by level: node 0 knows first.
fn levels(nodes: usize, fan: usize) -> Vec<Vec<(usize, usize)>> {
    let (mut levels, mut knows_from, mut next) = (Vec::new(), 0, 1);
    while next < nodes {
        let knows_to = next;
        let told: Vec<(usize, usize)> = (knows_from..knows_to)
            .flat_map(|from| (0..fan).map(move |child| (from, child)))
            .take(nodes - next)
            .enumerate()
            .map(|(at, (from, _))| (from, knows_to + at))
            .collect();
        next += told.len();
        knows_from = knows_to;
        levels.push(told);
    }
    levels
}

/// A node asks for the map that it lost.
fn look(nodes: &Nodes, node: usize) -> Vec<Step> {
    let figures = &nodes.figures;
    let request = figures.request_bytes.value as u64;
    let mut way = Vec::new();
    nodes.send(node, 0, request, &mut way);
    nodes.net(0, Figures::ns(figures.lookup_us), &mut way);
    nodes.send(0, node, request, &mut way);
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_node_is_told_once() {
        for (nodes, fan) in [(1, 4), (2, 4), (5, 4), (100, 4), (1000, 32), (1000, 1000)] {
            let levels = levels(nodes, fan);
            let mut told: Vec<usize> = levels.iter().flatten().map(|(_, to)| *to).collect();
            told.sort_unstable();
            assert_eq!(told, (1..nodes).collect::<Vec<_>>(), "{nodes} {fan}");
            assert!(levels.iter().flatten().all(|(from, to)| from < to));
        }
    }

    #[test]
    fn each_looker_costs_four_messages_a_write_and_a_tree_shortens_the_write() {
        let figures = Figures::measured();
        let [each, tree] = [Tell::Each, Tell::Tree(16)].map(|tell| run(&figures, 2000, tell, 3, 2));
        for outcome in [&each, &tree] {
            assert!((outcome.messages - (4.0 * 1999.0 + 4.0)).abs() < 1e-6, "{outcome:?}");
        }
        assert!(tree.writes.p50_us * 4.0 < each.writes.p50_us, "{each:?} {tree:?}");
    }
}
