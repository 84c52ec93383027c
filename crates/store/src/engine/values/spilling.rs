//! Spilling: gathers a batch of values, lets a job write it to a value log, and lets the records name it.

use std::ops::Bound;

use cenote_device::aligned::AlignedBuf;
use cenote_model::{ContainerId, Extent, IndexId, IndexKey, Result, Sums};

use super::{Hand, Values};
use crate::engine::core::{Core, Effect, Reserved};
use crate::index::{Away, Index, Key, ValueRef};
use crate::journal::Kind;
use crate::journal::record::{encode_give_up, encode_spill};
use crate::value_io::{Batched, WriteValues};
use crate::value_log::{Spill, Spilled};
use crate::work::Job;

/// Approximate bytes, and most values, of one batch: no other request is served while they are gathered and recorded.
const BATCH_BYTES: usize = 1 << 20;
const BATCH_RECORDS: usize = 4096;
/// Most records inspected for one batch.
const LOOKED_MAX: usize = 20_000;
/// Most batches on their way at once.
const JOBS_MAX: usize = 3;
/// If a fourth of a log is wasted, batches of which more than this is wasted are rewritten: what they still hold is
/// written anew with other values.
const WASTED_PERCENT: u64 = 60;
/// Interval of the search for batches that nobody needs…
const SWEPT_NS: u64 = 200_000_000;
/// …and of that for batches of which little is needed.
const SPARSE_NS: u64 = 5_000_000_000;
/// The latter interval if none could be rewritten, because undo lists or snapshots need them.
const SPARSE_IN_VAIN_NS: u64 = 60_000_000_000;

/// A batch that a job writes.
pub struct Spilling {
    /// The owner of the log, and the index of the records.
    owner: ContainerId,
    index: IndexId,
    /// Key, epoch, place in the batch and length of each.
    records: Vec<(Key, u64, u32, u32)>,
    reserved: Reserved,
    len: u32,
    /// Bytes that leave memory by it.
    bytes: u64,
}

/// A batch that is being gathered.
struct Gathered {
    owner: ContainerId,
    index: IndexId,
    records: Vec<(Key, u64, u32, u32)>,
    bytes: Vec<u8>,
    /// Values to be read first, and their place in the batch.
    reads: Vec<(Away, u32)>,
    /// Bytes of values that are in memory.
    here: u64,
}

impl Gathered {
    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.records.len() >= BATCH_RECORDS
    }
    fn take(&mut self, key: &[u8], epoch: u64, value: &[u8]) {
        self.records.push((Key::new(key), epoch, self.bytes.len() as u32, value.len() as u32));
        self.bytes.extend_from_slice(value);
        self.here += value.len() as u64;
    }
    fn take_away(&mut self, key: &[u8], epoch: u64, away: &Away) {
        let at = self.bytes.len() as u32;
        self.records.push((Key::new(key), epoch, at, away.len));
        self.bytes.resize(self.bytes.len() + away.len as usize, 0);
        self.reads.push((away.clone(), at));
    }
}

impl Values {
    /// Returns a job that writes the next batch: values that leave memory, if there are too many, or the rest of
    /// batches that are mostly wasted.
    pub fn next_spill(&mut self, core: &mut Core) -> Option<Job> {
        if self.spill.retry_ns > core.state.now.ns {
            return None;
        }
        self.sweep_batches(core);
        self.count_values(core, false);
        let (here, most) = (self.values_here(core), core.settings.value_bytes);
        self.spill.is_on = here > if self.spill.is_on { most - most / 8 } else { most };
        let wanted = self.spill.is_on || !self.spill.sparse.is_empty();
        if !wanted || self.spill.jobs >= JOBS_MAX {
            return None;
        }
        let gathered = self.gather_values(core)?;
        self.spill_job(core, gathered)
    }

    /// Gathers values from the hand on. `None` if the hand came around, or inspected many records.
    fn gather_values(&mut self, core: &mut Core) -> Option<Gathered> {
        let mut looked = 0;
        while looked < LOOKED_MAX {
            if !self.turn_hand(core) {
                // Reads up to now do not protect a value in the next round.
                self.spill.fruitless = self.spill.found == 0;
                if self.spill.fruitless && !self.spill.sparse.is_empty() {
                    self.spill.sparse_ns = core.state.now.ns + SPARSE_IN_VAIN_NS;
                }
                self.spill.found = 0;
                self.spill.hand = Hand::default();
                self.recent.forget();
                self.spill.sparse.clear();
                return None;
            }
            let found = self.gather_here(core, &mut looked);
            if found.is_some() {
                self.spill.fruitless = false;
                self.spill.found += 1;
                return found;
            }
        }
        None
    }

