//! The promises of the API, in both modes.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cenote::{ContainerSpec, Durability, ErrorKind, IndexId, KeyCode, Mode, NextFrom, ObjectId, Store};

use crate::tools::{Random, TestDir, eventually};

pub fn in_process() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    assert_eq!(store.reached(), Mode::InProcess);
    everything(&store);
    store.close().unwrap();
    reopened(&place.open(Mode::InProcess));
}

pub fn through_a_daemon() {
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    assert_eq!(store.reached(), Mode::Daemon);
    everything(&store);
    store.close().unwrap();
    reopened(&place.open(Mode::Daemon));
}

fn everything(store: &Store) {
    containers(store);
    objects(store);
    indices(store);
    transactions(store);
    conflicts(store);
    references(store);
    pipelined(store);
    snapshots(store);
    durabilities(store);
    let report = store.verify().unwrap();
    assert!(report.findings.is_empty() && report.objects > 0, "{report:?}");
    assert!(store.stats().unwrap().objects > 0);
    store.flush().unwrap();
    store.checkpoint().unwrap();
    let names: Vec<String> = store.devices().unwrap().into_iter().map(|device| device.spec.name).collect();
    assert_eq!(names, ["memory", "disk"]);
}

fn reopened(store: &Store) {
    let container = store.container("objects").unwrap();
    let mut buf = [0; 5];
    assert_eq!(container.object(ObjectId(1)).read_at(100, &mut buf).unwrap(), 5);
    assert_eq!(&buf, b"hello");
    let report = store.verify().unwrap();
    assert!(report.findings.is_empty(), "{report:?}");
}

