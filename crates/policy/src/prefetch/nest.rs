//! Strides, and strides of strides: a row of a matrix, the rows of a block, the blocks of a volume.

/// Number of nested strides detected.
const LEVELS: usize = 4;

/// Runs at one level: numbers that rise (or fall) by a constant step.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Level {
    last: i64,
    stride: i64,
    count: u32,
    /// Stride and length of the previous run.
    prior: (i64, u32),
    /// Number of consecutive runs with the same shape as the previous one.
    same: u32,
}

impl Level {
    /// Takes the next number; returns true if it begins a run.
    fn feed(&mut self, at: i64) -> bool {
        let step = at.wrapping_sub(self.last);
        self.last = at;
        if self.count == 1 && self.same > 0 && step != self.prior.0 {
            // The known shape of runs no longer holds.
            self.same = 0;
        }
        match self.count {
            0 => {
                self.count = 1;
                return true;
            }
            1 => (self.stride, self.count) = (step, 2),
            _ if step == self.stride => self.count = self.count.saturating_add(1),
            _ => {
                let shape = (self.stride, self.count);
                self.same = if shape == self.prior { self.same + 1 } else { 0 };
                (self.prior, self.count, self.stride) = (shape, 1, 0);
                return true;
            }
        }
        false
    }
}

/// A detector of nested strides in a sequence of offsets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Nest {
    levels: [Level; LEVELS],
}

impl Nest {
    /// The next offset of the sequence.
    pub fn see(&mut self, at: i64) {
        for level in &mut self.levels {
            if !level.feed(at) {
                return;
            }
        }
    }
    /// The next offset, if it can be predicted.
    pub fn next(&self) -> Option<i64> {
        Self::next_of(&self.levels)
    }
    fn next_of(levels: &[Level]) -> Option<i64> {
        let (level, outer) = levels.split_first()?;
        let shape_known = level.same > 0;
        if shape_known && level.count == level.prior.1 && level.stride == level.prior.0 {
            return Self::next_of(outer);
        }
        let sure = level.count >= 3 || (level.count == 2 && level.stride == level.prior.0);
        match level.count {
            1 if shape_known => level.last.checked_add(level.prior.0),
            _ if sure => level.last.checked_add(level.stride),
            _ => None,
        }
    }
    /// Returns true if a run of known shape has just ended and the start of the next one is
    /// unknown.
    pub fn is_at_end(&self) -> bool {
        let level = &self.levels[0];
        level.same > 0 && (level.stride, level.count) == level.prior && self.next().is_none()
    }
    /// The following offsets, at most `depth`.
    pub fn ahead(mut self, depth: usize) -> impl Iterator<Item = i64> {
        (0..depth).map_while(move |_| {
            let next = self.next()?;
            self.see(next);
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of a sequence that was predicted one step ahead.
    fn foreseen(sequence: &[i64]) -> f64 {
        let mut nest = Nest::default();
        let mut right = 0;
        for at in sequence {
            right += i32::from(nest.next() == Some(*at));
            nest.see(*at);
        }
        f64::from(right) / sequence.len() as f64
    }

    #[test]
    fn strides_forward_backward_and_nested_are_foreseen() {
        let line: Vec<i64> = (0..100).map(|i| i * 4096).collect();
        assert!(foreseen(&line) > 0.96);
        let back: Vec<i64> = line.iter().rev().copied().collect();
        assert!(foreseen(&back) > 0.96);
        let plane: Vec<i64> = (0..20).flat_map(|y| (0..10).map(move |x| y * 1_000_000 + x * 512)).collect();
        assert!(foreseen(&plane) > 0.85, "{}", foreseen(&plane));
        let volume: Vec<i64> = (0..8)
            .flat_map(|z| (0..8).flat_map(move |y| (0..8).map(move |x| z * 900_001 - y * 10_000 + x * 16)))
            .collect();
        assert!(foreseen(&volume) > 0.85, "{}", foreseen(&volume));
        let mut nest = Nest::default();
        for at in plane.iter().take(45) {
            nest.see(*at);
        }
        let ahead: Vec<_> = nest.ahead(12).collect();
        assert_eq!(ahead, plane[45..57], "into the next but one row");
    }

    #[test]
    fn random_offsets_are_not() {
        let mut state = 1_u64;
        let random: Vec<i64> = (0..1000)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 40) as i64
            })
            .collect();
        assert!(foreseen(&random) < 0.01);
        let mut nest = Nest::default();
        for at in [i64::MIN, i64::MAX, 0, i64::MAX, i64::MIN, i64::MAX] {
            nest.see(at);
            assert!(nest.ahead(100).count() <= 100);
        }
    }
}
