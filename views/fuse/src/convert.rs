//! Conversions between the kernel's structures and flags and the types of `cenote-posix`.

use cenote_posix::{Allocate, Attr, DirEntry, Kind, OpenFlags, Rename, SetXattr, Time};

use crate::kernel::Fields;
use crate::kernel::abi::DIRENT_BYTES;

/// The block size for I/O that `stat` reports: the bytes of one request.
const PREFERRED_BYTES: u32 = 128 << 10;

/// The type bits of a mode.
fn type_bits(kind: Kind) -> u32 {
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

/// The kind in the mode of `mknod`.
pub fn kind_of_mode(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        // POSIX: no type at all means a regular file.
        libc::S_IFREG | 0 => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

/// `fuse_attr`: the attributes of `stat`, under the kernel's number.
pub fn attr(fields: Fields, attr: &Attr, number: u64) -> Fields {
    let times = [attr.accessed, attr.modified, attr.changed];
    let fields = fields.u64(number).u64(attr.size_bytes).u64(attr.blocks);
    let fields = times.iter().fold(fields, |fields, time| fields.u64(time.s.cast_unsigned()));
    let fields = times.iter().fold(fields, |fields, time| fields.u32(time.ns));
    let mode = type_bits(attr.kind) | (attr.mode & 0o7777);
    let fields = fields.u32(mode).u32(attr.links).u32(attr.uid).u32(attr.gid);
    fields.u32(attr.rdev as u32).u32(PREFERRED_BYTES).u32(0)
}

/// `fuse_statx`: the same, and the creation time.
pub fn statx(fields: Fields, attr: &Attr, number: u64) -> Fields {
    let time = |fields: Fields, time: Time| fields.u64(time.s.cast_unsigned()).u32(time.ns).u32(0);
    let mode = (type_bits(attr.kind) | (attr.mode & 0o7777)) as u16;
    let fields = fields.u32(libc::STATX_BASIC_STATS | libc::STATX_BTIME).u32(PREFERRED_BYTES).u64(0);
    let fields = fields.u32(attr.links).u32(attr.uid).u32(attr.gid).u16(mode).u16(0);
    let fields = fields.u64(number).u64(attr.size_bytes).u64(attr.blocks).u64(0);
    let fields = [attr.accessed, attr.born, attr.changed, attr.modified].into_iter().fold(fields, time);
    // The kernel's packing into 32 bits: 12 bits of the major number between 20 of the minor one.
    let (major, minor) = ((attr.rdev >> 8) & 0xfff, (attr.rdev & 0xff) | ((attr.rdev >> 12) & 0xf_ff00));
    fields.u32(major as u32).u32(minor as u32).zeros(8 + 14 * 8)
}

/// Appends a directory entry, with its attributes if requested. Returns false if there is no room.
pub fn dirent(bytes: &mut Vec<u8>, room: usize, entry: &DirEntry, number: u64, known: Option<&Fields>) -> bool {
    let len = known.map_or(0, |known| known.as_bytes().len()) + (DIRENT_BYTES + entry.name.len()).next_multiple_of(8);
    if bytes.len() + len > room {
        return false;
    }
    let end = bytes.len() + len;
    bytes.extend_from_slice(known.map_or(&[], Fields::as_bytes));
    bytes.extend_from_slice(&number.to_ne_bytes());
    bytes.extend_from_slice(&entry.next.to_ne_bytes());
    bytes.extend_from_slice(&(entry.name.len() as u32).to_ne_bytes());
    bytes.extend_from_slice(&(type_bits(entry.kind) >> 12).to_ne_bytes());
    bytes.extend_from_slice(&entry.name);
    bytes.resize(end, 0);
    true
}

/// Converts open flags, except for appending: each write says itself whether it goes to the end, since pages written
/// back from mappings have their own offsets.
pub fn open_flags(flags: i32, is_write_back: bool) -> OpenFlags {
    let mode = flags & libc::O_ACCMODE;
    let write = mode != libc::O_RDONLY;
    OpenFlags {
        // The kernel's write-back cache reads the rest of a partly written page, whatever the program may do.
        read: mode != libc::O_WRONLY || is_write_back,
        write,
        append: false,
        truncate: flags & libc::O_TRUNC != 0,
        create: flags & libc::O_CREAT != 0,
        exclusive: flags & libc::O_EXCL != 0,
        sync: flags & libc::O_DSYNC != 0,
    }
}

/// Converts flags of `renameat2`; `None` if they are unknown.
pub fn rename(flags: u32) -> Option<Rename> {
    match flags {
        0 => Some(Rename::Replace),
        libc::RENAME_NOREPLACE => Some(Rename::Keep),
        libc::RENAME_EXCHANGE => Some(Rename::Exchange),
        _ => None,
    }
}

/// Converts flags of `fallocate`; `None` if they are unknown.
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

/// Converts flags of `setxattr`; `None` if they are unknown.
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

    fn some() -> Attr {
        let time = |s| Time { s, ns: 800_000_000 };
        Attr {
            ino: cenote_posix::Ino(5),
            kind: Kind::BlockDevice,
            mode: 0o4755,
            links: 3,
            uid: 1,
            gid: 2,
            rdev: 0x0123_4567,
            size_bytes: 0,
            blocks: 0,
            accessed: time(-2),
            modified: time(7),
            changed: time(8),
            born: time(9),
            consistency: cenote_posix::Consistency::Strict,
        }
    }

    #[test]
    fn structures_are_as_long_as_the_kernel_wants_them() {
        let fields = attr(Fields::new(), &some(), 9);
        assert_eq!(fields.as_bytes().len(), 88);
        // Seconds are rounded down, and nanoseconds count from there.
        assert_eq!(fields.as_bytes()[24..32], (-2_i64).to_ne_bytes());
        assert_eq!(fields.as_bytes()[48..52], 800_000_000_u32.to_ne_bytes());
        assert_eq!(fields.as_bytes()[60..64], (libc::S_IFBLK | 0o4755).to_ne_bytes());
        let fields = statx(Fields::new(), &some(), 9);
        assert_eq!(fields.as_bytes().len(), 256);
        assert_eq!(fields.as_bytes()[128..136], [0x345_u32.to_ne_bytes(), 0x1267_u32.to_ne_bytes()].concat());
    }

    #[test]
    fn entries_are_aligned_and_stay_within_their_room() {
        let entry = DirEntry { name: b"name".to_vec(), ino: cenote_posix::Ino(3), kind: Kind::Directory, next: 11 };
        let mut bytes = Vec::new();
        assert!(dirent(&mut bytes, 64, &entry, 3, None) && dirent(&mut bytes, 64, &entry, 3, None));
        assert_eq!(bytes.len(), 64);
        assert!(!dirent(&mut bytes, 64, &entry, 3, None));
        assert_eq!(bytes[20..28], *b"\x04\0\0\0name");
        bytes.clear();
        assert!(dirent(&mut bytes, 160, &entry, 3, Some(&Fields::new().zeros(128))) && bytes.len() == 160);
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
        assert_eq!(rename(libc::RENAME_WHITEOUT), None);
        assert_eq!(rename(libc::RENAME_NOREPLACE | libc::RENAME_EXCHANGE), None);
        assert_eq!(set_xattr(libc::XATTR_CREATE | libc::XATTR_REPLACE), None);
        assert_eq!(kind_of_mode(libc::S_IFDIR), None);
    }
}
