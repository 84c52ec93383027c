//! Opening files and directories.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use parking_lot::Mutex;
use posix::{Bounds, Follow, Ino, Kind, OpenFlags};

use super::{Answer, Maybe, Result, answer, outside};
use crate::description::{Description, What, errno, open_flags};
use crate::paths::{self, PathClass, StorePath, To};
use crate::{context, kernel, table};

/// Upper bound of the links followed at the end of a path.
const LINKS_MAX: u32 = 40;

/// Bytes of the first version of `struct open_how`.
const HOW_BYTES: u64 = 24;
/// Known flags of `open`.
const OPEN_FLAGS: u64 = (libc::O_ACCMODE
    | libc::O_CREAT
    | libc::O_EXCL
    | libc::O_NOCTTY
    | libc::O_TRUNC
    | libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_SYNC
    | libc::O_ASYNC
    | libc::O_DIRECT
    | LARGE_FILE
    | libc::O_DIRECTORY
    | libc::O_NOFOLLOW
    | libc::O_NOATIME
    | libc::O_CLOEXEC
    | libc::O_PATH
    | libc::O_TMPFILE) as u64;
/// `O_LARGEFILE` of the kernel; the C library defines it as 0.
const LARGE_FILE: i32 = 0o100_000;
/// Known flags of `resolve`.
const RESOLVE: u64 = 0x3f;

/// `openat`.
pub fn openat(dir: i32, path: u64, flags: i32, mode: u32) -> Answer {
    match open(dir, path, flags, mode) {
        Err(libc::ENXIO) => pipe(dir, path, flags).unwrap_or_else(|errno| Answer::Done(-i64::from(errno))),
        opened => answer(opened),
    }
}

/// Lets the kernel open a named pipe, which is the kernel's from then on. `ENXIO` if it is not a pipe.
fn pipe(dir: i32, path: u64, flags: i32) -> Result<Answer> {
    let PathClass::Store(mut at) = paths::classify(dir, path)? else { return Err(libc::ENXIO) };
    let follow = if flags & libc::O_NOFOLLOW == 0 { Follow::Yes } else { Follow::No };
    let To::Store(spot) = at.find(follow)? else { return Err(libc::ENXIO) };
    let met = context::system()?.pipe(&context::caller(), spot.ino(), open_flags(flags)).map_err(errno)?;
    let met = CString::new(met.into_os_string().into_vec()).map_err(|_| libc::ENXIO)?;
    Ok(Answer::Open(met, flags & !(libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW)))
}

/// `openat2`.
pub fn openat2(dir: i32, path: u64, how: u64, size: u64) -> Answer {
    answer((|| {
        let known = if size < HOW_BYTES { None } else { super::value::<[u64; 3]>(how).ok() };
        let resolve = known.map_or(0, |how| how[2]);
        // With the starting directory as the root, slashes at the beginning of a path mean nothing.
        let begins = if resolve & libc::RESOLVE_IN_ROOT == 0 { path } else { behind_slashes(path)? };
        let class = paths::classify(dir, begins)?;
        if matches!(class, PathClass::Kernel) {
            return Ok(None);
        }
        if size < HOW_BYTES {
            return Err(libc::EINVAL);
        }
        let [flags, mode, _] = super::value::<[u64; 3]>(how)?;
        // SAFETY: the program declares the memory its own.
        let more = unsafe { super::input(how + HOW_BYTES, (size - HOW_BYTES).min(4096) as usize) }?;
        if more.iter().any(|byte| *byte != 0) {
            return Err(libc::E2BIG);
        }
        let makes = flags as i32 & libc::O_CREAT != 0 || flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        if flags & !OPEN_FLAGS != 0 || mode & !0o7777 != 0 || (mode != 0 && !makes) || resolve & !RESOLVE != 0 {
            return Err(libc::EINVAL);
        }
        let is_both = libc::RESOLVE_BENEATH | libc::RESOLVE_IN_ROOT;
        if resolve & is_both == is_both {
            return Err(libc::EINVAL);
        }
        match (class, resolve) {
            (_, 0) => open(dir, path, flags as i32, mode as u32),
            // This library does not know which names are cached.
            (_, resolve) if resolve & libc::RESOLVE_CACHED != 0 => Err(libc::EAGAIN),
            (PathClass::Store(at), resolve) => {
                let is_absolute = begins == path && paths::text(path)?.first() == Some(&b'/');
                if is_absolute && resolve & (libc::RESOLVE_BENEATH | libc::RESOLVE_NO_XDEV) != 0 {
                    return Err(libc::EXDEV); // it begins outside the store
                }
                open_within(at, flags as i32, mode as u32, (how, size), resolve)
            }
            // `/dev/fd/N` is a magic link.
            _ => Err(libc::ELOOP),
        }
    })())
}

