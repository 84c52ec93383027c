//! A home and nodes in a random run: messages that take their time, nodes that stop, connections that end on one side first,
//! daemons of the home that die, clocks of different speeds. At every step, whatever a node may trust is true.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::AtomicU64;

use cenote_model::{ContainerId, DeviceId, Extent, ObjectId, StoreId, Sums, Update};
use cenote_workload::Rng;

use super::*;

const NODES: usize = 3;
const OBJECTS: u64 = 4;
const MS: u64 = 1_000_000;

fn key(object: u64) -> ObjectKey {
    ObjectKey { container: ContainerId(1), object: ObjectId(u128::from(object)) }
}

fn writes(objects: &[u64]) -> Request {
    let extent = || Extent::whole(DeviceId(1), 0, 8, Sums::from_slice(&[1]));
    let write = |object: &u64| Update::Write { key: key(*object), offset: 0, extent: extent() };
    Request::Apply { checks: vec![], updates: objects.iter().map(write).collect(), atomic: false }
}

/// The table of a node.
#[derive(Default)]
struct Seen(Mutex<HashMap<Word, u64>>);

impl Table for Seen {
    fn word_of(&self, hash: u64) -> Word {
        word_of(hash)
    }
    fn set(&self, word: Word, value: Option<u64>) {
        match value {
            Some(value) => lock(&self.0).insert(word, value),
            None => lock(&self.0).remove(&word),
        };
    }
}

enum Up {
    Request(Request),
    Words(WordsMessage),
}

struct Node {
    table: Seen,
    told: Told,
    until_ns: u64,
    /// Its clock runs at so many thousandths of the home's.
    speed: u64,
    stopped_to_ns: u64,
    /// Its end of the connection; the home's may have ended before.
    connection: Option<Holder>,
    up: VecDeque<Up>,
    down: VecDeque<WordsMessage>,
    asked_ns: u64,
}

struct World {
    rng: Rng,
    now_ns: Arc<AtomicU64>,
    control: Arc<SharedControl>,
    words: Words,
    /// The home's ends.
    connections: HashMap<Holder, usize>,
    next: Holder,
    nodes: Vec<Node>,
    applied: u64,
    trusted: u64,
    waited: u64,
    dir: std::path::PathBuf,
}

