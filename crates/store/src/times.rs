//! The table of epochs and times: when data were written, without a time in each object.
//!
//! Ages decide what is deleted, so they are never too large. Two clocks must agree on them: the system's wall clock,
//! and one that the store keeps itself. The store's clock follows the monotonic clock while the store is open. While it
//! is closed, it follows the wall clock, but by [`CLOSED_MS_MAX`] at most each time. Data of unknown age count as
//! written now.

use crate::codec::{Decoded, Decoder, Encode, Malformed, Ordinals as _};

/// Entries kept; beyond that, every second entry of the older half is dropped.
const SAMPLES_MAX: usize = 4096;
/// Shortest time between two entries.
const PAUSE_MS: u64 = 1000;
/// Most time that the store's clock advances while the store is closed: a week.
pub(crate) const CLOSED_MS_MAX: u64 = 7 * 86_400_000;
/// Time without deletions after an opening at which the wall clock made no sense.
const HOLD_MS: u64 = 600_000;

/// Everything up to this epoch was written by then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Sample {
    epoch: u64,
    unix_ms: u64,
    own_ms: u64,
}

/// The table, and the store's own clock.
#[derive(Clone, Default, Debug)]
pub(crate) struct Times {
    samples: Vec<Sample>,
    own_ms: u64,
    unix_ms: u64,
    /// The monotonic clock at the last update; `None`: the store was just opened.
    looked_ns: Option<u64>,
    held_until_ms: u64,
    held_why: String,
}

impl Times {
    /// Advances the clocks. `epoch`: the last epoch written until now.
    pub fn look(&mut self, now_ns: u64, unix_ms: u64, epoch: u64) {
        match self.looked_ns {
            None if self.unix_ms != 0 => {
                let closed_ms = unix_ms.saturating_sub(self.unix_ms);
                self.own_ms += closed_ms.min(CLOSED_MS_MAX);
                if closed_ms > CLOSED_MS_MAX || unix_ms < self.unix_ms {
                    self.held_until_ms = self.own_ms + HOLD_MS;
                    self.held_why = if unix_ms < self.unix_ms {
                        "the clock went back while the store was closed: nothing is deleted for ten minutes".to_owned()
                    } else {
                        format!(
                            "the clock is {} days later than when the store was closed, of which {} count: nothing is \
                             deleted for ten minutes",
                            closed_ms / 86_400_000,
                            CLOSED_MS_MAX / 86_400_000
                        )
                    };
                }
                self.looked_ns = Some(now_ns);
            }
            None => self.looked_ns = Some(now_ns),
            Some(before_ns) => {
                let ms = now_ns.saturating_sub(before_ns) / 1_000_000;
                self.own_ms += ms;
                self.looked_ns = Some(before_ns + ms * 1_000_000);
            }
        }
        if unix_ms < self.unix_ms {
            // Times in what is now the future become now.
            for sample in &mut self.samples {
                sample.unix_ms = sample.unix_ms.min(unix_ms);
            }
        }
        self.unix_ms = unix_ms;
        let last = self.samples.last().copied();
        if last.is_some_and(|last| last.epoch >= epoch || last.own_ms + PAUSE_MS > self.own_ms) {
            return;
        }
        self.samples.push(Sample { epoch, unix_ms, own_ms: self.own_ms });
        if self.samples.len() > SAMPLES_MAX {
            let mut n = 0;
            self.samples.retain(|_| {
                n += 1;
                n > SAMPLES_MAX / 2 || n % 2 == 0 // dropped entries count as written a little later
            });
        }
    }

    /// Milliseconds since an epoch, at least.
    pub fn age_ms(&self, epoch: u64) -> u64 {
        let at = self.samples.partition_point(|sample| sample.epoch < epoch);
        self.samples.get(at).map_or(0, |sample| {
            self.unix_ms.saturating_sub(sample.unix_ms).min(self.own_ms.saturating_sub(sample.own_ms))
        })
    }

    /// Returns why nothing may be deleted for its age now; empty if it may.
    pub fn held_why(&self) -> String {
        if self.own_ms < self.held_until_ms { self.held_why.clone() } else { String::new() }
    }

