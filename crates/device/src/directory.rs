//! A tier in a directory: segment files created on demand, with direct I/O where the file system has it.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::file::sync_dir;
use crate::header::SegmentHeader;
use crate::io::{fail, open_direct};
use crate::segmented::{self, SegmentFiles, Segmented, read_header, reserve, whole_units, write_header};
use crate::shared_memory::give_as;
use crate::store_dir::{check_owner, way_to};
use crate::{OpenedDevice, SegmentMode};

const UNIT_BYTES: u32 = 4096;
const DATA_OFFSET: u64 = 4096;
const SEGMENT_BYTES: u64 = 256 << 20;
/// Upper bound of segments: larger devices get larger segments rather than more, since each open segment takes
/// a descriptor.
const SEGMENTS_MAX: u64 = 2048;

struct Folder {
    dir: OwnedFd,
    path: PathBuf,
    name: String,
}

fn file_name(number: u64) -> String {
    format!("seg-{number:06}")
}

impl Folder {
    fn open_dir(spec: &DeviceSpec, make: bool) -> Result<Self> {
        let subject = format!("directory tier `{}` in {}", spec.name, spec.path.display());
        if spec.path.as_os_str().is_empty() {
            return Err(Error::new(ErrorKind::InvalidInput, subject).because("no path").try_next("name a directory"));
        }
        let way = way_to(&spec.path, &subject)?;
        if make {
            match rustix::fs::mkdir(&spec.path, Mode::RWXU) {
                Ok(()) => sync_dir(spec.path.parent().unwrap_or(Path::new("."))).map_err(|e| fail(&subject, e))?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(fail(&subject, errno)),
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | way;
        let dir = rustix::fs::open(&spec.path, flags, Mode::empty()).map_err(|errno| fail(&subject, errno))?;
        check_owner(&dir, &subject)?;
        Ok(Self { dir, path: spec.path.clone(), name: spec.name.clone() })
    }
    /// Names of segment files, and of partly created ones.
    fn files(&self) -> Result<Vec<String>> {
        let refuse = |errno| fail(&self.subject(0), errno);
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.dir).map_err(refuse)? {
            let entry = entry.map_err(refuse)?;
            if let Ok(name) = entry.file_name().to_str()
                && (name.starts_with("seg-") || name.starts_with(".new-seg-"))
            {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }
    /// Deletes segments that this device wrote; fails if there are others.
    fn clear(&self, store: StoreId, id: DeviceId) -> Result<()> {
        let names = self.files()?;
        for name in names.iter().filter(|name| !name.starts_with('.')) {
            let subject = format!("directory tier `{}`, {}", self.name, self.path.join(name).display());
            let (fd, _) = open_direct(&self.dir, Path::new(name), OFlags::RDONLY | OFlags::NOFOLLOW)
                .map_err(|e| fail(&subject, e))?;
            let owner = read_header(&fd, &subject).map(|header| (header.store, header.device));
            if owner.as_ref().ok() != Some(&(store, id)) {
                let cause = owner.map_or_else(
                    |error| error.cause().to_owned(),
                    |(store, device)| format!("it holds device {device} of store {store}"),
                );
                return Err(Error::new(ErrorKind::Exists, subject)
                    .because(cause)
                    .try_next("choose another directory, or delete it if nobody needs it"));
            }
        }
        for name in names {
            rustix::fs::unlinkat(&self.dir, &name, AtFlags::empty()).map_err(|e| fail(&self.subject(0), e))?;
        }
        rustix::fs::fsync(&self.dir).map_err(|e| fail(&self.subject(0), e))
    }
}

impl SegmentFiles for Folder {
    fn subject(&self, number: u64) -> String {
        format!("directory tier `{}`, {}", self.name, self.path.join(file_name(number)).display())
    }
    fn open(&self, number: u64) -> Result<Option<(OwnedFd, SegmentMode)>> {
        match open_direct(&self.dir, Path::new(&file_name(number)), OFlags::RDWR | OFlags::NOFOLLOW) {
            Ok(opened) => Ok(Some(opened)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fail(&self.subject(number), errno)),
        }
    }
    fn make(&self, header: &SegmentHeader) -> Result<(OwnedFd, SegmentMode)> {
        let name = file_name(header.number);
        let temporary = format!(".new-{name}");
        let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
        let make = || {
            let opened =
                open_direct(&self.dir, Path::new(&temporary), OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW)?;
            give_as(&opened.0, &self.dir)?;
            reserve(&opened.0, header.data_offset + header.len)?;
            write_header(&opened.0, header)?;
            rustix::fs::fsync(&opened.0)?;
            rustix::fs::renameat(&self.dir, &temporary, &self.dir, &name)?;
            rustix::fs::fsync(&self.dir)?;
            Ok(opened)
        };
        make().map_err(|errno| {
            let _ = rustix::fs::unlinkat(&self.dir, &temporary, AtFlags::empty());
            fail(&self.subject(header.number), errno)
        })
    }
}

fn segment_bytes_for(capacity: u64) -> u64 {
    let least = capacity.div_ceil(SEGMENTS_MAX).next_power_of_two().max(SEGMENT_BYTES);
    least.min(capacity)
}

pub(crate) fn open(store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
    let place = Folder::open_dir(spec, create)?;
    let capacity = whole_units(&place.subject(0), spec.capacity_bytes, UNIT_BYTES)?;
    let segment_bytes = segment_bytes_for(capacity);
    let shape = SegmentHeader {
        store,
        device: id,
        kind: DeviceKind::Directory,
        unit_bytes: UNIT_BYTES,
        number: 0,
        segment_bytes,
        data_offset: DATA_OFFSET,
        len: segment_bytes,
        capacity_bytes: capacity,
        boot_id: [0; 16],
    };
    if create {
        place.clear(store, id)?;
    } else if place.open(0)?.is_none() {
        return Err(Error::new(ErrorKind::NotFound, place.subject(0))
            .because("the device's first segment file is not there")
            .try_next("check the path: is the file system mounted?"));
    }
    Segmented::new(shape, Box::new(place)).opened(&spec.path, create)
}

/// Changes the store id in the segments of a copied device.
pub(crate) fn change_store(spec: &DeviceSpec, from: StoreId, to: StoreId) -> Result<()> {
    let place = Folder::open_dir(spec, false)?;
    for name in place.files()?.iter().filter(|name| !name.starts_with('.')) {
        let subject = format!("directory tier `{}`, {}", spec.name, spec.path.join(name).display());
        let flags = OFlags::RDWR | OFlags::NOFOLLOW;
        let (fd, _) = open_direct(&place.dir, Path::new(name), flags).map_err(|errno| fail(&subject, errno))?;
        segmented::change_store(&fd, &subject, from, to)?;
    }
    Ok(())
}

pub(crate) fn remove(store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
    if !spec.path.exists() {
        return Ok(());
    }
    Folder::open_dir(spec, false)?.clear(store, id)
}
