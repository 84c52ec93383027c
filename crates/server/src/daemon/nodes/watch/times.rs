//! The clock of decisions, and the times of the cluster.

use std::time::Duration;

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

/// The time of day, for [`until_next`] alone: people change it.
pub(super) fn wall() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// How long it is until the next beat. Nodes beat together, by the time of day: boards then look at the register once for all
/// of them. Nothing but that depends on it: with clocks that differ, each node beats as often, and boards look more often.
pub(super) fn until_next(every: Duration, wall: Duration) -> Duration {
    let every_ns = every.as_nanos().max(1);
    Duration::from_nanos((every_ns - wall.as_nanos() % every_ns) as u64)
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

    #[test]
    fn nodes_beat_at_the_same_times_of_day() {
        let every = Duration::from_millis(100);
        for wall_us in [0, 1, 99_999, 100_000, 1_790_000_000_123_456] {
            let rest = until_next(every, Duration::from_micros(wall_us));
            assert!(rest > Duration::ZERO && rest <= every, "{rest:?}");
            assert_eq!((Duration::from_micros(wall_us) + rest).as_micros() % every.as_micros(), 0);
        }
        assert!(until_next(Duration::ZERO, wall()) <= every);
    }
}
