//! What calls of the program do where they are ours: arguments out of registers, a call of `cenote-posix`, the answer as the kernel would give it.

pub mod attributes;
pub mod bytes;
pub mod copying;
pub mod descriptors;
pub mod directories;
pub mod locks;
pub mod mapping;
pub mod names;
pub mod opening;
pub mod process;
pub mod times;
pub mod waiting;
pub mod xattrs;

use std::ffi::CString;

use posix::{Follow, Spot};

use crate::description::Description;
use crate::paths::{self, To, Way};
use crate::{kernel, probe};

/// What becomes of a call.
pub enum Answer {
    /// The kernel carries it out, as it is.
    Kernel,
    /// It was carried out; the result as the kernel gives it.
    Done(i64),
    /// The kernel opens this in place of what was asked for, with these flags, when nothing of ours is under way any more: it may wait.
    Open(CString, i32),
}

/// A result or the number of an error.
pub type Result<T = i64> = std::result::Result<T, i32>;

impl From<Result> for Answer {
    fn from(result: Result) -> Self {
        Self::Done(result.unwrap_or_else(|errno| -i64::from(errno)))
    }
}

/// A result of a call, or that it is the kernel's.
pub type Maybe = Result<Option<i64>>;

/// As an answer.
pub fn answer(result: Maybe) -> Answer {
    match result {
        Ok(None) => Answer::Kernel,
        Ok(Some(value)) => Answer::Done(value),
        Err(errno) => Answer::Done(-i64::from(errno)),
    }
}

/// What a path or descriptor leads to.
#[expect(clippy::large_enum_variant, reason = "it lives for one call")]
pub enum Target<'a> {
    /// Something by name.
    Spot(Spot<'static>, &'a [u8]),
    /// What a descriptor leads to.
    Open(&'a Description),
}

/// Carries out `ours` on what a path leads to, or `other` on the path that it leads out to.
pub fn on_path(
    dir: i32,
    path: u64,
    follow: Follow,
    ours: impl FnOnce(Target<'_>) -> Result,
    other: impl FnOnce(u64) -> i64,
) -> Maybe {
    match paths::way(dir, path)? {
        Way::Kernel => Ok(None),
        Way::Descriptor(open) => {
            if follow == Follow::No {
                return Ok(None); // the link that stands for the descriptor
            }
            ours(Target::Open(&open)).map(Some)
        }
        Way::Ours(mut at) => match at.find(follow)? {
            To::Ours(spot) => ours(Target::Spot(spot, at.trail())).map(Some),
            To::Other(path) => outside(path, other).map(Some),
        },
    }
}

/// Carries out a call on a path that leads out of the store.
pub fn outside(path: Vec<u8>, other: impl FnOnce(u64) -> i64) -> Result {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    kernel::checked(other(path.as_ptr() as u64))
}

/// The same for calls that take a descriptor in place of a path that is empty (`AT_EMPTY_PATH`) or none.
pub fn on_path_or_descriptor(
    (dir, path, flags): (i32, u64, i32),
    ours: impl FnOnce(Target<'_>) -> Result,
    other: impl FnOnce(u64) -> i64,
) -> Maybe {
    if flags & libc::AT_EMPTY_PATH != 0 && (path == 0 || paths::text(path)?.is_empty()) {
        if dir == libc::AT_FDCWD {
            return on_path(dir, c".".as_ptr() as u64, Follow::Yes, ours, other);
        }
        return match crate::table::get(dir) {
            None => Ok(None),
            Some(open) => ours(Target::Open(&open)).map(Some),
        };
    }
    on_path(dir, path, follow(flags), ours, other)
}

/// What `AT_SYMLINK_NOFOLLOW` says.
pub fn follow(flags: i32) -> Follow {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Follow::Yes } else { Follow::No }
}

/// Memory of the program's that is written to; `EFAULT` where there is none.
///
/// # Safety
/// The program says that `len` bytes there are its own, and that nobody else looks at them.
pub unsafe fn memory<'a>(at: u64, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    probe::writable_range(at, len)?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) })
}

/// Memory of the program's that is read; `EFAULT` where there is none.
///
/// # Safety
/// The program says that `len` bytes there are its own, and that nobody writes to them meanwhile.
pub unsafe fn input<'a>(at: u64, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    probe::readable_range(at, len)?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// A value of the program's; `EFAULT` where none can be.
pub fn value<T: Copy>(at: u64) -> Result<T> {
    probe::readable_range(at, size_of::<T>())?;
    // SAFETY: the program says that there is one.
    Ok(unsafe { (at as *const T).read_unaligned() })
}

/// Gives the program a value.
pub fn put<T: Copy>(at: u64, value: T) -> Result<()> {
    probe::writable_range(at, size_of::<T>())?;
    // SAFETY: the program says that there is room.
    unsafe { (at as *mut T).write_unaligned(value) };
    Ok(())
}
