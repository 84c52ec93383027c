//! Fetch: brings bytes about to be read to a faster tier, if that pays or no client can read them where they are.

use std::collections::BTreeMap;

use cenote_model::{Error, ErrorKind, ObjectKey, Response, Result};
use cenote_policy::{Coming, Limits, tier_order};

use super::Tiering;
use super::relocate::{How, Relocation};
use super::view::Sampled;
use crate::engine::core::Core;
use crate::engine::core::observed::prefetched::{AHEAD_CONFIDENCE, AHEAD_MS};
use crate::engine::failed;
use crate::map::DeviceIndex;
use crate::placing::Target;
use crate::{Outcome, Ticket};

/// Most ranges in one request.
const RANGES_MAX: usize = 256;
/// Most extents brought by one request.
const EXTENTS_MAX: usize = 1024;
/// Long extents are brought in pieces of this size around the wanted range.
const PIECE: u32 = 4 << 20;
/// Residents of fast tiers that a decision compares with.
const RESIDENTS: usize = 256;

/// Requests that wait for moves.
#[derive(Default)]
pub struct Waits {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    ticket: Option<Ticket>,
    left: usize,
    /// A move that fails fails the request.
    must: bool,
    error: Option<Error>,
}

impl Waits {
    /// Returns a new waiter number.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    /// Returns true if the waiter is a reader who cannot read the bytes where they are.
    pub fn is_restored(&self, waiter: u64) -> bool {
        self.waiting.get(&waiter).is_some_and(|waiting| waiting.must)
    }
}

impl Tiering {
    /// Brings ranges to a faster tier; the response waits for the moves unless they are `ahead`. `must`: clients
    /// cannot read them where they are. Fails if the object does not exist or has nowhere to go.
    pub fn fetch(
        &mut self,
        core: &mut Core,
        key: ObjectKey,
        ranges: &[(u64, u64)],
        ahead: bool,
        must: bool,
    ) -> Outcome {
        core.update_clock();
        match self.begin_fetch(core, key, &ranges[..ranges.len().min(RANGES_MAX)], ahead, must) {
            Ok(Some(ticket)) => Outcome::Wait(ticket),
            Ok(None) => Outcome::Ready(Response::Done),
            Err(error) => failed(error),
        }
    }

    fn begin_fetch(
        &mut self,
        core: &mut Core,
        key: ObjectKey,
        ranges: &[(u64, u64)],
        ahead: bool,
        must: bool,
    ) -> Result<Option<Ticket>> {
        let slot = core.object(key)?;
        if !ahead {
            for (offset, len) in ranges {
                core.note_read(key, *offset, *len);
            }
        }
        let policy = self.tracking_policy(core, key.container);
        if !must && policy.is_none() {
            return Ok(None);
        }
        for (offset, len) in ranges {
            core.isolate(slot, key, *offset, offset.saturating_add(*len));
        }
        let waiter = self.waits.number();
        let mut queued = 0;
        if must {
            for target in unreadable(core, slot, key, ranges) {
                let dev = restore_to(core).ok_or_else(|| nowhere_to_restore(core, key))?;
                let relocation = Relocation {
                    target,
                    dev,
                    how: How::Promote,
                    waiter: Some(waiter),
                    ahead: false,
                    short_since_ns: None,
                };
                queued += usize::from(self.relocations.push(relocation));
            }
        } else if let Some(policy) = policy {
            // The waiting read costs the same whether the bytes come up first or not. Their value on a faster tier
            // depends on later reads, which their heat predicts.
            let coming = ahead.then_some(Coming { in_ms: AHEAD_MS, confidence: AHEAD_CONFIDENCE });
            let mut sampled = wanted(core, slot, ranges, coming);
            let wanted = sampled.len();
            if wanted == 0 {
                return Ok(None);
            }
            sampled.extend(self.sample_of(core, &policy, RESIDENTS));
            let views = super::view::tier_views(core);
            let limits =
                Limits { now_ms: core.now_ms(), idle: super::plan::idle_share(core), ..super::plan::limits(core) };
            let plan = policy.plan(&views, &views_of(core, &sampled), &limits);
            queued = self.carry_out(core, &plan, &sampled, (!ahead).then_some((waiter, wanted)));
        }
        if queued == 0 || ahead {
            return Ok(None);
        }
        let ticket = core.ticket();
        let waiting = Waiting { ticket: Some(ticket), left: queued, must, error: None };
        self.waits.waiting.insert(waiter, waiting);
        Ok(Some(ticket))
    }

