//! Refused operations leave nothing behind: transactions, snapshots, first contents, read-only and ended sessions.

use cenote::model::{KEY_BYTES_MAX, TRANSACTION_UPDATES_MAX, VALUE_BYTES_MAX};
use cenote::{
    Arrange, ArrangeTarget, Container, ContainerId, ContainerSpec, Durability, Error, ErrorKind, IndexId, KeyCode,
    Mode, NextFrom, ObjectId, OpenOptions, Precondition, Store,
};

use crate::files::in_both_modes;
use crate::tools::{TestDir, eventually};

/// Checks that all of these failed, with this kind of error.
fn all_fail<T: std::fmt::Debug>(kind: ErrorKind, outcomes: impl IntoIterator<Item = Result<T, Error>>) {
    for (number, outcome) in outcomes.into_iter().enumerate() {
        let error = outcome.expect_err(&format!("outcome {number}"));
        assert_eq!(error.kind(), kind, "outcome {number}: {error}");
    }
}

fn one_of_each(container: &Container) -> (cenote::Object, cenote::Index) {
    (container.create_object(None, None).unwrap(), container.create_index(None).unwrap())
}

pub fn by_transactions() {
    in_both_modes(|store, container| {
        let (object, index) = one_of_each(container);
        object.write_at(0, &[1; 100]).unwrap();
        index.put(&[(b"k", b"v")]).unwrap();

        // A record that it deleted itself.
        let mut tx = store.begin();
        tx.delete_object(&object).unwrap();
        tx.delete_index(&index).unwrap();
        let outcomes = [
            tx.write(&object, 0, b"x"),
            tx.truncate(&object, 1),
            tx.punch(&object, 0, 1),
            tx.share(&object, 0, &object, 50, 10),
            tx.delete_object(&object),
            tx.read(&object, 0, &mut [0]).map(drop),
            tx.put(&index, b"k", b"w"),
            tx.put_new(&index, b"l", b"w"),
            tx.del(&index, b"k"),
            tx.del_expected(&index, b"k"),
            tx.delete_index(&index),
            tx.get(&index, b"k").map(drop),
        ];
        assert!(outcomes.iter().all(|outcome| outcome.as_ref().unwrap_err().cause().contains("deleted it")));
        all_fail(ErrorKind::NotFound, outcomes);
        tx.abort();
        assert_eq!((object.size().unwrap(), index.get_one(b"k").unwrap().as_deref()), (100, Some(&b"v"[..])));

        // Impossible ranges, keys and values.
        let (long_key, long_value) = (vec![1; KEY_BYTES_MAX + 1], vec![1; VALUE_BYTES_MAX + 1]);
        let mut tx = store.begin();
        all_fail(
            ErrorKind::InvalidInput,
            [
                tx.write(&object, u64::MAX, b"x"),
                tx.punch(&object, 1 << 63, 1),
                tx.share(&object, u64::MAX, &object, 0, 10),
                tx.share(&object, 0, &object, u64::MAX, 10),
                tx.put(&index, &long_key, b"v"),
                tx.put_new(&index, b"k", &long_value),
                tx.del(&index, &long_key),
                tx.del_expected(&index, &long_key),
                tx.expect(&index, &long_key, None),
                tx.expect_none(&index, &long_key),
                tx.create_object(container, None, Some(30)).map(drop),
            ],
        );
        assert!(tx.is_empty() && tx.bytes() == 0);
        // A new index has the records put here, and nothing else.
        let fresh = tx.create_index(container, None).unwrap();
        tx.put(&fresh, b"a", b"1").unwrap();
        tx.del(&fresh, b"b").unwrap();
        tx.del(&fresh, b"b").unwrap();
        assert_eq!([b"a", b"b", b"c"].map(|key| tx.get(&fresh, key).unwrap().is_some()), [true, false, false]);
        assert_eq!((tx.is_empty(), tx.bytes()), (false, 2));
        tx.commit().unwrap();
        assert_eq!(fresh.get(&[b"a", b"b"]).unwrap(), [Some(b"1".to_vec()), None]);
        let mut tx = store.begin();
        tx.del_expected(&fresh, b"b").unwrap();
        tx.put(&fresh, b"c", b"3").unwrap();
        tx.commit().unwrap();
        assert_eq!(fresh.get_one(b"c").unwrap().as_deref(), Some(&b"3"[..]));
    });
    another_store();
}

