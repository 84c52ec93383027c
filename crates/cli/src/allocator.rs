//! The allocator of the command and of the daemon.
#![allow(unsafe_code, reason = "a function of the allocator that its crate offers only with more dependencies")]

unsafe extern "C" {
    /// Collects free pages of the calling thread and of threads that ended, and gives them back to the system.
    safe fn mi_collect(force: bool);
}

/// Metadata are many small long-lived allocations, spread over much memory: huge pages, which this allocator requests,
/// and fast small allocations are worth more here than the cost of building it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Lets the store give memory back after work that needed much of it.
pub fn set_up() {
    cenote_host::memory::on_release(|| mi_collect(true));
}
