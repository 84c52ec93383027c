//! An open file.

mod elsewhere;
pub mod live;
mod locks;
mod node_locks;
mod page_cache;
mod page_cache_records;
mod ranges;
mod reserved;

use std::os::fd::OwnedFd;
use std::sync::Arc;

use cenote::BorrowedBytes;

use crate::rights::Keeps;
use crate::sync::Mutex;
use crate::{Attr, Caller, FsResult, Ino, SetAttr, fail, gate, space, stat};

use elsewhere::IfUnclear;
use node_locks::Meeting;

pub use live::Live;
pub use locks::{HeldLock, LockOwner, LockRange, LockWait, Meetings};
pub use page_cache::Joined;
pub use reserved::ReservedFiles;

/// Flags of `open`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "open(2) has that many flags, which do not exclude one another")]
pub struct OpenFlags {
    /// For reading.
    pub read: bool,
    /// For writing.
    pub write: bool,
    /// Each write appends.
    pub append: bool,
    /// Truncate to 0 bytes.
    pub truncate: bool,
    /// Create the file if it does not exist.
    pub create: bool,
    /// With `create`: fail if the file exists.
    pub exclusive: bool,
    /// Each write is on media when it returns (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
}

/// Modes of `fallocate`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Allocate {
    /// Reserves space and extends the file if needed; data stay.
    Extend,
    /// Reserves space without changing the size (`FALLOC_FL_KEEP_SIZE`).
    KeepSize,
    /// Punches a hole; the size stays.
    Punch,
    /// Zeroes the range.
    Zero {
        /// The size stays; otherwise it grows if needed.
        keep_size: bool,
    },
    /// Removes the range and closes the gap.
    Collapse,
    /// Inserts a gap of zeros.
    Insert,
}

/// An open file, shared by all descriptors that stem from one `open`. It stays readable and writable after its last name is removed. Dropping it closes it;
/// `close` also reports errors.
#[derive(Debug)]
pub struct File {
    live: Arc<Live>,
    flags: OpenFlags,
    /// Set-id bits that its writes keep.
    keeps: Keeps,
    /// Holds its own advisory locks.
    meeting: Mutex<Option<Arc<Meeting>>>,
}

