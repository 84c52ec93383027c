//! The command with tiers in real object services. Skipped, with the reason, where they are not installed.

mod common;
#[path = "../../device/tests/servers/mod.rs"]
mod servers;

use std::fs;
use std::path::Path;

use common::TestDir;

const ID: &str = "c/0000000000000000000000000000000a";

/// Creates a store of memory, S3 and Swift with a container `c`; its secrets are in `secrets.ini`.
fn place(prefix: &str) -> Option<TestDir> {
    let (s3, swift) = (servers::service("s3")?, servers::service("swift")?);
    let place = TestDir::new();
    let secrets =
        "[s3]\naccess_key_id = test:tester\nsecret_access_key = testing\n[swift]\nuser = test:tester\nkey = testing\n";
    fs::write(place.path("secrets.ini"), secrets).unwrap();
    let config = format!(
        "[[tier]]\nname = \"ram\"\nkind = \"memory\"\nsize = \"32MiB\"\n\
         [[tier]]\nname = \"cold\"\nkind = \"s3\"\npath = \"bucket/{prefix}/s3\"\nsize = \"1GiB\"\n\
         endpoint = \"{}\"\ncredentials = \"secrets.ini#s3\"\npack = \"1MiB\"\n\
         [[tier]]\nname = \"colder\"\nkind = \"swift\"\npath = \"bucket/{prefix}/swift\"\nsize = \"1GiB\"\n\
         endpoint = \"{}\"\ncredentials = \"secrets.ini#swift\"\n",
        s3["endpoint"], swift["endpoint"]
    );
    fs::write(place.path("tiers.toml"), config).unwrap();
    place.ok(["init", "--config", "tiers.toml"]);
    place.ok(["mk", "c"]);
    Some(place)
}

fn lose_power(place: &TestDir) {
    let id = place.json(["status"])["store"].as_str().unwrap().to_owned();
    place.run(["stop"]);
    fs::remove_dir_all(Path::new("/dev/shm").join(format!("cenote-{id}"))).unwrap();
}

#[test]
fn what_is_flushed_is_in_the_bucket() {
    let Some(place) = place("flushed") else { return };
    place.file("data", 5_000_000);
    place.ok(["put", "data", ID]);
    place.ok(["flush"]);
    let said = place.ok(["explain", ID]);
    assert!(said.contains("copy on `cold`"), "{said}");
    lose_power(&place);
    let said = place.ok(["explain", ID]);
    assert!(said.contains("on a persistent tier") && said.contains("cold"), "{said}");
    let said = place.ok(["verify"]);
    assert!(said.contains("all is well"), "{said}");
    // Data that are only there come back before a read, whole or in part, as often as needed.
    let is_whole = |place: &TestDir| {
        place.ok(["get", "--force", ID, "back"]);
        fs::read(place.path("back")).unwrap() == fs::read(place.path("data")).unwrap()
    };
    assert!(is_whole(&place));
    let said = place.ok(["explain", ID]);
    assert!(said.contains("copy on `cold`") && said.contains("ram"), "{said}");
    let said = place.ok(["evict", "c", "--dry-run"]);
    assert!(said.contains("without I/O") && said.contains("cold"), "{said}");
    assert!(place.ok(["explain", ID]).contains("ram"), "a dry run moves nothing");
    place.ok(["evict", "c"]);
    let said = place.ok(["explain", ID]);
    assert!(!said.contains("ram"), "{said}");
    let part = place.run(["cat", ID, "--offset", "4999990", "--length", "10"]);
    assert_eq!(part.bytes.len(), 10, "{}", part.err);
    assert!(is_whole(&place));
    place.ok(["evict", ID]);
    place.ok(["promote", ID, "--to", "ram"]);
    assert!(place.ok(["explain", ID]).contains("ram"));
    place.ok(["tier", "drain", "cold"]);
    let said = place.ok(["explain", ID]);
    assert!(said.contains("colder"), "{said}");
    place.ok(["tier", "remove", "cold"]);
    let said = place.ok(["verify"]);
    assert!(said.contains("all is well"), "{said}");
    place.ok(["destroy", "--yes"]);
    // A prefix with anything left would be refused.
    fs::create_dir_all(place.store()).unwrap();
    place.ok(["init", "--config", "tiers.toml"]);
    place.ok(["destroy", "--yes"]);
}

#[test]
fn a_tier_that_cannot_be_reached_is_said_to_be() {
    let Some(place) = place("reached") else { return };
    place.file("data", 300_000);
    place.ok(["put", "data", ID]);
    place.ok(["flush"]);
    let good = fs::read_to_string(place.path("secrets.ini")).unwrap();
    fs::write(place.path("secrets.ini"), good.replace("testing", "expired")).unwrap();
    let said = place.run(["status"]);
    assert!(said.out.contains("FAILED"), "{}", said.out);
    let said = place.run([
        "tier",
        "add",
        "name=more,kind=s3,path=bucket/reached/s3,size=1GiB,endpoint=http://127.0.0.1:1,credentials=env:NONE",
    ]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("`more`") && said.err.contains("NONE_"), "{}", said.err);
    fs::write(place.path("secrets.ini"), good).unwrap();
    let said = place.ok(["verify"]);
    assert!(said.contains("all is well"), "{said}");
    // Another store must not use the prefix.
    let other = place.run(["--store", "other", "init", "--config", "tiers.toml"]);
    assert!(other.code == 1 && other.err.contains("exists already") && other.err.contains("prefix"), "{other:?}");
    place.ok(["destroy", "--yes"]);
}
