//! The speed of the client beside that of the machine:
//! `cargo run --release --example speed -- [daemon|inprocess] [seconds]`. For a quick look; `make bench` measures for
//! the record.

mod common;

use std::hint::black_box;
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Durability, Mode, Object, ObjectId, OpenOptions, Result, Store, StoreConfig};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 64 << 10;
const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "serve") {
        // The daemon of the measured store: `serve DIR --idle-exit 60 [--background]`.
        let background = args.iter().any(|arg| arg == "--background");
        let idle_exit = Some(Duration::from_mins(1));
        let options = cenote_server::daemon::DaemonOptions { idle_exit, background, ..Default::default() };
        return cenote_server::daemon::run(args[1].as_ref(), &options);
    }
    let mode = if args.first().is_some_and(|arg| arg == "daemon") { Mode::Daemon } else { Mode::InProcess };
    let time = Duration::from_secs_f64(args.get(1).and_then(|arg| arg.parse().ok()).unwrap_or(0.5));
    let only = args.get(2).cloned().unwrap_or_default();
    let dir = std::env::temp_dir().join(format!("cenote-speed-{}", std::process::id()));
    let devices = common::memory_over_disk(&dir, 3 << 30, 4 << 30);
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let store = Store::open_with(&dir, &OpenOptions { mode, create: true, config, ..OpenOptions::default() })?;
    let scratch = ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() };
    let container = store.create_container("speed", &scratch)?;
    let speed = Speed { store, container, pages: vec![1; BLOCKS as usize * BLOCK], time };
    let run = |name: &str| only.is_empty() || name.contains(only.as_str());
    speed.copy()?;
    if run("put 4k") || run("get 4k") {
        speed.blocks()?;
    }
    if run("create") {
        speed.creation()?;
    }
    if run("objects") {
        speed.objects()?;
    }
    if run("index") {
        speed.index()?;
    }
    if run("1m") {
        speed.large()?;
    }
    if run("file") {
        speed.file()?;
    }
    drop(speed.container);
    speed.store.close()?;
    let _ = Store::stop_daemon(&dir);
    let _ = std::fs::remove_dir_all(&dir);
    Ok(())
}

/// The subject of a measurement: a store with a container, and bytes to write.
struct Speed {
    store: Store,
    container: Container,
    pages: Vec<u8>,
    time: Duration,
}

