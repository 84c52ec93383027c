//! What people are told of the cluster.

use cenote_ha::{Cost, Decided, History, Loads, MemberState, Move, Proposal, View, balance, story};
use cenote_model::{HaDecided, HaEvent, HaHome, HaLoad, HaMove, HaNode, HaReport, HomeId, NodeId};

use cenote_cluster::Members;

/// The report of a node. `trouble`: what is in the way of asking the register.
pub(super) fn report(
    members: &Members,
    history: &History,
    proposal: &Proposal,
    trouble: &str,
    now_us: u64,
) -> HaReport {
    let (view, loads) = (history.view().map(AsRef::as_ref), history.loads());
    HaReport {
        node: NodeId(members.home.0),
        view: view.map_or(0, |view| view.number),
        survives: view.map_or(u64::from(members.protect), |view| view.survives as u64),
        asked_ago_us: history.asked_us().map(|asked| now_us.saturating_sub(asked)),
        trouble: trouble.to_owned(),
        nodes: view.map_or_else(Vec::new, |view| nodes(members, view, history, (proposal, &loads))),
        homes: view.map_or_else(Vec::new, |view| homes(view, &loads)),
        events: story(history)
            .into_iter()
            .map(|(at_us, what)| HaEvent { ago_us: now_us.saturating_sub(at_us), what })
            .collect(),
        decided: proposal.decided.iter().map(|decided| conclusion(decided, now_us)).collect(),
        copies: Vec::new(),
        moves: view.map_or_else(Vec::new, |view| balance(view, &loads).iter().map(told).collect()),
    }
}

fn told(found: &Move) -> HaMove {
    let Move { home, from, to, is_host, .. } = *found;
    HaMove { home: HomeId(home.0), from, to, is_host, why: found.to_string() }
}

fn load(cost: Cost) -> HaLoad {
    HaLoad { memory_bytes: cost.memory, disk_bytes: cost.disk, written_bytes_per_s: cost.written }
}

fn nodes(members: &Members, view: &View, history: &History, (proposal, loads): (&Proposal, &Loads)) -> Vec<HaNode> {
    let by_node = loads.by_node(view);
    let doubt = |node: NodeId| proposal.decided.iter().find(|decided| decided.why.doubts() == Some(node));
    let node = |member: &cenote_ha::Member| {
        let (live, owed, since_view) = match member.state {
            MemberState::Live { since_view } => (true, false, since_view),
            MemberState::Excluded { is_owed, since_view } => (false, is_owed, since_view),
            MemberState::GivenUp { since_view } => (false, false, since_view),
        };
        HaNode {
            node: member.id,
            name: members.of(HomeId(member.id.0)).map(|member| member.name.clone()).unwrap_or_default(),
            address: member.address.clone(),
            live,
            leaving: member.is_leaving,
            given_up: member.is_given_up(),
            owed,
            since_view,
            silence_us: history.silence_us(member.id),
            doubt: doubt(member.id).map(|decided| decided.why.to_string()).unwrap_or_default(),
            load: by_node.get(&member.id).copied().map(load).unwrap_or_default(),
            room: loads.room(member.id).map(|room| (room.memory, room.disk)),
        }
    };
    view.members.iter().map(node).collect()
}

fn homes(view: &View, loads: &Loads) -> Vec<HaHome> {
    let home = |home: &cenote_ha::Home| HaHome {
        home: HomeId(home.id.0),
        host: home.host,
        wanted_host: home.wanted_host,
        mirrors: home.mirrors.clone(),
        mirrors_wanted: home.mirrors_wanted as u64,
        term: home.term,
        lost: view.is_lost(home),
        moving: home.moving,
        load: load(loads.cost(home.id)),
    };
    view.homes.iter().map(home).collect()
}

fn conclusion(decided: &Decided, now_us: u64) -> HaDecided {
    HaDecided {
        kind: decided.action.kind().to_owned(),
        repairs: decided.action.repairs(),
        what: decided.action.text(now_us),
        why: decided.why.to_string(),
    }
}
