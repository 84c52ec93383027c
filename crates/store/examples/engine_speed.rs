//! Cost of the engine alone: one thread, a real journal in a temporary directory, no clients.
//!
//! `cargo run --release -p cenote-store --example engine_speed`

mod common;

use std::sync::Arc;
use std::time::Instant;

use cenote_device::mem::{MemControl, MemDevices};
use cenote_device::{FsMetaDir, SystemClock};
use cenote_model::{
    ContainerId, ContainerSpec, DeviceKind, DeviceSpec, Extent, IndexId, IndexKey, NextFrom, ObjectId, ObjectKey,
    Request, Response, StoreConfig, StoreId, Update,
};
use cenote_store::{Engine, Outcome, Seams, SessionId, SessionInfo};
use common::{BLOCK, Blocks, lease_request};

struct Bench {
    engine: Engine,
    session: SessionId,
    seq: u64,
    container: ContainerId,
    blocks: Blocks,
}

impl Bench {
    fn ask(&mut self, request: Request) -> Response {
        self.seq += 1;
        match self.engine.handle(self.session, self.seq, request) {
            Outcome::Ready(Response::Failed(error)) => panic!("{error}"),
            Outcome::Ready(response) => response,
            Outcome::Wait(_) => panic!("nothing here waits"),
        }
    }
    fn apply(&mut self, updates: Vec<Update>) {
        self.ask(Request::Apply { checks: vec![], updates, atomic: false });
    }
    /// What the server does between batches.
    fn pause(&mut self) {
        self.engine.tick();
        while let Some(job) = self.engine.next_job() {
            let done = job.run();
            self.engine.finish_job(done);
        }
    }
    fn extent(&mut self) -> Extent {
        if self.blocks.is_empty() {
            self.pause();
            let answer = self.ask(lease_request(self.container));
            self.blocks.refill(answer);
        }
        self.blocks.next()
    }
}

/// Processor time of this thread in nanoseconds: on a busy machine the elapsed time says little.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

fn timed(what: &str, count: u64, run: impl FnOnce()) {
    let (begin, wall) = (cpu_ns(), Instant::now());
    run();
    let ns = |ns: u64| ns as f64 / count as f64;
    let (cpu, wall) = (ns(cpu_ns() - begin), ns(wall.elapsed().as_nanos() as u64));
    println!("{what:<46} {cpu:>9.0} ns of processor, {wall:>9.0} ns of time each");
}

fn main() {
    let dir = std::env::temp_dir().join(format!("cenote-engine-speed-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a temporary directory");
    let objects: u64 = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let seams = Seams {
        meta: Arc::new(FsMetaDir::open(&dir).expect("a store directory")),
        devices: Arc::new(MemDevices::new(1 << 40)),
        clock: Arc::new(SystemClock),
        control: Arc::new(MemControl::new(1 << 17)),
    };
    run(seams.clone(), objects);
    timed("opening after a crash", 1, || {
        let (_, report) = Engine::open(seams).expect("the store");
        println!("{} records replayed", report.records_replayed);
    });
    let _ = std::fs::remove_dir_all(&dir);
}

fn run(seams: Seams, objects: u64) {
    let device = DeviceSpec {
        name: "memory".into(),
        kind: DeviceKind::SharedMemory,
        path: "memory".into(),
        capacity_bytes: 1 << 40,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: cenote_model::TierOptions::default(),
    };
    let config = StoreConfig { devices: vec![device], ..StoreConfig::default() };
    let mut engine = Engine::create_with_id(seams, StoreId(1), &config).expect("a store");
    let who = SessionInfo { nonce: 1, pid: 1, started: 1, uid: 0, write: true, ..SessionInfo::default() };
    let session = engine.session_open(who).expect("a session");
    let mut bench = Bench { engine, session, seq: 0, container: ContainerId(1), blocks: Blocks::default() };
    let durability = if std::env::args().nth(2).is_some() {
        cenote_model::Durability::Scratch
    } else {
        cenote_model::Durability::Async
    };
    let spec = ContainerSpec { durability, ..ContainerSpec::default() };
    bench.apply(vec![Update::ContainerCreate { id: ContainerId(0), label: "bench".into(), spec }]);
    overwrite(&mut bench);
    create(&mut bench, objects);
    records(&mut bench);
}

/// Writes that replace 4 KiB extents of an object of 65,536 of them.
fn overwrite(bench: &mut Bench) {
    let key = ObjectKey { container: bench.container, object: ObjectId(7) };
    bench.apply(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let blocks = 65_536u64;
    // Backwards, so that neighbours do not merge.
    for block in (0..blocks).rev() {
        let extent = bench.extent();
        bench.apply(vec![Update::Write { key, offset: block * BLOCK, extent }]);
    }
    bench.pause();
    let count = 2_000_000u64 / 32 * 32;
    let batches: Vec<Vec<u64>> = (0..count / 32)
        .map(|i| (0..32).map(|j| (i * 32 + j).wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks).collect())
        .collect();
    timed("write, exact replacement, batches of 32", count, || {
        for (i, batch) in batches.iter().enumerate() {
            let write = |block: &u64| Update::Write { key, offset: block * BLOCK, extent: bench.extent() };
            let updates = batch.iter().map(write).collect();
            bench.apply(updates);
            if i % 64 == 0 {
                bench.pause();
            }
        }
    });
    let lookups = 1_000_000u64;
    timed("lookup of 4 KiB", lookups, || {
        for i in 0..lookups {
            let offset = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % blocks * BLOCK;
            bench.ask(Request::Lookup { key, offset, len: BLOCK, limit: 16 });
        }
    });
}

fn create(bench: &mut Bench, objects: u64) {
    let id = |i: u64| {
        let high = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ObjectId((u128::from(high) << 64) | u128::from(i))
    };
    let container = bench.container;
    let before = bench_memory(bench);
    timed("object create, random ids, batches of 64", objects, || {
        let mut next = 0;
        while next < objects {
            let end = (next + 64).min(objects);
            let create = |i| Update::ObjectCreate { key: ObjectKey { container, object: id(i) }, block_shift: 12 };
            bench.apply((next..end).map(create).collect());
            next = end;
            if next % 65_536 == 0 {
                bench.pause();
            }
        }
    });
    timed("first write of each object, batches of 32", objects, || {
        let mut next = 0;
        while next < objects {
            let end = (next + 32).min(objects);
            let updates = (next..end)
                .map(|i| Update::Write {
                    key: ObjectKey { container, object: id(i) },
                    offset: 0,
                    extent: bench.extent(),
                })
                .collect();
            bench.apply(updates);
            next = end;
            if next % 65_536 == 0 {
                bench.pause();
            }
        }
    });
    bench.pause();
    println!(
        "metadata of {objects} objects: {} MB estimated, {} MB resident more",
        bench_memory(bench).0 / 1_000_000 - before.0 / 1_000_000,
        (bench_memory(bench).1 - before.1) / 1000
    );
}

/// Estimated bytes, and kilobytes resident.
fn bench_memory(bench: &mut Bench) -> (u64, u64) {
    let Response::Stats(stats) = bench.ask(Request::Stats) else { panic!("no stats") };
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("RssAnon")).unwrap_or("");
    let kilobytes = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).unwrap_or(0);
    (stats.metadata_bytes, kilobytes)
}

