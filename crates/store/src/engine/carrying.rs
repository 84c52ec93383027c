//! Carried (proxied) I/O, for sessions that may not map the store's devices because these also hold bytes that are not
//! for them. Jobs of the engine read and write for them. Space leased to such a session already holds the session's own
//! bytes, so the session never sees what others have left there.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_device::aligned::AlignedBuf;
use cenote_device::{Device, Lent};
use cenote_model::{
    CARRIED_BYTES_MAX, ContainerId, DeviceId, DeviceKind, Durability, Error, ErrorKind, ObjectKey, Response, Result,
    Timed,
};

use super::activity::{Activity, Urgency};
use super::core::{Core, Effect, SpaceHold};
use super::failed;
use super::tiering::Wanted;
use crate::copying::{Part, Unread};
use crate::map::DeviceIndex;
use crate::sums::{UNIT, combine, sum_of};
use crate::work::{Io, Job, Work};
use crate::{Outcome, SessionId, Ticket};

/// Shortest run of a lease for carried bytes, unless there are fewer bytes.
const RUN_BYTES: u64 = 64 << 10;
/// So many bytes of memory are copied at once: that takes less time than waking a thread for it.
const AT_ONCE: u32 = 64 << 10;

/// Most parts of a range that is lent: with more it is cheaper to copy.
const LENT_PARTS_MAX: usize = 24;

/// Orders that wait for a job.
#[derive(Default)]
pub struct Carrying(VecDeque<Order>);

enum Order {
    Read { ticket: Ticket, key: ObjectKey, offset: u64, len: u32 },
    Deposit(Box<Deposit>, Vec<u8>),
}

/// Space taken for bytes, and leased once they are written.
pub struct Deposit {
    ticket: Ticket,
    who: (SessionId, ContainerId),
    seq: u64,
    dev: DeviceIndex,
    runs: Vec<(u64, u64)>,
}

/// A range of a run, and where it goes in the answer.
pub(crate) struct Carried {
    pub part: Part,
    /// The slot of its device.
    pub dev: DeviceIndex,
    pub from: u32,
    pub len: u32,
    pub to: usize,
}

/// Bytes of an object that lie in memory, to be read where they are.
pub struct InPlace {
    /// The object's size, in bytes.
    pub size: u64,
    /// Its version word.
    pub version: u64,
    /// The bytes, in order.
    pub parts: Vec<LentPart>,
    /// The CRC-32C of all of them: that of whole checksum units as it was when they were written.
    pub sum: u32,
}

/// Bytes in memory. Their space is not reused, so they stay the same, as long as this value lives.
pub struct LentPart {
    bytes: Lent,
    _hold: SpaceHold,
}

impl AsRef<[u8]> for LentPart {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

impl Carried {
    /// The checksum of its bytes: known for whole units, and computed for units of which it needs a part alone. `None` if they
    /// are not there any more.
    fn sum_of(&self, lent: &Lent) -> Option<u32> {
        let (bytes, end) = (lent.as_ref(), self.from + self.len);
        let (mut sum, mut at) = (0, self.from);
        while at < end {
            let to = (at / UNIT + 1).saturating_mul(UNIT).min(end);
            let is_whole = at % UNIT == 0 && (to - at == UNIT || to == self.part.len);
            let unit = if is_whole {
                *self.part.sums.get((at / UNIT) as usize)?
            } else {
                sum_of(&bytes[(at - self.from) as usize..(to - self.from) as usize])
            };
            sum = combine(sum, unit, to - at);
            at = to;
        }
        lent.is_whole().then_some(sum)
    }
}

/// Bytes that a session stores.
pub struct Brought {
    pub container: ContainerId,
    pub bytes: Vec<u8>,
    pub avoid: Vec<DeviceId>,
    pub durability: Option<Durability>,
}

impl Activity for Carrying {
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency == Urgency::Awaited { self.next_carrying(core) } else { None }
    }
}

/// Reads ranges into one answer. Holes are zeros.
struct ReadParts {
    parts: Vec<Carried>,
    bytes: usize,
    /// All of them are in shared memory.
    in_memory: bool,
}

impl Work for ReadParts {
    type Output = std::result::Result<Vec<u8>, Unread>;
    const TIMED: Timed = Timed::Copy;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        self.parts.iter().map(|carried| &carried.part.device).collect()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        self.read()
    }
}

impl ReadParts {
    /// Returns true if the bytes are few, and all in memory.
    fn is_brief(&self) -> bool {
        self.in_memory && self.bytes <= AT_ONCE as usize
    }
    fn read(self) -> std::result::Result<Vec<u8>, Unread> {
        let mut all = vec![0; self.bytes];
        let mut buffer = Vec::new();
        for Carried { part, from, len, to, .. } in &self.parts {
            let into = &mut all[*to..*to + *len as usize];
            let read = match part.packed {
                None if self.in_memory => part.copy_from_memory(*from, into),
                _ => part.read_range(*from, into, &mut buffer),
            };
            read.map_err(|error| part.unread(error))?;
        }
        Ok(all)
    }
}