impl File {
    pub(crate) fn new(live: Arc<Live>, flags: OpenFlags, caller: &Caller) -> Self {
        let keeps = Keeps::of(caller, live.gid());
        Self { live, flags, keeps, meeting: Mutex::default() }
    }
    /// Returns the file's state in this process.
    pub(crate) fn live(&self) -> &Arc<Live> {
        self.live.other().unwrap_or(&self.live)
    }
    /// Returns the file's state after publishing its name, so that the file can be changed.
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
        let live = self.known();
        live.change_beside_nodes(&IfUnclear::Again, || live.truncate(size))
    }
    /// Returns the inode number.
    pub fn ino(&self) -> Ino {
        let _in = gate::enter();
        self.live().tree.whole(self.live().ino)
    }
    /// Returns the flags of `open`.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
    /// Returns attributes (`fstat`).
    pub fn attr(&self) -> FsResult<Attr> {
        let _in = gate::enter();
        stat::attr(&self.live().tree, &self.live().find()?)
    }
    /// Sets attributes (`ftruncate`, `fchmod`, `futimens` and so on). `open` checked the rights to operations on a descriptor; the others are checked for
    /// `caller`.
    pub fn set_attr(&self, caller: &Caller, set: &SetAttr) -> FsResult<Attr> {
        let _in = gate::enter();
        if set.size_bytes.is_some() && !self.flags.write {
            return fail(libc::EINVAL);
        }
        let live = self.known();
        stat::set_attr(&live.tree, caller, live.ino, set, true)?;
        self.attr()
    }
    /// Reads into `buf`; returns fewer bytes only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        let _in = gate::enter();
        self.need_read()?;
        if let Some(page_cache) = self.live().page_cache()? {
            let read = page_cache.read_at(buf, offset)?;
            self.live().note_read()?;
            return Ok(read);
        }
        let Some(object) = self.live().object()? else { return Ok(0) };
        let read = object.read_at(offset, buf)?;
        self.live().note_read()?;
        Ok(read)
    }
    /// Writes all of `bytes` in one update.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        let _in = gate::enter();
        self.need_write()?;
        let live = self.known();
        live.change_beside_nodes(&IfUnclear::Again, || live.write(bytes, offset, self.keeps))?;
        self.written()
    }
    /// Appends all of `bytes`, also when others append at the same time; returns the offset.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        let _in = gate::enter();
        self.need_write()?;
        let live = self.known();
        let is_there = |at: &u64| live.has_bytes(bytes, *at);
        let at = live.change_beside_nodes(&IfUnclear::Look(&is_there), || live.append(bytes, self.keeps))?;
        self.written()?;
        Ok(at)
    }
    /// Returns a view of the bytes without a copy, if they are contiguous in mapped memory.
    pub fn view(&self, offset: u64, len: usize) -> FsResult<Option<BorrowedBytes>> {
        let _in = gate::enter();
        self.need_read()?;
        let live = self.live();
        if live.page_cache()?.is_some() {
            return Ok(None);
        }
        let Some(object) = live.object()? else { return Ok(None) };
        let view = object.view(offset, len)?;
        if view.is_some() {
            live.note_read()?;
        }
        Ok(view)
    }
    /// Returns the offset of the next data at or after `offset` (`SEEK_DATA`); `ENXIO` after the last.
    pub fn next_data(&self, offset: u64) -> FsResult<u64> {
        let _in = gate::enter();
        ranges::next_data(self.live(), offset)
    }
    /// Returns the offset of the next hole at or after `offset` (`SEEK_HOLE`); the end counts as a hole.
    pub fn next_hole(&self, offset: u64) -> FsResult<u64> {
        let _in = gate::enter();
        ranges::next_hole(self.live(), offset)
    }
    /// Allocates or changes a range (`fallocate`).
    pub fn allocate(&self, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
        let _in = gate::enter();
        self.need_write()?;
        ranges::check(offset, len)?;
        let live = self.known();
        let moves = matches!(what, Allocate::Collapse | Allocate::Insert);
        let if_unclear = if moves { IfUnclear::Look(&|()| Ok(false)) } else { IfUnclear::Again };
        live.change_beside_nodes(&if_unclear, || {
            live.drop_privileges(self.keeps)?;
            ranges::allocate(live, what, offset, len)
        })?;
        self.written()
    }
    /// Copies `len` bytes of `from` here, by sharing them where the store can; returns how many bytes there were.
    pub fn copy_from(&self, from: &File, from_offset: u64, offset: u64, len: u64) -> FsResult<u64> {
        let _in = gate::enter();
        self.need_write()?;
        from.need_read()?;
        from.live().settle_all_of_page_cache()?;
        let live = self.known();
        // Within a file, a second copy could copy what the first one did.
        let is_within = from.ino() == self.ino();
        let if_unclear = if is_within { IfUnclear::Look(&|_: &u64| Ok(false)) } else { IfUnclear::Again };
        let copied = live.change_beside_nodes(&if_unclear, || {
            ranges::copy(from.live(), live, from_offset, offset, len, self.keeps)
        })?;
        self.written()?;
        Ok(copied)
    }
    /// Returns a view that begins at a page boundary, with zeros after the last byte to the end of its page: for a program that maps the file for reading, if
    /// `offset` is a multiple of the page size. `None` if the bytes do not lie so: use [`File::page_cache`] or read.
    ///
    /// The view shows the bytes as they are now: right for private mappings, and for shared ones in `laminated` directories. While it lives, overwritten bytes
    /// keep their space in the store: not for mappings that stay for long beside heavy writing.
    pub fn map_read(&self, offset: u64, len: usize) -> FsResult<Option<BorrowedBytes>> {
        let _in = gate::enter();
        self.need_read()?;
        let live = self.live();
        if live.page_cache()?.is_some() {
            return Ok(None);
        }
        let Some(object) = live.object()? else { return Ok(None) };
        let view = object.view_pages(offset, len)?;
        if view.is_some() {
            live.note_read()?;
        }
        Ok(view)
    }
    /// Returns a descriptor of the file's *shared page cache*: its bytes in shared memory, where every process of this machine sees them at once.
    /// Map it with `MAP_SHARED`, or give it to the kernel for reading and writing; it is writable if the file is. The first caller loads the bytes.
    ///
    /// Keep this `File` as long as the page cache is in use. Writes to it reach the store with [`File::sync`], with [`File::flush`], when the file is
    /// closed and, if the process dies, when another process finds that. `EOPNOTSUPP` where this user's processes have no shared directory, and for
    /// files whose home is on another node; `ENODEV` if programs there have such a file mapped for writing; `ENOSPC` if shared memory is full: then
    /// read and write instead.
    pub fn page_cache(&self) -> FsResult<OwnedFd> {
        let _in = gate::enter();
        let live = self.known();
        if self.flags.write {
            live.check_changes()?;
        }
        live.page_cache_descriptor(self.flags.write)
    }
    /// Returns the page cache for a kernel that keeps modification times itself (passthrough) and may give it to later openers: always writable,
    /// however this file was opened. An opener for writing must call this as well, so that its writes are written back.
    pub fn page_cache_for_kernel(&self) -> FsResult<OwnedFd> {
        let _in = gate::enter();
        let live = self.known();
        if self.flags.write {
            live.check_changes()?;
        }
        live.page_cache_for_kernel(self.flags.write)
    }
    /// Returns whether the file has capabilities, which the first change of its bytes removes.
    pub fn has_capabilities(&self) -> FsResult<bool> {
        let _in = gate::enter();
        self.live().has_capabilities()
    }
    /// Returns whether the file has a page cache now, made by any process.
    pub fn has_page_cache(&self) -> FsResult<bool> {
        let _in = gate::enter();
        Ok(self.live().page_cache()?.is_some())
    }
    /// Makes written data durable; `data_only`: times need not be.
    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.known();
        live.tree.take_lost()?;
        live.settle_page_cache()?;
        if !data_only {
            live.settle()?;
        }
        // Durability keeps the order of a container's updates, so the name becomes durable with the bytes.
        let flushed = match live.object()? {
            Some(object) => object.flush(),
            None => live.tree.container.flush(),
        };
        space::synced(live.tree.container.store(), flushed)
    }
    /// Publishes changes in a `commit` directory, at the close of one descriptor. The file stays open.
    ///
    /// If nothing was written, a new name in such a directory may take some more milliseconds.
    pub fn flush(&self) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.live();
        live.settle_page_cache()?;
        live.settle()?;
        live.tree.take_lost()
    }
    /// Publishes like [`File::flush`], but leaves bytes in the file's page cache until [`File::sync`], [`File::flush`] or close: for callers that keep the file
    /// open.
    pub fn flush_later(&self) -> FsResult<()> {
        let _in = gate::enter();
        let live = self.live();
        live.settle()?;
        live.tree.take_lost()
    }
    /// Closes the file and reports errors.
    pub fn close(self) -> FsResult<()> {
        let _in = gate::enter();
        let tree = self.live().tree.clone();
        let done = self.flush();
        // The last process to leave writes back what anybody wrote to the page cache.
        drop(self);
        done.and(tree.take_lost())
    }
}
