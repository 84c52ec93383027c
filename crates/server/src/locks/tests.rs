//! A home with a resident, nodes whose processes lock in pretended kernels, connections that end, daemons that die, a home
//! that is taken over, and nodes that are excluded: at each step no two processes hold locks that exclude each other.
//! `CENOTE_SEED` replays a run.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cenote_model::{HomeId, LockAnswer, LockHow, LockMode, LockSet, LockSpace, LockWish};
use cenote_wire::{LockTokens, NodeLock};

use super::{Agent, Arbiter, Files, Probe};

const HOME: HomeId = HomeId(1);
const NODES: u16 = 4;
const FILES: u64 = 2;
const BYTES: u64 = 8;
const PROCESSES: usize = 3;

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn wish(&mut self) -> LockWish {
        let mode = if self.below(2) == 0 { LockMode::Shared } else { LockMode::Exclusive };
        if self.below(3) == 0 {
            return LockWish::whole(mode);
        }
        let first = self.below(BYTES);
        LockWish { space: LockSpace::Ranges, first, last: first + self.below(BYTES - first), mode }
    }
}

/// What outlives the daemon of a node: its files, and its processes with their locks.
#[derive(Default)]
struct Machine {
    saved: BTreeMap<u64, LockTokens>,
    interest: u64,
    last: u64,
    /// The locks of each process, in each file, and the number under which it got them.
    held: Vec<BTreeMap<u64, (LockSet, u64)>>,
}

