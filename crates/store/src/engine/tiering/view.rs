//! The snapshot that policies decide from.

use cenote_model::{DeviceId, ObjectKey};
use cenote_policy::{Coming, DeviceView, Heat, RangeView};

use super::super::Engine;
use super::super::jobs::What;
use super::heat::region_of;
use super::policies::USER;
use crate::map::{Ext, NO_DEVICE};
use crate::placing::{Identity, Target, identity};

/// A range that a plan may move.
pub(super) struct Sampled {
    pub target: Target,
    pub key: ObjectKey,
    pub offset: u64,
    pub was: Identity,
    pub copy: Option<DeviceId>,
    pub heat: Heat,
    pub object_bytes: u64,
    pub coming: Option<Coming>,
    /// Its id, where rules may ask for it.
    pub name: Option<String>,
    pub age_ms: u64,
    pub is_pinned: bool,
}

impl Engine {
    /// The devices, with what jobs are about to read and write there.
    pub(super) fn tier_views(&self) -> Vec<DeviceView> {
        let slots = self.state.space.slots.len();
        let (mut reads, mut writes) = (vec![0u64; slots], vec![0u64; slots]);
        for running in self.jobs.running.values() {
            let (What::Copy { parts, .. } | What::Move { parts, .. } | What::Relocate { parts, .. }) = &running.what
            else {
                continue;
            };
            for part in parts {
                reads[part.placing.was.0 as usize] += u64::from(part.placing.was.3);
                writes[part.reserved.0 as usize] += part.reserved.2;
            }
        }
        let all = self.state.space.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
        let now = self.state.now_ns;
        all.map(|(i, slot)| {
            let view = slot.view();
            let leased = self.tiering.loads.backlog_ns(i, now) as f64 * view.speed.write_bandwidth / 1e9;
            DeviceView {
                queued_read_bytes: reads[i],
                queued_write_bytes: writes[i].saturating_add(leased as u64),
                busy: self.tiering.loads.busy(i),
                budget_bytes_per_s: self.budget_of(i as u8),
                ..view
            }
        })
        .collect()
    }

    /// What a plan needs to know of an extent of a live object in a slot.
    pub(super) fn sampled(&self, slot: u32, offset: u64, ext: &Ext, coming: Option<Coming>) -> Sampled {
        let key = self.state.key_of(slot);
        let object = self.state.objects.get(slot);
        let brought = || self.tiering.prefetched.coming((slot, object.generation, region_of(offset)), self.now_ms());
        let is_named = self.state.containers.at(object.container).spec.policy == USER;
        Sampled {
            target: Target::Live { key, offset },
            key,
            offset,
            was: identity(ext),
            copy: (ext.copy != NO_DEVICE).then(|| self.state.space.get(ext.copy).id),
            heat: self.tiering.heats.of(slot, object.generation, offset),
            object_bytes: object.size,
            coming: coming.or_else(brought),
            name: is_named.then(|| key.object.to_string()),
            age_ms: self.state.times.age_ms(object.epoch),
            is_pinned: self.is_pinned_on(key, offset, ext),
        }
    }

    /// The same as policies see it.
    pub(super) fn range_view<'a>(&'a self, sampled: &'a Sampled) -> Option<RangeView<'a>> {
        let container = self.state.containers.get(sampled.key.container)?;
        Some(RangeView {
            object: sampled.key,
            offset: sampled.offset,
            bytes: u64::from(sampled.was.3),
            device: self.state.space.get(sampled.was.0).id,
            copy: sampled.copy,
            durability: container.durability_of(sampled.key.object),
            heat: sampled.heat,
            is_pinned: sampled.is_pinned,
            label: &container.label,
            name: sampled.name.as_deref(),
            object_bytes: sampled.object_bytes,
            age_ms: sampled.age_ms,
            unit: None,
            coming: sampled.coming,
            rhythm: self.tiering.rhythms.of(&sampled.key),
        })
    }
}
