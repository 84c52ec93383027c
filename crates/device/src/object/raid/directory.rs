//! A place that is a directory of a local file system, at best on a disk of its own.
//!
//! A small file in it ([`NAME`]) says which place of which tier it is. A directory without that file is a place that is
//! away: the mount point of a disk that is not mounted looks exactly like it. So no directory becomes a place by being
//! empty; a person says so by [`ACCEPT`].

use std::fs::File;
use std::io::IoSlice;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use cenote_model::ErrorKind;
use parking_lot::Mutex;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use super::PlaceId;
use super::part::Owner;
use super::place::{DEPTH_MAX, Look, Place, away, id_of, is_plain_name};
use crate::object::service::{Answer, Refusal};
use crate::store_dir::{check_owner, give, way_to};
use crate::sums::sum_of;

/// The file that names a place.
pub const NAME: &str = "cenote-place";
/// An empty directory with this file in it becomes the place of the path that leads to it.
pub const ACCEPT: &str = "cenote-new-place";
const MAGIC: &str = "cenote-place 1";
/// What file systems and people have in an empty directory.
const IGNORED: [&str; 2] = ["lost+found", ACCEPT];
const NAME_BYTES_MAX: usize = 4096;
const TEMPORARY: &str = ".new-";
/// A vector of pieces that one system call writes.
const PIECES_MAX: usize = 512;

/// A directory as a place.
pub struct DirectoryPlace {
    path: PathBuf,
    owner: Owner,
    /// Its number in the tier's path, from 1.
    number: u16,
    /// Device and inode of the directory that was found to be the place.
    known: Mutex<Option<(u64, u64)>>,
}

/// Numbers temporary files: those of all places of this process, since several may be one directory.
static TEMPORARY_FILES: AtomicU64 = AtomicU64::new(0);

impl DirectoryPlace {
    /// The directory at an absolute path, as place `number` (from 1) of a tier. Touches nothing.
    pub fn new(path: PathBuf, owner: Owner, number: u16) -> Self {
        Self { path, owner, number, known: Mutex::default() }
    }

    fn text(&self) -> String {
        let body = format!("store {}\ndevice {}\nplace {}\n", self.owner.store, self.owner.device.0, self.number);
        format!("{MAGIC}\nsum {:08x}\n{body}", sum_of(body.as_bytes()))
    }

