//! The view: who belongs to the cluster, who is live, and who hosts and mirrors each home.

use std::fmt;

use cenote_model::NodeId;

/// Identifies a cluster for its whole life, whatever its name is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClusterId(pub u128);

/// What a node's disks say who it is: drawn at random when it joins. Two nodes with one number in the host list differ
/// in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity(pub u128);

/// Numbers a home: a state machine with a journal, hosted by one node at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HomeId(pub u16);

impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "home {}", self.0)
    }
}

/// What the view says of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemberState {
    /// It takes part.
    Live {
        /// The view that admitted it: what it said of itself before does not count any more.
        since_view: u64,
    },
    /// It does not. While `is_owed`, some extents have fewer copies than they should because of it.
    Excluded {
        /// True until all homes have made good what lay there.
        is_owed: bool,
        /// The view that excluded it: what was paid for an earlier exclusion does not count for this one.
        since_view: u64,
    },
    /// A person gave it up: it never takes part again, and homes of which it had the last copy are lost. It stays in the
    /// view, so that it is known by its number if it comes back.
    GivenUp {
        /// The view that says so.
        since_view: u64,
    },
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Member {
    /// Its number.
    pub id: NodeId,
    /// Where it listens, as `host:port`.
    pub address: String,
    /// Who it is.
    pub identity: Identity,
    /// Whether it takes part.
    pub state: MemberState,
    /// It is to leave for good: what it hosts and mirrors moves to others first.
    pub is_leaving: bool,
}

impl Member {
    /// Returns true if it takes part.
    pub fn is_live(&self) -> bool {
        matches!(self.state, MemberState::Live { .. })
    }
    /// Returns true if a person gave it up.
    pub fn is_given_up(&self) -> bool {
        matches!(self.state, MemberState::GivenUp { .. })
    }
}

/// Where a home is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Home {
    /// Its number.
    pub id: HomeId,
    /// The node that acts for it.
    pub host: NodeId,
    /// The node that is to act for it: it asks the host for the home whenever that is another one.
    pub wanted_host: NodeId,
    /// The nodes that have all of its journal that was acknowledged: any of them can take over.
    pub mirrors: Vec<NodeId>,
    /// The mirror on the first of these nodes is to be on the second one: it stays until that has everything.
    pub moving: Option<(NodeId, NodeId)>,
    /// Raised with each change of host; what a former host still sends is known by it.
    pub term: u64,
    /// How many mirrors it should have.
    pub mirrors_wanted: usize,
    /// Its state lies where every node reaches it: any node can take over, and the loss of a node loses no journal.
    pub is_shared: bool,
}

impl Home {
    /// The nodes with its journal, the host first.
    pub fn copies(&self) -> impl Iterator<Item = NodeId> {
        std::iter::once(self.host).chain(self.mirrors.iter().copied())
    }
}

/// What the register holds. Replaced as a whole, by compare-and-swap of its number.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// The cluster that it is of.
    pub cluster: ClusterId,
    /// Raised by one with each change. Every message between nodes carries it.
    pub number: u64,
    /// How many nodes can be lost, whichever they are: while all bytes remain, by the weakest layout in use; if all homes are
    /// shared, while the register works, which sees to that itself.
    pub survives: usize,
    /// All nodes that have joined and not left for good.
    pub members: Vec<Member>,
    /// All homes.
    pub homes: Vec<Home>,
}

