//! Several engines over the devices of one store, in a world in memory, and who carries messages between them.

use std::sync::Arc;

use cenote_device::Control as _;
use cenote_device::mem::{Keep, MemClock, MemControl, MemDevices, MemMetaDir};
use cenote_model::*;
use cenote_store::{Engine, Errand, Outcome, Seams, SessionId, SessionInfo, Tuning};

use super::{index, spec, tuning};

/// See the module.
pub struct Engines {
    meta: MemMetaDir,
    devices: MemDevices,
    pub clock: Arc<MemClock>,
    control: Arc<MemControl>,
    pub all: Vec<Engine>,
    pub session: SessionId,
    nonce: u128,
    seq: u64,
}

impl Engines {
    pub fn new(count: u16) -> Self {
        let mut world = Self {
            meta: MemMetaDir::default(),
            devices: MemDevices::new(16 << 20),
            clock: Arc::default(),
            control: Arc::default(),
            all: Vec::new(),
            session: SessionId(0),
            nonce: 7,
            seq: 0,
        };
        let devices = vec![spec("memory", DeviceKind::SharedMemory, 8 << 20), spec("disk", DeviceKind::File, 16 << 20)];
        let config = StoreConfig { devices, engines: count, ..StoreConfig::default() };
        world.all = Engine::create_all(&world.seams(), StoreId(7), &config, Self::tuning()).unwrap();
        world.attach();
        world
    }
    fn tuning() -> Tuning {
        Tuning { check_checkpoints: true, ..tuning() }
    }
    fn seams(&self) -> Seams {
        Seams {
            meta: Arc::new(self.meta.clone()),
            devices: Arc::new(self.devices.clone()),
            clock: Arc::clone(&self.clock) as _,
            control: Arc::clone(&self.control) as _,
        }
    }
    fn attach(&mut self) {
        let who = SessionInfo { nonce: self.nonce, pid: 1, started: 1, write: true, ..SessionInfo::default() };
        self.session = self.all[0].session_open(who.clone()).unwrap();
        for tenant in &mut self.all[1..] {
            assert_eq!(tenant.session_open_as(self.session, who.clone()).unwrap(), self.session);
        }
    }
    /// The client ends, and another one comes.
    pub fn other_client(&mut self) {
        let session = self.session;
        self.all.iter_mut().for_each(|engine| engine.session_close(session));
        self.nonce += 1;
        self.seq = 0;
        self.attach();
    }
    pub fn open(&mut self) {
        let opened = Engine::open_all(&self.seams(), Self::tuning()).unwrap();
        self.all = opened.into_iter().map(|(engine, _)| engine).collect();
        self.attach();
        self.check();
    }
    /// All engines die, and the next process opens the store.
    pub fn kill(&mut self) {
        self.all.clear();
        self.meta.kill();
        self.devices.kill();
        self.open();
    }
    pub fn power_loss(&mut self, keep: Keep) {
        self.all.clear();
        self.meta.power_loss(keep);
        self.devices.power_loss(keep);
        self.control.power_loss();
        self.nonce += 1;
        self.seq = 0;
        self.open();
    }
    pub fn check(&self) {
        for engine in &self.all {
            assert_eq!(engine.audit(), Vec::<String>::new());
        }
    }
    /// Ticks and runs jobs until there are none.
    pub fn work(&mut self) {
        for engine in &mut self.all {
            engine.tick();
            while let Some(job) = engine.next_job() {
                engine.finish_job(job.run());
            }
        }
    }
    /// The value of a version word.
    pub fn word(&self, hash: u64) -> u64 {
        self.control.word(hash)
    }
    pub fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }
    pub fn ask(&mut self, home: usize, request: Request) -> Response {
        let seq = self.next_seq();
        self.ask_as(home, seq, request)
    }
    pub fn ask_as(&mut self, home: usize, seq: u64, request: Request) -> Response {
        let outcome = self.all[home].handle(self.session, seq, request);
        self.wait(home, outcome)
    }
    fn wait(&mut self, home: usize, outcome: Outcome) -> Response {
        let ticket = match outcome {
            Outcome::Ready(response) => return response,
            Outcome::Wait(ticket) => ticket,
        };
        for _ in 0..1000 {
            if let Some(response) = self.all[home].take_answer(ticket) {
                return response;
            }
            self.clock.advance_ns(20_000_000);
            self.work_but_answers();
        }
        panic!("no answer");
    }
    fn work_but_answers(&mut self) {
        self.work();
        // `take_answer` finds only what was moved to the finished ones.
        for engine in &mut self.all {
            engine.tick();
        }
    }
    /// Carries out the errands of all engines, as long as there are any.
    pub fn errands(&mut self) {
        for _ in 0..10 {
            let mut is_idle = true;
            for home in 0..self.all.len() {
                for errand in self.all[home].errands() {
                    is_idle = false;
                    self.run(home, errand);
                }
            }
            if is_idle {
                return;
            }
        }
        panic!("errands without end");
    }
    fn run(&mut self, home: usize, errand: Errand) {
        let to = usize::from(errand.to().0);
        match errand {
            Errand::Ask(transaction) => {
                let outcome = self.all[to].ask(transaction, &[]);
                let Response::Decided(commits) = self.wait(to, outcome) else { panic!("no answer to a question") };
                let outcome = self.all[home].settle_part(transaction, commits);
                assert_eq!(self.wait(home, outcome), Response::Done);
            }
            Errand::Tell { transaction, participant, commits } => {
                let outcome = self.all[to].settle_part(transaction, commits);
                assert_eq!(self.wait(to, outcome), Response::Done);
                let outcome = self.all[home].forget(transaction, participant);
                assert_eq!(self.wait(home, outcome), Response::Done);
            }
        }
    }
    /// A container of one engine, with an index.
    pub fn container(&mut self, home: usize, label: &str, durability: Durability) -> IndexKey {
        let spec = ContainerSpec { durability, ..ContainerSpec::default() };
        let create = Update::ContainerCreate { id: ContainerId(0), label: label.into(), spec };
        let Response::Applied { created: Some(id), .. } = self.ask(home, apply(vec![create])) else { panic!() };
        self.must(home, vec![Update::IndexCreate { key: index(id, 1) }]);
        index(id, 1)
    }
    pub fn must(&mut self, home: usize, updates: Vec<Update>) {
        let answer = self.ask(home, apply(updates));
        assert!(matches!(answer, Response::Applied { .. }), "{answer:?}");
    }
    pub fn get(&mut self, home: usize, index: IndexKey, key: &[u8]) -> Result<Option<Vec<u8>>> {
        match self.ask(home, Request::Get { index, keys: vec![key.to_vec()] }) {
            Response::Values(mut values) => Ok(values.pop().flatten().map(|(value, _)| value)),
            Response::Failed(error) => Err(error),
            other => panic!("{other:?}"),
        }
    }
    pub fn checkpoint(&mut self) {
        for home in 0..self.all.len() {
            assert_eq!(self.ask(home, Request::Checkpoint), Response::Done);
        }
    }
}

