//! The memory tier: segment files in a tmpfs, which clients map.

use std::hash::{BuildHasher, Hasher};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::header::{SegmentHeader, boot_id};
use crate::io::fail;
use crate::segmented::{SegmentFiles, Segmented, read_header, whole_units, write_header};
use crate::store_dir::{give, is_trusted};
use crate::{OpenedDevice, SegmentMode};

const UNIT_BYTES: u32 = 512;
/// Data begin at a huge page boundary.
const DATA_OFFSET: u64 = 2 << 20;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// Prefix of the names of all stores' directories in shared memory.
pub(crate) const PREFIX: &str = "cenote-";

/// The store that a directory in shared memory is named after.
pub(crate) fn store_of(name: &str) -> Option<StoreId> {
    let name = name.strip_prefix(PREFIX)?;
    name.split_once('.').map_or(name, |(id, _)| id).parse().ok()
}

/// The directory in shared memory that belongs to a store, if it has one.
///
/// Everybody may create names in shared memory, so another user may have taken the first name: then the store has a
/// second name, with a suffix after a dot. The owner tells which directory is the store's.
pub(crate) fn find_store_dir(base: &Path, store: StoreId) -> Result<Option<(OwnedFd, PathBuf)>> {
    let first = format!("{PREFIX}{store}");
    let path = base.join(&first);
    if let Some(found) = enter(&path)? {
        return Ok(Some((found, path)));
    }
    let fail = |error: std::io::Error| Error::io(base.display().to_string(), &error);
    for entry in std::fs::read_dir(base).map_err(fail)?.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.len() > first.len() && store_of(name) == Some(store))
            && let Some(found) = enter(&entry.path())?
        {
            return Ok(Some((found, entry.path())));
        }
    }
    Ok(None)
}

/// Opens a directory, if it is one and its owner is trusted. A directory of another user counts as absent.
fn enter(path: &Path) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fail = |errno| fail(&path.display().to_string(), errno);
    let owner = match rustix::fs::lstat(path) {
        Ok(stat) => stat.st_uid,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(fail(errno)),
    };
    if !is_trusted(owner) {
        return Ok(None);
    }
    let dir = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(dir) => dir,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(None),
        Err(errno) => return Err(fail(errno)),
    };
    let stat = rustix::fs::fstat(&dir).map_err(fail)?;
    if !is_trusted(stat.st_uid) {
        return Ok(None);
    }
    let others = Mode::RWXG | Mode::RWXO;
    if stat.st_uid == rustix::process::geteuid().as_raw() && Mode::from_raw_mode(stat.st_mode).intersects(others) {
        rustix::fs::fchmod(&dir, Mode::RWXU).map_err(fail)?;
    }
    Ok(Some(dir))
}

/// Opens that directory, creating it if absent, for the store's `owner` (user and group) if that is not this
/// process's.
pub(crate) fn open_store_dir(base: &Path, store: StoreId, owner: Option<(u32, u32)>) -> Result<(OwnedFd, PathBuf)> {
    let mut path = base.join(format!("{PREFIX}{store}"));
    for _ in 0..100 {
        if let Some(found) = find_store_dir(base, store)? {
            return Ok(found);
        }
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) => {
                if let (Some((user, group)), Some(made)) = (owner, enter(&path)?) {
                    give(&made, user, group).map_err(|errno| fail(&path.display().to_string(), errno))?;
                }
            }
            // Another user's, or just created by another process of this user.
            Err(Errno::EXIST) => {
                let random = std::hash::RandomState::new().build_hasher().finish();
                path = base.join(format!("{PREFIX}{store}.{random:016x}"));
            }
            Err(errno) => return Err(fail(&path.display().to_string(), errno)),
        }
    }
    Err(Error::new(ErrorKind::Busy, path.display().to_string()).because("others take every name in shared memory"))
}

/// Root gives what it creates in a directory to the directory's owner.
pub(crate) fn give_as(made: impl AsFd, dir: impl AsFd) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(dir)?;
    give(made, stat.st_uid, stat.st_gid)
}

struct Memory {
    dir: OwnedFd,
    path: PathBuf,
    device: DeviceId,
    name: String,
}

