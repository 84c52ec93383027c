//! Mappings of the store's files in the program's memory.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use posix::{Consistency, FsError};

use super::{Answer, Maybe, answer};
use crate::description::{Description, errno, warn};
use crate::{kernel, table};

/// Bytes read at a time.
const PIECE: usize = 8 << 20;
const PAGE: u64 = 4096;

/// A shared mapping of a file's page cache. It keeps the description open.
struct Mapped {
    at: u64,
    end: u64,
    open: Arc<Description>,
    /// Index in `PLACES`.
    place: usize,
}

impl Mapped {
    /// Registers the range. The caller holds the lock.
    fn new(at: u64, end: u64, open: Arc<Description>) -> Self {
        Self { at, end, open, place: note(at, end) }
    }
}

static MAPPED: Mutex<Vec<Mapped>> = Mutex::new(Vec::new());
/// Number of mappings, so that programs without any do not wait for one another.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Ranges (from, to) of mapped files, readable without the lock: `malloc` unmaps memory while it holds its own
/// lock. The last entry is the hull of all ranges for which the others have no room.
static PLACES: [(AtomicU64, AtomicU64); PLACES_MAX] = [const { (AtomicU64::new(0), AtomicU64::new(0)) }; PLACES_MAX];
const PLACES_MAX: usize = 256;
const HULL: usize = PLACES_MAX - 1;

/// Returns true if files of the store are mapped, so that calls about memory must be examined.
#[inline]
fn any() -> bool {
    COUNT.load(Ordering::Relaxed) != 0
}

/// Returns true if a file of the store may be mapped in that range.
#[inline]
pub fn touches(at: u64, len: u64) -> bool {
    let end = at.saturating_add(pages(len));
    any()
        && PLACES.iter().any(|(from, to)| {
            let to = to.load(Ordering::Acquire);
            to > at && from.load(Ordering::Relaxed) < end
        })
}

/// Returns true if `mmap` replaces a possible mapping of the store.
#[inline]
pub fn concerns(a: &[u64; 6]) -> bool {
    a[3] as i32 & libc::MAP_FIXED != 0 && touches(a[0], a[1])
}

/// Registers a range; returns its index. The caller holds the lock.
fn note(at: u64, end: u64) -> usize {
    let free = PLACES[..HULL].iter().position(|(_, to)| to.load(Ordering::Relaxed) == 0).unwrap_or(HULL);
    let (from, to) = &PLACES[free];
    let is_first = to.load(Ordering::Relaxed) == 0;
    from.store(if is_first { at } else { from.load(Ordering::Relaxed).min(at) }, Ordering::Relaxed);
    to.fetch_max(end, Ordering::Release);
    free
}

/// Frees the entry of a range that is no longer mapped.
fn forget(place: usize) {
    if place != HULL {
        PLACES[place].1.store(0, Ordering::Release);
    }
}

/// Flags of `mmap` that are supported or have no effect.
const KNOWN: i32 = libc::MAP_TYPE
    | libc::MAP_FIXED
    | libc::MAP_FIXED_NOREPLACE
    | libc::MAP_32BIT
    | libc::MAP_NORESERVE
    | libc::MAP_POPULATE
    | libc::MAP_NONBLOCK
    | libc::MAP_LOCKED
    | libc::MAP_STACK
    | libc::MAP_DENYWRITE
    | libc::MAP_EXECUTABLE
    | libc::MAP_GROWSDOWN
    | libc::MAP_HUGETLB;

/// `mmap`.
pub fn mmap(a: &[u64; 6]) -> Answer {
    let [at, len, _, flags, fd, _] = *a;
    if concerns(a) {
        take_out(at, len); // the old mapping is gone; if the call fails, it is only closed late
    }
    if flags as i32 & libc::MAP_ANONYMOUS != 0 {
        return Answer::Kernel;
    }
    let Some(open) = table::get(fd as i32) else { return Answer::Kernel };
    answer(map(&open, a))
}

