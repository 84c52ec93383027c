//! The file system: names, attributes, directories.

use std::sync::Arc;

use cenote::{CONTAINER_MODE_PRIVATE, ContainerSpec, Store};

use crate::clock::{Clock, SystemClock};
use crate::inner::Inner;
use crate::rights::{self, READ, WRITE};
use crate::{
    Attr, Caller, Consistency, DirCursor, File, Forking, FsResult, Ino, Kind, New, OpenFlags, SetAttr, check, dir,
    fail, gate, names, pipe, resolve, space, stat, streams, top, unnamed, walk, xattr,
};

/// How a file system is opened.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
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
    /// Numbers that were told stay usable until [`FileSystem::forget`] names them, as a kernel needs it; else the last half million of
    /// files do, and all that are open.
    pub keeps_numbers: bool,
    /// HDF5 files as byte streams are looked at as they were made last: for who makes them, and where no program may be started.
    pub keeps_streams: bool,
    /// Descriptors that are made for locks are this or greater where that can be, so that a program under preload does not come across them.
    pub descriptors_from: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_read_only: false,
            container: None,
            // Modes of files are kept by views; other users of the store get at a tree only if its container says so.
            new_containers: ContainerSpec { mode: CONTAINER_MODE_PRIVATE, ..ContainerSpec::default() },
            consistency: Consistency::default(),
            keeps_access_times: false,
            keeps_numbers: false,
            keeps_streams: false,
            descriptors_from: 0,
        }
    }
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
pub struct FileSystem(Arc<Inner>);

