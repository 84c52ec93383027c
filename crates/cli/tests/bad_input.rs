//! Bad input: a clear error with its subject and the next step, the right exit code, and no change to the store.

mod common;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use common::{TestDir, tree};

/// Arguments, exit code, and a word that the error must contain.
type Case = (&'static [&'static str], i32, &'static str);

const CASES: [Case; 34] = [
    (&[], 2, "Usage"),
    (&["frobnicate"], 2, "frobnicate"),
    (&["ls", "none"], 1, "none"),
    (&["stat", "none"], 1, "none"),
    (&["stat", "runs/1"], 1, "00000001"),
    (&["stat", "none/1"], 1, "none"),
    (&["cat", "runs/1"], 1, "00000001"),
    (&["cat", "runs"], 1, "CONTAINER/ID"),
    (&["cat", "runs/xyz"], 1, "xyz"),
    (&["cat", "runs/111111111111111111111111111111111"], 1, "32 digits"),
    (&["get", "runs/1", "file"], 1, "00000001"),
    (&["put", "no such file", "runs"], 1, "no such file"),
    (&["put", ".", "runs"], 1, "directory"),
    (&["put", "present", "none"], 1, "cenote mk none"),
    (&["put", "present", "runs/zz"], 1, "zz"),
    (&["put", "--block-size", "4095", "present", "runs"], 2, "power of two"),
    (&["mk", "runs"], 1, "runs"),
    (&["mk", ""], 1, "label"),
    (&["mk", "x", "--block-size", "32"], 2, "power of two"),
    (&["mk", "x", "--block-size", "32MiB"], 2, "power of two"),
    (&["mk", "x", "--durability", "forever"], 2, "forever"),
    (&["mk", "x", "--quota", "12 apples"], 2, "apples"),
    (&["rename", "none", "x"], 1, "none"),
    (&["rm", "runs"], 1, "-r"),
    (&["rm", "runs/1"], 1, "00000001"),
    (&["rm", "-r", "runs", "none"], 1, "none"),
    (&["tier", "add", "name=x,kind=tape,size=1"], 2, "tape"),
    (&["tier", "add", "name=memory,kind=memory,size=1MiB"], 1, "memory"),
    (&["tier", "add", "name=x,kind=file,path=/nowhere/at/all,size=1MiB"], 1, "/nowhere/at/all"),
    (&["tier", "drain", "none"], 1, "none"),
    (&["tier", "remove", "none"], 1, "none"),
    (&["truncate", "runs/1", "16EiB"], 2, "2^64"),
    (&["index", "get", "runs/1", "key"], 1, "index"),
    (&["index", "put", "--hex", "runs/1", "xyz", "00"], 1, "xyz"),
];

#[test]
fn each_error_is_clear_and_changes_nothing() {
    let place = TestDir::served();
    fs::write(place.path("present"), b"x").unwrap();
    let state = || {
        let status = place.json(["status"]);
        // Not the epoch: a refused request may use one, since its outcome is remembered.
        let counts = ["containers", "objects", "extents", "indices", "records"].map(|count| status[count].clone());
        (counts, status["tiers"].as_array().unwrap().len(), place.ok(["ls"]))
    };
    let before = state();
    for (args, code, word) in CASES {
        let said = place.run(args);
        assert_eq!(said.code, code, "{args:?}: {said:?}");
        assert!(said.err.contains(word), "{args:?} says nothing of `{word}`: {}", said.err);
        assert!(said.out.is_empty(), "{args:?}: {}", said.out);
        assert!(!said.err.contains("panicked"), "{args:?}: {}", said.err);
        assert_eq!(state(), before, "{args:?} changed the store");
    }
    assert!(!place.path("file").exists());
}

#[test]
fn labels_in_any_encoding() {
    let place = TestDir::served();
    let bad = place.run([OsStr::new("mk"), OsStr::from_bytes(b"caf\xe9")]);
    assert_eq!(bad.code, 1);
    assert!(bad.err.contains("caf\\xe9") && bad.err.contains("UTF-8"), "{}", bad.err);
    for label in ["läufe 走る", "a/b/c", "-", ".", "with \u{1b}[2J escape", "\"quoted\" \\ 'label'"] {
        place.ok(["mk", "--", label]);
        assert_eq!(place.json(["stat", "--", label])["label"], label);
    }
    assert!(!place.ok(["ls"]).contains('\u{1b}'), "a label can drive the terminal");
}

#[test]
fn no_store_there() {
    let place = TestDir::new();
    for command in ["status", "ls", "verify", "tiers"] {
        let said = place.run([command]);
        assert_eq!(said.code, 1);
        assert!(said.err.contains("store") && said.err.contains("next:"), "{}", said.err);
    }
    assert!(!place.store().exists(), "reading made a store");
}

#[test]
fn something_else_is_there() {
    let place = TestDir::new();
    fs::create_dir(place.store()).unwrap();
    fs::write(place.store().join("diary.txt"), "mine").unwrap();
    let before = tree(&place.store());
    for args in [&["status"][..], &["init"], &["init", "--if-missing"]] {
        let said = place.run(args);
        assert_eq!(said.code, 1, "{args:?}: {said:?}");
        assert!(said.err.contains("store"), "{}", said.err);
        assert_eq!(tree(&place.store()), before, "{args:?}");
    }
    fs::remove_dir_all(place.store()).unwrap();
    fs::write(place.store(), "a file").unwrap();
    assert_eq!(place.run(["init"]).code, 1);
    assert_eq!(fs::read(place.store()).unwrap(), b"a file");
}