impl View {
    /// The node with this number.
    pub fn member(&self, id: NodeId) -> Option<&Member> {
        self.member_at(id).map(|at| &self.members[at])
    }
    /// Returns true if the node takes part.
    pub fn is_live(&self, id: NodeId) -> bool {
        self.member(id).is_some_and(Member::is_live)
    }
    /// The nodes that take part.
    pub fn live(&self) -> impl Iterator<Item = NodeId> {
        self.members.iter().filter(|member| member.is_live()).map(|member| member.id)
    }
    /// The excluded nodes of which extents are still owed copies, each with the view that excluded it.
    pub fn owed(&self) -> impl Iterator<Item = (NodeId, u64)> {
        self.members.iter().filter_map(|member| match member.state {
            MemberState::Excluded { is_owed: true, since_view } => Some((member.id, since_view)),
            _ => None,
        })
    }
    /// Returns true if the node takes part and is not about to leave.
    pub fn stays(&self, id: NodeId) -> bool {
        self.member(id).is_some_and(|member| member.is_live() && !member.is_leaving)
    }
    /// Returns true if a person gave the node up.
    pub fn is_given_up(&self, id: NodeId) -> bool {
        self.member(id).is_some_and(Member::is_given_up)
    }
    /// Returns true if no copy of a home is left, since its host was given up. Its number is not used again.
    pub fn is_lost(&self, home: &Home) -> bool {
        !home.is_shared && home.mirrors.is_empty() && self.is_given_up(home.host)
    }
    /// Returns true if no node has anything that is lost with it, as far as homes are concerned.
    pub fn is_shared(&self) -> bool {
        !self.homes.is_empty() && self.homes.iter().all(|home| home.is_shared)
    }
    /// Drops moves of mirrors that are over or can be none any more. For whoever makes a view from another one.
    pub fn drop_old_moves(&mut self) {
        for at in 0..self.homes.len() {
            let home = &self.homes[at];
            let is_due = |(from, to): (NodeId, NodeId)| {
                home.mirrors.contains(&from) && !home.is_on(to) && self.stays(to) && !self.is_lost(home)
            };
            if home.moving.is_some_and(|moving| !is_due(moving)) {
                self.homes[at].moving = None;
            }
        }
    }
    /// The home with this number.
    pub fn home(&self, id: HomeId) -> Option<&Home> {
        self.home_at(id).map(|at| &self.homes[at])
    }
    pub(crate) fn set_state(&mut self, id: NodeId, state: MemberState) {
        if let Some(at) = self.member_at(id) {
            self.members[at].state = state;
        }
    }
    pub(crate) fn home_mut(&mut self, id: HomeId) -> Option<&mut Home> {
        let at = self.home_at(id)?;
        Some(&mut self.homes[at])
    }
    // Decisions look up each of thousands of members. Lists are in order of numbers unless somebody made them otherwise;
    // then, and for numbers that are not there, all are looked at.
    fn member_at(&self, id: NodeId) -> Option<usize> {
        let found = self.members.binary_search_by_key(&id, |member| member.id).ok();
        found.or_else(|| self.members.iter().position(|member| member.id == id))
    }
    fn home_at(&self, id: HomeId) -> Option<usize> {
        let found = self.homes.binary_search_by_key(&id, |home| home.id).ok();
        found.or_else(|| self.homes.iter().position(|home| home.id == id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(ids: &[u16]) -> View {
        let state = MemberState::Live { since_view: 1 };
        let member = |id: &u16| Member {
            id: NodeId(*id),
            address: format!("h{id}"),
            identity: Identity(0),
            state,
            is_leaving: false,
        };
        let home = |id: &u16| Home {
            id: HomeId(*id),
            host: NodeId(*id),
            wanted_host: NodeId(*id),
            mirrors: Vec::new(),
            moving: None,
            term: u64::from(*id),
            mirrors_wanted: 0,
            is_shared: false,
        };
        View {
            cluster: ClusterId(1),
            number: 1,
            survives: 1,
            members: ids.iter().map(member).collect(),
            homes: ids.iter().map(home).collect(),
        }
    }

    #[test]
    fn members_and_homes_are_found_in_whatever_order_they_are() {
        for ids in [&[1, 2, 5, 9, 700][..], &[9, 1, 700, 2, 5], &[700, 9, 5, 2, 1], &[]] {
            let mut view = view(ids);
            for id in 0..800 {
                let is_there = ids.contains(&id);
                assert_eq!(view.member(NodeId(id)).map(|found| found.id.0), is_there.then_some(id), "{ids:?}");
                assert_eq!(view.home(HomeId(id)).map(|found| found.term), is_there.then_some(u64::from(id)), "{ids:?}");
                view.set_state(NodeId(id), MemberState::Excluded { is_owed: true, since_view: 2 });
                assert!(!view.is_live(NodeId(id)));
            }
            assert_eq!(view.owed().count(), ids.len());
        }
    }
}
