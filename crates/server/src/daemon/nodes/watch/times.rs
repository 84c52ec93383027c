//! The clock of decisions, and the times of the cluster.

use cenote_ha::Settings;
use rustix::time::{ClockId, clock_gettime};

/// A factor for the times of the cluster: more than 1 on slow machines. The same on all nodes.
const FACTOR_VARIABLE: &str = "CENOTE_HA_FACTOR";
/// Bounds of the factor.
const FACTORS: std::ops::RangeInclusive<f64> = 0.1..=1000.0;

/// Microseconds by a clock that goes on while the machine sleeps.
pub(super) fn now_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

/// The times of the cluster.
pub(in super::super) fn settings() -> Settings {
    let Some(text) = std::env::var_os(FACTOR_VARIABLE) else { return Settings::default() };
    let factor = text.to_str().and_then(|text| text.parse().ok()).filter(|factor| FACTORS.contains(factor));
    if factor.is_none() {
        tracing::warn!(?text, "{FACTOR_VARIABLE} is no number between 0.1 and 1000: it changes nothing");
    }
    multiplied(&Settings::default(), factor.unwrap_or(1.0))
}

fn multiplied(settings: &Settings, factor: f64) -> Settings {
    let times = |us: u64| (us as f64 * factor) as u64;
    Settings {
        lease_us: times(settings.lease_us),
        silence_us_min: times(settings.silence_us_min),
        silence_us_max: times(settings.silence_us_max),
        restart_us_max: times(settings.restart_us_max),
        damp_us_min: times(settings.damp_us_min),
        ..*settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_one_for_all_patience() {
        let all = Settings::default();
        assert_eq!(multiplied(&all, 1.0), all);
        let half = multiplied(&all, 0.5);
        assert_eq!((half.restart_us_max, half.lease_us, half.beat_us), (all.restart_us_max / 2, 400_000, all.beat_us));
        let before = now_us();
        assert!(before > 0 && now_us() >= before);
    }
}
