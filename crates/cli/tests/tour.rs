//! A person's use of the command, from the first store to the last byte.

mod common;

use std::fs;
use std::process::Stdio;

use common::TestDir;

#[test]
fn a_file_goes_in_and_comes_out() {
    let place = TestDir::with_store();
    let (path, bytes) = place.file("data", 3_000_001);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    let id = name.strip_prefix("runs/").unwrap();
    assert_eq!(id.len(), 32);
    assert_eq!(place.ok(["ls", "runs"]), id);
    assert!(place.ok(["ls"]).lines().nth(1).unwrap().starts_with("runs"));
    let long = place.ok(["ls", "-l", "runs"]);
    assert!(long.contains("2.9 MiB"), "{long}");
    assert_eq!(place.run(["cat", &name]).bytes, bytes);
    assert_eq!(place.run(["cat", &name, "--offset", "1KiB", "--length", "10"]).bytes, &bytes[1024..1034]);
    place.ok(["get", &name, "back"]);
    assert_eq!(fs::read(place.path("back")).unwrap(), bytes);
    assert_eq!(place.run(["get", &name, "back"]).code, 1);
    place.ok(["get", "-f", &name, "back"]);
    place.ok(["truncate", &name, "1000"]);
    assert_eq!(place.run(["cat", &name]).bytes, &bytes[..1000]);
    place.ok(["flush"]);
    place.ok(["flush", "runs"]);
    place.ok(["checkpoint"]);
    place.ok(["rename", "runs", "old/runs"]);
    assert_eq!(place.run(["cat", &format!("old/runs/{id}")]).bytes, &bytes[..1000]);
    place.ok(["rm", &format!("old/runs/{id}")]);
    assert_eq!(place.ok(["ls", "old/runs"]), "");
    assert_eq!(place.run(["rm", "old/runs"]).code, 1);
    place.ok(["rm", "-r", "old/runs"]);
    assert_eq!(place.ok(["ls"]).lines().count(), 1);
}

#[test]
fn objects_may_be_named_replaced_and_read_from_a_pipe() {
    let place = TestDir::served();
    assert_eq!(place.run_with_input(b"first", ["put", "-", "runs/2a"]).code, 0);
    assert_eq!(place.ok(["cat", "runs/2A"]), "first");
    let again = place.run_with_input(b"x", ["put", "-", "runs/2a"]);
    assert_eq!(again.code, 1);
    assert!(again.err.contains("-f"), "{}", again.err);
    assert_eq!(place.run_with_input(b"2nd", ["put", "-f", "-", "runs/2a"]).code, 0);
    assert_eq!(place.ok(["cat", "runs/2a"]), "2nd");
    assert_eq!(place.run_with_input(b"new", ["put", "-p", "-", "more"]).code, 0);
    assert_eq!(place.json(["ls", "more"]).as_array().unwrap().len(), 1);
    assert_eq!(place.run_with_input(b"now", ["put", "--buffered", "sync", "-", "runs/2b"]).code, 0);
    assert!(place.ok(["explain", "runs/2b"]).contains("disk"));
    let refused = place.run_with_input(b"now", ["put", "--buffered", "scratch", "-", "runs/2c"]);
    assert!(refused.code != 0 && refused.err.contains("scratch"), "{}", refused.err);
    assert_eq!(place.run(["stat", "runs/2c"]).code, 1);
}

#[test]
fn zeros_take_no_space() {
    let place = TestDir::with_store();
    let mut bytes = vec![0; 20 << 20];
    bytes[9 << 20] = 1;
    fs::write(place.path("sparse"), &bytes).unwrap();
    let name = place.ok(["put", "sparse", "runs"]);
    let stat = place.json(["stat", &name]);
    assert_eq!(stat["size"], bytes.len());
    assert!(stat["mapped_bytes"].as_u64().unwrap() <= 4 << 20, "{stat}");
    place.ok(["get", &name, "back"]);
    assert_eq!(fs::read(place.path("back")).unwrap(), bytes);
}

