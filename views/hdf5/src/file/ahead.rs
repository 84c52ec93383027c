//! Pipelined changes: sent without waiting for the outcome, while this process is a file's only writer.
//!
//! Waiting for one message costs as much as everything else in making a small dataset. A process that opens a file for
//! writing therefore puts its name into a record. While the record holds no other name, the process *launches* metadata and
//! small data: dozens of changes in one message, on the precondition that the record stays as it is. Launched changes are in a log
//! that outlives this process once the call returns (`cenote::Object::launch_write_kept`, a redo log): if the process is
//! killed, the engine carries them out.
//! A second writer requests the revocation of this lease (sets another record). The first writer sees that at its next change, settles what it has
//! launched, and lets the second in. From then on both await every change, since conflicts are possible. A first writer that
//! makes no change has nothing under way, so the second lets itself in after a while.
//!
//! The ranks of a parallel program let each other in from the start. They await changes of metadata and launch small writes
//! of raw data, which every rank sees in shared memory ([`pending`](crate::team::pending)).
//!
//! A failed launched change is reported by the file's next change, flush or close. This module must not know what is changed.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote::{
    Container, Error, ErrorKind, Index, IndexVersion, Object, Op, Precondition, Settling, Store, Transaction,
};
use cenote_host::fork::generation as fork_generation;
use parking_lot::{Mutex, ReentrantMutex, ReentrantMutexGuard, RwLock};

use super::process::Process;
use super::random_u64;
use super::revocation::Revocation;
use super::writers::{First, WRITERS_KEY, Writers, put_name, requester, settle_dead};
use crate::Result;
use crate::meta::keys;
use crate::team::pending::{Pending, Turn};

/// The record that names the process that requests the revocation; the name on media is that of the first version.
const REVOCATION_KEY: &[u8] = b"knock";
/// Interval at which a waiting writer looks again.
const LOOK_EVERY: Duration = Duration::from_micros(300);
/// Attempts to change the record before a conflict with other writers becomes an error.
const TRIES: u32 = 1_000;
/// Larger changes are awaited: an error should come early, and the message costs little beside so many bytes.
pub const LAUNCHED_BYTES_MAX: u64 = 64 << 10;

/// Most ranges launched in one call; more go into one transaction, which is awaited.
const LAUNCHED_PARTS_MAX: usize = 16;

/// The lower half of an object's id, which identifies the object within the file.
fn number_of(object: &Object) -> u64 {
    object.key().object.0 as u64
}

/// What a process knows of a file that it writes. One per file, however often the file is open.
pub struct Ahead {
    store: Store,
    /// The index that holds the record of writers.
    supers: Index,
    /// The metadata index.
    meta: Index,
    state: Mutex<LaunchState>,
    /// Changes are always awaited, so that all processes see each one when its call returns.
    pub(super) is_shared: AtomicBool,
    /// Writes of raw data are awaited too.
    awaits_all: bool,
    /// A parallel program has, or had, the file open.
    is_parallel: AtomicBool,
    /// For each open file that ranks share: what they have launched. Nothing is launched in a file that was opened otherwise.
    tables: RwLock<Vec<Weak<Pending>>>,
    /// Held from a change's first read to its launch: the change must apply to what it read.
    turn: ReentrantMutex<()>,
}

#[derive(Default)]
struct LaunchState {
    registered: Option<Registered>,
    launched: VecDeque<Op>,
    /// The fork generation of the process that launched them: a forked child has nothing to settle.
    launched_by: u64,
}

struct Registered {
    name: Process,
    /// Fork generation of this process: a forked child registers under a name of its own.
    generation: u64,
    /// Version of the record's index when `precondition` was established.
    seen: IndexVersion,
    /// Set while no other writer is registered.
    precondition: Option<Precondition>,
}

