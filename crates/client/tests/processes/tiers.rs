//! Tiers: persistent memory on an ordinary file system, and the measured speed of tiers.

use std::time::{Duration, Instant};

use cenote::{ContainerSpec, DeviceKind, Durability, Mode, ObjectId, OpenOptions, Store, StoreConfig};

use crate::tools::{Random, TestDir, daemon_pid, eventually, signal};

/// A small memory tier in front of persistent memory, or the latter alone.
fn config(place: &TestDir, with_memory: bool) -> StoreConfig {
    let mut config = place.config(8 << 20, 96 << 20);
    config.devices[1].kind = DeviceKind::PersistentMemory;
    if !with_memory {
        config.devices.remove(0);
    }
    config
}

fn open(place: &TestDir, mode: Mode, with_memory: bool) -> Store {
    let config = config(place, with_memory);
    Store::open_with(place.dir(), &OpenOptions { mode, create: true, config, ..OpenOptions::default() }).unwrap()
}

/// Acknowledged bytes survive the closing or killing of the engine, however they were written.
pub fn persistent_memory() {
    for (number, (mode, with_memory)) in
        [(Mode::InProcess, false), (Mode::Daemon, false), (Mode::InProcess, true), (Mode::Daemon, true)]
            .into_iter()
            .enumerate()
    {
        let place = TestDir::new();
        let mut random = Random::new(number as u64);
        let mut store = open(&place, mode, with_memory);
        let mut expected = Vec::new();
        for (n, durability) in [Durability::Sync, Durability::Async, Durability::Bypass].into_iter().enumerate() {
            let spec = ContainerSpec { durability, ..ContainerSpec::default() };
            let container = store.create_container(&format!("c{n}"), &spec).unwrap();
            for id in 0..12_u32 {
                let len = 1 + random.below(1 << (4 + 2 * (id % 10))) as usize;
                let (bytes, at) = (random.bytes(len), random.below(10_000));
                let object = container.create_object(Some(ObjectId(id.into())), None).unwrap();
                if id % 2 == 0 {
                    object.write_at(at, &bytes).unwrap();
                } else {
                    let mut staged = object.write_in_place(len).unwrap();
                    staged.bytes().copy_from_slice(&bytes);
                    staged.commit(at).unwrap();
                }
                expected.push((format!("c{n}"), id, at, bytes));
            }
        }
        let info = store.devices().unwrap().into_iter().find(|info| info.spec.kind == DeviceKind::PersistentMemory);
        let info = info.expect("the tier");
        assert!(info.note.contains("DAX"), "{}", info.note);
        assert_eq!(info.unit_bytes, 512);
        for round in 0..2 {
            for (label, id, at, bytes) in &expected {
                let mut back = vec![0; bytes.len()];
                let object = store.container(label).unwrap().object(ObjectId((*id).into()));
                assert_eq!(object.read_at(*at, &mut back).unwrap(), bytes.len(), "{label}/{id}");
                assert!(back == *bytes, "{label}/{id}: {} bytes at {at}", bytes.len());
            }
            assert!(store.verify().unwrap().findings.is_empty());
            if round == 0 {
                if mode == Mode::Daemon {
                    signal(daemon_pid(&place.dir()), libc::SIGKILL);
                } else {
                    store.close().unwrap();
                }
                drop(store);
                store = open(&place, mode, with_memory);
            }
        }
        let used = store.devices().unwrap().into_iter().map(|info| info.used_bytes).sum::<u64>();
        assert!(used > 0);
    }
}

/// The pmem file shrinks under an open store: calls of the engine fail, and no process dies.
pub fn persistent_memory_cut_short() {
    let place = TestDir::new();
    let store = open(&place, Mode::Daemon, true);
    let spec = ContainerSpec { durability: Durability::Bypass, ..ContainerSpec::default() };
    let container = store.create_container("c", &spec).unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, &vec![3; 4 << 20]).unwrap();
    store.flush().unwrap();
    let path =
        store.devices().unwrap().into_iter().find(|d| d.spec.kind == DeviceKind::PersistentMemory).unwrap().spec.path;
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let whole = file.metadata().unwrap().len();
    file.set_len(2 << 20).unwrap();
    let pid = daemon_pid(&place.dir());
    // The daemon reads everything, by its own means.
    let report = store.verify();
    assert!(report.is_err() || !report.unwrap().findings.is_empty(), "what is gone is said");
    assert_eq!(daemon_pid(&place.dir()), pid, "the daemon lives");
    file.set_len(whole).unwrap();
    assert!(!store.verify().unwrap().findings.is_empty(), "zeros are not taken for what was written");
}

/// Measurements on request, in both modes; they survive a restart.
pub fn measured_when_asked() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        for name in ["memory", "disk"] {
            let begin = Instant::now();
            let profile = store.profile(name, Duration::from_millis(100)).unwrap();
            assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
            assert!(profile.points.len() >= 4 && profile.unix_ms > 0, "{profile:?}");
            assert_eq!(store.profile(name, Duration::ZERO).unwrap(), profile);
        }
        assert!(store.profile("nothing", Duration::from_millis(1)).is_err());
        let speeds = |store: &Store| store.devices().unwrap().into_iter().map(|info| info.speed).collect::<Vec<_>>();
        let before = speeds(&store);
        let [Some(memory), Some(disk)] = before[..] else { panic!("{before:?}") };
        assert!(memory.read_latency_ns < disk.read_latency_ns, "{memory:?} {disk:?}");
        store.close().unwrap();
        if mode == Mode::Daemon {
            assert!(Store::stop_daemon(place.dir()).unwrap());
        }
        assert_eq!(speeds(&place.open(mode)), before);
    }
}

/// An idle store measures its tiers by itself; a busy one does its work first.
pub fn measured_when_idle() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(1) {
        object.write_at(0, &[1; 4096]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
    }
    assert!(store.devices().unwrap().iter().all(|info| info.speed.is_none()), "measured while it was at work");
    std::thread::sleep(Duration::from_secs(2));
    let begin = Instant::now();
    eventually("measured", || {
        std::thread::sleep(Duration::from_millis(1500)); // a request is work
        store.devices().unwrap().iter().all(|info| info.speed.is_some())
    });
    assert!(begin.elapsed() < Duration::from_secs(30));
}