impl FileSystem {
    /// The trees of `store`.
    pub fn new(store: &Store, options: Options) -> FsResult<Self> {
        Self::with_clock(store, options, Arc::new(SystemClock))
    }
    /// The same, with times from `clock`.
    pub fn with_clock(store: &Store, options: Options, clock: Arc<dyn Clock>) -> FsResult<Self> {
        Ok(Self(Arc::new(Inner::new(store, options, clock)?)))
    }
    /// Nobody will ask for this number any more (where [`Options::keeps_numbers`] is set).
    pub fn forget(&self, ino: Ino) {
        let _in = gate::enter();
        self.0.forget(ino);
    }
    /// To be called before this process forks, and its outcome to be kept until after that, in the parent and in the child: what was gathered in
    /// `commit` directories is known to all then, no other thread is in the middle of a call (this waits for them), and what is open stays
    /// for the child, which has some seconds to say that it has it open, as it does with its first call about any open file.
    ///
    /// A program with several file systems calls it of each. The child reaches the store by a connection of its own, made at its first call.
    pub fn before_fork(&self) -> Forking {
        self.0.known_trees().iter().for_each(|tree| tree.publish());
        let forking = gate::close();
        for tree in self.0.known_trees() {
            // Again: what other threads gathered meanwhile would be told by the child as well.
            tree.publish();
            tree.lend();
        }
        forking
    }
    /// The root: [`Ino::TOP`], or that of the one container's tree.
    pub fn root(&self) -> Ino {
        self.0.root()
    }
    /// What `name` in `parent` leads to; not through symbolic links. `.` and `..` work.
    pub fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let _in = gate::enter();
        let found = self.0.find_in(caller, parent, name)?;
        self.0.attr_of(&found)
    }
    /// What a path leads to, from `base` if it is relative, with rights checked on the way: `ELOOP` behind 40 symbolic links, `ENAMETOOLONG`, `ENOTDIR`.
    /// A symbolic link with an absolute target is taken as absolute in this file system.
    pub fn resolve(&self, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Attr> {
        let _in = gate::enter();
        resolve::resolve(&self.0, caller, base, path, follow)
    }
    /// The directory in which the path's last component is, or would be made, and that component (trailing slashes kept off).
    pub fn resolve_parent<'a>(&self, caller: &Caller, base: Ino, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
        let _in = gate::enter();
        resolve::resolve_parent(&self.0, caller, base, path)
    }
    /// What a path leads to for a program that sees the root at `start.at` among other directories. `trail`, the path of `start.base` from that
    /// program's root, becomes that of what was found, without symbolic links on it.
    pub fn walk(
        &self,
        caller: &Caller,
        start: &walk::Start<'_>,
        path: &[u8],
        follow: Follow,
        trail: &mut Vec<u8>,
    ) -> FsResult<walk::Walked<walk::Spot<'_>>> {
        let _in = gate::enter();
        walk::walk(&self.0, caller, start, path, follow, trail)
    }
    /// The directory of the path's last component, and that component, for the same; `trail` becomes the directory's.
    pub fn walk_parent<'a>(
        &self,
        caller: &Caller,
        start: &walk::Start<'_>,
        path: &'a [u8],
        trail: &mut Vec<u8>,
    ) -> FsResult<walk::Walked<(Ino, &'a [u8])>> {
        let _in = gate::enter();
        walk::walk_parent(&self.0, caller, start, path, trail)
    }
    /// The directory of what the path leads to within bounds, and its name there with the slashes behind it (`.`: the directory itself),
    /// where every symbolic link that is to be followed was followed: who opens it follows none.
    pub fn walk_within(
        &self,
        caller: &Caller,
        start: &walk::Start<'_>,
        path: &[u8],
        bounds: walk::Bounds,
        follow: Follow,
        trail: &mut Vec<u8>,
    ) -> FsResult<walk::Walked<(Ino, Vec<u8>)>> {
        let _in = gate::enter();
        walk::walk_within(&self.0, caller, start, path, bounds, follow, trail)
    }
    /// What `stat` tells.
    pub fn attr(&self, ino: Ino) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.attr(ino)
    }
    /// Changes mode, owner, size, times.
    pub fn set_attr(&self, caller: &Caller, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(ino, libc::EPERM)?;
        stat::set_attr(&tree, caller, number, set, false)?;
        stat::attr(&tree, &tree.find(number)?)
    }
    /// Whether `caller` may do what `mask` says (`R_OK`, `W_OK`, `X_OK`).
    pub fn access(&self, caller: &Caller, ino: Ino, mask: i32) -> FsResult<()> {
        let _in = gate::enter();
        let mask = mask as u32 & 7;
        if mask & WRITE != 0 && self.0.common.options.is_read_only {
            return fail(libc::EROFS);
        }
        let Some((tree, number)) = self.0.split(ino)? else { return Ok(()) };
        let found = tree.find(number)?;
        if mask & WRITE != 0 && matches!(found.node.kind, Kind::File | Kind::Directory) {
            tree.check_changes(&found)?;
        }
        rights::check(caller, &found.node, mask)
    }
    /// Makes a directory, symbolic link, device, pipe, socket, or empty file.
    pub fn make(&self, caller: &Caller, parent: Ino, name: &[u8], what: &Make) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, found) = match self.0.split(parent)? {
            None => top::make(&self.0, caller, name, what)?,
            Some((tree, dir)) => {
                let found = names::make(&tree, caller, dir, name, what)?;
                (tree, found)
            }
        };
        stat::attr(&tree, &found)
    }
    /// Opens a file.
    pub fn open(&self, caller: &Caller, ino: Ino, flags: OpenFlags) -> FsResult<File> {
        let _in = gate::enter();
        if flags.write || flags.truncate {
            self.0.check_writable()?;
        }
        let (tree, number) = self.0.in_tree(ino, libc::EISDIR)?;
        self.0.keeper.start(&self.0);
        streams::check_open(&self.0, &tree, number)?;
        names::open(&tree, caller, number, flags)
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
        let _in = gate::enter();
        if flags.write || flags.truncate {
            self.0.check_writable()?;
        }
        let Some((tree, dir)) = self.0.split(parent)? else {
            return match top::find(&self.0, name) {
                Ok(_) => fail(libc::EISDIR),
                Err(error) if error.errno == libc::ENOENT && flags.create => {
                    let what = Make { kind: Kind::File, mode, rdev: 0, target: Vec::new() };
                    Err(top::make(&self.0, caller, name, &what).err().unwrap_or(error))
                }
                Err(error) => Err(error),
            };
        };
        self.0.keeper.start(&self.0);
        streams::look_at(&self.0, &tree, dir, name)?;
        let flags = OpenFlags { create: flags.create && !self.0.common.options.is_read_only, ..flags };
        let (file, found, is_made) = names::open_at(&tree, caller, dir, name, flags, mode)?;
        // A file that was emptied is not what was found.
        let attr = if flags.truncate { file.attr()? } else { stat::attr(&tree, &found)? };
        Ok((file, attr, is_made))
    }
    /// Makes a file without a name in the tree that `dir` is in (`O_TMPFILE`, uploads): it goes when it is closed, unless it was placed.
    pub fn open_unnamed(&self, caller: &Caller, dir: Ino, flags: OpenFlags, mode: u32) -> FsResult<File> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(dir, libc::EOPNOTSUPP)?;
        self.0.keeper.start(&self.0);
        unnamed::open(&tree, caller, number, flags, mode)
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
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, dir) = self.0.in_tree(parent, libc::EXDEV)?;
        let keep = keep.map(|(dir, name)| FsResult::Ok((self.0.in_tree_of(&tree, dir)?, name))).transpose()?;
        if tree.number != file.live().tree.number {
            return fail(libc::EXDEV);
        }
        let found = unnamed::place(&tree, caller, file.live(), (dir, name), xattrs, over, keep)?;
        stat::attr(&tree, &found)
    }
    /// Makes a file with its bytes and a name, in one transaction with what becomes of a file that has that name: as [`FileSystem::place`], for
    /// what is small enough to be in memory, at a third of the messages.
    pub fn put(
        &self,
        caller: &Caller,
        (parent, name): (Ino, &[u8]),
        new: New<'_>,
        over: Over,
        keep: Option<(Ino, &[u8])>,
    ) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, dir) = self.0.in_tree(parent, libc::EXDEV)?;
        let keep = keep.map(|(dir, name)| FsResult::Ok((self.0.in_tree_of(&tree, dir)?, name))).transpose()?;
        let found = unnamed::put(&tree, caller, (dir, name), new, over, keep)?;
        stat::attr(&tree, &found)
    }
    /// A directory of the tree that `ino` is in, beside its root: for what views keep for themselves (uploads, old versions). No path leads to it.
    pub fn backstage(&self, ino: Ino) -> FsResult<Ino> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        Ok(tree.whole(unnamed::backstage(&tree)?))
    }
    /// Gives a file another name.
    pub fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, dir) = self.0.in_tree(parent, libc::EXDEV)?;
        let number = self.0.in_tree_of(&tree, ino)?;
        let found = names::link(&tree, caller, number, dir, name)?;
        stat::attr(&tree, &found)
    }
    /// Takes a name away from what is not a directory.
    pub fn unlink(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        match self.0.split(parent)? {
            None => top::find(&self.0, name).and_then(|_| fail(libc::EISDIR)),
            Some((tree, dir)) => {
                self.0.keeper.start(&self.0);
                names::unlink(&tree, caller, dir, name)
            }
        }
    }
    /// Takes an empty directory away.
    pub fn rmdir(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        match self.0.split(parent)? {
            None => top::remove(&self.0, caller, name),
            Some((tree, dir)) => names::rmdir(&tree, caller, dir, name),
        }
    }
    /// Renames atomically.
    pub fn rename(&self, caller: &Caller, from: (Ino, &[u8]), to: (Ino, &[u8]), how: Rename) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        match (self.0.split(from.0)?, self.0.split(to.0)?) {
            (None, None) => top::rename(&self.0, caller, from.1, to.1, how),
            (Some((tree, from_dir)), Some((other, to_dir))) if tree.number == other.number => {
                names::rename(&tree, caller, (from_dir, from.1), (to_dir, to.1), how)
            }
            _ => {
                self.0.find_in(caller, from.0, from.1)?;
                fail(libc::EXDEV)
            }
        }
    }
    /// A symbolic link's target.
    pub fn read_link(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::EINVAL)?;
        let node = tree.find(number)?.node;
        if node.kind == Kind::Symlink { Ok(node.target) } else { fail(libc::EINVAL) }
    }
    /// Where the kernel's pipe for a pipe with a name is, for a `caller` who may open it so: to be opened by the kernel. All who use the store by such paths
    /// on this machine have one pipe; a mount's kernel has its own. `ENXIO` of what is no pipe, `EACCES` where processes of this user cannot meet.
    pub fn pipe(&self, caller: &Caller, ino: Ino, flags: OpenFlags) -> FsResult<std::path::PathBuf> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::ENXIO)?;
        pipe::meet(&tree, caller, number, flags)
    }
    /// Begins to read a directory.
    pub fn read_dir(&self, caller: &Caller, ino: Ino) -> FsResult<DirCursor> {
        let _in = gate::enter();
        let mut parent = self.0.root();
        if let Some((tree, number)) = self.0.split(ino)? {
            let found = tree.directory(number)?;
            rights::need(caller, &found.node, READ)?;
            parent = self.0.parent_of(&tree, &found);
        }
        Ok(DirCursor::new(&self.0, ino, parent))
    }
    /// Entries of a directory in the order of names, after `after`, at most `limit`: with attributes, for listings. Empty: the end.
    pub fn list(&self, ino: Ino, after: Option<&[u8]>, limit: usize) -> FsResult<Vec<(Vec<u8>, Attr)>> {
        let _in = gate::enter();
        dir::list(&self.0, ino, after, limit)
    }
    /// An extended attribute; `ENODATA` if there is none.
    pub fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::ENODATA)?;
        xattr::get(&tree, caller, &tree.find(number)?, name)
    }
    /// Sets an extended attribute: `user.*`, `trusted.*` (root), `security.*` (root). Others are `EOPNOTSUPP`, but for `cenote.*`, which belongs to
    /// views (callers with `is_checked`) and is not listed to others.
    pub fn set_xattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(ino, libc::EOPNOTSUPP)?;
        xattr::set(&tree, caller, number, name, value, how)
    }
    /// Names of all extended attributes.
    pub fn xattrs(&self, caller: &Caller, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let _in = gate::enter();
        let Some((tree, number)) = self.0.split(ino)? else { return Ok(Vec::new()) };
        xattr::list(&tree, caller, &tree.find(number)?)
    }
    /// Removes an extended attribute.
    pub fn remove_xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(ino, libc::ENODATA)?;
        xattr::remove(&tree, caller, number, name)
    }
    /// Names of a directory are on media.
    pub fn sync_dir(&self, ino: Ino) -> FsResult<()> {
        let _in = gate::enter();
        if let Some((tree, _)) = self.0.split(ino)? {
            tree.publish();
            tree.take_lost()?;
            space::synced(&self.0.store, tree.container.flush())?;
        } else {
            self.0.known_trees().iter().for_each(|tree| tree.publish());
            space::synced(&self.0.store, self.0.store.flush())?;
        }
        Ok(())
    }
    /// What is wrong with the records of the tree that `ino` is in, which nobody changes meanwhile; empty if they agree.
    pub fn check(&self, ino: Ino) -> FsResult<Vec<String>> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        check::check(&tree)
    }
    /// Files of the tree that `ino` is in that have no name and are kept because somebody may have them open.
    pub fn orphans(&self, ino: Ino) -> FsResult<usize> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        tree.orphans()
    }
    /// HDF5 files that are shown as byte streams in the tree of [`STREAMS_CONTAINER`](crate::STREAMS_CONTAINER), with what their
    /// names are relative to: paths without a leading slash.
    pub fn streams(&self) -> FsResult<Vec<(Vec<u8>, Option<cenote::ObjectKey>)>> {
        let _in = gate::enter();
        streams::all(&self.0)
    }
    /// Shows an HDF5 file under a path of that tree, in place of what it showed before: who has that open goes on reading it. Directories are
    /// made. `EEXIST` if something else is there.
    pub fn put_stream(&self, path: &[u8], file: &crate::StreamFile) -> FsResult<()> {
        let _in = gate::enter();
        streams::put(&self.0, path, file)
    }
    /// The ordinary file that somebody has put at a path of that tree, and its bytes.
    pub fn put_file(&self, path: &[u8]) -> FsResult<Option<(Ino, cenote::Object)>> {
        let _in = gate::enter();
        streams::put_file(&self.0, path)
    }
    /// Shows no HDF5 file there any more; directories that are empty then go, too.
    pub fn drop_stream(&self, path: &[u8]) -> FsResult<()> {
        let _in = gate::enter();
        streams::drop_at(&self.0, path)
    }
    /// What `statfs` tells.
    pub fn space(&self, ino: Ino) -> FsResult<Space> {
        let _in = gate::enter();
        let container = match self.0.split(ino)? {
            Some((tree, _)) => Some(tree.container.info()?),
            None => None,
        };
        space::space(&self.0.store, container.as_ref())
    }
}
