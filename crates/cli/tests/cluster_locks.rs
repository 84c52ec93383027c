//! Locks of files hold between programs on different nodes of a cluster, and end with their process and their node.

mod common;

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use common::cluster::{Cluster, host, is_mirrored};
use common::programs::{BRIEFLY, PATIENCE, Program, python};
use common::said;

const NODES: usize = 3;

#[track_caller]
fn start(more: &[&str]) -> Cluster {
    let tiers =
        ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=256MiB"];
    let cluster = Cluster::start(NODES, &[&tiers[..], more].concat());
    cluster.ok(1, &["mk", "runs"]);
    cluster.ok(2, &["mk", "walks"]);
    cluster
}

/// A program on each node, each with a file of the home of n1 open twice, as `a` and `b`.
#[track_caller]
fn programs(cluster: &Cluster) -> [Program; NODES] {
    let mut all = [1, 2, 3].map(|node| Program::on(cluster, node));
    for name in ["open a /cenote/runs/f", "open b /cenote/runs/f"] {
        for program in &mut all {
            program.expect(name, "ok");
        }
    }
    all
}

#[test]
fn whole_files_are_locked_between_nodes() {
    let cluster = start(&[]);
    let [mut home, mut second, mut third] = programs(&cluster);
    // From the home's own node outwards, and the other way round.
    home.expect("flock a ex nb", "ok");
    second.expect("flock a sh nb", "EAGAIN");
    third.expect("flock a ex nb", "EAGAIN");
    home.expect("flock a un", "ok");
    second.expect("flock a ex nb", "ok");
    home.expect("flock a ex nb", "EAGAIN");
    home.expect("flock a sh nb", "EAGAIN");
    third.expect("flock a sh nb", "EAGAIN");
    second.expect("flock b ex nb", "EAGAIN");
    // Shared by all; nobody gets it alone; a conversion that fails takes the lock with it, as on one node.
    second.expect("flock a sh nb", "ok");
    third.expect("flock a sh nb", "ok");
    home.expect("flock a sh nb", "ok");
    third.expect("flock b ex nb", "EAGAIN");
    third.expect("flock a ex nb", "EAGAIN");
    second.expect("close a", "ok");
    home.expect("flock a ex nb", "ok");
    third.expect("flock a sh nb", "EAGAIN");
    // A file of another home is another matter.
    third.expect("open w /cenote/walks/f", "ok");
    third.expect("flock w ex nb", "ok");
    second.expect("open w /cenote/walks/f", "ok");
    second.expect("flock w ex nb", "EAGAIN");
    third.kill();
    second.until("flock w ex nb", "ok");
}

#[test]
fn a_lock_at_home_needs_no_daemon_while_no_other_node_looks() {
    let cluster = start(&[]);
    let [mut home, mut second, mut third] = programs(&cluster);
    let mut beside = Program::on(&cluster, 1);
    beside.expect("open a /cenote/runs/f", "ok");
    cluster.signal(1, Signal::STOP);
    home.expect("flock a ex nb", "ok");
    home.expect("set a wr 0 10", "ok");
    beside.expect("flock a sh nb", "EAGAIN");
    beside.expect("set a wr 5 1", "EAGAIN");
    home.expect("flock a un", "ok");
    beside.expect("flock a ex nb", "ok");
    beside.expect("flock a un", "ok");
    home.expect("set a un 0 0", "ok");
    cluster.signal(1, Signal::CONT);
    // Another node looks, and after a while its node has nothing of the file any more.
    second.expect("flock a ex nb", "ok");
    home.expect("flock a ex nb", "EAGAIN");
    second.expect("flock a un", "ok");
    second.kill();
    third.kill();
    std::thread::sleep(Duration::from_secs(20));
    cluster.signal(1, Signal::STOP);
    home.expect("flock a ex nb", "ok");
    beside.expect("flock a sh nb", "EAGAIN");
    cluster.signal(1, Signal::CONT);
}

