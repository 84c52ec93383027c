//! Transactions over several nodes of a cluster, with real daemons and clients that die at any time.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, ErrorKind, Index, IndexId, ObjectId, Store};
use cenote_testkit::crash::nodes::{self, Cluster};

const INDEX: IndexId = IndexId(3);
/// Set in a process that this one starts as a client: the directory of its node.
const CHILD: &str = "CENOTE_TEST_TRANSFERS";
const BALANCE: u64 = 1_000_000;
const PATIENCE: Duration = Duration::from_mins(1);

struct Nodes(Cluster);

impl Nodes {
    fn new(name: &str, count: usize) -> Self {
        Self::protected(name, count, 0)
    }
    /// A cluster that survives the loss of so many nodes.
    fn protected(name: &str, count: usize, losses: u8) -> Self {
        Self(Cluster::new(&format!("tx-{name}"), Path::new(env!("CARGO_BIN_EXE_crash")), count, losses))
    }
    /// A container on each node, with an index, and in this an account.
    fn accounts(&self) {
        for (node, store) in self.stores.iter().enumerate() {
            let container = store.create_container(&format!("bank {node}"), &ContainerSpec::default()).unwrap();
            let index = container.create_index(Some(INDEX)).unwrap();
            index.put(&[(b"account", &BALANCE.to_le_bytes())]).unwrap();
        }
    }
}

impl std::ops::Deref for Nodes {
    type Target = Cluster;
    fn deref(&self) -> &Cluster {
        &self.0
    }
}
impl std::ops::DerefMut for Nodes {
    fn deref_mut(&mut self) -> &mut Cluster {
        &mut self.0
    }
}

fn accounts_of(store: &Store, count: usize) -> Vec<Index> {
    (0..count).map(|node| store.container(&format!("bank {node}")).unwrap().index(INDEX)).collect()
}
fn balance(index: &Index) -> u64 {
    u64::from_le_bytes(index.get_one(b"account").unwrap().unwrap().try_into().unwrap())
}

/// Moves one from the first account to each of the others, once.
fn transfer(store: &Store, accounts: &[Index], mark: Option<&[u8]>) -> cenote::Result<u64> {
    let mut tx = store.begin();
    for (at, index) in accounts.iter().enumerate() {
        let now = index.get_one(b"account")?.expect("an account");
        let number = u64::from_le_bytes(now.as_slice().try_into().expect("eight bytes"));
        let after = if at == 0 { number - (accounts.len() as u64 - 1) } else { number + 1 };
        tx.expect(index, b"account", Some(&now))?;
        tx.put(index, b"account", &after.to_le_bytes())?;
        if let Some(mark) = mark {
            tx.put(index, mark, b"")?;
        }
    }
    tx.commit()
}

#[test]
fn all_parts_of_a_transaction_are_seen_on_all_nodes() {
    let nodes = Nodes::new("seen", 3);
    nodes.accounts();
    for store in &nodes.stores {
        let accounts = accounts_of(store, 3);
        let near = store.create_container(&format!("near {}", store.home()), &ContainerSpec::default()).unwrap();
        let object = near.create_object(Some(ObjectId(5)), None).unwrap();
        let mut tx = store.begin();
        for index in &accounts {
            tx.put(index, b"k", store.home().to_string().as_bytes()).unwrap();
        }
        tx.write(&object, 0, &vec![9; 100_000]).unwrap();
        tx.commit().unwrap();
        assert_eq!(object.size().unwrap(), 100_000);
        for other in &nodes.stores {
            for index in accounts_of(other, 3) {
                let found = index.get_one(b"k").unwrap().unwrap();
                assert_eq!(String::from_utf8(found).unwrap(), store.home().to_string());
            }
            let far = other.container(near.label()).unwrap().object(ObjectId(5));
            let mut bytes = vec![0; 100_000];
            assert_eq!(far.read_at(0, &mut bytes).unwrap(), 100_000);
            assert!(bytes.iter().all(|byte| *byte == 9));
        }
    }
    what_cannot_be_is_refused(&nodes);
}

fn what_cannot_be_is_refused(nodes: &Nodes) {
    let store = &nodes.stores[0];
    let accounts = accounts_of(store, 3);
    let mut tx = store.begin();
    tx.put(&accounts[0], b"k", b"never").unwrap();
    tx.put(&accounts[1], b"k", b"never").unwrap();
    tx.expect(&accounts[2], b"k", Some(b"something else")).unwrap();
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
    let mut tx = store.begin();
    tx.put(&accounts[2], b"k", b"never").unwrap();
    tx.expect(&accounts[0], b"k", Some(b"something else")).unwrap();
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Conflict);
    for index in &accounts {
        assert_ne!(index.get_one(b"k").unwrap().unwrap(), b"never");
        index.put(&[(b"k", b"again")]).unwrap();
    }
    let mut tx = store.begin();
    tx.put(&accounts[0], b"k", b"never").unwrap();
    tx.delete_container(&store.container("bank 1").unwrap()).unwrap();
    assert_eq!(tx.commit().unwrap_err().kind(), ErrorKind::Unsupported);
}

