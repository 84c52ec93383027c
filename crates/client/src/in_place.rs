//! A write in place: the caller fills mapped memory, and commits it without a copy.
#![allow(unsafe_code, reason = "a slice over leased space in a mapped segment")]

use std::sync::Arc;

use cenote_model::{Extent, RUN_BYTES_MAX, Result, Update};

use crate::data::write;
use crate::link::arena::{Chunk, Filling};
use crate::link::queue::Together;
use crate::link::subject::Subject;
use crate::map::pieces::Source;
use crate::object::{Object, flush};
use crate::session::Session;

/// Mapped memory to be filled and committed. A drop without [`InPlaceWrite::commit`] leaves nothing.
pub struct InPlaceWrite {
    session: Arc<Session>,
    object: Object,
    space: Space,
}

enum Space {
    /// Leased space in a mapped segment.
    Memory(Chunk),
    /// The memory tier had no run of this size: ordinary memory, copied at the commit.
    Heap(Vec<u8>),
}

impl std::fmt::Debug for InPlaceWrite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InPlaceWrite").field("object", &self.object).finish_non_exhaustive()
    }
}

impl InPlaceWrite {
    pub(crate) fn make(object: &Object, len: usize) -> Result<Self> {
        let session = object.container().store().session()?.clone();
        object.home(&session).channel.check_writable()?;
        let link = object.home(&session);
        let mut space = Space::Heap(Vec::new());
        if len > 0 && len <= RUN_BYTES_MAX as usize && !link.channel.is_bound() {
            let (container, mut avoid) = (object.container().id(), Vec::new());
            let chunk =
                object.arena(&session).take(&link.space, container, len as u64, Filling::InPlace, &mut avoid)?;
            if chunk.len as usize == len && write::is_memory(&chunk) {
                space = Space::Memory(chunk);
            } else {
                link.channel.unlease(vec![chunk.run()]);
            }
        }
        if let Space::Heap(bytes) = &mut space {
            bytes.resize(len, 0);
        }
        Ok(Self { session, object: object.clone(), space })
    }
    /// Returns the bytes to fill. Their initial content is undefined.
    pub fn bytes(&mut self) -> &mut [u8] {
        match &mut self.space {
            Space::Heap(bytes) => bytes,
            Space::Memory(chunk) => {
                let address = chunk.address().expect("the space is in memory");
                // SAFETY: the chunk is leased to this value alone and mapped writable while the session lives;
                // `&mut self` makes this the only slice over it; every bit pattern is a byte.
                unsafe { std::slice::from_raw_parts_mut(address, chunk.len as usize) }
            }
        }
    }
    /// Writes the bytes to the object at `offset`.
    pub fn commit(mut self, offset: u64) -> Result<()> {
        let session = self.session.clone();
        let link = session.home(self.object.container().id());
        link.channel.check_open()?;
        let cache = self.object.cache(&session);
        write::check_range(link, &cache, offset, self.bytes().len() as u64)?;
        let sums = write::sums_in_place(self.bytes());
        match std::mem::replace(&mut self.space, Space::Heap(Vec::new())) {
            Space::Heap(bytes) => self.object.write_at(offset, &bytes),
            Space::Memory(chunk) => {
                let extent = Extent::whole(chunk.device, chunk.offset, chunk.len, sums);
                let address = chunk.address().expect("the space is in memory") as usize;
                let (len, source, run) = (u64::from(chunk.len), Source::Mapped(address, chunk.device), chunk.run());
                chunk.io.persist(chunk.inside, chunk.len as usize);
                let update = Update::Write { key: cache.key, offset, extent };
                let subject = Subject::Write { object: cache, offset, len, source, run };
                let ticket = link.queue.push(vec![update], vec![subject], 0, &Together::Not);
                link.queue.wait(&ticket)?;
                self.object.written_through().map_or(Ok(()), |key| flush(link, key))
            }
        }
    }
}

impl Drop for InPlaceWrite {
    fn drop(&mut self) {
        if let Space::Memory(chunk) = &self.space
            && self.session.generation == cenote_host::fork::generation()
        {
            let link = self.object.home(&self.session);
            link.channel.unlease_later(chunk.run());
            link.keep();
        }
    }
}
