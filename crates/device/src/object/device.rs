//! The device: writes gather in packs, packs go to the service, and reads find the bytes in either place.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use cenote_model::{Error, ErrorKind, OffsetMap, Result};
use parking_lot::{Condvar, Mutex, MutexGuard};

use super::claim::Held;
use super::map::{Map, Piece};
use super::pack::{Filling, Owner, RUNS_MAX, Table};
use super::place::BucketPath;
use super::service::{ObjectService, Refusal, holds};
use crate::{Device, SegmentFile};

pub(super) const UNIT_BYTES: u32 = 4096;
/// Upper bound of packs that wait for the service; a writer that would seal another one waits.
const SEALED_MAX: usize = 4;
/// Upper bound of packs sent at once in the background.
const PUTS_MAX: usize = 3;

/// How long a device that is being closed waits for its garbage collection.
const CLOSING: Duration = Duration::from_secs(2);

/// How packs are made and sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packing {
    /// A pack is sealed at this many bytes.
    pub pack_bytes: u32,
    /// Send packs and collect garbage on the device's own threads; else the caller of `sync` does all of it.
    pub background: bool,
}

impl Default for Packing {
    fn default() -> Self {
        Self { pack_bytes: 16 << 20, background: true }
    }
}

/// A device on an object service.
pub struct ObjectDevice {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub service: Box<dyn ObjectService>,
    pub place: BucketPath,
    pub owner: Owner,
    /// The claim of this opening; `None` where the store can have no copy.
    held: Option<Held>,
    pub packing: Packing,
    /// Random number of this opening; in every pack that it sends.
    pub life: u128,
    pub state: Mutex<BucketState>,
    /// Signals that a pack was sent, or could not be.
    changed: Condvar,
    pub tidying: Mutex<()>,
    /// Bytes discarded since the last garbage collection.
    discarded: AtomicU64,
    pub closing: AtomicBool,
}

/// A pack that the service does not have yet.
pub(super) struct Sealed {
    head: Bytes,
    data: Bytes,
    putting: bool,
    /// An earlier attempt may or may not have reached the service.
    tried: bool,
}

pub(super) struct BucketState {
    pub map: Map,
    pub filling: Filling,
    pub sealed: BTreeMap<u64, Sealed>,
    pub next_sequence: u64,
    /// The latest pack whose table cannot be read, and why. Bytes born at or before that pack may be stale.
    pub shadow: Option<(u64, Error)>,
    /// Bytes that the engine uses and no pack holds: offset and length.
    pub lost: OffsetMap<u64>,
    puts: usize,
    /// Packs that are no longer needed and could not be deleted yet.
    pub unwanted: Vec<u64>,
    /// Number of packs that the newest catalogue lacks.
    pub uncatalogued: usize,
    pub catalogue: Option<u64>,
}

/// A pack being sent. Wakes waiting threads, however the attempt ends.
struct Putting<'a> {
    inner: &'a Inner,
    sequence: u64,
    arrived: bool,
}

impl Drop for Putting<'_> {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        state.puts -= 1;
        if self.arrived {
            state.sealed.remove(&self.sequence);
            state.uncatalogued += 1;
        } else if let Some(waiting) = state.sealed.get_mut(&self.sequence) {
            waiting.putting = false;
        }
        self.inner.changed.notify_all();
    }
}

