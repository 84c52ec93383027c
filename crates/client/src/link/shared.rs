//! Everything that the links of a session share: cached maps, names for errors, and threads. This file must not know
//! what an engine is.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use cenote_model::{ContainerId, IndexKey, ObjectKey};

use super::callbacks::Callbacks;
use super::workers::Workers;
use crate::map::cache::Objects;
use crate::sync::lock;

/// The shared state; see the module.
pub(crate) struct Shared {
    pub names: Names,
    pub objects: Objects,
    pub callbacks: Callbacks,
    pub workers: Workers,
}

impl Shared {
    /// For a session of the store in `dir`.
    pub fn new(dir: &Path) -> Self {
        Self {
            names: Names { dir: dir.to_path_buf(), labels: Mutex::default() },
            objects: Objects::default(),
            callbacks: Callbacks::default(),
            workers: Workers::default(),
        }
    }
}

/// Names for errors.
pub(crate) struct Names {
    dir: PathBuf,
    labels: Mutex<HashMap<ContainerId, Arc<str>>>,
}

impl Names {
    /// The store's name.
    pub fn store(&self) -> String {
        format!("store {}", self.dir.display())
    }
    /// Remembers a container's label.
    pub fn learn_label(&self, id: ContainerId, label: &Arc<str>) {
        lock(&self.labels).insert(id, label.clone());
    }
    fn container(&self, id: ContainerId) -> String {
        lock(&self.labels).get(&id).map_or_else(|| format!("container {id}"), |label| format!("container `{label}`"))
    }
    /// An object's name.
    #[cold]
    pub fn object(&self, key: ObjectKey) -> String {
        format!("object {} of {}", key.object, self.container(key.container))
    }
    /// An index's name.
    #[cold]
    pub fn index(&self, key: IndexKey) -> String {
        format!("index {} of {}", key.index, self.container(key.container))
    }
}
