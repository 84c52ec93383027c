//! Pins, archives, queries, rules and plugins from the command line.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{CommandOutput, TestDir};

const ID: &str = "runs/2a";

/// Creates memory, two directories, and a container `runs`.
fn three_tiers(memory: &str) -> TestDir {
    let place = TestDir::new();
    let memory = format!("name=ram,kind=memory,size={memory}");
    let tier = |name: &str| format!("name={name},kind=directory,path={},size=256MiB", place.path(name).display());
    place.ok(["init", "--no-measure", "--tier", &memory, "--tier", &tier("near"), "--tier", &tier("far")]);
    place.ok(["mk", "runs"]);
    place
}

fn refused(said: &CommandOutput, words: &[&str]) {
    assert_eq!(said.code, 1, "{said:?}");
    for word in words {
        assert!(said.err.contains(word), "no `{word}` in {}", said.err);
    }
}

/// Returns the tiers that an object is read from, as `explain` reports.
fn tiers_of(place: &TestDir, object: &str) -> Vec<String> {
    let ranges = place.json(["explain", object])["ranges"].as_array().unwrap().clone();
    let mut tiers: Vec<String> = ranges.iter().map(|range| range["tier"].as_str().unwrap().to_owned()).collect();
    tiers.dedup();
    tiers
}

#[test]
fn pins_are_set_shown_and_refused() {
    let place = three_tiers("64MiB");
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    let (path, bytes) = place.file("data", 3 << 20);
    place.ok(["put", path.to_str().unwrap(), ID]);
    place.ok(["flush"]);
    assert_eq!(place.json(["stat", ID])["pinned_bytes"], 0);
    assert!(place.ok(["pin", ID, "--tier", "far", "--dry-run"]).contains("would move"));
    place.ok(["pin", ID, "--tier", "far"]);
    assert_eq!(tiers_of(&place, ID), ["far"]);
    assert_eq!(place.json(["stat", ID])["pinned_bytes"], 3 << 20);
    assert!(place.ok(["ls", "-l", "runs"]).contains("pinned"));
    assert!(place.ok(["explain", ID]).contains("pinned: it stays here"));
    refused(&place.run(["promote", ID, "--to", "ram"]), &["3.0 MiB", "were not moved", "unpin it first"]);
    place.ok(["stop"]);
    assert_eq!(place.json(["stat", ID])["pinned_bytes"], 3 << 20, "after a restart");
    place.ok(["unpin", "--where", "pinned=yes"]);
    assert_eq!(place.json(["stat", ID])["pinned_bytes"], 0);
    place.ok(["pin", ID, "--range", "0-64KiB"]);
    place.ok(["unpin", "runs"]);
    place.ok(["promote", ID, "--to", "ram"]);
    assert_eq!(place.run(["cat", ID]).bytes, bytes);

    refused(&place.run(["pin", ID, "--tier", "tape"]), &["tape"]);
    refused(&place.run(["pin", "runs/99"]), &["99"]);
    refused(&place.run(["pin", "nowhere"]), &["nowhere"]);
    refused(&place.run(["pin", ID, "--where", "size>1"]), &["--where", "object="]);
    refused(&place.run(["pin", "runs", "--where", "size>>1"]), &["column 6"]);
    refused(&place.run(["pin", "runs", "--where", "sise>1"]), &["column 1", "sise"]);
    assert_eq!(place.run(["pin"]).code, 2, "neither a target nor a query");
    assert!(place.ok(["pin", "--where", "size>1TiB"]).contains("nothing"));
    for n in 0..20 {
        place.ok(["put", path.to_str().unwrap(), &format!("runs/{n:x}0")]);
    }
    refused(&place.run(["pin", "runs", "--tier", "ram"]), &["ram", "watermark"]);
    for command in ["pin", "unpin", "archive", "release", "promote", "demote", "evict"] {
        assert!(place.ok([command, "--help"]).contains("size>=1GiB"), "{command}");
    }
}