#[test]
fn everything_can_be_had_as_json() {
    let place = TestDir::served();
    let (path, _) = place.file("data", 100_000);
    let put = place.json(["put".as_ref(), path.as_os_str(), "runs/7".as_ref()]);
    assert_eq!((&put["container"], &put["size"]), (&"runs".into(), &100_000.into()));
    let containers = place.json(["ls"]);
    assert_eq!(containers[0]["label"], "runs");
    assert_eq!(containers[0]["durability"], "async");
    assert_eq!(place.json(["ls", "-l", "runs"])[0]["size"], 100_000);
    assert_eq!(place.json(["stat", "runs"])["objects"], 1);
    let tiers = place.json(["tiers"]);
    assert_eq!((&tiers[0]["name"], &tiers[1]["kind"]), (&"memory".into(), &"directory".into()));
    let status = place.json(["status"]);
    assert_eq!(status["objects"], 1);
    assert!(status["tiers"][0]["used_bytes"].as_u64().unwrap() >= 100_000);
    let why = place.json(["explain", "runs/7"]);
    assert_eq!(why["ranges"][0]["tier"], "memory");
    assert!(!why["ranges"][0]["why"].as_str().unwrap().is_empty());
    assert_eq!(place.json(["verify"])["findings"].as_array().unwrap().len(), 0);
    assert!(place.json(["config"]).as_array().unwrap().len() > 5);
    assert!(place.json(["doctor"]).as_array().unwrap().len() >= 4);
}

#[test]
fn tables_are_for_people() {
    let place = TestDir::served();
    let (path, _) = place.file("data", 8 << 20);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    let status = place.ok(["status"]);
    assert!(status.contains("[####") && status.contains("of memory"), "{status}");
    let why = place.ok(["explain", &name]);
    assert!(why.contains("8.0 MiB") && why.contains("memory"), "{why}");
    assert!(place.ok(["verify"]).ends_with("all is well"));
    assert!(place.ok(["config"]).contains("CENOTE_STORE"));
    assert!(place.ok(["doctor"]).contains("ok   store"));
}

#[test]
fn records_of_indices() {
    let place = TestDir::served();
    let name = place.ok(["index", "mk", "runs/1"]);
    assert_eq!(name, format!("runs/{:032x}", 1));
    for number in 0..5 {
        place.ok(["index", "put", &name, &format!("key{number}"), &format!("value {number}")]);
    }
    place.ok(["index", "put", "--hex", &name, "ff00", "0a"]);
    assert_eq!(place.ok(["index", "get", "--raw", &name, "key3"]), "value 3");
    let listed = place.json(["index", "next", &name, "--after", "key1", "--limit", "2"]);
    assert_eq!((&listed[0]["key"], &listed[1]["value"]), (&"key2".into(), &"value 3".into()));
    assert!(place.ok(["index", "next", &name]).contains("\\xff\\x00"));
    assert_eq!(place.json(["index", "next", &name, "--prefix", "key"]).as_array().unwrap().len(), 5);
    assert_eq!(place.json(["index", "next", &name, "--from", "key3"])[0]["key"], "key3");
    let new = place.run(["index", "put", "--new", &name, "key1", "other"]);
    assert_eq!(new.code, 1);
    assert_eq!(place.run_with_input(b"piped", ["index", "put", &name, "key9", "-"]).code, 0);
    assert_eq!(place.run(["index", "get", &name, "key1", "none"]).code, 1);
    assert_eq!(place.run(["index", "del", &name, "key1", "none"]).code, 1);
    assert_eq!(place.ok(["index", "get", "--raw", &name, "key1"]), "value 1");
    place.ok(["index", "del", &name, "key1", "key2"]);
    assert_eq!(place.run(["index", "get", &name, "key1"]).code, 1);
    assert_eq!(place.ok(["index", "ls", "runs"]), format!("{:032x}", 1));
    place.ok(["index", "rm", &name]);
    assert_eq!(place.ok(["index", "ls", "runs"]), "");
}

#[test]
fn tiers_are_measured_and_drawn() {
    let place = TestDir::new();
    let (memory, disk) = ("name=memory,kind=memory,size=16MiB", "name=disk,kind=pmem,path=disk,size=64MiB");
    place.ok(["init", "--no-measure", "--tier", memory, "--tier", disk]);
    assert!(place.json(["tiers"])[0]["speed"].is_null());
    let plot = place.path("plot.svg");
    let refused = place.run(["tiers", "--plot", plot.to_str().unwrap()]);
    assert!(refused.code == 1 && refused.err.contains("--measure"), "{}", refused.err);
    let tiers = place.json(["tiers", "--measure", "--seconds", "0.1", "--plot", plot.to_str().unwrap()]);
    for tier in tiers.as_array().unwrap() {
        assert!(tier["speed"]["read_bytes_per_s"].as_f64().unwrap() > 1e6, "{tier}");
        assert!(tier["profile"].as_array().unwrap().len() >= 4 && tier["measured_unix_ms"].as_u64().unwrap() > 0);
        assert!(tier["free_bytes"].as_u64().unwrap() <= tier["capacity_bytes"].as_u64().unwrap());
    }
    let drawn = std::fs::read_to_string(&plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("memory, read"), "{drawn}");
    let table = place.ok(["tiers"]);
    assert!(table.contains("B/s") && table.contains("read after"), "{table}");
    assert!(place.run(["tiers", "--measure", "nothing"]).err.contains("nothing"));
    assert_eq!(place.run(["tiers", "--measure", "--seconds", "99"]).code, 2);
}

