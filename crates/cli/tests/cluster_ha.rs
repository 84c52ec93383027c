//! What the daemons of a cluster know of each other: the view, a node that is killed or hangs, its return.

mod common;

use std::time::Duration;

use common::TestDir;
use common::cluster::Cluster;
use rustix::process::Signal;
use serde_json::Value;

const NODES: usize = 3;

/// A cluster of n1, n2 and n3.
#[track_caller]
fn start(protect: &str, more: &[&str]) -> Cluster {
    let options = ["--tier", "name=memory,kind=memory,size=48MiB", "--protect", protect];
    Cluster::start(NODES, &[&options, more].concat())
}

fn all_live(report: &Value) -> bool {
    let nodes = report["nodes"].as_array().unwrap();
    nodes.len() == NODES && nodes.iter().all(|node| node["state"] == "live")
}

fn is_mirrored(report: &Value) -> bool {
    all_live(report) && report["homes"].as_array().unwrap().iter().all(|home| home["mirrors"] != Value::Array(vec![]))
}

/// What a report says of a node.
fn of(report: &Value, number: usize) -> &Value {
    &report["nodes"][number - 1]
}

/// Excluded; or still in the view, with a reason.
fn is_excluded_or_says_why(report: &Value, number: usize) -> bool {
    let decided = report["decided"].as_array().unwrap();
    let freezes = decided.iter().any(|it| it["kind"] == "freeze" && it["why"] != "");
    of(report, number)["live"] == false || (freezes && of(report, number)["doubt"] != "")
}

#[test]
fn a_killed_daemon_is_waited_for_and_welcome_when_it_is_back() {
    let cluster = start("1", &[]);
    cluster.until(2, "that all are live", all_live);
    cluster.until(3, "that all are live", all_live);
    let text = cluster.ok(3, &["ha"]);
    for words in ["as n3 holds it: 3 of 3 nodes take part", "What happened", "the register answered with view 1"] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    cluster.signal(3, Signal::KILL);
    let report = cluster
        .until(2, "that n3 refuses", |report| of(report, 3)["doubt"].as_str().unwrap().contains("refused connections"));
    // Its memory is intact: nobody takes anything over.
    assert_eq!(of(&report, 3)["live"], true, "{report:#}");
    assert!(report["decided"].as_array().unwrap().iter().any(|it| it["kind"] == "wait"), "{report:#}");
    let text = cluster.place.ok(["cluster", "status", &cluster.dir()]);
    assert!(text.contains("n3: in doubt") && text.contains("the loss of 1 is to be survived"), "{text}");
    cluster.place.ok(["cluster", "start", &cluster.dir()]);
    let report = cluster.until(1, "that all are live", all_live);
    assert_eq!(report["homes"][2]["host"], 3, "{report:#}");
    let events = report["events"].as_array().unwrap();
    let said = |words: &str| events.iter().any(|event| event["what"].as_str().unwrap().contains(words));
    assert!(said("node 3 refused") && said("node 3 said hello"), "{report:#}");
}

#[test]
fn a_daemon_that_stays_away_is_excluded_and_readmitted() {
    let cluster = start("1", &[]);
    cluster.until(1, "that homes are mirrored", is_mirrored);
    cluster.signal(3, Signal::KILL);
    let report = cluster.until(2, "that n3 is excluded", |report| of(report, 3)["live"] == false);
    assert_ne!(report["homes"][2]["host"], 3, "{report:#}");
    assert_eq!(report["homes"][2]["term"], 2, "{report:#}");
    let text = cluster.place.ok(["cluster", "status", &cluster.dir()]);
    assert!(text.contains("n3: excluded"), "{text}");
    cluster.place.ok(["cluster", "start", &cluster.dir()]);
    let report = cluster.until(1, "that all are mirrored again", is_mirrored);
    let events = report["events"].to_string();
    assert!(events.contains("node 3 is excluded") && events.contains("node 3 takes part"), "{report:#}");
}

#[test]
fn a_daemon_that_hangs_is_excluded_or_the_reason_is_named() {
    let cluster = start("1", &[]);
    cluster.until(1, "that all are live", all_live);
    cluster.signal(3, Signal::STOP);
    let report = cluster.until(1, "what becomes of n3", |report| is_excluded_or_says_why(report, 3));
    assert!(of(&report, 3)["silence_us"].as_u64().unwrap() >= 400_000, "{report:#}");
    cluster.signal(3, Signal::CONT);
    cluster.until(2, "that n3 is back", all_live);
}

