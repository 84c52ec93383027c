//! A store over four nodes of this host: local accesses beside those of a store by itself, and accesses of another node's
//! objects beside bare TCP.

use std::hint::black_box;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use cenote::{Container, ContainerSpec, Durability, Mode, Object, OpenOptions, Store};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, memory};
use crate::reference::shuffled;

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
const SPAN: usize = 64 * MIB;
const FOUR: &[&str] = &["--local", "4", "--tier", "name=memory,kind=memory,size=256MiB"];
const ALONE: &str = "a store by itself";

/// A cluster; deleted when this value is dropped.
pub struct Cluster {
    place: BenchDir,
    command: PathBuf,
    /// From nothing to the first write that was acknowledged, in seconds.
    begun_s: f64,
    /// At the first and the second node.
    pub stores: [Store; 2],
}

impl Cluster {
    /// Starts one with these options.
    pub fn start(name: &str, options: &[&str]) -> Outcome<Self> {
        let place = BenchDir::in_memory(name)?;
        let command = PathBuf::from(std::env::var_os("CENOTE_BIN").ok_or("CENOTE_BIN names no command")?);
        let (begin, dir) = (Instant::now(), place.path().join("cluster"));
        let mut start = Command::new(&command);
        start.args(["cluster", "start"]).arg(&dir).args(options);
        let started = start.stdout(Stdio::null()).status()?;
        if !started.success() {
            return Err("the cluster did not start".into());
        }
        let open = |number: usize| {
            let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
            Store::open_with(dir.join(format!("n{number}")), &options)
        };
        let stores = [open(1)?, open(2)?];
        let first = container(&stores[0], "first", Durability::Scratch)?.create_object(None, Some(12))?;
        first.write_at(0, &[1; BLOCK])?;
        let begun_s = begin.elapsed().as_secs_f64();
        Ok(Self { place, command, begun_s, stores })
    }
    /// Ends the daemon of a node, counted from 1.
    pub fn stop(&self, number: usize) -> Outcome {
        let node = self.place.path().join(format!("cluster/n{number}"));
        let stopped =
            Command::new(&self.command).arg("--store").arg(node).arg("stop").stdout(Stdio::null()).status()?;
        if stopped.success() { Ok(()) } else { Err(format!("the daemon of node {number} does not stop").into()) }
    }
    /// A filled object whose home is the first node, seen from the node with this index.
    fn object(&self, label: &str, seen_from: usize) -> Outcome<Object> {
        let spec = ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() };
        let made = self.stores[0].create_container(label, &spec)?;
        let object = filled(&made)?;
        Ok(self.stores[seen_from].container(label)?.object(object.key().object))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for store in &self.stores {
            let _ = store.close();
        }
        let mut gone = Command::new(&self.command);
        gone.args(["cluster", "destroy", "--yes"]).arg(self.place.path().join("cluster"));
        let _ = gone.stdout(Stdio::null()).status();
    }
}

fn filled(container: &Container) -> Outcome<Object> {
    let object = container.create_object(None, Some(12))?;
    let piece = vec![3u8; MIB];
    for at in (0..SPAN).step_by(MIB) {
        object.write_at(at as u64, &piece)?;
    }
    Ok(object)
}

/// A store by itself with the same object.
fn single(name: &str) -> Outcome<(BenchDir, Store, Object)> {
    let mut place = BenchDir::in_memory(name)?;
    let store = place.store("store", Mode::Daemon, vec![memory(256)])?;
    let object = filled(&container(&store, "bench", Durability::Scratch)?)?;
    Ok((place, store, object))
}

fn gets(object: &Object, blocks: &[u64], len: usize) -> Outcome<f64> {
    let mut buf = vec![0; len];
    rate(blocks.len() as u64, || {
        for block in blocks {
            object.read_at(block * len as u64, &mut buf)?;
            black_box(&mut buf);
        }
        Ok(())
    })
}

fn puts(store: &Store, object: &Object, blocks: &[u64], awaited: bool) -> Outcome<f64> {
    let data = vec![5u8; BLOCK];
    rate(blocks.len() as u64, || {
        for block in blocks {
            if awaited {
                object.write_at(block * BLOCK as u64, &data)?;
            } else {
                drop(object.launch_write(block * BLOCK as u64, &data)?);
            }
        }
        Ok(store.wait_all()?)
    })
}

/// Objects whose home and bytes are on the own node, beside a store by itself.
pub fn local(report: &mut Report) -> Outcome {
    let cluster = Cluster::start("cluster-local", FOUR)?;
    let object = cluster.object("bench", 0)?;
    let (_place, store, alone) = single("cluster-alone")?;
    let count = report.settings.scaled(200_000);
    let blocks = shuffled((SPAN / BLOCK) as u64, count, 1);
    report.pairs(
        "cluster.local_get_4k",
        "1/s",
        &mut || gets(&object, &blocks, BLOCK),
        &mut [Beside { name: ALONE, wanted: Some(0.9), run: &mut || gets(&alone, &blocks, BLOCK) }],
    )?;
    let few = &blocks[..blocks.len() / 4];
    report.pairs(
        "cluster.local_put_4k",
        "1/s",
        &mut || puts(&cluster.stores[0], &object, few, false),
        &mut [Beside { name: ALONE, wanted: Some(0.9), run: &mut || puts(&store, &alone, few, false) }],
    )?;
    report.limit("cluster.start", "s", cluster.begun_s, "four nodes, from nothing to the first write", 1.0);
    Ok(())
}

