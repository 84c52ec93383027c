//! Separates this library's own code from the program while it serves a call: its calls go to the kernel, its
//! descriptors stay out of the program's way, and its threads get no signals.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

use crate::{kernel, threads};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Returns true while this thread runs this library's code.
#[inline]
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// Returns true if that was so before the present call.
#[inline]
pub fn was_inside() -> bool {
    DEPTH.get() > 1
}

/// A guard: while it lives, this thread's calls are this library's own.
pub struct Inside(());

impl Inside {
    /// Begins a section.
    #[inline]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
    /// Runs a function from which this thread may not return, although its parent does in the same memory (a child of
    /// `vfork`): outside of all sections.
    pub fn outside<T>(run: impl FnOnce() -> T) -> T {
        let depth = DEPTH.get();
        DEPTH.set(depth - 1);
        let result = run();
        DEPTH.set(depth);
        result
    }
    /// Ends a section whose guard was forgotten.
    pub fn leave() {
        DEPTH.set(DEPTH.get() - 1);
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

thread_local! {
    static LOCKING: Cell<bool> = const { Cell::new(false) };
}

/// A guard: this thread waits for a lock, by a descriptor of this library, although no section is open.
pub struct Locking(());

impl Locking {
    /// Begins the wait.
    pub fn begin() -> Self {
        LOCKING.set(true);
        Self(())
    }
    /// Returns true in a thread that waits so, and in a signal handler that interrupts it.
    pub fn is_under_way() -> bool {
        LOCKING.get()
    }
}

impl Drop for Locking {
    fn drop(&mut self) {
        LOCKING.set(false);
    }
}

thread_local! {
    static STAYING: Cell<bool> = const { Cell::new(false) };
}

/// A guard: while it lives, descriptors that this thread opens for the library keep their numbers, although the program
/// may come across them.
pub struct Staying(());

impl Staying {
    /// Begins a section.
    pub fn begin() -> Self {
        STAYING.set(true);
        Self(())
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        STAYING.set(false);
    }
}

/// Size of the range for this library's descriptors.
const ROOM: usize = 4096;
static FLOOR: AtomicI32 = AtomicI32::new(i32::MAX);
static OURS: [AtomicBool; ROOM] = [const { AtomicBool::new(false) }; ROOM];

/// Chooses the range for this library's descriptors: just below the limit, which programs reach last.
pub fn begin() {
    real();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    kernel::simple(libc::SYS_getrlimit, &[u64::from(libc::RLIMIT_NOFILE), (&raw mut limit) as u64]);
    let most = limit.rlim_cur.min(crate::table::FDS as u64);
    let room = (most / 8).clamp(32, ROOM as u64).min(most / 2);
    FLOOR.store((most - room).min(FLOOR_MOST) as i32, Relaxed);
}

/// Occupies numbers below `floor`, so that descriptors opened meanwhile come above: the client enters the kernel by
/// itself for most descriptors.
pub struct Occupied(Vec<i32>);

impl Occupied {
    /// Takes all free numbers.
    pub fn all() -> Self {
        let mut taken = Vec::new();
        let Ok(placeholder) = crate::table::placeholder() else { return Self(taken) };
        loop {
            let arguments = [placeholder as u64, libc::F_DUPFD_CLOEXEC as u64, 0];
            let fd = kernel::simple(libc::SYS_fcntl, &arguments) as i32;
            if fd < 0 {
                return Self(taken);
            }
            if fd >= floor() {
                kernel::close(fd);
                return Self(taken);
            }
            taken.push(fd);
        }
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        for run in self.0.chunk_by(|one, next| one + 1 == *next) {
            let (first, last) = (run[0] as u64, run[run.len() - 1] as u64);
            if kernel::simple(libc::SYS_close_range, &[first, last, 0]) < 0 {
                for fd in run {
                    kernel::close(*fd);
                }
            }
        }
        // The descriptors above are ours.
        for (index, slot) in OURS.iter().enumerate() {
            let fd = floor() as u64 + index as u64;
            if kernel::simple(libc::SYS_fcntl, &[fd, libc::F_GETFD as u64]) >= 0 {
                slot.store(true, Relaxed);
            } else if index > NEVER_SO_MANY {
                break;
            }
        }
    }
}

/// More than the client opens while it attaches.
const NEVER_SO_MANY: usize = 64;
/// Upper bound of the first number where many are available: occupying all numbers below is fast.
const FLOOR_MOST: u64 = 960;

/// Least number of this library's descriptors.
pub fn floor() -> i32 {
    FLOOR.load(Relaxed)
}

fn slot(fd: i32) -> Option<&'static AtomicBool> {
    OURS.get(usize::try_from(fd.checked_sub(floor())?).ok()?)
}

/// Returns true if the descriptor is one of this library's.
pub fn is_ours(fd: i32) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Relaxed))
}

/// Records that one of them is closed.
pub fn forget(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.store(false, Relaxed);
    }
}

/// Moves a new descriptor out of the program's way; returns its new number.
pub fn move_away(fd: i32) -> i32 {
    if fd < 0 || fd >= floor() {
        if let Some(slot) = slot(fd) {
            slot.store(true, Relaxed);
        }
        return fd;
    }
    if STAYING.get() {
        return fd;
    }
    let high = kernel::simple(libc::SYS_fcntl, &[fd as u64, libc::F_DUPFD_CLOEXEC as u64, floor() as u64]) as i32;
    let Some(slot) = slot(high) else { return fd };
    slot.store(true, Relaxed);
    kernel::close(fd);
    high
}

type Start = extern "C" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut c_void, *const c_void, Start, *mut c_void) -> i32;

/// The work of a thread of this library.
struct Work(Start, *mut c_void);

extern "C" fn work(of: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below made it from a box.
    let Work(start, argument) = *unsafe { Box::from_raw(of.cast::<Work>()) };
    DEPTH.set(1);
    start(argument)
}

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's function, looked up at the start: the look-up waits for the loader.
fn real() -> Create {
    let mut real = REAL.load(Relaxed);
    if real.is_null() {
        real = threads::next(c"pthread_create");
        REAL.store(real, Relaxed);
    }
    // SAFETY: the symbol is a function of that type.
    unsafe { std::mem::transmute(real) }
}

/// Intercepts `pthread_create`: threads that this library's code starts are its own for good, and leave signals to the
/// program's threads.
///
/// # Safety
/// As `pthread_create`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: Start,
    argument: *mut c_void,
) -> i32 {
    let real = real();
    // SAFETY: as the caller promises; the mask is restored.
    unsafe {
        if !is_inside() {
            return real(thread, attributes, start, argument);
        }
        // All but the two signals with which the C library reaches every thread.
        let (all, mut before) = (!(3_u64 << 31), 0_u64);
        let mask = |set: *const u64, old: *mut u64| {
            kernel::simple(libc::SYS_rt_sigprocmask, &[libc::SIG_SETMASK as u64, set as u64, old as u64, 8])
        };
        mask(&raw const all, &raw mut before);
        let made = Box::into_raw(Box::new(Work(start, argument)));
        let result = real(thread, attributes, work, made.cast());
        if result != 0 {
            drop(Box::from_raw(made));
        }
        mask(&raw const before, std::ptr::null_mut());
        result
    }
}
