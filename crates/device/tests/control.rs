//! The control table shared by threads and processes.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use cenote_device::control::{ClientCounts, ClientRoom, READS_SAMPLED_IN};
use cenote_device::{ClientFile, Control, ControlView, SharedControl, conformance};
use cenote_model::{DeviceId, ErrorKind, StoreId, Timed};

struct Base(PathBuf);
impl Base {
    fn new(name: &str) -> Self {
        let path = PathBuf::from(format!("/dev/shm/cenote-control-test-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}
impl Drop for Base {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const STORE: StoreId = StoreId(0x5707);

fn attached(base: &Base) -> (SharedControl, bool) {
    let control = SharedControl::new(&base.0);
    let survived = control.attach(STORE).unwrap();
    (control, survived)
}

#[test]
fn suite() {
    let base = Base::new("suite");
    conformance::control(&SharedControl::new(&base.0));
}

#[test]
fn survives_its_engine_and_tells_clients() {
    let base = Base::new("survive");
    let (first, survived) = attached(&base);
    assert!(!survived);
    drop(first);
    let (first, survived) = attached(&base);
    assert!(!survived, "no engine came to the end of its opening with it");
    let view = ControlView::map(first.read_only().unwrap()).unwrap();
    let instance = first.instance_raise();
    assert_eq!((view.instance(), view.store()), (instance, STORE));
    assert_eq!(first.word_raise(42), 1);
    drop(first);
    let (second, survived) = attached(&base);
    assert!(survived);
    assert_eq!(second.word(42), 1);
    second.instance_raise();
    second.word_raise(42);
    assert_eq!((view.instance(), view.word(42)), (instance + 1, 2), "the client's mapping is the same memory");
}

#[test]
fn damage_is_an_error_and_loss_is_not() {
    let base = Base::new("damage");
    drop(attached(&base));
    let path = base.0.join(format!("cenote-{STORE}")).join("control");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[20] ^= 4;
    std::fs::write(&path, &bytes).unwrap();
    let error = SharedControl::new(&base.0).attach(STORE).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
    std::fs::write(&path, &bytes[..50]).unwrap();
    assert_eq!(SharedControl::new(&base.0).attach(STORE).unwrap_err().kind(), ErrorKind::Corrupt);
    std::fs::remove_file(&path).unwrap();
    assert!(!attached(&base).1);
}

#[test]
fn slots_of_this_process_count_and_are_adopted() {
    let base = Base::new("slots");
    let (control, _) = attached(&base);
    control.instance_raise(); // as at the end of an opening: before that, no engine has clients
    let (client, _alive) = control.client_create(std::process::id(), &ClientRoom::default()).unwrap();
    assert_eq!(control.slots_min(), u64::MAX);
    let pins: Vec<_> = (0..64).map(|i| client.slots().announce(100 + i).unwrap()).collect();
    assert!(client.slots().pin(1).is_none(), "64 slots");
    assert_eq!(control.slots_min(), 100);
    client.slots().clear(pins[0]);
    assert_eq!(control.slots_min(), 101);
    drop(control);
    let (control, _) = attached(&base);
    assert_eq!(control.slots_min(), 101, "the process lives, so a new engine honours its slots");
    assert!(control.client_create(std::process::id(), &ClientRoom::default()).unwrap().0.number() > client.number());
    for slot in pins {
        client.slots().clear(slot);
    }
    assert_eq!(control.slots_min(), u64::MAX);
    control.client_remove(client.number());
    control.delete().unwrap();
    assert_eq!(std::fs::read_dir(&base.0).unwrap().count(), 0, "nothing is left behind");
}

/// Not a test of its own: the child process of the next test.
#[test]
fn child_that_announces_and_waits_for_its_death() {
    let Some(path) = std::env::var_os("CENOTE_TEST_CLIENT_FILE") else { return };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let client = ClientFile::map(file.into()).unwrap();
    client.slots().announce(7).unwrap();
    thread::sleep(Duration::from_mins(1));
}

#[test]
fn slots_of_a_dead_process_do_not_count() {
    let base = Base::new("dead");
    let (control, _) = attached(&base);
    control.instance_raise(); // as at the end of an opening
    let path = base.0.join(format!("cenote-{STORE}")).join("client-1");
    // Like a process in another container, whose pid is unknown here. It holds the lock, and its death releases it.
    let (client, alive) = control.client_create(0, &ClientRoom { ring_bytes: 4096, ..ClientRoom::default() }).unwrap();
    assert_eq!(client.number(), 1);
    assert!(client.is_held());
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_announces_and_waits_for_its_death"])
        .env("CENOTE_TEST_CLIENT_FILE", &path)
        .stdin(Stdio::from(alive))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let wait_for = |control: &SharedControl, value: u64| {
        let begin = Instant::now();
        while control.slots_min() != value {
            assert!(begin.elapsed() < Duration::from_secs(20), "slots_min never became {value}");
            thread::sleep(Duration::from_millis(2));
        }
    };
    wait_for(&control, 7);
    drop(control);
    let (control, survived) = attached(&base);
    assert!(!survived || control.clients().len() == 1, "the next engine honours it");
    child.kill().unwrap();
    child.wait().unwrap();
    wait_for(&control, u64::MAX);
    assert!(!path.exists(), "reaped");
    assert!(!client.is_held());
}

/// Tests the argument in `control/mod.rs`: readers check that the memory they copy was not reused meanwhile.
#[test]
fn readers_never_see_reused_space() {
    const RUNS: usize = 4;
    let base = Base::new("torture");
    let (control, _) = attached(&base);
    let view = ControlView::map(control.read_only().unwrap()).unwrap();
    let (stop, map) = (AtomicBool::new(false), AtomicU64::new(0));
    // A "run" is 8 words that all hold the version for which it was written; the "map" is version * RUNS + run.
    let runs: Vec<[AtomicU64; 8]> = (0..RUNS).map(|_| Default::default()).collect();
    let reads = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..2 {
            let (client, alive) = control.client_create(std::process::id(), &ClientRoom::default()).unwrap();
            let (view, stop, map, runs, reads) = (view.clone(), &stop, &map, &runs, &reads);
            scope.spawn(move || {
                let _alive = alive;
                while !stop.load(Ordering::Relaxed) {
                    // A cached map and its word, as a lookup returns them (word first: an older word only causes a
                    // miss).
                    let word = view.word(9);
                    let cached = map.load(Ordering::SeqCst);
                    for _ in 0..10 {
                        let _pin = client.slots().pin(view.epoch()).unwrap();
                        if view.word(9) != word {
                            break;
                        }
                        for cell in &runs[cached as usize % RUNS] {
                            assert_eq!(cell.load(Ordering::Relaxed), cached / RUNS as u64, "used again under a reader");
                        }
                        reads.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let (mut free, mut retired, mut current): (Vec<usize>, Vec<(usize, u64)>, _) = ((1..RUNS).collect(), vec![], 0);
        let begin = Instant::now();
        let mut version = 0;
        let enough = |version: u64| version > 300 && reads.load(Ordering::Relaxed) > 300;
        while begin.elapsed() < Duration::from_millis(300) || !enough(version) {
            if begin.elapsed() > Duration::from_secs(20) {
                break; // judged below
            }
            let min = control.slots_min();
            retired.retain(|(run, tag)| {
                let is_free = min > *tag;
                free.extend(is_free.then_some(*run));
                !is_free
            });
            let Some(run) = free.pop() else { continue };
            version += 1;
            runs[run].iter().for_each(|cell| cell.store(version, Ordering::Relaxed));
            map.store(version * RUNS as u64 + run as u64, Ordering::SeqCst);
            control.word_raise(9);
            retired.push((current, control.epoch()));
            control.epoch_raise();
            current = run;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(enough(version), "only {version} versions, {} reads", reads.load(Ordering::Relaxed));
    });
}

/// For the test of counters.
const THREADS: u64 = 8;
const READS: u64 = 10_000;

#[test]
fn what_clients_count_is_seen_and_stays_when_they_leave() {
    let base = Base::new("counters");
    let (control, _) = attached(&base);
    let (client, _alive) = control.client_create(std::process::id(), &ClientRoom::default()).unwrap();
    client.counters().set_session(7);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let client = ClientFile::map(client.fd().try_clone().unwrap()).unwrap();
            scope.spawn(move || {
                for read in 0..READS {
                    let slot = client.slots().announce(1).unwrap();
                    let timed = client.counters().is_sampled(slot);
                    let device = DeviceId((read % 2 * 200 + 1) as u16);
                    client.counters().read(slot, device, 100 + number);
                    if timed {
                        client.counters().took(Timed::Get, device, 1000);
                    }
                    client.slots().clear(slot);
                }
            });
        }
    });
    let counts = control.client_counts();
    let [mine, departed] = counts.as_slice() else { panic!("{counts:?}") };
    assert_eq!((mine.session, mine.pid, departed), (7, std::process::id(), &ClientCounts::default()));
    assert!(mine.program.starts_with("control"), "{}", mine.program);
    let mut reads = mine.reads.clone();
    reads.sort_unstable();
    let bytes = (0..THREADS).map(|number| (100 + number) * READS / 2).sum::<u64>();
    let half = THREADS * READS / 2;
    assert_eq!(reads, [(Some(DeviceId(1)), half, bytes), (Some(DeviceId(201)), half, bytes)]);
    let timed: u64 = mine.latencies.iter().map(|(_, _, histogram)| histogram.count()).sum();
    // The first read of each slot is timed.
    let fewest = THREADS * READS / u64::from(READS_SAMPLED_IN);
    assert!((fewest..=fewest + 64).contains(&timed), "{timed} of {}", THREADS * READS);
    // More tiers than rows: the last tiers are counted together.
    let (many, _alive) = control.client_create(std::process::id(), &ClientRoom::default()).unwrap();
    for device in 1..=20 {
        many.counters().read(0, DeviceId(device), 1);
    }
    let rows = many.counters().counts().reads;
    assert_eq!((rows.len(), rows.last().copied()), (16, Some((None, 5, 5))));
    control.client_remove(many.number());
    control.client_remove(client.number());
    let left = control.client_counts();
    assert_eq!(left.len(), 1);
    assert_eq!(left[0].reads.iter().map(|(_, reads, _)| reads).sum::<u64>(), 2 * half + 20);
}

#[test]
fn counters_of_a_hostile_client_harm_nobody() {
    let base = Base::new("hostile");
    let (control, _) = attached(&base);
    let (client, _alive) = control.client_create(std::process::id(), &ClientRoom::default()).unwrap();
    for offset in (8192..65_536).step_by(8) {
        client.mapping().word(offset).unwrap().store(u64::MAX - offset, Ordering::Relaxed);
    }
    client.counters().read(3, DeviceId(1), 5);
    assert!(client.counters().counts().reads.iter().all(|(_, reads, _)| *reads == u64::MAX), "sums stay at the end");
    control.client_remove(client.number());
    assert_eq!(control.client_counts().len(), 1);
}
