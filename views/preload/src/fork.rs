//! Children of `fork`: they share offsets with their parent, and nothing of what its other threads were doing at that moment may stay locked in them.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use posix::{FileSystem, Forking};

use crate::inside::{self, Inside};
use crate::{place, table};

/// Held for reading by calls that are at work in the store, for writing by `fork`. The standard library's: who waits for one
/// of `parking_lot` is in a table of the whole process, whose own locks another thread may hold at the moment of the fork, and
/// the child that opens the gate needed them.
static GATE: RwLock<()> = RwLock::new(());
/// There is a store that others than the forking thread may be at work in.
static ATTACHED: AtomicBool = AtomicBool::new(false);

/// A call that is at work: `fork` waits until it is dropped.
pub struct AtWork {
    _gate: Option<RwLockReadGuard<'static, ()>>,
    _stays_here: PhantomData<*const ()>,
}

/// A call is at work from now on. One within another waits for nobody, although somebody may want to fork.
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

/// Keeps other threads out while this one forks: of the file system, and of all that is at work.
type Closed = (Option<Forking>, RwLockWriteGuard<'static, ()>);

thread_local! {
    /// Calls that are at work within one another.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    static FORKING: Cell<Option<Closed>> = const { Cell::new(None) };
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
    let gate = GATE.write().unwrap_or_else(PoisonError::into_inner);
    for (_, open) in table::all() {
        open.share();
    }
    FORKING.set(Some((place::known_system().map(FileSystem::before_fork), gate)));
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
