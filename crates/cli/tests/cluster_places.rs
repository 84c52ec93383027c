//! A tier whose places are the nodes of a cluster: what is on it alone survives the loss of a node, of the home's own one too.

mod common;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use common::cluster::Cluster;

const MEMORY: &str = "name=memory,kind=memory,size=64MiB";
const PARTS: &str = "name=parts,kind=raid,path=nodes,size=1GiB,layout=2+1,pack=1MiB";
/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn content(number: u64) -> Vec<u8> {
    (0..1_000_000_u64).flat_map(|at| (at * 0x9e37_79b9 + number).to_le_bytes()).collect()
}

/// The files of parts that a node keeps.
fn parts(cluster: &Cluster, node: usize) -> Vec<PathBuf> {
    let dir = cluster.node(node).join("parts");
    let all = if dir.exists() { common::tree(&dir) } else { Vec::new() };
    all.into_iter().map(|(path, _)| path).filter(|path| path.display().to_string().contains('@')).collect()
}

/// Puts an object of n2 on the tier alone.
#[track_caller]
fn put(cluster: &Cluster, number: u64) {
    let file = cluster.place.path("content");
    std::fs::write(&file, content(number)).unwrap();
    cluster.ok(2, &["put", file.to_str().unwrap(), &format!("runs/{number}")]);
    cluster.ok(2, &["flush"]);
    cluster.ok(2, &["evict", "runs"]);
}

