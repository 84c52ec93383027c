//! In-memory inode: a process's open state of one file for all descriptors: object and unrecorded times.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use crate::sync::{Mutex, RwLock};
use cenote::{IndexVersion, Object};
use cenote_host::fork::generation as fork_generation;

use super::reserved::Reserved;
use super::{Joined, Meetings};
use crate::records::Node;
use crate::rights::Keeps;
use crate::tree::{Change, FoundNode, NodeLocation, Tree};
use crate::{FsResult, Kind, Time, fail, gate, xattr};

/// Files end below this offset, the limit of `off_t`.
pub const FILE_BYTES_MAX: u64 = i64::MAX as u64;

/// A file that this process has open.
#[derive(Debug)]
pub struct Live {
    pub tree: Arc<Tree>,
    pub ino: u64,
    /// The directory whose claim tells others that the file may be open.
    dir: AtomicU64,
    object: Object,
    has_object: AtomicBool,
    /// Mode and group as last seen: a write drops set-id bits.
    mode: AtomicU32,
    gid: AtomicU32,
    /// The file may have capabilities (`security.capability`), which the first change of its bytes removes.
    may_have_capabilities: AtomicBool,
    dirty: Mutex<Dirty>,
    /// Serialises appends within this process, so that they do not make each other retry.
    appending: Mutex<()>,
    /// The file has no name any more, as far as this process knows.
    is_orphaned: AtomicBool,
    /// The file that replaces this one because another process created it first.
    other: OnceLock<Arc<Live>>,
    /// Fork generation of the process that has it open.
    generation: AtomicU64,
    /// Version of the index of nodes at the last check that the file may be changed.
    may_change: Mutex<Option<IndexVersion>>,
    /// Files that hold its advisory locks.
    pub meetings: Meetings,
    /// What this process knows of its page cache.
    pub joined: RwLock<Joined>,
    /// While a page cache is written back: the modification time of its bytes.
    put_back: Mutex<Option<Time>>,
    /// Space reserved for the file.
    pub reserved: Arc<Reserved>,
}

/// Times that the records do not have yet.
#[derive(Clone, Copy, Default, Debug)]
pub struct Dirty {
    /// Time of the last write.
    pub modified: Option<Time>,
    /// Time of the last read.
    pub accessed: Option<Time>,
}

impl Dirty {
    fn is_none(self) -> bool {
        self.modified.is_none() && self.accessed.is_none()
    }
}

