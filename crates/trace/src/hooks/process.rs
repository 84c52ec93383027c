//! Leaving without the usual end, and `vfork`.

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

    /// Notes that there may be a child with this memory from now on, and gives the next `vfork`.
    extern "C" fn noted() -> *mut c_void {
        tracer::VFORKS.fetch_add(1, Relaxed);
        real::next(&VFORK, c"vfork")
    }

    /// Stands before `vfork` (elsewhere than on x86-64 nothing does: such a child's closing of descriptors is taken for its
    /// parent's). It returns twice in one frame, so nothing may be left on the stack: this jumps.
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
