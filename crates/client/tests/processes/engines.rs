//! A store with several engines: what belongs to one container is as with one, and what crosses them is refused or summed.

use std::collections::BTreeSet;
use std::time::Duration;

use cenote::{Container, ContainerSpec, ErrorKind, KeyCode, Mode, OpenOptions, Store, StoreConfig};

use crate::tools::{Other, Random, TestDir, daemon_pid, eventually, signal};

const ENGINES: u16 = 3;
const CONTAINERS: usize = 12;

fn make(place: &TestDir, mode: Mode) -> Store {
    let config = StoreConfig { engines: ENGINES, ..place.config(96 << 20, 384 << 20) };
    Store::open_with(place.dir(), &OpenOptions { mode, create: true, config, ..OpenOptions::default() }).unwrap()
}

fn engine_of(container: &Container) -> u64 {
    container.id().0 % u64::from(ENGINES)
}

fn containers(store: &Store) -> Vec<Container> {
    let all: Vec<Container> = (0..CONTAINERS)
        .map(|n| store.create_container(&format!("container-{n:02}"), &ContainerSpec::default()).unwrap())
        .collect();
    let used: BTreeSet<u64> = all.iter().map(engine_of).collect();
    assert_eq!(used.len(), usize::from(ENGINES), "every engine has some of the containers");
    all
}

fn everything(store: &Store) {
    let all = containers(store);
    assert_eq!(store.engines().unwrap(), ENGINES);
    let mut random = Random::new(70);
    let mut images = Vec::new();
    for (n, container) in all.iter().enumerate() {
        let object = container.create_object(None, None).unwrap();
        let bytes = random.bytes(200_000 + n * 1000);
        object.write_at(0, &bytes).unwrap();
        let index = container.create_index(None).unwrap();
        index.put(&[(b"name", container.label().as_bytes())]).unwrap();
        images.push((object, index, bytes));
    }
    // Launched in turns, so that one message has updates of all engines.
    for round in 0..40u64 {
        for (object, index, bytes) in &mut images {
            let at = (round * 4096) as usize;
            let piece = random.bytes(3000);
            drop(object.launch_write(at as u64, &piece).unwrap());
            bytes[at..at + piece.len()].copy_from_slice(&piece);
            let key = round.to_be_bytes();
            assert_eq!(index.put_new(&[(&key, b"once")]).unwrap(), [KeyCode::Ok]);
        }
    }
    store.wait_all().unwrap();
    for (object, index, bytes) in &images {
        let mut back = vec![0; bytes.len()];
        assert_eq!(object.read_at(0, &mut back).unwrap(), bytes.len());
        assert!(back == *bytes);
        assert_eq!(index.put_new(&[(&0u64.to_be_bytes(), b"twice")]).unwrap(), [KeyCode::Exists]);
    }
    labels(store, &all);
    transactions(store, &all);
    let stats = store.stats().unwrap();
    assert_eq!(stats.containers, CONTAINERS as u64);
    assert!(stats.records > 40 * CONTAINERS as u64);
    store.flush().unwrap();
    let report = store.verify().unwrap();
    assert!(report.findings.is_empty() && report.contradictions.is_empty(), "{report:?}");
    assert!(report.objects >= CONTAINERS as u64);
    let told = store.telemetry(100).unwrap();
    assert_eq!(told.containers.len(), CONTAINERS);
    assert!(told.devices[0].used_bytes > 0);
    let wrong = store.add_device(&place_of_a_tier(store)).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Unsupported, "{wrong}");
    assert_eq!(store.drain_device("disk").unwrap_err().kind(), ErrorKind::Unsupported);
    all[1].snapshot("first").unwrap();
    assert_eq!(all[1].open_snapshot("first").unwrap().id().0 % u64::from(ENGINES), engine_of(&all[1]));
    store.delete_container("container-02").unwrap();
    assert_eq!(store.container("container-02").unwrap_err().kind(), ErrorKind::NotFound);
}

fn place_of_a_tier(store: &Store) -> cenote::DeviceSpec {
    let mut spec = store.devices().unwrap().pop().unwrap().spec;
    spec.name = "more".into();
    spec.path = store.dir().join("more");
    spec
}

