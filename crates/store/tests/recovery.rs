//! Recovery from every point of the journal, and from damage.
#![allow(clippy::large_stack_arrays, reason = "bytes to write, by the ten thousand")]

mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};

use cenote_device::mem::Keep;
use cenote_device::{LogFile, MetaDir};
use cenote_model::*;
use cenote_store::{Engine, Outcome};
use world::*;

const SMALL: u64 = 1 << 20;

fn small_world() -> World {
    World::new(&three_tiers(SMALL, 4 * SMALL, 8 * SMALL))
}

/// The log file that is written to, and how far.
fn newest_log(world: &World) -> String {
    world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("journal-")).max().unwrap()
}

fn log_bytes(log: &dyn LogFile) -> Vec<u8> {
    let mut bytes = vec![0; log.capacity() as usize];
    log.read(0, &mut bytes).unwrap();
    bytes
}

#[test]
fn a_journal_cut_at_any_byte_is_a_prefix_of_what_was_done() {
    let mut world = small_world();
    let container = world.container("c", Durability::Async);
    let key = index(container, 1);
    world.must(vec![Update::IndexCreate { key }]);
    let name = newest_log(&world);
    let before = log_bytes(world.meta.open_log(&name).unwrap().as_ref());
    let begin = record_begins(&before, 4096).last().map_or(4096, |at| record_end(&before, *at));
    for i in 0..4u8 {
        let put = |n: u8| Update::Put { index: key, key: vec![i, n], value: vec![i; 10], only_new: false };
        world.must(vec![put(0), put(1)]);
    }
    let whole = log_bytes(world.meta.open_log(&name).unwrap().as_ref());
    let end = record_begins(&whole, 4096).last().map_or(4096, |at| record_end(&whole, *at));
    let mut seen = 0;
    world.kill();
    for cut in begin..=end {
        let log = world.meta.open_log(&name).unwrap();
        log.write(0, &whole).unwrap();
        log.write(cut as u64, &vec![0; whole.len() - cut]).unwrap();
        // A process that dies while it appends leaves the torn record without its length.
        let last = record_begins(&whole, 4096).into_iter().rfind(|at| *at < cut && record_end(&whole, *at) > cut);
        if let Some(at) = last {
            log.write(at as u64, &[0; 4]).unwrap();
        }
        drop(log);
        world.open().unwrap_or_else(|error| panic!("cut at {cut}: {error:?}"));
        let request =
            Request::Next { index: key, from: NextFrom::Start, prefix: vec![], limit: 100, bytes_max: 1 << 20 };
        let Response::Records { records, .. } = world.ask(request) else { panic!() };
        assert_eq!(records.len() % 2, 0, "half a transaction at {cut}");
        assert!(records.len() >= seen, "less than before at {cut}");
        seen = records.len();
        world.kill();
        // Remove the files that the opening added.
        for added in
            world.meta.list().unwrap().into_iter().filter(|other| other.starts_with("journal-") && *other > name)
        {
            world.meta.remove(&added).unwrap();
        }
    }
    assert_eq!(seen, 8);
}

fn record_begins(bytes: &[u8], from: usize) -> Vec<usize> {
    let mut begins = Vec::new();
    let mut at = from.next_multiple_of(8);
    while record_end(bytes, at) > at {
        begins.push(at);
        at = record_end(bytes, at).next_multiple_of(8);
    }
    begins
}
fn record_end(bytes: &[u8], at: usize) -> usize {
    let len = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    if len == 0 { at } else { at + 8 + len }
}