fn another_store() {
    let (place, other_place) = (TestDir::new(), TestDir::new());
    let (store, other) = (place.make(Mode::InProcess), other_place.make(Mode::InProcess));
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let (object, index) = one_of_each(&container);
    let mut tx = other.begin();
    all_fail(
        ErrorKind::InvalidInput,
        [
            tx.write(&object, 0, b"x"),
            tx.put(&index, b"k", b"v"),
            tx.create_index(&container, None).map(drop),
            tx.delete_container(&container),
        ],
    );
    assert!(tx.is_empty());
    let mut tx = store.begin();
    let full = (0..=TRANSACTION_UPDATES_MAX).find_map(|_| tx.del_expected(&index, b"k").err()).unwrap();
    assert_eq!(full.kind(), ErrorKind::LimitExceeded);
    assert!(full.next_step().contains("commit"), "{full}");
}

pub fn on_conditions() {
    in_both_modes(|store, container| {
        let (object, index) = one_of_each(container);
        index.put(&[(b"n", b"1")]).unwrap();
        let with = |value: Option<&[u8]>, size: u64| {
            let mut tx = store.begin();
            tx.expect(&index, b"n", value).unwrap();
            tx.expect_size(&object, size).unwrap();
            tx.expect_none(&index, b"m").unwrap();
            tx.commit().map_err(|error| error.kind())
        };
        assert!(with(Some(b"1"), 0).unwrap() > 0, "conditions alone");
        for (value, size) in [(Some(&b"2"[..]), 0), (None, 0), (Some(b"1"), 1)] {
            assert_eq!(with(value, size), Err(ErrorKind::Conflict), "{value:?} {size}");
        }
        // A record that was missing when it was read.
        let absent = container.object(ObjectId(5));
        let mut tx = store.begin();
        tx.detect_conflicts(true);
        for _ in 0..2 {
            assert_eq!(tx.read(&absent, 0, &mut [0]).unwrap_err().kind(), ErrorKind::NotFound);
        }
        tx.put(&index, b"n", b"2").unwrap();
        container.create_object(Some(ObjectId(5)), None).unwrap();
        assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
        assert_eq!(index.get_one(b"n").unwrap().as_deref(), Some(&b"1"[..]));

        // A container is deleted alone, and on the given conditions.
        let doomed = store.create_container("doomed", &ContainerSpec::default()).unwrap();
        let delete = |value: &[u8], more: bool| {
            let mut tx = store.begin();
            tx.expect(&index, b"n", Some(value)).unwrap();
            tx.delete_container(&doomed).unwrap();
            if more {
                tx.put(&index, b"n", b"3").unwrap();
            }
            tx.commit().map(drop).map_err(|error| error.kind())
        };
        assert_eq!(delete(b"2", false), Err(ErrorKind::Conflict));
        assert_eq!(delete(b"1", true), Err(ErrorKind::InvalidInput));
        assert_eq!(doomed.info().unwrap().label, "doomed");
        delete(b"1", false).unwrap();
        assert_eq!(doomed.info().unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(index.get_one(b"n").unwrap().as_deref(), Some(&b"1"[..]));

        // With a broken precondition nothing is applied, and the operation reports it.
        let precondition = Precondition::new(&index, b"n", b"another");
        store.begin().launch(&precondition).unwrap().wait().unwrap();
        let mut tx = store.begin();
        tx.write(&object, 0, b"never").unwrap();
        tx.put(&index, b"n", b"never").unwrap();
        assert_eq!(tx.launch(&precondition).unwrap().wait().unwrap_err().kind(), ErrorKind::Conflict);
        let _ = store.wait_all();
        assert_eq!((object.size().unwrap(), index.get_one(b"n").unwrap().as_deref()), (0, Some(&b"1"[..])));
    });
}

pub fn by_snapshots() {
    in_both_modes(|store, container| {
        let (object, index) = one_of_each(container);
        object.write_at(0, b"before").unwrap();
        index.put(&[(b"n", b"1")]).unwrap();
        let long = "s".repeat(256);
        all_fail(
            ErrorKind::InvalidInput,
            [container.snapshot(""), container.snapshot(&long), container.replace_snapshot(&long)],
        );
        all_fail(
            ErrorKind::NotFound,
            [
                container.delete_snapshot("none"),
                container.roll_back("none"),
                container.roll_back_if("none", &index, b"n", Some(b"1")),
                container.open_snapshot("none").map(drop),
                store.nowhere("nowhere").snapshot("s"),
            ],
        );
        container.snapshot("s").unwrap();
        object.write_at(0, b"after!").unwrap();
        let refused = container.roll_back_if("s", &index, b"n", Some(b"2")).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Conflict);
        assert!(refused.subject().contains("snapshot `s` of container `files`"), "{refused}");
        assert_eq!(container.roll_back_if("s", &index, b"n", None).unwrap_err().kind(), ErrorKind::Conflict);
        let mut bytes = [0; 6];
        object.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"after!");
        container.roll_back_if("s", &index, b"n", Some(b"1")).unwrap();
        object.read_at(0, &mut bytes).unwrap();
        assert_eq!(&bytes, b"before");
        // Deleted content stays for open handles, and for no one else.
        let kept = container.open_snapshot("s").unwrap();
        let clone = kept.clone();
        container.delete_snapshot("s").unwrap();
        assert_eq!(container.open_snapshot("s").unwrap_err().kind(), ErrorKind::NotFound);
        drop(kept);
        assert_eq!(clone.object(object.key().object).size().unwrap(), 6);
        let id = clone.id();
        drop(clone);
        eventually("nobody keeps it", || store.container_by_id(id).is_err());
    });
}