impl BucketState {
    pub fn new(map: Map, next_sequence: u64) -> Self {
        let mut state = Self {
            map,
            filling: Filling::new(next_sequence),
            sealed: BTreeMap::new(),
            next_sequence: next_sequence + 1,
            shadow: None,
            lost: OffsetMap::default(),
            puts: 0,
            unwanted: Vec::new(),
            uncatalogued: 0,
            catalogue: None,
        };
        state.map.add_pack(next_sequence, None);
        state
    }
    pub fn sequence(&mut self) -> u64 {
        self.next_sequence += 1;
        self.next_sequence - 1
    }
    /// The service has all packs before this one.
    pub fn unsent_from(&self) -> u64 {
        self.sealed.first_key_value().map_or(self.filling.sequence, |(first, _)| (*first).min(self.filling.sequence))
    }
    /// The bytes of a piece, if they are only in memory.
    pub fn in_memory(&self, piece: &Piece) -> Option<&[u8]> {
        let range = piece.at as usize..(piece.at + piece.len) as usize;
        if piece.pack == self.filling.sequence {
            return Some(&self.filling.data[range]);
        }
        self.sealed.get(&piece.pack).map(|sealed| &sealed.data[range])
    }
    fn take_in(&mut self, offset: u64, bytes: &[u8]) {
        let sequence = self.filling.sequence;
        let at = self.filling.push(offset, sequence, bytes);
        self.map.cover(offset, Piece { pack: sequence, at, len: bytes.len() as u32 }, sequence);
        self.found(offset, bytes.len() as u64);
    }
    /// Clears the loss of a range: its bytes are known again.
    pub fn found(&mut self, offset: u64, len: u64) {
        if self.lost.is_empty() {
            return;
        }
        let end = offset + len;
        let hit: Vec<(u64, u64)> =
            self.lost.from_floor(offset).take_while(|(at, _)| *at < end).map(|(at, len)| (at, *len)).collect();
        for (at, len) in hit.into_iter().filter(|(at, len)| at + len > offset) {
            self.lost.remove(at);
            if at < offset {
                self.lost.insert(at, offset - at);
            }
            if at + len > end {
                self.lost.insert(end, at + len - end);
            }
        }
    }
    /// The first lost byte of a range.
    pub fn lost_in(&self, offset: u64, len: u64) -> Option<u64> {
        let mut near = self.lost.from_floor(offset).take_while(|(at, _)| *at < offset + len);
        near.find(|(at, len)| at + *len > offset).map(|(at, _)| at.max(offset))
    }
}

