//! Page caches on other nodes of a cluster. A page cache is memory of one machine, so only the node whose home a file has makes one. Programs of all
//! other nodes find its record: what they would change there, or map beside stores that they cannot see, is refused by name.

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind};

use super::Live;
use crate::records::{PageCacheNote, VERSION, keys};
use crate::tree::{NodeLocation, Tree};
use crate::{FsError, FsResult};

/// How long a change is tried while page caches come and go.
const PATIENCE: Duration = Duration::from_secs(30);
/// What to do instead of mapping.
const BY_CALLS: &str = "read and write it by calls (`pread`, `pwrite`) here, which all nodes see";

impl Tree {
    /// Returns a mark that no other page cache of the container leaves.
    pub fn page_cache_mark(&self) -> [u8; 9] {
        let mut mark = [VERSION; 9];
        mark[1..].copy_from_slice(&RandomState::new().hash_one(self.number).to_le_bytes());
        mark
    }
    /// Returns the note that a page cache made now gets.
    pub fn page_cache_note(&self, is_stored_to: bool) -> PageCacheNote {
        let term = self.container.store().lock_words().term;
        PageCacheNote { term: (term != 0).then_some(term), is_stored_to }
    }
    /// Returns `EBUSY` if programs of the node whose home the file has hold its bytes in a page cache, where no change made here would arrive.
    #[inline]
    pub fn check_mapped_elsewhere(&self, ino: u64) -> FsResult<()> {
        if self.is_at_home || !self.has_page_cache(ino)? { Ok(()) } else { self.check_page_cache_elsewhere(ino) }
    }
    #[cold]
    fn check_page_cache_elsewhere(&self, ino: u64) -> FsResult<()> {
        if self.page_cache_elsewhere(ino)?.is_none() {
            return Ok(());
        }
        let node = self.node_of_home();
        let error = Error::new(ErrorKind::Busy, self.described(ino))
            .because(format!(
                "a program on node {node} has it mapped (`mmap` with `MAP_SHARED`), in memory that this node does not share"
            ))
            .try_next(format!("change it from a program on {node}, or again once all there have closed it"));
        Err(FsError { errno: libc::EBUSY, cause: Some(Box::new(error)) })
    }
    /// Returns whether a file has a page cache, and the mark that the last page cache of any file left: what another node has to know in one question.
    fn page_caches_from_afar(&self, ino: u64) -> FsResult<(bool, Option<Vec<u8>>)> {
        let now = self.page_caches.version()?;
        if *self.no_page_caches.lock() == Some(now) {
            return Ok((false, None));
        }
        let (key, mark) = (keys::page_cache(ino), keys::superblock());
        match self.page_caches.get(&[&key, &mark]) {
            Ok(mut found) => {
                let mark = found.pop().flatten();
                Ok((found.pop().flatten().is_some(), mark))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *self.no_page_caches.lock() = Some(now);
                Ok((false, None))
            }
            Err(error) => Err(error.into()),
        }
    }
    /// Returns the note of the page cache that the node with this file's home has. One that was lost with its host is removed.
    fn page_cache_elsewhere(&self, ino: u64) -> FsResult<Option<PageCacheNote>> {
        let Some(note) = self.noted_page_cache(ino)? else { return Ok(None) };
        let (store, home) = (self.container.store(), self.container.home());
        let report = store.ha_report()?;
        let now = report.homes.iter().find(|it| it.home == home).map(|it| it.term);
        let is_lost = note.term.zip(now).is_some_and(|(made, now)| made < now);
        if is_lost && !self.common.options.is_read_only {
            self.note_no_page_cache(ino)?;
        }
        Ok(Some(note).filter(|_| !is_lost))
    }
    /// Returns the name of the node whose home the container has.
    fn node_of_home(&self) -> String {
        let home = self.container.home();
        let report = self.container.store().ha_report().ok();
        let name = report.and_then(|report| report.nodes.into_iter().find(|it| it.node.0 == home.0)).map(|it| it.name);
        name.unwrap_or_else(|| home.to_string())
    }
    /// Names a file for people.
    fn described(&self, ino: u64) -> String {
        let container = self.container.info().map_or_else(|_| self.container.id().to_string(), |info| info.label);
        match self.find(ino).map(|found| found.place) {
            Ok(NodeLocation::Entry { name, .. }) => {
                format!("file `{}` in container `{container}`", String::from_utf8_lossy(&name))
            }
            _ => format!("file {ino} in container `{container}`"),
        }
    }
    /// Returns the record of a file's page cache.
    pub fn noted_page_cache(&self, ino: u64) -> FsResult<Option<PageCacheNote>> {
        if !self.has_page_cache(ino)? {
            return Ok(None);
        }
        self.page_caches.get_one(&keys::page_cache(ino))?.map(|raw| PageCacheNote::decode(&raw)).transpose()
    }
}

