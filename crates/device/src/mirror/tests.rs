//! What a mirror has is what its home has, whatever happens in between. One thread queues and carries over, so no copy may have
//! more bytes than are queued ahead.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceSpec, ErrorKind, NodeId, StoreId};

use super::replica::carry;
use super::*;
use crate::mem::{MemDevices, MemMetaDir, SplitMix};
use crate::{Device, Devices, MetaDir};

const STORE: StoreId = StoreId(7);
const ID: DeviceId = DeviceId(1);
const NODE: NodeId = NodeId(2);
const CAPACITY: u64 = 1 << 20;

fn kinds(name: &str) -> Option<FileKind> {
    match name.split('-').next() {
        Some("log") => Some(FileKind::Log),
        Some("file") => Some(FileKind::Whole),
        _ => None,
    }
}

/// A home with one device, and its mirror.
struct World {
    stream: Arc<Stream>,
    files: MirroredFiles,
    devices: MirroredDevices,
    source: Source,
    device: Arc<dyn Device>,
    inner: Arc<dyn MetaDir>,
    there: (Arc<MemMetaDir>, Arc<MemDevices>),
    replica: Replica,
}

fn spec() -> DeviceSpec {
    format!("name=m,kind=memory,size={CAPACITY}").parse().unwrap()
}

fn world() -> World {
    let stream = Arc::<Stream>::default();
    let inner: Arc<dyn MetaDir> = Arc::new(MemMetaDir::default());
    let files = MirroredFiles::new(inner.clone(), stream.clone(), kinds);
    let devices = MirroredDevices::new(Arc::new(MemDevices::new(CAPACITY)), stream.clone());
    let source = Source::new(inner.clone(), &devices, stream.clone(), kinds);
    let device = devices.open(STORE, ID, &spec(), true).unwrap().device;
    let there = (Arc::new(MemMetaDir::default()), Arc::new(MemDevices::new(CAPACITY)));
    let replica = Replica::new(STORE, there.0.clone(), there.1.clone(), kinds);
    World { stream, files, devices, source, device, inner, there, replica }
}

impl World {
    fn copy(&self) {
        self.stream.attach(NODE, Box::new(|| ()));
        self.source.copy_to(NODE, &|_| vec![(0, CAPACITY)], &|_, _| ()).unwrap();
        self.stream.complete(NODE);
    }
    fn carry(&mut self) {
        carry(&self.stream, NODE, &mut self.replica);
    }
    fn assert_same(&self) {
        let all = |files: &dyn MetaDir| -> BTreeMap<String, Vec<u8>> {
            let names = files.list().unwrap().into_iter().filter(|name| kinds(name).is_some());
            names
                .map(|name| {
                    let bytes = match kinds(&name) {
                        Some(FileKind::Log) => {
                            let log = files.open_log(&name).unwrap();
                            let mut bytes = vec![0; log.capacity() as usize];
                            log.read(0, &mut bytes).unwrap();
                            bytes
                        }
                        _ => files.read_file(&name).unwrap(),
                    };
                    (name, bytes)
                })
                .collect()
        };
        assert!(all(self.inner.as_ref()) == all(self.there.0.as_ref()), "files differ");
        let there = self.there.1.open(STORE, ID, &spec(), false).unwrap();
        let [mut here, mut other] = [vec![0; CAPACITY as usize], vec![0; CAPACITY as usize]];
        self.device.read_at(0, &mut here).unwrap();
        there.device.read_at(0, &mut other).unwrap();
        assert!(there.survived && here == other, "devices differ");
    }
    /// One random change.
    fn step(&self, random: &mut SplitMix) {
        let names = self.inner.list().unwrap();
        let name = |kind: &str, number: u64| format!("{kind}-{number}");
        let bytes = |random: &mut SplitMix, max: u64| vec![random.next_u64() as u8 | 1; 1 + random.below(max) as usize];
        match random.below(8) {
            0 => {
                let name = name("log", random.next_u64());
                self.files.create_log(&name, 4096 + random.below(100_000)).unwrap();
            }
            1 => {
                let content = bytes(random, 1 << 20);
                self.files.write_file(&name("file", random.below(5)), &content).unwrap();
            }
            2 if !names.is_empty() => {
                self.files.remove(&names[random.below(names.len() as u64) as usize]).unwrap();
            }
            3 | 4 => {
                let Some(name) = names.iter().find(|name| name.starts_with("log")) else { return };
                let log = self.files.open_log(name).unwrap();
                let content = bytes(random, 2000);
                log.write(random.below(log.capacity() - 2000), &content).unwrap();
            }
            5 => {
                self.device.discard(random.below(CAPACITY / 512) * 512, 512).unwrap();
            }
            _ => {
                let content = bytes(random, 60_000);
                self.device.write_at(random.below(CAPACITY - 60_000), &content).unwrap();
            }
        }
    }
}

