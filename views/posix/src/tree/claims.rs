//! Claims: which processes may have files open, so that a file that loses its last name stays for them.
//!
//! Recording each `open` would cost a message and a journal record each. Instead a process *claims* a directory when it opens the first file
//! in it, and keeps the claim. A process that removes a file's last name reads the claims (which seldom change, so this costs no message) and
//! relies on them in the same transaction. If nobody else claims the directory and this process does not have the file open, the file is
//! deleted at once. Otherwise it becomes an *orphan* with a list of possible holders. A holder takes itself off the list when it closes the
//! file or finds that it does not have it open (one look at a version word per [`crate::keeper`] round). Whoever takes the last holder off, or
//! finds that the last one died, deletes the file. A process listed for files that it does not have open gives up its claim of their directory
//! if it has not used the claim for a round.
//!
//! A file whose node is a record of its own (it was renamed, or has several names) may have been opened by another name: for it all claims in
//! the tree count, recorded under number 0. A read-only file system claims nothing: its open files can be deleted.

use std::collections::BTreeSet;
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

use cenote::ErrorKind;
use cenote_host::fork::generation as fork_generation;

use super::{Change, FoundNode, NodeLocation, NumberMap, Tree};
use crate::FsResult;
use crate::names::bury;
use crate::records::{Claimant, Node, claimant, keys};
use crate::sync::RwLock;

/// Number of locks that serialise opens and removals, by directory.
const GATES: usize = 64;

/// Maximum number of orphans handled in one transaction.
const GO_TOGETHER: usize = 256;
/// Maximum number of directories whose claims are cached.
const KNOWN_MAX: usize = 4096;

/// How long a child has to claim what its parent had open.
const LENT_FOR: Duration = Duration::from_secs(5);

/// Claims of this process in a tree.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Directories, and whether files of each were opened since the last round.
    dirs: NumberMap<bool>,
    /// Fork generation of the claims.
    generation: u64,
    /// Version of the index of opens at the last look, and whether there were orphans.
    seen: Option<(cenote::IndexVersion, bool)>,
    /// Files open at the last fork of this process, with its time.
    lent: NumberMap<Instant>,
}

/// Claimants of a directory, as last read.
#[derive(Clone, Default, Debug)]
pub struct Claims {
    raw: Option<Arc<[u8]>>,
    all: Arc<[Claimant]>,
}

/// Locks that keep threads of this process from deleting a file while another opens it.
#[derive(Debug)]
pub struct Gates([RwLock<()>; GATES]);

