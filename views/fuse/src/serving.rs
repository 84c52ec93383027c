//! Carries out the kernel's requests as calls of the file system, with the kernel's numbers.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};

use cenote_posix::{Attr, Caller, File, FileSystem, FsError, FsResult, Ino};
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;

use crate::alone::Alone;
use crate::answer::errno;
use crate::backing::Backings;
use crate::convert;
use crate::gone::Gone;
use crate::handles::Handles;
use crate::kernel::abi::ENTRY_BYTES;
use crate::kernel::workers::{RequestContext, Serve};
use crate::kernel::{Fields, Request};
use crate::locks::Owners;
use crate::lookup_counts::LookupCounts;
use crate::open::Reading;
use crate::pages::{Pages, Settler};
use crate::remember::Remember;

/// The kernel's number of the root.
const ROOT: u64 = 1;

/// The state behind the answers.
pub struct Serving {
    pub fs: FileSystem,
    pub root: Ino,
    pub remember: Remember,
    pub files: Handles<File>,
    pub dirs: Handles<Mutex<Reading>>,
    pub lookups: LookupCounts,
    pub alone: Alone,
    pub gone: Gone,
    pub owners: Owners,
    pub backings: Backings,
    pub pages: Arc<Pages>,
    pub settler: Settler,
    /// Files created without a name, while they are open.
    pub unnamed: Mutex<HashMap<Ino, Weak<File>>>,
    no_groups: Arc<[u32]>,
    notifier: OnceLock<Notifier>,
}

/// A request, and the way back.
pub struct Call<'a> {
    pub request: &'a Request<'a>,
    pub context: &'a RequestContext<'a>,
    /// Buffer for long answers; it still holds an earlier one.
    pub scratch: &'a mut Vec<u8>,
}

impl Call<'_> {
    /// Answers at once, from bytes that are not copied.
    pub fn send(&self, bytes: &[u8]) -> Answer {
        Answer { out: Out::Sent(self.context.reply.data(self.context.in_flight, bytes)), undo: Undo::Nothing }
    }
}

/// A successful answer.
pub struct Answer {
    pub out: Out,
    pub undo: Undo,
}

/// The content of an answer.
#[expect(clippy::large_enum_variant, reason = "one at a time, on the stack")]
pub enum Out {
    /// Success without data.
    Done,
    Fields(Fields),
    /// This many bytes of the scratch buffer.
    Scratch(usize),
    /// Already sent (true), or nobody waited any more (false).
    Sent(bool),
    /// Nothing: the kernel does not wait.
    Silent,
}

/// What to undo if nobody waits for the answer any more.
pub enum Undo {
    Nothing,
    /// One more lookup of a number.
    Told(Ino),
    /// An open file.
    Opened(u64),
    /// Both.
    Made(Ino, u64),
    /// An open directory.
    OpenedDir(u64),
}

impl Answer {
    pub fn done() -> Self {
        Self { out: Out::Done, undo: Undo::Nothing }
    }
    pub fn fields(fields: Fields) -> Self {
        Self { out: Out::Fields(fields), undo: Undo::Nothing }
    }
    pub fn scratch(len: usize) -> Self {
        Self { out: Out::Scratch(len), undo: Undo::Nothing }
    }
    pub fn silent() -> Self {
        Self { out: Out::Silent, undo: Undo::Nothing }
    }
}

impl Serve for Serving {
    fn serve(self: &Arc<Self>, request: &Request<'_>, context: &RequestContext<'_>, scratch: &mut Vec<u8>) {
        let (reply, in_flight) = (context.reply, context.in_flight);
        let _answering = self.alone.answering();
        let mut call = Call { request, context, scratch };
        // Locks do not poison, so a panic leaves none half changed; the request is over in any case.
        let answer = catch_unwind(AssertUnwindSafe(|| self.answer(&mut call))).unwrap_or_else(|_| {
            tracing::error!(op = request.op, "a request failed by a panic and was answered with EIO; this is a bug");
            Err(FsError::new(libc::EIO))
        });
        let Answer { out, undo } = match answer {
            Ok(answer) => answer,
            Err(error) => {
                reply.done(in_flight, errno(&error));
                return;
            }
        };
        let is_delivered = match out {
            Out::Done => reply.done(in_flight, 0),
            Out::Fields(fields) => reply.data(in_flight, fields.as_bytes()),
            Out::Scratch(len) => reply.data(in_flight, &scratch[..len]),
            Out::Sent(is_delivered) => is_delivered,
            Out::Silent => in_flight.complete(request.unique),
        };
        if !is_delivered {
            self.undo(&undo);
        }
    }
}

