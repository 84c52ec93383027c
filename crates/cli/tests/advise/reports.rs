//! Outputs of a run: tables, drawings, policies; and invalid options and traces.

use std::fs;

use crate::common::{TestDir, said};
use crate::watched::{advise, file, watched};

/// Writes and syncs small pieces; writes without sync more than the kernel's write cache holds, and deletes it.
const SLOW: &str = "for i in 1 2 3; do dd if=/dev/zero of=ckpt-$i.dat bs=16k count=64 oflag=dsync 2>/dev/null; done; \
                    dd if=/dev/zero of=scratch bs=4k count=500 oflag=direct 2>/dev/null; rm scratch";

#[test]
fn the_policy_that_is_applied_sends_files_to_their_tiers() {
    let place = TestDir::with_store();
    let policy = place.store().join("policy.toml");
    fs::write(&policy, "version = 1\n").unwrap();
    let (done, report) = watched(&place, &["--apply"], ["sh", "-c", SLOW]);
    assert_eq!(done.code, 0, "{done:?}");
    assert_eq!(report["policy"], policy.display().to_string());
    assert_eq!(fs::read_to_string(policy.with_extension("toml.old")).unwrap(), "version = 1\n");
    let text = fs::read_to_string(&policy).unwrap();
    // Memory or disk depends on how fast both were measured; but waiting for media each time is always slow.
    let tier = |name: &str| file(&report, &place.path(name))["tier"].as_str().map(str::to_owned);
    assert!(tier("scratch").is_some(), "{report:#}");

    let view = |id: u16, name: &str, kind, mib: u64| {
        cenote_policy::DeviceView::new(cenote::model::DeviceId(id), name, kind, mib << 20)
    };
    let devices =
        [view(1, "memory", cenote::DeviceKind::SharedMemory, 16), view(2, "disk", cenote::DeviceKind::Directory, 64)];
    let user = cenote_policy::from_schema(&text, &devices).unwrap_or_else(|faults| panic!("{faults:?}: {text}"));
    let goes = |label: &str| {
        let incoming =
            cenote_policy::Incoming { label, ..cenote_policy::Incoming::new(cenote::Durability::Async, 4096) };
        let id = user.place(&devices, &incoming).unwrap().device();
        Some(devices.iter().find(|device| device.id == id).unwrap().name.to_string())
    };
    for name in ["ckpt-1.dat", "ckpt-2.dat", "ckpt-3.dat", "scratch"].into_iter().filter(|name| tier(name).is_some()) {
        let label = format!("hdf5:{}", place.path(name).display());
        assert_eq!(goes(&label), tier(name), "{name}: {text}");
    }
    assert!(text.contains("mode = \"scratch\""), "{text}");

    // Another file, which belongs to no store.
    let other = place.path("mine.toml");
    let done = said(&mut advise(&place, &["--policy", other.to_str().unwrap()], ["sh", "-c", SLOW]));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(fs::read_to_string(&other).unwrap().contains("scratch"));
}

#[test]
fn tables_and_drawings() {
    let place = TestDir::with_store();
    let plot = place.path("gain.svg");
    let done = said(&mut advise(&place, &["--plot", plot.to_str().unwrap()], ["sh", "-c", SLOW]));
    assert_eq!((done.code, done.out.as_str()), (0, ""), "{done:?}");
    for part in ["tiers of the store", "what", "scratch", "deleted in the end", "memory", "file I/O took", "drawn in"] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    let drawn = fs::read_to_string(&plot).unwrap();
    assert!(drawn.starts_with("<svg") && drawn.contains("scratch") && drawn.contains("on memory"), "{drawn}");
    let done = said(&mut advise(&place, &["--plot", "x.png"], ["touch", "ran"]));
    assert!(done.code == 1 && done.err.contains("SVG") && !place.path("ran").exists(), "{done:?}");
    // The program's own exit code takes precedence.
    let done = said(&mut advise(&place, &["--output", "/dev/null"], ["sh", "-c", "exit 42"]));
    assert_eq!(done.code, 42);
}

#[test]
fn without_a_store_this_machine_is_measured() {
    let place = TestDir::new();
    let mut command = advise(&place, &[], ["true"]);
    command.env_remove("CENOTE_STORE").env("XDG_DATA_HOME", place.path("data")).env("TMPDIR", &place.dir);
    let done = said(&mut command);
    assert!(done.code == 0 && done.err.contains("would make of this machine"), "{done:?}");
    let left: Vec<_> = fs::read_dir(&place.dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "{left:?}");
    // A store that is named must exist.
    for options in [&["--store", "/no/such/store"][..], &["--apply"]] {
        let mut command = advise(&place, options, ["touch", "ran"]);
        command.env_remove("CENOTE_STORE").env("XDG_DATA_HOME", place.path("data"));
        let done = said(&mut command);
        assert!(done.code == 1 && done.err.contains("not found") && !place.path("ran").exists(), "{done:?}");
    }
}

/// A watched program can write anything where its traces are.
#[test]
fn traces_that_are_none_are_left_out_and_named() {
    let place = TestDir::with_store();
    let script = "cp $(ls -d $CENOTE_TRACE_DIR/*.tally | head -n 1) copy; \
                  head -c 100 /dev/urandom > $CENOTE_TRACE_DIR/1-1.tally; \
                  head -c $(stat -c %s copy) /dev/urandom > $CENOTE_TRACE_DIR/2-1.tally; \
                  head -c 1000 copy > $CENOTE_TRACE_DIR/3-1.tally; \
                  (head -c 64 copy; head -c $(( $(stat -c %s copy) - 64 )) /dev/urandom) > $CENOTE_TRACE_DIR/4-1.tally; \
                  echo x > $CENOTE_TRACE_DIR/nothing.tally; dd if=/dev/zero of=real bs=64k count=2 2>/dev/null";
    let (done, report) = watched(&place, &[], ["sh", "-c", script]);
    assert_eq!(done.code, 0, "{done:?}");
    let damaged: Vec<&str> = report["damaged"].as_array().unwrap().iter().filter_map(|why| why.as_str()).collect();
    for name in ["1-1", "2-1", "3-1", "4-1", "nothing"] {
        assert!(damaged.iter().any(|why| why.starts_with(name)), "{name}: {damaged:?}");
    }
    assert_eq!(damaged.len(), 5, "{damaged:?}");
    assert_eq!(file(&report, &place.path("real"))["file"]["writes"]["bytes"], 131_072, "what is real counts");
}
