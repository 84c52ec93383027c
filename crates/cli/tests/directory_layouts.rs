//! Layouts of directories: files that are made in them are kept by a tier with that layout, by preload and by a mount.

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::TestDir;
use common::cluster::Cluster;
use common::programs::{PATIENCE, Program, python};

const XATTR: &str = "user.cenote.layout";

/// A store with memory, a disk, and a tier on three disks of which one may be lost.
fn store() -> TestDir {
    let place = TestDir::new();
    let safe = "name=safe,kind=raid,path=disk1:disk2:disk3,size=1GiB,layout=2+1,pack=1MiB";
    let plain = "name=plain,kind=directory,path=plain,size=1GiB";
    place.ok(["init", "--tier", "name=ram,kind=memory,size=64MiB", "--tier", plain, "--tier", safe]);
    place.ok(["mk", "c"]);
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    place
}

/// The sizes of the files of a container, and how much of each is pinned; they have sizes of their own.
fn pinned(place: &TestDir) -> BTreeMap<u64, u64> {
    let listed = place.json(["ls", "-l", "c"]);
    let objects = listed.as_array().unwrap();
    objects.iter().map(|it| (it["size"].as_u64().unwrap(), it["pinned_bytes"].as_u64().unwrap())).collect()
}

/// The id of the object of that size.
fn object(place: &TestDir, size: u64) -> String {
    let listed = place.json(["ls", "-l", "c"]);
    let found = listed.as_array().unwrap().iter().find(|it| it["size"] == size).unwrap();
    format!("c/{}", found["object"].as_str().unwrap())
}