impl Serving {
    pub fn new(fs: FileSystem, remember: Remember) -> Self {
        Self {
            root: fs.root(),
            fs,
            remember,
            files: Handles::default(),
            dirs: Handles::default(),
            lookups: LookupCounts::default(),
            alone: Alone::default(),
            gone: Gone::default(),
            owners: Owners::default(),
            backings: Backings::default(),
            pages: Arc::default(),
            settler: Settler::default(),
            unnamed: Mutex::default(),
            no_groups: Arc::new([]),
            notifier: OnceLock::new(),
        }
    }
    /// Sends notices to the kernel.
    pub fn notifier(&self) -> Option<&Notifier> {
        self.notifier.get()
    }
    /// Sets the sender of notices.
    pub fn notify_by(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier);
    }
    /// The file for the kernel's number: number 1 is the root, whatever the root's own number is.
    pub fn ino(&self, number: u64) -> Ino {
        if number == ROOT { self.root } else { Ino(number) }
    }
    pub fn number(&self, ino: Ino) -> u64 {
        if ino == self.root { ROOT } else { ino.0 }
    }
    /// The caller of a request. The kernel has checked rights, with the groups, which it knows best.
    pub fn caller(&self, request: &Request<'_>) -> Caller {
        Caller { uid: request.uid, gid: request.gid, groups: self.no_groups.clone(), is_checked: true }
    }
    /// Subtracts from a number's lookup count.
    pub fn forget(&self, ino: Ino, times: u64) {
        if ino != self.root {
            self.lookups.forget(ino, times, || {
                self.gone.forget(ino);
                self.fs.forget(ino);
            });
        }
    }
    pub fn file(&self, handle: u64) -> FsResult<Arc<File>> {
        self.files.get(handle).ok_or_else(|| FsError::new(libc::EBADF))
    }
    /// Closes a file. If a request that was answered early still reads from it, that request closes it.
    pub fn release(&self, handle: u64) -> FsResult<()> {
        let Some(file) = self.files.remove(handle) else { return Ok(()) };
        let ino = file.ino();
        self.pages.close(ino, || !self.files.any(|other| other.ino() == ino));
        if !self.unnamed.lock().is_empty() {
            self.unnamed.lock().remove(&ino);
        }
        self.backings.leave(file).map_or(Ok(()), Self::close)
    }
    pub fn close(file: Arc<File>) -> FsResult<()> {
        Arc::into_inner(file).map_or(Ok(()), File::close)
    }
    fn undo(&self, undo: &Undo) {
        let (told, opened) = match *undo {
            Undo::Nothing => (None, None),
            Undo::Told(ino) => (Some(ino), None),
            Undo::Opened(handle) => (None, Some(handle)),
            Undo::Made(ino, handle) => (Some(ino), Some(handle)),
            Undo::OpenedDir(handle) => return drop(self.dirs.remove(handle)),
        };
        if let Some(Err(error)) = opened.map(|handle| self.release(handle)) {
            tracing::debug!("a file that nobody waited for was closed with an error: {error}");
        }
        if let Some(ino) = told {
            self.forget(ino, 1);
        }
    }
    /// The fields that the kernel gets with a number.
    pub fn entry_fields(&self, attr: &Attr) -> Fields {
        let (time, number) = (self.remember.time(attr, self.alone.is_so()), self.number(attr.ino));
        // Numbers are never reused, so generations are not needed.
        let fields = Fields::new().u64(number).u64(0).u64(time.as_secs()).u64(time.as_secs());
        convert::attr(fields.u32(time.subsec_nanos()).u32(time.subsec_nanos()), attr, number)
    }
    pub fn attr_answer(&self, attr: &Attr) -> Answer {
        let time = self.remember.time(attr, self.alone.is_so());
        let fields = Fields::new().u64(time.as_secs()).u32(time.subsec_nanos()).u32(0);
        Answer::fields(convert::attr(fields, attr, self.number(attr.ino)))
    }
    /// Answers with the attributes that `find` returns; the kernel knows the number from then on.
    pub fn entry(&self, find: impl FnOnce() -> FsResult<Attr>) -> FsResult<Answer> {
        let _told = self.lookups.begin();
        let attr = find()?;
        self.lookups.tell(attr.ino);
        Ok(Answer { out: Out::Fields(self.entry_fields(&attr)), undo: Undo::Told(attr.ino) })
    }
    /// The answer for a name that does not exist, which the kernel caches as well.
    pub fn nothing_there() -> Answer {
        let fields = Fields::new().zeros(16).u64(Remember::nothing().as_secs());
        Answer::fields(fields.zeros(ENTRY_BYTES - 24))
    }
    /// Makes the kernel request a file's attributes again.
    pub fn expire(&self, ino: Ino) {
        if let Some(notifier) = self.notifier.get() {
            // A negative offset: attributes only, which waits for no page and no lock of the kernel.
            let _ = notifier.inval_inode(INodeNo(self.number(ino)), -1, 0);
        }
    }
    /// Ends the exclusive use of the store: the kernel's caches are invalid. `forget_names` makes it look up each name
    /// again.
    pub fn company_comes(&self, forget_names: impl Fn()) {
        self.alone.end(|| {
            forget_names();
            self.lookups.each(|ino| self.expire(ino));
            self.expire(self.root);
        });
    }
    /// Ends the service: the kernel does not close open handles.
    pub fn end(&self) {
        drop(self.dirs.drain());
        self.backings.end();
        for file in self.files.drain() {
            let closed = self.backings.leave(file).map_or(Ok(()), Self::close);
            if let Err(error) = closed {
                tracing::warn!("a file could not be closed when the mount ended: {error}");
            }
        }
    }
}
