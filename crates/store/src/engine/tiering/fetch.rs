//! Bytes that are about to be read come to a faster tier first, if that pays or nobody can read them where they are.

use std::collections::BTreeMap;

use cenote_model::{Error, ErrorKind, ObjectKey, Response, Result};
use cenote_policy::{Coming, Limits, tier_order};

use super::super::{Engine, failed};
use super::relocate::{How, Relocation};
use super::view::Sampled;
use crate::map::Ext;
use crate::placing::{Action, Placing, Target, identity};
use crate::sums::UNIT;
use crate::{Outcome, Ticket};

/// Ranges in one request.
const RANGES_MAX: usize = 256;
/// Extents brought by one request.
const EXTENTS_MAX: usize = 1024;
/// Of longer extents only the part around what is wanted is brought, in pieces of this size.
const PIECE: u32 = 4 << 20;
/// Residents of fast tiers that a decision compares with.
const RESIDENTS: usize = 256;
/// What is announced is expected to be read within so many milliseconds.
pub(super) const AHEAD_MS: u32 = 200;
/// That many of announced reads come true, as long as the client knows better.
pub(super) const AHEAD_CONFIDENCE: f32 = 0.75;

/// Requests that wait for moves.
#[derive(Default)]
pub(in super::super) struct Waits {
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    ticket: Option<Ticket>,
    left: usize,
    /// It is an error if something cannot be moved.
    must: bool,
    error: Option<Error>,
}

impl Waits {
    /// A number under which moves are waited for.
    pub fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
    /// True if it is a reader who cannot read the bytes where they are.
    pub fn is_restored(&self, waiter: u64) -> bool {
        self.waiting.get(&waiter).is_some_and(|waiting| waiting.must)
    }
}

impl Engine {
    pub(in super::super) fn fetch(
        &mut self,
        key: ObjectKey,
        ranges: &[(u64, u64)],
        ahead: bool,
        must: bool,
    ) -> Outcome {
        self.update_clock();
        match self.begin_fetch(key, &ranges[..ranges.len().min(RANGES_MAX)], ahead, must) {
            Ok(Some(ticket)) => Outcome::Wait(ticket),
            Ok(None) => Outcome::Ready(Response::Done),
            Err(error) => failed(error),
        }
    }

    fn begin_fetch(
        &mut self,
        key: ObjectKey,
        ranges: &[(u64, u64)],
        ahead: bool,
        must: bool,
    ) -> Result<Option<Ticket>> {
        let slot = self.object(key)?;
        if !ahead {
            for (offset, len) in ranges {
                self.note_read(key, *offset, *len);
            }
        }
        let policy = self.tracking_policy(key.container);
        if !must && policy.is_none() {
            return Ok(None);
        }
        for (offset, len) in ranges {
            self.isolate(slot, key, *offset, offset.saturating_add(*len));
        }
        let waiter = self.tiering.waits.number();
        let mut queued = 0;
        if must {
            for target in self.unreadable(slot, key, ranges) {
                let dev = self.restore_to().ok_or_else(|| self.nowhere_to_restore(key))?;
                let relocation = Relocation {
                    target,
                    dev,
                    how: How::Promote,
                    waiter: Some(waiter),
                    ahead: false,
                    short_since_ns: None,
                };
                queued += usize::from(self.tiering.relocations.push(relocation));
            }
        } else if let Some(policy) = policy {
            // The read that waits costs the same whether the bytes come up first or not: what they are worth above is
            // for the reads after it to say, of which their heat knows.
            let coming = ahead.then_some(Coming { in_ms: AHEAD_MS, confidence: AHEAD_CONFIDENCE });
            let mut sampled = self.wanted(slot, ranges, coming);
            let wanted = sampled.len();
            if wanted == 0 {
                return Ok(None);
            }
            sampled.extend(self.sample_of(&policy, RESIDENTS));
            let views = self.tier_views();
            let limits = Limits { now_ms: self.now_ms(), idle: self.idle_share(), ..self.limits() };
            let plan = policy.plan(&views, &self.views_of(&sampled), &limits);
            queued = self.carry_out(&plan, &sampled, (!ahead).then_some((waiter, wanted)));
        }
        if queued == 0 || ahead {
            return Ok(None);
        }
        let ticket = self.ticket();
        let waiting = Waiting { ticket: Some(ticket), left: queued, must, error: None };
        self.tiering.waits.waiting.insert(waiter, waiting);
        Ok(Some(ticket))
    }

    pub(super) fn views_of<'a>(&'a self, sampled: &'a [Sampled]) -> Vec<cenote_policy::RangeView<'a>> {
        // Ranges whose container is gone have no view; there are none, since samples are of live objects.
        sampled.iter().filter_map(|sampled| self.range_view(sampled)).collect()
    }

    /// Waits for moves under a number that [`Waits::number`] gave.
    pub(super) fn wait_for(&mut self, waiter: u64, left: usize) {
        let waiting = Waiting { ticket: None, left, must: false, error: None };
        self.tiering.waits.waiting.insert(waiter, waiting);
    }

