//! Passthrough: files whose bytes the kernel reads and writes directly in their shared page caches
//! (`cenote_posix::File::page_cache_for_kernel`).
//!
//! The kernel wants all who have a file open to be served in the same way, so the first decides for those that come while it is open. A
//! page cache is made and put back at a price, so it is kept for a while after the last `close`, with what was written.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_posix::{Attr, File, Ino};
use parking_lot::{Condvar, Mutex};

use crate::kernel::Device;
use crate::kernel::abi::opened;

/// How long a file that nobody has open keeps its page cache.
const KEPT: Duration = Duration::from_secs(5);
/// Upper bounds of kept files, and of their part of shared memory's space: beyond, files that nobody has open are
/// stored back at once.
const KEPT_FILES_MAX: usize = 1024;
const KEPT_PART: u64 = 8;
/// A larger file is not loaded at opening: the program may need only a few of its bytes.
const LOADED_BYTES_MAX: u64 = 64 << 20;
/// Set-user-id and set-group-id.
const SET_IDS: u32 = 0o6000;
/// Interval of the search for kept files whose time is over.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Number of locks, so that threads seldom meet while a file is loaded.
const PARTS: usize = 16;

/// The files in service, and their mode.
#[derive(Default)]
pub struct Backings {
    by: std::sync::OnceLock<Device>,
    parts: [Mutex<HashMap<Ino, Served>>; PARTS],
    kept: Mutex<Kept>,
    woken: Condvar,
}

#[derive(Default)]
struct Kept {
    files: usize,
    bytes: u64,
    bytes_max: u64,
    is_over: bool,
}

struct Served {
    /// The kernel's id of the page cache. `None`: it sends each read and write as a request.
    backing: Option<u32>,
    handles: usize,
    /// The file, while nobody has it open.
    kept: Option<Idle>,
}

struct Idle {
    file: Arc<File>,
    bytes: u64,
    since: Instant,
}

