//! Doubt, exclusion, take-over, mirrors, debts.

use std::sync::Arc;

use crate::scene::{Scene, excluded, has, view, why};
use cenote_ha::{
    Action, Debt, History, HomeId, MemberState, MirrorState, Proposal, Report, Seen, explain, lease_until_us,
    leases_over_us, may_act,
};
use cenote_model::{DeviceId, NodeId};

#[test]
fn while_all_is_well_nothing_is_done() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.pass(1_000_000, &[]);
    assert_eq!(scene.decide(), Proposal::default());
}

#[test]
fn a_silent_node_is_excluded_and_its_home_goes_to_its_mirror() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.pass(400_000, &[2]);
    assert_eq!(scene.decide(), Proposal::default(), "silence has a least length");
    scene.pass(300_000, &[2]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [2]);
    let said = why(&proposal, |action| matches!(action, Action::Exclude { .. }));
    assert!(said.starts_with("the register has not heard node 2 for 0.7 s"), "{said}");
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(2), by: NodeId(3), wait_leases_until_us: None }));
    assert!(has(&proposal, &Action::DropMirror { home: HomeId(1), node: NodeId(2) }));
    let next = proposal.view.unwrap();
    assert_eq!((next.number, next.homes[2].host, next.homes[2].term), (10, NodeId(3), 2));
    assert_eq!(next.members[2].state, MemberState::Excluded { is_owed: true, since_view: 10 });
    assert!(next.homes[1].mirrors.is_empty() && next.homes[2].mirrors.is_empty());
}

#[test]
fn the_lowest_sound_node_proposes_first_and_others_follow_if_it_does_not() {
    let mut scene = Scene::new(3, view(5, 1));
    scene.pass(600_000, &[1]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "nodes 0 and 2 come first");
    assert!(why(&proposal, |action| matches!(action, Action::Wait { .. })).contains("lower number proposes first"));
    scene.pass(600_000, &[1]);
    assert_eq!(excluded(&scene.decide()), [1]);
}

#[test]
fn what_this_node_misses_itself_counts_against_nobody() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.now_us += 600_000; // no answer of the register for a while
    assert_eq!(scene.decide(), Proposal::default());
    scene.now_us += 600_000;
    let proposal = scene.decide();
    assert!(proposal.view.is_none());
    assert!(why(&proposal, |_| true).contains("the register has answered nothing"), "{proposal:?}");
    assert!(!may_act(NodeId(0), &scene.view, HomeId(0), &scene.history, &scene.settings, scene.now_us));
}

#[test]
fn a_machine_that_refuses_connections_is_waited_for() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.settings.restart_us_max = 5_000_000;
    for _ in 0..20 {
        scene.pass(100_000, &[2]);
        scene.see(Seen::Refused(NodeId(2)));
    }
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "{proposal:?}");
    let said = why(&proposal, |action| matches!(action, Action::Wait { until_us: Some(_) }));
    assert!(said.contains("its daemon is down, its shared memory is intact"), "{said}");
    // Others may see it instead.
    let mut other = Scene::new(0, view(4, 1));
    other.settings.restart_us_max = 5_000_000;
    other.report(3, &[Report::Refused(NodeId(2))]);
    other.pass(2_000_000, &[2]);
    assert!(other.decide().view.is_none());
    // It is not waited for without end.
    other.pass(31_000_000, &[2]);
    assert_eq!(excluded(&other.decide()), [2]);
    assert!(why(&other.decide(), |action| matches!(action, Action::Exclude { .. })).contains("has not come back for"));
}

#[test]
fn more_suspects_than_the_layout_survives_freeze_all() {
    let mut scene = Scene::new(0, view(6, 1));
    scene.pass(2_000_000, &[2, 4]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "{proposal:?}");
    let suspects = vec![NodeId(2), NodeId(4)];
    assert!(has(&proposal, &Action::Freeze { suspects, homes: Vec::new() }), "{proposal:?}");
    let text = explain(&scene.history, &proposal, scene.now_us);
    assert!(text.contains("FREEZE; going on without node 2, node 4 could lose bytes that only they have"), "{text}");
    assert!(
        text.contains(
            "nodes in doubt: 2; gone, with data that were not made good: 0; the weakest layout survives the loss of 1"
        ),
        "{text}"
    );
    // One is back: the other can go.
    scene.pass(500_000, &[4]);
    assert_eq!(excluded(&scene.decide()), [4]);
}

