//! The file system: names, attributes, directories.

use cenote::{ContainerSpec, Store};

use crate::{Attr, Caller, Consistency, File, FsResult, Ino, Kind, OpenFlags, SetAttr};

/// How a file system is opened.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Nothing may be changed: `EROFS`.
    pub is_read_only: bool,
    /// The top is the root of this container's tree, in place of the directory of containers. It is made if it is not there.
    pub container: Option<String>,
    /// What containers are made with by `mkdir` at the top; the label is not looked at.
    pub new_containers: ContainerSpec,
    /// Consistency of new containers' roots.
    pub consistency: Consistency,
    /// Access times are kept: never, or as `relatime` does.
    pub keeps_access_times: bool,
}

/// What to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Make {
    /// The kind.
    pub kind: Kind,
    /// Permissions, umask already taken off.
    pub mode: u32,
    /// Device number.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

/// How `rename` treats what is there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// It is replaced, atomically.
    #[default]
    Replace,
    /// `EEXIST` (`RENAME_NOREPLACE`).
    Keep,
    /// Both change places (`RENAME_EXCHANGE`).
    Exchange,
}

/// Whether the last component of a path is followed if it is a symbolic link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// As `stat`.
    Yes,
    /// As `lstat`.
    No,
}

/// Whether an extended attribute may, or must, be there already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// Either.
    Any,
    /// `XATTR_CREATE`.
    New,
    /// `XATTR_REPLACE`.
    Replace,
}

/// An entry of a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Its name: 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
    /// What it leads to.
    pub ino: Ino,
    /// Of which kind.
    pub kind: Kind,
    /// Where reading goes on behind it: stays valid when entries come and go (`telldir`).
    pub next: u64,
}

/// Reading of a directory; `.` and `..` come first. What was there all the time comes exactly once; what comes or goes meanwhile at most once.
#[derive(Debug)]
pub struct DirCursor {}

#[allow(unused_variables, clippy::unused_self, reason = "the interface that the views agreed on; bodies come next")]
impl DirCursor {
    /// The next entry; none at the end.
    pub fn next(&mut self) -> FsResult<Option<DirEntry>> {
        todo!()
    }
    /// Goes on at `position` (0: from the beginning, reading anew), as `seekdir` and `rewinddir` do.
    pub fn seek(&mut self, position: u64) {
        todo!()
    }
}

/// What may stand where [`FileSystem::place`] puts a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// A file, or nothing.
    Any,
    /// Nothing: `EEXIST`.
    Nothing,
    /// This very file: `EBUSY` if it is another or none. How a request that depends on what it saw is made atomic.
    This(Ino),
}

/// What `statfs` tells, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// All that the persistent tiers (or, without any, all tiers) can hold, or the container's quota.
    pub total_bytes: u64,
    /// What is free of it.
    pub free_bytes: u64,
    /// Files and directories there are.
    pub files: u64,
    /// Files that can still be made.
    pub files_free: u64,
}

/// The trees of a store. Clones share everything; calls may come from any thread.
#[derive(Clone, Debug)]
pub struct FileSystem {}

