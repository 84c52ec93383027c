//! Gathering (batching): names created and removed in `commit` directories are visible to this process at once, and to others when they are
//! published, many in one transaction.
//!
//! Only creations of empty files and removals of files are gathered, since these come in thousands. Every other change of names is done as in
//! a `strict` directory, after publishing what was gathered. Bytes of a file are written only after its name was published. So two processes
//! that created one file at the same time find that out while it is empty: the later one takes the other's file.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use crate::sync::Mutex;
use cenote::ErrorKind;
use cenote_host::fork::generation as fork_generation;

use super::{Change, FoundNode, NumberMap, Slot, Tree};
use crate::names::{bury, lose};
use crate::records::{Entry, keys};
use crate::{FsError, FsResult, Time, fail};

/// Number of names worth a transaction…
const TOGETHER: usize = 1024;
/// …and number at which the gathering thread publishes itself, since the keeper is behind.
const TOGETHER_MAX: usize = 2 * TOGETHER;

/// Gathered change of a name.
#[derive(Clone, Debug)]
pub enum NameChange {
    /// Created; leads to this entry.
    Made(Slot),
    /// Removed; it led to this node.
    Gone(Box<FoundNode>),
}

/// Names of a directory, in order.
type Names = BTreeMap<Vec<u8>, NameChange>;

/// Gathered changes of all directories, and the time of each directory's last one.
#[derive(Clone, Default, Debug)]
struct Items {
    names: NumberMap<Names>,
    changed: NumberMap<Time>,
    count: usize,
}

impl Items {
    fn has(&self, dir: u64, name: &[u8]) -> bool {
        self.names.get(&dir).is_some_and(|names| names.contains_key(name))
    }
}

/// Gathered changes of a process.
#[derive(Debug, Default)]
pub struct Gathered {
    /// Something is gathered; read without the lock.
    is_any: AtomicBool,
    state: Mutex<GatherState>,
    /// Held while something is published.
    publishing: Mutex<()>,
    /// Count of changes of names outside of what is gathered.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct GatherState {
    now: Items,
    /// Changes being published.
    underway: Option<Arc<Items>>,
    /// Fork generation of the process that gathers.
    generation: u64,
    /// Publication error that nobody was told yet.
    lost: Option<FsError>,
    /// Number of threads that change names now ([`Apart`]).
    apart: usize,
}

/// Keeps all threads from gathering while it lives, so that no name published later invalidates what a change of names found.
#[derive(Debug)]
pub struct Apart<'a>(&'a Gathered);

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.apart -= 1;
        self.0.changes.fetch_add(1, Ordering::Release);
    }
}

/// A point in time: a later gathered change relies on no change of names outside of gathering since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

impl GatherState {
    /// Drops what a forked child inherited: the parent publishes it, and reports its errors.
    fn drop_inherited(&mut self) {
        if std::mem::replace(&mut self.generation, fork_generation()) != fork_generation() {
            (self.now, self.underway, self.lost) = (Items::default(), None, None);
        }
    }
    fn fate(&self, dir: u64, name: &[u8]) -> Option<&NameChange> {
        let items = if self.now.has(dir, name) { &self.now } else { self.underway.as_deref()? };
        items.names.get(&dir)?.get(name)
    }
}

impl Gathered {
    /// Locks the state, without what a forked child inherited.
    fn own_state(&self) -> MutexGuard<'_, GatherState> {
        let mut state = self.state.lock();
        state.drop_inherited();
        state
    }
    /// Returns the current moment, to be taken before looking up a name that may be gathered.
    pub fn moment(&self) -> Moment {
        Moment(self.changes.load(Ordering::Acquire))
    }
    fn holds(&self, state: &GatherState, since: Moment) -> bool {
        state.apart == 0 && self.moment() == since
    }
    /// Returns the gathered change of a name, if any.
    pub fn fate(&self, dir: u64, name: &[u8]) -> Option<NameChange> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().fate(dir, name).cloned()
    }
    /// Returns the gathered changes of a directory's names after `after`.
    pub fn names(&self, dir: u64, after: Option<&[u8]>) -> Names {
        let mut all = Names::new();
        if !self.is_any.load(Ordering::Acquire) {
            return all;
        }
        let state = self.state.lock();
        for items in state.underway.iter().map(Arc::as_ref).chain([&state.now]) {
            let names = items.names.get(&dir).into_iter().flatten();
            let later = names.filter(|(name, _)| after.is_none_or(|after| name.as_slice() > after));
            all.extend(later.map(|(name, fate)| (name.clone(), fate.clone())));
        }
        all
    }
    /// Returns true if a change in the directory is gathered.
    pub fn is_any_in(&self, dir: u64) -> bool {
        let state = self.state.lock();
        let underway = state.underway.as_deref();
        [Some(&state.now), underway].into_iter().flatten().any(|items| items.names.contains_key(&dir))
    }
    /// Returns the time of the last gathered change of a directory.
    pub fn changed(&self, dir: u64) -> Option<Time> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        let underway = state.underway.as_ref().and_then(|items| items.changed.get(&dir));
        state.now.changed.get(&dir).or(underway).copied()
    }
}

