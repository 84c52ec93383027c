//! What our own code does while it serves a call is not the program's: its calls go to the kernel, its descriptors stay out of the program's way, and its
//! threads hear no signals.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, Ordering::Relaxed};

use crate::{kernel, threads};

thread_local! {
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// True while this thread carries out something of ours.
#[inline]
pub fn is_inside() -> bool {
    DEPTH.get() > 0
}

/// True if that was so before the call that is served now.
#[inline]
pub fn was_inside() -> bool {
    DEPTH.get() > 1
}

/// From here until it is dropped this thread's calls are ours.
pub struct Inside(());

impl Inside {
    /// Begins.
    #[inline]
    pub fn enter() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self(())
    }
    /// Runs what this thread may not come back from, but its parent's in the same memory does (a child of `vfork`): for that nothing of ours is under way.
    pub fn outside<T>(run: impl FnOnce() -> T) -> T {
        let depth = DEPTH.get();
        DEPTH.set(depth - 1);
        let result = run();
        DEPTH.set(depth);
        result
    }
    /// Ends one that was forgotten.
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

/// While this lives the thread waits for a lock, by a descriptor of ours, although nothing of ours is under way.
pub struct Locking(());

impl Locking {
    /// Begins.
    pub fn begin() -> Self {
        LOCKING.set(true);
        Self(())
    }
    /// True in a thread that waits so, and in a signal handler that interrupts it.
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

/// While this lives, what this thread opens for us stays under the number that it has, where the program may come across it.
pub struct Staying(());

impl Staying {
    /// Begins.
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

/// Descriptors of ours lie from here on, at most so many.
const ROOM: usize = 4096;
static FLOOR: AtomicI32 = AtomicI32::new(i32::MAX);
static OURS: [AtomicBool; ROOM] = [const { AtomicBool::new(false) }; ROOM];

/// Finds out where our own descriptors go: just below the limit, where programs come last.
pub fn begin() {
    real();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    kernel::simple(libc::SYS_getrlimit, &[u64::from(libc::RLIMIT_NOFILE), (&raw mut limit) as u64]);
    let most = limit.rlim_cur.min(crate::table::FDS as u64);
    let room = (most / 8).clamp(32, ROOM as u64).min(most / 2);
    FLOOR.store((most - room).min(FLOOR_MOST) as i32, Relaxed);
}

/// Numbers below `floor` that are taken meanwhile, so that what is opened comes behind: the client enters the kernel by itself for most descriptors.
pub struct Occupied(Vec<i32>);

impl Occupied {
    /// Takes all that are free.
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
        // What came behind is ours.
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

/// The client opens fewer while it attaches.
const NEVER_SO_MANY: usize = 64;
/// The first number of ours where there are many: taking all below is quick.
const FLOOR_MOST: u64 = 960;

/// The least number that a descriptor of ours has.
pub fn floor() -> i32 {
    FLOOR.load(Relaxed)
}

fn slot(fd: i32) -> Option<&'static AtomicBool> {
    OURS.get(usize::try_from(fd.checked_sub(floor())?).ok()?)
}

/// True if the descriptor is one of ours.
pub fn is_ours(fd: i32) -> bool {
    slot(fd).is_some_and(|slot| slot.load(Relaxed))
}

/// One of ours is closed.
pub fn forget(fd: i32) {
    if let Some(slot) = slot(fd) {
        slot.store(false, Relaxed);
    }
}

/// Moves a new descriptor of ours out of the way; where it is then.
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

/// What a thread of ours does.
struct Work(Start, *mut c_void);

extern "C" fn work(of: *mut c_void) -> *mut c_void {
    // SAFETY: `pthread_create` below made it from a box.
    let Work(start, argument) = *unsafe { Box::from_raw(of.cast::<Work>()) };
    DEPTH.set(1);
    start(argument)
}

static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// The C library's function, found at the start: looking for it waits for the loader.
fn real() -> Create {
    let mut real = REAL.load(Relaxed);
    if real.is_null() {
        real = threads::next(c"pthread_create");
        REAL.store(real, Relaxed);
    }
    // SAFETY: the symbol is a function of that type.
    unsafe { std::mem::transmute(real) }
}

/// Stands before the C library's: threads that our own code starts are ours for good, and leave signals to the program's.
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
    // SAFETY: as our caller promises; the mask is put back.
    unsafe {
        if !is_inside() {
            return real(thread, attributes, start, argument);
        }
        // All but the two with which the C library reaches every thread.
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