#[test]
fn byte_ranges_are_locked_between_nodes() {
    let cluster = start(&[]);
    let [mut home, mut second, mut third] = programs(&cluster);
    second.expect("set a wr 10 10", "ok");
    home.expect("set a rd 19 1", "EAGAIN");
    home.expect("set a wr 20 0", "ok");
    third.expect("set a wr 0 10", "ok");
    third.expect("set a rd 5 10", "EAGAIN");
    third.expect("ofd b rd 9223372036854775000 1", "EAGAIN");
    // Who has it is told with the range; its process, of another node, with a negative number.
    let pid = |program: &Program| program.id();
    let (of_second, of_home) = (pid(&second), pid(&home));
    third.expect("get a wr 8 4", &format!("1 0 10 10 -{of_second}"));
    third.expect("get a rd 500 1", &format!("1 0 20 0 -{of_home}"));
    second.expect("get a wr 20 1", &format!("1 0 20 0 -{of_home}"));
    home.expect("get a rd 0 10", &format!("1 0 0 10 -{}", pid(&third)));
    // Down and up again: an upgrade that is refused leaves what was there.
    second.expect("set a rd 10 10", "ok");
    third.expect("set a rd 10 5", "ok");
    second.expect("set a wr 12 3", "EAGAIN");
    home.expect("set a wr 12 1", "EAGAIN");
    third.expect("set a un 12 1", "ok");
    second.expect("set a wr 12 1", "ok");
    third.expect("set a rd 12 1", "EAGAIN");
    third.expect("set a rd 13 2", "ok");
    // Locks of an open file: not those of its process, reported without one.
    second.expect("ofd b wr 5000 10", "EAGAIN");
    home.expect("set a un 5000 10", "ok");
    second.expect("ofd b wr 5000 10", "ok");
    second.expect("set a wr 5000 1", "EAGAIN");
    third.expect("get a wr 5000 1", "1 0 5000 10 -1");
    // A process loses its locks with any descriptor of the file, and no others.
    second.expect("open c /cenote/runs/f", "ok");
    second.expect("close c", "ok");
    third.expect("set a wr 10 5", "ok");
    third.expect("set a wr 5000 1", "EAGAIN");
    second.expect("close b", "ok");
    third.expect("set a wr 5000 1", "ok");
    // Locks of whole files and of ranges ignore each other.
    home.expect("flock a ex nb", "ok");
    third.expect("set a wr 5001 1", "ok");
}

#[test]
fn who_waits_gets_the_lock_or_a_signal_or_dies() {
    let cluster = start(&[]);
    let [mut home, mut second, mut third] = programs(&cluster);
    home.expect("flock a ex", "ok");
    second.waits("flock a ex");
    third.waits("flock a sh");
    second.signal(Signal::USR1);
    assert_eq!(second.end(), "EINTR");
    home.expect("flock a un", "ok");
    assert_eq!(third.end(), "ok");
    second.waits("flock a ex");
    home.waits("flock a ex");
    // One that holds a lock is killed, with it one that waits.
    third.kill();
    let both = [second.within(PATIENCE), home.within(BRIEFLY)];
    let (has, waits) = if both[0].is_some() { (&mut second, &mut home) } else { (&mut home, &mut second) };
    has.expect("flock b ex nb", "EAGAIN");
    has.expect("close a", "ok");
    assert_eq!(waits.end(), "ok");
    waits.expect("flock a un", "ok");

    second.expect("setw b wr 0 100", "ok");
    let mut fourth = Program::on(&cluster, 3);
    fourth.expect("open a /cenote/runs/f", "ok");
    fourth.waits("setw a rd 50 1");
    home.waits("ofdw b wr 99 1");
    fourth.kill();
    second.expect("set b un 0 100", "ok");
    assert_eq!(home.end(), "ok");
    second.expect("set b wr 50 1", "ok");
}

