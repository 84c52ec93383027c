//! Shared page caches: a file's bytes in shared memory, where all processes of a machine see them at once, so that they can be mapped
//! and stored to, or given to the kernel. `docs/files.md` has the rules.
//!
//! While a file has a page cache, the page cache is authoritative: every process that reads or writes the file through this crate does so there. The
//! object follows at `fsync` or `close`, when the last process leaves, or when somebody finds that it died. A record says that a file has a
//! page cache; it is read when the version word of its index changed, so a file without one costs no message.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{ErrorKind, IndexVersion, PageCacheFile};
use cenote_host::fork::generation as fork_generation;

use super::live::{FILE_BYTES_MAX, Live};
use crate::records::PageCacheNote;
use crate::sync::Mutex;
use crate::tree::{NodeLocation, Tree};
use crate::{FsError, FsResult, Time, fail};

/// Name of this kind of meeting files: processes of earlier versions, which called page caches so, meet there too.
pub const SORT: &str = "windows";
/// Bytes read, compared and written together.
const PIECE_BYTES: u64 = 4 << 20;
/// Unit of comparison: consecutive differing pages are written as one range.
const PAGE: usize = 4096;

/// What a process knows of the page cache of an open file.
#[derive(Debug, Default)]
pub struct Joined {
    /// Version of the index of page caches at that time.
    seen: Option<IndexVersion>,
    /// Fork generation of the process that looked.
    generation: u64,
    page_cache: Option<Arc<PageCache>>,
}

/// Attributes of a page cache, which are those of its file.
#[derive(Clone, Copy, Debug)]
pub struct PageCacheAttr {
    pub size_bytes: u64,
    /// Memory in use; less than the size if there are holes.
    pub used_bytes: u64,
    pub modified: Time,
}

