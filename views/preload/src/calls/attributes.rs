//! Calls that read and change the attributes of files.

use posix::{Attr, FileSystem, Follow, Ino, Kind, SetAttr, Space};

use super::{Answer, Maybe, Result, Target, answer, on_path, on_path_or_descriptor, put};
use crate::description::{Description, What, errno};
use crate::paths;
use crate::{context, kernel, limit, table};

/// Preferred size of reads and writes.
const BLOCK: i64 = 128 << 10;
const HERE: u64 = libc::AT_FDCWD as u64;

/// The kind, as the type bits of a mode.
fn format(kind: Kind) -> u32 {
    match kind {
        Kind::File => libc::S_IFREG,
        Kind::Directory => libc::S_IFDIR,
        Kind::Symlink => libc::S_IFLNK,
        Kind::Fifo => libc::S_IFIFO,
        Kind::Socket => libc::S_IFSOCK,
        Kind::CharDevice => libc::S_IFCHR,
        Kind::BlockDevice => libc::S_IFBLK,
    }
}

fn stat_of(attr: &Attr) -> libc::stat {
    // SAFETY: zeros are valid.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    stat.st_dev = context::device();
    stat.st_ino = attr.ino.0;
    stat.st_nlink = u64::from(attr.links);
    stat.st_mode = format(attr.kind) | attr.mode;
    stat.st_uid = attr.uid;
    stat.st_gid = attr.gid;
    stat.st_rdev = attr.rdev;
    stat.st_size = attr.size_bytes as i64;
    stat.st_blksize = BLOCK;
    stat.st_blocks = attr.blocks as i64;
    (stat.st_atime, stat.st_atime_nsec) = (attr.accessed.s, i64::from(attr.accessed.ns));
    (stat.st_mtime, stat.st_mtime_nsec) = (attr.modified.s, i64::from(attr.modified.ns));
    (stat.st_ctime, stat.st_ctime_nsec) = (attr.changed.s, i64::from(attr.changed.ns));
    stat
}

impl Target<'_> {
    fn attr(&self) -> Result<Attr> {
        match self {
            Self::Spot(spot, _) => spot.attr().map_err(errno),
            Self::Open(open) => open.attr(),
        }
    }
    /// Inode number of the target.
    pub fn ino(&self) -> Ino {
        match self {
            Self::Spot(spot, _) => spot.ino(),
            Self::Open(open) => open.ino(),
        }
    }
    fn set(&self, set: &SetAttr) -> Result {
        match self {
            Self::Spot(spot, _) => {
                context::system()?.set_attr(&context::caller(), spot.ino(), set).map_err(errno)?;
            }
            Self::Open(open) => set_open(open, set)?,
        }
        Ok(0)
    }
}

fn set_open(open: &Description, set: &SetAttr) -> Result<()> {
    let caller = context::caller();
    match &open.what {
        What::File(file) => file.get()?.set_attr(&caller, set),
        _ => context::system()?.set_attr(&caller, open.ino, set),
    }
    .map_err(errno)?;
    Ok(())
}

/// `fstat`.
pub fn fstat(fd: i32, buf: u64) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    open.attr().and_then(|attr| put(buf, stat_of(&attr))).map(|()| 0).into()
}

/// `newfstatat`.
pub fn stat(dir: i32, path: u64, buf: u64, flags: i32) -> Answer {
    let stat = |target: Target<'_>| {
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT)?;
        target.attr().and_then(|attr| put(buf, stat_of(&attr))).map(|()| 0)
    };
    let other = |path| kernel::simple(libc::SYS_newfstatat, &[HERE, path, buf, flags as u64]);
    answer(on_path_or_descriptor((dir, path, flags), stat, other))
}

/// `EINVAL` for flags that the call does not know.
fn only(flags: i32, known: i32) -> Result<()> {
    if flags & !known == 0 { Ok(()) } else { Err(libc::EINVAL) }
}