fn map(open: &Arc<Description>, a: &[u64; 6]) -> Maybe {
    let [_, len, protection, flags, _, offset] = *a;
    let file = open.file_or(libc::ENODEV)?;
    let kind = flags as i32 & libc::MAP_TYPE;
    if kind == libc::MAP_SHARED_VALIDATE && flags as i32 & !KNOWN != 0 {
        return Err(libc::EOPNOTSUPP);
    }
    if len == 0
        || offset % PAGE != 0
        || !matches!(kind, libc::MAP_PRIVATE | libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE)
    {
        return Err(libc::EINVAL);
    }
    if !file.flags().read {
        return Err(libc::EACCES);
    }
    if kind == libc::MAP_PRIVATE {
        return copied(file, a);
    }
    let writes = protection as i32 & libc::PROT_WRITE != 0;
    if writes && !file.flags().write {
        return Err(libc::EACCES);
    }
    let error = match shared(open, file, a) {
        Err(error) => error,
        mapped => return mapped.map_err(|error| error.errno),
    };
    match error.errno {
        // No page cache is permitted, or there is no room for one: a mapping that only reads gets a copy of the present
        // content.
        libc::EOPNOTSUPP | libc::EROFS | libc::ENOSPC if !writes => copied_for_reading(file, a),
        libc::EOPNOTSUPP | libc::ENODEV => {
            warn(&error);
            Err(libc::ENODEV)
        }
        errno => Err(errno),
    }
}

/// Maps the file's page cache, which all processes of this machine share.
fn shared(open: &Arc<Description>, file: &posix::File, a: &[u64; 6]) -> Result<Option<i64>, FsError> {
    let [at, len, protection, flags, _, offset] = *a;
    if !file.flags().write && file.attr()?.consistency == Consistency::Laminated {
        return Err(FsError::new(libc::EROFS));
    }
    let page_cache = file.page_cache()?;
    let fd = page_cache.as_raw_fd() as u64;
    let got = kernel::simple_or(libc::SYS_mmap, &[at, len, protection, flags, fd, offset]).map_err(FsError::new)?;
    put_in(got as u64, got as u64 + pages(len), open.clone());
    Ok(Some(got))
}

/// Maps a copy of the file's present content.
fn copied(file: &posix::File, a: &[u64; 6]) -> Maybe {
    let [at, len, protection, flags, _, offset] = *a;
    let flags = (flags as i32 & !libc::MAP_TYPE) | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let got = kernel::simple_or(libc::SYS_mmap, &[at, len, writable, flags as u64, u64::MAX, 0])? as u64;
    let filled = fill(file, got, len, offset);
    let protected = kernel::simple_or(libc::SYS_mprotect, &[got, len, protection]);
    match filled.and(protected) {
        Ok(_) => Ok(Some(got as i64)),
        Err(errno) => {
            kernel::simple(libc::SYS_munmap, &[got, len]);
            Err(errno)
        }
    }
}

/// Maps a copy of the file's present content, which nobody can store to: `mprotect` for writing is `EACCES`, since no other process would see
/// the stores.
fn copied_for_reading(file: &posix::File, a: &[u64; 6]) -> Maybe {
    let [at, len, protection, flags, _, offset] = *a;
    let size = file.attr().map_err(errno)?.size_bytes;
    // As everywhere, the rest of the last page is zeros, and pages behind it are `SIGBUS`.
    let bytes = size.saturating_sub(offset).min(pages(len));
    let name = c"cenote".as_ptr() as u64;
    let memory =
        kernel::simple_or(libc::SYS_memfd_create, &[name, (libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).into()])?;
    let mapped = fill_memory(file, memory as u64, bytes, offset)
        .and_then(|()| kernel::simple_or(libc::SYS_mmap, &[at, len, protection, flags, memory as u64, 0]));
    kernel::close(memory as i32);
    mapped.map(Some)
}

