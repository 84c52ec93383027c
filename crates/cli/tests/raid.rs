//! The command with a tier on three disks: two of them are lost, one after the other, and the daemon is killed in between.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::TestDir;
use rustix::process::{Pid, Signal, kill_process};

const ID: &str = "c/0000000000000000000000000000000a";
const OTHER: &str = "c/0000000000000000000000000000000b";

struct Store {
    place: TestDir,
    data: PathBuf,
}

impl Store {
    fn new() -> Self {
        let place = TestDir::new();
        let disks = (1..=3).map(|number| format!("disk{number}")).collect::<Vec<_>>().join(":");
        let safe = format!("name=safe,kind=raid,path={disks},size=1GiB,layout=2+1,pack=1MiB");
        place.ok(["init", "--tier", "name=ram,kind=memory,size=64MiB", "--tier", &safe]);
        place.ok(["mk", "c"]);
        let (data, _) = place.file("data", 9_000_000);
        Self { place, data }
    }
    fn disk(&self, number: usize) -> PathBuf {
        self.place.path(&format!("disk{number}"))
    }
    fn serve(&self) {
        self.place.ok(["serve", "--background", "--idle-exit", "60"]);
    }
    /// Kills the daemon, and drops what was in memory.
    fn lose_power(&self) {
        let status = self.place.json(["status"]);
        let holder = cenote_server::holder(&self.place.store()).expect("a daemon serves the store");
        kill_process(Pid::from_raw(holder.pid as i32).unwrap(), Signal::KILL).unwrap();
        let begun = Instant::now();
        while cenote_server::holder(&self.place.store()).is_some_and(|now| now.pid == holder.pid) {
            assert!(begun.elapsed() < Duration::from_secs(20), "the daemon lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
        let id = status["store"].as_str().unwrap();
        fs::remove_dir_all(Path::new("/dev/shm").join(format!("cenote-{id}"))).unwrap();
    }
    fn note(&self) -> String {
        let tiers = self.place.json(["tiers"]);
        let safe = tiers.as_array().unwrap().iter().find(|tier| tier["name"] == "safe").unwrap();
        safe["note"].as_str().unwrap().to_owned()
    }
    fn is_whole(&self, id: &str) -> bool {
        self.place.ok(["get", "--force", id, "back"]);
        fs::read(self.place.path("back")).unwrap() == fs::read(&self.data).unwrap()
    }
    /// A new disk in the place of a lost one; waits until it has everything.
    fn replace(&self, number: usize) {
        fs::create_dir(self.disk(number)).unwrap();
        fs::write(self.disk(number).join("cenote-new-place"), "").unwrap();
        let begun = Instant::now();
        while self.note().contains("DEGRADED") || !self.disk(number).join("cenote-place").exists() {
            assert!(begun.elapsed() < Duration::from_mins(2), "{}", self.note());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

#[test]
fn disks_are_lost_and_replaced_and_every_byte_stays() {
    let store = Store::new();
    let place = &store.place;
    store.serve();
    place.ok(["put", "data", ID]);
    place.ok(["flush"]);
    assert!(place.ok(["explain", ID]).contains("copy on `safe`"));
    store.lose_power();
    store.serve();
    assert!(store.is_whole(ID));
    place.ok(["evict", ID]);
    for number in 1..=3 {
        fs::remove_dir_all(store.disk(number)).unwrap();
        assert!(store.is_whole(ID), "without disk {number}");
        place.ok(["evict", ID]);
        let note = store.note();
        assert!(note.contains(&format!("disk{number}: there is no such directory")), "{note}");
        store.lose_power();
        store.serve();
        assert!(store.is_whole(ID), "opened without disk {number}");
        place.ok(["evict", ID]);
        store.replace(number);
        let said = place.ok(["verify"]);
        assert!(said.contains("all is well"), "{said}");
    }
    // Rot in parity, which no read sees.
    let part = common::tree(&store.disk(2))
        .into_iter()
        .find(|(path, _)| path.display().to_string().contains("@2.2+1"))
        .unwrap();
    let path = store.disk(2).join(&part.0);
    let mut bad = part.1.clone();
    *bad.last_mut().unwrap() ^= 1;
    fs::write(&path, &bad).unwrap();
    // An engine checks parts at most once in a minute, and this one did just now.
    store.lose_power();
    store.serve();
    place.ok(["verify"]);
    assert!(fs::read(&path).unwrap() == part.1, "verify wrote it again");
    place.ok(["stop"]);
    place.ok(["destroy", "--yes"]);
    assert!((1..=3).all(|number| common::tree(&store.disk(number)).is_empty()), "nothing is left behind");
}

#[test]
fn a_tier_with_too_many_disks_away_says_which_and_comes_back() {
    let store = Store::new();
    let place = &store.place;
    store.serve();
    place.ok(["put", "data", ID]);
    place.ok(["flush"]);
    store.lose_power();
    for number in [1, 2] {
        fs::rename(store.disk(number), place.path(&format!("gone{number}"))).unwrap();
    }
    store.serve();
    let tiers = place.ok(["tiers"]);
    assert!(tiers.contains("FAILED") && tiers.contains("2 of its 3 places are away"), "{tiers}");
    let said = place.run(["get", "--force", ID, "back"]);
    assert!(said.code != 0 && said.err.contains("safe"), "{said:?}");
    place.ok(["put", "data", OTHER]); // memory works
    for number in [1, 2] {
        fs::rename(place.path(&format!("gone{number}")), store.disk(number)).unwrap();
    }
    let begun = Instant::now();
    while place.ok(["tiers"]).contains("FAILED") {
        assert!(begun.elapsed() < Duration::from_mins(1));
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(store.is_whole(ID) && store.is_whole(OTHER));
    place.ok(["flush"]);
}

#[test]
fn bad_tiers_are_refused_with_what_to_do() {
    let place = TestDir::with_store();
    for (tier, cause, next) in [
        ("name=r,kind=raid,path=a:b:c,size=1GiB", "it has no layout", "layout=mirror=2"),
        ("name=r,kind=raid,path=a:b,size=1GiB,layout=4+2", "it needs 6 places", "more directories"),
        ("name=r,kind=raid,path=a:a:a,size=1GiB,layout=2+1", "same directory", "disk of its own"),
        ("name=r,kind=raid,path=a:b:c,size=1GiB,layout=2+0", "without parity", "stripe="),
        ("name=r,kind=raid,path=a:b:c,size=1GiB,layout=2+1,unit=3000", "power of two", "unit=256KiB"),
        ("name=r,kind=raid,path=a:b:c,size=1GiB,layout=2+1,pack=1KiB", "pack=1KiB", "16MiB"),
        ("name=r,kind=raid,path=disk:b:c,size=1GiB,layout=2+1", "not empty", "empty directories"),
    ] {
        let said = place.run(["tier", "add", tier]);
        assert!(said.code == 1 && said.err.contains(cause) && said.err.contains(next), "{tier}: {}", said.err);
        assert!(!place.path("a").join("cenote-place").exists(), "{tier}");
    }
    place.ok(["tier", "add", "name=r,kind=raid,path=a:b:c,size=1GiB,layout=2+1,unit=256KiB"]);
    assert!(place.ok(["tiers"]).contains("2+1,unit=256KiB on 3 places"));
    place.ok(["tier", "drain", "r"]);
    place.ok(["tier", "remove", "r"]);
    assert!(common::tree(&place.path("a")).is_empty());
}

#[test]
fn containers_objects_and_ranges_are_kept_in_layouts() {
    let store = Store::new();
    let place = &store.place;
    store.serve();
    // A container from its beginning, with what comes later.
    place.ok(["mk", "kept", "--layout", "2+1"]);
    let inside = "kept/0000000000000000000000000000000a";
    place.ok(["put", "data", inside]);
    place.ok(["flush"]);
    let said = place.ok(["explain", inside]);
    assert!(said.contains("safe") && said.contains("container `kept` is"), "{said}");
    // A part of an object of another one, and all of it.
    place.ok(["put", "data", ID]);
    let said = place.ok(["layout", ID, "2+1", "--range", "0-1MiB", "--dry-run"]);
    assert!(said.contains("would move") && said.contains("safe"), "{said}");
    place.ok(["layout", ID, "2+1", "--range", "0-1MiB"]);
    let pinned = |id: &str| place.json(["stat", id])["pinned_bytes"].as_u64().unwrap();
    // Whole extents are pinned.
    assert!((1 << 20..8 << 20).contains(&pinned(ID)), "{}", pinned(ID));
    place.ok(["layout", "c", "2+1,unit=1MiB"]);
    assert!(pinned(ID) > 8 << 20);
    place.ok(["set", "c", "--layout", "plain"]);
    assert_eq!(pinned(ID), 0);
    assert!(store.is_whole(ID) && store.is_whole(inside));
    // What there is.
    let said = place.ok(["layout"]);
    assert!(said.contains("3 devices") && said.contains("1 device"), "{said}");
    let tiers = place.json(["layout"]);
    assert_eq!(
        (&tiers["tiers"][0]["layout"], &tiers["tiers"][0]["survives"]),
        (&"2+1,domain=device".into(), &1.into())
    );
}

#[test]
fn layouts_that_no_tier_has_are_refused_and_change_nothing() {
    let store = Store::new();
    let place = &store.place;
    for (words, said) in [
        (vec!["mk", "new", "--layout", "4+2"], "layout=4+2"),
        (vec!["mk", "new", "--layout", "2+1,unit=64KiB"], "safe has 2+1"),
        (vec!["mk", "new", "--layout", "2+1", "--domain", "node"], "safe has 2+1"),
        (vec!["mk", "new", "--layout", "2+1,domain=device", "--domain", "node"], "two failure domains"),
        (vec!["layout", "c", "mirror=2"], "layout=mirror=2"),
        (vec!["layout", "nobody", "2+1"], "nobody"),
        (vec!["layout", "c", "2+1", "--range", "0-1MiB"], "part of an object"),
    ] {
        let refused = place.run(&words);
        assert_eq!(refused.code, 1, "{words:?}: {refused:?}");
        assert!(refused.err.contains(said), "{words:?}: {}", refused.err);
    }
    for words in [vec!["mk", "new", "--layout", "raid6"], vec!["mk", "new", "--domain", "node"], vec!["layout", "c"]] {
        assert_eq!(place.run(&words).code, 2, "{words:?}");
    }
    assert!(!place.ok(["ls"]).contains("new"));
    place.ok(["init", "-s", "plain", "--tier", "name=ram,kind=memory,size=64MiB"]);
    let said = place.ok(["layout", "-s", "plain"]);
    assert!(said.contains("no tier has a layout"), "{said}");
}
