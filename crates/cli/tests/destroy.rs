//! Deletion of stores: with everything that is theirs and nothing else, or cleaned up after a deletion by hand.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{TestDir, tree};

fn memory_of(place: &TestDir) -> PathBuf {
    let id = place.json(["status"])["store"].as_str().unwrap().to_owned();
    Path::new("/dev/shm").join(format!("cenote-{id}"))
}

fn soon(what: &str, is_so: impl Fn() -> bool) {
    let begin = Instant::now();
    while !is_so() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_store_is_destroyed_with_its_tiers_and_nothing_else() {
    let place = TestDir::with_store();
    let memory = memory_of(&place);
    let file = format!("name=file,kind=file,path={},size=16MiB", place.path("file").display());
    place.ok(["tier", "add", &file]);
    fs::create_dir(place.path("neighbour")).unwrap();
    fs::write(place.path("neighbour/seg-000000"), "mine").unwrap();
    assert!(
        memory.join("dev-1-seg-0").exists() && place.path("disk/seg-000000").exists() && place.path("file").exists()
    );
    let before = tree(&place.store());
    let said = place.run(["destroy"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("--yes"), "{}", said.err);
    assert_eq!(tree(&place.store()), before);
    assert!(memory.exists());
    let said = place.ok(["destroy", "--yes"]);
    assert!(said.contains("no more"), "{said}");
    assert!(
        !place.store().exists() && !memory.exists() && !place.path("disk").exists() && !place.path("file").exists()
    );
    assert!(place.path("neighbour/seg-000000").exists());
    let again = place.run(["destroy", "--yes"]);
    assert_eq!(again.code, 1, "{again:?}");
    assert!(again.err.contains("store") && again.err.contains("no such directory"), "{}", again.err);
}

#[test]
fn files_of_others_in_the_directory_stay() {
    let place = TestDir::served();
    let memory = memory_of(&place);
    fs::write(place.store().join("diary.txt"), "mine").unwrap();
    let said = place.ok(["destroy", "--yes"]);
    assert!(said.contains("diary.txt"), "{said}");
    assert_eq!(tree(&place.store()), [(place.store().join("diary.txt"), b"mine".to_vec())]);
    assert!(!memory.exists() && !place.path("disk").exists());
}

#[test]
fn what_is_in_use_is_destroyed_by_force_only() {
    let place = TestDir::served();
    let memory = memory_of(&place);
    // A client that stays: it waits for bytes on standard input.
    let mut client = place
        .command(["put", "-", "runs"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    soon("the client never came", || place.json(["status"])["sessions"].as_u64() == Some(2));
    let said = place.run(["destroy", "--yes"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("1 other session is open") && said.err.contains("next:"), "{}", said.err);
    assert!(place.ok(["ls"]).contains("runs"));
    place.ok(["destroy", "--yes", "--force"]);
    assert!(!place.store().exists() && !memory.exists());
    drop(client.stdin.take());
    assert_ne!(client.wait().unwrap().code(), Some(0), "the client lost its store without an error");
}

#[test]
fn what_is_no_store_is_not_destroyed() {
    let place = TestDir::new();
    fs::create_dir(place.store()).unwrap();
    fs::write(place.store().join("diary.txt"), "mine").unwrap();
    let said = place.run(["destroy", "--yes", "--force"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("no superblock"), "{}", said.err);
    assert_eq!(tree(&place.store()).len(), 1);
}

#[test]
fn a_daemon_whose_directory_is_deleted_ends_and_gives_its_memory_back() {
    let place = TestDir::served();
    let memory = memory_of(&place);
    assert!(memory.exists());
    fs::remove_dir_all(place.store()).unwrap();
    soon("the memory stays", || !memory.exists());
}

#[test]
fn orphans_are_found_and_cleaned() {
    let place = TestDir::with_store();
    let memory = memory_of(&place);
    fs::remove_dir_all(place.store()).unwrap();
    let named = |said: &str| said.contains(memory.to_str().unwrap());
    let said = place.run(["clean"]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(named(&said.out) && said.err.contains("--yes"), "{said:?}");
    assert!(memory.exists());
    // Only this one: other tests' stores appear and disappear meanwhile.
    let list = place.run(["--json", "clean"]);
    let list: serde_json::Value = serde_json::from_str(&list.out).unwrap();
    let found = list.as_array().unwrap().iter().find(|orphan| orphan["memory"] == memory.to_str().unwrap()).unwrap();
    assert_eq!(found["was_in"], place.store().to_str().unwrap());
    assert!(found["bytes"].as_u64().unwrap() > 0);
    fs::remove_dir_all(&memory).unwrap();
}

#[test]
fn the_daemon_says_what_it_does_in_its_log() {
    let place = TestDir::served();
    place.ok(["stop"]);
    let log = fs::read_to_string(place.store().join("daemon.log")).unwrap();
    assert!(log.contains("serving") && log.contains("leaving"), "{log}");
    let said = TestDir::run_in(&place, ["serve"], &[("CENOTE_LOG", "loud")]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("CENOTE_LOG=loud") && said.err.contains("debug"), "{}", said.err);
}