fn containers(store: &Store) {
    let spec = ContainerSpec { block_shift: 9, ..ContainerSpec::default() };
    for label in ["a", "b/ä", "b/ß 漢字 \u{1F30A}", "c"] {
        assert_eq!(store.create_container(label, &spec).unwrap().info().unwrap().label, label);
    }
    assert_eq!(store.create_container("a", &spec).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(store.open_container("a", &spec).unwrap().id(), store.container("a").unwrap().id());
    assert_eq!(store.container("none").unwrap_err().kind(), ErrorKind::NotFound);
    let labels = |prefix| store.containers(prefix).unwrap().into_iter().map(|info| info.label).collect::<Vec<_>>();
    assert_eq!(labels("b/"), ["b/ß 漢字 \u{1F30A}", "b/ä"]);
    let id = store.container("c").unwrap().id();
    store.rename_container("c", "d").unwrap();
    assert_eq!(store.container("d").unwrap().id(), id);
    assert_eq!(store.rename_container("d", "a").unwrap_err().kind(), ErrorKind::Exists);
    let container = store.container("d").unwrap();
    container.create_object(None, None).unwrap().write_at(0, b"x").unwrap();
    container.set(&ContainerSpec { quota_bytes: 1 << 20, ..spec.clone() }).unwrap();
    assert_eq!(container.info().unwrap().spec.quota_bytes, 1 << 20);
    let object = container.create_object(None, None).unwrap();
    let error = object.write_at(0, &vec![1; 2 << 20]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}");
    assert!(error.to_string().contains("container `d`"), "{error}");
    store.delete_container("d").unwrap();
    assert_eq!(container.info().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(object.write_at(0, b"x").unwrap_err().kind(), ErrorKind::NotFound);
}

fn objects(store: &Store) {
    let container = store.create_container("objects", &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), Some(6)).unwrap();
    assert_eq!(container.create_object(Some(ObjectId(1)), None).unwrap_err().kind(), ErrorKind::Exists);
    object.write_at(100, b"hello").unwrap();
    let stat = object.stat().unwrap();
    assert_eq!((stat.size, stat.block_shift, stat.mapped_bytes), (105, 6, 5));
    let mut buf = [7; 110];
    assert_eq!(object.read_at(0, &mut buf).unwrap(), 105);
    assert_eq!(&buf[..100], &[0; 100]);
    assert_eq!(&buf[100..], b"hello\x07\x07\x07\x07\x07");
    assert_eq!(object.read_at(105, &mut buf).unwrap(), 0);
    assert_eq!(object.read_at(1 << 62, &mut buf).unwrap(), 0);
    // Overwrites, in part and across.
    object.write_at(102, b"LL").unwrap();
    object.read_at(100, &mut buf[..5]).unwrap();
    assert_eq!(&buf[..5], b"heLLo");
    object.write_at(102, b"ll").unwrap();
    // Blocks.
    let blocks = container.create_object(Some(ObjectId(2)), Some(6)).unwrap();
    let data: Vec<u8> = (0..192).map(|i| i as u8).collect();
    blocks.write_blocks(&[5..6, 1..3], &data).unwrap();
    let mut back = vec![9; 256];
    blocks.read_blocks(&[1..2, 5..6, 2..3, 7..8], &mut back).unwrap();
    assert_eq!(&back[..64], &data[64..128]);
    assert_eq!(&back[64..128], &data[..64]);
    assert_eq!(&back[128..192], &data[128..]);
    assert_eq!(&back[192..], &[0; 64]);
    assert_eq!(blocks.write_blocks(std::slice::from_ref(&(0..1)), &data).unwrap_err().kind(), ErrorKind::InvalidInput);
    // Punch, truncate, sparse.
    blocks.punch(64, 10).unwrap();
    blocks.read_at(64, &mut back[..64]).unwrap();
    assert_eq!((&back[..10], &back[10..64]), (&[0; 10][..], &data[74..128]));
    blocks.truncate(70).unwrap();
    assert_eq!(blocks.stat().unwrap().size, 70);
    blocks.truncate(1 << 60).unwrap();
    blocks.write_at((1 << 62) - 3, b"end").unwrap();
    assert_eq!(blocks.read_at((1 << 62) - 8, &mut back[..100]).unwrap(), 8);
    assert_eq!(&back[..8], b"\0\0\0\0\0end");
    assert_eq!(blocks.stat().unwrap().size, 1 << 62);
    // Large: more than one lease, several checksum units, no alignment.
    let large = container.create_object(None, None).unwrap();
    let bytes = Random::new(1).bytes((9 << 20) + 333);
    large.write_at(12_345, &bytes).unwrap();
    let mut back = vec![0; bytes.len()];
    assert_eq!(large.read_at(12_345, &mut back).unwrap(), bytes.len());
    assert!(back == bytes);
    // Vectors.
    let (mut one, mut two) = ([1; 3], [1; 4]);
    object.writev(&[(200, b"ab"), (300, b"cd")]).unwrap();
    object.readv(&mut [(199, &mut one), (299, &mut two)]).unwrap();
    assert_eq!((&one, &two), (b"\0ab", b"\0cd\0"));
    object.truncate(105).unwrap();
    // Lists and many at once.
    let ids: Vec<ObjectId> = (1000..6000).map(ObjectId).collect();
    assert!(container.create_objects(&ids, None).unwrap().iter().all(|code| *code == KeyCode::Ok));
    let codes = container.create_objects(&[ObjectId(1000), ObjectId(7000)], None).unwrap();
    assert_eq!(codes, [KeyCode::Exists, KeyCode::Ok]);
    assert_eq!(container.objects(Some(ObjectId(1997)), 3).unwrap(), [1998, 1999, 2000].map(ObjectId));
    container.delete_object(ObjectId(7000)).unwrap();
    assert_eq!(container.delete_object(ObjectId(7000)).unwrap_err().kind(), ErrorKind::NotFound);
    let missing = container.object(ObjectId(7000));
    assert_eq!(missing.read_at(0, &mut one).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(missing.write_at(0, &one).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(missing.write_at(0, &[]).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!store.explain(object.key()).unwrap().ranges.is_empty());
}

fn indices(store: &Store) {
    let container = store.create_container("indices", &ContainerSpec::default()).unwrap();
    let index = container.create_index(Some(IndexId(5))).unwrap();
    assert_eq!(container.create_index(Some(IndexId(5))).unwrap_err().kind(), ErrorKind::Exists);
    assert_eq!(container.open_index(IndexId(5)).unwrap().key(), index.key());
    container.open_index(IndexId(6)).unwrap();
    assert_eq!(container.indices(None, 10).unwrap(), [IndexId(5), IndexId(6)]);
    let big = Random::new(2).bytes(3 << 20);
    assert_eq!(index.put(&[(b"a", b"1"), (b"b", b"2"), (b"big", &big)]).unwrap(), [KeyCode::Ok; 3]);
    assert_eq!(index.put_new(&[(b"a", b"9"), (b"c", b"3")]).unwrap(), [KeyCode::Exists, KeyCode::Ok]);
    let got = index.get(&[b"a", b"big", b"none"]).unwrap();
    assert!(got[0].as_deref() == Some(b"1") && got[1].as_ref() == Some(&big) && got[2].is_none());
    assert_eq!(index.del(&[b"big", b"none"]).unwrap(), [KeyCode::Ok, KeyCode::NotFound]);
    // Many records, pages, prefixes.
    let records: Vec<(Vec<u8>, Vec<u8>)> =
        (0..3000u32).map(|i| (format!("key/{i:05}").into_bytes(), vec![i as u8; 100])).collect();
    let borrowed: Vec<(&[u8], &[u8])> = records.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert!(index.put(&borrowed).unwrap().iter().all(|code| *code == KeyCode::Ok));
    let all: Vec<_> = index.iter(b"key/").map(Result::unwrap).collect();
    assert!(all == records);
    let some = index.next(NextFrom::After(b"key/00010".to_vec()), 2).unwrap();
    assert!(some.iter().map(|(key, _)| key).eq([b"key/00011", b"key/00012"]));
    assert_eq!(index.next(NextFrom::Start, 5000).unwrap().len(), 3003);
    assert_eq!(index.next_with_prefix(b"key/0001", NextFrom::Start, 100).unwrap().len(), 10);
    assert_eq!(index.next(NextFrom::At(b"zzz".to_vec()), 5).unwrap().len(), 0);
    // Pipelined records are visible to later reads.
    let ops: Vec<_> = (0..500u32).map(|i| index.launch_put(&i.to_be_bytes(), b"v").unwrap()).collect();
    assert_eq!(index.get_one(&499u32.to_be_bytes()).unwrap().as_deref(), Some(&b"v"[..]));
    for op in ops {
        op.wait().unwrap();
    }
    container.delete_index(IndexId(6)).unwrap();
    let gone = container.index(IndexId(6));
    assert_eq!(gone.get_one(b"a").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(gone.put(&[(b"a", b"b")]).unwrap_err().kind(), ErrorKind::NotFound);
}

fn transactions(store: &Store) {
    let container = store.create_container("transactions", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    object.write_at(0, &[1; 100]).unwrap();
    let index = container.create_index(None).unwrap();
    index.put(&[(b"old", b"0")]).unwrap();
    let mut buf = [9; 200];
    {
        let mut dropped = store.begin();
        dropped.write(&object, 0, &[2; 50]).unwrap();
        dropped.put(&index, b"k", b"v").unwrap();
        assert_eq!(dropped.read(&object, 0, &mut buf).unwrap(), 100);
        assert_eq!((&buf[..50], &buf[50..100]), (&[2; 50][..], &[1; 50][..]));
        assert_eq!(dropped.get(&index, b"k").unwrap().as_deref(), Some(&b"v"[..]));
        dropped.create_object(&container, Some(ObjectId(77)), None).unwrap();
    }
    assert_eq!(object.read_at(0, &mut buf).unwrap(), 100);
    assert_eq!(&buf[..100], &[1; 100]);
    assert_eq!(index.get_one(b"k").unwrap(), None);
    assert_eq!(container.object(ObjectId(77)).stat().unwrap_err().kind(), ErrorKind::NotFound);

    let mut transaction = store.begin();
    let fresh = transaction.create_object(&container, Some(ObjectId(77)), None).unwrap();
    let fresh_index = transaction.create_index(&container, None).unwrap();
    transaction.write(&fresh, 10, b"new").unwrap();
    transaction.truncate(&object, 60).unwrap();
    transaction.write(&object, 80, &[3; 20]).unwrap();
    transaction.punch(&object, 0, 10).unwrap();
    transaction.put(&fresh_index, b"a", b"b").unwrap();
    transaction.del(&index, b"old").unwrap();
    transaction.del(&index, b"never there").unwrap();
    let expected: Vec<u8> = [vec![0; 10], vec![1; 50], vec![0; 20], vec![3; 20]].concat();
    assert_eq!(transaction.read(&object, 0, &mut buf).unwrap(), 100);
    assert_eq!(&buf[..100], &expected);
    assert_eq!(transaction.read(&fresh, 0, &mut buf).unwrap(), 13);
    assert_eq!(&buf[..13], b"\0\0\0\0\0\0\0\0\0\0new");
    assert_eq!(transaction.get(&index, b"old").unwrap(), None);
    let epoch = transaction.commit().unwrap();
    assert!(epoch > 0);
    assert_eq!(object.read_at(0, &mut buf).unwrap(), 100);
    assert_eq!(&buf[..100], &expected);
    assert_eq!(fresh.read_at(10, &mut buf).unwrap(), 3);
    assert_eq!(fresh_index.get_one(b"a").unwrap().as_deref(), Some(&b"b"[..]));
    assert_eq!(index.get(&[b"old", b"never there"]).unwrap(), [None, None]);

    // The first failed update fails all.
    let mut failing = store.begin();
    failing.write(&object, 0, &[8; 100]).unwrap();
    failing.put_new(&fresh_index, b"a", b"other").unwrap();
    assert_eq!(failing.commit().unwrap_err().kind(), ErrorKind::Exists);
    object.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf[..100], &expected);
    assert!(store.begin().commit().unwrap() >= epoch);
}

fn conflicts(store: &Store) {
    let container = store.open_container("transactions", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let index = container.create_index(None).unwrap();
    index.put(&[(b"n", b"0")]).unwrap();
    let mut buf = [0; 1];
    let begin = || {
        let mut transaction = store.begin();
        transaction.detect_conflicts(true);
        transaction
    };
    let mut one = begin();
    one.read(&object, 0, &mut buf).unwrap();
    one.put(&index, b"n", b"1").unwrap();
    object.write_at(0, b"x").unwrap();
    assert_eq!(one.commit().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(index.get_one(b"n").unwrap().as_deref(), Some(&b"0"[..]));
    for (key, change) in [(b"n", b"n"), (b"m", b"m")] {
        let mut two = begin();
        two.get(&index, key).unwrap();
        two.write(&object, 0, b"y").unwrap();
        index.put(&[(change, b"2")]).unwrap();
        assert_eq!(two.commit().unwrap_err().kind(), ErrorKind::Conflict);
    }
    let mut calm = begin();
    calm.read(&object, 0, &mut buf).unwrap();
    calm.get(&index, b"n").unwrap();
    calm.write(&object, 0, b"z").unwrap();
    calm.commit().unwrap();
    object.read_at(0, &mut buf).unwrap();
    assert_eq!(&buf, b"z");
}

fn references(store: &Store) {
    let container = store.create_container("references", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let mut staged = object.write_in_place(1 << 20).unwrap();
    let bytes = Random::new(3).bytes(1 << 20);
    staged.bytes().copy_from_slice(&bytes);
    staged.commit(0).unwrap();
    drop(object.write_in_place(4096).unwrap());
    let view = object.view(1000, 500_000).unwrap().expect("one extent in memory");
    assert!(view[..] == bytes[1000..501_000]);
    // A view stays unchanged, however often its range is overwritten.
    for round in 0..10 {
        object.write_at(0, &vec![round; 1 << 20]).unwrap();
    }
    assert!(view[..] == bytes[1000..501_000]);
    drop(view);
    assert!(object.view(0, 2 << 20).unwrap().is_none(), "past the end");
    assert_eq!(object.view(0, 0).unwrap().expect("nothing").len(), 0);
    let views: Vec<_> = (0..500).map(|i| object.view(i, 100).unwrap().expect("memory")).collect();
    assert!(views.iter().all(|view| view[..] == [9; 100]));
}

fn pipelined(store: &Store) {
    let container = store.create_container("pipelined", &ContainerSpec::default()).unwrap();
    let object = container.create_object(None, None).unwrap();
    let mut random = Random::new(4);
    let blocks: Vec<Vec<u8>> = (0..1000).map(|_| random.bytes(4096)).collect();
    let ops: Vec<_> =
        blocks.iter().enumerate().map(|(i, block)| object.launch_write(i as u64 * 4096, block).unwrap()).collect();
    let mut buf = vec![0; 4096];
    object.read_at(999 * 4096, &mut buf).unwrap();
    assert!(buf == blocks[999], "own pipelined writes are seen");
    for op in ops {
        op.wait().unwrap();
    }
    let reads: Vec<_> = (0..1000).map(|i| object.launch_read(i * 4096, 4096).unwrap()).collect();
    for (read, block) in reads.into_iter().zip(&blocks) {
        assert!(read.wait_read().unwrap() == *block);
    }
    // Overwrites in order, without waiting.
    for i in 0..200u32 {
        object.launch_write(10, &i.to_le_bytes()).unwrap();
    }
    object.read_at(10, &mut buf[..4]).unwrap();
    assert_eq!(buf[..4], 199u32.to_le_bytes());
    // Callbacks.
    let called = Arc::new(AtomicU64::new(0));
    for i in 0..100 {
        let counter = called.clone();
        object.launch_write(i, b"c").unwrap().on_done(move |result| {
            result.unwrap();
            counter.fetch_add(1, Ordering::SeqCst);
        });
    }
    eventually("callbacks come without anybody waiting", || called.load(Ordering::SeqCst) == 100);
    let counter = called.clone();
    object.launch_read(0, 10).unwrap().on_done(move |result| {
        result.unwrap();
        counter.fetch_add(1, Ordering::SeqCst);
    });
    eventually("callback of a read", || called.load(Ordering::SeqCst) == 101);
    // Failures name the object, once.
    let missing = container.object(ObjectId(4711));
    drop(missing.launch_write(0, b"x").unwrap());
    let error = store.wait_all().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("1267 of container `pipelined`"), "{error}");
    store.wait_all().unwrap();
    assert_eq!(missing.launch_write(0, b"x").unwrap().wait().unwrap_err().kind(), ErrorKind::NotFound);
    store.wait_all().unwrap();
    let created: Vec<_> = (0..1000).map(|_| container.launch_create(None, None).unwrap()).collect();
    for (object, op) in created {
        op.wait().unwrap();
        assert_eq!(object.stat().unwrap().size, 0);
    }
}

fn durabilities(store: &Store) {
    let all = [Durability::Sync, Durability::Async, Durability::Scratch, Durability::Bypass];
    for (number, durability) in all.into_iter().enumerate() {
        let spec = ContainerSpec { durability, ..ContainerSpec::default() };
        let container = store.create_container(&format!("durability {number}"), &spec).unwrap();
        let object = container.create_object(None, None).unwrap();
        let bytes = Random::new(5).bytes(200_001);
        object.write_at(7, &bytes).unwrap();
        let ops: Vec<_> = (0..20).map(|i| object.launch_write(300_000 + i * 5000, &bytes[..5000]).unwrap()).collect();
        for op in ops {
            op.wait().unwrap();
        }
        let mut back = vec![0; bytes.len()];
        object.read_at(7, &mut back).unwrap();
        assert!(back == bytes, "{durability:?}");
        let mut part = vec![0; 3000];
        object.read_at(70_000, &mut part).unwrap();
        assert!(part == bytes[69_993..72_993]);
        assert!(object.launch_read(300_000, 5000).unwrap().wait_read().unwrap() == bytes[..5000]);
        assert!(object.launch_read(395_000, 9999).unwrap().wait_read().unwrap() == bytes[..5000]);
        container.flush().unwrap();
        object.flush().unwrap();
    }
}

pub fn random_in_process() {
    random_writes(Mode::InProcess);
}

pub fn random_through_a_daemon() {
    random_writes(Mode::Daemon);
}

/// A request after a pipelined write sees the write, even while another thread is just sending it.
pub fn pipelined_first() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let spec = ContainerSpec { durability: Durability::Bypass, ..ContainerSpec::default() };
        let object = store.create_container("o", &spec).unwrap().create_object(None, None).unwrap();
        let bytes = vec![7; 100_000];
        for round in 0..1500u64 {
            // A worker writes the bytes to the file tier, and sends the update when it is done.
            drop(object.launch_write(0, &bytes).unwrap());
            object.truncate(round).unwrap();
            assert_eq!(object.stat().unwrap().size, round, "{mode:?}");
        }
    }
}

/// Random operations on a few objects, compared with plain arrays.
fn random_writes(mode: Mode) {
    const SIZE: u64 = 300_000;
    let place = TestDir::new();
    let store = place.make(mode);
    let mut random = Random::new(6);
    let durability = [Durability::Async, Durability::Bypass][random.below(2) as usize];
    let container = store.create_container("r", &ContainerSpec { durability, ..ContainerSpec::default() }).unwrap();
    let objects: Vec<_> = (0..3).map(|_| container.create_object(None, None).unwrap()).collect();
    let mut images = vec![Vec::new(); objects.len()];
    for _ in 0..1500 {
        let number = random.below(objects.len() as u64) as usize;
        let (object, image): (_, &mut Vec<u8>) = (&objects[number], &mut images[number]);
        let offset = random.below(SIZE);
        let most = [10, 5000, 100_000][random.below(3) as usize];
        let len = random.below(most.min(SIZE - offset)) as usize + 1;
        let end = offset as usize + len;
        match random.below(10) {
            0..4 => {
                let bytes = random.bytes(len);
                if random.below(2) == 0 {
                    object.write_at(offset, &bytes).unwrap();
                } else {
                    drop(object.launch_write(offset, &bytes).unwrap());
                }
                image.resize(image.len().max(end), 0);
                image[offset as usize..end].copy_from_slice(&bytes);
            }
            4 => {
                object.punch(offset, len as u64).unwrap();
                let end = end.min(image.len());
                if (offset as usize) < end {
                    image[offset as usize..end].fill(0);
                }
            }
            5 if random.below(4) == 0 => {
                object.truncate(offset).unwrap();
                image.resize(offset as usize, 0);
            }
            _ => {
                let mut buf = vec![1; len];
                let n = object.read_at(offset, &mut buf).unwrap();
                let expected = image.get(offset as usize..end.min(image.len())).unwrap_or_default();
                assert!(n == expected.len() && buf[..n] == *expected, "{len} bytes at {offset} of object {number}");
            }
        }
    }
    store.wait_all().unwrap();
    for (object, image) in objects.iter().zip(&images) {
        let mut whole = vec![1; image.len()];
        assert_eq!(object.read_at(0, &mut whole).unwrap(), image.len());
        assert!(whole == *image);
    }
    assert!(store.verify().unwrap().findings.is_empty());
}

fn snapshots(store: &Store) {
    let container = store.create_container("kept", &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    let index = container.create_index(Some(IndexId(1))).unwrap().remembering();
    object.write_at(0, &vec![1; 100_000]).unwrap();
    index.put(&[(b"key", b"before")]).unwrap();
    container.snapshot("first").unwrap();
    assert_eq!(container.snapshot("first").unwrap_err().kind(), ErrorKind::Exists);
    object.write_at(50_000, &[2; 1000]).unwrap();
    index.put(&[(b"key", b"after")]).unwrap();
    let first = container.open_snapshot("first").unwrap();
    let mut bytes = vec![0; 100_000];
    let is_first = |kept: &cenote::Container, bytes: &mut Vec<u8>| {
        assert_eq!(kept.object(ObjectId(1)).read_at(0, bytes).unwrap(), 100_000);
        assert!(bytes.iter().all(|byte| *byte == 1));
        assert_eq!(kept.index(IndexId(1)).remembering().get_one(b"key").unwrap().unwrap(), b"before");
    };
    is_first(&first, &mut bytes);
    assert_eq!(first.object(ObjectId(1)).write_at(0, b"no").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(first.create_index(None).unwrap_err().kind(), ErrorKind::InvalidInput);
    // Replaced: a handle of the old one still reads it.
    container.replace_snapshot("first").unwrap();
    is_first(&first, &mut bytes);
    let second = container.open_snapshot("first").unwrap();
    assert_eq!(second.object(ObjectId(1)).read_at(0, &mut bytes).unwrap(), 100_000);
    assert_eq!(bytes[50_000], 2);
    container.snapshot("other").unwrap();
    let names: Vec<String> = container.snapshots().unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["first", "other"]);
    object.write_at(0, &[3; 10]).unwrap();
    index.del(&[b"key"]).unwrap();
    container.roll_back("other").unwrap();
    assert_eq!(object.read_at(0, &mut bytes).unwrap(), 100_000);
    assert_eq!((bytes[0], bytes[50_000]), (1, 2));
    assert_eq!(index.get_one(b"key").unwrap().unwrap(), b"after");
    container.delete_snapshot("other").unwrap();
    assert_eq!(container.open_snapshot("other").unwrap_err().kind(), ErrorKind::NotFound);
    is_first(&first, &mut bytes);
    drop(first);
    store.delete_container("kept").unwrap();
}
