//! Tiers in a real Ceph cluster, in a replicated and in an erasure-coded pool. Each test is skipped, and says so, where
//! Ceph is not installed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cenote_device::conformance::{self, seed};
use cenote_device::mem::MemMetaDir;
use cenote_device::object::rados::RadosService;
use cenote_device::object::{ClaimNotes, ObjectService};
use cenote_device::{Device, Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceSpec, ErrorKind, Result, StoreId};
use cenote_rados::cluster::{Cluster, cluster};

const STORE: StoreId = StoreId(0x05e7_f1ce);
const ID: DeviceId = DeviceId(1);
const POOLS: [&str; 2] = ["data", "ec"];

fn tier(cluster: &Cluster, path: &str) -> DeviceSpec {
    cluster.tier("cold", path, "cenote").parse().unwrap()
}

fn service(spec: &DeviceSpec) -> RadosService {
    RadosService::of_owner(spec, None).unwrap()
}

fn open(spec: &DeviceSpec, create: bool) -> Result<Arc<dyn Device>> {
    SystemDevices::default().open(STORE, ID, spec, create).map(|opened| opened.device)
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut bytes).map(|()| bytes)
}

fn content(len: usize, salt: u8) -> Vec<u8> {
    (0..len).map(|at| (at * 7 % 253) as u8 ^ salt).collect()
}

#[test]
fn a_pool_keeps_objects() {
    let Some(cluster) = cluster() else { return };
    for pool in POOLS {
        let service = service(&tier(&cluster, &format!("{pool}/objects")));
        let parts = [Bytes::from_static(b"one "), Bytes::from_static(b"two")];
        service.put("objects/a/x-1", &parts, true).unwrap();
        assert_eq!(service.put("objects/a/x-1", &parts, true).unwrap_err().kind, ErrorKind::Exists);
        service.put("objects/a/x-1", &parts[1..], false).unwrap();
        service.put("objects/a/b/x-2", &parts, true).unwrap();
        assert_eq!(&service.get("objects/a/b/x-2", 2, 3).unwrap()[..], b"e t");
        assert_eq!(&service.get("objects/a/b/x-2", 4, 100).unwrap()[..], b"two", "what there is");
        assert_eq!(&service.get("objects/a/b/x-2", 7, 1).unwrap()[..], b"", "nothing behind the end");
        assert_eq!(service.get("objects/none", 0, 1).unwrap_err().kind, ErrorKind::NotFound);
        let mut found = service.list("objects/a/").unwrap();
        found.sort();
        assert_eq!(found, [("objects/a/b/x-2".to_owned(), 7), ("objects/a/x-1".to_owned(), 3)]);
        // The largest object of a tier.
        let large = Bytes::from(content(service.object_bytes_max() as usize, 0));
        service.put("objects/large", std::slice::from_ref(&large), true).unwrap();
        assert!(service.get("objects/large", 0, large.len() as u64).unwrap() == large);
        for key in ["objects/a/x-1", "objects/a/b/x-2", "objects/large", "objects/none"] {
            service.delete(key).unwrap();
        }
        assert_eq!(service.list("objects/").unwrap(), []);
    }
}

#[test]
fn suite() {
    let Some(cluster) = cluster() else { return };
    for pool in POOLS {
        let spec = tier(&cluster, &format!("{pool}/suite"));
        conformance::devices(&SystemDevices::default(), &spec, seed());
        assert_eq!(service(&spec).list("suite/").unwrap(), [], "nothing is left behind");
    }
}

/// Of a store and a copy of its directory, one has the tier.
#[test]
fn a_copy_of_a_store_does_not_get_its_tier() {
    let Some(cluster) = cluster() else { return };
    let spec = tier(&cluster, "ec/claims");
    let noting = |meta: &MemMetaDir, dir: &str| {
        let notes = ClaimNotes::new(Arc::new(meta.clone()), dir);
        (SystemDevices::default().noting(notes.clone()), notes)
    };
    let (first, _) = noting(&MemMetaDir::default(), "/first");
    let device = first.open(STORE, ID, &spec, true).unwrap().device;
    device.write_at(0, b"first").unwrap();
    device.sync().unwrap();
    let (copy, notes) = noting(&MemMetaDir::default(), "/copy");
    let error = copy.open(STORE, ID, &spec, false).err().unwrap();
    assert!(error.kind() == ErrorKind::Exists && error.to_string().contains("for /first"), "{error}");
    notes.take_over(ID).unwrap();
    let taken = copy.open(STORE, ID, &spec, false).unwrap().device;
    assert_eq!(read(taken.as_ref(), 0, 5).unwrap(), b"first");
    std::thread::sleep(Duration::from_millis(5100));
    device.write_at(0, b"later").unwrap();
    assert_eq!(device.sync().unwrap_err().kind(), ErrorKind::Exists);
    taken.write_at(0, b"taken").unwrap();
    taken.sync().unwrap();
    std::thread::sleep(Duration::from_millis(5100));
    taken.write_at(0, b"still").unwrap();
    taken.sync().unwrap();
    drop((device, taken));
    assert_eq!(first.open(STORE, ID, &spec, false).err().unwrap().kind(), ErrorKind::Exists);
    assert!(first.remove(STORE, ID, &spec).is_err());
    copy.remove(STORE, ID, &spec).unwrap();
}

