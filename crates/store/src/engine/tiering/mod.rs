//! Tiering: places and moves data as the policies of containers decide, and as people request.
//!
//! All decisions are made in `cenote_policy`, from a snapshot of the tiers and of some ranges. This module takes the
//! snapshot from the observations (`core/observed`), and has jobs carry out the moves ([`relocate`]). Containers with
//! the policy `fast-first` are not tracked: what is too much leaves tiers by `engine/draining.rs`.

mod arrange;
mod disposition;
mod fetch;
mod lease;
mod next;
mod pinning;
mod plan;
mod policies;
mod relocate;
mod rules;
mod view;
mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::{ContainerId, DeviceId, Durability};
use cenote_policy::{Decision, Incoming, Policy, Reason, Refusal, is_tracking};

pub use disposition::LISTED_MAX;
pub use lease::Wanted;
pub use policies::{FOLLOWERS_MAX, POLICY_FILE};

use super::activity::{Activity, Urgency};
use super::core::Core;
use crate::map::DeviceIndex;
use crate::work::Job;

/// State of placing and moving.
#[derive(Default)]
pub struct Tiering {
    policies: policies::Policies,
    relocations: relocate::Queue,
    waits: fetch::Waits,
    /// By device slot: since when a lease waits for space that jobs still hold.
    room_awaited_ns: BTreeMap<DeviceIndex, u64>,
    /// Running move jobs.
    moving: usize,
    plans: plan::Plans,
    arrangements: arrange::Arrangements,
    rules: rules::Rules,
    pinning: pinning::Keeping,
}

impl Activity for Tiering {
    fn tick(&mut self, core: &mut Core) {
        self.plan_tiers(core);
        self.run_rules(core);
        self.keep_pins(core);
    }
    fn next_job(&mut self, core: &mut Core, urgency: Urgency) -> Option<Job> {
        if urgency == Urgency::Move { self.next_relocation(core) } else { None }
    }
}

impl Tiering {
    /// Chooses a device for new bytes of a container: for `bytes.0`, or for at least `bytes.1` in one piece. Fails if
    /// no tier takes them.
    pub fn place_new(
        &mut self,
        core: &mut Core,
        container: ContainerId,
        durability: Durability,
        bytes: (u64, u64),
        avoid: &[DeviceId],
    ) -> Result<Decision, Refusal> {
        let troubled = core.troubled();
        if !troubled.is_empty() {
            let well = self.place_among(core, container, durability, bytes, &[avoid, &troubled].concat());
            if let Ok(Decision::Place { .. }) = well {
                return well;
            }
        }
        self.place_among(core, container, durability, bytes, avoid)
    }

    fn place_among(
        &mut self,
        core: &mut Core,
        container: ContainerId,
        durability: Durability,
        (bytes, run_min): (u64, u64),
        avoid: &[DeviceId],
    ) -> Result<Decision, Refusal> {
        if let Some(decision) = crate::engine::tiering::pinning::place_pinned(core, container, durability, bytes, avoid)
        {
            return Ok(decision);
        }
        let Some(policy) = self.tracking_policy(core, container) else {
            let placed = cenote_policy::place(
                &core.state.space.views(),
                &cenote_policy::PlaceRequest { durability, bytes, avoid },
            )?;
            let (device, past_watermarks) = (placed.device, placed.past_watermarks);
            return Ok(Decision::Place { device, bytes, reason: Reason::Nothing, past_watermarks });
        };
        let views = crate::engine::tiering::view::tier_views(core);
        let label = core.state.containers.get(container).map_or("", |c| c.label.as_str());
        let rhythm = core.observed.rhythms.of_container(container);
        let now_unix_ms = core.seams.clock.unix_ms();
        let run_min = run_min.min(bytes);
        let incoming = Incoming {
            run_min,
            avoid,
            label,
            rhythm,
            now_ms: core.now_ms(),
            now_unix_ms,
            ..Incoming::new(durability, bytes)
        };
        policy.place(&views, &incoming)
    }

    /// Evicts extents with copies from a device; the container's policy chooses which. Returns false if none can leave.
    pub fn make_room_by_policy(
        &mut self,
        core: &mut Core,
        container: ContainerId,
        dev: DeviceIndex,
        bytes: u64,
    ) -> bool {
        let policy = self.tracking_policy(core, container);
        policy.is_some_and(|policy| self.plan_room(core, &policy, dev, bytes)) || self.make_room(core, dev, bytes)
    }

    /// Returns the policy of a container, if that tracks accesses.
    fn tracking_policy(&mut self, core: &mut Core, container: ContainerId) -> Option<Arc<dyn Policy>> {
        let name = core.state.containers.get(container).map(|c| c.spec.policy.as_str())?;
        is_tracking(name).then(|| self.policies.named(name))?
    }
}