/// `statx`.
pub fn statx(dir: i32, path: u64, flags: i32, mask: u32, buf: u64) -> Answer {
    let tell = |target: Target<'_>| {
        let sync = libc::AT_STATX_FORCE_SYNC | libc::AT_STATX_DONT_SYNC;
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH | libc::AT_NO_AUTOMOUNT | sync)?;
        if flags & sync == sync || mask & libc::STATX__RESERVED as u32 != 0 {
            return Err(libc::EINVAL);
        }
        let attr = target.attr()?;
        // SAFETY: zeros are valid.
        let mut told: libc::statx = unsafe { std::mem::zeroed() };
        let time = |time: posix::Time| {
            // SAFETY: as above.
            let mut told: libc::statx_timestamp = unsafe { std::mem::zeroed() };
            (told.tv_sec, told.tv_nsec) = (time.s, time.ns);
            told
        };
        told.stx_mask = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        told.stx_blksize = BLOCK as u32;
        told.stx_nlink = attr.links;
        told.stx_uid = attr.uid;
        told.stx_gid = attr.gid;
        told.stx_mode = (format(attr.kind) | attr.mode) as u16;
        told.stx_ino = attr.ino.0;
        told.stx_size = attr.size_bytes;
        told.stx_blocks = attr.blocks;
        told.stx_atime = time(attr.accessed);
        told.stx_btime = time(attr.born);
        told.stx_ctime = time(attr.changed);
        told.stx_mtime = time(attr.modified);
        (told.stx_rdev_major, told.stx_rdev_minor) = (libc::major(attr.rdev), libc::minor(attr.rdev));
        (told.stx_dev_major, told.stx_dev_minor) = (libc::major(context::device()), libc::minor(context::device()));
        put(buf, told).map(|()| 0)
    };
    let other = |path| kernel::simple(libc::SYS_statx, &[HERE, path, flags as u64, u64::from(mask), buf]);
    answer(on_path_or_descriptor((dir, path, flags), tell, other))
}

/// `faccessat2`; `access` tests the real user, which is the effective one here.
pub fn access(dir: i32, path: u64, mask: i32, flags: i32) -> Answer {
    let check = |target: Target<'_>| {
        only(flags, libc::AT_EACCESS | libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        if mask & !7 != 0 {
            return Err(libc::EINVAL);
        }
        context::system()?.access(&context::caller(), target.ino(), mask).map_err(errno).map(|()| 0)
    };
    let other = |path| kernel::simple(libc::SYS_faccessat, &[HERE, path, mask as u64]);
    answer(on_path_or_descriptor((dir, path, flags), check, other))
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode & 0o7777), ..SetAttr::default() }
}

/// `fchmodat2`.
pub fn chmod(dir: i32, path: u64, to: u32, flags: i32) -> Answer {
    let set = |target: Target<'_>| {
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        if matches!(&target, Target::Spot(spot, _) if spot.kind() == Kind::Symlink) {
            return Err(libc::EOPNOTSUPP);
        }
        target.set(&mode(to))
    };
    let other = |path| kernel::simple(libc::SYS_fchmodat, &[HERE, path, u64::from(to)]);
    answer(on_path_or_descriptor((dir, path, flags), set, other))
}

/// `fchmod`.
pub fn fchmod(fd: i32, to: u32) -> Answer {
    on_open(fd, |open| set_open(open, &mode(to)).map(|()| 0))
}

fn owner(uid: u32, gid: u32) -> SetAttr {
    let given = |id: u32| (id != u32::MAX).then_some(id);
    SetAttr { uid: given(uid), gid: given(gid), ..SetAttr::default() }
}

/// `fchownat`.
pub fn chown(dir: i32, path: u64, (uid, gid): (u32, u32), flags: i32) -> Answer {
    let other = |path| kernel::simple(libc::SYS_fchownat, &[HERE, path, u64::from(uid), u64::from(gid), flags as u64]);
    let set = |target: Target<'_>| {
        only(flags, libc::AT_SYMLINK_NOFOLLOW | libc::AT_EMPTY_PATH)?;
        target.set(&owner(uid, gid))
    };
    answer(on_path_or_descriptor((dir, path, flags), set, other))
}

