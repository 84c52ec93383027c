//! What one process knows about a file that it has open, however many times: which objects are open, and the handle of
//! its metadata, which remembers what was read while nobody changes it (see [`cenote::Index::remembering`]).

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Weak};

use cenote::{Container, ContainerId, Index};
use parking_lot::Mutex;

/// Store directory, container, generation.
type FileKey = (PathBuf, ContainerId, u64);

static FILES: LazyLock<Mutex<HashMap<FileKey, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// See the module.
pub struct Shared {
    key: FileKey,
    meta: Index,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    files: u32,
    open: HashMap<u64, OpenObject>,
}

#[derive(Default)]
struct OpenObject {
    handles: u32,
    /// Has no link (any more): to be deleted when closed.
    doomed: bool,
}

impl Shared {
    /// What this process shares about that file; counts one more open file. `meta`: its metadata, if this is the first.
    pub fn join(store: PathBuf, container: &Container, generation: u64, meta: Index) -> Arc<Self> {
        let key = (store, container.id(), generation);
        let mut files = FILES.lock();
        files.retain(|_, weak| weak.strong_count() > 0);
        let shared = files.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Self { key: key.clone(), meta, state: Mutex::default() });
            files.insert(key, Arc::downgrade(&shared));
            shared
        });
        shared.state.lock().files += 1;
        shared
    }
    /// True if this process has that container open as a file, in whatever generation.
    pub fn is_open(store: &std::path::Path, container: ContainerId) -> bool {
        let files = FILES.lock();
        files.iter().any(|((s, c, _), weak)| s == store && *c == container && weak.strong_count() > 0)
    }
    /// The file's metadata.
    pub fn meta(&self) -> &Index {
        &self.meta
    }
    /// The store's directory.
    pub fn store_path(&self) -> &std::path::Path {
        &self.key.0
    }
    /// One open file less.
    pub fn file_closed(&self) {
        let mut state = self.state.lock();
        state.files = state.files.saturating_sub(1);
    }
    /// An object was opened.
    pub fn opened(&self, oid: u64, doomed: bool) {
        let mut state = self.state.lock();
        let object = state.open.entry(oid).or_default();
        object.handles += 1;
        object.doomed |= doomed;
    }
    /// An object was closed. True if it was the last handle and the object may have no link.
    pub fn closed(&self, oid: u64) -> bool {
        let mut state = self.state.lock();
        let Some(object) = state.open.get_mut(&oid) else { return false };
        object.handles = object.handles.saturating_sub(1);
        if object.handles > 0 {
            return false;
        }
        state.open.remove(&oid).is_some_and(|o| o.doomed)
    }
    /// If the object is open here, notes that it is to be deleted when closed, and says so.
    pub fn doom_if_open(&self, oid: u64) -> bool {
        match self.state.lock().open.get_mut(&oid) {
            Some(object) => {
                object.doomed = true;
                true
            }
            None => false,
        }
    }
}
