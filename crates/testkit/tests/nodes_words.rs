//! What a node remembers of another node's objects: it is used without a message, and is never older than what anybody was
//! told.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, IndexId, Object, ObjectId};
use cenote_testkit::crash::nodes::{self, Cluster};

const ID: ObjectId = ObjectId(7);
const INDEX: IndexId = IndexId(3);
/// A node trusts what it was told for at most so long, and the home waits a little longer.
const TRUST: Duration = Duration::from_millis(1200);

struct Nodes(Cluster);

impl Nodes {
    fn new(name: &str, count: usize) -> Self {
        Self(Cluster::new(&format!("words-{name}"), Path::new(env!("CARGO_BIN_EXE_crash")), count, 0))
    }
    /// The same container at each node; its home is the first one.
    fn container(&self) -> Vec<Container> {
        let first = self.stores[0].create_container("data", &ContainerSpec::default()).unwrap();
        first.create_object(Some(ID), None).unwrap().write_at(0, &[0; 10_000]).unwrap();
        self.stores.iter().map(|store| store.container("data").unwrap()).collect()
    }
    fn signal(&self, node: usize, signal: rustix::process::Signal) {
        let holder = cenote_server::holder(&self.dir_of(node)).unwrap();
        let pid = rustix::process::Pid::from_raw(holder.pid as i32).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }
}

impl std::ops::Deref for Nodes {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.0
    }
}

fn first_byte(object: &Object) -> u8 {
    let mut found = [0; 100];
    assert_eq!(object.read_at(0, &mut found).unwrap(), 100);
    assert!(found.iter().all(|byte| *byte == found[0]), "a read has bytes of two writes");
    found[0]
}

