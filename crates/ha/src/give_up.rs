//! What follows when a person gives a node up: which homes go on, and which are lost. Pure, as all of this room; whether a node
//! may be given up is for the caller.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use cenote_model::NodeId;

use crate::{Home, HomeId, Loads, MemberState, View};

/// What becomes of a home of which a node has a copy, once that node is given up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// Its host stays, and has one mirror less.
    FewerMirrors,
    /// One of these mirrors takes it over, with all that was acknowledged.
    GoesOn {
        /// The mirrors that are left.
        by: Vec<NodeId>,
    },
    /// No copy is left: all that is in it is lost.
    Lost,
}

impl Fate {
    /// The fate of a home with this host and these mirrors. None if the node has no copy of it. `is_host_gone`: the host was
    /// given up before.
    pub fn of(host: NodeId, mirrors: &[NodeId], is_host_gone: bool, node: NodeId) -> Option<Self> {
        if host != node && !mirrors.contains(&node) {
            return None;
        }
        let by: Vec<NodeId> = mirrors.iter().copied().filter(|mirror| *mirror != node).collect();
        if host != node && !is_host_gone {
            return Some(Self::FewerMirrors);
        }
        Some(if by.is_empty() { Self::Lost } else { Self::GoesOn { by } })
    }
}

impl View {
    /// The homes of which a node has a copy, with what becomes of each when it is given up. Shared homes have none.
    pub fn fates(&self, node: NodeId) -> Vec<(HomeId, Fate)> {
        let homes = self.homes.iter().filter(|home| !home.is_shared && !self.is_lost(home));
        let fate = |home: &Home| {
            let is_host_gone = self.is_given_up(home.host);
            Some((home.id, Fate::of(home.host, &home.mirrors, is_host_gone, node)?))
        };
        homes.filter_map(fate).collect()
    }
    /// Marks a member as given up, from the view with this number on. Homes that are not lost with it are to be on other nodes.
    ///
    /// What it hosted stays in its name until a mirror takes over, as after an exclusion: the mirror waits for its lease.
    pub fn give_up(&mut self, node: NodeId, since_view: u64, loads: &Loads) {
        self.set_state(node, MemberState::GivenUp { since_view });
        for member in self.members.iter_mut().filter(|member| member.id == node) {
            member.is_leaving = false; // nothing of it moves any more
        }
        for at in 0..self.homes.len() {
            self.homes[at].mirrors.retain(|mirror| *mirror != node);
            if self.is_lost(&self.homes[at]) {
                self.homes[at].wanted_host = self.homes[at].host; // nobody asks for it
            } else if self.homes[at].wanted_host == node
                && let Some(to) = self.heir(&self.homes[at], loads)
            {
                self.homes[at].wanted_host = to;
            }
        }
        self.drop_old_moves();
    }
    /// The node that is to have a home whose own node is none any more: its host if that stays; else the mirror, or if none
    /// stays the node, that has room for it, writes the least, and is to have the fewest homes.
    pub fn heir(&self, home: &Home, loads: &Loads) -> Option<NodeId> {
        if self.stays(home.host) {
            return Some(home.host);
        }
        let mut wanted: BTreeMap<NodeId, usize> = BTreeMap::new();
        self.homes.iter().for_each(|home| *wanted.entry(home.wanted_host).or_default() += 1);
        let wanted = |node: &NodeId| wanted.get(node).copied().unwrap_or(0);
        let is_mirror = |node: &NodeId| home.mirrors.contains(node);
        let written = loads.classes(self);
        let lacks_room = |node: &NodeId| !is_mirror(node) && !loads.has_room(*node, home.id);
        let rank = |node: &NodeId| (lacks_room(node), written(*node), wanted(node), Reverse(is_mirror(node)), *node);
        let stay = || self.live().filter(|node| self.stays(*node));
        if self.is_given_up(home.host) && stay().any(|node| is_mirror(&node)) {
            return stay().filter(is_mirror).min_by_key(rank);
        }
        stay().min_by_key(rank)
    }
}
