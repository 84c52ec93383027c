//! Bad input of every kind: each gives a clear error with its subject and the next step, the documented exit code,
//! and no change to the store.

mod common;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use common::{CommandOutput, TestDir, tree};

fn clear(said: &CommandOutput, code: i32, words: &[&str], what: &str) {
    assert_eq!(said.code, code, "{what}: {said:?}");
    assert!(!said.err.contains("panicked"), "{what}: {}", said.err);
    for word in words {
        assert!(said.err.contains(word), "{what} says nothing of `{word}`: {}", said.err);
    }
}

/// Changes the bytes of a file.
type Damage<'a> = &'a dyn Fn(&mut Vec<u8>);

/// Damages a store at rest, and checks that this is reported and that the store stays as it is.
#[test]
fn damaged_and_incomplete_stores() {
    let place = TestDir::with_store();
    let find = |prefix: &str| {
        let entries = fs::read_dir(place.store()).unwrap().flatten().map(|entry| entry.path());
        let mut found: Vec<PathBuf> =
            entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(prefix)).collect();
        found.sort();
        found.pop().unwrap()
    };
    let (superblock, checkpoint) = (find("superblock"), find("checkpoint-"));
    let cases: [(&str, &PathBuf, Damage<'_>, i32, &[&str]); 6] = [
        ("another file", &superblock, &|bytes| bytes.fill(b'x'), 3, &["superblock", "next:"]),
        ("an empty superblock", &superblock, &|bytes| bytes.clear(), 3, &["superblock", "next:"]),
        ("half a superblock", &superblock, &|bytes| bytes.truncate(40), 3, &["superblock", "next:"]),
        ("a later version", &superblock, &|bytes| raise_version(bytes), 1, &["superblock", "version is 99", "next:"]),
        ("a flipped bit", &checkpoint, &|bytes| bytes[70] ^= 1, 3, &["checkpoint", "next:"]),
        ("half a checkpoint", &checkpoint, &|bytes| bytes.truncate(65), 3, &["checkpoint", "next:"]),
    ];
    for (what, file, bend, code, words) in cases {
        let good = fs::read(file).unwrap();
        let mut bad = good.clone();
        bend(&mut bad);
        fs::write(file, &bad).unwrap();
        let before = tree(&place.store());
        for args in [&["ls"][..], &["mk", "more"], &["serve"], &["init", "--if-missing"], &["--mode", "daemon", "ls"]] {
            clear(&place.run(args), code, words, &format!("{what}, {args:?}"));
            let mut after = tree(&place.store());
            after.retain(|(path, _)| !path.ends_with("daemon.log"));
            assert!(after == before, "{what}, {args:?} changed the store");
        }
        let _ = fs::remove_file(place.store().join("daemon.log"));
        fs::write(file, good).unwrap();
    }
    let away = place.path("away");
    fs::rename(&checkpoint, &away).unwrap();
    clear(&place.run(["ls"]), 3, &["no checkpoint", "next:"], "no checkpoint");
    fs::rename(&away, &checkpoint).unwrap();
    assert!(place.ok(["ls"]).contains("runs"));
}

/// Raises the version of a superblock, with a correct checksum.
fn raise_version(bytes: &mut [u8]) {
    bytes[8] = 99;
    bytes[12..16].fill(0);
    let mut sum = !0u32;
    for byte in bytes.iter() {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 0 { sum >> 1 } else { sum >> 1 ^ 0x82f6_3b78 };
        }
    }
    bytes[12..16].copy_from_slice(&(!sum).to_le_bytes());
}

#[test]
fn two_daemons_on_one_store() {
    let place = TestDir::served();
    for args in [&["serve"][..], &["serve", "--background"]] {
        clear(&place.run(args), 1, &["store", "(cenote) has it", "next:"], "a second daemon");
    }
    clear(&place.run(["--mode", "in-process", "ls"]), 1, &["(cenote) has it", "next:"], "in this process");
    assert!(place.ok(["ls"]).contains("runs"));
}

