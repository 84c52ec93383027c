//! Thread-local memory that is usable wherever a call comes from.
//!
//! A call may come from the C library while it holds its own locks: `malloc` opens a file and unmaps memory with an
//! arena locked, the loader reads libraries, streams are flushed under a lock. The code that compilers generate for
//! `thread_local!` in a library calls `__tls_get_addr`, which may allocate, and registers destructors with
//! `__cxa_thread_atexit_impl`, which does allocate. So both, and `dlsym` and `dladdr`, which wait for the loader's
//! lock, are redefined here for this library alone: the thread-local memory lies where the loader put it at the start,
//! beside the program's; destructors are kept in this library's memory and called by a key created at the start.

use std::arch::global_asm;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use crate::inside::{self, Inside};
use crate::signals;

global_asm!(
    // A variable of each thread, whose distance from the others is known.
    ".section .tbss.cenote_anchor,\"awT\",@nobits",
    ".p2align 3",
    ".type cenote_anchor,@object",
    ".size cenote_anchor, 8",
    "cenote_anchor:",
    ".zero 8",
    ".text",
    ".p2align 4",
    ".globl __tls_get_addr",
    ".hidden __tls_get_addr",
    ".type __tls_get_addr,@function",
    "__tls_get_addr:",
    "movq %fs:0, %rax",
    "addq cenote_anchor@GOTTPOFF(%rip), %rax",
    "addq 8(%rdi), %rax",
    "movq $cenote_anchor@DTPOFF, %r11",
    "subq %r11, %rax",
    "ret",
    ".size __tls_get_addr, . - __tls_get_addr",
    ".globl __cxa_thread_atexit_impl",
    ".hidden __cxa_thread_atexit_impl",
    ".type __cxa_thread_atexit_impl,@function",
    "__cxa_thread_atexit_impl:",
    "jmp {at_end}",
    ".globl dlsym",
    ".hidden dlsym",
    ".type dlsym,@function",
    "dlsym:",
    "xorl %eax, %eax",
    "ret",
    ".globl dladdr",
    ".hidden dladdr",
    ".type dladdr,@function",
    "dladdr:",
    "jmp {of_address}",
    at_end = sym at_end,
    of_address = sym of_address,
    options(att_syntax),
);

unsafe extern "C" {
    fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
}

/// The function of that name in the libraries behind this one; null if there is none. Waits for the loader: call it at
/// the start.
pub fn next(name: &CStr) -> *mut c_void {
    // SAFETY: both strings end in NUL. The oldest version exists for good.
    unsafe { dlvsym(libc::RTLD_NEXT, name.as_ptr(), c"GLIBC_2.2.5".as_ptr()) }
}

/// This library's path.
static LIBRARY: AtomicPtr<c_char> = AtomicPtr::new(std::ptr::null_mut());

/// This library's path, if it is known.
pub fn library() -> Option<&'static [u8]> {
    let path = LIBRARY.load(Ordering::Relaxed);
    // SAFETY: a string of the loader, which stays.
    (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// Replaces `dladdr`: this library's code only asks for the library that it is in.
unsafe extern "C" fn of_address(_: *const c_void, info: *mut libc::Dl_info) -> i32 {
    let path = LIBRARY.load(Ordering::Relaxed);
    if path.is_null() {
        return 0;
    }
    // SAFETY: the caller provides the structure.
    unsafe {
        let none = std::ptr::null_mut();
        info.write(libc::Dl_info { dli_fname: path, dli_fbase: none, dli_sname: none.cast(), dli_saddr: none });
    }
    1
}

/// A destructor to call when a thread ends.
struct AtEnd {
    run: unsafe extern "C" fn(*mut u8),
    of: *mut u8,
    next: *mut AtEnd,
}

thread_local! {
    static LIST: Cell<*mut AtEnd> = const { Cell::new(std::ptr::null_mut()) };
}

/// No key.
const NONE: u32 = u32::MAX;
/// Values of keys below this lie in the thread's own record: setting them allocates nothing.
const KEYS_WITHOUT_MEMORY: u32 = 32;
static KEY: AtomicU32 = AtomicU32::new(NONE);

/// Replaces `__cxa_thread_atexit_impl`.
unsafe extern "C" fn at_end(run: unsafe extern "C" fn(*mut u8), of: *mut u8, _library: *mut u8) -> i32 {
    let next = LIST.replace(std::ptr::null_mut());
    LIST.set(Box::into_raw(Box::new(AtEnd { run, of, next })));
    let key = KEY.load(Ordering::Relaxed);
    if next.is_null() && key < KEYS_WITHOUT_MEMORY {
        // SAFETY: the key exists; the value only says that there are destructors.
        unsafe { libc::pthread_setspecific(key, std::ptr::dangling()) };
    }
    0
}

unsafe extern "C" fn run_all(_: *mut c_void) {
    let inside = Inside::enter();
    loop {
        let first = LIST.get();
        if first.is_null() {
            break;
        }
        // SAFETY: created from a box above, and taken off the list by this thread alone.
        let AtEnd { run, of, next } = *unsafe { Box::from_raw(first) };
        LIST.set(next);
        // SAFETY: as requested at the registration.
        unsafe { run(of) };
    }
    drop(inside);
    if !inside::is_inside() {
        signals::let_in();
    }
}

/// Finds this library's path, and creates the key.
pub fn begin() {
    let mut key = 0;
    // SAFETY: before any thread of the program; `begin` is in this library.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(run_all)) == 0 {
            KEY.store(key, Ordering::Relaxed);
        }
        let mut info: libc::Dl_info = std::mem::zeroed();
        let real = dlvsym(libc::RTLD_DEFAULT, c"dladdr".as_ptr(), c"GLIBC_2.2.5".as_ptr());
        if !real.is_null() {
            let real: unsafe extern "C" fn(*const c_void, *mut libc::Dl_info) -> i32 = std::mem::transmute(real);
            if real(begin as *const c_void, &raw mut info) != 0 {
                LIBRARY.store(info.dli_fname.cast_mut(), Ordering::Relaxed);
            }
        }
    }
}