pub fn of_containers() {
    in_both_modes(|store, container| {
        let labels = || store.containers("").unwrap().into_iter().map(|info| info.label).collect::<Vec<_>>();
        let (long_key, long_value) = (vec![1; KEY_BYTES_MAX + 1], vec![1; VALUE_BYTES_MAX + 1]);
        let make = |label: &str, key: &[u8], value: &[u8]| {
            let records = [(IndexId(1), vec![(key, value.to_vec())])];
            store.create_container_with(label, &ContainerSpec::default(), &records).map(|(container, _)| container)
        };
        all_fail(
            ErrorKind::InvalidInput,
            [make("new", &long_key, b""), make("new", b"k", &long_value), make("", b"k", b"")],
        );
        assert_eq!(make("files", b"k", b"v").unwrap_err().kind(), ErrorKind::Exists);
        assert_eq!(labels(), ["files"]);

        let unknown = ContainerId(99);
        let nowhere = store.nowhere("nowhere");
        all_fail(
            ErrorKind::NotFound,
            [
                store.container_by_id(unknown).map(drop),
                store.container_content(unknown).map(drop),
                store.rename_container_by_id(unknown, "x"),
                store.delete_container_by_id(unknown),
                store.rename_container("none", "x"),
                store.delete_container("none"),
                nowhere.info().map(drop),
                nowhere.set(&ContainerSpec::default()),
                nowhere.create_object(None, None).map(drop),
                nowhere.create_index(None).map(drop),
                nowhere.objects(None, 1).map(drop),
                nowhere.indices(None, 1).map(drop),
                nowhere.flush(),
                nowhere.verify().map(drop),
                container.delete_index(IndexId(7)),
            ],
        );
        assert!(nowhere.had_spec().is_none() && !nowhere.had_quota());
        all_fail(
            ErrorKind::InvalidInput,
            [store.rename_container("files", ""), store.rename_container_by_id(container.id(), &"x".repeat(5000))],
        );

        // The first content of a container includes only whole indices; others are read as usual.
        let made = make("made", b"k", b"v").unwrap();
        let large = made.create_index(Some(IndexId(2))).unwrap();
        let value = vec![7; 100_000];
        large.put(&[(b"a", &value), (b"b", &value)]).unwrap();
        let content = store.container_content(made.id()).unwrap();
        assert_eq!(content.records(IndexId(1)).unwrap().to_vec(), [(b"k".to_vec(), b"v".to_vec())]);
        assert!(content.records(IndexId(2)).is_none() && content.records(IndexId(3)).is_none());
        assert!(
            content.index(IndexId(2)).get(&[b"a", b"b"]).unwrap().iter().all(|found| found.as_ref() == Some(&value))
        );
        assert_eq!(content.index(IndexId(3)).get_one(b"k").unwrap_err().kind(), ErrorKind::NotFound);
        store.rename_container_by_id(made.id(), "renamed").unwrap();
        assert_eq!(labels(), ["files", "renamed"]);
        store.delete_container_by_id(made.id()).unwrap();
        assert_eq!(labels(), ["files"]);
    });
}