/// A writer counts on both nodes; nobody sees the count of one of them ahead of the other's.
#[test]
fn whoever_sees_a_part_sees_all() {
    let nodes = Nodes::new("whole", 2);
    nodes.accounts();
    let is_over = AtomicBool::new(false);
    let count_of = |index: &Index| {
        let found = index.get_one(b"count").unwrap();
        found.map_or(0, |bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
    };
    std::thread::scope(|scope| {
        for store in &nodes.stores {
            let is_over = &is_over;
            scope.spawn(move || {
                let [first, last] = &accounts_of(store, 2)[..] else { panic!() };
                let [first_known, last_known] = [first.clone().remembering(), last.clone().remembering()];
                let mut turn = 0;
                while !is_over.load(Ordering::SeqCst) {
                    turn += 1;
                    let (one, two) = if turn % 2 == 0 { (first, last) } else { (&last_known, &first_known) };
                    let seen = count_of(one);
                    let then = count_of(two);
                    assert!(then >= seen, "{then} of one node after {seen} of the other");
                }
            });
        }
        let accounts = accounts_of(&nodes.stores[1], 2);
        for count in 1..=300_u64 {
            let mut tx = nodes.stores[1].begin();
            for index in &accounts {
                tx.put(index, b"count", &count.to_le_bytes()).unwrap();
            }
            tx.commit().unwrap();
            if count % 7 == 0 {
                assert_eq!(count_of(&accounts[(count % 2) as usize]), count);
            }
        }
        is_over.store(true, Ordering::SeqCst);
    });
}

#[test]
fn transfers_of_many_at_once_keep_the_total() {
    let nodes = Nodes::new("many", 2);
    nodes.accounts();
    std::thread::scope(|scope| {
        for store in nodes.stores.iter().chain(&nodes.stores) {
            scope.spawn(move || {
                let accounts = accounts_of(store, 2);
                let mut done = 0;
                let begin = Instant::now();
                while done < 25 {
                    assert!(begin.elapsed() < PATIENCE, "{done} transfers in a minute");
                    match transfer(store, &accounts, None) {
                        Ok(_) => done += 1,
                        Err(error) => {
                            assert!([ErrorKind::Conflict, ErrorKind::Busy].contains(&error.kind()), "{error}");
                        }
                    }
                }
            });
        }
    });
    let accounts = accounts_of(&nodes.stores[0], 2);
    assert_eq!([balance(&accounts[0]), balance(&accounts[1])], [BALANCE - 100, BALANCE + 100]);
}

/// What a child of the tests below does: transfers until it is killed.
#[test]
fn child() {
    let Some(dir) = std::env::var_os(CHILD) else { return };
    let store = nodes::open(Path::new(&dir)).unwrap();
    let accounts = accounts_of(&store, 2);
    for n in 0.. {
        let mark = format!("mark {}.{n}", std::process::id());
        let _ = transfer(&store, &accounts, Some(mark.as_bytes()));
    }
}

fn start_child(dir: &Path) -> std::process::Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "child", "--nocapture"]).env(CHILD, dir);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until nothing is held, and compares what both nodes have.
fn check_whole(nodes: &Nodes) -> usize {
    let accounts = accounts_of(&nodes.stores[0], 2);
    let marks = |index: &Index| -> Vec<Vec<u8>> { index.iter(b"mark").map(|record| record.unwrap().0).collect() };
    let all = [marks(&accounts[0]), marks(&accounts[1])];
    let [first, last] = &all;
    let is_part = |mark: &&Vec<u8>| !(first.contains(mark) && last.contains(mark));
    let part = first.iter().chain(last).filter(is_part).count();
    assert_eq!(part, 0, "transactions were carried out in part");
    assert_eq!(balance(&accounts[0]) + balance(&accounts[1]), 2 * BALANCE);
    assert_eq!(balance(&accounts[1]), BALANCE + first.len() as u64);
    first.len()
}

#[test]
fn clients_that_are_killed_leave_all_or_nothing() {
    let nodes = Nodes::new("clients", 2);
    nodes.accounts();
    for round in 0..8 {
        let mut child = start_child(&nodes.dir_of(round % 2));
        std::thread::sleep(Duration::from_millis(400 + 37 * round as u64));
        child.kill().unwrap();
        child.wait().unwrap();
        check_whole(&nodes);
    }
    assert!(check_whole(&nodes) > 10);
}

