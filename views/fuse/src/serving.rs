//! What the kernel's requests come to: calls of the file system, with the numbers that the kernel knows things by.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::{Arc, OnceLock};

use cenote_posix::{Attr, Caller, File, FileSystem, FsError, FsResult, Ino, Make, SetAttr};
use fuser::{
    FileHandle, FopenFlags, Generation, INodeNo, Notifier, OpenFlags, ReplyAttr, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEntry, ReplyXattr, Request, WriteFlags,
};
use parking_lot::Mutex;

use crate::answer::{answer, errno};
use crate::convert;
use crate::handles::Handles;
use crate::known::Known;
use crate::open::Reading;
use crate::privileges;
use crate::remember::Remember;
use crate::unmount::PID_XATTR;

/// Attributes that views keep for themselves: no user of a mount sees or sets them.
pub const OWN_XATTRS: &[u8] = b"cenote.";
/// Numbers are never used again, so generations are not needed.
pub const GENERATION: Generation = Generation(0);

thread_local! {
    /// What is read by a copy; as long as the longest request that the thread has seen.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// What answers the kernel.
pub struct Serving {
    pub fs: FileSystem,
    root: Ino,
    pub remember: Remember,
    pub files: Handles<File>,
    pub dirs: Handles<Mutex<Reading>>,
    pub known: Known,
    no_groups: Arc<[u32]>,
    notifier: Arc<OnceLock<Notifier>>,
}

impl Serving {
    pub fn new(fs: FileSystem, remember: Remember, notifier: Arc<OnceLock<Notifier>>) -> Self {
        let root = fs.root();
        let (files, dirs, known) = (Handles::default(), Handles::default(), Known::default());
        Self { fs, root, remember, files, dirs, known, no_groups: Arc::new([]), notifier }
    }
    /// The file that the kernel means: its root is number 1 whatever ours is.
    pub fn ino(&self, number: INodeNo) -> Ino {
        if number == INodeNo::ROOT { self.root } else { Ino(number.0) }
    }
    fn number(&self, ino: Ino) -> INodeNo {
        if ino == self.root { INodeNo::ROOT } else { INodeNo(ino.0) }
    }
    /// Who asks. The kernel has checked rights, with the groups that it knows best.
    pub fn caller(&self, request: &Request) -> Caller {
        Caller { uid: request.uid(), gid: request.gid(), groups: self.no_groups.clone(), is_checked: true }
    }
    /// The kernel forgets what it was told so many times.
    pub fn forget(&self, number: INodeNo, times: u64) {
        let ino = self.ino(number);
        if ino != self.root {
            self.known.forget(ino, times, || self.fs.forget(ino));
        }
    }
    pub fn file(&self, handle: FileHandle) -> FsResult<Arc<File>> {
        self.files.get(handle).ok_or_else(|| FsError::new(libc::EBADF))
    }
    pub fn attr_for_kernel(&self, attr: &Attr) -> fuser::FileAttr {
        convert::file_attr(attr, self.number(attr.ino))
    }
    /// Answers with what `find` finds, which the kernel knows from then on.
    pub fn send_entry(&self, reply: ReplyEntry, find: impl FnOnce() -> FsResult<Attr>) {
        let _told = self.known.begin();
        answer!(reply, find(), |attr| {
            self.known.tell(attr.ino);
            reply.entry(&self.remember.time(&attr), &self.attr_for_kernel(&attr), GENERATION);
        });
    }
    pub fn send_attr(&self, reply: ReplyAttr, result: FsResult<Attr>) {
        answer!(reply, result, |attr| reply.attr(&self.remember.time(&attr), &self.attr_for_kernel(&attr)));
    }
    pub fn make(&self, request: &Request, parent: INodeNo, name: &OsStr, what: &Make) -> FsResult<Attr> {
        self.fs.make(&self.caller(request), self.ino(parent), name.as_bytes(), what)
    }
    pub fn set_attr(&self, request: &Request, ino: Ino, file: Option<FileHandle>, mut set: SetAttr) -> FsResult<Attr> {
        let caller = self.caller(request);
        let file = file.and_then(|handle| self.files.get(handle));
        if set.size_bytes.is_some() && caller.uid != 0 {
            let attr = file.as_ref().map_or_else(|| self.fs.attr(ino), |file| file.attr())?;
            privileges::cut(&caller, &attr, &mut set);
        }
        match file {
            Some(file) => file.set_attr(&caller, &set),
            None => self.fs.set_attr(&caller, ino, &set),
        }
    }
    /// Opens a file, and says how the kernel is to treat what it has of it.
    pub fn open_file(&self, request: &Request, ino: Ino, flags: i32) -> FsResult<(FileHandle, FopenFlags)> {
        let caller = self.caller(request);
        let wanted = convert::open_flags(flags, self.remember.is_write_back);
        let file = self.fs.open(&caller, ino, wanted)?;
        if wanted.truncate && caller.uid != 0 {
            privileges::written(&caller, &file)?;
        }
        let attr = file.attr()?;
        if self.remember.asks_at_open(&attr)
            && let Some(notifier) = self.notifier.get()
        {
            // A negative offset: attributes only, which waits for no page and no lock of the kernel.
            let _ = notifier.inval_inode(self.number(ino), -1, 0);
        }
        Ok((self.files.insert(file), self.remember.pages(&attr)))
    }
    /// Makes a file that the kernel found missing, and opens it.
    pub fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        flags: i32,
        mode: u32,
    ) -> FsResult<(FileHandle, Attr)> {
        let mut wanted = convert::open_flags(flags | libc::O_CREAT | libc::O_EXCL, self.remember.is_write_back);
        wanted.truncate = false;
        let _told = self.known.begin();
        let made = self.fs.open_at(&self.caller(request), self.ino(parent), name.as_bytes(), wanted, mode & 0o7777);
        match made {
            Ok((file, attr, _)) => {
                self.known.tell(attr.ino);
                Ok((self.files.insert(file), attr))
            }
            // Somebody else made it since. It is to be opened with the rights that it has: the kernel looks anew and checks them.
            Err(error) if error.errno == libc::EEXIST && flags & libc::O_EXCL == 0 => Err(FsError::new(libc::ESTALE)),
            Err(error) => Err(error),
        }
    }
    pub fn write_file(
        &self,
        request: &Request,
        handle: FileHandle,
        (offset, data): (u64, &[u8]),
        (how, flags): (WriteFlags, OpenFlags),
    ) -> FsResult<()> {
        let file = self.file(handle)?;
        if how.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
            privileges::written(&self.caller(request), &file)?;
        }
        // The kernel's idea of the end may be old. Pages that come back from its cache (mappings, write-back) have their place.
        let is_at_end = flags.0 & libc::O_APPEND != 0 && !self.remember.is_write_back;
        if is_at_end && !how.contains(WriteFlags::FUSE_WRITE_CACHE) {
            file.append(data).map(drop)
        } else {
            file.write_at(data, offset)
        }
    }
    /// Reads where the bytes are if they lie in one piece, else by a copy.
    pub fn read_file(&self, handle: FileHandle, offset: u64, len: usize, reply: ReplyData) {
        let file = match self.file(handle) {
            Ok(file) => file,
            Err(error) => return reply.error(errno(&error)),
        };
        if let Ok(Some(view)) = file.view(offset, len) {
            return reply.data(&view);
        }
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < len {
                buffer.resize(len, 0);
            }
            answer!(reply, file.read_at(&mut buffer[..len], offset), |got| reply.data(&buffer[..got]));
        });
    }
    pub fn xattr(&self, request: &Request, ino: Ino, name: &OsStr) -> FsResult<Vec<u8>> {
        if name.as_bytes() == PID_XATTR.as_bytes() && ino == self.root {
            return Ok(std::process::id().to_string().into_bytes());
        }
        if name.as_bytes().starts_with(OWN_XATTRS) {
            return Err(FsError::new(libc::ENODATA));
        }
        self.fs.xattr(&self.caller(request), ino, name.as_bytes())
    }
    /// Names of extended attributes that this user may see, each with a NUL behind it.
    pub fn xattr_names(&self, request: &Request, ino: Ino) -> FsResult<Vec<u8>> {
        let mut text = Vec::new();
        for name in self.fs.xattrs(&self.caller(request), ino)? {
            let is_hidden = name.starts_with(OWN_XATTRS) || (request.uid() != 0 && name.starts_with(b"trusted."));
            if !is_hidden {
                text.extend_from_slice(&name);
                text.push(0);
            }
        }
        Ok(text)
    }
    pub fn send_xattr(reply: ReplyXattr, room: u32, result: FsResult<Vec<u8>>) {
        answer!(reply, result, |bytes| if room == 0 {
            reply.size(bytes.len() as u32);
        } else if bytes.len() > room as usize {
            reply.error(fuser::Errno::ERANGE);
        } else {
            reply.data(&bytes);
        });
    }
    pub fn open_dir(&self, request: &Request, ino: Ino) -> FsResult<(FileHandle, FopenFlags)> {
        let cursor = self.fs.read_dir(&self.caller(request), ino)?;
        let attr = self.fs.attr(ino)?;
        let flags = if attr.consistency == cenote_posix::Consistency::Laminated {
            FopenFlags::FOPEN_CACHE_DIR | FopenFlags::FOPEN_KEEP_CACHE
        } else {
            FopenFlags::empty()
        };
        Ok((self.dirs.insert(Mutex::new(Reading::new(cursor))), flags))
    }
    pub fn list(&self, handle: FileHandle, offset: u64, reply: &mut ReplyDirectory) -> FsResult<()> {
        let dir = self.dirs.get(handle).ok_or_else(|| FsError::new(libc::EBADF))?;
        dir.lock().read(offset, |entry| {
            let name = OsStr::from_bytes(&entry.name);
            Ok(!reply.add(self.number(entry.ino), entry.next, convert::file_type(entry.kind), name))
        })
    }
    pub fn list_with_attrs(
        &self,
        request: &Request,
        ino: Ino,
        (handle, offset): (FileHandle, u64),
        reply: &mut ReplyDirectoryPlus,
    ) -> FsResult<()> {
        let dir = self.dirs.get(handle).ok_or_else(|| FsError::new(libc::EBADF))?;
        let caller = self.caller(request);
        let _told = self.known.begin();
        dir.lock().read(offset, |entry| {
            let is_dots = matches!(&entry.name[..], b"." | b"..");
            // Of the two the kernel takes no more than the numbers.
            let found = if is_dots { self.fs.attr(ino) } else { self.fs.lookup(&caller, ino, &entry.name) };
            let attr = match found {
                // Gone since it was read: as if it had gone before.
                Err(error) if error.errno == libc::ENOENT => return Ok(true),
                attr => attr?,
            };
            let (time, number) = (self.remember.time(&attr), self.number(if is_dots { entry.ino } else { attr.ino }));
            let (attr_for_kernel, name) = (convert::file_attr(&attr, number), OsStr::from_bytes(&entry.name));
            let is_full = reply.add(number, entry.next, name, &time, &attr_for_kernel, GENERATION);
            if !is_full && !is_dots {
                self.known.tell(attr.ino);
            }
            Ok(!is_full)
        })
    }
}