#[test]
fn without_mirrors_nobody_is_excluded_and_the_reason_is_named() {
    let cluster = start("0", &[]);
    cluster.until(1, "that all are live", all_live);
    cluster.signal(2, Signal::STOP);
    let freezes = |report: &Value| report["decided"].as_array().unwrap().iter().any(|it| it["kind"] == "freeze");
    let report = cluster.until(3, "that it freezes", freezes);
    assert_eq!((&report["view"], &of(&report, 2)["live"]), (&Value::from(1), &Value::from(true)), "{report:#}");
    // A host that has just begun waits for the leases of hosts before it.
    cluster.until(1, "that it need not wait", |report| !report["decided"].to_string().contains("take-over"));
    let repaired = cluster.ok(1, &["ha", "--dry-run"]);
    assert!(repaired.contains("would repair nothing now"), "{repaired}");
    cluster.signal(2, Signal::CONT);
    cluster.until(3, "that n2 is back", all_live);
}

#[test]
fn a_cluster_that_starts_again_knows_its_view() {
    let cluster = start("1", &["--register", "kind=first"]);
    cluster.until(1, "that all are live", all_live);
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    cluster.place.ok(["cluster", "start", &cluster.dir()]);
    let report = cluster.until(3, "that all are live", all_live);
    assert_eq!(report["survives"], 1, "{report:#}");
    // The node of the register goes: others wait for it, and nobody is suspected when it is back.
    cluster.until(1, "that homes are mirrored", is_mirrored);
    cluster.signal(1, Signal::KILL);
    cluster.until(2, "that the register is away", |report| !report["trouble"].as_str().unwrap().is_empty());
    std::thread::sleep(Duration::from_secs(2));
    let status = cluster.place.ok(["cluster", "status", &cluster.dir()]);
    assert!(status.contains("n1: in doubt") || status.contains("the register, on node `n1`"), "{status}");
    cluster.place.ok(["cluster", "start", &cluster.dir()]);
    let is_well = |report: &Value| report["trouble"] == "" && all_live(report);
    cluster.until(2, "that the register is back", is_well);
    std::thread::sleep(Duration::from_secs(1));
    let report = cluster.report(3);
    for home in report["homes"].as_array().unwrap() {
        assert_eq!((&home["host"], &home["term"]), (&home["home"], &Value::from(1)), "{report:#}");
    }
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let place = TestDir::served();
    let said = place.run(["ha"]);
    assert!(said.code != 0 && said.err.contains("no daemon that is part of a cluster"), "{said:?}");
    let dir = place.path("cluster");
    let dir = dir.to_str().unwrap();
    let said = place.run(["cluster", "start", dir, "--local", "2", "--protect", "2"]);
    assert!(said.code != 0 && said.err.contains("cannot survive the loss of 2"), "{said:?}");
    let said = place.run(["cluster", "start", dir, "--local", "8", "--mirrors", "4"]);
    assert!(said.code == 2 && said.err.contains("0..=3"), "{said:?}");
}

/// Launchers reach hosts one after the other: what stops first must not look lost to those that stop last.
#[test]
fn nobody_takes_anything_over_while_the_cluster_is_stopped() {
    let cluster = start("1", &[]);
    cluster.until(1, "that homes are mirrored", |report| all_live(report) && is_mirrored(report));
    let before = cluster.until(3, "that all are live", |report| all_live(report) && is_mirrored(report));
    let first = cluster.node(2);
    cluster.place.ok(["cluster", "stop-node", first.to_str().unwrap()]);
    let is_told = |report: &Value| report["decided"].to_string().contains("all nodes are being stopped");
    cluster.until(1, "that all are being stopped", is_told);
    std::thread::sleep(Duration::from_secs(3));
    let report = cluster.report(3);
    assert!(is_told(&report) && all_live(&report), "{report:#}");
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    cluster.place.ok(["cluster", "start", &cluster.dir()]);
    let report = cluster.until(1, "that homes are mirrored", |report| all_live(report) && is_mirrored(report));
    let places = |report: &Value| -> Vec<(Value, Value)> {
        report["homes"].as_array().unwrap().iter().map(|home| (home["host"].clone(), home["term"].clone())).collect()
    };
    assert_eq!(places(&report), places(&before), "{report:#}");
    // Once all are back, the loss of a node counts again.
    cluster.signal(3, Signal::STOP);
    cluster.until(1, "what becomes of n3", |report| is_excluded_or_says_why(report, 3));
    cluster.signal(3, Signal::CONT);
    cluster.until(2, "that n3 is back", all_live);
}
