//! Stores with content and history, of which a target replaces a part.

use std::sync::OnceLock;

use cenote_device::{Control as _, Devices as _, MetaDir as _};
use cenote_model::{
    Check, ContainerId, ContainerSpec, DeviceInfo, FlushTarget, IndexId, IndexKey, NextFrom, ObjectId, ObjectKey,
    Request, Response, Result, StoreId, Update,
};
use cenote_store::{Engine, Outcome, SessionId, SessionInfo, Tuning};

use crate::sim::prepare;
use crate::survey::survey;
use crate::world::World;

/// The simulations that produce the stores: seed, number of steps, and whether the store was closed.
const STORES: [(u64, u64, bool); 6] =
    [(1, 40, false), (2, 60, false), (3, 80, false), (4, 60, true), (5, 30, false), (9, 120, true)];
const PAGE: usize = 4096;

/// A store at rest, as bytes.
pub(super) struct Base {
    pub id: StoreId,
    /// Name, size, and content up to the last byte that is not zero.
    pub files: Vec<(String, u64, Vec<u8>)>,
    pub devices: Vec<DeviceInfo>,
    /// The pages of each device that are not zero.
    pages: Vec<Vec<(u64, Vec<u8>)>>,
    tuning: Tuning,
    segment_bytes: u64,
}

/// All base stores.
pub(super) fn all() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| {
        STORES
            .iter()
            .map(|(seed, steps, clean)| Base::make(*seed, *steps, *clean).expect("a seed without faults"))
            .collect()
    })
}

/// The base store that a byte of the input selects.
pub(super) fn chosen(byte: u8) -> &'static Base {
    &all()[usize::from(byte) % STORES.len()]
}

impl Base {
    fn make(seed: u64, steps: u64, clean: bool) -> Result<Self, String> {
        let prepared = prepare(seed, steps, clean)?;
        let text = |error: cenote_model::Error| error.to_string();
        let mut files = Vec::new();
        for name in prepared.world.meta.list().map_err(text)? {
            let mut bytes = prepared.world.meta.read_file(&name).map_err(text)?;
            let size = bytes.len() as u64;
            bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1));
            files.push((name, size, bytes));
        }
        let mut pages = Vec::new();
        for info in &prepared.devices {
            let opened = prepared.world.devices.open(prepared.id, info.id, &info.spec, false).map_err(text)?;
            let mut bytes = vec![0; opened.device.capacity_bytes() as usize];
            opened.device.read_at(0, &mut bytes).map_err(text)?;
            let kept = bytes.chunks(PAGE).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0));
            pages.push(kept.map(|(at, page)| ((at * PAGE) as u64, page.to_vec())).collect());
        }
        let (tuning, segment_bytes) = (prepared.tuning, prepared.world.segment_bytes);
        Ok(Self { id: prepared.id, files, devices: prepared.devices, pages, tuning, segment_bytes })
    }
    /// Name and content of the newest file with this prefix.
    pub fn newest(&self, prefix: &str) -> (&str, &[u8]) {
        let found = self.files.iter().rev().find(|(name, ..)| name.starts_with(prefix));
        found.map_or(("", &[]), |(name, _, bytes)| (name, bytes))
    }
    /// A world with this store, without the files that `leave_out` selects.
    pub fn world(&self, leave_out: impl Fn(&str) -> bool) -> World {
        let world = World::new(self.segment_bytes, 64);
        let fill = || -> Result<()> {
            for (name, size, bytes) in self.files.iter().filter(|(name, ..)| !leave_out(name)) {
                world.meta.create_log(name, *size)?.write(0, bytes)?;
            }
            for (info, pages) in self.devices.iter().zip(&self.pages) {
                let opened = world.devices.open(self.id, info.id, &info.spec, true)?;
                for (at, page) in pages {
                    opened.device.write_at(*at, page)?;
                }
            }
            world.control.attach(self.id)?;
            world.control.instance_raise();
            Ok(())
        };
        fill().expect("a world in memory takes what it held before");
        world
    }
    /// Opens the store in the world; if that works, uses it, closes it and opens it again.
    pub fn open_and_use(&self, world: &World) {
        let Ok((mut engine, _)) = Engine::open_tuned(world.seams(), self.tuning) else { return };
        exercise(&mut engine, world);
        let closed = engine.close();
        drop(engine);
        world.kill();
        let again = Engine::open_tuned(world.seams(), self.tuning);
        if let (Ok(()), Err(error)) = (&closed, &again) {
            panic!("a store that was accepted, used and closed cannot be opened again: {error}");
        }
    }
    /// Opens the store, with a session.
    pub fn open(&self) -> (World, Engine, SessionId) {
        let world = self.world(|_| false);
        let (mut engine, _) = Engine::open_tuned(world.seams(), self.tuning).expect("nothing was changed");
        let session = session(&mut engine).expect("a session");
        (world, engine, session)
    }
}

