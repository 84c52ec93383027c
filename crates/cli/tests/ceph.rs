//! The command with a tier in a real Ceph cluster. Skipped, with the reason, where Ceph is not installed.

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use cenote_rados::cluster::{Cluster, cluster};
use common::TestDir;

const ID: &str = "c/0000000000000000000000000000000a";

/// Creates a store of memory, a directory and a pool with a container `c`; `tier`: the pool's tier in one line.
fn place(tier: &str) -> TestDir {
    let place = TestDir::new();
    let disk = format!("name=disk,kind=directory,path={},size=64MiB", place.path("disk").display());
    place.ok(["init", "--tier", "name=ram,kind=memory,size=32MiB", "--tier", &disk, "--tier", tier]);
    place.ok(["mk", "c"]);
    place
}

fn cold(cluster: &Cluster, path: &str) -> TestDir {
    place(&cluster.tier("cold", path, "cenote"))
}

/// Puts 5 MB, which are in the pool alone afterwards.
fn put_away(place: &TestDir) {
    place.file("data", 5_000_000);
    place.ok(["put", "data", ID]);
    place.ok(["archive", ID]);
    place.ok(["release", ID]);
    let said = place.ok(["explain", ID]);
    assert!(said.contains("cold") && !said.contains("ram") && !said.contains("disk"), "{said}");
}

fn comes_back(place: &TestDir) {
    place.ok(["get", "--force", ID, "back"]);
    assert!(fs::read(place.path("back")).unwrap() == fs::read(place.path("data")).unwrap());
}

fn lose_power(place: &TestDir) {
    let id = place.json(["status"])["store"].as_str().unwrap().to_owned();
    place.run(["stop"]);
    fs::remove_dir_all(Path::new("/dev/shm").join(format!("cenote-{id}"))).unwrap();
}

fn state(place: &TestDir) -> String {
    let tiers = place.json(["tiers"]);
    let all = tiers.as_array().or_else(|| tiers["tiers"].as_array()).expect("tiers");
    let cold = all.iter().find(|tier| tier["name"] == "cold").expect("the tier");
    cold["state"].as_str().expect("its state").to_lowercase()
}

#[test]
fn what_is_put_away_is_in_the_pool_and_comes_back() {
    let Some(cluster) = cluster() else { return };
    for pool in ["data", "ec"] {
        let place = cold(&cluster, &format!("{pool}/flushed"));
        put_away(&place);
        lose_power(&place);
        assert!(place.ok(["verify"]).contains("all is well"));
        comes_back(&place);
        place.ok(["evict", "c"]);
        let part = place.run(["cat", ID, "--offset", "4999990", "--length", "10"]);
        assert_eq!(part.bytes.len(), 10, "{}", part.err);
        comes_back(&place);
        place.ok(["tier", "drain", "cold"]);
        place.ok(["tier", "remove", "cold"]);
        assert!(place.ok(["verify"]).contains("all is well"));
        place.ok(["destroy", "--yes"]);
        let left =
            Command::new("rados").args(["--conf", &cluster.conf, "-p", pool, "-N", "flushed", "ls"]).output().unwrap();
        assert!(left.status.success() && left.stdout.is_empty(), "nothing is left behind: {left:?}");
    }
}

