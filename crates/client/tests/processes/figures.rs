//! Figures, limits and versions that views rely on.

use cenote::{Container, ContainerSpec, ErrorKind, IndexId, Mode, Store};

use crate::files::messages;
use crate::tools::{Random, TestDir};

pub fn in_process() {
    of_a_store(Mode::InProcess);
}

pub fn through_a_daemon() {
    of_a_store(Mode::Daemon);
}

fn of_a_store(mode: Mode) {
    let place = TestDir::new();
    let store = place.make(mode);
    let container = store.create_container("figures", &ContainerSpec::default()).unwrap();
    let opened = store.container("figures").unwrap();
    assert_eq!(opened.had_spec(), Some(&container.info().unwrap().spec));
    usage(&store, &container);
    values(&store, &container);
    versions(&container);
    parts(&store, &container);
}

/// The cached space in use of an object matches the engine's.
fn usage(store: &Store, container: &Container) {
    let object = container.create_object(None, None).unwrap();
    assert_eq!(object.usage().unwrap(), (0, 0));
    object.write_at(0, &[1; 10_000]).unwrap();
    object.write_at(1 << 20, &[2; 5000]).unwrap();
    let mut seen = (0, 0);
    object.read_at(0, &mut vec![0; (1 << 20) + 5000]).unwrap();
    assert_eq!(messages(store, || seen = object.usage().unwrap()), 0, "all of it is known");
    let stat = object.stat().unwrap();
    assert_eq!(seen, ((1 << 20) + 5000, stat.taken_bytes));
    assert!((15_000..15_000 + 4 * 4096).contains(&seen.1), "{seen:?}");
}

/// The longest value is accepted on every path; a longer one is refused in advance.
fn values(store: &Store, container: &Container) {
    let index = container.create_index(Some(IndexId(1))).unwrap();
    let longest = vec![7; cenote::model::VALUE_BYTES_MAX];
    index.launch_put(b"launched", &longest).unwrap().wait().unwrap();
    let mut transaction = store.begin();
    transaction.put(&index, b"together", &longest).unwrap();
    transaction.commit().unwrap();
    let found = index.get(&[b"launched", b"together"]).unwrap();
    assert!(found.iter().all(|value| value.as_ref() == Some(&longest)));
    let longer = [&longest[..], &[7]].concat();
    assert_eq!(index.launch_put(b"k", &longer).map(drop).unwrap_err().kind(), ErrorKind::InvalidInput);
    let mut transaction = store.begin();
    assert_eq!(transaction.put(&index, b"k", &longer).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(format!("{transaction:?}"), "Transaction { updates: 0, .. }");
}

fn versions(container: &Container) {
    let index = container.create_index(Some(IndexId(2))).unwrap().remembering();
    let [first, second, third] = [b"a", b"b", b"c"].map(|key| {
        index.put(&[(key, b"1")]).unwrap();
        index.version().unwrap()
    });
    assert!(first.is_right_before(second) && second.is_right_before(third));
    assert!(!first.is_right_before(third) && !second.is_right_before(first) && !first.is_right_before(first));
}

/// A write in several pieces of space reads back as written, before the end of its transaction and after.
fn parts(store: &Store, container: &Container) {
    let mut random = Random::new(3);
    let (object, content) = (container.create_object(None, None).unwrap(), random.bytes(20 << 20));
    let mut transaction = store.begin();
    transaction.write(&object, 1000, &content).unwrap();
    let mut found = vec![0; content.len() + 1000];
    assert_eq!(transaction.read(&object, 0, &mut found).unwrap(), found.len());
    assert!(found[..1000].iter().all(|byte| *byte == 0) && found[1000..] == content);
    transaction.commit().unwrap();
    found.fill(1);
    assert_eq!(object.read_at(0, &mut found).unwrap(), found.len());
    assert!(found[..1000].iter().all(|byte| *byte == 0) && found[1000..] == content);
    // A copy to another container from an offset on includes the hole before it.
    let elsewhere = store.create_container("copies", &ContainerSpec::default()).unwrap();
    let copy = elsewhere.create_object(None, None).unwrap();
    assert_eq!(copy.copy_from(10, &object, 500, 10_000).unwrap(), 10_000);
    let mut copied = vec![1; 10_010];
    assert_eq!(copy.read_at(0, &mut copied).unwrap(), copied.len());
    assert!(copied[..510].iter().all(|byte| *byte == 0) && copied[510..] == content[..9500]);
}
