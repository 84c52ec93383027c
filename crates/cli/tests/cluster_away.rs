//! A node without mirrors is away: what the others have is listed and used as before, and what is missing is named.

mod common;

use std::process::Stdio;
use std::time::{Duration, Instant};

use common::cluster::Cluster;
use common::said;
use serde_json::Value;

/// Longer than a home that does not answer is waited for, on a slow machine.
const PATIENCE: Duration = Duration::from_secs(40);
/// Long enough for what waits for no home at all.
const AT_ONCE: Duration = Duration::from_secs(5);

fn start() -> Cluster {
    let tiers = ["--tier", "name=memory,kind=memory,size=64MiB"];
    let cluster = Cluster::start(3, &[&tiers[..], &["--register", "kind=nodes"]].concat());
    for number in 1..=3 {
        cluster.ok(number, &["mk", &format!("runs-{number}")]);
    }
    cluster
}

/// What a command says that does its work on two nodes, and names the third.
fn in_part(cluster: &Cluster, args: &[&str]) -> String {
    let begin = Instant::now();
    let told = cluster.run(1, args);
    assert_eq!(told.code, 1, "{args:?}: {told:?}");
    assert!(told.err.contains("home n3"), "{args:?}: {told:?}");
    assert!(begin.elapsed() < PATIENCE, "{args:?} took {:?}", begin.elapsed());
    told.out
}

fn labels(listed: &str) -> Vec<(String, bool)> {
    let listed: Value = serde_json::from_str(listed).unwrap();
    let row = |row: &Value| (row["label"].as_str().unwrap().to_owned(), row["away"] == true);
    listed.as_array().unwrap().iter().map(row).collect()
}

#[test]
fn what_other_nodes_have_is_shown_while_one_is_away() {
    let cluster = start();
    cluster.kill(3);
    let commands: [&[&str]; 4] = [&["ls"], &["--json", "ls"], &["tiers"], &["status"]];
    let told: Vec<String> = std::thread::scope(|scope| {
        let threads = commands.map(|args| scope.spawn(|| in_part(&cluster, args)));
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let [listed, documents, tiers, status] = &told[..] else { panic!("{told:?}") };
    let (shown, missing) = listed.split_once("at nodes that cannot be reached: ").expect("what is missing");
    assert!(shown.contains("runs-1") && shown.contains("runs-2") && !shown.contains("runs-3"), "{listed}");
    assert_eq!(missing.trim(), "runs-3");
    let away = [("runs-1", false), ("runs-2", false), ("runs-3", true)].map(|(label, away)| (label.to_owned(), away));
    assert_eq!(labels(documents), away);
    assert!(tiers.contains("n1/memory") && tiers.contains("n2/memory") && !tiers.contains("n3/memory"), "{tiers}");
    assert!(status.contains("n2/memory") && status.contains("containers  "), "{status}");
    cluster.refused(1, &["ls", "runs-3"], &["home n3"]);

    cluster.again();
    let listed = cluster.ok(1, &["ls"]);
    assert!(listed.contains("runs-3") && !listed.contains("cannot be reached"), "{listed}");
    assert!(cluster.ok(1, &["tiers"]).contains("n3/memory"));
}

#[test]
fn a_mount_goes_on_with_what_other_nodes_have() {
    if !rustix::process::geteuid().is_root() || std::fs::File::open("/dev/fuse").is_err() {
        return println!("skipped: nothing can be mounted here");
    }
    let cluster = start();
    let dir = cluster.place.path("mnt");
    std::fs::create_dir(&dir).unwrap();
    let mounted = said(cluster.place.command(["mount"]).arg(cluster.node(1)).arg(&dir).stdin(Stdio::null()));
    assert_eq!(mounted.code, 0, "{mounted:?}");
    for number in 1..=3 {
        std::fs::write(dir.join(format!("runs-{number}/file")), b"content").unwrap();
    }
    let names = || {
        let mut names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(), ["runs-1", "runs-2", "runs-3"]);
    cluster.kill(3);
    let begin = Instant::now();
    assert!(std::fs::metadata(&dir).unwrap().is_dir());
    assert_eq!(names(), ["runs-1", "runs-2", "runs-3"]);
    for number in 1..=2 {
        assert_eq!(std::fs::read(dir.join(format!("runs-{number}/file"))).unwrap(), b"content");
        std::fs::write(dir.join(format!("runs-{number}/more")), b"more").unwrap();
    }
    assert!(begin.elapsed() < AT_ONCE, "it took {:?}", begin.elapsed());
    std::fs::create_dir(dir.join("made")).unwrap();
    assert!(rustix::fs::statvfs(&dir).unwrap().f_blocks > 0);
    let begin = Instant::now();
    let missing = std::fs::read(dir.join("runs-3/file")).unwrap_err();
    assert_eq!(missing.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{missing}");
    assert!(begin.elapsed() < PATIENCE, "it took {:?}", begin.elapsed());

    cluster.again();
    let begin = Instant::now();
    while std::fs::read(dir.join("runs-3/file")).ok().as_deref() != Some(b"content") {
        assert!(begin.elapsed() < PATIENCE, "the home of n3 does not come back");
        std::thread::sleep(Duration::from_millis(50));
    }
    let gone = cluster.place.run(["unmount", dir.to_str().unwrap()]);
    assert_eq!(gone.code, 0, "{gone:?}");
}
