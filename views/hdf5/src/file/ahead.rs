//! Changes sent ahead of their outcome, while this process is a file's only writer.
//!
//! A message that is waited for costs as much as all else that makes a small dataset. So who opens a file for writing puts
//! its name into a record (*launching*); while no other name is there, metadata and small data are launched, dozens in
//! one message, on the premise that the record stays as it is. What is launched is in a log that outlives this process
//! when the call returns (`cenote::Object::launch_write_kept`): the engine carries it out should this process be killed.
//! A second writer *knocks* (sets another record): the first sees that at its next change, settles what it has launched,
//! and lets the other in; from then on every change of both is awaited, as conflicts are possible. A first writer that
//! makes no change has nothing under way: after a while the other lets itself in.
//!
//! The ranks of a parallel program let each other in from the start. They await changes of metadata and launch small
//! writes of raw data, which each of them can see the others do ([`pending`](crate::team::pending)).
//!
//! A launched change that fails is told by the file's next change, flush or close. This room must not know what is changed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote::{
    Container, Error, ErrorKind, Index, IndexVersion, Object, Op, Premise, Settling, Store, Transaction,
    fork_generation,
};
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock};

use crate::Result;
use crate::meta::keys;
use crate::team::pending::{Pending, Turn};

use super::knocking::Knocking;
use super::process::Process;
use super::random_u64;
use super::writers::{First, WRITERS_KEY, Writers, knocking, put_name, settle_dead};

/// The name of who wants to be let in.
const KNOCK_KEY: &[u8] = b"knock";
/// Between two looks whether somebody opens.
const LOOK_EVERY: Duration = Duration::from_micros(300);
/// Tries at the record before others who keep changing it are an error.
const TRIES: u32 = 1_000;
/// Changes with more bytes are awaited: an error should come early, and the message costs little beside them.
pub const LAUNCHED_BYTES_MAX: u64 = 64 << 10;

/// Ranges that are launched in one call; more are one transaction, and awaited.
const LAUNCHED_PARTS_MAX: usize = 16;

/// The lower half of an object's id: what tells it from others of the file.
fn number_of(object: &Object) -> u64 {
    object.key().object.0 as u64
}

/// What a process knows of a file that it writes. One for each file, however often it is open.
pub struct Ahead {
    store: Store,
    /// The index with the record.
    supers: Index,
    /// The metadata.
    meta: Index,
    state: Mutex<State>,
    /// Changes are awaited in any case, so that each is there for all when its call returns.
    pub(super) is_shared: AtomicBool,
    /// Writes of raw data too.
    awaits_all: bool,
    /// The file is, or was, open by a parallel program.
    is_parallel: AtomicBool,
    /// What ranks have launched, for each open file that they share; in one that was opened otherwise nothing is launched.
    tables: RwLock<Vec<Weak<Pending>>>,
    /// Held from a change's first look to its launch: what it read must be what it changes.
    turn: ReentrantMutex<()>,
}

#[derive(Default)]
struct State {
    registered: Option<Registered>,
    launched: VecDeque<Op>,
    /// The fork generation of who launched them: a child that was forked meanwhile has nothing to settle.
    launched_by: u64,
}

struct Registered {
    name: Process,
    /// Fork generation of this process: a child that was forked meanwhile has a name of its own.
    generation: u64,
    /// Version of the index with the record when `premise` was found out.
    seen: IndexVersion,
    /// No other writer is there.
    premise: Option<Premise>,
}

