//! An open file.

pub mod live;
mod locks;
mod ranges;
mod reserved;
mod window;
mod windowed;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote::{MeetingFile, View};

use crate::rights::Keeps;
use crate::sync::Mutex;
use crate::{Attr, Caller, FsResult, Ino, SetAttr, fail, gate, space, stat};

pub use live::Live;
pub use locks::{HeldLock, LockOwner, LockRange, LockWait, Meetings};
pub use reserved::ReservedFiles;
pub use window::Joined;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "open(2) has that many flags, which do not exclude one another")]
pub struct OpenFlags {
    /// Bytes will be read.
    pub read: bool,
    /// Bytes will be written.
    pub write: bool,
    /// Each write goes to the end.
    pub append: bool,
    /// It is emptied.
    pub truncate: bool,
    /// It is made if it is not there.
    pub create: bool,
    /// With `create`: it must not be there.
    pub exclusive: bool,
    /// Each write is on media when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
}

/// What `fallocate` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Keeps space, and makes the file long enough; what was there stays.
    Extend,
    /// Keeps space and changes no size (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Makes a hole; the size stays.
    Punch,
    /// Zeros, with the size grown or not.
    Zero {
        /// The size stays.
        keep_size: bool,
    },
    /// Takes the range out and closes the gap.
    Collapse,
    /// Opens a gap of zeros.
    Insert,
}

/// An open file: shared by all descriptors that come of one `open`. It stays readable and writable when its last name goes. Dropping it closes it;
/// `close` also tells what went wrong.
#[derive(Debug)]
pub struct File {
    live: Arc<Live>,
    flags: OpenFlags,
    /// Which set-id bits its writes leave alone.
    keeps: Keeps,
    /// Where its own advisory locks are.
    meeting: Mutex<Option<Arc<MeetingFile>>>,
}

