//! An object: reads and writes of byte ranges and of blocks.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use cenote_model::{
    Durability, Error, ErrorKind, FlushTarget, ObjectId, ObjectKey, ObjectStat, Request, Response, Result, Update,
};

use crate::answer::surprise;
use crate::borrowed::BorrowedBytes;
use crate::container::Container;
use crate::data::{append, read, write};
use crate::in_place::InPlaceWrite;
use crate::link::Link;
use crate::link::arena::{Arena, Class};
use crate::link::queue::{Ticket, Together};
use crate::map::cache::ObjectCache;
use crate::map::pieces::Seek;
use crate::op::Op;
use crate::precondition::Precondition;
use crate::reserve::Reserve;
use crate::session::Session;

/// An object: an array of blocks with a recorded size in bytes. Cheap to clone. Calls may come from any thread.
///
/// Byte ranges need not be aligned; writers of disjoint ranges never disturb each other, whatever the block size.
pub struct Object {
    container: Container,
    id: ObjectId,
    /// Buffering and acknowledgement of writes by this handle, if they differ from the container's.
    mode: Option<Durability>,
    /// The session's cached object. Looked up at first use, and again after a fork.
    cached: ArcSwapOption<CachedObject>,
}

struct CachedObject {
    generation: u64,
    cache: Arc<ObjectCache>,
    arena: Arc<Arena>,
}

impl Clone for Object {
    fn clone(&self) -> Self {
        let cached = ArcSwapOption::new(self.cached.load_full());
        Self { container: self.container.clone(), id: self.id, mode: self.mode, cached }
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").field("key", &self.key()).finish_non_exhaustive()
    }
}

