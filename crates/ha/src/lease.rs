//! Leases of hosts: how a host that is cut off falls silent by itself, and how long its successor waits for that.
//!
//! A host acts for `lease_us` by its own clock from when it *asked* the register and was told that it is host. A successor
//! waits from when it *was told* of its own term. Whoever is told an older term was told so before the register took the
//! newer one, and had asked before that; so the wait covers the lease if it is longer by what two clocks can differ
//! (Gray and Cheriton, *Leases*, SOSP 1989). Clocks on the wall play no part.

use cenote_model::NodeId;

use crate::{History, HomeId, Settings, View};

const MILLION: u64 = 1_000_000;

/// Until when an answer of the register lets a host act, by the host's clock.
pub fn lease_until_us(asked_us: u64, settings: &Settings) -> u64 {
    asked_us + settings.lease_us
}

/// When all leases that former hosts can have are over, by the clock of a node that was told of its term at `told_us`.
///
/// The former host's clock may be slow, the own one fast: `lease * (1 + drift) / (1 - drift)`.
pub fn leases_over_us(told_us: u64, settings: &Settings) -> u64 {
    let drift = settings.drift_ppm_max.min(MILLION / 2);
    told_us + (settings.lease_us * (MILLION + drift)).div_ceil(MILLION - drift)
}

/// Returns true if this node may act for the home now: the register said so, the lease is not over, and the leases of
/// former hosts are.
pub fn may_act(me: NodeId, view: &View, home: HomeId, history: &History, settings: &Settings, now_us: u64) -> bool {
    let Some(home) = view.home(home).filter(|home| home.host == me && view.is_live(me)) else { return false };
    let told = history.told_us(home.id, home.term);
    let asked = history.asked_us();
    told.is_some_and(|told| now_us >= leases_over_us(told, settings))
        && asked.is_some_and(|asked| now_us < lease_until_us(asked, settings))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_covers_the_lease_whatever_the_clocks_do() {
        for drift_ppm_max in [0, 1, 500, 50_000] {
            let settings = Settings { drift_ppm_max, lease_us: 800_000, ..Settings::default() };
            let drift = drift_ppm_max as f64 / 1e6;
            let wait = (leases_over_us(7, &settings) - 7) as f64;
            assert!(wait / (1.0 + drift) >= 800_000.0 / (1.0 - drift), "{drift_ppm_max}: {wait}");
            assert!(wait <= 800_000.0 * (1.0 + 2.2 * drift) + 1.0, "{drift_ppm_max}: {wait} is too long");
        }
    }
}