impl Tree {
    /// Begins a change of names, after publishing all that was gathered.
    pub fn apart(&self) -> Apart<'_> {
        self.gathered.state.lock().apart += 1;
        let apart = Apart(&self.gathered);
        self.publish();
        apart
    }
    /// Gathers the creation of a file in a `commit` directory; the lookups for it began at `since`. Returns false if the name is gathered
    /// already or must not be gathered. Call [`Tree::publish_if_full`] afterwards, without locks.
    pub fn gather_made(&self, since: Moment, dir: u64, name: &[u8], entry: Entry) -> bool {
        let mut state = self.gathered.state.lock();
        // Removal and new creation are two changes in this order: publish the first one first.
        if !self.gathered.holds(&state, since) || state.fate(dir, name).is_some() {
            return false;
        }
        let raw = entry.encode();
        self.seen(entry.ino, dir, name);
        self.note(&mut state, dir, name, NameChange::Made(Slot { entry, raw }));
        true
    }
    /// Gathers the removal of a file's only name. Returns false if it must not be gathered. Call [`Tree::publish_if_full`] afterwards.
    pub fn gather_gone(&self, since: Moment, found: &FoundNode, dir: u64, name: &[u8]) -> bool {
        let mut state = self.gathered.state.lock();
        let is_underway = state.underway.as_ref().is_some_and(|items| items.has(dir, name));
        if !self.gathered.holds(&state, since) || is_underway {
            return false;
        }
        match state.now.names.get(&dir).and_then(|names| names.get(name)) {
            // Nobody else ever saw the file.
            Some(NameChange::Made(slot)) if slot.entry.ino == found.ino => {
                state.now.names.get_mut(&dir).and_then(|names| names.remove(name));
                state.now.changed.insert(dir, self.common.clock.now());
            }
            Some(_) => return false,
            None => self.note(&mut state, dir, name, NameChange::Gone(Box::new(found.clone()))),
        }
        true
    }
    fn note(&self, state: &mut GatherState, dir: u64, name: &[u8], fate: NameChange) {
        state.drop_inherited();
        state.now.names.entry(dir).or_default().insert(name.to_vec(), fate);
        state.now.changed.insert(dir, self.common.clock.now());
        state.now.count += 1;
        self.gathered.is_any.store(true, Ordering::Release);
    }
    /// Publishes what was gathered if it is worth a transaction.
    pub fn publish_if_full(&self) {
        if !self.gathered.is_any.load(Ordering::Acquire) {
            return;
        }
        let (count, is_underway) = {
            let state = self.gathered.state.lock();
            (state.now.count, state.underway.is_some())
        };
        if count >= TOGETHER_MAX || (count >= TOGETHER && !is_underway && !self.common.bell.ring()) {
            self.publish_gathered();
        }
    }
    /// Publishes what was gathered. What cannot be published is lost; [`Tree::take_lost`] returns the reason.
    pub fn publish(&self) {
        if self.gathered.is_any.load(Ordering::Acquire) {
            self.publish_gathered();
        }
    }
    #[cold]
    fn publish_gathered(&self) {
        let _one = self.gathered.publishing.lock();
        let items = {
            let mut state = self.gathered.own_state();
            let items = Arc::new(std::mem::take(&mut state.now));
            state.underway = Some(items.clone());
            items
        };
        let done = self.publish_all(&items);
        let mut state = self.gathered.state.lock();
        state.underway = None;
        if state.now.names.is_empty() && state.now.changed.is_empty() {
            self.gathered.is_any.store(false, Ordering::Release);
        }
        if let Err(error) = done {
            state.lost.get_or_insert(error);
        }
    }
    /// Records a publication error for [`Tree::take_lost`].
    pub fn note_lost(&self, error: FsError) {
        self.gathered.own_state().lost.get_or_insert(error);
    }
    /// Returns the publication error since the last call, if any.
    pub fn take_lost(&self) -> FsResult<()> {
        match self.gathered.own_state().lost.take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
    fn publish_all(&self, items: &Items) -> FsResult<()> {
        let is_any_laminated = items.names.keys().any(|dir| self.is_laminated(*dir));
        let mut failed = if is_any_laminated { fail(libc::EROFS) } else { Ok(()) };
        for _ in 0..2 {
            match self.publish_together(items) {
                Ok(()) => return failed,
                // Most likely the claimants of a directory changed.
                Err(error) if error.kind() == Some(ErrorKind::Conflict) => self.forget_claims(),
                Err(error) if is_settled_singly(&error) => break,
                Err(error) => return Err(error),
            }
        }
        // Some condition failed: publish names one by one, each with a fresh lookup.
        for (dir, names) in items.names.iter().filter(|(dir, _)| !self.is_laminated(**dir)) {
            for (name, fate) in names {
                match self.publish_one(*dir, name, fate) {
                    Err(error) if failed.is_ok() => failed = Err(error),
                    _ => {}
                }
            }
        }
        failed
    }
    fn publish_together(&self, items: &Items) -> FsResult<()> {
        let mut change = Change::new(self, self.container.store().begin());
        for (dir, names) in items.names.iter().filter(|(dir, _)| !self.is_laminated(**dir)) {
            names.iter().try_for_each(|(name, fate)| add_fate(&mut change, *dir, name, fate))?;
        }
        for dir in items.changed.keys().filter(|dir| !self.is_laminated(**dir)) {
            change.touch(*dir)?;
        }
        change.commit()
    }
    fn publish_one(&self, dir: u64, name: &[u8], fate: &NameChange) -> FsResult<()> {
        let NameChange::Made(slot) = fate else {
            return self.change_alone(|change| {
                let Some(there) = self.slot_there(dir, name)? else { return Ok(()) };
                let raw = there.raw.clone();
                let Some(found) = self.found_at(dir, name, there)? else { return Ok(()) };
                if found.node.kind == crate::Kind::Directory {
                    return Ok(());
                }
                change.remove(dir, name, &raw)?;
                lose(change, &found).map(drop)
            });
        };
        let made = self.change_alone(|change| change.add(dir, name, &slot.entry));
        match made {
            Err(error) if error.errno == libc::EEXIST => {}
            other => return other,
        }
        // Another process created it first: use that file.
        let Some(there) = self.slot_there(dir, name)? else { return Ok(()) };
        let (Some(live), Some(found)) = (self.live(slot.entry.ino), self.found_at(dir, name, there)?) else {
            return Ok(());
        };
        if found.node.kind != crate::Kind::File {
            return Err(FsError::new(libc::EEXIST));
        }
        live.become_other(&found);
        Ok(())
    }
}

fn is_settled_singly(error: &FsError) -> bool {
    matches!(error.kind(), Some(ErrorKind::Exists | ErrorKind::Conflict | ErrorKind::NotFound))
}

fn add_fate(change: &mut Change<'_>, dir: u64, name: &[u8], fate: &NameChange) -> FsResult<()> {
    let tree = change.tree;
    match fate {
        NameChange::Made(slot) => change.txn.put_new(&tree.dir(dir), &keys::entry(name), &slot.raw)?,
        NameChange::Gone(found) => {
            change.remove(dir, name, &found.raw)?;
            let holders = tree.holders(change, found)?;
            if holders.is_empty() {
                return bury(change, found.ino, &found.node);
            }
            let node = crate::records::Node { links: 0, ..found.node.clone() };
            tree.hold(change, found.ino, &holders)?;
            change.txn.put(&tree.opens, &keys::orphan(found.ino), &node.encode())?;
        }
    }
    Ok(())
}