/// `df`, `status` and `top` show where the values of records are, and how many may be in memory.
#[test]
fn weights_are_set_shown_and_bounded() {
    let place = three_tiers("16MiB");
    place.ok(["mk", "heavy", "--weight", "4"]);
    let weights = |place: &TestDir| -> Vec<(String, u64)> {
        let listed = place.json(["ls"]);
        let of = |it: &serde_json::Value| (it["label"].as_str().unwrap().to_owned(), it["weight"].as_u64().unwrap());
        listed.as_array().unwrap().iter().map(of).collect()
    };
    assert_eq!(weights(&place), [("heavy".to_owned(), 4), ("runs".to_owned(), 1)]);
    place.ok(["set", "runs", "--weight", "1000"]);
    place.ok(["set", "heavy", "--quota", "1MiB"]);
    assert_eq!(weights(&place), [("heavy".to_owned(), 4), ("runs".to_owned(), 1000)], "what is not named stays");
    for weight in ["0", "1001", "many"] {
        let said = place.run(["set", "runs", "--weight", weight]);
        assert!(said.code != 0 && said.err.contains("--weight"), "{weight}: {said:?}");
    }
    assert_eq!(weights(&place)[1].1, 1000);
}

#[test]
fn weights_of_users_are_set_shown_and_bounded() {
    let place = three_tiers("16MiB");
    assert!(place.ok(["weight"]).contains("all users have weight 1"));
    assert_eq!(place.ok(["weight", "root"]).trim(), "1");
    place.ok(["weight", "root", "4"]);
    let told = place.json(["weight", "4000000001", "2"]);
    assert_eq!((&told["users"][0]["uid"], &told["users"][0]["weight"]), (&4_000_000_001_u32.into(), &2.into()));
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    let listed = place.json(["weight"]);
    let users: Vec<_> = listed["users"].as_array().unwrap().iter().map(|it| (&it["user"], &it["weight"])).collect();
    assert_eq!(users, [(&"root".into(), &4.into()), (&"4000000001".into(), &2.into())], "after a restart");
    assert!(listed["behind"].as_array().unwrap().is_empty() && listed["away"].as_array().unwrap().is_empty());
    let lines = place.ok(["weight"]);
    assert!(lines.contains("root") && lines.contains("4000000001") && lines.contains("all others"), "{lines}");
    let told = place.json(["top", "--once"])["users"].clone();
    assert_eq!((&told[0]["uid"], &told[0]["weight"]), (&0.into(), &4.into()), "{told}");
    assert!(place.ok(["top", "--once"]).contains("weight"));
    for weight in ["0", "1001", "many"] {
        assert_eq!(place.run(["weight", "root", weight]).code, 2, "{weight}");
    }
    refused(&place.run(["weight", "nobody-has-this-name", "3"]), &["nobody-has-this-name", "no user of that name"]);
    place.ok(["weight", "root", "1"]);
    assert_eq!(place.json(["weight"])["users"].as_array().unwrap().len(), 1);
}

#[test]
fn the_budget_of_values_is_shown() {
    let place = three_tiers("64MiB");
    let budget = [("CENOTE_VALUES_MEMORY", "12MiB")];
    assert_eq!(place.run_in(["serve", "--background", "--idle-exit", "60"], &budget).code, 0);
    for command in ["df", "status"] {
        let said = place.ok([command]);
        assert!(said.contains("in memory (budget 12.0 MiB), 0 B on tiers"), "{command}: {said}");
    }
    assert_eq!(place.json(["df"])["values"]["budget_bytes"], 12 << 20);
    assert!(!place.ok(["top", "--once"]).contains("budget"), "there are no records");
    place.ok(["index", "mk", "runs/1"]);
    place.ok(["index", "put", "runs/1", "key", "value"]);
    assert!(place.ok(["top", "--once"]).contains("(budget 12.0 MiB), 0 B on tiers"));
}

