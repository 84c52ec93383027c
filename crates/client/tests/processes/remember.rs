//! Indices with a cache: never an old value, whoever changed it, whatever process died.

use std::collections::BTreeMap;

use cenote::{ContainerSpec, ErrorKind, Index, IndexId, Mode, Store};

use crate::tools::{Random, TestDir, daemon_pid, signal};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn key(random: &mut Random) -> Vec<u8> {
    vec![b'a' + random.below(4) as u8, random.below(12) as u8]
}

/// Changes some records, alone or in a transaction.
fn change(store: &Store, index: &Index, random: &mut Random, model: &mut Model) {
    let (one, two) = (key(random), key(random));
    let bytes = 1 + random.below(40) as usize;
    let value = random.bytes(bytes);
    match random.below(3) {
        0 => {
            index.put(&[(&one, &value)]).unwrap();
            model.insert(one, value);
        }
        1 => {
            index.del(&[&one]).unwrap();
            model.remove(&one);
        }
        _ => {
            let mut transaction = store.begin();
            transaction.detect_conflicts(true);
            assert_eq!(transaction.get(index, &two).unwrap(), model.get(&two).cloned());
            transaction.put(index, &one, &value).unwrap();
            transaction.del(index, &two).unwrap();
            transaction.commit().unwrap();
            model.insert(one, value);
            model.remove(&two);
        }
    }
}

fn compare(index: &Index, random: &mut Random, model: &Model) {
    let keys = [key(random), key(random)];
    let expected: Vec<_> = keys.iter().map(|key| model.get(key).cloned()).collect();
    assert_eq!(index.get(&[&keys[0], &keys[1]]).unwrap(), expected);
    let prefix = &keys[0][..1];
    let found: Model = index.iter(prefix).map(Result::unwrap).collect();
    let expected: Model = model.iter().filter(|(key, _)| key.starts_with(prefix)).map(pair).collect();
    assert_eq!(found, expected);
}

fn pair((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

pub fn never_old() {
    let place = TestDir::new();
    let mut random = Random::new(41);
    let stores = [place.make(Mode::Daemon), place.open(Mode::Daemon)];
    stores[0].create_container("c", &ContainerSpec::default()).unwrap();
    let open = |store: &Store| store.container("c").unwrap().open_index(IndexId(5)).unwrap().remembering();
    let indices = [open(&stores[0]), open(&stores[1])];
    let mut model = Model::new();
    for round in 0..600 {
        // Long runs of one of them, which fill its cache; then the other one.
        let who = usize::from(random.below(6) == 0);
        change(&stores[who], &indices[who], &mut random, &mut model);
        compare(&indices[random.below(2) as usize], &mut random, &model);
        if round == 300 {
            signal(daemon_pid(&place.dir()), libc::SIGKILL);
        }
    }
}

pub fn conflicts() {
    let place = TestDir::new();
    let stores = [place.make(Mode::Daemon), place.open(Mode::Daemon)];
    stores[0].create_container("c", &ContainerSpec::default()).unwrap();
    let open = |store: &Store| store.container("c").unwrap().open_index(IndexId(5)).unwrap().remembering();
    let (mine, theirs) = (open(&stores[0]), open(&stores[1]));
    mine.put(&[(b"a", b"1"), (b"b", b"2")]).unwrap();
    assert_eq!(mine.get_one(b"a").unwrap().unwrap(), b"1");
    for (changed, conflict) in [(&b"a"[..], true), (b"missing", true), (b"other", false)] {
        let mut transaction = stores[0].begin();
        transaction.detect_conflicts(true);
        transaction.get(&mine, b"a").unwrap();
        transaction.get(&mine, b"missing").unwrap();
        transaction.put(&mine, b"c", b"3").unwrap();
        theirs.put(&[(changed, b"theirs")]).unwrap();
        let outcome = transaction.commit().map_err(|error| error.kind());
        assert_eq!(outcome.err(), conflict.then_some(ErrorKind::Conflict), "{changed:?}");
        assert_eq!(mine.get_one(changed).unwrap().unwrap(), b"theirs");
        assert_eq!(mine.get_one(b"c").unwrap().is_some(), !conflict);
    }
    // An index that was deleted and created with the same number is not cached.
    let mut transaction = stores[1].begin();
    transaction.delete_index(&theirs).unwrap();
    transaction.commit().unwrap();
    assert_eq!(mine.get_one(b"a").unwrap_err().kind(), ErrorKind::NotFound);
    let again = open(&stores[1]);
    assert_eq!(mine.get_one(b"a").unwrap(), None);
    again.put(&[(b"a", b"new")]).unwrap();
    assert_eq!(mine.get_one(b"a").unwrap().unwrap(), b"new");
    let mut transaction = stores[0].begin();
    let fresh = stores[0].container("c").unwrap().index(IndexId(6)).remembering();
    transaction.create_index(&stores[0].container("c").unwrap(), Some(IndexId(6))).unwrap();
    transaction.put(&fresh, b"k", b"v").unwrap();
    transaction.commit().unwrap();
    assert_eq!(fresh.get(&[b"k", b"x"]).unwrap(), [Some(b"v".to_vec()), None]);
}

/// A pin holds until it is ended, or its guard changes.
pub fn pins_end() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let container = store.create_container("c", &ContainerSpec::default()).unwrap();
    let guard = container.create_index(Some(IndexId(1))).unwrap();
    let index = container.create_index(Some(IndexId(2))).unwrap().remembering();
    let pin = || index.pin(&guard, guard.version().unwrap()).unwrap();
    assert!(!index.is_pinned());
    pin();
    assert!(index.is_pinned() && index.clone().is_pinned());
    index.unpin();
    assert!(!index.is_pinned());
    pin();
    guard.put(&[(b"key", b"value")]).unwrap();
    assert!(!index.is_pinned());
}