pub fn of_indices() {
    in_both_modes(|_, container| {
        let gone = container.index(IndexId(4));
        all_fail(
            ErrorKind::NotFound,
            [
                gone.put(&[(b"k", b"v")]).map(drop),
                gone.put_new(&[(b"k", b"v")]).map(drop),
                gone.del(&[b"k"]).map(drop),
                gone.get(&[b"k"]).map(drop),
                gone.next(NextFrom::Start, 1).map(drop),
                gone.launch_put(b"k", b"v").unwrap().wait(),
            ],
        );
        let mut none = gone.iter(b"");
        assert!(none.next().is_some_and(|first| first.is_err()) && none.next().is_none(), "it is told once");
        let index = container.open_index(IndexId(4)).unwrap();
        let long_key = vec![1; KEY_BYTES_MAX + 1];
        all_fail(
            ErrorKind::InvalidInput,
            [
                index.next(NextFrom::After(long_key.clone()), 1).map(drop),
                index.next(NextFrom::At(long_key.clone()), 1).map(drop),
                index.launch_put(&long_key, b"v").map(drop),
                index.launch_put(b"k", &vec![0; VALUE_BYTES_MAX + 1]).map(drop),
                index.clone().remembering().get(&[&long_key]).map(drop),
            ],
        );
        assert_eq!(index.del(&[&long_key, b"k"]).unwrap(), [KeyCode::Invalid, KeyCode::NotFound]);
        assert!(!index.is_pinned());
        index.unpin();

        // More records than a message holds, and values too large for one answer.
        let keys: Vec<[u8; 2]> = (0..3000u16).map(u16::to_be_bytes).collect();
        let records: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[1..])).collect();
        assert!(index.put(&records).unwrap().iter().all(|code| *code == KeyCode::Ok));
        assert!(index.put_new(&records).unwrap().iter().all(|code| *code == KeyCode::Exists));
        let asked: Vec<&[u8]> = keys.iter().map(|key| &key[..]).chain([&b"none"[..]]).collect();
        let values = index.get(&asked).unwrap();
        assert!(values.len() == 3001 && values[3000].is_none());
        assert!(values.iter().zip(&keys).all(|(value, key)| value.as_deref() == Some(&key[1..])));
        assert!(index.iter(b"").map(Result::unwrap).map(|(key, _)| key).eq(keys.iter().map(|key| key.to_vec())));
        assert_eq!(index.iter(&[2]).count(), 256);
        assert_eq!(index.next(NextFrom::After(keys[99].to_vec()), 2000).unwrap().len(), 2000);
        let large = [1u8, 2, 3, 4, 5].map(|byte| vec![byte; 15 << 20]);
        for value in &large {
            assert_eq!(index.put(&[(&value[..1], value)]).unwrap(), [KeyCode::Ok]);
        }
        let asked: Vec<&[u8]> = large.iter().map(|value| &value[..1]).collect();
        assert!(index.get(&asked).unwrap().iter().zip(&large).all(|(found, value)| found.as_ref() == Some(value)));
        let all = index.next_with_prefix(&[1], NextFrom::Start, u32::MAX).unwrap();
        assert_eq!((all.len(), all.get(0).map(|(key, value)| (key.len(), value.len()))), (257, Some((1, 15 << 20))));
    });
}

