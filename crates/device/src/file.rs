//! A tier in one file or block device of fixed size, with direct I/O.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote_host::fork::CloseInChild;
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, Result, StoreId};
use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, FileType, OFlags};
use rustix::io::Errno;

use crate::aligned::AlignedBuf;
use crate::header::{HEADER_BYTES, SegmentHeader};
use crate::io::{fail, open_direct, size_of};
use crate::segmented::{self, SegmentFiles, Segmented, read_full, read_header, reserve, whole_units, write_header};
use crate::store_dir::{check_owner, way_to};
use crate::{OpenedDevice, SegmentMode};

const UNIT_BYTES: u32 = 4096;
const DATA_OFFSET: u64 = 4096;
/// A path with anything but zeros in its first bytes, up to this many, is in use: every file system's superblock is
/// there.
const PROBE_BYTES: usize = 128 << 10;

/// How long an engine that has just closed, or a process that is just being started and has a copy of its descriptor,
/// may still have a block device.
const CLAIM_PATIENCE: Duration = Duration::from_secs(1);

struct OneFile {
    path: PathBuf,
    name: String,
    claim: Mutex<Option<Claim>>,
}

/// While the engine holds a block device, nobody mounts it, makes a file system on it, or takes it for another store.
/// Not on the descriptor that clients get: theirs may outlive the engine, and the next engine must get the device.
struct Claim {
    _in_child: Option<CloseInChild>, // before the descriptor: fields drop in order
    _fd: OwnedFd,
}

impl OneFile {
    fn of(spec: &DeviceSpec) -> Self {
        Self { path: spec.path.clone(), name: spec.name.clone(), claim: Mutex::new(None) }
    }
    /// Claims a block device for this engine alone; does nothing for files.
    fn claim(&self, fd: &OwnedFd) -> Result<()> {
        let refuse = |errno| fail(&self.subject(0), errno);
        let mut claim = self.claim.lock();
        if claim.is_some() || kind_of(fd).map_err(refuse)? != FileType::BlockDevice {
            return Ok(());
        }
        let begin = Instant::now();
        loop {
            let flags = OFlags::RDONLY | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::open(&self.path, flags, rustix::fs::Mode::empty()) {
                Ok(fd) => {
                    *claim = Some(Claim { _in_child: CloseInChild::new(&fd), _fd: fd });
                    return Ok(());
                }
                Err(Errno::BUSY) if begin.elapsed() < CLAIM_PATIENCE => std::thread::sleep(Duration::from_millis(5)),
                Err(Errno::BUSY) => {
                    return Err(Error::new(ErrorKind::Busy, self.subject(0))
                        .because("the block device is in use: mounted, or taken by another program")
                        .try_next("unmount it or stop what uses it (lsblk and fuser say what), or name another one"));
                }
                Err(errno) => return Err(refuse(errno)),
            }
        }
    }
    /// Opens the path; `None` if nothing exists there.
    fn open_path(&self, flags: OFlags) -> Result<Option<(OwnedFd, SegmentMode)>> {
        let subject = self.subject(0);
        let way = way_to(&self.path, &subject)?;
        match open_direct(rustix::fs::CWD, &self.path, OFlags::RDWR | flags | way) {
            Ok(opened) => check_owner(&opened.0, &subject).map(|()| Some(opened)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fail(&subject, errno)),
        }
    }
    /// Like [`OneFile::open_path`], but an absent file is an error.
    fn open_there(&self, flags: OFlags) -> Result<(OwnedFd, SegmentMode)> {
        self.open_path(flags)?.ok_or_else(|| fail(&self.subject(0), Errno::NOENT))
    }
}

impl SegmentFiles for OneFile {
    fn subject(&self, _number: u64) -> String {
        format!("file tier `{}` in {}", self.name, self.path.display())
    }
    fn open(&self, _number: u64) -> Result<Option<(OwnedFd, SegmentMode)>> {
        let opened = self.open_there(OFlags::empty())?;
        self.claim(&opened.0).map(|()| Some(opened))
    }
    fn make(&self, header: &SegmentHeader) -> Result<(OwnedFd, SegmentMode)> {
        let subject = self.subject(0);
        let refuse = |errno| fail(&subject, errno);
        let (fd, mode) = self.open_there(OFlags::CREATE)?;
        self.claim(&fd)?;
        check_unused(&fd, &subject, header)?;
        let bytes = header.data_offset + header.len;
        match kind_of(&fd).map_err(refuse)? {
            FileType::BlockDevice => {
                let size = size_of(&fd).map_err(refuse)?;
                if size < bytes {
                    return Err(Error::new(ErrorKind::InvalidInput, subject)
                        .because(format!("the block device has {size} bytes, {bytes} are needed"))
                        .try_next(format!("ask for at most {} bytes", size.saturating_sub(DATA_OFFSET) & !4095)));
                }
            }
            FileType::RegularFile => {
                // Truncate first: the leftovers of an earlier device of the same store must not be taken for a header.
                let done = rustix::fs::ftruncate(&fd, 0).and_then(|()| reserve(&fd, bytes));
                if let Err(errno) = done {
                    let _ = rustix::fs::ftruncate(&fd, 0); // release the part that was reserved
                    return Err(refuse(errno));
                }
            }
            _ => {
                return Err(Error::new(ErrorKind::InvalidInput, subject)
                    .because("neither a file nor a block device")
                    .try_next("choose another path"));
            }
        }
        write_header(&fd, header).and_then(|()| rustix::fs::fsync(&fd)).map_err(refuse)?;
        if let Some(parent) = self.path.parent() {
            sync_dir(parent).map_err(refuse)?;
        }
        Ok((fd, mode))
    }
}

