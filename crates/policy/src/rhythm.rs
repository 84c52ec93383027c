//! Bursts, pauses and re-reads of a container, learned from its past writes and reads.

use crate::Heat;
use crate::heat::{HALF_LIFE_MS, ONE_USE_MS, decay};

/// Shortest pause.
const PAUSE_MS_MIN: f32 = 40.0;
/// Shortest pause, in mean intervals between writes.
const PAUSE_TIMES: f32 = 8.0;
/// Weight of the newest burst in the means.
const WEIGHT: f32 = 0.35;

/// The phases of a container or a store: the bytes of a burst of writes and the length of pauses; the time until
/// written ranges are read, and the share of them that is read again.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Rhythm {
    began_ms: u64,
    last_ms: u64,
    burst_bytes: f32,
    burst_mean_bytes: f32,
    burst_mean_ms: f32,
    pause_mean_ms: f32,
    pause_deviation_ms: f32,
    gap_mean_ms: f32,
    bursts: u32,
    back_mean_ms: f32,
    back_deviation_ms: f32,
    written: f32,
    read_back: f32,
    read_first: f32,
    read_again: f32,
    again_mean_ms: f32,
    rereads: f32,
    reread_ms: u64,
    first_read_ms: u64,
}

/// An expected burst of writes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Burst {
    /// Milliseconds until it begins; 0 if it is overdue.
    pub in_ms: u64,
    /// Its bytes.
    pub bytes: u64,
    /// 0 to 1: how regular the pauses have been.
    pub confidence: f32,
}