/// `fchown`.
pub fn fchown(fd: i32, uid: u32, gid: u32) -> Answer {
    on_open(fd, |open| set_open(open, &owner(uid, gid)).map(|()| 0))
}

/// Carries out `ours`, which needs a descriptor that is not `O_PATH`.
fn on_open(fd: i32, ours: impl FnOnce(&Description) -> Result) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    if matches!(open.what, What::Path) {
        return Answer::Done(-i64::from(libc::EBADF));
    }
    ours(&open).into()
}

/// Checks a new size for `truncate`.
fn new_size(size: i64) -> Result<u64> {
    let size = u64::try_from(size).map_err(|_| libc::EINVAL)?;
    limit::size(size)?;
    Ok(size)
}

/// `truncate`.
pub fn truncate(path: u64, size: i64) -> Answer {
    let cut = |target: Target<'_>| {
        let size_bytes = Some(new_size(size)?);
        if matches!(&target, Target::Spot(spot, _) if spot.kind() == Kind::Directory) {
            return Err(libc::EISDIR);
        }
        target.set(&SetAttr { size_bytes, ..SetAttr::default() })
    };
    let other = |path| kernel::simple(libc::SYS_truncate, &[path, size as u64]);
    answer(on_path(libc::AT_FDCWD, path, Follow::Yes, cut, other))
}

/// `ftruncate`.
pub fn ftruncate(fd: i32, size: i64) -> Answer {
    on_open(fd, |open| {
        let size_bytes = Some(new_size(size)?);
        open.file_or(libc::EINVAL)?;
        set_open(open, &SetAttr { size_bytes, ..SetAttr::default() }).map(|()| 0)
    })
}

/// Sets times; the arguments are those of `utimensat`.
pub fn set_times(dir: i32, path: u64, set: &SetAttr, flags: i32, other: impl FnOnce(u64) -> i64) -> Maybe {
    if path == 0 {
        return match table::get(dir) {
            None => Ok(None),
            Some(open) => set_open(&open, set).map(|()| Some(0)),
        };
    }
    on_path_or_descriptor((dir, path, flags), |target| target.set(set), other)
}

fn space_of(system: &FileSystem, ino: Ino, buf: u64) -> Result {
    const MAGIC: i64 = 0x4345_4e4f; // "CENO"
    let Space { total_bytes, free_bytes, files, files_free } = system.space(ino).map_err(errno)?;
    // SAFETY: zeros are valid.
    let mut told: libc::statfs = unsafe { std::mem::zeroed() };
    told.f_type = MAGIC;
    told.f_bsize = 4096;
    told.f_frsize = 4096;
    told.f_blocks = total_bytes / 4096;
    told.f_bfree = free_bytes / 4096;
    told.f_bavail = told.f_bfree;
    told.f_files = files + files_free;
    told.f_ffree = files_free;
    told.f_namelen = 255;
    put(buf, told).map(|()| 0)
}

/// `statfs`.
pub fn statfs(path: u64, buf: u64) -> Answer {
    let tell = |target: Target<'_>| space_of(context::system()?, target.ino(), buf);
    let other = |path| kernel::simple(libc::SYS_statfs, &[path, buf]);
    answer(on_path(libc::AT_FDCWD, path, Follow::Yes, tell, other))
}

/// `fstatfs`.
pub fn fstatfs(fd: i32, buf: u64) -> Answer {
    let Some(open) = table::get(fd) else { return Answer::Kernel };
    context::system().and_then(|system| space_of(system, open.ino(), buf)).into()
}

/// Refuses calls on paths that need something that files here lack.
pub fn unsupported(path: u64, errno: i32) -> Answer {
    match paths::classify(libc::AT_FDCWD, path) {
        Ok(paths::PathClass::Kernel) | Err(_) => Answer::Kernel,
        Ok(_) => Answer::Done(-i64::from(errno)),
    }
}
