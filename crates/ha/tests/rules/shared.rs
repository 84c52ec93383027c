//! Homes whose state lies where every node reaches it.

use crate::scene::{Scene, excluded, has, shared_view, view, why};
use cenote_ha::{Action, Debt, HomeId, MemberState, lease_until_us, may_act};
use cenote_model::NodeId;

#[test]
fn a_shared_home_goes_to_the_live_node_that_hosts_the_fewest() {
    let mut all = shared_view(5);
    all.homes[4].host = NodeId(0); // node 4 is back, and does not have its home yet
    let mut scene = Scene::new(0, all);
    scene.pass(700_000, &[2]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [2]);
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(2), by: NodeId(4), wait_leases_until_us: None }));
    let next = proposal.view.unwrap();
    let home = &next.homes[2];
    assert_eq!((home.host, home.term, home.wanted_host), (NodeId(4), 2, NodeId(2)), "its own node gets it back");
    assert!(home.mirrors.is_empty() && home.is_shared);
    // Nobody owes copies, and the lowest number decides between equals.
    let mut scene = Scene::new(0, shared_view(4));
    scene.pass(700_000, &[2]);
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(2), by: NodeId(0), wait_leases_until_us: None }));
    let makes_copies = |action: &Action| matches!(action, Action::Rebuild { what: Debt::Journal { .. } });
    assert!(!proposal.decided.iter().any(|decided| makes_copies(&decided.action)), "{proposal:?}");
}

#[test]
fn who_is_about_to_leave_or_in_doubt_gets_no_shared_home_while_another_node_is_there() {
    let mut all = shared_view(4);
    all.members[0].is_leaving = true;
    let mut scene = Scene::new(3, all);
    scene.pass(2_000_000, &[1, 2]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [1, 2]);
    for home in [HomeId(1), HomeId(2)] {
        assert!(has(&proposal, &Action::TakeOver { home, by: NodeId(3), wait_leases_until_us: None }), "{proposal:?}");
    }
}

#[test]
fn the_loss_of_any_number_is_no_reason_to_freeze_for_shared_homes_alone() {
    let mut scene = Scene::new(0, shared_view(5));
    scene.pass(2_000_000, &[1, 2, 3, 4]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [1, 2, 3, 4]);
    let next = proposal.view.unwrap();
    assert!(next.homes.iter().all(|home| home.host == NodeId(0)), "{next:?}");
    // One home with its bytes on its node alone, and nobody guesses.
    let mut mixed = shared_view(5);
    (mixed.survives, mixed.homes[3].is_shared) = (2, false);
    let mut scene = Scene::new(0, mixed);
    scene.pass(2_000_000, &[3]);
    let proposal = scene.decide();
    assert!(proposal.view.is_none(), "{proposal:?}");
    assert!(why(&proposal, |action| matches!(action, Action::Freeze { .. })).contains("home 3"), "{proposal:?}");
}

#[test]
fn the_heir_of_a_shared_home_waits_for_leases_as_every_heir_does() {
    let mut scene = Scene::new(1, shared_view(3));
    let term = scene.view.homes[2].term + 1;
    scene.view.number += 1;
    scene.view.members[2].state = MemberState::Excluded { is_owed: true, since_view: scene.view.number };
    (scene.view.homes[2].host, scene.view.homes[2].term) = (NodeId(1), term);
    scene.pass(100_000, &[2]);
    let acts =
        |scene: &Scene| may_act(NodeId(1), &scene.view, HomeId(2), &scene.history, &scene.settings, scene.now_us);
    assert!(!acts(&scene), "the former host may still answer");
    scene.pass(lease_until_us(0, &scene.settings) + 100_000, &[2]);
    assert!(acts(&scene));
    // It is the same without the register: the lease is over.
    scene.now_us += 900_000;
    assert!(!acts(&scene));
}

#[test]
fn homes_with_mirrors_go_to_mirrors_alone() {
    let mut all = view(4, 1);
    all.homes[2].mirrors.clear();
    let mut scene = Scene::new(0, all);
    scene.pass(700_000, &[2]);
    assert!(scene.decide().view.is_none(), "nobody else has what home 2 has");
}
