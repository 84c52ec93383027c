//! Names made and taken away in `commit` directories: known to this process at once, to others when they are published, many in
//! one transaction.
//!
//! Gathered are new empty files and removals of files, since these come in thousands; everything else that changes names is
//! done as in a `strict` directory, behind what was gathered. Bytes of a file are written only when its name was published,
//! so that two processes that made one file at the same time find out while it is empty: the later one takes the other's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};

use crate::sync::Mutex;
use cenote::{ErrorKind, fork_generation};

use crate::names::{bury, lose};
use crate::records::{Entry, keys};
use crate::{FsError, FsResult, Time, fail};

use super::{Change, Found, NumberMap, Slot, Tree};

/// So many names are worth a transaction…
const TOGETHER: usize = 1024;
/// …and with so many whoever gathers publishes by itself, since the keeper is behind.
const TOGETHER_MAX: usize = 2 * TOGETHER;

/// What becomes of a name.
#[derive(Clone, Debug)]
pub enum Fate {
    /// It leads there.
    Made(Slot),
    /// It is taken away; this is what it led to.
    Gone(Box<Found>),
}

/// Names of a directory, in order.
type Names = BTreeMap<Vec<u8>, Fate>;

/// What is gathered of all directories, and when each was changed last.
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

/// What a process gathers.
#[derive(Debug, Default)]
pub struct Gathered {
    /// There is something; looked at without the lock.
    is_any: AtomicBool,
    state: Mutex<State>,
    /// Held while something is published.
    publishing: Mutex<()>,
    /// Changes of names that were made apart from what is gathered.
    changes: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    now: Items,
    /// What is being published.
    underway: Option<Arc<Items>>,
    /// Fork generation of the process that gathers.
    generation: u64,
    /// What nobody was told yet of what could not be published.
    lost: Option<FsError>,
    /// Threads that change names now ([`Apart`]).
    apart: usize,
}

/// While it lives no thread gathers anything: what a change of names finds is not changed behind its back by a name that becomes known later.
#[derive(Debug)]
pub struct Apart<'a>(&'a Gathered);

impl Drop for Apart<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.apart -= 1;
        self.0.changes.fetch_add(1, Ordering::Release);
    }
}

/// A moment: what is gathered later relies on that no names were changed apart since.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment(u64);

impl State {
    /// In a forked child: what was gathered is the parent's, which publishes it, and says what of it was lost.
    fn drop_inherited(&mut self) {
        if std::mem::replace(&mut self.generation, fork_generation()) != fork_generation() {
            (self.now, self.underway, self.lost) = (Items::default(), None, None);
        }
    }
    fn fate(&self, dir: u64, name: &[u8]) -> Option<&Fate> {
        let items = if self.now.has(dir, name) { &self.now } else { self.underway.as_deref()? };
        items.names.get(&dir)?.get(name)
    }
}

impl Gathered {
    /// The state, without what a forked child has of its parent.
    fn own_state(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.drop_inherited();
        state
    }
    /// Before a look at what a name may be gathered for.
    pub fn moment(&self) -> Moment {
        Moment(self.changes.load(Ordering::Acquire))
    }
    fn holds(&self, state: &State, since: Moment) -> bool {
        state.apart == 0 && self.moment() == since
    }
    /// What becomes of a name, if that is gathered.
    pub fn fate(&self, dir: u64, name: &[u8]) -> Option<Fate> {
        if !self.is_any.load(Ordering::Acquire) {
            return None;
        }
        self.state.lock().fate(dir, name).cloned()
    }
    /// What becomes of the names of a directory behind `after`.
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
    /// True if something of a directory is gathered.
    pub fn is_any_in(&self, dir: u64) -> bool {
        let state = self.state.lock();
        let underway = state.underway.as_deref();
        [Some(&state.now), underway].into_iter().flatten().any(|items| items.names.contains_key(&dir))
    }
    /// When a directory was changed last by what is gathered.
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
    /// A change of names begins, behind all that was gathered.
    pub fn apart(&self) -> Apart<'_> {
        self.gathered.state.lock().apart += 1;
        let apart = Apart(&self.gathered);
        self.publish();
        apart
    }
    /// A name in a `commit` directory leads to a new file from now on; the looks for that began at `since`. False: it does already, or it is
    /// best not gathered.
    /// [`Tree::publish_if_full`] is to be called behind this, without locks.
    pub fn gather_made(&self, since: Moment, dir: u64, name: &[u8], entry: Entry) -> bool {
        let mut state = self.gathered.state.lock();
        // Gone and made again is two changes, in this order: the first is published first.
        if !self.gathered.holds(&state, since) || state.fate(dir, name).is_some() {
            return false;
        }
        let raw = entry.encode();
        self.seen(entry.ino, dir, name);
        self.note(&mut state, dir, name, Fate::Made(Slot { entry, raw }));
        true
    }
    /// A file's only name is taken away. False: it is best not gathered. [`Tree::publish_if_full`] is to be called behind this.
    pub fn gather_gone(&self, since: Moment, found: &Found, dir: u64, name: &[u8]) -> bool {
        let mut state = self.gathered.state.lock();
        let is_underway = state.underway.as_ref().is_some_and(|items| items.has(dir, name));
        if !self.gathered.holds(&state, since) || is_underway {
            return false;
        }
        match state.now.names.get(&dir).and_then(|names| names.get(name)) {
            // Nobody else ever saw it.
            Some(Fate::Made(slot)) if slot.entry.ino == found.ino => {
                state.now.names.get_mut(&dir).and_then(|names| names.remove(name));
                state.now.changed.insert(dir, self.common.clock.now());
            }
            Some(_) => return false,
            None => self.note(&mut state, dir, name, Fate::Gone(Box::new(found.clone()))),
        }
        true
    }
    fn note(&self, state: &mut State, dir: u64, name: &[u8], fate: Fate) {
        state.drop_inherited();
        state.now.names.entry(dir).or_default().insert(name.to_vec(), fate);
        state.now.changed.insert(dir, self.common.clock.now());
        state.now.count += 1;
        self.gathered.is_any.store(true, Ordering::Release);
    }
    /// Has what was gathered published if that is worth a transaction.
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
    /// What was gathered becomes known to all. What cannot be is lost, and [`Tree::take_lost`] says why.
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
    /// Something that was to become known to all could not: [`Tree::take_lost`] says so.
    pub fn note_lost(&self, error: FsError) {
        self.gathered.own_state().lost.get_or_insert(error);
    }
    /// What could not be published since this was asked last.
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
                // Who claims a directory changed, most likely.
                Err(error) if error.kind() == Some(ErrorKind::Conflict) => self.forget_claims(),
                Err(error) if is_settled_singly(&error) => break,
                Err(error) => return Err(error),
            }
        }
        // Something was not as it was: one by one, with a look at what is there now.
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
    fn publish_one(&self, dir: u64, name: &[u8], fate: &Fate) -> FsResult<()> {
        let Fate::Made(slot) = fate else {
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
        // Another made it first: it is that file.
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

fn add_fate(change: &mut Change<'_>, dir: u64, name: &[u8], fate: &Fate) -> FsResult<()> {
    let tree = change.tree;
    match fate {
        Fate::Made(slot) => change.txn.put_new(&tree.dir(dir), &keys::entry(name), &slot.raw)?,
        Fate::Gone(found) => {
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
