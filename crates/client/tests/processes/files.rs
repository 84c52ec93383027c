//! The needs of views of files: sizes and holes without messages, appends, sharing, empty directories.

use std::collections::BTreeSet;

use cenote::{Container, ContainerSpec, ErrorKind, IndexId, Mode, Object, ObjectId, Store};

use crate::tools::{Other, Random, TestDir, daemon_pid, signal};

pub fn in_both_modes(test: impl Fn(&Store, &Container)) {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("files", &ContainerSpec::default()).unwrap();
        test(&store, &container);
    }
}

fn all_of(object: &Object) -> Vec<u8> {
    let mut bytes = vec![0; object.size().unwrap() as usize + 10];
    let found = object.read_at(0, &mut bytes).unwrap();
    bytes.truncate(found);
    bytes
}

/// Messages of a step as the engine counts them, without the one that asks for the count.
pub fn messages(store: &Store, step: impl FnOnce()) -> u64 {
    let requests = || store.telemetry(0).unwrap().clients.iter().map(|client| client.requests).sum::<u64>();
    let (first, second) = (requests(), requests());
    step();
    requests() - second - (second - first)
}

pub fn sizes_and_holes() {
    in_both_modes(|store, container| {
        let object = container.create_object(None, None).unwrap();
        assert_eq!(
            (object.size().unwrap(), object.next_data(0).unwrap(), object.next_hole(0).unwrap()),
            (0, None, None)
        );
        object.write_at(10_000, &[1; 5000]).unwrap();
        object.write_at(15_000, &[2; 5000]).unwrap();
        object.write_at(1 << 40, &[3; 10]).unwrap();
        object.truncate((1 << 40) + 100).unwrap();
        assert_eq!(object.size().unwrap(), (1 << 40) + 100);
        let none = messages(store, || {
            for _ in 0..10 {
                assert_eq!(object.size().unwrap(), (1 << 40) + 100);
            }
        });
        assert_eq!(none, 0, "what is known is not asked for");
        let look = || {
            for (from, data, hole) in [
                (0, Some(10_000), Some(0)),
                (9_999, Some(10_000), Some(9_999)),
                (10_000, Some(10_000), Some(20_000)),
                (17_000, Some(17_000), Some(20_000)),
                (20_000, Some(1 << 40), Some(20_000)),
                ((1 << 40) + 5, Some((1 << 40) + 5), Some((1 << 40) + 10)),
                ((1 << 40) + 10, None, Some((1 << 40) + 10)),
                ((1 << 40) + 100, None, None),
                (u64::MAX, None, None),
            ] {
                assert_eq!((object.next_data(from).unwrap(), object.next_hole(from).unwrap()), (data, hole), "{from}");
            }
        };
        look();
        assert_eq!(messages(store, look), 0);
        object.truncate(12_000).unwrap();
        assert_eq!((object.size().unwrap(), object.next_hole(10_000).unwrap()), (12_000, Some(12_000)));
        let gone = container.object(ObjectId(77));
        for result in [gone.size().map(Some), gone.next_data(0), gone.append(b"x").map(Some)] {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::NotFound);
        }
    });
}

pub fn appending() {
    in_both_modes(|store, container| {
        let object = container.create_object(None, None).unwrap();
        let mut random = Random::new(5);
        let mut expected = Vec::new();
        for _ in 0..100 {
            let len = random.below(9000) as usize;
            let bytes = random.bytes(len);
            assert_eq!(object.append(&bytes).unwrap(), expected.len() as u64);
            expected.extend_from_slice(&bytes);
        }
        assert_eq!(all_of(&object), expected);
        // One message each, once there is space.
        let one = messages(store, || assert!(object.append(b"one more").unwrap() > 0));
        assert_eq!(one, 1);
        // After earlier pipelined writes.
        let op = object.launch_write(object.size().unwrap(), b"launched").unwrap();
        let at = object.append(b"appended").unwrap();
        op.wait().unwrap();
        assert_eq!(&all_of(&object)[at as usize - 8..], b"launchedappended");
    });
}