/// What becomes of a change if, meanwhile, the file may have had a page cache that was loaded before and put back after it.
pub enum IfUnclear<'a, T> {
    /// It is made again.
    Again,
    /// It stands if its effect is there; else nobody knows.
    Look(&'a dyn Fn(&T) -> FsResult<bool>),
}

impl Live {
    /// Changes the bytes of a file, unless programs of the node with its home have them in a page cache; returns once it is sure that none
    /// of those overwrites the change.
    ///
    /// A page cache is noted before its bytes are loaded: what was changed before that is in it. One that came and went during the change leaves
    /// another mark.
    #[inline]
    pub fn change_beside_nodes<T>(
        &self,
        if_unclear: &IfUnclear<'_, T>,
        mut change: impl FnMut() -> FsResult<T>,
    ) -> FsResult<T> {
        if self.tree.is_at_home { change() } else { self.change_from_afar(if_unclear, &mut change) }
    }
    fn change_from_afar<T>(
        &self,
        if_unclear: &IfUnclear<'_, T>,
        change: &mut dyn FnMut() -> FsResult<T>,
    ) -> FsResult<T> {
        let begin = Instant::now();
        let mut made = None;
        loop {
            let before = self.no_page_cache_elsewhere()?;
            let done = match (made.take(), if_unclear) {
                (Some(done), IfUnclear::Look(is_there)) => {
                    if !is_there(&done)? || begin.elapsed() > PATIENCE {
                        return Err(self.unclear());
                    }
                    done
                }
                (Some(_), IfUnclear::Again) if begin.elapsed() > PATIENCE => return Err(self.unclear()),
                _ => change()?,
            };
            if self.no_page_cache_elsewhere()? == before {
                return Ok(done);
            }
            made = Some(done);
        }
    }
    /// Returns the mark of the last page cache in the container if this file has none; `EBUSY` if it has one.
    fn no_page_cache_elsewhere(&self) -> FsResult<Option<Vec<u8>>> {
        let (is_there, mark) = self.tree.page_caches_from_afar(self.ino)?;
        if is_there {
            self.tree.check_page_cache_elsewhere(self.ino)?;
        }
        Ok(mark)
    }
    #[cold]
    fn unclear(&self) -> FsError {
        let error = Error::new(ErrorKind::Busy, self.tree.described(self.ino))
            .because(format!(
                "programs on node {} mapped it meanwhile (`mmap` with `MAP_SHARED`), and may have put back what was there before",
                self.tree.node_of_home()
            ))
            .try_next("read what is there, and make the change again");
        FsError { errno: libc::EBUSY, cause: Some(Box::new(error)) }
    }
    /// Returns whether the file has these bytes at an offset.
    pub fn has_bytes(&self, bytes: &[u8], at: u64) -> FsResult<bool> {
        let Some(object) = self.object()? else { return Ok(bytes.is_empty()) };
        let mut there = vec![0; bytes.len()];
        Ok(object.read_at(at, &mut there)? == bytes.len() && there == bytes)
    }
    /// The error for a program that wants to share memory of a file whose home is on another node.
    #[cold]
    pub fn shares_no_memory(&self) -> FsError {
        let stored_to = match self.tree.page_cache_elsewhere(self.ino) {
            Err(error) => return error,
            Ok(note) => note.is_some_and(|note| note.is_stored_to),
        };
        let node = self.tree.node_of_home();
        let error = Error::new(ErrorKind::Unsupported, self.tree.described(self.ino));
        let (errno, error) = if stored_to {
            let why =
                format!("a program on node {node} has it mapped for writing, in memory that this node does not share");
            (libc::ENODEV, error.because(why))
        } else {
            let why = format!("its home is on node {node}, and nodes share no memory (`mmap` with `MAP_SHARED`)");
            (libc::EOPNOTSUPP, error.because(why))
        };
        let error = error.try_next(format!("map it in a program on {node}, or {BY_CALLS}"));
        FsError { errno, cause: Some(Box::new(error)) }
    }
}
