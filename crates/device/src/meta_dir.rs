//! The store's directory on a real file system.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cenote_model::{Error, ErrorKind, Result};
use rustix::fs::{AtFlags, FallocateFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::map::Mapping;
use crate::store_dir::{Purpose, StoreDir};
use crate::{LogFile, MetaDir};

/// Prefix of files under construction; the next open deletes those that a crash left.
const TEMPORARY: &str = ".new-";

/// Refuses names other than the plain file names that this store writes.
pub(crate) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > 200 || name.starts_with('.') || name.contains(['/', '\0']) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file name `{name}`")).because("not a plain name"));
    }
    Ok(())
}

/// A directory on a file system that holds a store's metadata. Also lists files that it did not create (socket, lock).
#[derive(Debug)]
pub struct FsMetaDir {
    dir: StoreDir,
}

impl FsMetaDir {
    /// Opens an existing directory and deletes the leftovers of unfinished `write_file` and `create_log` calls. The
    /// caller holds the [`crate::StoreLock`].
    pub fn open(path: &Path) -> Result<Self> {
        let this = Self { dir: StoreDir::open(path)? };
        for name in this.names()? {
            if name.starts_with(TEMPORARY) {
                let _ = rustix::fs::unlinkat(&this.dir, &name, AtFlags::empty());
            }
        }
        Ok(this)
    }
    /// Opens an existing directory to read files in it, whoever owns it and whoever holds the lock. Changes nothing.
    pub fn open_to_look(path: &Path) -> Result<Self> {
        Ok(Self { dir: StoreDir::look(path)? })
    }
    fn fail(&self, name: &str, errno: Errno) -> Error {
        self.dir.fail(name, errno)
    }
    fn path_of(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
    fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let entries = rustix::fs::Dir::read_from(&self.dir).map_err(|errno| self.fail("", errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| self.fail("", errno))?;
            if let Ok(name) = entry.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort_unstable();
        Ok(names)
    }
    fn sync_dir(&self) -> Result<()> {
        rustix::fs::fsync(&self.dir).map_err(|errno| self.fail("", errno))
    }
    fn open_at(&self, name: &str, purpose: Purpose) -> Result<File> {
        check_name(name)?;
        self.dir.file(name, purpose)?.ok_or_else(|| self.fail(name, Errno::NOENT))
    }
    /// Creates a temporary file, lets `fill` write it, syncs it and renames it to `name`.
    fn install(&self, name: &str, replace: bool, fill: impl FnOnce(&mut File) -> Result<(), Errno>) -> Result<File> {
        check_name(name)?;
        let temporary = format!("{TEMPORARY}{name}");
        let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
        let made = self.dir.create(&temporary, OFlags::empty(), Mode::RUSR | Mode::WUSR);
        let mut file = made.map_err(|errno| self.fail(name, errno))?;
        let done = fill(&mut file).and_then(|()| rustix::fs::fsync(&file)).and_then(|()| {
            if replace {
                rustix::fs::renameat(&self.dir, &temporary, &self.dir, name)
            } else {
                use rustix::fs::RenameFlags;
                rustix::fs::renameat_with(&self.dir, &temporary, &self.dir, name, RenameFlags::NOREPLACE)
            }
        });
        if let Err(errno) = done {
            let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
            return Err(if errno == Errno::EXIST {
                Error::new(ErrorKind::Exists, self.path_of(name).display().to_string())
            } else {
                self.fail(name, errno)
            });
        }
        self.sync_dir()?;
        Ok(file)
    }
    fn map(&self, name: &str, file: File) -> Result<Box<dyn LogFile>> {
        let size = file.metadata().map_err(|error| Error::io(self.path_of(name).display().to_string(), &error))?.len();
        if size == 0 {
            return Err(Error::new(ErrorKind::Corrupt, self.path_of(name).display().to_string())
                .because("the log file is empty")
                .try_next("restore the store directory from a copy, then `cenote adopt DIR`"));
        }
        let len = usize::try_from(size).map_err(|_| self.fail(name, Errno::FBIG))?;
        let map = Mapping::new(&file, 0, len, true).map_err(|errno| self.fail(name, errno))?;
        Ok(Box::new(FsLog { map, file, path: self.path_of(name) }))
    }
}

/// Allocates all blocks of a file, so that writing through a mapping cannot meet a full disk (which would be SIGBUS).
fn reserve(file: impl AsFd, len: u64) -> Result<(), Errno> {
    match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len) {
        Err(Errno::OPNOTSUPP) => {
            let zeros = vec![0_u8; 1 << 20];
            let mut at = rustix::fs::fstat(&file)?.st_size as u64;
            while at < len {
                let n = (len - at).min(zeros.len() as u64) as usize;
                at += rustix::io::pwrite(&file, &zeros[..n], at)? as u64;
            }
            Ok(())
        }
        other => other,
    }
}