impl File {
    pub(crate) fn new(live: Arc<Live>, flags: OpenFlags, caller: &Caller) -> Self {
        let keeps = Keeps::of(caller, live.gid());
        Self { live, flags, keeps, meeting: Mutex::default() }
    }
    /// What it is.
    pub(crate) fn live(&self) -> &Arc<Live> {
        self.live.other().unwrap_or(&self.live)
    }
    /// The same, known to all, so that it can be changed.
    fn known(&self) -> &Arc<Live> {
        self.live.tree.publish();
        self.live()
    }
    fn need_read(&self) -> FsResult<()> {
        if self.flags.read { Ok(()) } else { fail(libc::EBADF) }
    }
    fn need_write(&self) -> FsResult<()> {
        if self.flags.write { Ok(()) } else { fail(libc::EBADF) }
    }
    fn written(&self) -> FsResult<()> {
        if self.flags.sync { self.sync(true) } else { Ok(()) }
    }
    pub(crate) fn truncate(&self, size: u64) -> FsResult<()> {
        self.known().truncate(size)
    }
    /// Its number.
    pub fn ino(&self) -> Ino {
        let _in = gate::enter();
        self.live().tree.whole(self.live().ino)
    }
    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
    /// What `fstat` tells.
    pub fn attr(&self) -> FsResult<Attr> {
        let _in = gate::enter();
        stat::attr(&self.live().tree, &self.live().find()?)
    }
    /// `ftruncate`, `fchmod`, `futimens` and so on; rights were checked by `open` for what goes through a descriptor, the rest for `caller`.
    pub fn set_attr(&self, caller: &Caller, set: &SetAttr) -> FsResult<Attr> {
        let _in = gate::enter();
        if set.size_bytes.is_some() && !self.flags.write {
            return fail(libc::EINVAL);
        }
        let live = self.known();
        stat::set_attr(&live.tree, caller, live.ino, set, true)?;
        self.attr()
    }
    /// Reads into `buf`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        let _in = gate::enter();
        self.need_read()?;
        if let Some(window) = self.live().window()? {
            let read = window.read_at(buf, offset)?;
            self.live().note_read()?;
            return Ok(read);
        }
        let Some(object) = self.live().object()? else { return Ok(0) };
        let read = object.read_at(offset, buf)?;
        self.live().note_read()?;
        Ok(read)
    }
    /// Writes all of `bytes`, in one update.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        let _in = gate::enter();
        self.need_write()?;
        self.known().write(bytes, offset, self.keeps)?;
        self.written()
    }
    /// Writes all of `bytes` at the end, whoever else does so at the same time; returns where.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        let _in = gate::enter();
        self.need_write()?;
        let at = self.known().append(bytes, self.keeps)?;
        self.written()?;
        Ok(at)
    }
    /// The bytes where they are, without a copy, if they lie in one piece of mapped memory.
    pub fn view(&self, offset: u64, len: usize) -> FsResult<Option<View>> {
        let _in = gate::enter();
        self.need_read()?;
        let live = self.live();
        if live.window()?.is_some() {
            return Ok(None);
        }
        let Some(object) = live.object()? else { return Ok(None) };
        let view = object.view(offset, len)?;
        if view.is_some() {
            live.note_read()?;
        }
        Ok(view)
    }
    /// The next data at or after `offset` (`SEEK_DATA`); `ENXIO` behind the last.
    pub fn next_data(&self, offset: u64) -> FsResult<u64> {
        let _in = gate::enter();
        ranges::next_data(self.live(), offset)
    }
    /// The next hole at or after `offset` (`SEEK_HOLE`); the end counts as one.
    pub fn next_hole(&self, offset: u64) -> FsResult<u64> {
        let _in = gate::enter();
        ranges::next_hole(self.live(), offset)
    }
    /// `fallocate`.
    pub fn allocate(&self, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
        let _in = gate::enter();
        self.need_write()?;
        let live = self.known();
        ranges::check(offset, len)?;
        live.drop_privileges(self.keeps)?;
        ranges::allocate(live, what, offset, len)?;
        self.written()
    }
    /// Copies `len` bytes of `from` here without moving them where the store can; returns how many there were.
    pub fn copy_from(&self, from: &File, from_offset: u64, offset: u64, len: u64) -> FsResult<u64> {
        let _in = gate::enter();
        self.need_write()?;
        from.need_read()?;
        from.live().settle_all_of_window()?;
        let copied = ranges::copy(from.live(), self.known(), from_offset, offset, len, self.keeps)?;
        self.written()?;
        Ok(copied)
    }
    /// The same, beginning where a page of memory does and with zeros behind the last byte to the end of its page: for a program that maps the file for
    /// reading, if `offset` is a multiple of the page size. None if it does not lie so: [`File::window`], or read it.
    ///
    /// It shows the bytes as they are now: right for private mappings, and for shared ones in `laminated` directories. Whatever is overwritten in the store
    /// while it lives keeps its space: not for mappings that stay for long beside much writing.
    pub fn map_read(&self, offset: u64, len: usize) -> FsResult<Option<View>> {
        let _in = gate::enter();
        self.need_read()?;
        let live = self.live();
        if live.window()?.is_some() {
            return Ok(None);
        }
        let Some(object) = live.object()? else { return Ok(None) };
        let view = object.view_pages(offset, len)?;
        if view.is_some() {
            live.note_read()?;
        }
        Ok(view)
    }
    /// A descriptor of the file's *window*: its bytes in shared memory, where every process of this machine sees them at once. It is to be mapped
    /// (`MAP_SHARED`), or given to the kernel to read and write by; for writing as well if the file was opened so. The first one loads the bytes.
    ///
    /// Who uses it keeps this `File` for as long. What is written there goes to the store with [`File::sync`], [`File::flush`] and when the
    /// file is closed, and if the process dies, when another finds that. `EOPNOTSUPP` where processes of this user cannot meet, `ENOSPC` if shared
    /// memory has no room: read and write then.
    pub fn window(&self) -> FsResult<OwnedFd> {
        let _in = gate::enter();
        let live = self.known();
        if self.flags.write {
            live.check_changes()?;
        }
        live.window_descriptor(self.flags.write)
    }
    /// The same for a kernel that keeps the time of each write by itself (passthrough), and may be given to whoever opens the file later: for writing, however
    /// this one was opened. Who opens it for writing asks as well, so that what was written is put back.
    pub fn window_for_kernel(&self) -> FsResult<OwnedFd> {
        let _in = gate::enter();
        let live = self.known();
        if self.flags.write {
            live.check_changes()?;
        }
        live.window_for_kernel(self.flags.write)
    }
    /// Whether it has capabilities, which go with the first change of its bytes.
    pub fn has_capabilities(&self) -> FsResult<bool> {
        let _in = gate::enter();
        self.live().has_capabilities()
    }
    /// Whether the file has a window just now, made by any process.
    pub fn has_window(&self) -> FsResult<bool> {
        let _in = gate::enter();
        Ok(self.live().window()?.is_some())
    }
    /// What was written is on media; `data_only`: times need not be.
    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.known();
        live.tree.take_lost()?;
        live.settle_window()?;
        if !data_only {
            live.settle()?;
        }
        // Durability keeps the order of a container's updates: with the bytes goes the name.
        let flushed = match live.object()? {
            Some(object) => object.flush(),
            None => live.tree.container.flush(),
        };
        space::synced(live.tree.container.store(), flushed)
    }
    /// One descriptor of it was closed: in a `commit` directory others see it now. The file stays open.
    ///
    /// Where nothing was written, a name that was made in such a directory may take some more milliseconds.
    pub fn flush(&self) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.live();
        live.settle_window()?;
        live.settle()?;
        live.tree.take_lost()
    }
    /// The same, but what is in the file's window stays there and only there, until [`File::sync`], [`File::flush`] or the file is closed:
    /// for callers that keep it open.
    pub fn flush_later(&self) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.live();
        live.settle()?;
        live.tree.take_lost()
    }
    /// The last descriptor was closed.
    pub fn close(self) -> FsResult<()> {
        let _in = gate::enter();
        let tree = self.live().tree.clone();
        let done = self.flush();
        // Who is the last of all writes back what anybody wrote to the window.
        drop(self);
        done.and(tree.take_lost())
    }
}
