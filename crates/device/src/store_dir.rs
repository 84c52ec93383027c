//! A store's directory, opened once; its files are opened through that descriptor. Links are not followed, and files
//! of untrusted users are refused.
//!
//! Whoever may write to a directory decides what its names refer to. So a directory of another user is opened only
//! if that user is trusted ([`TRUST_VARIABLE`]), and a file in it only if it is a plain file of the directory's
//! owner, of this process's user or of root. A file that this process creates in the directory of a user whom it
//! trusts becomes that user's.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use cenote_model::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid};
use rustix::io::Errno;

/// Variable with numeric user ids, separated by commas, whose store directories this process opens like its own
/// user's.
pub const TRUST_VARIABLE: &str = "CENOTE_TRUST_OWNER";

/// Returns true for this process's user, for root, and for users in [`TRUST_VARIABLE`].
pub fn is_trusted(uid: u32) -> bool {
    let named = |text: &str| text.split(',').any(|word| word.trim().parse() == Ok(uid));
    uid == 0 || uid == me() || std::env::var(TRUST_VARIABLE).is_ok_and(|text| named(&text))
}

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The error for something that belongs to an untrusted user.
#[cold]
pub fn not_trusted(subject: impl Into<String>, owner: u32) -> Error {
    Error::new(ErrorKind::PermissionDenied, subject)
        .because(format!("it belongs to user {owner}, this process runs as user {}", me()))
        .try_next(format!(
            "use it as that user, or through a daemon that user started (`cenote serve DIR`); to open it all the same, \
             set {TRUST_VARIABLE}={owner}: that user then decides what this process reads and writes there"
        ))
}

/// Flags for opening a tier's path: a link at its end is followed only if a trusted user made it. Whoever may write
/// to the parent directory decides what the name refers to, and the target may be another user's.
pub(crate) fn way_to(path: &Path, subject: &str) -> Result<OFlags> {
    match rustix::fs::lstat(path) {
        Ok(found) if FileType::from_raw_mode(found.st_mode) != FileType::Symlink => Ok(OFlags::NOFOLLOW),
        Ok(link) if is_trusted(link.st_uid) => Ok(OFlags::empty()),
        Ok(link) => Err(Error::new(ErrorKind::PermissionDenied, subject)
            .because(format!("its path is a symbolic link that user {} made", link.st_uid))
            .try_next("look where it leads, and name that place, or another one")),
        Err(_) => Ok(OFlags::NOFOLLOW), // the open that follows reports the error
    }
}

/// Fails if an opened tier file belongs to an untrusted user.
pub(crate) fn check_owner(opened: impl AsFd, subject: &str) -> Result<()> {
    let stat = rustix::fs::fstat(opened).map_err(|errno| Error::io(subject, &errno.into()))?;
    if is_trusted(stat.st_uid) { Ok(()) } else { Err(not_trusted(subject, stat.st_uid)) }
}

/// Creates a directory for one user alone, whatever the umask; `mode` if others are to reach its files. An existing
/// directory stays as it is.
pub fn make_private_dir(path: &Path, mode: Mode) -> std::io::Result<()> {
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above)?;
    }
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = rustix::fs::open(path, flags, Mode::empty())?;
            Ok(rustix::fs::fchmod(&made, mode)?)
        }
        Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Root gives what it created to the directory's owner.
pub(crate) fn give(made: impl AsFd, owner: u32, group: u32) -> Result<(), Errno> {
    if owner == 0 || me() != 0 {
        return Ok(());
    }
    rustix::fs::fchown(made, Some(Uid::from_raw(owner)), Some(Gid::from_raw(group)))
}

/// What a file is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To read it.
    Read,
    /// To read and write it.
    Write,
    /// To append.
    Append,
}

/// Where a file is until it is put in place. An opening of the store's directory deletes `.new-`, and may come in between.
fn prepared(name: &str) -> String {
    format!(".next-{name}")
}

/// A store's directory.
#[derive(Debug)]
pub struct StoreDir {
    fd: OwnedFd,
    path: PathBuf,
    owner: u32,
    group: u32,
}

