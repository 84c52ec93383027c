//! An open file.

use cenote::View;

use crate::{Attr, FsResult, Ino, SetAttr};

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
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
pub struct File {}

#[allow(unused_variables, clippy::unused_self, reason = "the interface that the views agreed on; bodies come next")]
impl File {
    /// Its number.
    pub fn ino(&self) -> Ino {
        todo!()
    }
    /// How it was opened.
    pub fn flags(&self) -> OpenFlags {
        todo!()
    }
    /// What `fstat` tells.
    pub fn attr(&self) -> FsResult<Attr> {
        todo!()
    }
    /// `ftruncate`, `fchmod`, `futimens` and so on; rights were checked by `open` for what goes through a descriptor, the rest for `caller`.
    pub fn set_attr(&self, caller: &crate::Caller, set: &SetAttr) -> FsResult<Attr> {
        todo!()
    }
    /// Reads into `buf`; fewer bytes only at the end of the file.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> FsResult<usize> {
        todo!()
    }
    /// Writes all of `bytes`, in one update.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> FsResult<()> {
        todo!()
    }
    /// Writes all of `bytes` at the end, whoever else does so at the same time; returns where.
    pub fn append(&self, bytes: &[u8]) -> FsResult<u64> {
        todo!()
    }
    /// The bytes where they are, without a copy, if they lie in one piece of mapped memory.
    pub fn view(&self, offset: u64, len: usize) -> FsResult<Option<View>> {
        todo!()
    }
    /// The next data at or after `offset` (`SEEK_DATA`); `ENXIO` behind the last.
    pub fn next_data(&self, offset: u64) -> FsResult<u64> {
        todo!()
    }
    /// The next hole at or after `offset` (`SEEK_HOLE`); the end counts as one.
    pub fn next_hole(&self, offset: u64) -> FsResult<u64> {
        todo!()
    }
    /// `fallocate`.
    pub fn allocate(&self, what: Allocate, offset: u64, len: u64) -> FsResult<()> {
        todo!()
    }
    /// Copies `len` bytes of `from` here without moving them where the store can; returns how many there were.
    pub fn copy_from(&self, from: &File, from_offset: u64, offset: u64, len: u64) -> FsResult<u64> {
        todo!()
    }
    /// What was written is on media; `data_only`: times need not be.
    pub fn sync(&self, data_only: bool) -> FsResult<()> {
        todo!()
    }
    /// One descriptor of it was closed: in a `commit` directory others see it now. The file stays open.
    pub fn flush(&self) -> FsResult<()> {
        todo!()
    }
    /// The last descriptor was closed.
    pub fn close(self) -> FsResult<()> {
        todo!()
    }
}
