//! Background work: the moves of plans, and copies of volatile bytes.

use std::collections::VecDeque;

use cenote_model::Durability;
use cenote_policy::{Action, Incoming};

use super::{Event, MS, Sim};

/// Share of a tier's time for background movement even if the tier is always busy.
const BACKGROUND_SHARE: f64 = 0.2;

impl Sim<'_> {
    pub(super) fn evict(&mut self, range: usize) {
        let it = &mut self.ranges[range];
        if let Some(copy) = it.copy.take() {
            self.tiers[it.device].view.used_bytes -= it.bytes;
            it.device = copy;
            it.version += 1;
        }
    }

    fn is_idle(&self, tier: usize) -> bool {
        self.tiers[tier].busy_until <= self.now
    }

    /// Returns true if background movement may use the tier: it is idle, or background movement had less than its
    /// share of it.
    fn has_time(&self, tier: usize) -> bool {
        let queued = self.tiers[tier].busy_until.saturating_sub(self.now);
        let share = (self.now as f64 * BACKGROUND_SHARE) as u64;
        queued == 0 || (queued < 50 * MS && self.tiers[tier].background_ns < share)
    }

    /// Starts the background work that can start.
    pub(super) fn pump(&mut self) {
        if self.flushing && self.dirty.is_empty() {
            self.dirty = (0..self.ranges.len()).filter(|i| self.is_dirty(&self.ranges[*i])).collect();
        }
        let mut kept = VecDeque::new();
        while let Some((range, action)) = self.moves.pop_front() {
            if (0..self.tiers.len()).filter(|tier| self.has_time(*tier)).count() < 2 {
                kept.push_back((range, action));
                break;
            }
            let (to, kind) = match action {
                Action::Promote(to) => (self.index(to), 0),
                Action::Demote(to) => (self.index(to), 1),
                Action::Copy(to) => (self.index(to), 2),
                Action::Evict | Action::DropCopy => continue,
            };
            if !self.start(range, to, kind) && self.ranges[range].device != to {
                kept.push_back((range, action));
            }
        }
        kept.append(&mut self.moves);
        self.moves = kept;
        if !self.is_idle(0) {
            return;
        }
        for _ in 0..self.dirty.len().min(4) {
            let Some(range) = self.dirty.pop_front() else { return };
            if self.ranges[range].moving {
                self.dirty.push_back(range);
                continue;
            }
            if !self.is_dirty(&self.ranges[range]) {
                continue;
            }
            let bytes = self.ranges[range].bytes;
            let views = self.views();
            let durability = Durability::Async;
            let placed = self.policy.place_copy(&views, &Incoming::new(durability, bytes));
            let started = placed.is_ok_and(|placed| self.start(range, self.index(placed.device()), 2));
            if !started {
                self.dirty.push_front(range);
                return;
            }
            if !self.is_idle(0) {
                return;
            }
        }
    }

    fn start(&mut self, range: usize, to: usize, kind: u8) -> bool {
        let it = &self.ranges[range];
        let from = it.device;
        let bytes = it.bytes;
        if it.moving || !it.exists || from == to || it.copy == Some(to) && kind == 2 {
            return false;
        }
        if !self.has_time(from) || !self.has_time(to) || self.tiers[to].view.free_bytes() < bytes {
            return false;
        }
        self.tiers[to].view.reserved_bytes += bytes;
        let read = self.tiers[from].view.speed.read_ns(bytes) as u64;
        let write = self.tiers[to].view.speed.write_ns(bytes) as u64;
        // Read and written in pieces, alternating: each device is busy only for its own part.
        let mut until = self.now;
        for (tier, ns) in [(from, read), (to, write)] {
            self.tiers[tier].background_ns += if self.is_idle(tier) { 0 } else { ns };
            self.tiers[tier].busy_until = self.now.max(self.tiers[tier].busy_until) + ns;
            self.outcome.by_tier[tier][4] += ns as f64 / 1e6;
            until = until.max(self.tiers[tier].busy_until);
        }
        self.ranges[range].moving = true;
        let version = self.ranges[range].version;
        self.at(until, Event::Moved { range, version, to, kind });
        let first = self.tiers[from].busy_until.min(self.tiers[to].busy_until);
        self.at(first, Event::Pump);
        true
    }

    pub(super) fn moved(&mut self, range: usize, version: u32, to: usize, kind: u8) {
        let it = &mut self.ranges[range];
        it.moving = false;
        let bytes = it.bytes;
        self.tiers[to].view.reserved_bytes -= bytes;
        if it.version != version {
            return;
        }
        self.outcome.moved_bytes += bytes;
        self.tiers[to].view.used_bytes += bytes;
        it.version += 1;
        match kind {
            // The previous place stays as the copy, if it is persistent.
            0 => {
                let old = std::mem::replace(&mut it.device, to);
                let persistent = self.tiers[old].view.kind.is_persistent();
                if let Some(copy) = it.copy.filter(|_| persistent) {
                    self.tiers[copy].view.used_bytes -= bytes;
                    it.copy = None;
                }
                if persistent {
                    it.copy = Some(old);
                } else {
                    self.tiers[old].view.used_bytes -= bytes;
                }
                if it.copy == Some(to) {
                    it.copy = None;
                }
            }
            1 => {
                let old = std::mem::replace(&mut it.device, to);
                self.tiers[old].view.used_bytes -= bytes;
                if it.copy == Some(to) {
                    self.tiers[to].view.used_bytes -= bytes;
                    it.copy = None;
                }
            }
            _ => {
                if let Some(copy) = it.copy.replace(to) {
                    self.tiers[copy].view.used_bytes -= bytes;
                }
            }
        }
    }
}
