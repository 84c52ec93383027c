//! Engines whose metadata lie in a pool: nodes die, others take the store over, and engines that lost it go on.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote_device::conformance::seed;
use cenote_device::mem::{MemControl, MemDevices, SplitMix};
use cenote_device::rados_dir::{RadosPlace, Take, Timing};
use cenote_device::{Devices, OpenedDevice, RadosMetaDir, SystemClock};
use cenote_model::{
    ContainerId, ContainerSpec, DeviceId, DeviceKind, DeviceSpec, FlushTarget, IndexId, IndexKey, Request, Response,
    Result, StoreConfig, StoreId, TierOptions, Update,
};
use cenote_rados::{MemoryPool, Pool};
use cenote_store::{Engine, Outcome, Seams, SessionId, SessionInfo, Tuning};

const INDEX: IndexKey = IndexKey { container: ContainerId(1), index: IndexId(1) };

/// A directory and memory that come and go together, and a disk that all nodes have.
struct Node {
    place: RadosPlace,
    devices: Arc<NodeDevices>,
    control: Arc<MemControl>,
}

struct NodeDevices {
    memory: MemDevices,
    disk: MemDevices,
}

impl NodeDevices {
    fn of(&self, spec: &DeviceSpec) -> &MemDevices {
        if spec.kind.is_persistent() { &self.disk } else { &self.memory }
    }
}

impl Devices for NodeDevices {
    fn open(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
        self.of(spec).open(store, id, spec, create)
    }
    fn remove(&self, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
        self.of(spec).remove(store, id, spec)
    }
}