impl Rhythm {
    /// Records a read of a range; `heat` is its state before the read.
    pub fn read(&mut self, now_ms: u64, heat: &Heat) {
        if heat.read_ms_ago(now_ms).is_some_and(|ago| ago >= ONE_USE_MS) {
            self.rereads = self.rereads_at(now_ms) + 1.0;
            self.reread_ms = self.reread_ms.max(now_ms);
        }
        match heat.reads() {
            0 => {
                if self.read_first == 0.0 {
                    (self.first_read_ms, self.reread_ms) = (now_ms, now_ms);
                }
                self.read_first += 1.0;
                if let Some(delay) = heat.written_ms_ago(now_ms) {
                    let first = self.read_back < 0.5;
                    let off = delay - self.back_mean_ms;
                    self.back_mean_ms = if first { delay } else { self.back_mean_ms + 0.1 * off };
                    self.back_deviation_ms += 0.1 * (off.abs() * f32::from(u8::from(!first)) - self.back_deviation_ms);
                    self.read_back += 1.0;
                }
            }
            1 => {
                let gap = heat.read_ms_ago(now_ms).unwrap_or_default();
                if gap >= ONE_USE_MS {
                    self.read_again += 1.0;
                    let first = self.again_mean_ms == 0.0;
                    self.again_mean_ms =
                        if first { gap } else { self.again_mean_ms + 0.1 * (gap - self.again_mean_ms) };
                }
            }
            _ => {}
        }
    }
    fn rereads_at(&self, now_ms: u64) -> f32 {
        self.rereads * decay(now_ms.saturating_sub(self.reread_ms) as f32)
    }
    /// Mean rate at which ranges that were read once are read again, per range and millisecond; and the time span of
    /// the decaying counts, in milliseconds.
    pub fn reread_rate(&self, now_ms: u64) -> Option<(f32, f32)> {
        let seen_ms = now_ms.saturating_sub(self.first_read_ms) as f32;
        let span_ms = ((1.0 - decay(seen_ms)) * HALF_LIFE_MS / std::f32::consts::LN_2).max(1.0);
        self.is_telling().then(|| (self.rereads_at(now_ms) / self.read_first / span_ms, span_ms))
    }
    /// Returns true if enough of its ranges were read to predict the others: then an object's own rhythm is preferred
    /// to its container's.
    pub fn is_telling(&self) -> bool {
        self.read_first >= 8.0
    }
    /// For ranges written and not read yet: milliseconds from the write to the first read, and the share that is read.
    pub fn read_back(&self) -> Option<(f32, f32)> {
        (self.read_back >= 4.0).then(|| (self.back_mean_ms, (self.read_back / self.written.max(1.0)).min(1.0)))
    }
    /// For ranges read once: milliseconds to the second read, and the share that is read again.
    pub fn read_again(&self) -> Option<(f32, f32)> {
        let known = self.read_first >= 16.0;
        known.then(|| (self.again_mean_ms.max(1.0), (self.read_again / self.read_first).min(1.0)))
    }
    fn wrote_range(&mut self) {
        self.written += 1.0;
    }
    /// Returns true if much was written and hardly any of it (less than 2%) was read.
    pub fn is_write_only(&self) -> bool {
        self.written >= 64.0 && self.read_back < 0.02 * self.written
    }
    /// Records a write.
    pub fn wrote(&mut self, now_ms: u64, bytes: u64) {
        self.wrote_range();
        if self.bursts == 0 && self.burst_bytes == 0.0 {
            (self.began_ms, self.last_ms, self.burst_bytes) = (now_ms, now_ms, bytes as f32);
            return;
        }
        let gap = now_ms.saturating_sub(self.last_ms) as f32;
        if gap >= PAUSE_MS_MIN.max(PAUSE_TIMES * self.gap_mean_ms) {
            let burst_ms = self.last_ms.saturating_sub(self.began_ms) as f32;
            let first = self.bursts == 0;
            let off = gap - self.pause_mean_ms;
            let mean = |old: f32, new: f32| if first { new } else { old + WEIGHT * (new - old) };
            self.pause_deviation_ms = mean(self.pause_deviation_ms, if first { gap } else { off.abs() });
            self.pause_mean_ms = mean(self.pause_mean_ms, gap);
            self.burst_mean_bytes = mean(self.burst_mean_bytes, self.burst_bytes);
            self.burst_mean_ms = mean(self.burst_mean_ms, burst_ms);
            self.bursts = self.bursts.saturating_add(1);
            (self.began_ms, self.burst_bytes) = (now_ms, 0.0);
        } else {
            self.gap_mean_ms += 0.1 * (gap - self.gap_mean_ms);
        }
        self.burst_bytes += bytes as f32;
        self.last_ms = self.last_ms.max(now_ms);
    }
    /// Returns true while a burst seems to be under way.
    pub fn is_in_burst(&self, now_ms: u64) -> bool {
        let gap = now_ms.saturating_sub(self.last_ms) as f32;
        self.burst_bytes > 0.0 && gap < PAUSE_MS_MIN.max(PAUSE_TIMES * self.gap_mean_ms)
    }
    /// Bytes still to come in the present burst, if bursts are known and one is under way.
    pub fn burst_left_bytes(&self, now_ms: u64) -> Option<u64> {
        let known = self.bursts >= 2 && self.is_in_burst(now_ms);
        known.then(|| (self.burst_mean_bytes - self.burst_bytes).max(0.0) as u64)
    }
    /// The next burst, if at least two were seen and pauses are roughly regular.
    pub fn next_burst(&self, now_ms: u64) -> Option<Burst> {
        if self.bursts < 2 || self.is_in_burst(now_ms) {
            return None;
        }
        let since = now_ms.saturating_sub(self.last_ms) as f32;
        let confidence = (1.0 - self.pause_deviation_ms / self.pause_mean_ms.max(1.0)).clamp(0.0, 1.0);
        // A writer that stays away for several pauses is done.
        let overdue = (since / self.pause_mean_ms.max(1.0) - 1.0).max(0.0);
        let confidence = confidence / (1.0 + overdue * overdue);
        let in_ms = (self.pause_mean_ms - since).max(0.0) as u64;
        Some(Burst { in_ms, bytes: self.burst_mean_bytes as u64, confidence })
    }
    /// Mean pause in milliseconds, once one was seen.
    pub fn pause_ms(&self) -> Option<f32> {
        (self.bursts > 0).then_some(self.pause_mean_ms)
    }
    /// Bytes for which room is useful: those of the mean burst, or half a second's writes of a writer without pauses.
    /// `None` while nothing is being written.
    pub fn room_bytes(&self, now_ms: u64) -> Option<u64> {
        if self.bursts > 0 {
            return Some(self.burst_mean_bytes as u64);
        }
        let ms = self.last_ms.saturating_sub(self.began_ms).max(1) as f32;
        self.is_in_burst(now_ms).then(|| (self.burst_bytes * (500.0 / ms).min(1.0)) as u64)
    }
    /// Number of complete bursts.
    pub fn bursts(&self) -> u32 {
        self.bursts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_pauses_are_learned() {
        let mut rhythm = Rhythm::default();
        assert_eq!(rhythm.next_burst(0), None);
        for phase in 0..5_u64 {
            for write in 0..100 {
                rhythm.wrote(phase * 2_000 + write * 5, 1 << 20);
            }
        }
        assert!(rhythm.is_in_burst(8_495));
        assert_eq!(rhythm.burst_left_bytes(8_495), Some(0));
        let burst = rhythm.next_burst(9_000).unwrap();
        assert!((burst.in_ms as i64 - 1_000).abs() < 50, "{burst:?}");
        assert!((burst.bytes as f64 / f64::from(100 << 20) - 1.0).abs() < 0.05, "{burst:?}");
        assert!(burst.confidence > 0.5, "{burst:?}");
        assert!(rhythm.next_burst(100_000).unwrap().confidence < 0.05, "who stays away is done");
        rhythm.wrote(0, 1); // a clock that jumps back
        assert!(rhythm.is_in_burst(0));
    }
}
