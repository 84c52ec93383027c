//! When cuts begin, and in what jobs they are copied.

use cenote_device::mem::MemClock;
use cenote_model::{
    DeviceState, Extent, FlushTarget, IndexId, IndexKey, ObjectId, ObjectKey, Request, Response, Sums, Update,
};

use super::*;
use crate::engine::Engine;
use crate::engine::filled::filled_before_a_file;
use crate::{Outcome, SessionInfo};

fn first(engine: &mut Engine) -> &mut Container {
    let id = engine.core.state.containers.ids()[0];
    engine.core.state.containers.get_mut(id).unwrap()
}

fn run_jobs(engine: &mut Engine) {
    while let Some(job) = engine.next_job() {
        engine.finish_job(job.run());
        engine.tick();
    }
}

#[test]
fn a_cut_that_is_asked_for_begins_at_the_next_tick() {
    let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
    engine.tick();
    assert!(first(&mut engine).durable.pending_cut.is_none(), "bytes of a moment ago, and nobody waits");
    assert!(matches!(engine.core.flush(FlushTarget::Store), Outcome::Wait(_)));
    engine.tick();
    assert!(first(&mut engine).durable.pending_cut.is_some());
}

#[test]
fn bytes_are_cut_at_once_where_memory_must_become_free() {
    let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
    engine.tick();
    assert!(first(&mut engine).durable.pending_cut.is_none());
    engine.core.state.space.get_mut(0).state = DeviceState::Draining;
    engine.tick();
    assert!(first(&mut engine).durable.pending_cut.is_some());
}

/// Records alone cost a cut nothing but the journal: they are cut once the group commit interval is over, not
/// before.
#[test]
fn records_are_cut_in_groups() {
    let clock = Arc::<MemClock>::default();
    let mut engine = filled_before_a_file(&clock, 1);
    let _ = engine.core.flush(FlushTarget::Store);
    engine.tick();
    run_jobs(&mut engine);
    assert!(!first(&mut engine).is_dirty());
    let session = engine.session_open(SessionInfo { nonce: 8, write: true, ..SessionInfo::default() }).unwrap();
    let key = IndexKey { container: first(&mut engine).id, index: IndexId(1) };
    let made = Request::Apply { checks: vec![], updates: vec![Update::IndexCreate { key }], atomic: true };
    assert!(matches!(engine.handle(session, 1, made), Outcome::Ready(_)));
    let half_ns = engine.core.settings.group_commit_ns / 2;
    let cuts = first(&mut engine).durable.cuts;
    clock.advance_ns(half_ns);
    engine.tick();
    assert_eq!(first(&mut engine).durable.cuts, cuts);
    clock.advance_ns(half_ns);
    engine.tick();
    assert_eq!(first(&mut engine).durable.cuts, cuts + 1);
    assert!(!first(&mut engine).is_dirty(), "nothing has to be copied for it");
}

/// A job has a bounded number of parts, whatever ranges they are of; the next one begins where it ended.
#[test]
fn what_a_cut_copies_is_gathered_in_jobs_of_bounded_size() {
    const EACH: u64 = 600;
    const LEN: u32 = 4096;
    let mut engine = filled_before_a_file(&Arc::<MemClock>::default(), 1);
    engine.core.settings.copy_bytes = 64 << 20;
    let session = engine.session_open(SessionInfo { nonce: 8, write: true, ..SessionInfo::default() }).unwrap();
    let container = first(&mut engine).id;
    let mut seq = 0;
    for object in [2, 3] {
        let mut ask = |request| {
            seq += 1;
            let Outcome::Ready(response) = engine.handle(session, seq, request) else { panic!("nothing here waits") };
            response
        };
        let mut places = Vec::new();
        while places.len() < EACH as usize {
            let (bytes, run_min) = (1 << 20, LEN);
            let wanted = Request::Lease { container, bytes, run_min, avoid: vec![], durability: None };
            let Response::Lease(lease) = ask(wanted) else { panic!("no space") };
            for run in &lease.runs {
                let begins = (run.offset..run.offset + run.len).step_by(LEN as usize);
                places.extend(begins.map(|at| Extent::whole(run.device, at, LEN, Sums::from_slice(&[0]))));
            }
        }
        let key = ObjectKey { container, object: ObjectId(object) };
        // Reverse order on the device, so that neighbours do not merge.
        let write =
            |n: u64| Update::Write { key, offset: n * u64::from(LEN), extent: places[(EACH - 1 - n) as usize].clone() };
        let updates = [Update::ObjectCreate { key, block_shift: 12 }].into_iter().chain((0..EACH).map(write)).collect();
        let written = ask(Request::Apply { checks: vec![], updates, atomic: true });
        assert!(matches!(written, Response::Applied { .. }), "{written:?}");
    }
    begin_cut(&mut engine.core, &[container]).unwrap();
    let cut = first(&mut engine).durable.pending_cut.unwrap();
    // Besides these there is the one object that was there before.
    let jobs: Vec<usize> = std::iter::repeat_with(|| gather(&mut engine.core, cut).len()).take(3).collect();
    assert_eq!(jobs, [PARTS_MAX, 2 * EACH as usize + 1 - PARTS_MAX, 0]);
}
