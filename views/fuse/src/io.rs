//! Requests about open files and their bytes.

use std::sync::Arc;

use cenote_posix::{File, FsError, FsResult, Ino};

use crate::convert;
use crate::kernel::abi::{self, op};
use crate::kernel::{Args, Fields, Request};
use crate::pages::{PAGE_BYTES, Settle, Span};
use crate::privileges;
use crate::serving::{Answer, Call, Out, Serving, Undo};

impl Serving {
    pub fn answer_io(self: &Arc<Self>, call: &mut Call<'_>, ino: Ino, mut args: Args<'_>) -> FsResult<Answer> {
        let request = call.request;
        let args = &mut args;
        match request.op {
            op::OPEN => self.open(request, ino, args.u32()?.cast_signed()),
            op::CREATE => self.create(request, ino, args),
            op::TMPFILE => self.create_unnamed(request, ino, args),
            op::READ => self.read(call, args),
            op::WRITE => self.write(call, args),
            op::FLUSH => self.flush(args),
            op::RELEASE => self.release_file(args),
            op::FSYNC => {
                let (handle, flags) = (args.u64()?, args.u32()?);
                self.file(handle)?.sync(flags & abi::FSYNC_DATA != 0).map(|()| Answer::done())
            }
            op::FALLOCATE => {
                let (handle, offset, len, mode) = (args.u64()?, args.u64()?, args.u64()?, args.u32()?);
                let what = convert::allocate(mode.cast_signed()).ok_or_else(|| FsError::new(libc::EOPNOTSUPP))?;
                let file = self.file(handle)?;
                // The kernel passes this flag only with writes.
                self.drop_set_ids(request, &file)?;
                file.allocate(what, offset, len).map(|()| Answer::done())
            }
            op::LSEEK => self.seek(args),
            op::COPY_FILE_RANGE | op::COPY_FILE_RANGE_64 => self.copy(request, args),
            _ => Err(FsError::new(libc::ENOSYS)),
        }
    }
    /// Handles the closing of one descriptor, of which there may be others.
    fn flush(&self, args: &mut Args<'_>) -> FsResult<Answer> {
        let file = self.file(args.u64()?)?;
        args.skip(8)?;
        self.closed_by(&file, args.u64()?);
        let flushed = if self.backings.puts_back_later(file.ino()) { file.flush_later() } else { file.flush() };
        flushed.map(|()| Answer::done())
    }
    /// Handles the closing of the last descriptor.
    fn release_file(&self, args: &mut Args<'_>) -> FsResult<Answer> {
        let handle = args.u64()?;
        args.skip(4)?;
        let (how, owner) = (args.u32()?, args.u64()?);
        let file = self.file(handle)?;
        if how & abi::RELEASE_LOCKS != 0 {
            self.closed_by(&file, owner);
        }
        self.closed_for_good(&file, handle);
        drop(file);
        self.release(handle).map(|()| Answer::done())
    }
    /// Opens a file, and tells the kernel how to treat its pages.
    fn open(&self, request: &Request<'_>, ino: Ino, flags: i32) -> FsResult<Answer> {
        let caller = self.caller(request);
        let wanted = convert::open_flags(flags, self.remember.is_write_back);
        let file = self.fs.open(&caller, ino, wanted)?;
        if wanted.truncate {
            self.drop_set_ids(request, &file)?;
        }
        let attr = file.attr()?;
        if self.remember.asks_at_open(&attr, self.alone.is_so()) {
            self.expire(ino);
        }
        let (flags, backing) = self.backings.enter(&file, &attr, self.remember.pages(&attr, wanted.write));
        let handle = self.files.insert(file);
        let fields = Fields::new().u64(handle).u32(flags).u32(backing);
        Ok(Answer { out: Out::Fields(fields), undo: Undo::Opened(handle) })
    }
    /// Drops set-id bits before bytes change, and tells the kernel, which believes that it knows the mode.
    fn drop_set_ids(&self, request: &Request<'_>, file: &File) -> FsResult<()> {
        if privileges::written(request, &self.caller(request), file)? {
            self.expire(file.ino());
        }
        Ok(())
    }
    /// Creates a file that the kernel did not find, and opens it.
    fn create(&self, request: &Request<'_>, dir: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (flags, mode) = (args.u32()?.cast_signed(), args.u32()?);
        args.skip(8)?;
        let name = args.name()?;
        let mut wanted = convert::open_flags(flags | libc::O_CREAT | libc::O_EXCL, self.remember.is_write_back);
        wanted.truncate = false;
        let _told = self.lookups.begin();
        match self.fs.open_at(&self.caller(request), dir, name, wanted, mode & 0o7777) {
            Ok((file, attr, _)) => {
                self.lookups.tell(attr.ino);
                let (flags, backing) = self.backings.enter(&file, &attr, self.remember.pages(&attr, wanted.write));
                let handle = self.files.insert(file);
                let fields = self.entry_fields(&attr).u64(handle).u32(flags).u32(backing);
                Ok(Answer { out: Out::Fields(fields), undo: Undo::Made(attr.ino, handle) })
            }
            // Somebody else created it meanwhile. It must be opened with its own rights: the kernel looks it up again
            // and checks them.
            Err(error) if error.errno == libc::EEXIST && flags & libc::O_EXCL == 0 => Err(FsError::new(libc::ESTALE)),
            Err(error) => Err(error),
        }
    }
    /// Creates a file without a name (`O_TMPFILE`); `link` can give it one.
    fn create_unnamed(&self, request: &Request<'_>, dir: Ino, args: &mut Args<'_>) -> FsResult<Answer> {
        let (flags, mode) = (args.u32()?.cast_signed(), args.u32()?);
        let mut wanted = convert::open_flags(flags & !(libc::O_CREAT | libc::O_EXCL), self.remember.is_write_back);
        wanted.truncate = false;
        let _told = self.lookups.begin();
        let file = self.fs.open_unnamed(&self.caller(request), dir, wanted, mode & 0o7777)?;
        let attr = file.attr()?;
        self.lookups.tell(attr.ino);
        let (flags, backing) = self.backings.enter(&file, &attr, self.remember.pages(&attr, wanted.write));
        let handle = self.files.insert(file);
        if let Some(file) = self.files.get(handle) {
            self.unnamed.lock().insert(attr.ino, Arc::downgrade(&file));
        }
        let fields = self.entry_fields(&attr).u64(handle).u32(flags).u32(backing);
        Ok(Answer { out: Out::Fields(fields), undo: Undo::Made(attr.ino, handle) })
    }
    /// Reads without a copy if the bytes lie in one piece, otherwise by a copy.
    fn read(&self, call: &mut Call<'_>, args: &mut Args<'_>) -> FsResult<Answer> {
        let (handle, offset, len) = (args.u64()?, args.u64()?, args.u32()? as usize);
        let (how, file) = (args.u32()?, self.file(handle)?);
        if how & abi::READ_BY_OWNER == 0 && !self.remember.is_write_back {
            self.pages.read(file.ino(), Span::new(offset, len as u64));
        }
        if let Ok(Some(view)) = file.view(offset, len) {
            return Ok(call.send(&view));
        }
        if call.scratch.len() < len {
            call.scratch.resize(len, 0);
        }
        file.read_at(&mut call.scratch[..len], offset).map(Answer::scratch)
    }
    fn write(self: &Arc<Self>, call: &Call<'_>, args: &mut Args<'_>) -> FsResult<Answer> {
        let (handle, offset, len, how) = (args.u64()?, args.u64()?, args.u32()?, args.u32()?);
        args.skip(8)?;
        let flags = args.u32()?.cast_signed();
        args.skip(4)?;
        let (bytes, file) = (args.bytes(len as usize)?, self.file(handle)?);
        if how & abi::WRITE_KILL_SUIDGID != 0 {
            self.drop_set_ids(call.request, &file)?;
        }
        let done = Fields::new().u32(len).u32(0);
        // Pages written back from the kernel's cache (mappings, write-back) have their own offsets.
        if how & abi::WRITE_CACHE != 0 {
            self.write_back(&file, bytes, offset)?;
            return Ok(Answer::fields(done));
        }
        // The kernel's end of file may be outdated.
        let is_at_end = flags & libc::O_APPEND != 0 && !self.remember.is_write_back;
        let write = || {
            if is_at_end { file.append(bytes) } else { file.write_at(bytes, offset).map(|()| offset) }
        };
        // Otherwise the kernel holds the pages' locks and changes them as well.
        let is_past_cache = how & abi::WRITE_BY_OWNER != 0 && !self.remember.is_write_back;
        if !is_past_cache {
            write()?;
            return Ok(Answer::fields(done));
        }
        let span = if is_at_end { Span { first: offset, end: u64::MAX } } else { Span::new(offset, len.into()) };
        let mut writing = self.pages.write(file.ino(), span);
        let at = write()?;
        let span = Span { first: at.min(offset), end: at + u64::from(len) };
        if !writing.applied(span) {
            return Ok(Answer::fields(done));
        }
        let (requests, reply) = (call.context.requests.clone(), call.context.reply.clone());
        let Some(in_flight) = requests.hand_on(call.context.in_flight) else { return Ok(Answer::silent()) };
        let answer = Box::new(move || {
            reply.data(&in_flight, done.as_bytes());
            requests.forget(&in_flight);
        });
        self.settler.settle(Settle { number: call.request.node, writing, answer }, self.notifier());
        Ok(Answer::silent())
    }
    fn write_back(&self, file: &File, bytes: &[u8], offset: u64) -> FsResult<()> {
        if self.remember.is_write_back {
            return file.write_at(bytes, offset);
        }
        let (_coming, pieces) = self.pages.write_back(file.ino(), Span::new(offset, bytes.len() as u64));
        pieces.into_iter().try_for_each(|piece| {
            let range = (piece.first - offset) as usize..(piece.end - offset) as usize;
            file.write_at(&bytes[range], piece.first)
        })
    }
    fn seek(&self, args: &mut Args<'_>) -> FsResult<Answer> {
        let (handle, offset, whence) = (args.u64()?, args.u64()?, args.u32()?.cast_signed());
        let is_negative = offset.cast_signed() < 0;
        let found = match whence {
            libc::SEEK_DATA | libc::SEEK_HOLE if is_negative => Err(FsError::new(libc::ENXIO)),
            libc::SEEK_DATA => self.file(handle)?.next_data(offset),
            libc::SEEK_HOLE => self.file(handle)?.next_hole(offset),
            _ => Err(FsError::new(libc::EINVAL)),
        };
        found.map(|offset| Answer::fields(Fields::new().u64(offset)))
    }
    fn copy(&self, request: &Request<'_>, args: &mut Args<'_>) -> FsResult<Answer> {
        // A program that wants more asks again. The older request counts in 32 bits.
        const LEN_MAX: u64 = 1 << 30;
        let (from, from_offset) = (args.u64()?, args.u64()?);
        args.skip(8)?;
        let (to, to_offset, len) = (args.u64()?, args.u64()?, args.u64()?);
        let (from, to) = (self.file(from)?, self.file(to)?);
        self.drop_set_ids(request, &to)?;
        let copied = to.copy_from(&from, from_offset, to_offset, len.min(LEN_MAX))?;
        // After the copy the kernel discards pages, with bytes stored meanwhile in the rest of the first and the last
        // page. An error makes it read and write instead.
        if self.pages.are_there(to.ino()) {
            let end = to_offset + copied;
            let is_whole = to_offset % PAGE_BYTES == 0 && (end % PAGE_BYTES == 0 || end >= to.attr()?.size_bytes);
            if !is_whole {
                return Err(FsError::new(libc::EOPNOTSUPP));
            }
        }
        let fields = Fields::new();
        Ok(Answer::fields(if request.op == op::COPY_FILE_RANGE {
            fields.u32(copied as u32).u32(0)
        } else {
            fields.u64(copied)
        }))
    }
}
