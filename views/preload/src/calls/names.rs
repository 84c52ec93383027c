//! Calls that create, remove and change names.

use posix::{Caller, FileSystem, Follow, Ino, Kind, Make, Over, Rename};

use super::{Answer, Maybe, Result, Target, answer, memory, on_path, outside};
use crate::description::{What, errno};
use crate::paths::{self, PathClass, To};
use crate::{context, kernel, probe, table};

/// A directory and a name in it.
struct Entry {
    dir: Ino,
    name: Vec<u8>,
    /// The path ends in a slash, so the name must be a directory.
    is_directory: bool,
}

/// Carries out `ours` on the directory and name of a path, or `other` on the path outside the store that it
/// leads to.
fn on_entry(
    dir: i32,
    path: u64,
    ours: impl FnOnce(&FileSystem, &Caller, &Entry) -> Result,
    other: impl FnOnce(u64) -> i64,
) -> Maybe {
    let mut at = match paths::classify(dir, path)? {
        PathClass::Store(at) => at,
        PathClass::Kernel | PathClass::Descriptor(_) => return Ok(None),
    };
    match at.find_parent()? {
        To::Other(path) => outside(path, other).map(Some),
        To::Store((dir, name, is_directory)) => {
            ours(context::system()?, &context::caller(), &Entry { dir, name, is_directory }).map(Some)
        }
    }
}

const HERE: u64 = libc::AT_FDCWD as u64;

/// `mkdirat`.
pub fn mkdir(dir: i32, path: u64, mode: u32) -> Answer {
    let make = |system: &FileSystem, caller: &Caller, at: &Entry| {
        let mode = mode & !context::umask() & 0o1777;
        let what = Make { kind: Kind::Directory, mode, rdev: 0, target: Vec::new() };
        make(system, caller, at, &what)
    };
    answer(on_entry(dir, path, make, |path| kernel::simple(libc::SYS_mkdirat, &[HERE, path, u64::from(mode)])))
}

fn make(system: &FileSystem, caller: &Caller, at: &Entry, what: &Make) -> Result {
    match &at.name[..] {
        b"." | b".." => return Err(libc::EEXIST),
        name if at.is_directory && what.kind != Kind::Directory => {
            return Err(if system.lookup(caller, at.dir, name).is_ok() { libc::EEXIST } else { libc::ENOENT });
        }
        _ => {}
    }
    system.make(caller, at.dir, &at.name, what).map_err(errno).map(|_| 0)
}

/// `mknodat`. Sockets and devices are only names, since the kernel gives them no meaning here.
pub fn mknod(dir: i32, path: u64, mode: u32, device: u64) -> Answer {
    let make = |system: &FileSystem, caller: &Caller, at: &Entry| {
        let kind = match mode & libc::S_IFMT {
            0 | libc::S_IFREG => Kind::File,
            libc::S_IFIFO => Kind::Fifo,
            libc::S_IFSOCK => Kind::Socket,
            libc::S_IFCHR | libc::S_IFBLK if caller.uid != 0 => return Err(libc::EPERM),
            libc::S_IFCHR => Kind::CharDevice,
            libc::S_IFBLK => Kind::BlockDevice,
            libc::S_IFDIR => return Err(libc::EPERM),
            _ => return Err(libc::EINVAL),
        };
        let rdev = if matches!(kind, Kind::CharDevice | Kind::BlockDevice) { device } else { 0 };
        let mode = mode & !context::umask() & 0o7777;
        make(system, caller, at, &Make { kind, mode, rdev, target: Vec::new() })
    };
    let other = |path| kernel::simple(libc::SYS_mknodat, &[HERE, path, u64::from(mode), device]);
    answer(on_entry(dir, path, make, other))
}

