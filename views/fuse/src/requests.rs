//! The kernel's requests: names and attributes here, open files and their bytes in `io`.

use std::sync::Arc;

use cenote_posix::{Consistency, FsError, FsResult, Ino, Kind, Make, Rename, SetAttr, SetTime, Time};
use parking_lot::Mutex;

use crate::convert;
use crate::kernel::abi::{self, op, opened, set};
use crate::kernel::{Args, Fields, Request};
use crate::open::Reading;
use crate::privileges;
use crate::serving::{Answer, Call, Out, Serving, Undo};
use crate::unmount::PID_XATTR;

/// Block size of `statfs`.
const BLOCK_BYTES: u64 = 4096;
/// Longest name.
const NAME_BYTES_MAX: u32 = 255;
/// Prefix of attributes that views keep for themselves: users of a mount neither see nor set them.
const OWN_XATTRS: &[u8] = b"cenote.";

impl Serving {
    /// Carries a request out. An unknown one gets `ENOSYS`, and the kernel does not send it again.
    pub fn answer(self: &Arc<Self>, call: &mut Call<'_>) -> FsResult<Answer> {
        let request = call.request;
        let (ino, mut args) = (self.ino(request.node), request.args());
        match request.op {
            op::LOOKUP => {
                let name = args.name()?;
                match self.entry(|| self.fs.lookup(&self.caller(request), ino, name)) {
                    Err(error) if error.errno == libc::ENOENT && self.alone.is_so() => Ok(Self::nothing_there()),
                    found => found,
                }
            }
            op::FORGET => {
                self.forget(ino, args.u64()?);
                Ok(Answer::silent())
            }
            op::BATCH_FORGET => self.forget_all(&mut args),
            op::GETATTR => self.get_attr(ino, &mut args),
            op::STATX => self.statx(ino, &mut args),
            op::SETATTR => self.set_attr(request, ino, &mut args),
            op::READLINK => {
                let target = self.fs.read_link(ino)?;
                Ok(call.send(&target))
            }
            op::SYMLINK | op::MKNOD | op::MKDIR => self.make(request, ino, &mut args),
            op::UNLINK => self.unlink(request, ino, args.name()?),
            op::RMDIR => self.remove_dir(request, ino, args.name()?),
            op::RENAME | op::RENAME2 => self.rename(request, ino, &mut args),
            op::LINK => self.link(request, ino, &mut args),
            op::STATFS => self.space(ino),
            op::SETXATTR => self.set_xattr(request, ino, &mut args),
            op::GETXATTR => {
                let room = args.u32()? as usize;
                args.skip(4)?;
                let value = self.xattr(request, ino, args.name()?)?;
                Self::xattr_answer(call, room, &value)
            }
            op::LISTXATTR => {
                let (room, names) = (args.u32()? as usize, self.xattr_names(request, ino)?);
                Self::xattr_answer(call, room, &names)
            }
            op::REMOVEXATTR => self.remove_xattr(request, ino, args.name()?),
            op::OPENDIR => self.open_dir(request, ino),
            op::READDIR => self.list(call, &mut args),
            op::READDIRPLUS => self.list_with_attrs(call, ino, &mut args),
            op::RELEASEDIR => {
                drop(self.dirs.remove(args.u64()?));
                Ok(Answer::done())
            }
            op::FSYNCDIR => self.fs.sync_dir(ino).map(|()| Answer::done()),
            op::IOCTL => Err(FsError::new(libc::ENOTTY)),
            op::DESTROY => Ok(Answer::done()),
            op::GETLK | op::SETLK | op::SETLKW => self.answer_lock(call, args),
            _ => self.answer_io(call, ino, args),
        }
    }
    fn forget_all(&self, args: &mut Args<'_>) -> FsResult<Answer> {
        let count = args.u32()?;
        args.skip(4)?;
        for _ in 0..count {
            let (number, times) = (args.u64()?, args.u64()?);
            self.forget(self.ino(number), times);
        }
        Ok(Answer::silent())
    }
    fn attr_of(&self, ino: Ino, args: &mut Args<'_>) -> FsResult<cenote_posix::Attr> {
        let flags = args.u32()?;
        args.skip(4)?;
        let handle = args.u64()?;
        let file = if flags & abi::GETATTR_HANDLE == 0 { None } else { self.files.get(handle) };
        match file.map_or_else(|| self.fs.attr(ino), |file| file.attr()) {
            Err(error) if error.errno == libc::ESTALE => self.gone.find(ino).ok_or(error),
            attr => attr,
        }
    }
    fn get_attr(&self, ino: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        self.attr_of(ino, args).map(|attr| self.attr_answer(&attr))
    }
    fn statx(&self, ino: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let attr = self.attr_of(ino, args)?;
        let time = self.remember.time(&attr, self.alone.is_so());
        let fields = Fields::new().u64(time.as_secs()).u32(time.subsec_nanos()).u32(0).zeros(16);
        Ok(Answer::fields(convert::statx(fields, &attr, self.number(attr.ino))))
    }
    fn set_attr(&self, request: &Request<'_>, ino: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let valid = args.u32()?;
        args.skip(4)?;
        let (handle, size_bytes) = (args.u64()?, args.u64()?);
        args.skip(8)?;
        let (accessed_s, modified_s) = (args.u64()?.cast_signed(), args.u64()?.cast_signed());
        args.skip(8)?;
        let (accessed_ns, modified_ns) = (args.u32()?, args.u32()?);
        args.skip(4)?;
        let mode = args.u32()?;
        args.skip(4)?;
        let (uid, gid) = (args.u32()?, args.u32()?);
        let has = |bit| valid & bit != 0;
        let time =
            |bit, now, s, ns| has(bit).then(|| if has(now) { SetTime::Now } else { SetTime::To(Time { s, ns }) });
        let mut set = SetAttr {
            mode: has(set::MODE).then_some(mode & 0o7777),
            uid: has(set::UID).then_some(uid),
            gid: has(set::GID).then_some(gid),
            size_bytes: has(set::SIZE).then_some(size_bytes),
            accessed: time(set::ATIME, set::ATIME_NOW, accessed_s, accessed_ns),
            modified: time(set::MTIME, set::MTIME_NOW, modified_s, modified_ns),
        };
        let caller = self.caller(request);
        let file = if has(set::HANDLE) { self.files.get(handle) } else { None };
        if set.size_bytes.is_some() && caller.uid != 0 {
            let attr = file.as_ref().map_or_else(|| self.fs.attr(ino), |file| file.attr())?;
            privileges::cut(request, &attr, &mut set);
        }
        let attr = match file {
            Some(file) => file.set_attr(&caller, &set),
            None => self.fs.set_attr(&caller, ino, &set),
        };
        attr.map(|attr| self.attr_answer(&attr))
    }
    fn make(&self, request: &Request<'_>, dir: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (mut kind, mut mode, mut rdev, mut target) = (Kind::Symlink, 0o777, 0, Vec::new());
        let mut name = &[][..];
        match request.op {
            op::SYMLINK => (name, target) = (args.name()?, args.name()?.to_vec()),
            op::MKDIR => {
                (kind, mode) = (Kind::Directory, args.u32()?);
                args.skip(4)?;
            }
            _ => {
                (mode, rdev) = (args.u32()?, args.u32()?);
                args.skip(8)?;
                kind = convert::kind_of_mode(mode).ok_or_else(|| FsError::new(libc::EINVAL))?;
            }
        }
        if name.is_empty() {
            name = args.name()?;
        }
        let what = Make { kind, mode: mode & 0o7777, rdev: u64::from(rdev), target };
        self.entry(|| self.fs.make(&self.caller(request), dir, name, &what))
    }
    fn unlink(&self, request: &Request<'_>, dir: Ino, name: &[u8]) -> FsResult<Answer> {
        let caller = self.caller(request);
        let was = if self.backings.is_used() { self.fs.lookup(&caller, dir, name).ok() } else { None };
        self.fs.unlink(&caller, dir, name)?;
        if let Some(was) = was.filter(|was| was.links == 1) {
            self.backings.forget(was.ino);
        }
        Ok(Answer::done())
    }
    fn remove_dir(&self, request: &Request<'_>, dir: Ino, name: &[u8]) -> FsResult<Answer> {
        let caller = self.caller(request);
        let attr = self.fs.lookup(&caller, dir, name);
        self.fs.rmdir(&caller, dir, name)?;
        if let Ok(attr) = attr {
            self.gone.add(attr);
        }
        Ok(Answer::done())
    }
    fn rename(&self, request: &Request<'_>, dir: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let to_dir = self.ino(args.u64()?);
        let mut flags = 0;
        if request.op == op::RENAME2 {
            flags = args.u32()?;
            args.skip(4)?;
        }
        let (name, to_name) = (args.name()?, args.name()?);
        let how = convert::rename(flags).ok_or_else(|| FsError::new(libc::EINVAL))?;
        let caller = self.caller(request);
        let over = self.fs.lookup(&caller, to_dir, to_name).ok();
        self.fs.rename(&caller, (dir, name), (to_dir, to_name), how)?;
        match over.filter(|_| how == Rename::Replace) {
            Some(over) if over.kind == Kind::Directory => self.gone.add(over),
            Some(over) if over.links == 1 => self.backings.forget(over.ino),
            _ => {}
        }
        Ok(Answer::done())
    }
    fn link(&self, request: &Request<'_>, dir: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (ino, name) = (self.ino(args.u64()?), args.name()?);
        let unnamed = self.unnamed.lock().get(&ino).and_then(std::sync::Weak::upgrade);
        let caller = self.caller(request);
        self.entry(|| match &unnamed {
            Some(file) => {
                let attr = self.fs.place(&caller, file, (dir, name), &[], cenote_posix::Over::Nothing, None)?;
                self.unnamed.lock().remove(&ino);
                Ok(attr)
            }
            None => self.fs.link(&caller, ino, dir, name),
        })
    }
    fn space(&self, ino: Ino) -> FsResult<Answer> {
        let space = self.fs.space(ino)?;
        let (total, free) = (space.total_bytes / BLOCK_BYTES, space.free_bytes / BLOCK_BYTES);
        let files = space.files.saturating_add(space.files_free);
        let block = BLOCK_BYTES as u32;
        let fields = Fields::new().u64(total).u64(free).u64(free).u64(files).u64(space.files_free);
        Ok(Answer::fields(fields.u32(block).u32(NAME_BYTES_MAX).u32(block).zeros(28)))
    }
    fn set_xattr(&self, request: &Request<'_>, ino: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (len, flags) = (args.u32()? as usize, args.u32()?);
        let name = args.name()?;
        let value = args.bytes(len)?;
        if name.starts_with(OWN_XATTRS) {
            return Err(FsError::new(libc::EOPNOTSUPP));
        }
        let how = convert::set_xattr(flags.cast_signed()).ok_or_else(|| FsError::new(libc::EINVAL))?;
        self.fs.set_xattr(&self.caller(request), ino, name, value, how)?;
        Ok(Answer::done())
    }
    fn remove_xattr(&self, request: &Request<'_>, ino: Ino, name: &[u8]) -> FsResult<Answer> {
        if name.starts_with(OWN_XATTRS) {
            return Err(FsError::new(libc::ENODATA));
        }
        self.fs.remove_xattr(&self.caller(request), ino, name)?;
        Ok(Answer::done())
    }
    fn xattr(&self, request: &Request<'_>, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        if name == PID_XATTR.as_bytes() && ino == self.root {
            return Ok(std::process::id().to_string().into_bytes());
        }
        if name.starts_with(OWN_XATTRS) {
            return Err(FsError::new(libc::ENODATA));
        }
        self.fs.xattr(&self.caller(request), ino, name)
    }
    /// Names of the extended attributes that this user may see, each followed by a NUL.
    fn xattr_names(&self, request: &Request<'_>, ino: Ino) -> FsResult<Vec<u8>> {
        let mut text = Vec::new();
        for name in self.fs.xattrs(&self.caller(request), ino)? {
            let is_hidden = name.starts_with(OWN_XATTRS) || (request.uid != 0 && name.starts_with(b"trusted."));
            if !is_hidden {
                text.extend_from_slice(&name);
                text.push(0);
            }
        }
        Ok(text)
    }
    fn xattr_answer(call: &Call<'_>, room: usize, bytes: &[u8]) -> FsResult<Answer> {
        if room == 0 {
            Ok(Answer::fields(Fields::new().u32(bytes.len() as u32).u32(0)))
        } else if bytes.len() > room {
            Err(FsError::new(libc::ERANGE))
        } else {
            Ok(call.send(bytes))
        }
    }
    fn open_dir(&self, request: &Request<'_>, ino: Ino) -> FsResult<Answer> {
        let cursor = self.fs.read_dir(&self.caller(request), ino)?;
        let is_fixed = self.fs.attr(ino)?.consistency == Consistency::Laminated;
        let flags = if is_fixed { opened::CACHE_DIR | opened::KEEP_CACHE } else { 0 };
        let handle = self.dirs.insert(Mutex::new(Reading::new(cursor)));
        let fields = Fields::new().u64(handle).u32(flags).u32(0);
        Ok(Answer { out: Out::Fields(fields), undo: Undo::OpenedDir(handle) })
    }
    fn list(&self, call: &mut Call<'_>, args: &mut Args<'_>) -> FsResult<Answer> {
        let (handle, offset, room) = (args.u64()?, args.u64()?, args.u32()? as usize);
        let dir = self.dirs.get(handle).ok_or_else(|| FsError::new(libc::EBADF))?;
        let bytes = &mut *call.scratch;
        bytes.clear();
        dir.lock().read(offset, |entry| Ok(convert::dirent(bytes, room, entry, self.number(entry.ino), None)))?;
        Ok(Answer::scratch(bytes.len()))
    }
    fn list_with_attrs(&self, call: &mut Call<'_>, ino: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (handle, offset, room) = (args.u64()?, args.u64()?, args.u32()? as usize);
        let dir = self.dirs.get(handle).ok_or_else(|| FsError::new(libc::EBADF))?;
        let caller = self.caller(call.request);
        let bytes = &mut *call.scratch;
        bytes.clear();
        let _told = self.lookups.begin();
        dir.lock().read(offset, |entry| {
            if matches!(&entry.name[..], b"." | b"..") || ino == Ino::TOP {
                // Without a node number: the kernel already knows both. At the top each is a container, whose node may be away:
                // the kernel asks for what it wants of them.
                let nothing = Fields::new().zeros(abi::ENTRY_BYTES);
                return Ok(convert::dirent(bytes, room, entry, self.number(entry.ino), Some(&nothing)));
            }
            let attr = match self.fs.lookup(&caller, ino, &entry.name) {
                // It was deleted after it was read: leave it out.
                Err(error) if error.errno == libc::ENOENT => return Ok(true),
                attr => attr?,
            };
            let number = self.number(attr.ino);
            let has_room = convert::dirent(bytes, room, entry, number, Some(&self.entry_fields(&attr)));
            if has_room {
                self.lookups.tell(attr.ino);
            }
            Ok(has_room)
        })?;
        Ok(Answer::scratch(bytes.len()))
    }
}
