//! How long a checkpoint holds up the engine: the longest call while one is made, encoded by the engine and made by a
//! job. One thread sends updates, another runs jobs, as in the server.
//!
//! `cargo run --release -p cenote-store --example checkpoint_pause [OBJECTS]`

mod common;

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use cenote_device::mem::{MemControl, MemDevices};
use cenote_device::{FsMetaDir, SystemClock};
use cenote_model::{
    ContainerId, ContainerSpec, DeviceKind, DeviceSpec, Durability, Extent, ObjectId, ObjectKey, Request, Response,
    StoreConfig, StoreId, TierOptions, Update,
};
use cenote_store::{Engine, Job, JobDone, Outcome, Seams, SessionId, SessionInfo, Ticket, Tuning};
use common::{Blocks, lease_request};

/// All objects are in this container.
const CONTAINER: ContainerId = ContainerId(1);

/// The longest call of the engine and which it was, by the clock and by the time of the processor. On a busy machine the
/// second tells more; its unit is a tick of the system.
#[derive(Default)]
struct Longest {
    wall: (Duration, &'static str),
    cpu: (Duration, &'static str),
}

/// Processor time of this thread.
fn cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0))
}

struct Bench {
    engine: Engine,
    session: SessionId,
    seq: u64,
    blocks: Blocks,
    jobs: Sender<Job>,
    done: Receiver<JobDone>,
    running: usize,
    longest: Longest,
}

impl Bench {
    fn call<T>(&mut self, what: &'static str, call: impl FnOnce(&mut Self) -> T) -> T {
        let (wall_begin, cpu_begin) = (Instant::now(), cpu());
        let result = call(self);
        self.longest.wall = self.longest.wall.max((wall_begin.elapsed(), what));
        self.longest.cpu = self.longest.cpu.max((cpu().saturating_sub(cpu_begin), what));
        result
    }
    fn handle(&mut self, request: Request) -> Outcome {
        self.seq += 1;
        let (session, seq) = (self.session, self.seq);
        self.call("handle", |bench| bench.engine.handle(session, seq, request))
    }
    fn ask(&mut self, request: Request) -> Response {
        match self.handle(request) {
            Outcome::Ready(Response::Failed(error)) => panic!("{error}"),
            Outcome::Ready(response) => response,
            Outcome::Wait(_) => panic!("only checkpoints wait here"),
        }
    }
    fn apply(&mut self, updates: Vec<Update>) {
        self.ask(Request::Apply { checks: vec![], updates, atomic: false });
    }
    /// A turn of the engine: takes what jobs have done, ticks, and hands out jobs.
    fn turn(&mut self) {
        while let Ok(done) = self.done.try_recv() {
            self.running -= 1;
            self.call("finish_job", |bench| bench.engine.finish_job(done));
        }
        self.call("tick", |bench| bench.engine.tick());
        while let Some(job) = self.call("next_job", |bench| bench.engine.next_job()) {
            self.running += 1;
            self.jobs.send(job).expect("a thread that runs jobs");
        }
    }
    fn extent(&mut self) -> Extent {
        while self.blocks.is_empty() {
            let answer = self.ask(lease_request(CONTAINER));
            self.blocks.refill(answer);
        }
        self.blocks.next()
    }
    /// Writes blocks of 32 objects from this one on.
    fn write(&mut self, first: u64, objects: u64) {
        let key = |n: u64| ObjectKey { container: CONTAINER, object: ObjectId(u128::from(n % objects)) };
        let updates =
            (first..first + 32).map(|n| Update::Write { key: key(n), offset: 0, extent: self.extent() }).collect();
        self.apply(updates);
    }
    /// Sends updates until `is_over`, and prints the longest call meanwhile.
    fn measure(&mut self, what: &str, objects: u64, mut is_over: impl FnMut(&mut Self) -> bool) {
        let (begin, mut batches) = (Instant::now(), 0);
        self.longest = Longest::default();
        while !is_over(self) {
            self.write(batches * 7919 * 32, objects);
            batches += 1;
            self.turn();
        }
        let (Longest { wall, cpu }, took) = (&self.longest, begin.elapsed());
        println!(
            "{what:<21} longest call {:>9.2?} ({}), of the processor {:>9.2?} ({}); {took:>8.2?} in all, {batches} batches",
            wall.0, wall.1, cpu.0, cpu.1
        );
    }
    fn measure_checkpoint(&mut self, what: &str, objects: u64) {
        let Outcome::Wait(ticket) = self.handle(Request::Checkpoint) else { panic!("a checkpoint waits") };
        self.measure(what, objects, |bench| bench.is_answered(ticket));
    }
    fn is_answered(&mut self, ticket: Ticket) -> bool {
        match self.engine.take_answer(ticket) {
            Some(Response::Done) => true,
            Some(other) => panic!("{other:?}"),
            None => false,
        }
    }
}