/// Returns true once this node knows the words: counts of changes that it does not know differ each time.
fn is_known(container: &Container) -> bool {
    let changes = || container.changes(&[], &[ID]).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(5) {
        first_byte(&container.object(ID));
        if changes() == changes() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn what_is_remembered_is_used_until_anybody_changes_it() {
    let nodes = Nodes::new("changes", 3);
    let containers = nodes.container();
    let objects: Vec<Object> = containers.iter().map(|container| container.object(ID)).collect();
    assert!(containers.iter().all(is_known));
    let before = containers[1].changes(&[], &[ID]).unwrap();
    assert_eq!(before, containers[1].changes(&[], &[ID]).unwrap());
    // Each node writes in turn, and all see it, those that remember what was there before too.
    for round in 1..=120_u8 {
        objects[usize::from(round) % 3].write_at(0, &[round; 100]).unwrap();
        for object in &objects {
            assert_eq!((first_byte(object), first_byte(object)), (round, round));
        }
    }
    // Own writes keep what is known; those of others do not.
    assert!(is_known(&containers[1]));
    let known = containers[1].changes(&[], &[ID]).unwrap();
    objects[1].write_at(0, &[200; 100]).unwrap();
    let own = containers[1].changes(&[], &[ID]).unwrap();
    assert_eq!((own.count, own), (known.count + 1, containers[1].changes(&[], &[ID]).unwrap()));
    objects[0].write_at(0, &[201; 100]).unwrap();
    assert_ne!(containers[1].changes(&[], &[ID]).unwrap(), containers[1].changes(&[], &[ID]).unwrap());
    // Pipelined writes, sizes, and the end of a container.
    for round in 0..100_u8 {
        drop(objects[1].launch_write(0, &[round; 100]).unwrap());
        assert_eq!(first_byte(&objects[1]), round);
    }
    objects[2].truncate(50).unwrap();
    assert_eq!(objects.iter().map(|object| object.size().unwrap()).collect::<Vec<_>>(), [50, 50, 50]);
    objects[1].append(&[1; 50]).unwrap();
    assert_eq!(objects.iter().map(|object| object.size().unwrap()).collect::<Vec<_>>(), [100, 100, 100]);
    nodes.stores[2].delete_container("data").unwrap();
    assert!(objects.iter().all(|object| object.read_at(0, &mut [0; 10]).is_err()));
}

#[test]
fn records_are_remembered_until_anybody_changes_them() {
    let nodes = Nodes::new("records", 3);
    let containers = nodes.container();
    let index = containers[0].create_index(Some(INDEX)).unwrap();
    drop(index);
    let indices: Vec<_> = containers.iter().map(|container| container.index(INDEX).remembering()).collect();
    for round in 1..=60_u8 {
        indices[usize::from(round) % 3].put(&[(b"key", &[round])]).unwrap();
        for index in &indices {
            for _ in 0..3 {
                assert_eq!(index.get_one(b"key").unwrap().as_deref(), Some(&[round][..]));
                assert_eq!(index.get_one(b"none").unwrap(), None);
            }
        }
    }
}

#[test]
fn large_and_small_reads_agree_with_what_was_written() {
    let nodes = Nodes::new("sizes", 2);
    let containers = nodes.container();
    let [near, far] = [0, 1].map(|node| containers[node].object(ID));
    let mut content: Vec<u8> = (0..3_000_003_u32).map(|at| ((at * 7) >> 3) as u8).collect();
    near.write_at(0, &content).unwrap();
    let mut rng = cenote_workload::Rng::new(20_261_126);
    for round in 0..400_u64 {
        if round.is_multiple_of(7) {
            let (from, len) = (rng.index(content.len() - 9000), 1 + rng.index(9000));
            content[from..from + len].fill(round as u8);
            [&near, &far][rng.index(2)].write_at(from as u64, &content[from..from + len]).unwrap();
        }
        let from = rng.index(content.len());
        let len = if rng.chance(100) { 2_000_000 } else { rng.index(20_000) };
        let mut found = vec![0xee; len];
        let count = far.read_at(from as u64, &mut found).unwrap();
        assert_eq!(count, len.min(content.len() - from));
        assert!(found[..count] == content[from..from + count] && found[count..].iter().all(|byte| *byte == 0xee));
    }
    let mut whole = vec![0; content.len() + 5];
    assert_eq!(far.read_at(0, &mut whole).unwrap(), content.len());
    assert!(whole[..content.len()] == content[..]);
}

/// The reading node's daemon hangs: its clients stop using what they remember by themselves, and the writer waits for
/// that, and no longer.
#[test]
fn a_daemon_that_hangs_leaves_nobody_with_old_bytes() {
    let nodes = Nodes::new("hangs", 2);
    let containers = nodes.container();
    let [near, far] = [0, 1].map(|node| containers[node].object(ID));
    assert!(is_known(&containers[1]));
    let (begin, is_over, written_ns) = (Instant::now(), AtomicBool::new(false), AtomicU64::new(u64::MAX));
    let ns = || begin.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut hits, mut news) = (0_u64, 0_u64);
            while !is_over.load(Ordering::SeqCst) {
                let began = ns();
                match first_byte(&far) {
                    0 => {
                        hits += 1;
                        assert!(
                            began < written_ns.load(Ordering::SeqCst),
                            "old bytes after the write was acknowledged"
                        );
                    }
                    _ => news += 1,
                }
            }
            (hits, news)
        });
        std::thread::sleep(Duration::from_millis(50));
        nodes.signal(1, rustix::process::Signal::STOP);
        let stopped = Instant::now();
        std::thread::sleep(Duration::from_millis(100));
        near.write_at(0, &[1; 100]).unwrap();
        let took = stopped.elapsed();
        written_ns.store(ns(), Ordering::SeqCst);
        assert!(took < TRUST + Duration::from_secs(1), "{took:?}");
        std::thread::sleep(Duration::from_millis(300));
        nodes.signal(1, rustix::process::Signal::CONT);
        assert_eq!(first_byte(&far), 1);
        std::thread::sleep(Duration::from_millis(100));
        is_over.store(true, Ordering::SeqCst);
        let (hits, news) = reader.join().unwrap();
        println!("the writer waited for {took:?}; {hits} reads before, {news} after");
        assert!(hits > 1000 && news > 1000, "{hits} reads before, {news} after");
    });
    // The other way round: a home that hangs leaves its readers with what is true, for a while.
    nodes.signal(0, rustix::process::Signal::STOP);
    let reads = (0..1000).filter(|_| first_byte(&far) == 1).count();
    nodes.signal(0, rustix::process::Signal::CONT);
    assert_eq!(reads, 1000);
    near.write_at(0, &[2; 100]).unwrap();
    assert_eq!(first_byte(&far), 2);
}

/// A home whose daemon dies: what it told is true until the next one has waited for it.
#[test]
fn the_next_daemon_of_a_home_waits_for_what_the_last_one_told() {
    let nodes = Nodes::new("next", 2);
    let containers = nodes.container();
    let [near, far] = [0, 1].map(|node| containers[node].object(ID));
    for round in 1..=4_u8 {
        assert!(is_known(&containers[1]));
        // The reading node's daemon does not hear of the death of the other one.
        let hangs = round.is_multiple_of(2);
        if hangs {
            nodes.signal(1, rustix::process::Signal::STOP);
        }
        nodes.signal(0, rustix::process::Signal::KILL);
        nodes::begin(&nodes.dir_of(0), Path::new(env!("CARGO_BIN_EXE_crash"))).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut last = round - 1;
                loop {
                    let was_over = is_over.load(Ordering::SeqCst);
                    let found = first_byte(&far);
                    assert!(found >= last && (!was_over || found == round), "{last}, {found}, {round}, {was_over}");
                    if was_over {
                        return;
                    }
                    last = found;
                }
            });
            near.write_at(0, &[round; 100]).unwrap();
            is_over.store(true, Ordering::SeqCst);
            if hangs {
                nodes.signal(1, rustix::process::Signal::CONT);
            }
            assert_eq!(first_byte(&far), round);
            reader.join().unwrap();
        });
    }
}