/// Waits until all bytes of the object of that size lie on a tier.
#[track_caller]
fn wait_for(place: &TestDir, size: u64, tier: &str) {
    let (begin, id) = (Instant::now(), object(place, size));
    loop {
        let said = place.ok(["explain", &id]);
        if said.contains(&format!("  {tier}  ")) && said.contains("pinned: it stays here") {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[track_caller]
fn refused(place: &TestDir, args: &[&str], words: &[&str]) {
    let said = place.run(args);
    assert_ne!(said.code, 0, "{args:?}: {said:?}");
    for word in words {
        assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
    }
}

#[test]
fn files_get_the_layout_of_their_directory() {
    let place = store();
    let mut program = Program::start(&mut Program::command_in(&place.store()));
    for call in ["mkdir /cenote/c/d", "mkdir /cenote/c/d/old", "put /cenote/c/d/before 10000"] {
        program.expect(call, "ok");
    }
    assert_eq!(place.ok(["layout", "-d", "c/d"]).trim(), "plain");
    program.expect(&format!("getx /cenote/c/d {XATTR}"), "ENODATA");
    place.ok(["layout", "-d", "c/d", "2+1"]);
    assert_eq!(place.ok(["layout", "-d", "c/d"]).trim(), "2+1");
    program.expect(&format!("getx /cenote/c/d {XATTR}"), "2+1");
    // What is made from now on has it, in directories that are made from now on, too.
    for call in [
        "put /cenote/c/d/after 20000",
        "mkdir /cenote/c/d/new",
        "put /cenote/c/d/new/below 30000",
        "put /cenote/c/d/old/file 40000",
        "put /cenote/c/beside 50000",
    ] {
        program.expect(call, "ok");
    }
    let expected = BTreeMap::from([(10_000, 0), (20_000, 20_000), (30_000, 30_000), (40_000, 0), (50_000, 0)]);
    assert_eq!(pinned(&place), expected);
    place.ok(["flush"]);
    wait_for(&place, 30_000, "safe");
    // It is in the journal, and in the checkpoint.
    drop(program);
    place.ok(["stop"]);
    assert_eq!(pinned(&place), expected);
    let mut program = Program::start(&mut Program::command_in(&place.store()));
    program.expect("put /cenote/c/d/new/again 60000", "ok");
    assert_eq!(pinned(&place)[&60_000], 60_000);
    // Unset, which what is there does not notice.
    place.ok(["layout", "-d", "c/d", "plain"]);
    program.expect("put /cenote/c/d/plain 70000", "ok");
    program.expect("put /cenote/c/d/new/more 80000", "ok");
    let now = pinned(&place);
    assert_eq!((now[&70_000], now[&80_000], now[&20_000]), (0, 80_000, 20_000));
    // All that is there, by request.
    let said = place.ok(["layout", "-d", "-r", "c/d", "2+1", "--move"]);
    assert!(said.starts_with("7 files"), "{said}");
    let now = pinned(&place);
    assert!(now.iter().all(|(size, pinned)| *pinned == if *size == 50_000 { 0 } else { *size }), "{now:?}");
    wait_for(&place, 10_000, "safe");
    program.expect("put /cenote/c/d/old/later 90000", "ok");
    assert_eq!(pinned(&place)[&90_000], 90_000);
    // An overwritten file keeps it; a copy beside does not take it along.
    program.expect("put /cenote/c/d/after 20000", "ok");
    assert_eq!(pinned(&place)[&20_000], 20_000);
}

#[test]
fn programs_set_it_and_bad_input_is_refused() {
    let place = store();
    let mut program = Program::start(&mut Program::command_in(&place.store()));
    program.expect("mkdir /cenote/c/d", "ok");
    program.expect("put /cenote/c/d/f 1000", "ok");
    let set = |what: &str, layout: &str| format!("setx /cenote/{what} {XATTR} {layout}");
    program.expect(&set("c/d", "nonsense"), "EINVAL");
    program.expect(&set("c/d", "8+2"), "ENODEV");
    program.expect(&set("c/d/f", "2+1"), "ENOTDIR");
    program.expect(&format!("getx /cenote/c/d {XATTR}"), "ENODATA");
    program.expect(&set("c/d", "2+1"), "ok");
    program.expect(&set("c", "2+1"), "ok");
    assert_eq!(place.ok(["layout", "-d", "c"]).trim(), "2+1");
    program.expect(&format!("delx /cenote/c {XATTR}"), "ok");
    program.expect(&format!("delx /cenote/c {XATTR}"), "ENODATA");
    assert_eq!(place.ok(["layout", "-d", "c"]).trim(), "plain");
    refused(&place, &["layout", "-d", "c/d", "8+2"], &["8+2", "safe has 2+1", "cenote tier add"]);
    refused(&place, &["layout", "-d", "c/d", "bad"], &["bad"]);
    refused(&place, &["layout", "-d", "c/d/f", "2+1"], &["c/d/f", "only directories", "CONTAINER/DIRECTORY"]);
    refused(&place, &["layout", "-d", "c/missing", "2+1"], &["c/missing", "No such file"]);
    refused(&place, &["layout", "c"], &["a layout is missing", "4+2"]);
    refused(&place, &["layout", "-r", "c/d", "2+1"], &["--directory"]);
    // The tier goes: nothing is written that the directory's layout does not protect.
    program.expect("put /cenote/c/d/kept 2000", "ok");
    place.ok(["flush"]);
    place.ok(["tier", "drain", "safe"]);
    std::thread::sleep(Duration::from_millis(1100));
    program.expect("put /cenote/c/d/lost 3000", "ENOSPC");
    program.expect("put /cenote/c/other 4000", "ok");
    place.ok(["layout", "-d", "c/d", "plain"]);
    program.expect("put /cenote/c/d/lost 3000", "ok");
}

#[test]
fn a_mount_shows_and_sets_it() {
    if !rustix::process::geteuid().is_root() || File::open("/dev/fuse").is_err() {
        return println!("skipped: nothing can be mounted here");
    }
    let place = store();
    let dir = place.path("mnt");
    fs::create_dir(&dir).unwrap();
    place.ok([Path::new("mount"), &place.store(), &dir]);
    {
        let at = |name: &str| dir.join(name).display().to_string();
        let mut here = Program::start(&mut Command::new(python()));
        here.expect(&format!("mkdir {}", at("c/d")), "ok");
        here.expect(&format!("setx {} {XATTR} 2+1", at("c/d")), "ok");
        here.expect(&format!("getx {} {XATTR}", at("c/d")), "2+1");
        here.expect(&format!("put {} 5000", at("c/d/f")), "ok");
        assert_eq!(place.ok(["layout", "-d", &at("c/d")]).trim(), "2+1");
        place.ok(["layout", "-d", &at("c/d"), "plain"]);
        here.expect(&format!("put {} 6000", at("c/d/g")), "ok");
        assert_eq!(pinned(&place), BTreeMap::from([(5_000, 5_000), (6_000, 0)]));
        refused(&place, &["layout", "-d", &at("c/d"), "2+1", "--move"], &["mount", "--store"]);
    }
    place.ok(["unmount", dir.to_str().unwrap()]);
}

#[test]
fn on_a_cluster_other_nodes_keep_it_and_a_tier_is_made() {
    let cluster = Cluster::start(
        3,
        &["--tier", "name=ram,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"],
    );
    cluster.ok(1, &["mk", "c"]);
    let mut second = Program::on(&cluster, 2);
    second.expect("mkdir /cenote/c/d", "ok");
    let said = cluster.ok(2, &["layout", "-d", "c/d", "2+1", "--domain", "node"]);
    assert!(said.contains("made on 3 nodes"), "{said}");
    second.expect(&format!("getx /cenote/c/d {XATTR}"), "2+1,domain=node");
    second.expect("put /cenote/c/d/f 7000", "ok");
    let listed = cluster.ok(1, &["--json", "ls", "-l", "c"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(listed[0]["pinned_bytes"], 7000, "{listed:#}");
}