/// Threads, and processes whose daemon dies in the meantime, append records to one object.
pub fn appending_together() {
    const EACH: usize = 300;
    let place = TestDir::new();
    let store = place.make(Mode::Daemon);
    let container = store.create_container("shared", &ContainerSpec::default()).unwrap();
    let object = container.create_object(Some(ObjectId(1)), None).unwrap();
    let dir = place.dir();
    let each = EACH.to_string();
    let mut others: Vec<Other> =
        ["1", "2"].map(|who| Other::start("appender", &[dir.to_str().unwrap(), who, &each])).into_iter().collect();
    for other in &mut others {
        assert_eq!(other.line(), "ready");
    }
    let pid = daemon_pid(&dir);
    std::thread::scope(|scope| {
        for who in 3..5u8 {
            let object = object.clone();
            scope.spawn(move || append_records(&object, who, EACH));
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
        signal(pid, libc::SIGKILL);
    });
    for other in &mut others {
        assert_eq!(other.line(), "done");
    }
    let bytes = all_of(&object);
    let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
    assert!(rest.is_empty() && records.len() == 4 * EACH, "{} bytes", bytes.len());
    let mut seen = BTreeSet::new();
    for record in records {
        let number = u16::from_le_bytes([record[1], record[2]]);
        assert!(record[3..].iter().all(|byte| *byte == record[0]), "torn: {record:?}");
        assert!(seen.insert((record[0], number)), "twice: {record:?}");
    }
}

const RECORD_BYTES: usize = 103;

/// Numbered records, each at the offset that the call returns.
pub fn append_records(object: &Object, who: u8, count: usize) {
    for number in 0..count as u16 {
        let mut record = [who; RECORD_BYTES];
        record[1..3].copy_from_slice(&number.to_le_bytes());
        let at = object.append(&record).unwrap();
        let mut found = [0; RECORD_BYTES];
        object.read_at(at, &mut found).unwrap();
        assert_eq!(found, record);
    }
}

pub fn empty_directories() {
    in_both_modes(|store, container| {
        let index = container.create_index(Some(IndexId(1))).unwrap();
        index.put(&[(b"d/a", b"1"), (b"e", b"2")]).unwrap();
        let remove = |prefix: &[u8]| {
            let mut tx = store.begin();
            tx.expect_none(&index, prefix).unwrap();
            tx.put(&index, b"removed", b"yes").unwrap();
            tx.commit().map_err(|error| error.kind())
        };
        assert_eq!(remove(b"d/").unwrap_err(), ErrorKind::Conflict);
        let mut tx = store.begin();
        tx.del(&index, b"d/a").unwrap();
        tx.expect_none(&index, b"d/").unwrap();
        assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict, "what it deletes itself was there before");
        index.del(&[b"d/a"]).unwrap();
        remove(b"d/").unwrap();
        let object = container.create_object(None, None).unwrap();
        let mut tx = store.begin();
        tx.expect_size(&object, 1).unwrap();
        assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
    });
}