pub fn of_objects() {
    in_both_modes(|store, container| {
        let object = container.create_object(None, None).unwrap();
        object.write_at(0, &[1; 1000]).unwrap();
        // A call cannot promise less than the container, or nothing at all.
        assert_eq!(object.buffered(Durability::Scratch).unwrap_err().kind(), ErrorKind::InvalidInput);
        let spec = ContainerSpec { durability: Durability::Sync, ..ContainerSpec::default() };
        let sync = store.create_container("sync", &spec).unwrap().create_object(None, None).unwrap();
        assert_eq!(sync.buffered(Durability::Async).unwrap_err().kind(), ErrorKind::InvalidInput);

        // Operations know their kind.
        let write = object.launch_write(0, b"x").unwrap();
        assert!(write.message().is_some());
        assert_eq!(write.wait_read().unwrap_err().kind(), ErrorKind::InvalidInput);
        let nothing = object.launch_write(0, b"").unwrap();
        assert!(nothing.is_done() && nothing.message().is_none());
        nothing.wait().unwrap();
        let read = object.launch_read(990, 100).unwrap();
        assert!(read.message().is_none());
        assert_eq!(read.wait_read().unwrap(), [1; 10]);
        assert_eq!(
            container.object(ObjectId(9)).launch_read(0, 1).unwrap().wait().unwrap_err().kind(),
            ErrorKind::NotFound
        );

        // Callbacks report failures as well as success, those of write-throughs too.
        let through = |object: &cenote::Object| object.buffered(Durability::Sync).unwrap();
        let heard = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        for (name, object) in [("there", through(&object)), ("missing", through(&container.object(ObjectId(9))))] {
            let heard = heard.clone();
            let tell =
                move |outcome: Result<(), Error>| heard.lock().unwrap().push((name, outcome.err().map(|e| e.kind())));
            object.launch_write(0, b"through").unwrap().on_done(tell);
        }
        object.launch_write(0, b"").unwrap().on_done({
            let heard = heard.clone();
            move |outcome| heard.lock().unwrap().push(("nothing", outcome.err().map(|error| error.kind())))
        });
        eventually("all three are heard of", || heard.lock().unwrap().len() == 3);
        let mut heard = heard.lock().unwrap().clone();
        heard.sort_unstable_by_key(|(name, _)| *name);
        assert_eq!(heard, [("missing", Some(ErrorKind::NotFound)), ("nothing", None), ("there", None)]);
        let _ = store.wait_all();

        // Reserved space: no more than exists, and earlier reserves stay.
        let reserve = object.reserve(100_000).unwrap().unwrap();
        assert!(reserve.is_mine() && (100_000..200_000).contains(&reserve.bytes()), "{reserve:?}");
        let before = reserve.bytes();
        assert_eq!(reserve.add(1 << 40).unwrap_err().kind(), ErrorKind::Full);
        assert_eq!(reserve.bytes(), before);
        assert!(!reserve.open(1 << 30).unwrap(), "more than is kept");
        assert!(reserve.open(50_000).unwrap());
        assert!(reserve.bytes() < before);
        reserve.release(u64::MAX);
        assert_eq!(reserve.bytes(), 0);
        assert_eq!(object.reserve(1 << 40).map(drop).unwrap_err().kind(), ErrorKind::Full);
        let kept: u64 = store.devices().unwrap().iter().map(|device| device.leased_bytes).sum();
        assert!(kept < 64 << 20, "{kept} bytes are leased still");

        // An append fits below the end of all objects and within the quota, or leaves nothing.
        assert_eq!(object.append(b"").unwrap(), 1000);
        let end = container.create_object(None, None).unwrap();
        end.truncate(1 << 63).unwrap();
        assert_eq!(end.append(b"x").unwrap_err().kind(), ErrorKind::InvalidInput);
        let spec = ContainerSpec { quota_bytes: 10_000, ..ContainerSpec::default() };
        let bounded = store.create_container("bounded", &spec).unwrap().create_object(None, None).unwrap();
        assert_eq!(bounded.append(&[1; 9000]).unwrap(), 0);
        assert_eq!(bounded.append(&[1; 9000]).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!((bounded.size().unwrap(), bounded.append(&[2; 1000]).unwrap()), (9000, 9000));

        // Staged bytes fit below the end of all objects.
        let mut staged = object.write_in_place(4096).unwrap();
        staged.bytes().fill(2);
        assert_eq!(staged.commit(u64::MAX).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(object.size().unwrap(), 1000);
    });
}

pub fn to_readers() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("c", &ContainerSpec::default()).unwrap();
        let (object, index) = one_of_each(&container);
        object.write_at(0, b"content").unwrap();
        index.put(&[(b"k", b"v")]).unwrap();
        container.snapshot("s").unwrap();
        store.close().unwrap();
        let reader =
            Store::open_with(place.dir(), &OpenOptions { mode, read_only: true, ..OpenOptions::default() }).unwrap();
        let container = reader.container("c").unwrap();
        let (object, index) = (container.object(object.key().object), container.index(index.key().index));
        let all = ArrangeTarget::Container(container.id());
        let precondition = Precondition::new(&index, b"k", b"v");
        all_fail(
            ErrorKind::PermissionDenied,
            [
                object.write_at(0, b"x"),
                object.writev(&[(0, b"x")]),
                object.append(b"x").map(drop),
                object.launch_write(0, b"x").map(drop),
                object.launch_write_on(&precondition, 0, b"x").map(drop),
                object.truncate(0),
                object.punch(0, 1),
                object.write_in_place(10).map(drop),
                object.reserve(10).map(drop),
                object.share_from(10, &object, 0, 5).map(drop),
                object.copy_from(10, &object, 0, 5).map(drop),
                index.put(&[(b"k", b"w")]).map(drop),
                index.del(&[b"k"]).map(drop),
                index.launch_put(b"k", b"w").map(drop),
                container.create_objects(&[ObjectId(1)], None).map(drop),
                container.launch_create(None, None).map(drop),
                container.create_index(None).map(drop),
                container.delete_object(object.key().object),
                container.set(&ContainerSpec::default()),
                container.snapshot("t"),
                container.roll_back("s"),
                container.roll_back_if("s", &index, b"k", Some(b"v")),
                container.delete_snapshot("s"),
                reader.begin().put(&index, b"k", b"w"),
                reader.begin().write(&object, 0, b"x"),
                reader.begin().delete_container(&container),
                reader.arrange(&all, &Arrange::Evict, false).map(drop),
                reader.set_policy(None, false),
                reader.drain_device("disk"),
                reader.remove_device("disk"),
                reader.add_device(&place.config(1 << 20, 1 << 20).devices[1]),
                reader.rename_container("c", "d"),
                reader.delete_container("c"),
            ],
        );
        // They may see the effect of a dry run, and the whole content.
        assert_eq!(reader.arrange(&all, &Arrange::Pin { to: None }, true).unwrap().pinned_bytes, 7);
        assert_eq!(object.stat().unwrap().pinned_bytes, 0);
        reader.set_policy(None, true).unwrap();
        assert!(reader.policy().unwrap().text.is_empty() && reader.arrange_progress().unwrap().is_empty());
        assert_eq!(reader.try_rules().unwrap().objects, 0);
        let mut buf = [0; 10];
        assert_eq!(object.read_at(0, &mut buf).unwrap(), 7);
        let kept = container.open_snapshot("s").unwrap();
        assert_eq!(kept.index(index.key().index).get_one(b"k").unwrap().unwrap(), b"v");
        let mut tx = reader.begin();
        tx.expect(&index, b"k", Some(b"v")).unwrap();
        assert_eq!(tx.get(&index, b"k").unwrap().unwrap(), b"v");
    }
}

