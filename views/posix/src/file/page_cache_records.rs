//! Records of which files have page caches, and clean-up after processes that died in theirs.

use std::sync::Arc;

use cenote::{ErrorKind, PageCacheFile};

use super::live::Live;
use super::page_cache::{PageCacheAttr, SORT, name_of, of_io};
use crate::Ino;
use crate::records::{Entry, PRIVATE, PageCacheNote, ROOT, keys};
use crate::tree::{FoundNode, Tree};
use crate::{FsResult, Kind, Time};

impl Tree {
    /// Returns true if a file has a page cache.
    pub fn has_page_cache(&self, ino: u64) -> FsResult<bool> {
        let now = self.page_caches.version()?;
        if *self.no_page_caches.lock() == Some(now) {
            return Ok(false);
        }
        match self.page_caches.get_one(&keys::page_cache(ino)) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *self.no_page_caches.lock() = Some(now);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
    /// Returns true if the index of page caches exists.
    pub fn has_page_caches(&self) -> FsResult<bool> {
        match self.page_caches.get_one(&keys::superblock()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
    pub fn note_page_cache(&self, ino: u64, note: &PageCacheNote) -> FsResult<()> {
        loop {
            let is_there = self.has_page_caches()?;
            let mut txn = self.container.store().begin();
            if !is_there {
                txn.create_index(&self.container, Some(keys::page_caches_index()))?;
            }
            txn.put(&self.page_caches, &keys::page_cache(ino), &note.encode())?;
            if note.term.is_some() {
                txn.put(&self.page_caches, &keys::superblock(), &self.page_cache_mark())?;
            }
            match txn.commit() {
                Err(error) if error.kind() == ErrorKind::Exists && !is_there => {} // another process created it first
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }
    pub fn note_no_page_cache(&self, ino: u64) -> FsResult<()> {
        match self.page_caches.del(&[&keys::page_cache(ino)[..]]) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
    /// Returns size, bytes in use and modification time from the page cache, which this process need not have open.
    pub fn page_cache_usage(&self, ino: u64) -> FsResult<Option<PageCacheAttr>> {
        if !self.is_at_home || !self.has_page_cache(ino)? {
            return Ok(None);
        }
        // A process that may not look there uses the object.
        let found = self.container.store().find_meeting_file(SORT, &name_of(self, ino));
        let Ok(Some(here)) = found else { return Ok(None) };
        let file = PageCacheFile::new(here);
        if !file.is_filled().map_err(of_io)? {
            return Ok(None);
        }
        let ((size_bytes, used_bytes), (s, ns)) =
            file.usage().and_then(|usage| Ok((usage, file.modified()?))).map_err(of_io)?;
        Ok(Some(PageCacheAttr { size_bytes, used_bytes, modified: Time { s, ns } }))
    }
    /// Writes back and removes page caches of processes that died.
    pub fn sweep_page_caches(self: &Arc<Self>) -> FsResult<()> {
        let now = self.page_caches.version()?;
        if !self.is_at_home || *self.no_page_caches.lock() == Some(now) || !self.has_page_caches()? {
            return Ok(());
        }
        for record in
            self.page_caches.next_with_prefix(&keys::page_caches(), cenote::NextFrom::Start, u32::MAX)?.to_vec()
        {
            let Some(ino) = keys::ino_in(&record.0) else { continue };
            if self.live(ino).is_some() {
                continue; // this process is in its page cache, or enters it with its next call
            }
            let live = match self.find_anywhere(ino) {
                Ok(found) => Live::of(self, &found),
                Err(error) if error.errno == libc::ESTALE => {
                    bury(self, ino)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            live.page_cache()?; // enters, then leaves as the last process
        }
        self.sweep_page_cache_files()
    }
    /// Finds a file by its number, although this process may never have seen its name: a file's node is in its directory's entry, so all are searched.
    fn find_anywhere(&self, ino: u64) -> FsResult<FoundNode> {
        match self.find(ino) {
            Err(error) if error.errno == libc::ESTALE => {}
            found => return found,
        }
        let mut dirs = vec![ROOT, PRIVATE];
        while let Some(dir) = dirs.pop() {
            for record in self.dir(dir).iter(&keys::entries()) {
                let (key, raw) = match record {
                    Err(error) if error.kind() == ErrorKind::NotFound => break, // removed meanwhile
                    record => record?,
                };
                let entry = Entry::decode(&raw)?;
                if entry.ino == ino {
                    self.seen(ino, dir, keys::entry_name(&key));
                } else if entry.kind == Kind::Directory {
                    dirs.push(entry.ino);
                }
            }
        }
        self.find(ino)
    }
    /// Removes page cache files that have no record: their processes died right after creating them or writing them back.
    fn sweep_page_cache_files(&self) -> FsResult<()> {
        let store = self.container.store();
        for name in store.meeting_names(SORT).map_err(of_io)? {
            let number = u64::from_str_radix(&name, 16).ok();
            let split = number.map(|number| self.common.numbering.split(Ino(number)));
            let Some((_, ino)) = split.filter(|(tree, _)| *tree == self.number) else { continue };
            if self.has_page_cache(ino)? {
                continue;
            }
            if let Some(here) = store.find_meeting_file(SORT, &name).map_err(of_io)? {
                here.alone(|| self.has_page_cache(ino).is_ok_and(|has| !has)).map_err(of_io)?;
                here.leave();
            }
        }
        Ok(())
    }
}

/// Removes the page cache of a file that does not exist, unless somebody is in it.
fn bury(tree: &Tree, ino: u64) -> FsResult<()> {
    match tree.container.store().find_meeting_file(SORT, &name_of(tree, ino)).map_err(of_io)? {
        Some(here) => {
            here.alone(|| tree.note_no_page_cache(ino).is_ok()).map_err(of_io)?;
            here.leave();
            Ok(())
        }
        None => tree.note_no_page_cache(ino),
    }
}
