//! Directories and files of a store, by path.

use std::sync::Arc;

use cenote_posix::{
    Attr, Caller, Consistency, File, FileSystem, Follow, FsError, Ino, Kind, Make, OpenFlags, Options, Over, Rename,
    SetAttr, SetTime, SetXattr, Time,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::buffer::Bytes;
use crate::errors::{invalid, raise_os};
use crate::file::{RawFile, open_flags};
use crate::file_info::{FileSpace, FileStat};
use crate::store::Store;

/// The directories and files of a store, by path: `/container/directory/file`. Like `os`, with paths as str or bytes.
///
///     >>> store.files.makedirs("/runs/a/b")
///     >>> with store.files.open("/runs/a/b/notes.txt", "w") as file:
///     ...     _ = file.write("a file")
///     >>> store.files.listdir("/runs/a/b"), store.files.stat("/runs/a/b/notes.txt").st_size
///     (['notes.txt'], 6)
#[pyclass(frozen, module = "cenote")]
pub struct Files {
    fs: FileSystem,
    caller: Caller,
    umask: u32,
}

/// A path as passed by Python.
pub struct FsPath(pub Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for FsPath {
    type Error = PyErr;
    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let value = value.py().import("os")?.call_method1("fspath", (value,))?;
        if let Ok(text) = value.cast::<PyString>() {
            let bytes = text.call_method1("encode", ("utf-8", "surrogateescape"))?;
            return Ok(Self(bytes.cast::<PyBytes>()?.as_bytes().to_vec()));
        }
        Ok(Self(value.cast::<PyBytes>()?.as_bytes().to_vec()))
    }
}

impl FsPath {
    /// The path as text, for errors and returned names.
    pub fn text(&self, py: Python<'_>) -> PyResult<Py<PyString>> {
        name_of(py, &self.0)
    }
}

/// A name as a Python string, with surrogates for bytes that are not UTF-8.
fn name_of(py: Python<'_>, bytes: &[u8]) -> PyResult<Py<PyString>> {
    let text = PyBytes::new(py, bytes).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(text.cast_into::<PyString>()?.unbind())
}

// Error numbers handled here.
const ENOENT: i32 = rustix::io::Errno::NOENT.raw_os_error();
const ENOTDIR: i32 = rustix::io::Errno::NOTDIR.raw_os_error();
const ESTALE: i32 = rustix::io::Errno::STALE.raw_os_error();
const EEXIST: i32 = rustix::io::Errno::EXIST.raw_os_error();
const ELOOP: i32 = rustix::io::Errno::LOOP.raw_os_error();
/// Most symbolic links followed in one path.
const LINKS_MAX: u32 = 40;

/// Attempts at making directories: others may be making the same ones, or removing them, and a container exists for a
/// moment before its tree does.
const TRIES: u32 = 100;

fn wait_a_little() {
    std::thread::sleep(std::time::Duration::from_millis(1));
}

fn open_for_writing() -> OpenFlags {
    OpenFlags { write: true, ..OpenFlags::default() }
}

/// This process's mask for new files and directories.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    mask.and_then(|mask| u32::from_str_radix(mask.trim(), 8).ok()).unwrap_or(0o022)
}

fn time_of(ns: i128) -> SetTime {
    SetTime::To(Time { s: ns.div_euclid(1_000_000_000) as i64, ns: ns.rem_euclid(1_000_000_000) as u32 })
}