#[test]
fn a_cluster_that_is_away_is_said_to_be_and_the_rest_of_the_store_works() {
    let Some(mut cluster) = cluster() else { return };
    let place = cold(&cluster, "data/away");
    put_away(&place);
    let works = || {
        fs::write(place.path("small"), "small").unwrap();
        let put = place.ok(["put", "small", "c"]);
        let name = put.split_whitespace().next().unwrap().to_owned();
        place.ok(["get", "--force", &name, "small-back"]);
        assert_eq!(fs::read(place.path("small-back")).unwrap(), b"small");
    };
    for daemon in ["mon", "osd.0", "osd.1", "osd.2"] {
        cluster.order(&format!("stop {daemon}"));
    }
    // At opening.
    let begun = Instant::now();
    assert_eq!(state(&place), "failed");
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    works();
    let begun = Instant::now();
    let read = place.run(["cat", ID]);
    assert!(read.code == 1 && read.err.contains("cold") && read.err.contains("cenote tiers"), "{}", read.err);
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    for daemon in ["mon", "osd.0", "osd.1", "osd.2"] {
        cluster.order(&format!("continue {daemon}"));
    }
    // It is found again by the daemon that runs.
    let begun = Instant::now();
    while state(&place) == "failed" {
        assert!(begun.elapsed() < Duration::from_mins(1), "{}", place.ok(["tiers"]));
        std::thread::sleep(Duration::from_millis(500));
    }
    comes_back(&place);
    // While it is open.
    place.ok(["evict", ID]);
    cluster.order("stop mon");
    comes_back(&place);
    works();
    cluster.order("continue mon");
    place.ok(["stop"]);
    place.ok(["destroy", "--yes"]);
}

#[test]
fn a_copied_store_is_refused() {
    let Some(cluster) = cluster() else { return };
    let place = TestDir::new();
    let tier = cluster.tier("cold", "ec/copied", "cenote");
    place.ok(["init", "--tier", "name=ram,kind=memory,size=32MiB", "--tier", &tier]);
    place.ok(["mk", "c"]);
    place.file("data", 5_000_000);
    place.ok(["put", "data", ID]);
    place.ok(["archive", ID]);
    let copied = Command::new("cp").arg("-a").arg(place.store()).arg(place.path("copy")).status().unwrap();
    assert!(copied.success());
    let said = place.run(["--store", "copy", "ls", "c"]);
    assert!(said.code == 1 && said.err.contains("a copy of the store"), "{said:?}");
    let said = place.run(["clone", "copy"]);
    assert!(said.code == 1 && said.err.contains("cold"), "what is in a pool cannot be copied: {said:?}");
    assert!(place.ok(["verify"]).contains("all is well"), "the store itself goes on");
    // As on another machine, which sees neither the store nor its memory.
    let id = place.json(["status"])["store"].as_str().unwrap().to_owned();
    fs::rename(place.store(), place.path("unseen")).unwrap();
    let said = place.run(["--store", "copy", "ls", "c"]);
    assert!(said.code == 1 && said.err.contains("adopt"), "{said:?}");
    place.ok(["adopt", "copy"]);
    place.ok(["--store", "copy", "ls", "c"]);
    fs::rename(place.path("unseen"), place.store()).unwrap();
    fs::remove_dir_all(Path::new("/dev/shm").join(format!("cenote-{id}"))).unwrap();
    let said = place.run(["ls", "c"]);
    assert!(said.code == 1 && said.err.contains("another copy"), "{said:?}");
    place.ok(["--store", "copy", "destroy", "--yes"]);
}

/// A store that somebody else made, and this user unpacked, does not choose the cluster with which a key is used.
#[test]
fn keys_are_used_where_their_user_said() {
    let Some(cluster) = cluster() else { return };
    let place = cold(&cluster, "data/whose");
    assert_eq!(state(&place), "online");
    fs::rename(place.path("config"), place.path("makers")).unwrap();
    assert_eq!(state(&place), "failed");
    let said = place.run(["tiers"]);
    assert!(
        said.err.contains("this user has not said so") || said.out.contains("this user has not said so"),
        "{said:?}"
    );
    let chosen = [("CENOTE_CEPH_CONF", cluster.conf.as_str())];
    let said = place.run_in(["tiers"], &chosen);
    assert!(said.code == 0 && !said.out.to_lowercase().contains("failed"), "{said:?}");
    assert_eq!(state(&place), "failed");
    fs::rename(place.path("makers"), place.path("config")).unwrap();
    assert_eq!(state(&place), "online");
    let said = place.run(["tier", "add", "name=b,kind=rados,path=data/a/b,size=1GiB"]);
    assert!(said.code == 1 && said.err.contains("POOL/NAMESPACE"), "{}", said.err);
    place.ok(["destroy", "--yes"]);
}
