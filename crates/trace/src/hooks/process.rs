//! Exits that bypass the usual end, and `vfork`.

use std::ffi::c_int;

use crate::{files, tracer};

hooks! {
    fn _exit(code: c_int) -> ! {
        files::all_streams_end();
        tracer::ended();
        real!(_exit: fn(code => c_int) -> !)
    }
    fn _Exit(code: c_int) -> ! {
        files::all_streams_end();
        tracer::ended();
        real!(_Exit: fn(code => c_int) -> !)
    }
}

#[cfg(target_arch = "x86_64")]
mod vforks {
    use std::ffi::c_void;
    use std::sync::atomic::AtomicPtr;
    use std::sync::atomic::Ordering::Relaxed;

    use crate::{real, tracer};

    static VFORK: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

    /// Notes that a child may share this memory from now on, and returns the next `vfork`.
    extern "C" fn noted() -> *mut c_void {
        tracer::VFORKS.fetch_add(1, Relaxed);
        real::next(&VFORK, c"vfork")
    }

    /// Intercepts `vfork` (on x86-64 only; elsewhere, descriptors closed by such a child count as closed by its
    /// parent). `vfork` returns twice in one frame, so nothing may be left on the stack: hence the jump.
    #[unsafe(naked)]
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn vfork() -> libc::pid_t {
        core::arch::naked_asm!(
            "sub rsp, 8",
            "call {noted}",
            "add rsp, 8",
            "jmp rax",
            noted = sym noted,
        )
    }
}
