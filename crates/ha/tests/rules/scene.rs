//! A cluster as one of its nodes sees it.

use std::sync::Arc;

use cenote_ha::{
    Action, ClusterId, Decided, Event, Hello, History, Home, HomeId, Identity, Loads, Member, MemberState, Proposal,
    Report, Seen, Settings, View, decide,
};
use cenote_model::{DeviceId, NodeId};

pub const CLUSTER: ClusterId = ClusterId(5);
const LIVE: MemberState = MemberState::Live { since_view: 1 };

pub fn view(nodes: u16, survives: usize) -> View {
    let member = |id: u16| Member {
        id: NodeId(id),
        address: format!("h{id}:7"),
        identity: Identity(u128::from(id)),
        state: LIVE,
        is_leaving: false,
    };
    let home = |id: u16| Home {
        id: HomeId(id),
        host: NodeId(id),
        wanted_host: NodeId(id),
        mirrors: (1..=survives as u16).map(|step| NodeId((id + step) % nodes)).collect(),
        term: 1,
        mirrors_wanted: survives,
        moving: None,
        is_shared: false,
    };
    View {
        cluster: CLUSTER,
        number: 9,
        survives,
        members: (0..nodes).map(member).collect(),
        homes: (0..nodes).map(home).collect(),
    }
}

/// Nodes whose homes lie where all of them reach them.
pub fn shared_view(nodes: u16) -> View {
    let mut all = view(nodes, 0);
    all.homes.iter_mut().for_each(|home| home.is_shared = true);
    all
}

/// What one node sees, second by second.
pub struct Scene {
    pub me: NodeId,
    pub view: View,
    pub history: History,
    pub settings: Settings,
    pub now_us: u64,
}

impl Scene {
    /// All nodes were heard every beat for five seconds.
    pub fn new(me: u16, view: View) -> Self {
        let mut scene =
            Self { me: NodeId(me), view, history: History::default(), settings: Settings::default(), now_us: 0 };
        scene.pass(5_000_000, &[]);
        scene
    }
    /// Time passes, and the register answers each beat; it does not hear the silent nodes.
    pub fn pass(&mut self, us: u64, silent: &[u16]) {
        let end = self.now_us + us;
        while self.now_us < end {
            self.now_us += self.settings.beat_us;
            let members: Vec<NodeId> = self.view.members.iter().map(|member| member.id).collect();
            for node in members.into_iter().filter(|node| !silent.contains(&node.0)) {
                self.see(Seen::Heard(node));
            }
            let asked_us = self.now_us - 1000;
            self.see(Seen::Register { view: Arc::new(self.view.clone()), asked_us });
        }
    }
    pub fn see(&mut self, seen: Seen) {
        self.history.record(Event { at_us: self.now_us, seen }, &self.settings);
    }
    pub fn report(&mut self, by: u16, reports: &[Report]) {
        let in_view = self.view.number;
        self.see(Seen::Reports { by: NodeId(by), in_view, reports: reports.to_vec() });
    }
    pub fn decide(&self) -> Proposal {
        decide(self.me, &self.history, &self.settings, self.now_us)
    }
    pub fn hello(&mut self, node: u16, change: impl FnOnce(&mut Hello)) {
        let mut hello = Hello {
            cluster: CLUSTER,
            identity: Identity(u128::from(node)),
            address: format!("h{node}:7"),
            left_in_view: 3,
            holds_view: self.view.number,
            devices: vec![DeviceId(0)],
            lost_devices: Vec::new(),
        };
        change(&mut hello);
        self.see(Seen::Returned { node: NodeId(node), hello });
    }
    pub fn exclude(&mut self, node: u16, is_owed: bool) {
        self.view.number += 1;
        let since_view = self.view.number;
        self.view.members[usize::from(node)].state = MemberState::Excluded { is_owed, since_view };
        for home in &mut self.view.homes {
            home.mirrors.retain(|mirror| mirror.0 != node);
            if home.host.0 == node {
                (home.host, home.term) = (home.mirrors.remove(0), home.term + 1);
            }
        }
        self.pass(100_000, &[node]);
    }
    /// A person gives a node up.
    pub fn give_up(&mut self, node: u16, silent: &[u16]) {
        self.view.number += 1;
        self.view.give_up(NodeId(node), self.view.number, &Loads::default());
        self.pass(100_000, silent);
    }
}

pub fn has(proposal: &Proposal, action: &Action) -> bool {
    proposal.decided.iter().any(|decided| decided.action == *action)
}

pub fn why(proposal: &Proposal, is_it: impl Fn(&Action) -> bool) -> String {
    let found: Option<&Decided> = proposal.decided.iter().find(|decided| is_it(&decided.action));
    found.unwrap_or_else(|| panic!("no such action in {proposal:#?}")).why.to_string()
}

pub fn excluded(proposal: &Proposal) -> Vec<u16> {
    let nodes = proposal.decided.iter().filter_map(|decided| match decided.action {
        Action::Exclude { node } => Some(node.0),
        _ => None,
    });
    nodes.collect()
}