#[test]
fn daemons_that_are_killed_leave_all_or_nothing() {
    let nodes = Nodes::new("daemons", 2);
    nodes.accounts();
    let mut children = [start_child(&nodes.dir_of(0)), start_child(&nodes.dir_of(1))];
    for round in 0..4 {
        std::thread::sleep(Duration::from_millis(700));
        nodes.kill_daemon(round % 2);
        nodes::begin(&nodes.dir_of(round % 2), Path::new(env!("CARGO_BIN_EXE_crash"))).unwrap();
        std::thread::sleep(Duration::from_millis(900));
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(check_whole(&nodes) > 5);
}

/// What all banks have together, in a snapshot.
fn total_in(store: &Store, count: usize, name: &str) -> u64 {
    let snapshot = |node| store.container(&format!("bank {node}")).unwrap().open_snapshot(name).unwrap();
    (0..count).map(|node| balance(&snapshot(node).index(INDEX))).sum()
}

/// Snapshots of containers of all nodes, while programs move money between these and daemons are killed.
#[test]
fn a_snapshot_of_all_nodes_is_of_one_moment() {
    let nodes = Nodes::new("moment", 3);
    nodes.accounts();
    let store = &nodes.stores[1];
    let banks: Vec<Container> = (0..3).map(|node| store.container(&format!("bank {node}")).unwrap()).collect();
    let mut children: Vec<_> = (0..2).map(|node| start_child(&nodes.dir_of(node))).collect();
    let (mut made, mut seen) = (0, std::collections::BTreeSet::new());
    let begin = Instant::now();
    while made < 30 {
        assert!(begin.elapsed() < PATIENCE, "{made} snapshots in a minute");
        let name = format!("s{made}");
        match store.snapshot(&banks, &name) {
            Ok(()) => {
                let total: u64 = total_in(&nodes.stores[made % 3], 3, &name);
                assert_eq!(total, 3 * BALANCE, "snapshot {name}");
                seen.insert(balance(&banks[0].open_snapshot(&name).unwrap().index(INDEX)));
                made += 1;
            }
            // It may have been made, if its answer was lost.
            Err(error) if error.kind() == ErrorKind::Exists => made += 1,
            Err(error) => assert!([ErrorKind::Conflict, ErrorKind::Busy].contains(&error.kind()), "{error}"),
        }
        if made == 15 {
            nodes.kill_daemon(0);
            nodes::begin(&nodes.dir_of(0), Path::new(env!("CARGO_BIN_EXE_crash"))).unwrap();
        }
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    assert!(seen.len() > 5, "the transfers did not go on between snapshots: {seen:?}");
    check_whole(&nodes);
    let known = banks[0].index(INDEX).remembering();
    let now = balance(&known);
    store.roll_back(&banks, "s3").unwrap();
    let then: Vec<u64> = banks.iter().map(|bank| balance(&bank.index(INDEX))).collect();
    assert_eq!(then.iter().sum::<u64>(), 3 * BALANCE);
    assert_eq!(balance(&known), then[0], "{now} before");
    let none = store.roll_back(&banks[..2], "none").unwrap_err();
    assert_eq!(none.kind(), ErrorKind::NotFound);
    assert!(none.to_string().contains("`bank 0`"), "{none}");
    store.delete_snapshot(&banks, "s3").unwrap();
    assert!(banks.iter().all(|bank| bank.open_snapshot("s3").is_err()));
    let twice = store.snapshot(&[&banks[..], &banks[..1]].concat(), "twice").unwrap_err();
    assert_eq!(twice.kind(), ErrorKind::InvalidInput);
}

/// Transactions go on without a lost node, and what it had prepared or decided is settled by the node that takes its home
/// over.
fn go_on_without(node: usize) {
    let mut nodes = Nodes::protected(&format!("lost{node}"), 3, 1);
    nodes.accounts();
    nodes.stores[0].protect(1, PATIENCE).unwrap();
    let mut children: Vec<_> =
        (0..3).filter(|other| *other != node).map(|other| start_child(&nodes.dir_of(other))).collect();
    std::thread::sleep(Duration::from_millis(1500));
    nodes.lose(node);
    let accounts = accounts_of(&nodes.stores[0], 2);
    let count = || balance(&accounts[1]) - BALANCE;
    let (before, begin) = (count(), Instant::now());
    assert!(before > 0, "no transfer before the loss");
    while count() < before + 20 {
        assert!(begin.elapsed() < PATIENCE, "{} transfers within a minute of the loss", count() - before);
        std::thread::sleep(Duration::from_millis(50));
    }
    for child in &mut children {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    check_whole(&nodes);
}

#[test]
fn the_home_that_decides_is_lost() {
    go_on_without(1);
}

#[test]
fn the_home_that_prepares_is_lost() {
    go_on_without(0);
}
