//! Windows: a file's bytes in shared memory, where all processes of a machine see them at once, so that they can be mapped and written by stores,
//! or given to the kernel. `docs/files.md` has the rules.
//!
//! While a file has a window, the window is the truth: every process that reads or writes the file by this crate does so there, and
//! the object follows when somebody asks that (`fsync`, `close`), when the last process leaves, or when somebody finds that it died. A record says
//! that a file has a window; it is looked at when the version word of its index changed, so a file without one costs no message.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::{ErrorKind, IndexVersion, WindowFile, fork_generation};

use super::live::{FILE_BYTES_MAX, Live};
use crate::sync::Mutex;
use crate::tree::{Place, Tree};
use crate::{FsError, FsResult, Time, fail};

/// The sort of meeting files.
pub const SORT: &str = "windows";
/// Bytes that are read, compared and written together.
const PIECE_BYTES: u64 = 4 << 20;
/// What differs is written from one page that does to the last one that does without one between that does not.
const PAGE: usize = 4096;

/// What a process knows of the window of a file that it has open.
#[derive(Debug, Default)]
pub struct Joined {
    /// The version of the index of windows when that was found out.
    seen: Option<IndexVersion>,
    /// Fork generation that found out.
    generation: u64,
    window: Option<Arc<Window>>,
}

/// A window that this process has open.
#[derive(Debug)]
pub struct Window {
    file: WindowFile,
    /// Bytes were written here by this process, and the object has not got them yet.
    is_dirty: AtomicBool,
    /// Somebody may write by stores, of which nobody hears.
    is_mapped: AtomicBool,
    /// The kernel may write, which keeps the time of that.
    is_given: AtomicBool,
    /// One thread works at a time.
    working: Mutex<()>,
}

#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub fn of_io(error: io::Error) -> FsError {
    match error.raw_os_error() {
        Some(errno) => FsError::new(errno),
        None => FsError::because(libc::EIO, ErrorKind::Io, "window", error.to_string()),
    }
}

pub fn name_of(tree: &Tree, ino: u64) -> String {
    format!("{:016x}", tree.whole(ino).0)
}

impl Window {
    /// Reads.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        self.file.read_at(buf, offset).map_err(of_io)
    }
    /// Writes.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.write_at(bytes, offset).map_err(of_io)
    }
    /// Writes at the end; where that was.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        let (size, _) = self.usage()?;
        super::live::check_end(size, bytes.len() as u64)?;
        self.write_at(bytes, size)?;
        Ok(size)
    }
    /// Bytes, and bytes that take memory.
    pub fn usage(&self) -> FsResult<(u64, u64)> {
        self.file.usage().map_err(of_io)
    }
    /// The same, and when they were changed.
    pub fn attr(&self) -> FsResult<(u64, u64, Time)> {
        let (size, used) = self.usage()?;
        Ok((size, used, self.modified()?))
    }
    /// When bytes were last changed otherwise than by stores.
    pub fn modified(&self) -> FsResult<Time> {
        let (s, ns) = self.file.modified().map_err(of_io)?;
        Ok(Time { s, ns })
    }
    /// Sets that.
    pub fn set_modified(&self, time: Time) -> FsResult<()> {
        self.file.set_modified(time.s, time.ns).map_err(of_io)
    }
    /// Sets the size.
    pub fn set_size(&self, size: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.set_size(size).map_err(of_io)
    }
    /// Makes zeros of a range inside of the size.
    pub fn punch(&self, offset: u64, len: u64) -> FsResult<()> {
        self.is_dirty.store(true, Ordering::Release);
        self.file.punch(offset, len).map_err(of_io)
    }
    /// As `SEEK_DATA`.
    pub fn next_data(&self, offset: u64) -> FsResult<Option<u64>> {
        self.file.next_data(offset).map_err(of_io)
    }
    /// As `SEEK_HOLE`.
    pub fn next_hole(&self, offset: u64) -> FsResult<Option<u64>> {
        self.file.next_hole(offset).map_err(of_io)
    }
    /// Runs something while nobody, in any process, puts it back: that compares times before and after.
    pub fn undisturbed<T>(&self, run: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        run()
    }
    /// Makes `[from, to)` what the object has there.
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
                    return Ok(()); // it became shorter
                }
                self.file.write_at(&buf[..read], at).map_err(of_io)?;
                at += read as u64;
            }
        }
        Ok(())
    }
    /// The object gets what differs here.
    fn write_back(&self, live: &Live) -> FsResult<()> {
        let _mine = self.working.lock();
        let _ours = self.file.work().map_err(of_io)?;
        self.is_dirty.store(false, Ordering::Release);
        let had = live.times();
        // What the kernel has written is as old as it says, and as old as somebody has said since.
        let known = if self.is_given.load(Ordering::Acquire) { had.max(Some(self.modified()?)) } else { None };
        let done = live.at_time(known, || self.write_differences(live));
        if done.is_err() {
            self.is_dirty.store(true, Ordering::Release);
        }
        self.keep_time(live, had)?;
        // Who sets a time waits until this is over: known later, it would take the place of what was set.
        let _ = live.settle_alone();
        done
    }
    /// Bytes are as old as they are here, and not as old as what the object has now; of stores nobody knows when they were.
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
            object.read_at(at, &mut there)?; // what is past its end is zeros
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
    /// Whether somebody may have written since the object got what is here.
    fn may_differ(&self) -> bool {
        [&self.is_dirty, &self.is_mapped, &self.is_given].iter().any(|may| may.load(Ordering::Acquire))
    }
}

