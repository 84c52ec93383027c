//! Nodes that come back without the memory that they had.

use cenote_ha::{Action, HomeId, Report};
use cenote_model::NodeId;

use crate::scene::{Scene, excluded, has, view, why};

const LOST: Report = Report::Lost(HomeId(1));

/// A scene of three nodes in which home 1 is at node 1, with its mirror on node 2.
fn scene(me: u16) -> Scene {
    Scene::new(me, view(3, 1))
}

#[test]
fn a_host_that_has_lost_what_its_mirror_has_is_excluded() {
    let mut scene = scene(2);
    scene.report(1, &[LOST]);
    scene.pass(100_000, &[]);
    scene.report(1, &[LOST]);
    assert!(excluded(&scene.decide()).is_empty(), "the mirror may have to say the same");
    scene.pass(300_000, &[]);
    scene.report(1, &[LOST]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [1]);
    assert!(has(&proposal, &Action::TakeOver { home: HomeId(1), by: NodeId(2), wait_leases_until_us: None }));
    let text = why(&proposal, |action| matches!(action, Action::Exclude { .. }));
    assert!(text.contains("without the memory") && text.contains("home 1"), "{text}");
    // It has everything again: a copy came, or it was never the host.
    scene.report(1, &[]);
    assert!(excluded(&scene.decide()).is_empty());
}

#[test]
fn who_lost_everything_with_its_mirror_goes_on() {
    for (me, drops) in [(0, false), (1, true)] {
        let mut scene = scene(me);
        for _ in 0..8 {
            scene.report(1, &[LOST]);
            scene.report(2, &[LOST]);
            scene.pass(100_000, &[]);
        }
        let proposal = scene.decide();
        assert!(excluded(&proposal).is_empty(), "{proposal:?}");
        // The host goes on without the mirror that has nothing.
        let dropped = has(&proposal, &Action::DropMirror { home: HomeId(1), node: NodeId(2) });
        assert_eq!(dropped, drops, "{proposal:?}");
    }
}

#[test]
fn a_home_does_not_go_to_a_mirror_that_has_lost_it() {
    let mut scene = scene(0);
    for _ in 0..20 {
        scene.report(2, &[LOST]);
        scene.pass(300_000, &[1]);
    }
    let proposal = scene.decide();
    assert!(excluded(&proposal).is_empty(), "node 1 has the only copy, and may come back: {proposal:?}");
    let is_frozen = |action: &Action| matches!(action, Action::Freeze { homes, .. } if homes.contains(&HomeId(1)));
    assert!(proposal.decided.iter().any(|decided| is_frozen(&decided.action)), "{proposal:?}");
}

#[test]
fn a_host_that_has_lost_its_home_waits_for_the_mirror() {
    // Its mirror is silent: going on without it could lose what only that has.
    for me in [0, 1] {
        let mut scene = scene(me);
        for _ in 0..20 {
            scene.report(1, &[LOST]);
            scene.pass(300_000, &[2]);
        }
        let proposal = scene.decide();
        assert!(excluded(&proposal).is_empty(), "node {me}: {proposal:?}");
        assert!(!has(&proposal, &Action::DropMirror { home: HomeId(1), node: NodeId(2) }), "{proposal:?}");
    }
}

#[test]
fn who_has_lost_a_home_is_not_kept_for_it() {
    // Node 1 has lost its own home, which its mirror has, and as a mirror what node 0 has lost, too.
    let mut scene = scene(2);
    for _ in 0..8 {
        scene.report(0, &[Report::Lost(HomeId(0))]);
        scene.report(1, &[Report::Lost(HomeId(0)), LOST]);
        scene.pass(100_000, &[]);
    }
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [1], "{proposal:?}");
    assert!(has(&proposal, &Action::DropMirror { home: HomeId(0), node: NodeId(1) }), "{proposal:?}");
}