#[test]
fn a_daemon_starts_beside_commands_that_have_the_store_for_a_moment() {
    let place = TestDir::with_store();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    place.run(["--mode", "in-process", "ls"]);
                }
            });
        }
        let started: Vec<_> =
            (0..5).map(|_| (place.run(["serve", "--background", "--idle-exit", "60"]), place.run(["stop"]))).collect();
        is_over.store(true, Ordering::SeqCst);
        for (served, stopped) in started {
            assert_eq!((served.code, stopped.code), (0, 0), "{} {}", served.err, stopped.err);
        }
    });
}

#[test]
fn ranges_names_and_numbers_past_the_limits() {
    let place = TestDir::served();
    let (path, _) = place.file("data", 1000);
    place.ok(["put".as_ref(), path.as_os_str(), OsStr::new("runs/7")]);
    let long = "l".repeat(5000);
    let before = (place.json(["stat", "runs/7"]), place.ok(["ls"]));
    let cases: &[(&[&str], i32, &[&str])] = &[
        (&["truncate", "runs/7", "9223372036854775809"], 1, &["00000007"]),
        (&["truncate", "runs/8", "1"], 1, &["00000008", "next:"]),
        (&["cat", "runs/8"], 1, &["00000008"]),
        (&["cat", "--offset", "-1", "runs/7"], 2, &["-1"]),
        (&["get", "runs/7", "/nowhere/at/all/file"], 1, &["/nowhere/at/all"]),
        (&["stat", "runs/fffffffffffffffffffffffffffffffff"], 1, &["fffff"]),
        (&["mk", &long], 1, &["label", "4096"]),
        (&["rename", "runs", &long], 1, &["label", "4096"]),
        (&["mk", "x", "--policy", "sideways"], 1, &["x", "fast-first"]),
        (&["set", "runs", "--policy", "sideways"], 1, &["runs", "fast-first"]),
        (&["mk", "x", "--block-size", "3000"], 2, &["power of two"]),
        (&["index", "next", "runs/9"], 1, &["00000009"]),
        (&["index", "next", "--limit", "x", "runs/9"], 2, &["x"]),
        (&["tier", "add", "name=x,kind=directory,path=/proc/none,size=1GiB"], 1, &["/proc/none", "next:"]),
        (&["tier", "add", "name=x,kind=directory,path=tier,size=1EiB"], 1, &["`x`", "TiB"]),
        (&["tier", "add", "name=x,kind=memory,size=60TiB"], 1, &["`x`", "next:"]),
    ];
    for (args, code, words) in cases {
        clear(&place.run(*args), *code, words, &format!("{args:.60?}"));
        assert_eq!((place.json(["stat", "runs/7"]), place.ok(["ls"])), before, "{args:?} changed the store");
    }
}

#[test]
fn arguments_in_any_encoding() {
    let place = TestDir::served();
    let bad = |text: &[u8]| -> OsString { OsStr::from_bytes(text).to_owned() };
    let before = place.ok(["ls"]);
    let cases: [Vec<OsString>; 6] = [
        vec!["mk".into(), bad(b"\xff\xfe")],
        vec!["stat".into(), bad(b"runs/\xff")],
        vec!["rename".into(), "runs".into(), bad(b"\x80")],
        vec!["cat".into(), bad(b"\xc3\x28/1")],
        vec!["rm".into(), "-r".into(), bad(b"\xed\xa0\x80")],
        vec!["index".into(), "mk".into(), bad(b"runs\xff/1")],
    ];
    for args in cases {
        let said = place.run(&args);
        clear(&said, 1, &["\\x"], &format!("{args:?}"));
        assert!(said.err.is_ascii(), "{args:?}: {:?}", said.err);
        assert_eq!(place.ok(["ls"]), before, "{args:?}");
    }
    // Keys and file names are bytes.
    place.ok(["index", "mk", "runs/1"]);
    place.ok([OsString::from("index"), "put".into(), "runs/1".into(), bad(b"\xff\x01"), bad(b"\xfe")]);
    let said = place.run([OsString::from("index"), "get".into(), "--raw".into(), "runs/1".into(), bad(b"\xff\x01")]);
    assert_eq!((said.code, said.bytes), (0, b"\xfe".to_vec()));
    let said = place.run([OsString::from("--store"), bad(b"/tmp/\xff-none"), "ls".into()]);
    clear(&said, 1, &["store", "next:"], "a store at a path that is no text");
}

