//! Creation of a tree in a container that has none.

use std::sync::atomic::Ordering;

use cenote::{CONTAINER_MODE, CONTAINER_MODE_PRIVATE, ContainerSpec, ErrorKind};

use crate::records::{Node, PRIVATE, ROOT, VERSION, keys};
use crate::{FsResult, Kind, fail};

use super::{Tree, numbers};

impl Tree {
    /// Returns the root of a tree that was not created yet.
    pub fn unmade_root(&self, owner: Option<(u32, u32)>, mode: u32) -> FsResult<Node> {
        let owner = if let Some(owner) = owner {
            owner
        } else {
            let spec = self.container.info()?.spec;
            (spec.owner_uid.unwrap_or(0), spec.owner_gid.unwrap_or(0))
        };
        let mut node = Node::new(Kind::Directory, mode, owner, self.common.clock.now());
        node.consistency = self.common.options.consistency;
        node.parent = ROOT;
        Ok(node)
    }
    /// Returns true if the tree's indices exist.
    pub fn is_there(&self) -> FsResult<bool> {
        if self.is_made.load(Ordering::Acquire) {
            return Ok(true);
        }
        match self.nodes().get_one(&keys::superblock()) {
            Ok(found) => {
                self.is_made.store(found.is_some(), Ordering::Release);
                Ok(found.is_some())
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.container.info()?; // or the container itself does not exist
                Ok(false)
            }
            Err(error) => Err(error.into()),
        }
    }
    /// Creates the tree if it does not exist.
    pub fn make(&self, owner: Option<(u32, u32)>, mode: u32) -> FsResult<()> {
        if self.is_there()? {
            return Ok(());
        }
        if self.common.options.is_read_only {
            return fail(libc::EROFS);
        }
        let root = self.unmade_root(owner, mode)?;
        self.shut()?;
        let store = self.container.store();
        let mut txn = store.begin();
        let nodes = txn.create_index(&self.container, Some(keys::nodes_index()))?;
        let numbers = txn.create_index(&self.container, Some(keys::numbers_index()))?;
        txn.create_index(&self.container, Some(keys::opens_index()))?;
        txn.create_index(&self.container, Some(keys::dir_index(ROOT)))?;
        txn.create_index(&self.container, Some(keys::dir_index(PRIVATE)))?;
        txn.put(&nodes, &keys::superblock(), &[VERSION])?;
        txn.put(&nodes, &keys::node(ROOT), &root.encode())?;
        let private_dir = Node { mode: 0o700, parent: PRIVATE, ..root };
        txn.put(&nodes, &keys::node(PRIVATE), &private_dir.encode())?;
        txn.put(&numbers, &keys::superblock(), &numbers::first())?;
        match txn.commit() {
            Err(error) if error.kind() != ErrorKind::Exists => return Err(error.into()),
            _ => {} // another process created it first
        }
        self.is_made.store(true, Ordering::Release);
        Ok(())
    }
    /// Makes the container private: only views enforce modes of files. From its first file on, a container whose mode
    /// nobody chose is accessible to its owner only; a mode chosen later stays.
    fn shut(&self) -> FsResult<()> {
        let spec = self.container.info()?.spec;
        if spec.mode != CONTAINER_MODE {
            return Ok(());
        }
        match self.container.set(&ContainerSpec { mode: CONTAINER_MODE_PRIVATE, ..spec }) {
            Err(error) if error.kind() != ErrorKind::PermissionDenied => Err(error.into()),
            _ => Ok(()), // a writer in another user's container does not decide its mode
        }
    }
    /// Returns a new inode number.
    pub fn draw(&self) -> FsResult<u64> {
        self.numbers.draw()
    }
}
