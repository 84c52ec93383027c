//! Load of devices by clients, and the share of their time that moves may take.
//!
//! Clients read and write devices themselves. The engine sees this load in their counters and in the writes that they
//! report, and computes the time from the devices' measured speeds.

use cenote_model::{DeviceId, size};

use crate::engine::core::Core;
use crate::map::DeviceIndex;

/// A load is averaged over this time…
const WINDOW_NS: u64 = 250_000_000;
/// …and updated after this time.
const STEP_NS: u64 = 20_000_000;
/// Longest time that one lease is expected to take to be written.
const BACKLOG_NS_MAX: f64 = 10e9;
/// Moves that nobody waits for get one part in this many of the time of a busy store, or they would starve.
const SHARE_OF_BUSY: u64 = 5;

/// Load by device slot.
#[derive(Default)]
pub struct Loads {
    looked_ns: u64,
    seen: Vec<Seen>,
    /// By device slot: when clients will have written all that they lease there, if they began at once.
    backlog_ns: Vec<u64>,
    /// While clients are busy, moves that nobody waits for wait until then.
    calm_ns: u64,
    /// By device slot: when the bandwidth that moves have used up of `budget=` is available again.
    spent_ns: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct Seen {
    read_bytes: u64,
    written_bytes: u64,
    busy: f32,
}

impl Loads {
    /// Returns the share of time for which clients use a device, 0 to 1.
    pub fn busy(&self, slot: usize) -> f32 {
        self.seen.get(slot).map_or(0.0, |seen| seen.busy)
    }
    /// Nanoseconds until clients will have written all that they lease on a device.
    pub fn backlog_ns(&self, slot: usize, now_ns: u64) -> u64 {
        self.backlog_ns.get(slot).map_or(0, |until| until.saturating_sub(now_ns))
    }
    /// Returns true if moves that nobody waits for may go on while clients are busy.
    pub fn has_share(&self, now_ns: u64) -> bool {
        now_ns >= self.calm_ns
    }
    /// Charges the time of such a move.
    pub fn took(&mut self, now_ns: u64, ns: u64) {
        self.calm_ns = now_ns.saturating_add(ns.saturating_mul(SHARE_OF_BUSY - 1));
    }
    /// Returns the time until which the budget of a device is used up.
    pub fn spent(&mut self, slot: usize) -> &mut u64 {
        if self.spent_ns.len() <= slot {
            self.spent_ns.resize(slot + 1, 0);
        }
        &mut self.spent_ns[slot]
    }
}

impl Core {
    /// Updates the loads from what clients have read and written.
    pub fn look_at_loads(&mut self) {
        let now = self.state.now.ns;
        let passed = now.saturating_sub(self.observed.loads.looked_ns);
        if passed < STEP_NS {
            return;
        }
        self.observed.loads.looked_ns = now;
        let mut read: Vec<(DeviceId, u64)> = Vec::new();
        for client in self.seams.control.client_counts() {
            for (device, _, bytes) in client.reads {
                let Some(device) = device else { continue };
                match read.iter_mut().find(|(id, _)| *id == device) {
                    Some((_, sum)) => *sum = sum.saturating_add(bytes),
                    None => read.push((device, bytes)),
                }
            }
        }
        let loads = &mut self.observed.loads;
        loads.seen.resize(self.state.space.slots.len(), Seen::default());
        let weight = (passed as f32 / WINDOW_NS as f32).min(1.0);
        for (slot, seen) in self.state.space.slots.iter().zip(&mut loads.seen) {
            let read_bytes = read.iter().find(|(id, _)| *id == slot.id).map_or(0, |(_, bytes)| *bytes);
            let written_bytes = self.observed.counting.written_to(slot.id);
            // Client counters are not trusted, and go back when a client leaves: cap the share at all of the time.
            let speed = slot.view().speed;
            let ns = |now: u64, then: u64, bandwidth: f64| now.saturating_sub(then) as f64 * 1e9 / bandwidth;
            let busy_ns = ns(read_bytes, seen.read_bytes, speed.read_bandwidth)
                + ns(written_bytes, seen.written_bytes, speed.write_bandwidth);
            let share = (busy_ns / passed as f64).clamp(0.0, 1.0) as f32;
            let is_first = seen.read_bytes == 0 && seen.written_bytes == 0;
            if !is_first && share.is_finite() {
                seen.busy += weight * (share - seen.busy);
            }
            (seen.read_bytes, seen.written_bytes) = (read_bytes, written_bytes);
        }
    }

    /// Notes that a client may write this many bytes to a device now. Space that a client reserves for later counts
    /// too, but only for the time that writing it takes.
    pub fn note_leased(&mut self, dev: DeviceIndex, bytes: u64) {
        let slot = self.state.space.get(dev);
        if slot.is_volatile() {
            return; // memory is filled at once, before any decision could use the figure
        }
        let (now, ns) = (self.state.now.ns, slot.view().speed.write_ns(bytes));
        let backlog = &mut self.observed.loads.backlog_ns;
        if backlog.len() <= dev as usize {
            backlog.resize(dev as usize + 1, 0);
        }
        let until = &mut backlog[dev as usize];
        *until = (*until).max(now).saturating_add(ns.clamp(0.0, BACKLOG_NS_MAX) as u64);
    }

    /// Bytes a second that moves to and from a device may take, if a limit is set.
    pub fn budget_of(&self, slot: DeviceIndex) -> Option<f64> {
        let said = self.state.space.get(slot).spec.options.get("budget")?;
        size::parse(said).ok().map(|bytes| bytes as f64).filter(|bytes| *bytes > 0.0)
    }

    /// Returns true if the budgets of both devices allow a move that nobody waits for.
    pub fn is_within_budget(&mut self, from: DeviceIndex, to: DeviceIndex) -> bool {
        let now = self.state.now.ns;
        [from, to].into_iter().all(|slot| *self.observed.loads.spent(slot as usize) <= now)
    }

    /// Returns true if no device has used up its budget.
    pub fn is_within_budgets(&self) -> bool {
        self.observed.loads.spent_ns.iter().all(|spent| *spent <= self.state.now.ns)
    }

    /// Charges bytes that are about to be moved to the budgets of both devices.
    pub fn charge(&mut self, from: DeviceIndex, to: DeviceIndex, bytes: u64) {
        let now = self.state.now.ns;
        for slot in [from, to] {
            let Some(budget) = self.budget_of(slot) else { continue };
            let spent = self.observed.loads.spent(slot as usize);
            *spent = (*spent).max(now).saturating_add((bytes as f64 * 1e9 / budget) as u64);
        }
    }
}
