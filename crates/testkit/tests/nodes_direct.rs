//! Reads of another node's objects over a connection of the reading process, with real daemons: who reads what was written
//! sees it, whatever happens to the connection.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{Container, ContainerSpec, ObjectId, Store};
use cenote_testkit::crash::nodes::{self, Cluster};

const LEN: usize = 3 << 20;
const PROGRAM: &str = env!("CARGO_BIN_EXE_crash");

/// The tests count connections of this process, so each has it for itself.
static ALONE: Mutex<()> = Mutex::new(());

fn two_nodes(name: &str) -> Cluster {
    Cluster::new(&format!("direct-{name}"), Path::new(PROGRAM), 2, 0)
}

/// A container of the first node, seen from both.
fn container(nodes: &Cluster) -> [Container; 2] {
    let theirs = nodes.stores[0].create_container("far", &ContainerSpec::default()).unwrap();
    [theirs, nodes.stores[1].container("far").unwrap()]
}

/// TCP connections of this process.
fn connections() -> usize {
    let sockets: Vec<String> = std::fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
    let inode = |line: &str| line.split_whitespace().nth(9).map(str::to_owned);
    table.lines().filter_map(inode).filter(|inode| sockets.contains(inode)).count()
}

fn content(round: usize) -> Vec<u8> {
    (0..LEN).map(|at| (at.wrapping_mul(31).wrapping_add(round * 7) >> 5) as u8).collect()
}

#[test]
fn long_reads_are_direct_and_right_when_the_home_comes_again() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let nodes = two_nodes("again");
    let [theirs, ours] = container(&nodes);
    let theirs = theirs.create_object(Some(ObjectId(1)), None).unwrap();
    let ours = ours.object(ObjectId(1));
    assert_eq!(connections(), 0);
    for round in 0..6 {
        let wanted = content(round);
        theirs.write_at(0, &wanted).unwrap();
        let mut found = vec![0; LEN + 10];
        assert_eq!(ours.read_at(0, &mut found).unwrap(), LEN);
        assert!(found[..LEN] == wanted[..], "round {round}");
        let mut small = vec![0; 5000];
        assert_eq!(ours.read_at(LEN as u64 - 1000, &mut small).unwrap(), 1000);
        assert_eq!(small[..1000], wanted[LEN - 1000..]);
        if round % 3 == 0 {
            assert_eq!(connections(), 1, "no direct connection in round {round}");
        }
        if round % 3 == 1 {
            Store::stop_daemon(nodes.dir_of(0)).unwrap();
            nodes::begin(&nodes.dir_of(0), Path::new(PROGRAM)).unwrap();
        } else if round % 3 == 2 {
            // What was lost is not tried again at once.
            std::thread::sleep(std::time::Duration::from_millis(1100));
        }
    }
    drop(theirs);
    let gone = nodes.stores[1].container("far").unwrap().object(ObjectId(9));
    assert!(gone.read_at(0, &mut vec![0; LEN]).is_err(), "an object that does not exist");
    let mut found = vec![0; LEN];
    assert_eq!(ours.read_at(0, &mut found).unwrap(), LEN);
}

#[test]
fn what_is_written_meanwhile_is_seen_by_all_threads() {
    const BLOCK: usize = 64 << 10;
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let nodes = two_nodes("meanwhile");
    let [theirs, ours] = container(&nodes);
    let theirs = theirs.create_object(Some(ObjectId(1)), None).unwrap();
    let ours = ours.object(ObjectId(1));
    theirs.write_at(0, &vec![0; 16 * BLOCK]).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = vec![0u8; 16];
                    let mut reads = 0;
                    while !is_over.load(Ordering::SeqCst) {
                        let mut found = vec![0; 16 * BLOCK];
                        assert_eq!(ours.read_at(0, &mut found).unwrap(), found.len());
                        for (block, seen) in found.chunks(BLOCK).zip(&mut seen) {
                            assert!(block.iter().all(|byte| *byte == block[0]), "a torn block");
                            assert!(block[0] >= *seen, "an older state: {} after {seen}", block[0]);
                            *seen = block[0];
                        }
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        for round in 1..=200u8 {
            let block = usize::from(round) * 7 % 16;
            theirs.write_at((block * BLOCK) as u64, &vec![round; BLOCK]).unwrap();
            let mut found = [0; 4096];
            ours.read_at((block * BLOCK) as u64, &mut found).unwrap();
            assert_eq!(found, [round; 4096], "what was acknowledged is not seen");
        }
        is_over.store(true, Ordering::SeqCst);
        for reader in readers {
            assert!(reader.join().unwrap() > 3);
        }
    });
}

/// Files below a directory.
fn files_below(dir: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .flat_map(|entry| if entry.path().is_dir() { files_below(&entry.path()) } else { vec![entry.path()] })
        .collect()
}

/// Changes a byte of a memory tier where these bytes lie.
fn damage(bytes: &[u8]) {
    for file in files_below(Path::new("/dev/shm")) {
        let Ok(content) = std::fs::read(&file) else { continue };
        let Some(at) = content.chunks(512).position(|chunk| chunk == &bytes[..512]) else { continue };
        let segment = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
        return std::os::unix::fs::FileExt::write_all_at(&segment, &[!bytes[0]], at as u64 * 512).unwrap();
    }
    panic!("these bytes are in no segment");
}

#[test]
fn bytes_that_are_damaged_in_memory_are_an_error() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let nodes = two_nodes("damaged");
    let [theirs, ours] = container(&nodes);
    let theirs = theirs.create_object(Some(ObjectId(1)), None).unwrap();
    let ours = ours.object(ObjectId(1));
    let seed = std::process::id().wrapping_mul(2_654_435_761);
    let wanted: Vec<u8> = (0..LEN as u32).map(|at| (at.wrapping_mul(seed | 1) >> 13) as u8).collect();
    theirs.write_at(0, &wanted).unwrap();
    let mut found = vec![0; LEN];
    assert_eq!(ours.read_at(0, &mut found).unwrap(), LEN);
    assert_eq!(connections(), 1, "no direct connection");
    damage(&wanted[1 << 20..]);
    theirs.write_at(0, &[wanted[0]]).unwrap(); // nobody relies on what was read before
    let error = ours.read_at(0, &mut found).unwrap_err();
    assert_eq!(error.kind(), cenote::ErrorKind::Corrupt, "{error}");
    assert_eq!(ours.read_at(0, &mut found[..1 << 20]).unwrap(), 1 << 20, "what is not damaged");
    assert!(found[..1 << 20] == wanted[..1 << 20]);
}
