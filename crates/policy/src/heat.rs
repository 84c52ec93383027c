//! Access statistics of a range: a small record that the engine keeps for each range it tracks.

/// Half life of a read's or write's weight, in milliseconds.
pub(crate) const HALF_LIFE_MS: f32 = 30_000.0;
/// Weight of the newest interval in the mean, at least: the first intervals count equally.
const INTERVAL_WEIGHT: f32 = 0.12;
/// Milliseconds of one step of a [`Heat`]'s clock: with 4 ms it wraps around after 198 days.
const STEP_MS: u64 = 4;
/// Reads closer together than this count as one use: an application reads a range in many calls.
pub(crate) const ONE_USE_MS: f32 = 8.0;

/// Usage of a range: decaying counts of reads and writes, the times of the last ones, and the rhythm of reads.
///
/// Times are milliseconds of any clock that only this record's calls share; a clock that jumps back makes ages zero,
/// never enormous. 40 bytes, so that with a key of 24 bytes an entry of the engine's table has 64.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Heat {
    reads: f32,
    writes: f32,
    read_bytes: f32,
    written_bytes: f32,
    interval_ms: f32,
    deviation_ms: f32,
    last_read: u32,
    last_write: u32,
    uses: u16,
    overwrites: u16,
    in_order: u8,
    seen: u8,
}

const SEEN_READ: u8 = 1;
const SEEN_WRITE: u8 = 2;

impl Heat {
    /// Records a read of `bytes` of the range.
    pub fn read(&mut self, now_ms: u64, bytes: u64) {
        let now = step(now_ms);
        if self.seen & SEEN_READ != 0 {
            let gap = age_ms(self.last_read, now);
            if gap < ONE_USE_MS {
                self.read_bytes += bytes as f32;
                return;
            }
            self.interval(gap);
            self.reads *= decay(gap);
            self.read_bytes *= decay(gap);
        }
        self.seen |= SEEN_READ;
        self.reads += 1.0;
        self.read_bytes += bytes as f32;
        self.uses = self.uses.saturating_add(1);
        self.last_read = now;
    }
    /// Records a write of `bytes` of the range.
    pub fn write(&mut self, now_ms: u64, bytes: u64) {
        let now = step(now_ms);
        if self.seen & SEEN_WRITE != 0 {
            let gap = age_ms(self.last_write, now);
            self.writes *= decay(gap);
            self.written_bytes *= decay(gap);
            self.overwrites = self.overwrites.saturating_add(u16::from(gap >= ONE_USE_MS));
        }
        self.seen |= SEEN_WRITE;
        self.writes += 1.0;
        self.written_bytes += bytes as f32;
        self.last_write = now;
    }
    /// Records whether an access began where the object's previous access had ended.
    pub fn mark_order(&mut self, in_order: bool) {
        self.in_order = (self.in_order << 1) | u8::from(in_order);
    }

    fn interval(&mut self, gap: f32) {
        if self.uses <= 1 {
            self.interval_ms = gap;
            self.deviation_ms = gap;
        } else {
            let off = gap - self.interval_ms;
            let weight = INTERVAL_WEIGHT.max(1.0 / f32::from(self.uses));
            self.interval_ms += weight * off;
            self.deviation_ms += weight.max(0.3) * (off.abs() - self.deviation_ms);
        }
    }