/// `symlinkat`.
pub fn symlink(target: u64, dir: i32, path: u64) -> Answer {
    let link = |system: &FileSystem, caller: &Caller, at: &Entry| {
        let target = paths::text(target)?.to_vec();
        match target.len() {
            0 => return Err(libc::ENOENT),
            4096.. => return Err(libc::ENAMETOOLONG),
            _ => {}
        }
        make(system, caller, at, &Make { kind: Kind::Symlink, mode: 0o777, rdev: 0, target })
    };
    answer(on_entry(dir, path, link, |path| kernel::simple(libc::SYS_symlinkat, &[target, HERE, path])))
}

/// `unlinkat`.
pub fn unlink(dir: i32, path: u64, flags: i32) -> Answer {
    let unlink = |system: &FileSystem, caller: &Caller, at: &Entry| {
        if flags & !libc::AT_REMOVEDIR != 0 {
            return Err(libc::EINVAL);
        }
        if flags & libc::AT_REMOVEDIR != 0 {
            match &at.name[..] {
                b"." => return Err(libc::EINVAL),
                b".." => return Err(libc::ENOTEMPTY),
                name => return system.rmdir(caller, at.dir, name).map_err(errno).map(|()| 0),
            }
        }
        if at.name == b"." || at.name == b".." {
            return Err(libc::EISDIR);
        }
        if at.is_directory {
            let attr = system.lookup(caller, at.dir, &at.name).map_err(errno)?;
            return Err(if attr.kind == Kind::Directory { libc::EISDIR } else { libc::ENOTDIR });
        }
        system.unlink(caller, at.dir, &at.name).map_err(errno).map(|()| 0)
    };
    answer(on_entry(dir, path, unlink, |path| kernel::simple(libc::SYS_unlinkat, &[HERE, path, flags as u64])))
}

/// One end of a call with two paths.
enum End {
    Store(Entry),
    Kernel(i32, u64),
    Outside(std::ffi::CString),
}

impl End {
    fn of(dir: i32, path: u64) -> Result<Self> {
        probe::readable(path)?;
        let mut at = match paths::classify(dir, path)? {
            PathClass::Store(at) => at,
            PathClass::Kernel | PathClass::Descriptor(_) => return Ok(Self::Kernel(dir, path)),
        };
        Ok(match at.find_parent()? {
            To::Store((dir, name, is_directory)) => Self::Store(Entry { dir, name, is_directory }),
            To::Other(path) => Self::Outside(std::ffi::CString::new(path).map_err(|_| libc::EINVAL)?),
        })
    }
    /// The directory and path, as arguments for the kernel.
    fn arguments(&self) -> Option<(u64, u64)> {
        match self {
            Self::Store(_) => None,
            Self::Kernel(dir, path) => Some((*dir as u64, *path)),
            Self::Outside(path) => Some((HERE, path.as_ptr() as u64)),
        }
    }
}

/// `renameat2`.
pub fn rename(from: (i32, u64), to: (i32, u64), flags: u32) -> Answer {
    answer((|| {
        let (from, to) = (End::of(from.0, from.1)?, End::of(to.0, to.1)?);
        let (from, to) = match (&from, &to) {
            (End::Kernel(..), End::Kernel(..)) => return Ok(None),
            (End::Store(from), End::Store(to)) => (from, to),
            _ => {
                let (Some(a), Some(b)) = (from.arguments(), to.arguments()) else { return Err(libc::EXDEV) };
                let done = kernel::simple_or(libc::SYS_renameat2, &[a.0, a.1, b.0, b.1, u64::from(flags)]);
                return done.map(Some);
            }
        };
        let how = match flags {
            0 => Rename::Replace,
            libc::RENAME_NOREPLACE => Rename::Keep,
            libc::RENAME_EXCHANGE => Rename::Exchange,
            _ => return Err(libc::EINVAL),
        };
        let dots = |at: &Entry| at.name == b"." || at.name == b"..";
        if dots(from) || dots(to) {
            return Err(libc::EBUSY);
        }
        let (system, caller) = (context::system()?, context::caller());
        if from.is_directory || to.is_directory {
            let attr = system.lookup(&caller, from.dir, &from.name).map_err(errno)?;
            if attr.kind != Kind::Directory {
                return Err(libc::ENOTDIR);
            }
        }
        system.rename(&caller, (from.dir, &from.name), (to.dir, &to.name), how).map_err(errno)?;
        Ok(Some(0))
    })())
}

