//! Freed memory that the program's allocator keeps, and how it goes back to the system.

use std::sync::OnceLock;

static RELEASE: OnceLock<fn()> = OnceLock::new();

/// Sets what [`release`] calls. A program says it once, with a function of its allocator; later calls change nothing.
pub fn on_release(release: fn()) {
    let _ = RELEASE.set(release);
}

/// Gives freed memory back to the system, after work that needed much of it. Does nothing in a program whose allocator
/// is not known.
pub fn release() {
    if let Some(release) = RELEASE.get() {
        release();
    }
}