#[test]
fn forks_and_copies_of_descriptors_follow_the_rules_of_one_node() {
    let cluster = start(&[]);
    let [mut home, mut second, _third] = programs(&cluster);
    // A child shares the lock of an open file, and does not have those of its parent's process.
    second.expect("flock a ex nb", "ok");
    second.expect("set b wr 0 10", "ok");
    second.expect("fork", "child");
    home.expect("flock a sh nb", "EAGAIN");
    home.expect("set a wr 0 5", "EAGAIN");
    second.expect("set b wr 0 10", "EAGAIN");
    second.expect("set b un 0 10", "ok");
    home.expect("set a wr 0 5", "EAGAIN");
    second.expect("flock a un", "ok");
    home.expect("flock a ex nb", "ok");
    home.expect("flock a un", "ok");
    second.expect("flock a ex nb", "ok");
    second.expect("exit", "parent");
    home.expect("flock a sh nb", "EAGAIN");
    home.expect("set a wr 0 5", "EAGAIN");
    second.expect("close a", "ok");
    home.expect("flock a ex nb", "ok");
    home.expect("set a wr 0 5", "ok");
}

#[test]
fn many_take_turns_and_see_what_the_others_wrote() {
    const TURNS: u64 = 60;
    let cluster = start(&[]);
    let mut all: Vec<Program> = [1, 2, 3, 1, 2, 3].iter().map(|node| Program::on(&cluster, *node)).collect();
    for program in &mut all {
        program.expect("open a /cenote/runs/f", "ok");
    }
    for program in &mut all {
        program.begin(&format!("count a {TURNS}"));
    }
    for program in &all {
        assert_eq!(program.end(), "ok");
    }
    let number = TURNS * all.len() as u64;
    for program in &mut all {
        program.expect("read a 0", &number.to_string());
    }
    for program in &mut all {
        program.expect("open r /cenote/walks/ranges", "ok");
    }
    for program in &mut all {
        program.begin(&format!("turns r {TURNS}"));
    }
    for program in &all {
        assert_eq!(program.end(), "ok");
    }
    for place in [0, 100, 400] {
        all[0].expect(&format!("read r {place}"), &(number / 5).to_string());
    }
}