    /// One of the moves that somebody waits for is over.
    pub(super) fn one_over(&mut self, waiter: u64, error: Option<&Error>) {
        let Some(waiting) = self.tiering.waits.waiting.get_mut(&waiter) else { return };
        waiting.left = waiting.left.saturating_sub(1);
        if waiting.error.is_none() {
            waiting.error = error.cloned();
        }
        if waiting.left > 0 {
            return;
        }
        let Some(waiting) = self.tiering.waits.waiting.remove(&waiter) else { return };
        match (waiting.ticket, waiting.error) {
            (Some(ticket), Some(error)) if waiting.must => {
                self.finished.push((ticket, Response::Failed(error)));
            }
            (Some(ticket), _) => self.finished.push((ticket, Response::Done)),
            (None, error) => self.arrangement_over(waiter, error),
        }
    }

    /// The extents of ranges that a faster tier could hold.
    fn wanted(&self, slot: u32, ranges: &[(u64, u64)], coming: Option<Coming>) -> Vec<Sampled> {
        let fastest = self.fastest();
        let object = self.state.objects.get(slot);
        let mut sampled = Vec::new();
        for (offset, len) in ranges {
            for (at, ext) in object.map.overlapping(*offset, offset.saturating_add(*len)) {
                if sampled.len() >= EXTENTS_MAX {
                    return sampled;
                }
                if Some(ext.dev) != fastest {
                    sampled.push(self.sampled(slot, at, ext, coming));
                }
            }
        }
        sampled
    }

    /// The fastest device that takes bytes.
    fn fastest(&self) -> Option<u8> {
        let views: Vec<_> = self.state.space.present().map(crate::space::DeviceSlot::view).collect();
        let best = views.iter().filter(|view| view.is_online()).min_by(|one, other| tier_order(one, other))?;
        self.state.space.slot_of(best.id)
    }

    /// Parts of ranges that lie where no client can read them.
    fn unreadable(&self, slot: u32, key: ObjectKey, ranges: &[(u64, u64)]) -> Vec<Target> {
        let object = self.state.objects.get(slot);
        let overlapping =
            ranges.iter().flat_map(|(offset, len)| object.map.overlapping(*offset, offset.saturating_add(*len)));
        overlapping
            .filter(|(_, ext)| !self.state.space.get(ext.dev).spec.kind.is_shareable())
            .map(|(offset, _)| Target::Live { key, offset })
            .collect()
    }

    /// Where that is brought: the fastest device that clients read, one with room if there is one.
    pub(super) fn restore_to(&self) -> Option<u8> {
        let mut views: Vec<_> = self.state.space.present().map(crate::space::DeviceSlot::view).collect();
        views.retain(|view| view.is_online() && view.kind.is_shareable());
        views.sort_by(tier_order);
        let roomy = views.iter().find(|view| view.room_bytes() >= u64::from(PIECE));
        self.state.space.slot_of(roomy.or(views.first())?.id)
    }

    fn nowhere_to_restore(&self, key: ObjectKey) -> Error {
        Error::new(ErrorKind::Full, format!("object {key}"))
            .because(format!(
                "it is on an object service, and no tier that programs can read is online: {}",
                self.uses()
            ))
            .try_next("add a memory, file or directory tier")
    }

    /// Makes the parts of long extents that hold a range extents of their own, so that no more is moved than is wanted.
    pub(super) fn isolate(&mut self, slot: u32, key: ObjectKey, from: u64, to: u64) {
        let is_long = |(_, ext): &(u64, &Ext)| ext.len > 2 * PIECE;
        let long: Vec<(u64, Ext)> = (self.state.objects.get(slot).map.overlapping(from, to))
            .filter(is_long)
            .take(EXTENTS_MAX)
            .map(|(at, ext)| (at, ext.clone()))
            .collect();
        let mut splits = Vec::new();
        for (at, ext) in long {
            // Positions in the run, at whole checksum units around what is wanted.
            let position = |offset: u64| u64::from(ext.skip) + offset.saturating_sub(at);
            let piece = u64::from(PIECE);
            let begin = position(from) / piece * piece;
            let end = position(to).next_multiple_of(piece);
            for cut in [end, begin] {
                let inside = cut.saturating_sub(u64::from(ext.skip));
                if (1..u64::from(ext.len)).contains(&inside) && cut % u64::from(UNIT) == 0 {
                    splits.push((Target::Live { key, offset: at }, inside as u32));
                }
            }
        }
        // The later cut of an extent comes first, so that the extent still begins where it did.
        for (target, at) in splits {
            let Some(was) = self.state.target_mut(target).map(|ext| identity(ext)) else { continue };
            let placing = Placing { target, was, action: Action::Split { at } };
            if self.state.can_place(&placing) && self.place_all(&[placing]).is_err() {
                return;
            }
        }
    }
}