/// A store with something of everything in it.
fn rich_world() -> World {
    let mut world = small_world();
    let container = world.container("rich", Durability::Async);
    let scratch = world.container("scratch", Durability::Scratch);
    let (a, b, records) = (object(container, 1), object(container, 2), index(container, 1));
    world.must(vec![
        Update::ObjectCreate { key: a, block_shift: 12 },
        Update::ObjectCreate { key: b, block_shift: 6 },
        Update::ObjectCreate { key: object(scratch, 1), block_shift: 12 },
        Update::IndexCreate { key: records },
        Update::Put { index: records, key: b"k".to_vec(), value: vec![1; 99], only_new: false },
    ]);
    world.write(a, 0, &[1; 100_000]).unwrap();
    world.write(object(scratch, 1), 0, &[3; 5000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.write(a, 50_000, &[2; 10_000]).unwrap();
    world.write(b, 7, &[4; 777]).unwrap();
    world.must(vec![
        Update::Punch { key: a, offset: 10, len: 10 },
        Update::Del { index: records, key: b"k".to_vec() },
        Update::Put { index: records, key: b"l".to_vec(), value: vec![2; 9], only_new: true },
    ]);
    world
}

/// Flips each byte of a file in turn: each opening fails or is right, and never panics or returns other bytes.
fn flip_each(file: impl Fn(&World) -> String, offsets: impl Fn(&World, &str) -> Vec<u64>, must_fail: bool) {
    let key = object(ContainerId(1), 1);
    let mut reference = rich_world();
    let expected = reference.read(key).unwrap();
    let count = {
        let name = file(&reference);
        offsets(&reference, &name)
    };
    let step = (count.len() / 400).max(1);
    for offset in count.iter().step_by(step) {
        let mut world = rich_world();
        let name = file(&world);
        world.kill();
        assert!(world.meta.corrupt(&name, *offset, 1 << (offset % 8)));
        let opened = catch_unwind(AssertUnwindSafe(|| world.open()));
        match opened.unwrap_or_else(|_| panic!("a panic for byte {offset} of {name}")) {
            Ok(()) => {
                assert!(!must_fail, "byte {offset} of {name} was not noticed");
                if let Ok(found) = world.read(key) {
                    assert_eq!(found, expected, "byte {offset} of {name}");
                }
            }
            Err(error) => {
                let clear = matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionMismatch);
                assert!(clear && !error.subject().is_empty(), "{error:?}");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_journal_is_an_error() {
    let used = |world: &World, name: &str| -> Vec<u64> {
        let bytes = log_bytes(world.meta.open_log(name).unwrap().as_ref());
        let end = bytes.iter().rposition(|byte| *byte != 0).unwrap() as u64;
        // The unused rest of the header page and padding between records mean nothing.
        let records = record_begins(&bytes, 4096);
        let ends = |at: &usize| (*at as u64, record_end(&bytes, *at) as u64);
        (0..512).chain(records.iter().map(ends).flat_map(|(from, to)| from..to)).filter(|at| *at <= end).collect()
    };
    flip_each(newest_log, used, true);
}

#[test]
fn a_flipped_bit_in_superblock_or_checkpoint_is_an_error() {
    let all = |world: &World, name: &str| (0..world.meta.size(name).unwrap()).collect();
    flip_each(|_| "superblock".to_owned(), all, true);
    let checkpoint = |world: &World| {
        world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("checkpoint-")).max().unwrap()
    };
    flip_each(checkpoint, all, true);
}

#[test]
fn a_flipped_bit_in_a_full_checkpoint_is_an_error() {
    let mut world = rich_world();
    world.engine().close().unwrap();
    world.kill();
    let name = world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("checkpoint-")).max().unwrap();
    let size = world.meta.size(&name).unwrap();
    for offset in 0..size {
        world.meta.corrupt(&name, offset, 1 << (offset % 8));
        let error = Engine::open_tuned(world.seams(), tuning()).err().unwrap_or_else(|| panic!("byte {offset}"));
        assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::VersionMismatch), "{error:?}");
        world.meta.corrupt(&name, offset, 1 << (offset % 8));
    }
    world.open().unwrap();
    assert_eq!(world.report.records_replayed, 0);
}

#[test]
fn power_loss_keeps_what_was_flushed_and_drops_scratch() {
    for keep in [Keep::Nothing, Keep::Everything, Keep::Random(3)] {
        let mut world = rich_world();
        let (a, b) = (object(ContainerId(1), 1), object(ContainerId(1), 2));
        world.power_loss(keep);
        world.open().unwrap();
        assert!(world.report.power_lost);
        assert_eq!(world.report.lost_objects, [object(ContainerId(2), 1)]);
        assert_eq!(world.read(a).unwrap(), [1; 100_000], "as it was flushed");
        assert_eq!(world.read(b).unwrap(), [0; 0], "was there, and empty");
        assert!(world.verify().findings.is_empty());
        world.kill();
        world.open().unwrap();
        assert!(!world.report.power_lost, "once is enough");
    }
}

#[test]
fn sync_containers_lose_nothing() {
    for keep in [Keep::Nothing, Keep::Random(1), Keep::Random(2)] {
        let mut world = small_world();
        let container = world.container("sync", Durability::Sync);
        let (key, records) = (object(container, 1), index(container, 1));
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }, Update::IndexCreate { key: records }]);
        for i in 0..10u8 {
            world.write(key, u64::from(i) * 3000, &[i + 1; 3000]).unwrap();
            world.must(vec![Update::Put { index: records, key: vec![i], value: vec![i], only_new: true }]);
        }
        let expected = world.read(key).unwrap();
        world.power_loss(keep);
        world.open().unwrap();
        assert_eq!(world.read(key).unwrap(), expected);
        let Response::Values(values) = world.ask(Request::Get { index: records, keys: vec![vec![9]] }) else {
            panic!()
        };
        assert_eq!(values[0].as_ref().unwrap().0, [9]);
    }
}

