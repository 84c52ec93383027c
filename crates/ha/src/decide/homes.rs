//! Homes: who hosts them next, their mirrors, and what they owe.

use std::collections::BTreeMap;

use cenote_model::NodeId;

use super::{Facts, Plan};
use crate::{Action, Debt, Home, HomeId, MemberState, MirrorState, Reason, Report, acts_from_us};

/// Gives homes of excluded nodes to mirrors, and does what this node owes as host.
pub(crate) fn care(facts: &Facts<'_>, plan: &mut Plan<'_>) {
    for home in facts.view.homes.iter().filter(|home| !facts.view.is_lost(home)) {
        replace_excluded(facts, home, plan);
    }
    for home in facts.view.homes.iter().filter(|home| home.host == facts.me) {
        wait_for_leases(facts, home, plan);
        mirrors(facts, home, plan);
        for (node, since_view) in facts.view.owed() {
            let what = Debt::Extents { home: home.id, node, since_view };
            if !facts.reports(facts.me).contains(&Report::Paid { home: home.id, node, since_view }) {
                plan.add(Action::Rebuild { what }, Reason::Owed { node });
            }
        }
    }
    settle(facts, plan);
    for (node, device) in &facts.history.failed_devices {
        let what = Debt::Device { node: *node, device: *device };
        plan.add(Action::Rebuild { what }, Reason::DeviceFailed { node: *node });
    }
}

/// What the exclusions of this plan mean for a home: the mirror that writes the least and has the fewest homes becomes host, of
/// a shared home any node that takes part; and excluded mirrors are none.
fn replace_excluded(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let left = |node: &NodeId, plan: &Plan<'_>| plan.view().is_live(*node);
    for node in home.mirrors.iter().filter(|node| !left(node, plan)).copied().collect::<Vec<_>>() {
        drop_mirror(home.id, node, Reason::MirrorGone { home: home.id, node }, plan);
    }
    if left(&home.host, plan) {
        return;
    }
    let hosted = |node: NodeId| plan.view().homes.iter().filter(|home| home.host == node).count();
    let may = |node: &NodeId| left(node, plan) && facts.is_sound(*node) && !facts.has_lost(*node, home.id);
    let able: Vec<NodeId> = if home.is_shared { facts.view.live().collect() } else { home.mirrors.clone() };
    let heirs: Vec<NodeId> = able.into_iter().filter(may).collect();
    let loads = facts.loads();
    let written = loads.classes(plan.view());
    // A mirror has its copy already; of a shared home it is made anew.
    let lacks_room = |node: NodeId| home.is_shared && !loads.has_room(node, home.id);
    let rank = |node: NodeId| (!facts.view.stays(node), lacks_room(node), written(node), hosted(node), node);
    let Some(by) = heirs.into_iter().min_by_key(|node| rank(*node)) else {
        // A host that was given up cannot come back: its mirrors have to.
        let is_final = facts.view.is_given_up(home.host);
        let suspects = if is_final { home.mirrors.clone() } else { vec![home.host] };
        plan.add(Action::Freeze { suspects, homes: vec![home.id] }, Reason::LastCopy { home: home.id });
        return;
    };
    let why = Reason::HostGone { home: home.id, host: home.host, term: home.term + 1 };
    let id = home.id;
    plan.propose(Action::TakeOver { home: id, by, wait_leases_until_us: None }, why, |view| {
        if let Some(home) = view.home_mut(id) {
            home.mirrors.retain(|mirror| *mirror != by);
            (home.host, home.term) = (by, home.term + 1);
        }
    });
}

fn wait_for_leases(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let until = acts_from_us(home.id, home.term, facts.history, facts.settings).filter(|until| facts.now_us < *until);
    if until.is_some() {
        let action = Action::TakeOver { home: home.id, by: facts.me, wait_leases_until_us: until };
        plan.add(action, Reason::LeasesRun { home: home.id, term: home.term });
    }
}

/// Mirrors that failed this host go, new ones come.
fn mirrors(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let others = facts.live - 1;
    let unheard = facts.reports(facts.me).iter().filter(|report| matches!(report, Report::Unheard(_))).count();
    let is_cut_off = unheard * 2 > others;
    let has_lost = facts.has_lost(facts.me, home.id);
    for node in home.mirrors.iter().copied().filter(|node| facts.is_sound(*node)) {
        if facts.says_lost(node, home.id) {
            drop_mirror(home.id, node, Reason::MirrorLost { home: home.id, node }, plan);
            continue;
        }
        if has_lost {
            continue; // that mirror may be all that there is of the home
        }
        let why = match facts.history.mirrors.get(&(home.id, node)) {
            Some((_, MirrorState::Diverged(position))) => {
                Reason::MirrorDiverged { home: home.id, node, position: *position }
            }
            Some((at, MirrorState::Unanswered)) if facts.is_fresh(*at) => Reason::MirrorSilent { home: home.id, node },
            _ => continue,
        };
        if is_cut_off && matches!(why, Reason::MirrorSilent { .. }) {
            plan.wait(None, Reason::CutOff { unheard, of: others });
            continue;
        }
        drop_mirror(home.id, node, why, plan);
    }
    more_mirrors(facts, home, plan);
}