impl Files for Machine {
    fn save(&mut self, file: u64, tokens: &LockTokens) -> bool {
        self.saved.insert(file, tokens.clone());
        true
    }
    fn remove(&mut self, file: u64) {
        self.saved.remove(&file);
    }
    fn probe(&mut self, file: u64, wish: &LockWish) -> Probe {
        let sets = self.held.iter().filter_map(|of| of.get(&file));
        sets.filter_map(|(set, _)| set.conflict(wish)).map(|lock| Probe::Held(7, lock)).next().unwrap_or(Probe::Free)
    }
    fn interest(&mut self, files: u64) {
        self.interest = files;
    }
    fn fresh(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// A node; node 1 has the home at first.
struct Node {
    agent: Agent,
    machine: Machine,
    /// Questions of processes, and the locks that they want.
    asked: Vec<(usize, u64, LockWish, u64)>,
    is_up: bool,
    admitted: u64,
}

struct World {
    nodes: BTreeMap<u16, Node>,
    arbiter: Arbiter,
    resident: Option<u16>,
    to_home: BTreeMap<u16, VecDeque<NodeLock>>,
    to_node: BTreeMap<u16, VecDeque<NodeLock>>,
    admitted: BTreeMap<u16, u64>,
    view: u64,
    grants: u64,
    /// Nodes that were away for a whole grace, and do not know yet that what they had is gone.
    late: BTreeSet<u16>,
}

impl World {
    fn new() -> Self {
        let admitted: BTreeMap<u16, u64> = (1..=NODES).map(|node| (node, 1)).collect();
        let mut arbiter = Arbiter::new(Some(1), BTreeSet::new());
        arbiter.note_admitted(admitted.clone());
        let node = |number: u16| {
            let mut machine = Machine { held: vec![BTreeMap::new(); PROCESSES], ..Machine::default() };
            let own = if number == 1 { HOME } else { HomeId(number) };
            let mut agent = Agent::new(number, own, Vec::new(), &mut machine);
            agent.set_admitted(1, &mut machine);
            (number, Node { agent, machine, asked: Vec::new(), is_up: false, admitted: 1 })
        };
        let (to_home, to_node) = Default::default();
        let nodes = (1..=NODES).map(node).collect();
        Self {
            nodes,
            arbiter,
            resident: Some(1),
            to_home,
            to_node,
            admitted,
            view: 1,
            grants: 0,
            late: BTreeSet::new(),
        }
    }
    fn is_own(&self, number: u16) -> bool {
        self.resident == Some(number)
    }
    /// Puts what agents and the arbiter say on its way. Messages of the home's own node are there at once.
    fn post(&mut self) {
        loop {
            let mut is_done = true;
            for (number, node) in &mut self.nodes {
                for (home, message) in node.agent.take_out() {
                    assert_eq!(home, HOME);
                    is_done = false;
                    if self.resident == Some(*number) {
                        self.arbiter.take(*number, message);
                    } else if node.is_up {
                        self.to_home.entry(*number).or_default().push_back(message);
                    }
                }
            }
            for (number, message) in self.arbiter.take_out() {
                is_done = false;
                let Some(node) = self.nodes.get_mut(&number) else { continue };
                if self.resident == Some(number) {
                    node.agent.take(HOME, message, &mut node.machine);
                } else if node.is_up {
                    self.to_node.entry(number).or_default().push_back(message);
                }
            }
            if is_done {
                return;
            }
        }
    }
    fn connect(&mut self, number: u16) {
        if let Some(node) = self.nodes.get_mut(&number).filter(|node| !node.is_up && node.admitted != 0) {
            node.is_up = true;
            node.agent.reclaim(HOME);
        }
    }
    fn cut(&mut self, number: u16) {
        if self.is_own(number) {
            return;
        }
        if let Some(node) = self.nodes.get_mut(&number) {
            node.is_up = false;
        }
        self.to_home.remove(&number);
        self.to_node.remove(&number);
        self.arbiter.gone(number);
    }
    /// Delivers one message of a connection.
    fn deliver(&mut self, number: u16, to_home: bool) {
        if to_home {
            if let Some(message) = self.to_home.get_mut(&number).and_then(VecDeque::pop_front) {
                self.arbiter.take(number, message);
            }
        } else if let Some(message) = self.to_node.get_mut(&number).and_then(VecDeque::pop_front)
            && let Some(node) = self.nodes.get_mut(&number)
        {
            node.agent.take(HOME, message, &mut node.machine);
        }
    }
    /// What a process does: it locks in its kernel if the node has the lock, as it reads, and asks if it has not.
    fn lock(&mut self, number: u16, process: usize, file: u64, wish: LockWish, how: LockHow) {
        let (is_own, in_grace) = (self.is_own(number), self.arbiter.is_in_grace());
        let Some(node) = self.nodes.get_mut(&number).filter(|node| node.admitted != 0) else { return };
        let tokens = node.machine.saved.get(&file);
        let is_quiet = is_own && node.machine.interest == 0 && !in_grace;
        let covers = tokens.map_or(is_own && !in_grace, |tokens| tokens.has.covers(&wish) && !(is_own && in_grace));
        if is_quiet {
            assert!(covers, "no file says otherwise");
        }
        let era = if is_own { 0 } else { tokens.map_or(0, |tokens| tokens.era) };
        if node.machine.held[process].get(&file).is_some_and(|(_, its)| *its != era) {
            node.machine.held[process].remove(&file); // it is told that its locks are gone
        }
        if !covers {
            match node.agent.ask(HOME, file, wish, how, is_own && in_grace) {
                Err(question) => node.asked.push((process, file, wish, question)),
                Ok(LockAnswer::Granted) => node.agent.kept(file),
                Ok(_) => {}
            }
            return;
        }
        let others = node.machine.held.iter().enumerate().filter(|(other, _)| *other != process);
        let is_free = others.filter_map(|(_, of)| of.get(&file)).all(|(set, _)| set.conflict(&wish).is_none());
        if is_free {
            let (set, its) = node.machine.held[process].entry(file).or_default();
            set.of_mut(wish.space).set(wish.first, wish.last, Some(wish.mode));
            *its = era;
            self.grants += 1;
        }
    }
    fn unlock(&mut self, number: u16, process: usize, file: u64, wish: LockWish) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        if let Some((set, _)) = node.machine.held[process].get_mut(&file) {
            set.of_mut(wish.space).set(wish.first, wish.last, None);
            if set.is_empty() {
                node.machine.held[process].remove(&file);
            }
        }
    }
    /// Processes whose questions are answered try again.
    fn answers(&mut self) {
        for number in 1..=NODES {
            let Some(node) = self.nodes.get_mut(&number) else { continue };
            let mut again = Vec::new();
            let agent = &mut node.agent;
            node.asked.retain(|(process, file, wish, question)| match agent.answer(*question) {
                None => true,
                Some(answer) => {
                    if answer == Some(LockAnswer::Granted) {
                        again.push((*process, *file, *wish));
                    }
                    false
                }
            });
            for (process, file, wish) in again {
                self.lock(number, process, file, wish, LockHow::Try);
                if let Some(node) = self.nodes.get_mut(&number) {
                    node.agent.kept(file);
                }
            }
        }
    }
    /// The daemon of a node dies and comes back: what its machine has stays.
    fn restart(&mut self, number: u16) {
        self.cut(number);
        let own = if self.is_own(number) { HOME } else { HomeId(number + 100) };
        let admitted = self.admitted.get(&number).copied().unwrap_or(0);
        let Some(node) = self.nodes.get_mut(&number) else { return };
        let kept = node.machine.saved.clone().into_iter().collect();
        node.agent = Agent::new(number, own, kept, &mut node.machine);
        node.agent.set_admitted(admitted, &mut node.machine);
        node.asked.clear();
        if self.is_own(number) {
            let awaited = self.arbiter.others();
            self.new_arbiter(awaited);
            let Some(node) = self.nodes.get_mut(&number) else { return };
            node.agent.reclaim(HOME);
        }
    }
    fn new_arbiter(&mut self, awaited: BTreeSet<u16>) {
        (1..=NODES).for_each(|number| self.cut(number));
        self.arbiter = Arbiter::new(self.resident, awaited);
        self.arbiter.note_admitted(self.admitted.clone());
    }
    /// A node is excluded: it knows it before its locks end.
    fn exclude(&mut self, number: u16) {
        if self.admitted.remove(&number).is_none() {
            return;
        }
        self.view += 1;
        self.cut(number);
        if let Some(node) = self.nodes.get_mut(&number) {
            node.admitted = 0;
            node.agent.set_admitted(0, &mut node.machine);
            node.machine.held.iter_mut().for_each(BTreeMap::clear); // each call says so from now on
        }
        if self.is_own(number) {
            // Another node takes the home over.
            self.resident = None;
            let awaited = self.admitted.keys().copied().collect();
            self.new_arbiter(awaited);
            return;
        }
        self.arbiter.note_admitted(self.admitted.clone()).into_iter().for_each(|gone| self.arbiter.end(gone));
    }
    fn readmit(&mut self, number: u16) {
        if self.admitted.contains_key(&number) {
            return;
        }
        self.view += 1;
        self.admitted.insert(number, self.view);
        self.arbiter.note_admitted(self.admitted.clone()).into_iter().for_each(|gone| self.arbiter.end(gone));
        if let Some(node) = self.nodes.get_mut(&number) {
            node.admitted = self.view;
        }
        self.restart(number);
    }
    /// No two processes hold locks that exclude each other, and each lock is one that its node has.
    fn check(&self) {
        let mut all: Vec<(u16, usize, u64, LockWish)> = Vec::new();
        for (number, node) in self.nodes.iter().filter(|(number, _)| !self.late.contains(number)) {
            for (process, of) in node.machine.held.iter().enumerate() {
                for (file, (set, era)) in of {
                    let tokens = node.machine.saved.get(file);
                    if !self.is_own(*number) && tokens.is_none_or(|tokens| tokens.era != *era) {
                        continue; // it is gone, and the process is told
                    }
                    all.extend(set.locks().map(|lock| (*number, process, *file, lock)));
                }
            }
        }
        for (at, (node, process, file, lock)) in all.iter().enumerate() {
            for (other, its, of, wish) in &all[at + 1..] {
                let same = (node, process) == (other, its);
                let mut set = LockSet::default();
                set.raise(lock);
                let excludes = !same && file == of && set.conflict(wish).is_some();
                assert!(!excludes, "node {node} process {process} and node {other} process {its}: {lock:?} {wish:?}");
            }
        }
        let nodes = 1..=NODES;
        for file in 0..FILES {
            for (one, other) in nodes.clone().flat_map(|one| (one + 1..=NODES).map(move |other| (one, other))) {
                let [a, b] = [one, other].map(|node| self.arbiter.has(node, file));
                if !self.arbiter.is_in_grace() {
                    assert!(a.locks().all(|lock| b.conflict(&lock).is_none()), "{one} {other}: {a:?} {b:?}");
                }
            }
        }
    }
    fn step(&mut self, random: &mut Random) {
        let number = 1 + random.below(u64::from(NODES)) as u16;
        let (process, file) = (random.below(PROCESSES as u64) as usize, random.below(FILES));
        let wish = random.wish();
        match random.below(1000) {
            0..250 => {
                let how = [LockHow::Try, LockHow::Wait, LockHow::Test][random.below(3) as usize];
                self.lock(number, process, file, wish, how);
            }
            250..400 => self.unlock(number, process, file, wish),
            400..800 => self.deliver(number, random.below(2) == 0),
            800..900 => self.connect(number),
            900..940 => {
                let Some(node) = self.nodes.get_mut(&number) else { return };
                node.agent.look(&mut node.machine);
                if random.below(4) == 0 {
                    node.agent.end_round(&mut node.machine);
                }
            }
            940..960 => self.arbiter.retry_all(),
            960..970 => self.cut(number),
            970..975 => self.restart(number),
            975..978 => self.exclude(number),
            978..985 => self.readmit(number),
            985..990 => {
                // A process is killed.
                let Some(node) = self.nodes.get_mut(&number) else { return };
                node.machine.held[process].clear();
            }
            990..994 => {
                let Some(node) = self.nodes.get_mut(&number) else { return };
                if let Some((_, _, _, question)) = node.asked.pop() {
                    node.agent.cancel(question);
                }
            }
            994 => self.end_grace(),
            _ => {}
        }
        self.post();
        self.answers();
        self.post();
        self.note_told();
    }
    /// The time is over in which nodes may claim what they had.
    fn end_grace(&mut self) {
        self.late.extend(self.arbiter.awaited());
        self.arbiter.end_grace();
    }
    /// Nodes that have heard the answer to their claims know what is gone.
    fn note_told(&mut self) {
        let is_empty = |queues: &BTreeMap<u16, VecDeque<NodeLock>>, number: u16| {
            queues.get(&number).is_none_or(VecDeque::is_empty)
        };
        let (to_home, to_node) = (&self.to_home, &self.to_node);
        self.late.retain(|number| {
            let is_up = self.nodes.get(number).is_some_and(|node| node.is_up);
            !is_up || !is_empty(to_home, *number) || !is_empty(to_node, *number)
        });
    }
    /// Delivers everything until nothing happens any more.
    fn calm(&mut self) {
        for number in 1..=NODES {
            self.readmit(number);
        }
        for _ in 0..20 {
            for number in 1..=NODES {
                self.connect(number);
                self.post();
                for _ in 0..20 {
                    self.deliver(number, true);
                    self.post();
                    self.deliver(number, false);
                    self.post();
                }
                let Some(node) = self.nodes.get_mut(&number) else { continue };
                node.agent.look(&mut node.machine);
            }
            self.arbiter.retry_all();
            self.post();
            self.answers();
            self.post();
        }
        assert!(!self.arbiter.is_in_grace(), "all nodes have claimed what they had");
        self.note_told();
    }
    fn unlock_all(&mut self) {
        self.nodes.values_mut().for_each(|node| node.machine.held.iter_mut().for_each(BTreeMap::clear));
    }
    /// Whoever gets a lock lets it go: so all who wait get theirs.
    fn serve_all(&mut self) {
        for _ in 0..1_000 {
            if self.nodes.values().all(|node| node.asked.is_empty()) {
                return;
            }
            self.unlock_all();
            self.calm();
            self.check();
        }
        let waiting: Vec<_> = self.nodes.iter().map(|(number, node)| (number, &node.asked)).collect();
        panic!("some wait for ever: {waiting:?}");
    }
}

#[test]
fn no_two_processes_hold_what_excludes_the_other() {
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
    });
    println!("CENOTE_SEED={seed}");
    let mut random = Random(seed);
    let mut grants = 0;
    for _ in 0..60 {
        let mut world = World::new();
        for _ in 0..3_000 {
            world.step(&mut random);
            world.check();
        }
        grants += world.grants;
        // Once all take part and processes have let go, everybody who waits gets what they want, and any node everything.
        world.calm();
        world.serve_all();
        for number in 1..=NODES {
            world.unlock_all();
            let all = LockWish { space: LockSpace::Ranges, first: 0, last: BYTES, mode: LockMode::Exclusive };
            let before = world.grants;
            world.lock(number, 0, 0, all, LockHow::Wait);
            world.post();
            world.calm();
            let held = &world.nodes[&number].machine.held[0];
            assert!(
                held.get(&0).is_some_and(|(set, _)| set.covers(&all)),
                "node {number}, {} grants",
                world.grants - before
            );
            world.check();
        }
    }
    assert!(grants > 3_000, "{grants}");
}

