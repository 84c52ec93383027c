//! What one process knows about an open file, however often it is open: which objects are open, and the handle of its
//! metadata index, which caches records while nobody changes them (see [`cenote::Index::remembering`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Once, Weak};

use cenote::{Container, ContainerId, Error, ErrorKind, Index};
use parking_lot::Mutex;

use super::ahead::Ahead;
use super::held::Held;
use super::numbers::Numbers;
use super::superblock::Super;
use crate::Result;
use crate::meta::attrs::Attr;
use crate::team::Marks;

/// Store directory, container, generation.
/// Identity of an open file: two opens with the same key share their state.
#[derive(Clone, PartialEq, Eq, Hash)]
struct FileKey {
    /// Directory of its store.
    store: PathBuf,
    container: ContainerId,
    /// Raised when the file is replaced.
    generation: u64,
}

static FILES: LazyLock<Mutex<HashMap<FileKey, Weak<Shared>>>> = LazyLock::new(Mutex::default);

/// Makes changes arrive before a fork: a child sees what its parent did before.
unsafe extern "C" fn before_fork() {
    for shared in &open_files() {
        // The parent's next flush or close reports what cannot be shown.
        if let Err(error) = shared.show_extents(None) {
            shared.tell_later(error);
        }
        shared.ahead.arrive();
    }
}

/// Rewords an error in terms of the file, since the store knows only numbers and keys. A part of the file may be missing
/// because another program has replaced the file; a lack of space may be due to the file's quota.
pub fn explained(error: Error) -> Error {
    match error.kind() {
        ErrorKind::NotFound if ["index ", "object "].iter().any(|of| error.subject().starts_with(of)) => {
            let Some(shared) = open_files().into_iter().find(|shared| shared.is_replaced()) else { return error };
            Error::new(ErrorKind::NotFound, format!("file {}", shared.container.label()))
                .because(format!("it was replaced by another program (mode 'w') after this one opened it; {error}"))
                .try_next("close it, and open the new one")
        }
        ErrorKind::LimitExceeded if error.to_string().contains("quota") => {
            let said = error.to_string();
            let is_of = |shared: &Arc<Shared>| said.contains(&format!(" {}/", shared.container.id()));
            let Some(shared) = open_files().into_iter().find(is_of) else { return error };
            let label = shared.container.label();
            Error::new(ErrorKind::LimitExceeded, format!("file {label}"))
                .because(format!("the quota of its container is used up ({})", error.subject()))
                .try_next(format!("delete something in it, or raise the quota: `cenote set {label} --quota SIZE`"))
        }
        _ => error,
    }
}

fn open_files() -> Vec<Arc<Shared>> {
    FILES.lock().values().filter_map(Weak::upgrade).collect()
}

/// What one process shares about an open file.
pub struct Shared {
    key: FileKey,
    container: Container,
    meta: Index,
    ahead: Ahead,
    pub(super) held: Held,
    state: Mutex<SharedState>,
    numbers: Mutex<Numbers>,
    /// Some open call of this process asked for writing; then all handles may write, as in HDF5.
    writable: AtomicBool,
}

#[derive(Default)]
struct SharedState {
    files: u32,
    /// Number of `files` open for writing.
    writers: u32,
    open: HashMap<u64, OpenObject>,
    /// Objects whose metadata the program does not want flushed (`H5Odisable_mdc_flushes`).
    corked: HashSet<u64>,
    /// What other ranks have open, during a change made for them.
    elsewhere: Option<Marks>,
    /// Objects without a link that some rank may have open; they are deleted when the ranks close the file.
    postponed: BTreeSet<u64>,
    /// Open attributes by uid.
    attrs: HashMap<u64, OpenAttr>,
    /// An error that no call could report.
    untold: Option<Error>,
}

#[derive(Default)]
struct OpenAttr {
    handles: u32,
    /// The attribute as it was when deleted.
    last: Option<Attr>,
}

#[derive(Default)]
struct OpenObject {
    handles: u32,
    /// Has no link (any more): deleted when closed.
    doomed: bool,
}