#[test]
fn bad_tiers_of_a_new_store() {
    let place = TestDir::new();
    let cases = [
        ("name=x,kind=memory", 2, "size"),
        ("name=x,kind=directory,path=/proc/none,size=1GiB", 1, "/proc/none"),
        ("name=x,kind=file,path=/nowhere/at/all,size=1GiB", 1, "/nowhere/at/all"),
        ("name=x,kind=memory,size=0", 1, "x"),
        ("name=x,kind=file,path=big,size=8EiB", 1, "x"),
    ];
    for (tier, code, word) in cases {
        let said = place.run(["init", "--tier", tier]);
        assert_eq!(said.code, code, "{tier}: {said:?}");
        assert!(said.err.contains(word), "{tier}: {}", said.err);
        assert_eq!(place.run(["status"]).code, 1, "{tier} left a store behind");
    }
    let twice = ["init", "--tier", "name=x,kind=memory,size=1MiB", "--tier", "name=x,kind=memory,size=1MiB"];
    assert!(place.run(twice).err.contains("two tiers"));
    place.init("16MiB", "64MiB");
}

#[test]
fn errors_of_a_file_have_their_line() {
    let place = TestDir::new();
    for (text, line, word) in [
        ("[[tier]]\nname = \"a\"\nkind = \"tape\"\n", "store.toml:3", "tape"),
        ("\n[[tier]]\nname = \"a\"\nkind = \"memory\"\nsize = \"12 apples\"\n", "store.toml:5", "apples"),
        ("[[tier]]\nname = 5\n", "store.toml:2", "string"),
        ("wirters = [1]\n", "store.toml:1", "wirters"),
        ("[[tier]\n", "store.toml:1", "unclosed"),
    ] {
        fs::write(place.path("store.toml"), text).unwrap();
        let said = place.run(["init", "--config", "store.toml"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert!(said.err.contains(line), "{text}: {}", said.err);
        assert!(said.err.contains(word), "{text}: {}", said.err);
    }
    assert!(!place.store().exists());
    assert_eq!(place.run(["init", "--config", "none.toml"]).code, 1);
}

#[test]
fn a_copy_that_does_not_fit_leaves_nothing() {
    let place = TestDir::new();
    place.init("4MiB", "8MiB");
    place.ok(["mk", "runs"]);
    let (path, _) = place.file("large", 40 << 20);
    let said = place.run(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.err.contains("memory") && said.err.contains("disk"), "{}", said.err);
    assert_eq!(place.ok(["ls", "runs"]), "");
    let (path, bytes) = place.file("small", 1 << 20);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref()]);
    assert_eq!(place.run(["cat", &name]).bytes, bytes);
}

#[test]
fn keys_and_values_have_limits() {
    let place = TestDir::served();
    place.ok(["index", "mk", "runs/1"]);
    // The longest key is longer than a command line can hold.
    place.ok(["index", "put", "runs/1", &"k".repeat(100 << 10), "v"]);
    let large = vec![b'v'; (16 << 20) + 1];
    let said = place.run_with_input(&large, ["index", "put", "runs/1", "k", "-"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert_eq!(place.json(["index", "next", "runs/1"]).as_array().unwrap().len(), 1);
}

#[test]
fn damage_is_found_and_named() {
    let place = TestDir::new();
    let disk = format!("name=disk,kind=file,path={},size=32MiB", place.path("disk").display());
    place.ok(["init", "--tier", &disk]);
    place.ok(["mk", "runs"]);
    let (path, bytes) = place.file("data", 1 << 20);
    let name = place.ok(["put".as_ref(), path.as_os_str(), "runs".as_ref(), "--flush".as_ref()]);
    let why = place.json(["explain", &name]);
    let at = why["ranges"][0]["device_offset"].as_u64().unwrap();
    let mut raw = fs::read(place.path("disk")).unwrap();
    // The device decides where its first byte is in its file: search for the content.
    let head = raw.windows(64).position(|window| window == &bytes[..64]).expect("the content is in the file") as u64;
    assert!(head >= at);
    raw[head as usize + 100_000] ^= 1;
    fs::write(place.path("disk"), &raw).unwrap();
    let said = place.run(["verify"]);
    assert_eq!(said.code, 3, "{said:?}");
    assert!(said.out.contains(&name) && said.out.contains("disk"), "{}", said.out);
    let read = place.run(["cat", &name]);
    assert_eq!(read.code, 3, "{:?}", read.err);
    assert!(read.err.contains(name.strip_prefix("runs/").unwrap()), "{}", read.err);
}

#[test]
fn a_wrong_version_is_named() {
    let place = TestDir::with_store();
    let files = tree(&place.store());
    // In any file: one flipped byte must never cause a panic or a wrong answer.
    for (path, good) in &files {
        for at in [0, 8, 9, 12, 20] {
            if at < good.len() {
                let mut bad = good.clone();
                bad[at] ^= 0x40;
                fs::write(path, &bad).unwrap();
                let said = place.run(["ls"]);
                assert!(
                    matches!(said.code, 0 | 1 | 3) && !said.err.contains("panicked"),
                    "{}, byte {at}: {said:?}",
                    path.display()
                );
                if said.code == 0 {
                    assert!(said.out.contains("runs"), "{}, byte {at}: {said:?}", path.display());
                }
                fs::write(path, good).unwrap();
            }
        }
    }
    assert!(place.ok(["ls"]).contains("runs"));
}