impl World {
    fn new(seed: u64) -> Self {
        let dir = std::env::temp_dir().join(format!("cenote-words-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let control = Arc::new(SharedControl::new(&dir));
        control.attach(StoreId(u128::from(seed) + 1)).unwrap();
        let now_ns = Arc::new(AtomicU64::new(1));
        let mut rng = Rng::new(seed);
        let mut node = || Node {
            table: Seen::default(),
            told: Told::default(),
            until_ns: 0,
            speed: 950 + rng.below(100),
            stopped_to_ns: 0,
            connection: None,
            up: VecDeque::new(),
            down: VecDeque::new(),
            asked_ns: 0,
        };
        let nodes = (0..NODES).map(|_| node()).collect();
        let words = Words::of(control.clone(), clock(&now_ns));
        let connections = HashMap::new();
        Self { rng, now_ns, control, words, connections, next: 1, nodes, applied: 0, trusted: 0, waited: 0, dir }
    }
    fn now(&self) -> u64 {
        self.now_ns.load(Ordering::SeqCst)
    }
    fn clock_of(&self, node: usize) -> u64 {
        self.now() / 1000 * self.nodes[node].speed
    }
    fn step(&mut self) {
        self.now_ns.fetch_add(self.rng.below(20) * MS, Ordering::SeqCst);
        let node = self.rng.below(NODES as u64) as usize;
        match self.rng.below(1000) {
            0..3 => self.nodes[node].stopped_to_ns = self.now() + self.rng.below(6000) * MS,
            3..6 => self.cut(node),
            6..8 => self.restart(),
            8..200 => self.ask(node),
            200..230 => self.change_here(),
            230..600 => self.deliver_up(node),
            _ => self.deliver_down(node),
        }
        self.words.expire();
        self.go_on();
        self.check();
    }
    /// The connection ends at the home; its node finds that out later.
    fn cut(&mut self, node: usize) {
        let all: Vec<Holder> =
            self.connections.iter().filter(|(_, of)| **of == node).map(|(holder, _)| *holder).collect();
        for holder in all {
            self.connections.remove(&holder);
            self.words.left(holder);
        }
    }
    /// The daemon of the home dies, with what waits there.
    fn restart(&mut self) {
        self.connections.clear();
        self.words = Words::of(self.control.clone(), clock(&self.now_ns));
    }
    fn is_lost(&self, node: usize) -> bool {
        self.nodes[node].connection.is_none_or(|holder| !self.connections.contains_key(&holder))
    }
    /// A node does something, if it is not stopped.
    fn ask(&mut self, node: usize) {
        if self.nodes[node].stopped_to_ns > self.now() {
            return;
        }
        if self.is_lost(node) {
            return self.connect(node);
        }
        let request = match self.rng.below(10) {
            0..6 => Request::Lookup { key: key(self.rng.below(OBJECTS)), offset: 0, len: 8, limit: 1 },
            6..9 => writes(&[self.rng.below(OBJECTS), self.rng.below(OBJECTS)]),
            _ if self.rng.below(4) == 0 => {
                let delete = Update::ContainerDelete { id: ContainerId(1) };
                Request::Apply { checks: vec![], updates: vec![delete], atomic: true }
            }
            _ => Request::Devices,
        };
        let (asked_ns, now) = (self.clock_of(node), self.now());
        let node = &mut self.nodes[node];
        if now.saturating_sub(node.asked_ns) > 250 * MS {
            node.asked_ns = now;
            node.up.push_back(Up::Words(WordsMessage::Trust { asked_ns }));
        }
        node.told.sending(&Changed::by(&request), &node.table);
        node.up.push_back(Up::Request(request));
    }
    fn connect(&mut self, node: usize) {
        let asked_ns = self.clock_of(node);
        let (holder, it) = (self.next, &mut self.nodes[node]);
        it.until_ns = 0;
        it.told.forget(&it.table);
        (it.up, it.down) = (VecDeque::new(), VecDeque::new());
        it.up.push_back(Up::Words(WordsMessage::Trust { asked_ns }));
        it.connection = Some(holder);
        self.cut(node);
        self.next += 1;
        self.connections.insert(holder, node);
        self.words.came(holder, node as u16 + 1);
    }
    fn deliver_up(&mut self, node: usize) {
        if self.is_lost(node) {
            return;
        }
        let (Some(message), Some(holder)) = (self.nodes[node].up.pop_front(), self.nodes[node].connection) else {
            return;
        };
        match message {
            Up::Words(message) => assert!(self.words.take(holder, &message, u64::MAX)),
            Up::Request(request) => self.handle(Some(holder), SessionId(node as u64), request),
        }
        let messages = self.words.messages(holder);
        self.nodes[node].down.extend(messages);
    }
    fn handle(&mut self, from: Option<Holder>, session: SessionId, request: Request) {
        let change = self.words.begin(from, &request);
        if !self.words.may_go(session, &change) {
            self.waited += 1;
            let parked = Parked::request((session, 0), from, request, Box::new(drop), change, None);
            return self.words.put_aside(session, parked);
        }
        self.apply(&request);
        self.words.end(change);
        if let Some(holder) = from {
            self.words.looked(holder, Look::of(&request), None);
        }
    }
    fn change_here(&mut self) {
        let request = writes(&[self.rng.below(OBJECTS)]);
        let session = SessionId(100 + self.rng.below(3));
        self.handle(None, session, request);
    }
    fn apply(&mut self, request: &Request) {
        match Changed::by(request) {
            Changed::Nothing => return,
            Changed::Words(hashes) => hashes.into_iter().for_each(|hash| _ = self.control.word_raise(hash)),
            Changed::Everything => (0..OBJECTS).for_each(|at| _ = self.control.word_raise(key(at).word_hash())),
        }
        self.applied += 1;
    }
    fn go_on(&mut self) {
        while let Some(Next { queue, item, .. }) = self.words.next() {
            if let Item::Request(parked) = item {
                self.apply(&parked.3);
            }
            self.words.went(queue, None);
        }
        for (holder, node) in &self.connections {
            if self.nodes[*node].connection == Some(*holder) {
                let messages = self.words.messages(*holder);
                self.nodes[*node].down.extend(messages);
            }
        }
    }
    fn deliver_down(&mut self, node: usize) {
        let now = self.now();
        let it = &mut self.nodes[node];
        if it.stopped_to_ns > now {
            return;
        }
        match it.down.pop_front() {
            Some(WordsMessage::Trusted { asked_ns, for_ms }) => it.until_ns = asked_ns + u64::from(for_ms) * MS,
            Some(WordsMessage::Told { upto, words }) => it.told.told(upto, &words, &it.table),
            Some(WordsMessage::Revoke { number, words }) => {
                it.told.revoked(&words, &it.table);
                it.up.push_back(Up::Words(WordsMessage::LetGo { number }));
            }
            _ => {}
        }
    }
    /// What any node may trust now is what the home has.
    fn check(&mut self) {
        for node in 0..NODES {
            if self.clock_of(node) >= self.nodes[node].until_ns {
                continue;
            }
            for (word, value) in lock(&self.nodes[node].table.0).iter() {
                assert_eq!(self.control.word(u64::from(*word)), *value, "node {node} trusts an old word {word}");
                self.trusted += 1;
            }
        }
    }
    /// Nobody stops any more: whatever waits is carried out.
    fn settle(&mut self) {
        for _ in 0..2000 {
            self.now_ns.fetch_add(5 * MS, Ordering::SeqCst);
            for node in 0..NODES {
                self.deliver_up(node);
                self.deliver_down(node);
            }
            self.words.expire();
            self.go_on();
            self.check();
        }
        assert_eq!(self.words.waiting.load(Ordering::SeqCst), 0, "something waits for ever");
        for mark in &self.words.marks {
            assert_eq!(mark.load(Ordering::SeqCst) & !WATCHED, 0, "a change has not ended");
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn clock(now_ns: &Arc<AtomicU64>) -> Clock {
    let now_ns = now_ns.clone();
    Box::new(move || now_ns.load(Ordering::SeqCst))
}

#[test]
fn whatever_a_node_may_trust_is_true() {
    let first = std::env::var("CENOTE_WORDS_SEED").ok().and_then(|seed| seed.parse().ok());
    let count = std::env::var("CENOTE_WORDS_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
    let (mut applied, mut trusted, mut waited) = (0, 0, 0);
    for seed in first.unwrap_or(1)..first.unwrap_or(1) + if first.is_some() { 1 } else { count } {
        println!("CENOTE_WORDS_SEED={seed}");
        let mut world = World::new(seed);
        (0..5000).for_each(|_| world.step());
        world.settle();
        (applied, trusted, waited) = (applied + world.applied, trusted + world.trusted, waited + world.waited);
    }
    println!("{applied} changes, of which {waited} requests waited; {trusted} words were trusted");
    assert!(applied > 100 && trusted > 1000 && waited > 10, "the run tests something");
}