#[test]
fn transactions_across_containers_go_back_together() {
    let mut torn = 0;
    for seed in 0..60 {
        let mut rng = Rng::new(seed + 1);
        let mut world = small_world();
        let pair = [world.container("a", Durability::Async), world.container("b", Durability::Async)];
        for container in pair {
            world.must(vec![Update::ObjectCreate { key: object(container, 1), block_shift: 12 }]);
        }
        for i in 1..20u8 {
            let updates = pair.map(|c| world.stage(object(c, 1), 0, &[i; 3000]).unwrap());
            world.must(updates.to_vec());
            let only = pair[rng.below(2) as usize];
            world.write(object(only, 1), 5000, &[i; 100]).unwrap();
            world.clock.advance_ns(rng.below(1_500_000_000));
            for _ in 0..rng.below(6) {
                world.step();
            }
        }
        world.power_loss(if seed % 2 == 0 { Keep::Nothing } else { Keep::Random(seed) });
        world.open().unwrap();
        let found = pair.map(|c| world.read(object(c, 1)).unwrap_or_default().first().copied().unwrap_or(0));
        assert_eq!(found[0], found[1], "seed {seed}: one transaction in two states");
        torn += u32::from(found[0] != 19);
    }
    assert!(torn > 10, "the test lost too little to show anything");
}

#[test]
fn missing_and_foreign_files_are_named() {
    let mut world = rich_world();
    for _ in 0..2000 {
        world.must(vec![Update::Put {
            index: index(ContainerId(1), 1),
            key: b"x".to_vec(),
            value: vec![0; 100],
            only_new: false,
        }]);
    }
    world.kill();
    let logs: Vec<String> =
        world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("journal-")).collect();
    assert!(logs.len() > 2);
    world.meta.remove(&logs[1]).unwrap();
    let error = world.open().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.subject().contains(&logs[1]), "{error}");
}

#[test]
fn an_answer_that_is_asked_for_again_promises_what_the_container_promises_then() {
    let mut world = small_world();
    let container = world.container("c", Durability::Sync);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    // Written and not answered: the engine dies.
    let update = world.stage(key, 0, &[7; 5000]).unwrap();
    let (session, seq) = (world.session, 1000);
    let write = Request::Apply { checks: vec![], updates: vec![update], atomic: true };
    assert!(matches!(world.engine().handle(session, seq, write.clone()), Outcome::Wait(_)));
    world.kill();
    world.open().unwrap();
    // Another client makes the container `Async`, and `Sync` again while the response waits for the journal.
    let set = |durability| {
        let spec = ContainerSpec { durability, ..ContainerSpec::default() };
        Request::Apply { checks: vec![], updates: vec![Update::ContainerSet { id: container, spec }], atomic: true }
    };
    assert!(matches!(world.engine().handle(session, 1001, set(Durability::Async)), Outcome::Wait(_)));
    let Outcome::Wait(ticket) = world.engine().handle(session, seq, write) else { panic!("answered too early") };
    assert!(matches!(world.engine().handle(session, 1002, set(Durability::Sync)), Outcome::Wait(_)));
    while !world.engine().take_finished().iter().any(|(finished, _)| *finished == ticket) {
        if !world.step() {
            world.clock.advance_ns(20_000_000);
        }
    }
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(key).unwrap(), [7; 5000]);
}

