//! What a process has open of one file, whatever the number of descriptors: its object, and times not yet sent.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sync::{Mutex, RwLock};
use cenote::{IndexVersion, Object, fork_generation};

use super::reserved::Reserved;
use super::{Joined, Meetings};
use crate::records::Node;
use crate::rights::Keeps;
use crate::tree::{Change, Found, Place, Tree};
use crate::{FsResult, Kind, Time, fail, gate, xattr};

/// Files end below this offset: that of `off_t`.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// A file that this process has open.
#[derive(Debug)]
pub struct Live {
    pub tree: Arc<Tree>,
    pub ino: u64,
    /// The directory by whose claim others know that it may be open.
    dir: AtomicU64,
    object: Object,
    has_object: AtomicBool,
    /// Mode and group, as last seen: set-id bits go with a write.
    mode: AtomicU32,
    gid: AtomicU32,
    /// It may have capabilities (`security.capability`), which go with the first change of its bytes.
    may_have_capabilities: AtomicBool,
    dirty: Mutex<Dirty>,
    /// Appends of this process come one after the other, so that they need not try again for each other.
    appending: Mutex<()>,
    /// It has no name any more, as far as this process knows.
    is_orphaned: AtomicBool,
    /// The file that this one turned out to be: another process made it first.
    other: OnceLock<Arc<Live>>,
    /// Fork generation of the process that has it open.
    generation: AtomicU64,
    /// The version of the index of nodes when it was found last that the file may be changed.
    may_change: Mutex<Option<IndexVersion>>,
    /// Where its advisory locks are.
    pub meetings: Meetings,
    /// What is known of its window.
    pub joined: RwLock<Joined>,
    /// While a window is put back: the time that its bytes have.
    put_back: Mutex<Option<Time>>,
    /// Space that is kept for it.
    pub reserved: Arc<Reserved>,
}

/// What the records do not know yet.
#[derive(Clone, Copy, Default, Debug)]
pub struct Dirty {
    /// Bytes were changed then.
    pub modified: Option<Time>,
    /// Bytes were read then.
    pub accessed: Option<Time>,
}

impl Dirty {
    fn is_none(self) -> bool {
        self.modified.is_none() && self.accessed.is_none()
    }
}