fn session(engine: &mut Engine) -> Result<SessionId> {
    engine.session_open(SessionInfo {
        nonce: 0xF0F0,
        pid: 1,
        started: 1,
        uid: 0,
        write: true,
        ..SessionInfo::default()
    })
}

/// Runs the engine's jobs for a bounded number of rounds.
pub(super) fn work(engine: &mut Engine, world: &World, rounds: usize) {
    for _ in 0..rounds {
        engine.tick();
        match engine.next_job() {
            Some(job) => {
                let done = job.run();
                engine.finish_job(done);
            }
            None => world.clock.advance_ns(200_000_000),
        }
    }
    while let Some(job) = engine.next_job() {
        let done = job.run();
        engine.finish_job(done);
    }
    drop(engine.take_finished());
}

/// Requests everything, and changes some of it.
fn exercise(engine: &mut Engine, world: &World) {
    let Ok(session) = session(engine) else { return };
    // The content may be meaningless; only the requests must not fail badly.
    let _ = survey(engine, session, 1000);
    let mut seq = 0;
    let mut ask = |engine: &mut Engine, request: Request| -> Option<Response> {
        seq += 1;
        match engine.handle(session, seq, request) {
            Outcome::Ready(response) => Some(response),
            Outcome::Wait(_) => {
                work(engine, world, 20);
                None
            }
        }
    };
    let containers = match ask(engine, Request::ContainerList { after: None, limit: 3 }) {
        Some(Response::Containers(found)) => found.iter().map(|info| info.id).collect::<Vec<_>>(),
        _ => Vec::new(),
    };
    for container in containers {
        for request in requests(container) {
            ask(engine, request);
        }
        if let Some(Response::Snapshots(found)) =
            ask(engine, Request::SnapshotList { container, after: None, limit: 4 })
        {
            for snapshot in found {
                let name = snapshot.name;
                ask(engine, Request::SnapshotByName { container, name: name.clone(), pin: true });
                ask(engine, apply(vec![Update::SnapshotRollback { of: container, name: name.clone() }]));
                ask(engine, apply(vec![Update::SnapshotDelete { of: container, name }]));
                ask(engine, Request::SnapshotUnpin { id: snapshot.id });
            }
        }
        let (of, name) = (container, "new".to_owned());
        ask(engine, apply(vec![Update::SnapshotCreate { of, id: ContainerId(0), name, replace: true, unix_ms: 0 }]));
        if let Some(Response::Objects(ids)) = ask(engine, Request::ObjectList { container, after: None, limit: 4 }) {
            for (number, object) in ids.into_iter().enumerate() {
                let key = ObjectKey { container, object };
                let update = match number {
                    0 => Update::ObjectDelete { key },
                    1 => Update::Truncate { key, size: 100 },
                    _ => Update::Punch { key, offset: 10, len: 5000 },
                };
                ask(engine, Request::Explain { key });
                ask(engine, apply(vec![update]));
            }
        }
        ask(engine, Request::Flush { target: FlushTarget::Container(container) });
    }
    for request in [
        Request::Stats,
        Request::Moved,
        Request::Devices,
        Request::Verify { target: FlushTarget::Store },
        apply(vec![Update::ContainerCreate {
            id: ContainerId(0),
            label: "new".into(),
            spec: ContainerSpec::default(),
        }]),
        Request::Flush { target: FlushTarget::Store },
        Request::Checkpoint,
    ] {
        ask(engine, request);
    }
    work(engine, world, 30);
}

fn apply(updates: Vec<Update>) -> Request {
    Request::Apply { checks: Vec::<Check>::new(), updates, atomic: false }
}

fn requests(container: ContainerId) -> Vec<Request> {
    let index = IndexKey { container, index: IndexId(1) };
    let key = ObjectKey { container, object: ObjectId(u128::MAX) };
    vec![
        Request::Lease { container, bytes: 8192, run_min: 4096, avoid: vec![], durability: None },
        Request::IndexList { container, after: None, limit: 10 },
        Request::Next { index, from: NextFrom::Start, prefix: vec![], limit: 10, bytes_max: 4096 },
        apply(vec![
            Update::ObjectCreate { key, block_shift: 12 },
            Update::IndexCreate { key: index },
            Update::Put { index, key: vec![1], value: vec![2; 100], only_new: false },
        ]),
    ]
}