impl Object {
    pub(crate) fn new(container: &Container, id: ObjectId) -> Self {
        Self { container: container.clone(), id, mode: None, cached: ArcSwapOption::empty() }
    }
    /// Returns a handle of the same object whose writes are buffered differently from the container's preset: `Sync`
    /// writes to a persistent tier and acknowledges after the bytes survive power loss (write-through), `Async` writes
    /// to the fastest tier with room (write-back), `Bypass` writes to the lowest persistent tier, past the buffers.
    /// Earlier writes keep their place in the order: a write-through is durable together with everything that was
    /// acknowledged before it.
    ///
    /// `InvalidInput` if that is less than the container promises (its durability is `Sync`), or if the container
    /// promises nothing (`Scratch`), and for `Scratch` itself: data that need not be kept belong in a container of
    /// their own.
    pub fn buffered(&self, mode: Durability) -> Result<Self> {
        let own = self.container.inner.class.durability;
        if !mode.may_be_in(own) {
            return Err(Error::new(ErrorKind::InvalidInput, self.name())
                .because(format!("it cannot be written as `{}`: its container is `{}`", mode.word(), own.word()))
                .try_next(format!("use a container that is `{}`", mode.word())));
        }
        let mode = (mode != own).then_some(mode);
        Ok(Self { container: self.container.clone(), id: self.id, mode, cached: ArcSwapOption::empty() })
    }
    /// The durability that a write waits for besides its acknowledgement: the object survives power loss.
    pub(crate) fn written_through(&self) -> Option<ObjectKey> {
        (self.mode == Some(Durability::Sync)).then(|| self.key())
    }
    /// The space for writes of this handle.
    fn class(&self) -> Class {
        let class = &self.container.inner.class;
        Class { durability: self.mode.unwrap_or(class.durability), ..class.clone() }
    }
    /// Returns the full name.
    pub fn key(&self) -> ObjectKey {
        ObjectKey { container: self.container.id(), object: self.id }
    }
    /// Returns the container of this object.
    pub fn container(&self) -> &Container {
        &self.container
    }
    pub(crate) fn name(&self) -> String {
        format!("object {} of {}", self.id, self.container.name())
    }
    /// The link to the engine of this object.
    #[inline]
    pub(crate) fn home<'a>(&self, session: &'a Session) -> &'a Arc<Link> {
        session.home(self.container.id())
    }
    pub(crate) fn cache(&self, session: &Session) -> Arc<ObjectCache> {
        self.known(session, |known| known.cache.clone())
    }
    pub(crate) fn arena(&self, session: &Session) -> Arc<Arena> {
        self.known(session, |known| known.arena.clone())
    }
    #[inline]
    fn known<T>(&self, session: &Session, with: impl FnOnce(&CachedObject) -> T) -> T {
        let known = self.cached.load();
        match &*known {
            Some(known) if known.generation == session.generation => with(known),
            _ => {
                let cache = session.object(self.key());
                if cenote_policy::is_tracking(&self.container.inner.class.policy) {
                    cache.set_tiered();
                }
                let known = Arc::new(CachedObject {
                    generation: session.generation,
                    cache,
                    arena: self.home(session).space.arenas.of(&self.class()),
                });
                self.cached.store(Some(known.clone()));
                with(&known)
            }
        }
    }
    /// Returns size, block size and space in use.
    pub fn stat(&self) -> Result<ObjectStat> {
        match self
            .container
            .store()
            .session()?
            .home(self.container.id())
            .request(Request::ObjectStat { key: self.key() })?
        {
            Response::Stat(stat) => Ok(stat),
            other => Err(surprise("the state of an object", &other)),
        }
    }
    /// Reserves space for this many bytes of future writes; `Full` if there is none. Returns `None` where reserves are
    /// impossible, even if there is room: where modes of containers bind users, and where the bytes end in an object
    /// service.
    pub fn reserve(&self, bytes: u64) -> Result<Option<Reserve>> {
        Reserve::make(self, bytes)
    }
    /// Returns the recorded size in bytes, without a message if the cached one still holds.
    pub fn size(&self) -> Result<u64> {
        let session = self.container.store().session()?;
        self.known(&session, |known| read::size_of(self.home(&session), &known.cache))
    }
    /// Returns the recorded size and the bytes in use, in allocation units, without a message if the cached ones still
    /// hold.
    pub fn usage(&self) -> Result<(u64, u64)> {
        let session = self.container.store().session()?;
        match self.known(&session, |known| read::usage_of(self.home(&session), &known.cache))? {
            Some(usage) => Ok(usage),
            None => self.stat().map(|stat| (stat.size, stat.taken_bytes)),
        }
    }
    /// Returns the first offset from `offset` on with data, by extents; `None` if there is none before the end.
    pub fn next_data(&self, offset: u64) -> Result<Option<u64>> {
        let session = self.container.store().session()?;
        self.known(&session, |known| read::seek(self.home(&session), &known.cache, offset, Seek::Data))
    }
    /// Returns the first offset from `offset` on in a hole, or the size if there is none before it; `None` from the end
    /// on.
    pub fn next_hole(&self, offset: u64) -> Result<Option<u64>> {
        let session = self.container.store().session()?;
        self.known(&session, |known| read::seek(self.home(&session), &known.cache, offset, Seek::Hole))
    }
    /// Reads at a byte offset. Holes are zeros. Returns the number of bytes before the recorded size; the rest of `buf`
    /// is unchanged.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let session = self.container.store().session()?;
        self.known(&session, |known| read::read_at(self.home(&session), &known.cache, offset, buf))
            .map(|done| done.bytes)
    }
    /// Reads many byte ranges; bytes past the recorded size are zeros.
    pub fn readv(&self, parts: &mut [(u64, &mut [u8])]) -> Result<()> {
        let session = self.container.store().session()?;
        let cache = self.cache(&session);
        for (offset, buf) in parts {
            let done = read::read_at(self.home(&session), &cache, *offset, buf)?;
            buf[done.bytes..].fill(0);
        }
        Ok(())
    }
    /// Writes at a byte offset: acknowledged as the container's durability says, and visible to every process.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let session = self.container.store().session()?;
        match self.pipeline(&session, &[(offset, bytes)], &Together::Not, true)? {
            Some(ticket) => self.home(&session).queue.wait(&ticket)?,
            None => return self.check_exists(&session),
        }
        self.written_through().map_or(Ok(()), |key| flush(self.home(&session), key))
    }
    /// Writes at the current end, and returns the offset. Of concurrent appends by several processes, each one's bytes
    /// appear whole and exactly once, in some order.
    pub fn append(&self, bytes: &[u8]) -> Result<u64> {
        let session = self.container.store().session()?;
        let at = self.known(&session, |known| {
            let target = write::Target { object: &known.cache, container: self.container.id(), arena: &known.arena };
            append::append(self.home(&session), &target, bytes)
        })?;
        self.written_through().map_or(Ok(()), |key| flush(self.home(&session), key))?;
        Ok(at)
    }
    /// Writes many byte ranges in one transaction.
    pub fn writev(&self, parts: &[(u64, &[u8])]) -> Result<()> {
        let session = self.container.store().session()?;
        match self.pipeline(&session, parts, &Together::Whole, true)? {
            Some(ticket) => self.home(&session).queue.wait(&ticket)?,
            None => return self.check_exists(&session),
        }
        self.written_through().map_or(Ok(()), |key| flush(self.home(&session), key))
    }
    fn pipeline(
        &self,
        session: &Session,
        parts: &[(u64, &[u8])],
        together: &Together,
        here: bool,
    ) -> Result<Option<Ticket>> {
        self.known(session, |known| {
            let target = write::Target { object: &known.cache, container: self.container.id(), arena: &known.arena };
            write::pipeline(self.home(session), &target, parts, together, here)
        })
    }
    /// Fails for a missing object even if there is nothing to write.
    fn check_exists(&self, session: &Session) -> Result<()> {
        self.home(session).request(Request::ObjectStat { key: self.key() }).map(drop)
    }
    /// Reads ranges of whole blocks, one after the other, into `buf`; bytes past the recorded size are zeros.
    pub fn read_blocks(&self, ranges: &[Range<u64>], buf: &mut [u8]) -> Result<()> {
        let mut rest = buf;
        let mut parts = Vec::with_capacity(ranges.len());
        for (offset, len) in self.byte_ranges(ranges, rest.len())? {
            let (part, after) = rest.split_at_mut(len);
            parts.push((offset, part));
            rest = after;
        }
        self.readv(&mut parts)
    }
    /// Writes ranges of whole blocks, one after the other, from `bytes`, in one transaction.
    pub fn write_blocks(&self, ranges: &[Range<u64>], bytes: &[u8]) -> Result<()> {
        let mut rest = bytes;
        let mut parts = Vec::with_capacity(ranges.len());
        for (offset, len) in self.byte_ranges(ranges, rest.len())? {
            let (part, after) = rest.split_at(len);
            parts.push((offset, part));
            rest = after;
        }
        self.writev(&parts)
    }
    /// Returns byte offset and length of each range of blocks; together they must have `len` bytes.
    fn byte_ranges(&self, ranges: &[Range<u64>], len: usize) -> Result<Vec<(u64, usize)>> {
        let shift = self.stat()?.block_shift;
        let wrong = |why: String| Error::new(ErrorKind::InvalidInput, self.name()).because(why);
        let mut all = Vec::with_capacity(ranges.len());
        let mut sum = 0u64;
        for range in ranges {
            let blocks = range.end.checked_sub(range.start);
            let bytes = blocks.and_then(|blocks| blocks.checked_mul(1 << shift)).filter(|bytes| *bytes <= len as u64);
            let offset = range.start.checked_mul(1 << shift);
            let (Some(bytes), Some(offset)) = (bytes, offset) else {
                return Err(wrong(format!(
                    "blocks {} to {} make no sense or are more than the buffer holds",
                    range.start, range.end
                )));
            };
            sum += bytes;
            all.push((offset, bytes as usize));
        }
        if sum == len as u64 {
            return Ok(all);
        }
        Err(wrong(format!("the ranges have {sum} bytes (blocks of {}), the buffer {len}", 1u64 << shift)))
    }
    /// Returns a range by reference, without a copy, if it lies in mapped memory. The bytes stay unchanged while the
    /// view lives.
    pub fn view(&self, offset: u64, len: usize) -> Result<Option<BorrowedBytes>> {
        let session = self.container.store().session()?;
        let cache = self.cache(&session);
        BorrowedBytes::make(&session, &cache, offset, len, false)
    }
    /// Returns a read-only view that begins at a page of memory, with zeros from its last byte to the end of the page,
    /// as a mapping for a program. `None` unless the whole range is mapped and lies in whole pages.
    pub fn view_pages(&self, offset: u64, len: usize) -> Result<Option<BorrowedBytes>> {
        let session = self.container.store().session()?;
        let cache = self.cache(&session);
        BorrowedBytes::make(&session, &cache, offset, len, true)
    }
    /// Returns `len` bytes of mapped memory to be filled in place and then [`InPlaceWrite::commit`]ted: a write without a
    /// copy.
    pub fn write_in_place(&self, len: usize) -> Result<InPlaceWrite> {
        InPlaceWrite::make(self, len)
    }
    /// The former name of [`Object::write_in_place`].
    #[deprecated(note = "use `write_in_place`")]
    pub fn stage(&self, len: usize) -> Result<InPlaceWrite> {
        self.write_in_place(len)
    }
    /// Starts a write. `bytes` may be reused after the return; waiting for the operation waits for the acknowledgement.
    pub fn launch_write(&self, offset: u64, bytes: &[u8]) -> Result<Op> {
        let session = self.container.store().session()?;
        let ticket = self.pipeline(&session, &[(offset, bytes)], &Together::Not, false)?;
        self.home(&session).keep();
        Ok(Op::of(&session, self.container.id(), ticket).durable(self.written_through()))
    }
    /// Starts a write that survives the death of this process after the return: the engine carries it out if the
    /// process dies before the acknowledgement. File I/O is done before the return.
    pub fn launch_write_kept(&self, offset: u64, bytes: &[u8]) -> Result<Op> {
        let session = self.container.store().session()?;
        let ticket = self.pipeline(&session, &[(offset, bytes)], &Together::Logged, true)?;
        self.home(&session).keep();
        Ok(Op::of(&session, self.container.id(), ticket).durable(self.written_through()))
    }
    /// Starts a write on a precondition: it is applied together with other changes on it, or not at all. File I/O is
    /// done before the return.
    pub fn launch_write_on(&self, precondition: &Precondition, offset: u64, bytes: &[u8]) -> Result<Op> {
        let session = self.container.store().session()?;
        let ticket = self.pipeline(&session, &[(offset, bytes)], &precondition.together(), true)?;
        self.home(&session).keep();
        Ok(Op::of(&session, self.container.id(), ticket).durable(self.written_through()))
    }
    /// Starts a read of `len` bytes; [`Op::wait_read`] returns them.
    pub fn launch_read(&self, offset: u64, len: usize) -> Result<Op> {
        let session = self.container.store().session()?;
        Ok(Op::read(&session, &self.cache(&session), offset, len))
    }
    /// Sets the recorded size; bytes beyond it are dropped.
    pub fn truncate(&self, size: u64) -> Result<()> {
        self.change(Update::Truncate { key: self.key(), size })
    }
    /// Turns a range into a hole.
    pub fn punch(&self, offset: u64, len: u64) -> Result<()> {
        self.change(Update::Punch { key: self.key(), offset, len })
    }
    fn change(&self, update: Update) -> Result<()> {
        self.container.store().change(update, || self.name())
    }
    /// Returns when everything acknowledged so far survives power loss.
    pub fn flush(&self) -> Result<()> {
        self.container.store().flush_target(FlushTarget::Object(self.key()))
    }
}

/// Waits until an object survives power loss.
pub(crate) fn flush(link: &Link, key: ObjectKey) -> Result<()> {
    link.request(Request::Flush { target: FlushTarget::Object(key) }).map(drop)
}
