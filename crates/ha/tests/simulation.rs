//! A cluster in one thread: nodes with clocks that drift, links that lose, delay and are cut one way, slow, stopped,
//! dying and returning nodes, a register with compare-and-swap, and boards that look at it and give leases. All randomness comes from a seed.
//!
//! `CENOTE_HA_SEEDS=N` runs so many seeds instead of 3,000, `CENOTE_HA_SEED=S` one with a trace.

#[path = "simulation/boards.rs"]
mod boards;
#[path = "simulation/checks.rs"]
mod checks;
#[path = "simulation/cluster.rs"]
mod cluster;
#[path = "simulation/faults.rs"]
mod faults;
#[path = "simulation/hosts.rs"]
mod hosts;
#[path = "simulation/node.rs"]
mod node;
#[path = "simulation/person.rs"]
mod person;
#[path = "simulation/register.rs"]
mod register;

use cluster::{Cluster, Tally};

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs every second seed from `first` on, and sums up what happened.
fn run(first: u64, end: u64) -> Tally {
    let mut sum = Tally::default();
    for seed in (first..end).step_by(2) {
        let outcome = std::panic::catch_unwind(|| Cluster::new(seed, false).run());
        sum.add(&outcome.unwrap_or_else(|_| panic!("seed {seed} failed; again with a trace: CENOTE_HA_SEED={seed}")));
    }
    sum
}

#[test]
fn clusters_are_safe_under_faults_and_live_once_healed() {
    if let Some(seed) = number("CENOTE_HA_SEED") {
        println!("{:?}", Cluster::new(seed, true).run());
        return;
    }
    let seeds = number("CENOTE_HA_SEEDS").unwrap_or(3_000);
    let other = std::thread::spawn(move || run(1, seeds));
    let mut sum = run(0, seeds);
    sum.add(&other.join().expect("the seed is named above"));
    println!("{seeds} seeds: {sum:?}");
    // A simulation in which nothing happens proves nothing.
    let each = |count: u64| count * 2 >= seeds;
    assert!(each(sum.excluded) && each(sum.taken_over) && each(sum.readmitted), "{sum:?}");
    assert!(sum.frozen * 10 >= seeds && sum.lost_swaps * 10 >= seeds && sum.mirrors_dropped * 10 >= seeds, "{sum:?}");
    assert!(sum.shared_taken_over * 10 >= seeds && sum.appended_to_pool >= seeds, "{sum:?}");
    assert!(sum.shortened * 5 >= seeds, "{sum:?}");
    assert!(sum.moves_asked * 10 >= seeds && sum.moves_done * 20 >= seeds, "{sum:?}");
    assert!(sum.given_up * 10 >= seeds && sum.lost_homes > 0, "{sum:?}");
    assert!(sum.refused * 20 >= seeds && sum.waited_for_daemon * 10 >= seeds, "{sum:?}");
}

#[test]
fn a_seed_always_gives_the_same_history() {
    for seed in 0..20 {
        assert_eq!(Cluster::new(seed, false).run(), Cluster::new(seed, false).run(), "seed {seed}");
    }
}
