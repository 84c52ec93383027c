//! Changes sent ahead of their outcome, while this process is a file's only writer.
//!
//! A message that is waited for costs as much as all else that makes a small dataset. So who opens a file for writing puts
//! its name into a record (*launching*); while no other name is there, metadata and small data are launched, dozens in
//! one message, on the premise that the record stays as it is. A second writer *knocks* (sets another record): the first
//! sees that at its next change, settles what it has launched, and lets the other in; from then on every change of both is
//! awaited, as conflicts are possible. A first writer that makes no change has nothing under way: after a while the other
//! lets itself in.
//!
//! A launched change that fails is told by the file's next change, flush or close. This room must not know what is changed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind, Index, IndexVersion, Object, Op, Premise, Store, Transaction};
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard};

use crate::Result;
use crate::meta::bytes::{Reader, Writer};

use super::random_u64;

/// The record with the writers' names, beside the superblock record.
const WRITERS_KEY: &[u8] = b"launching";
/// The name of who wants to be let in.
const KNOCK_KEY: &[u8] = b"knock";
const VERSION: u8 = 1;
/// Whatever a writer launched has arrived when it did nothing for so long.
const KNOCKING: Duration = Duration::from_millis(100);
/// Between two looks whether somebody opens.
const LOOK_EVERY: Duration = Duration::from_micros(300);
/// Tries at the record before others who keep changing it are an error.
const TRIES: u32 = 1_000;
/// Changes with more bytes are awaited: an error should come early, and the message costs little beside them.
pub const LAUNCHED_BYTES_MAX: u64 = 64 << 10;

/// A process that writes the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Name {
    id: u64,
    pid: u32,
    /// Start of the process in clock ticks since boot: tells it from a later one with the same number.
    started: u64,
}

impl Name {
    fn own() -> Result<Self> {
        let pid = std::process::id();
        Ok(Self { id: random_u64()?, pid, started: started(pid).unwrap_or(0) })
    }
    fn encode(&self, w: &mut Writer) {
        w.u64(self.id);
        w.u64(u64::from(self.pid));
        w.u64(self.started);
    }
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        Ok(Self { id: r.u64()?, pid: r.u64()? as u32, started: r.u64()? })
    }
    /// Names of dead processes are cleared away by the next writer.
    fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }
}

/// Start of a process (`proc(5)`, field 22 of `stat`); none if there is no such process.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// The record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Writers {
    /// The one name launches its changes.
    is_sole: bool,
    names: Vec<Name>,
}

impl Writers {
    fn sole(name: Name) -> Self {
        Self { is_sole: true, names: vec![name] }
    }
    fn encode(&self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u8(u8::from(self.is_sole));
        for name in &self.names {
            name.encode(&mut w);
        }
        w.0
    }
    fn decode(record: Option<&[u8]>) -> Result<Self> {
        let Some(record) = record else { return Ok(Self::default()) };
        let mut r = Reader::new("record of an HDF5 file's writers", record);
        if r.u8()? != VERSION {
            return Err(Error::new(ErrorKind::VersionMismatch, "record of an HDF5 file's writers")
                .because("a newer connector writes the file")
                .try_next("use that one here too"));
        }
        let mut writers = Self { is_sole: r.u8()? != 0, names: Vec::new() };
        while !r.is_empty() {
            writers.names.push(Name::decode(&mut r)?);
        }
        Ok(writers)
    }
}

fn knocking(record: &[u8]) -> Option<Name> {
    Name::decode(&mut Reader::new("record of who knocks", record)).ok()
}

/// For [`crate::fuzz`].
pub(crate) fn fuzz(record: &[u8]) {
    if let Ok(writers) = Writers::decode(Some(record)) {
        assert_eq!(Writers::decode(Some(&writers.encode())).ok(), Some(writers));
    }
}

/// What a process knows of a file that it writes. One for each file, however often it is open.
pub struct Ahead {
    store: Store,
    /// The index with the record.
    supers: Index,
    /// The metadata.
    meta: Index,
    state: Mutex<State>,
    /// Others are going to write it too, in any case.
    is_shared: AtomicBool,
    /// Held from a change's first look to its launch: what it read must be what it changes.
    turn: ReentrantMutex<()>,
}

#[derive(Default)]
struct State {
    registered: Option<Registered>,
    launched: VecDeque<Op>,
    /// The process that launched them: a child that was forked meanwhile has nothing to settle.
    launched_by: u32,
}

struct Registered {
    name: Name,
    /// Version of the index with the record when `premise` was found out.
    seen: IndexVersion,
    /// No other writer is there.
    premise: Option<Premise>,
}

