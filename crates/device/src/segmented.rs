//! Common part of this machine's devices: segments, each a file with a header, opened at first use.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_model::{DeviceKind, Error, ErrorKind, Result, StoreId};
use parking_lot::{Mutex, RwLock};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;

use crate::aligned::{ALIGN_BYTES, AlignedBuf};
use crate::header::{HEADER_BYTES, SegmentHeader};
use crate::holder::Lease;
use crate::io::{SegmentIo, fail};
use crate::lent::InSegment;
use crate::{Device, Lent, OpenedDevice, SegmentFile, SegmentMode};

/// The place of a device's segments.
pub(crate) trait SegmentFiles: Send + Sync {
    /// The subject of errors about a segment: tier and path.
    fn subject(&self, number: u64) -> String;
    /// Opens the file of a segment; `None` if there is none.
    fn open(&self, number: u64) -> Result<Option<(OwnedFd, SegmentMode)>>;
    /// Creates the file of a segment atomically, with space for its data and its header in place.
    fn make(&self, header: &SegmentHeader) -> Result<(OwnedFd, SegmentMode)>;
}

struct Segment {
    io: SegmentIo,
    /// Written to since the last sync.
    dirty: AtomicBool,
    /// Its descriptor was given out, so clients may write to it unnoticed.
    shared: AtomicBool,
}

impl InSegment for Segment {
    fn io(&self) -> &SegmentIo {
        &self.io
    }
}

/// A device made of segment files.
pub(crate) struct Segmented {
    /// Header of segment 0; others differ in number and length.
    shape: SegmentHeader,
    place: Box<dyn SegmentFiles>,
    segments: RwLock<BTreeMap<u64, Arc<Segment>>>,
    making: Mutex<()>,
    _lease: Option<Lease>,
}

impl Segmented {
    pub(crate) fn new(shape: SegmentHeader, place: Box<dyn SegmentFiles>) -> Self {
        Self { shape, place, segments: RwLock::default(), making: Mutex::new(()), _lease: None }
    }
    /// Opens a persistent device: its first segment is created, or must be the existing one. `path`: the device's file
    /// or directory, which this engine holds exclusively from now on.
    pub(crate) fn opened(self, path: &Path, create: bool) -> Result<OpenedDevice> {
        // Refuse a foreign device before taking its lease.
        if create {
            self.make(0)?;
        } else {
            self.check(0)?;
        }
        let lease = Lease::acquire(path, &self.place.subject(0))?;
        Ok(OpenedDevice { device: Arc::new(Self { _lease: lease, ..self }), survived: !create })
    }
    pub(crate) fn count(&self) -> u64 {
        self.shape.capacity_bytes.div_ceil(self.shape.segment_bytes)
    }
    /// The header of segment `number`.
    pub(crate) fn header(&self, number: u64) -> SegmentHeader {
        let begin = number * self.shape.segment_bytes;
        let len = self.shape.segment_bytes.min(self.shape.capacity_bytes - begin);
        SegmentHeader { number, len, ..self.shape.clone() }
    }
    /// Creates segment `number`, which must not exist.
    pub(crate) fn make(&self, number: u64) -> Result<()> {
        let header = self.header(number);
        let (fd, mode) = self.place.make(&header)?;
        self.install(number, &header, fd, mode).map(drop)
    }
    fn install(&self, number: u64, header: &SegmentHeader, fd: OwnedFd, mode: SegmentMode) -> Result<Arc<Segment>> {
        let file = SegmentFile { fd: Arc::new(fd), data_offset: header.data_offset, len: header.len, mode };
        let io = SegmentIo::new(file, true, self.place.subject(number))?.watched();
        let segment = Arc::new(Segment { io, dirty: AtomicBool::new(false), shared: AtomicBool::new(false) });
        self.segments.write().insert(number, Arc::clone(&segment));
        Ok(segment)
    }
    fn known(&self, number: u64) -> Option<Arc<Segment>> {
        self.segments.read().get(&number).cloned()
    }
    /// The segment, opened and checked; `None` if there is no file.
    fn find(&self, number: u64) -> Result<Option<Arc<Segment>>> {
        if let Some(segment) = self.known(number) {
            return Ok(Some(segment));
        }
        let _one = self.making.lock();
        self.find_locked(number)
    }
    fn find_locked(&self, number: u64) -> Result<Option<Arc<Segment>>> {
        if let Some(segment) = self.known(number) {
            return Ok(Some(segment));
        }
        let Some((fd, mode)) = self.place.open(number)? else { return Ok(None) };
        let subject = self.place.subject(number);
        let found = read_header(&fd, &subject)?;
        found.check(&subject, self.shape.store, self.shape.device, self.shape.kind, number)?;
        if found != self.header(number) {
            return Err(Error::new(ErrorKind::Corrupt, subject)
                .because("its header does not agree with the device's size and shape")
                .try_next("restore this file from a copy, or drain and replace the device"));
        }
        self.install(number, &found, fd, mode).map(Some)
    }
    /// Opens segment `number` and checks its header, if the file exists.
    pub(crate) fn check(&self, number: u64) -> Result<()> {
        self.find(number).map(drop)
    }
    fn find_or_make(&self, number: u64) -> Result<Arc<Segment>> {
        if let Some(segment) = self.known(number) {
            return Ok(segment);
        }
        let _one = self.making.lock();
        if let Some(segment) = self.find_locked(number)? {
            return Ok(segment);
        }
        let header = self.header(number);
        let (fd, mode) = self.place.make(&header)?;
        self.install(number, &header, fd, mode)
    }
    fn inside(&self, offset: u64, len: u64) -> Result<()> {
        if offset.checked_add(len).is_some_and(|end| end <= self.shape.capacity_bytes) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, self.place.subject(0))
            .because(format!("{len} bytes at {offset} reach past the capacity of {}", self.shape.capacity_bytes)))
    }
    /// Calls `each` with (segment, offset in it, range of the caller's bytes).
    fn parts(
        &self,
        offset: u64,
        len: usize,
        mut each: impl FnMut(u64, u64, std::ops::Range<usize>) -> Result<()>,
    ) -> Result<()> {
        self.inside(offset, len as u64)?;
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            let inner = at % self.shape.segment_bytes;
            let n = (self.shape.segment_bytes - inner).min((len - done) as u64) as usize;
            each(at / self.shape.segment_bytes, inner, done..done + n)?;
            done += n;
        }
        Ok(())
    }
    fn read(&self, offset: u64, buf: &mut [u8], read: fn(&SegmentIo, u64, &mut [u8]) -> Result<()>) -> Result<()> {
        self.parts(offset, buf.len(), |number, inner, range| {
            if let Some(segment) = self.find(number)? {
                return read(&segment.io, inner, &mut buf[range]);
            }
            buf[range].fill(0); // never written
            Ok(())
        })
    }
    fn write(&self, offset: u64, bytes: &[u8], write: fn(&SegmentIo, u64, &[u8]) -> Result<()>) -> Result<()> {
        self.parts(offset, bytes.len(), |number, inner, range| {
            let segment = self.find_or_make(number)?;
            // Set before and after: a concurrent sync may clear the flag before the bytes are written.
            segment.dirty.store(true, Ordering::SeqCst);
            let outcome = write(&segment.io, inner, &bytes[range]);
            segment.dirty.store(true, Ordering::SeqCst);
            outcome
        })
    }
}