fn more_mirrors(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let (has, wanted) = (home.mirrors.iter().filter(|node| facts.view.stays(**node)).count(), home.mirrors_wanted);
    if has >= wanted {
        move_mirror(facts, home, plan);
        return spare_leaving(facts, home, plan);
    }
    let may =
        |node: &NodeId| facts.is_sound(*node) && facts.view.stays(*node) && home.copies().all(|copy| copy != *node);
    let id = home.id;
    if let Some(node) = facts.view.live().filter(may).find(|node| has_caught_up(facts, home, *node)) {
        plan.propose(Action::AddMirror { home: id, node }, Reason::CaughtUp { home: id, node }, |view| {
            if let Some(home) = view.home_mut(id) {
                home.mirrors.push(node);
            }
        });
        return;
    }
    let mut copies: BTreeMap<NodeId, usize> = BTreeMap::new();
    for copy in facts.view.homes.iter().flat_map(Home::copies) {
        *copies.entry(copy).or_default() += 1;
    }
    let copies = |node: &NodeId| copies.get(node).copied().unwrap_or(0);
    let unheard = |node: &NodeId| facts.reports(facts.me).contains(&Report::Unheard(*node));
    let loads = facts.loads();
    let written = loads.classes(facts.view);
    // What is under way is gone on with, whatever has changed since.
    let has_begun = |node: NodeId| {
        let state = facts.history.mirrors.get(&(home.id, node));
        state.is_some_and(|(at, state)| matches!(state, MirrorState::Has(_)) && facts.is_fresh(*at))
    };
    let is_wanted = |node: NodeId| home.moving.is_some_and(|(_, to)| to == node);
    let rank = |node: &NodeId| {
        let lacks_room = !loads.has_room(*node, id);
        (!has_begun(*node), !is_wanted(*node), lacks_room, written(*node), copies(node), *node)
    };
    let next = facts.view.live().filter(may).filter(|node| !unheard(node)).min_by_key(rank);
    if let Some(node) = next {
        let what = Debt::Journal { home: id, node };
        plan.add(Action::Rebuild { what }, Reason::FewMirrors { home: id, has, wanted });
    }
}

fn has_caught_up(facts: &Facts<'_>, home: &Home, node: NodeId) -> bool {
    let state = facts.history.mirrors.get(&(home.id, node));
    let now = MirrorState::CaughtUp { in_view: facts.view.number };
    state.is_some_and(|(at, state)| *state == now && facts.is_fresh(*at))
}

/// Has another node mirror a home in place of one, as a person asked. The one stays until the other has everything.
fn move_mirror(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let Some((from, to)) = home.moving.filter(|(_, to)| facts.is_sound(*to)) else { return };
    let (id, why) = (home.id, Reason::MirrorMoves { home: home.id, from, to });
    if !has_caught_up(facts, home, to) {
        plan.add(Action::Rebuild { what: Debt::Journal { home: id, node: to } }, why);
        return;
    }
    plan.propose(Action::AddMirror { home: id, node: to }, Reason::CaughtUp { home: id, node: to }, |view| {
        if let Some(home) = view.home_mut(id) {
            home.mirrors.push(to);
        }
    });
    drop_mirror(id, from, why, plan);
}

/// Takes mirrors away from nodes that are about to leave, once there are enough on others.
fn spare_leaving(facts: &Facts<'_>, home: &Home, plan: &mut Plan<'_>) {
    let leaving = home.mirrors.iter().copied().filter(|node| facts.is_sound(*node) && !facts.view.stays(*node));
    for node in leaving {
        drop_mirror(home.id, node, Reason::Leaving { home: home.id, node }, plan);
    }
}

fn drop_mirror(id: HomeId, node: NodeId, why: Reason, plan: &mut Plan<'_>) {
    plan.propose(Action::DropMirror { home: id, node }, why, |view| {
        if let Some(home) = view.home_mut(id) {
            home.mirrors.retain(|mirror| *mirror != node);
        }
    });
}

/// Marks nodes of which nothing is owed any more, once the hosts of all homes say so.
fn settle(facts: &Facts<'_>, plan: &mut Plan<'_>) {
    if facts.turn_us(|node| facts.is_sound(node)) > 0 {
        return; // nothing is urgent: whoever is first does it
    }
    for (node, since_view) in facts.view.owed() {
        let paid = |home: HomeId| Report::Paid { home, node, since_view };
        let is_paid = |home: &Home| facts.view.is_lost(home) || facts.reports(home.host).contains(&paid(home.id));
        if facts.view.homes.iter().all(is_paid) {
            let state = MemberState::Excluded { is_owed: false, since_view };
            let change = |view: &mut crate::View| view.set_state(node, state);
            plan.propose(Action::Settle { node }, Reason::Paid { node }, change);
        }
    }
}
