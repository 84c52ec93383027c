//! Fair shares of fast tiers: when room is scarce, whoever took more of it of late than others gets the next tier.
//!
//! Shares are those of [`cenote_policy::over_share`]: by weight among the users, and among the containers of each, and
//! equal among the clients of a user in a container, of those that took space on the device in the last seconds. While
//! there is room for all, or only one takes space, nothing is held back.

use std::collections::BTreeMap;

use cenote_model::{ContainerId, DeviceId, UserTelemetry, UserWeights};
use cenote_policy::{Claim, Taker, over_share, part_of_user};

use crate::SessionId;
use crate::container::Containers;
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
    by: BTreeMap<Taker, f64>,
}

impl Taken {
    /// Decays the amounts to the given time.
    pub fn decay(&mut self, now_ns: u64) {
        let factor = (-(now_ns.saturating_sub(self.at_ns) as f64) / HALF_LIFE_NS).exp2();
        self.at_ns = now_ns;
        self.by.retain(|_, bytes| {
            *bytes *= factor;
            *bytes >= 1.0
        });
    }
}

/// Amounts taken, by device slot.
#[derive(Default)]
pub struct Shares {
    devices: Vec<Taken>,
}

impl Shares {
    /// Returns the amounts of a device, decayed to the given time.
    fn device(&mut self, dev: DeviceIndex, now_ns: u64) -> &mut Taken {
        if self.devices.len() <= dev as usize {
            self.devices.resize_with(dev as usize + 1, Taken::default);
        }
        let taken = &mut self.devices[dev as usize];
        taken.decay(now_ns);
        taken
    }
    /// Notes a lease.
    pub fn took(&mut self, dev: DeviceIndex, now_ns: u64, who: Taker, bytes: u64) {
        *self.device(dev, now_ns).by.entry(who).or_default() += bytes as f64;
    }
    /// Returns what was taken of a device of late, with the weights of users and containers.
    pub fn claims(
        &mut self,
        dev: DeviceIndex,
        now_ns: u64,
        weights: &UserWeights,
        containers: &Containers,
    ) -> Vec<Claim> {
        let weight_of = |id| containers.get(ContainerId(id)).map_or(1, |container| container.spec.weight);
        let claim = |(taker, bytes): (&Taker, &f64)| Claim {
            taker: *taker,
            bytes: *bytes,
            user_weight: weights.of(taker.user),
            container_weight: weight_of(taker.container),
        };
        self.device(dev, now_ns).by.iter().map(claim).collect()
    }
}

impl Core {
    /// Returns for whom a session takes space for a container.
    pub fn taker(&self, session: SessionId, container: ContainerId) -> Taker {
        let user = self.state.sessions.open.get(&session).map_or(0, |open| open.info.uid);
        Taker { user, container: container.0, client: session.0 }
    }

    /// Returns true if room on a device is scarce and the client's user, its container there or the client itself took
    /// more of it of late than others.
    pub fn had_its_share(&mut self, dev: DeviceIndex, who: (SessionId, ContainerId)) -> bool {
        self.is_scarce(dev) && over_share(self.taker(who.0, who.1), &self.claims(dev)).is_some()
    }

    fn is_scarce(&self, dev: DeviceIndex) -> bool {
        let view = self.state.space.get(dev).view();
        let room = view.room_bytes().saturating_add(view.evictable_bytes);
        room < view.high_bytes() / SCARCE
    }

    fn claims(&mut self, dev: DeviceIndex) -> Vec<Claim> {
        self.observed.shares.claims(dev, self.state.now.ns, &self.weights, &self.state.containers)
    }

    /// Describes how the users whose programs write to a container share the tiers on which room is scarce.
    pub fn share_words(&mut self, container: ContainerId) -> Vec<String> {
        let scarce: Vec<DeviceIndex> = self.present_slots().into_iter().filter(|dev| self.is_scarce(*dev)).collect();
        let mut words = Vec::new();
        for dev in scarce {
            let claims = self.claims(dev);
            let its = claims.iter().map(|claim| claim.taker).filter(|taker| taker.container == container.0);
            let mut users: Vec<u32> = its.map(|taker| taker.user).collect();
            users.dedup();
            let tier = &self.state.space.get(dev).spec.name;
            for user in users {
                let (took, share) = part_of_user(user, &claims);
                words.push(format!(
                    "room on `{tier}` is scarce: user {user} with weight {} took {:.0} % of what was taken of late, and \
                     has a share of {:.0} %",
                    self.weights.of(user),
                    took * 100.0,
                    share * 100.0
                ));
            }
        }
        words
    }

    /// Returns the users who took space of late, and those with weights of their own.
    pub fn user_shares(&mut self) -> Vec<UserTelemetry> {
        let mut all: BTreeMap<u32, Vec<(DeviceId, u64)>> = BTreeMap::new();
        for dev in self.present_slots() {
            let id = self.state.space.get(dev).id;
            let mut taken: BTreeMap<u32, f64> = BTreeMap::new();
            for claim in self.claims(dev) {
                *taken.entry(claim.taker.user).or_default() += claim.bytes;
            }
            for (user, bytes) in taken {
                all.entry(user).or_default().push((id, bytes as u64));
            }
        }
        for user in &self.weights.users {
            all.entry(user.uid).or_default();
        }
        all.into_iter().map(|(uid, taken)| UserTelemetry { uid, weight: self.weights.of(uid), taken }).collect()
    }

    fn present_slots(&self) -> Vec<DeviceIndex> {
        let present = self.state.space.present().map(|slot| slot.id);
        present.filter_map(|id| self.state.space.slot_of(id)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn is_over(shares: &mut Shares, dev: DeviceIndex, now_ns: u64, who: Taker) -> bool {
        over_share(who, &shares.claims(dev, now_ns, &UserWeights::default(), &Containers::default())).is_some()
    }

    #[test]
    fn who_took_most_of_late_is_over_its_share_until_it_has_rested() {
        let mut shares = Shares::default();
        let (greedy, modest) = (Taker { user: 7, container: 1, client: 1 }, Taker { user: 7, container: 1, client: 2 });
        shares.took(0, SECOND, greedy, 100 << 20);
        assert!(!is_over(&mut shares, 0, SECOND, greedy), "nobody else wants any");
        shares.took(0, SECOND, modest, 10 << 20);
        assert!(is_over(&mut shares, 0, SECOND, greedy));
        assert!(!is_over(&mut shares, 0, SECOND, modest));
        assert!(!is_over(&mut shares, 1, SECOND, greedy), "another device");
        for at in 2..14 {
            shares.took(0, at * SECOND, modest, 10 << 20);
        }
        assert!(!is_over(&mut shares, 0, 14 * SECOND, greedy));
        assert!(is_over(&mut shares, 0, 14 * SECOND, modest), "the other one took all since");
        assert!(!is_over(&mut shares, 0, 200 * SECOND, modest), "long ago");
    }
}
