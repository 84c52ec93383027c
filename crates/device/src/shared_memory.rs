//! The memory tier: segment files in a tmpfs, which clients map.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::header::{SegmentHeader, boot_id};
use crate::io::fail;
use crate::segmented::{Place, Segmented, read_header, whole_units, write_header};
use crate::{OpenedDevice, SegmentMode};

const UNIT_BYTES: u32 = 512;
/// Data begin where a huge page does.
const DATA_OFFSET: u64 = 2 << 20;
const SEGMENT_BYTES_MAX: u64 = 1 << 30;

/// The directory in shared memory that belongs to a store.
pub(crate) fn store_dir(base: &Path, store: StoreId) -> PathBuf {
    base.join(format!("cenote-{store}"))
}

/// Opens that directory, making it if it is not there. Refuses one that another user planted.
pub(crate) fn open_store_dir(base: &Path, store: StoreId) -> Result<OwnedFd> {
    let path = store_dir(base, store);
    let subject = path.display().to_string();
    match rustix::fs::mkdir(&path, Mode::RWXU) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(fail(&subject, errno)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| fail(&subject, errno))?;
    let owner = rustix::fs::fstat(&dir).map_err(|errno| fail(&subject, errno))?.st_uid;
    let me = rustix::process::geteuid().as_raw();
    if owner != me {
        return Err(Error::new(ErrorKind::PermissionDenied, subject)
            .because(format!("it belongs to user {owner}, this process runs as user {me}"))
            .try_next("open the store as the user who made it, or have that directory removed"));
    }
    Ok(dir)
}

struct Memory {
    dir: OwnedFd,
    path: PathBuf,
    device: DeviceId,
    name: String,
}

impl Memory {
    fn new(base: &Path, store: StoreId, device: DeviceId, spec: &DeviceSpec) -> Result<Self> {
        let path = store_dir(base, store);
        Ok(Self { dir: open_store_dir(base, store)?, path, device, name: spec.name.clone() })
    }
    fn file_name(&self, number: u64) -> String {
        format!("dev-{}-seg-{number}", self.device.0)
    }
    /// Deletes the segments of this device, whole or half made.
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
    /// Tmpfs promises nothing; at least refuse what cannot fit now.
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

impl Place for Memory {
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
        // All at once and the first one last: one that is there says that all are.
        for number in (0..device.count()).rev() {
            device.make(number)?;
        }
    }
    Ok(OpenedDevice { device: Arc::new(device), survived })
}

/// True if every segment is there, from this boot.
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
    if !store_dir(base, store).exists() {
        return Ok(());
    }
    Memory::new(base, store, id, spec)?.clear()?;
    let _ = rustix::fs::rmdir(store_dir(base, store)); // the last one out; fails while anything is left
    Ok(())
}