/// Address of the path behind its leading slashes.
fn behind_slashes(path: u64) -> Result<u64> {
    let slashes = paths::text(path)?.iter().take_while(|byte| **byte == b'/').count() as u64;
    let is_all = paths::text(path + slashes)?.is_empty() && slashes > 0;
    Ok(if is_all { c".".as_ptr() as u64 } else { path + slashes })
}

/// Opens the target of a path within the bounds of `resolve`.
fn open_within(mut at: StorePath, flags: i32, mode: u32, (how, size): (u64, u64), resolve: u64) -> Maybe {
    let has = |flag: u64| resolve & flag != 0;
    let bounds = Bounds {
        no_links: has(libc::RESOLVE_NO_SYMLINKS),
        beneath: has(libc::RESOLVE_BENEATH),
        in_root: has(libc::RESOLVE_IN_ROOT),
    };
    let makes_new = flags & libc::O_CREAT != 0 && flags & libc::O_EXCL != 0;
    let follow = if flags & libc::O_NOFOLLOW != 0 || makes_new { Follow::No } else { Follow::Yes };
    match at.narrow(bounds, follow)? {
        To::Other(_) if has(libc::RESOLVE_NO_XDEV) => Err(libc::EXDEV),
        To::Other(path) => {
            outside(path, |path| kernel::simple(libc::SYS_openat2, &[libc::AT_FDCWD as u64, path, how, size])).map(Some)
        }
        // No link is left to follow.
        To::Store(()) => open_at(at, (flags, libc::O_NOFOLLOW), mode),
    }
}

fn open(dir: i32, path: u64, flags: i32, mode: u32) -> Maybe {
    match paths::classify(dir, path)? {
        PathClass::Kernel => Ok(None),
        PathClass::Descriptor(open) => again(&open, flags).map(Some),
        PathClass::Store(at) => open_at(at, (flags, 0), mode),
    }
}

/// `more`: flags that apply now, and that `F_GETFL` does not report later.
fn open_at(mut at: StorePath, (flags, more): (i32, i32), mode: u32) -> Maybe {
    let other = |path: Vec<u8>| {
        outside(path, |path| {
            kernel::simple(libc::SYS_openat, &[libc::AT_FDCWD as u64, path, flags as u64, u64::from(mode)])
        })
    };
    match find(&mut at, flags | more, mode & !context::umask() & 0o7777)? {
        To::Other(path) => other(path).map(Some),
        To::Store((what, ino, is_new)) => {
            let mut trail = at.trail().to_vec();
            if trail.is_empty() {
                trail.push(b'/');
            }
            let mut made = Description::new(what, ino, trail, flags);
            made.is_new = is_new;
            table::add(Arc::new(made), flags, 0).map(|fd| Some(i64::from(fd)))
        }
    }
}