impl Ahead {
    /// Of a file whose metadata are `meta` and whose superblock record is in `supers`.
    pub fn new(store: &Store, supers: Index, meta: Index) -> Self {
        Self {
            store: store.clone(),
            supers,
            meta,
            state: Mutex::default(),
            is_shared: AtomicBool::new(false),
            turn: ReentrantMutex::new(()),
        }
    }
    /// The ranks of a parallel program write it: none of them is to keep the others waiting.
    pub fn never_alone(&self) -> Result<()> {
        if !self.is_shared.swap(true, Ordering::Relaxed) && self.state.lock().registered.is_some() {
            self.state.lock().take_in(true)?;
            self.supers.put(&[(KNOCK_KEY, b"")])?;
        }
        Ok(())
    }
    /// Runs `work` with the premise on which its changes can be launched; with none if they must be awaited.
    pub fn with<T>(&self, work: impl FnOnce(Option<&Premise>) -> Result<T>) -> Result<T> {
        let turn: ReentrantMutexGuard<'_, ()> = self.turn.lock();
        let premise = self.premise()?;
        if premise.is_none() {
            drop(turn); // the transaction itself notices who comes between
        }
        work(premise.as_ref())
    }
    /// The premise on which changes can be launched. What has failed meanwhile is told here.
    pub fn premise(&self) -> Result<Option<Premise>> {
        let mut state = self.state.lock();
        state.take_in(false)?;
        let process = std::process::id();
        if let Some(registered) = state.registered.as_ref().filter(|registered| registered.name.pid == process)
            && registered.seen == self.supers.version()?
        {
            let premise = registered.premise.clone();
            if premise.is_some() && !self.meta.is_pinned() {
                // Something that was launched failed. It is told before anything else is done.
                state.take_in(true)?;
                let seen = state.registered.as_ref().map(|registered| registered.seen);
                seen.map_or(Ok(()), |seen| self.meta.pin(&self.supers, seen))?;
            }
            return Ok(premise);
        }
        self.register(&mut state)
    }
    /// Launches a transaction, or waits for it if it is large.
    pub fn send(&self, tx: Transaction, premise: &Premise) -> Result<()> {
        if tx.bytes() > LAUNCHED_BYTES_MAX {
            return tx.commit().map(|_| ());
        }
        self.note(tx.launch(premise)?);
        Ok(())
    }
    /// Writes bytes to an object: launches it if they are few and this process is the only writer.
    pub fn write(&self, object: &Object, parts: &[(u64, &[u8])]) -> Result<()> {
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        let premise = if bytes as u64 > LAUNCHED_BYTES_MAX { None } else { self.premise()? };
        match (premise, parts) {
            (Some(premise), parts) => {
                for (offset, bytes) in parts {
                    self.note(object.launch_write_on(&premise, *offset, bytes)?);
                }
                Ok(())
            }
            (None, [(offset, bytes)]) => object.write_at(*offset, bytes),
            (None, parts) => object.writev(parts),
        }
    }
    /// Notes an operation whose outcome is to be told later.
    fn note(&self, op: Op) {
        let mut state = self.state.lock();
        state.leave_to_parent();
        state.launched.push_back(op);
    }
    /// Waits until what was launched is done, a second at most. Whoever is to be told of failures is told later.
    pub fn arrive(&self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) && !self.state.lock().launched.iter().all(Op::is_done) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    /// Returns when what was launched is done; with the first failure.
    pub fn settle(&self) -> Result<()> {
        self.state.lock().take_in(true)
    }
    /// Puts this process's name into the record (or sees who else is there).
    fn register(&self, state: &mut State) -> Result<Option<Premise>> {
        // A child that was forked meanwhile has a name of its own.
        let known = state.registered.take().map(|registered| registered.name);
        let known = known.filter(|name| name.pid == std::process::id());
        state.take_in(true)?;
        let name = known.map_or_else(Name::own, Ok)?;
        let mut knocked: Option<Instant> = None;
        for _ in 0..TRIES {
            let seen = self.supers.version()?;
            let mut values = self.supers.get(&[WRITERS_KEY, KNOCK_KEY])?.into_iter();
            let record = values.next().flatten();
            let knock = values.next().flatten();
            let mut writers = Writers::decode(record.as_deref())?;
            let before = writers.clone();
            writers.names.retain(|other| *other == name || other.is_alive());
            let is_in = writers.names.contains(&name);
            if !is_in {
                let is_kept_out = writers.is_sole && !writers.names.is_empty();
                if is_kept_out && knocked.is_none_or(|at| at.elapsed() < KNOCKING) {
                    if knocked.is_none() {
                        self.knock(name)?;
                        knocked = Some(Instant::now());
                    }
                    self.wait_for_change(knocked)?;
                    continue;
                }
                writers.names.push(name);
            } else if let Some(other) = knock.as_deref().and_then(knocking).filter(Name::is_alive)
                && !writers.names.contains(&other)
            {
                writers.names.push(other);
            }
            writers.is_sole = writers.names.len() == 1 && !self.is_shared.load(Ordering::Relaxed);
            let now = if writers == before {
                Some(seen)
            } else {
                self.replace(record.as_deref(), &writers, knock.is_some(), seen)?
            };
            if let Some(now) = now {
                return self.registered(state, name, now, &writers);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "record of an HDF5 file's writers")
            .because("other processes keep opening and closing the file for writing")
            .try_next("try again"))
    }
    /// Asks the sole writer to let this process in.
    fn knock(&self, name: Name) -> Result<()> {
        let mut w = Writer::default();
        name.encode(&mut w);
        self.supers.put(&[(KNOCK_KEY, &w.0)]).map(|_| ())
    }
    /// Waits until the index with the records changes, or it is time to stop knocking.
    fn wait_for_change(&self, knocked: Option<Instant>) -> Result<()> {
        let before = self.supers.version()?;
        while self.supers.version()? == before && knocked.is_some_and(|at| at.elapsed() < KNOCKING) {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
    fn registered(
        &self,
        state: &mut State,
        name: Name,
        seen: IndexVersion,
        writers: &Writers,
    ) -> Result<Option<Premise>> {
        let premise = writers.is_sole.then(|| Premise::new(&self.supers, WRITERS_KEY, &writers.encode()));
        match premise {
            Some(_) => self.meta.pin(&self.supers, seen)?,
            None => self.meta.unpin(),
        }
        state.registered = Some(Registered { name, seen, premise: premise.clone() });
        Ok(premise)
    }
    /// Sets the record, and says what the version is then. None if it is not `old`, or something else changed too.
    fn replace(
        &self,
        old: Option<&[u8]>,
        writers: &Writers,
        knocked: bool,
        seen: IndexVersion,
    ) -> Result<Option<IndexVersion>> {
        let mut tx = self.store.begin();
        tx.expect(&self.supers, WRITERS_KEY, old)?;
        tx.put(&self.supers, WRITERS_KEY, &writers.encode())?;
        if knocked {
            tx.del(&self.supers, KNOCK_KEY)?;
        }
        match tx.commit() {
            Ok(_) => Ok(Some(self.supers.version()?).filter(|now| seen.is_right_before(*now))),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// This process does not write the file any more. Failing to say so only makes others careful until it ends.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        let Some(registered) = state.registered.take().filter(|r| r.name.pid == std::process::id()) else { return };
        // Whoever closed the file was told already.
        let _ = state.take_in(true);
        self.meta.unpin();
        let sole = Some(Writers::sole(registered.name).encode()).filter(|_| registered.premise.is_some());
        if sole.is_some()
            && matches!(self.replace(sole.as_deref(), &Writers::default(), false, registered.seen), Ok(Some(_)))
        {
            return;
        }
        for _ in 0..TRIES {
            let (Ok(seen), Ok(record)) = (self.supers.version(), self.supers.get_one(WRITERS_KEY)) else { return };
            let Ok(mut writers) = Writers::decode(record.as_deref()) else { return };
            let before = writers.names.len();
            writers.names.retain(|name| *name != registered.name);
            writers.is_sole &= !writers.names.is_empty();
            if writers.names.len() == before {
                return;
            }
            if self.replace(record.as_deref(), &writers, false, seen).is_err() {
                return;
            }
        }
    }
    /// This process has just made the file, with itself as its one writer ([`First::put`]).
    pub fn begun(&self, first: &First) -> Result<()> {
        let seen = self.supers.version()?;
        if first.before.is_right_before(seen) {
            self.registered(&mut self.state.lock(), first.name, seen, &first.writers())?;
        }
        Ok(())
    }
}

/// A new file's first writer, this process.
pub struct First {
    name: Name,
    is_sole: bool,
    before: IndexVersion,
}

impl First {
    /// Puts it into the transaction that makes the file. `is_sole`: it may launch its changes.
    pub fn put(tx: &mut Transaction, supers: &Index, is_sole: bool) -> Result<Self> {
        let first = Self { name: Name::own()?, is_sole, before: supers.version()? };
        tx.put(supers, WRITERS_KEY, &first.writers().encode())?;
        Ok(first)
    }
    fn writers(&self) -> Writers {
        Writers { is_sole: self.is_sole, names: vec![self.name] }
    }
}

impl State {
    /// Forgets what the process launched that this one was forked from.
    fn leave_to_parent(&mut self) {
        let process = std::process::id();
        if self.launched_by != process {
            self.launched.clear();
            self.launched_by = process;
        }
    }
    /// Takes in outcomes, of all operations or of those that are there. After a failure of all: what was launched before
    /// it was known fails for the same reason, and is told with it.
    fn take_in(&mut self, all: bool) -> Result<()> {
        self.leave_to_parent();
        let mut failure = None;
        while self.launched.front().is_some_and(|op| all || failure.is_some() || op.is_done()) {
            let Some(op) = self.launched.pop_front() else { break };
            if let Err(error) = op.wait() {
                failure.get_or_insert(error);
            }
        }
        failure.map_or(Ok(()), |error| {
            Err(Error::new(error.kind(), "a change of an HDF5 file that was made earlier")
                .because(format!("it was not carried out: {error}"))
                .try_next("look at what the file has now; it is as it was before that change"))
        })
    }
}