#[test]
fn another_store_does_not_get_the_namespace() {
    let Some(cluster) = cluster() else { return };
    let spec = tier(&cluster, "data/shared");
    let mine = service(&spec);
    mine.put("shared/notes", &[Bytes::from_static(b"mine")], true).unwrap();
    let device = open(&spec, true).unwrap();
    device.write_at(0, &content(3_000_000, 1)).unwrap();
    device.sync().unwrap();
    let other = SystemDevices::default().open(StoreId(2), ID, &spec, true).err().unwrap();
    assert_eq!(other.kind(), ErrorKind::Exists, "{other}");
    let (key, _) = mine.list("shared/").unwrap().into_iter().find(|(key, _)| key.contains("/pack-")).unwrap();
    mine.delete(&key).unwrap();
    // A list has no order, so it may be any of the three packs.
    let error = read(&*device, 0, 3_000_000).unwrap_err();
    assert!(error.kind() == ErrorKind::NotFound && error.subject().contains(&key), "{error}");
    drop(device);
    SystemDevices::default().remove(STORE, ID, &spec).unwrap();
    assert_eq!(mine.list("shared/").unwrap(), [("shared/notes".to_owned(), 4)], "not ours");
    mine.delete("shared/notes").unwrap();
}

#[test]
fn a_key_that_may_not_write_is_told_so() {
    let Some(cluster) = cluster() else { return };
    let spec = tier(&cluster, "data/rights");
    let reader: DeviceSpec = cluster.tier("cold", "data/rights", "reader").parse().unwrap();
    let error = open(&reader, true).err().unwrap();
    assert!(error.kind() == ErrorKind::PermissionDenied && error.cause().contains("does not allow"), "{error}");
    assert!(error.next_step().contains("client.reader") && error.subject().contains("cold"), "{error}");
    drop(open(&spec, true).unwrap());
    assert!(open(&reader, false).is_ok(), "reading is enough to open it where there are no claims");
    let nobody: DeviceSpec = cluster.tier("cold", "data/rights", "nobody").parse().unwrap();
    let error = open(&nobody, false).err().unwrap();
    assert!(error.kind() == ErrorKind::PermissionDenied && error.cause().contains("client.nobody"), "{error}");
    SystemDevices::default().remove(STORE, ID, &spec).unwrap();
}

