//! Which descriptors are ours, and what they lead to.
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

use crate::description::Description;
use crate::place::Cwd;
use crate::{kernel, memory, shared};

/// Descriptors from this number on are never ours.
pub const FDS: usize = 1 << 20;

type Slot = ArcSwapOption<Description>;

static TABLE: [Slot; FDS] = [const { ArcSwapOption::const_empty() }; FDS];
/// The table, for the entry.
pub static CENOTE_TABLE: &[Slot; FDS] = &TABLE;
/// Tables of children of `vfork` that may still be of interest: the entry takes no short cut then.
pub static CENOTE_OVERLAYS: AtomicU32 = AtomicU32::new(0);

/// The process whose table it is.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// What a child of `vfork` changed.
#[derive(Default)]
pub struct Overlay {
    pid: i32,
    fds: HashMap<i32, Option<Arc<Description>>>,
    /// Its working directory, if it changed that: one of ours, or another.
    #[expect(clippy::option_option, reason = "not changed, changed to one that is not ours, changed to ours")]
    pub cwd: Option<Option<Arc<Cwd>>>,
}

static OVERLAYS: Mutex<Vec<Overlay>> = Mutex::new(Vec::new());

thread_local! {
    /// This thread is or was in a child of `vfork` that changed something.
    static BEFORE: Cell<i32> = const { Cell::new(0) };
}

/// This process is what the table is of. At the beginning, and in a child of `fork`.
pub fn own() {
    memory::own();
    OWNER.store(kernel::pid(), Ordering::Relaxed);
    if CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0 {
        OVERLAYS.lock().clear();
        CENOTE_OVERLAYS.store(0, Ordering::Relaxed);
    }
    BEFORE.set(0);
}

/// False in a child of `vfork`.
pub fn is_of_this_process() -> bool {
    OWNER.load(Ordering::Relaxed) == kernel::pid()
}

/// Runs `with` on what this child of `vfork` changed, if it is one that did.
pub fn with_overlay<T>(with: impl FnOnce(&mut Overlay) -> T) -> Option<T> {
    let pid = BEFORE.get();
    if pid == 0 {
        return None;
    }
    if kernel::pid() == pid {
        return OVERLAYS.lock().iter_mut().find(|overlay| overlay.pid == pid).map(with);
    }
    // Back in the parent: the child is another program now, or gone.
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

/// Runs `with` on what this child of `vfork` changed; none if this is no such child.
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

/// What a descriptor leads to, if it is ours.
pub enum Held {
    /// As it is in the table.
    Guard(Guard<Option<Arc<Description>>>),
    /// Of a child of `vfork`.
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

/// What the descriptor leads to, if it is ours.
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

/// True if the descriptor may lead to us: told by a look at one word. A child of `vfork` has to look closer.
#[inline]
pub fn may_be_ours(fd: i32) -> bool {
    let Some(slot) = TABLE.get(fd as u32 as usize) else { return false };
    // SAFETY: the slot is one word that is changed at once, as the entry has it too.
    let word = unsafe { AtomicPtr::from_ptr(std::ptr::from_ref(slot).cast_mut().cast::<*mut ()>()) };
    !word.load(Ordering::Acquire).is_null() || is_changed()
}

/// This thread is or was in a child of `vfork` that changed something.
#[inline]
pub fn is_changed() -> bool {
    CENOTE_OVERLAYS.load(Ordering::Relaxed) > 0 && BEFORE.get() != 0
}

/// The descriptor leads there from now on, or is not ours any more. What it led to before.
pub fn set(fd: i32, to: Option<Arc<Description>>) -> Option<Arc<Description>> {
    let slot = TABLE.get(fd as u32 as usize)?;
    let mut to = Some(to);
    let before = get(fd).map(|held| Arc::clone(&held));
    if with_new_overlay(|overlay| overlay.fds.insert(fd, to.take().flatten())).is_some() {
        return before;
    }
    slot.swap(to.flatten())
}

/// All that are ours, in order.
pub fn all() -> Vec<(i32, Arc<Description>)> {
    let most = HIGHEST.load(Ordering::Relaxed).min(FDS as i32 - 1);
    (0..=most).filter_map(|fd| get(fd).map(|held| (fd, Arc::clone(&held)))).collect()
}

/// No descriptor above this was ever ours.
static HIGHEST: AtomicI32 = AtomicI32::new(-1);

/// Gives what was opened the least free number.
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

/// A descriptor that the kernel has made leads there.
pub fn put(fd: i32, description: Arc<Description>) {
    HIGHEST.fetch_max(fd, Ordering::Relaxed);
    if is_of_this_process() {
        shared::ready();
    }
    set(fd, Some(description));
}

/// What is to be closed goes, of ours and of the kernel's.
pub fn close(fd: i32) -> Result<i64, i32> {
    let gone = set(fd, None);
    // The number may be given away by the kernel only when it is not in the table any more.
    kernel::close(fd);
    let Some(gone) = gone else { return Ok(0) };
    gone.closed(Arc::strong_count(&gone) == 1).map(|()| 0)
}

/// What descriptors of ours are copies of: nothing can be read from it or written to it.
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