    pub fn encode(&self, bytes: &mut Vec<u8>) {
        bytes.put_u64(self.own_ms);
        bytes.put_u64(self.unix_ms);
        bytes.put_u32(self.samples.len() as u32);
        for sample in &self.samples {
            bytes.put_u64(sample.epoch);
            bytes.put_u64(sample.unix_ms);
            bytes.put_u64(sample.own_ms);
        }
    }

    pub fn decode(from: &mut Decoder<'_>) -> Decoded<Self> {
        let (own_ms, unix_ms) = (from.ordinal()?, from.ordinal()?);
        let mut times = Self { own_ms, unix_ms, ..Self::default() };
        for _ in 0..from.count(24)? {
            let sample = Sample { epoch: from.ordinal()?, unix_ms: from.ordinal()?, own_ms: from.ordinal()? };
            let is_later = times.samples.last().is_none_or(|last| last.epoch < sample.epoch);
            if !is_later || sample.own_ms > own_ms || times.samples.len() > SAMPLES_MAX {
                return Err(Malformed("times out of order"));
            }
            times.samples.push(sample);
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_MS: u64 = 86_400_000;
    const MS: u64 = 1_000_000;

    fn again(times: &Times) -> Times {
        let mut bytes = Vec::new();
        times.encode(&mut bytes);
        Times::decode(&mut Decoder::new(&bytes)).unwrap()
    }

    #[test]
    fn ages_come_from_epochs_and_outlive_the_engine() {
        let mut times = Times::default();
        let unix = 1000 * DAY_MS;
        times.look(0, unix, 5);
        times.look(DAY_MS * MS, unix + DAY_MS, 9);
        assert_eq!((times.age_ms(5), times.age_ms(9), times.age_ms(10)), (DAY_MS, 0, 0));
        let mut times = again(&times);
        times.look(7, unix + 3 * DAY_MS, 9);
        assert_eq!((times.age_ms(5), times.age_ms(6)), (3 * DAY_MS, 2 * DAY_MS));
        assert_eq!(times.held_why(), "");
    }

    #[test]
    fn clocks_that_jump_make_nothing_old() {
        let mut times = Times::default();
        let unix = 1000 * DAY_MS;
        times.look(0, unix, 5);
        times.look(1000 * MS, unix + 4000 * DAY_MS, 6); // forward by years within a second
        assert!(times.age_ms(5) <= 1000);
        times.look(2000 * MS, unix, 7); // and back
        times.look(3000 * MS, unix + 1000, 8);
        assert!(times.age_ms(5) <= 3000 && times.age_ms(6) <= 2000);
        times.look((3000 + 2 * DAY_MS) * MS, unix + 2 * DAY_MS, 8);
        assert!(times.age_ms(6) >= DAY_MS, "what was written in the future ages from now on");
        let mut times = again(&times);
        times.look(0, unix + 9000 * DAY_MS, 8); // years while it was closed
        assert!(times.age_ms(5) <= 2 * DAY_MS + 3000 + CLOSED_MS_MAX);
        assert!(times.held_why().contains("days later"), "{}", times.held_why());
        times.look(HOLD_MS * MS, unix + 9000 * DAY_MS + HOLD_MS, 8);
        assert_eq!(times.held_why(), "");
        let mut times = again(&times);
        times.look(0, 5, 8);
        assert!(times.held_why().contains("went back"));
        assert_eq!(times.age_ms(5), 0, "1970: nothing has an age");
    }

    #[test]
    fn the_table_stays_small_and_errs_on_the_young_side() {
        let mut times = Times::default();
        for n in 0..3 * SAMPLES_MAX as u64 {
            times.look(n * 1000 * MS, DAY_MS + n * 1000, n + 1);
        }
        assert!(times.samples.len() <= SAMPLES_MAX);
        let now = 3 * SAMPLES_MAX as u64 - 1;
        for n in [1, 100, 5000, now] {
            assert!(
                times.age_ms(n + 1) <= (now - n) * 1000 && times.age_ms(n + 1) + 600_000 >= (now - n) * 1000,
                "{n}"
            );
        }
        assert_eq!(again(&times).samples, times.samples);
    }
}
