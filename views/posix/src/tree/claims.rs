//! Who may have what open, so that a file whose last name goes stays for those who have it open, in whatever process.
//!
//! To say so at each `open` would be a message, and a record in the journal, for each. A process *claims* a directory instead
//! when it opens the first file in it, and keeps the claim. Who takes the last name of a file away looks at the claims (which
//! change seldom, so this is no message) and relies on them in the same transaction: if nobody else claims the directory and
//! this process has the file not open, the file goes at once. Else it becomes an *orphan* with a list of those who may hold it;
//! each takes itself off when it closes the file or finds that it has it not open (a look at a version word each
//! [`crate::keeper`] round); who takes the last one off, or finds that the last one died, buries it. Who finds itself held
//! responsible for files that it has not open gives the claim of their directory up if it has not used that for a round.
//!
//! A file that has its node apart (it was renamed, or has several names) may have been opened by another name: for it all
//! claims in the tree count, those of number 0. A file system that is read-only claims nothing: what it has open can go.

use std::collections::BTreeSet;
use std::sync::{Arc, RwLockReadGuard};
use std::time::{Duration, Instant};

use cenote::{ErrorKind, fork_generation};

use crate::FsResult;
use crate::names::bury;
use crate::records::{Claimant, Node, claimant, keys};
use crate::sync::RwLock;

use super::{Change, Found, NumberMap, Place, Tree};

/// Directories whose opens and removals wait for each other.
const GATES: usize = 64;

/// Orphans that go in one transaction.
const GO_TOGETHER: usize = 256;
/// Directories whose claims are known.
const KNOWN_MAX: usize = 4096;

/// How long a child has to say that it has open what its parent had.
const LENT_FOR: Duration = Duration::from_secs(5);

/// What this process claims of a tree.
#[derive(Debug, Default)]
pub struct Claimed {
    /// Directories, and whether files of each were opened since the last round.
    dirs: NumberMap<bool>,
    /// Fork generation that claimed.
    generation: u64,
    /// Version of the index of opens when it was looked at last, and whether there were orphans.
    seen: Option<(cenote::IndexVersion, bool)>,
    /// What was open when this process forked last, and when that was.
    lent: NumberMap<Instant>,
}

/// Who claims a directory, as it was when that was looked at.
#[derive(Clone, Default, Debug)]
pub struct Claims {
    raw: Option<Arc<[u8]>>,
    all: Arc<[Claimant]>,
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

/// A file without a name, as it was found.
struct Orphan {
    ino: u64,
    /// Who may have it open.
    holders: Vec<u8>,
    /// Its node, if it is where it belongs.
    node: Option<Vec<u8>>,
}

impl Tree {
    /// This process may have files of a directory open from now on (0: files whose nodes are apart).
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
            // This user may only read: what it has open can go.
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
    /// True if this process claims a directory, or never will.
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
    /// Claims a directory, and keeps the claim and all files that are found in its entries until the guard is dropped.
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
    /// The same for where a file was seen.
    fn claim_of(&self, ino: u64) -> FsResult<()> {
        self.claim(self.places.get(ino).map_or(0, |(dir, _)| dir))
    }
    /// Who may have a file open that loses its last name; the change relies on it.
    pub fn holders(&self, change: &mut Change<'_>, found: &Found) -> FsResult<Vec<Claimant>> {
        let dir = match &found.place {
            Place::Entry { dir, .. } => *dir,
            Place::Own | Place::Orphan => 0,
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
    /// Who claims a directory, as it was known last: a change that relies on it finds out whether it is so. To ask whenever the index of opens
    /// changed would be a message for each file that others take away.
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
    /// What was known of claims is not so any more.
    pub fn forget_claims(&self) {
        self.claims_known.lock().clear();
    }
    /// True if another process that lives claims a directory.
    pub fn is_claimed_by_others(&self, dir: u64) -> FsResult<bool> {
        self.claims_known.lock().remove(&dir);
        Ok(!self.living_others(&self.claims(dir)?).is_empty())
    }
    fn living_others(&self, claims: &Claims) -> Vec<Claimant> {
        let me = self.common.who.me();
        claims.all.iter().filter(|other| **other != me && self.common.who.lives(other)).copied().collect()
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
            let Some(holders) = self.opens.get_one(&keys::holders(ino))? else { return Ok(()) };
            let node = self.opens.get_one(&keys::orphan(ino))?;
            self.let_go_of(change, &Orphan { ino, holders, node })
        })
    }
    /// The same of one of several, as it was found.
    fn let_go_of(&self, change: &mut Change<'_>, orphan: &Orphan) -> FsResult<()> {
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
    /// Those of the holders of a file without a name that may have it open still.
    fn without_gone(&self, ino: u64, holders: &[Claimant]) -> Vec<Claimant> {
        let (me, is_open) = (self.common.who.me(), self.is_held(ino));
        let stays = |other: &&Claimant| if **other == me { is_open } else { self.common.who.lives(other) };
        holders.iter().filter(stays).copied().collect()
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
        self.let_go_all(&mut go)?;
        idle.into_iter().try_for_each(|dir| self.unclaim_idle(dir))
    }
    /// Lets go of many, in few transactions.
    fn let_go_all(&self, all: &mut [Orphan]) -> FsResult<()> {
        if all.len() == 1 {
            return self.let_go(all[0].ino);
        }
        for some in all.chunks_mut(GO_TOGETHER) {
            let node_keys: Vec<_> = some.iter().map(|orphan| keys::orphan(orphan.ino)).collect();
            let nodes = self.opens.get(&node_keys.iter().map(<[u8; 6]>::as_slice).collect::<Vec<_>>())?;
            for (orphan, node) in some.iter_mut().zip(nodes) {
                orphan.node = node;
            }
            let mut change = Change::new(self, self.container.store().begin());
            some.iter().try_for_each(|orphan| self.let_go_of(&mut change, orphan))?;
            match change.commit() {
                Err(error) if error.kind() == Some(ErrorKind::Conflict) => {
                    some.iter().try_for_each(|orphan| self.let_go(orphan.ino))?;
                }
                other => other?,
            }
        }
        Ok(())
    }
    /// Gives up the claim of a directory that was not used for a round and that nothing is open, or gathered, of.
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
        // If this fails others go on taking the directory for claimed, which costs them messages, and nothing else.
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
    /// Files that have no name and are kept because somebody may have them open.
    pub fn orphans(&self) -> FsResult<usize> {
        if !self.is_there()? {
            return Ok(0);
        }
        Ok(self.opens.next_with_prefix(&keys::orphans(), cenote::NextFrom::Start, u32::MAX)?.len())
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