impl StoreDir {
    /// Opens it for use: it must belong to this user, root, or a trusted user.
    pub fn open(path: &Path) -> Result<Self> {
        let this = Self::look(path)?;
        if !is_trusted(this.owner) {
            return Err(not_trusted(this.subject(), this.owner));
        }
        this.shut_out_strangers();
        Ok(this)
    }
    /// Opens it to read its files, whoever owns it.
    pub fn look(path: &Path) -> Result<Self> {
        let fail = |errno: Errno| {
            Error::io(format!("store directory {}", path.display()), &errno.into())
                .try_next("check the path, or make the store first")
        };
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = match rustix::fs::open(path, flags | OFlags::RDONLY, Mode::empty()) {
            // Its names may still be reachable.
            Err(Errno::ACCESS) => rustix::fs::open(path, flags | OFlags::PATH, Mode::empty()),
            opened => opened,
        };
        let fd = fd.map_err(fail)?;
        let stat = rustix::fs::fstat(&fd).map_err(fail)?;
        Ok(Self { fd, path: path.to_owned(), owner: stat.st_uid, group: stat.st_gid })
    }
    /// Earlier versions created directories with the umask. In a directory that everybody may write to, anybody may
    /// create names.
    fn shut_out_strangers(&self) {
        let Ok(stat) = rustix::fs::fstat(&self.fd) else { return };
        let mode = Mode::from_raw_mode(stat.st_mode);
        if self.owner != me() || !mode.contains(Mode::WOTH) || mode.contains(Mode::SVTX) {
            return;
        }
        let dir = self.path.display();
        match rustix::fs::fchmod(&self.fd, mode.difference(Mode::WOTH)) {
            Ok(()) => tracing::warn!(%dir, "everybody could write to it; from now on only its owner and group"),
            Err(errno) => tracing::warn!(%dir, %errno, "everybody can write to it"),
        }
    }
    fn subject(&self) -> String {
        format!("store directory {}", self.path.display())
    }
    /// Owner of the directory.
    pub fn owner(&self) -> u32 {
        self.owner
    }
    pub(crate) fn owner_and_group(&self) -> (u32, u32) {
        (self.owner, self.group)
    }
    /// Path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
    /// The error for a failed operation on one of its files.
    #[cold]
    pub(crate) fn fail(&self, name: &str, errno: Errno) -> Error {
        let error = Error::io(self.path.join(name).display().to_string(), &errno.into());
        match error.kind() {
            _ if errno == Errno::LOOP => self.refuse(name, "it is a symbolic link"),
            ErrorKind::Full => error.try_next("free some space on that file system"),
            ErrorKind::PermissionDenied if self.owner != me() => error.try_next(format!(
                "only user {} opens this store's directory; whom the store names as writer or reader comes through a daemon \
                 that this user started: `cenote serve DIR`",
                self.owner
            )),
            ErrorKind::PermissionDenied => error.try_next("check who owns the store's directory"),
            _ if errno == Errno::ROFS => error.try_next("mount that file system writable"),
            _ => error,
        }
    }
    #[cold]
    fn refuse(&self, name: &str, cause: impl Into<String>) -> Error {
        Error::new(ErrorKind::PermissionDenied, self.path.join(name).display().to_string())
            .because(cause)
            .try_next("no store makes it so: look who did, and move it away")
    }
    /// Opens a plain file in it; `None` if there is none.
    pub fn file(&self, name: &str, purpose: Purpose) -> Result<Option<File>> {
        let access = match purpose {
            Purpose::Read => OFlags::RDONLY,
            Purpose::Write => OFlags::RDWR,
            Purpose::Append => OFlags::WRONLY | OFlags::APPEND,
        };
        // Non-blocking, so as not to wait for the other end of a pipe that somebody put there.
        let flags = access | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => self.check(name, &fd, purpose).map(|()| Some(File::from(fd))),
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NXIO) => Err(self.refuse(name, "it is no plain file")),
            Err(errno) => Err(self.fail(name, errno)),
        }
    }
    /// Like [`StoreDir::file`], but creates the file if it is absent.
    pub fn file_or_new(&self, name: &str, purpose: Purpose, mode: Mode) -> Result<File> {
        for _ in 0..100 {
            if let Some(found) = self.file(name, purpose)? {
                return Ok(found);
            }
            let append = if purpose == Purpose::Append { OFlags::APPEND } else { OFlags::empty() };
            match self.create(name, append, mode) {
                Ok(made) => return Ok(made),
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(self.fail(name, errno)),
            }
        }
        Err(self.refuse(name, "it comes and goes"))
    }
    /// Creates a file that must not exist.
    pub(crate) fn create(&self, name: &str, more: OFlags, mode: Mode) -> Result<File, Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = rustix::fs::openat(&self.fd, name, flags | more, Mode::RUSR | Mode::WUSR)?;
        if mode != Mode::RUSR | Mode::WUSR {
            rustix::fs::fchmod(&fd, mode)?;
        }
        give(&fd, self.owner, self.group)?;
        Ok(File::from(fd))
    }
    fn check(&self, name: &str, fd: &OwnedFd, purpose: Purpose) -> Result<()> {
        let stat = rustix::fs::fstat(fd).map_err(|errno| self.fail(name, errno))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.refuse(name, "it is no plain file"));
        }
        if ![0, me(), self.owner].contains(&stat.st_uid) {
            return Err(
                self.refuse(name, format!("it belongs to user {}, the directory to {}", stat.st_uid, self.owner))
            );
        }
        // Its owner could have made a hard link here to another file.
        if purpose != Purpose::Read && self.owner != me() && self.owner != 0 && stat.st_nlink > 1 {
            return Err(self.refuse(name, "it has another name elsewhere"));
        }
        Ok(())
    }
    /// The text of a small file; `None` if there is none.
    pub fn read_text(&self, name: &str) -> Result<Option<String>> {
        const BYTES_MAX: u64 = 64 << 10;
        let Some(file) = self.file(name, Purpose::Read)? else { return Ok(None) };
        let mut text = String::new();
        let read = file.take(BYTES_MAX).read_to_string(&mut text);
        read.map(|_| Some(text)).map_err(|error| Error::io(self.path.join(name).display().to_string(), &error))
    }
    /// Writes a small file, replacing whatever has the name.
    pub fn write_text(&self, name: &str, text: &str, mode: Mode) -> Result<()> {
        let fresh = format!(".new-{name}");
        let _ = rustix::fs::unlinkat(&self.fd, &fresh, AtFlags::empty());
        let done = self.create(&fresh, OFlags::empty(), mode).and_then(|mut file| {
            file.write_all(text.as_bytes()).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            rustix::fs::renameat(&self.fd, &fresh, &self.fd, name)
        });
        done.map_err(|errno| {
            let _ = rustix::fs::unlinkat(&self.fd, &fresh, AtFlags::empty());
            self.fail(name, errno)
        })
    }
    /// The bytes of a small file, up to one more than `most`; `None` if there is none.
    pub fn read_bytes(&self, name: &str, most: usize) -> Result<Option<Vec<u8>>> {
        let Some(file) = self.file(name, Purpose::Read)? else { return Ok(None) };
        let mut bytes = Vec::new();
        let read = file.take(most as u64 + 1).read_to_end(&mut bytes);
        read.map(|_| Some(bytes)).map_err(|error| Error::io(self.path.join(name).display().to_string(), &error))
    }
    /// Writes a small file beside its name, durably: what [`StoreDir::put_in_place`] puts into its place.
    pub fn prepare(&self, name: &str, bytes: &[u8]) -> Result<()> {
        let fresh = prepared(name);
        let _ = rustix::fs::unlinkat(&self.fd, &fresh, AtFlags::empty());
        let made = self.create(&fresh, OFlags::empty(), Mode::RUSR | Mode::WUSR).and_then(|mut file| {
            file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            rustix::fs::fsync(&file)
        });
        made.map_err(|errno| {
            let _ = rustix::fs::unlinkat(&self.fd, &fresh, AtFlags::empty());
            self.fail(name, errno)
        })
    }
    /// Gives a prepared file its name, replacing what had it, durably. After an error nobody knows which of the two a
    /// power failure leaves.
    pub fn put_in_place(&self, name: &str) -> Result<()> {
        let renamed = rustix::fs::renameat(&self.fd, prepared(name), &self.fd, name);
        renamed.and_then(|()| rustix::fs::fsync(&self.fd)).map_err(|errno| self.fail(name, errno))
    }
    /// Creates a small file durably. Returns false if it exists already.
    pub fn write_new(&self, name: &str, text: &str) -> Result<bool> {
        let fresh = format!(".new-{name}-{}", std::process::id());
        let made = self.create(&fresh, OFlags::empty(), Mode::RUSR | Mode::WUSR).and_then(|mut file| {
            file.write_all(text.as_bytes()).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            rustix::fs::fsync(&file)?;
            rustix::fs::renameat_with(&self.fd, &fresh, &self.fd, name, RenameFlags::NOREPLACE)?;
            rustix::fs::fsync(&self.fd)
        });
        match made {
            Ok(()) => Ok(true),
            Err(errno) => {
                let _ = rustix::fs::unlinkat(&self.fd, &fresh, AtFlags::empty());
                if errno == Errno::EXIST { Ok(false) } else { Err(self.fail(name, errno)) }
            }
        }
    }
    /// Removes a name, if it exists.
    pub fn remove(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(self.fail(name, errno)),
        }
    }
    /// Opens a log for appending. A log above `bytes_max` is renamed to `before` first, replacing the previous one.
    pub fn log(&self, name: &str, before: &str, bytes_max: u64) -> Result<File> {
        let mode = Mode::RUSR | Mode::WUSR;
        let log = self.file_or_new(name, Purpose::Append, mode)?;
        if log.metadata().is_ok_and(|meta| meta.len() <= bytes_max) {
            return Ok(log);
        }
        rustix::fs::renameat(&self.fd, name, &self.fd, before).map_err(|errno| self.fail(before, errno))?;
        self.file_or_new(name, Purpose::Append, mode)
    }
}

impl AsFd for StoreDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}
