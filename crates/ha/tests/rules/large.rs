//! Thousands of nodes: a decision is due each beat, on each of them.

use std::time::{Duration, Instant};

use cenote_ha::Report;
use cenote_model::NodeId;

use crate::scene::{Scene, excluded, view};

#[test]
fn a_decision_among_thousands_takes_a_fraction_of_a_beat() {
    let mut scene = Scene::new(0, view(3000, 2));
    scene.pass(800_000, &[5]);
    scene.report(7, &[Report::Unheard(NodeId(5)), Report::Unheard(NodeId(9)), Report::Unheard(NodeId(5))]);
    let begin = Instant::now();
    let proposal = scene.decide();
    let took = begin.elapsed();
    assert_eq!(excluded(&proposal), [5]);
    // It took 1.4 s when each node was looked for among all, for each node: longer than a lease. Now it takes 1 ms.
    assert!(took < Duration::from_micros(scene.settings.beat_us), "{took:?}");
}

#[test]
fn a_witness_counts_once_however_often_it_says_so() {
    let mut scene = Scene::new(0, view(4, 2));
    scene.report(1, &[Report::Unheard(NodeId(3)), Report::Unheard(NodeId(2)), Report::Unheard(NodeId(3))]);
    assert_eq!(excluded(&scene.decide()), [0; 0], "one of three others is not more than half");
    scene.report(2, &[Report::Unheard(NodeId(3))]);
    assert_eq!(excluded(&scene.decide()), [3]);
}
