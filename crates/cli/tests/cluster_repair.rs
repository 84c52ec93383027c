//! Bytes that went bad on a node's disk are good on its mirror: readers, `verify` and the scrub get them from there.

mod common;

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use common::cluster::Cluster;

/// Changes a byte in each 4 KiB of each file below a directory. Returns how many.
fn spoil(dir: &Path) -> usize {
    let mut spoilt = 0;
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let path: PathBuf = entry.path();
        if path.is_dir() {
            spoilt += spoil(&path);
            continue;
        }
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut bytes, 0).unwrap();
        // What was never written stays as it is, and so do the heads of segments.
        for at in (4096..bytes.len()).step_by(4096).filter(|at| bytes[*at] != 0) {
            file.write_all_at(&[!bytes[at]], at as u64).unwrap();
            spoilt += 1;
        }
    }
    spoilt
}

fn content() -> Vec<u8> {
    (0..3_000_000_u32).map(|at| (at / 4096) as u8 | 1).collect()
}

/// A container of n2 whose bytes are on its disk alone. Returns the directory of the tier.
#[track_caller]
fn fill(cluster: &Cluster) -> PathBuf {
    let file = cluster.place.path("content");
    std::fs::write(&file, content()).unwrap();
    cluster.ok(2, &["mk", "runs"]);
    cluster.ok(2, &["put", file.to_str().unwrap(), "runs/1"]);
    cluster.ok(2, &["flush"]);
    cluster.ok(2, &["evict", "runs"]);
    cluster.node(2).join("disk")
}

fn start(protect: &str) -> Cluster {
    let tiers =
        ["--tier", "name=memory,kind=memory,size=64MiB", "--tier", "name=disk,kind=directory,path=disk,size=1GiB"];
    Cluster::start(3, &[&tiers[..], &["--protect", protect]].concat())
}

#[test]
fn bad_bytes_on_a_disk_are_repaired_from_the_mirror() {
    let cluster = start("1");
    let disk = fill(&cluster);
    cluster.ok(2, &["protect"]);
    assert!(spoil(&disk) > 500, "nothing is on the disk");
    // A reader on another node, and one on the node itself.
    for node in [3, 2] {
        let back = cluster.place.path(&format!("back{node}"));
        cluster.ok(node, &["get", "runs/1", back.to_str().unwrap()]);
        assert!(std::fs::read(back).unwrap() == content(), "n{node}");
    }
    let log = std::fs::read_to_string(cluster.node(2).join("daemon.log")).unwrap();
    assert!(log.contains("bad bytes are read from a mirror"), "{log}");
    cluster.ok(2, &["evict", "runs"]);
    assert!(spoil(&disk) > 500);
    cluster.ok(2, &["verify"]);
    cluster.ok(2, &["protect"]);
    // What the mirror has was good all the time.
    cluster.kill(2);
    cluster.ok(3, &["verify"]);
}

#[test]
fn without_a_mirror_they_are_named() {
    let cluster = start("0");
    let disk = fill(&cluster);
    assert!(spoil(&disk) > 500, "nothing is on the disk");
    let back = cluster.place.path("back");
    cluster.refused(2, &["get", "runs/1", back.to_str().unwrap()], &["no copy"]);
    assert_eq!(cluster.run(2, &["verify"]).code, 3);
}
