//! How loaded nodes are, by what they report: which of several nodes has room for a copy of a home and writes the least.
//!
//! Three measures. *Room*: a copy takes as much memory and disk as its home uses, and a node without that cannot have it.
//! *Written bytes*: a host and each mirror of a home write, send or receive every byte that is written to it, so that
//! is what homes cost processors, network and disks; reads cost the host alone, and the readers' own memory answers most
//! of them. *Bytes*: how much memory and disk copies take. A share of a processor is none of them: it follows from what
//! programs do beside.
//!
//! Measures change all the time, and a copy costs more than a small difference is worth. So written bytes count by
//! classes, each with twice as much as the one before: nodes of one class are equal, and what decided before (the fewest
//! homes, then the lowest number) decides between them.

use std::collections::BTreeMap;

use cenote_model::NodeId;

use crate::{Home, HomeId, Report, View};

/// Fewer bytes each second than this count as none.
const WRITTEN_MIN: u64 = 1 << 20;
/// A node has room for a copy if so many quarters of its bytes are free: a home grows while it is copied.
const ROOM_QUARTERS: u64 = 5;

/// What a node has free for copies of homes, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// Memory of its machine.
    pub memory: u64,
    /// On the file system of its directory.
    pub disk: u64,
}

/// What a home costs each node that has a copy of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cost {
    /// Bytes in memory.
    pub memory: u64,
    /// Bytes on disks.
    pub disk: u64,
    /// Bytes that were written each second of late.
    pub written: u64,
}

/// What is known of the load of all nodes.
#[derive(Clone, Debug, Default)]
pub struct Loads {
    rooms: BTreeMap<NodeId, Room>,
    costs: BTreeMap<HomeId, Cost>,
}

impl Loads {
    /// From what each node reports. Of a home, what its host says counts.
    pub fn of<'a>(view: &View, reports: impl Fn(NodeId) -> &'a [Report]) -> Self {
        let mut loads = Self::default();
        for node in view.members.iter().map(|member| member.id) {
            for report in reports(node) {
                match report {
                    Report::Room(room) => drop(loads.rooms.insert(node, *room)),
                    Report::Cost { home, cost } if view.home(*home).is_some_and(|it| it.host == node) => {
                        loads.costs.insert(*home, *cost);
                    }
                    _ => {}
                }
            }
        }
        loads
    }
    /// What a node has free, if it said so.
    pub fn room(&self, node: NodeId) -> Option<Room> {
        self.rooms.get(&node).copied()
    }
    /// What a home costs; nothing if its host has not said.
    pub fn cost(&self, home: HomeId) -> Cost {
        self.costs.get(&home).copied().unwrap_or_default()
    }
    /// Returns true unless a node said that a copy of a home does not fit.
    pub fn has_room(&self, node: NodeId, home: HomeId) -> bool {
        let cost = self.cost(home);
        let fits = |free: u64, needed: u64| needed == 0 || free / ROOM_QUARTERS >= needed / 4;
        self.room(node).is_none_or(|room| fits(room.memory, cost.memory) && fits(room.disk, cost.disk))
    }
    /// What the copies of homes on each node cost in all.
    pub fn by_node(&self, view: &View) -> BTreeMap<NodeId, Cost> {
        let mut all: BTreeMap<NodeId, Cost> = BTreeMap::new();
        for (node, home) in view.homes.iter().flat_map(|home| home.copies().map(move |node| (node, home))) {
            let (sum, cost) = (all.entry(node).or_default(), self.cost(home.id));
            sum.memory = sum.memory.saturating_add(cost.memory);
            sum.disk = sum.disk.saturating_add(cost.disk);
            sum.written = sum.written.saturating_add(cost.written);
        }
        all
    }
    /// Orders nodes by what they write for the homes of a view: the lower, the better.
    pub fn classes(&self, view: &View) -> impl Fn(NodeId) -> u32 + use<> {
        let by_node = self.by_node(view);
        move |node| by_node.get(&node).map_or(0, |cost| class(cost.written))
    }
}

impl Cost {
    /// Bytes in memory and on disks.
    pub fn bytes(&self) -> u64 {
        self.memory.saturating_add(self.disk)
    }
}

impl Home {
    /// Returns true if a node has a copy of it.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.copies().any(|copy| copy == node)
    }
}

fn class(written: u64) -> u32 {
    (written / WRITTEN_MIN).checked_ilog2().map_or(0, |class| class + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_differences_are_none() {
        let mib = 1 << 20;
        assert_eq!([0, mib - 1, mib, 2 * mib - 1, 2 * mib, 9 * mib].map(class), [0, 0, 1, 1, 2, 4]);
    }

    #[test]
    fn room_is_that_of_the_home_and_a_quarter_more() {
        let mut loads = Loads::default();
        let (node, home) = (NodeId(1), HomeId(1));
        assert!(loads.has_room(node, home), "nobody has said anything");
        loads.costs.insert(home, Cost { memory: 400, disk: 0, written: 0 });
        assert!(loads.has_room(node, home));
        for (memory, disk, has_room) in [(500, 0, true), (490, 1 << 40, false), (0, 0, false)] {
            loads.rooms.insert(node, Room { memory, disk });
            assert_eq!(loads.has_room(node, home), has_room, "{memory} {disk}");
        }
        loads.costs.insert(home, Cost { memory: 4, disk: 4000, written: 0 });
        loads.rooms.insert(node, Room { memory: 5, disk: 4999 });
        assert!(!loads.has_room(node, home));
    }
}