#[track_caller]
fn is_whole(cluster: &Cluster, node: usize, number: u64) {
    let back = cluster.place.path("back");
    let begin = Instant::now();
    // A home that is on its way to another node is not there for a moment.
    loop {
        let said = cluster.run(node, &["get", "--force", &format!("runs/{number}"), back.to_str().unwrap()]);
        if said.code == 0 {
            break;
        }
        assert!(begin.elapsed() < PATIENCE, "n{node}, {number}: {said:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(std::fs::read(back).unwrap() == content(number), "n{node}, {number}");
}

/// What n2 says of the tier.
fn note(cluster: &Cluster) -> String {
    let tiers: serde_json::Value = serde_json::from_str(&cluster.ok(2, &["--json", "tiers"])).unwrap();
    let tier = tiers.as_array().unwrap().iter().find(|tier| tier["name"] == "n2/parts").unwrap();
    format!("{} {}", tier["state"].as_str().unwrap(), tier["note"].as_str().unwrap())
}

#[track_caller]
fn until_well(cluster: &Cluster) {
    let begin = Instant::now();
    loop {
        let note = note(cluster);
        if note.starts_with("online") && !note.contains("DEGRADED") {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{note}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn bytes_on_nodes_survive_the_loss_of_any_of_them() {
    let cluster = Cluster::start(4, &["--tier", MEMORY, "--tier", PARTS, "--protect", "1"]);
    cluster.ok(2, &["mk", "runs"]);
    put(&cluster, 1);
    let said = cluster.ok(2, &["explain", "runs/1"]);
    assert!(said.contains("  parts  ") && said.contains("container `runs` is"), "{said}");
    let counts: Vec<usize> = (1..=4).map(|node| parts(&cluster, node).len()).collect();
    assert!(counts.iter().all(|count| *count > 2), "{counts:?}");
    // From the home's own node, and from another one.
    is_whole(&cluster, 2, 1);
    is_whole(&cluster, 4, 1);
    cluster.ok(2, &["evict", "runs"]);
    // Another node is lost: reads compute what it had, and writes use the other three.
    cluster.kill(3);
    is_whole(&cluster, 4, 1);
    put(&cluster, 2);
    is_whole(&cluster, 1, 2);
    assert!(note(&cluster).contains("node `n3`"), "{}", note(&cluster));
    // It comes back, and nothing is owed any more.
    cluster.again();
    until_well(&cluster);
    cluster.ok(2, &["verify"]);
    // The home's own node is lost: its mirror opens the tier, and reads go around the place that is lost.
    cluster.ok(2, &["evict", "runs"]);
    cluster.ok(2, &["protect"]);
    cluster.kill(2);
    for number in [1, 2] {
        is_whole(&cluster, 4, number);
    }
    cluster.again();
    until_well(&cluster);
    for number in [1, 2] {
        is_whole(&cluster, 2, number);
    }
    // The whole cluster ends and begins: whoever begins first waits for the others.
    cluster.place.ok(["cluster", "stop", &cluster.dir()]);
    cluster.again();
    for number in [1, 2] {
        is_whole(&cluster, 3, number);
    }
    until_well(&cluster);
    cluster.ok(2, &["verify"]);
}

#[test]
fn parts_move_away_from_a_node_before_it_leaves() {
    let cluster = Cluster::start(5, &["--tier", MEMORY, "--tier", PARTS, "--protect", "1"]);
    cluster.ok(2, &["mk", "runs"]);
    put(&cluster, 1);
    assert!(parts(&cluster, 5).len() > 1);
    let leave = ["cluster", "leave", &cluster.dir(), "n5", "--yes"];
    cluster.place.ok(leave);
    assert!(!cluster.node(5).exists());
    let note = note(&cluster);
    assert!(note.starts_with("online 2+1 on 4 places"), "{note}");
    // Nothing lacks a part, so another node may be lost at once, and writing goes on.
    cluster.kill(4);
    is_whole(&cluster, 1, 1);
    put(&cluster, 2);
    cluster.again();
    until_well(&cluster);
    // One with the same name is a place again.
    cluster.place.ok(["cluster", "join", &cluster.dir(), "n5"]);
    let begin = Instant::now();
    let mut last = 2;
    while parts(&cluster, 5).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{}", self::note(&cluster));
        std::thread::sleep(Duration::from_millis(500));
        last += 1;
        put(&cluster, last);
    }
    until_well(&cluster);
    assert!(self::note(&cluster).contains("on 5 places"), "{}", self::note(&cluster));
    (1..=last).for_each(|number| is_whole(&cluster, 3, number));
    cluster.ok(2, &["verify"]);
}

#[test]
fn a_tier_on_nodes_comes_and_goes() {
    let cluster = Cluster::start(3, &["--tier", MEMORY]);
    cluster.refused(
        2,
        &["tier", "add", "name=r,kind=raid,path=@n1:@n9,size=1GiB,layout=mirror=2"],
        &["`n9`", "n1, n2, n3"],
    );
    cluster.refused(2, &["tier", "add", "name=r,kind=raid,path=nodes,size=1GiB,layout=4+2"], &["it needs 6 places"]);
    cluster.ok(2, &["tier", "add", "name=parts,kind=raid,path=@n1:@n3,size=1GiB,layout=mirror=2,pack=1MiB"]);
    cluster.ok(2, &["mk", "runs"]);
    put(&cluster, 5);
    assert!(parts(&cluster, 2).is_empty() && !parts(&cluster, 1).is_empty() && !parts(&cluster, 3).is_empty());
    is_whole(&cluster, 1, 5);
    let said = cluster.place.run(["cluster", "leave", &cluster.dir(), "n3", "--yes"]);
    assert!(said.code == 1 && said.err.contains("n2/parts (mirror=2 on 2 nodes)"), "{said:?}");
    cluster.ok(2, &["rm", "runs/5"]);
    cluster.ok(2, &["tier", "drain", "parts"]);
    cluster.ok(2, &["tier", "remove", "parts"]);
    assert!((1..=3).all(|node| parts(&cluster, node).is_empty()), "parts are left");
    let place = common::TestDir::with_store();
    let said = place.run(["tier", "add", "name=r,kind=raid,path=nodes,size=1GiB,layout=2+1"]);
    assert!(said.code == 1 && said.err.contains("no node of a cluster"), "{said:?}");
}

#[test]
fn a_container_with_a_layout_gets_a_tier_on_the_nodes() {
    let disk = "name=disk,kind=directory,path=disk,size=1GiB";
    let cluster = Cluster::start(3, &["--tier", MEMORY, "--tier", disk]);
    // There are three nodes, and nothing stays of what cannot be.
    cluster.refused(2, &["mk", "runs", "--layout", "4+2"], &["6", "3"]);
    assert!(!cluster.ok(2, &["ls"]).contains("runs"));
    let said = cluster.ok(2, &["mk", "runs", "--layout", "mirror=2", "--domain", "node"]);
    assert!(said.contains("n2/layout-mirror-2") && said.contains("3 nodes"), "{said}");
    let said = cluster.ok(1, &["layout"]);
    assert!(said.contains("layout-mirror-2") && said.contains("1 node"), "{said}");
    // The next one finds it.
    assert_eq!(cluster.ok(2, &["mk", "more", "--layout", "mirror=2"]), "");
    put(&cluster, 1);
    cluster.kill(3);
    is_whole(&cluster, 1, 1);
    cluster.again();
    // From another node, for a container of n2.
    cluster.ok(2, &["mk", "other"]);
    let said = cluster.ok(3, &["layout", "other", "2+1"]);
    assert!(said.contains("n2/layout-2+1"), "{said}");
}