#[test]
fn archives_and_releases() {
    let place = three_tiers("64MiB");
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    let (path, bytes) = place.file("data", 5 << 20);
    place.ok(["put", path.to_str().unwrap(), ID]);
    let dry = place.json(["archive", ID, "--to", "far", "--dry-run"]);
    assert_eq!((&dry["bytes"], &dry["moves"][0]["to"]), (&(5 << 20).into(), &"far".into()));
    refused(&place.run(["release", ID, "--to", "far"]), &["5.0 MiB", "archive it first"]);
    let done = place.json(["archive", "--where", "label=runs and size>=1MiB", "--to", "far"]);
    assert_eq!((&done["moved_bytes"], &done["staying_bytes"]), (&(5 << 20).into(), &0.into()));
    assert_eq!(place.json(["archive", ID, "--to", "far"])["already_bytes"], 5 << 20);
    assert_eq!(tiers_of(&place, ID), ["ram"]);
    place.ok(["release", "runs", "--to", "far"]);
    assert_eq!(tiers_of(&place, ID), ["far"]);
    assert_eq!(place.run(["cat", ID]).bytes, bytes);
    refused(&place.run(["archive", ID, "--to", "ram"]), &["ram", "power loss"]);
    refused(&place.run(["archive", ID, "--to", "moon"]), &["moon"]);
    place.ok(["verify"]);
}

