//! Moved, copied and restored store directories: one store never has two engines on the same tiers, and every refusal names
//! the next step.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{CommandOutput, TestDir};

/// Creates a store with its persistent tier in its directory, as `cenote init` does, and flushed bytes in it.
fn store_with(byte: u8) -> TestDir {
    let place = TestDir::new();
    let disk = format!("name=disk,kind=directory,path={},size=64MiB", place.store().join("disk").display());
    place.ok(["init", "--no-measure", "--tier", "name=memory,kind=memory,size=16MiB", "--tier", &disk]);
    place.ok(["mk", "runs"]);
    put(&place, &place.store(), byte);
    place
}

fn at<'a>(dir: &'a Path, args: &[&'a str]) -> Vec<&'a str> {
    [&["--store", dir.to_str().unwrap()], args].concat()
}

fn put(place: &TestDir, dir: &Path, byte: u8) {
    let said = place.run_with_input(&vec![byte; 100_000], at(dir, &["put", "--flush", "--force", "-", "runs/2a"]));
    assert_eq!(said.code, 0, "{said:?}");
}

/// Returns the first byte of an object whose bytes are all the same.
#[track_caller]
fn byte_in(place: &TestDir, dir: &Path) -> u8 {
    let said = place.run(at(dir, &["cat", "runs/2a"]));
    assert_eq!((said.code, said.bytes.len()), (0, 100_000), "{said:?}");
    assert!(said.bytes.iter().all(|byte| *byte == said.bytes[0]), "a mixture");
    said.bytes[0]
}

fn copy(from: &Path, to: &Path) {
    let done = Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(done.success());
}

#[track_caller]
fn refused(said: &CommandOutput, words: &[&str]) {
    assert_eq!(said.code, 1, "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "no `{word}` in {}", said.err);
    }
}

fn memory_of(place: &TestDir, dir: &Path) -> PathBuf {
    let said = place.run(at(dir, &["--json", "status"]));
    let status: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    Path::new("/dev/shm").join(format!("cenote-{}", status["store"].as_str().unwrap()))
}

#[test]
fn a_copy_is_refused_and_becomes_a_store_of_its_own() {
    let place = store_with(1);
    let (store, other) = (place.store(), place.path("copy"));
    copy(&store, &other);
    for serve in [false, true] {
        if serve {
            place.ok(["serve", "--background", "--idle-exit", "60"]);
        }
        for command in [vec!["ls"], vec!["status"], vec!["put", "--flush", "-", "runs/2b"], vec!["destroy", "--yes"]] {
            refused(&place.run(at(&other, &command)), &["copy of", store.to_str().unwrap(), "next:"]);
        }
        refused(&place.run(["adopt", other.to_str().unwrap()]), &["still there", "cenote clone"]);
    }
    let said = place.ok(["clone", other.to_str().unwrap()]);
    assert!(said.contains("a store of its own") && said.contains("all is well"), "{said}");
    // Both are used at once from here on, each with its own bytes and tiers.
    put(&place, &other, 2);
    put(&place, &store, 3);
    assert_eq!((byte_in(&place, &store), byte_in(&place, &other)), (3, 2));
    refused(&place.run(["clone", other.to_str().unwrap()]), &["the store itself"]);
    place.ok(at(&other, &["destroy", "--yes"]));
    assert!(!other.exists());
    assert_eq!(byte_in(&place, &store), 3);
    place.ok(["destroy", "--yes"]);
}

#[test]
fn a_moved_store_is_opened_where_it_is() {
    let place = store_with(4);
    let moved = place.path("moved");
    fs::rename(place.store(), &moved).unwrap();
    assert_eq!(byte_in(&place, &moved), 4);
    put(&place, &moved, 5);
    fs::rename(&moved, place.store()).unwrap();
    assert_eq!(byte_in(&place, &place.store()), 5);
    let tier = place.json(["tiers"]).to_string();
    assert!(!tier.contains("moved"), "{tier}");
    place.ok(["destroy", "--yes"]);
    assert!(!place.store().exists(), "the tier in it too");
}

#[test]
fn a_copy_takes_the_place_of_an_original_that_is_gone() {
    let place = store_with(6);
    let other = place.path("copy");
    copy(&place.store(), &other);
    fs::remove_dir_all(place.store()).unwrap();
    refused(&place.run(at(&other, &["ls"])), &["cenote adopt", "cenote clone"]);
    let said = place.ok(["adopt", other.to_str().unwrap()]);
    assert!(said.contains("all is well"), "{said}");
    assert_eq!(byte_in(&place, &other), 6);
    put(&place, &other, 7);
    assert_eq!(byte_in(&place, &other), 7);
    place.ok(at(&other, &["destroy", "--yes"]));
}

#[test]
fn a_backup_that_is_restored_in_place_is_taken_as_it_is() {
    let place = store_with(8);
    let (store, backup) = (place.store(), place.path("backup"));
    copy(&store, &backup);
    put(&place, &store, 9);
    let memory = memory_of(&place, &store);
    assert!(memory.exists());
    // As `rsync -a --delete` does: the directory itself stays, and its content is replaced.
    let mut sh = Command::new("sh");
    sh.arg("-c").arg("rm -rf \"$0\"/* && cp -a \"$1\"/. \"$0\"").arg(&store).arg(&backup);
    assert!(sh.status().unwrap().success());
    refused(&place.run(["cat", "runs/2a"]), &["restored from a copy", "cenote adopt"]);
    let said = place.ok(["adopt", store.to_str().unwrap()]);
    assert!(said.contains("memory alone") && said.contains("all is well"), "{said}");
    assert_eq!(byte_in(&place, &store), 8);
    // The same with a newly created directory.
    put(&place, &store, 10);
    fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    refused(&place.run(["cat", "runs/2a"]), &["cenote adopt"]);
    place.ok(["adopt", store.to_str().unwrap()]);
    assert_eq!(byte_in(&place, &store), 8);
    place.ok(["destroy", "--yes"]);
}

#[test]
fn what_a_damaged_store_says_leads_to_one_that_works() {
    let place = store_with(11);
    let (store, backup) = (place.store(), place.path("backup"));
    copy(&store, &backup);
    let names = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let checkpoint = store.join(names.filter(|name| name.starts_with("checkpoint-")).max().unwrap());
    let mut bytes = fs::read(&checkpoint).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&checkpoint, bytes).unwrap();
    let said = place.run(["cat", "runs/2a"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(
        said.err.contains("restore the store directory from a copy") && said.err.contains("cenote adopt"),
        "{said:?}"
    );
    fs::remove_dir_all(&store).unwrap();
    copy(&backup, &store);
    place.ok(["adopt", store.to_str().unwrap()]);
    assert_eq!(byte_in(&place, &store), 11);
    place.ok(["destroy", "--yes"]);
}

#[test]
fn two_directories_never_have_one_device() {
    // As an earlier version leaves them: nothing records whose the directory is.
    let place = TestDir::with_store();
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    let other = place.path("copy");
    copy(&place.store(), &other);
    fs::remove_file(other.join("identity")).unwrap();
    let memory = memory_of(&place, &place.store());
    refused(&place.run(at(&other, &["ls"])), &["copy of", "next:"]);
    // Nor does shared memory record where the store is.
    fs::remove_file(memory.join("home")).unwrap();
    fs::remove_file(memory.join("agrees-with")).unwrap();
    refused(&place.run(at(&other, &["ls"])), &["process ", "cenote"]);
    assert!(place.ok(["ls"]).contains("runs"));
    place.ok(["stop"]);
}
