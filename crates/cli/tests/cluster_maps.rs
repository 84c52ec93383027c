//! Memory is not shared between nodes: what would need that is refused by name, and nothing that was acknowledged is lost.

mod common;

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use common::cluster::Cluster;
use common::programs::{Program, python};
use common::said;

const NODES: usize = 3;

/// The container `runs` has its home on n1, `walks` on n2.
#[track_caller]
fn start(more: &[&str]) -> Cluster {
    let tiers = ["--tier", "name=memory,kind=memory,size=64MiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], more].concat());
    cluster.ok(1, &["mk", "runs"]);
    cluster.ok(2, &["mk", "walks"]);
    cluster
}

#[test]
fn a_file_is_shared_memory_on_the_node_of_its_home_alone() {
    let cluster = start(&[]);
    let told = cluster.place.path("told");
    let mut home = Program::on(&cluster, 1);
    let mut beside = Program::on(&cluster, 1);
    let mut second = Program::start(Program::command(&cluster, 2).stderr(File::create(&told).unwrap()));
    for program in [&mut home, &mut beside, &mut second] {
        program.expect("open a /cenote/runs/f", "ok");
    }
    home.expect("write a 0 first", "ok");
    // Nobody maps it: for reading, and as a copy of its own, another node may.
    second.expect("map m a sh rw", "ENODEV");
    let words = fs::read_to_string(&told).unwrap();
    for word in ["file `f`", "container `runs`", "node n1", "MAP_SHARED", "map it in a program on n1", "pwrite"] {
        assert!(words.contains(word), "no `{word}` in {words}");
    }
    second.expect("map m a sh rw", "ENODEV");
    assert_eq!(fs::read_to_string(&told).unwrap(), words, "it is told once");
    second.expect("map r a sh rd", "ok");
    second.expect("load r 0 5", "first");
    second.expect("protect r", "EACCES");
    second.expect("map p a pr rw", "ok");
    second.expect("store p 0 other", "ok");
    second.expect("text a 0 5", "first");
    // At home, mappings and calls are one.
    home.expect("map m a sh rw", "ok");
    beside.expect("map m a sh rw", "ok");
    home.expect("store m 0 third", "ok");
    beside.expect("load m 0 5", "third");
    beside.expect("text a 0 5", "third");
    // Elsewhere the bytes are those of the last `msync`, and nobody changes them beside the mapping.
    second.expect("text a 0 5", "first");
    second.expect("map s a sh rd", "ENODEV");
    second.expect("write a 0 x", "EBUSY");
    second.expect("truncate a 1", "EBUSY");
    let words = fs::read_to_string(&told).unwrap();
    assert!(words.contains("n1 has it mapped"), "{words}");
    home.expect("msync m", "ok");
    second.expect("text a 0 5", "third");
    second.expect("map q a pr rw", "ok");
    second.expect("load q 0 5", "third");
    second.expect("load r 0 5", "first");
    // It ends with the last program there that has the file open.
    for program in [&mut home, &mut beside] {
        program.expect("unmap m", "ok");
        program.expect("close a", "ok");
    }
    second.expect("write a 0 fourth", "ok");
    second.expect("map s a sh rd", "ok");
    second.expect("load s 0 6", "fourth");
    home.expect("open a /cenote/runs/f", "ok");
    home.expect("text a 0 6", "fourth");
    // A file of its own node's home is shared memory there.
    second.expect("open w /cenote/walks/f", "ok");
    second.expect("truncate w 4096", "ok");
    second.expect("map w w sh rw", "ok");
    home.expect("open w /cenote/walks/f", "ok");
    home.expect("map w w sh rw", "ENODEV");
}

#[test]
fn a_file_that_is_mapped_for_reading_alone_can_be_read_everywhere() {
    let cluster = start(&[]);
    let [mut home, mut second] = [1, 2].map(|node| Program::on(&cluster, node));
    home.expect("open w /cenote/runs/f", "ok");
    home.expect("write w 0 bytes", "ok");
    home.expect("close w", "ok");
    for program in [&mut home, &mut second] {
        program.expect("open a /cenote/runs/f ro", "ok");
        program.expect("map m a sh rd", "ok");
        program.expect("load m 0 5", "bytes");
        program.expect("protect m", "EACCES");
    }
    // Its readers would not see that.
    second.expect("open b /cenote/runs/f", "ok");
    second.expect("write b 0 x", "EBUSY");
    home.expect("unmap m", "ok");
    home.expect("close a", "ok");
    second.expect("write b 0 other", "ok");
    home.expect("open a /cenote/runs/f", "ok");
    home.expect("text a 0 5", "other");
}

#[test]
fn what_calls_acknowledged_on_another_node_stays_while_a_file_is_mapped_anew() {
    let cluster = start(&[]);
    let [mut home, mut second] = [1, 2].map(|node| Program::on(&cluster, node));
    second.expect("open a /cenote/runs/f", "ok");
    second.expect("truncate a 4096", "ok");
    home.begin("remap /cenote/runs/f 300");
    second.begin("numbers a 600");
    assert_eq!(home.end(), "ok");
    assert_eq!(second.end(), "refused");
}

#[test]
fn a_mapping_ends_with_its_program_and_its_node() {
    let cluster = start(&["--protect", "1"]);
    let [mut home, mut second, mut third] = [1, 2, 3].map(|node| Program::on(&cluster, node));
    for program in [&mut home, &mut second, &mut third] {
        program.expect("open a /cenote/walks/f", "ok");
    }
    third.expect("truncate a 4096", "ok");
    second.expect("map m a sh rw", "ok");
    second.expect("store m 0 bytes", "ok");
    third.expect("write a 8 x", "EBUSY");
    // Whoever uses the container on that node next puts the bytes back.
    second.kill();
    third.expect("write a 8 x", "EBUSY");
    let mut next = Program::on(&cluster, 2);
    next.expect("open b /cenote/walks/other", "ok");
    third.until("write a 8 x", "ok");
    third.expect("text a 0 5", "bytes");
    // A node that is lost takes with it what was stored and not synced.
    cluster.ok(1, &["protect", "--timeout", "60"]);
    next.expect("open a /cenote/walks/f", "ok");
    next.expect("map m a sh rw", "ok");
    next.expect("store m 0 other", "ok");
    third.expect("write a 8 y", "EBUSY");
    next.kill();
    cluster.kill(2);
    third.until("write a 8 z", "ok");
    third.expect("text a 0 5", "bytes");
    home.expect("text a 8 1", "z");
}

/// Mounts the store of n2 on a new directory.
#[track_caller]
fn mounted(cluster: &Cluster, dir: &str, more: &[&str]) -> PathBuf {
    let dir = cluster.place.path(dir);
    fs::create_dir(&dir).unwrap();
    let mut mount = cluster.place.command(["mount"]);
    mount.arg(cluster.node(2)).arg(&dir).args(more).stdin(Stdio::null());
    let mounted = said(&mut mount);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    dir
}

#[track_caller]
fn unmount(cluster: &Cluster, dirs: &[PathBuf]) {
    for dir in dirs {
        let gone = cluster.place.run(["unmount", dir.to_str().unwrap()]);
        assert_eq!(gone.code, 0, "{gone:?}");
    }
}

fn can_mount() -> bool {
    let can = rustix::process::geteuid().is_root() && File::open("/dev/fuse").is_ok();
    if !can {
        println!("skipped: nothing can be mounted here");
    }
    can
}

#[test]
fn a_mount_on_a_node_maps_no_files_of_other_homes() {
    if !can_mount() {
        return;
    }
    let cluster = start(&[]);
    let mut home = Program::on(&cluster, 1);
    home.expect("open a /cenote/runs/f", "ok");
    home.expect("write a 0 bytes", "ok");
    let (all, own) = (mounted(&cluster, "all", &[]), mounted(&cluster, "own", &["--container", "walks"]));
    let log = fs::read_to_string(cluster.node(2).join("mount.log")).unwrap();
    assert!(log.contains("MAP_SHARED") && log.contains("--container"), "{log}");
    {
        let mut here = Program::start(&mut Command::new(python()));
        here.expect(&format!("open a {}", all.join("runs/f").display()), "ok");
        here.expect("map m a sh rw", "ENODEV");
        here.expect("map m a sh rd", "ENODEV");
        here.expect("map m a pr rw", "ok");
        here.expect("load m 0 5", "bytes");
        // What a preloaded program of the home has mapped is not changed here either.
        home.expect("map m a sh rw", "ok");
        here.expect("write a 0 x", "EBUSY");
        home.expect("unmap m", "ok");
        home.expect("close a", "ok");
        here.expect("write a 0 other", "ok");
        // One whose files all have their home here has shared mappings.
        here.expect(&format!("open w {}", own.join("f").display()), "ok");
        here.expect("truncate w 4096", "ok");
        here.expect("map w w sh rw", "ok");
        here.expect("store w 0 stored", "ok");
        here.expect("msync w", "ok");
        here.expect("text w 0 6", "stored");
        // Where others see changes at `close`, what is open for reading alone may be mapped.
        cluster.ok(1, &["consistency", "runs", "commit"]);
        home.expect("open c /cenote/runs/c", "ok");
        home.expect("write c 0 bytes", "ok");
        home.expect("close c", "ok");
        here.expect(&format!("open r {} ro", all.join("runs/c").display()), "ok");
        here.expect("map r r sh rd", "ok");
        here.expect("load r 0 5", "bytes");
        here.expect(&format!("open c {}", all.join("runs/c").display()), "ok");
        here.expect("map c c sh rw", "ENODEV");
    }
    unmount(&cluster, &[all, own]);
}

#[test]
fn a_mount_with_passthrough_shares_files_of_its_own_home() {
    if !can_mount() {
        return;
    }
    let cluster = start(&[]);
    let mut home = Program::on(&cluster, 1);
    home.expect("open a /cenote/runs/f", "ok");
    let passed = mounted(&cluster, "passed", &["--passthrough"]);
    {
        // Files of the own home are memory of this machine then.
        let mut here = Program::start(&mut Command::new(python()));
        let mut beside = Program::on(&cluster, 2);
        here.expect(&format!("open w {}", passed.join("walks/g").display()), "ok");
        here.expect("truncate w 4096", "ok");
        here.expect("map w w sh rw", "ok");
        here.expect("store w 0 stored", "ok");
        beside.expect("open w /cenote/walks/g", "ok");
        beside.expect("text w 0 6", "stored");
        home.expect("open w /cenote/walks/g", "ok");
        home.expect("write w 0 x", "EBUSY");
        here.expect(&format!("open a {}", passed.join("runs/f").display()), "ok");
        here.expect("map a a sh rw", "ENODEV");
        here.expect("write a 0 third", "ok");
    }
    unmount(&cluster, &[passed]);
}