/// Writes bytes into runs, padded with zeros.
struct WriteRuns {
    device: Arc<dyn Device>,
    runs: Vec<(u64, u64)>,
    bytes: Vec<u8>,
}

impl Work for WriteRuns {
    type Output = Result<()>;
    const TIMED: Timed = Timed::Copy;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        vec![&self.device]
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        let mut bytes = &self.bytes[..];
        for (offset, len) in &self.runs {
            let (head, rest) = bytes.split_at(bytes.len().min(*len as usize));
            let mut padded = AlignedBuf::reused(*len as usize);
            padded[..head.len()].copy_from_slice(head);
            padded[head.len()..*len as usize].fill(0);
            self.device.write_at(*offset, &padded[..*len as usize])?;
            bytes = rest;
        }
        Ok(())
    }
}

impl Brought {
    /// Returns the space to look for. Fails if there are too many bytes.
    pub fn wanted(&self) -> Result<Wanted<'_>> {
        if self.bytes.len() > CARRIED_BYTES_MAX as usize {
            return Err(too_long(format!("storing {} bytes in container {}", self.bytes.len(), self.container)));
        }
        let bytes = self.bytes.len() as u64;
        Ok(Wanted {
            container: self.container,
            bytes,
            run_min: bytes.min(RUN_BYTES) as u32,
            avoid: &self.avoid,
            durability: self.durability,
        })
    }
}

impl Carrying {
    /// Queues bytes of a session and the space for them: device slot and runs.
    pub fn carry_in(
        &mut self,
        core: &mut Core,
        session: SessionId,
        seq: u64,
        brought: Brought,
        (dev, runs): (DeviceIndex, Vec<(u64, u64)>),
    ) -> Outcome {
        let ticket = core.ticket();
        let deposit = Deposit { ticket, who: (session, brought.container), seq, dev, runs };
        self.0.push_back(Order::Deposit(Box::new(deposit), brought.bytes));
        Outcome::Wait(ticket)
    }

    /// Queues a read of an object's bytes. Fails if it is too long or the object does not exist.
    pub fn carry_out_of(&mut self, core: &mut Core, key: ObjectKey, offset: u64, len: u32) -> Outcome {
        core.update_clock();
        if len > CARRIED_BYTES_MAX {
            return failed(too_long(format!("reading {len} bytes of object {key}")));
        }
        if let Err(error) = core.object(key) {
            return failed(error);
        }
        if len <= AT_ONCE
            && let Ok((seen, work)) = parts_to_read(core, key, offset, len)
            && work.is_brief()
        {
            // What cannot be read at once is read by a job, which says why.
            if let Ok(bytes) = work.read() {
                return Outcome::Ready(seen.with(bytes));
            }
        }
        let ticket = core.ticket();
        self.0.push_back(Order::Read { ticket, key, offset, len });
        Outcome::Wait(ticket)
    }

    /// The bytes of a range where they are. `None` unless all of them lie in memory, in a few parts. Whole checksum units are not
    /// verified here: whoever reads them does that, by their sum.
    pub fn lend(core: &mut Core, key: ObjectKey, offset: u64, len: u32) -> Option<InPlace> {
        core.update_clock();
        let (seen, work) = parts_to_read(core, key, offset, len).ok()?;
        if !work.in_memory || !(1..=LENT_PARTS_MAX).contains(&work.parts.len()) {
            return None;
        }
        let epoch = core.seams.control.epoch();
        let (mut parts, mut sum, mut done) = (Vec::with_capacity(work.parts.len()), 0, 0);
        for carried in &work.parts {
            if carried.to != done || carried.part.packed.is_some() {
                return None; // a hole lies before it, or it is compressed
            }
            let at = carried.part.offset + u64::from(carried.from);
            let bytes = carried.part.device.lend(at, carried.len as usize)?;
            sum = combine(sum, carried.sum_of(&bytes)?, carried.len);
            parts.push(LentPart { bytes, _hold: core.jobs.lend(carried.dev, epoch) });
            done += carried.len as usize;
        }
        (done == work.bytes).then_some(InPlace { size: seen.size, version: seen.version, parts, sum })
    }

    /// Returns a job for the next order. Fails orders that cannot begin.
    pub fn next_carrying(&mut self, core: &mut Core) -> Option<Job> {
        while let Some(order) = self.0.pop_front() {
            let (ticket, job) = match order {
                Order::Read { ticket, key, offset, len } => (ticket, reading(core, ticket, key, offset, len)),
                Order::Deposit(deposit, bytes) => (deposit.ticket, depositing(core, deposit, bytes)),
            };
            match job {
                Ok(job) => return Some(job),
                Err(error) => core.answers.finished.push((ticket, Response::Failed(error))),
            }
        }
        None
    }
}