pub fn after_the_end() {
    for mode in [Mode::InProcess, Mode::Auto, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("c", &ContainerSpec::default()).unwrap();
        let (object, index) = one_of_each(&container);
        let remembering = index.clone().remembering();
        remembering.put(&[(b"k", b"v")]).unwrap();
        let mut begun = store.begin();
        begun.write(&object, 0, b"never").unwrap();
        let staged = object.write_in_place(100).unwrap();
        let kept = {
            container.snapshot("s").unwrap();
            container.open_snapshot("s").unwrap()
        };
        assert!(!store.is_closed());
        store.close().unwrap();
        assert!(store.is_closed());
        all_fail(
            ErrorKind::InvalidInput,
            [
                begun.put(&index, b"k", b"w"),
                begun.read(&object, 0, &mut [0]).map(drop),
                begun.commit().map(drop),
                store.begin().write(&object, 0, b"x"),
                store.begin().commit().map(drop),
                staged.commit(0),
                remembering.get_one(b"k").map(drop),
                index.next(NextFrom::Start, 1).map(drop),
                object.launch_read(0, 1).map(drop),
                object.size().map(drop),
                kept.info().map(drop),
                store.flush(),
                store.wait_all(),
                store.stats().map(drop),
            ],
        );
        drop(kept);
        let _ = Store::stop_daemon(place.dir());
        let again = place.open(Mode::InProcess);
        assert_eq!(again.container("c").unwrap().object(object.key().object).size().unwrap(), 0);
    }
}