impl Inner {
    pub fn new(
        service: Box<dyn ObjectService>,
        place: BucketPath,
        owner: Owner,
        packing: Packing,
        (state, held): (BucketState, Option<Held>),
    ) -> Self {
        let mut life = [0; 16];
        // Without random bytes the life is zero: then only the numbers tell packs of two lives apart.
        let _ = rustix::rand::getrandom(&mut life, rustix::rand::GetRandomFlags::empty());
        Self {
            service,
            place,
            owner,
            held,
            packing,
            life: u128::from_le_bytes(life),
            state: Mutex::new(state),
            changed: Condvar::new(),
            tidying: Mutex::new(()),
            discarded: AtomicU64::new(0),
            closing: AtomicBool::new(false),
        }
    }
    /// Fails if another directory of the store has the tier open. `surely`: asks the service now instead of relying on
    /// a check some seconds old.
    pub fn check_held(&self, surely: bool) -> Result<()> {
        self.held.as_ref().map_or(Ok(()), |held| held.check(self.service.as_ref(), &self.place, surely))
    }
    /// Seals the pack that is being filled, to be sent, and begins another one.
    fn seal(&self, state: &mut BucketState) {
        let next = state.sequence();
        let filled = std::mem::replace(&mut state.filling, Filling::new(next));
        state.map.add_pack(next, None);
        let sequence = filled.sequence;
        let (table, head, data) = filled.seal(&self.owner, self.life);
        if let Some(pack) = state.map.pack_mut(sequence) {
            pack.table = Some(Arc::new(table));
        }
        state.sealed.insert(sequence, Sealed { head, data, putting: false, tried: false });
    }
    /// Sends the first pack up to `limit` that nobody is sending; `None` if there is none.
    fn put_one(&self, limit: u64) -> Option<Result<()>> {
        let mut state = self.state.lock();
        let (sequence, waiting) = state.sealed.range_mut(..=limit).find(|(_, sealed)| !sealed.putting)?;
        waiting.putting = true;
        let tried = std::mem::replace(&mut waiting.tried, true);
        let (sequence, parts) = (*sequence, [waiting.head.clone(), waiting.data.clone()]);
        state.puts += 1;
        drop(state);
        let mut put = Putting { inner: self, sequence, arrived: false };
        if let Err(error) = self.check_held(false) {
            return Some(Err(error));
        }
        let key = self.place.pack_key(sequence);
        let answer = match self.service.put(&key, &parts, true) {
            Err(refusal) if refusal.kind == ErrorKind::Exists => {
                match tried.then(|| holds(self.service.as_ref(), &key, &parts)) {
                    // An attempt without an answer, or a late one, had stored the pack.
                    Some(Ok(true)) => Ok(()),
                    Some(Err(other)) => Err(self.place.error(&key, &other)),
                    _ => Err(self.written_by_others(&key)),
                }
            }
            answer => answer.map_err(|refusal| self.place.error(&key, &refusal)),
        };
        put.arrived = answer.is_ok();
        Some(answer)
    }
    #[cold]
    fn written_by_others(&self, key: &str) -> Error {
        let refusal = Refusal::new(
            ErrorKind::Exists,
            "a pack of that number is there: another store writes under the same prefix, or a request of a process that \
             died arrived late",
        );
        let next =
            "make sure that no other store has that prefix, and open the store again: it goes on behind that pack";
        self.place.error(key, &refusal).try_next(next)
    }
    /// Waits until fewer packs wait, and sends one if nobody else does.
    fn make_room(&self, mut state: MutexGuard<'_, BucketState>) -> Result<()> {
        if state.sealed.values().all(|sealed| sealed.putting) {
            self.changed.wait(&mut state);
            return Ok(());
        }
        drop(state);
        self.put_one(u64::MAX).unwrap_or(Ok(()))
    }
    fn write(self: &Arc<Self>, offset: u64, bytes: &[u8]) -> Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let mut state = self.state.lock();
            if state.sealed.len() >= SEALED_MAX {
                self.make_room(state)?;
                continue;
            }
            let room = (self.packing.pack_bytes as usize).saturating_sub(state.filling.data.len());
            let (now, later) = rest.split_at(room.min(rest.len()));
            if state.filling.data.capacity() == 0 && now.len() > 1 << 20 {
                state.filling.data.reserve_exact(self.packing.pack_bytes as usize);
            }
            state.take_in(at, now);
            (at, rest) = (at + now.len() as u64, later);
            let full = state.filling.data.len() >= self.packing.pack_bytes as usize;
            if full || state.filling.runs.len() >= RUNS_MAX {
                self.seal(&mut state);
                let wanted = self.packing.background && state.puts < PUTS_MAX;
                drop(state);
                if wanted {
                    self.put_in_background();
                }
            }
        }
        Ok(())
    }
    fn put_in_background(self: &Arc<Self>) {
        let inner = Arc::clone(self);
        let put = move || {
            // The next sync repeats a failed attempt and reports it.
            let mut goes_on = true;
            while goes_on && !inner.closing.load(Ordering::Relaxed) {
                goes_on = matches!(inner.put_one(u64::MAX), Some(Ok(())));
            }
        };
        // Without a thread the pack waits for the next sync.
        let _ = std::thread::Builder::new().name("cenote-put".into()).spawn(put);
    }
    fn sync(&self) -> Result<()> {
        let mut state = self.state.lock();
        if !state.filling.is_empty() {
            self.seal(&mut state);
        }
        let Some(limit) = state.sealed.last_key_value().map(|(last, _)| *last) else { return Ok(()) };
        loop {
            let mut waiting = state.sealed.range(..=limit).peekable();
            if waiting.peek().is_none() {
                return Ok(());
            }
            if waiting.any(|(_, sealed)| !sealed.putting) {
                drop(state);
                self.put_one(limit).unwrap_or(Ok(()))?;
                state = self.state.lock();
            } else {
                self.changed.wait(&mut state);
            }
        }
    }
    /// The table of a pack that the service has.
    pub fn table(state: &BucketState, sequence: u64) -> Option<Arc<Table>> {
        state.map.pack(sequence).and_then(|pack| pack.table.clone())
    }
}