#[allow(unused_variables, clippy::unused_self, reason = "the interface that the views agreed on; bodies come next")]
impl FileSystem {
    /// The trees of `store`.
    pub fn new(store: &Store, options: Options) -> FsResult<Self> {
        todo!()
    }
    /// The root: [`Ino::TOP`], or that of the one container's tree.
    pub fn root(&self) -> Ino {
        todo!()
    }
    /// What `name` in `parent` leads to; not through symbolic links. `.` and `..` work.
    pub fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        todo!()
    }
    /// What a path leads to, from `base` if it is relative, with rights checked on the way: `ELOOP` behind 40 symbolic links, `ENAMETOOLONG`, `ENOTDIR`.
    /// A symbolic link with an absolute target is taken as absolute in this file system.
    pub fn resolve(&self, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Attr> {
        todo!()
    }
    /// The directory in which the path's last component is, or would be made, and that component (trailing slashes kept off).
    pub fn resolve_parent<'a>(&self, caller: &Caller, base: Ino, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
        todo!()
    }
    /// What `stat` tells.
    pub fn attr(&self, ino: Ino) -> FsResult<Attr> {
        todo!()
    }
    /// Changes mode, owner, size, times.
    pub fn set_attr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        todo!()
    }
    /// Whether `caller` may do what `mask` says (`R_OK`, `W_OK`, `X_OK`).
    pub fn access(&self, caller: &Caller, ino: Ino, mask: i32) -> FsResult<()> {
        todo!()
    }
    /// Makes a directory, symbolic link, device, pipe, socket, or empty file.
    pub fn make(&self, caller: &Caller, parent: Ino, name: &[u8], what: &Make) -> FsResult<Attr> {
        todo!()
    }
    /// Opens a file.
    pub fn open(&self, caller: &Caller, ino: Ino, flags: OpenFlags) -> FsResult<File> {
        todo!()
    }
    /// Opens the file `name` in `parent`, and makes it first, with `mode`, if `flags` say so and it is not there. True: it was made.
    pub fn open_at(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        flags: OpenFlags,
        mode: u32,
    ) -> FsResult<(File, Attr, bool)> {
        todo!()
    }
    /// Makes a file without a name in the tree that `dir` is in (`O_TMPFILE`, uploads): it goes when it is closed, unless it was placed.
    pub fn open_unnamed(&self, caller: &Caller, dir: Ino, flags: OpenFlags, mode: u32) -> FsResult<File> {
        todo!()
    }
    /// Gives an unnamed file a name and extended attributes, in one transaction with what becomes of a file that has that name: it goes, or gets the
    /// name `keep` in the same tree.
    pub fn place(
        &self,
        caller: &Caller,
        file: &File,
        (parent, name): (Ino, &[u8]),
        xattrs: &[(&[u8], &[u8])],
        over: Over,
        keep: Option<(Ino, &[u8])>,
    ) -> FsResult<Attr> {
        todo!()
    }
    /// A directory of the tree that `ino` is in, beside its root: for what views keep for themselves (uploads, old versions). No path leads to it.
    pub fn backstage(&self, ino: Ino) -> FsResult<Ino> {
        todo!()
    }
    /// Gives a file another name.
    pub fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        todo!()
    }
    /// Takes a name away from what is not a directory.
    pub fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        todo!()
    }
    /// Takes an empty directory away.
    pub fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        todo!()
    }
    /// Renames atomically.
    pub fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), how: Rename) -> FsResult<()> {
        todo!()
    }
    /// A symbolic link's target.
    pub fn read_link(&self, ino: Ino) -> FsResult<Vec<u8>> {
        todo!()
    }
    /// Begins to read a directory.
    pub fn read_dir(&self, caller: &Caller, ino: Ino) -> FsResult<DirCursor> {
        todo!()
    }
    /// Entries of a directory in the order of names, after `after`, at most `limit`: with attributes, for listings. Empty: the end.
    pub fn list(&self, ino: Ino, after: Option<&[u8]>, limit: usize) -> FsResult<Vec<(Vec<u8>, Attr)>> {
        todo!()
    }
    /// An extended attribute; `ENODATA` if there is none.
    pub fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        todo!()
    }
    /// Sets an extended attribute: `user.*`, `trusted.*` (root), `security.*` (root). Others are `EOPNOTSUPP`, but for `cenote.*`, which belongs to
    /// views (callers with `is_checked`) and is not listed to others.
    pub fn set_xattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> FsResult<()> {
        todo!()
    }
    /// Names of all extended attributes.
    pub fn xattrs(&self, caller: &Caller, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        todo!()
    }
    /// Removes an extended attribute.
    pub fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> FsResult<()> {
        todo!()
    }
    /// Names of a directory are on media.
    pub fn sync_dir(&self, ino: Ino) -> FsResult<()> {
        todo!()
    }
    /// What `statfs` tells.
    pub fn space(&self, ino: Ino) -> FsResult<Space> {
        todo!()
    }
}