#[test]
fn a_cut_of_which_something_cannot_be_read_is_never_called_done() {
    let mut world = small_world();
    let key = object(world.container("c", Durability::Async), 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[1; 5000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    world.write(key, 0, &[2; 5000]).unwrap();
    let damaged = world.lookup(key).unwrap().extents[0].1.clone();
    assert!(world.devices.corrupt(STORE, damaged.device, damaged.run_offset, 1));
    // A cut begins, and the bytes it has to copy are overwritten before they are copied.
    world.clock.advance_ns(10_000_000_000);
    world.engine().tick();
    world.write(key, 0, &[3; 5000]).unwrap();
    while let Some(job) = world.engine().next_job() {
        let done = job.run();
        world.engine().finish_job(done);
    }
    world.power_loss(Keep::Everything);
    world.open().unwrap();
    assert!(world.report.lost_objects.is_empty(), "{:?}", world.report);
    assert_eq!(world.read(key).unwrap(), [1; 5000]);
}

/// Bytes of all journal files.
fn journal_bytes(world: &World) -> u64 {
    let names = world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("journal-"));
    names.map(|name| world.meta.open_log(&name).unwrap().capacity()).sum()
}

/// After a kill the first requests do not wait for a checkpoint, and repeated kills do not grow the journal for ever.
#[test]
fn a_checkpoint_after_a_kill_lets_the_first_requests_go_before() {
    let mut world = World::new(&three_tiers(4 << 20, 16 << 20, 16 << 20));
    let index = index(world.container("c", Durability::Async), 1);
    world.must(vec![Update::IndexCreate { key: index }]);
    let put = |world: &mut World, n: u8| {
        world.must(vec![Update::Put { index, key: vec![n], value: vec![n], only_new: false }]);
    };
    let checkpoint = |world: &World| {
        world.meta.list().unwrap().into_iter().filter(|name| name.starts_with("checkpoint-")).max().unwrap()
    };
    let first = checkpoint(&world);
    for n in 1..=2 {
        put(&mut world, n);
        world.kill();
        world.open().unwrap();
    }
    world.work();
    assert_eq!(checkpoint(&world), first, "it is put off");
    put(&mut world, 3);
    world.clock.advance_ns(1_100_000_000);
    world.work();
    let second = checkpoint(&world);
    assert_ne!(second, first, "and comes a second later");
    for n in 4..=13 {
        put(&mut world, n);
        world.kill();
        world.open().unwrap();
        world.work();
    }
    assert_ne!(checkpoint(&world), second, "or at once, where files of the journal pile up");
    let journals = world.meta.list().unwrap().iter().filter(|name| name.starts_with("journal-")).count();
    assert!(journals <= 10, "{journals} files");
    let get = Request::Get { index, keys: (1..=13).map(|n| vec![n]).collect() };
    assert!(matches!(world.ask(get), Response::Values(found) if found.iter().all(Option::is_some)));
}

#[test]
fn journal_files_do_not_pile_up() {
    const LOG: u64 = 4 << 20;
    let settings = cenote_store::Tuning { log_bytes: LOG, checkpoint_bytes: 4 * LOG, ..tuning() };
    let mut world = small_world();
    let key = index(world.container("c", Durability::Async), 1);
    world.must(vec![Update::IndexCreate { key }]);
    // Killed as soon as it has opened, again and again.
    let open = |world: &mut World| {
        world.kill();
        world.engine = Some(Engine::open_tuned(world.seams(), settings).unwrap().0);
        world.attach();
    };
    for _ in 0..30 {
        open(&mut world);
    }
    assert!(journal_bytes(&world) < 4 * LOG, "{} bytes after 30 kills", journal_bytes(&world));
    // Once an engine lives for a moment, the old files go.
    world.settle();
    assert!(journal_bytes(&world) <= LOG, "{} bytes after a moment", journal_bytes(&world));
    // The amount written to a store with little content does not matter.
    for n in 0..3000u32 {
        let value = vec![n as u8; 10_000];
        world.must(vec![Update::Put { index: key, key: b"k".to_vec(), value, only_new: false }]);
        if n % 20 == 0 {
            world.settle();
            assert!(journal_bytes(&world) <= 4 * LOG, "{} bytes after {n} puts", journal_bytes(&world));
        }
    }
    open(&mut world);
    let get = Request::Get { index: key, keys: vec![b"k".to_vec()] };
    assert!(matches!(world.ask(get), Response::Values(found) if found[0].is_some()));
}

#[test]
fn the_first_journal_file_of_an_opening_is_short_and_those_after_it_are_not() {
    const LOG: u64 = 8 << 20;
    let settings = cenote_store::Tuning { log_bytes: LOG, checkpoint_bytes: 64 * LOG, ..tuning() };
    let mut world = small_world();
    let key = index(world.container("c", Durability::Async), 1);
    world.must(vec![Update::IndexCreate { key }]);
    world.engine().close().unwrap();
    world.engine = None;
    let before = journal_bytes(&world);
    world.engine = Some(Engine::open_tuned(world.seams(), settings).unwrap().0);
    world.attach();
    // A file system in memory clears the space reserved for a file: an opening must not wait for that.
    assert!(journal_bytes(&world) - before <= 1 << 20, "{} bytes", journal_bytes(&world) - before);
    for n in 0..200u32 {
        let value = vec![n as u8; 10_000];
        world.must(vec![Update::Put { index: key, key: n.to_le_bytes().to_vec(), value, only_new: false }]);
        world.work();
    }
    assert!((LOG..3 * LOG).contains(&journal_bytes(&world)), "{} bytes after 2 MB", journal_bytes(&world));
    world.kill();
    world.open().unwrap();
    world.attach();
    let get = Request::Get { index: key, keys: (0..200u32).map(|n| n.to_le_bytes().to_vec()).collect() };
    assert!(matches!(world.ask(get), Response::Values(found) if found.iter().all(Option::is_some)));
}

/// A store with an object of 5,000 bytes of 7 that survives power loss.
fn flushed() -> (World, ObjectKey) {
    let mut world = small_world();
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    world.write(key, 0, &[7; 5000]).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    (world, key)
}

/// Deleted objects that checkpoints keep, so that power loss can bring them back, are not counted until then.
#[test]
fn a_deleted_object_that_a_checkpoint_keeps_is_not_counted() {
    let (mut world, key) = flushed();
    world.must(vec![Update::ObjectDelete { key }]);
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.engine().audit(), Vec::<String>::new());
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert!(world.read(key).unwrap() == [7; 5000]);
    assert_eq!(world.engine().audit(), Vec::<String>::new());
}

