//! Children of `fork`: they share offsets with their parent, and nothing of what its other threads were doing at that moment may stay locked in them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use posix::{FileSystem, Forking};

use crate::inside::{self, Inside};
use crate::{place, table};

/// Held for reading by calls that are at work in the store, for writing by `fork`.
static GATE: RwLock<()> = RwLock::new(());
/// There is a store that others than the forking thread may be at work in.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// A call that is at work: `fork` waits until it is dropped.
#[inline]
pub fn at_work() -> RwLockReadGuard<'static, ()> {
    GATE.read_recursive()
}

thread_local! {
    /// Keeps other threads out of the file system while this one forks.
    static FORKING: Cell<Option<Forking>> = const { Cell::new(None) };
    /// This thread forks for the program.
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
    // The C library takes this lock after us, and a thread that flushes streams holds it while it comes to us: so it
    // is taken before. SAFETY: a lock that one thread may take several times.
    unsafe { _IO_list_lock() };
    let inside = Inside::enter();
    // In this order: who is at work may be on the way into the file system, which is closed only then.
    std::mem::forget(GATE.write());
    for (_, open) in table::all() {
        open.share();
    }
    FORKING.set(place::known_system().map(FileSystem::before_fork));
    FORKS.set(true);
    // Until `in_parent` or `last_in_child`.
    std::mem::forget(inside);
}

/// True where our own code makes a process, for a program of its own: nothing of the store goes on in that, and what
/// is under way may wait for it.
fn is_own() -> bool {
    inside::is_inside() && !FORKS.get()
}

/// Ends what `before` began.
fn go_on() {
    FORKS.set(false);
    FORKING.take();
    // SAFETY: `before` locked it, in this thread or in that which this one is a copy of.
    unsafe { GATE.force_unlock_write() };
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
    // SAFETY: this is the only thread; the C library has done so itself where there were others.
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

/// To be called at the beginning.
pub fn begin() {
    // SAFETY: the handlers keep to what a handler may do. Our memory's lock is taken last and given back first.
    unsafe {
        dlmalloc::enable_alloc_after_fork();
        libc::pthread_atfork(Some(before), Some(in_parent), Some(first_in_child));
    }
}

/// The store is open: its own handlers, which replace descriptors in children, are registered by now, and run before the last of ours.
pub fn attached() {
    cenote::fork_generation();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, None, Some(last_in_child)) };
    ATTACHED.store(true, Ordering::Relaxed);
}