    /// Frequency and recency in one number: the sum of accesses, each halved every half minute.
    pub fn score(&self, now_ms: u64) -> f32 {
        let now = step(now_ms);
        self.reads * decay(age_ms(self.last_read, now)) + self.writes * decay(age_ms(self.last_write, now))
    }
    /// Expected reads in the next `horizon_ms`, from the history of this range alone.
    ///
    /// With a rhythm (intervals that hardly differ) the next read is due one interval after the last: it counts in full
    /// if that is within the horizon, and less and less when overdue. Without a rhythm, reads come at the mean rate,
    /// which ages.
    pub fn expected_reads(&self, now_ms: u64, horizon_ms: u64) -> f32 {
        if self.seen & SEEN_READ == 0 || self.uses < 2 {
            // Read once or never: as many reads as the decaying count predicts, at most one in a half life.
            let rate = self.reads * decay(age_ms(self.last_read, step(now_ms))) / (4.0 * HALF_LIFE_MS);
            return (rate * horizon_ms as f32).min(1.0) * f32::from(u8::from(self.seen & SEEN_READ != 0));
        }
        let age = age_ms(self.last_read, step(now_ms));
        let horizon = horizon_ms as f32;
        let interval = self.interval_ms.max(1.0);
        // A reader that is long overdue will not return at the usual rate.
        let overdue = (age / interval - 1.0).max(0.0);
        let alive = 1.0 / (1.0 + overdue * overdue);
        match self.due_in_ms(now_ms) {
            Some(due) if due > horizon => 0.0,
            Some(due) => alive * (1.0 + (horizon - due) / interval),
            None => alive * horizon / interval,
        }
    }
    /// Milliseconds until the next read, if reads have a rhythm; 0 when overdue.
    pub fn due_in_ms(&self, now_ms: u64) -> Option<f32> {
        let regular = self.uses >= 3 && self.deviation_ms <= 0.35 * self.interval_ms;
        regular.then(|| (self.interval_ms - age_ms(self.last_read, step(now_ms))).max(0.0))
    }
    /// Milliseconds until the next expected read, and the probability that it comes at all; `None` before the second
    /// read.
    ///
    /// With a rhythm as [`Heat::due_in_ms`]; without, at the mean rate, however long ago the last read was. The
    /// probability falls when a read is long overdue: sooner with a rhythm than without.
    pub fn next_read(&self, now_ms: u64) -> Option<(f32, f32)> {
        if self.uses < 2 {
            return None;
        }
        let age = age_ms(self.last_read, step(now_ms));
        let interval = self.interval_ms.max(1.0);
        let overdue = (age / interval - 1.0).max(0.0);
        let alive = |patience: f32| 1.0 / (1.0 + (overdue / patience) * (overdue / patience));
        match self.due_in_ms(now_ms) {
            Some(due) if overdue < 1.0 => Some((due, alive(1.0))),
            _ => Some((interval, alive(4.0))),
        }
    }
    /// Number of reads, each halved every half minute.
    pub fn read_count(&self, now_ms: u64) -> f32 {
        self.reads * decay(age_ms(self.last_read, step(now_ms)))
    }
    /// Milliseconds since the last write; `None` if there was none.
    pub fn written_ms_ago(&self, now_ms: u64) -> Option<f32> {
        (self.seen & SEEN_WRITE != 0).then(|| age_ms(self.last_write, step(now_ms)))
    }
    /// Milliseconds since the last read; `None` if there was none.
    pub fn read_ms_ago(&self, now_ms: u64) -> Option<f32> {
        (self.seen & SEEN_READ != 0).then(|| age_ms(self.last_read, step(now_ms)))
    }
    /// Mean milliseconds between reads; `None` before the second read.
    pub fn interval_ms(&self) -> Option<f32> {
        (self.uses >= 2).then_some(self.interval_ms)
    }
    /// Milliseconds since the last read or write; `None` if there was none.
    pub fn idle_ms(&self, now_ms: u64) -> Option<u64> {
        let now = step(now_ms);
        let read = (self.seen & SEEN_READ != 0).then(|| age_ms(self.last_read, now));
        let write = (self.seen & SEEN_WRITE != 0).then(|| age_ms(self.last_write, now));
        let least = read.into_iter().chain(write).reduce(f32::min)?;
        Some(least as u64)
    }
    /// Number of reads; reads within some milliseconds are one. At most 65,535.
    pub fn reads(&self) -> u32 {
        u32::from(self.uses)
    }
    /// Number of writes after the first one. At most 65,535.
    pub fn overwrites(&self) -> u32 {
        u32::from(self.overwrites)
    }
    /// Bytes read, halved after each half minute without use.
    pub fn read_bytes(&self) -> f32 {
        self.read_bytes
    }
    /// Bytes written, in the same way.
    pub fn written_bytes(&self) -> f32 {
        self.written_bytes
    }
    /// Returns true if most of the last accesses continued where the previous one had ended.
    pub fn is_sequential(&self) -> bool {
        self.in_order.count_ones() >= 5
    }
    /// Returns true if the range was ever read.
    pub fn was_read(&self) -> bool {
        self.seen & SEEN_READ != 0
    }
}

fn step(now_ms: u64) -> u32 {
    (now_ms / STEP_MS) as u32
}

/// Milliseconds between two steps; 0 if the clock went back.
fn age_ms(then: u32, now: u32) -> f32 {
    let steps = now.wrapping_sub(then);
    if steps > u32::MAX / 2 { 0.0 } else { steps as f32 * STEP_MS as f32 }
}

pub(crate) fn decay(ms: f32) -> f32 {
    (-ms / HALF_LIFE_MS).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_enough_for_an_entry_of_64_bytes() {
        assert!(size_of::<Heat>() <= 40, "{}", size_of::<Heat>());
    }

    #[test]
    fn scores_decay_and_frequency_counts() {
        let mut rare = Heat::default();
        let mut often = Heat::default();
        rare.read(1_000, 100);
        for i in 0..10 {
            often.read(1_000 + i * 100, 100);
        }
        assert!(often.score(2_000) > 5.0 * rare.score(2_000));
        let half = rare.score(31_000) / rare.score(1_000);
        assert!((half - 0.5).abs() < 0.01, "{half}");
        assert!(rare.score(u64::MAX / 2).is_finite());
        assert_eq!((rare.reads(), often.reads()), (1, 10));
    }

    #[test]
    fn a_rhythm_says_when_the_next_read_is_due() {
        let mut heat = Heat::default();
        for pass in 0..5 {
            heat.read(pass * 10_000, 1);
        }
        let due = heat.due_in_ms(44_000).unwrap();
        assert!((due - 6_000.0).abs() < 100.0, "{due}");
        assert!(heat.expected_reads(44_000, 1_000) < 0.01, "not within a second");
        assert!(heat.expected_reads(44_000, 8_000) > 0.9);
        assert!(heat.expected_reads(400_000, 8_000) < 0.1, "who stays away is given up");
        let mut irregular = Heat::default();
        for at in [0, 100, 9_000, 9_300, 40_000, 40_100] {
            irregular.read(at, 1);
        }
        assert_eq!(irregular.due_in_ms(41_000), None);
    }

    #[test]
    fn a_clock_that_jumps_back_makes_nothing_old_or_wrong() {
        let mut heat = Heat::default();
        heat.read(1_000_000, 1);
        assert_eq!(heat.idle_ms(10), Some(0));
        heat.read(10, 1);
        heat.write(5, 1);
        assert!(heat.score(0).is_finite() && heat.score(0) > 0.0);
        assert!(heat.expected_reads(0, 1_000) >= 0.0);
        assert_eq!(Heat::default().idle_ms(5), None);
        assert!(Heat::default().expected_reads(5, 1_000).abs() < f32::EPSILON);
    }
}