fn reading(core: &mut Core, ticket: Ticket, key: ObjectKey, offset: u64, len: u32) -> Result<Job> {
    let (seen, work) = parts_to_read(core, key, offset, len)?;
    Ok(core.start(Effect::Other, work, move |_: &mut Carrying, core, read| {
        finish_carrying_out(core, ticket, key, seen, read);
    }))
}

/// An object's size and version.
struct Seen {
    size: u64,
    version: u64,
}

impl Seen {
    fn with(self, bytes: Vec<u8>) -> Response {
        Response::Bytes { size: self.size, version: self.version, bytes }
    }
}

/// The present state of an object, and the parts of its map that a read needs.
fn parts_to_read(core: &mut Core, key: ObjectKey, offset: u64, len: u32) -> Result<(Seen, ReadParts)> {
    let slot = core.object(key)?;
    let now_s = core.state.now.s;
    core.state.objects.get_mut(slot).last.touched = now_s;
    let object = core.state.objects.get(slot);
    let size = object.size;
    let bytes = size.saturating_sub(offset).min(u64::from(len));
    let to = offset + bytes;
    let (mut parts, mut in_memory) = (Vec::new(), true);
    for (at, ext) in object.map.overlapping(offset, to) {
        let (from, end) = (at.max(offset), (at + u64::from(ext.len)).min(to));
        let wanted = ext.part((from - at) as u32, (end - from) as u32).trimmed();
        let seen = core.readable(&wanted, false);
        let part = core.part_of(&seen).ok_or_else(|| {
            Error::new(ErrorKind::Io, format!("object {key}"))
                .because(format!("tier `{}` is not open", core.state.space.get(ext.dev).spec.name))
                .try_next("see `cenote tiers`, and bring the tier back")
        })?;
        in_memory &= core.state.space.get(seen.dev).spec.kind == DeviceKind::SharedMemory;
        let (len, to) = ((end - from) as u32, (from - offset) as usize);
        parts.push(Carried { part, dev: seen.dev, from: seen.skip, len, to });
    }
    let version = core.seams.control.word(key.word_hash());
    Ok((Seen { size, version }, ReadParts { parts, bytes: bytes as usize, in_memory }))
}

fn depositing(core: &mut Core, deposit: Box<Deposit>, bytes: Vec<u8>) -> Result<Job> {
    let device: Option<Arc<dyn Device>> = core.state.space.get(deposit.dev).device.clone();
    let Some(device) = device else {
        take_back(core, &deposit);
        return Err(Error::new(ErrorKind::Io, format!("container {}", deposit.who.1))
            .because(format!(
                "tier `{}`, which was chosen for it, is not open any more",
                core.state.space.get(deposit.dev).spec.name
            ))
            .try_next("try again"));
    };
    let runs = deposit.runs.clone();
    let work = WriteRuns { device, runs, bytes };
    Ok(core.start(Effect::Other, work, move |_: &mut Carrying, core, written| finish_deposit(core, &deposit, written)))
}

#[cold]
fn too_long(subject: String) -> Error {
    Error::new(ErrorKind::LimitExceeded, subject)
        .because(format!("at most {CARRIED_BYTES_MAX} bytes are carried at a time"))
        .try_next("ask for less at a time")
}

fn finish_carrying_out(
    core: &mut Core,
    ticket: Ticket,
    key: ObjectKey,
    seen: Seen,
    read: std::result::Result<Vec<u8>, Unread>,
) {
    let response = match read {
        Ok(bytes) => seen.with(bytes),
        Err(unread) => {
            let mending = "rewrite or delete that range; the rest of the store is not affected";
            Response::Failed(core.not_read(format!("object {key}"), &unread, mending))
        }
    };
    core.answers.finished.push((ticket, response));
}

fn finish_deposit(core: &mut Core, deposit: &Deposit, written: Result<()>) {
    let is_there = core.state.sessions.open.contains_key(&deposit.who.0);
    let granted = match written {
        Ok(()) if is_there => core.grant(deposit.who, deposit.seq, deposit.dev, &deposit.runs),
        Ok(()) => {
            take_back(core, deposit);
            Err(Error::new(ErrorKind::Disconnected, format!("session {}", deposit.who.0.0)).because("it has ended"))
        }
        Err(error) => {
            core.note_trouble(deposit.dev, &error);
            take_back(core, deposit);
            let tier = &core.state.space.get(deposit.dev).spec.name;
            Err(Error::new(error.kind(), format!("container {}", deposit.who.1))
                .because(format!("writing to tier `{tier}`: {error}"))
                .try_next("try again: another tier is taken while this one fails"))
        }
    };
    core.answers.finished.push((deposit.ticket, granted.unwrap_or_else(Response::Failed)));
}

fn take_back(core: &mut Core, deposit: &Deposit) {
    for (offset, len) in &deposit.runs {
        core.state.space.get_mut(deposit.dev).unreserve(*offset, *len);
    }
}
