//! Who may have what open.

use crate::FsResult;
use crate::names::bury;
use crate::records::{Node, keys};

use super::{Change, Found, Tree};

impl Tree {
    /// This process may have files of a directory open from now on.
    pub fn claim(&self, _dir: u64) -> FsResult<()> {
        Ok(())
    }
    /// The same for where a file was seen.
    pub fn claim_of(&self, ino: u64) -> FsResult<()> {
        self.claim(self.places.get(ino).map_or(0, |(dir, _)| dir))
    }
    /// True if somebody may have a file open that loses its last name.
    pub fn may_be_open(&self, _change: &mut Change<'_>, found: &Found) -> FsResult<bool> {
        Ok(self.live(found.ino).is_some())
    }
    /// This process has a file without a name open.
    pub fn hold(&self, _change: &mut Change<'_>, _ino: u64) -> FsResult<()> {
        Ok(())
    }
    /// A file without a name has one again.
    pub fn hold_no_more(&self, _change: &mut Change<'_>, _ino: u64) -> FsResult<()> {
        Ok(())
    }
    /// This process has a file open no longer.
    pub fn let_go(&self, ino: u64) -> FsResult<()> {
        self.change(|change| {
            let key = keys::orphan(ino);
            let Some(raw) = self.nodes().get_one(&key)? else { return Ok(()) };
            change.txn.expect(self.nodes(), &key, Some(&raw))?;
            change.txn.del(self.nodes(), &key)?;
            bury(change, ino, &Node::decode(&raw)?)
        })
    }
}