impl Default for Gates {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Gates {
    /// Returns the lock for files found in that place.
    pub fn of(&self, place: &NodeLocation) -> &RwLock<()> {
        match place {
            NodeLocation::Entry { dir, .. } => self.of_dir(*dir),
            NodeLocation::Own | NodeLocation::Orphan => &self.0[0],
        }
    }
    /// Returns the lock for files whose nodes are in a directory's entries.
    pub fn of_dir(&self, dir: u64) -> &RwLock<()> {
        &self.0[1 + dir as usize % (GATES - 1)]
    }
}

/// A file without a name, as found.
struct Orphan {
    ino: u64,
    /// Processes that may have it open.
    holders: Vec<u8>,
    /// Its node, if it is where it belongs.
    node: Option<Vec<u8>>,
}

impl Tree {
    /// Claims a directory: from now on this process may have its files open (0: files whose nodes are records of their own).
    pub fn claim(&self, dir: u64) -> FsResult<()> {
        let generation = fork_generation();
        if self.is_claimed(dir) {
            return Ok(());
        }
        if self.common.options.is_read_only || !self.is_there()? {
            return Ok(());
        }
        let done = self.change_file(|change| {
            self.add_claim(change, dir)?;
            if dir == 0 { Ok(()) } else { self.add_claim(change, 0) }
        });
        match done {
            // This user may only read: its open files can be deleted.
            Err(error) if error.kind() == Some(ErrorKind::PermissionDenied) => {}
            other => other?,
        }
        let mut claimed = self.claimed.lock();
        if claimed.generation != generation {
            *claimed = Claimed { generation, ..Claimed::default() };
        }
        claimed.dirs.insert(dir, true);
        claimed.dirs.insert(0, true);
        Ok(())
    }
    /// Returns true if this process claims the directory, or never claims anything.
    pub fn is_claimed(&self, dir: u64) -> bool {
        if self.common.options.is_read_only {
            return true;
        }
        let mut claimed = self.claimed.lock();
        let is_mine = claimed.generation == fork_generation();
        match claimed.dirs.get_mut(&dir) {
            Some(used) if is_mine => {
                *used = true;
                true
            }
            _ => false,
        }
    }
    /// Claims a directory, and keeps the claim and all files found in its entries until the guard is dropped.
    pub fn claim_and_keep(&self, dir: u64) -> FsResult<RwLockReadGuard<'_, ()>> {
        loop {
            let gate = self.gates.of_dir(dir).read();
            if self.is_claimed(dir) {
                return Ok(gate);
            }
            drop(gate);
            self.claim(dir)?;
        }
    }
    fn add_claim(&self, change: &mut Change<'_>, dir: u64) -> FsResult<()> {
        let (key, me) = (keys::claims(dir), self.common.who.me());
        let raw = self.opens.get_one(&key)?;
        let mut all = claimant::decode(raw.as_deref())?;
        if all.contains(&me) {
            return Ok(());
        }
        all.retain(|other| self.common.who.lives(other));
        all.push(me);
        change.txn.expect(&self.opens, &key, raw.as_deref())?;
        change.txn.put(&self.opens, &key, &claimant::encode(&all))?;
        Ok(())
    }
    /// Claims the directory in which a file was last seen.
    fn claim_of(&self, ino: u64) -> FsResult<()> {
        self.claim(self.places.get(ino).map_or(0, |(dir, _)| dir))
    }
    /// Returns the possible holders of a file that loses its last name; the change relies on the claims.
    pub fn holders(&self, change: &mut Change<'_>, found: &FoundNode) -> FsResult<Vec<Claimant>> {
        let dir = match &found.place {
            NodeLocation::Entry { dir, .. } => *dir,
            NodeLocation::Own | NodeLocation::Orphan => 0,
        };
        let claims = self.claims(dir)?;
        if change.relies_on_claims(dir) {
            change.txn.expect(&self.opens, &keys::claims(dir), claims.raw.as_deref())?;
        }
        let mut all = self.living_others(&claims);
        if let Some(live) = self.live(found.ino) {
            live.note_orphaned();
        }
        if self.is_held(found.ino) {
            all.push(self.common.who.me());
        }
        Ok(all)
    }
    /// Returns the claimants of a directory as last known: a change that relies on them fails if they changed. Reading them after every change
    /// of the index of opens would cost a message for each file that others remove.
    fn claims(&self, dir: u64) -> FsResult<Claims> {
        if let Some(known) = self.claims_known.lock().get(&dir) {
            return Ok(known.clone());
        }
        let raw = self.opens.get_one(&keys::claims(dir))?;
        let claims = Claims { all: claimant::decode(raw.as_deref())?.into(), raw: raw.map(Arc::from) };
        let mut known = self.claims_known.lock();
        if known.len() >= KNOWN_MAX {
            known.clear();
        }
        known.insert(dir, claims.clone());
        Ok(claims)
    }
    /// Forgets cached claims, which are out of date.
    pub fn forget_claims(&self) {
        self.claims_known.lock().clear();
    }
    /// Returns true if another living process claims the directory.
    pub fn is_claimed_by_others(&self, dir: u64) -> FsResult<bool> {
        self.claims_known.lock().remove(&dir);
        Ok(!self.living_others(&self.claims(dir)?).is_empty())
    }
    fn living_others(&self, claims: &Claims) -> Vec<Claimant> {
        let me = self.common.who.me();
        claims.all.iter().filter(|other| **other != me && self.common.who.lives(other)).copied().collect()
    }
    /// Records the possible holders of a file without a name.
    pub fn hold(&self, change: &mut Change<'_>, ino: u64, holders: &[Claimant]) -> FsResult<()> {
        change.txn.put(&self.opens, &keys::holders(ino), &claimant::encode(holders))?;
        Ok(())
    }
    /// Removes that record: the file has a name again.
    pub fn hold_no_more(&self, change: &mut Change<'_>, ino: u64) -> FsResult<()> {
        change.txn.del(&self.opens, &keys::holders(ino))?;
        Ok(())
    }
    /// Adds this process to the holders: it opens a file that has no name.
    pub fn hold_too(&self, ino: u64) -> FsResult<()> {
        self.change_file(|change| {
            let found = self.find(ino)?; // each time: others may have changed its times
            if found.place != NodeLocation::Orphan {
                return Ok(());
            }
            let (key, me) = (keys::holders(ino), self.common.who.me());
            let raw = self.opens.get_one(&key)?;
            let mut all = claimant::decode(raw.as_deref())?;
            if all.contains(&me) {
                return Ok(());
            }
            all.push(me);
            change.rely_on(&found)?;
            change.txn.expect(&self.opens, &key, raw.as_deref())?;
            self.hold(change, ino, &all)
        })
    }
    /// Removes this process, and those that died, from the holders of a file without a name.
    pub fn release(&self, ino: u64) -> FsResult<()> {
        self.change_alone(|change| {
            let Some(holders) = self.opens.get_one(&keys::holders(ino))? else { return Ok(()) };
            let node = self.opens.get_one(&keys::orphan(ino))?;
            self.release_in(change, &Orphan { ino, holders, node })
        })
    }
    /// Removes this process and dead ones from an orphan's holders; deletes the orphan if none is left. Fails if the record changed.
    fn release_in(&self, change: &mut Change<'_>, orphan: &Orphan) -> FsResult<()> {
        let (ino, key) = (orphan.ino, keys::holders(orphan.ino));
        let before = claimant::decode(Some(&orphan.holders))?;
        let all = self.without_gone(ino, &before);
        if all == before && !all.is_empty() {
            return Ok(());
        }
        change.txn.expect(&self.opens, &key, Some(&orphan.holders))?;
        if !all.is_empty() {
            return self.hold(change, ino, &all);
        }
        change.txn.del_expected(&self.opens, &key)?;
        if let Some(raw) = &orphan.node {
            change.txn.expect(&self.opens, &keys::orphan(ino), Some(raw))?;
            change.txn.del_expected(&self.opens, &keys::orphan(ino))?;
            return bury(change, ino, &Node::decode(raw)?);
        }
        let key = keys::old_orphan(ino);
        let Some(raw) = self.nodes().get_one(&key)? else { return Ok(()) };
        change.txn.expect(self.nodes(), &key, Some(&raw))?;
        change.txn.del_expected(self.nodes(), &key)?;
        bury(change, ino, &Node::decode(&raw)?)
    }
    /// Returns the holders of a file without a name that may still have it open.
    fn without_gone(&self, ino: u64, holders: &[Claimant]) -> Vec<Claimant> {
        let (me, is_open) = (self.common.who.me(), self.is_held(ino));
        let stays = |other: &&Claimant| if **other == me { is_open } else { self.common.who.lives(other) };
        holders.iter().filter(stays).copied().collect()
    }
    /// Releases orphans that this process does not have open, and deletes those whose holders died. `thoroughly`: even if nothing changed
    /// since the last time, as a process's death changes nothing.
    pub fn sweep(&self, thoroughly: bool) -> FsResult<()> {
        if self.common.options.is_read_only || !self.is_there()? {
            return Ok(());
        }
        let version = self.opens.version()?;
        if let Some((seen, orphans)) = self.claimed.lock().seen
            && seen == version
            && !(orphans && thoroughly)
        {
            return Ok(());
        }
        let mut orphans = false;
        let (mut go, mut idle) = (Vec::new(), BTreeSet::new());
        for (key, raw) in self.opens.next_with_prefix(&keys::all_holders(), cenote::NextFrom::Start, u32::MAX)?.iter() {
            let Some(ino) = keys::ino_in(key) else { continue };
            let holders = claimant::decode(Some(raw))?;
            if holders.is_empty() || self.without_gone(ino, &holders) != holders {
                idle.extend(self.places.get(ino).map(|(dir, _)| dir));
                go.push(Orphan { ino, holders: raw.to_vec(), node: None });
            }
            if let Some(live) = self.live(ino) {
                live.note_orphaned();
            }
            orphans = true;
        }
        self.claimed.lock().seen = Some((version, orphans));
        self.release_all(&mut go)?;
        idle.into_iter().try_for_each(|dir| self.unclaim_idle(dir))
    }
    /// Releases many, in few transactions.
    fn release_all(&self, all: &mut [Orphan]) -> FsResult<()> {
        if all.len() == 1 {
            return self.release(all[0].ino);
        }
        for some in all.chunks_mut(GO_TOGETHER) {
            let node_keys: Vec<_> = some.iter().map(|orphan| keys::orphan(orphan.ino)).collect();
            let nodes = self.opens.get(&node_keys.iter().map(<[u8; 6]>::as_slice).collect::<Vec<_>>())?;
            for (orphan, node) in some.iter_mut().zip(nodes) {
                orphan.node = node;
            }
            let mut change = Change::new(self, self.container.store().begin());
            some.iter().try_for_each(|orphan| self.release_in(&mut change, orphan))?;
            match change.commit() {
                Err(error) if error.kind() == Some(ErrorKind::Conflict) => {
                    some.iter().try_for_each(|orphan| self.release(orphan.ino))?;
                }
                other => other?,
            }
        }
        Ok(())
    }
    /// Gives up the claim of a directory that was unused for a round and has nothing open or gathered.
    fn unclaim_idle(&self, dir: u64) -> FsResult<()> {
        let _gate = self.gates.of_dir(dir).write();
        let lives: Vec<_> = self.live.lock().values().filter_map(std::sync::Weak::upgrade).collect();
        if self.gathered.is_any_in(dir) || lives.iter().any(|live| live.dir() == dir) {
            return Ok(());
        }
        {
            let mut claimed = self.claimed.lock();
            claimed.lent.retain(|_, since| since.elapsed() < LENT_FOR);
            let is_mine = claimed.generation == fork_generation() && claimed.lent.is_empty();
            match claimed.dirs.get_mut(&dir) {
                Some(used) if is_mine && dir != 0 => {
                    if std::mem::take(used) {
                        return Ok(());
                    }
                }
                _ => return Ok(()),
            }
            claimed.dirs.remove(&dir);
        }
        // If this fails, others still take the directory for claimed, which only costs them messages.
        self.change_alone(|change| self.drop_claim(change, dir))
    }
    fn drop_claim(&self, change: &mut Change<'_>, dir: u64) -> FsResult<()> {
        let (key, me) = (keys::claims(dir), self.common.who.me());
        let Some(raw) = self.opens.get_one(&key)? else { return Ok(()) };
        let mut all = claimant::decode(Some(&raw))?;
        all.retain(|other| *other != me);
        change.txn.expect(&self.opens, &key, Some(&raw))?;
        if all.is_empty() {
            change.txn.del(&self.opens, &key)?;
        } else {
            change.txn.put(&self.opens, &key, &claimant::encode(&all))?;
        }
        Ok(())
    }
    /// Counts files that have no name and are kept because somebody may have them open.
    pub fn orphans(&self) -> FsResult<usize> {
        if !self.is_there()? {
            return Ok(0);
        }
        Ok(self.opens.next_with_prefix(&keys::orphans(), cenote::NextFrom::Start, u32::MAX)?.len())
    }
    /// Lends this process's open files to a child before a fork; the child claims them at its first use.
    pub fn lend(&self) {
        let (now, open) = (Instant::now(), self.live.lock().keys().copied().collect::<Vec<_>>());
        let mut claimed = self.claimed.lock();
        claimed.lent.retain(|_, since| since.elapsed() < LENT_FOR);
        claimed.lent.extend(open.into_iter().map(|ino| (ino, now)));
    }
    /// Returns true if this process has the file open, or had it open when it forked a moment ago.
    fn is_held(&self, ino: u64) -> bool {
        if self.live(ino).is_some() {
            return true;
        }
        let claimed = self.claimed.lock();
        claimed.generation == fork_generation()
            && claimed.lent.get(&ino).is_some_and(|since| since.elapsed() < LENT_FOR)
    }
    /// Returns true if nobody else may have a file without a name open.
    pub fn is_held_by_me_alone(&self, ino: u64) -> bool {
        let me = self.common.who.me();
        let all = self.opens.get_one(&keys::holders(ino)).ok().and_then(|raw| claimant::decode(raw.as_deref()).ok());
        all.is_some_and(|all| all.iter().all(|other| *other == me || !self.common.who.lives(other)))
    }
    /// Claims what a forked child inherited open.
    pub fn inherit(&self) -> FsResult<()> {
        let lives: Vec<_> = self.live.lock().values().filter_map(std::sync::Weak::upgrade).collect();
        for live in lives {
            self.claim_of(live.ino)?;
            self.claim(0)?;
            match live.find() {
                Ok(found) if found.place == NodeLocation::Orphan => self.hold_too(live.ino)?,
                _ => {}
            }
        }
        Ok(())
    }
    /// Gives up all claims.
    fn unclaim(&self) -> FsResult<()> {
        let claimed = std::mem::take(&mut *self.claimed.lock());
        if claimed.dirs.is_empty() || claimed.generation != fork_generation() {
            return Ok(());
        }
        self.sweep(true)?;
        let dirs: Vec<u64> = claimed.dirs.into_keys().collect();
        for dirs in dirs.chunks(256) {
            self.change_file(|change| dirs.iter().try_for_each(|dir| self.drop_claim(change, *dir)))?;
        }
        Ok(())
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _in = crate::gate::enter();
        self.publish();
        // If this fails, others find that the process died.
        let _ = self.unclaim();
    }
}