/// `linkat`, also for a file without a name (`O_TMPFILE`).
pub fn link(from: (i32, u64), to: (i32, u64), flags: i32) -> Answer {
    answer((|| {
        let to = End::of(to.0, to.1)?;
        let is_empty = flags & libc::AT_EMPTY_PATH != 0 && paths::text(from.1)?.is_empty();
        let source = if is_empty {
            table::get(from.0).map_or(PathClass::Kernel, |open| PathClass::Descriptor(std::sync::Arc::clone(&open)))
        } else {
            paths::classify(from.0, from.1)?
        };
        let End::Store(at) = &to else {
            return match source {
                PathClass::Kernel => match &to {
                    End::Outside(path) => {
                        let args = [from.0 as u64, from.1, HERE, path.as_ptr() as u64, flags as u64];
                        kernel::simple_or(libc::SYS_linkat, &args).map(Some)
                    }
                    _ => Ok(None),
                },
                _ => Err(libc::EXDEV),
            };
        };
        let (system, caller) = (context::system()?, context::caller());
        probe::readable(from.1)?;
        let follow = if flags & libc::AT_SYMLINK_FOLLOW == 0 { Follow::No } else { Follow::Yes };
        let ino = match source {
            PathClass::Kernel => {
                // Errors of the path itself come first.
                kernel::simple_or(libc::SYS_faccessat, &[from.0 as u64, from.1, libc::F_OK as u64])?;
                return Err(libc::EXDEV);
            }
            PathClass::Descriptor(open) => {
                if let What::File(file) = &open.what
                    && let file = file.get()?
                    && file.attr().map_err(errno)?.links == 0
                {
                    system.place(&caller, file, (at.dir, &at.name), &[], Over::Nothing, None).map_err(errno)?;
                    return Ok(Some(0));
                }
                open.ino()
            }
            PathClass::Store(mut from) => match from.find(follow)? {
                To::Store(spot) => spot.ino(),
                To::Other(_) => return Err(libc::EXDEV),
            },
        };
        if at.is_directory {
            return Err(libc::ENOENT);
        }
        system.link(&caller, ino, at.dir, &at.name).map_err(errno).map(|_| Some(0))
    })())
}

/// `readlinkat`.
pub fn readlink(dir: i32, path: u64, buf: u64, len: i64) -> Answer {
    if len <= 0 {
        return Answer::Kernel;
    }
    let tell = |text: &[u8]| {
        let len = text.len().min(len as usize);
        // SAFETY: the program declares the memory its own.
        unsafe { memory(buf, len) }?.copy_from_slice(&text[..len]);
        Ok(len as i64)
    };
    if let Ok(PathClass::Descriptor(open)) = paths::classify(dir, path) {
        return tell(&open.path).into(); // `/proc/self/fd/N`
    }
    if !paths::bad(path)
        && paths::text(path) == Ok(b"/proc/self/cwd")
        && let Some(cwd) = context::cwd()
    {
        return tell(&cwd.path).into();
    }
    let read = |target: Target<'_>| {
        let (ino, kind) = match &target {
            Target::Spot(spot, _) => (spot.ino(), spot.kind()),
            Target::Open(open) => (open.ino(), open.attr()?.kind),
        };
        if kind != Kind::Symlink {
            return Err(libc::EINVAL);
        }
        tell(&context::system()?.read_link(ino).map_err(errno)?)
    };
    let other = |path| kernel::simple(libc::SYS_readlinkat, &[HERE, path, buf, len as u64]);
    if dir != libc::AT_FDCWD && !paths::bad(path) && paths::text(path) == Ok(b"") {
        return super::answer(super::on_path_or_descriptor((dir, path, libc::AT_EMPTY_PATH), read, other));
    }
    answer(on_path(dir, path, Follow::No, read, other))
}
