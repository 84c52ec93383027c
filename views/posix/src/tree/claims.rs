//! Who may have what open, so that a file whose last name goes stays for those who have it open, in whatever process.
//!
//! To say so at each `open` would be a message, and a record in the journal, for each. A process *claims* a directory instead
//! when it opens the first file in it, and keeps the claim. Who takes the last name of a file away looks at the claims (which
//! change seldom, so this is no message) and relies on them in the same transaction: if nobody else claims the directory and
//! this process has the file not open, the file goes at once. Else it becomes an *orphan* with a list of those who may hold it;
//! each takes itself off when it closes the file or finds that it has it not open (a look at a version word each
//! [`crate::keeper`] round); who takes the last one off, or finds that the last one died, buries it.
//!
//! A file that has its node apart (it was renamed, or has several names) may have been opened by another name: for it all
//! claims in the tree count, those of number 0. A file system that is read-only claims nothing: what it has open can go.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use cenote::{ErrorKind, fork_generation};

use crate::FsResult;
use crate::names::bury;
use crate::records::{Claimant, Node, claimant, keys};
use crate::sync::RwLock;

use super::{Change, Found, NumberMap, Place, Tree};

/// Directories whose opens and removals wait for each other.
const GATES: usize = 64;

/// How long a child has to say that it has open what its parent had.
const LENT_FOR: Duration = Duration::from_secs(5);

/// What this process claims of a tree.
#[derive(Debug, Default)]
pub struct Claimed {
    dirs: HashSet<u64>,
    /// Fork generation that claimed.
    generation: u64,
    /// Version of the index of opens when it was looked at last, and whether there were orphans.
    seen: Option<(cenote::IndexVersion, bool)>,
    /// What was open when this process forked last, and when that was.
    lent: NumberMap<Instant>,
}

/// Locks that keep threads of this process from taking a file away while another opens it.
#[derive(Debug)]
pub struct Gates([RwLock<()>; GATES]);

impl Default for Gates {
    fn default() -> Self {
        Self(std::array::from_fn(|_| RwLock::default()))
    }
}

impl Gates {
    /// The lock for files that are found in that place.
    pub fn of(&self, place: &Place) -> &RwLock<()> {
        match place {
            Place::Entry { dir, .. } => self.of_dir(*dir),
            Place::Own | Place::Orphan => &self.0[0],
        }
    }
    /// The lock for files whose nodes are in a directory's entries.
    pub fn of_dir(&self, dir: u64) -> &RwLock<()> {
        &self.0[1 + dir as usize % (GATES - 1)]
    }
}

