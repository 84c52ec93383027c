//! Offsets shared between processes: for descriptions inherited by `fork` or through `exec`.
//!
//! They lie in a memory file, which children have mapped (`fork`) or get as a descriptor (`exec`).

use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::{inside, kernel, table};

/// Bytes of the file: untouched pages cost nothing.
const LEN: usize = 16 << 20;
/// Steps to wait for an offset's holder before checking that its process lives.
const PATIENCE: u32 = 1000;

/// The offset of one description.
#[repr(C, align(16))]
pub struct Shared {
    offset: AtomicU64,
    /// The process that uses it; 0: nobody.
    holder: AtomicI32,
    _unused: u32,
}

/// The beginning of the file.
#[repr(C, align(16))]
struct Head {
    /// Number of assigned offsets.
    used: AtomicU32,
}

static ARENA: AtomicPtr<Head> = AtomicPtr::new(std::ptr::null_mut());
static FD: AtomicI32 = AtomicI32::new(-1);
/// The child of `vfork` that created the file: its parent has the memory but not the descriptor; 0: none.
static CHILD: AtomicI32 = AtomicI32::new(0);

fn map(fd: i32) -> Option<*mut Head> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let at = kernel::simple(libc::SYS_mmap, &[0, LEN as u64, protection, libc::MAP_SHARED as u64, fd as u64, 0]);
    (at > 0).then_some(at as *mut Head)
}

fn arena() -> Option<&'static Head> {
    static MAKING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one = MAKING.lock();
    let child = CHILD.load(Ordering::Relaxed);
    if ARENA.load(Ordering::Acquire).is_null() || child != 0 && child != kernel::pid() {
        let name = c"cenote offsets".as_ptr() as u64;
        let fd = kernel::simple(libc::SYS_memfd_create, &[name, u64::from(libc::MFD_CLOEXEC)]) as i32;
        if fd < 0 {
            return None;
        }
        let fd = inside::move_away(fd);
        kernel::simple(libc::SYS_ftruncate, &[fd as u64, LEN as u64]);
        FD.store(fd, Ordering::Relaxed);
        CHILD.store(if table::is_of_this_process() { 0 } else { kernel::pid() }, Ordering::Relaxed);
        ARENA.store(map(fd)?, Ordering::Release);
    }
    // SAFETY: mapped for as long as the process lives, and zeros are valid.
    unsafe { ARENA.load(Ordering::Acquire).as_ref() }
}

/// Creates the file in advance: otherwise a child of `vfork` would create it for itself alone.
pub fn ready() {
    if ARENA.load(Ordering::Acquire).is_null() {
        arena();
    }
}

/// The file's descriptor, for the next program.
pub fn fd() -> i32 {
    FD.load(Ordering::Relaxed)
}

/// Takes over the file of the previous program.
pub fn adopt(fd: i32) {
    if let Some(at) = map(fd) {
        ARENA.store(at, Ordering::Release);
        FD.store(inside::move_away(fd), Ordering::Relaxed);
    }
}

impl Shared {
    /// Assigns a new offset; `None` if there is no memory.
    pub fn new(offset: u64) -> Option<&'static Self> {
        let index = arena()?.used.fetch_add(1, Ordering::Relaxed) + 1;
        let shared = Self::at(index)?;
        shared.offset.store(offset, Ordering::Relaxed);
        Some(shared)
    }
    /// The offset with this number.
    pub fn at(index: u32) -> Option<&'static Self> {
        let arena = ARENA.load(Ordering::Acquire);
        if arena.is_null() || index == 0 || index as usize >= LEN / size_of::<Self>() {
            return None;
        }
        // SAFETY: it lies in the mapping, and zeros are valid.
        Some(unsafe { &*arena.cast::<Self>().add(index as usize) })
    }
    /// Its number.
    pub fn index(&'static self) -> u32 {
        // SAFETY: both lie in the same mapping.
        unsafe { std::ptr::from_ref(self).offset_from(ARENA.load(Ordering::Relaxed).cast::<Self>()) as u32 }
    }
    /// Runs `with` on the offset, which no other process changes meanwhile.
    pub fn with<T>(&self, with: impl FnOnce(&mut u64) -> T) -> T {
        let me = kernel::pid();
        let mut tries = 0;
        while let Err(holder) = self.holder.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed) {
            tries += 1;
            if tries % PATIENCE == 0 && kernel::simple(libc::SYS_kill, &[holder as u64, 0]) == -i64::from(libc::ESRCH) {
                // The holder died; whoever notices first continues.
                let _ = self.holder.compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed);
            }
            kernel::simple(libc::SYS_sched_yield, &[]);
        }
        let mut offset = self.offset.load(Ordering::Relaxed);
        let result = with(&mut offset);
        self.offset.store(offset, Ordering::Relaxed);
        self.holder.store(0, Ordering::Release);
        result
    }
}