    /// Waits for moves under a number that [`Waits::number`] gave.
    pub fn wait_for(&mut self, waiter: u64, left: usize) {
        let waiting = Waiting { ticket: None, left, must: false, error: None };
        self.waits.waiting.insert(waiter, waiting);
    }

    /// Counts one finished move of a waiter; after the last one, answers or continues its arrangement.
    pub fn one_over(&mut self, core: &mut Core, waiter: u64, error: Option<&Error>) {
        let Some(waiting) = self.waits.waiting.get_mut(&waiter) else { return };
        waiting.left = waiting.left.saturating_sub(1);
        if waiting.error.is_none() {
            waiting.error = error.cloned();
        }
        if waiting.left > 0 {
            return;
        }
        let Some(waiting) = self.waits.waiting.remove(&waiter) else { return };
        match (waiting.ticket, waiting.error) {
            (Some(ticket), Some(error)) if waiting.must => {
                core.answers.finished.push((ticket, Response::Failed(error)));
            }
            (Some(ticket), _) => core.answers.finished.push((ticket, Response::Done)),
            (None, error) => self.arrangement_over(core, waiter, error),
        }
    }
}

/// Returns the samples as policies see them.
pub fn views_of<'a>(core: &'a Core, sampled: &'a [Sampled]) -> Vec<cenote_policy::RangeView<'a>> {
    // A range whose container is gone has no view. There are none, since samples are of live objects.
    sampled.iter().filter_map(|sampled| super::view::range_view(core, sampled)).collect()
}

/// Returns the extents of the ranges that are not on the fastest device.
fn wanted(core: &Core, slot: u32, ranges: &[(u64, u64)], coming: Option<Coming>) -> Vec<Sampled> {
    let fastest = fastest(core);
    let object = core.state.objects.get(slot);
    let mut sampled = Vec::new();
    for (offset, len) in ranges {
        for (at, ext) in object.map.overlapping(*offset, offset.saturating_add(*len)) {
            if sampled.len() >= EXTENTS_MAX {
                return sampled;
            }
            if Some(ext.dev) != fastest {
                sampled.push(super::view::sampled(core, slot, at, ext, coming));
            }
        }
    }
    sampled
}

/// Returns the fastest device that takes bytes.
fn fastest(core: &Core) -> Option<DeviceIndex> {
    let views: Vec<_> = core.state.space.present().map(crate::space::DeviceSlot::view).collect();
    let best = views.iter().filter(|view| view.is_online()).min_by(|one, other| tier_order(one, other))?;
    core.state.space.slot_of(best.id)
}

/// Returns the extents of the ranges that no client can read where they are.
fn unreadable(core: &Core, slot: u32, key: ObjectKey, ranges: &[(u64, u64)]) -> Vec<Target> {
    let object = core.state.objects.get(slot);
    let overlapping =
        ranges.iter().flat_map(|(offset, len)| object.map.overlapping(*offset, offset.saturating_add(*len)));
    overlapping
        .filter(|(_, ext)| !core.state.space.get(ext.dev).spec.kind.is_shareable())
        .map(|(offset, _)| Target::Live { key, offset })
        .collect()
}

/// Returns where such extents are brought: the fastest device that clients can read, preferably one with room.
pub fn restore_to(core: &Core) -> Option<DeviceIndex> {
    let mut views: Vec<_> = core.state.space.present().map(crate::space::DeviceSlot::view).collect();
    views.retain(|view| view.is_online() && view.kind.is_shareable());
    views.sort_by(tier_order);
    let roomy = views.iter().find(|view| view.room_bytes() >= u64::from(PIECE));
    core.state.space.slot_of(roomy.or(views.first())?.id)
}

fn nowhere_to_restore(core: &Core, key: ObjectKey) -> Error {
    Error::new(ErrorKind::Full, format!("object {key}"))
        .because(format!("it is on an object service, and no tier that programs can read is online: {}", core.uses()))
        .try_next("add a memory, file or directory tier")
}
