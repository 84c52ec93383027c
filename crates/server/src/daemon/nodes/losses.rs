//! Homes of which this node has lost what it had: the machine was started anew, and what was in memory, or not synced, is gone.
//! Others are told of it, so that nobody takes it for a copy, and mirrors that have more take the homes over.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cenote_cluster::{Members, NodeFile};
use cenote_device::home;
use cenote_ha::View;
use cenote_host::home::shm_base;
use cenote_model::{Error, HomeId, NodeId, Result};
use cenote_store::Engine;

use super::super::location::{self, CopyPlace, LOST_FILE};
use crate::metadata;
use crate::service::lock;

/// See the module.
pub(super) struct Losses {
    dir: PathBuf,
    own: HomeId,
    lost: Mutex<BTreeSet<HomeId>>,
}

impl Losses {
    /// What the node in `dir` has lost since its daemon ran last. Looks before anything is opened.
    pub fn find(dir: &Path, members: &Members) -> Result<Self> {
        let this = Self { dir: dir.to_path_buf(), own: members.home, lost: Mutex::default() };
        if members.protect == 0 || NodeFile::open(dir)?.view() == 0 {
            return Ok(this);
        }
        let here = location::dir_of_home(dir)?;
        let store = Engine::peek(&metadata::look(&here)?)?.id;
        // The memory of copies is below that of the node's home; it may be gone.
        let memory = home::memory_dir(&shm_base(), store)?.unwrap_or_else(|| shm_base().join("gone"));
        let is_there = if here == dir {
            home::has_table(&shm_base(), store)?
        } else {
            // A copy that came has its memory, and no table before it is opened.
            memory.join(here.file_name().unwrap_or_default()).is_dir()
        };
        let mut lost = BTreeSet::new();
        if this.is_own_lost(is_there)? {
            lost.insert(members.home);
        }
        for home in members.homes() {
            if CopyPlace::was_lost(dir, &memory, home)? {
                lost.insert(home);
            }
        }
        if !lost.is_empty() {
            let homes: Vec<String> = lost.iter().map(ToString::to_string).collect();
            tracing::warn!(
                homes = homes.join(", "),
                "the memory of this machine is new: mirrors may have more of these homes"
            );
        }
        *lock(&this.lost) = lost;
        Ok(this)
    }
    /// Returns true if the node's own home was lost, now or before; notes it. `is_there`: it has its memory now.
    fn is_own_lost(&self, is_there: bool) -> Result<bool> {
        let note = self.dir.join(LOST_FILE);
        let was_noted = note.exists();
        if !is_there && !was_noted {
            let noted = std::fs::write(&note, format!("{}\n", self.own));
            noted.map_err(|error| Error::io(note.display().to_string(), &error))?;
        }
        Ok(was_noted || !is_there)
    }
    /// Returns true if what this node has of a home is not what it had.
    pub fn has(&self, home: HomeId) -> bool {
        lock(&self.lost).contains(&home)
    }
    /// What this node has of a home cannot become the home, or may lack what was told to be safe.
    pub fn note(&self, home: HomeId) {
        lock(&self.lost).insert(home);
    }
    /// What this node has of a home is good again: a copy came, or nobody has more.
    pub fn forget(&self, home: HomeId) {
        if lock(&self.lost).remove(&home) && home == self.own {
            let _ = std::fs::remove_file(self.dir.join(LOST_FILE)); // if it stays, a mirror takes the home over once more
        }
    }
    /// The homes of which others have to know it. `view`: none is known yet.
    pub fn to_tell(&self, me: NodeId, view: Option<&View>) -> Vec<HomeId> {
        let concerns = |home: &&HomeId| {
            let entry = view.and_then(|view| view.home(cenote_ha::HomeId(home.0)));
            view.is_none() || entry.is_some_and(|entry| entry.copies().any(|node| node == me))
        };
        lock(&self.lost).iter().filter(concerns).copied().collect()
    }
}