/// A page cache that this process has open.
#[derive(Debug)]
pub struct PageCache {
    file: PageCacheFile,
    /// This process wrote bytes that the object does not have yet.
    is_dirty: AtomicBool,
    /// Mapped for writing: stores leave no trace.
    is_mapped: AtomicBool,
    /// Given to the kernel, which may write and keeps the time of that.
    is_given: AtomicBool,
    /// Allows one thread of this process at a time.
    working: Mutex<()>,
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub fn of_io(error: io::Error) -> FsError {
    match error.raw_os_error() {
        Some(errno) => FsError::new(errno),
        None => FsError::because(libc::EIO, ErrorKind::Io, "shared page cache", error.to_string()),
    }
}

pub fn name_of(tree: &Tree, ino: u64) -> String {
    format!("{:016x}", tree.whole(ino).0)
}

impl PageCache {
    /// Reads at an offset.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        self.file.read_at(buf, offset).map_err(of_io)
    }
    /// Writes at an offset.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.write_at(bytes, offset).map_err(of_io)
    }
    /// Appends; returns the offset.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        let (size, _) = self.usage()?;
        super::live::check_end(size, bytes.len() as u64)?;
        self.write_at(bytes, size)?;
        Ok(size)
    }
    /// Returns the size, and the bytes of memory in use.
    pub fn usage(&self) -> FsResult<(u64, u64)> {
        self.file.usage().map_err(of_io)
    }
    /// Returns the size, the bytes of memory in use, and the modification time.
    pub fn attr(&self) -> FsResult<PageCacheAttr> {
        let (size_bytes, used_bytes) = self.usage()?;
        Ok(PageCacheAttr { size_bytes, used_bytes, modified: self.modified()? })
    }
    /// Returns the time of the last change other than by stores to a mapping.
    pub fn modified(&self) -> FsResult<Time> {
        let (s, ns) = self.file.modified().map_err(of_io)?;
        Ok(Time { s, ns })
    }
    /// Sets that time.
    pub fn set_modified(&self, time: Time) -> FsResult<()> {
        self.file.set_modified(time.s, time.ns).map_err(of_io)
    }
    /// Sets the size.
    pub fn set_size(&self, size: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.set_size(size).map_err(of_io)
    }
    /// Zeroes a range within the size.
    pub fn punch(&self, offset: u64, len: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.punch(offset, len).map_err(of_io)
    }
    /// Finds the next data, as `SEEK_DATA`.
    pub fn next_data(&self, offset: u64) -> FsResult<Option<u64>> {
        self.file.next_data(offset).map_err(of_io)
    }
    /// Finds the next hole, as `SEEK_HOLE`.
    pub fn next_hole(&self, offset: u64) -> FsResult<Option<u64>> {
        self.file.next_hole(offset).map_err(of_io)
    }
    /// Runs something while no process writes the page cache back: write-back compares times before and after.
    pub fn undisturbed<T>(&self, run: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        run()
    }
    /// Loads `[from, to)` from the object.
    fn take_in(&self, live: &Live, from: u64, to: u64) -> FsResult<()> {
        let Some(object) = live.object()? else { return Ok(()) };
        let (mut at, mut buf) = (from, Vec::new());
        while at < to {
            let begin = object.next_data(at)?.map_or(to, |begin| begin.min(to));
            if begin > at {
                self.file.punch(at, begin - at).map_err(of_io)?;
            }
            let end = if begin < to { object.next_hole(begin)?.unwrap_or(to).min(to) } else { to };
            at = begin;
            while at < end {
                buf.resize((end - at).min(PIECE_BYTES) as usize, 0);
                let read = object.read_at(at, &mut buf)?;
                if read == 0 {
                    return Ok(()); // the object became shorter
                }
                self.file.write_at(&buf[..read], at).map_err(of_io)?;
                at += read as u64;
            }
        }
        Ok(())
    }
    /// Writes differences to the object.
    fn write_back(&self, live: &Live) -> FsResult<()> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        self.is_dirty.store(false, Ordering::Release);
        let had = live.times();
        // Kernel writes have the kernel's time, or a later one that somebody set.
        let known = if self.is_given.load(Ordering::Acquire) { had.max(Some(self.modified()?)) } else { None };
        let done = live.at_time(known, || self.write_differences(live));
        if done.is_err() {
            self.is_dirty.store(true, Ordering::Release);
        }
        self.keep_time(live, had)?;
        // Setters of a time wait until this is done: recorded later, this time would overwrite theirs.
        let _ = live.settle_alone();
        done
    }
    /// Keeps the page cache's modification time rather than that of the write-back; stores to a mapping have no known time.
    fn keep_time(&self, live: &Live, had: Option<Time>) -> FsResult<()> {
        let (Some(had), Some(has)) = (had, live.times()) else { return Ok(()) };
        let here = self.modified()?;
        if here > had {
            live.note_at(here);
        } else if has != had && self.is_given.load(Ordering::Acquire) {
            live.note_at(had);
        }
        Ok(())
    }
    fn write_differences(&self, live: &Live) -> FsResult<()> {
        let (size, _) = self.usage()?;
        let had = live.object_size()?;
        if size > FILE_BYTES_MAX {
            return fail(libc::EFBIG);
        }
        if had != size {
            live.truncate_object(size)?;
        }
        let mut at = 0;
        while at < size {
            let begin = self.next_data(at)?.map_or(size, |begin| begin.min(size));
            live.punch_object(at, begin)?;
            let end = if begin < size { self.next_hole(begin)?.unwrap_or(size).min(size) } else { size };
            at = begin;
            while at < end {
                let piece = (end - at).min(PIECE_BYTES);
                self.write_piece(live, at, piece as usize)?;
                at += piece;
            }
        }
        Ok(())
    }
    fn write_piece(&self, live: &Live, at: u64, len: usize) -> FsResult<()> {
        let (mut here, mut there) = (vec![0; len], vec![0; len]);
        let read = self.file.read_at(&mut here, at).map_err(of_io)?;
        here.truncate(read);
        if let Some(object) = live.object()? {
            object.read_at(at, &mut there)?; // beyond the end are zeros
        }
        let mut parts: Vec<(u64, &[u8])> = Vec::new();
        let mut begin = None;
        for from in (0..read + PAGE).step_by(PAGE) {
            let to = (from + PAGE).min(read);
            let differs = from < read && here[from..to] != there[from..to];
            match begin {
                None if differs => begin = Some(from),
                Some(first) if !differs => {
                    parts.push(trimmed(&here, &there, first, from.min(read), at));
                    begin = None;
                }
                _ => {}
            }
        }
        if parts.is_empty() { Ok(()) } else { live.write_object(&parts) }
    }
    /// Returns whether somebody may have written since the last write-back.
    fn may_differ(&self) -> bool {
        [&self.is_dirty, &self.is_mapped, &self.is_given].iter().any(|may| may.load(Ordering::Acquire))
    }
}

/// Trims a range of differing pages to its first and last differing byte: returns the offset in the file, and the bytes.
fn trimmed<'a>(here: &'a [u8], there: &[u8], from: usize, to: usize, at: u64) -> (u64, &'a [u8]) {
    let differs = |i: &usize| here[*i] != there[*i];
    let first = (from..to).find(differs).unwrap_or(from);
    let last = (from..to).rev().find(differs).unwrap_or(from);
    (at + first as u64, &here[first..=last])
}

