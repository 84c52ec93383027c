//! Opening files and directories.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

use parking_lot::Mutex;
use posix::{Follow, Ino, Kind, OpenFlags};

use super::{Answer, Maybe, Result, answer, outside};
use crate::description::{Description, What, errno, open_flags};
use crate::paths::{self, Ours, To, Way};
use crate::{kernel, place, table};

/// Links that are followed at the end of a path.
const LINKS_MAX: u32 = 40;

/// Bytes of `struct open_how`, as it was first.
const HOW_BYTES: u64 = 24;
/// Flags of `open` that there are.
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
/// `O_LARGEFILE` of the kernel, which is 0 in the C library.
const LARGE_FILE: i32 = 0o100_000;
/// What ways can be restricted by.
const RESOLVE: u64 = 0x3f;

/// `openat`.
pub fn openat(dir: i32, path: u64, flags: i32, mode: u32) -> Answer {
    match open(dir, path, flags, mode) {
        Err(libc::ENXIO) => pipe(dir, path, flags).unwrap_or_else(|errno| Answer::Done(-i64::from(errno))),
        opened => answer(opened),
    }
}

/// A pipe with a name is opened by the kernel, and is its own from then on. `ENXIO` of what is no pipe.
fn pipe(dir: i32, path: u64, flags: i32) -> Result<Answer> {
    let Way::Ours(mut at) = paths::way(dir, path)? else { return Err(libc::ENXIO) };
    let follow = if flags & libc::O_NOFOLLOW == 0 { Follow::Yes } else { Follow::No };
    let To::Ours(spot) = at.find(follow)? else { return Err(libc::ENXIO) };
    let met = place::system()?.pipe(&place::caller(), spot.ino(), open_flags(flags)).map_err(errno)?;
    let met = CString::new(met.into_os_string().into_vec()).map_err(|_| libc::ENXIO)?;
    Ok(Answer::Open(met, flags & !(libc::O_CREAT | libc::O_TRUNC | libc::O_NOFOLLOW)))
}

/// `openat2`: what it can restrict ways by is refused.
pub fn openat2(dir: i32, path: u64, how: u64, size: u64) -> Answer {
    answer((|| {
        if matches!(paths::way(dir, path)?, Way::Kernel) {
            return Ok(None);
        }
        if size < HOW_BYTES {
            return Err(libc::EINVAL);
        }
        let [flags, mode, resolve] = super::value::<[u64; 3]>(how)?;
        // SAFETY: the program says that it is its own.
        let more = unsafe { super::input(how + HOW_BYTES, (size - HOW_BYTES).min(4096) as usize) }?;
        if more.iter().any(|byte| *byte != 0) {
            return Err(libc::E2BIG);
        }
        let makes = flags as i32 & libc::O_CREAT != 0 || flags as i32 & libc::O_TMPFILE == libc::O_TMPFILE;
        if flags & !OPEN_FLAGS != 0 || mode & !0o7777 != 0 || (mode != 0 && !makes) || resolve & !RESOLVE != 0 {
            return Err(libc::EINVAL);
        }
        if resolve != 0 {
            return Err(libc::EOPNOTSUPP);
        }
        open(dir, path, flags as i32, mode as u32)
    })())
}

fn open(dir: i32, path: u64, flags: i32, mode: u32) -> Maybe {
    let mut at = match paths::way(dir, path)? {
        Way::Kernel => return Ok(None),
        Way::Descriptor(open) => return again(&open, flags).map(Some),
        Way::Ours(at) => at,
    };
    let other = |path: Vec<u8>| {
        outside(path, |path| {
            kernel::simple(libc::SYS_openat, &[libc::AT_FDCWD as u64, path, flags as u64, u64::from(mode)])
        })
    };
    match find(&mut at, flags, mode & !place::umask() & 0o7777)? {
        To::Other(path) => other(path).map(Some),
        To::Ours((what, ino)) => {
            let mut trail = at.trail().to_vec();
            if trail.is_empty() {
                trail.push(b'/');
            }
            let made = Arc::new(Description::new(what, ino, trail, flags));
            table::add(made, flags, 0).map(|fd| Some(i64::from(fd)))
        }
    }
}

/// What a path leads to, opened. `at.trail` is its path then.
fn find(at: &mut Ours, flags: i32, mode: u32) -> Result<To<(What, Ino)>> {
    let wants_directory = flags & libc::O_DIRECTORY != 0;
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        return unnamed(at, flags, mode);
    }
    let follow = if flags & libc::O_NOFOLLOW == 0 { Follow::Yes } else { Follow::No };
    if flags & libc::O_PATH != 0 {
        let spot = match at.find(follow)? {
            To::Ours(spot) => spot,
            To::Other(path) => return Ok(To::Other(path)),
        };
        if wants_directory && spot.kind() != Kind::Directory {
            return Err(libc::ENOTDIR);
        }
        return Ok(To::Ours((What::Path, spot.ino())));
    }
    let is_place =
        at.path.is_empty() || at.path.ends_with(b"/") || at.path.ends_with(b"/.") || at.path.ends_with(b"..");
    if wants_directory || is_place || at.path == b"." {
        if flags & libc::O_CREAT != 0 {
            return Err(if wants_directory { libc::EINVAL } else { libc::EISDIR });
        }
        return directory(at, flags, follow);
    }
    let (system, caller) = (place::system()?, place::caller());
    for _ in 0..LINKS_MAX {
        let (parent, name) = match at.find_parent()? {
            To::Ours((parent, name, _)) => (parent, name),
            To::Other(path) => return Ok(To::Other(path)),
        };
        match system.open_at(&caller, parent, &name, open_flags(flags), mode) {
            Ok((_, attr, _)) if flags & libc::O_NOATIME != 0 && caller.uid != 0 && caller.uid != attr.uid => {
                return Err(libc::EPERM);
            }
            Ok((file, attr, _)) => {
                at.push(&name);
                return Ok(To::Ours((What::File(file.into()), attr.ino)));
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

fn directory(at: &mut Ours, flags: i32, follow: Follow) -> Result<To<(What, Ino)>> {
    let spot = match at.find_again(follow)? {
        To::Ours(spot) => spot,
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
    let cursor = place::system()?.read_dir(&place::caller(), spot.ino()).map_err(errno)?;
    Ok(To::Ours((What::Directory(Mutex::new(Some(cursor))), spot.ino())))
}

fn unnamed(at: &mut Ours, flags: i32, mode: u32) -> Result<To<(What, Ino)>> {
    let spot = match at.find(Follow::Yes)? {
        To::Ours(spot) => spot,
        To::Other(path) => return Ok(To::Other(path)),
    };
    if flags & libc::O_ACCMODE == libc::O_RDONLY {
        return Err(libc::EINVAL);
    }
    let flags = OpenFlags { create: false, exclusive: false, ..open_flags(flags) };
    let opened = place::system()?.open_unnamed(&place::caller(), spot.ino(), flags, mode);
    let file = opened.map_err(errno)?;
    let ino = file.ino();
    Ok(To::Ours((What::File(file.into()), ino)))
}

/// Opens anew what a descriptor leads to (`/dev/fd/N`).
fn again(open: &Description, flags: i32) -> Result {
    let (system, caller) = (place::system()?, place::caller());
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