impl Tree {
    /// This process may have files of a directory open from now on (0: files whose nodes are apart).
    pub fn claim(&self, dir: u64) -> FsResult<()> {
        let generation = fork_generation();
        {
            let claimed = self.claimed.lock();
            if claimed.generation == generation && claimed.dirs.contains(&dir) {
                return Ok(());
            }
        }
        if self.common.options.is_read_only || !self.is_there()? {
            return Ok(());
        }
        let done = self.change_file(|change| {
            self.add_claim(change, dir)?;
            if dir == 0 { Ok(()) } else { self.add_claim(change, 0) }
        });
        match done {
            // This user may only read: what it has open can go.
            Err(error) if error.kind() == Some(ErrorKind::PermissionDenied) => {}
            other => other?,
        }
        let mut claimed = self.claimed.lock();
        if claimed.generation != generation {
            *claimed = Claimed { generation, ..Claimed::default() };
        }
        claimed.dirs.insert(dir);
        claimed.dirs.insert(0);
        Ok(())
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
    /// The same for where a file was seen.
    pub fn claim_of(&self, ino: u64) -> FsResult<()> {
        self.claim(self.places.get(ino).map_or(0, |(dir, _)| dir))
    }
    /// Who may have a file open that loses its last name; the change relies on it.
    pub fn holders(&self, change: &mut Change<'_>, found: &Found) -> FsResult<Vec<Claimant>> {
        let dir = match &found.place {
            Place::Entry { dir, .. } => *dir,
            Place::Own | Place::Orphan => 0,
        };
        let (key, me) = (keys::claims(dir), self.common.who.me());
        let raw = self.opens.get_one(&key)?;
        let mut all = claimant::decode(raw.as_deref())?;
        if change.relies_on_claims(dir) {
            change.txn.expect(&self.opens, &key, raw.as_deref())?;
        }
        all.retain(|other| *other != me && self.common.who.lives(other));
        if let Some(live) = self.live(found.ino) {
            live.note_orphaned();
        }
        if self.is_held(found.ino) {
            all.push(me);
        }
        Ok(all)
    }
    /// These may have a file without a name open.
    pub fn hold(&self, change: &mut Change<'_>, ino: u64, holders: &[Claimant]) -> FsResult<()> {
        change.txn.put(&self.opens, &keys::holders(ino), &claimant::encode(holders))?;
        Ok(())
    }
    /// A file without a name has one again.
    pub fn hold_no_more(&self, change: &mut Change<'_>, ino: u64) -> FsResult<()> {
        change.txn.del(&self.opens, &keys::holders(ino))?;
        Ok(())
    }
    /// This process opens a file that has no name.
    pub fn hold_too(&self, ino: u64) -> FsResult<()> {
        self.change_file(|change| {
            let found = self.find(ino)?; // each time: others may have changed its times
            if found.place != Place::Orphan {
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
    /// This process has a file without a name open no longer; those that died have not, either.
    pub fn let_go(&self, ino: u64) -> FsResult<()> {
        self.change_alone(|change| {
            let (key, me) = (keys::holders(ino), self.common.who.me());
            let Some(raw) = self.opens.get_one(&key)? else { return Ok(()) };
            let before = claimant::decode(Some(&raw))?;
            let is_open = self.is_held(ino);
            let mut all = before.clone();
            all.retain(|other| if *other == me { is_open } else { self.common.who.lives(other) });
            if all == before {
                return Ok(());
            }
            change.txn.expect(&self.opens, &key, Some(&raw))?;
            if !all.is_empty() {
                return self.hold(change, ino, &all);
            }
            change.txn.del_expected(&self.opens, &key)?;
            let key = keys::orphan(ino);
            let Some(raw) = self.nodes().get_one(&key)? else { return Ok(()) };
            change.txn.expect(self.nodes(), &key, Some(&raw))?;
            change.txn.del_expected(self.nodes(), &key)?;
            bury(change, ino, &Node::decode(&raw)?)
        })
    }
    /// Lets go of orphans that this process has not open, and buries those whose holders died. `thoroughly`: also if nothing
    /// changed since the last time, as the death of a process changes nothing.
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
        let me = self.common.who.me();
        let mut orphans = false;
        for record in self.opens.next_with_prefix(&keys::all_holders(), cenote::NextFrom::Start, u32::MAX)?.to_vec() {
            let Some(ino) = keys::ino_in(&record.0) else { continue };
            let holders = claimant::decode(Some(&record.1))?;
            let is_open = self.is_held(ino);
            let is_stale = |other: &Claimant| if *other == me { !is_open } else { !self.common.who.lives(other) };
            if holders.is_empty() || holders.iter().any(is_stale) {
                self.let_go(ino)?;
            }
            if let Some(live) = self.live(ino) {
                live.note_orphaned();
            }
            orphans = true;
        }
        self.claimed.lock().seen = Some((version, orphans));
        Ok(())
    }
    /// Files that have no name and are kept because somebody may have them open.
    pub fn orphans(&self) -> FsResult<usize> {
        if !self.is_there()? {
            return Ok(0);
        }
        Ok(self.nodes().next_with_prefix(&keys::orphans(), cenote::NextFrom::Start, u32::MAX)?.len())
    }
    /// This process forks: what it has open its child has open as well, which says so when it first comes to it.
    pub fn lend(&self) {
        let (now, open) = (Instant::now(), self.live.lock().keys().copied().collect::<Vec<_>>());
        let mut claimed = self.claimed.lock();
        claimed.lent.retain(|_, since| since.elapsed() < LENT_FOR);
        claimed.lent.extend(open.into_iter().map(|ino| (ino, now)));
    }
    /// True if this process has the file open, or had when it forked a moment ago.
    fn is_held(&self, ino: u64) -> bool {
        if self.live(ino).is_some() {
            return true;
        }
        let claimed = self.claimed.lock();
        claimed.generation == fork_generation()
            && claimed.lent.get(&ino).is_some_and(|since| since.elapsed() < LENT_FOR)
    }
    /// True if nobody else may have a file without a name open.
    pub fn is_held_by_me_alone(&self, ino: u64) -> bool {
        let me = self.common.who.me();
        let all = self.opens.get_one(&keys::holders(ino)).ok().and_then(|raw| claimant::decode(raw.as_deref()).ok());
        all.is_some_and(|all| all.iter().all(|other| *other == me || !self.common.who.lives(other)))
    }
    /// In a forked child: what it inherited open is its own as well.
    pub fn inherit(&self) -> FsResult<()> {
        let lives: Vec<_> = self.live.lock().values().filter_map(std::sync::Weak::upgrade).collect();
        for live in lives {
            self.claim_of(live.ino)?;
            self.claim(0)?;
            match live.find() {
                Ok(found) if found.place == Place::Orphan => self.hold_too(live.ino)?,
                _ => {}
            }
        }
        Ok(())
    }
    /// Takes all claims back.
    fn unclaim(&self) -> FsResult<()> {
        let claimed = std::mem::take(&mut *self.claimed.lock());
        if claimed.dirs.is_empty() || claimed.generation != fork_generation() {
            return Ok(());
        }
        self.sweep(true)?;
        let me = self.common.who.me();
        let dirs: Vec<u64> = claimed.dirs.into_iter().collect();
        for dirs in dirs.chunks(256) {
            self.change_file(|change| {
                for dir in dirs {
                    let key = keys::claims(*dir);
                    let Some(raw) = self.opens.get_one(&key)? else { continue };
                    let mut all = claimant::decode(Some(&raw))?;
                    all.retain(|other| *other != me);
                    change.txn.expect(&self.opens, &key, Some(&raw))?;
                    if all.is_empty() {
                        change.txn.del(&self.opens, &key)?;
                    } else {
                        change.txn.put(&self.opens, &key, &claimant::encode(&all))?;
                    }
                }
                Ok(())
            })?;
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
