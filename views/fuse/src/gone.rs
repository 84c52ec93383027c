//! Directories that were removed through this mount while somebody used them: as on local file systems, their
//! attributes stay readable until the kernel forgets them.

use std::collections::HashMap;

use cenote_posix::{Attr, Ino};
use parking_lot::RwLock;

/// Their last attributes.
#[derive(Default)]
pub struct Gone(RwLock<HashMap<Ino, Attr>>);

impl Gone {
    /// Adds a removed directory. The kernel still knows it, since it requested the removal.
    pub fn add(&self, mut attr: Attr) {
        attr.links = 0;
        self.0.write().insert(attr.ino, attr);
    }
    /// The attributes of a removed directory.
    pub fn find(&self, ino: Ino) -> Option<Attr> {
        self.0.read().get(&ino).cloned()
    }
    /// Removes a directory that the kernel forgot.
    pub fn forget(&self, ino: Ino) {
        // Mostly the table is empty.
        if !self.0.read().is_empty() {
            self.0.write().remove(&ino);
        }
    }
}