/// Opens the target of a path; also returns whether this created it. Afterwards `at.trail` is its path.
fn find(at: &mut StorePath, flags: i32, mode: u32) -> Result<To<(What, Ino, bool)>> {
    let wants_directory = flags & libc::O_DIRECTORY != 0;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return unnamed(at, flags, mode);
    }
    let follow = if flags & libc::O_NOFOLLOW == 0 { Follow::Yes } else { Follow::No };
    if flags & libc::O_PATH != 0 {
        let spot = match at.find(follow)? {
            To::Store(spot) => spot,
            To::Other(path) => return Ok(To::Other(path)),
        };
        if wants_directory && spot.kind() != Kind::Directory {
            return Err(libc::ENOTDIR);
        }
        return Ok(To::Store((What::Path, spot.ino(), false)));
    }
    if at.path.is_empty() {
        return Err(libc::ENOENT);
    }
    let is_place = at.path.ends_with(b"/") || at.path.ends_with(b"/.") || at.path.ends_with(b"..");
    if wants_directory || is_place || at.path == b"." {
        if flags & libc::O_CREAT != 0 {
            return Err(if wants_directory { libc::EINVAL } else { libc::EISDIR });
        }
        return directory(at, flags, follow);
    }
    let (system, caller) = (context::system()?, context::caller());
    for _ in 0..LINKS_MAX {
        let (parent, name) = match at.find_parent()? {
            To::Store((parent, name, _)) => (parent, name),
            To::Other(path) => return Ok(To::Other(path)),
        };
        match system.open_at(&caller, parent, &name, open_flags(flags), mode) {
            Ok((_, attr, _)) if flags & libc::O_NOATIME != 0 && caller.uid != 0 && caller.uid != attr.uid => {
                return Err(libc::EPERM);
            }
            Ok((file, attr, is_new)) => {
                at.push(&name);
                return Ok(To::Store((What::File(file.into()), attr.ino, is_new)));
            }
            Err(error) if error.errno == libc::EISDIR => {
                if flags & (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) != 0 {
                    return Err(libc::EISDIR);
                }
                return directory(at, flags, follow);
            }
            Err(error) if error.errno == libc::ELOOP && follow == Follow::Yes => {
                let link = system.lookup(&caller, parent, &name).map_err(errno)?;
                let target = system.read_link(link.ino).map_err(errno)?;
                if let Some(path) = at.follow(parent, &target)? {
                    return Ok(To::Other(path));
                }
            }
            Err(error) => return Err(error.errno),
        }
    }
    Err(libc::ELOOP)
}

fn directory(at: &mut StorePath, flags: i32, follow: Follow) -> Result<To<(What, Ino, bool)>> {
    let spot = match at.find_again(follow)? {
        To::Store(spot) => spot,
        To::Other(path) => return Ok(To::Other(path)),
    };
    match spot.kind() {
        Kind::Directory => {}
        Kind::Symlink => return Err(if flags & libc::O_DIRECTORY == 0 { libc::ELOOP } else { libc::ENOTDIR }),
        _ => return Err(libc::ENOTDIR),
    }
    if flags & libc::O_ACCMODE != libc::O_RDONLY {
        return Err(libc::EISDIR);
    }
    let cursor = context::system()?.read_dir(&context::caller(), spot.ino()).map_err(errno)?;
    Ok(To::Store((What::Directory(Mutex::new(Some(cursor))), spot.ino(), false)))
}

fn unnamed(at: &mut StorePath, flags: i32, mode: u32) -> Result<To<(What, Ino, bool)>> {
    let spot = match at.find(Follow::Yes)? {
        To::Store(spot) => spot,
        To::Other(path) => return Ok(To::Other(path)),
    };
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EINVAL);
    }
    let flags = OpenFlags { create: false, exclusive: false, ..open_flags(flags) };
    let opened = context::system()?.open_unnamed(&context::caller(), spot.ino(), flags, mode);
    let file = opened.map_err(errno)?;
    let ino = file.ino();
    Ok(To::Store((What::File(file.into()), ino, false)))
}

/// Reopens the target of a descriptor (`/dev/fd/N`).
fn again(open: &Description, flags: i32) -> Result {
    let (system, caller) = (context::system()?, context::caller());
    let what = match &open.what {
        What::Directory(_) if flags & libc::O_ACCMODE == libc::O_RDONLY => {
            What::Directory(Mutex::new(Some(system.read_dir(&caller, open.ino).map_err(errno)?)))
        }
        What::Directory(_) => return Err(libc::EISDIR),
        _ if flags & libc::O_PATH != 0 => What::Path,
        _ => What::File(system.open(&caller, open.ino(), open_flags(flags)).map_err(errno)?.into()),
    };
    let made = Arc::new(Description::new(what, open.ino(), open.path.clone(), flags));
    table::add(made, flags, 0).map(i64::from)
}