#[test]
fn tiers_come_and_go() {
    let place = TestDir::with_store();
    let (path, bytes) = place.file("data", 2 << 20);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    place.ok(["tier", "add", "name=more,kind=file,path=more,size=16MiB"]);
    assert_eq!(place.json(["tiers"]).as_array().unwrap().len(), 3);
    let full = place.run(["tier", "remove", "memory"]);
    assert_eq!(full.code, 1, "{full:?}");
    place.ok(["tier", "drain", "memory"]);
    place.ok(["tier", "remove", "memory"]);
    assert_eq!(place.json(["tiers"]).as_array().unwrap().len(), 2);
    assert_eq!(place.run(["cat", &name]).bytes, bytes);
    assert!(place.ok(["verify"]).ends_with("all is well"));
}

#[test]
fn a_store_from_a_file() {
    let place = TestDir::new();
    let file = "writers = [12345]\n\n[[tier]]\nname = \"ram\"\nkind = \"memory\"\nsize = \"16MiB\"\n\n\
                [[tier]]\nname = \"disk\"\nkind = \"directory\"\npath = \"tier\"\nsize = 67108864\nhigh = \"80%\"\n";
    fs::write(place.path("store.toml"), file).unwrap();
    place.ok(["init", "--config", "store.toml"]);
    let tiers = place.json(["tiers"]);
    assert_eq!(tiers[1]["watermark_high_permille"], 800);
    assert_eq!(tiers[1]["path"], place.path("tier").to_str().unwrap());
    assert_eq!(place.run(["init"]).code, 1);
    place.ok(["init", "--if-missing"]);
}

#[test]
fn containers_have_settings() {
    let place = TestDir::served();
    place.ok(["mk", "safe", "--durability", "sync", "--block-size", "64KiB", "--quota", "1MiB"]);
    let safe = place.json(["stat", "safe"]);
    assert_eq!((&safe["durability"], &safe["block_size"]), (&"sync".into(), &65536.into()));
    assert_eq!(safe["quota_bytes"], 1 << 20);
    place.ok(["set", "safe", "--durability", "scratch", "--quota", "0"]);
    let safe = place.json(["stat", "safe"]);
    assert_eq!((&safe["durability"], &safe["quota_bytes"]), (&"scratch".into(), &0.into()));
    assert_eq!(place.run(["mk", "safe"]).code, 1);
    place.ok(["mk", "safe", "--if-missing"]);
}

#[test]
fn a_reader_that_leaves_is_no_error() {
    let place = TestDir::with_store();
    let (path, _) = place.file("data", 8 << 20);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    let mut child = place.command(["cat", &name]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty());
}

