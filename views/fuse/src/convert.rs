//! Between the kernel's types, as `fuser` has them, and those of `cenote-posix`.

use std::time::{Duration, SystemTime};

use cenote_posix::{Allocate, Attr, Kind, OpenFlags, Rename, SetTime, SetXattr, Time};
use fuser::{FileAttr, FileType, INodeNo, RenameFlags, TimeOrNow};

/// What `stat` gives as the size of a block of I/O: what one request carries.
const PREFERRED_BYTES: u32 = 128 << 10;

/// What kind the kernel is told.
pub fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind in the mode of `mknod`.
pub fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        // POSIX: no type at all means a file.
        libc::S_IFREG | 0 => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

/// A point in time, negative ones too.
fn system_time(time: Time) -> SystemTime {
    if time.s >= 0 {
        SystemTime::UNIX_EPOCH + Duration::new(time.s.unsigned_abs(), time.ns)
    } else {
        SystemTime::UNIX_EPOCH - Duration::from_secs(time.s.unsigned_abs()) + Duration::from_nanos(u64::from(time.ns))
    }
}

/// What `fuser` makes of a time before 1970 (0.18): so many seconds and nanoseconds *before* the epoch, where the kernel means nanoseconds *after* the
/// (negative) second. Taken back here; a test on a mount would notice if that changed.
fn time(at: SystemTime) -> Time {
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Time { s: after.as_secs().cast_signed(), ns: after.subsec_nanos() },
        Err(before) => {
            let before = before.duration();
            Time { s: -before.as_secs().cast_signed(), ns: before.subsec_nanos() }
        }
    }
}

/// A time that the kernel wants to be set.
pub fn set_time(wanted: TimeOrNow) -> SetTime {
    match wanted {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(at) => SetTime::To(time(at)),
    }
}

/// What `stat` tells, under the number that the kernel knows.
pub fn file_attr(attr: &Attr, number: INodeNo) -> FileAttr {
    FileAttr {
        ino: number,
        size: attr.size_bytes,
        blocks: attr.blocks,
        atime: system_time(attr.accessed),
        mtime: system_time(attr.modified),
        ctime: system_time(attr.changed),
        crtime: system_time(attr.born),
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.links,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: PREFERRED_BYTES,
        flags: 0,
    }
}

/// How a file is opened. Appending is not among it: each write says for itself whether it goes to the end, since pages that come back from mappings
/// have their places.
pub fn open_flags(flags: i32, is_write_back: bool) -> OpenFlags {
    let mode = flags & libc::O_ACCMODE;
    let write = mode != libc::O_RDONLY;
    OpenFlags {
        // The kernel's write-back cache reads what surrounds a part of a page, whatever the program may.
        read: mode != libc::O_WRONLY || is_write_back,
        write,
        append: false,
        truncate: flags & libc::O_TRUNC != 0,
        create: flags & libc::O_CREAT != 0,
        exclusive: flags & libc::O_EXCL != 0,
        sync: flags & libc::O_DSYNC != 0,
    }
}

/// What `renameat2` was asked for; none if it is something that is not known here.
pub fn rename(flags: RenameFlags) -> Option<Rename> {
    if flags.is_empty() {
        Some(Rename::Replace)
    } else if flags == RenameFlags::RENAME_NOREPLACE {
        Some(Rename::Keep)
    } else if flags == RenameFlags::RENAME_EXCHANGE {
        Some(Rename::Exchange)
    } else {
        None
    }
}

/// What `fallocate` was asked for.
pub fn allocate(mode: i32) -> Option<Allocate> {
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    const ZERO_KEEP: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;
    match mode {
        0 => Some(Allocate::Extend),
        libc::FALLOC_FL_KEEP_SIZE => Some(Allocate::KeepSize),
        PUNCH => Some(Allocate::Punch),
        libc::FALLOC_FL_ZERO_RANGE => Some(Allocate::Zero { keep_size: false }),
        ZERO_KEEP => Some(Allocate::Zero { keep_size: true }),
        libc::FALLOC_FL_COLLAPSE_RANGE => Some(Allocate::Collapse),
        libc::FALLOC_FL_INSERT_RANGE => Some(Allocate::Insert),
        _ => None,
    }
}

/// What `setxattr` was asked for.
pub fn set_xattr(flags: i32) -> Option<SetXattr> {
    match flags {
        0 => Some(SetXattr::Any),
        libc::XATTR_CREATE => Some(SetXattr::New),
        libc::XATTR_REPLACE => Some(SetXattr::Replace),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        let earlier = system_time(Time { s: -2, ns: 800_000_000 });
        assert_eq!(SystemTime::UNIX_EPOCH.duration_since(earlier).unwrap(), Duration::from_millis(1200));
        // What fuser makes of the kernel's (-2 s, 800,000,000 ns).
        let told = SystemTime::UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(time(told), Time { s: -2, ns: 800_000_000 });
    }

    #[test]
    fn a_write_back_cache_reads_where_programs_only_write() {
        assert!(open_flags(libc::O_WRONLY, true).read);
        assert!(!open_flags(libc::O_WRONLY, false).read);
        let flags = open_flags(libc::O_RDWR | libc::O_APPEND | libc::O_SYNC, false);
        assert!(flags.read && flags.write && flags.sync && !flags.append);
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        assert_eq!(allocate(libc::FALLOC_FL_PUNCH_HOLE), None);
        assert_eq!(rename(RenameFlags::RENAME_WHITEOUT), None);
        assert_eq!(rename(RenameFlags::RENAME_NOREPLACE | RenameFlags::RENAME_EXCHANGE), None);
        assert_eq!(set_xattr(libc::XATTR_CREATE | libc::XATTR_REPLACE), None);
        assert_eq!(kind_of_mode(libc::S_IFDIR), None);
    }
}
