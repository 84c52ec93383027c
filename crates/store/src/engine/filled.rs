//! Engines on devices in memory with some content, for unit tests.

use std::sync::Arc;

use cenote_device::mem::{MemClock, MemControl, MemDevices, MemMetaDir};
use cenote_model::{
    ContainerId, ContainerSpec, DeviceKind, DeviceSpec, Extent, ObjectId, ObjectKey, Request, Response, StoreConfig,
    Sums, TierOptions, Update,
};

use super::Engine;
use crate::sums::sum_of;
use crate::{Outcome, Seams, SessionId, SessionInfo};

fn ask(engine: &mut Engine, session: SessionId, seq: u64, request: Request) -> Response {
    match engine.handle(session, seq, request) {
        Outcome::Ready(response) => response,
        Outcome::Wait(_) => panic!("nothing here waits"),
    }
}

/// A tier with this capacity.
pub(crate) fn tier(name: &str, kind: DeviceKind, capacity_bytes: u64) -> DeviceSpec {
    DeviceSpec {
        name: name.into(),
        kind,
        path: name.into(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: TierOptions::default(),
    }
}

/// Seams that are all in memory.
pub(crate) fn seams(clock: &Arc<MemClock>) -> Seams {
    Seams {
        meta: Arc::new(MemMetaDir::default()),
        devices: Arc::new(MemDevices::new(1 << 20)),
        clock: Arc::clone(clock) as _,
        control: Arc::<MemControl>::default(),
    }
}

/// A store in memory alone, with containers of one object of ten bytes each.
pub(crate) fn filled(clock: &Arc<MemClock>, containers: u64) -> Engine {
    filled_on(clock, vec![tier("memory", DeviceKind::SharedMemory, 16 << 20)], containers)
}

/// The same store with a file tier behind the memory.
pub(crate) fn filled_before_a_file(clock: &Arc<MemClock>, containers: u64) -> Engine {
    let memory = tier("memory", DeviceKind::SharedMemory, 16 << 20);
    filled_on(clock, vec![memory, tier("file", DeviceKind::File, 16 << 20)], containers)
}

fn filled_on(clock: &Arc<MemClock>, devices: Vec<DeviceSpec>, containers: u64) -> Engine {
    let mut engine = Engine::create(seams(clock), &StoreConfig { devices, ..StoreConfig::default() }).unwrap();
    let who = SessionInfo { nonce: 7, write: true, ..SessionInfo::default() };
    let session = engine.session_open(who).unwrap();
    for number in 0..containers {
        let spec = ContainerSpec::default();
        let made = Update::ContainerCreate { id: ContainerId(0), label: format!("c{number}"), spec };
        let made = Request::Apply { checks: vec![], updates: vec![made], atomic: true };
        let Response::Applied { created: Some(container), .. } = ask(&mut engine, session, 3 * number + 1, made) else {
            panic!("not created")
        };
        let lease = Request::Lease { container, bytes: 512, run_min: 512, avoid: vec![], durability: None };
        let Response::Lease(lease) = ask(&mut engine, session, 3 * number + 2, lease) else { panic!("no space") };
        let run = lease.runs[0];
        engine.device(run.device).unwrap().write_at(run.offset, b"some bytes").unwrap();
        let key = ObjectKey { container, object: ObjectId(1) };
        let extent = Extent::whole(run.device, run.offset, 10, Sums::from_slice(&[sum_of(b"some bytes")]));
        let updates = vec![Update::ObjectCreate { key, block_shift: 12 }, Update::Write { key, offset: 0, extent }];
        let written = Request::Apply { checks: vec![], updates, atomic: true };
        assert!(matches!(ask(&mut engine, session, 3 * number + 3, written), Response::Applied { .. }));
    }
    engine
}

/// A file tier.
pub(crate) fn a_file() -> DeviceSpec {
    DeviceSpec {
        name: "file".into(),
        kind: DeviceKind::File,
        path: "file".into(),
        capacity_bytes: 1 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: cenote_model::TierOptions::default(),
    }
}
