//! What lies on which tier, and moves: as the policies of containers decide, and as people say.
//!
//! Everything here is decided in `cenote_policy` from a snapshot of the tiers and of some ranges; this module takes the
//! snapshot, keeps what was seen of ranges ([`heat`]), and has moves carried out by jobs ([`relocate`]). Containers with
//! the policy `fast-first` are not tracked: what is too much leaves tiers as in `engine/drain.rs`.

mod arrange;
mod doubted;
mod fate;
mod fetch;
mod heat;
mod load;
mod next;
mod pinning;
mod plan;
mod policies;
mod prefetched;
mod relocate;
mod rescue;
mod rhythms;
mod rules;
mod shares;
mod spare;
mod view;
mod walk;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use cenote_model::{ContainerId, DeviceId, Durability};
use cenote_policy::{Decision, Incoming, Policy, Reason, Refusal, is_tracking};

pub(super) use policies::POLICY_FILE;
pub(super) use relocate::Relocation;
pub(super) use rescue::Rescue;

use super::Engine;

/// What the engine keeps for placing and moving.
#[derive(Default)]
pub(super) struct Tiering {
    heats: heat::Heats,
    policies: policies::Policies,
    rhythms: rhythms::Rhythms,
    relocations: relocate::Queue,
    waits: fetch::Waits,
    loads: load::Loads,
    pub(super) shares: shares::Shares,
    /// Since when room that jobs keep from being free is waited for, by slot of the device.
    pub(super) room_awaited_ns: BTreeMap<u8, u64>,
    plans: plan::Plans,
    prefetched: prefetched::Prefetched,
    arrangements: arrange::Arrangements,
    rescues: VecDeque<Rescue>,
    pub(super) doubted: doubted::Doubted,
    spares: Vec<crate::placing::Placing>,
    rules: rules::Rules,
    pinning: pinning::Keeping,
}

impl Engine {
    /// Where new bytes of a container go: so many, or at least so few in one piece.
    pub(super) fn place_new(
        &mut self,
        container: ContainerId,
        durability: Durability,
        bytes: (u64, u64),
        avoid: &[DeviceId],
    ) -> Result<Decision, Refusal> {
        let troubled = self.troubled();
        if !troubled.is_empty() {
            let well = self.place_among(container, durability, bytes, &[avoid, &troubled].concat());
            if let Ok(Decision::Place { .. }) = well {
                return well;
            }
        }
        self.place_among(container, durability, bytes, avoid)
    }

    fn place_among(
        &mut self,
        container: ContainerId,
        durability: Durability,
        (bytes, run_min): (u64, u64),
        avoid: &[DeviceId],
    ) -> Result<Decision, Refusal> {
        if let Some(decision) = self.place_pinned(container, durability, bytes, avoid) {
            return Ok(decision);
        }
        let Some(policy) = self.tracking_policy(container) else {
            let placed = cenote_policy::place(
                &self.state.space.views(),
                &cenote_policy::PlaceRequest { durability, bytes, avoid },
            )?;
            let (device, past_watermarks) = (placed.device, placed.past_watermarks);
            return Ok(Decision::Place { device, bytes, reason: Reason::Nothing, past_watermarks });
        };
        let views = self.tier_views();
        let label = self.state.containers.get(container).map_or("", |c| c.label.as_str());
        let rhythm = self.tiering.rhythms.of_container(container);
        let now_unix_ms = self.seams.clock.unix_ms();
        let run_min = run_min.min(bytes);
        let incoming = Incoming {
            run_min,
            avoid,
            label,
            rhythm,
            now_ms: self.now_ms(),
            now_unix_ms,
            ..Incoming::new(durability, bytes)
        };
        policy.place(&views, &incoming)
    }

    /// Lets what has a copy leave a device: who leaves is for the container's policy to say. False if nothing can.
    pub(super) fn make_room_by_policy(&mut self, container: ContainerId, dev: u8, bytes: u64) -> bool {
        let policy = self.tracking_policy(container);
        policy.is_some_and(|policy| self.plan_room(&policy, dev, bytes)) || self.make_room(dev, bytes)
    }

    /// The policy of a container, if it is one that tracks what is read and written.
    fn tracking_policy(&mut self, container: ContainerId) -> Option<Arc<dyn Policy>> {
        let name = self.state.containers.get(container).map(|c| c.spec.policy.as_str())?;
        is_tracking(name).then(|| self.tiering.policies.named(name))?
    }
}
