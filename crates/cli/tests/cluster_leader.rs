//! The node that is lost also led the group that keeps the register: writers elsewhere stall hardly longer than for any other.

mod common;

use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Mode, ObjectId, OpenOptions, Store};
use common::cluster::Cluster;
use common::factor;
use rustix::process::Signal;
use serde_json::Value;

const NODES: usize = 3;
/// Bytes before the record of a member's file (`docs/format.md`).
const HEAD_BYTES: usize = 14;
const PART: usize = 5000;
/// Set, so many rounds are made of each kind; `CENOTE_LEADER_BOUND_MS` is how long a write may take then.
const ROUNDS_VARIABLE: &str = "CENOTE_LEADER_ROUNDS";
const BOUND_VARIABLE: &str = "CENOTE_LEADER_BOUND_MS";
/// Twice the bar of the issue, since other tests run meanwhile, with the times of the daemons as they are by default.
const BOUND_MS: u64 = 4000;

fn number_of(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn is_well(report: &Value) -> bool {
    let homes = report["homes"].as_array().unwrap();
    let is_own = |at: usize, home: &Value| {
        home["host"].as_u64() == Some(at as u64 + 1) && !home["mirrors"].as_array().unwrap().is_empty()
    };
    homes.len() == NODES && homes.iter().enumerate().all(|(at, home)| is_own(at, home))
}

/// Term and leader of the group, as most of its members have noted it.
fn leader(cluster: &Cluster) -> (u64, usize) {
    let begin = Instant::now();
    loop {
        let vote = |number| {
            let bytes = std::fs::read(cluster.node(number).join("register")).unwrap();
            let kept: Value = serde_json::from_slice(&bytes[HEAD_BYTES..]).unwrap();
            kept["vote"].clone()
        };
        let votes: Vec<Value> = (1..=NODES).map(vote).collect();
        let agreed = votes.iter().find(|vote| votes.iter().filter(|other| other == vote).count() > NODES / 2);
        if let Some(vote) = agreed.filter(|vote| vote["committed"] == true) {
            let id = &vote["leader_id"];
            return (id["term"].as_u64().unwrap(), id["node_id"].as_u64().unwrap() as usize);
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "nobody leads: {votes:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn open(cluster: &Cluster, number: usize) -> Store {
    let how = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    Store::open_with(cluster.node(number), &how).unwrap()
}

fn content(number: u64) -> Vec<u8> {
    (0..PART as u64).map(|at| (at * 31 + number * 7) as u8).collect()
}

/// A node is lost while a program on another one writes to its home. Returns the longest call.
fn longest_call(cluster: &Cluster, (lost, by): (usize, Signal), container: &Container) -> Duration {
    let object = container.create_object(None, None).unwrap();
    let (begin, mut lost_at, mut longest, mut parts) = (Instant::now(), None, Duration::ZERO, 0);
    // It goes on until the home has been elsewhere for a while.
    while lost_at.is_none_or(|at: Instant| at.elapsed() < longest + Duration::from_secs(1)) {
        if lost_at.is_none() && begin.elapsed() > Duration::from_millis(300) {
            cluster.signal(lost, by);
            lost_at = Some(Instant::now());
        }
        let called = Instant::now();
        object.write_at(parts % 100 * PART as u64, &content(parts)).unwrap();
        longest = longest.max(called.elapsed());
        parts += 1;
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut bytes = vec![0; PART];
    for number in parts.saturating_sub(100)..parts {
        object.read_at(number % 100 * PART as u64, &mut bytes).unwrap();
        assert!(bytes == content(number), "part {number} of {parts}");
    }
    longest
}

#[test]
fn a_lost_leader_of_the_register_stalls_writers_elsewhere_hardly_longer_than_any_node() {
    let tiers = ["--tier", "name=memory,kind=memory,size=64MiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], &["--protect", "1", "--register", "kind=nodes"]].concat());
    cluster.until(1, "mirrors of all homes", is_well);
    for number in 1..=NODES {
        let made = open(&cluster, number).create_container(&format!("runs-{number}"), &ContainerSpec::default());
        made.unwrap().create_object(Some(ObjectId(1)), None).unwrap();
    }
    let bound = Duration::from_millis(number_of(BOUND_VARIABLE, (BOUND_MS as f64 * factor().max(1.0)) as u64));
    let rounds = number_of(ROUNDS_VARIABLE, 1);
    let kinds = [("killed", true, Signal::KILL), ("killed", false, Signal::KILL), ("stopped", true, Signal::STOP)];
    for (how, is_leader, by) in (0..rounds).flat_map(|_| kinds) {
        let (term, leads) = leader(&cluster);
        let lost = if is_leader { leads } else { leads % NODES + 1 };
        let store = open(&cluster, lost % NODES + 1);
        cluster.ok(lost, &["protect"]);
        let took = longest_call(&cluster, (lost, by), &store.container(&format!("runs-{lost}")).unwrap());
        drop(store);
        cluster.try_signal(lost, Signal::CONT);
        cluster.again();
        cluster.until(lost, "that all nodes have their homes", is_well);
        let (now, leads_now) = leader(&cluster);
        println!("n{leads} led, n{lost} was {how}: {took:?}; term {term}, then {now} of n{leads_now}");
        assert!(took < bound, "a call took {took:?}");
        // A vote that is split is repeated.
        assert!(now <= term + 10, "terms {term} to {now}: members stand against each other");
    }
}