/// Zeroes a range of a block device: the device clears itself if it can, else zeros are written.
fn clear(fd: &OwnedFd, mut from: u64, to: u64) -> Result<(), Errno> {
    const AT_ONCE: u64 = 1 << 30;
    const WRITTEN: usize = 4 << 20;
    let ways = [FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, FallocateFlags::ZERO_RANGE];
    let mut zeros = None;
    while from < to {
        let len = AT_ONCE.min(to - from);
        let by_device = zeros.is_none() && ways.iter().any(|way| rustix::fs::fallocate(fd, *way, from, len).is_ok());
        if by_device {
            from += len;
            continue;
        }
        let zeros = zeros.get_or_insert_with(|| AlignedBuf::new(WRITTEN));
        let part = (WRITTEN as u64).min(to - from) as usize;
        match rustix::io::pwrite(fd, &zeros[..part], from) {
            Ok(0) => return Err(Errno::IO),
            Ok(n) => from += n as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

pub(crate) fn kind_of(fd: &OwnedFd) -> Result<FileType, Errno> {
    Ok(FileType::from_raw_mode(rustix::fs::fstat(fd)?.st_mode))
}

pub(crate) fn sync_dir(path: &Path) -> Result<(), Errno> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::open(path, flags, rustix::fs::Mode::empty())?)
}

/// Fails if the file holds anything but zeros or leftovers of the same device.
pub(crate) fn check_unused(fd: &OwnedFd, subject: &str, header: &SegmentHeader) -> Result<()> {
    let mut first = AlignedBuf::new(PROBE_BYTES);
    let n = read_full(fd, &mut first).map_err(|errno| fail(subject, errno))?;
    if first[..n].iter().all(|byte| *byte == 0) {
        return Ok(());
    }
    let owner = first[..n].first_chunk::<HEADER_BYTES>().and_then(|head| SegmentHeader::decode(head, subject).ok());
    let cause = match owner {
        Some(old) if old.store == header.store && old.device == header.device => return Ok(()),
        Some(old) => format!("it holds device {} of store {}", old.device, old.store),
        None => "it holds something that is not Cenote's".to_owned(),
    };
    Err(Error::new(ErrorKind::Exists, subject)
        .because(cause)
        .try_next("choose another path, or delete it if nobody needs it"))
}

pub(crate) fn open(store: StoreId, id: DeviceId, spec: &DeviceSpec, create: bool) -> Result<OpenedDevice> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    if spec.path.as_os_str().is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, subject)
            .because("no path")
            .try_next("name a file or block device"));
    }
    let capacity = whole_units(&subject, spec.capacity_bytes, UNIT_BYTES)?;
    let shape = SegmentHeader::sole(store, id, DeviceKind::File, UNIT_BYTES, DATA_OFFSET, capacity);
    Segmented::new(shape, Box::new(place)).opened(&spec.path, create)
}

/// Changes the store id in the file of a copied device.
pub(crate) fn change_store(spec: &DeviceSpec, from: StoreId, to: StoreId) -> Result<()> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    let (fd, _) = place.open_there(OFlags::NOFOLLOW)?;
    segmented::change_store(&fd, &subject, from, to)
}

pub(crate) fn remove(store: StoreId, id: DeviceId, spec: &DeviceSpec) -> Result<()> {
    let place = OneFile::of(spec);
    let subject = place.subject(0);
    let Some((fd, _)) = place.open_path(OFlags::empty())? else { return Ok(()) };
    place.claim(&fd)?;
    let header = read_header(&fd, &subject)?;
    header.check(&subject, store, id, DeviceKind::File, 0)?;
    let done = if kind_of(&fd).map_err(|errno| fail(&subject, errno))? == FileType::BlockDevice {
        // The header last, so that an interrupted run can be repeated.
        clear(&fd, header.data_offset, header.data_offset + header.len)
            .and_then(|()| rustix::fs::fdatasync(&fd))
            .and_then(|()| rustix::io::pwrite(&fd, &AlignedBuf::new(4096), 0))
            .and_then(|_| rustix::fs::fdatasync(&fd))
    } else {
        rustix::fs::unlink(&spec.path)
    };
    done.map_err(|errno| fail(&subject, errno))
}