/// Gives new memory the bytes of a file; then nobody can map it for writing.
fn fill_memory(file: &posix::File, memory: u64, bytes: u64, offset: u64) -> Result<(), i32> {
    kernel::simple_or(libc::SYS_ftruncate, &[memory, bytes])?;
    if bytes > 0 {
        let (writable, shared) = ((libc::PROT_READ | libc::PROT_WRITE) as u64, libc::MAP_SHARED as u64);
        let at = kernel::simple_or(libc::SYS_mmap, &[0, bytes, writable, shared, memory, 0])? as u64;
        let filled = fill(file, at, bytes, offset);
        kernel::simple(libc::SYS_munmap, &[at, bytes]);
        filled?;
    }
    kernel::simple_or(libc::SYS_fcntl, &[memory, libc::F_ADD_SEALS as u64, libc::F_SEAL_FUTURE_WRITE as u64])?;
    Ok(())
}

/// `munmap`, while there are mappings.
pub fn munmap(a: &[u64; 6]) -> Answer {
    let result = kernel::simple(libc::SYS_munmap, &a[..2]);
    if result == 0 {
        take_out(a[0], a[1]);
    }
    Answer::Done(result)
}

/// `mremap`, while there are mappings.
pub fn mremap(a: &[u64; 6]) -> Answer {
    let [old, old_len, new_len, ..] = *a;
    let open = MAPPED.lock().iter().find(|one| (one.at..one.end).contains(&old)).map(|one| one.open.clone());
    let result = kernel::simple(libc::SYS_mremap, &a[..5]);
    if let (Some(open), Ok(got)) = (open, kernel::checked(result)) {
        if a[3] as i32 & libc::MREMAP_DONTUNMAP == 0 {
            take_out(old, old_len);
        }
        put_in(got as u64, got as u64 + pages(new_len), open);
    }
    Answer::Done(result)
}

/// `msync`, while there are mappings: makes stores durable.
pub fn msync(a: &[u64; 6]) -> Answer {
    let [at, len, flags, ..] = *a;
    let result = kernel::simple(libc::SYS_msync, &a[..3]);
    if result < 0 || flags as i32 & libc::MS_SYNC == 0 {
        return Answer::Done(result);
    }
    let end = at.saturating_add(pages(len));
    let opens: Vec<_> = {
        let mapped = MAPPED.lock();
        mapped.iter().filter(|one| one.at < end && at < one.end).map(|one| one.open.clone()).collect()
    };
    let synced = opens.iter().try_for_each(|open| open.file()?.sync(true).map_err(errno));
    Answer::from(synced.map(|()| 0))
}

/// Stores mapped bytes in the store, because the process ends or executes another program.
pub fn settle() {
    let opens: Vec<_> = MAPPED.lock().iter().map(|one| one.open.clone()).collect();
    for open in opens {
        let _ = open.closed(false);
    }
}

/// Rounds up to whole pages.
fn pages(len: u64) -> u64 {
    len.checked_next_multiple_of(PAGE).unwrap_or(len)
}

fn put_in(at: u64, end: u64, open: Arc<Description>) {
    let mut mapped = MAPPED.lock();
    mapped.push(Mapped::new(at, end, open));
    COUNT.store(mapped.len(), Ordering::Relaxed);
}

/// Handles a range that is no longer mapped: closes files that are open nowhere else.
fn take_out(at: u64, len: u64) {
    let end = at.saturating_add(pages(len));
    let mut gone = Vec::new();
    let mut mapped = MAPPED.lock();
    for one in std::mem::take(&mut *mapped) {
        if end <= one.at || one.end <= at {
            mapped.push(one);
            continue;
        }
        if one.at < at {
            mapped.push(Mapped::new(one.at, at, one.open.clone()));
        }
        if end < one.end {
            mapped.push(Mapped::new(end, one.end, one.open.clone()));
        }
        forget(one.place);
        gone.push(one.open);
    }
    COUNT.store(mapped.len(), Ordering::Relaxed);
    drop(mapped); // closing sends messages
}

/// Reads the file into new memory.
fn fill(file: &posix::File, at: u64, len: u64, offset: u64) -> Result<i64, i32> {
    let mut done = 0;
    while done < len {
        let piece = PIECE.min((len - done) as usize);
        // SAFETY: the kernel has just returned this memory.
        let buf = unsafe { std::slice::from_raw_parts_mut((at + done) as *mut u8, piece) };
        let read = file.read_at(buf, offset + done).map_err(errno)?;
        if read == 0 {
            break;
        }
        done += read as u64;
    }
    Ok(0)
}
