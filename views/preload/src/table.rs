//! The store's descriptors, and their descriptions.
//!
//! Each is a descriptor of the kernel as well (`O_PATH`, so that whoever asks the kernel about it gets an error and never empty data):
//! numbers, `dup`, close-on-exec
//! and inheritance are the kernel's. A child of `vfork` has descriptors of its own but its parent's memory: what it changes is kept beside.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use parking_lot::Mutex;

use crate::context::Cwd;
use crate::description::Description;
use crate::{kernel, memory, shared};

/// Upper bound of the store's descriptors' numbers.
pub const FDS: usize = 1 << 20;

type Slot = ArcSwapOption<Description>;

static TABLE: [Slot; FDS] = [const { ArcSwapOption::const_empty() }; FDS];
/// The table, for the entry point.
pub static CENOTE_TABLE: &[Slot; FDS] = &TABLE;
/// Number of tables of `vfork` children that may still matter: while there are any, the entry point takes no short cut.
pub static CENOTE_OVERLAYS: AtomicU32 = AtomicU32::new(0);

/// The process that the table belongs to.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The changes of a `vfork` child.
#[derive(Default)]
pub struct Overlay {
    pid: i32,
    fds: HashMap<i32, Option<Arc<Description>>>,
    /// Its working directory, if it changed that: one in the store, or another.
    #[expect(clippy::option_option, reason = "not changed, changed to one that is not ours, changed to ours")]
    pub cwd: Option<Option<Arc<Cwd>>>,
}

static OVERLAYS: Mutex<Vec<Overlay>> = Mutex::new(Vec::new());

thread_local! {
    /// Set if this thread is or was in a child of `vfork` that changed something.
    static BEFORE: Cell<i32> = const { Cell::new(0) };
}

/// Makes the table this process's. At the start, and in a child of `fork`.
pub fn own() {
    memory::own();
    OWNER.store(kernel::pid(), Ordering::Relaxed);
    if CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0 {
        OVERLAYS.lock().clear();
        CENOTE_OVERLAYS.store(0, Ordering::Relaxed);
    }
    BEFORE.set(0);
}

/// Returns false in a child of `vfork`.
pub fn is_of_this_process() -> bool {
    OWNER.load(Ordering::Relaxed) == kernel::pid()
}

/// Runs `with` on the changes of this child of `vfork`, if it has made any.
pub fn with_overlay<T>(with: impl FnOnce(&mut Overlay) -> T) -> Option<T> {
    let pid = BEFORE.get();
    if pid == 0 {
        return None;
    }
    if kernel::pid() == pid {
        return OVERLAYS.lock().iter_mut().find(|overlay| overlay.pid == pid).map(with);
    }
    // Back in the parent: the child has executed another program, or is gone.
    BEFORE.set(0);
    let gone = {
        let mut all = OVERLAYS.lock();
        let at = all.iter().position(|overlay| overlay.pid == pid);
        at.map(|at| all.swap_remove(at))
    };
    if gone.is_some() {
        CENOTE_OVERLAYS.fetch_sub(1, Ordering::Relaxed);
    }
    None
}

/// Runs `with` on the changes of this child of `vfork`; `None` if this process is no such child.
pub fn with_new_overlay<T>(with: impl FnOnce(&mut Overlay) -> T) -> Option<T> {
    let pid = kernel::pid();
    if pid == OWNER.load(Ordering::Relaxed) {
        with_overlay(|_| ()); // it may be over
        return None;
    }
    if BEFORE.get() != pid {
        with_overlay(|_| ());
        BEFORE.set(pid);
        OVERLAYS.lock().push(Overlay { pid, ..Overlay::default() });
        CENOTE_OVERLAYS.fetch_add(1, Ordering::Relaxed);
    }
    with_overlay(with)
}

/// The description of a descriptor of the store.
pub enum Held {
    /// From the table.
    Guard(Guard<Option<Arc<Description>>>),
    /// From the changes of a `vfork` child.
    Own(Arc<Description>),
}