    /// Moves the hand to the next index with candidates, if it is at none. Returns false at the end.
    fn turn_hand(&mut self, core: &mut Core) -> bool {
        let hand = &self.spill.hand;
        let sparse = !self.spill.sparse.is_empty();
        let is_wanted = |index: &Index| index.spillable > 0 || (sparse && index.away > 0);
        let mut ids = core.state.containers.ids();
        ids.retain(|id| *id >= hand.container);
        for id in ids {
            let from = if id == hand.container { hand.index } else { IndexId(0) };
            let Some(container) = core.state.containers.get(id) else { continue };
            if let Some((index, _)) =
                container.content.indices.iter_from(Bound::Included(from)).find(|(_, index)| is_wanted(index))
            {
                if (id, *index) != (hand.container, hand.index) {
                    self.spill.hand = Hand { container: id, index: *index, after: None };
                }
                return true;
            }
        }
        false
    }

    /// Gathers values of the hand's index, and moves the hand past them.
    fn gather_here(&mut self, core: &mut Core, looked: &mut usize) -> Option<Gathered> {
        let Hand { container, index, after } = std::mem::take(&mut self.spill.hand);
        let behind = index.0.checked_add(1).map(IndexId);
        self.spill.hand = Hand {
            container: if behind.is_some() { container } else { ContainerId(container.0.saturating_add(1)) },
            index: behind.unwrap_or(IndexId(0)),
            after: None,
        };
        let owner = core.state.log_owner(container)?;
        core.state.log_end(owner)?;
        let from = after.as_ref().map_or(Bound::Unbounded, |key| Bound::Excluded(key.bytes()));
        let records = core.state.containers.get(container)?.content.indices.get(&index)?;
        let mut all = Gathered { owner, index, records: Vec::new(), bytes: Vec::new(), reads: Vec::new(), here: 0 };
        let mut last = None;
        for (key, record) in records.range(from) {
            if *looked >= LOOKED_MAX || all.is_full() {
                self.spill.hand = Hand { container, index, after: last.map(Key::new).or(after) };
                break;
            }
            *looked += 1;
            last = Some(key);
            match record.value {
                ValueRef::Here(value) if self.spill.is_on && record.value.may_spill() && !self.recent.has(key) => {
                    all.take(key, record.epoch, value);
                }
                ValueRef::Away(away) if self.spill.sparse.contains(&(owner, away.batch.offset)) => {
                    all.take_away(key, record.epoch, away);
                }
                _ => {}
            }
        }
        (!all.records.is_empty()).then_some(all)
    }

    fn spill_job(&mut self, core: &mut Core, gathered: Gathered) -> Option<Job> {
        let len = gathered.bytes.len();
        let Ok((dev, places)) = core.room_for(&[len as u32], None) else {
            self.spill.retry_ns = core.state.now.ns + core.settings.retry_ns;
            return None; // they stay in memory
        };
        let at = *places.first()?;
        let slot = core.state.space.get(dev);
        let (padded, syncs) = (slot.padded(len as u64), std::sync::Arc::clone(&slot.trust.syncs));
        let Some(target) = slot.device.clone() else {
            core.state.space.get_mut(dev).unreserve(at, padded);
            return None;
        };
        let mut buffer = AlignedBuf::reused(padded as usize);
        buffer[..len].copy_from_slice(&gathered.bytes);
        buffer[len..padded as usize].fill(0);
        let (owner, index) = (gathered.owner, gathered.index);
        let reads = if gathered.reads.is_empty() {
            None
        } else {
            let wanted: Vec<&Away> = gathered.reads.iter().map(|(away, _)| away).collect();
            let key = IndexKey { container: owner, index };
            let Ok(reads) = crate::engine::values::reading::reads_of(core, key, &wanted, false) else {
                core.state.space.get_mut(dev).unreserve(at, padded);
                return None;
            };
            Some((reads, gathered.reads.iter().map(|(_, at)| *at).collect()))
        };
        let values = gathered.records.iter().map(|(_, _, at, len)| (*at, *len)).collect();
        self.spill.in_flight_bytes += gathered.here;
        let spilling = Spilling {
            owner,
            index,
            records: gathered.records,
            reserved: Reserved { dev, offset: at, bytes: padded },
            len: len as u32,
            bytes: gathered.here,
        };
        let padded = padded as usize;
        let write = WriteValues { target, syncs, at, buffer, padded, len, reads, values };
        self.spill.jobs += 1;
        Some(core.start(Effect::Other, write, |values: &mut Self, core, result| {
            values.spill.jobs = values.spill.jobs.saturating_sub(1);
            values.finish_spill(core, spilling, result);
        }))
    }

