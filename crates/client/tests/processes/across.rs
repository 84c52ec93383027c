//! Transactions over several engines of one store: transfers between accounts of all of them, by threads and processes of
//! which some die. The total stays, and no transfer is carried out in part.

use std::time::Duration;

use cenote::{ContainerSpec, ErrorKind, Index, IndexId, Mode, OpenOptions, Precondition, Result, Store, StoreConfig};

use crate::tools::{Other, TestDir, daemon_pid, eventually, signal};

const ENGINES: u16 = 3;
const BALANCE: u64 = 1_000_000;
/// Transactions that a process launches.
const LAUNCHED: u64 = 100;
const INDEX: IndexId = IndexId(4);

/// A store with a container at each engine, in the order of the engines.
fn make(place: &TestDir, mode: Mode) -> Store {
    let config = StoreConfig { engines: ENGINES, ..place.config(64 << 20, 256 << 20) };
    let options = OpenOptions { mode, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(place.dir(), &options).unwrap();
    let mut has = [false; ENGINES as usize];
    for n in 0.. {
        if has.iter().all(|has| *has) {
            break;
        }
        let container = store.create_container(&format!("made {n}"), &ContainerSpec::default()).unwrap();
        let engine = (container.id().0 % u64::from(ENGINES)) as usize;
        if !std::mem::replace(&mut has[engine], true) {
            store.rename_container_by_id(container.id(), &format!("bank {engine}")).unwrap();
            let index = container.create_index(Some(INDEX)).unwrap();
            index.put(&[(b"account", &BALANCE.to_le_bytes())]).unwrap();
        }
    }
    store
}

fn accounts(store: &Store) -> Vec<Index> {
    (0..ENGINES).map(|n| store.container(&format!("bank {n}")).unwrap().index(INDEX)).collect()
}

fn balance(index: &Index) -> u64 {
    u64::from_le_bytes(index.get_one(b"account").unwrap().unwrap().try_into().unwrap())
}

/// Moves one from the first account to each of the others, and leaves a mark with each.
fn transfer(store: &Store, accounts: &[Index], mark: &[u8]) -> Result<u64> {
    let mut tx = store.begin();
    for (at, index) in accounts.iter().enumerate() {
        let now = index.get_one(b"account")?.expect("an account");
        let number = u64::from_le_bytes(now.as_slice().try_into().expect("eight bytes"));
        let after = if at == 0 { number - (accounts.len() as u64 - 1) } else { number + 1 };
        tx.expect(index, b"account", Some(&now))?;
        tx.put(index, b"account", &after.to_le_bytes())?;
        tx.put(index, mark, b"")?;
    }
    tx.commit()
}

/// Compares what the engines have. Returns the number of transfers.
fn check(store: &Store) -> u64 {
    let accounts = accounts(store);
    let marks: Vec<usize> = accounts.iter().map(|index| index.iter(b"mark").count()).collect();
    let balances: Vec<u64> = accounts.iter().map(balance).collect();
    assert!(marks.iter().all(|count| *count == marks[0]), "transfers were carried out in part: {marks:?}");
    assert_eq!(balances.iter().sum::<u64>(), BALANCE * u64::from(ENGINES));
    assert_eq!(balances[1], BALANCE + marks[0] as u64);
    marks[0] as u64
}

fn transfers(store: &Store, who: &str, count: usize) {
    let accounts = accounts(store);
    let mut done = 0;
    while done < count {
        match transfer(store, &accounts, format!("mark {who} {done}").as_bytes()) {
            Ok(_) => done += 1,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
}

fn at_once(store: &Store) {
    std::thread::scope(|scope| {
        for who in ["a", "b", "c"] {
            scope.spawn(move || transfers(store, who, 40));
        }
    });
    assert_eq!(check(store), 120);
    let accounts = accounts(store);
    let mut tx = store.begin();
    tx.put(&accounts[0], b"k", b"never").unwrap();
    let op = tx.launch(&Precondition::new(&accounts[1], b"account", b"")).unwrap();
    assert_eq!(op.wait().unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(accounts[0].get_one(b"k").unwrap(), None);
    let mut tx = store.begin();
    tx.put(&accounts[0], b"k", b"launched").unwrap();
    let now = accounts[1].get_one(b"account").unwrap().unwrap();
    tx.launch(&Precondition::new(&accounts[1], b"account", &now)).unwrap().wait().unwrap();
    assert_eq!(accounts[0].get_one(b"k").unwrap().unwrap(), b"launched");
    assert!(store.verify().unwrap().findings.is_empty());
}

pub fn in_process() {
    let place = TestDir::new();
    let store = make(&place, Mode::InProcess);
    at_once(&store);
    store.close().unwrap();
    assert_eq!(check(&place.open(Mode::InProcess)), 120);
}

pub fn through_a_daemon() {
    let place = TestDir::new();
    at_once(&make(&place, Mode::Daemon));
}

/// The role of a process that makes transfers until it is killed.
pub fn endless(dir: &str) {
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap();
    crate::child::say("begins");
    let accounts = accounts(&store);
    for n in 0u64.. {
        let mark = format!("mark {} {n}", std::process::id());
        let _ = transfer(&store, &accounts, mark.as_bytes());
    }
}

/// The role of a process that launches transactions, and waits for none of them.
pub fn launching(dir: &str) {
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap();
    let accounts = accounts(&store);
    let before = accounts[0].get_one(b"launched").unwrap().unwrap();
    let id = accounts[0].get_one(b"series").unwrap().unwrap();
    let begin = u64::from_le_bytes(before.as_slice().try_into().unwrap());
    let mut under_way = Vec::new();
    for n in begin..begin + LAUNCHED {
        let mut tx = store.begin();
        for index in &accounts {
            tx.put(index, b"launched", &(n + 1).to_le_bytes()).unwrap();
            tx.put(index, format!("launched {n:04}").as_bytes(), b"").unwrap();
        }
        under_way.push(tx.launch(&Precondition::new(&accounts[0], b"series", &id)).unwrap());
    }
    crate::child::say("launched");
    std::thread::sleep(Duration::from_mins(1));
}

/// What was launched survives its process, on all engines.
pub fn launched_and_killed() {
    let place = TestDir::new();
    let store = make(&place, Mode::Daemon);
    let accounts = accounts(&store);
    for index in &accounts {
        index.put(&[(b"launched", &0u64.to_le_bytes()), (b"series", b"one")]).unwrap();
    }
    for round in 1..=4u64 {
        let mut other = Other::start("launching", &[place.dir().to_str().unwrap()]);
        assert_eq!(other.line(), "launched");
        if round % 2 == 0 {
            signal(daemon_pid(&place.dir()), libc::SIGKILL);
        }
        other.kill();
        eventually("the session of the dead is closed", || store.stats().unwrap().sessions == 1);
        for index in &accounts {
            assert_eq!(index.iter(b"launched ").count() as u64, round * LAUNCHED);
            let last = index.get_one(b"launched").unwrap().unwrap();
            assert_eq!(last, (round * LAUNCHED).to_le_bytes());
        }
    }
    assert!(store.verify().unwrap().findings.is_empty());
}

pub fn everybody_dies() {
    let place = TestDir::new();
    let store = make(&place, Mode::Daemon);
    for round in 0..5u64 {
        let mut other = Other::start("transfers", &[place.dir().to_str().unwrap()]);
        assert_eq!(other.line(), "begins");
        let (dir, pause) = (place.dir(), Duration::from_millis(20 + 13 * round));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(pause);
            signal(daemon_pid(&dir), libc::SIGKILL);
        });
        transfers(&store, &format!("own {round}"), 60);
        killer.join().unwrap();
        other.kill();
        eventually("the session of the dead is closed", || store.stats().unwrap().sessions == 1);
        check(&store);
    }
    assert!(check(&store) >= 300);
    assert!(store.verify().unwrap().findings.is_empty());
}
