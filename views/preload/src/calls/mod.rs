//! The program's system calls on files of the store: arguments from registers, a call of `cenote-posix`, and the result
//! in the kernel's form.

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
use crate::paths::{self, PathClass, To};
use crate::{kernel, probe};

/// How a call continues.
pub enum Answer {
    /// The kernel carries it out unchanged.
    Kernel,
    /// It was carried out, with this result in the kernel's form.
    Done(i64),
    /// The kernel opens this path instead, with these flags, once no operation of this library is in progress: it may
    /// wait.
    Open(CString, i32),
}

/// A result, or an error number.
pub type Result<T = i64> = std::result::Result<T, i32>;

impl From<Result> for Answer {
    fn from(result: Result) -> Self {
        Self::Done(result.unwrap_or_else(|errno| -i64::from(errno)))
    }
}

/// A result of a call; `None` if the kernel is to carry it out.
pub type Maybe = Result<Option<i64>>;

/// Converts a result into an answer.
pub fn answer(result: Maybe) -> Answer {
    match result {
        Ok(None) => Answer::Kernel,
        Ok(Some(value)) => Answer::Done(value),
        Err(errno) => Answer::Done(-i64::from(errno)),
    }
}

/// The target of a path or descriptor.
#[expect(clippy::large_enum_variant, reason = "it lives for one call")]
pub enum Target<'a> {
    /// A target found by name.
    Spot(Spot<'static>, &'a [u8]),
    /// The target of a descriptor.
    Open(&'a Description),
}

/// Carries out `ours` on the target of a path, or `other` on the path outside the store that it leads to.
pub fn on_path(
    dir: i32,
    path: u64,
    follow: Follow,
    ours: impl FnOnce(Target<'_>) -> Result,
    other: impl FnOnce(u64) -> i64,
) -> Maybe {
    match paths::classify(dir, path)? {
        PathClass::Kernel => Ok(None),
        PathClass::Descriptor(open) => {
            if follow == Follow::No {
                return Ok(None); // the link that stands for the descriptor
            }
            ours(Target::Open(&open)).map(Some)
        }
        PathClass::Store(mut at) => match at.find(follow)? {
            To::Store(spot) => ours(Target::Spot(spot, at.trail())).map(Some),
            To::Other(path) => outside(path, other).map(Some),
        },
    }
}

/// Carries out a call on a path that leads out of the store.
pub fn outside(path: Vec<u8>, other: impl FnOnce(u64) -> i64) -> Result {
    let path = CString::new(path).map_err(|_| libc::EINVAL)?;
    kernel::checked(other(path.as_ptr() as u64))
}

/// Like [`on_path`], for calls that accept a descriptor with an empty path (`AT_EMPTY_PATH`) or none.
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

/// The meaning of `AT_SYMLINK_NOFOLLOW`.
pub fn follow(flags: i32) -> Follow {
    if flags & libc::AT_SYMLINK_NOFOLLOW == 0 { Follow::Yes } else { Follow::No }
}

/// Memory of the program for writing; `EFAULT` if it is not accessible.
///
/// # Safety
/// The program declares that `len` bytes there are its own, and that nobody else reads them.
pub unsafe fn memory<'a>(at: u64, len: usize) -> Result<&'a mut [u8]> {
    if len == 0 {
        return Ok(&mut []);
    }
    probe::writable_range(at, len)?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts_mut(at as *mut u8, len) })
}

/// Memory of the program for reading; `EFAULT` if it is not accessible.
///
/// # Safety
/// The program declares that `len` bytes there are its own, and that nobody writes to them meanwhile.
pub unsafe fn input<'a>(at: u64, len: usize) -> Result<&'a [u8]> {
    if len == 0 {
        return Ok(&[]);
    }
    probe::readable_range(at, len)?;
    // SAFETY: as above.
    Ok(unsafe { std::slice::from_raw_parts(at as *const u8, len) })
}

/// Reads a value from the program's memory; `EFAULT` if it is not accessible.
pub fn value<T: Copy>(at: u64) -> Result<T> {
    probe::readable_range(at, size_of::<T>())?;
    // SAFETY: the program declares that there is a value.
    Ok(unsafe { (at as *const T).read_unaligned() })
}

/// Writes a value to the program's memory.
pub fn put<T: Copy>(at: u64, value: T) -> Result<()> {
    probe::writable_range(at, size_of::<T>())?;
    // SAFETY: the program declares that there is room.
    unsafe { (at as *mut T).write_unaligned(value) };
    Ok(())
}
