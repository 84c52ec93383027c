//! An open file.

pub mod live;
mod ranges;

use std::sync::Arc;

use cenote::View;

use crate::{Attr, Caller, FsResult, Ino, SetAttr, fail, stat};

pub use live::Live;

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
    /// Makes the file long enough; what was there stays.
    Extend,
    /// Reserves nothing and changes no size (`FALLOC_FL_KEEP_SIZE`).
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
    /// Writes leave set-id bits alone.
    keeps_set_ids: bool,
}

impl File {
    pub(crate) fn new(live: Arc<Live>, flags: OpenFlags, caller: &Caller) -> Self {
        Self { live, flags, keeps_set_ids: caller.is_above() }
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
        self.live().tree.whole(self.live().ino)
    }
    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        self.flags
    }
    /// What `fstat` tells.
    pub fn attr(&self) -> FsResult<Attr> {
        stat::attr(&self.live().tree, &self.live().find()?)
    }
    /// `ftruncate`, `fchmod`, `futimens` and so on; rights were checked by `open` for what goes through a descriptor, the rest for `caller`.
    pub fn set_attr(&self, caller: &Caller, set: &SetAttr) -> FsResult<Attr> {
        if set.size_bytes.is_some() && !self.flags.write {
            return fail(libc::EINVAL);
        }
        let live = self.known();
        stat::set_attr(&live.tree, caller, live.ino, set, true)?;
        self.attr()
    }
    /// Reads into `buf`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        self.need_read()?;
        let Some(object) = self.live().object()? else { return Ok(0) };
        let read = object.read_at(offset, buf)?;
        self.live().note_read()?;
        Ok(read)
    }
    /// Writes all of `bytes`, in one update.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        self.need_write()?;
        self.known().write(bytes, offset, self.keeps_set_ids)?;
        self.written()
    }
    /// Writes all of `bytes` at the end, whoever else does so at the same time; returns where.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        self.need_write()?;
        let at = self.known().append(bytes, self.keeps_set_ids)?;
        self.written()?;
        Ok(at)
    }
    /// The bytes where they are, without a copy, if they lie in one piece of mapped memory.
    pub fn view(&self, offset: u64, len: usize) -> FsResult<Option<View>> {
        self.need_read()?;
        let Some(object) = self.live.object()? else { return Ok(None) };
        let view = object.view(offset, len)?;
        if view.is_some() {
            self.live.note_read()?;
        }
        Ok(view)
    }
    /// The next data at or after `offset` (`SEEK_DATA`); `ENXIO` behind the last.
    pub fn next_data(&self, offset: u64) -> FsResult<u64> {
        ranges::next_data(self.live(), offset)
    }
    /// The next hole at or after `offset` (`SEEK_HOLE`); the end counts as one.
    pub fn next_hole(&self, offset: u64) -> FsResult<u64> {
        ranges::next_hole(self.live(), offset)
    }
    /// `fallocate`.
    pub fn allocate(&self, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
        self.need_write()?;
        ranges::allocate(self.known(), what, offset, len)?;
        self.written()
    }
    /// Copies `len` bytes of `from` here without moving them where the store can; returns how many there were.
    pub fn copy_from(&self, from: &File, from_offset: u64, offset: u64, len: u64) -> FsResult<u64> {
        self.need_write()?;
        from.need_read()?;
        let copied = ranges::copy(from.live(), self.known(), from_offset, offset, len, self.keeps_set_ids)?;
        self.written()?;
        Ok(copied)
    }
    /// What was written is on media; `data_only`: times need not be.
    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        let live = self.known();
        live.tree.take_lost()?;
        if !data_only {
            live.settle()?;
        }
        // Durability keeps the order of a container's updates: with the bytes goes the name.
        match live.object()? {
            Some(object) => object.flush()?,
            None => live.tree.container.flush()?,
        }
        Ok(())
    }
    /// One descriptor of it was closed: in a `commit` directory others see it now. The file stays open.
    ///
    /// Where nothing was written, a name that was made in such a directory may take some more milliseconds.
    pub fn flush(&self) -> FsResult<()> {
        let live = self.live();
        live.settle()?;
        live.tree.take_lost()
    }
    /// The last descriptor was closed.
    pub fn close(self) -> FsResult<()> {
        self.flush()
    }
}