#[test]
fn what_a_mirror_has_is_what_its_home_has() {
    let seed = crate::conformance::seed();
    println!("seed {seed}");
    let mut random = SplitMix::new(seed);
    for _ in 0..20 {
        let mut world = world();
        (0..random.below(40)).for_each(|_| world.step(&mut random));
        world.copy();
        (0..random.below(40)).for_each(|_| world.step(&mut random));
        world.carry();
        assert!(world.replica.is_complete());
        world.assert_same();
        (0..random.below(20)).for_each(|_| world.step(&mut random));
        // A mirror that begins anew forgets what it had.
        world.stream.detach(NODE);
        (0..random.below(20)).for_each(|_| world.step(&mut random));
        world.replica = Replica::new(STORE, world.there.0.clone(), world.there.1.clone(), kinds);
        world.copy();
        world.carry();
        world.assert_same();
    }
}

/// Bytes that a client wrote through a mapping are noted when the store is about to name them.
#[test]
fn what_clients_wrote_is_passed_on() {
    let mut world = world();
    world.copy();
    world.carry();
    let (_, behind) = world.devices.known.lock().get(&ID).cloned().unwrap();
    behind.write_at(4096, &[7; 3000]).unwrap();
    world.device.committed(4096, 3000).unwrap();
    world.carry();
    world.assert_same();
    let too_far = world.device.committed(CAPACITY - 1, 100);
    assert!(too_far.is_err(), "it cannot be read");
    assert!(!world.stream.is_attached(NODE), "the mirror lacks a change now");
}

#[test]
fn answers_are_kept_back_until_all_required_mirrors_have_the_change() {
    let world = world();
    let stream = &world.stream;
    assert_eq!(stream.kept(), u64::MAX);
    world.device.write_at(0, b"alone").unwrap();
    stream.require(&[NODE]);
    assert_eq!(stream.kept(), 0, "a mirror that never had anything");
    stream.attach(NODE, Box::new(|| ()));
    let woken = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let count = woken.clone();
    stream.on_kept(Box::new(move || _ = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst)));
    world.device.write_at(0, b"one").unwrap();
    let end = stream.end();
    let chunks = stream.take(NODE, usize::MAX).unwrap();
    world.device.write_at(0, b"two").unwrap();
    assert!(stream.kept() < end);
    stream.confirm(NODE, chunks.last().unwrap().number);
    assert_eq!(stream.kept(), 0, "its copy of everything is not complete");
    stream.complete(NODE);
    let chunks = stream.take(NODE, usize::MAX).unwrap();
    world.device.write_at(0, b"three").unwrap();
    let end = end + 1;
    stream.confirm(NODE, chunks.last().unwrap().number);
    assert_eq!(stream.kept(), end, "the third is not confirmed");
    assert!(woken.load(std::sync::atomic::Ordering::SeqCst) > 0);
    stream.detach(NODE);
    world.device.write_at(0, b"four").unwrap();
    assert_eq!(stream.kept(), end, "a mirror that is away keeps answers back");
    stream.require(&[]);
    assert_eq!(stream.kept(), u64::MAX);
}

#[test]
fn a_new_connection_goes_on_where_the_last_one_ended() {
    let mut world = world();
    world.copy();
    world.carry();
    for at in 0..5 {
        world.device.write_at(at * 512, &[at as u8; 512]).unwrap();
        let chunks = world.stream.take(NODE, usize::MAX).unwrap();
        if at < 3 {
            // Carried out, and the confirmation of the last is lost.
            for chunk in &chunks {
                world.replica.apply(chunk.number, &chunk.bytes).unwrap();
            }
        }
    }
    assert!(world.stream.resume(NODE, world.replica.has(), Box::new(|| ())));
    world.carry();
    world.assert_same();
    assert!(!world.stream.resume(NODE, 0, Box::new(|| ())), "confirmed chunks are not kept");
    assert!(!world.stream.resume(NODE, u64::MAX - 1, Box::new(|| ())), "a mirror of something else");
}

#[test]
fn hostile_changes_are_errors() {
    let mut world = world();
    for bad in [&b"\xff"[..], b"\x03\xff\xff\xff\xff", b"\x04\x01\0\0\0x", b"\x07\0\0\xff"] {
        let error = world.replica.apply(1, bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    }
    for name in ["../log-1", "identity", "cluster.key"] {
        for change in [change::Change::Log { name, capacity: 4096 }, change::Change::Remove { name }] {
            let mut bytes = Vec::new();
            change.encode(&mut bytes);
            assert!(world.replica.apply(1, &bytes).is_err(), "{name}");
        }
    }
    assert!(world.replica.apply(3, b"").is_err(), "a chunk is missing");
}
