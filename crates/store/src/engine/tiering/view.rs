//! The snapshot from which policies decide.

use cenote_model::{DeviceId, ObjectKey};
use cenote_policy::{Coming, DeviceView, Heat, RangeView};

use super::policies::USER;
use crate::engine::core::Core;
use crate::engine::core::observed::heat::region_of;
use crate::map::{DeviceIndex, Ext};
use crate::placing::{Identity, Target, identity};

/// A range that a plan may move.
pub struct Sampled {
    pub target: Target,
    pub key: ObjectKey,
    pub offset: u64,
    pub was: Identity,
    pub copy: Option<DeviceId>,
    pub heat: Heat,
    pub object_bytes: u64,
    pub coming: Option<Coming>,
    pub rule: RuleFacts,
}

/// Facts that only rules use.
pub struct RuleFacts {
    /// The object's id, as text.
    pub name: Option<String>,
    pub age_ms: u64,
    pub is_pinned: bool,
}

/// Returns a sampled range as policies see it. `None` if its container is gone.
pub fn range_view<'a>(core: &'a Core, sampled: &'a Sampled) -> Option<RangeView<'a>> {
    let container = core.state.containers.get(sampled.key.container)?;
    Some(RangeView {
        object: sampled.key,
        offset: sampled.offset,
        bytes: u64::from(sampled.was.len),
        device: core.state.space.get(sampled.was.dev).id,
        copy: sampled.copy,
        durability: container.durability_of(sampled.key.object),
        heat: sampled.heat,
        is_pinned: sampled.rule.is_pinned,
        label: &container.label,
        name: sampled.rule.name.as_deref(),
        object_bytes: sampled.object_bytes,
        age_ms: sampled.rule.age_ms,
        unit: None,
        coming: sampled.coming,
        rhythm: core.observed.rhythms.of(&sampled.key),
    })
}

/// Returns the devices, with the bytes that jobs and clients are about to read and write there.
pub fn tier_views(core: &Core) -> Vec<DeviceView> {
    let slots = core.state.space.slots.len();
    let (reads, writes) = core.jobs.queued_bytes(slots);
    let all = core.state.space.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
    let now = core.state.now.ns;
    all.map(|(i, slot)| {
        let view = slot.view();
        let leased = core.observed.loads.backlog_ns(i, now) as f64 * view.speed.write_bandwidth / 1e9;
        DeviceView {
            queued_read_bytes: reads[i],
            queued_write_bytes: writes[i].saturating_add(leased as u64),
            busy: core.observed.loads.busy(i),
            budget_bytes_per_s: core.budget_of(i as DeviceIndex),
            ..view
        }
    })
    .collect()
}

/// Returns the facts about an extent of a live object that a plan needs.
pub fn sampled(core: &Core, slot: u32, offset: u64, ext: &Ext, coming: Option<Coming>) -> Sampled {
    let key = core.state.key_of(slot);
    let object = core.state.objects.get(slot);
    let brought = || core.observed.prefetched.coming((slot, object.generation, region_of(offset)), core.now_ms());
    let is_named = core.state.containers.at(object.container).spec.policy == USER;
    Sampled {
        target: Target::Live { key, offset },
        key,
        offset,
        was: identity(ext),
        copy: ext.device_of_copy(0).map(|dev| core.state.space.get(dev).id),
        heat: core.observed.heats.of(slot, object.generation, offset),
        object_bytes: object.size,
        coming: coming.or_else(brought),
        rule: RuleFacts {
            name: is_named.then(|| key.object.to_string()),
            age_ms: core.state.times.age_ms(object.epoch),
            is_pinned: core.is_pinned_on(key, offset, ext),
        },
    }
}