/// Starts the daemons that do not run. A program that misses that of its node starts it, too, and may be faster.
#[track_caller]
fn again(cluster: &Cluster) {
    let (begin, dir) = (Instant::now(), cluster.dir());
    loop {
        let started = cluster.place.run(["cluster", "start", &dir]);
        if started.code == 0 {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{started:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn locks_outlive_daemons() {
    let cluster = start(&[]);
    let [mut home, mut second, mut third] = programs(&cluster);
    second.expect("flock a ex nb", "ok");
    second.expect("set a wr 0 10", "ok");
    home.expect("set b wr 10 10", "ok");
    // The home's daemon: what other nodes have stays theirs, also against programs of its node.
    cluster.kill(1);
    again(&cluster);
    home.expect("flock a sh nb", "EAGAIN");
    third.expect("flock a sh nb", "EAGAIN");
    third.expect("set a rd 5 1", "EAGAIN");
    third.expect("set a rd 15 1", "EAGAIN");
    second.expect("set a rd 15 1", "EAGAIN");
    // That of the node with the locks.
    cluster.kill(2);
    home.begin("flock a sh");
    again(&cluster);
    third.expect("set a rd 5 1", "EAGAIN");
    second.expect("flock a sh nb", "ok");
    assert_eq!(home.end(), "ok");
    second.expect("set a un 0 10", "ok");
    third.expect("set a rd 5 1", "ok");
    // A process that dies while its daemon is away.
    cluster.kill(2);
    second.kill();
    again(&cluster);
    third.until("flock a ex nb", "EAGAIN");
    home.expect("flock a un", "ok");
    third.until("flock a ex nb", "ok");
}

fn is_live(report: &Value, node: u64) -> bool {
    let nodes = report["nodes"].as_array().unwrap();
    nodes.iter().any(|it| it["node"] == node && it["live"] == true)
}

#[test]
fn locks_outlive_the_host_of_their_home_but_not_their_node() {
    let cluster = start(&["--protect", "1"]);
    cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    let [mut first, mut second, mut third] = [1, 2, 3].map(|node| Program::on(&cluster, node));
    for program in [&mut first, &mut second, &mut third] {
        program.expect("open a /cenote/walks/f", "ok");
        program.expect("open b /cenote/walks/g", "ok");
    }
    third.expect("flock a ex nb", "ok");
    third.expect("set a wr 0 10", "ok");
    second.expect("flock b ex nb", "ok");
    first.expect("flock b sh nb", "EAGAIN");
    cluster.ok(2, &["protect"]);
    // The host of the home is lost, with the locks of its own programs. A killed daemon could be back too early: programs start it.
    cluster.signal(2, Signal::STOP);
    cluster.until(1, "another host", |report| host(report, 2) != 2);
    first.expect("flock a sh nb", "EAGAIN");
    first.expect("set a rd 5 1", "EAGAIN");
    first.expect("flock b ex nb", "ok");
    third.expect("set a un 0 10", "ok");
    first.expect("set a wr 0 10", "ok");
    cluster.signal(2, Signal::CONT);
    cluster.until(1, "the home is back", |report| host(report, 2) == 2 && is_mirrored::<NODES>(report));
    cluster.ok(2, &["protect"]); // the daemon that began anew for it serves it
    second.expect("flock b un", "EIO");
    first.expect("set a wr 0 10", "ok");
    let mut fourth = Program::on(&cluster, 2);
    fourth.expect("open a /cenote/walks/f", "ok");
    fourth.expect("flock a sh nb", "EAGAIN");
    fourth.expect("set a rd 5 1", "EAGAIN");
    third.expect("flock a un", "ok");
    fourth.expect("flock a ex nb", "ok");
}

#[test]
fn a_node_that_was_cut_off_has_lost_its_locks_and_says_so() {
    let cluster = start(&["--protect", "1"]);
    cluster.until(1, "mirrors of all homes", is_mirrored::<NODES>);
    let [mut first, mut second, mut third] = [1, 2, 3].map(|node| Program::on(&cluster, node));
    for program in [&mut first, &mut second, &mut third] {
        program.expect("open a /cenote/walks/f", "ok");
    }
    third.expect("flock a ex nb", "ok");
    third.expect("set a wr 0 10", "ok");
    second.expect("set a wr 20 10", "ok");
    first.waits("flock a ex");
    cluster.signal(3, Signal::STOP);
    cluster.until(1, "n3 is given up", |report| !is_live(report, 3));
    assert_eq!(first.end(), "ok");
    second.expect("set a wr 0 10", "ok");
    cluster.signal(3, Signal::CONT);
    third.expect("flock a un", "EIO");
    cluster.until(1, "n3 is back", |report| host(report, 3) == 3 && is_mirrored::<NODES>(report));
}

#[test]
fn locks_hold_between_a_mount_and_programs_of_other_nodes() {
    if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
        return println!("skipped: nothing can be mounted here");
    }
    let cluster = start(&[]);
    let dir = cluster.place.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let mut mount = cluster.place.command(["mount"]);
    mount.arg(cluster.node(2)).arg(&dir).stdin(Stdio::null());
    let mounted = said(&mut mount);
    assert_eq!(mounted.code, 0, "{mounted:?}");
    {
        let mut here = Program::start(&mut Command::new(python()));
        let [mut home, _second, mut third] = programs(&cluster);
        here.expect(&format!("open a {}", dir.join("runs/f").display()), "ok");
        here.expect("flock a ex nb", "ok");
        here.expect("set a wr 0 10", "ok");
        third.expect("flock a sh nb", "EAGAIN");
        home.expect("set a wr 9 1", "EAGAIN");
        third.waits("flock a sh");
        here.expect("flock a un", "ok");
        assert_eq!(third.end(), "ok");
        here.waits("flock a ex");
        here.signal(Signal::USR1);
        assert_eq!(here.end(), "EINTR");
        home.expect("set a wr 100 10", "ok");
        here.expect("get a wr 100 5", "1 0 100 10 0");
        here.waits("setw a wr 105 1");
        home.expect("set a un 100 10", "ok");
        assert_eq!(here.end(), "ok");
        here.kill();
        third.until("set a wr 0 200", "ok");
    }
    let gone = cluster.place.run(["unmount", dir.to_str().unwrap()]);
    assert_eq!(gone.code, 0, "{gone:?}");
}