    /// Takes the result of a batch: records it in the journal, or returns its space and retries later.
    pub fn finish_spill(&mut self, core: &mut Core, spilling: Spilling, result: Result<Batched>) {
        self.spill.in_flight_bytes = self.spill.in_flight_bytes.saturating_sub(spilling.bytes);
        let Reserved { dev, offset: at, bytes: padded } = spilling.reserved;
        let bytes = u64::from(spilling.len);
        let done = match result {
            Ok(batched) => note_spill(core, spilling, batched),
            Err(error) => {
                core.look_at_syncs(dev);
                core.note_trouble(dev, &error);
                Err(error)
            }
        };
        let slot = core.state.space.get_mut(dev);
        match done {
            Ok(true) => {
                slot.space.reserved_bytes = slot.space.reserved_bytes.saturating_sub(padded);
                core.observed.counting.moved_bytes += bytes;
            }
            Ok(false) => slot.unreserve(at, padded),
            Err(_) => {
                slot.unreserve(at, padded);
                core.observed.counting.failed(true);
                self.spill.retry_ns = core.state.now.ns + core.settings.retry_ns;
            }
        }
        self.count_values(core, true);
        self.answer_those_with_room(core);
    }

    /// Gives up batches that nobody needs, and finds those of which little is needed.
    fn sweep_batches(&mut self, core: &mut Core) {
        let now = core.state.now.ns;
        if now.saturating_sub(self.spill.swept_ns) < SWEPT_NS {
            return;
        }
        self.spill.swept_ns = now;
        let looks_for_sparse = self.spill.sparse.is_empty() && now.saturating_sub(self.spill.sparse_ns) >= SPARSE_NS;
        let mut dead: Vec<(ContainerId, Vec<u64>)> = Vec::new();
        for container in core.state.containers.iter() {
            let Some(log) = &container.content.values else { continue };
            let offsets: Vec<u64> =
                log.batches().filter(|(_, known)| known.live() == 0).map(|(offset, _)| offset).collect();
            if !offsets.is_empty() {
                dead.push((container.id, offsets));
            }
            if looks_for_sparse {
                let wasted: u64 = log.batches().map(|(_, known)| known.wasted_bytes()).sum();
                let sparse = log.batches().filter(|(_, known)| {
                    known.live() > 0
                        && wasted * 4 > log.bytes()
                        && known.wasted_bytes() * 100 > u64::from(known.len) * WASTED_PERCENT
                });
                self.spill.sparse.extend(sparse.map(|(offset, _)| (container.id, offset)));
                self.spill.sparse_ns = now;
            }
        }
        for (container, offsets) in dead {
            if give_up_batches(core, container, &offsets).is_err() {
                return; // at the next sweep
            }
        }
    }
}

/// Records a written batch in the journal and the state. Returns false if nobody needs it any more. Fails if the
/// journal does not take it.
fn note_spill(core: &mut Core, spilling: Spilling, batched: Batched) -> Result<bool> {
    let Spilling { owner, index, records, reserved, len, .. } = spilling;
    let Some(offset) = core.state.log_end(owner) else { return Ok(false) };
    let members = std::iter::once(owner).chain(core.state.containers.snapshots_of(owner).iter().copied());
    let members: Vec<ContainerId> = members.collect();
    let is_needed = |key: &Key, epoch: u64| {
        members.iter().any(|member| {
            let found = core.state.containers.get(*member).and_then(|it| it.content.indices.get(&index));
            found.and_then(|records| records.get(key.bytes())).is_some_and(|record| record.epoch == epoch)
        })
    };
    let all = records.into_iter().zip(batched.digests);
    let records: Vec<Spilled> = all
        .filter(|((key, epoch, ..), _)| is_needed(key, *epoch))
        .map(|((key, epoch, at, len), digest)| Spilled { key, epoch, at, len, digest })
        .collect();
    if records.is_empty() {
        return Ok(false);
    }
    let device = core.state.space.get(reserved.dev).id;
    let extent = Extent::whole(device, reserved.offset, len, Sums::from_slice(&batched.sums));
    let spill = Spill { container: owner, index, offset, extent, records };
    let mut draft = core.journal.draft(Kind::Spill);
    encode_spill(&mut draft.bytes, &spill);
    core.journal.append(draft, core.state.epoch)?;
    core.note_journal_dirty();
    let done = core.state.spill(&spill);
    debug_assert_eq!(done, Ok(()));
    Ok(true)
}

fn give_up_batches(core: &mut Core, container: ContainerId, offsets: &[u64]) -> Result<()> {
    let mut draft = core.journal.draft(Kind::GiveUp);
    encode_give_up(&mut draft.bytes, container, offsets);
    core.journal.append(draft, core.state.epoch)?;
    core.note_journal_dirty();
    let tag = core.tag();
    let done = core.state.give_up_batches(container, offsets, tag);
    debug_assert_eq!(done, Ok(()));
    core.seams.control.epoch_raise();
    Ok(())
}