#[test]
fn a_pool_that_is_gone_is_named() {
    let Some(cluster) = cluster() else { return };
    let error = open(&tier(&cluster, "nopool/p"), true).err().unwrap();
    assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("nopool"), "{error}");
    cluster.ceph("osd pool create passing 4 4 replicated");
    let spec: DeviceSpec = cluster.tier("cold", "passing/p", "admin").parse().unwrap();
    let device = open(&spec, true).unwrap();
    let bytes = content(3_000_000, 2);
    device.write_at(0, &bytes).unwrap();
    device.sync().unwrap();
    assert!(read(&*device, 0, bytes.len()).unwrap() == bytes);
    cluster.ceph("osd pool delete passing passing --yes-i-really-really-mean-it");
    let begun = Instant::now();
    for error in [read(&*device, 0, bytes.len()).unwrap_err(), open(&spec, false).err().unwrap()] {
        assert!(error.kind() == ErrorKind::NotFound && error.to_string().contains("no pool `passing`"), "{error}");
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn a_full_pool_refuses_and_takes_more_when_there_is_room() {
    let Some(cluster) = cluster() else { return };
    cluster.ceph("osd pool create small 4 4 replicated");
    let spec: DeviceSpec = cluster.tier("cold", "small/p", "admin").parse().unwrap();
    let device = open(&spec, true).unwrap();
    let first = content(4 << 20, 3);
    device.write_at(0, &first).unwrap();
    device.sync().unwrap();
    cluster.ceph("osd pool set-quota small max_bytes 1000000");
    let begun = Instant::now();
    // The cluster notices after some seconds.
    let error = loop {
        let outcome = device.write_at(8 << 20, &content(2 << 20, 4)).and_then(|()| device.sync());
        match outcome {
            Err(error) => break error,
            Ok(()) => assert!(begun.elapsed() < Duration::from_mins(1), "the quota must be noticed"),
        }
        std::thread::sleep(Duration::from_millis(500));
    };
    assert!(error.kind() == ErrorKind::Full && error.cause().contains("full"), "{error}");
    assert!(error.next_step().contains("quota"), "{error}");
    assert!(read(&*device, 0, first.len()).unwrap() == first, "what is there can be read");
    cluster.ceph("osd pool set-quota small max_bytes 0");
    let begun = Instant::now();
    while let Err(error) = device.write_at(16 << 20, &first).and_then(|()| device.sync()) {
        assert!(error.kind() == ErrorKind::Full && begun.elapsed() < Duration::from_mins(1), "{error}");
        std::thread::sleep(Duration::from_millis(500));
    }
    assert!(read(&*device, 16 << 20, first.len()).unwrap() == first);
    drop(device);
    SystemDevices::default().remove(STORE, ID, &spec).unwrap();
    cluster.ceph("osd pool delete small small --yes-i-really-really-mean-it");
}

/// Of three devices one dies while a tier is written to and read: every byte is right, and nobody waits for long.
#[test]
fn a_device_of_the_cluster_that_dies_costs_moments() {
    const PIECE: usize = 1 << 20;
    const PIECES: u64 = 32;
    let Some(mut cluster) = cluster() else { return };
    for pool in POOLS {
        let spec = tier(&cluster, &format!("{pool}/dying"));
        let device = open(&spec, true).unwrap();
        let (dead, over) = (AtomicBool::new(false), AtomicBool::new(false));
        let longest = std::thread::scope(|scope| {
            let work = scope.spawn(|| {
                let (mut longest, mut round, mut rounds_after) = (Duration::ZERO, 0u64, 0);
                while rounds_after < 2 * PIECES {
                    let (at, salt) = (round % PIECES * PIECE as u64, (round % 251) as u8);
                    let begun = Instant::now();
                    device.write_at(at, &content(PIECE, salt)).unwrap();
                    device.sync().unwrap();
                    assert!(read(&*device, at, PIECE).unwrap() == content(PIECE, salt), "round {round}");
                    longest = longest.max(begun.elapsed());
                    round += 1;
                    rounds_after += u64::from(dead.load(Ordering::Relaxed));
                }
                over.store(true, Ordering::Relaxed);
                longest
            });
            std::thread::sleep(Duration::from_secs(1));
            cluster.order("kill osd.1");
            dead.store(true, Ordering::Relaxed);
            work.join().unwrap()
        });
        assert!(over.into_inner());
        eprintln!("{pool}: the longest write, sync and read of 1 MiB took {longest:?}");
        assert!(longest < Duration::from_secs(20), "{longest:?}");
        drop(device);
        let again = open(&spec, false).unwrap();
        for piece in 0..PIECES {
            let found = read(&*again, piece * PIECE as u64, PIECE).unwrap();
            let salt = found[0];
            assert!(found == content(PIECE, salt), "piece {piece}");
        }
        drop(again);
        cluster.order("start osd.1");
        SystemDevices::default().remove(STORE, ID, &spec).unwrap();
        is_clean(&cluster);
    }
}

fn is_clean(cluster: &Cluster) {
    let begun = Instant::now();
    while !cluster.ceph("osd stat").contains("3 up") || cluster.ceph("pg stat").contains("degraded") {
        assert!(begun.elapsed() < Duration::from_mins(2), "{}", cluster.ceph("pg stat"));
        std::thread::sleep(Duration::from_millis(300));
    }
}

#[test]
fn monitors_that_are_away_stop_nobody_who_is_there() {
    let Some(mut cluster) = cluster() else { return };
    let spec = tier(&cluster, "data/monitors");
    let device = open(&spec, true).unwrap();
    let bytes = content(3_000_000, 5);
    device.write_at(0, &bytes).unwrap();
    device.sync().unwrap();
    cluster.order("stop mon");
    assert!(read(&*device, 0, bytes.len()).unwrap() == bytes, "devices answer without monitors");
    device.write_at(4 << 20, &bytes).unwrap();
    device.sync().unwrap();
    let begun = Instant::now();
    let error = open(&spec, false).err().unwrap();
    let took = begun.elapsed();
    cluster.order("continue mon");
    assert!(error.kind() == ErrorKind::Io && error.cause().contains("no monitor"), "{error}");
    assert!(took < Duration::from_secs(25), "{took:?}");
    eprintln!("without monitors: {error} (after {took:?})");
    assert!(read(&*device, 4 << 20, bytes.len()).unwrap() == bytes);
    drop(device);
    let again = open(&spec, false).unwrap();
    assert!(read(&*again, 0, bytes.len()).unwrap() == bytes);
    drop(again);
    SystemDevices::default().remove(STORE, ID, &spec).unwrap();
}
