//! What goes wrong, and when it ends.

use cenote_model::NodeId;

use super::net::REGISTER;
use super::{Check, Cluster, of_ha, trace};
use crate::rng::Rng;

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The daemon dies; its machine refuses connections.
    KillProcess(NodeId),
    /// It dies at one of its next writes to its disks, or within a write.
    KillAtWrite(NodeId, u64),
    /// The machine dies; nobody answers. Its memory is lost if another node has what its homes acknowledged.
    KillMachine(NodeId),
    Start(NodeId),
    /// The process is stopped and goes on later, believing what it knew.
    Stop(NodeId),
    Continue(NodeId),
    /// Nothing gets from one to the other.
    Cut(NodeId, NodeId),
    Join(NodeId, NodeId),
    Slow(NodeId, u64),
    /// All faults end.
    Heal,
}

/// A plan of faults.
pub(super) fn plan(rng: &mut Rng, nodes: u16, begin_us: u64, end_us: u64) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..rng.between(1, 5) {
        let begin = rng.between(begin_us, end_us);
        let length = if rng.chance(300) { rng.between(50_000, 900_000) } else { rng.between(500_000, 7_000_000) };
        let node = NodeId(rng.below(u64::from(nodes)) as u16);
        let other = NodeId(rng.below(u64::from(nodes)) as u16);
        match rng.below(14) {
            0 | 1 => faults.extend([(begin, Fault::KillProcess(node)), (begin + length, Fault::Start(node))]),
            2 | 3 => faults.extend([
                (begin, Fault::KillAtWrite(node, rng.below(60))),
                (begin + 500_000, Fault::KillProcess(node)),
                (begin + 500_000 + length, Fault::Start(node)),
            ]),
            4 | 5 => faults.extend([(begin, Fault::KillMachine(node)), (begin + length, Fault::Start(node))]),
            6 | 7 => faults.extend([(begin, Fault::Stop(node)), (begin + length, Fault::Continue(node))]),
            8 => faults.extend(cut(begin, length, &[(node, REGISTER), (REGISTER, node)])),
            9 => {
                let one_way = if rng.chance(500) { (node, REGISTER) } else { (REGISTER, node) };
                faults.extend(cut(begin, length, &[one_way]));
            }
            10 => faults.extend(cut(begin, length, &[(node, other)])),
            11 => {
                // A node that others do not hear, or that hears nobody.
                let others = (0..nodes).map(NodeId).filter(|other| *other != node);
                let is_deaf = rng.chance(500);
                let links: Vec<_> = others.map(|other| if is_deaf { (other, node) } else { (node, other) }).collect();
                faults.extend(cut(begin, length, &links));
            }
            12 => faults.extend([
                (begin, Fault::Slow(node, rng.between(50_000, 900_000))),
                (begin + length, Fault::Slow(node, 0)),
            ]),
            _ => flap(rng, node, begin, &mut faults),
        }
    }
    faults.push((end_us, Fault::Heal));
    faults
}

fn cut(begin: u64, length: u64, links: &[(NodeId, NodeId)]) -> Vec<(u64, Fault)> {
    let both =
        |(from, to): &(NodeId, NodeId)| [(begin, Fault::Cut(*from, *to)), (begin + length, Fault::Join(*from, *to))];
    links.iter().flat_map(both).collect()
}

/// A daemon that dies and comes back some times.
fn flap(rng: &mut Rng, node: NodeId, begin: u64, faults: &mut Vec<(u64, Fault)>) {
    let mut at = begin;
    for _ in 0..rng.between(2, 4) {
        faults.push((at, Fault::KillProcess(node)));
        at += rng.between(20_000, 2_500_000);
        faults.push((at, Fault::Start(node)));
        at += rng.between(20_000, 2_000_000);
    }
}

impl Cluster {
    pub(super) fn fault(&mut self, fault: Fault) -> Check {
        trace!(self.trace, "{:.3} {fault:?}", self.now_us as f64 / 1e6);
        self.count.faults += 1;
        self.note_trouble(fault);
        match fault {
            Fault::KillProcess(node) => self.end_process(node, false),
            Fault::KillAtWrite(node, after) => self.die_at_write(node, after),
            Fault::KillMachine(node) => {
                let power = self.is_survived(node);
                self.end_machine(node, power);
            }
            Fault::Start(node) => {
                self.start(node)?;
                self.clients_begin(node);
            }
            Fault::Stop(node) => self.node(node).is_stopped = true,
            Fault::Continue(node) => self.node(node).is_stopped = false,
            Fault::Cut(from, to) => _ = self.net.cut.insert((from, to)),
            Fault::Join(from, to) => _ = self.net.cut.remove(&(from, to)),
            Fault::Slow(node, us) => self.node(node).slow_us = us,
            Fault::Heal => self.heal()?,
        }
        Ok(())
    }
    fn note_trouble(&mut self, fault: Fault) {
        let now = self.now_us;
        let concerned = match fault {
            Fault::KillProcess(node)
            | Fault::KillAtWrite(node, _)
            | Fault::KillMachine(node)
            | Fault::Start(node)
            | Fault::Stop(node)
            | Fault::Continue(node)
            | Fault::Slow(node, _) => vec![node],
            Fault::Cut(one, other) | Fault::Join(one, other) => vec![one, other],
            Fault::Heal => Vec::new(),
        };
        for node in concerned.into_iter().filter(|node| *node != REGISTER) {
            self.node(node).trouble_us = now;
        }
    }
    /// Lets a daemon die at one of the next I/Os of a home that it serves.
    fn die_at_write(&mut self, node: NodeId, after: u64) {
        let torn = self.rng.fork();
        let homes: Vec<_> = self.node(node).homes.keys().copied().collect();
        if homes.is_empty() {
            return;
        }
        let home = homes[self.rng.index(homes.len())];
        let faults = self.node(node).homes[&home].place.world.faults.clone();
        faults.die_at(faults.count() + after, torn);
    }
    /// Returns true if each home whose acknowledged changes lie on this node has another complete copy, by the register's
    /// view, on a node whose machine is up.
    fn is_survived(&mut self, node: NodeId) -> bool {
        let view = self.view();
        let mut concerned = view.homes.iter().filter(|home| home.copies().any(|copy| copy == node));
        let has_another = |home: &cenote_ha::Home| {
            home.copies().filter(|copy| *copy != node).any(|copy| {
                let other = &self.nodes[usize::from(copy.0)];
                let is_own = other.home == of_ha(home.id) && other.own.term == Some(home.term);
                let has_copy = other.copies.contains_key(&of_ha(home.id));
                other.is_machine_up && (is_own || has_copy)
            })
        };
        concerned.all(has_another)
    }
    fn heal(&mut self) -> Check {
        self.net.cut.clear();
        for id in (0..self.nodes.len() as u16).map(NodeId) {
            let node = self.node(id);
            (node.is_stopped, node.slow_us) = (false, 0);
            node.homes.values().for_each(|open| open.place.world.faults.heal());
            if !node.is_running {
                self.start(id)?;
                self.clients_begin(id);
            }
        }
        Ok(())
    }
}
