//! Open file descriptions: shared by all duplicates of a descriptor, in this process and in children.

use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use parking_lot::Mutex;
use posix::{Attr, DirCursor, File, Follow, FsError, Ino, LockOwner, OpenFlags, Start};

use crate::shared::Shared;
use crate::{context, inside, kernel};

/// Upper bound of the errors that a program is told about.
const SAID_MAX: usize = 16;

/// What was opened.
pub enum What {
    /// A file.
    File(Later),
    /// A directory, and the position in it.
    Directory(Mutex<Option<DirCursor>>),
    /// A path only (`O_PATH`).
    Path,
}

/// An open file. If the program before `exec` opened it, it is opened here on first use.
pub struct Later {
    file: OnceLock<File>,
    ino: Ino,
    flags: OpenFlags,
    /// Path by which it was found.
    path: Vec<u8>,
    /// Descriptors of locks from before `exec`, which apply again once the file is opened, and the number of [`File::lock_era`].
    locks: Mutex<Vec<(LockOwner, OwnedFd, u64)>>,
}

impl Later {
    /// A file opened before `exec`, with the descriptors of its locks.
    pub fn of(ino: Ino, flags: i32, path: &[u8], locks: Vec<(LockOwner, i32, u64)>) -> Self {
        let _staying = inside::Staying::begin();
        // SAFETY: they were left for this program, and nobody else knows them.
        let owned = |(owner, fd, era)| (owner, unsafe { OwnedFd::from_raw_fd(inside::move_away(fd)) }, era);
        let locks = Mutex::new(locks.into_iter().map(owned).collect());
        let flags = OpenFlags { create: false, exclusive: false, truncate: false, ..open_flags(flags) };
        Self { file: OnceLock::new(), ino, flags, path: path.to_vec(), locks }
    }
    /// The file, if it is open here, or if it has locks from before `exec`.
    fn known(&self) -> Option<&File> {
        if self.file.get().is_none() && !self.locks.lock().is_empty() {
            let _ = self.get();
        }
        self.file.get()
    }
    /// The file.
    pub fn get(&self) -> Result<&File, i32> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let (system, caller) = (context::system()?, context::checked_caller());
        // A process learns most inode numbers by looking up names.
        let at = &context::settings().at[..];
        if let Some(path) = posix::within(at, &self.path) {
            let _ = system.walk(&caller, &Start { at, base: system.root() }, path, Follow::No, &mut Vec::new());
        }
        let file = system.open(&caller, self.ino, self.flags).map_err(errno)?;
        Ok(self.file.get_or_init(|| {
            for (owner, fd, era) in self.locks.lock().drain(..) {
                let _ = file.adopt_lock_descriptor(owner, fd, era); // fails only if the store is closed
            }
            file
        }))
    }
}

impl From<File> for Later {
    fn from(file: File) -> Self {
        Self { ino: file.ino(), flags: file.flags(), path: Vec::new(), locks: Mutex::default(), file: file.into() }
    }
}

/// Converts flags of `open`.
pub fn open_flags(flags: i32) -> OpenFlags {
    let access = flags & libc::O_ACCMODE;
    OpenFlags {
        read: access != libc::O_WRONLY,
        write: access != libc::O_RDONLY,
        append: flags & libc::O_APPEND != 0,
        truncate: flags & libc::O_TRUNC != 0,
        create: flags & libc::O_CREAT != 0,
        exclusive: flags & libc::O_EXCL != 0,
        sync: flags & (libc::O_SYNC | libc::O_DSYNC) != 0,
    }
}

/// An open file description.
pub struct Description {
    /// What was opened.
    pub what: What,
    /// Inode number at the time of opening.
    pub ino: Ino,
    /// The path that it was opened by, without symbolic links.
    pub path: Vec<u8>,
    /// Access mode and status flags, as `F_GETFL` returns them.
    pub flags: AtomicI32,
    /// True if opening it created the file (`F_CREATED_QUERY`).
    pub is_new: bool,
    offset: Mutex<u64>,
    /// The offset, once it is shared with other processes.
    shared: AtomicPtr<Shared>,
}

