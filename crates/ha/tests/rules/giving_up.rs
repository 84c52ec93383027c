//! Nodes that a person gives up.

use cenote_ha::{Action, Fate, HomeId, Loads, MemberState, Report, explain};
use cenote_model::NodeId;

use crate::scene::{Scene, excluded, has, view, why};

fn is_freeze(action: &Action) -> bool {
    matches!(action, Action::Freeze { .. })
}

#[test]
fn what_becomes_of_homes_is_known_before() {
    let ring = view(4, 1);
    let fates = ring.fates(NodeId(2));
    let by = vec![NodeId(3)];
    assert_eq!(fates, [(HomeId(1), Fate::FewerMirrors), (HomeId(2), Fate::GoesOn { by })]);
    assert_eq!(view(4, 0).fates(NodeId(2)), [(HomeId(2), Fate::Lost)]);
    let mut one_gone = ring;
    one_gone.give_up(NodeId(2), 10, &Loads::default());
    assert_eq!(one_gone.fates(NodeId(3)), [(HomeId(2), Fate::Lost), (HomeId(3), Fate::GoesOn { by: vec![NodeId(0)] })]);
    one_gone.give_up(NodeId(3), 11, &Loads::default());
    assert!(one_gone.is_lost(one_gone.home(HomeId(2)).unwrap()));
    assert_eq!(one_gone.fates(NodeId(3)), [(HomeId(3), Fate::GoesOn { by: vec![NodeId(0)] })], "lost once, not twice");
}

#[test]
fn a_cluster_that_is_frozen_goes_on_without_a_node_that_is_given_up() {
    let mut scene = Scene::new(0, view(4, 0));
    scene.pass(2_000_000, &[2]);
    assert!(has(&scene.decide(), &Action::Freeze { suspects: vec![NodeId(2)], homes: vec![HomeId(2)] }));
    scene.give_up(2, &[2]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none() && !proposal.decided.iter().any(|it| is_freeze(&it.action)), "{proposal:#?}");
    let text = explain(&scene.history, &proposal, scene.now_us);
    assert!(text.contains("home 2: lost with node 2, which was given up"), "{text}");
    assert!(text.contains("a person gave node 2 up, home 2 is lost with node 2"), "{text}");
    // The next loss is a loss of its own.
    scene.pass(2_000_000, &[2, 3]);
    assert!(has(&scene.decide(), &Action::Freeze { suspects: vec![NodeId(3)], homes: vec![HomeId(3)] }));
}

#[test]
fn host_and_mirror_may_be_given_up_one_after_the_other() {
    let mut scene = Scene::new(0, view(5, 1));
    // Home 2 has its only mirror on node 3, home 1 its on node 2, home 3 its on node 4.
    scene.pass(2_000_000, &[2, 3]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none() && why(&proposal, is_freeze).contains("nodes in doubt: 2"), "{proposal:#?}");
    scene.give_up(2, &[2, 3]);
    let proposal = scene.decide();
    let frozen = Action::Freeze { suspects: vec![NodeId(3)], homes: vec![HomeId(2)] };
    assert!(has(&proposal, &frozen), "the mirror has all of home 2: {proposal:#?}");
    assert!(excluded(&proposal).is_empty());
    // It comes back: nothing is lost.
    let mut back = Scene::new(0, scene.view.clone());
    back.pass(100_000, &[2]);
    assert!(
        has(&back.decide(), &Action::TakeOver { home: HomeId(2), by: NodeId(3), wait_leases_until_us: None }),
        "{:#?}",
        back.decide()
    );
    // It does not.
    scene.give_up(3, &[2, 3]);
    let proposal = scene.decide();
    assert!(!proposal.decided.iter().any(|it| is_freeze(&it.action)), "{proposal:#?}");
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(3), by: NodeId(4), wait_leases_until_us: None }));
    let next = proposal.view.unwrap();
    assert!(next.is_lost(next.home(HomeId(2)).unwrap()) && !next.is_lost(next.home(HomeId(3)).unwrap()));
}

#[test]
fn a_node_that_was_given_up_is_refused_whatever_it_brings() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.give_up(2, &[2]);
    scene.hello(2, |_| {});
    scene.pass(60_000_000, &[]);
    scene.hello(2, |_| {});
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::Refuse { node: NodeId(2) }), "{proposal:#?}");
    assert!(why(&proposal, |it| matches!(it, Action::Refuse { .. })).contains("gave node 2 up in view 10"));
    assert!(proposal.view.is_none_or(|view| view.is_given_up(NodeId(2))));
}

#[test]
fn debts_to_others_are_settled_though_a_home_is_lost() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.exclude(1, true);
    scene.view.homes[3].mirrors.clear();
    scene.give_up(3, &[1, 3]);
    let since_view = scene.view.owed().next().unwrap().1;
    let node = NodeId(1);
    let homes = scene.view.homes.clone();
    for by in [0, 2] {
        let paid =
            homes.iter().filter(|home| home.host.0 == by).map(|home| Report::Paid { home: home.id, node, since_view });
        scene.report(by, &paid.collect::<Vec<_>>());
    }
    let next = scene.decide().view.expect("it is settled");
    assert_eq!(next.member(node).unwrap().state, MemberState::Excluded { is_owed: false, since_view });
}
