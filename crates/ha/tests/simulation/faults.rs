//! What goes wrong, and when it ends.

use cenote_model::NodeId;
use cenote_workload::Rng;

use crate::cluster::REGISTER;

#[derive(Clone, Copy, Debug)]
pub enum Fault {
    /// The daemon dies; its machine refuses connections.
    KillProcess(NodeId),
    /// The machine dies; nobody answers.
    KillMachine(NodeId),
    /// The daemon says that it stops, a moment before it does.
    Leave(NodeId),
    Start(NodeId),
    /// The machine loses what it has while it is down.
    Destroy(NodeId),
    /// The process is stopped and goes on later, believing what it knew.
    Stop(NodeId),
    Continue(NodeId),
    /// Nothing gets from one to the other.
    Cut(NodeId, NodeId),
    Join(NodeId, NodeId),
    Slow(NodeId, u64),
    /// Somebody says that it is this node.
    Impostor(NodeId),
    /// A person says that it is gone for good.
    GiveUp(NodeId),
    /// A person wants a mirror that is on the first node on the second one.
    MoveMirror(NodeId, NodeId),
    /// All faults end.
    Heal,
}

/// A plan of faults from 1 s to `end_us`.
pub fn plan(rng: &mut Rng, nodes: u16, end_us: u64) -> Vec<(u64, Fault)> {
    if rng.chance(100) {
        return loss(rng, nodes, end_us);
    }
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 5) {
        let begin = rng.between(1_000_000, end_us);
        let length = if rng.chance(300) { rng.between(50_000, 900_000) } else { rng.between(500_000, 8_000_000) };
        let node = NodeId(rng.below(u64::from(nodes)) as u16);
        let other = NodeId(rng.below(u64::from(nodes)) as u16);
        match rng.below(18) {
            0 | 1 => faults.extend([(begin, Fault::KillProcess(node)), (begin + length, Fault::Start(node))]),
            2 | 3 => faults.extend([(begin, Fault::KillMachine(node)), (begin + length, Fault::Start(node))]),
            4 | 5 => faults.extend([(begin, Fault::Stop(node)), (begin + length, Fault::Continue(node))]),
            6 => faults.extend(cut(begin, length, &[(node, REGISTER), (REGISTER, node)])),
            7 => {
                let one_way = if rng.chance(500) { (node, REGISTER) } else { (REGISTER, node) };
                faults.extend(cut(begin, length, &[one_way]));
            }
            8 => faults.extend(cut(begin, length, &[(node, other)])),
            9 => {
                // A node that others do not hear, though the register does; or that hears nobody.
                let others = (0..nodes).map(NodeId).filter(|other| *other != node);
                let is_deaf = rng.chance(500);
                let links: Vec<_> = others.map(|other| if is_deaf { (other, node) } else { (node, other) }).collect();
                faults.extend(cut(begin, length, &links));
            }
            10 => {
                // Its peers do not hear it, and when they exclude it, no answer of the register tells it.
                let others = (0..nodes).map(NodeId).filter(|other| *other != node);
                let links: Vec<_> = others.map(|other| (node, other)).collect();
                faults.extend(cut(begin, 3_000_000, &links));
                faults.extend(cut(begin + rng.between(600_000, 1_600_000), 2_000_000, &[(REGISTER, node)]));
            }
            11 => faults.extend([
                (begin, Fault::Leave(node)),
                (begin + rng.between(50_000, 1_000_000), Fault::KillProcess(node)),
                (begin + 1_000_000 + length, Fault::Start(node)),
            ]),
            12 => faults.extend([
                (begin, Fault::Slow(node, rng.between(100_000, 1_500_000))),
                (begin + length, Fault::Slow(node, 0)),
            ]),
            13 => flap(rng, node, begin, &mut faults),
            14 | 15 => restarts(rng, nodes, node, begin, &mut faults),
            16 => succession(rng, nodes, node, begin, &mut faults),
            _ => alone(rng, nodes, node, begin, &mut faults),
        }
    }
    if rng.chance(200) {
        faults.push((rng.between(1_000_000, end_us), Fault::Impostor(NodeId(rng.below(u64::from(nodes)) as u16))));
    }
    if rng.chance(200) {
        given_up(rng, nodes, end_us, &mut faults);
    }
    if rng.chance(400) {
        for _ in 0..rng.between(1, 4) {
            let (from, to) = (rng.below(u64::from(nodes)) as u16, rng.below(u64::from(nodes)) as u16);
            faults.push((rng.between(1_000_000, end_us), Fault::MoveMirror(NodeId(from), NodeId(to))));
        }
    }
    faults.push((end_us, Fault::Heal));
    faults
}