    /// Opens the directory, whatever it is.
    fn open(&self) -> Answer<OwnedFd> {
        let subject = self.path.display().to_string();
        let way = way_to(&self.path, &subject).map_err(|error| away(error.to_string()))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | way;
        let root = rustix::fs::open(&self.path, flags, Mode::empty()).map_err(|errno| match errno {
            Errno::NOENT | Errno::NOTDIR => away("there is no such directory"),
            errno => away(format!("it cannot be opened: {}", std::io::Error::from(errno))),
        })?;
        check_owner(&root, &subject).map_err(|error| away(error.to_string()))?;
        Ok(root)
    }
    /// Opens the directory if it is the place.
    fn enter(&self) -> Answer<OwnedFd> {
        let root = self.open()?;
        if *self.known.lock() != Some(identity(&root)?) {
            self.check(&root)?;
        }
        Ok(root)
    }
    /// Reads the file that names the place, and accepts a new directory if a person said so.
    fn check(&self, root: &OwnedFd) -> Answer<()> {
        *self.known.lock() = None;
        match read_name(root)? {
            None if Self::is_offered(root)? => self.take(root)?,
            None => {
                return Err(away(format!(
                    "it has no file `{NAME}`: its disk is not mounted, or it is a new one (then: `touch {}`)",
                    self.path.join(ACCEPT).display()
                )));
            }
            Some(text) => self.check_text(&text)?,
        }
        *self.known.lock() = Some(identity(root)?);
        Ok(())
    }
    fn check_text(&self, text: &str) -> Answer<()> {
        let wrong = |why: String| Err(Refusal::new(ErrorKind::Corrupt, why));
        let body = text.strip_prefix(MAGIC).and_then(|rest| rest.strip_prefix("\nsum "));
        let Some((sum, body)) = body.and_then(|rest| rest.split_once('\n')) else {
            return wrong(format!("its file `{NAME}` is not Cenote's, or of another version"));
        };
        if u32::from_str_radix(sum, 16).ok() != Some(sum_of(body.as_bytes())) {
            return wrong(format!("its file `{NAME}` is damaged"));
        }
        if self.text() == text {
            return Ok(());
        }
        let field = |name: &str| body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let (store, device, place) = (field("store"), field("device"), field("place"));
        let said = |word: Option<&str>| word.unwrap_or("?").to_owned();
        wrong(format!(
            "it is place {} of tier {} of store {}, and should be place {} of tier {} of store {}",
            said(place),
            said(device),
            said(store),
            self.number,
            self.owner.device.0,
            self.owner.store
        ))
    }
    fn is_offered(root: &OwnedFd) -> Answer<bool> {
        match rustix::fs::statat(root, ACCEPT, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile => {}
            Ok(_) | Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(refusal(errno)),
        }
        match Self::first_entry(root)? {
            None => Ok(true),
            Some(name) => Err(away(format!("it is offered as a new place, but is not empty: it has `{name}`"))),
        }
    }
    /// The name of something in it that is not to be ignored.
    fn first_entry(root: &OwnedFd) -> Answer<Option<String>> {
        for entry in Dir::read_from(root).map_err(refusal)? {
            let entry = entry.map_err(refusal)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." && !IGNORED.contains(&name.as_str()) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }
    /// Makes the empty directory the place.
    fn take(&self, root: &OwnedFd) -> Answer<()> {
        self.write(root, NAME, &[Bytes::from(self.text())], true)?;
        // If it stays, it means nothing from now on.
        let _ = rustix::fs::unlinkat(root, ACCEPT, AtFlags::empty());
        Ok(())
    }

    /// Writes a file under a temporary name, and gives it its name when it is durable.
    fn write(&self, dir: &OwnedFd, name: &str, pieces: &[Bytes], only_new: bool) -> Answer<()> {
        let number = TEMPORARY_FILES.fetch_add(1, Ordering::Relaxed);
        let fresh = format!("{TEMPORARY}{}-{number}-{}", std::process::id(), self.number);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(dir, &fresh, flags, Mode::RUSR | Mode::WUSR).map_err(refusal)?;
        let fill = || {
            let stat = rustix::fs::fstat(dir)?;
            give(&fd, stat.st_uid, stat.st_gid)?;
            write_all(&fd, pieces)?;
            rustix::fs::fsync(&fd)?;
            let how = if only_new { RenameFlags::NOREPLACE } else { RenameFlags::empty() };
            rustix::fs::renameat_with(dir, &fresh, dir, name, how)?;
            rustix::fs::fsync(dir)
        };
        fill().map_err(|errno| {
            let _ = rustix::fs::unlinkat(dir, &fresh, AtFlags::empty());
            refusal(errno)
        })
    }

    /// Deletes temporary files of processes that are gone, in this directory and those below.
    fn clear(dir: &OwnedFd, depth: usize) -> Answer<()> {
        walk(dir, depth, &mut |dir, name| {
            let is_left = name.strip_prefix(TEMPORARY).is_some_and(|rest| !is_alive(rest));
            if is_left {
                let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
            }
        })
    }
}

/// Returns true if a process has the number that a temporary name begins with.
fn is_alive(rest: &str) -> bool {
    let pid = rest.split('-').next().and_then(|pid| pid.parse().ok()).and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid) != Err(Errno::SRCH))
}

/// Calls `each` for every name that is not a directory's, in `dir` and below; links are not followed.
fn walk(dir: &OwnedFd, depth: usize, each: &mut dyn FnMut(&OwnedFd, &str)) -> Answer<()> {
    for entry in Dir::read_from(dir).map_err(refusal)? {
        let entry = entry.map_err(refusal)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        let kind = match entry.file_type() {
            FileType::Unknown => kind_of(dir, name),
            kind => kind,
        };
        match kind {
            FileType::Directory if depth < DEPTH_MAX && !name.starts_with('.') && name != "lost+found" => {
                walk(&below(dir, name)?, depth + 1, each)?;
            }
            FileType::RegularFile => each(dir, name),
            _ => {}
        }
    }
    Ok(())
}

fn kind_of(dir: &OwnedFd, name: &str) -> FileType {
    let found = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW);
    found.map_or(FileType::Unknown, |found| FileType::from_raw_mode(found.st_mode))
}

fn below(dir: &OwnedFd, name: &str) -> Answer<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    rustix::fs::openat(dir, name, flags, Mode::empty()).map_err(refusal)
}

