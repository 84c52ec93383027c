//! The state of the tracer in this process: its tally and its descriptors.

use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize};

use cenote_tally::{Descriptor, HeaderField, MAGIC, Tally, VERSION};

use crate::kernel;

/// Descriptors from this number on are not counted.
const DESCRIPTORS: usize = 1 << 16;
/// Longest name of the directory of tallies.
const DIR_BYTES: usize = 512;

/// Nothing is counted.
const OFF: u32 = 0;
/// `TALLY` is this process's own.
const ON: u32 = 1;
/// `TALLY` is the parent's; this process creates its own once it has something to count.
const FORKED: u32 = 2;
/// A thread is creating it.
const BUSY: u32 = 3;

static STATE: AtomicU32 = AtomicU32::new(OFF);
static TALLY: AtomicPtr<Tally> = AtomicPtr::new(std::ptr::null_mut());
static PID: AtomicI32 = AtomicI32::new(0);
/// Number of calls of `vfork`: only after one does a check by pid tell its children from this process.
pub static VFORKS: AtomicU64 = AtomicU64::new(0);
static OPEN: [Descriptor; DESCRIPTORS] = [const { Descriptor::new() }; DESCRIPTORS];
/// One more than the highest descriptor that was ever counted.
static OPEN_END: AtomicUsize = AtomicUsize::new(0);
/// The directory, in words so that no lock is needed; written once, before there is a second thread.
static DIR: [AtomicU64; DIR_BYTES / 8] = [const { AtomicU64::new(0) }; DIR_BYTES / 8];

/// Begins to count, in files of that directory.
pub fn begin(dir: &CStr) {
    let bytes = dir.to_bytes();
    if bytes.is_empty() || bytes.len() + 64 > DIR_BYTES {
        return;
    }
    for (word, piece) in DIR.iter().zip(bytes.chunks(8)) {
        let mut eight = [0; 8];
        eight[..piece.len()].copy_from_slice(piece);
        word.store(u64::from_le_bytes(eight), Relaxed);
    }
    PID.store(kernel::pid(), Relaxed);
    // SAFETY: a plain look-up; C libraries before 2.32 have no such variable.
    ALONE.store(unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr()) }, Relaxed);
    if make(false) {
        STATE.store(ON, Release);
    }
}

/// The name of this process's file.
fn file_name(buffer: &mut [u8; DIR_BYTES], pid: i32, now_ns: u64) -> Option<&CStr> {
    let mut len = 0;
    'dir: for word in &DIR {
        for byte in word.load(Relaxed).to_le_bytes() {
            if byte == 0 {
                break 'dir;
            }
            buffer[len] = byte;
            len += 1;
        }
    }
    let mut push = |bytes: &[u8]| {
        let room = buffer.get_mut(len..len + bytes.len())?;
        room.copy_from_slice(bytes);
        len += bytes.len();
        Some(())
    };
    let mut digits = [0; 20];
    push(b"/")?;
    push(kernel::decimal(pid as u64, &mut digits))?;
    push(b"-")?;
    push(kernel::decimal(now_ns, &mut digits))?;
    push(b".tally\0")?;
    CStr::from_bytes_until_nul(&buffer[..len]).ok()
}

/// Creates this process's file and maps it.
fn make(is_forked: bool) -> bool {
    let (pid, now_ns) = (PID.load(Relaxed), kernel::now_ns());
    let mut buffer = [0; DIR_BYTES];
    let made = file_name(&mut buffer, pid, now_ns).and_then(|name| kernel::mapped_file(name, Tally::BYTES));
    let Some(at) = made else { return false };
    let tally = at.cast::<Tally>();
    // SAFETY: a mapping of that size, aligned to pages, full of zeros; a tally is atomic words, for which all bytes are
    // valid. It is never unmapped while this process uses it.
    let new = unsafe { &*tally };
    new.set_header(HeaderField::Version, VERSION);
    new.set_header(HeaderField::Pid, pid as u64);
    // SAFETY: no arguments.
    new.set_header(HeaderField::Parent, unsafe { libc::syscall(libc::SYS_getppid) } as u64);
    new.set_header(HeaderField::BeginNs, now_ns);
    new.set_header(HeaderField::Forked, u64::from(is_forked));
    command(new);
    new.set_header(HeaderField::Magic, MAGIC);
    TALLY.store(tally, Release);
    true
}