#[test]
fn who_claims_too_late_or_what_another_has_is_told_that_it_is_gone() {
    let mut arbiter = Arbiter::new(None, BTreeSet::from([1, 2, 3]));
    arbiter.note_admitted((1..=3).map(|node| (node, 1)).collect());
    let mut mine = LockSet::default();
    mine.raise(&LockWish::whole(LockMode::Exclusive));
    let claim = |admitted| NodeLock::Reclaim { admitted, locks: vec![(7, mine.clone())] };
    arbiter.take(1, claim(1));
    assert_eq!(arbiter.take_out(), []);
    arbiter.take(2, claim(1));
    assert_eq!(arbiter.take_out(), [(2, NodeLock::Lost { files: vec![7] })]);
    let wish = LockWish::whole(LockMode::Shared);
    arbiter.take(2, NodeLock::Want { number: 5, file: 8, wish, how: LockHow::Try });
    assert!(arbiter.is_in_grace() && arbiter.take_out().is_empty(), "node 3 may have it");
    arbiter.take(3, NodeLock::Reclaim { admitted: 1, locks: vec![] });
    assert_eq!(arbiter.take_out(), [(2, NodeLock::Granted { number: 5 })]);
    // After an exclusion that it does not know of.
    arbiter.note_admitted(BTreeMap::from([(1, 9), (2, 1), (3, 1)]));
    arbiter.take(1, claim(1));
    assert_eq!(arbiter.take_out(), [(1, NodeLock::Lost { files: vec![7] })]);
    assert!(arbiter.has(1, 7).is_empty());
}