impl Files {
    /// The files of a store.
    pub fn new(py: Python<'_>, store: &Store, options: Options) -> PyResult<Self> {
        use rustix::process::{getegid, geteuid, getgroups};
        let fs = py.detach(|| FileSystem::new(&store.0, options)).map_err(|error| raise_os(error, None))?;
        let groups: Vec<u32> = getgroups().unwrap_or_default().into_iter().map(rustix::process::Gid::as_raw).collect();
        let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
        Ok(Self { fs, caller: Caller { uid, gid, groups: Arc::from(groups), is_checked: false }, umask: umask() })
    }
    /// Runs `work` without the GIL; its error names the path.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        path: &FsPath,
        work: impl FnOnce(&FileSystem, &Caller, &[u8]) -> Result<T, FsError> + Send,
    ) -> PyResult<T> {
        py.detach(|| work(&self.fs, &self.caller, &path.0)).map_err(|error| raise_os(error, Some(path)))
    }
    fn at(fs: &FileSystem, caller: &Caller, path: &[u8], follow: bool) -> Result<Attr, FsError> {
        fs.resolve(caller, fs.root(), path, if follow { Follow::Yes } else { Follow::No })
    }
    fn parent<'a>(fs: &FileSystem, caller: &Caller, path: &'a [u8]) -> Result<(Ino, &'a [u8]), FsError> {
        fs.resolve_parent(caller, fs.root(), path)
    }
    /// Makes a directory and the missing ones above it. Returns false if it existed.
    fn make_dirs(fs: &FileSystem, caller: &Caller, path: &[u8], mode: u32) -> Result<bool, FsError> {
        for _ in 0..TRIES {
            match Self::make_dirs_once(fs, caller, path, mode) {
                Err(error) if matches!(error.errno, ENOENT | ESTALE) => wait_a_little(),
                done => return done,
            }
        }
        Self::make_dirs_once(fs, caller, path, mode)
    }
    fn make_dirs_once(fs: &FileSystem, caller: &Caller, path: &[u8], mode: u32) -> Result<bool, FsError> {
        let what = Make { kind: Kind::Directory, mode, rdev: 0, target: Vec::new() };
        let mut made = false;
        let ends = (0..=path.len()).filter(|i| path.get(*i).is_none_or(|byte| *byte == b'/') && *i > 0);
        for end in ends.filter(|end| path[end - 1] != b'/') {
            let (parent, name) = Self::parent(fs, caller, &path[..end])?;
            made = match fs.make(caller, parent, name, &what) {
                Ok(_) => true,
                Err(error) if error.errno == EEXIST => {
                    let is_link =
                        || Self::at(fs, caller, &path[..end], false).is_ok_and(|attr| attr.kind == Kind::Symlink);
                    match Self::at(fs, caller, &path[..end], true) {
                        Ok(attr) if attr.kind == Kind::Directory => false,
                        Ok(_) => return Err(FsError::new(ENOTDIR)),
                        // A dangling link: nothing was just removed, so another attempt would fail too.
                        Err(gone) if gone.errno == ENOENT && is_link() => return Err(error),
                        Err(other) => return Err(other),
                    }
                }
                Err(error) => return Err(error),
            };
        }
        Ok(made)
    }
    /// The directory for a path's last component, made with everything above it if missing. `path`: with the length of the
    /// part above the last component.
    fn parent_or_made<'a>(
        fs: &FileSystem,
        caller: &Caller,
        (path, above): (&'a [u8], usize),
        mode: u32,
    ) -> Result<(Ino, &'a [u8]), FsError> {
        for _ in 0..TRIES {
            match Self::parent(fs, caller, path) {
                Err(error) if error.errno == ENOENT => {
                    Self::make_dirs(fs, caller, &path[..above], mode)?;
                }
                done => return done,
            }
        }
        Self::parent(fs, caller, path)
    }
    fn put_once(
        fs: &FileSystem,
        caller: &Caller,
        path: &[u8],
        (perm, dir_perm, over): (u32, u32, Over),
        fill: &dyn Fn(&File) -> Result<(), FsError>,
    ) -> Result<(), FsError> {
        let above = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let place = Self::parent_or_made(fs, caller, (path, above), dir_perm)?;
        let file = fs.open_unnamed(caller, place.0, open_for_writing(), perm)?;
        fill(&file)?;
        fs.place(caller, &file, place, &[], over, None)?;
        file.close()
    }
    /// Puts a whole file, with the bytes written by `fill`, in its place atomically.
    fn put_with(
        &self,
        py: Python<'_>,
        path: &FsPath,
        (perm, replace): (u32, bool),
        fill: impl Fn(&File) -> Result<(), FsError> + Send,
    ) -> PyResult<()> {
        let over = if replace { Over::Any } else { Over::Nothing };
        let how = (perm & !self.umask, 0o777 & !self.umask, over);
        self.with(py, path, move |fs, caller, path| {
            let mut tries = 0;
            loop {
                match Self::put_once(fs, caller, path, how, &fill) {
                    Err(error) if matches!(error.errno, ENOENT | ESTALE) && tries < TRIES => {
                        tries += 1;
                        wait_a_little();
                    }
                    done => return done,
                }
            }
        })
    }
    /// Opens the target of a path, made if missing, also at the end of symbolic links unless it must be new.
    fn open_or_make(
        fs: &FileSystem,
        caller: &Caller,
        path: &[u8],
        flags: OpenFlags,
        perm: u32,
    ) -> Result<File, FsError> {
        let (mut base, mut path) = (fs.root(), path.to_vec());
        for _ in 0..=LINKS_MAX {
            let (parent, name) = fs.resolve_parent(caller, base, &path)?;
            let last = fs.lookup(caller, parent, name);
            let Some(link) = last.ok().filter(|attr| attr.kind == Kind::Symlink && !flags.exclusive) else {
                return fs.open_at(caller, parent, name, flags, perm).map(|(file, ..)| file);
            };
            (base, path) = (parent, fs.read_link(link.ino)?);
        }
        Err(FsError::new(ELOOP))
    }
    /// Removes everything in a directory.
    fn clear(fs: &FileSystem, caller: &Caller, dir: Ino) -> Result<(), FsError> {
        let mut cursor = fs.read_dir(caller, dir)?;
        let mut entries = Vec::new();
        while let Some(entry) = cursor.next()? {
            if entry.name != b"." && entry.name != b".." {
                entries.push(entry);
            }
        }
        for entry in entries {
            let removed = if entry.kind == Kind::Directory {
                Self::clear(fs, caller, entry.ino)?;
                fs.rmdir(caller, dir, &entry.name)
            } else {
                fs.unlink(caller, dir, &entry.name)
            };
            // Another process may be removing too.
            removed.or_else(|error| if error.errno == ENOENT { Ok(()) } else { Err(error) })?;
        }
        Ok(())
    }
    fn make(&self, py: Python<'_>, path: &FsPath, kind: Kind, mode: u32, target: Vec<u8>) -> PyResult<FileStat> {
        let what = Make { kind, mode: mode & !self.umask, rdev: 0, target };
        self.with(py, path, |fs, caller, path| {
            let (parent, name) = Self::parent(fs, caller, path)?;
            fs.make(caller, parent, name, &what).map(FileStat::from)
        })
    }
    fn set(&self, py: Python<'_>, path: &FsPath, set: &SetAttr) -> PyResult<()> {
        self.with(py, path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.set_attr(caller, ino, set).map(drop)
        })
    }
}