fn identity(dir: &OwnedFd) -> Answer<(u64, u64)> {
    let stat = rustix::fs::fstat(dir).map_err(refusal)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// The text of the file that names a place.
fn read_name(root: &OwnedFd) -> Answer<Option<String>> {
    let Some(file) = plain_file(root, NAME)? else { return Ok(None) };
    let mut bytes = vec![0; NAME_BYTES_MAX];
    let len = read_up_to(&file, 0, &mut bytes)?;
    bytes.truncate(len);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

/// Opens a plain file for reading; `None` if there is none.
fn plain_file(dir: &OwnedFd, name: &str) -> Answer<Option<File>> {
    // Non-blocking, so as not to wait for the other end of a pipe that somebody put there.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match rustix::fs::openat(dir, name, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(Refusal::new(ErrorKind::Io, "it is a symbolic link")),
        opened => opened.map_err(refusal)?,
    };
    let stat = rustix::fs::fstat(&fd).map_err(refusal)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Refusal::new(ErrorKind::Io, "it is no plain file"));
    }
    Ok(Some(File::from(fd)))
}

fn read_up_to(file: &File, from: u64, buf: &mut [u8]) -> Answer<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], from + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(refusal(Errno::from_io_error(&error).unwrap_or(Errno::IO))),
        }
    }
    Ok(filled)
}

fn write_all(fd: impl AsFd, pieces: &[Bytes]) -> Result<(), Errno> {
    for some in pieces.chunks(PIECES_MAX) {
        let mut slices: Vec<IoSlice<'_>> = some.iter().map(|piece| IoSlice::new(piece)).collect();
        let mut left = &mut slices[..];
        IoSlice::advance_slices(&mut left, 0); // leading empty ones
        while !left.is_empty() {
            match rustix::io::writev(&fd, left) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => IoSlice::advance_slices(&mut left, written),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    Ok(())
}

fn refusal(errno: Errno) -> Refusal {
    let cause = std::io::Error::from(errno).to_string();
    match errno {
        Errno::NOENT => Refusal::new(ErrorKind::NotFound, cause),
        Errno::EXIST => Refusal::new(ErrorKind::Exists, cause),
        Errno::NOSPC | Errno::DQUOT => Refusal::new(ErrorKind::Full, cause),
        Errno::ACCESS | Errno::PERM | Errno::ROFS => Refusal::new(ErrorKind::PermissionDenied, cause),
        Errno::NODEV | Errno::NXIO | Errno::STALE | Errno::NOTCONN => away(cause),
        _ => Refusal::passing(cause),
    }
}

/// The directories of a name, and what it is called there.
fn split(name: &str) -> (Vec<&str>, &str) {
    let mut words: Vec<&str> = name.split('/').collect();
    let last = words.pop().unwrap_or_default();
    (words, last)
}

impl DirectoryPlace {
    /// The directory of a name, and what it is called there; `None` if there is no such directory.
    fn way<'a>(&self, name: &'a str) -> Answer<Option<(OwnedFd, &'a str)>> {
        if !is_plain_name(name) {
            return Err(Refusal::new(ErrorKind::InvalidInput, format!("`{name}` is no name of a part")));
        }
        let mut dir = self.enter()?;
        let (words, last) = split(name);
        for word in words {
            dir = match below(&dir, word) {
                Err(refusal) if refusal.kind == ErrorKind::NotFound => return Ok(None),
                opened => opened?,
            };
        }
        Ok(Some((dir, last)))
    }
    /// Like [`Self::way`], but makes the directories.
    fn way_made<'a>(&self, name: &'a str) -> Answer<(OwnedFd, &'a str)> {
        if let Some(found) = self.way(name)? {
            return Ok(found);
        }
        let mut dir = self.enter()?;
        let (words, last) = split(name);
        for word in words {
            match rustix::fs::mkdirat(&dir, word, Mode::RWXU) {
                Ok(()) => rustix::fs::fsync(&dir).map_err(refusal)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(refusal(errno)),
            }
            let made = below(&dir, word)?;
            let stat = rustix::fs::fstat(&dir).map_err(refusal)?;
            give(&made, stat.st_uid, stat.st_gid).map_err(refusal)?;
            dir = made;
        }
        Ok((dir, last))
    }
}

