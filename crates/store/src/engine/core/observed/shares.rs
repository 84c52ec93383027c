//! Fair shares of fast tiers: when room is scarce, whoever took more of it of late than others gets the next tier.
//!
//! Shares are equal among the clients, and by weight among the containers, that took space on the device in the last
//! seconds. While there is room for all, or only one takes space, nothing is held back.

use std::collections::BTreeMap;

use cenote_model::ContainerId;
use cenote_policy::{Sharer, is_over_share};

use crate::SessionId;
use crate::engine::core::Core;
use crate::map::DeviceIndex;

/// Half-life of the amounts taken.
const HALF_LIFE_NS: f64 = 2e9;
/// Room is scarce when less than one part in this many of the device's limit is left.
const SCARCE: u64 = 4;

/// Space of one device taken of late.
#[derive(Default)]
pub struct Taken {
    at_ns: u64,
    clients: BTreeMap<SessionId, f64>,
    containers: BTreeMap<ContainerId, f64>,
}

impl Taken {
    /// Decays the amounts to the given time.
    pub fn decay(&mut self, now_ns: u64) {
        let factor = (-(now_ns.saturating_sub(self.at_ns) as f64) / HALF_LIFE_NS).exp2();
        self.at_ns = now_ns;
        keep(&mut self.clients, factor);
        keep(&mut self.containers, factor);
    }
}

fn keep<K: Ord>(all: &mut BTreeMap<K, f64>, factor: f64) {
    all.retain(|_, bytes| {
        *bytes *= factor;
        *bytes >= 1.0
    });
}

/// Amounts taken, by device slot.
#[derive(Default)]
pub struct Shares {
    devices: Vec<Taken>,
}

impl Shares {
    /// Returns the amounts of a device, decayed to the given time.
    pub fn device(&mut self, dev: DeviceIndex, now_ns: u64) -> &mut Taken {
        if self.devices.len() <= dev as usize {
            self.devices.resize_with(dev as usize + 1, Taken::default);
        }
        let taken = &mut self.devices[dev as usize];
        taken.decay(now_ns);
        taken
    }
    /// Notes a lease.
    pub fn took(&mut self, dev: DeviceIndex, now_ns: u64, who: (SessionId, ContainerId), bytes: u64) {
        let taken = self.device(dev, now_ns);
        *taken.clients.entry(who.0).or_default() += bytes as f64;
        *taken.containers.entry(who.1).or_default() += bytes as f64;
    }
    /// Returns true if the client, or the container, took more than its share of late.
    pub fn is_over(
        &mut self,
        dev: DeviceIndex,
        now_ns: u64,
        who: (SessionId, ContainerId),
        weight_of: impl Fn(ContainerId) -> u16,
    ) -> bool {
        let taken = self.device(dev, now_ns);
        is_over(&taken.clients, who.0, |_| 1) || is_over(&taken.containers, who.1, weight_of)
    }
}

fn is_over<K: Ord + Copy>(all: &BTreeMap<K, f64>, who: K, weight_of: impl Fn(K) -> u16) -> bool {
    let sharer = |(one, bytes): (&K, &f64)| Sharer { bytes: *bytes, weight: weight_of(*one) };
    let others = all.iter().filter(|(one, _)| **one != who).map(sharer);
    all.get_key_value(&who).is_some_and(|own| is_over_share(sharer(own), others))
}

impl Core {
    /// Returns true if room on a device is scarce and the client, or the container, took more of it of late than
    /// others.
    pub fn had_its_share(&mut self, dev: DeviceIndex, who: (SessionId, ContainerId)) -> bool {
        let view = self.state.space.get(dev).view();
        let room = view.room_bytes().saturating_add(view.evictable_bytes);
        let containers = &self.state.containers;
        let weight_of = |id| containers.get(id).map_or(1, |container| container.spec.weight);
        room < view.high_bytes() / SCARCE && self.observed.shares.is_over(dev, self.state.now.ns, who, weight_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn who_took_most_of_late_is_over_its_share_until_it_has_rested() {
        let mut shares = Shares::default();
        let (greedy, modest) = ((SessionId(1), ContainerId(1)), (SessionId(2), ContainerId(1)));
        shares.took(0, SECOND, greedy, 100 << 20);
        assert!(!shares.is_over(0, SECOND, greedy, |_| 1), "nobody else wants any");
        shares.took(0, SECOND, modest, 10 << 20);
        assert!(shares.is_over(0, SECOND, greedy, |_| 1));
        assert!(!shares.is_over(0, SECOND, modest, |_| 1));
        assert!(!shares.is_over(1, SECOND, greedy, |_| 1), "another device");
        for at in 2..14 {
            shares.took(0, at * SECOND, modest, 10 << 20);
        }
        assert!(!shares.is_over(0, 14 * SECOND, greedy, |_| 1));
        assert!(shares.is_over(0, 14 * SECOND, modest, |_| 1), "the other one took all since");
        assert!(!shares.is_over(0, 200 * SECOND, modest, |_| 1), "long ago");
    }
}