/// Space reserved on a tier that is removed moves to another one, and the tier can be removed while clients continue.
pub fn tiers_that_leave() {
    in_both_modes(|store, container| {
        let more = |name: &str, of: &cenote::DeviceSpec| {
            let path = of.path.with_file_name(name);
            cenote::DeviceSpec { name: name.into(), path, ..of.clone() }
        };
        let disk = store.devices().unwrap().into_iter().find(|device| device.spec.name == "disk").unwrap().spec;
        let object = container.create_object(None, None).unwrap();
        object.write_at(0, &vec![1; 200_000]).unwrap();
        let reserve = object.reserve(4 << 20).unwrap().unwrap();
        store.add_device(&more("next", &disk)).unwrap();
        let refused = store.remove_device("disk").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Busy, "it is in use: {refused}");
        store.flush().unwrap();
        store.drain_device("disk").unwrap();
        store.remove_device("disk").unwrap();
        let names: Vec<String> = store.devices().unwrap().into_iter().map(|device| device.spec.name).collect();
        assert_eq!(names, ["memory", "next"]);
        eventually("what was kept is kept elsewhere", || reserve.bytes() >= 4 << 20);
        assert!(reserve.open(1 << 20).unwrap());
        let mut bytes = vec![0; 200_000];
        assert_eq!(object.read_at(0, &mut bytes).unwrap(), bytes.len());
        assert!(bytes.iter().all(|byte| *byte == 1));
        object.write_at(0, &vec![2; 200_000]).unwrap();
        store.flush().unwrap();
        assert!(store.verify().unwrap().findings.is_empty());
    });
}

/// Views of bytes in several places, and records cached completely by prefix.
pub fn known_in_parts() {
    in_both_modes(|_, container| {
        const PIECE: usize = 1 << 20;
        let [object, between] = [(); 2].map(|()| container.create_object(None, None).unwrap());
        for piece in 0..4u8 {
            object.write_at(u64::from(piece) * PIECE as u64, &vec![piece + 1; PIECE]).unwrap();
            between.write_at(u64::from(piece) * 4096, &[9; 4096]).unwrap();
        }
        let is_right = |bytes: &[u8], from: usize| {
            bytes.iter().enumerate().all(|(at, byte)| usize::from(*byte) == (from + at) / PIECE + 1)
        };
        for (from, len) in [(0, 4 * PIECE), (PIECE / 2, PIECE), (PIECE - 10, 20), (4096, 2 * PIECE)] {
            for view in [object.view(from as u64, len).unwrap(), object.view_pages(from as u64, len).unwrap()] {
                assert!(view.is_none_or(|view| view.len() == len && is_right(&view, from)), "{len} bytes at {from}");
            }
        }
        assert!(object.view_pages(0, 8 * PIECE).unwrap().is_none(), "past the end");

        let index = container.create_index(None).unwrap();
        let keys: Vec<[u8; 2]> = (0..600u16).map(u16::to_be_bytes).collect();
        let records: Vec<(&[u8], &[u8])> = keys.iter().map(|key| (&key[..], &key[1..])).collect();
        index.put(&records).unwrap();
        let knowing = index.clone().remembering();
        let seen = index.version().unwrap();
        for _ in 0..3 {
            assert_eq!(knowing.next_with_prefix(&[1], NextFrom::Start, 1000).unwrap().len(), 256);
            let after = NextFrom::After(keys[300].to_vec());
            assert_eq!(knowing.next_with_prefix(&[1], after, 10).unwrap().get(0).unwrap().0, keys[301]);
            assert_eq!(knowing.next(NextFrom::At(keys[599].to_vec()), 10).unwrap().len(), 1);
        }
        assert!(index.version().unwrap() == seen, "looking changes nothing");
        index.del(&[&keys[256]]).unwrap();
        assert_eq!(knowing.next_with_prefix(&[1], NextFrom::Start, 1000).unwrap().get(0).unwrap().0, keys[257]);
        index.pin(&index, seen).unwrap();
        assert!(!index.is_pinned(), "what remembers nothing has nothing to pin");
        // The bytes of a message are bounded as well as its records.
        let value = vec![3; 300_000];
        let large: Vec<(&[u8], &[u8])> = keys[..5].iter().map(|key| (&key[..], &value[..])).collect();
        assert_eq!(knowing.put(&large).unwrap(), [KeyCode::Ok; 5]);
        assert!(knowing.get(&[&keys[0], &keys[4]]).unwrap().iter().all(|found| found.as_ref() == Some(&value)));
        knowing.launch_put(&keys[0], b"launched").unwrap().wait().unwrap();
        assert_eq!(knowing.get_one(&keys[0]).unwrap().as_deref(), Some(&b"launched"[..]));
    });
}
