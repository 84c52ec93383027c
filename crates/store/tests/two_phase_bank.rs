//! Random transfers between accounts of several engines, with deaths of engines and clients at any time: no transfer is
//! carried out in part, none that was answered is lost, and the total stays, in snapshots of all engines too.
//! `CENOTE_SEED=N` repeats one run.

mod world;

use std::collections::{BTreeMap, BTreeSet};

use cenote_model::*;
use world::Rng;
use world::engines::{Engines, put};

const ACCOUNTS: u64 = 3;
const BALANCE: u64 = 100_000;

/// A transfer, or a snapshot of all banks, that is under way.
struct Transfer {
    transaction: TransactionId,
    /// In their order.
    homes: Vec<usize>,
    /// Parts that are prepared.
    done: usize,
    seqs: Vec<u64>,
    requests: Vec<Request>,
}

struct Bank {
    world: Engines,
    rng: Rng,
    at: Vec<IndexKey>,
    open: Vec<Transfer>,
    next: u64,
    /// The homes of each transfer and snapshot, and whether it was answered.
    known: BTreeMap<u64, (Vec<usize>, bool)>,
    snapshots: BTreeSet<u64>,
    carried_out: u64,
}

fn account(n: u64) -> Vec<u8> {
    format!("account {n}").into_bytes()
}
fn mark(n: u64) -> Vec<u8> {
    format!("transfer {n}").into_bytes()
}
fn snapshot(n: u64) -> String {
    format!("snapshot {n}")
}
fn number(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

impl Bank {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed);
        let engines = 2 + rng.below(2) as u16;
        let mut world = Engines::new(engines);
        let mut at = Vec::new();
        for home in 0..usize::from(engines) {
            let durability = if rng.below(2) == 0 { Durability::Sync } else { Durability::Async };
            let index = world.container(home, &format!("bank {home}"), durability);
            for n in 0..ACCOUNTS {
                world.must(home, vec![put(index, &account(n), &BALANCE.to_le_bytes())]);
            }
            at.push(index);
        }
        Self {
            world,
            rng,
            at,
            open: Vec::new(),
            next: 1,
            known: BTreeMap::new(),
            snapshots: BTreeSet::new(),
            carried_out: 0,
        }
    }
    /// Begins a transfer, if what it reads is not held.
    fn begin(&mut self) {
        let mut homes: Vec<usize> = (0..self.at.len()).collect();
        if homes.len() > 2 && self.rng.below(2) == 0 {
            homes.remove(self.rng.below(3) as usize);
        }
        let amount = self.rng.below(41) as i64 - 20;
        let last = homes.len() as i64 - 1;
        let change = |at: usize| if at == 0 { -amount * last } else { amount };
        let parts: Vec<_> =
            homes.iter().enumerate().map(|(at, home)| (*home, self.rng.below(ACCOUNTS), change(at))).collect();
        let id = self.next;
        let mut both = Vec::new();
        for (home, of, change) in &parts {
            let (index, key) = (self.at[*home], account(*of));
            let Ok(Some(value)) = self.world.get(*home, index, &key) else { return };
            let after = number(&value).checked_add_signed(*change).expect("no account is that poor");
            let checks = vec![Check::Value { index, key: key.clone(), value: Some(value) }];
            both.push((checks, vec![put(index, &key, &after.to_le_bytes()), put(index, &mark(id), b"")]));
        }
        self.begin_with(homes, both);
    }
    /// Begins a snapshot of all banks.
    fn begin_snapshot(&mut self) {
        let name = snapshot(self.next);
        self.snapshots.insert(self.next);
        let make = |index: &IndexKey| {
            let (of, name) = (index.container, name.clone());
            (Vec::new(), vec![Update::SnapshotCreate { of, id: ContainerId(0), name, replace: false, unix_ms: 0 }])
        };
        self.begin_with((0..self.at.len()).collect(), self.at.iter().map(make).collect());
    }
    fn begin_with(&mut self, homes: Vec<usize>, both: Vec<(Vec<Check>, Vec<Update>)>) {
        let id = self.next;
        self.next += 1;
        let mut requests = Vec::new();
        let decider = HomeId(homes[homes.len() - 1] as u16);
        let transaction = TransactionId { home: decider, session: self.world.session.0, number: id };
        let participants: Vec<HomeId> = homes[..homes.len() - 1].iter().map(|home| HomeId(*home as u16)).collect();
        for (at, (checks, updates)) in both.into_iter().enumerate() {
            requests.push(if at + 1 < homes.len() {
                Request::Prepare { transaction, checks, updates }
            } else {
                let participants = participants.clone();
                let decision = Box::new(Decision { transaction, participants, is_sync: self.rng.below(2) == 0 });
                Request::Decide { decision, checks, updates }
            });
        }
        let seqs = requests.iter().map(|_| self.world.next_seq()).collect();
        self.known.insert(id, (homes.clone(), false));
        self.open.push(Transfer { transaction, homes, done: 0, seqs, requests });
    }
    /// The next step of one that is under way; now and then a step is repeated.
    fn step(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let at = self.rng.below(self.open.len() as u64) as usize;
        let transfer = &self.open[at];
        let step = if transfer.done > 0 && self.rng.below(8) == 0 { transfer.done - 1 } else { transfer.done };
        let home = transfer.homes[step];
        match self.world.ask_as(home, transfer.seqs[step], transfer.requests[step].clone()) {
            Response::Prepared { .. } => self.open[at].done = self.open[at].done.max(step + 1),
            Response::Applied { .. } => {
                self.known.get_mut(&transfer.transaction.number).expect("it was begun").1 = true;
                self.carried_out += 1;
                self.open.swap_remove(at);
            }
            Response::Failed(error) => {
                let kinds = [ErrorKind::Busy, ErrorKind::Conflict];
                assert!(kinds.contains(&error.kind()), "{error}");
                self.give_up(at);
            }
            other => panic!("{other:?}"),
        }
    }
    fn give_up(&mut self, at: usize) {
        let transfer = self.open.swap_remove(at);
        if self.rng.below(3) > 0 {
            let prepared = &transfer.homes[..transfer.done.min(transfer.homes.len() - 1)];
            let tell = prepared.iter().map(|home| HomeId(*home as u16)).collect();
            let decider = usize::from(transfer.transaction.home.0);
            let answer = self.world.ask(decider, Request::Ask { transaction: transfer.transaction, tell });
            assert_eq!(answer, Response::Decided(false));
        } // else the participants ask
    }
    fn turn(&mut self) {
        match self.rng.below(40) {
            0 => self.world.kill(),
            1 => self.world.checkpoint(),
            2 => {
                self.world.other_client();
                self.open.clear();
            }
            3..=6 => self.world.errands(),
            7 => {
                self.world.clock.advance_ns(self.rng.below(7_000_000_000));
                self.world.work();
            }
            8..=17 if self.open.len() < 4 => self.begin(),
            18 | 19 if self.open.len() < 4 => self.begin_snapshot(),
            _ => self.step(),
        }
    }
    fn end(&mut self) {
        self.open.clear();
        self.world.other_client();
        self.world.clock.advance_ns(6_000_000_000);
        self.world.errands();
        self.world.kill();
        self.world.check();
        self.check_total(&self.at.clone(), "the total");
        for (id, (homes, answered)) in self.known.clone() {
            let is_snapshot = self.snapshots.contains(&id);
            let made: Vec<Option<IndexKey>> = homes
                .iter()
                .map(|home| if is_snapshot { self.made(*home, id) } else { self.marked(*home, id) })
                .collect();
            let there: Vec<bool> = made.iter().map(Option::is_some).collect();
            assert!(there.iter().all(|it| *it == there[0]), "transaction {id} was carried out in part: {there:?}");
            assert!(there[0] || !answered, "transaction {id} was answered, and is lost");
            if is_snapshot && there[0] {
                let at: Vec<IndexKey> = made.into_iter().flatten().collect();
                self.check_total(&at, &format!("the total in snapshot {id}"));
            }
        }
    }
    fn check_total(&mut self, at: &[IndexKey], what: &str) {
        let mut total = 0;
        for (home, index) in at.iter().enumerate() {
            for n in 0..ACCOUNTS {
                total += number(&self.world.get(home, *index, &account(n)).unwrap().unwrap());
            }
        }
        assert_eq!(total, BALANCE * ACCOUNTS * self.at.len() as u64, "{what}");
    }
    /// The index of a bank, if it has the mark of a transfer.
    fn marked(&mut self, home: usize, id: u64) -> Option<IndexKey> {
        let index = self.at[home];
        self.world.get(home, index, &mark(id)).unwrap().map(|_| index)
    }
    /// The same index in a snapshot, if there is one.
    fn made(&mut self, home: usize, id: u64) -> Option<IndexKey> {
        let (container, name) = (self.at[home].container, snapshot(id));
        match self.world.ask(home, Request::SnapshotByName { container, name, pin: false }) {
            Response::Snapshots(found) => Some(IndexKey { container: found[0].id, ..self.at[home] }),
            Response::Failed(error) if error.kind() == ErrorKind::NotFound => None,
            other => panic!("{other:?}"),
        }
    }
}

fn run(seed: u64) -> u64 {
    println!("CENOTE_SEED={seed}");
    let mut bank = Bank::new(seed);
    for _ in 0..400 {
        bank.turn();
    }
    bank.end();
    bank.carried_out
}

#[test]
fn money_is_neither_made_nor_lost() {
    if let Some(seed) = std::env::var("CENOTE_SEED").ok().and_then(|seed| seed.parse().ok()) {
        run(seed);
        return;
    }
    let carried_out: u64 = (1..=30).map(run).sum();
    assert!(carried_out > 300, "only {carried_out} transfers were carried out: the test tests little");
}