impl Ahead {
    /// For a file whose metadata index is `meta` and whose superblock record is in `supers`. Under a quota each change is
    /// awaited, so that the change that exceeds it fails alone, at once, and not together with others.
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
    /// Notes that the ranks of a parallel program have opened the file: no rank may keep the others waiting. `table`: where
    /// ranks see what others launch.
    pub fn never_alone(&self, table: Option<&Arc<Pending>>) -> Result<()> {
        if !self.is_shared.swap(true, Ordering::Relaxed) && self.state.lock().registered.is_some() {
            self.state.lock().take_in(true)?;
            self.supers.put(&[(REVOCATION_KEY, b"")])?;
        }
        if let Some(table) = table {
            let mut tables = self.tables.write();
            tables.retain(|table| table.strong_count() > 0);
            tables.push(Arc::downgrade(table));
            let listener: Weak<dyn Settling> = Arc::downgrade(table) as Weak<dyn Settling>;
            self.store.tell_settled(self.meta.key().container, listener)?;
        }
        if self.is_parallel.swap(true, Ordering::Release) {
            // Opened twice: the ranks of one communicator need not all be in the other, nor see its table.
            self.settle()?;
            for table in self.tables() {
                table.turn_off();
                table.wait_for_all()?;
            }
        }
        Ok(())
    }
    /// The tables of the parallel programs that have the file open.
    fn tables(&self) -> Vec<Arc<Pending>> {
        if !self.is_parallel.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.tables.read().iter().filter_map(Weak::upgrade).collect()
    }
    /// The table in which this process may note what it launches.
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
    /// Waits until what other ranks of this program have launched into these bytes of an object is in the store.
    pub fn wait_for_others(&self, object: &Object, ranges: &(impl Iterator<Item = Range<u64>> + Clone)) -> Result<()> {
        self.tables().iter().try_for_each(|table| table.wait_for(number_of(object), ranges))
    }
    /// Waits for everything that other ranks have launched.
    pub fn wait_for_all_others(&self) -> Result<()> {
        self.tables().iter().try_for_each(|table| table.wait_for_all())
    }
    /// Runs `work` with the precondition on which its changes can be launched, or with none if they must be awaited.
    pub fn with<T>(&self, work: impl FnOnce(Option<&Precondition>) -> Result<T>) -> Result<T> {
        let turn: ReentrantMutexGuard<'_, ()> = self.turn.lock();
        let precondition = self.precondition()?;
        if precondition.is_none() {
            drop(turn); // the transaction itself detects concurrent changes
        }
        work(precondition.as_ref())
    }
    /// The precondition on which changes can be launched. Reports launched changes that have failed.
    pub fn precondition(&self) -> Result<Option<Precondition>> {
        let mut state = self.state.lock();
        state.take_in(false)?;
        if let Some(registered) = state.registered.as_ref().filter(|registered| registered.is_own())
            && registered.seen == self.supers.version()?
        {
            if registered.precondition.is_some() && !self.meta.is_pinned() {
                // A launched change failed. Report it before anything else is done; later changes start a new series.
                state.take_in(true)?;
                if let Some(registered) = &mut state.registered {
                    registered.precondition =
                        registered.precondition.as_ref().map(|old| self.in_series(old)).transpose()?;
                    self.meta.pin(&self.supers, registered.seen)?;
                }
            }
            return Ok(state.registered.as_ref().and_then(|registered| registered.precondition.clone()));
        }
        self.register(&mut state)
    }
    /// Puts changes of metadata in a series, since they build on each other: if one fails, no later one may be carried out.
    fn in_series(&self, precondition: &Precondition) -> Result<Precondition> {
        Ok(precondition.in_series(&self.meta, &keys::of(keys::TAG_SERIES, keys::ROOT), random_u64()?))
    }
    /// Launches a transaction; awaits it if it is large.
    pub fn send(&self, tx: Transaction, precondition: &Precondition) -> Result<()> {
        if tx.bytes() > LAUNCHED_BYTES_MAX {
            self.settle()?;
            return tx.commit().map(|_| ());
        }
        self.note(tx.launch(precondition)?);
        Ok(())
    }
    /// Writes bytes to an object: launched if they are few and this process is the only writer.
    pub fn write(&self, object: &Object, parts: &[(u64, &[u8])]) -> Result<()> {
        let bytes: usize = parts.iter().map(|(_, bytes)| bytes.len()).sum();
        self.wait_for_others(object, &parts.iter().map(|(offset, bytes)| *offset..*offset + bytes.len() as u64))?;
        let is_small = bytes as u64 <= LAUNCHED_BYTES_MAX;
        let precondition = if is_small { self.precondition()? } else { None };
        if precondition.is_none()
            && is_small
            && parts.len() <= LAUNCHED_PARTS_MAX
            && let Some(table) = self.table()
        {
            return self.write_among_others(&table, object, parts);
        }
        match (precondition, parts) {
            (Some(precondition), parts) => {
                for (offset, bytes) in parts {
                    self.note(object.launch_write_on(&precondition, *offset, bytes)?);
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
    /// Notes an operation whose outcome is reported later.
    fn note(&self, op: Op) {
        let mut state = self.state.lock();
        state.leave_to_parent();
        state.launched.push_back(op);
    }
    /// Waits at most a second until the launched changes are done. Failures are left for a later call to report.
    pub fn arrive(&self) {
        let began = Instant::now();
        while began.elapsed() < Duration::from_secs(1) && !self.state.lock().launched.iter().all(Op::is_done) {
            std::thread::sleep(LOOK_EVERY);
        }
    }
    /// Waits until the launched changes are done, and returns the first failure.
    pub fn settle(&self) -> Result<()> {
        self.state.lock().take_in(true)
    }
    /// Settles when this process is about to stop writing the file and no other thread uses it. The note that it stops goes
    /// with the last launched changes, so that one message is awaited. A later write registers the process again.
    pub fn settle_and_leave(&self) -> Result<()> {
        let mut state = self.state.lock();
        let known = state.registered.as_ref().filter(|registered| registered.is_own());
        let Some(registered) = known else { return state.take_in(true) };
        let (Some(precondition), true) = (registered.precondition.clone(), registered.seen == self.supers.version()?)
        else {
            return state.take_in(true);
        };
        let mut tx = self.store.begin();
        tx.put(&self.supers, WRITERS_KEY, &Writers::default().encode())?;
        let op = tx.launch(&precondition)?;
        state.leave_to_parent();
        state.launched.push_back(op);
        state.take_in(true)?;
        state.registered = None;
        self.meta.unpin();
        Ok(())
    }
    /// This rank's turn to read parts of an object and write them back; `None` outside parallel programs.
    pub fn turn(&self, object: &Object) -> Option<Turn> {
        match &self.tables()[..] {
            [table] => Some(table.turn(number_of(object))),
            _ => None,
        }
    }
    /// Puts this process's name into the record, or finds out who else is registered.
    fn register(&self, state: &mut LaunchState) -> Result<Option<Precondition>> {
        let known = state.registered.take().filter(Registered::is_own).map(|registered| registered.name);
        state.take_in(true)?;
        let name = known.map_or_else(|| Process::this(&self.store), Ok)?;
        let mut revocation: Option<Revocation> = None;
        for _ in 0..TRIES {
            let seen = self.supers.version()?;
            let mut values = self.supers.get(&[WRITERS_KEY, REVOCATION_KEY])?.into_iter();
            let record = values.next().flatten();
            let request = values.next().flatten();
            // Settle first: changes of dead writers hold only while the record names them.
            settle_dead(&self.store, record.as_deref())?;
            let mut writers = Writers::decode(record.as_deref())?;
            let before = writers.clone();
            writers.names.retain(|other| *other == name || other.is_alive(&self.store));
            let is_in = writers.names.contains(&name);
            if !is_in {
                let is_kept_out = writers.is_sole && !writers.names.is_empty();
                if is_kept_out && !self.may_enter(&mut revocation, name, &writers)? {
                    continue;
                }
                writers.names.push(name);
            } else if let Some(other) =
                request.as_deref().and_then(requester).filter(|other| other.is_alive(&self.store))
                && !writers.names.contains(&other)
            {
                writers.names.push(other);
            }
            writers.is_sole = writers.names.len() == 1 && !self.is_shared.load(Ordering::Relaxed);
            let now = if writers == before {
                Some(seen)
            } else {
                self.replace(record.as_deref(), &writers, request.is_some(), seen)?
            };
            if let Some(now) = now {
                return self.registered(state, name, now, &writers);
            }
        }
        Err(Error::new(ErrorKind::Conflict, "record of an HDF5 file's writers")
            .because("other processes keep opening and closing the file for writing")
            .try_next("try again"))
    }
    /// Asks to be let in, and waits a while. Returns true if nobody answered: this process lets itself in.
    fn may_enter(&self, asked: &mut Option<Revocation>, name: Process, writers: &Writers) -> Result<bool> {
        if !asked.as_ref().is_some_and(|revocation| revocation.is_at(&writers.names)) {
            *asked = None;
        }
        let revocation = asked.get_or_insert_with(|| Revocation::at(&writers.names));
        if revocation.is_over() {
            return Ok(true);
        }
        if revocation.is_due() {
            self.request_revocation(name)?;
            revocation.requested();
        }
        let before = self.supers.version()?;
        loop {
            // At least once: each look at the version of an index of another node gives another one.
            std::thread::sleep(LOOK_EVERY);
            if self.supers.version()? != before || revocation.is_silent() {
                return Ok(false);
            }
        }
    }
    /// Sets the record that requests the revocation for this process.
    fn request_revocation(&self, name: Process) -> Result<()> {
        let mut w = Vec::new();
        put_name(&mut w, &name);
        self.supers.put(&[(REVOCATION_KEY, &w)]).map(|_| ())
    }
    fn registered(
        &self,
        state: &mut LaunchState,
        name: Process,
        seen: IndexVersion,
        writers: &Writers,
    ) -> Result<Option<Precondition>> {
        let precondition = writers.is_sole.then(|| Precondition::new(&self.supers, WRITERS_KEY, &writers.encode()));
        let precondition = precondition.map(|precondition| self.in_series(&precondition)).transpose()?;
        match precondition {
            Some(_) => self.meta.pin(&self.supers, seen)?,
            None => self.meta.unpin(),
        }
        state.registered =
            Some(Registered { name, generation: fork_generation(), seen, precondition: precondition.clone() });
        Ok(precondition)
    }
    /// Sets the record and returns the new version of its index; `None` if the record is not `old`, or something else changed
    /// too.
    fn replace(
        &self,
        old: Option<&[u8]>,
        writers: &Writers,
        is_requested: bool,
        seen: IndexVersion,
    ) -> Result<Option<IndexVersion>> {
        let mut tx = self.store.begin();
        tx.expect(&self.supers, WRITERS_KEY, old)?;
        tx.put(&self.supers, WRITERS_KEY, &writers.encode())?;
        if is_requested {
            tx.del(&self.supers, REVOCATION_KEY)?;
        }
        match tx.commit() {
            Ok(_) => Ok(Some(self.supers.version()?).filter(|now| seen.is_right_before(*now))),
            Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
            Err(error) => Err(error),
        }
    }
    /// Notes that this process no longer writes the file. If that fails, others only stay careful until the process ends.
    pub fn leave(&self) {
        let mut state = self.state.lock();
        let Some(registered) = state.registered.take().filter(Registered::is_own) else { return };
        // Closing the file has already reported failures.
        let _ = state.take_in(true);
        self.meta.unpin();
        let sole = Some(Writers::sole(registered.name).encode()).filter(|_| registered.precondition.is_some());
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
    /// Registers this process as the one writer of a file that it has just made ([`First::put`]).
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

impl LaunchState {
    /// Forgets what the parent process launched before the fork.
    fn leave_to_parent(&mut self) {
        let generation = fork_generation();
        if self.launched_by != generation {
            self.launched.clear();
            self.launched_by = generation;
        }
    }
    /// Takes in the outcomes of all operations, or of those that are done. After a failure, of all: what was launched before
    /// the failure was known fails for the same reason, and is reported with it.
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
                .try_next("check the file: it is as it was before these changes"))
        })
    }
}