/// What differs in a range that begins and ends in pages that do: its offset in the file, and the bytes.
fn trimmed<'a>(here: &'a [u8], there: &[u8], from: usize, to: usize, at: u64) -> (u64, &'a [u8]) {
    let differs = |i: &usize| here[*i] != there[*i];
    let first = (from..to).find(differs).unwrap_or(from);
    let last = (from..to).rev().find(differs).unwrap_or(from);
    (at + first as u64, &here[first..=last])
}

impl Live {
    /// The window of this file, if it has one that this process may use.
    #[inline]
    pub fn window(&self) -> FsResult<Option<Arc<Window>>> {
        let now = self.tree.windows.version()?;
        {
            let joined = self.joined.read();
            if joined.seen == Some(now) && joined.generation == fork_generation() {
                return Ok(joined.window.clone());
            }
        }
        self.look_for_window(now)
    }
    #[cold]
    fn look_for_window(&self, now: IndexVersion) -> FsResult<Option<Arc<Window>>> {
        let is_there = self.tree.has_window(self.ino)?;
        let mut joined = self.joined.write();
        if joined.generation != fork_generation() {
            leave_inherited(&mut joined);
        }
        if is_there && joined.window.is_none() {
            // Whoever may not enter reads and writes what the object has.
            joined.window = self.enter_window(false).ok().flatten().map(Arc::new);
        }
        joined.seen = Some(now);
        Ok(joined.window.clone())
    }
    /// The same, made if there is none.
    pub fn make_window(&self) -> FsResult<Arc<Window>> {
        if let Some(window) = self.window()? {
            return Ok(window);
        }
        let mut joined = self.joined.write();
        if let Some(window) = &joined.window {
            return Ok(window.clone());
        }
        let Some(window) = self.enter_window(true)?.map(Arc::new) else { return fail(libc::EOPNOTSUPP) };
        (joined.window, joined.seen) = (Some(window.clone()), None);
        Ok(window)
    }
    /// None: there is none, and none is to be made.
    fn enter_window(&self, makes: bool) -> FsResult<Option<Window>> {
        let (tree, options) = (&self.tree, &self.tree.common.options);
        let here = tree.container.store().meeting_file(SORT, &name_of(tree, self.ino), options.descriptors_from);
        let here = here.map_err(|error| match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::NotFound => FsError::because(
                libc::EOPNOTSUPP,
                ErrorKind::PermissionDenied,
                "window",
                format!("the store's directory in shared memory, where processes meet, cannot be used: {error}"),
            ),
            _ => of_io(error),
        })?;
        let window = Window {
            file: WindowFile::new(here),
            is_dirty: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            is_given: AtomicBool::new(false),
            working: Mutex::default(),
        };
        let is_filled = self.fill(&window, makes);
        if matches!(is_filled, Ok(true)) {
            return Ok(Some(window));
        }
        let _ = window.file.meeting().alone(|| {
            let is_half_made = || window.file.is_filled().is_ok_and(|is_filled| !is_filled);
            is_filled.is_ok() || (is_half_made() && self.tree.note_no_window(self.ino).is_ok())
        });
        is_filled.map(|_| None)
    }
    /// False: there is no window, and none is to be made.
    fn fill(&self, window: &Window, makes: bool) -> FsResult<bool> {
        let _ours = window.file.work().map_err(of_io)?;
        let is_noted = self.tree.has_window(self.ino)?;
        if !is_noted && !makes {
            return Ok(false);
        }
        if is_noted && window.file.is_filled().map_err(of_io)? {
            return Ok(true);
        }
        if self.tree.common.options.is_read_only {
            return fail(libc::EROFS);
        }
        window.file.set_filled(false).map_err(of_io)?;
        let size = self.object_size()?;
        window.file.check_room(size).map_err(of_io)?;
        if !is_noted {
            self.tree.note_window(self.ino)?;
        }
        // Of what others write from here on they find that it has a window.
        window.file.set_size(0).and_then(|()| window.file.set_size(size)).map_err(of_io)?;
        window.take_in(self, 0, size)?;
        if let Some(modified) = self.times() {
            window.set_modified(modified)?;
        }
        window.file.set_filled(true).map_err(of_io)?;
        Ok(true)
    }
    /// What is to be mapped.
    pub fn window_descriptor(&self, writes: bool) -> FsResult<OwnedFd> {
        let window = self.make_window()?;
        if writes {
            window.is_mapped.store(true, Ordering::Release);
        }
        window.file.descriptor(writes).map_err(of_io)
    }
    /// What is to be given to the kernel, which may give it on to whoever writes; `writes`: somebody does now.
    pub fn window_for_kernel(&self, writes: bool) -> FsResult<OwnedFd> {
        let window = self.make_window()?;
        window.is_given.fetch_or(writes, Ordering::AcqRel);
        window.file.descriptor(true).map_err(of_io)
    }
    /// When its bytes were changed, as far as is known without the window.
    fn times(&self) -> Option<Time> {
        let known = self.dirty().modified;
        known.or_else(|| self.find().ok().map(|found| found.node.modified))
    }
    /// The object gets what this process wrote to the window, or may have written.
    pub fn settle_window(&self) -> FsResult<()> {
        match self.window()? {
            Some(window) if window.may_differ() => window.write_back(self),
            _ => Ok(()),
        }
    }
    /// The same for what anybody wrote there.
    pub fn settle_all_of_window(&self) -> FsResult<()> {
        self.window()?.map_or(Ok(()), |window| window.write_back(self))
    }
    /// Whatever the window and whoever wrote there: runs `change` on the object, and takes over what it made of `[from, …)`.
    pub fn around_window(&self, from: u64, change: impl FnOnce() -> FsResult<()>) -> FsResult<()> {
        let Some(window) = self.window()? else { return change() };
        let _mine = window.working.lock();
        let _ours = window.file.work().map_err(of_io)?;
        window.write_differences(self)?;
        change()?;
        let size = self.object_size()?;
        window.file.set_size(size).map_err(of_io)?;
        window.take_in(self, from.min(size), size)
    }
    /// The last descriptor of this process was closed: who is the last of all writes back and removes the window.
    pub fn leave_window(&self) {
        let mut joined = self.joined.write();
        if joined.generation != fork_generation() {
            return leave_inherited(&mut joined);
        }
        let Some(window) = joined.window.take() else { return };
        let Some(window) = Arc::into_inner(window) else { return };
        let (may_differ, is_given) = (window.may_differ(), window.is_given.into_inner());
        drop(window.file);
        // Anew, since a forked child may have the same description.
        let store = self.tree.container.store();
        let Ok(Some(here)) = store.find_meeting_file(SORT, &name_of(&self.tree, self.ino)) else { return };
        let window = Window {
            file: WindowFile::new(here),
            is_dirty: AtomicBool::new(false),
            is_mapped: AtomicBool::new(false),
            is_given: AtomicBool::new(is_given),
            working: Mutex::default(),
        };
        let is_gone = match self.find() {
            Ok(found) => found.place == Place::Orphan && self.tree.is_held_by_me_alone(self.ino),
            Err(error) => error.errno == libc::ESTALE,
        };
        let mut failed = None;
        let alone = window.file.meeting().alone(|| {
            // Whoever was killed may have written as well. What cannot be written back stays, for who comes next.
            let written = if is_gone { Ok(()) } else { window.write_back(self) };
            failed = written.err();
            failed.is_none() && self.tree.note_no_window(self.ino).is_ok()
        });
        if !alone.unwrap_or(false) && may_differ && !is_gone {
            failed = window.write_back(self).err();
        }
        if let Some(error) = failed {
            // Nobody's call any more: the next flush, sync or close in the tree is told.
            self.tree.note_lost(error);
        }
    }
}

/// A forked child is in a window of its parent's: it lets go of that, and enters by itself.
fn leave_inherited(joined: &mut Joined) {
    *joined = Joined { generation: fork_generation(), ..Joined::default() };
}
