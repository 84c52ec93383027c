//! A tier in persistent memory: one file that clients map, on a file system with DAX.
//!
//! There a mapping is the memory itself, and a write is on media once its cache lines are written back: clients do that
//! after each copy, so that the engine has nothing to sync for them. The engine itself writes through the descriptor,
//! which bypasses the cache and turns a truncated file into an error rather than a signal, and then syncs.
//!
//! The same file also works on any other file system: there its mapping is the page cache, and the device's `sync`
//! makes it durable. [`crate::Device::note`] reports which of the two applies.

use std::os::fd::OwnedFd;
use std::path::PathBuf;

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::file::{check_unused, kind_of, sync_dir};
use crate::header::SegmentHeader;
use crate::io::fail;
use crate::map::Mapping;
use crate::segmented::{self, SegmentFiles, Segmented, read_header, reserve, whole_units, write_header};
use crate::store_dir::{check_owner, way_to};
use crate::{OpenedDevice, SegmentMode, write_back};

const UNIT_BYTES: u32 = 512;
/// Data begin at a huge page boundary, so that DAX can map huge pages.
const DATA_OFFSET: u64 = 2 << 20;

struct OneFile {
    path: PathBuf,
    name: String,
}

impl OneFile {
    fn of(spec: &DeviceSpec) -> Self {
        Self { path: spec.path.clone(), name: spec.name.clone() }
    }
    /// `None` if there is no file.
    fn open_path(&self, flags: OFlags) -> Result<Option<OwnedFd>> {
        let subject = self.subject(0);
        let flags = OFlags::RDWR | OFlags::CLOEXEC | flags | way_to(&self.path, &subject)?;
        match rustix::fs::open(&self.path, flags, Mode::RUSR | Mode::WUSR) {
            Ok(opened) => check_owner(&opened, &subject).map(|()| Some(opened)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fail(&subject, errno)),
        }
    }
    /// Like [`OneFile::open_path`], but an absent file is an error.
    fn open_there(&self, flags: OFlags) -> Result<OwnedFd> {
        self.open_path(flags)?.ok_or_else(|| fail(&self.subject(0), Errno::NOENT))
    }
    /// Fails unless it is a regular file.
    fn check_kind(&self, fd: &OwnedFd) -> Result<()> {
        let subject = self.subject(0);
        let next_step = match kind_of(fd).map_err(|errno| fail(&subject, errno))? {
            FileType::RegularFile => return Ok(()),
            FileType::CharacterDevice | FileType::BlockDevice => {
                "put a file system on it (namespace mode fsdax), mount that with -o dax=always, and name a file there"
            }
            _ => "choose another path",
        };
        Err(Error::new(ErrorKind::InvalidInput, subject).because("not a file").try_next(next_step))
    }
}

/// Access mode of an open file: mapped persistent memory where the file system has it.
fn mode_of(fd: &OwnedFd) -> SegmentMode {
    const PAGE_BYTES: usize = 4096;
    if write_back::is_available() && Mapping::persistent(fd, 0, PAGE_BYTES).is_ok() {
        SegmentMode::Persistent
    } else {
        SegmentMode::Mapped
    }
}

impl SegmentFiles for OneFile {
    fn subject(&self, _number: u64) -> String {
        format!("persistent memory tier `{}` in {}", self.name, self.path.display())
    }
    fn open(&self, _number: u64) -> Result<Option<(OwnedFd, SegmentMode)>> {
        let fd = self.open_there(OFlags::empty())?;
        self.check_kind(&fd)?;
        let mode = mode_of(&fd);
        Ok(Some((fd, mode)))
    }
    fn make(&self, header: &SegmentHeader) -> Result<(OwnedFd, SegmentMode)> {
        let subject = self.subject(0);
        let refuse = |errno| fail(&subject, errno);
        let fd = self.open_there(OFlags::CREATE)?;
        self.check_kind(&fd)?;
        check_unused(&fd, &subject, header)?;
        // Truncate first: the leftovers of an earlier device of the same store must not be taken for a header.
        let bytes = header.data_offset + header.len;
        if let Err(errno) = rustix::fs::ftruncate(&fd, 0).and_then(|()| reserve(&fd, bytes)) {
            let _ = rustix::fs::ftruncate(&fd, 0); // release the part that was reserved
            return Err(refuse(errno));
        }
        write_header(&fd, header).and_then(|()| rustix::fs::fsync(&fd)).map_err(refuse)?;
        if let Some(parent) = self.path.parent() {
            sync_dir(parent).map_err(refuse)?;
        }
        let mode = mode_of(&fd);
        if mode != SegmentMode::Persistent {
            tracing::warn!(
                tier = %self.name,
                path = %self.path.display(),
                "no DAX there (mount with -o dax=always on persistent memory): the tier is an ordinary mapped file, kept by fdatasync"
            );
        }
        Ok((fd, mode))
    }
}

pub(crate) fn open(store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    if spec.path.as_os_str().is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, subject)
            .because("no path")
            .try_next("name a file on a file system with DAX"));
    }
    let capacity = whole_units(&subject, spec.capacity_bytes, UNIT_BYTES)?;
    let shape = SegmentHeader::sole(store, id, DeviceKind::PersistentMemory, UNIT_BYTES, DATA_OFFSET, capacity);
    Segmented::new(shape, Box::new(place)).opened(&spec.path, create)
}

/// Changes the store id in the file of a copied device.
pub(crate) fn change_store(spec: &DeviceSpec, from: StoreId, to: StoreId) -> Result<()> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    let fd = place.open_there(OFlags::NOFOLLOW)?;
    segmented::change_store(&fd, &subject, from, to)
}

pub(crate) fn remove(store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    let Some(fd) = place.open_path(OFlags::empty())? else { return Ok(()) };
    place.check_kind(&fd)?;
    read_header(&fd, &subject)?.check(&subject, store, id, DeviceKind::PersistentMemory, 0)?;
    rustix::fs::unlink(&spec.path).map_err(|errno| fail(&subject, errno))
}