/// A cut copies a range in as many jobs as it takes, wherever in its object that is.
#[test]
fn a_range_inside_an_object_that_takes_several_jobs_is_copied_as_a_whole() {
    let mut world = small_world();
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let begin = 10 * SMALL;
    for part in 0..8 {
        world.write(key, begin + u64::from(part) * 65536, &vec![part + 1; 65536]).unwrap();
        world.room(container, 512).unwrap(); // so that the next one does not follow it directly
    }
    assert_eq!(world.lookup(key).unwrap().extents.len(), 8);
    world.flush(FlushTarget::Store).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    let found = world.read(key).unwrap();
    assert!(found[begin as usize..].chunks(65536).zip(1..).all(|(bytes, part)| bytes == vec![part; 65536]));
    assert_eq!(found.len() as u64, begin + 8 * 65536);
}

/// Bytes that a cut needs are kept, though they are overwritten or deleted before the cut has a copy of them.
#[test]
fn a_cut_keeps_what_is_overwritten_while_it_is_under_way() {
    let mut world = small_world();
    let container = world.container("c", Durability::Async);
    let keys = [1, 2].map(|n| object(container, n));
    for key in keys {
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.write(key, 0, &[7; 5000]).unwrap();
    }
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    let flush = Request::Flush { target: FlushTarget::Store };
    let Outcome::Wait(ticket) = world.engine().handle(session, seq, flush) else { panic!("nothing to wait for") };
    world.engine().tick();
    world.write(keys[0], 100, &[8; 1000]).unwrap();
    world.must(vec![Update::ObjectDelete { key: keys[1] }]);
    while !world.engine().take_finished().iter().any(|(answered, _)| *answered == ticket) {
        if !world.step() {
            world.clock.advance_ns(20_000_000);
        }
    }
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    for key in keys {
        assert!(world.read(key).unwrap() == [7; 5000]);
    }
}

/// Once a deletion survives power loss, no object waits to be brought back.
#[test]
fn what_was_deleted_is_forgotten_when_the_deletion_is_marked() {
    let (mut world, key) = flushed();
    world.must(vec![Update::ObjectDelete { key }]);
    assert_eq!(world.engine().audit(), Vec::<String>::new());
    world.flush(FlushTarget::Store).unwrap();
    assert_eq!(world.engine().audit(), Vec::<String>::new());
    world.settle();
    assert_eq!(world.engine().audit(), Vec::<String>::new());
}

/// A size at the limit leaves no range after it; power loss takes it back all the same.
#[test]
fn the_largest_size_is_taken_back_by_power_loss() {
    let (mut world, key) = flushed();
    world.must(vec![Update::Truncate { key, size: OBJECT_BYTES_MAX }]);
    assert_eq!(world.lookup(key).unwrap().size, OBJECT_BYTES_MAX);
    world.power_loss(Keep::Everything); // so that the journal has it
    world.open().unwrap();
    assert_eq!(world.lookup(key).unwrap().size, 5000);
}
