//! A sync of a device fails and drops unsynced data: no later sync makes up for that.

mod world;

use std::sync::atomic::Ordering;

use cenote_device::mem::Keep;
use cenote_model::*;
use cenote_store::Outcome;
use world::*;

const MIB: u64 = 1 << 20;

/// A store with one object of each durability, of which a flush just failed.
fn hurt_world() -> (World, Vec<(ObjectKey, Vec<u8>)>) {
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 8 * MIB));
    let mut written = Vec::new();
    for (n, durability) in [Durability::Async, Durability::Bypass].into_iter().enumerate() {
        let container = world.container(&format!("c{n}"), durability);
        let key = object(container, 1);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        written.push((key, vec![n as u8 + 1; 150_000]));
    }
    world.flush(FlushTarget::Store).unwrap();
    for (key, bytes) in &written {
        world.write(*key, 0, bytes).unwrap();
    }
    world.sync_fails.store(true, Ordering::Relaxed);
    let refused = world.flush(FlushTarget::Store).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Io, "{refused}");
    world.sync_fails.store(false, Ordering::Relaxed);
    (world, written)
}

fn all_is_there(world: &mut World, written: &[(ObjectKey, Vec<u8>)]) {
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    for (key, bytes) in written {
        assert_eq!(world.read(*key).unwrap(), *bytes, "{key}");
    }
}

#[test]
fn a_flush_after_a_failed_sync_writes_again() {
    let (mut world, written) = hurt_world();
    world.flush(FlushTarget::Store).unwrap();
    all_is_there(&mut world, &written);
}

#[test]
fn so_does_one_of_the_next_process() {
    let (mut world, written) = hurt_world();
    world.kill();
    world.open().unwrap();
    world.flush(FlushTarget::Store).unwrap();
    all_is_there(&mut world, &written);
}

#[test]
fn so_does_one_after_the_store_was_closed() {
    let (mut world, written) = hurt_world();
    world.engine().close().unwrap();
    world.kill();
    world.open().unwrap();
    world.flush(FlushTarget::Store).unwrap();
    all_is_there(&mut world, &written);
}

#[test]
fn bytes_that_cannot_be_read_again_are_never_called_flushed() {
    let (mut world, written) = hurt_world();
    let key = written[1].0;
    let extent = world.lookup(key).unwrap().extents[0].1.clone();
    assert!(world.devices.corrupt(STORE, extent.device, extent.run_offset, 1));
    let refused = world.flush(FlushTarget::Container(key.container)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    // It does not hold up the other container, nor this one once the range is written anew.
    world.flush(FlushTarget::Container(written[0].0.container)).unwrap();
    world.write(key, 0, &written[1].1).unwrap();
    world.flush(FlushTarget::Store).unwrap();
    all_is_there(&mut world, &written);
}

#[test]
fn what_is_left_of_an_extent_that_is_overwritten_meanwhile_is_written_again_too() {
    const LEN: u64 = 100_000;
    let mut world = World::new(&three_tiers(MIB, 4 * MIB, 8 * MIB));
    let key = object(world.container("c", Durability::Bypass), 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    // From the end, so that neighbours do not merge: more than one batch.
    for n in (0..6).rev() {
        world.write(key, n * LEN, &vec![1; LEN as usize]).unwrap();
    }
    world.sync_fails.store(true, Ordering::Relaxed);
    world.flush(FlushTarget::Store).unwrap_err();
    world.sync_fails.store(false, Ordering::Relaxed);
    world.clock.advance_ns(2_000_000_000);
    let session = world.session;
    let flush = Request::Flush { target: FlushTarget::Store };
    let Outcome::Wait(ticket) = world.engine().handle(session, 0, flush) else { panic!("nothing to flush") };
    // The suspects are listed, and some are being written.
    world.engine().tick();
    let job = world.engine().next_job().unwrap();
    for n in 0..6 {
        world.write(key, n * LEN, &[2; 1000]).unwrap();
    }
    let done = job.run();
    world.engine().finish_job(done);
    while !world.engine().take_finished().iter().any(|(finished, _)| *finished == ticket) {
        if !world.step() {
            world.clock.advance_ns(20_000_000);
        }
    }
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    let found = world.read(key).unwrap();
    for (at, byte) in found.iter().enumerate() {
        assert!(*byte == 1 || (*byte == 2 && at as u64 % LEN < 1000), "byte {at} is {byte}");
    }
}

#[test]
fn who_wrote_to_one_device_does_not_wait_for_the_sync_of_another() {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let (quick, slow) = (world.container("quick", Durability::Async), world.container("slow", Durability::Bypass));
    for (n, container) in [(1, quick), (2, slow)] {
        let key = object(container, n);
        world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
        world.flush(FlushTarget::Store).unwrap();
    }
    world.write(object(slow, 2), 0, &[2; 8192]).unwrap();
    let session = world.session;
    let flush = Request::Flush { target: FlushTarget::Container(slow) };
    let Outcome::Wait(waits) = world.engine().handle(session, 1000, flush) else { panic!("nothing to wait for") };
    let held = loop {
        world.engine().tick();
        let job = world.engine().next_job().expect("a sync");
        if job.timed() == Timed::SyncDevices {
            break job;
        }
        let done = job.run();
        world.engine().finish_job(done);
    };
    // The slow device takes its time. Meanwhile the other container is copied to the other device, synced and marked.
    world.write(object(quick, 1), 0, &[1; 8192]).unwrap();
    world.flush(FlushTarget::Container(quick)).unwrap();
    assert!(world.engine().take_finished().iter().all(|(ticket, _)| *ticket != waits), "it was not synced yet");
    // Writes to the slow device from now on are not covered by the running sync.
    world.write(object(slow, 2), 8192, &[3; 8192]).unwrap();
    let done = held.run();
    world.engine().finish_job(done);
    world.flush(FlushTarget::Container(slow)).unwrap();
    world.power_loss(Keep::Nothing);
    world.open().unwrap();
    assert_eq!(world.read(object(quick, 1)).unwrap(), vec![1; 8192]);
    assert_eq!(world.read(object(slow, 2)).unwrap(), [vec![2; 8192], vec![3; 8192]].concat());
}
