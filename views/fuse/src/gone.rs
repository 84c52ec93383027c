//! Directories that were removed through this mount while somebody stood in them: as on local file systems, they can be asked for
//! until the kernel forgets them.

use std::collections::HashMap;

use cenote_posix::{Attr, Ino};
use parking_lot::RwLock;

/// What they were last.
#[derive(Default)]
pub struct Gone(RwLock<HashMap<Ino, Attr>>);

impl Gone {
    /// A directory was removed. The kernel knows it still, since it asked for that.
    pub fn add(&self, mut attr: Attr) {
        attr.links = 0;
        self.0.write().insert(attr.ino, attr);
    }
    /// What `stat` tells of one.
    pub fn find(&self, ino: Ino) -> Option<Attr> {
        self.0.read().get(&ino).cloned()
    }
    /// The kernel forgot it.
    pub fn forget(&self, ino: Ino) {
        // Mostly there are none.
        if !self.0.read().is_empty() {
            self.0.write().remove(&ino);
        }
    }
}
