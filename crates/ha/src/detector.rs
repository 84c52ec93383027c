//! When silence means something: the accrual failure detector of Hayashibara et al. (*The φ accrual failure detector*,
//! SRDS 2004). It learns how regular a node's signs of life are; φ = 8 means that a sign as late as this one would come
//! once in 10^8.

use crate::Settings;

/// Weight of a new interval in the means: the last thirty or so count.
const WEIGHT: f64 = 1.0 / 16.0;
/// Suspicion begins at this φ, plus the logarithm of the number of nodes: however many there are, a mistake is as rare.
const PHI: f64 = 8.0;
/// Intervals before the mean is trusted.
const KNOWN: u32 = 8;

/// What is known of one node's signs of life, as they reach the register.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Detector {
    heard_us: Option<u64>,
    intervals: u32,
    mean_us: f64,
    variance: f64,
}

impl Detector {
    /// The last sign of life, by the observer's clock.
    pub fn heard_us(&self) -> Option<u64> {
        self.heard_us
    }
    /// A sign of life came. Those that are not later than the last are ignored.
    pub fn heard(&mut self, at_us: u64) {
        let Some(before) = self.heard_us else {
            self.heard_us = Some(at_us);
            return;
        };
        if at_us <= before {
            return;
        }
        let interval = (at_us - before) as f64;
        self.heard_us = Some(at_us);
        let off = interval - self.mean_us;
        if self.intervals == 0 {
            self.mean_us = interval;
        } else {
            self.mean_us += WEIGHT * off;
            self.variance += WEIGHT * (off * off - self.variance);
        }
        self.intervals = self.intervals.saturating_add(1);
    }
    /// Forgets the rhythm and begins anew at this time: the node was readmitted, or its process is another.
    pub fn restart(&mut self, at_us: u64) {
        *self = Self { heard_us: Some(at_us), ..Self::default() };
    }
    /// How suspicious a silence of so long is: -log10 of the probability that the next sign of life is still to come.
    pub fn phi(&self, silence_us: u64, settings: &Settings) -> f64 {
        let (mean, floor) = if self.intervals < KNOWN {
            (settings.beat_us as f64, settings.beat_us as f64)
        } else {
            (self.mean_us, settings.beat_us as f64 / 4.0)
        };
        let deviation = self.variance.sqrt().max(floor);
        // The normal distribution by a logistic function (Bowling et al. 2009), as Akka's detector has it.
        let y = (silence_us as f64 - mean) / deviation;
        let odds = y * (1.5976 + 0.070_566 * y * y) / std::f64::consts::LN_10;
        if odds > 15.0 { odds } else { (1.0 + 10_f64.powf(odds)).log10() }
    }
    /// Returns true if a silence of so long is suspicious in a cluster of so many nodes.
    pub fn is_suspicious(&self, silence_us: u64, nodes: usize, settings: &Settings) -> bool {
        let late = self.phi(silence_us, settings) >= PHI + (nodes.max(1) as f64).log10();
        silence_us >= settings.silence_us_max || (late && silence_us >= settings.silence_us_min)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn first_suspicious(detector: &Detector, nodes: usize, settings: &Settings) -> u64 {
        (0..1000).map(|step| step * 10_000).find(|us| detector.is_suspicious(*us, nodes, settings)).unwrap()
    }

    #[test]
    fn patience_follows_what_is_usual_within_bounds() {
        let settings = Settings::default();
        let learned = |jitter: u64| {
            let mut detector = Detector::default();
            let mut at = 0;
            for beat in 0..200 {
                at += settings.beat_us + beat * 7919 % 17 * jitter / 16;
                detector.heard(at);
            }
            first_suspicious(&detector, 100, &settings)
        };
        assert_eq!(learned(0), settings.silence_us_min, "a regular node is missed soon");
        let irregular = learned(600_000);
        assert!(irregular > 900_000 && irregular < settings.silence_us_max, "{irregular}");
        assert_eq!(learned(9_000_000), settings.silence_us_max, "no patience without end");
    }

    #[test]
    fn more_nodes_need_more_certainty() {
        let settings = Settings { silence_us_min: 0, ..Settings::default() };
        let mut detector = Detector::default();
        for beat in 0..100 {
            detector.heard(beat * settings.beat_us + beat * 7919 % 50_000);
        }
        let [few, many] = [4, 10_000].map(|nodes| first_suspicious(&detector, nodes, &settings));
        assert!(few < many && many < 2 * few, "{few} {many}");
    }

    #[test]
    fn phi_is_the_logarithm_of_a_probability_that_falls() {
        let (settings, detector) = (Settings::default(), Detector::default());
        let phis: Vec<f64> = (0..100).map(|step| detector.phi(step * 20_000, &settings)).collect();
        assert!(phis.is_sorted() && phis.iter().all(|phi| phi.is_finite() && *phi >= 0.0), "{phis:?}");
        // At the mean one in two is still to come.
        assert!((detector.phi(settings.beat_us, &settings) - 2_f64.log10()).abs() < 1e-9);
    }
}