impl Speed {
    fn copy(&self) -> Result<()> {
        let mut next = order();
        let mut buf = vec![0; BLOCK];
        measure("copy 4k", BLOCK, self.time, || {
            let at = next() as usize * BLOCK;
            black_box(&mut buf).copy_from_slice(&self.pages[at..at + BLOCK]);
            Ok(())
        })
    }
    fn blocks(&self) -> Result<()> {
        let object = self.container.create_object(None, None)?;
        let mut next = order();
        let mut buf = vec![0; BLOCK];
        put(&object, "put 4k pipelined, new", &self.store, self.time)?;
        for at in 0..BLOCKS {
            drop(object.launch_write(at * BLOCK as u64, &self.pages[..BLOCK])?);
        }
        self.store.wait_all()?;
        put(&object, "put 4k pipelined, over", &self.store, self.time)?;
        measure("put 4k, one at a time", BLOCK, self.time, || {
            object.write_at(next() * BLOCK as u64, &self.pages[..BLOCK])
        })?;
        for at in 0..BLOCKS {
            object.read_at(at * BLOCK as u64, &mut buf)?;
        }
        measure("get 4k, one object", BLOCK, self.time, || object.read_at(next() * BLOCK as u64, &mut buf).map(drop))?;
        measure("view 4k", 0, self.time, || object.view(next() * BLOCK as u64, BLOCK).map(drop))?;
        Ok(())
    }
    fn creation(&self) -> Result<()> {
        let mut id = 1u128 << 64;
        let ids = |id: &mut u128| -> Vec<ObjectId> {
            *id += 64;
            (*id..*id + 64).map(ObjectId).collect()
        };
        measure("create, 64 at once", 0, self.time, || self.container.create_objects(&ids(&mut id), None).map(drop))?;
        measure("create pipelined", 0, self.time, || self.container.launch_create(None, None).map(drop))?;
        self.store.wait_all()?;
        measure("create, one at a time", 0, self.time, || self.container.create_object(None, None).map(drop))?;
        Ok(())
    }
    fn objects(&self) -> Result<()> {
        let mut next = order();
        let mut buf = vec![0; BLOCK];
        let objects: Vec<Object> = (0..BLOCKS)
            .map(|_| self.container.launch_create(None, None).map(|(object, _)| object))
            .collect::<Result<_>>()?;
        for object in &objects {
            drop(object.launch_write(0, &self.pages[..BLOCK])?);
        }
        self.store.wait_all()?;
        for object in &objects {
            object.read_at(0, &mut buf)?;
        }
        measure("get 4k, many objects", BLOCK, self.time, || objects[next() as usize].read_at(0, &mut buf).map(drop))?;
        Ok(())
    }
    fn index(&self) -> Result<()> {
        let index = self.container.create_index(None)?;
        let mut number = 0u64;
        measure("index put pipelined", 0, self.time, || {
            number += 1;
            index.launch_put(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &self.pages[..120]).map(drop)
        })?;
        self.store.wait_all()?;
        let total = number;
        measure("index put", 0, self.time, || {
            number += 1;
            index.put(&[(&number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes(), &self.pages[..120])]).map(drop)
        })?;
        let mut key = 0;
        measure("index get", 0, self.time, || {
            key = key % total + 1;
            index.get_one(&key.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()).map(|found| assert!(found.is_some()))
        })?;
        Ok(())
    }
    fn large(&self) -> Result<()> {
        let mut large = vec![1; MIB];
        let source = vec![2; 256 * MIB];
        let mut at = 0;
        measure("copy 1m", MIB, self.time, || {
            at = (at + MIB) % source.len();
            black_box(&mut large).copy_from_slice(&source[at..at + MIB]);
            Ok(())
        })?;
        let object = self.container.create_object(None, None)?;
        let mut number = 0;
        for (name, pipelined) in [("put 1m, first", false), ("put 1m", false), ("put 1m pipelined", true)] {
            measure(name, MIB, self.time, || {
                number = (number + 1) % 256;
                let from = number as usize * MIB;
                if pipelined {
                    object.launch_write(number * MIB as u64, &source[from..from + MIB]).map(drop)
                } else {
                    object.write_at(number * MIB as u64, &source[from..from + MIB])
                }
            })?;
        }
        self.store.wait_all()?;
        for i in 0..256 {
            object.write_at(i * MIB as u64, &source[..MIB])?;
        }
        measure("get 1m", MIB, self.time, || {
            number = (number + 1) % 256;
            object.read_at(number * MIB as u64, &mut large).map(drop)
        })?;
        measure("view 1m", 0, self.time, || object.view(number * MIB as u64, MIB).map(|view| assert!(view.is_some())))?;
        Ok(())
    }
    fn file(&self) -> Result<()> {
        let spec = ContainerSpec { durability: Durability::Bypass, ..ContainerSpec::default() };
        let container = self.store.create_container("file", &spec)?;
        let object = container.create_object(None, None)?;
        let mut large = vec![1; MIB];
        let mut number = 0;
        measure("file put 1m pipelined", MIB, self.time * 2, || {
            number = (number + 1) % 512;
            object.launch_write(number * MIB as u64, &large).map(drop)
        })?;
        self.store.wait_all()?;
        for i in 0..512 {
            object.launch_write(i * MIB as u64, &large)?;
        }
        self.store.wait_all()?;
        measure("file get 1m", MIB, self.time * 2, || {
            number = (number + 1) % 512;
            object.read_at(number * MIB as u64, &mut large).map(drop)
        })?;
        let mut ops = std::collections::VecDeque::new();
        measure("file get 1m, 4 in flight", MIB, self.time * 2, || {
            number = (number + 1) % 512;
            ops.push_back(object.launch_read(number * MIB as u64, MIB)?);
            if ops.len() >= 4 { ops.pop_front().map_or(Ok(()), |op| op.wait_read().map(drop)) } else { Ok(()) }
        })?;
        Ok(())
    }
}

fn put(object: &Object, name: &str, store: &Store, time: Duration) -> Result<()> {
    let block = vec![3; BLOCK];
    let mut next = order();
    measure(name, BLOCK, time, || object.launch_write(next() * BLOCK as u64, &block).map(drop))?;
    store.wait_all()
}

/// Block numbers in an order that no prefetcher predicts.
fn order() -> impl FnMut() -> u64 {
    let mut state = 1u64;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % BLOCKS
    }
}

fn measure(name: &str, bytes: usize, time: Duration, mut work: impl FnMut() -> Result<()>) -> Result<()> {
    let (begin, cpu) = (Instant::now(), cpu_time());
    let mut count = 0u64;
    while begin.elapsed() < time {
        for _ in 0..16 {
            work()?;
        }
        count += 16;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let per_second = count as f64 / seconds;
    let bandwidth = per_second * bytes as f64 / 1e9;
    let cpu_us = (cpu_time() - cpu) / count as f64 * 1e6;
    println!(
        "{name:26} {:10.1} k/s {:8.3} us {bandwidth:7.2} GB/s {cpu_us:8.3} us cpu",
        per_second / 1e3,
        1e6 / per_second
    );
    Ok(())
}

/// Seconds of processor time of this process: comparable even on a busy machine.
fn cpu_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