/// Size from which two threads read a file.
const READ_BY_TWO: usize = 4 << 20;

/// All bytes of a file. Most of the time goes into clearing fresh memory, which two processors do faster; the opening
/// of a store waits for its checkpoint.
fn read_whole(mut file: &File) -> std::io::Result<Vec<u8>> {
    let len = usize::try_from(file.metadata()?.len()).unwrap_or(0);
    let mut bytes = vec![0; if len < READ_BY_TWO { 0 } else { len }];
    let half = bytes.len() / 2;
    let (first, second) = bytes.split_at_mut(half);
    if !first.is_empty() {
        std::thread::scope(|scope| {
            let other = std::thread::Builder::new().name("cenote-read".into());
            let other = other.spawn_scoped(scope, || file.read_exact_at(second, half as u64));
            file.read_exact_at(first, 0)?;
            other?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })?;
        file.seek(SeekFrom::Start(len as u64))?;
    }
    // All of a short file, and what was appended to a long one meanwhile.
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl MetaDir for FsMetaDir {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        if capacity == 0 {
            return Err(Error::new(ErrorKind::InvalidInput, format!("log `{name}`")).because("a capacity of 0 bytes"));
        }
        let file = self.install(name, false, |file| reserve(&*file, capacity))?;
        self.map(name, file)
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        let file = self.open_at(name, Purpose::Write)?;
        let stat = rustix::fs::fstat(&file).map_err(|errno| self.fail(name, errno))?;
        let (size, held) = (stat.st_size as u64, (stat.st_blocks as u64).saturating_mul(512));
        if held < size {
            reserve(&file, size).map_err(|errno| self.fail(name, errno))?; // a copy of a store may be sparse
        }
        self.map(name, file)
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.install(name, true, |file| file.write_all(bytes).map_err(|error| errno_of(&error))).map(drop)
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        let file = self.open_at(name, Purpose::Read)?;
        read_whole(&file).map_err(|error| self.fail(name, errno_of(&error)))
    }
    fn list(&self) -> Result<Vec<String>> {
        let mut names = self.names()?;
        names.retain(|name| !name.starts_with('.'));
        Ok(names)
    }
    fn remove(&self, name: &str) -> Result<()> {
        check_name(name)?;
        rustix::fs::unlinkat(&self.dir, name, AtFlags::empty()).map_err(|errno| self.fail(name, errno))?;
        self.sync_dir()
    }
}

struct FsLog {
    map: Mapping,
    file: File,
    path: PathBuf,
}

impl FsLog {
    #[cold]
    fn outside(&self, offset: u64, len: usize) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("log {}", self.path.display()))
            .because(format!("{len} bytes at {offset} reach past its {} bytes", self.map.len()))
    }
}

impl FsLog {
    /// The first part of the `len` bytes at `offset` that may hold data, as begin and end relative to `offset`. Space
    /// that is only reserved is zeros: reading it through the mapping would create a page for each 4096 bytes, and
    /// readahead many more. Short reads skip this check, since they read records that exist.
    fn written(&self, offset: u64, len: usize) -> (usize, usize) {
        const SHORT: usize = 16 << 10;
        if len <= SHORT {
            return (0, len);
        }
        let first = self.data_from(offset).unwrap_or(u64::MAX);
        let end = rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Hole(first)).unwrap_or(u64::MAX);
        let within = |at: u64| usize::try_from(at.saturating_sub(offset)).map_or(len, |at| at.min(len));
        // Each part must end behind its begin, whatever the file system reports.
        (within(first), if end > first { within(end) } else { len })
    }
}

impl LogFile for FsLog {
    fn capacity(&self) -> u64 {
        self.map.len() as u64
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.map.copy_in(offset, bytes) { Ok(()) } else { Err(self.outside(offset, bytes.len())) }
    }
    fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        if self.map.at(offset, buf.len()).is_none() {
            return Err(self.outside(offset, buf.len()));
        }
        let mut done = 0;
        while done < buf.len() {
            let (first, end) = self.written(offset + done as u64, buf.len() - done);
            buf[done..done + first].fill(0);
            if !self.map.copy_out(offset + (done + first) as u64, &mut buf[done + first..done + end]) {
                return Err(self.outside(offset, buf.len()));
            }
            done += end;
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        rustix::fs::fdatasync(&self.file)
            .map_err(|errno| Error::io(format!("log {}", self.path.display()), &errno.into()))
    }
    fn data_from(&self, offset: u64) -> Option<u64> {
        // To the file system, space that is reserved and never written is a hole: finding it needs no read.
        match rustix::fs::seek(&self.file, rustix::fs::SeekFrom::Data(offset)) {
            Ok(at) => Some(at),
            Err(Errno::NXIO) => None,
            Err(_) => (offset < self.capacity()).then_some(offset),
        }
    }
}