impl Device for Segmented {
    fn capacity_bytes(&self) -> u64 {
        self.shape.capacity_bytes
    }
    fn unit_bytes(&self) -> u32 {
        self.shape.unit_bytes
    }
    fn segment_bytes(&self) -> u64 {
        self.shape.segment_bytes
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf, SegmentIo::read_at)
    }
    fn copy_out(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.read(offset, buf, SegmentIo::copy_out)
    }
    fn lend(&self, offset: u64, len: usize) -> Option<Lent> {
        let number = offset / self.shape.segment_bytes;
        let segment = self.known(number)?;
        let inner = offset - number * self.shape.segment_bytes;
        Lent::of(segment, inner, len)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.write(offset, bytes, SegmentIo::write_at)
    }
    fn copy_in(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let write = if self.shape.kind.is_persistent() { SegmentIo::write_at } else { SegmentIo::copy_in };
        self.write(offset, bytes, write)
    }
    fn sync(&self) -> Result<()> {
        if !self.shape.kind.is_persistent() {
            return Ok(());
        }
        let segments: Vec<_> = self.segments.read().values().cloned().collect();
        for segment in segments {
            let dirty = segment.dirty.swap(false, Ordering::SeqCst);
            // Clients that map persistent memory write it back themselves, before the engine hears of the bytes.
            let unseen = segment.shared.load(Ordering::SeqCst) && segment.io.mode() != SegmentMode::Persistent;
            if dirty || unseen {
                segment.io.sync().inspect_err(|_| segment.dirty.store(true, Ordering::SeqCst))?;
            }
        }
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.inside(offset, len)?;
        if self.shape.kind != DeviceKind::SharedMemory {
            return Ok(()); // keep the space reserved, so that acknowledged space exists
        }
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let inner = at % self.shape.segment_bytes;
            let n = (self.shape.segment_bytes - inner).min(end - at);
            if let Some(segment) = self.known(at / self.shape.segment_bytes) {
                let (first, last) = (inner.next_multiple_of(4096), (inner + n) & !4095);
                if first < last {
                    let file = segment.io.file();
                    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    rustix::fs::fallocate(&*file.fd, flags, file.data_offset + first, last - first)
                        .map_err(|errno| fail(&self.place.subject(at / self.shape.segment_bytes), errno))?;
                }
            }
            at += n;
        }
        Ok(())
    }
    fn segment(&self, number: u64) -> Result<Option<SegmentFile>> {
        if number >= self.count() {
            return Err(Error::new(ErrorKind::InvalidInput, self.place.subject(number))
                .because(format!("the device has {} segments", self.count())));
        }
        let segment = self.find_or_make(number)?;
        segment.shared.store(true, Ordering::SeqCst);
        Ok(Some(segment.io.file().clone()))
    }
    fn note(&self) -> String {
        let mode = self.known(0).map(|segment| segment.io.mode());
        match (self.shape.kind, mode) {
            (DeviceKind::PersistentMemory, Some(SegmentMode::Persistent)) => {
                format!("DAX: kept by {}", crate::write_back::word())
            }
            (DeviceKind::PersistentMemory, Some(_)) => "no DAX: kept by fdatasync".to_owned(),
            (_, Some(SegmentMode::Buffered)) => "no direct I/O: through the page cache".to_owned(),
            _ => String::new(),
        }
    }
}