/// Runs a shell script in a separate mount namespace; `None` where that is not allowed.
fn in_namespace(place: &TestDir, script: &str) -> Option<CommandOutput> {
    let probe = Command::new("unshare").args(["-m", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("not tried: mount namespaces are not allowed here");
        return None;
    }
    let mut command = place.command(["--version"]);
    let mut shell = Command::new("unshare");
    shell.args(["-m", "sh", "-c", script]).env("CENOTE", command.get_program());
    for (name, value) in command.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let _ = &mut command;
    Some(common::said(shell.current_dir(&place.dir).stdin(Stdio::null())))
}

#[test]
fn a_full_disk_at_the_store_and_at_a_tier() {
    let place = TestDir::new();
    fs::create_dir(place.store()).unwrap();
    let memory = "--tier name=memory,kind=memory,size=1MiB";
    let script = format!(
        "mount -t tmpfs none /dev/shm && mount -t tmpfs -o size=8m none store && \"$CENOTE\" init {memory}; \
                 code=$?; ls store >&2; ls -d /dev/shm/* >&2; exit $code"
    );
    let Some(said) = in_namespace(&place, &script) else { return };
    clear(&said, 1, &["store", "no space", "next:"], "no room for the journal");
    assert!(
        !said.err.contains("superblock\n") && !said.err.contains("checkpoint"),
        "half a store was left: {}",
        said.err
    );
    assert!(!said.err.contains("/dev/shm/cenote-"), "shared memory was left: {}", said.err);
    fs::create_dir(place.path("small")).unwrap();
    for tier in ["name=f,kind=file,path=small/f,size=1GiB", "name=d,kind=directory,path=small/d,size=1GiB"] {
        let script = format!("mount -t tmpfs -o size=8m none small && \"$CENOTE\" init --tier {tier}");
        let said = in_namespace(&place, &script).unwrap();
        clear(&said, 1, &["small/", "no space", "next:"], tier);
        assert_eq!(place.run(["ls"]).code, 1, "{tier} left a store behind");
    }
}

#[test]
fn a_disk_that_fills_up_later() {
    let place = TestDir::new();
    fs::create_dir(place.store()).unwrap();
    // Space for two journal files, then none: acknowledged data stay readable, and failures name their cause.
    let script = "mount -t tmpfs -o size=140m none store && \"$CENOTE\" init --tier name=memory,kind=memory,size=8MiB \
         && \"$CENOTE\" mk runs && head -c 100000 /dev/urandom >data && \"$CENOTE\" put data runs/1 \
         && { cat /dev/zero >store/ballast; true; } 2>/dev/null; \
         \"$CENOTE\" get runs/1 back; echo get $? >&2; cmp data back; echo cmp $? >&2; \
         rm store/ballast; \"$CENOTE\" mk more && \"$CENOTE\" get -f runs/1 back && cmp data back";
    let Some(said) = in_namespace(&place, script) else { return };
    assert_eq!(said.code, 0, "{said:?}");
    assert!(!said.err.contains("panicked"), "{}", said.err);
    let first = said.err.contains("get 0") && said.err.contains("cmp 0");
    let refused = said.err.contains("get 1") && said.err.contains("no space") && said.err.contains("next:");
    assert!(first || refused, "{}", said.err);
}

#[test]
fn read_only_paths() {
    let place = TestDir::new();
    fs::create_dir(place.path("ro")).unwrap();
    for tier in ["name=f,kind=file,path=ro/f,size=1MiB", "name=d,kind=directory,path=ro/d,size=1MiB"] {
        let script = format!("mount -t tmpfs -o ro none ro && \"$CENOTE\" init --tier {tier}");
        let Some(said) = in_namespace(&place, &script) else { return };
        clear(&said, 1, &["ro/", "next:"], tier);
        assert_eq!(place.run(["ls"]).code, 1, "{tier} left a store behind");
    }
    let script = "mount -t tmpfs -o ro none ro && \"$CENOTE\" init ro/store";
    clear(&in_namespace(&place, script).unwrap(), 1, &["ro/store"], "a store");
    place.init("1MiB", "16MiB");
    place.ok(["mk", "runs"]);
    let script = "mount --bind store store && mount -o remount,ro,bind store && \"$CENOTE\" ls";
    clear(&in_namespace(&place, script).unwrap(), 1, &["store", "next:"], "a store on a read-only file system");
    assert!(place.ok(["ls"]).contains("runs"));
}

/// Runs the command as another user; `None` unless this is root and `setpriv` exists.
fn as_nobody(place: &TestDir, args: &[&str]) -> Option<CommandOutput> {
    let probe =
        Command::new("setpriv").args(["--reuid=65534", "--clear-groups", "true"]).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("not tried: this is not root");
        return None;
    }
    // Others may not be allowed into the build directory.
    let copy = place.path("cenote");
    if !copy.exists() {
        fs::copy(env!("CARGO_BIN_EXE_cenote"), &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&place.dir, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&copy).args(args);
    command.env_clear().env("CENOTE_STORE", place.store()).env("CENOTE_BIN", &copy).current_dir("/tmp");
    Some(common::said(command.stdin(Stdio::null())))
}

#[test]
fn other_users() {
    let place = TestDir::served();
    let (path, bytes) = place.file("data", 10_000);
    place.ok(["put".as_ref(), path.as_os_str(), OsStr::new("runs/7")]);
    let Some(said) = as_nobody(&place, &["ls"]) else { return };
    clear(&said, 1, &["store"], "a store of somebody else");
    for args in [&["stop"][..], &["destroy", "--yes", "--force"], &["mk", "x"], &["rm", "-r", "runs"]] {
        clear(&as_nobody(&place, args).unwrap(), 1, &["store"], &format!("{args:?}"));
    }
    assert_eq!(place.run(["cat", "runs/7"]).bytes, bytes);
    let said = as_nobody(&place, &["init", "/etc/cenote-store"]).unwrap();
    clear(&said, 1, &["/etc/cenote-store", "ermission"], "where one may not write");

    // Users whom the owner named may read, or also write.
    let place = TestDir::new();
    let disk = format!("name=disk,kind=directory,path={},size=16MiB", place.path("disk").display());
    place.ok(["init", "--tier", "name=memory,kind=memory,size=4MiB", "--tier", &disk, "--reader", "65534"]);
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    place.ok(["mk", "runs"]);
    let (path, bytes) = place.file("data", 10_000);
    place.ok(["put".as_ref(), path.as_os_str(), OsStr::new("runs/7")]);
    fs::set_permissions(place.store(), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(place.store().join("socket"), fs::Permissions::from_mode(0o666)).unwrap();
    let said = as_nobody(&place, &["cat", "runs/7"]).unwrap();
    assert_eq!((said.code, &said.bytes), (0, &bytes), "{}", said.err);
    for args in [&["mk", "x"][..], &["rm", "runs/7"], &["truncate", "runs/7", "1"], &["checkpoint"], &["stop"]] {
        clear(&as_nobody(&place, args).unwrap(), 1, &["ermission", "read"], &format!("a reader, {args:?}"));
    }
    assert_eq!(place.run(["cat", "runs/7"]).bytes, bytes);
}