impl ObjectDevice {
    pub(super) fn new(
        service: Box<dyn ObjectService>,
        place: BucketPath,
        owner: Owner,
        packing: Packing,
        state: (BucketState, Option<Held>),
    ) -> Self {
        Self { inner: Arc::new(Inner::new(service, place, owner, packing, state)) }
    }
    fn check(&self, offset: u64, len: u64) -> Result<()> {
        let capacity = self.inner.owner.capacity;
        if offset.checked_add(len).is_some_and(|end| end <= capacity) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::InvalidInput, self.inner.place.subject())
            .because(format!("{len} bytes at {offset} of a device of {capacity}")))
    }
    /// Deletes packs that are no longer needed, repacks old packs with few live bytes, and writes a catalogue now and
    /// then. Optional: [`Device::sync`] and [`Device::discard`] trigger it.
    pub fn tidy(&self) -> Result<()> {
        self.inner.tidy()
    }
    /// What the device holds, for tests and statistics.
    pub fn usage(&self) -> Usage {
        let state = self.inner.state.lock();
        let mut usage = Usage::default();
        for (_, pack) in state.map.packs() {
            usage.packs += 1;
            usage.live_bytes += pack.live;
            usage.packed_bytes += pack.table.as_ref().map_or(0, |table| table.object_bytes());
        }
        (usage.entries, usage.memory_bytes) = state.map.size();
        usage
    }
}

/// The contents of an object device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Packs, including those in memory.
    pub packs: usize,
    /// Bytes of the device that are in packs.
    pub live_bytes: u64,
    /// Bytes of all packs.
    pub packed_bytes: u64,
    /// Entries of the map in memory.
    pub entries: usize,
    /// Memory of the map in bytes, without tables.
    pub memory_bytes: usize,
}

impl Device for ObjectDevice {
    fn capacity_bytes(&self) -> u64 {
        self.inner.owner.capacity
    }
    fn unit_bytes(&self) -> u32 {
        UNIT_BYTES
    }
    fn segment_bytes(&self) -> u64 {
        self.inner.owner.capacity
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.check(offset, buf.len() as u64)?;
        self.inner.read(offset, buf)
    }
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.check(offset, bytes.len() as u64)?;
        self.inner.write(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        self.inner.sync()?;
        self.inner.tidy_soon();
        Ok(())
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check(offset, len)?;
        self.inner.state.lock().map.uncover(offset, len, 0);
        // At most once per pack size, since the search for garbage takes a while.
        let pack_bytes = u64::from(self.inner.packing.pack_bytes);
        if self.inner.discarded.fetch_add(len, Ordering::Relaxed) + len >= pack_bytes {
            self.inner.discarded.store(0, Ordering::Relaxed);
            if self.inner.packing.background {
                self.inner.tidy_soon();
            }
        }
        Ok(())
    }
    fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) -> Result<()> {
        self.inner.retain(live);
        self.inner.tidy_soon();
        Ok(())
    }
    fn segment(&self, _number: u64) -> Result<Option<SegmentFile>> {
        Ok(None)
    }
    fn note(&self) -> String {
        self.inner.service.note()
    }
    fn mend(&self, from: Option<&str>) -> Result<Option<String>> {
        self.inner.service.mend(from).map_err(|refusal| self.inner.place.error(&self.inner.place.own, &refusal))
    }
}

impl Drop for ObjectDevice {
    fn drop(&mut self) {
        self.inner.closing.store(true, Ordering::Relaxed);
        // A deletion under way is safe: no later map names its packs, since their replacements arrived before. Waiting
        // merely avoids unfinished work.
        drop(self.inner.tidying.try_lock_for(CLOSING));
    }
}