impl Backings {
    /// Gives page caches to files that are opened from now on.
    pub fn begin(&self, device: Device) {
        let _ = self.by.set(device);
    }
    /// Returns true if any file may have a page cache.
    pub fn is_used(&self) -> bool {
        self.by.get().is_some()
    }
    fn part(&self, ino: Ino) -> &Mutex<HashMap<Ino, Served>> {
        &self.parts[ino.0 as usize % PARTS]
    }
    /// Handles an opening: returns the open flags and the backing id for the kernel, or `flags` and 0.
    pub fn enter(&self, file: &File, attr: &Attr, flags: u32) -> (u32, u32) {
        let Some(device) = self.by.get() else { return (flags, 0) };
        // Appends that compete with other writers, and writes that go to media at once, must come as requests.
        let goes_past = file.flags().append || file.flags().sync;
        // The first write drops set-id bits and capabilities, and a write by the kernel itself would not be seen.
        let has_privileges = attr.mode & SET_IDS != 0 || file.has_capabilities().unwrap_or(true);
        let is_guarded = file.flags().write && has_privileges;
        if is_guarded {
            self.forget(attr.ino);
        }
        let (found, idle) = {
            let mut part = self.part(attr.ino).lock();
            let served = part.entry(attr.ino).or_insert_with(|| Served {
                backing: if goes_past || is_guarded { None } else { self.give(device, file, attr) },
                handles: 0,
                kept: None,
            });
            served.handles += 1;
            (served.backing, served.kept.take())
        };
        self.count_out(idle.as_ref());
        let Some(backing) = found else { return (flags, 0) };
        if goes_past {
            // The mode is the same, but these requests bypass it.
            return (opened::PASSTHROUGH | opened::DIRECT_IO, backing);
        }
        if file.flags().write {
            // Marks that somebody writes there unseen.
            let _ = file.page_cache_for_kernel();
        }
        (opened::PASSTHROUGH, backing)
    }
    /// Gives the kernel a page cache, if that pays.
    fn give(&self, device: &Device, file: &File, attr: &Attr) -> Option<u32> {
        let is_there = file.has_page_cache().unwrap_or(false);
        if !is_there && (!file.flags().write || attr.size_bytes > LOADED_BYTES_MAX) {
            return None;
        }
        let given = file.page_cache_for_kernel().map_err(|error| error.to_string()).and_then(|page_cache| {
            self.measure(&page_cache);
            device.open_backing(page_cache.as_fd()).map_err(|error| error.to_string())
        });
        given.inspect_err(|error| tracing::debug!(error, "the kernel asks for the bytes of a file each time")).ok()
    }
    /// Measures shared memory's space, a part of which may be kept.
    fn measure(&self, page_cache: &impl AsFd) {
        if let Ok(space) = rustix::fs::fstatvfs(page_cache) {
            let free = space.f_bavail.saturating_mul(space.f_frsize);
            self.kept.lock().bytes_max = free / KEPT_PART;
        }
    }
    /// Returns true if written bytes of a file are stored back later.
    pub fn puts_back_later(&self, ino: Ino) -> bool {
        self.is_used() && self.part(ino).lock().get(&ino).is_some_and(|served| served.backing.is_some())
    }
    /// Handles a closing; returns the file if it is not kept.
    pub fn leave(&self, file: Arc<File>) -> Option<Arc<File>> {
        let Some(device) = self.by.get() else { return Some(file) };
        let ino = file.ino();
        let mut part = self.part(ino).lock();
        let Some(served) = part.get_mut(&ino) else { return Some(file) };
        served.handles -= 1;
        if served.handles > 0 {
            return Some(file);
        }
        let Some(backing) = served.backing else {
            part.remove(&ino);
            return Some(file);
        };
        let attr = file.attr().ok().filter(|attr| attr.links > 0);
        let bytes = attr.map_or(u64::MAX, |attr| attr.blocks.saturating_mul(512));
        let mut kept = self.kept.lock();
        if kept.is_over || bytes > kept.bytes_max {
            drop(kept);
            part.remove(&ino);
            device.close_backing(backing);
            return Some(file);
        }
        (kept.files, kept.bytes) = (kept.files + 1, kept.bytes + bytes);
        if kept.is_too_much() {
            self.woken.notify_one();
        }
        served.kept = Some(Idle { file, bytes, since: Instant::now() });
        None
    }
    /// Releases a file that nobody has open, because its name is gone or its mode changes.
    pub fn forget(&self, ino: Ino) {
        let Some(device) = self.by.get() else { return };
        let mut part = self.part(ino).lock();
        let is_kept = part.get(&ino).is_some_and(|served| served.kept.is_some());
        let Some(served) = is_kept.then(|| part.remove(&ino)).flatten() else { return };
        drop(part);
        self.release(device, served);
    }
    fn count_out(&self, idle: Option<&Idle>) {
        if let Some(idle) = idle {
            let mut kept = self.kept.lock();
            (kept.files, kept.bytes) = (kept.files - 1, kept.bytes - idle.bytes);
        }
    }
    /// Stores back a file taken out of the table.
    fn release(&self, device: &Device, served: Served) {
        if let Some(backing) = served.backing {
            device.close_backing(backing);
        }
        self.count_out(served.kept.as_ref());
        let file = served.kept.and_then(|idle| Arc::into_inner(idle.file));
        if let Some(Err(error)) = file.map(File::close) {
            tracing::error!("what was written to a file stays in shared memory, and is tried again: {error}");
        }
    }
    /// Stores back files that nobody has had open for a while, until [`Backings::end`].
    pub fn put_back(&self) {
        let Some(device) = self.by.get() else { return };
        loop {
            let mut kept = self.kept.lock();
            if !kept.is_over && !kept.is_too_much() {
                self.woken.wait_for(&mut kept, LOOK_EVERY);
            }
            let (is_over, all) = (kept.is_over, kept.is_over || kept.is_too_much());
            drop(kept);
            for part in &self.parts {
                let due =
                    |served: &Served| served.kept.as_ref().is_some_and(|idle| all || idle.since.elapsed() >= KEPT);
                let over: Vec<Served> =
                    part.lock().extract_if(|_, served| due(served)).map(|(_, served)| served).collect();
                for served in over {
                    self.release(device, served);
                }
            }
            if is_over {
                return;
            }
        }
    }
    /// Keeps nothing from now on.
    pub fn end(&self) {
        self.kept.lock().is_over = true;
        self.woken.notify_all();
    }
}

impl Kept {
    fn is_too_much(&self) -> bool {
        self.files > KEPT_FILES_MAX || self.bytes > self.bytes_max
    }
}