#[pymethods]
impl Files {
    /// The attributes of a path.
    #[pyo3(signature = (path, *, follow_symlinks = true))]
    fn stat(&self, py: Python<'_>, path: FsPath, follow_symlinks: bool) -> PyResult<FileStat> {
        self.with(py, &path, |fs, caller, path| Self::at(fs, caller, path, follow_symlinks).map(FileStat::from))
    }
    /// Names in a directory, in order.
    fn listdir(&self, py: Python<'_>, path: FsPath) -> PyResult<Vec<Py<PyString>>> {
        let names = self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            let mut cursor = fs.read_dir(caller, ino)?;
            let mut names = Vec::new();
            while let Some(entry) = cursor.next()? {
                if entry.name != b"." && entry.name != b".." {
                    names.push(entry.name);
                }
            }
            names.sort_unstable();
            Ok(names)
        })?;
        names.iter().map(|name| name_of(py, name)).collect()
    }
    /// Names in a directory, in order, each with its `stat` (for symbolic links, their own).
    fn scandir(&self, py: Python<'_>, path: FsPath) -> PyResult<Vec<(Py<PyString>, FileStat)>> {
        let found = self.with(py, &path, |fs, caller, path| {
            const PAGE: usize = 1024;
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.access(caller, ino, 4)?;
            let mut found: Vec<(Vec<u8>, Attr)> = Vec::new();
            loop {
                let page = fs.list(ino, found.last().map(|(name, _)| &name[..]), PAGE)?;
                if page.is_empty() {
                    return Ok(found);
                }
                found.extend(page);
            }
        })?;
        found.into_iter().map(|(name, attr)| Ok((name_of(py, &name)?, FileStat::from(attr)))).collect()
    }
    /// Make a directory.
    #[pyo3(signature = (path, mode = 0o777))]
    fn mkdir(&self, py: Python<'_>, path: FsPath, mode: u32) -> PyResult<()> {
        self.make(py, &path, Kind::Directory, mode, Vec::new()).map(drop)
    }
    /// Make a symbolic link at `path` to `target`.
    fn symlink(&self, py: Python<'_>, target: FsPath, path: FsPath) -> PyResult<()> {
        self.make(py, &path, Kind::Symlink, 0o777, target.0).map(drop)
    }
    /// The target of a symbolic link.
    fn readlink(&self, py: Python<'_>, path: FsPath) -> PyResult<Py<PyString>> {
        let target = self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, false)?.ino;
            fs.read_link(ino)
        })?;
        name_of(py, &target)
    }
    /// Make a hard link to a file.
    fn link(&self, py: Python<'_>, path: FsPath, new: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, false)?.ino;
            let (parent, name) = Self::parent(fs, caller, &new.0)?;
            fs.link(caller, ino, parent, name).map(drop)
        })
    }
    /// Remove a file.
    fn remove(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| {
            let (parent, name) = Self::parent(fs, caller, path)?;
            fs.unlink(caller, parent, name)
        })
    }
    /// Remove an empty directory.
    fn rmdir(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| {
            let (parent, name) = Self::parent(fs, caller, path)?;
            fs.rmdir(caller, parent, name)
        })
    }
    /// Rename atomically; replaces what has the new name, unless `replace` is False: then it is an error.
    #[pyo3(signature = (old, new, *, replace = true))]
    fn rename(&self, py: Python<'_>, old: FsPath, new: FsPath, replace: bool) -> PyResult<()> {
        let how = if replace { Rename::Replace } else { Rename::Keep };
        self.with(py, &old, |fs, caller, path| {
            let from = Self::parent(fs, caller, path)?;
            fs.rename(caller, from, Self::parent(fs, caller, &new.0)?, how)
        })
    }
    /// Make a directory and the missing ones above it.
    #[pyo3(signature = (path, mode = 0o777, exist_ok = false))]
    fn makedirs(&self, py: Python<'_>, path: FsPath, mode: u32, exist_ok: bool) -> PyResult<()> {
        let mode = mode & !self.umask;
        self.with(py, &path, |fs, caller, path| {
            if Self::make_dirs(fs, caller, path, mode)? || exist_ok { Ok(()) } else { Err(FsError::new(EEXIST)) }
        })
    }
    /// Remove a file, or a directory with everything below; no error if nothing exists.
    fn remove_all(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| match Self::at(fs, caller, path, false) {
            Err(error) if matches!(error.errno, ENOENT | ENOTDIR) => Ok(()),
            Err(error) => Err(error),
            Ok(attr) if attr.ino == fs.root() => Self::clear(fs, caller, attr.ino),
            Ok(attr) => {
                let (parent, name) = Self::parent(fs, caller, path)?;
                if attr.kind != Kind::Directory {
                    return fs.unlink(caller, parent, name);
                }
                Self::clear(fs, caller, attr.ino)?;
                fs.rmdir(caller, parent, name)
            }
        })
    }
    /// Check the records of the container with this path, and return contradictions; nobody may change the container
    /// meanwhile.
    fn check(&self, py: Python<'_>, path: FsPath) -> PyResult<Vec<String>> {
        self.with(py, &path, |fs, caller, path| fs.check(Self::at(fs, caller, path, true)?.ino))
    }
    /// Put a whole file in its place atomically: others see the previous state or the whole file. Missing directories
    /// above are made. With replace=False: raises FileExistsError if something exists.
    #[pyo3(signature = (path, value, *, replace = true, perm = 0o666))]
    fn put(&self, py: Python<'_>, path: FsPath, value: Bound<'_, PyAny>, replace: bool, perm: u32) -> PyResult<()> {
        let bytes = Bytes::of(&value)?;
        let fill = |file: &File| match bytes.as_slice() {
            [] => Ok(()),
            bytes => file.write_at(bytes, 0).map(drop),
        };
        self.put_with(py, &path, (perm, replace), fill)
    }
    /// Copy a file atomically, as `put` does: bytes are shared where possible, and else copied within the store.
    #[pyo3(signature = (source, target, *, replace = true, perm = 0o666))]
    fn copy(&self, py: Python<'_>, source: FsPath, target: FsPath, replace: bool, perm: u32) -> PyResult<()> {
        let source = self.with(py, &source, |fs, caller, path| {
            let found = Self::at(fs, caller, path, true)?;
            fs.open(caller, found.ino, OpenFlags { read: true, ..OpenFlags::default() })
        })?;
        self.put_with(py, &target, (perm, replace), |file| {
            let size = source.attr()?.size_bytes;
            if size > 0 {
                file.copy_from(&source, 0, 0, size)?;
            }
            Ok(())
        })
    }
    /// Open a file like the built-in `open`: buffered, as text unless the mode has "b".
    #[pyo3(signature = (path, mode = "r", buffering = -1, encoding = None, errors = None, newline = None))]
    #[allow(clippy::too_many_arguments, reason = "those of the built-in function")]
    fn open(
        slf: Bound<'_, Self>,
        path: FsPath,
        mode: &str,
        buffering: i64,
        encoding: Option<&str>,
        errors: Option<&str>,
        newline: Option<&str>,
    ) -> PyResult<Py<PyAny>> {
        let py = slf.py();
        let raw = slf.get().open_raw(py, path, &mode.replace('t', ""), 0o666)?;
        let open = py.import("cenote._files")?.getattr("buffered")?;
        Ok(open.call1((raw, mode, buffering, encoding, errors, newline))?.unbind())
    }
    /// Change permissions.
    fn chmod(&self, py: Python<'_>, path: FsPath, mode: u32) -> PyResult<()> {
        self.set(py, &path, &SetAttr { mode: Some(mode), ..SetAttr::default() })
    }
    /// Change owner and group; -1 leaves one unchanged.
    fn chown(&self, py: Python<'_>, path: FsPath, uid: i64, gid: i64) -> PyResult<()> {
        let id = |id: i64| u32::try_from(id).ok();
        self.set(py, &path, &SetAttr { uid: id(uid), gid: id(gid), ..SetAttr::default() })
    }
    /// Set the times of last access and modification, in nanoseconds since 1970; the present time if None.
    #[pyo3(signature = (path, ns = None))]
    fn utime(&self, py: Python<'_>, path: FsPath, ns: Option<(i128, i128)>) -> PyResult<()> {
        let (accessed, modified) =
            ns.map_or((SetTime::Now, SetTime::Now), |(accessed, modified)| (time_of(accessed), time_of(modified)));
        self.set(py, &path, &SetAttr { accessed: Some(accessed), modified: Some(modified), ..SetAttr::default() })
    }
    /// Set a file's size, in bytes.
    fn truncate(&self, py: Python<'_>, path: FsPath, size: u64) -> PyResult<()> {
        self.set(py, &path, &SetAttr { size_bytes: Some(size), ..SetAttr::default() })
    }
    /// True if this user may read (4), write (2), execute or enter (1); modes add up; 0: if it exists.
    fn access(&self, py: Python<'_>, path: FsPath, mode: i32) -> bool {
        let may = self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.access(caller, ino, mode)
        });
        may.is_ok()
    }
    /// The value of an extended attribute.
    fn getxattr<'py>(&self, py: Python<'py>, path: FsPath, name: FsPath) -> PyResult<Bound<'py, PyBytes>> {
        let value = self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.xattr(caller, ino, &name.0)
        })?;
        Ok(PyBytes::new(py, &value))
    }
    /// Set an extended attribute (`user.NAME`).
    fn setxattr(&self, py: Python<'_>, path: FsPath, name: FsPath, value: Bound<'_, PyAny>) -> PyResult<()> {
        let value = Bytes::of(&value)?;
        self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.set_xattr(caller, ino, &name.0, value.as_slice(), SetXattr::Any)
        })
    }
    /// Names of all extended attributes.
    fn listxattr(&self, py: Python<'_>, path: FsPath) -> PyResult<Vec<Py<PyString>>> {
        let names = self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.xattrs(caller, ino)
        })?;
        names.iter().map(|name| name_of(py, name)).collect()
    }
    /// Remove an extended attribute.
    fn removexattr(&self, py: Python<'_>, path: FsPath, name: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| {
            let ino = Self::at(fs, caller, path, true)?.ino;
            fs.remove_xattr(caller, ino, &name.0)
        })
    }
    /// Capacity in bytes, and number of files.
    #[pyo3(signature = (path = None))]
    fn space(&self, py: Python<'_>, path: Option<FsPath>) -> PyResult<FileSpace> {
        let path = path.unwrap_or(FsPath(b"/".to_vec()));
        let space = self.with(py, &path, |fs, caller, path| fs.space(Self::at(fs, caller, path, true)?.ino))?;
        Ok(space.into())
    }
    /// Return when the names in a directory survive power loss.
    fn sync_dir(&self, py: Python<'_>, path: FsPath) -> PyResult<()> {
        self.with(py, &path, |fs, caller, path| fs.sync_dir(Self::at(fs, caller, path, true)?.ino))
    }
    /// Open a file without buffering. mode: as for the built-in `open`, with or without "b".
    #[pyo3(signature = (path, mode = "rb", perm = 0o666))]
    fn open_raw(&self, py: Python<'_>, path: FsPath, mode: &str, perm: u32) -> PyResult<RawFile> {
        let flags = open_flags(mode)?;
        let perm = perm & !self.umask;
        let file = self.with(py, &path, |fs, caller, path| {
            if flags.create {
                return Self::open_or_make(fs, caller, path, flags, perm);
            }
            fs.open(caller, Self::at(fs, caller, path, true)?.ino, flags)
        })?;
        Ok(RawFile::new(file, path, self.caller.clone()))
    }
}

/// Parses the arguments of `Store.open_files`.
pub fn options(container: Option<String>, read_only: bool, consistency: &str) -> PyResult<Options> {
    let consistency = match consistency {
        "strict" => Consistency::Strict,
        "commit" => Consistency::Commit,
        other => return Err(invalid(format!("consistency {other:?}"), "it is neither strict nor commit")),
    };
    Ok(Options { is_read_only: read_only, container, consistency, ..Options::default() })
}