impl Memory {
    fn new(base: &Path, store: StoreId, device: DeviceId, spec: &DeviceSpec) -> Result<Self> {
        let (dir, path) = open_store_dir(base, store, None)?;
        Ok(Self { dir, path, device, name: spec.name.clone() })
    }
    fn file_name(&self, number: u64) -> String {
        format!("dev-{}-seg-{number}", self.device.0)
    }
    /// Deletes the segments of this device, complete or not.
    fn clear(&self) -> Result<()> {
        let (ours, half) = (format!("dev-{}-seg-", self.device.0), format!(".new-dev-{}-seg-", self.device.0));
        let entries = rustix::fs::Dir::read_from(&self.dir).map_err(|errno| fail(&self.subject(0), errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| fail(&self.subject(0), errno))?;
            let name = entry.file_name();
            if name.to_bytes().starts_with(ours.as_bytes()) || name.to_bytes().starts_with(half.as_bytes()) {
                rustix::fs::unlinkat(&self.dir, name, AtFlags::empty())
                    .map_err(|errno| fail(&self.subject(0), errno))?;
            }
        }
        Ok(())
    }
    /// Tmpfs guarantees no space; at least refuse what cannot fit now.
    fn check_room(&self, bytes: u64) -> Result<()> {
        let stat = rustix::fs::fstatvfs(&self.dir).map_err(|errno| fail(&self.subject(0), errno))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if bytes <= free || stat.f_blocks == 0 {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Full, format!("memory tier `{}` in {}", self.name, self.path.display()))
            .because(format!("{bytes} bytes asked for, {free} free"))
            .try_next("ask for less, or remount /dev/shm with a larger size"))
    }
}

impl SegmentFiles for Memory {
    fn subject(&self, number: u64) -> String {
        format!("memory tier `{}`, segment {}", self.name, self.path.join(self.file_name(number)).display())
    }
    fn open(&self, number: u64) -> Result<Option<(OwnedFd, SegmentMode)>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        match rustix::fs::openat(&self.dir, self.file_name(number), flags, Mode::empty()) {
            Ok(fd) => Ok(Some((fd, SegmentMode::Mapped))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fail(&self.subject(number), errno)),
        }
    }
    fn make(&self, header: &SegmentHeader) -> Result<(OwnedFd, SegmentMode)> {
        let name = self.file_name(header.number);
        let temporary = format!(".new-{name}");
        let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let make = || {
            let fd = rustix::fs::openat(&self.dir, &temporary, flags, Mode::RUSR | Mode::WUSR)?;
            give_as(&fd, &self.dir)?;
            rustix::fs::ftruncate(&fd, header.data_offset + header.len)?;
            write_header(&fd, header)?;
            rustix::fs::renameat(&self.dir, &temporary, &self.dir, &name)?;
            Ok(fd)
        };
        make().map(|fd| (fd, SegmentMode::Mapped)).map_err(|errno| fail(&self.subject(header.number), errno))
    }
}

pub(crate) fn open(base: &Path, store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
    let subject = format!("memory tier `{}`", spec.name);
    let capacity = whole_units(&subject, spec.capacity_bytes, UNIT_BYTES)?;
    let place = Memory::new(base, store, id, spec)?;
    let boot_id = boot_id();
    let survived = !create && survives(&place, store, id, capacity, boot_id)?;
    if !survived {
        place.clear()?;
        place.check_room(capacity)?;
    }
    let segment_bytes = capacity.min(SEGMENT_BYTES_MAX);
    let shape = SegmentHeader {
        store,
        device: id,
        kind: DeviceKind::SharedMemory,
        unit_bytes: UNIT_BYTES,
        number: 0,
        segment_bytes,
        data_offset: DATA_OFFSET,
        len: segment_bytes,
        capacity_bytes: capacity,
        boot_id,
    };
    let device = Segmented::new(shape, Box::new(place));
    if !survived {
        // Create all at once and the first one last: its existence shows that all exist.
        for number in (0..device.count()).rev() {
            device.make(number)?;
        }
    }
    Ok(OpenedDevice { device: Arc::new(device), survived })
}

/// Returns true if every segment exists and is of this boot.
fn survives(place: &Memory, store: StoreId, id: DeviceId, capacity: u64, boot_id: [u8; 16]) -> Result<bool> {
    for number in 0..capacity.div_ceil(SEGMENT_BYTES_MAX) {
        let Some((fd, _)) = place.open(number)? else { return Ok(false) };
        let subject = place.subject(number);
        let header = read_header(&fd, &subject)?;
        header.check(&subject, store, id, DeviceKind::SharedMemory, number)?;
        if header.boot_id != boot_id {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(crate) fn remove(base: &Path, store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
    let Some((dir, path)) = find_store_dir(base, store)? else { return Ok(()) };
    Memory { dir, path: path.clone(), device: id, name: spec.name.clone() }.clear()?;
    let _ = rustix::fs::rmdir(path); // fails while other files are left
    Ok(())
}