impl std::ops::Deref for Held {
    type Target = Arc<Description>;
    #[inline]
    fn deref(&self) -> &Arc<Description> {
        match self {
            Self::Guard(guard) => guard.as_ref().expect("checked when it was made"),
            Self::Own(own) => own,
        }
    }
}

/// The description of the descriptor, if it is one of the store's.
#[inline]
pub fn get(fd: i32) -> Option<Held> {
    let slot = TABLE.get(fd as u32 as usize)?;
    if CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0
        && let Some(found) = with_overlay(|overlay| overlay.fds.get(&fd).cloned()).flatten()
    {
        return found.map(Held::Own);
    }
    let guard = slot.load();
    guard.is_some().then_some(Held::Guard(guard))
}

/// Returns true if the descriptor may be one of the store's; reads one word. In a child of `vfork` a closer check is
/// needed.
#[inline]
pub fn may_be_ours(fd: i32) -> bool {
    let Some(slot) = TABLE.get(fd as u32 as usize) else { return false };
    // SAFETY: the slot is one word that is changed atomically, which the entry point also relies on.
    let word = unsafe { AtomicPtr::from_ptr(std::ptr::from_ref(slot).cast_mut().cast::<*mut ()>()) };
    !word.load(Ordering::Acquire).is_null() || is_changed()
}

/// Returns true if this thread is or was in a child of `vfork` that changed something.
#[inline]
pub fn is_changed() -> bool {
    CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0 && BEFORE.get() != 0
}

/// Sets a descriptor's description, or removes it; returns the previous one.
pub fn set(fd: i32, to: Option<Arc<Description>>) -> Option<Arc<Description>> {
    let slot = TABLE.get(fd as u32 as usize)?;
    let mut to = Some(to);
    let before = get(fd).map(|held| Arc::clone(&held));
    if with_new_overlay(|overlay| overlay.fds.insert(fd, to.take().flatten())).is_some() {
        return before;
    }
    slot.swap(to.flatten())
}

/// All descriptors of the store, in order.
pub fn all() -> Vec<(i32, Arc<Description>)> {
    let most = HIGHEST.load(Ordering::Relaxed).min(FDS as i32 - 1);
    (0..=most).filter_map(|fd| get(fd).map(|held| (fd, Arc::clone(&held)))).collect()
}

/// Highest descriptor of the store so far.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// Assigns the least free number to a new description.
pub fn add(description: Arc<Description>, flags: i32, least: i32) -> Result<i32, i32> {
    let command = if flags & libc::O_CLOEXEC == 0 { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
    let fd = kernel::simple_or(libc::SYS_fcntl, &[placeholder()? as u64, command as u64, least as u64])? as i32;
    if fd as usize >= FDS {
        kernel::close(fd);
        return Err(libc::EMFILE);
    }
    put(fd, description);
    Ok(fd)
}

/// Sets the description of a descriptor that the kernel has created.
pub fn put(fd: i32, description: Arc<Description>) {
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    if is_of_this_process() {
        shared::ready();
    }
    set(fd, Some(description));
}

/// Closes a descriptor, here and in the kernel.
pub fn close(fd: i32) -> Result<i64, i32> {
    let gone = set(fd, None);
    // The kernel may reuse the number only when it is no longer in the table.
    kernel::close(fd);
    let Some(gone) = gone else { return Ok(0) };
    gone.closed(Arc::strong_count(&gone) == 1).map(|()| 0)
}

/// The descriptor that the store's descriptors are duplicates of: it can be neither read nor written.
pub fn placeholder() -> Result<i32, i32> {
    static FD: AtomicI32 = AtomicI32::new(-1);
    let fd = FD.load(Ordering::Relaxed);
    if fd >= 0 {
        return Ok(fd);
    }
    let made = kernel::open(c"/dev/null", libc::O_PATH | libc::O_CLOEXEC)?;
    let made = crate::inside::move_away(made);
    match FD.compare_exchange(-1, made, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => Ok(made),
        Err(first) => {
            crate::inside::forget(made);
            kernel::close(made);
            Ok(first)
        }
    }
}
