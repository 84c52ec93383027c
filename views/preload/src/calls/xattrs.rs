//! Extended attributes, by path, by path without following a link, and by descriptor.

use posix::{Follow, Ino, SetXattr};

use super::{Answer, Maybe, Result, answer, input, memory, on_path};
use crate::description::{What, errno};
use crate::paths;
use crate::{context, kernel, table};

/// Upper bound of an attribute's bytes (as in the kernel).
const VALUE_MAX: u64 = 64 << 10;

/// The target of a call.
#[derive(Clone, Copy)]
pub enum Of {
    /// A path.
    Path(u64, Follow),
    /// A descriptor.
    Fd(i32),
}

fn on(of: Of, ours: impl FnOnce(Ino) -> Result, other: impl FnOnce(u64) -> i64) -> Maybe {
    match of {
        Of::Path(path, follow) => on_path(libc::AT_FDCWD, path, follow, |target| ours(target.ino()), other),
        Of::Fd(fd) => match table::get(fd) {
            Some(open) if matches!(open.what, What::Path) => Err(libc::EBADF),
            open => open.map(|open| ours(open.ino())).transpose(),
        },
    }
}

fn give(value: &[u8], buf: u64, len: u64) -> Result {
    if len > 0 {
        if value.len() as u64 > len {
            return Err(libc::ERANGE);
        }
        // SAFETY: the program declares the memory its own.
        unsafe { memory(buf, value.len()) }?.copy_from_slice(value);
    }
    Ok(value.len() as i64)
}

/// Number of the system call for paths outside: the plain one, or the one for links.
fn number(of: Of, plain: i64, link: i64) -> i64 {
    if matches!(of, Of::Path(_, Follow::No)) { link } else { plain }
}

/// `getxattr` and its variants.
pub fn get(of: Of, name: u64, buf: u64, len: u64) -> Answer {
    let get = |ino| {
        let value = context::system()?.xattr(&context::caller(), ino, paths::text(name)?).map_err(errno)?;
        give(&value, buf, len)
    };
    let number = number(of, libc::SYS_getxattr, libc::SYS_lgetxattr);
    answer(on(of, get, |path| kernel::simple(number, &[path, name, buf, len])))
}

/// `setxattr` and its variants.
pub fn set(of: Of, name: u64, buf: u64, len: u64, flags: i32) -> Answer {
    let set = |ino| {
        let how = match flags {
            0 => SetXattr::Any,
            libc::XATTR_CREATE => SetXattr::New,
            libc::XATTR_REPLACE => SetXattr::Replace,
            _ => return Err(libc::EINVAL),
        };
        if len > VALUE_MAX {
            return Err(libc::E2BIG);
        }
        // SAFETY: the program declares the memory its own.
        let value = unsafe { input(buf, len as usize) }?;
        context::system()?.set_xattr(&context::caller(), ino, paths::text(name)?, value, how).map_err(errno)?;
        Ok(0)
    };
    let number = number(of, libc::SYS_setxattr, libc::SYS_lsetxattr);
    answer(on(of, set, |path| kernel::simple(number, &[path, name, buf, len, flags as u64])))
}

/// `listxattr` and its variants.
pub fn list(of: Of, buf: u64, len: u64) -> Answer {
    let list = |ino| {
        let names = context::system()?.xattrs(&context::caller(), ino).map_err(errno)?;
        let all: Vec<u8> = names.into_iter().flat_map(|name| name.into_iter().chain([0])).collect();
        give(&all, buf, len)
    };
    let number = number(of, libc::SYS_listxattr, libc::SYS_llistxattr);
    answer(on(of, list, |path| kernel::simple(number, &[path, buf, len])))
}

/// `removexattr` and its variants.
pub fn remove(of: Of, name: u64) -> Answer {
    let remove =
        |ino| context::system()?.remove_xattr(&context::caller(), ino, paths::text(name)?).map_err(errno).map(|()| 0);
    let number = number(of, libc::SYS_removexattr, libc::SYS_lremovexattr);
    answer(on(of, remove, |path| kernel::simple(number, &[path, name])))
}