#[test]
fn an_archive_goes_on_where_a_killed_daemon_left_it() {
    let place = three_tiers("128MiB");
    let mut daemon = place.command(["serve"]).stderr(Stdio::null()).spawn().unwrap();
    let (path, bytes) = place.file("data", 8 << 20);
    wait_for("the daemon", || place.json(["status"])["daemon"] == true);
    for n in 1..=8 {
        place.ok(["put", path.to_str().unwrap(), &format!("runs/{n}")]);
    }
    place.ok(["flush"]);
    let far_bytes = |place: &TestDir| {
        let tiers = place.json(["tiers"]);
        let far = tiers.as_array().unwrap().iter().find(|tier| tier["name"] == "far").unwrap().clone();
        far["used_bytes"].as_u64().unwrap()
    };
    let mut archive =
        place.command(["archive", "runs", "--to", "far"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_for("some of it", || far_bytes(&place) > 0 || archive.try_wait().unwrap().is_some());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    let _ = archive.wait(); // continued with another daemon, or reports that it could not
    let rest = place.json(["archive", "runs", "--to", "far"]);
    let (moved, already) = (rest["moved_bytes"].as_u64().unwrap(), rest["already_bytes"].as_u64().unwrap());
    assert_eq!((moved + already, &rest["staying_bytes"]), (64 << 20, &0.into()), "{rest}");
    place.ok(["release", "runs", "--to", "far"]);
    for n in 1..=8 {
        let name = format!("runs/{n}");
        assert_eq!(tiers_of(&place, &name), ["far"]);
        assert_eq!(place.run(["cat", &name]).bytes, bytes);
    }
    place.ok(["verify"]);
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

const RULES: &str = "version = 1\n[[rule]]\nname = \"logs\"\nlabel = \"log*\"\ntier = \"far\"\n\n\
                     [[lifecycle]]\nname = \"old\"\nlabel = \"runs\"\nage = \"> 30d\"\naction = \"archive\"\nto = \"far\"\n";

#[test]
fn rules_of_ones_own() {
    let place = three_tiers("64MiB");
    place.ok(["serve", "--background", "--idle-exit", "60"]);
    refused(&place.run(["mk", "logs", "--policy", "user"]), &["cenote policy set"]);
    let file = place.path("rules.toml");
    let name = file.to_str().unwrap();
    fs::write(&file, RULES.replace("tier = \"far\"", "tier = \"tape\"")).unwrap();
    refused(&place.run(["policy", "check", name]), &["line 5", "no tier `tape`", "ram, near, far"]);
    refused(&place.run(["policy", "set", name]), &["line 5"]);
    assert!(place.ok(["policy", "show"]).contains("refused: line 5"));
    fs::write(&file, RULES).unwrap();
    place.ok(["policy", "check", name]);
    assert_eq!(place.json(["policy", "show"])["text"], "", "a check changes nothing");
    place.ok(["policy", "set", name]);
    place.ok(["mk", "logs", "--policy", "user"]);
    let (path, _) = place.file("data", 1 << 20);
    place.ok(["put", path.to_str().unwrap(), "logs/1"]);
    assert_eq!(tiers_of(&place, "logs/1"), ["far"], "as the rule says");
    place.ok(["put", path.to_str().unwrap(), ID]);
    assert!(place.ok(["explain", ID]).contains("in 30 days, if nothing changes: rule `old` (line 8)"));
    assert!(place.ok(["rules"]).contains("archive to `far`"));
    assert!(place.ok(["rules", "--dry-run"]).contains("nothing now"));
    fs::write(&file, RULES.replace("30d", "30 years")).unwrap();
    refused(&place.run(["policy", "set", name]), &["line 10, column 7"]);
    place.ok(["stop"]);
    let shown = place.ok(["policy", "show"]);
    assert!(shown.contains("30d") && shown.contains("followed by: logs"), "the last good one stays: {shown}");
    assert!(place.ok(["policies"]).contains("user"));
    place.ok(["policy", "clear"]);
    assert!(place.ok(["policy", "show"]).contains("no rules are set"));
    assert_eq!(place.run_with_input(RULES.as_bytes(), ["policy", "set", "-"]).code, 0);
    refused(&place.run(["policy", "set", "/nowhere"]), &["/nowhere"]);
    assert!(place.json(["destroy", "--yes"]).is_object());
    assert!(!place.store().exists(), "nothing of it is left");
}

/// Builds the example with a macro that makes it misbehave. `None`: there is no C compiler.
fn plugin(dir: &Path, macro_name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy-plugin/roomiest.c");
    let library = dir.join(format!("lib{macro_name}.so"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", &format!("-D{macro_name}"), "-o"])
        .args([&library, &source])
        .stderr(Stdio::null())
        .status();
    match built {
        Ok(status) => {
            assert!(status.success(), "the example builds");
            Some(library)
        }
        Err(error) => {
            eprintln!("skipped: no C compiler `cc` ({error}); `make setup` installs one");
            None
        }
    }
}

#[test]
fn policies_from_plugins() {
    for (name, failure) in [("SOUND", ""), ("NONSENSE", "answered nonsense"), ("DAWDLE", "took more than")] {
        let place = three_tiers("64MiB");
        let Some(library) = plugin(&place.dir, name) else { return };
        refused(&place.run(["mk", "c", "--policy", "roomiest"]), &["no such placement policy"]);
        let library = library.to_str().unwrap();
        place.ok(["serve", "--background", "--idle-exit", "60", "--policy-plugin", library]);
        place.ok(["mk", "c", "--policy", "roomiest"]);
        let (path, bytes) = place.file("data", 1 << 20);
        for n in 1..=12 {
            place.ok(["put", path.to_str().unwrap(), &format!("c/{n}")]);
            assert_eq!(place.run(["cat", &format!("c/{n}")]).bytes, bytes);
        }
        // The tiers are mostly empty: `fast-first` would have put everything into memory.
        let is_followed = (1..=12).any(|n| tiers_of(&place, &format!("c/{n}")) != ["ram"]);
        assert_eq!(is_followed, failure.is_empty(), "{name}");
        let shown = place.json(["policy", "show"])["plugins"][0].clone();
        assert_eq!(shown["name"], "roomiest");
        let said = shown["failure"].as_str().unwrap();
        // On a busy machine even the correct plugin may be late once.
        assert!(said.contains(failure) && (!failure.is_empty() || !said.contains("nonsense")), "{name}: {said}");
        // Programs that open the store themselves find it too.
        place.ok(["stop"]);
        place.ok(["put", path.to_str().unwrap(), "c/20"]);
        assert!(place.ok(["policy", "show"]).contains("roomiest"));
        fs::remove_file(library).unwrap();
        place.ok(["put", path.to_str().unwrap(), "c/21"]);
        assert!(place.ok(["policy", "show"]).contains("was not loaded"), "the store opens without it");
        assert!(place.ok(["explain", "c/21"]).contains("`fast-first` decides"));
        refused(&place.run(["serve", "--policy-plugin", library]), &["policy plugin"]);
        place.ok(["serve", "--background", "--idle-exit", "60", "--policy-plugin", "off"]);
        assert_eq!(place.json(["policy", "show"])["plugins"].as_array().unwrap().len(), 0);
    }
}
