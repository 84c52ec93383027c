//! The file system: names, attributes, directories.

use std::sync::Arc;

use cenote::{CONTAINER_MODE_PRIVATE, ContainerSpec, Store};

use crate::clock::{Clock, SystemClock};
use crate::inner::Inner;
use crate::rights::{self, READ, WRITE};
use crate::{
    Attr, Caller, Consistency, DirCursor, File, Forking, FsResult, Ino, Kind, New, OpenFlags, SetAttr, check, dir,
    fail, gate, images, names, pipe, resolve, space, stat, top, unnamed, walk, xattr,
};

/// Options of a file system.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub struct Options {
    /// Read-only: changes return `EROFS`.
    pub is_read_only: bool,
    /// The top is the root of this container's tree, in place of the directory of containers. The container is created if it does not exist.
    pub container: Option<String>,
    /// Template for containers created by `mkdir` at the top; its label is ignored.
    pub new_containers: ContainerSpec,
    /// Consistency of new containers' roots.
    pub consistency: Consistency,
    /// Whether access times are kept as `relatime` does, or not at all.
    pub keeps_access_times: bool,
    /// Inode numbers stay valid until [`FileSystem::forget`] names them, as a kernel needs; otherwise those of the last half million files, and of all open
    /// files, stay valid.
    pub keeps_numbers: bool,
    /// HDF5 images are served as last made: for the maker of images, and where no program may be started.
    pub keeps_images: bool,
    /// Lowest descriptor for locks, where possible, so that a program under preload does not stumble over them.
    pub descriptors_from: i32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            is_read_only: false,
            container: None,
            // Only views enforce modes of files; other users of the store reach a tree only if its container allows it.
            new_containers: ContainerSpec { mode: CONTAINER_MODE_PRIVATE, ..ContainerSpec::default() },
            consistency: Consistency::default(),
            keeps_access_times: false,
            keeps_numbers: false,
            keeps_images: false,
            descriptors_from: 0,
        }
    }
}

/// Parameters of creation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Make {
    /// File type.
    pub kind: Kind,
    /// Permissions after the umask.
    pub mode: u32,
    /// Device number.
    pub rdev: u64,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
}

/// How `rename` treats an existing target.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Rename {
    /// Replace it atomically.
    #[default]
    Replace,
    /// Return `EEXIST` (`RENAME_NOREPLACE`).
    Keep,
    /// Exchange both (`RENAME_EXCHANGE`).
    Exchange,
}

/// Whether a symbolic link as the last component is followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Follow {
    /// Follow, as `stat` does.
    Yes,
    /// Do not follow, as `lstat` does.
    No,
}

/// Whether an extended attribute may or must exist.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetXattr {
    /// It may exist.
    Any,
    /// It must not exist (`XATTR_CREATE`).
    New,
    /// It must exist (`XATTR_REPLACE`).
    Replace,
}

/// A directory entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DirEntry {
    /// Name: 1 to 255 bytes without `/` and NUL.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: Ino,
    /// File type.
    pub kind: Kind,
    /// Position after this entry: stays valid when entries come and go (`telldir`).
    pub next: u64,
}

/// What [`FileSystem::place`] may replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Over {
    /// A file, or nothing.
    Any,
    /// Nothing: otherwise `EEXIST`.
    Nothing,
    /// Only this file: `EBUSY` if another file or none is there. Makes a request that depends on an earlier look atomic.
    This(Ino),
}

/// Result of `statfs`, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Capacity of the persistent tiers (without any, of all tiers), or the container's quota.
    pub total_bytes: u64,
    /// Free bytes.
    pub free_bytes: u64,
    /// Number of files and directories.
    pub files: u64,
    /// Number of files that can still be created.
    pub files_free: u64,
}

/// The trees of a store. Clones share all state; any thread may call.
#[derive(Clone, Debug)]
pub struct FileSystem(pub(crate) Arc<Inner>);