/// No two engines give one label, whichever of them has it.
fn labels(store: &Store, all: &[Container]) {
    let listed: Vec<String> = store.containers("").unwrap().into_iter().map(|info| info.label).collect();
    let expected: Vec<String> = (0..CONTAINERS).map(|n| format!("container-{n:02}")).collect();
    assert_eq!(listed, expected);
    for label in &expected {
        let again = store.create_container(label, &ContainerSpec::default()).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::Exists, "{again}");
    }
    // Of many new labels some are another engine's by their hash.
    for n in 0..8 {
        let label = format!("renamed-{n}");
        store.rename_container_by_id(all[0].id(), &label).unwrap();
        assert_eq!(store.container(&label).unwrap().id(), all[0].id());
        let taken = store.create_container(&label, &ContainerSpec::default()).unwrap_err();
        assert_eq!(taken.kind(), ErrorKind::Exists, "{taken}");
        assert_eq!(store.rename_container_by_id(all[1].id(), &label).unwrap_err().kind(), ErrorKind::Exists);
    }
    store.rename_container_by_id(all[0].id(), "container-00").unwrap();
}

fn transactions(store: &Store, all: &[Container]) {
    let one = &all[0];
    let same = all[1..].iter().find(|other| engine_of(other) == engine_of(one)).unwrap();
    let other = all[1..].iter().find(|other| engine_of(other) != engine_of(one)).unwrap();
    let objects = [one, same, other].map(|container| container.create_object(None, None).unwrap());
    let mut within = store.begin();
    within.write(&objects[0], 0, b"both").unwrap();
    within.write(&objects[1], 0, b"both").unwrap();
    within.commit().unwrap();
    let mut across = store.begin();
    across.write(&objects[0], 0, b"all!").unwrap();
    across.write(&objects[2], 0, b"all!").unwrap();
    across.commit().unwrap();
    let mut buf = [0; 4];
    for object in [&objects[0], &objects[2]] {
        assert_eq!((object.read_at(0, &mut buf).unwrap(), &buf), (4, b"all!"));
    }
    let mut across = store.begin();
    across.write(&objects[0], 0, b"none").unwrap();
    across.write(&objects[2], 0, b"none").unwrap();
    across.expect_size(&objects[2], 77).unwrap();
    assert_eq!(across.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let mut across = store.begin();
    across.write(&objects[0], 0, b"none").unwrap();
    across.delete_container(other).unwrap();
    let error = across.commit().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let text = error.to_string();
    assert!(text.contains(&one.id().to_string()) && text.contains(&other.id().to_string()), "{text}");
    for object in [&objects[0], &objects[2]] {
        assert_eq!((object.read_at(0, &mut buf).unwrap(), &buf), (4, b"all!"));
    }
    for object in &objects {
        object.container().delete_object(object.key().object).unwrap();
    }
}

pub fn in_process() {
    let place = TestDir::new();
    let store = make(&place, Mode::InProcess);
    everything(&store);
    store.close().unwrap();
    let again = place.open(Mode::InProcess);
    assert_eq!(again.engines().unwrap(), ENGINES);
    assert_eq!(again.stats().unwrap().containers, CONTAINERS as u64 - 1);
    assert!(again.verify().unwrap().findings.is_empty());
    again.close().unwrap();
    let destroyed = cenote_server::destroy(&place.dir(), false).unwrap().unwrap();
    assert_eq!(destroyed.foreign, Vec::<std::path::PathBuf>::new());
}

pub fn through_a_daemon() {
    let place = TestDir::new();
    let store = make(&place, Mode::Daemon);
    everything(&store);
}

/// SIGKILL in the middle of pipelined writes to containers of all engines, several times.
pub fn daemon_dies() {
    let place = TestDir::new();
    let store = make(&place, Mode::Daemon);
    let all = containers(&store);
    let mut random = Random::new(71);
    let mut images: Vec<_> = all
        .iter()
        .map(|container| {
            let object = container.create_object(None, None).unwrap();
            let image = vec![0u8; 256 << 10];
            object.write_at(0, &image).unwrap();
            (object, container.create_index(None).unwrap(), image)
        })
        .collect();
    let mut count = 0u64;
    for round in 0..4 {
        let (dir, pause) = (place.dir(), random.below(30));
        let killer = std::thread::spawn(move || {
            let pid = daemon_pid(&dir);
            std::thread::sleep(Duration::from_millis(pause));
            signal(pid, libc::SIGKILL);
        });
        let until = count + 600;
        while !killer.is_finished() || count < until {
            let (object, index, image) = &mut images[random.below(CONTAINERS as u64) as usize];
            let at = random.below(image.len() as u64 - 5000) as usize;
            let len = 1 + random.below(5000) as usize;
            let bytes = random.bytes(len);
            drop(object.launch_write(at as u64, &bytes).unwrap());
            image[at..at + bytes.len()].copy_from_slice(&bytes);
            if count.is_multiple_of(40) {
                // A record that must be new: done twice, it would fail.
                assert_eq!(index.put_new(&[(&count.to_be_bytes(), b"v")]).unwrap(), [KeyCode::Ok]);
            }
            count += 1;
        }
        killer.join().unwrap();
        store.wait_all().unwrap();
        for (object, _, image) in &images {
            let mut back = vec![0; image.len()];
            object.read_at(0, &mut back).unwrap();
            assert!(back == *image, "round {round}");
        }
    }
    assert!(store.verify().unwrap().findings.is_empty());
    // A client that dies leaves leases with every engine.
    store.create_container("shared", &ContainerSpec::default()).unwrap();
    let mut sitter = Other::start("sitter", &[place.dir().to_str().unwrap()]);
    assert_eq!(sitter.line(), "sitting");
    sitter.kill();
    eventually("sessions of the dead are closed", || store.stats().unwrap().sessions == 1);
}

/// From the process that has the store for itself to a daemon that others use too.
pub fn handover() {
    let place = TestDir::new();
    let store = make(&place, Mode::Auto);
    let all = containers(&store);
    let objects: Vec<_> = all.iter().map(|container| container.create_object(None, None).unwrap()).collect();
    for object in &objects {
        object.write_at(0, b"before").unwrap();
    }
    assert_eq!(store.reached(), Mode::InProcess);
    let other = place.open(Mode::Daemon);
    for (object, container) in objects.iter().zip(&all) {
        let there = other.container(container.label()).unwrap().object(object.key().object);
        let mut buf = [0; 6];
        assert_eq!((there.read_at(0, &mut buf).unwrap(), &buf), (6, b"before"));
        there.write_at(0, b"behind").unwrap();
        assert_eq!((object.read_at(0, &mut buf).unwrap(), &buf), (6, b"behind"));
        object.write_at(6, b" again").unwrap();
    }
    assert_eq!(store.reached(), Mode::Daemon);
}

/// A copy of the directory becomes a store of its own, in all its engines.
pub fn cloned() {
    let place = TestDir::new();
    let mut config = StoreConfig { engines: ENGINES, ..place.config(64 << 20, 256 << 20) };
    config.devices[1].path = place.dir().join("disk");
    let options = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(place.dir(), &options).unwrap();
    for container in containers(&store) {
        container.create_object(None, None).unwrap().write_at(0, container.label().as_bytes()).unwrap();
    }
    store.flush().unwrap();
    store.close().unwrap();
    let copy = place.dir().with_file_name("copy");
    let done = std::process::Command::new("cp").arg("-a").arg(place.dir()).arg(&copy).status().unwrap();
    assert!(done.success());
    let cloned = cenote_server::clone_copy(&copy).unwrap().unwrap();
    assert!(cloned.store != cloned.original);
    let again = Store::open_with(&copy, &OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() }).unwrap();
    assert_eq!((again.id(), again.engines().unwrap()), (cloned.store, ENGINES));
    for info in again.containers("").unwrap() {
        let container = again.container(&info.label).unwrap();
        let id = container.objects(None, 10).unwrap()[0];
        let mut buf = vec![0; info.label.len()];
        assert_eq!(container.object(id).read_at(0, &mut buf).unwrap(), buf.len());
        assert_eq!(buf, info.label.as_bytes());
    }
    assert!(again.verify().unwrap().findings.is_empty());
    again.close().unwrap();
    cenote_server::destroy(&copy, false).unwrap();
}