#[test]
fn what_is_owed_counts_as_lost_until_it_is_settled() {
    let mut scene = Scene::new(0, view(6, 1));
    scene.exclude(3, true);
    scene.pass(2_000_000, &[3, 5]);
    assert!(
        why(&scene.decide(), |action| matches!(action, Action::Freeze { .. }))
            .contains("nodes in doubt: 1; gone, with data that were not made good: 1;")
    );
    scene.exclude(3, false);
    scene.pass(5_100_000, &[3, 5]); // it was silent and came back once: more patience now
    assert_eq!(excluded(&scene.decide()), [5]);
}

#[test]
fn the_last_copy_of_a_home_is_not_given_up() {
    let mut all = view(6, 2);
    all.homes[4].mirrors = vec![NodeId(5)];
    let mut scene = Scene::new(0, all);
    scene.pass(2_000_000, &[4, 5]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none());
    let text = explain(&scene.history, &proposal, scene.now_us);
    assert!(text.contains("FREEZE; going on without node 4, node 5 could lose all of home 4"), "{text}");
    assert!(text.contains("no copy of the journal of home 4 would be left"), "{text}");
}

#[test]
fn a_node_that_most_others_do_not_hear_is_excluded_though_the_register_does() {
    let mut scene = Scene::new(0, view(5, 1));
    scene.report(1, &[Report::Unheard(NodeId(4))]);
    scene.report(2, &[Report::Unheard(NodeId(4))]);
    assert_eq!(scene.decide(), Proposal::default(), "two of four are not most");
    scene.report(0, &[Report::Unheard(NodeId(4))]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [4]);
    assert!(why(&proposal, |_| true).contains("3 of 4 other nodes do not hear node 4"), "{proposal:?}");
    // Half and half: whoever is right, too many would go.
    let mut halves = Scene::new(0, view(6, 1));
    for by in 0..6 {
        let others = (0..6).filter(|other| other % 2 != by % 2).map(|other| Report::Unheard(NodeId(other)));
        halves.report(by, &others.collect::<Vec<_>>());
    }
    let proposal = halves.decide();
    assert!(proposal.view.is_none() && why(&proposal, |_| true).contains("nodes in doubt: 5"), "{proposal:?}");
    // Reports from before a node was admitted say nothing of it.
    scene.view.members[4].state = MemberState::Live { since_view: scene.view.number + 1 };
    scene.view.number += 1;
    scene.pass(100_000, &[]);
    assert_eq!(scene.decide(), Proposal::default());
}

#[test]
fn a_goodbye_is_no_silence() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.report(3, &[Report::Goodbye { is_empty: false }]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [3]);
    assert_eq!(proposal.view.unwrap().owed().count(), 1);
    // Who moved everything away is no loss, so even a frozen cluster lets it go.
    let mut frozen = Scene::new(0, view(7, 1));
    frozen.report(6, &[Report::Goodbye { is_empty: true }]);
    frozen.pass(2_000_000, &[2, 4]);
    let proposal = frozen.decide();
    assert_eq!(excluded(&proposal), [6]);
    assert_eq!(proposal.view.unwrap().owed().count(), 0);
}

#[test]
fn a_new_host_waits_until_the_leases_of_former_ones_are_over() {
    let mut scene = Scene::new(3, view(4, 1));
    scene.exclude(2, true);
    assert_eq!(scene.view.homes[2].host, NodeId(3));
    let over = leases_over_us(scene.now_us, &scene.settings);
    assert!(has(
        &scene.decide(),
        &Action::TakeOver { home: HomeId(2), by: NodeId(3), wait_leases_until_us: Some(over) }
    ));
    let acts =
        |scene: &Scene| may_act(NodeId(3), &scene.view, HomeId(2), &scene.history, &scene.settings, scene.now_us);
    assert!(!acts(&scene) && may_act(NodeId(3), &scene.view, HomeId(3), &scene.history, &scene.settings, scene.now_us));
    scene.pass(700_000, &[2]);
    assert!(!acts(&scene), "the former host may act for 0.8 s");
    scene.pass(200_000, &[2]);
    assert!(acts(&scene) && scene.now_us >= over);
    scene.now_us = lease_until_us(scene.history.asked_us().unwrap(), &scene.settings);
    assert!(!acts(&scene), "its own lease ends too");
}

