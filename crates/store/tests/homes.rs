//! Several engines over the devices of one store.

use std::sync::Arc;

use cenote_device::mem::{Keep, MemClock, MemControl, MemDevices, MemMetaDir};
use cenote_model::*;
use cenote_store::{Engine, Outcome, Seams, SessionId, SessionInfo, Tuning};

const ENGINES: u16 = 2;

struct World {
    meta: MemMetaDir,
    devices: MemDevices,
    clock: Arc<MemClock>,
    control: Arc<MemControl>,
}

impl World {
    fn new() -> Self {
        let clock: Arc<MemClock> = Arc::default();
        Self { meta: MemMetaDir::default(), devices: MemDevices::new(1 << 20), clock, control: Arc::default() }
    }
    fn seams(&self) -> Seams {
        Seams {
            meta: Arc::new(self.meta.clone()),
            devices: Arc::new(self.devices.clone()),
            clock: Arc::clone(&self.clock) as Arc<_>,
            control: Arc::clone(&self.control) as Arc<_>,
        }
    }
    fn make(&self, devices: Vec<DeviceSpec>) -> Result<Vec<Engine>> {
        let config = StoreConfig { devices, engines: ENGINES, ..StoreConfig::default() };
        Engine::create_all(&self.seams(), StoreId(7), &config, Tuning::default())
    }
    fn open(&self) -> Vec<Engine> {
        let opened = Engine::open_all(&self.seams(), Tuning::default()).unwrap();
        assert!(opened.iter().all(|(engine, _)| engine.outside_of_loans().is_empty()));
        opened.into_iter().map(|(engine, _)| engine).collect()
    }
    /// Lets journals come to media, and what waits for no bytes become durable.
    fn sync(&self, engines: &mut [Engine]) {
        self.clock.advance_ns(11_000_000);
        for engine in engines {
            engine.tick();
            while let Some(job) = engine.next_job() {
                engine.finish_job(job.run());
            }
        }
    }
}

fn tier(name: &str, kind: DeviceKind) -> DeviceSpec {
    DeviceSpec {
        name: name.into(),
        kind,
        path: name.into(),
        capacity_bytes: 4 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: TierOptions::default(),
    }
}

fn apply(engine: &mut Engine, session: SessionId, update: Update) -> Option<ContainerId> {
    let request = Request::Apply { checks: Vec::new(), updates: vec![update], atomic: true };
    match engine.handle(session, 0, request) {
        Outcome::Ready(Response::Applied { created, .. }) => created,
        other => panic!("{other:?}"),
    }
}

fn create(engine: &mut Engine, session: SessionId, label: &str) -> ContainerId {
    let spec = ContainerSpec::default();
    apply(engine, session, Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec }).unwrap()
}

fn label_of(engine: &mut Engine, session: SessionId, id: ContainerId) -> String {
    match engine.handle(session, 0, Request::ContainerById { id }) {
        Outcome::Ready(Response::Container(info)) => info.label,
        other => panic!("{other:?}"),
    }
}

fn join(engines: &mut [Engine], nonce: u128) -> SessionId {
    let who = SessionInfo { nonce, pid: 1, started: 1, write: true, ..SessionInfo::default() };
    let session = engines[0].session_open(who.clone()).unwrap();
    for tenant in &mut engines[1..] {
        assert_eq!(tenant.session_open_as(session, who.clone()).unwrap(), session);
        assert_eq!(tenant.session_open_as(session, who.clone()).unwrap(), session, "the same nonce, the same session");
    }
    session
}

#[test]
fn ids_name_their_homes_and_a_label_that_comes_back_is_given_once() {
    let world = World::new();
    let mut engines =
        world.make(vec![tier("memory", DeviceKind::SharedMemory), tier("disk", DeviceKind::File)]).unwrap();
    let session = join(&mut engines, 5);
    let first = create(&mut engines[0], session, "a");
    assert_eq!(first.0 % 2, 0);
    world.sync(&mut engines);
    apply(&mut engines[0], session, Update::ContainerRename { id: first, label: "b".into() });
    let second = create(&mut engines[1], session, "a");
    assert_eq!(second.0 % 2, 1);
    drop(engines); // before a cut makes the rename durable
    world.devices.power_loss(Keep::Everything);
    world.meta.power_loss(Keep::Everything);
    world.control.power_loss();
    for _ in 0..2 {
        let mut engines = world.open();
        let session = join(&mut engines, 6);
        let labels = [label_of(&mut engines[0], session, first), label_of(&mut engines[1], session, second)];
        assert!(labels[0] != labels[1], "{labels:?}");
        assert_eq!(labels, ["a".to_owned(), format!("a~{second}")]);
        world.devices.kill();
        world.meta.kill();
    }
}

#[test]
fn a_session_that_the_landlord_has_given_up_is_no_others() {
    let world = World::new();
    let mut engines = world.make(vec![tier("disk", DeviceKind::File)]).unwrap();
    let session = join(&mut engines, 5);
    let who = SessionInfo { nonce: 6, write: true, ..SessionInfo::default() };
    assert_eq!(engines[1].session_open_as(session, who).unwrap(), session);
    let known = engines[1].sessions();
    assert!(known.len() == 1 && known[0].1.nonce == 6, "{known:?}");
}

#[test]
fn what_several_engines_cannot_do_is_refused() {
    let mut cold = tier("cold", DeviceKind::S3);
    cold.path = "bucket/p".into();
    let refused = World::new().make(vec![tier("disk", DeviceKind::File), cold]).err().unwrap();
    assert!(refused.kind() == ErrorKind::Unsupported && refused.to_string().contains("cold"), "{refused}");
    let mut small = tier("small", DeviceKind::File);
    small.capacity_bytes = 100 << 10;
    assert_eq!(World::new().make(vec![small]).err().unwrap().kind(), ErrorKind::InvalidInput);
    let world = World::new();
    let mut engines = world.make(vec![tier("disk", DeviceKind::File)]).unwrap();
    let session = join(&mut engines, 5);
    for request in [
        Request::DeviceAdd { spec: tier("more", DeviceKind::File) },
        Request::DeviceDrain { name: "disk".into() },
        Request::DeviceRemove { name: "disk".into() },
    ] {
        match engines[0].handle(session, 0, request) {
            Outcome::Ready(Response::Failed(error)) => assert_eq!(error.kind(), ErrorKind::Unsupported),
            other => panic!("{other:?}"),
        }
    }
    drop(engines);
    assert!(Engine::open(world.seams()).is_err(), "one engine alone");
    let left = Engine::destroy(world.seams(), false).unwrap();
    assert!(left.is_empty() && cenote_device::MetaDir::list(&world.meta).unwrap().is_empty());
}
