//! Orders in which ordinals come and go.

use std::collections::{BTreeSet, VecDeque};

use crate::rng::Rng;

/// First ordinal: descending orders have as much space as ascending ones.
const MIDDLE: u64 = 1 << 40;

/// An order in which ordinals are put and deleted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Anywhere in a span, both put and deleted.
    Uniform,
    /// A window that moves up: the lowest ordinal is deleted when a higher one is put.
    SlideUp,
    /// A window that moves down.
    SlideDown,
    /// Filled at random, then emptied from the lowest on, repeatedly.
    LowestFirst,
    /// Filled at random, then emptied from the highest on.
    HighestFirst,
    /// Filled ascending, then emptied in the opposite order.
    Stack,
    /// Put and deleted alternately at both ends.
    ZigZag,
    /// A few ordinals, repeatedly.
    HotRange,
    /// Filled ascending; then a contiguous stretch is deleted at once.
    Bulk,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 9] = [
        Self::Uniform,
        Self::SlideUp,
        Self::SlideDown,
        Self::LowestFirst,
        Self::HighestFirst,
        Self::Stack,
        Self::ZigZag,
        Self::HotRange,
        Self::Bulk,
    ];
}

/// An operation on an ordinal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Put, or overwritten.
    Put(u64),
    /// Deleted; it may not exist.
    Del(u64),
}

impl Step {
    /// The ordinal.
    pub fn ordinal(self) -> u64 {
        match self {
            Self::Put(ordinal) | Self::Del(ordinal) => ordinal,
        }
    }
}

/// One order for a number of steps, which a property test draws and shrinks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Phase {
    /// The order.
    pub order: Order,
    /// Number of steps.
    pub steps: u32,
    /// Approximate number of existing ordinals at a time.
    pub window: u32,
}

/// An endless mix of orders. Each begins with the ordinals that the previous one left.
#[derive(Clone, Debug)]
pub struct Steps {
    rng: Rng,
    /// Existing ordinals.
    live: BTreeSet<u64>,
    window_max: u32,
    phase: Phase,
    /// Steps left of the phase.
    left: u32,
    /// Steps already decided.
    ahead: VecDeque<Step>,
    /// Positions of ascending and descending orders.
    up: u64,
    down: u64,
    /// The phase is deleting what it filled.
    empties: bool,
}

