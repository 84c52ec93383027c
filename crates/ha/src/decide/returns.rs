//! Nodes that come back, or say that they do.

use cenote_model::NodeId;

use super::suspects::goodbye;
use super::{Facts, Plan};
use crate::{Action, Contents, Hello, Member, MemberState, Reason};

/// Answers all hellos, and tells of clocks.
pub(crate) fn answer(facts: &Facts<'_>, plan: &mut Plan<'_>) {
    for (node, peer) in &facts.history.peers {
        if let Some((since, hello)) = facts.hello(peer) {
            match refusal(facts, *node, hello) {
                Some(why) => plan.add(Action::Refuse { node: *node }, why),
                None => readmit(facts, *node, since, hello, plan),
            }
        }
        if peer.clock_off_us.unsigned_abs() > facts.settings.clock_us_max {
            plan.add(Action::Tell, Reason::ClockOff { node: *node, by_us: peer.clock_off_us });
        }
    }
}

/// Why what says this may not take part, whatever it waits for.
fn refusal(facts: &Facts<'_>, node: NodeId, hello: &Hello) -> Option<Reason> {
    let present = facts.view.number;
    if hello.cluster != facts.view.cluster {
        return Some(Reason::OtherCluster { node });
    }
    if hello.left_in_view > present {
        return Some(Reason::LaterView { node, left_in_view: hello.left_in_view, present });
    }
    let Some(member) = facts.view.member(node) else { return Some(Reason::NoMember { node }) };
    if let MemberState::GivenUp { since_view } = member.state {
        return Some(Reason::GivenUp { node, since_view });
    }
    let is_another = (member.identity, &member.address) != (hello.identity, &hello.address);
    (member.is_live() && is_another).then(|| Reason::TwoOfOne {
        node,
        at: member.address.clone(),
        other: hello.address.clone(),
        identity: (member.identity == hello.identity).then_some(hello.identity),
    })
}

fn readmit(facts: &Facts<'_>, node: NodeId, since_us: u64, hello: &Hello, plan: &mut Plan<'_>) {
    let Some(member) = facts.view.member(node) else { return };
    let MemberState::Excluded { is_owed, .. } = member.state else { return };
    let present = facts.view.number;
    if hello.holds_view != present {
        plan.wait(None, Reason::OldView { node, holds: hello.holds_view, present });
        return;
    }
    let is_silent = facts.history.silence_us(node).is_none_or(|silence| silence >= facts.settings.silence_us_min);
    if is_silent || goodbye(facts.reports(node)).is_some() {
        return; // it said hello and fell silent again, or is about to
    }
    let (by, of) = facts.reporters(node, 0);
    if by >= 2 && by * 2 > of {
        plan.wait(None, Reason::Reported { node, by, of }); // it would be excluded again at once
        return;
    }
    let Some((contents, why)) = contents(member, is_owed, hello) else {
        plan.wait(None, Reason::EmptyAndOwed { node });
        return;
    };
    let turn = facts.turn_us(|node| facts.is_sound(node));
    let until = since_us + facts.history.damping_us(node, facts.settings, facts.now_us).max(turn);
    if facts.now_us < until {
        plan.wait(Some(until), Reason::Flaps { node, times: facts.history.exclusions(node) });
        return;
    }
    plan.propose(Action::Readmit { node, contents }, why, |view| {
        if let Some(member) = view.members.iter_mut().find(|member| member.id == node) {
            (member.identity, member.address) = (hello.identity, hello.address.clone());
            member.state = MemberState::Live { since_view: present + 1 };
        }
    });
}

/// What counts of a node that comes back. None: what it had is needed, and it comes without.
///
/// No clock says whether it was away for too long. As long as something is owed, what it brings is wanted and good: runs
/// are written once. When nothing is owed, no map names anything there, after a minute as after a year.
fn contents(member: &Member, is_owed: bool, hello: &Hello) -> Option<(Contents, Reason)> {
    let (node, left_in_view) = (member.id, hello.left_in_view);
    let has_all = member.identity == hello.identity && hello.lost_devices.is_empty();
    match (is_owed, has_all) {
        (true, true) => Some((Contents::Kept, Reason::BackWithAll { node, left_in_view })),
        (true, false) => None,
        (false, _) => Some((Contents::Empty, Reason::BackAsEmpty { node, left_in_view })),
    }
}