struct Running {
    engine: Engine,
    session: SessionId,
    seq: u64,
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Node {
    fn new(scratch: &Scratch, pool: &Arc<dyn Pool>, disk: &MemDevices, name: &str) -> Self {
        let dir = scratch.0.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let timing = Timing {
            trust: Duration::from_millis(40),
            beat: Duration::from_millis(5),
            patience: Duration::from_millis(300),
        };
        let place =
            RadosPlace { pool: Arc::clone(pool), subject: "rados:pool/name".into(), local: dir.join("copy"), timing };
        Self {
            place,
            devices: Arc::new(NodeDevices { memory: MemDevices::new(1 << 20), disk: disk.clone() }),
            control: Arc::default(),
        }
    }
    fn seams(&self, meta: RadosMetaDir) -> Seams {
        let (devices, control) = (Arc::clone(&self.devices), Arc::clone(&self.control));
        Seams { meta: Arc::new(meta), devices, clock: Arc::new(SystemClock), control }
    }
    fn create(&self) -> Running {
        let tier = |name: &str, kind| DeviceSpec {
            name: name.into(),
            kind,
            path: PathBuf::new(),
            capacity_bytes: 4 << 20,
            watermark_high_permille: 800,
            watermark_low_permille: 600,
            options: TierOptions::default(),
        };
        let config = StoreConfig {
            devices: vec![tier("memory", DeviceKind::SharedMemory), tier("disk", DeviceKind::File)],
            ..StoreConfig::default()
        };
        let seams = self.seams(RadosMetaDir::create(&self.place).unwrap());
        let mut running = Running::of(Engine::create_tuned(seams, StoreId(7), &config, tuning()).unwrap());
        let spec = ContainerSpec::default();
        running.apply(vec![Update::ContainerCreate { id: INDEX.container, label: "runs".into(), spec }]).unwrap();
        running.apply(vec![Update::IndexCreate { key: INDEX }]).unwrap();
        running.flush().unwrap();
        running
    }
    fn open(&self, take: Take, lost: bool) -> Running {
        let meta = RadosMetaDir::open(&self.place, take).unwrap();
        let (engine, report) = Engine::open_tuned(self.seams(meta), tuning()).unwrap();
        assert_eq!(report.power_lost, lost);
        Running::of(engine)
    }
}

/// Short files, so that the journal goes on in others and checkpoints are made.
fn tuning() -> Tuning {
    Tuning { log_bytes: 32 << 10, ..Tuning::default() }
}

impl Running {
    fn of(mut engine: Engine) -> Self {
        static NONCES: AtomicU64 = AtomicU64::new(1); // the same nonce would be the same session, whose requests have numbers
        let (pid, nonce) = (std::process::id(), u128::from(NONCES.fetch_add(1, Ordering::Relaxed)));
        let who = SessionInfo { nonce, pid, started: 1, uid: 0, write: true, ..SessionInfo::default() };
        let session = engine.session_open(who).unwrap();
        Self { engine, session, seq: 0 }
    }
    fn ask(&mut self, request: Request) -> std::result::Result<Response, String> {
        self.seq += 1;
        let begin = Instant::now();
        let answer = match self.engine.handle(self.session, self.seq, request) {
            Outcome::Ready(response) => response,
            Outcome::Wait(ticket) => loop {
                assert!(begin.elapsed() < Duration::from_secs(20), "no answer");
                self.work();
                if let Some((_, response)) = self.engine.take_finished().into_iter().find(|(found, _)| *found == ticket)
                {
                    break response;
                }
                std::thread::sleep(Duration::from_millis(1));
            },
        };
        if let Response::Failed(error) = answer { Err(error.to_string()) } else { Ok(answer) }
    }
    fn work(&mut self) {
        self.engine.tick();
        for _ in 0..50 {
            let Some(job) = self.engine.next_job() else { return };
            let done = job.run();
            self.engine.finish_job(done);
        }
        panic!("an engine has jobs without end, such as the next file of a journal that cannot be made");
    }
    fn apply(&mut self, updates: Vec<Update>) -> std::result::Result<(), String> {
        self.ask(Request::Apply { checks: vec![], updates, atomic: true }).map(drop)
    }
    /// Puts the record `number`, some hundred bytes.
    fn put(&mut self, number: u32) -> std::result::Result<(), String> {
        let (key, value) = (number.to_be_bytes().to_vec(), vec![number as u8; 300]);
        self.apply(vec![Update::Put { index: INDEX, key, value, only_new: true }])
    }
    fn flush(&mut self) -> std::result::Result<(), String> {
        self.ask(Request::Flush { target: FlushTarget::Store }).map(drop)
    }
    /// Returns true if the store has the record.
    fn has(&mut self, number: u32) -> bool {
        let keys = vec![number.to_be_bytes().to_vec()];
        match self.ask(Request::Get { index: INDEX, keys }).unwrap() {
            Response::Values(values) => values[0].as_ref().is_some_and(|(value, _)| *value == [number as u8; 300]),
            other => panic!("{other:?}"),
        }
    }
}

/// Records are put in order, so that each state is a number: how many there are.
#[test]
fn nothing_synced_is_lost_with_a_node_and_nothing_acknowledged_with_a_process() {
    let seed = seed();
    for round in 0..6 {
        run(seed.wrapping_add(round));
    }
}

fn run(seed: u64) {
    let mut rng = SplitMix::new(seed);
    let scratch = Scratch(std::env::temp_dir().join(format!("cenote-rados-home-{}-{seed}", std::process::id())));
    let pool: Arc<dyn Pool> = Arc::new(MemoryPool::default());
    let disk = MemDevices::new(1 << 20);
    let mut node = Node::new(&scratch, &pool, &disk, "n0");
    let mut running = node.create();
    let mut zombies: Vec<Running> = Vec::new();
    // Records 0..count were acknowledged, of which 0..synced are durable.
    let (mut count, mut synced) = (0_u32, 0_u32);
    for step in 0..400 {
        match rng.below(40) {
            0..30 => {
                running.put(count).unwrap_or_else(|error| panic!("seed {seed}, step {step}: {error}"));
                count += 1;
            }
            30 | 31 => {
                running.flush().unwrap();
                synced = count;
            }
            32..35 => running.work(),
            35 => drop(running.ask(Request::Checkpoint).unwrap()),
            36 => {
                // The process dies. Its successor has the same memory.
                std::mem::forget(running);
                node.devices.memory.kill();
                running = node.open(Take::Own, false);
                assert!((0..count).all(|number| running.has(number)), "seed {seed}, step {step}: of {count}");
            }
            37 => {
                // The node is cut off, or dies: nobody knows.
                node = Node::new(&scratch, &pool, &disk, &format!("n{}", step + 1));
                zombies.push(std::mem::replace(&mut running, node.open(Take::Any, true)));
                let found = (0..count).take_while(|number| running.has(*number)).count() as u32;
                assert!(found >= synced, "seed {seed}, step {step}: {found} of {count} records, {synced} were durable");
                assert!((found..count).all(|number| !running.has(number)), "seed {seed}, step {step}: a gap");
                (count, synced) = (found, found);
            }
            _ => {
                for zombie in &mut zombies {
                    assert!(zombie.put(1 << 20).is_err(), "seed {seed}, step {step}: a former holder took a record");
                    zombie.work();
                }
            }
        }
    }
    let mut last = Node::new(&scratch, &pool, &disk, "last").open(Take::Any, true);
    assert!((0..synced).all(|number| last.has(number)) && !last.has(1 << 20), "seed {seed}");
    for zombie in zombies.into_iter().chain([running]) {
        std::mem::forget(zombie); // they are cut off, and end with the test
    }
}