impl Live {
    /// Returns the file's page cache, if it has one that this process may use.
    #[inline]
    pub fn page_cache(&self) -> FsResult<Option<Arc<PageCache>>> {
        if !self.tree.is_at_home {
            return Ok(None); // it would be memory of another node
        }
        let now = self.tree.page_caches.version()?;
        {
            let joined = self.joined.read();
            if joined.seen == Some(now) && joined.generation == fork_generation() {
                return Ok(joined.page_cache.clone());
            }
        }
        self.look_for_page_cache(now)
    }
    #[cold]
    fn look_for_page_cache(&self, now: IndexVersion) -> FsResult<Option<Arc<PageCache>>> {
        let is_there = self.tree.has_page_cache(self.ino)?;
        let mut joined = self.joined.write();
        if joined.generation != fork_generation() {
            leave_inherited(&mut joined);
        }
        if is_there && joined.page_cache.is_none() {
            // A process that may not enter reads and writes the object.
            joined.page_cache = self.enter_page_cache(None).ok().flatten().map(Arc::new);
        }
        joined.seen = Some(now);
        Ok(joined.page_cache.clone())
    }
    /// Returns the file's page cache, created if there is none; `stores`: programs may store to it by a mapping.
    pub fn make_page_cache(&self, stores: bool) -> FsResult<Arc<PageCache>> {
        if !self.tree.is_at_home {
            return Err(self.shares_no_memory());
        }
        if let Some(page_cache) = self.page_cache()? {
            return Ok(page_cache);
        }
        let mut joined = self.joined.write();
        if let Some(page_cache) = &joined.page_cache {
            return Ok(page_cache.clone());
        }
        let Some(page_cache) = self.enter_page_cache(Some(stores))?.map(Arc::new) else {
            return fail(libc::EOPNOTSUPP);
        };
        (joined.page_cache, joined.seen) = (Some(page_cache.clone()), None);
        Ok(page_cache)
    }
    /// Enters the page cache. `None`: there is none, and `makes` does not say how to make one.
    fn enter_page_cache(&self, makes: Option<bool>) -> FsResult<Option<PageCache>> {
        let (tree, options) = (&self.tree, &self.tree.common.options);
        let here = tree.container.store().meeting_file(SORT, &name_of(tree, self.ino), options.descriptors_from);
        let here = here.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => FsError::because(
                libc::EOPNOTSUPP,
                ErrorKind::PermissionDenied,
                "shared page cache",
                format!("the store's directory in shared memory, where processes meet, cannot be used: {error}"),
            ),
            _ => of_io(error),
        })?;
        let page_cache = PageCache {
            file: PageCacheFile::new(here),
            is_dirty: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            is_given: AtomicBool::new(false),
            working: Mutex::default(),
        };
        let is_filled = self.fill(&page_cache, makes);
        if matches!(is_filled, Ok(true)) {
            return Ok(Some(page_cache));
        }
        let _ = page_cache.file.meeting().alone(|| {
            let is_half_made = || page_cache.file.is_filled().is_ok_and(|is_filled| !is_filled);
            is_filled.is_ok() || (is_half_made() && self.tree.note_no_page_cache(self.ino).is_ok())
        });
        is_filled.map(|_| None)
    }
    /// Loads the page cache if needed. Returns false if there is none and `makes` does not say how to make one.
    fn fill(&self, page_cache: &PageCache, makes: Option<bool>) -> FsResult<bool> {
        let _ours = page_cache.file.work().map_err(of_io)?;
        let (noted, now) = (self.tree.noted_page_cache(self.ino)?, self.tree.page_cache_note(makes.unwrap_or(true)));
        if noted.is_none() && makes.is_none() {
            return Ok(false);
        }
        // One that was made before another node had the home has old bytes.
        let is_noted = noted.is_some_and(|noted| noted.term.is_none() || noted.term == now.term);
        if is_noted && page_cache.file.is_filled().map_err(of_io)? {
            return Ok(true);
        }
        if self.tree.common.options.is_read_only {
            return fail(libc::EROFS);
        }
        page_cache.file.set_filled(false).map_err(of_io)?;
        let size = self.object_size()?;
        page_cache.file.check_room(size).map_err(of_io)?;
        if !is_noted {
            self.tree.note_page_cache(self.ino, &now)?;
        }
        // From here on, other writers find that the file has a page cache.
        page_cache.file.set_size(0).and_then(|()| page_cache.file.set_size(size)).map_err(of_io)?;
        page_cache.take_in(self, 0, size)?;
        if let Some(modified) = self.times() {
            page_cache.set_modified(modified)?;
        }
        page_cache.file.set_filled(true).map_err(of_io)?;
        Ok(true)
    }
    /// Returns a descriptor to be mapped.
    pub fn page_cache_descriptor(&self, writes: bool) -> FsResult<OwnedFd> {
        let page_cache = self.make_page_cache(writes)?;
        if writes {
            page_cache.is_mapped.store(true, Ordering::Release);
            self.note_stored_to()?;
        }
        page_cache.file.descriptor(writes).map_err(of_io)
    }
    /// Returns a descriptor for the kernel, which may pass it on to a writer; `writes`: somebody writes now.
    pub fn page_cache_for_kernel(&self, writes: bool) -> FsResult<OwnedFd> {
        let page_cache = self.make_page_cache(writes)?;
        page_cache.is_given.fetch_or(writes, Ordering::AcqRel);
        if writes {
            self.note_stored_to()?;
        }
        page_cache.file.descriptor(true).map_err(of_io)
    }
    /// Tells other nodes that programs may store to the page cache from now on.
    fn note_stored_to(&self) -> FsResult<()> {
        let noted = self.tree.noted_page_cache(self.ino)?;
        match noted.filter(|noted| noted.term.is_some() && !noted.is_stored_to) {
            Some(noted) => self.tree.note_page_cache(self.ino, &PageCacheNote { is_stored_to: true, ..noted }),
            None => Ok(()),
        }
    }
    /// Returns the modification time, as far as known without the page cache.
    fn times(&self) -> Option<Time> {
        let known = self.dirty().modified;
        known.or_else(|| self.find().ok().map(|found| found.node.modified))
    }
    /// Writes back what this process wrote, or may have written, to the page cache.
    pub fn settle_page_cache(&self) -> FsResult<()> {
        match self.page_cache()? {
            Some(page_cache) if page_cache.may_differ() => page_cache.write_back(self),
            _ => Ok(()),
        }
    }
    /// Writes back what anybody wrote to the page cache.
    pub fn settle_all_of_page_cache(&self) -> FsResult<()> {
        self.page_cache()?.map_or(Ok(()), |page_cache| page_cache.write_back(self))
    }
    /// Writes back the page cache, runs `change` on the object, and reloads `[from, …)` from the object.
    pub fn around_page_cache(&self, from: u64, change: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let Some(page_cache) = self.page_cache()? else { return change() };
        let _mine = page_cache.working.lock();
        let _ours = page_cache.file.work().map_err(of_io)?;
        page_cache.write_differences(self)?;
        change()?;
        let size = self.object_size()?;
        page_cache.file.set_size(size).map_err(of_io)?;
        page_cache.take_in(self, from.min(size), size)
    }
    /// Leaves the page cache when this process closes its last descriptor; the last process writes back and removes it.
    pub fn leave_page_cache(&self) {
        let mut joined = self.joined.write();
        if joined.generation != fork_generation() {
            return leave_inherited(&mut joined);
        }
        let Some(page_cache) = joined.page_cache.take() else { return };
        let Some(page_cache) = Arc::into_inner(page_cache) else { return };
        let (may_differ, is_given) = (page_cache.may_differ(), page_cache.is_given.into_inner());
        drop(page_cache.file);
        // Open it again, since a forked child may share the old file description.
        let store = self.tree.container.store();
        let Ok(Some(here)) = store.find_meeting_file(SORT, &name_of(&self.tree, self.ino)) else { return };
        let page_cache = PageCache {
            file: PageCacheFile::new(here),
            is_dirty: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            is_given: AtomicBool::new(is_given),
            working: Mutex::default(),
        };
        let is_gone = match self.find() {
            Ok(found) => found.place == NodeLocation::Orphan && self.tree.is_held_by_me_alone(self.ino),
            Err(error) => error.errno == libc::ESTALE,
        };
        let mut failed = None;
        let alone = page_cache.file.meeting().alone(|| {
            // A killed process may have written as well. If write-back fails, the page cache stays for the next process.
            let written = if is_gone { Ok(()) } else { page_cache.write_back(self) };
            failed = written.err();
            failed.is_none() && self.tree.note_no_page_cache(self.ino).is_ok()
        });
        if !alone.unwrap_or(false) && may_differ && !is_gone {
            failed = page_cache.write_back(self).err();
        }
        if let Some(error) = failed {
            // No call is left to report to: the next flush, sync or close in the tree reports it.
            self.tree.note_lost(error);
        }
    }
}

/// Leaves the page cache inherited from the parent in a forked child, which then enters by itself.
fn leave_inherited(joined: &mut Joined) {
    *joined = Joined { generation: fork_generation(), ..Joined::default() };
}