#[test]
fn mirrors_are_dropped_only_by_the_view_and_not_by_a_host_that_is_cut_off() {
    let mut scene = Scene::new(1, view(5, 1));
    let silent = Seen::Mirror { home: HomeId(1), node: NodeId(2), state: MirrorState::Unanswered };
    scene.see(silent.clone());
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::DropMirror { home: HomeId(1), node: NodeId(2) }));
    assert!(proposal.view.unwrap().homes[1].mirrors.is_empty());
    let unheard: Vec<Report> = [0, 2, 3].map(|node| Report::Unheard(NodeId(node))).to_vec();
    scene.report(1, &unheard);
    let proposal = scene.decide();
    assert!(
        proposal.view.is_none() && why(&proposal, |_| true).contains("the fault is its own connection"),
        "{proposal:?}"
    );
    // What another node saw of a mirror is not this one's business, and old news are none.
    scene.report(1, &[]);
    scene.pass(1_000_000, &[]);
    assert_eq!(scene.decide(), Proposal::default());
    scene.see(Seen::Mirror { home: HomeId(1), node: NodeId(2), state: MirrorState::Diverged(77) });
    let said = why(&scene.decide(), |action| matches!(action, Action::DropMirror { .. }));
    assert_eq!(said, "the journal of home 1 on node 2 is another from byte 77 on");
}

#[test]
fn a_home_without_enough_mirrors_gets_one_and_takes_it_once_it_has_all() {
    let mut scene = Scene::new(1, view(5, 1));
    scene.exclude(2, true);
    let what = Debt::Journal { home: HomeId(1), node: NodeId(0) };
    assert!(has(&scene.decide(), &Action::Rebuild { what }), "{:?}", scene.decide());
    let caught_up =
        Seen::Mirror { home: HomeId(1), node: NodeId(4), state: MirrorState::CaughtUp { in_view: scene.view.number } };
    scene.see(caught_up);
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::AddMirror { home: HomeId(1), node: NodeId(4) }));
    // One that has much of it, fell behind since, or has not been heard of for long, is not taken.
    scene.see(Seen::Mirror { home: HomeId(1), node: NodeId(4), state: MirrorState::Has(1 << 40) });
    assert!(!has(&scene.decide(), &Action::AddMirror { home: HomeId(1), node: NodeId(4) }));
    scene.see(Seen::Mirror {
        home: HomeId(1),
        node: NodeId(4),
        state: MirrorState::CaughtUp { in_view: scene.view.number },
    });
    scene.pass(1_000_000, &[]);
    assert!(!has(&scene.decide(), &Action::AddMirror { home: HomeId(1), node: NodeId(4) }));
    scene.see(Seen::Mirror { home: HomeId(1), node: NodeId(4), state: MirrorState::Unanswered });
    assert!(!has(&scene.decide(), &Action::AddMirror { home: HomeId(1), node: NodeId(4) }));
}

/// A node was a mirror with everything, was excluded, and is readmitted at once: since then its host has acknowledged without it.
#[test]
fn what_a_host_saw_of_a_mirror_under_an_earlier_view_makes_no_mirror() {
    let mut scene = Scene::new(1, view(5, 1));
    let was = scene.view.number;
    scene.see(Seen::Mirror { home: HomeId(1), node: NodeId(2), state: MirrorState::CaughtUp { in_view: was } });
    scene.exclude(2, true);
    let since_view = scene.view.number + 1;
    scene.view.members[2].state = MemberState::Live { since_view };
    scene.view.number = since_view;
    scene.pass(100_000, &[]);
    let add = Action::AddMirror { home: HomeId(1), node: NodeId(2) };
    assert!(!has(&scene.decide(), &add), "{:?}", scene.decide());
    let state = MirrorState::CaughtUp { in_view: since_view };
    scene.see(Seen::Mirror { home: HomeId(1), node: NodeId(2), state });
    assert!(has(&scene.decide(), &add), "{:?}", scene.decide());
}

#[test]
fn debts_are_paid_home_by_home_and_then_the_node_is_no_loss_any_more() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.exclude(2, true);
    let since_view = scene.view.number;
    let what = Debt::Extents { home: HomeId(0), node: NodeId(2), since_view };
    assert!(has(&scene.decide(), &Action::Rebuild { what }));
    let paid = |home: u16, since_view| Report::Paid { home: HomeId(home), node: NodeId(2), since_view };
    scene.report(0, &[paid(0, since_view)]);
    scene.report(1, &[paid(1, since_view)]);
    scene.report(3, &[paid(2, since_view), paid(3, since_view - 1)]);
    assert!(!has(&scene.decide(), &Action::Settle { node: NodeId(2) }), "one was paid for an earlier exclusion");
    scene.report(3, &[paid(2, since_view), paid(3, since_view)]);
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::Settle { node: NodeId(2) }));
    assert_eq!(proposal.view.unwrap().owed().count(), 0);
}