pub fn apply(updates: Vec<Update>) -> Request {
    Request::Apply { checks: Vec::new(), updates, atomic: true }
}
pub fn put(index: IndexKey, key: &[u8], value: &[u8]) -> Update {
    Update::Put { index, key: key.to_vec(), value: value.to_vec(), only_new: false }
}

pub const FIRST: usize = 0;
pub const LAST: usize = 1;

/// Two engines with a container each, in which `k` is `old`.
pub struct Scene {
    pub world: Engines,
    pub at: [IndexKey; 2],
    pub transaction: TransactionId,
    pub seqs: [u64; 2],
}

impl Scene {
    pub fn new(durability: Durability) -> Self {
        let mut world = Engines::new(2);
        let at = [world.container(FIRST, "a", durability), world.container(LAST, "b", durability)];
        for (home, index) in at.into_iter().enumerate() {
            world.must(home, vec![put(index, b"k", b"old")]);
        }
        let seqs = [world.next_seq(), world.next_seq()];
        let transaction = TransactionId { home: HomeId(LAST as u16), session: world.session.0, number: 1 };
        Self { world, at, transaction, seqs }
    }
    /// Has the first one prepare that `k` becomes `new`.
    pub fn prepare(&mut self) -> Response {
        self.prepare_with(put(self.at[FIRST], b"k", b"new"))
    }
    pub fn prepare_with(&mut self, update: Update) -> Response {
        let request = Request::Prepare { transaction: self.transaction, checks: Vec::new(), updates: vec![update] };
        self.world.ask_as(FIRST, self.seqs[0], request)
    }
    /// Has the last one decide that it does.
    pub fn decide(&mut self) -> Response {
        self.decide_with(put(self.at[LAST], b"k", b"new"))
    }
    pub fn decide_with(&mut self, update: Update) -> Response {
        let (transaction, participants) = (self.transaction, vec![HomeId(FIRST as u16)]);
        let decision = Box::new(Decision { transaction, participants, is_sync: true });
        let request = Request::Decide { decision, checks: Vec::new(), updates: vec![update] };
        self.world.ask_as(LAST, self.seqs[1], request)
    }
    pub fn settle(&mut self, commits: bool) -> Response {
        self.world.ask(FIRST, Request::Settle { transaction: self.transaction, commits })
    }
    pub fn forget(&mut self) -> Response {
        let participant = HomeId(FIRST as u16);
        self.world.ask(LAST, Request::Forget { transaction: self.transaction, participant })
    }
    /// What both homes have.
    pub fn values(&mut self) -> [String; 2] {
        [FIRST, LAST].map(|home| {
            let value = self.world.get(home, self.at[home], b"k").unwrap().unwrap();
            String::from_utf8(value).unwrap()
        })
    }
    pub fn wait_and_resolve(&mut self) {
        self.world.clock.advance_ns(6_000_000_000);
        self.world.errands();
    }
}
