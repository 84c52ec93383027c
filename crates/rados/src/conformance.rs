//! What every pool must do. Called from tests; panics on a violation.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Answer, Change, Check, Pool, RefusalKind};

fn kind<T: std::fmt::Debug>(answer: Answer<T>) -> RefusalKind {
    answer.expect_err("it must be refused").kind
}

/// All of the contract, on an empty namespace, which is empty again afterwards. `records`: the pool has records; an
/// erasure-coded one has not.
pub fn pool(pool: &dyn Pool, records: bool) {
    assert_eq!(pool.list().unwrap(), Vec::<String>::new(), "the namespace must be empty");
    bytes(pool);
    absent(pool);
    checks(pool);
    attributes(pool);
    all_or_nothing(pool);
    one_of_many_wins(pool);
    lists(pool);
    if records {
        records_by_key(pool);
    } else {
        let refused = pool.change("o", &[], &[Change::Create, Change::SetRecord("k", b"v")]);
        assert_eq!(kind(refused), RefusalKind::Unsupported);
        assert_eq!(pool.size("o").unwrap(), None, "nothing of it has happened");
    }
    assert_eq!(pool.list().unwrap(), Vec::<String>::new());
}

fn bytes(pool: &dyn Pool) {
    pool.change("o", &[], &[Change::Replace(b"0123456789")]).unwrap();
    assert_eq!(pool.read("o", 0, 100).unwrap(), b"0123456789");
    assert_eq!(pool.read("o", 3, 4).unwrap(), b"3456");
    assert_eq!(pool.read("o", 3, 0).unwrap(), b"");
    assert_eq!(pool.read("o", 10, 5).unwrap(), b"");
    assert_eq!(pool.read("o", 1 << 20, 5).unwrap(), b"");
    assert_eq!(pool.read("o", 2, usize::MAX).unwrap(), b"23456789");
    pool.change("o", &[], &[Change::Replace(b"ab")]).unwrap();
    assert_eq!(pool.read("o", 0, 100).unwrap(), b"ab", "all of the bytes before are gone");
    let long: Vec<u8> = (0..5_000_000u32).map(|at| (at % 251) as u8).collect();
    pool.change("o", &[], &[Change::Replace(&long)]).unwrap();
    assert_eq!(pool.size("o").unwrap(), Some(long.len() as u64));
    assert!(pool.read("o", 0, long.len()).unwrap() == long);
    assert!(pool.read("o", 4_999_000, 2000).unwrap() == long[4_999_000..]);
    pool.change("o", &[], &[Change::Remove]).unwrap();
}

/// Writes at offsets and appends, which an erasure-coded pool without overwrites does not have.
pub fn parts(pool: &dyn Pool) {
    pool.change("o", &[], &[Change::Append(b"abc"), Change::Append(b"def")]).unwrap();
    pool.change("o", &[], &[Change::Write(1, b"BC"), Change::Append(b"g")]).unwrap();
    assert_eq!(pool.read("o", 0, 100).unwrap(), b"aBCdefg");
    pool.change("o", &[], &[Change::Write(10, b"z")]).unwrap();
    assert_eq!(pool.read("o", 0, 100).unwrap(), b"aBCdefg\0\0\0z", "a gap reads as zeros");
    pool.change("new", &[], &[Change::Write(0, b"")]).unwrap();
    assert_eq!(pool.size("new").unwrap(), Some(0));
    pool.change("o", &[], &[Change::Remove]).unwrap();
    pool.change("new", &[], &[Change::Remove]).unwrap();
}

fn absent(pool: &dyn Pool) {
    assert_eq!(pool.size("no").unwrap(), None);
    for len in [0, 10, usize::MAX] {
        assert_eq!(kind(pool.read("no", 0, len)), RefusalKind::NotFound);
    }
    assert_eq!(kind(pool.attribute("no", "a")), RefusalKind::NotFound);
    assert_eq!(kind(pool.change("no", &[], &[Change::Remove])), RefusalKind::NotFound);
    for absent in [&[][..], &[Check::Absent], &[Check::Attribute("a", b"")]] {
        assert_eq!(kind(pool.change("no", absent, &[Change::Remove])), RefusalKind::NotFound, "{absent:?}");
        pool.change("no", absent, &[]).unwrap();
    }
    assert_eq!(pool.size("no").unwrap(), None, "checks create nothing");
    pool.change("no", &[], &[Change::Create, Change::Remove]).unwrap();
    assert_eq!(pool.size("no").unwrap(), None);
}