impl Live {
    /// What this process has open of `found`.
    pub fn of(tree: &Arc<Tree>, found: &Found) -> Arc<Self> {
        let mut all = tree.live.lock();
        if let Some(live) = all.get(&found.ino).and_then(std::sync::Weak::upgrade) {
            live.learn(&found.node);
            return live;
        }
        let live = Arc::new(Self {
            tree: tree.clone(),
            ino: found.ino,
            dir: AtomicU64::new(claimed_by(&found.place)),
            object: tree.object_of(found.ino, &found.node),
            has_object: AtomicBool::new(found.node.has_object),
            mode: AtomicU32::new(0),
            gid: AtomicU32::new(0),
            may_have_capabilities: AtomicBool::new(false),
            dirty: Mutex::default(),
            appending: Mutex::default(),
            is_orphaned: AtomicBool::new(false),
            other: OnceLock::new(),
            generation: AtomicU64::new(fork_generation()),
            may_change: Mutex::default(),
            meetings: Meetings::default(),
            joined: RwLock::default(),
            put_back: Mutex::default(),
            reserved: tree.reserved.of(found.ino),
        });
        live.learn(&found.node);
        all.insert(found.ino, Arc::downgrade(&live));
        live
    }
    /// Its group, as last seen.
    pub fn gid(&self) -> u32 {
        self.gid.load(Ordering::Relaxed)
    }
    /// The directory by whose claim others know that it may be open; 0: that of files whose nodes are apart.
    pub fn dir(&self) -> u64 {
        self.dir.load(Ordering::Relaxed)
    }
    /// It is found in that directory from now on.
    pub fn moves_to(&self, dir: u64) {
        self.dir.store(dir, Ordering::Relaxed);
    }
    fn learn(&self, node: &Node) {
        if node.has_object {
            self.has_object.store(true, Ordering::Release);
        }
        self.mode.store(node.mode, Ordering::Relaxed);
        self.gid.store(node.gid, Ordering::Relaxed);
        if node.has_xattrs {
            self.note_capabilities();
        }
    }
    /// It got capabilities, or may have some.
    pub fn note_capabilities(&self) {
        self.may_have_capabilities.store(true, Ordering::Relaxed);
    }
    /// What a program that runs from it may do besides.
    pub fn has_capabilities(&self) -> FsResult<bool> {
        if !self.may_have_capabilities.load(Ordering::Relaxed) {
            return Ok(false);
        }
        xattr::has_capabilities(&self.tree, &self.find()?)
    }
    /// Another process made the file first, and published it: all that comes is about that one.
    pub fn become_other(&self, found: &Found) {
        let _ = self.other.set(Self::of(&self.tree, found));
    }
    /// The file that this one turned out to be, if it is not itself.
    pub fn other(&self) -> Option<&Arc<Self>> {
        self.other.get()
    }
    /// It has no name any more.
    pub fn note_orphaned(&self) {
        self.is_orphaned.store(true, Ordering::Release);
    }
    /// In a forked child it was the parent that opened it.
    #[inline]
    fn check_fork(&self) -> FsResult<()> {
        if self.generation.load(Ordering::Relaxed) == fork_generation() { Ok(()) } else { self.inherit() }
    }
    #[cold]
    fn inherit(&self) -> FsResult<()> {
        self.generation.store(fork_generation(), Ordering::Relaxed);
        self.tree.inherit()
    }
    /// The bytes, if there are any.
    pub fn object(&self) -> FsResult<Option<&Object>> {
        self.check_fork()?;
        if !self.has_object.load(Ordering::Acquire) && !self.find()?.node.has_object {
            return Ok(None);
        }
        self.has_object.store(true, Ordering::Release);
        Ok(Some(&self.object))
    }
    /// The object, whether it is there or not.
    pub fn handle(&self) -> &Object {
        &self.object
    }
    /// `EROFS` if the directory was laminated since the file was opened.
    pub fn check_changes(&self) -> FsResult<()> {
        // Directories change only with the index of nodes.
        let now = self.tree.nodes().version()?;
        if *self.may_change.lock() == Some(now) {
            return Ok(());
        }
        self.tree.check_changes_of(self.ino)?;
        *self.may_change.lock() = Some(now);
        Ok(())
    }
    /// Its records as they are now.
    pub fn find(&self) -> FsResult<Found> {
        self.tree.find(self.ino)
    }
    /// What the records do not know yet.
    pub fn dirty(&self) -> Dirty {
        *self.dirty.lock()
    }
    /// The same, which the caller makes known.
    pub fn take_dirty(&self) -> Dirty {
        std::mem::take(&mut *self.dirty.lock())
    }
    /// Bytes were changed.
    pub fn note(&self) {
        let time = self.time_of_bytes(self.tree.common.clock.now());
        self.dirty.lock().modified = Some(time);
    }
    /// While `run` changes bytes they have this time, so that nobody sees another in between.
    pub fn at_time<T>(&self, time: Option<Time>, run: impl FnOnce() -> T) -> T {
        *self.put_back.lock() = time;
        let result = run();
        *self.put_back.lock() = None;
        result
    }
    fn time_of_bytes(&self, now: Time) -> Time {
        self.put_back.lock().unwrap_or(now)
    }
    /// Bytes were changed then, whatever was noted before.
    pub fn note_at(&self, time: Time) {
        self.dirty.lock().modified = Some(time);
    }
    /// Bytes were read; `relatime`: only what tells something new is kept.
    pub fn note_read(&self) -> FsResult<()> {
        const DAY_S: i64 = 24 * 3600;
        if !self.tree.common.options.keeps_access_times || self.tree.common.options.is_read_only {
            return Ok(());
        }
        let (dirty, now) = (self.dirty(), self.tree.common.clock.now());
        if let Some(accessed) = dirty.accessed
            && dirty.modified.is_none_or(|modified| modified <= accessed)
            && now.s - accessed.s < DAY_S
        {
            return Ok(());
        }
        let node = settled(&self.find()?.node, dirty);
        if node.accessed <= node.modified || node.accessed <= node.changed || now.s - node.accessed.s >= DAY_S {
            self.dirty.lock().accessed = Some(now);
        }
        Ok(())
    }
    /// The size in bytes.
    pub fn size(&self) -> FsResult<u64> {
        match self.window()? {
            Some(window) => window.usage().map(|(size, _)| size),
            None => self.object_size(),
        }
    }
    /// The same, whatever the window.
    pub fn object_size(&self) -> FsResult<u64> {
        self.object()?.map_or(Ok(0), |object| Ok(object.size()?))
    }
    /// Writes at an offset. `keeps`: of set-id bits.
    pub fn write(&self, bytes: &[u8], offset: u64, keeps: Keeps) -> FsResult<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        check_end(offset, bytes.len() as u64)?;
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        let (window, object) = (self.window()?, self.object()?);
        if let Some(window) = window {
            return window.write_at(bytes, offset); // its own time is what others see
        }
        self.with_reserved(
            || vec![(offset, offset + bytes.len() as u64)],
            || match object {
                Some(object) => Ok(object.write_at(offset, bytes)?),
                None => self.with_object(|change, object| Ok(change.txn.write(object, offset, bytes)?)),
            },
        )?;
        self.note();
        Ok(())
    }
    /// Writes these parts, whatever the window.
    pub fn write_object(&self, parts: &[(u64, &[u8])]) -> FsResult<()> {
        self.check_changes()?;
        let object = self.object()?;
        self.with_reserved(
            || parts.iter().map(|(at, bytes)| (*at, *at + bytes.len() as u64)).collect(),
            || match object {
                Some(object) => Ok(object.writev(parts)?),
                None => self.with_object(|change, object| {
                    parts.iter().try_for_each(|(at, bytes)| Ok(change.txn.write(object, *at, bytes)?))
                }),
            },
        )?;
        self.note();
        Ok(())
    }
    /// Makes a hole of what has bytes in a range, whatever the window.
    pub fn punch_object(&self, from: u64, to: u64) -> FsResult<()> {
        let Some(object) = self.object()? else { return Ok(()) };
        if from < to && object.next_data(from)?.is_some_and(|at| at < to) {
            self.check_changes()?;
            object.punch(from, to - from)?;
            self.note();
        }
        Ok(())
    }
    /// Sets the size, whatever the window.
    pub fn truncate_object(&self, size: u64) -> FsResult<()> {
        self.check_changes()?;
        match self.object()? {
            Some(object) => object.truncate(size)?,
            None => self.with_object(|change, object| Ok(change.txn.truncate(object, size)?))?,
        }
        self.note();
        Ok(())
    }
    /// Makes a range what one of another file is; how many bytes that were.
    pub fn copy_from(&self, from: &Object, from_offset: u64, at: u64, len: u64, keeps: Keeps) -> FsResult<u64> {
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        if self.object()?.is_none() {
            self.with_object(|_, _| Ok(()))?;
        }
        let mut copied = 0;
        self.around_window(at, || {
            copied = self.object.copy_from(at, from, from_offset, len)?;
            Ok(())
        })?;
        self.note();
        Ok(copied)
    }
    /// Bytes are changed: what lets a program do more than who runs it goes. `keeps`: of set-id bits.
    pub fn drop_privileges(&self, keeps: Keeps) -> FsResult<()> {
        let mode = self.mode.load(Ordering::Relaxed);
        let gone = mode & !keeps.behind(Kind::File, mode);
        let has_capabilities = self.may_have_capabilities.load(Ordering::Relaxed);
        if gone == 0 && !has_capabilities {
            return Ok(());
        }
        // Whoever gives it some from now on says so again.
        self.may_have_capabilities.store(false, Ordering::Relaxed);
        let done = self.tree.change_file(|change| {
            let found = self.find()?;
            let mode = keeps.behind(found.node.kind, found.node.mode);
            if change.drop_capabilities(&found)? || mode != found.node.mode {
                change.put_node(&found, &Node { mode, changed: change.now, ..found.node.clone() })?;
            }
            Ok(())
        });
        if done.is_err() && has_capabilities {
            self.note_capabilities();
        } else if done.is_ok() {
            self.mode.fetch_and(!gone, Ordering::Relaxed);
        }
        done
    }
    /// A transaction on the bytes and the node's times, in which the object is made if it is not there.
    pub fn with_object<T>(&self, mut make: impl FnMut(&mut Change<'_>, &Object) -> FsResult<T>) -> FsResult<T> {
        self.check_changes()?;
        let made = self.tree.change_file(|change| {
            let found = self.find()?;
            let mut node = found.node.clone();
            (node.modified, node.changed) = (self.time_of_bytes(change.now), change.now);
            if !node.has_object {
                change.txn.create_object(&self.tree.container, Some(self.object.key().object), None)?;
                node.has_object = true;
            }
            change.put_node(&found, &node)?;
            make(change, &self.object)
        })?;
        self.has_object.store(true, Ordering::Release);
        self.dirty.lock().modified = None;
        Ok(made)
    }
    /// Writes at the end, wherever that is when this is applied. Returns where.
    pub fn append(&self, bytes: &[u8], keeps: Keeps) -> FsResult<u64> {
        if bytes.is_empty() {
            return self.size();
        }
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        if let Some(window) = self.window()? {
            return window.append(bytes);
        }
        let _mine = self.appending.lock();
        if self.object()?.is_none() {
            let mut first = true;
            let done = self.with_object(|change, object| {
                first = !self.find()?.node.has_object;
                if first {
                    change.txn.write(object, 0, bytes)?;
                }
                Ok(())
            });
            done?;
            if first {
                return Ok(0);
            }
        }
        let (size, len) = (self.object_size()?, bytes.len() as u64);
        check_end(size, len)?;
        let at = self.with_reserved(|| vec![(size, size + len)], || Ok(self.object.append(bytes)?))?;
        self.note();
        Ok(at)
    }
    /// Sets the size.
    pub fn truncate(&self, size: u64) -> FsResult<()> {
        if size > FILE_BYTES_MAX {
            return fail(libc::EFBIG);
        }
        self.check_changes()?;
        if let Some(window) = self.window()? {
            window.set_size(size)?;
        }
        self.tree.change_file(|change| {
            let found = self.find()?;
            let node = truncated(change, &found, size)?;
            change.put_node(&found, &node)
        })?;
        self.dirty.lock().modified = None;
        self.reserved.give_up(size, u64::MAX);
        Ok(())
    }
    /// Times that only this process knows go to the records.
    pub fn settle(&self) -> FsResult<()> {
        if self.dirty().is_none() {
            return Ok(());
        }
        self.tree.publish();
        self.settle_alone()
    }
    /// The same, whatever is gathered.
    pub fn settle_alone(&self) -> FsResult<()> {
        let dirty = self.take_dirty();
        if dirty.is_none() {
            return Ok(());
        }
        let done = self.tree.change_alone(|change| {
            let found = self.find()?;
            if self.tree.is_gathered(&found) {
                return Ok(()); // nothing but a look at it, which tells nobody anything
            }
            let node = settled(&found.node, dirty);
            change.put_node(&found, &node)
        });
        match done {
            // Nobody will ask for the times of what is not there.
            Err(error) if error.errno == libc::ESTALE => Ok(()),
            Err(error) => {
                let mut now = self.dirty.lock();
                now.modified = now.modified.or(dirty.modified);
                now.accessed = now.accessed.or(dirty.accessed);
                Err(error)
            }
            Ok(()) => Ok(()),
        }
    }
}