/// Records the command line.
fn command(tally: &Tally) {
    let mut buffer = [0u8; 512];
    // SAFETY: plain calls; the descriptor is ours, the buffer has the given length.
    let len = unsafe {
        let path = c"/proc/self/cmdline";
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
        if fd < 0 {
            return;
        }
        let len = libc::syscall(libc::SYS_read, fd, buffer.as_mut_ptr(), buffer.len());
        libc::syscall(libc::SYS_close, fd);
        len
    };
    let Some(line) = usize::try_from(len).ok().and_then(|len| buffer.get_mut(..len)) else { return };
    for byte in line.iter_mut() {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    tally.set_command(line.trim_ascii_end());
}

/// Runs in a child of `fork`, before anything else: the tally is not the child's own.
pub extern "C" fn forked() {
    PID.store(kernel::pid(), Relaxed);
    VFORKS.store(0, Relaxed);
    if STATE.load(Relaxed) != OFF {
        STATE.store(FORKED, Relaxed);
    }
}

/// The tally, if anything is to be counted; creates it if needed.
#[inline]
pub fn tally() -> Option<&'static Tally> {
    match STATE.load(Acquire) {
        // SAFETY: in this state it is mapped, and stays so.
        ON => unsafe { TALLY.load(Relaxed).as_ref() },
        FORKED => own(),
        _ => None,
    }
}

/// The tally, if this process already has one; for counts that do not justify creating it.
#[inline]
pub fn own_tally() -> Option<&'static Tally> {
    if STATE.load(Acquire) == ON { tally() } else { None }
}

/// Creates a tally for a child of `fork`: the same open files, nothing counted.
#[cold]
fn own() -> Option<&'static Tally> {
    STATE.compare_exchange(FORKED, BUSY, Acquire, Relaxed).ok()?;
    let _errno = kernel::Errno::keep();
    let old = TALLY.load(Relaxed);
    if !make(true) {
        STATE.store(OFF, Release);
        return None;
    }
    // SAFETY: the parent's tally is mapped until it is unmapped below, the new one was just created.
    let (parent, new) = unsafe { (&*old, &*TALLY.load(Relaxed)) };
    for descriptor in &OPEN[..OPEN_END.load(Relaxed)] {
        let Some(slot) = descriptor.slot().and_then(|slot| parent.files.get(slot)) else { continue };
        let moved = new.file(slot.key_value().max(1));
        if let Some((at, true)) = moved {
            new.files[at].name_like(slot);
        }
        descriptor.move_to(moved.map(|(at, _)| at));
    }
    kernel::unmap(old.cast::<c_void>(), Tally::BYTES);
    STATE.store(ON, Release);
    Some(new)
}

/// The C library's flag for a single thread; null if it has none.
static ALONE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Returns true if this process has one thread.
#[inline]
pub fn is_alone() -> bool {
    let at = ALONE.load(Relaxed).cast::<u8>();
    // SAFETY: a variable of the C library, which stays; the thread that starts another thread changes it.
    !at.is_null() && unsafe { at.read_volatile() } != 0
}

/// Returns true in a child of `vfork`, whose memory is its parent's.
#[inline]
pub fn is_borrowed() -> bool {
    VFORKS.load(Relaxed) != 0 && kernel::pid() != PID.load(Relaxed)
}

/// A descriptor, whether it is counted or not.
#[inline]
pub fn any_descriptor(fd: c_int) -> Option<&'static Descriptor> {
    OPEN.get(usize::try_from(fd).ok()?)
}

/// A descriptor that is counted, with the tally.
#[inline]
pub fn descriptor(fd: c_int) -> Option<(&'static Tally, &'static Descriptor)> {
    let descriptor = any_descriptor(fd)?;
    descriptor.slot()?;
    let tally = tally()?;
    Some((tally, descriptor))
}

/// All descriptors that may be counted.
pub fn descriptors() -> &'static [Descriptor] {
    &OPEN[..OPEN_END.load(Relaxed)]
}

/// Counts a descriptor from now on.
pub fn set_descriptor(fd: c_int, slot: Option<usize>) {
    if let Some(descriptor) = any_descriptor(fd) {
        descriptor.set(slot);
        OPEN_END.fetch_max(fd as usize + 1, Relaxed);
    }
}

/// Copies a descriptor's state to its duplicate.
pub fn copy_descriptor(from: c_int, to: c_int) {
    if let (Some(from), Some(descriptor)) = (any_descriptor(from), any_descriptor(to)) {
        descriptor.copy_from(from);
        OPEN_END.fetch_max(to as usize + 1, Relaxed);
    }
}

/// Handles the program's normal exit.
pub fn ended() {
    // A child that counted nothing has no tally to end.
    if !is_borrowed()
        && let Some(tally) = own_tally()
    {
        tally.set_header(HeaderField::EndNs, kernel::now_ns());
    }
}
