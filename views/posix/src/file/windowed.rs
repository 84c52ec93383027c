//! Records of which files have windows, and clean-up after processes that died in theirs.

use std::sync::Arc;

use cenote::{ErrorKind, WindowFile};

use super::live::Live;
use super::window::{SORT, name_of, of_io};
use crate::records::{INO_BITS, VERSION, keys};
use crate::tree::Tree;
use crate::{FsResult, Time};

impl Tree {
    /// Returns true if a file has a window.
    pub fn has_window(&self, ino: u64) -> FsResult<bool> {
        let now = self.windows.version()?;
        if *self.no_windows.lock() == Some(now) {
            return Ok(false);
        }
        match self.windows.get_one(&keys::window(ino)) {
            Ok(found) => Ok(found.is_some()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                *self.no_windows.lock() = Some(now);
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
    /// Returns true if the index of windows exists.
    pub fn has_windows(&self) -> FsResult<bool> {
        match self.windows.get_one(&keys::superblock()) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
    pub fn note_window(&self, ino: u64) -> FsResult<()> {
        loop {
            let is_there = self.has_windows()?;
            let mut txn = self.container.store().begin();
            if !is_there {
                txn.create_index(&self.container, Some(keys::windows_index()))?;
            }
            txn.put(&self.windows, &keys::window(ino), &[VERSION])?;
            match txn.commit() {
                Err(error) if error.kind() == ErrorKind::Exists && !is_there => {} // another process created it first
                Err(error) => return Err(error.into()),
                Ok(_) => return Ok(()),
            }
        }
    }
    pub fn note_no_window(&self, ino: u64) -> FsResult<()> {
        match self.windows.del(&[&keys::window(ino)[..]]) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
    /// Returns size, bytes in use and modification time from the window, which this process need not have open.
    pub fn window_usage(&self, ino: u64) -> FsResult<Option<(u64, u64, Time)>> {
        if !self.has_window(ino)? {
            return Ok(None);
        }
        // A process that may not look there uses the object.
        let found = self.container.store().find_meeting_file(SORT, &name_of(self, ino));
        let Ok(Some(here)) = found else { return Ok(None) };
        let file = WindowFile::new(here);
        if !file.is_filled().map_err(of_io)? {
            return Ok(None);
        }
        let ((size, used), (s, ns)) = file.usage().and_then(|usage| Ok((usage, file.modified()?))).map_err(of_io)?;
        Ok(Some((size, used, Time { s, ns })))
    }
    /// Writes back and removes windows of processes that died.
    pub fn sweep_windows(self: &Arc<Self>) -> FsResult<()> {
        let now = self.windows.version()?;
        if *self.no_windows.lock() == Some(now) || !self.has_windows()? {
            return Ok(());
        }
        for record in self.windows.next_with_prefix(&keys::windows(), cenote::NextFrom::Start, u32::MAX)?.to_vec() {
            let Some(ino) = keys::ino_in(&record.0) else { continue };
            if self.live(ino).is_some() {
                continue; // this process is in its window, or enters it with its next call
            }
            let live = match self.find(ino) {
                Ok(found) => Live::of(self, &found),
                Err(error) if error.errno == libc::ESTALE => {
                    bury(self, ino)?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            live.window()?; // enters, then leaves as the last process
        }
        self.sweep_window_files()
    }
    /// Removes window files that have no record: their processes died right after creating them or writing them back.
    fn sweep_window_files(&self) -> FsResult<()> {
        let store = self.container.store();
        for name in store.meeting_names(SORT).map_err(of_io)? {
            let number = u64::from_str_radix(&name, 16).ok();
            let Some(ino) = number.filter(|number| number >> INO_BITS == self.number) else { continue };
            let ino = ino & ((1 << INO_BITS) - 1);
            if self.has_window(ino)? {
                continue;
            }
            if let Some(here) = store.find_meeting_file(SORT, &name).map_err(of_io)? {
                here.alone(|| self.has_window(ino).is_ok_and(|has| !has)).map_err(of_io)?;
                here.leave();
            }
        }
        Ok(())
    }
}

/// Removes the window of a file that does not exist, unless somebody is in it.
fn bury(tree: &Tree, ino: u64) -> FsResult<()> {
    match tree.container.store().find_meeting_file(SORT, &name_of(tree, ino)).map_err(of_io)? {
        Some(here) => {
            here.alone(|| tree.note_no_window(ino).is_ok()).map_err(of_io)?;
            here.leave();
            Ok(())
        }
        None => tree.note_no_window(ino),
    }
}