impl Drop for Live {
    /// The last descriptor of this process was closed.
    fn drop(&mut self) {
        let _in = gate::enter();
        self.leave_window();
        {
            let mut all = self.tree.live.lock();
            if all.get(&self.ino).is_some_and(|live| live.strong_count() == 0) {
                all.remove(&self.ino);
            }
        }
        if self.generation.load(Ordering::Relaxed) == fork_generation() {
            // Who wants to know what goes wrong here has called `close`.
            let _ = self.settle_alone();
            self.tree.reserved.tidy(self.ino);
            if self.is_orphaned.load(Ordering::Acquire) {
                self.tree.reserved.forget(self.ino);
                let _ = self.tree.let_go(self.ino);
            }
        }
    }
}

/// The directory whose claims count for what is found there.
fn claimed_by(place: &Place) -> u64 {
    match place {
        Place::Entry { dir, .. } => *dir,
        Place::Own | Place::Orphan => 0,
    }
}

/// `EFBIG` if a file cannot reach so far.
pub fn check_end(offset: u64, len: u64) -> FsResult<()> {
    let fits = offset.checked_add(len).is_some_and(|end| end <= FILE_BYTES_MAX);
    if fits { Ok(()) } else { fail(libc::EFBIG) }
}

/// A node with times that were not known to it.
pub fn settled(node: &Node, dirty: Dirty) -> Node {
    let mut node = node.clone();
    if let Some(modified) = dirty.modified {
        node.modified = modified;
        node.changed = node.changed.max(modified);
    }
    node.accessed = dirty.accessed.unwrap_or(node.accessed);
    node
}

/// Sets the size of what was found; returns the node as it is then, which the caller puts.
pub fn truncated(change: &mut Change<'_>, found: &Found, size: u64) -> FsResult<Node> {
    let (tree, mut node) = (change.tree, found.node.clone());
    (node.modified, node.changed) = (change.now, change.now);
    change.drop_capabilities(found)?;
    let object = tree.object(found.ino);
    if node.has_object {
        change.txn.truncate(&object, size)?;
    } else if size > 0 {
        let object = change.txn.create_object(&tree.container, Some(object.key().object), None)?;
        change.txn.truncate(&object, size)?;
        node.has_object = true;
    }
    Ok(node)
}
