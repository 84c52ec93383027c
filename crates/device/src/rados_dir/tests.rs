//! Several directories, living and dead, on one pool that answers late, twice or not at all.

mod way;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote_model::ErrorKind;
use cenote_rados::{Change, MemoryPool, Pool};

use super::head::HEAD;
use super::*;
use crate::conformance;
use crate::mem::SplitMix;
use way::Way;

struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("cenote-rados-dir-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn place(&self, pool: &Arc<dyn Pool>, dir: &str) -> RadosPlace {
        let dir = self.0.join(dir);
        std::fs::create_dir_all(&dir).unwrap();
        let timing = Timing {
            trust: Duration::from_millis(80),
            beat: Duration::from_millis(5),
            patience: Duration::from_millis(300),
        };
        RadosPlace { pool: Arc::clone(pool), subject: "rados:pool/name".into(), local: dir.join("copy"), timing }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn memory() -> Arc<dyn Pool> {
    Arc::new(MemoryPool::default())
}

/// Ends a process: its threads and objects stay, as those of a process that is only stopped.
fn leave(dir: RadosMetaDir) {
    std::mem::forget(dir);
}

fn content(log: &dyn LogFile) -> Vec<u8> {
    let mut bytes = vec![0; log.capacity() as usize];
    log.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn it_is_a_store_directory() {
    let (scratch, pool, seed) = (Scratch::new(), memory(), conformance::seed());
    conformance::meta_dir(&RadosMetaDir::create(&scratch.place(&pool, "a")).unwrap(), seed);
    let way: Arc<dyn Pool> = Way::new(&pool, seed, 0);
    conformance::meta_dir(&RadosMetaDir::open(&scratch.place(&way, "b"), Take::Any).unwrap(), seed);
}

#[test]
fn it_is_one_when_changes_are_not_answered() {
    let (scratch, pool, seed) = (Scratch::new(), memory(), conformance::seed());
    let way: Arc<dyn Pool> = Way::new(&pool, seed, 100);
    conformance::meta_dir(&RadosMetaDir::create(&scratch.place(&way, "a")).unwrap(), seed);
}

#[test]
fn long_files_and_logs_lie_in_several_objects() {
    let (scratch, pool) = (Scratch::new(), memory());
    let first = RadosMetaDir::create(&scratch.place(&pool, "a")).unwrap();
    let long: Vec<u8> = (0..parts::PART_BYTES as u32 + 77).map(|at| (at >> 8) as u8).collect();
    first.write_file("long", &long).unwrap();
    let log = first.create_log("log", parts::PART_BYTES * 2 + 5).unwrap();
    log.write(parts::PART_BYTES - 3, b"across").unwrap();
    log.write(parts::PART_BYTES * 2 + 1, b"end.").unwrap();
    log.sync().unwrap();
    let other = RadosMetaDir::open(&scratch.place(&pool, "b"), Take::Any).unwrap();
    assert!(other.read_file("long").unwrap() == long);
    assert!(content(other.open_log("log").unwrap().as_ref()) == content(log.as_ref()));
    let objects = pool.list().unwrap();
    assert_eq!(objects.len(), 1 + 2 + 3, "{objects:?}");
    other.remove("long").unwrap();
    other.remove("log").unwrap();
    assert_eq!(pool.list().unwrap(), [HEAD]);
}

#[test]
fn the_death_of_the_process_loses_nothing_and_a_restart_of_the_machine_what_was_not_synced() {
    let (scratch, pool) = (Scratch::new(), memory());
    let place = scratch.place(&pool, "a");
    let first = RadosMetaDir::create(&place).unwrap();
    let log = first.create_log("log", 300_000).unwrap();
    log.write(0, b"synced").unwrap();
    log.sync().unwrap();
    log.write(100_000, b"written").unwrap();
    leave(first);
    let again = RadosMetaDir::open(&place, Take::Own).unwrap();
    assert!(!again.has_moved());
    let log = again.open_log("log").unwrap();
    assert_eq!(content(log.as_ref())[100_000..100_007], *b"written");
    log.write(200_000, b"lost").unwrap();
    leave(again);
    // The opening has brought to the pool what the first process had written.
    let note = place.local.with_file_name("copy-note");
    let text = std::fs::read_to_string(&note).unwrap();
    let (_, rest) = text.split_once("\nboot ").unwrap();
    let body = format!("boot 00\n{}", rest.split_once('\n').unwrap().1);
    std::fs::write(&note, format!("cenote-copy 1\nsum {:08x}\n{body}", sum_of(body.as_bytes()))).unwrap();
    let after = RadosMetaDir::open(&place, Take::Own).unwrap();
    let bytes = content(after.open_log("log").unwrap().as_ref());
    assert_eq!(
        (&bytes[..6], &bytes[100_000..100_007], &bytes[200_000..200_004]),
        (&b"synced"[..], &b"written"[..], &[0; 4][..])
    );
    assert!(place.local.with_file_name("copy-before").join("log").exists(), "the former copy is set aside");
}

#[test]
fn another_directory_takes_over_only_when_it_is_told_to_and_the_former_holder_changes_nothing_more() {
    let (scratch, pool) = (Scratch::new(), memory());
    let (a, b) = (scratch.place(&pool, "a"), scratch.place(&pool, "b"));
    let first = RadosMetaDir::create(&a).unwrap();
    first.write_file("superblock", b"one").unwrap();
    let log = first.create_log("log", 10_000).unwrap();
    log.write(0, b"synced").unwrap();
    log.sync().unwrap();
    log.write(6, b" and not").unwrap();
    let error = RadosMetaDir::open(&b, Take::Own).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");

    let begin = Instant::now();
    let second = RadosMetaDir::open(&b, Take::Any).unwrap();
    assert!(begin.elapsed() >= a.timing.trust, "a holder that is not gone may still take changes");
    assert!(second.has_moved() && second.term() == 2);
    let refused: [Result<()>; 6] = [
        log.write(0, b"zombie"),
        log.sync(),
        first.write_file("superblock", b"zombie"),
        first.remove("superblock"),
        first.create_log("other", 4096).map(drop),
        first.write_file("new", b"zombie"),
    ];
    for (at, result) in refused.into_iter().enumerate() {
        assert_eq!(result.unwrap_err().kind(), ErrorKind::Disconnected, "change {at}");
    }
    let error = first.lost().unwrap().to_string();
    assert!(error.contains("taken over") && error.contains("term 2"), "{error}");
    assert_eq!(second.list().unwrap(), ["log", "superblock"]);
    assert_eq!(second.read_file("superblock").unwrap(), b"one");
    assert_eq!(content(second.open_log("log").unwrap().as_ref())[..14], *b"synced\0\0\0\0\0\0\0\0");
    drop((log, first));
    // Nor does it come back by itself.
    assert_eq!(RadosMetaDir::open(&a, Take::Own).err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
    drop(second);
    assert_eq!(RadosMetaDir::open(&a, Take::Own).err().map(|error| error.kind()), Some(ErrorKind::InvalidInput));
    let begin = Instant::now();
    let back = RadosMetaDir::open(&a, Take::Any).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(10) && back.term() == 3);
    assert_eq!(content(back.open_log("log").unwrap().as_ref())[..7], *b"synced\0");
}

#[test]
fn a_former_holder_whose_log_was_removed_is_told_who_has_the_store() {
    let (scratch, pool) = (Scratch::new(), memory());
    let first = RadosMetaDir::create(&scratch.place(&pool, "a")).unwrap();
    let log = first.create_log("log", 10_000).unwrap();
    log.write(0, b"x").unwrap();
    let second = RadosMetaDir::open(&scratch.place(&pool, "b"), Take::Any).unwrap();
    second.remove("log").unwrap();
    let error = log.sync().unwrap_err();
    assert!(error.to_string().contains("taken over"), "{error}");
}

#[test]
fn what_a_dead_holder_sent_takes_place_before_the_seal_or_never() {
    let (scratch, pool, seed) = (Scratch::new(), memory(), conformance::seed());
    let way = Way::new(&pool, seed, 0);
    let first = RadosMetaDir::create(&scratch.place(&(way.clone() as Arc<dyn Pool>), "a")).unwrap();
    first.write_file("superblock", b"one").unwrap();
    let log = first.create_log("log", 10_000).unwrap();
    log.write(0, b"synced").unwrap();
    log.sync().unwrap();
    way.is_cut.store(true, Ordering::SeqCst);
    log.write(0, b"late  ").unwrap();
    assert!(log.sync().is_err() && first.write_file("superblock", b"late").is_err() && first.remove("log").is_err());
    assert!(first.create_log("second", 4096).is_err());
    let second = RadosMetaDir::open(&scratch.place(&pool, "b"), Take::Any).unwrap();
    let named = second.list().unwrap();
    // Only objects that nothing names can come to be.
    way.carry_out_late();
    let third = RadosMetaDir::open(&scratch.place(&pool, "c"), Take::Any).unwrap();
    assert_eq!(third.list().unwrap(), named);
    assert_eq!(third.read_file("superblock").unwrap(), b"one");
    assert_eq!(content(third.open_log("log").unwrap().as_ref())[..6], *b"synced");
    let until = Instant::now() + Duration::from_secs(10);
    while pool.list().unwrap().len() > 3 {
        assert!(Instant::now() < until, "strays stay: {:?}", pool.list());
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_holder_that_the_pool_does_not_confirm_takes_no_changes_until_it_does() {
    let (scratch, pool) = (Scratch::new(), memory());
    let way = Way::new(&pool, 1, 0);
    let dir = RadosMetaDir::create(&scratch.place(&(way.clone() as Arc<dyn Pool>), "a")).unwrap();
    let log = dir.create_log("log", 10_000).unwrap();
    way.is_cut.store(true, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    let error = log.write(0, b"x").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io, "{error}");
    assert!(error.to_string().contains("has not confirmed"), "{error}");
    way.is_cut.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    log.write(0, b"x").unwrap();
    assert!(dir.lost().is_none());
    log.sync().unwrap();
    // A sync that fails forgets nothing.
    log.write(5000, b"y").unwrap();
    way.is_cut.store(true, Ordering::SeqCst);
    assert_eq!(log.sync().unwrap_err().kind(), ErrorKind::Io);
    way.is_cut.store(false, Ordering::SeqCst);
    log.sync().unwrap();
    let other = RadosMetaDir::open(&scratch.place(&pool, "b"), Take::Any).unwrap();
    assert_eq!(content(other.open_log("log").unwrap().as_ref())[5000], b'y');
}

#[test]
fn a_store_that_was_never_made_whole_is_taken_over_and_a_whole_one_is_not() {
    let (scratch, pool) = (Scratch::new(), memory());
    leave(RadosMetaDir::create(&scratch.place(&pool, "a")).unwrap());
    let made = RadosMetaDir::create(&scratch.place(&pool, "b")).unwrap();
    assert_eq!(made.term(), 2);
    made.write_file("superblock", b"x").unwrap();
    let error = RadosMetaDir::create(&scratch.place(&pool, "c")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert!(error.to_string().contains("holds a store already"), "{error}");
    made.destroy().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while !pool.list().unwrap().is_empty() {
        assert!(Instant::now() < until, "{:?} stay", pool.list());
        std::thread::sleep(Duration::from_millis(5));
    }
    let error = RadosMetaDir::open(&scratch.place(&pool, "c"), Take::Any).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn of_two_openings_at_once_one_has_the_store() {
    let (scratch, pool) = (Scratch::new(), memory());
    let first = RadosMetaDir::create(&scratch.place(&pool, "first")).unwrap();
    first.write_file("superblock", b"x").unwrap();
    first.create_log("log", 100_000).unwrap();
    let opened: Vec<_> = std::thread::scope(|scope| {
        let open = |at: u64| {
            let place = scratch.place(&pool, &format!("d{at}"));
            scope.spawn(move || RadosMetaDir::open(&place, Take::Any))
        };
        let threads: Vec<_> = (0..4).map(open).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let holders: Vec<_> = opened.iter().flatten().filter(|dir| dir.write_file("mine", b"x").is_ok()).collect();
    assert_eq!(
        holders.len(),
        1,
        "{:?}",
        opened.iter().map(|dir| dir.as_ref().map(RadosMetaDir::term)).collect::<Vec<_>>()
    );
    let last = opened.iter().flatten().map(RadosMetaDir::term).max();
    assert_eq!(Some(holders[0].term()), last);
}

#[test]
fn damage_in_the_pool_is_noticed() {
    let (scratch, pool) = (Scratch::new(), memory());
    let first = RadosMetaDir::create(&scratch.place(&pool, "a")).unwrap();
    first.write_file("superblock", b"one").unwrap();
    let object = pool.list().unwrap().into_iter().find(|object| object != HEAD).unwrap();
    pool.change(&object, &[], &[Change::Write(1, b"X")]).unwrap();
    let error = RadosMetaDir::open(&scratch.place(&pool, "b"), Take::Any).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(first.read_file("superblock").unwrap(), b"one", "from the copy");
}

/// What a log may hold: for each byte the value that was last synced, and those written since.
#[derive(Clone, Default)]
struct Oracle {
    files: BTreeMap<String, Vec<Option<Vec<u8>>>>,
    log: Vec<Vec<u8>>,
}

/// Holders come and go on ways that answer badly; those that lost the store go on changing it, and what they sent takes
/// place late. The last holder always finds what was durable.
#[test]
fn whatever_former_holders_do_the_last_one_has_what_was_durable() {
    let seed = conformance::seed();
    for round in 0..12 {
        run(seed.wrapping_add(round));
    }
}

const LOG_BYTES: u64 = 2000;
/// In a thousand changes.
const UNANSWERED: u64 = 300;

/// A way on which every change is answered, until [`Way::unanswered`] says otherwise; then many are given up.
fn hasty(scratch: &Scratch, pool: &Arc<dyn Pool>, seed: u64, dir: &str) -> (Arc<Way>, RadosPlace) {
    let way = Way::new(pool, seed, 0);
    let mut place = scratch.place(&(way.clone() as Arc<dyn Pool>), dir);
    place.timing.patience = Duration::from_millis(15);
    (way, place)
}

fn run(seed: u64) {
    let (scratch, pool, mut rng) = (Scratch::new(), memory(), SplitMix::new(seed));
    let mut oracle = Oracle { log: vec![vec![0]; LOG_BYTES as usize], ..Oracle::default() };
    let mut ways = Vec::new();
    let mut zombies: Vec<(RadosMetaDir, Box<dyn LogFile>)> = Vec::new();
    let (way, place) = hasty(&scratch, &pool, rng.next_u64(), "d0");
    let mut dir = RadosMetaDir::create(&place).unwrap();
    let mut log = dir.create_log("log", LOG_BYTES).unwrap();
    way.unanswered.store(UNANSWERED, Ordering::SeqCst);
    ways.push(way);
    for step in 0..150_u64 {
        match rng.below(12) {
            0..6 => write_some(log.as_ref(), &mut rng, &mut oracle, seed, step),
            6 | 7 => change_file(&dir, &mut rng, &mut oracle),
            8 if !zombies.is_empty() => {
                let at = rng.below(zombies.len() as u64) as usize;
                try_as_zombie(&zombies[at], &mut rng, seed, step);
            }
            9 => ways.iter().for_each(|way| way.carry_out_late()),
            10 if rng.below(3) == 0 => {
                let (way, place) = hasty(&scratch, &pool, rng.next_u64(), &format!("d{}", step + 1));
                let next = RadosMetaDir::open(&place, Take::Any)
                    .unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                let next_log = next.open_log("log").unwrap();
                way.unanswered.store(UNANSWERED, Ordering::SeqCst);
                ways.push(way);
                zombies.push((std::mem::replace(&mut dir, next), std::mem::replace(&mut log, next_log)));
                check(&dir, log.as_ref(), &mut oracle, seed, step);
            }
            _ => {}
        }
    }
    for way in &ways {
        way.carry_out_late();
    }
    let last = RadosMetaDir::open(&scratch.place(&pool, "last"), Take::Any).unwrap();
    let log = last.open_log("log").unwrap();
    check(&last, log.as_ref(), &mut oracle, seed, 150);
}

fn write_some(log: &dyn LogFile, rng: &mut SplitMix, oracle: &mut Oracle, seed: u64, step: u64) {
    let (at, len) = (rng.below(LOG_BYTES - 100), 1 + rng.below(100));
    let byte = 1 + rng.below(255) as u8;
    let written = log.write(at, &vec![byte; len as usize]);
    assert!(written.is_ok(), "seed {seed}, step {step}: {written:?}");
    oracle.log[at as usize..(at + len) as usize].iter_mut().for_each(|values| values.push(byte));
    if rng.below(2) == 0 && log.sync().is_ok() {
        oracle.log.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
    }
}

fn change_file(dir: &RadosMetaDir, rng: &mut SplitMix, oracle: &mut Oracle) {
    let name = format!("f{}", rng.below(4));
    let (bytes, done) = if rng.below(3) == 0 {
        (
            None,
            dir.remove(&name)
                .map(|()| true)
                .or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(true) } else { Err(error) }),
        )
    } else {
        let bytes = vec![rng.below(256) as u8; rng.below(300) as usize];
        (Some(bytes.clone()), dir.write_file(&name, &bytes).map(|()| true))
    };
    let values = oracle.files.entry(name).or_insert_with(|| vec![None]);
    values.push(bytes);
    if done.is_ok() {
        values.drain(..values.len() - 1);
    }
}

fn try_as_zombie((dir, log): &(RadosMetaDir, Box<dyn LogFile>), rng: &mut SplitMix, seed: u64, step: u64) {
    let done = match rng.below(5) {
        0 => log.write(rng.below(LOG_BYTES - 6), b"zombie"),
        1 => log.write(0, b"zombie").and_then(|()| log.sync()),
        2 => dir.write_file("f1", b"zombie"),
        3 => dir.remove("log"),
        _ => dir.create_log("zombie", 4096).map(drop),
    };
    assert!(done.is_err(), "seed {seed}, step {step}: a former holder changed something");
}

/// Compares, and takes what is found for durable: the opening has read it.
fn check(dir: &RadosMetaDir, log: &dyn LogFile, oracle: &mut Oracle, seed: u64, step: u64) {
    for (at, (values, found)) in oracle.log.iter_mut().zip(content(log)).enumerate() {
        assert!(values.contains(&found), "seed {seed}, step {step}: byte {at} is {found}, not one of {values:?}");
        *values = vec![found];
    }
    for (name, values) in &mut oracle.files {
        let found = dir.read_file(name).ok();
        assert!(values.contains(&found), "seed {seed}, step {step}: file {name} is {found:?}, not one of {values:?}");
        *values = vec![found];
    }
    let names = dir.list().unwrap();
    assert!(names.iter().all(|name| name == "log" || oracle.files.contains_key(name)), "seed {seed}: {names:?}");
}

#[test]
fn who_was_given_the_store_by_others_waits_for_nobody_and_fences_the_former_holder() {
    let (scratch, pool) = (Scratch::new(), memory());
    let mut slow = scratch.place(&pool, "a");
    slow.timing.trust = Duration::from_secs(30);
    let first = RadosMetaDir::create(&slow).unwrap();
    first.write_file("superblock", b"one").unwrap();
    assert!(RadosMetaDir::is_own(&slow).unwrap() && first.confirm().is_ok());
    let (begin, heir) = (Instant::now(), scratch.place(&pool, "b"));
    assert!(!RadosMetaDir::is_own(&heir).unwrap());
    assert_eq!(RadosMetaDir::check_free(&heir).unwrap_err().kind(), ErrorKind::Exists);
    let second = RadosMetaDir::open(&heir, Take::Granted).unwrap();
    assert!(begin.elapsed() < Duration::from_secs(15), "the trust of the former holder is not waited for");
    assert!(second.has_moved() && second.confirm().is_ok());
    // What it believes for another half minute does not count.
    assert_eq!(first.confirm().unwrap_err().kind(), ErrorKind::Disconnected);
    assert!(first.lost().is_some() && first.write_file("superblock", b"late").is_err());
    assert_eq!(second.read_file("superblock").unwrap(), b"one");
    assert!(!RadosMetaDir::is_own(&slow).unwrap() && RadosMetaDir::is_own(&heir).unwrap());
    drop(second);
    let objects = pool.list().unwrap();
    let free = RadosPlace { pool: memory(), ..scratch.place(&pool, "c") };
    RadosMetaDir::check_free(&free).unwrap();
    assert_eq!((free.pool.list().unwrap(), pool.list().unwrap()), (Vec::new(), objects), "nothing is left");
}
