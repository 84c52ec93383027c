//! Safe pipelined changes survive the death of their process, alone or together with others.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use cenote::{Container, ContainerSpec, Mode, ObjectId, Op, OpenOptions, Precondition, Store};

use crate::child::say;
use crate::tools::{Other, Random, TestDir, daemon_pid, signal};

const PRECONDITION: (&[u8], &[u8]) = (b"launching", b"one");

/// Kills of each kind; `CENOTE_KILL_ROUNDS` sets more.
fn rounds() -> u64 {
    std::env::var("CENOTE_KILL_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12)
}

/// Pipelines changes until it is killed, and notes how many of its calls have returned.
pub fn launcher(dir: &str, mode: &str, noted: &str) {
    let mode = if mode == "daemon" { Mode::Daemon } else { Mode::InProcess };
    let store = Store::open_with(dir, &OpenOptions { mode, ..OpenOptions::default() }).unwrap();
    let container = store.container("shared").unwrap();
    let (supers, records) = (container.index(cenote::IndexId(0)), container.index(cenote::IndexId(1)));
    let precondition = Precondition::new(&supers, PRECONDITION.0, PRECONDITION.1).in_series(
        &records,
        b"series",
        std::process::id().into(),
    );
    let noted = std::fs::File::options().write(true).open(noted).unwrap();
    let mut ops = Vec::<Op>::new();
    say("ready");
    for i in 0u64.. {
        let number = (i + 1).to_le_bytes();
        ops.push(match i % 4 {
            0 => container.object(ObjectId(1)).launch_write_on(&precondition, i * 8, &number).unwrap(),
            1 => container.object(ObjectId(2)).launch_write_kept(i * 8, &number).unwrap(),
            2 => container.object(ObjectId(1)).launch_write_on(&precondition, i * 8, &number.repeat(64)).unwrap(),
            // Now and then a call is too large for the redo log, and waits.
            _ => {
                let value = number.repeat(if i % 400 == 3 { 4000 } else { 1 });
                let mut tx = store.begin();
                tx.put(&records, &i.to_be_bytes(), &value).unwrap();
                tx.launch(&precondition).unwrap()
            }
        });
        noted.write_all_at(&(i + 1).to_le_bytes(), 0).unwrap();
        if ops.len() > 5000 {
            ops.drain(..).for_each(|op| op.wait().unwrap());
        }
    }
}

fn check(container: &Container, count: u64, round: u64) {
    let read = |object: u64, i: u64| {
        let mut bytes = [0; 8];
        container.object(ObjectId(object.into())).read_at(i * 8, &mut bytes).unwrap();
        u64::from_le_bytes(bytes)
    };
    let records = container.index(cenote::IndexId(1));
    let mut written: Vec<u64> = vec![0; count as usize + 64];
    for i in (0..count).filter(|i| matches!(i % 4, 0 | 2)) {
        let len = if i % 4 == 0 { 1 } else { 64 };
        (i..i + len).for_each(|at| written[at as usize] = i + 1);
    }
    for i in 0..count {
        let found = match i % 4 {
            // The call in progress may have succeeded.
            0 | 2 => read(1, i) == written[i as usize] || read(1, i) > count,
            1 => read(2, i) == i + 1,
            _ => records
                .get_one(&i.to_be_bytes())
                .unwrap()
                .is_some_and(|value| value.starts_with(&(i + 1).to_le_bytes())),
        };
        assert!(found, "round {round}: call {i} of {count} had returned and is lost");
    }
}

fn killed(place: &TestDir, mode: &str, random: &mut Random, kill_daemon: bool) -> u64 {
    let noted = place.dir().join("../noted");
    std::fs::write(&noted, 0u64.to_le_bytes()).unwrap();
    let mut other = Other::start("launcher", &[place.dir().to_str().unwrap(), mode, noted.to_str().unwrap()]);
    assert_eq!(other.line(), "ready");
    std::thread::sleep(Duration::from_micros(random.below(20_000)));
    if kill_daemon {
        let daemon = daemon_pid(&place.dir());
        let (first, second) =
            if random.below(2) == 0 { (daemon, other.child.id()) } else { (other.child.id(), daemon) };
        signal(first, libc::SIGKILL);
        std::thread::sleep(Duration::from_micros(random.below(3_000)));
        signal(second, libc::SIGKILL);
    }
    other.kill();
    u64::from_le_bytes(std::fs::read(&noted).unwrap().try_into().unwrap())
}

fn fresh(store: &Store) -> Container {
    match store.delete_container("shared") {
        Err(error) if error.kind() != cenote::ErrorKind::NotFound => panic!("{error}"),
        _ => {}
    }
    let container = store.create_container("shared", &ContainerSpec::default()).unwrap();
    container.create_object(Some(ObjectId(1)), None).unwrap();
    container.create_object(Some(ObjectId(2)), None).unwrap();
    let supers = container.create_index(Some(cenote::IndexId(0))).unwrap();
    supers.put(&[PRECONDITION]).unwrap();
    container.create_index(Some(cenote::IndexId(1))).unwrap();
    container
}

/// The client dies, or client and daemon; a process that lived all the time checks.
pub fn by_a_daemon() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let (mut random, mut calls) = (Random::new(81), 0);
    for round in 0..rounds() {
        let container = fresh(&store);
        let count = killed(&place, "daemon", &mut random, round % 3 == 2);
        store.settle_dead().unwrap();
        check(&container, count, round);
        calls += count;
    }
    println!("{calls} calls had returned");
    let report = store.verify().unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

/// The process of the engine itself dies; the next one checks.
pub fn in_process() {
    let place = TestDir::new();
    drop(place.make(Mode::InProcess));
    let (mut random, mut calls) = (Random::new(82), 0);
    for round in 0..rounds() {
        let store = place.open(Mode::InProcess);
        fresh(&store);
        store.close().unwrap();
        let count = killed(&place, "in-process", &mut random, false);
        let store = place.open(if round % 2 == 0 { Mode::InProcess } else { Mode::Daemon });
        check(&store.container("shared").unwrap(), count, round);
        store.close().unwrap();
        let _ = Store::stop_daemon(place.dir());
        calls += count;
    }
    println!("{calls} calls had returned");
}