impl Shared {
    /// Counts one more open file, and returns what this process shares about it. `meta` and `ahead` are used if it is the
    /// first.
    pub fn join(store: PathBuf, container: &Container, generation: u64, (meta, ahead): (Index, Ahead)) -> Arc<Self> {
        static AT_FORK: Once = Once::new();
        AT_FORK.call_once(|| {
            // SAFETY: the handler is a function that lives as long as the process. Without it children miss the last changes.
            let _ = unsafe { libc::pthread_atfork(Some(before_fork), None, None) };
        });
        let key = FileKey { store, container: container.id(), generation };
        let mut files = FILES.lock();
        files.retain(|_, weak| weak.strong_count() > 0);
        let shared = files.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let shared = Arc::new(Self {
                key: key.clone(),
                container: container.clone(),
                meta,
                ahead,
                held: Held::default(),
                state: Mutex::default(),
                numbers: Mutex::default(),
                writable: AtomicBool::new(false),
            });
            files.insert(key, Arc::downgrade(&shared));
            shared
        });
        shared.state.lock().files += 1;
        shared
    }
    /// Returns true if this process has that container open as a file, in any generation.
    pub fn is_open(store: &std::path::Path, container: ContainerId) -> bool {
        let files = FILES.lock();
        files.iter().any(|(key, weak)| key.store == *store && key.container == container && weak.strong_count() > 0)
    }
    /// Returns true if another program has replaced the file since it was opened.
    fn is_replaced(&self) -> bool {
        matches!(Super::read(&self.container), Ok(Some(sup)) if sup.generation != self.key.generation)
    }
    /// Notes whether an open call asked for writing; returns true if any ever did.
    pub fn may_write(&self, asked: bool) -> bool {
        self.writable.fetch_or(asked, Ordering::Relaxed) || asked
    }
    /// The file's metadata index.
    pub fn meta(&self) -> &Index {
        &self.meta
    }
    /// Counts an open file that is open for writing.
    pub fn writer_opened(&self) {
        self.state.lock().writers += 1;
    }
    /// Returns true if exactly one open file of this process is open for writing.
    pub fn is_last_writer(&self) -> bool {
        self.state.lock().writers == 1
    }
    /// The file's launched changes.
    pub fn ahead(&self) -> &Ahead {
        &self.ahead
    }
    /// Takes a number for a new object.
    pub fn new_number(&self) -> Result<u64> {
        self.numbers.lock().take()
    }
    /// The store's directory.
    pub fn store_path(&self) -> &std::path::Path {
        &self.key.store
    }
    /// Counts one open file less.
    pub fn file_closed(&self, writable: bool) {
        let mut state = self.state.lock();
        state.files = state.files.saturating_sub(1);
        state.writers = state.writers.saturating_sub(u32::from(writable));
        let is_last = writable && state.writers == 0;
        drop(state);
        if is_last {
            if let Err(error) = self.show_extents(None) {
                self.tell_later(error);
            }
            self.write_for_readers(false);
            self.ahead.leave();
        }
    }
    /// Sets whether a program wants flushes of an object's metadata.
    pub fn cork(&self, oid: u64, on: bool) {
        let corked = &mut self.state.lock().corked;
        if on {
            corked.insert(oid)
        } else {
            corked.remove(&oid)
        };
    }
    /// Keeps an error for the file's next flush or close to report.
    pub fn tell_later(&self, error: Error) {
        self.state.lock().untold.get_or_insert(error);
    }
    /// Takes the error to report, if any.
    pub fn take_untold(&self) -> Option<Error> {
        self.state.lock().untold.take()
    }
    /// Returns true if a program wants no flushes of an object's metadata.
    pub fn is_corked(&self, oid: u64) -> bool {
        self.state.lock().corked.contains(&oid)
    }
    /// Counts an opened object.
    pub fn opened(&self, oid: u64, doomed: bool) {
        let mut state = self.state.lock();
        let object = state.open.entry(oid).or_default();
        object.handles += 1;
        object.doomed |= doomed;
    }
    /// Counts a closed object. Returns true if it was the last handle and the object may have no link.
    pub fn closed(&self, oid: u64) -> bool {
        let mut state = self.state.lock();
        let Some(object) = state.open.get_mut(&oid) else { return false };
        object.handles = object.handles.saturating_sub(1);
        if object.handles > 0 {
            return false;
        }
        state.open.remove(&oid).is_some_and(|o| o.doomed)
    }
    /// Counts an opened attribute.
    pub fn attr_opened(&self, uid: u64) {
        self.state.lock().attrs.entry(uid).or_default().handles += 1;
    }
    /// Counts a closed attribute.
    pub fn attr_closed(&self, uid: u64) {
        let mut state = self.state.lock();
        if let Some(attr) = state.attrs.get_mut(&uid) {
            attr.handles = attr.handles.saturating_sub(1);
            if attr.handles == 0 {
                state.attrs.remove(&uid);
            }
        }
    }
    /// Keeps an attribute that is about to be deleted: open handles stay readable, as in HDF5.
    pub fn attr_deleted(&self, attr: &Attr) {
        if let Some(open) = self.state.lock().attrs.get_mut(&attr.uid) {
            open.last = Some(attr.clone());
        }
    }
    /// The last state of a deleted attribute that is still open.
    pub fn attr_last(&self, uid: u64) -> Option<Attr> {
        self.state.lock().attrs.get(&uid).and_then(|open| open.last.clone())
    }
    /// If the object is open here (or may be on another rank), marks it to be deleted when closed, and returns true.
    pub fn doom_if_open(&self, oid: u64) -> bool {
        let mut state = self.state.lock();
        if let Some(object) = state.open.get_mut(&oid) {
            object.doomed = true;
            return true;
        }
        let elsewhere = state.elsewhere.as_ref().is_some_and(|marks| marks.may_have(oid));
        if elsewhere {
            state.postponed.insert(oid);
        }
        elsewhere
    }
    /// Marks of the objects open here.
    pub fn open_marks(&self) -> Marks {
        let mut marks = Marks::default();
        self.state.lock().open.keys().for_each(|oid| marks.add(*oid));
        marks
    }
    /// Runs `work`, which spares what other ranks have open.
    pub fn with_elsewhere<T>(&self, marks: &Marks, work: impl FnOnce() -> T) -> T {
        self.state.lock().elsewhere = Some(marks.clone());
        let done = work();
        self.state.lock().elsewhere = None;
        done
    }
    /// Postpones deleting an object without a link until no rank has it open.
    pub fn postpone(&self, oid: u64) {
        self.state.lock().postponed.insert(oid);
    }
    /// Takes the postponed objects that are not open here.
    pub fn take_postponed(&self) -> Vec<u64> {
        let mut state = self.state.lock();
        let SharedState { open, postponed, .. } = &mut *state;
        let (kept, ready): (BTreeSet<u64>, BTreeSet<u64>) =
            std::mem::take(postponed).into_iter().partition(|oid| open.contains_key(oid));
        *postponed = kept;
        ready.into_iter().collect()
    }
}