/// A node that is dead, or cut off from the register alone, and is given up. It is back when all faults end.
fn given_up(rng: &mut Rng, nodes: u16, end_us: u64, faults: &mut Vec<(u64, Fault)>) {
    let node = NodeId(rng.below(u64::from(nodes)) as u16);
    let at = rng.between(2_000_000, end_us - 500_000);
    let begin = at.saturating_sub(rng.between(100_000, 4_000_000)).max(1_000_000);
    if rng.chance(700) {
        faults.push((begin, Fault::KillMachine(node)));
    } else {
        faults.extend(cut(begin, end_us, &[(node, REGISTER), (REGISTER, node)]));
    }
    faults.push((at, Fault::GiveUp(node)));
}

/// Machines that come back without their disks, each after what the one before lost was made good: two losses at once are
/// more than one survives, and no rule brings bytes back.
fn loss(rng: &mut Rng, nodes: u16, end_us: u64) -> Vec<(u64, Fault)> {
    let mut faults = vec![(end_us, Fault::Heal)];
    for begin in [1_000_000, 6_000_000] {
        let (node, begin) = (NodeId(rng.below(u64::from(nodes)) as u16), begin + rng.below(1_000_000));
        let length = rng.between(50_000, 2_000_000);
        faults.push((begin, Fault::KillMachine(node)));
        faults.push((begin + length / 2, Fault::Destroy(node)));
        faults.push((begin + length, Fault::Start(node)));
    }
    faults
}

fn cut(begin: u64, length: u64, links: &[(NodeId, NodeId)]) -> Vec<(u64, Fault)> {
    let both =
        |(from, to): &(NodeId, NodeId)| [(begin, Fault::Cut(*from, *to)), (begin + length, Fault::Join(*from, *to))];
    links.iter().flat_map(both).collect()
}

/// A daemon that dies and comes back some times, perhaps without a way to others or from them; its own board, if it has one,
/// finds the register.
fn restarts(rng: &mut Rng, nodes: u16, node: NodeId, begin: u64, faults: &mut Vec<(u64, Fault)>) {
    let others = (0..nodes).map(NodeId).filter(|other| *other != node);
    let links: Vec<_> = match rng.below(4) {
        0 => Vec::new(),
        1 => others.map(|other| (node, other)).collect(),
        2 => others.map(|other| (other, node)).collect(),
        _ => others.flat_map(|other| [(node, other), (other, node)]).collect(),
    };
    let mut at = begin;
    faults.extend(cut(begin.saturating_sub(300_000) + rng.below(600_000), rng.between(500_000, 4_000_000), &links));
    for _ in 0..rng.between(0, 4) {
        faults.push((at, Fault::KillProcess(node)));
        at += rng.between(20_000, 800_000);
        faults.push((at, Fault::Start(node)));
        at += rng.between(20_000, 800_000);
    }
}

/// An heir that is dead already, and waited for, when a host that acts is excluded; the next heir must wait for both.
fn succession(rng: &mut Rng, nodes: u16, node: NodeId, begin: u64, faults: &mut Vec<(u64, Fault)>) {
    let heir = NodeId((node.0 + 1) % nodes);
    let length = rng.between(2_000_000, 5_000_000);
    faults.extend([(begin, Fault::KillProcess(heir)), (begin + length, Fault::Start(heir))]);
    // Nodes without a board, which have the higher numbers, do not hear the host.
    let deaf = (rng.below(u64::from(nodes)) as u16..nodes).map(NodeId).filter(|other| *other != node);
    let links: Vec<_> = deaf.map(|other| (node, other)).collect();
    let at = begin + rng.below(1_700_000);
    faults.extend(cut(at, 3_000_000, &links));
    let answers: Vec<_> = (0..nodes).map(NodeId).chain([REGISTER]).map(|from| (from, node)).collect();
    faults.extend(cut(at + rng.between(700_000, 1_500_000), 2_500_000, &answers));
}

/// A node that is the only one for a while, with its own board; it is cut off when others come back.
fn alone(rng: &mut Rng, nodes: u16, node: NodeId, begin: u64, faults: &mut Vec<(u64, Fault)>) {
    let others: Vec<NodeId> = (0..nodes).map(NodeId).filter(|other| *other != node).collect();
    let back = begin + rng.between(1_000_000, 4_000_000);
    for other in others.iter().take(rng.between(1, 2) as usize) {
        faults.extend([(begin, Fault::KillMachine(*other)), (back, Fault::Start(*other))]);
    }
    let links: Vec<_> = others.into_iter().map(|other| (node, other)).collect();
    let at = (back + rng.below(2_500_000)).saturating_sub(500_000);
    faults.extend(cut(at, 3_000_000, &links));
    faults.extend(cut(at + rng.between(300_000, 1_800_000), 2_000_000, &[(REGISTER, node), (node, REGISTER)]));
}

fn flap(rng: &mut Rng, node: NodeId, begin: u64, faults: &mut Vec<(u64, Fault)>) {
    let mut at = begin;
    for _ in 0..rng.between(2, 5) {
        faults.push((at, Fault::KillMachine(node)));
        at += rng.between(200_000, 2_500_000);
        faults.push((at, Fault::Start(node)));
        at += rng.between(200_000, 2_500_000);
    }
}