/// Reads and decodes the header of an open segment file.
pub(crate) fn read_header(fd: impl AsFd, subject: &str) -> Result<SegmentHeader> {
    let mut block = AlignedBuf::reused(ALIGN_BYTES);
    let n = read_full(&fd, &mut block[..ALIGN_BYTES]).map_err(|errno| fail(subject, errno))?;
    if n < HEADER_BYTES {
        return Err(Error::new(ErrorKind::Corrupt, subject)
            .because(format!("the file has only {n} bytes, too few for a header"))
            .try_next("restore this file from a copy, or drain and replace the device"));
    }
    SegmentHeader::decode(block[..HEADER_BYTES].try_into().expect("the range is as long"), subject)
}

/// Reads from the start of the file until the buffer is full or the file ends.
pub(crate) fn read_full(fd: impl AsFd, buf: &mut [u8]) -> Result<usize, Errno> {
    let mut done = 0;
    while done < buf.len() {
        match rustix::io::pread(&fd, &mut buf[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Writes a header into the first 4096 bytes of a file and zeros behind it.
pub(crate) fn write_header(fd: impl AsFd, header: &SegmentHeader) -> Result<(), Errno> {
    let mut block = AlignedBuf::reused(ALIGN_BYTES);
    block[..ALIGN_BYTES].fill(0);
    block[..HEADER_BYTES].copy_from_slice(&header.encode());
    let n = rustix::io::pwrite(&fd, &block[..ALIGN_BYTES], 0)?;
    if n == ALIGN_BYTES { Ok(()) } else { Err(Errno::NOSPC) }
}

/// Allocates all blocks of a file of persistent data, so that later writes cannot meet a full file system; on file
/// systems that cannot do so, sets only its size.
pub(crate) fn reserve(fd: impl AsFd, bytes: u64) -> Result<(), Errno> {
    // Check first: an attempt would fill the file system before it fails, and others write there too.
    let stat = rustix::fs::fstatvfs(&fd)?;
    if stat.f_blocks > 0 && bytes > stat.f_bavail.saturating_mul(stat.f_frsize) {
        return Err(Errno::NOSPC);
    }
    match rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes) {
        Err(Errno::OPNOTSUPP) => rustix::fs::ftruncate(&fd, bytes),
        other => other,
    }
}

/// The capacity of a new device: the requested capacity, rounded down to whole units.
pub(crate) fn whole_units(subject: &str, capacity_bytes: u64, unit_bytes: u32) -> Result<u64> {
    let capacity = capacity_bytes - capacity_bytes % u64::from(unit_bytes);
    if (u64::from(unit_bytes)..1 << 60).contains(&capacity) {
        return Ok(capacity);
    }
    Err(Error::new(ErrorKind::InvalidInput, subject)
        .because(format!("a capacity of {capacity_bytes} bytes"))
        .try_next(format!("choose at least {unit_bytes} bytes and less than 2^60")))
}

/// Changes the store id in a segment file. Leaves it as it is if it has the new id already.
pub(crate) fn change_store(fd: impl AsFd, subject: &str, from: StoreId, to: StoreId) -> Result<()> {
    let header = read_header(&fd, subject)?;
    if header.store == to {
        return Ok(());
    }
    if header.store != from {
        return Err(Error::new(ErrorKind::Corrupt, subject)
            .because(format!("it belongs to store {}, not to {from}", header.store)));
    }
    write_header(&fd, &SegmentHeader { store: to, ..header })
        .and_then(|()| rustix::fs::fsync(&fd))
        .map_err(|errno| fail(subject, errno))
}
