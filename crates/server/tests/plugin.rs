//! Policies in shared libraries: one valid, and some faulty.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cenote_model::{
    ContainerId, DeviceId, DeviceKind, DeviceSpec, Durability, ObjectId, ObjectKey, Request, Response, StoreConfig,
    TierOptions,
};
use cenote_policy::{Action, DeviceView, Heat, Incoming, Limits, Policy, RangeView};
use cenote_server::{Host, OpenHow, Plugin, this_process};

fn devices() -> Vec<DeviceView> {
    let mut memory = DeviceView::new(DeviceId(1), "memory", DeviceKind::SharedMemory, 1 << 20);
    memory.used_bytes = 1 << 19;
    vec![memory, DeviceView::new(DeviceId(2), "file", DeviceKind::File, 1 << 30)]
}

fn ranges() -> Vec<RangeView<'static>> {
    let range = |object| RangeView {
        object: ObjectKey { container: ContainerId(1), object: ObjectId(object) },
        offset: 0,
        bytes: 4096,
        device: DeviceId(1),
        copy: (object == 1).then_some(DeviceId(2)),
        durability: Durability::Async,
        heat: Heat::default(),
        is_pinned: false,
        label: "x",
        name: None,
        object_bytes: 4096,
        age_ms: 100_000,
        unit: None,
        coming: None,
        rhythm: None,
    };
    vec![range(0), range(1)]
}

/// The example, built with a macro that makes it misbehave. `None` without a C compiler.
fn library(dir: &Path, macro_name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy-plugin/roomiest.c");
    let library = dir.join(format!("lib{macro_name}.so"));
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-unreachable-code"])
        .arg(format!("-D{macro_name}"))
        .arg("-o")
        .args([&library, &source])
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

fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("cenote-plugin-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

#[test]
fn a_sound_one_is_followed() {
    let dir = dir("sound");
    let Some(library) = library(&dir, "SOUND") else { return };
    let plugin = Plugin::load(&library, Duration::from_secs(5)).unwrap();
    assert_eq!(plugin.name(), "roomiest");
    let decision = plugin.place(&devices(), &Incoming::new(Durability::Async, 4096)).unwrap();
    assert_eq!(decision.device(), DeviceId(2), "fast-first would have said memory");
    let plan = plugin.plan(&devices(), &ranges(), &Limits::default());
    assert_eq!(plan.moves.iter().map(|m| (m.range, m.action)).collect::<Vec<_>>(), [(1, Action::Evict)]);
    assert_eq!(plugin.failure(), None);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn whatever_one_does_something_sound_is_decided_and_the_reason_is_shown() {
    let dir = dir("bad");
    for (name, word) in [("NONSENSE", "answered nonsense"), ("DAWDLE", "took more than 30 ms"), ("REFUSE", "declined")]
    {
        let Some(library) = library(&dir, name) else { return };
        let plugin = Plugin::load(&library, Duration::from_millis(30)).unwrap();
        let began = Instant::now();
        let first = plugin.place(&devices(), &Incoming::new(Durability::Async, 4096)).unwrap();
        assert_eq!(first.device(), DeviceId(1));
        assert!(first.reason().to_string().contains(word), "{name}: {}", first.reason());
        for _ in 0..50 {
            assert_eq!(
                plugin.place(&devices(), &Incoming::new(Durability::Async, 4096)).unwrap().device(),
                DeviceId(1)
            );
        }
        assert!(began.elapsed() < Duration::from_secs(2), "{name}: nobody waits for it again and again");
        if name != "REFUSE" {
            assert!(plugin.plan(&devices(), &ranges(), &Limits::default()).moves.is_empty());
            assert!(plugin.failure().is_some());
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn a_store_is_opened_with_one() {
    let dir = dir("store");
    let Some(library) = library(&dir, "SOUND") else { return };
    let path = dir.join("tier");
    let device = |name: &str, kind, path| DeviceSpec {
        name: name.to_owned(),
        kind,
        path,
        capacity_bytes: 32 << 20,
        watermark_high_permille: 800,
        watermark_low_permille: 600,
        options: TierOptions::default(),
    };
    let devices =
        vec![device("memory", DeviceKind::SharedMemory, PathBuf::new()), device("disk", DeviceKind::Directory, path)];
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let store = dir.join("store");
    let how = OpenHow { create: Some(&config), policy_plugin: Some(&library), ..OpenHow::default() };
    let host = Host::open(&store, &how).unwrap().unwrap();
    let (client, _alive) = host.client(&this_process(1, true), 0).unwrap();
    let session = client.session;
    let Response::Policy(state) = host.service.call(session, 0, Request::PolicyShow) else { panic!() };
    assert_eq!((state.plugins[0].name.as_str(), state.plugins[0].failure.as_str()), ("roomiest", ""));
    drop(host);
    let nowhere = dir.join("nowhere.so");
    let how = OpenHow { policy_plugin: Some(&nowhere), ..OpenHow::default() };
    let error = Host::open(&store, &how).err().expect("one that is named must load");
    assert!(error.to_string().contains("nowhere.so"), "{error}");
    cenote_server::destroy(&store, true).unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn what_is_no_plugin_is_refused_with_the_reason() {
    let dir = dir("none");
    let text = dir.join("libtext.so");
    std::fs::write(&text, "not a library").unwrap();
    for path in [text, dir.join("nowhere.so")] {
        let error = Plugin::load(&path, Duration::from_secs(1)).err().expect("refused");
        assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
}