impl FileSystem {
    /// Creates the file system of `store`.
    pub fn new(store: &Store, options: Options) -> FsResult<Self> {
        Self::with_clock(store, options, Arc::new(SystemClock))
    }
    /// Creates the file system of `store` with times from `clock`.
    pub fn with_clock(store: &Store, options: Options, clock: Arc<dyn Clock>) -> FsResult<Self> {
        Ok(Self(Arc::new(Inner::new(store, options, clock)?)))
    }
    /// Forgets a number that nobody will use again (if [`Options::keeps_numbers`] is set).
    pub fn forget(&self, ino: Ino) {
        let _in = gate::enter();
        self.0.forget(ino);
    }
    /// Prepares a fork. Call it before the fork and keep the result until after it, in parent and child. It publishes what was gathered in `commit`
    /// directories and waits until no other thread is in a call. Open files stay open for the child, which has some seconds to claim them; its first call
    /// about any open file does so.
    ///
    /// A program with several file systems calls it for each. The child reaches the store through a connection of its own, made at its first call.
    pub fn before_fork(&self) -> Forking {
        self.0.known_trees().iter().for_each(|tree| tree.publish());
        let forking = gate::close();
        for tree in self.0.known_trees() {
            // Publish again: the child would otherwise publish as well what other threads gathered meanwhile.
            tree.publish();
            tree.lend();
        }
        forking
    }
    /// Returns the root: [`Ino::TOP`], or that of the one container's tree.
    pub fn root(&self) -> Ino {
        self.0.root()
    }
    /// Looks up `name` in `parent`; does not follow symbolic links. `.` and `..` work.
    pub fn lookup(&self, caller: &Caller, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let _in = gate::enter();
        let found = self.0.find_in(caller, parent, name)?;
        self.0.attr_of(&found)
    }
    /// Resolves a path, from `base` if it is relative, and checks rights on the way: `ELOOP` after 40 symbolic links, `ENAMETOOLONG`, `ENOTDIR`. An absolute
    /// target of a symbolic link is absolute in this file system.
    pub fn resolve(&self, caller: &Caller, base: Ino, path: &[u8], follow: Follow) -> FsResult<Attr> {
        let _in = gate::enter();
        resolve::resolve(&self.0, caller, base, path, follow)
    }
    /// Returns the directory in which the path's last component is or would be created, and that component without trailing slashes.
    pub fn resolve_parent<'a>(&self, caller: &Caller, base: Ino, path: &'a [u8]) -> FsResult<(Ino, &'a [u8])> {
        let _in = gate::enter();
        resolve::resolve_parent(&self.0, caller, base, path)
    }
    /// Resolves a path for a program that sees the root at `start.at` among other directories. `trail`, the path of `start.base` from that program's root,
    /// becomes the path of the result, without symbolic links.
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
    /// Returns, for the same kind of program, the parent directory of the path and the last component; `trail` becomes the directory's path.
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
    /// Returns the parent directory of what the path leads to within bounds, and the name there with trailing slashes (`.`: the directory itself). All
    /// symbolic links that are to be followed have been followed, so the opener must follow none.
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
    /// Returns attributes (`stat`).
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
    /// Checks whether `caller` has the rights in `mask` (`R_OK`, `W_OK`, `X_OK`).
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
    /// Creates a directory, symbolic link, device, pipe, socket, or empty file.
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
        images::check_open(&self.0, &tree, number)?;
        names::open(&tree, caller, number, flags)
    }
    /// Opens the file `name` in `parent`, and creates it first, with `mode`, if `flags` say so and it does not exist. Returns true if it was created.
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
        images::look_at(&self.0, &tree, dir, name)?;
        let flags = OpenFlags { create: flags.create && !self.0.common.options.is_read_only, ..flags };
        let (file, found, is_made) = names::open_at(&tree, caller, dir, name, flags, mode)?;
        // Truncation changed the attributes that were found.
        let attr = if flags.truncate { file.attr()? } else { stat::attr(&tree, &found)? };
        Ok((file, attr, is_made))
    }
    /// Creates a file without a name in the tree of `dir` (`O_TMPFILE`, uploads): it is deleted when closed, unless it was placed.
    pub fn open_unnamed(&self, caller: &Caller, dir: Ino, flags: OpenFlags, mode: u32) -> FsResult<File> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(dir, libc::EOPNOTSUPP)?;
        self.0.keeper.start(&self.0);
        unnamed::open(&tree, caller, number, flags, mode)
    }
    /// Gives an unnamed file a name and extended attributes. The same transaction deletes an existing file of that name, or renames it to `keep` in the
    /// tree.
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
    /// Creates a file with bytes and name, and treats an existing file of that name as [`FileSystem::place`] does: for content small enough for memory, at a
    /// third of the messages.
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
    /// Returns the directory beside the root of the tree of `ino`: for the views' own data (uploads, old versions). No path leads to it.
    pub fn private_dir(&self, ino: Ino) -> FsResult<Ino> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        Ok(tree.whole(unnamed::private_dir(&tree)?))
    }
    /// Creates a hard link.
    pub fn link(&self, caller: &Caller, ino: Ino, parent: Ino, name: &[u8]) -> FsResult<Attr> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, dir) = self.0.in_tree(parent, libc::EXDEV)?;
        let number = self.0.in_tree_of(&tree, ino)?;
        let found = names::link(&tree, caller, number, dir, name)?;
        stat::attr(&tree, &found)
    }
    /// Removes a name of anything but a directory.
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
    /// Removes an empty directory.
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
    /// Returns a symbolic link's target.
    pub fn read_link(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::EINVAL)?;
        let node = tree.find(number)?.node;
        if node.kind == Kind::Symlink { Ok(node.target) } else { fail(libc::EINVAL) }
    }
    /// Returns the path of a named pipe's kernel pipe, for a `caller` who may open it so; the kernel is to open it. All who use the store by such paths on
    /// this machine share one pipe; a mount's kernel has its own. `ENXIO` if it is no pipe, `EACCES` if this user's processes have no shared directory.
    pub fn pipe(&self, caller: &Caller, ino: Ino, flags: OpenFlags) -> FsResult<std::path::PathBuf> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::ENXIO)?;
        pipe::meet(&tree, caller, number, flags)
    }
    /// Opens a cursor over a directory.
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
    /// Lists entries with attributes in the order of names, after `after`, at most `limit`. Empty: the end.
    pub fn list(&self, ino: Ino, after: Option<&[u8]>, limit: usize) -> FsResult<Vec<(Vec<u8>, Attr)>> {
        let _in = gate::enter();
        dir::list(&self.0, ino, after, limit)
    }
    /// Returns an extended attribute; `ENODATA` if there is none.
    pub fn xattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let _in = gate::enter();
        let (tree, number) = self.0.in_tree(ino, libc::ENODATA)?;
        xattr::get(&tree, caller, &tree.find(number)?, name)
    }
    /// Sets an extended attribute: `user.*`, `trusted.*` (root), `security.*` (root). Others return `EOPNOTSUPP`, except `cenote.*`, which belongs to views
    /// (callers with `is_checked`) and is listed to nobody else.
    pub fn set_xattr(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8], how: SetXattr) -> FsResult<()> {
        let _in = gate::enter();
        self.0.check_writable()?;
        let (tree, number) = self.0.in_tree(ino, libc::EOPNOTSUPP)?;
        xattr::set(&tree, caller, number, name, value, how)
    }
    /// Lists the names of all extended attributes.
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
    /// Makes the names of a directory durable.
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
    /// Lists the inconsistencies in the records of the tree of `ino`, which nobody may change meanwhile; empty if there are none.
    pub fn check(&self, ino: Ino) -> FsResult<Vec<String>> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        check::check(&tree)
    }
    /// Counts files without a name in the tree of `ino` that are kept because somebody may have them open.
    pub fn orphans(&self, ino: Ino) -> FsResult<usize> {
        let _in = gate::enter();
        let (tree, _) = self.0.in_tree(ino, libc::EINVAL)?;
        tree.orphans()
    }
    /// Lists the HDF5 files shown as byte images in the tree of [`IMAGES_CONTAINER`](crate::IMAGES_CONTAINER): paths without a leading slash, and the
    /// objects with the bytes.
    pub fn images(&self) -> FsResult<Vec<(Vec<u8>, Option<cenote::ObjectKey>)>> {
        let _in = gate::enter();
        images::all(&self.0)
    }
    /// Shows an HDF5 file at a path of that tree, in place of what it showed before: a process that has the old image open goes on reading it. Creates
    /// directories. `EEXIST` if something else is there.
    pub fn put_image(&self, path: &[u8], file: &crate::ImageFile) -> FsResult<()> {
        let _in = gate::enter();
        images::put(&self.0, path, file)
    }
    /// Returns an ordinary file that somebody has put at a path of that tree, and its bytes.
    pub fn put_file(&self, path: &[u8]) -> FsResult<Option<(Ino, cenote::Object)>> {
        let _in = gate::enter();
        images::put_file(&self.0, path)
    }
    /// Stops showing an HDF5 file; also removes directories that become empty.
    pub fn drop_image(&self, path: &[u8]) -> FsResult<()> {
        let _in = gate::enter();
        images::drop_at(&self.0, path)
    }
    /// Returns the space (`statfs`).
    pub fn space(&self, ino: Ino) -> FsResult<Space> {
        let _in = gate::enter();
        let container = match self.0.split(ino)? {
            Some((tree, _)) => Some(tree.container.info()?),
            None => None,
        };
        space::space(&self.0.store, container.as_ref())
    }
}
