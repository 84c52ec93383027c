//! Children of `fork`: they share offsets with their parent, and must not inherit locks that other threads held at that
//! moment.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use posix::{FileSystem, Forking};

use crate::inside::{self, Inside};
use crate::{context, table};

/// Read-locked by calls in progress in the store, write-locked by `fork`. The lock of the standard library: a thread
/// that waits for one of `parking_lot` is in a table of the whole process, whose own locks another thread may hold at
/// the moment of the fork, and the child needs those locks to open the gate.
static GATE: RwLock<()> = RwLock::new(());
/// True if a store is open in which other threads may have calls in progress.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// A call in progress: `fork` waits until it is dropped.
pub struct AtWork {
    _gate: Option<RwLockReadGuard<'static, ()>>,
    _stays_here: PhantomData<*const ()>,
}

/// Registers a call in progress. A nested call does not wait, even if a thread wants to fork.
#[inline]
pub fn at_work() -> AtWork {
    let depth = DEPTH.get();
    DEPTH.set(depth + 1);
    let gate = || GATE.read().unwrap_or_else(PoisonError::into_inner);
    AtWork { _gate: (depth == 0).then(gate), _stays_here: PhantomData }
}

impl Drop for AtWork {
    #[inline]
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Keeps other threads out of the file system, and waits for calls in progress, while this thread forks.
type Closed = (Option<Forking>, RwLockWriteGuard<'static, ()>);

thread_local! {
    /// Nesting depth of calls in progress.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static FORKING: Cell<Option<Closed>> = const { Cell::new(None) };
    /// True if this thread forks for the program.
    static FORKS: Cell<bool> = const { Cell::new(false) };
}

unsafe extern "C" {
    fn _IO_list_lock();
    fn _IO_list_unlock();
    fn _IO_list_resetlock();
}

extern "C" fn before() {
    if is_own() {
        return;
    }
    // The C library takes this lock later, and a thread that flushes streams holds it when it calls this library: so
    // take it first. SAFETY: a lock that one thread may take several times.
    unsafe { _IO_list_lock() };
    let inside = Inside::enter();
    // The order matters: a call in progress may be about to enter the file system, which is closed afterwards.
    let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    for (_, open) in table::all() {
        open.share();
    }
    FORKING.set(Some((context::known_system().map(FileSystem::before_fork), gate)));
    FORKS.set(true);
    // Stays in effect until `in_parent` or `last_in_child`.
    std::mem::forget(inside);
}

/// Returns true where this library's own code creates a process, to execute a program: that process does not use the
/// store, and operations in progress may wait for it.
fn is_own() -> bool {
    inside::is_inside() && !FORKS.get()
}

/// Ends what `before` began.
fn go_on() {
    FORKS.set(false);
    drop(FORKING.take());
    Inside::leave();
}

extern "C" fn in_parent() {
    if is_own() {
        return;
    }
    go_on();
    // SAFETY: `before` took it.
    unsafe { _IO_list_unlock() };
}

extern "C" fn first_in_child() {
    if is_own() {
        return;
    }
    // SAFETY: this is the only thread; the C library has reset the lock itself where there were others.
    unsafe { _IO_list_resetlock() };
    table::own();
    if !ATTACHED.load(Ordering::Relaxed) {
        go_on();
    }
}

extern "C" fn last_in_child() {
    if !is_own() {
        go_on();
    }
}

/// Registers the handlers; call it at the start.
pub fn begin() {
    // SAFETY: the handlers only do what a handler may do. The memory's lock is taken last and released first.
    unsafe {
        dlmalloc::enable_alloc_after_fork();
        libc::pthread_atfork(Some(before), Some(in_parent), Some(first_in_child));
    }
}

/// Registers the last handler once the store is open: the store's own handlers, which replace descriptors in children,
/// are registered by now and run before it.
pub fn attached() {
    cenote_host::fork::generation();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, None, Some(last_in_child)) };
    ATTACHED.store(true, Ordering::Relaxed);
}
