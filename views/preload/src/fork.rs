//! Children of `fork`: they share offsets with their parent, and nothing of what its other threads were doing at that moment may stay locked in them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{RwLock, RwLockReadGuard};
use posix::{FileSystem, Forking};

use crate::inside::Inside;
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
}

extern "C" fn before() {
    let inside = Inside::enter();
    // In this order: who is at work may be on the way into the file system, which is closed only then.
    std::mem::forget(GATE.write());
    for (_, open) in table::all() {
        open.share();
    }
    FORKING.set(place::known_system().map(FileSystem::before_fork));
    // Until `in_parent` or `last_in_child`.
    std::mem::forget(inside);
}

/// Ends what `before` began.
fn go_on() {
    FORKING.take();
    // SAFETY: `before` locked it, in this thread or in that which this one is a copy of.
    unsafe { GATE.force_unlock_write() };
    Inside::leave();
}

extern "C" fn in_parent() {
    go_on();
}

extern "C" fn first_in_child() {
    table::own();
    if !ATTACHED.load(Ordering::Relaxed) {
        go_on();
    }
}

extern "C" fn last_in_child() {
    go_on();
}

/// To be called at the beginning.
pub fn begin() {
    // SAFETY: the handlers keep to what a handler may do.
    unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(first_in_child)) };
}

/// The store is open: its own handlers, which replace descriptors in children, are registered by now, and run before the last of ours.
pub fn attached() {
    cenote::fork_generation();
    // SAFETY: as above.
    unsafe { libc::pthread_atfork(None, None, Some(last_in_child)) };
    ATTACHED.store(true, Ordering::Relaxed);
}