impl Steps {
    /// The mix of this seed, with at most about `window_max` ordinals at a time.
    pub fn new(seed: u64, window_max: u32) -> Self {
        Self {
            rng: Rng::new(seed),
            live: BTreeSet::new(),
            window_max: window_max.max(1),
            phase: Phase { order: Order::Uniform, steps: 0, window: 1 },
            left: 0,
            ahead: VecDeque::new(),
            up: MIDDLE,
            down: MIDDLE,
            empties: false,
        }
    }
    /// The steps of a phase, on top of the existing ordinals.
    pub fn run(&mut self, phase: Phase) -> impl Iterator<Item = Step> {
        self.begin(phase);
        (0..phase.steps).map(move |_| self.step())
    }
    /// The next step of the mix.
    pub fn step(&mut self) -> Step {
        if self.left == 0 && self.ahead.is_empty() {
            let order = *self.rng.pick(&Order::ALL);
            let window = self.rng.size(u64::from(self.window_max)) as u32;
            let steps = self.rng.between(1, u64::from(window) * 6 + 20) as u32;
            self.begin(Phase { order, steps, window });
        }
        self.left = self.left.saturating_sub(1);
        if self.ahead.is_empty() {
            self.decide();
        }
        let step = self.ahead.pop_front().unwrap_or(Step::Put(MIDDLE));
        match step {
            Step::Put(ordinal) => self.live.insert(ordinal),
            Step::Del(ordinal) => self.live.remove(&ordinal),
        };
        step
    }
    fn begin(&mut self, phase: Phase) {
        let phase = Phase { window: phase.window.max(1), ..phase };
        (self.phase, self.left, self.empties) = (phase, phase.steps, false);
    }
    /// Existing ordinals.
    pub fn live(&self) -> &BTreeSet<u64> {
        &self.live
    }
    fn decide(&mut self) {
        let (lowest, highest) = (self.live.first().copied(), self.live.last().copied());
        let is_full = self.live.len() >= self.phase.window as usize;
        let is_low = self.live.len() <= self.phase.window as usize / 16;
        self.empties = (self.empties && !is_low) || is_full;
        match self.phase.order {
            Order::Uniform => {
                let at = self.anywhere();
                self.ahead.push_back(if self.rng.chance(500) { Step::Put(at) } else { Step::Del(at) });
            }
            Order::SlideUp => self.slide(lowest, is_full, true),
            Order::SlideDown => self.slide(highest, is_full, false),
            Order::LowestFirst => self.fill_then(lowest),
            Order::HighestFirst => self.fill_then(highest),
            Order::Stack if self.empties => self.delete(highest),
            Order::ZigZag => self.zig_zag(lowest, highest),
            Order::HotRange => {
                let at = MIDDLE + self.rng.below(16);
                self.ahead.push_back(if self.rng.chance(600) { Step::Put(at) } else { Step::Del(at) });
            }
            Order::Bulk if is_full => self.delete_stretch(),
            Order::Stack | Order::Bulk => self.put_above(),
        }
    }
    fn delete(&mut self, ordinal: Option<u64>) {
        self.ahead.push_back(Step::Del(ordinal.unwrap_or(MIDDLE)));
    }
    /// An ordinal in a span twice as large as the window; often an existing one.
    fn anywhere(&mut self) -> u64 {
        let at = MIDDLE + self.rng.below(u64::from(self.phase.window) * 2);
        if self.rng.chance(200) { self.live.range(at..).next().copied().unwrap_or(at) } else { at }
    }
    fn put_above(&mut self) {
        let highest = self.live.last().copied().unwrap_or(self.up);
        self.up = highest + 1 + self.rng.below(2) * self.rng.below(4);
        self.ahead.push_back(Step::Put(self.up));
    }
    fn put_below(&mut self) {
        let lowest = self.live.first().copied().unwrap_or(self.down);
        self.down = lowest.saturating_sub(1 + self.rng.below(2) * self.rng.below(4));
        self.ahead.push_back(Step::Put(self.down));
    }
    fn slide(&mut self, gone: Option<u64>, is_full: bool, up: bool) {
        if up {
            self.put_above();
        } else {
            self.put_below();
        }
        if is_full {
            self.delete(gone);
        }
    }
    fn fill_then(&mut self, gone: Option<u64>) {
        if self.empties {
            return self.delete(gone);
        }
        let at = self.anywhere();
        self.ahead.push_back(Step::Put(at));
    }
    fn zig_zag(&mut self, lowest: Option<u64>, highest: Option<u64>) {
        if self.empties {
            self.delete(lowest);
            return self.delete(highest);
        }
        self.put_above();
        self.put_below();
    }
    fn delete_stretch(&mut self) {
        let from = self.anywhere();
        let count = self.rng.between(1, u64::from(self.phase.window)) as usize;
        let from = if self.live.range(from..).next().is_some() { from } else { 0 };
        self.ahead.extend(self.live.range(from..).take(count).map(|ordinal| Step::Del(*ordinal)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_puts_and_deletes_and_keeps_its_window() {
        for order in Order::ALL {
            let mut steps = Steps::new(3, 100);
            let phase = Phase { order, steps: 5000, window: 64 };
            let (mut live, mut puts, mut deletions) = (BTreeSet::new(), 0, 0);
            for step in steps.run(phase).collect::<Vec<_>>() {
                match step {
                    Step::Put(ordinal) => puts += u32::from(live.insert(ordinal)),
                    Step::Del(ordinal) => deletions += u32::from(live.remove(&ordinal)),
                }
                assert!(live.len() <= 130, "{order:?}");
            }
            assert!(puts > 500 && deletions > 500, "{order:?}: {puts} and {deletions}");
            assert_eq!(steps.live(), &live, "{order:?}");
        }
    }

    #[test]
    fn one_seed_is_one_mix() {
        let mixes = [7, 7, 8].map(|seed| {
            let mut steps = Steps::new(seed, 50);
            (0..2000).map(|_| steps.step()).collect::<Vec<_>>()
        });
        assert!(mixes[0] == mixes[1] && mixes[0] != mixes[2]);
    }
}
