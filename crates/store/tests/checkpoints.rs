//! Checkpoints that a job makes from the last one and the journal, while the engine goes on. That they have the state
//! that the engine had is compared by each job of these tests (`Tuning::check_checkpoints`).

mod world;

use cenote_device::MetaDir;
use cenote_model::*;
use cenote_store::{Job, JobDone, Outcome, Ticket};
use world::manage::{arrange, put};
use world::*;

fn key_of(n: u32) -> Vec<u8> {
    n.to_be_bytes().to_vec()
}

/// A world with an index of `records`, the number of each as its value.
fn filled(records: u32) -> (World, IndexKey) {
    let mut world = World::new(&three_tiers(4 << 20, 16 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    let index = IndexKey { container, index: IndexId(1) };
    world.must(vec![Update::IndexCreate { key: index }]);
    put_records(&mut world, index, 0..records);
    (world, index)
}

fn put_records(world: &mut World, index: IndexKey, which: std::ops::Range<u32>) {
    for n in which {
        world.must(vec![Update::Put { index, key: key_of(n), value: key_of(n), only_new: false }]);
    }
}

fn check_records(world: &mut World, index: IndexKey, which: std::ops::Range<u32>) {
    let keys = which.clone().map(key_of).collect();
    let Response::Values(found) = world.ask(Request::Get { index, keys }) else { panic!("no values") };
    for (n, found) in which.zip(found) {
        assert_eq!(found.map(|(value, _)| value), Some(key_of(n)), "record {n}");
    }
}

/// Requests a checkpoint and returns the job that makes it; other jobs are run.
fn begin(world: &mut World) -> (Ticket, Job) {
    world.seq += 1;
    let (session, seq) = (world.session, world.seq);
    let Outcome::Wait(ticket) = world.engine().handle(session, seq, Request::Checkpoint) else { panic!("no ticket") };
    for _ in 0..1000 {
        world.engine().tick();
        match world.engine().next_job() {
            Some(job) if job.timed() == Timed::Checkpoint => return (ticket, job),
            Some(job) => finish(world, job.run()),
            None => world.clock.advance_ns(20_000_000),
        }
    }
    panic!("no checkpoint");
}

fn finish(world: &mut World, done: JobDone) {
    world.engine().finish_job(done);
}

fn files(world: &World, prefix: &str) -> Vec<String> {
    world.meta.list().unwrap().into_iter().filter(|name| name.starts_with(prefix)).collect()
}

#[test]
fn updates_go_on_while_a_job_makes_a_checkpoint() {
    let (mut world, index) = filled(500);
    let epoch = world.engine().epoch();
    let before = files(&world, "");
    let (ticket, job) = begin(&mut world);
    // Enough for several journal files.
    put_records(&mut world, index, 500..3000);
    assert!(before.iter().all(|name| files(&world, "").contains(name)), "the job reads them");
    let done = job.run();
    finish(&mut world, done);
    assert_eq!(world.engine().take_answer(ticket), Some(Response::Done));
    assert_eq!(files(&world, "checkpoint-").len(), 1);
    world.kill();
    world.open().unwrap();
    assert!((epoch..epoch + 500).contains(&world.report.checkpoint_epoch), "{:?}", world.report);
    check_records(&mut world, index, 0..3000);
}

#[test]
fn a_death_at_any_time_of_the_job_loses_nothing() {
    for is_run in [false, true] {
        let (mut world, index) = filled(500);
        let (_, job) = begin(&mut world);
        put_records(&mut world, index, 500..1000);
        let done = is_run.then(|| job.run());
        world.kill();
        drop(done);
        world.open().unwrap();
        check_records(&mut world, index, 0..1000);
        assert_eq!(world.ask(Request::Checkpoint), Response::Done);
        world.kill();
        world.open().unwrap();
        check_records(&mut world, index, 0..1000);
    }
}

/// What the job cannot read, the engine still has.
#[test]
fn a_damaged_checkpoint_or_journal_is_replaced_by_what_the_engine_knows() {
    for what in ["checkpoint-", "journal-", "both are gone"] {
        let (mut world, index) = filled(500);
        assert_eq!(world.ask(Request::Checkpoint), Response::Done);
        put_records(&mut world, index, 500..1000);
        let (ticket, job) = begin(&mut world);
        match files(&world, what).first() {
            Some(name) if what == "journal-" => {
                world.meta.open_log(name).unwrap().write(4096 + 40, &[0x55; 64]).unwrap();
            }
            Some(name) => world.meta.write_file(name, &[7; 5000]).unwrap(),
            None => {
                let all = files(&world, "");
                let old = all.iter().filter(|name| name.starts_with("checkpoint-"));
                old.for_each(|name| world.meta.remove(name).unwrap());
            }
        }
        let done = job.run();
        finish(&mut world, done);
        assert_eq!(world.engine().take_answer(ticket), None, "not yet");
        let answer = (0..100).find_map(|_| {
            world.step();
            world.engine().take_answer(ticket)
        });
        assert_eq!(answer, Some(Response::Done), "{what}");
        put_records(&mut world, index, 1000..1100);
        // The next one is made from it by a job again.
        assert_eq!(world.ask(Request::Checkpoint), Response::Done);
        world.kill();
        world.open().unwrap();
        check_records(&mut world, index, 0..1100);
    }
}

/// Openings and checkpoints drop what nobody needs any more, of which the journal says nothing.
#[test]
fn a_job_drops_what_the_engine_has_dropped() {
    let (mut world, index) = filled(10);
    let (one, other) = (object(index.container, 1), object(index.container, 2));
    put(&mut world, one, &vec![5; 100_000]);
    world.must(vec![Update::ObjectCreate { key: other, block_shift: 12 }]);
    world.must(vec![Update::Share { to: other, at: 0, from: one, offset: 0, len: 100_000 }]);
    arrange(&mut world, ArrangeTarget::Object(one), Arrange::Pin { to: None });
    world.must(vec![Update::ObjectDelete { key: one }]);
    world.flush(FlushTarget::Store).unwrap();
    // The opening finds that nothing is shared any more, and the checkpoint that nothing is pinned.
    world.kill();
    world.open().unwrap();
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    put_records(&mut world, index, 10..20);
    assert_eq!(world.ask(Request::Checkpoint), Response::Done);
    world.kill();
    world.open().unwrap();
    assert_eq!(world.read(other).unwrap(), vec![5; 100_000]);
    check_records(&mut world, index, 0..20);
}

/// A checkpoint that replaced the journal file after a failed sync is newer than that of a job.
#[test]
fn a_job_that_comes_too_late_does_no_harm() {
    let (mut world, index) = filled(500);
    let (_, job) = begin(&mut world);
    put_records(&mut world, index, 500..600);
    assert!(world.engine().close().is_ok(), "with a checkpoint of its own");
    let done = job.run();
    finish(&mut world, done);
    world.kill();
    world.open().unwrap();
    check_records(&mut world, index, 0..600);
}