#[test]
fn a_daemon_serves_and_stops() {
    let place = TestDir::with_store();
    let (path, bytes) = place.file("data", 1 << 20);
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    assert_eq!(place.json(["status"])["daemon"], true);
    assert_eq!(place.run(["cat", &name]).bytes, bytes);
    let second = place.run(["serve"]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(second.err.contains("store"), "{second:?}");
    assert_eq!(place.json(["stop"])["stopped"], true);
    assert_eq!(place.json(["stop"])["stopped"], false);
    assert_eq!(place.run(["cat", &name]).bytes, bytes);
    assert_eq!(place.json(["status"])["daemon"], false);
}

#[test]
fn a_daemon_in_the_background_keeps_no_pipe_of_its_starter() {
    use std::process::Command;
    use std::time::{Duration, Instant};
    let place = TestDir::with_store();
    let begin = Instant::now();
    // Descriptor 9 is another copy of the pipe read here: it ends when nobody holds it any more.
    let script = format!("exec 9>&1; {} serve --background --idle-exit 60", env!("CARGO_BIN_EXE_cenote"));
    let output = Command::new("sh").args(["-c", &script]).env("CENOTE_STORE", place.store()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(begin.elapsed() < Duration::from_secs(30), "the daemon holds what it inherited");
    assert_eq!(place.json(["stop"])["stopped"], true);
}

#[test]
fn directories_are_given_a_consistency() {
    let place = TestDir::served();
    assert_eq!(place.ok(["consistency", "runs"]), "strict");
    place.ok(["consistency", "runs", "commit"]);
    assert_eq!(place.json(["consistency", "runs"])["consistency"], "commit");
    let store = cenote::Store::open_with(place.store(), &cenote::OpenOptions::default()).unwrap();
    let fs = cenote_posix::FileSystem::new(&store, cenote_posix::Options::default()).unwrap();
    let me = cenote_posix::Caller { uid: 0, gid: 0, groups: [].into(), is_checked: false };
    let dir = cenote_posix::Make { kind: cenote_posix::Kind::Directory, mode: 0o755, rdev: 0, target: Vec::new() };
    let runs = fs.lookup(&me, fs.root(), b"runs").unwrap().ino;
    let above = fs.make(&me, runs, b"a", &dir).unwrap().ino;
    fs.make(&me, above, b"b", &dir).unwrap();
    assert_eq!(place.ok(["consistency", "runs/a/b"]), "commit", "new directories inherit it");
    place.ok(["consistency", "runs/a", "laminated"]);
    assert_eq!(place.ok(["consistency", "runs/a/b"]), "commit");
    place.ok(["consistency", "-r", "runs", "laminated"]);
    assert_eq!(place.ok(["consistency", "runs/a/b"]), "laminated");
    assert_eq!(fs.make(&me, above, b"c", &dir).unwrap_err().errno, 30, "EROFS");
    for (args, words) in [
        (vec!["consistency", "runs/none"], "No such file"),
        (vec!["consistency", "none", "commit"], "No such file"),
        (vec!["consistency", "/", "commit"], "only directories, and containers"),
    ] {
        let said = place.run(&args);
        assert!(said.code == 1 && said.err.contains(words), "{said:?}");
    }
    assert_eq!(place.run(["consistency", "runs", "sometimes"]).code, 2);
}

#[test]
fn every_command_has_help() {
    let place = TestDir::new();
    let help = place.ok(["--help"]);
    for command in [
        "init",
        "serve",
        "stop",
        "status",
        "tiers",
        "tier",
        "ls",
        "mk",
        "set",
        "rename",
        "rm",
        "put",
        "get",
        "cat",
        "stat",
        "truncate",
        "index",
        "explain",
        "promote",
        "demote",
        "evict",
        "pin",
        "unpin",
        "archive",
        "release",
        "policy",
        "policies",
        "rules",
        "verify",
        "flush",
        "checkpoint",
        "config",
        "doctor",
        "advise",
        "consistency",
    ] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}");
        assert!(place.ok([command, "--help"]).contains("Usage:"), "{command}");
    }
}

#[test]
fn a_container_is_kept_and_gone_back_to() {
    let place = TestDir::served();
    assert_eq!(place.run_with_input(b"first", ["put", "-", "runs/2a"]).code, 0);
    place.ok(["snapshot", "create", "runs", "before"]);
    assert_eq!(place.run(["snapshot", "create", "runs", "before"]).code, 1);
    assert_eq!(place.run_with_input(b"2nd", ["put", "-f", "-", "runs/2a"]).code, 0);
    let listed = place.json(["snapshot", "list", "runs"]);
    assert_eq!((&listed[0]["name"], &listed[0]["objects"]), (&"before".into(), &1.into()));
    assert!(place.ok(["snapshot", "list", "runs"]).contains("before"));
    assert!(place.ok(["snapshot", "open", "runs", "before"]).ends_with("2a"));
    assert!(place.ok(["verify", "runs"]).starts_with("2 objects"), "the snapshot's too");
    place.ok(["snapshot", "rollback", "runs", "before"]);
    assert_eq!(place.ok(["cat", "runs/2a"]), "first");
    place.ok(["snapshot", "delete", "runs", "before"]);
    let gone = place.run(["snapshot", "rollback", "runs", "before"]);
    assert!(gone.code == 1 && gone.err.contains("before") && gone.err.contains("runs"), "{}", gone.err);
    place.ok(["mk", "logs"]);
    assert_eq!(place.run_with_input(b"one", ["put", "-", "logs/1"]).code, 0);
    let made = place.json(["snapshot", "create", "runs", "both", "--also", "logs", "runs"]);
    assert_eq!(made.as_array().map(Vec::len), Some(2), "{made}");
    for (object, text) in [("runs/2a", "3rd"), ("logs/1", "two")] {
        assert_eq!(place.run_with_input(text.as_bytes(), ["put", "-f", "-", object]).code, 0);
    }
    place.ok(["snapshot", "rollback", "runs", "both", "--also", "logs"]);
    assert_eq!((place.ok(["cat", "runs/2a"]), place.ok(["cat", "logs/1"])), ("first".into(), "one".into()));
    place.ok(["snapshot", "delete", "runs", "both"]);
    let half = place.run(["snapshot", "rollback", "logs", "both", "--also", "runs"]);
    assert!(half.code == 1 && half.err.contains("`runs`"), "{}", half.err);
    let none = place.run(["snapshot", "list", "nowhere.h5"]);
    assert!(none.code == 1 && none.err.contains("nowhere.h5"), "{}", none.err);
}