impl Place for DirectoryPlace {
    fn who(&self) -> String {
        self.path.display().to_string()
    }
    fn id(&self) -> PlaceId {
        id_of(self.number)
    }
    fn look(&self) -> Answer<Look> {
        let root = self.open()?;
        let is_first = self.known.lock().is_none();
        self.check(&root)?;
        if is_first {
            Self::clear(&root, 0)?;
        }
        let stat = rustix::fs::fstatvfs(&root).map_err(refusal)?;
        let free_bytes = stat.f_bavail.saturating_mul(stat.f_frsize);
        Ok(Look { free_bytes, file_system: Some(identity(&root)?.0) })
    }
    fn put(&self, name: &str, pieces: &[Bytes]) -> Answer<()> {
        let (dir, last) = self.way_made(name)?;
        self.write(&dir, last, pieces, false)
    }
    fn get(&self, name: &str, from: u64, len: u64) -> Answer<Bytes> {
        let none = || Refusal::new(ErrorKind::NotFound, "the file is not there");
        let (dir, last) = self.way(name)?.ok_or_else(none)?;
        let file = plain_file(&dir, last)?.ok_or_else(none)?;
        // A file of a hostile length must not decide how much memory is taken.
        let there = file.metadata().map_or(len, |found| found.len().saturating_sub(from));
        let mut bytes = vec![0; len.min(there) as usize];
        let read = read_up_to(&file, from, &mut bytes)?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
    fn list(&self, prefix: &str) -> Answer<Vec<String>> {
        let above = prefix.trim_end_matches('/');
        let root = if above.is_empty() {
            self.enter()?
        } else {
            let Some((dir, last)) = self.way(above)? else { return Ok(Vec::new()) };
            match below(&dir, last) {
                Err(refusal) if refusal.kind == ErrorKind::NotFound => return Ok(Vec::new()),
                opened => opened?,
            }
        };
        let mut found = Vec::new();
        list_below(&root, prefix, 0, &mut found)?;
        Ok(found)
    }
    fn delete(&self, name: &str) -> Answer<()> {
        let Some((dir, last)) = self.way(name)? else { return Ok(()) };
        match rustix::fs::unlinkat(&dir, last, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(refusal(errno)),
        }
    }
    fn make(&self) -> Answer<()> {
        match rustix::fs::mkdir(&self.path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(refusal(errno)),
        }
        let root = self.open()?;
        match read_name(&root)? {
            Some(_) => self.check(&root),
            None => match Self::first_entry(&root)? {
                None => {
                    self.take(&root)?;
                    self.check(&root)
                }
                Some(name) => Err(Refusal::new(ErrorKind::Exists, format!("it is not empty: it has `{name}`"))),
            },
        }
    }
    fn remove(&self) -> Answer<()> {
        let root = match self.enter() {
            Err(refusal) if refusal.kind == ErrorKind::Disconnected => return Ok(()),
            root => root?,
        };
        Self::clear(&root, 0)?;
        remove_empty(&root, 0)?;
        *self.known.lock() = None;
        match rustix::fs::unlinkat(&root, NAME, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(refusal(errno)),
        }
    }
}

fn list_below(dir: &OwnedFd, prefix: &str, depth: usize, found: &mut Vec<String>) -> Answer<()> {
    let mut names = Vec::new();
    let mut deeper = Vec::new();
    for entry in Dir::read_from(dir).map_err(refusal)? {
        let entry = entry.map_err(refusal)?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') {
            continue;
        }
        let kind = if entry.file_type() == FileType::Unknown { kind_of(dir, name) } else { entry.file_type() };
        match kind {
            FileType::RegularFile => names.push(format!("{prefix}{name}")),
            FileType::Directory if depth < DEPTH_MAX && name != "lost+found" => deeper.push(name.to_owned()),
            _ => {}
        }
    }
    found.append(&mut names);
    for name in deeper {
        list_below(&below(dir, &name)?, &format!("{prefix}{name}/"), depth + 1, found)?;
    }
    Ok(())
}

/// Removes directories that have nothing in them.
fn remove_empty(dir: &OwnedFd, depth: usize) -> Answer<()> {
    let entries: Vec<String> = Dir::read_from(dir)
        .map_err(refusal)?
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str().ok()?.to_owned()))
        .filter(|name| !name.starts_with('.') && name != "lost+found" && kind_of(dir, name) == FileType::Directory)
        .collect();
    for name in entries {
        if depth < DEPTH_MAX {
            remove_empty(&below(dir, &name)?, depth + 1)?;
        }
        let _ = rustix::fs::unlinkat(dir, &name, AtFlags::REMOVEDIR); // what is not empty stays
    }
    Ok(())
}

/// Fails if a path cannot be a place.
pub(super) fn check_path(path: &Path) -> Result<(), String> {
    if path.as_os_str().is_empty() {
        return Err("an empty path is among them".into());
    }
    if path.is_relative() {
        return Err(format!("`{}` is relative: a daemon has another working directory", path.display()));
    }
    Ok(())
}