/// An object of the first node, seen from there and from the second one.
struct Pair {
    near: Object,
    far: Object,
}

impl Pair {
    fn make(cluster: &Cluster, label: &str) -> Outcome<Self> {
        let far = cluster.object(label, 1)?;
        let near = cluster.stores[0].container(label)?.object(far.key().object);
        Ok(Self { near, far })
    }
    /// Reads that find nothing remembered: the object is changed before, and again when each of its blocks was read.
    fn cold_gets(&self, blocks: &[u64], len: usize) -> Outcome<f64> {
        let mut buf = vec![0; len];
        rate(blocks.len() as u64, || {
            for some in blocks.chunks(SPAN / len) {
                self.near.write_at(0, &[3])?;
                for block in some {
                    self.far.read_at(block * len as u64, &mut buf)?;
                    black_box(&mut buf);
                }
            }
            Ok(())
        })
    }
}

/// Numbers of blocks, none of them again before all others; their count is a power of two.
fn scattered(blocks: u64, count: u64) -> Vec<u64> {
    (0..count).map(|at| at.wrapping_mul(40_503) % blocks).collect()
}

fn creations(store: &Store, label: &str, count: u64) -> Outcome<f64> {
    let container = store.container(label)?;
    rate(count, || {
        for _ in 0..count {
            drop(container.launch_create(None, Some(12))?);
        }
        Ok(store.wait_all()?)
    })
}

/// Objects whose home is another node, beside bare TCP and beside accesses of its own programs.
pub fn remote(report: &mut Report) -> Outcome {
    let cluster = Cluster::start("cluster-remote", FOUR)?;
    let pair = Pair::make(&cluster, "bench")?;
    let near = cluster.object("near", 0)?;
    let count = report.settings.scaled(5_000);
    let blocks = scattered((SPAN / BLOCK) as u64, count);
    let tcp = "bare TCP, 64 bytes for 4 KiB";
    report.pairs(
        "cluster.remote_get_4k",
        "1/s",
        &mut || pair.cold_gets(&blocks, BLOCK),
        &mut [Beside { name: tcp, wanted: Some(0.77), run: &mut || echo(count, BLOCK) }],
    )?;
    let known = shuffled((SPAN / BLOCK / 4) as u64, report.settings.scaled(200_000), 3);
    gets(&pair.far, &(0..(SPAN / MIB / 4) as u64).collect::<Vec<_>>(), MIB)?;
    report.pairs(
        "cluster.remote_get_4k_known",
        "1/s",
        &mut || gets(&pair.far, &known, BLOCK),
        &mut [Beside {
            name: "the same object on its node",
            wanted: Some(0.9),
            run: &mut || gets(&pair.near, &known, BLOCK),
        }],
    )?;
    remote_puts(report, &cluster, &pair.far, &near, &blocks)?;
    let large = scattered((SPAN / MIB) as u64, report.settings.scaled(500));
    // One object as it was written, in pieces of 1 MiB; the other one after all these puts of 4 KiB.
    let whole = Pair::make(&cluster, "whole")?;
    for (bar, pair) in [("cluster.remote_get_1m", whole), ("cluster.remote_get_1m_scattered", pair)] {
        report.pairs(
            bar,
            "1/s",
            &mut || pair.cold_gets(&large, MIB),
            &mut [Beside {
                name: "bare TCP, one at a time",
                wanted: Some(0.65),
                run: &mut || echo(large.len() as u64, MIB),
            }],
        )?;
    }
    Ok(())
}

fn remote_puts(report: &mut Report, cluster: &Cluster, far: &Object, near: &Object, blocks: &[u64]) -> Outcome {
    let count = blocks.len() as u64;
    let [first, second] = &cluster.stores;
    report.pairs(
        "cluster.remote_put_4k_waited",
        "1/s",
        &mut || puts(second, far, blocks, true),
        &mut [Beside {
            name: "two bare round trips",
            wanted: Some(0.67),
            run: &mut || echo(2 * count, 64).map(|rate| rate / 2.0),
        }],
    )?;
    let on_its_node = "the same on its node";
    report.pairs(
        "cluster.remote_put_4k",
        "1/s",
        &mut || puts(second, far, blocks, false),
        &mut [Beside { name: on_its_node, wanted: Some(0.5), run: &mut || puts(first, near, blocks, false) }],
    )?;
    report.pairs(
        "cluster.remote_create",
        "1/s",
        &mut || creations(second, "bench", 4 * count),
        &mut [Beside { name: on_its_node, wanted: Some(0.5), run: &mut || creations(first, "near", 4 * count) }],
    )
}

/// Round trips in a second over a bare TCP connection: 64 bytes for `answer_bytes`, one at a time.
fn echo(count: u64, answer_bytes: usize) -> Outcome<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        scope.spawn(move || -> std::io::Result<()> {
            let (mut socket, _) = listener.accept()?;
            socket.set_nodelay(true)?;
            let (mut ask, answer) = ([0; 64], vec![7u8; answer_bytes]);
            for _ in 0..count {
                socket.read_exact(&mut ask)?;
                socket.write_all(&answer)?;
            }
            Ok(())
        });
        let mut socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        let mut answer = vec![0; answer_bytes];
        rate(count, || {
            for _ in 0..count {
                socket.write_all(&[1; 64])?;
                socket.read_exact(&mut answer)?;
            }
            Ok(())
        })
    })
}