fn checks(pool: &dyn Pool) {
    let set = |value| [Change::Replace(b"new"), Change::SetAttribute("a", value)];
    assert_eq!(kind(pool.change("o", &[Check::Exists], &set(b"1"))), RefusalKind::NotFound);
    assert_eq!(kind(pool.change("o", &[Check::Attribute("a", b"1")], &set(b"1"))), RefusalKind::Refused);
    let in_order = [Check::Attribute("a", b"1"), Check::Exists];
    assert_eq!(kind(pool.change("o", &in_order, &set(b"1"))), RefusalKind::Refused, "the first that fails");
    assert_eq!(pool.size("o").unwrap(), None);
    // An absent attribute has no bytes, of an absent object too.
    pool.change("o", &[Check::Attribute("a", b"")], &set(b"1")).unwrap();
    assert_eq!(pool.attribute("o", "a").unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(kind(pool.change("o", &[Check::Attribute("a", b"")], &set(b"2"))), RefusalKind::Refused);
    assert_eq!(kind(pool.change("o", &[Check::Absent], &set(b"2"))), RefusalKind::Exists);
    assert_eq!(kind(pool.change("o", &[Check::Absent], &[])), RefusalKind::Exists);
    assert_eq!(kind(pool.change("o", &[Check::Absent], &[Change::Remove])), RefusalKind::Exists);
    assert_eq!(kind(pool.change("o", &[Check::Attribute("a", b"2")], &[])), RefusalKind::Refused);
    pool.change("o", &[Check::Exists, Check::Attribute("a", b"1"), Check::Attribute("b", b"")], &set(b"2")).unwrap();
    assert_eq!(pool.attribute("o", "a").unwrap().as_deref(), Some(&b"2"[..]));
    assert_eq!(kind(pool.change("o", &[Check::Attribute("a", b"1")], &[Change::Remove])), RefusalKind::Refused);
    pool.change("o", &[Check::Attribute("a", b"2")], &[Change::Remove]).unwrap();
    pool.change("o", &[Check::Absent, Check::Attribute("a", b"")], &set(b"3")).unwrap();
    assert_eq!(pool.attribute("o", "a").unwrap().as_deref(), Some(&b"3"[..]));
    pool.change("o", &[], &[Change::Remove]).unwrap();
}

fn attributes(pool: &dyn Pool) {
    let binary: Vec<u8> = (0..=255).collect();
    pool.change("o", &[], &[Change::SetAttribute("b", &binary), Change::SetAttribute("e", b"")]).unwrap();
    assert_eq!(pool.size("o").unwrap(), Some(0), "an attribute makes the object");
    assert_eq!(pool.attribute("o", "b").unwrap(), Some(binary.clone()));
    assert_eq!(pool.attribute("o", "e").unwrap(), Some(Vec::new()));
    assert_eq!(pool.attribute("o", "none").unwrap(), None);
    pool.change("o", &[Check::Attribute("b", &binary), Check::Attribute("e", b"")], &[Change::Create]).unwrap();
    for other in [&binary[..255], &[&binary[..], b"\0"].concat(), b"\0", b""] {
        let refused = pool.change("o", &[Check::Attribute("b", other)], &[Change::Create]);
        assert_eq!(kind(refused), RefusalKind::Refused, "{other:?}");
    }
    let long = vec![7; 40_000];
    pool.change("o", &[], &[Change::SetAttribute("b", &long)]).unwrap();
    assert_eq!(pool.attribute("o", "b").unwrap(), Some(long));
    pool.change("o", &[], &[Change::Remove]).unwrap();
    pool.change("o", &[], &[Change::Create]).unwrap();
    assert_eq!(pool.attribute("o", "b").unwrap(), None, "attributes go with the object");
    pool.change("o", &[], &[Change::Remove]).unwrap();
}

fn all_or_nothing(pool: &dyn Pool) {
    pool.change("o", &[], &[Change::Replace(b"old"), Change::SetAttribute("a", b"1")]).unwrap();
    let refused = [Check::Attribute("a", b"1"), Check::Attribute("a", b"2")];
    let changes = [Change::Replace(b"new"), Change::SetAttribute("a", b"9")];
    assert_eq!(kind(pool.change("o", &refused, &changes)), RefusalKind::Refused);
    assert_eq!(pool.read("o", 0, 9).unwrap(), b"old");
    assert_eq!(pool.attribute("o", "a").unwrap().as_deref(), Some(&b"1"[..]));
    pool.change("o", &[], &[Change::Remove]).unwrap();
}

/// Of many that create one object, or raise one counter, one does at a time.
fn one_of_many_wins(pool: &dyn Pool) {
    const THREADS: u32 = 4;
    const ROUNDS: u32 = 10;
    let created = AtomicU32::new(0);
    let create = || {
        for round in 0..ROUNDS {
            let outcome = pool.change(&format!("r{round}"), &[Check::Absent], &[Change::Replace(b"x")]);
            match outcome.map_err(|refusal| refusal.kind) {
                Ok(()) => drop(created.fetch_add(1, Ordering::Relaxed)),
                outcome => assert_eq!(outcome, Err(RefusalKind::Exists)),
            }
        }
    };
    let count = || {
        let mut raised = 0;
        while raised < ROUNDS {
            let before = match pool.attribute("counter", "n") {
                Err(refusal) if refusal.kind == RefusalKind::NotFound => None,
                before => before.unwrap(),
            };
            let before = before.unwrap_or_default();
            let n = before.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            let after = (n + 1).to_le_bytes();
            let outcome =
                pool.change("counter", &[Check::Attribute("n", &before)], &[Change::SetAttribute("n", &after)]);
            match outcome.map_err(|refusal| refusal.kind) {
                Ok(()) => raised += 1,
                outcome => assert_eq!(outcome, Err(RefusalKind::Refused)),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(create);
            scope.spawn(count);
        }
    });
    assert_eq!(created.into_inner(), ROUNDS);
    let counted = pool.attribute("counter", "n").unwrap().unwrap();
    assert_eq!(counted, (THREADS * ROUNDS).to_le_bytes(), "no change is lost");
    pool.change("counter", &[], &[Change::Remove]).unwrap();
    for round in 0..ROUNDS {
        pool.change(&format!("r{round}"), &[], &[Change::Remove]).unwrap();
    }
}

fn lists(pool: &dyn Pool) {
    let mut names: Vec<String> = (0..150).map(|number| format!("dir/{number}-ü")).collect();
    for name in &names {
        pool.change(name, &[Check::Absent], &[Change::Create]).unwrap();
    }
    names.sort_unstable();
    assert_eq!(pool.list().unwrap(), names);
    for name in &names {
        pool.change(name, &[], &[Change::Remove]).unwrap();
    }
}

fn records_by_key(pool: &dyn Pool) {
    assert_eq!(kind(pool.records("o", "", 10)), RefusalKind::NotFound);
    pool.change("o", &[], &[Change::RemoveRecord("none")]).unwrap();
    assert_eq!(pool.records("o", "", 10).unwrap(), Vec::new());
    let key = |number: usize| format!("k{number:05}");
    let keys: Vec<String> = (0..2500).map(key).collect();
    for keys in keys.chunks(500) {
        let set: Vec<Change<'_>> = keys.iter().map(|key| Change::SetRecord(key, key.as_bytes())).collect();
        pool.change("o", &[Check::Exists], &set).unwrap();
    }
    let all = pool.records("o", "", usize::MAX).unwrap();
    assert!(all.iter().map(|(key, _)| key).eq(&keys) && all.iter().all(|(key, value)| key.as_bytes() == value));
    let some = pool.records("o", &key(1200), 1100).unwrap();
    assert_eq!((some.len(), some[0].0.as_str(), some[1099].0.as_str()), (1100, "k01201", "k02300"));
    assert_eq!(pool.records("o", "k02498", 10).unwrap().len(), 1);
    assert_eq!(pool.records("o", "l", 10).unwrap(), Vec::new());
    let changes = [Change::SetRecord("k00000", b""), Change::RemoveRecord("k00001"), Change::Append(b"x")];
    assert_eq!(kind(pool.change("o", &[Check::Attribute("a", b"1")], &changes)), RefusalKind::Refused);
    assert_eq!(pool.records("o", "", 2).unwrap()[1].0, "k00001", "nothing of it has happened");
    pool.change("o", &[], &changes).unwrap();
    let first = pool.records("o", "", 2).unwrap();
    assert_eq!((first[0].1.len(), first[1].0.as_str()), (0, "k00002"));
    assert_eq!(pool.read("o", 0, 9).unwrap(), b"x");
    pool.change("o", &[], &[Change::Remove]).unwrap();
    pool.change("o", &[], &[Change::Create]).unwrap();
    assert_eq!(pool.records("o", "", 2).unwrap(), Vec::new(), "records go with the object");
    pool.change("o", &[], &[Change::Remove]).unwrap();
}
