//! The kernel's requests, one by one.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use cenote_posix::{File, FsError, Kind, Make, SetAttr};
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner,
    OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty,
    ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};

use crate::answer::{answer, contain};
use crate::convert;
use crate::serving::{GENERATION, OWN_XATTRS, Serving};

/// The most that one request carries.
pub const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that the kernel sends ahead of anybody waiting for them (readahead, write-back).
const BACKGROUND_MAX: u16 = 64;
/// What `statfs` counts in.
const BLOCK_BYTES: u64 = 4096;
/// Names are 1 to 255 bytes.
const NAME_BYTES_MAX: u32 = 255;
impl Filesystem for Serving {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let cache =
            if self.remember.is_write_back { InitFlags::FUSE_WRITEBACK_CACHE } else { InitFlags::FUSE_AUTO_INVAL_DATA };
        let wanted = InitFlags::FUSE_ATOMIC_O_TRUNC
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_READDIRPLUS_AUTO
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_CACHE_SYMLINKS
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            | cache;
        // What an older kernel has not, it does in its own way.
        for flag in wanted.iter() {
            let _ = config.add_capabilities(flag);
        }
        let _ = config.set_max_write(REQUEST_BYTES_MAX);
        let _ = config.set_max_background(BACKGROUND_MAX);
        Ok(())
    }
    fn destroy(&mut self) {
        // The kernel does not say goodbye to what was open when a mount ends.
        drop(self.dirs.drain());
        for file in self.files.drain().into_iter().filter_map(Arc::into_inner) {
            if let Err(error) = file.close() {
                tracing::warn!("a file could not be closed when the mount ended: {error}");
            }
        }
    }
    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        contain(|| self.send_entry(reply, || self.fs.lookup(&self.caller(request), self.ino(parent), name.as_bytes())));
    }
    fn forget(&self, _: &Request, number: INodeNo, times: u64) {
        contain(|| Self::forget(self, number, times));
    }
    fn getattr(&self, _: &Request, number: INodeNo, handle: Option<FileHandle>, reply: ReplyAttr) {
        contain(|| {
            let file = handle.and_then(|handle| self.files.get(handle));
            self.send_attr(reply, file.map_or_else(|| self.fs.attr(self.ino(number)), |file| file.attr()));
        });
    }
    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size_bytes: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        contain(|| {
            let mode = mode.map(|mode| mode & 0o7777);
            let (accessed, modified) = (accessed.map(convert::set_time), modified.map(convert::set_time));
            let set = SetAttr { mode, uid, gid, size_bytes, accessed, modified };
            self.send_attr(reply, self.set_attr(request, self.ino(number), handle, set));
        });
    }
    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        contain(|| answer!(reply, self.fs.read_link(self.ino(number)), |target| reply.data(&target)));
    }
    fn mknod(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, rdev: u32, reply: ReplyEntry) {
        contain(|| {
            self.send_entry(reply, || {
                let kind = convert::kind_of_mode(mode).ok_or_else(|| FsError::new(libc::EINVAL))?;
                let what = Make { kind, mode: mode & 0o7777, rdev: u64::from(rdev), target: Vec::new() };
                self.make(request, parent, name, &what)
            });
        });
    }
    fn mkdir(&self, request: &Request, parent: INodeNo, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let what = Make { kind: Kind::Directory, mode: mode & 0o7777, rdev: 0, target: Vec::new() };
        contain(|| self.send_entry(reply, || self.make(request, parent, name, &what)));
    }
    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let target = target.as_os_str().as_bytes().to_vec();
        let what = Make { kind: Kind::Symlink, mode: 0o777, rdev: 0, target };
        contain(|| self.send_entry(reply, || self.make(request, parent, name, &what)));
    }
    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        contain(|| {
            let result = self.fs.unlink(&self.caller(request), self.ino(parent), name.as_bytes());
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        contain(|| {
            let result = self.fs.rmdir(&self.caller(request), self.ino(parent), name.as_bytes());
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        to_parent: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        contain(|| {
            let (from, to) = ((self.ino(parent), name.as_bytes()), (self.ino(to_parent), to_name.as_bytes()));
            let result = convert::rename(flags)
                .ok_or_else(|| FsError::new(libc::EINVAL))
                .and_then(|how| self.fs.rename(&self.caller(request), from, to, how));
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn link(&self, request: &Request, number: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        contain(|| {
            let (ino, parent) = (self.ino(number), self.ino(parent));
            self.send_entry(reply, || self.fs.link(&self.caller(request), ino, parent, name.as_bytes()));
        });
    }
    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        contain(|| {
            let result = self.open_file(request, self.ino(number), flags.0);
            answer!(reply, result, |(handle, flags)| reply.opened(handle, flags));
        });
    }
    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        contain(|| {
            let result = self.create_file(request, parent, name, flags, mode);
            answer!(reply, result, |(handle, attr)| {
                let (time, flags) = (self.remember.time(&attr), self.remember.pages(&attr));
                reply.created(&time, &self.attr_for_kernel(&attr), GENERATION, handle, flags);
            });
        });
    }
    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        contain(|| self.read_file(handle, offset, size as usize, reply));
    }
    fn write(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        how: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        contain(|| {
            let result = self.write_file(request, handle, (offset, data), (how, flags));
            answer!(reply, result, |()| reply.written(data.len() as u32));
        });
    }
    fn flush(&self, _: &Request, _: INodeNo, handle: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        contain(|| {
            let result = self.file(handle).and_then(|file| file.flush());
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        contain(|| {
            // Whoever still reads ahead in it closes it.
            let result = self.files.remove(handle).and_then(Arc::into_inner).map_or(Ok(()), File::close);
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, data_only: bool, reply: ReplyEmpty) {
        contain(|| {
            let result = self.file(handle).and_then(|file| file.sync(data_only));
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn opendir(&self, request: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        contain(|| {
            let result = self.open_dir(request, self.ino(number));
            answer!(reply, result, |(handle, flags)| reply.opened(handle, flags));
        });
    }
    fn readdir(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        contain(|| answer!(reply, self.list(handle, offset, &mut reply), |()| reply.ok()));
    }
    fn readdirplus(
        &self,
        request: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        contain(|| {
            let result = self.list_with_attrs(request, self.ino(number), (handle, offset), &mut reply);
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        contain(|| {
            drop(self.dirs.remove(handle));
            reply.ok();
        });
    }
    fn fsyncdir(&self, _: &Request, number: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        contain(|| answer!(reply, self.fs.sync_dir(self.ino(number)), |()| reply.ok()));
    }
    fn statfs(&self, _: &Request, number: INodeNo, reply: ReplyStatfs) {
        contain(|| {
            answer!(reply, self.fs.space(self.ino(number)), |space| {
                let (total, free) = (space.total_bytes / BLOCK_BYTES, space.free_bytes / BLOCK_BYTES);
                let files = space.files.saturating_add(space.files_free);
                let block = BLOCK_BYTES as u32;
                reply.statfs(total, free, free, files, space.files_free, block, NAME_BYTES_MAX, block);
            });
        });
    }
    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        contain(|| {
            let name = name.as_bytes();
            let how = if name.starts_with(OWN_XATTRS) {
                Err(FsError::new(libc::EOPNOTSUPP))
            } else {
                convert::set_xattr(flags).ok_or_else(|| FsError::new(libc::EINVAL))
            };
            let result =
                how.and_then(|how| self.fs.set_xattr(&self.caller(request), self.ino(number), name, value, how));
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn getxattr(&self, request: &Request, number: INodeNo, name: &OsStr, room: u32, reply: ReplyXattr) {
        contain(|| Self::send_xattr(reply, room, self.xattr(request, self.ino(number), name)));
    }
    fn listxattr(&self, request: &Request, number: INodeNo, room: u32, reply: ReplyXattr) {
        contain(|| Self::send_xattr(reply, room, self.xattr_names(request, self.ino(number))));
    }
    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        contain(|| {
            let result = if name.as_bytes().starts_with(OWN_XATTRS) {
                Err(FsError::new(libc::ENODATA))
            } else {
                self.fs.remove_xattr(&self.caller(request), self.ino(number), name.as_bytes())
            };
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        contain(|| {
            let result = convert::allocate(mode)
                .ok_or_else(|| FsError::new(libc::EOPNOTSUPP))
                .and_then(|what| self.file(handle)?.allocate(what, offset, length));
            answer!(reply, result, |()| reply.ok());
        });
    }
    fn lseek(&self, _: &Request, _: INodeNo, handle: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        contain(|| {
            let result = self.file(handle).and_then(|file| match (u64::try_from(offset), whence) {
                (Ok(offset), libc::SEEK_DATA) => file.next_data(offset),
                (Ok(offset), libc::SEEK_HOLE) => file.next_hole(offset),
                (Err(_), libc::SEEK_DATA | libc::SEEK_HOLE) => Err(FsError::new(libc::ENXIO)),
                _ => Err(FsError::new(libc::EINVAL)),
            });
            answer!(reply, result, |offset| reply.offset(offset.cast_signed()));
        });
    }
    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The reply counts in 32 bits; a program that wants more asks again.
        const LEN_MAX: u64 = 1 << 30;
        contain(|| {
            let result = self
                .file(from)
                .and_then(|from| self.file(to)?.copy_from(&from, from_offset, to_offset, len.min(LEN_MAX)));
            answer!(reply, result, |copied| reply.written(copied as u32));
        });
    }
    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(fuser::Errno::ENOTTY);
    }
}