pub fn sharing() {
    in_both_modes(|store, container| {
        let mut random = Random::new(9);
        let [one, other] = [(); 2].map(|()| container.create_object(None, None).unwrap());
        let content = random.bytes(1_000_000);
        one.write_at(0, &content).unwrap();
        assert_eq!(other.share_from(0, &one, 0, u64::MAX >> 2).unwrap(), 1_000_000, "as much as there is");
        assert_eq!(all_of(&other), content);
        let count = messages(store, || assert_eq!(other.share_from(5, &one, 7, 100_000).unwrap(), 100_000));
        assert_eq!(count, 1);
        let mut expected = content.clone();
        expected[5..100_005].copy_from_slice(&content[7..100_007]);
        assert_eq!(all_of(&other), expected);
        one.write_at(0, &vec![0; 200_000]).unwrap();
        assert_eq!(all_of(&other), expected);
        assert_eq!(other.share_from(0, &one, 2_000_000, 10).unwrap(), 0);
        assert_eq!(one.share_from(10, &one, 0, 100).unwrap_err().kind(), ErrorKind::InvalidInput, "they overlap");
        // From a snapshot, and to another container by a copy that keeps holes.
        container.snapshot("s").unwrap();
        other.truncate(0).unwrap();
        let kept = container.open_snapshot("s").unwrap().object(other.key().object);
        assert_eq!(other.share_from(0, &kept, 0, 2_000_000).unwrap(), 1_000_000);
        assert_eq!(all_of(&other), expected);
        other.truncate(5_000_000).unwrap();
        let elsewhere = store.create_container("elsewhere", &ContainerSpec::default()).unwrap();
        let copy = elsewhere.create_object(None, None).unwrap();
        assert_eq!(copy.share_from(0, &other, 0, 10).unwrap_err().kind(), ErrorKind::InvalidInput);
        copy.write_at(0, &vec![7; 2_000_000]).unwrap();
        assert_eq!(copy.copy_from(1, &other, 0, u64::MAX >> 2).unwrap(), 5_000_000);
        expected.resize(5_000_000, 0);
        expected.insert(0, 7);
        assert!(all_of(&copy) == expected && copy.next_hole(1).unwrap() == Some(1_000_001));
        // Together with other changes, or not at all.
        let mut tx = store.begin();
        let made = tx.create_object(container, None, None).unwrap();
        tx.share(&made, 0, &other, 0, 1000).unwrap();
        tx.write(&made, 1000, b"and more").unwrap();
        assert_eq!(tx.read(&made, 0, &mut [0; 10]).unwrap_err().kind(), ErrorKind::Unsupported);
        tx.commit().unwrap();
        assert_eq!(all_of(&made), [&expected[1..1001], b"and more"].concat());
        let mut tx = store.begin();
        tx.write(&made, 0, b"never").unwrap();
        tx.share(&made, 0, &other, 4_999_999, 2).unwrap();
        assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(made.size().unwrap(), 1008);
    });
}

/// A small file is an object, its bytes and its record: one message each. Reads of the written content need no other.
pub fn small_files() {
    in_both_modes(|store, container| {
        const FILES: u64 = 200;
        let index = container.create_index(Some(IndexId(1))).unwrap();
        let warm = container.create_object(None, None).unwrap();
        warm.write_at(0, &[1; 4096]).unwrap();
        let mut random = Random::new(31);
        let mut files = Vec::new();
        let count = messages(store, || {
            for number in 0..FILES {
                let content = random.bytes(4096);
                let mut tx = store.begin();
                let object = tx.create_object(container, None, None).unwrap();
                tx.write(&object, 0, &content).unwrap();
                tx.put_new(&index, &number.to_be_bytes(), &object.key().object.0.to_be_bytes()).unwrap();
                tx.commit().unwrap();
                assert!(object.size().unwrap() == 4096 && all_of(&object) == content);
                files.push((object, content));
            }
        });
        // Now and then one for space.
        assert!((FILES..FILES + 4).contains(&count), "{count} messages");
        let count = messages(store, || {
            for (object, content) in &mut files {
                let mut tx = store.begin();
                tx.write(object, 100, b"changed").unwrap();
                tx.write(object, 5000, b"longer").unwrap();
                tx.commit().unwrap();
                content.resize(5006, 0);
                content[100..107].copy_from_slice(b"changed");
                content[5000..].copy_from_slice(b"longer");
                assert_eq!(all_of(object), *content);
            }
        });
        assert!((FILES..FILES + 4).contains(&count), "{count} messages");
        // Content outside of the cache is looked up.
        for (object, content) in &mut files {
            let mut tx = store.begin();
            tx.punch(object, 0, 200).unwrap();
            tx.truncate(object, 4000).unwrap();
            tx.write(object, 4500, b"end").unwrap();
            tx.commit().unwrap();
            content.truncate(4000);
            content[..200].fill(0);
            content.resize(4500, 0);
            content.extend_from_slice(b"end");
            assert_eq!(all_of(object), *content);
        }
    });
}
