//! Who may come back, and with what.

use crate::scene::{Scene, excluded, has, view, why};
use cenote_ha::{Action, ClusterId, Contents, Identity, MemberState, Proposal, Report};
use cenote_model::{DeviceId, NodeId};

#[test]
fn a_node_that_comes_back_brings_what_is_still_wanted() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.exclude(2, true);
    scene.pass(3_000_000, &[]);
    scene.hello(2, |_| {});
    scene.pass(2_100_000, &[]);
    scene.hello(2, |_| {});
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::Readmit { node: NodeId(2), contents: Contents::Kept }), "{proposal:?}");
    let number = scene.view.number + 1;
    assert_eq!(proposal.view.unwrap().members[2].state, MemberState::Live { since_view: number });
    scene.report(2, &[Report::Goodbye { is_empty: false }]);
    assert!(scene.decide().view.is_none(), "who is about to stop is not readmitted");
    scene.report(2, &[]);
    // Without its disks it has to wait until what it had is made good from others…
    scene.hello(2, |hello| hello.lost_devices = vec![DeviceId(0)]);
    assert!(
        why(&scene.decide(), |action| matches!(action, Action::Wait { .. }))
            .contains("has to be made good from other copies first")
    );
    // …and then nothing on it counts, whether it was away for a minute or a year.
    scene.exclude(2, false);
    scene.pass(3_000_000, &[]);
    scene.hello(2, |hello| hello.left_in_view = 1);
    scene.pass(2_100_000, &[]);
    scene.hello(2, |hello| hello.left_in_view = 1);
    let proposal = scene.decide();
    assert!(has(&proposal, &Action::Readmit { node: NodeId(2), contents: Contents::Empty }), "{proposal:?}");
}

#[test]
fn a_node_reads_the_present_view_before_it_takes_part() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.exclude(2, true);
    scene.hello(2, |hello| hello.holds_view -= 1);
    scene.pass(3_000_000, &[]);
    let proposal = scene.decide();
    let said = why(&proposal, |action| matches!(action, Action::Wait { until_us: None }));
    assert_eq!(said, "node 2 holds view 9 and has to read view 10 first");
    assert!(!proposal.decided.iter().any(|decided| matches!(decided.action, Action::Readmit { .. })));
}

#[test]
fn a_node_that_flaps_waits_longer_each_time() {
    let mut scene = Scene::new(0, view(4, 1));
    let mut waits = Vec::new();
    for _ in 0..4 {
        scene.exclude(2, true);
        scene.hello(2, |_| {});
        let since = scene.now_us;
        while !has(&scene.decide(), &Action::Readmit { node: NodeId(2), contents: Contents::Kept }) {
            scene.pass(100_000, &[]);
            scene.hello(2, |_| {});
        }
        waits.push((scene.now_us - since) / 1_000_000);
        scene.view = scene.decide().view.unwrap();
        scene.pass(300_000, &[]);
    }
    assert_eq!(waits, [2, 4, 8, 16]);
}

#[test]
fn strangers_are_refused_by_name() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.exclude(3, false);
    let refused = |scene: &Scene| why(&scene.decide(), |action| matches!(action, Action::Refuse { .. }));
    scene.hello(3, |hello| hello.cluster = ClusterId(6));
    assert_eq!(refused(&scene), "the disks of what calls itself node 3 are of another cluster");
    scene.hello(3, |hello| hello.left_in_view = 99);
    assert!(refused(&scene).starts_with("node 3 knows view 99 and the register has only 10"), "{}", refused(&scene));
    scene.hello(3, |_| {});
    scene.hello(2, |hello| (hello.identity, hello.address) = (Identity(77), "other:7".into()));
    assert_eq!(refused(&scene), "node 2 is live at h2:7, and another process says at other:7 that it is node 2");
    scene.hello(2, |hello| hello.address = "other:7".into());
    assert!(refused(&scene).ends_with("with the same disks: are they mounted twice, or copied?"));
    scene.hello(2, |_| {});
    scene.hello(40, |_| {});
    assert_eq!(refused(&scene), "the view has no node 40: it is no member of this cluster");
}

#[test]
fn a_live_node_that_lost_devices_is_excluded_so_that_its_bytes_are_made_good() {
    let mut scene = Scene::new(0, view(4, 1));
    scene.hello(2, |hello| hello.lost_devices = vec![DeviceId(0)]);
    let proposal = scene.decide();
    assert_eq!(excluded(&proposal), [2]);
    assert!(why(&proposal, |_| true).contains("came back without 1 of its devices"));
    // What it said before it was admitted is of its former self.
    scene.view.number += 1;
    scene.view.members[2].state = MemberState::Live { since_view: scene.view.number };
    scene.pass(100_000, &[]);
    scene.hello(2, |hello| (hello.lost_devices, hello.holds_view) = (vec![DeviceId(0)], 9));
    assert_eq!(scene.decide(), Proposal::default());
}