impl Live {
    /// Returns the shared state of `found` in this process.
    pub fn of(tree: &Arc<Tree>, found: &FoundNode) -> Arc<Self> {
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
    /// Returns the group as last seen.
    pub fn gid(&self) -> u32 {
        self.gid.load(Ordering::Relaxed)
    }
    /// Returns the directory whose claim covers the open file; 0: the claim for files with a node of their own.
    pub fn dir(&self) -> u64 {
        self.dir.load(Ordering::Relaxed)
    }
    /// Records that the file is found in another directory from now on.
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
    /// Records that the file has, or may have, capabilities.
    pub fn note_capabilities(&self) {
        self.may_have_capabilities.store(true, Ordering::Relaxed);
    }
    /// Returns whether the file has capabilities (what a program run from it may do besides).
    pub fn has_capabilities(&self) -> FsResult<bool> {
        if !self.may_have_capabilities.load(Ordering::Relaxed) {
            return Ok(false);
        }
        xattr::has_capabilities(&self.tree, &self.find()?)
    }
    /// Redirects this file to the one that another process created and published first.
    pub fn become_other(&self, found: &FoundNode) {
        let _ = self.other.set(Self::of(&self.tree, found));
    }
    /// Returns the file that replaces this one, if any.
    pub fn other(&self) -> Option<&Arc<Self>> {
        self.other.get()
    }
    /// Records that the file has no name any more.
    pub fn note_orphaned(&self) {
        self.is_orphaned.store(true, Ordering::Release);
    }
    /// Checks for a fork: in a child, it was the parent that opened the file.
    #[inline]
    fn check_fork(&self) -> FsResult<()> {
        if self.generation.load(Ordering::Relaxed) == fork_generation() { Ok(()) } else { self.inherit() }
    }
    #[cold]
    fn inherit(&self) -> FsResult<()> {
        self.generation.store(fork_generation(), Ordering::Relaxed);
        self.tree.inherit()
    }
    /// Returns the object, if it exists.
    pub fn object(&self) -> FsResult<Option<&Object>> {
        self.check_fork()?;
        if !self.has_object.load(Ordering::Acquire) && !self.find()?.node.has_object {
            return Ok(None);
        }
        self.has_object.store(true, Ordering::Release);
        Ok(Some(&self.object))
    }
    /// Returns the object's handle, whether or not the object exists.
    pub fn handle(&self) -> &Object {
        &self.object
    }
    /// Returns `EROFS` if the directory was laminated after the file was opened.
    pub fn check_changes(&self) -> FsResult<()> {
        // A directory changes only together with the index of nodes.
        let now = self.tree.nodes().version()?;
        if *self.may_change.lock() == Some(now) {
            return Ok(());
        }
        self.tree.check_changes_of(self.ino)?;
        *self.may_change.lock() = Some(now);
        Ok(())
    }
    /// Looks up the file's current records.
    pub fn find(&self) -> FsResult<FoundNode> {
        self.tree.find(self.ino)
    }
    /// Returns the times that the records do not have yet.
    pub fn dirty(&self) -> Dirty {
        *self.dirty.lock()
    }
    /// Takes the times that the records do not have yet; the caller records them.
    pub fn take_dirty(&self) -> Dirty {
        std::mem::take(&mut *self.dirty.lock())
    }
    /// Records that bytes changed now.
    pub fn note(&self) {
        let time = self.time_of_bytes(self.tree.common.clock.now());
        self.dirty.lock().modified = Some(time);
    }
    /// Runs `run`, which changes bytes, with this modification time, so that nobody sees another in between.
    pub fn at_time<T>(&self, time: Option<Time>, run: impl FnOnce() -> T) -> T {
        *self.put_back.lock() = time;
        let result = run();
        *self.put_back.lock() = None;
        result
    }
    fn time_of_bytes(&self, now: Time) -> Time {
        self.put_back.lock().unwrap_or(now)
    }
    /// Sets the modification time, whatever was noted before.
    pub fn note_at(&self, time: Time) {
        self.dirty.lock().modified = Some(time);
    }
    /// Records a read by `relatime`: the first one since the last change, or a day after the recorded one.
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
    /// Returns the size in bytes.
    pub fn size(&self) -> FsResult<u64> {
        match self.page_cache()? {
            Some(page_cache) => page_cache.usage().map(|(size, _)| size),
            None => self.object_size(),
        }
    }
    /// Returns the object's size, ignoring the page cache.
    pub fn object_size(&self) -> FsResult<u64> {
        self.object()?.map_or(Ok(0), |object| Ok(object.size()?))
    }
    /// Writes at an offset. `keeps`: which set-id bits stay.
    pub fn write(&self, bytes: &[u8], offset: u64, keeps: Keeps) -> FsResult<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        check_end(offset, bytes.len() as u64)?;
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        let (page_cache, object) = (self.page_cache()?, self.object()?);
        if let Some(page_cache) = page_cache {
            return page_cache.write_at(bytes, offset); // the page cache's own time is what others see
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
    /// Writes these parts to the object, ignoring the page cache.
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
    /// Punches holes into the object where a range has data, ignoring the page cache.
    pub fn punch_object(&self, from: u64, to: u64) -> FsResult<()> {
        let Some(object) = self.object()? else { return Ok(()) };
        if from < to && object.next_data(from)?.is_some_and(|at| at < to) {
            self.check_changes()?;
            object.punch(from, to - from)?;
            self.note();
        }
        Ok(())
    }
    /// Sets the object's size, ignoring the page cache.
    pub fn truncate_object(&self, size: u64) -> FsResult<()> {
        self.check_changes()?;
        match self.object()? {
            Some(object) => object.truncate(size)?,
            None => self.with_object(|change, object| Ok(change.txn.truncate(object, size)?))?,
        }
        self.note();
        Ok(())
    }
    /// Replaces a range by a range of another file; returns how many bytes were copied.
    pub fn copy_from(&self, from: &Object, from_offset: u64, at: u64, len: u64, keeps: Keeps) -> FsResult<u64> {
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        if self.object()?.is_none() {
            self.with_object(|_, _| Ok(()))?;
        }
        let mut copied = 0;
        self.around_page_cache(at, || {
            copied = self.object.copy_from(at, from, from_offset, len)?;
            Ok(())
        })?;
        self.note();
        Ok(copied)
    }
    /// Drops privileges before bytes change: set-id bits (except those in `keeps`) and capabilities.
    pub fn drop_privileges(&self, keeps: Keeps) -> FsResult<()> {
        let mode = self.mode.load(Ordering::Relaxed);
        let gone = mode & !keeps.behind(Kind::File, mode);
        let has_capabilities = self.may_have_capabilities.load(Ordering::Relaxed);
        if gone == 0 && !has_capabilities {
            return Ok(());
        }
        // Whoever sets capabilities later notes that again.
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
    /// Runs a transaction on the bytes and the node's times; creates the object if it does not exist.
    pub fn with_object<T>(&self, mut make: impl FnMut(&mut Change<'_>, &Object) -> FsResult<T>) -> FsResult<T> {
        self.check_changes()?;
        let made = self.tree.change_file(|change| {
            let found = self.find()?;
            let mut node = found.node.clone();
            (node.modified, node.changed) = (self.time_of_bytes(change.now), change.now);
            if !node.has_object {
                change.create_object(&found)?;
                node.has_object = true;
            }
            change.put_node(&found, &node)?;
            make(change, &self.object)
        })?;
        self.has_object.store(true, Ordering::Release);
        self.dirty.lock().modified = None;
        Ok(made)
    }
    /// Appends at the size that the file has when this is applied. Returns the offset.
    pub fn append(&self, bytes: &[u8], keeps: Keeps) -> FsResult<u64> {
        if bytes.is_empty() {
            return self.size();
        }
        self.check_changes()?;
        self.drop_privileges(keeps)?;
        if let Some(page_cache) = self.page_cache()? {
            return page_cache.append(bytes);
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
        if let Some(page_cache) = self.page_cache()? {
            page_cache.set_size(size)?;
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
    /// Writes times that only this process knows to the records.
    pub fn settle(&self) -> FsResult<()> {
        if self.dirty().is_none() {
            return Ok(());
        }
        self.tree.publish();
        self.settle_alone()
    }
    /// Writes these times to the records, without publishing gathered names first.
    pub fn settle_alone(&self) -> FsResult<()> {
        let dirty = self.take_dirty();
        if dirty.is_none() {
            return Ok(());
        }
        let done = self.tree.change_alone(|change| {
            let found = self.find()?;
            if self.tree.is_gathered(&found) {
                return Ok(()); // only looked at, and not yet visible to others
            }
            let node = settled(&found.node, dirty);
            change.put_node(&found, &node)
        });
        match done {
            // A removed file needs no times.
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
    /// Runs when this process closes the file's last descriptor.
    fn drop(&mut self) {
        let _in = gate::enter();
        self.leave_page_cache();
        {
            let mut all = self.tree.live.lock();
            if all.get(&self.ino).is_some_and(|live| live.strong_count() == 0) {
                all.remove(&self.ino);
            }
        }
        if self.generation.load(Ordering::Relaxed) == fork_generation() {
            // A caller who wants to see errors has called `close`.
            let _ = self.settle_alone();
            self.tree.reserved.tidy(self.ino);
            if self.is_orphaned.load(Ordering::Acquire) {
                self.tree.reserved.forget(self.ino);
                let _ = self.tree.release(self.ino);
            }
        }
    }
}

/// Returns the directory whose claims count for a file found in this place.
fn claimed_by(place: &NodeLocation) -> u64 {
    match place {
        NodeLocation::Entry { dir, .. } => *dir,
        NodeLocation::Own | NodeLocation::Orphan => 0,
    }
}

/// Returns `EFBIG` if no file can reach so far.
pub fn check_end(offset: u64, len: u64) -> FsResult<()> {
    let fits = offset.checked_add(len).is_some_and(|end| end <= FILE_BYTES_MAX);
    if fits { Ok(()) } else { fail(libc::EFBIG) }
}

/// Adds times to a node that lacks them.
pub fn settled(node: &Node, dirty: Dirty) -> Node {
    let mut node = node.clone();
    if let Some(modified) = dirty.modified {
        node.modified = modified;
        node.changed = node.changed.max(modified);
    }
    node.accessed = dirty.accessed.unwrap_or(node.accessed);
    node
}

/// Sets the size of a found file; returns the new node, which the caller puts.
pub fn truncated(change: &mut Change<'_>, found: &FoundNode, size: u64) -> FsResult<Node> {
    let (tree, mut node) = (change.tree, found.node.clone());
    (node.modified, node.changed) = (change.now, change.now);
    change.drop_capabilities(found)?;
    let object = tree.object(found.ino);
    if node.has_object {
        change.txn.truncate(&object, size)?;
    } else if size > 0 {
        let object = change.create_object(found)?;
        change.txn.truncate(&object, size)?;
        node.has_object = true;
    }
    Ok(node)
}