fn records(bench: &mut Bench) {
    let index = IndexKey { container: bench.container, index: IndexId(1) };
    bench.apply(vec![Update::IndexCreate { key: index }]);
    let records = 1_000_000u64;
    let key = |i: u64| {
        let mut key = vec![0; 24];
        key[..8].copy_from_slice(&i.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
        key[16..].copy_from_slice(&i.to_be_bytes());
        key
    };
    reference(records, key);
    let before = bench_memory(bench);
    timed("index put, 24+120 bytes, one at a time", records, || {
        for i in 0..records {
            bench.apply(vec![Update::Put { index, key: key(i), value: vec![i as u8; 120], only_new: false }]);
            if i % 4096 == 0 {
                bench.pause();
            }
        }
    });
    println!("resident more: {} MB", (bench_memory(bench).1 - before.1) / 1000);
    timed("index put over, batches of 32", records, || {
        for i in (0..records).step_by(32) {
            let put = |i| Update::Put { index, key: key(i), value: vec![i as u8; 120], only_new: false };
            bench.apply((i..i + 32).map(put).collect());
            if i % 65_536 == 0 {
                bench.pause();
            }
        }
    });
    timed("index get, one at a time", records, || {
        for i in 0..records {
            let i = i.wrapping_mul(2_654_435_761) % records;
            bench.ask(Request::Get { index, keys: vec![key(i)] });
        }
    });
    timed("index next, batches of 1000", records, || {
        let mut from = NextFrom::Start;
        loop {
            let request = Request::Next { index, from, prefix: vec![], limit: 1000, bytes_max: u32::MAX };
            let Response::Records { records, more } = bench.ask(request) else { panic!("no records") };
            if !more {
                break;
            }
            from = NextFrom::After(records.last().expect("a record").0.to_vec());
        }
    });
}

/// The same keys in a plain ordered map, for a comparison in the same minute.
fn reference(records: u64, key: impl Fn(u64) -> Vec<u8>) {
    let mut map = std::collections::BTreeMap::new();
    timed("  reference: insert into a plain ordered map", records, || {
        for i in 0..records {
            map.insert(key(i), vec![i as u8; 120]);
        }
    });
    let mut found = 0;
    timed("  reference: get from a plain ordered map", records, || {
        for i in 0..records {
            found += map.get(&key(i.wrapping_mul(2_654_435_761) % records)).map_or(0, |value| value.clone().len());
        }
    });
    assert_eq!(found as u64, records * 120);
}