impl Ahead {
    /// Of a file whose metadata are `meta` and whose superblock record is in `supers`. Where there is a quota, each change is
    /// awaited: the one that passes it fails by itself, at once, and not what was launched together with it.
    pub fn new(container: &Container, supers: Index, meta: Index) -> Self {
        Self {
            store: container.store().clone(),
            supers,
            meta,
            state: Mutex::default(),
            is_shared: AtomicBool::new(container.had_quota()),
            awaits_all: container.had_quota(),
            is_parallel: AtomicBool::new(false),
            tables: RwLock::default(),
            turn: ReentrantMutex::new(()),
        }
    }
    /// The ranks of a parallel program have opened it: none of them is to keep the others waiting. `table`: where they see
    /// what others launch.
    pub fn never_alone(&self, table: Option<&Arc<Pending>>) -> Result<()> {
        if !self.is_shared.swap(true, Ordering::Relaxed) && self.state.lock().registered.is_some() {
            self.state.lock().take_in(true)?;
            self.supers.put(&[(KNOCK_KEY, b"")])?;
        }
        if let Some(table) = table {
            let mut tables = self.tables.write();
            tables.retain(|table| table.strong_count() > 0);
            tables.push(Arc::downgrade(table));
            let listener: Weak<dyn Settling> = Arc::downgrade(table) as Weak<dyn Settling>;
            self.store.tell_settled(listener)?;
        }
        if self.is_parallel.swap(true, Ordering::Release) {
            // Open twice: not all ranks of one communicator need be in the other, nor see its table.
            self.settle()?;
            for table in self.tables() {
                table.turn_off();
                table.wait_for_all()?;
            }
        }
        Ok(())
    }
    /// The tables of parallel programs.
    fn tables(&self) -> Vec<Arc<Pending>> {
        if !self.is_parallel.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.tables.read().iter().filter_map(Weak::upgrade).collect()
    }
    /// Where this process may note what it launches.
    fn table(&self) -> Option<Arc<Pending>> {
        match &self.tables()[..] {
            [table] if table.is_on() && !self.awaits_all => Some(table.clone()),
            _ => None,
        }
    }
    /// The store.
    pub fn store(&self) -> &Store {
        &self.store
    }
    /// Returns when what other ranks of this program have launched into these bytes of an object is in the store.
    pub fn wait_for_others(&self, object: &Object, ranges: &(impl Iterator<Item = Range<u64>> + Clone)) -> Result<()> {
        self.tables().iter().try_for_each(|table| table.wait_for(number_of(object), ranges))
    }
    /// The same, for whatever they have launched.
    pub fn wait_for_all_others(&self) -> Result<()> {
        self.tables().iter().try_for_each(|table| table.wait_for_all())
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
        if let Some(registered) = state.registered.as_ref().filter(|registered| registered.is_own())
            && registered.seen == self.supers.version()?
        {
            if registered.premise.is_some() && !self.meta.is_pinned() {
                // Something that was launched failed. It is told before anything else is done; what comes then begins anew.
                state.take_in(true)?;
                if let Some(registered) = &mut state.registered {
                    registered.premise = registered.premise.as_ref().map(|old| self.in_series(old)).transpose()?;
                    self.meta.pin(&self.supers, registered.seen)?;
                }
            }
            return Ok(state.registered.as_ref().and_then(|registered| registered.premise.clone()));
        }
        self.register(&mut state)
    }
    /// Changes of metadata build on each other: when one fails, none that was launched after it may be carried out.
    fn in_series(&self, premise: &Premise) -> Result<Premise> {
        Ok(premise.in_series(&self.meta, &keys::of(keys::TAG_SERIES, keys::ROOT), random_u64()?))
    }
    /// Launches a transaction, or waits for it if it is large.
    pub fn send(&self, tx: Transaction, premise: &Premise) -> Result<()> {
        if tx.bytes() > LAUNCHED_BYTES_MAX {
            self.settle()?;
            return tx.commit().map(|_| ());
        }
        self.note(tx.launch(premise)?);
        Ok(())
    }
    /// Writes bytes to an object: launches it if they are few and this process is the only writer.
    pub fn write(&self, object: &Object, parts: &[(u64, &[u8])]) -> Result<()> {
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        self.wait_for_others(object, &parts.iter().map(|(offset, bytes)| *offset..*offset + bytes.len() as u64))?;
        let is_small = bytes as u64 <= LAUNCHED_BYTES_MAX;
        let premise = if is_small { self.premise()? } else { None };
        if premise.is_none()
            && is_small
            && parts.len() <= LAUNCHED_PARTS_MAX
            && let Some(table) = self.table()
        {
            return self.write_among_others(&table, object, parts);
        }
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
    fn write_among_others(&self, table: &Pending, object: &Object, parts: &[(u64, &[u8])]) -> Result<()> {
        let mut state = self.state.lock();
        state.take_in(!table.has_room(parts.len()))?;
        for (offset, bytes) in parts {
            let op = object.launch_write_kept(*offset, bytes)?;
            if let Some(message) = op.message() {
                table.note(number_of(object), *offset..*offset + bytes.len() as u64, message);
            }
            state.launched.push_back(op);
        }
        Ok(())
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
    /// The same, when this process is about to end writing the file, with no other thread at it: that it does so goes with
    /// what was launched last, so that one message is waited for. Whoever writes it after all is noted again.
    pub fn settle_and_leave(&self) -> Result<()> {
        let mut state = self.state.lock();
        let known = state.registered.as_ref().filter(|registered| registered.is_own());
        let Some(registered) = known else { return state.take_in(true) };
        let (Some(premise), true) = (registered.premise.clone(), registered.seen == self.supers.version()?) else {
            return state.take_in(true);
        };
        let mut tx = self.store.begin();
        tx.put(&self.supers, WRITERS_KEY, &Writers::default().encode())?;
        let op = tx.launch(&premise)?;
        state.leave_to_parent();
        state.launched.push_back(op);
        state.take_in(true)?;
        state.registered = None;
        self.meta.unpin();
        Ok(())
    }
    /// This rank's turn to read parts of an object and write them back; none if it is no rank of a parallel program.
    pub fn turn(&self, object: &Object) -> Option<Turn> {
        match &self.tables()[..] {
            [table] => Some(table.turn(number_of(object))),
            _ => None,
        }
    }
    /// Puts this process's name into the record (or sees who else is there).
    fn register(&self, state: &mut State) -> Result<Option<Premise>> {
        let known = state.registered.take().filter(Registered::is_own).map(|registered| registered.name);
        state.take_in(true)?;
        let name = known.map_or_else(Process::this, Ok)?;
        let mut knocked: Option<Knocking> = None;
        for _ in 0..TRIES {
            let seen = self.supers.version()?;
            let mut values = self.supers.get(&[WRITERS_KEY, KNOCK_KEY])?.into_iter();
            let record = values.next().flatten();
            let knock = values.next().flatten();
            // Their changes hold only as long as the record names them.
            settle_dead(&self.store, record.as_deref())?;
            let mut writers = Writers::decode(record.as_deref())?;
            let before = writers.clone();
            writers.names.retain(|other| *other == name || other.is_alive());
            let is_in = writers.names.contains(&name);
            if !is_in {
                let is_kept_out = writers.is_sole && !writers.names.is_empty();
                if is_kept_out && !self.knocks(&mut knocked, name, &writers)? {
                    continue;
                }
                writers.names.push(name);
            } else if let Some(other) = knock.as_deref().and_then(knocking).filter(Process::is_alive)
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
    /// Asks to be let in, and waits a while. True if it was for nothing: this process lets itself in.
    fn knocks(&self, knocked: &mut Option<Knocking>, name: Process, writers: &Writers) -> Result<bool> {
        if !knocked.as_ref().is_some_and(|knocking| knocking.is_at(&writers.names)) {
            *knocked = None;
        }
        let knocking = knocked.get_or_insert_with(|| Knocking::at(&writers.names));
        if knocking.is_over() {
            return Ok(true);
        }
        if knocking.is_due() {
            self.knock(name)?;
            knocking.knocked();
        }
        let before = self.supers.version()?;
        while self.supers.version()? == before && !knocking.is_silent() {
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(false)
    }
    /// Sets the record of who knocks.
    fn knock(&self, name: Process) -> Result<()> {
        let mut w = Vec::new();
        put_name(&mut w, &name);
        self.supers.put(&[(KNOCK_KEY, &w)]).map(|_| ())
    }
    fn registered(
        &self,
        state: &mut State,
        name: Process,
        seen: IndexVersion,
        writers: &Writers,
    ) -> Result<Option<Premise>> {
        let premise = writers.is_sole.then(|| Premise::new(&self.supers, WRITERS_KEY, &writers.encode()));
        let premise = premise.map(|premise| self.in_series(&premise)).transpose()?;
        match premise {
            Some(_) => self.meta.pin(&self.supers, seen)?,
            None => self.meta.unpin(),
        }
        state.registered = Some(Registered { name, generation: fork_generation(), seen, premise: premise.clone() });
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
        let Some(registered) = state.registered.take().filter(Registered::is_own) else { return };
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
        if first.was_last(seen) {
            self.registered(&mut self.state.lock(), first.name, seen, &first.writers())?;
        }
        Ok(())
    }
}

impl Registered {
    fn is_own(&self) -> bool {
        self.generation == fork_generation()
    }
}

impl State {
    /// Forgets what the process launched that this one was forked from.
    fn leave_to_parent(&mut self) {
        let generation = fork_generation();
        if self.launched_by != generation {
            self.launched.clear();
            self.launched_by = generation;
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
                .because(format!("it was not carried out, nor were changes of the same moment: {error}"))
                .try_next("look at what the file has now: it is as it was before these changes"))
        })
    }
}