/// Flags of `open` that stay with a description.
const STAYS: i32 = libc::O_ACCMODE
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_DIRECT
    | libc::O_NOATIME
    | libc::O_ASYNC
    | libc::O_PATH
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | O_LARGEFILE;
/// The kernel's value, whatever the C library defines.
pub const O_LARGEFILE: i32 = 0o100_000;

impl Description {
    /// A description of what was opened with `flags`.
    pub fn new(what: What, ino: Ino, path: Vec<u8>, flags: i32) -> Self {
        let flags = AtomicI32::new((flags & STAYS) | if flags & libc::O_PATH == 0 { O_LARGEFILE } else { 0 });
        Self { what, ino, path, flags, is_new: false, offset: Mutex::new(0), shared: AtomicPtr::default() }
    }
    /// The open file; `EBADF` if it is not a file.
    pub fn file(&self) -> Result<&File, i32> {
        match &self.what {
            What::File(file) => file.get(),
            What::Directory(_) => Err(libc::EISDIR),
            What::Path => Err(libc::EBADF),
        }
    }
    /// The file, if it is one and open in this program.
    pub fn opened(&self) -> Option<&File> {
        match &self.what {
            What::File(file) => file.known(),
            _ => None,
        }
    }
    /// Like [`Description::file`], with the error of calls that do not work on a directory.
    pub fn file_or(&self, errno: i32) -> Result<&File, i32> {
        match &self.what {
            What::Directory(_) => Err(errno),
            _ => self.file(),
        }
    }
    /// Returns true if writes go to the end.
    pub fn appends(&self) -> bool {
        self.flags.load(Ordering::Relaxed) & libc::O_APPEND != 0
    }
    /// The present inode number.
    pub fn ino(&self) -> Ino {
        match &self.what {
            What::File(file) => file.file.get().map_or(self.ino, File::ino),
            _ => self.ino,
        }
    }
    /// The attributes for `fstat`.
    pub fn attr(&self) -> Result<Attr, i32> {
        match &self.what {
            What::File(file) => file.get()?.attr().map_err(errno),
            _ => context::system()?.attr(self.ino).map_err(errno),
        }
    }
    /// Runs `with` on the offset, which nobody else changes meanwhile.
    pub fn with_offset<T>(&self, with: impl FnOnce(&mut u64) -> T) -> T {
        let mut own = self.offset.lock();
        // SAFETY: it points to memory that is mapped for as long as the process lives.
        let Some(shared) = (unsafe { self.shared.load(Ordering::Acquire).as_ref() }) else { return with(&mut own) };
        shared.with(with)
    }
    /// The offset in memory shared with other processes; created if it does not exist.
    pub fn share(&self) -> Option<&'static Shared> {
        let own = self.offset.lock();
        // SAFETY: as above.
        if let Some(shared) = unsafe { self.shared.load(Ordering::Acquire).as_ref() } {
            return Some(shared);
        }
        let shared = Shared::new(*own)?;
        self.shared.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
        Some(shared)
    }
    /// Uses an offset that another process has shared.
    pub fn adopt(&self, shared: &'static Shared) {
        self.shared.store(std::ptr::from_ref(shared).cast_mut(), Ordering::Release);
    }
    /// Handles the closing of one of its descriptors: returns errors of earlier writes.
    pub fn closed(&self, _is_last: bool) -> Result<(), i32> {
        match &self.what {
            What::File(Later { file, .. }) => match file.get() {
                Some(file) if file.flags().write => file.flush().map_err(errno),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// The error number for the program. What keeps the store busy is told, since programs expect no such error of a file.
#[expect(clippy::needless_pass_by_value, reason = "it stands in `map_err`")]
pub fn errno(error: FsError) -> i32 {
    if error.errno == libc::EBUSY && error.cause.is_some() {
        warn(&error);
    }
    error.errno
}

/// Tells what a number does not, once in a process.
#[cold]
pub fn warn(error: &FsError) {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let Some(words) = error.cause.as_ref().map(ToString::to_string) else { return };
    let mut said = SAID.lock();
    if context::is_quiet() || said.len() >= SAID_MAX || said.contains(&words) {
        return;
    }
    said.push(words.clone());
    drop(said);
    kernel::say(&words);
}