fn main() {
    let objects: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    for (held_bytes, what) in
        [(u64::MAX, "encoded by the engine"), (Tuning::default().checkpoint_held_bytes, "by a job")]
    {
        let dir = std::env::temp_dir().join(format!("cenote-checkpoint-pause-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary directory");
        let seams = Seams {
            meta: Arc::new(FsMetaDir::open(&dir).expect("a store directory")),
            devices: Arc::new(MemDevices::new(1 << 40)),
            clock: Arc::new(SystemClock),
            control: Arc::new(MemControl::new(1 << 17)),
        };
        run(seams, objects, held_bytes, what);
        let _ = std::fs::remove_dir_all(&dir); // left for the system to remove
    }
}

fn run(seams: Seams, objects: u64, checkpoint_held_bytes: u64, what: &str) {
    let device = DeviceSpec {
        name: "memory".into(),
        kind: DeviceKind::SharedMemory,
        path: "memory".into(),
        capacity_bytes: 1 << 40,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: TierOptions::default(),
    };
    let config = StoreConfig { devices: vec![device], ..StoreConfig::default() };
    // No checkpoints but those that are asked for.
    let tuning = Tuning { checkpoint_bytes: 1 << 40, log_bytes: 1 << 30, checkpoint_held_bytes, ..Tuning::default() };
    let mut engine = Engine::create_tuned(seams, StoreId(1), &config, tuning).expect("a store");
    let who = SessionInfo { nonce: 1, pid: 1, started: 1, uid: 0, write: true, ..SessionInfo::default() };
    let session = engine.session_open(who).expect("a session");
    let (jobs, to_run) = channel::<Job>();
    let (ran, done) = channel();
    let worker = std::thread::spawn(move || to_run.into_iter().try_for_each(|job| ran.send(job.run())));
    let mut bench = Bench {
        engine,
        session,
        seq: 0,
        blocks: Blocks::default(),
        jobs,
        done,
        running: 0,
        longest: Longest::default(),
    };
    let spec = ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() };
    bench.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: "bench".into(), spec }]);
    for first in (0..objects).step_by(32) {
        let key = |n: u64| ObjectKey { container: CONTAINER, object: ObjectId(u128::from(n)) };
        bench.apply(
            (first..(first + 32).min(objects)).map(|n| Update::ObjectCreate { key: key(n), block_shift: 12 }).collect(),
        );
        bench.write(first, objects);
        if first % 4096 == 0 {
            bench.turn();
        }
    }
    println!("{objects} objects, checkpoints {what}:");
    let begin = Instant::now();
    bench.measure("no checkpoint", objects, |_| begin.elapsed() > Duration::from_secs(1));
    bench.measure_checkpoint("the first checkpoint", objects);
    bench.measure_checkpoint("one after it", objects);
    while bench.running > 0 {
        bench.turn();
    }
    drop(bench);
    let _ = worker.join(); // it ends with the bench
}