#[test]
fn an_excluded_node_decides_nothing() {
    let mut scene = Scene::new(2, view(4, 1));
    scene.exclude(2, true);
    scene.pass(3_000_000, &[0, 1]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none() && proposal.decided.len() == 1, "{proposal:?}");
    assert!(!may_act(NodeId(2), &scene.view, HomeId(2), &scene.history, &scene.settings, scene.now_us));
}

#[test]
fn an_answer_that_was_overtaken_changes_nothing() {
    let mut scene = Scene::new(0, view(4, 1));
    let before = Arc::new(scene.view.clone());
    scene.exclude(2, true);
    let asked = scene.history.asked_us();
    scene.now_us += 10_000;
    let late = scene.now_us;
    scene.see(Seen::Register { view: before, asked_us: late - 1 });
    assert_eq!((scene.history.view().unwrap().number, scene.history.asked_us()), (10, asked));
}

#[test]
fn failed_devices_and_clocks_are_told_with_what_is_done() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.see(Seen::DeviceFailed { node: NodeId(1), device: DeviceId(3) });
    scene.see(Seen::ClockOff { node: NodeId(2), by_us: -90_000_000 });
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::Rebuild { what: Debt::Device { node: NodeId(1), device: DeviceId(3) } }));
    let text = explain(&scene.history, &proposal, scene.now_us + 2_000_000);
    for sentence in [
        "  2.0 s ago device d3 of node 1 failed\n",
        "  view 9: 4 of 4 nodes take part; the weakest layout survives the loss of 1\n",
        "  home 0: term 1, hosted by node 0, mirrored by node 1\n",
        "  make new copies of what lay on device d3 of node 1: a device of node 1 failed\n",
        "  note: the clock of node 2 differs by -90.0 s; nothing depends on it but times in logs and files\n",
    ] {
        assert!(text.contains(sentence), "{text}");
    }
}

#[test]
fn a_process_that_knows_nothing_says_so() {
    let scene = Scene { history: History::default(), ..Scene::new(0, view(4, 1)) };
    let text = explain(&scene.history, &scene.decide(), 0);
    let expected = "What happened\n  nothing worth telling\nWhat is known\n  the register has not answered yet\n\
                    What is done, and why\n  wait: this process has not read the register yet\n";
    assert_eq!(text, expected);
}

#[test]
fn nobody_is_excluded_while_all_are_being_stopped() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.report(2, &[Report::Closing]);
    scene.pass(6_000_000, &[2]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "{proposal:?}");
    assert!(why(&proposal, |_| true).contains("all nodes are being stopped"), "{proposal:?}");
    // One that is back, or was not heard for long, no longer counts.
    scene.pass(60_000_000, &[2]);
    assert_eq!(excluded(&scene.decide()), [2]);
    let mut back = Scene::new(0, view(4, 1));
    back.report(2, &[Report::Closing]);
    back.report(2, &[]);
    back.pass(6_000_000, &[2]);
    assert_eq!(excluded(&back.decide()), [2]);
}

#[test]
fn a_node_that_is_to_leave_gets_no_mirrors_and_loses_those_it_has_once_others_do() {
    let mut scene = Scene::new(1, view(4, 1));
    scene.view.members[2].is_leaving = true; // it mirrors home 1, of which this node is the host
    scene.view.number += 1;
    scene.pass(100_000, &[]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "its mirror counts until there is another: {proposal:?}");
    let what = Debt::Journal { home: HomeId(1), node: NodeId(0) };
    assert!(has(&proposal, &Action::Rebuild { what }), "{proposal:?}");
    scene.see(Seen::Mirror {
        home: HomeId(1),
        node: NodeId(2),
        state: MirrorState::CaughtUp { in_view: scene.view.number },
    });
    scene.see(Seen::Mirror {
        home: HomeId(1),
        node: NodeId(0),
        state: MirrorState::CaughtUp { in_view: scene.view.number },
    });
    let next = scene.decide().view.unwrap();
    assert_eq!(next.homes[1].mirrors, [NodeId(2), NodeId(0)], "added first");
    scene.view = next;
    scene.pass(100_000, &[]);
    let proposal = scene.decide();
    let said = why(&proposal, |action| matches!(action, Action::DropMirror { .. }));
    assert!(said.contains("node 2 is about to leave"), "{said}");
    assert_eq!(proposal.view.unwrap().homes[1].mirrors, [NodeId(0)]);
    // It is the last to take a home over.
    let mut scene = Scene::new(0, view(4, 2));
    scene.view.members[2].is_leaving = true; // it mirrors home 1, as node 3 does
    scene.view.number += 1;
    scene.pass(700_000, &[1]);
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(1), by: NodeId(3), wait_leases_until_us: None }));
}
