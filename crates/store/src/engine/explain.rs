//! Explains why an object is where it is.

use cenote_model::{Durability, Explanation, ExtentWhy, ObjectKey, Result};

use super::{Core, Engine};
use crate::container::Container;
use crate::map::{Ext, ExtentPlace};

const RANGES_MAX: usize = 10_000;

impl Engine {
    pub(in crate::engine) fn explain(&mut self, key: ObjectKey) -> Result<Explanation> {
        self.core.update_clock();
        let slot = self.core.object(key)?;
        let stat = self.core.stat(key)?;
        let name = self.core.container(key.container)?.spec.policy.clone();
        let policy = self.activities.tiering.policy_words(&name);
        let shares = self.core.share_words(key.container);
        let next = self.activities.tiering.what_next(&mut self.core, key, slot);
        let object = self.core.state.objects.get(slot);
        let container = self.core.state.containers.at(object.container);
        let ranges = object
            .map
            .iter()
            .take(RANGES_MAX)
            .map(|(offset, ext)| {
                let device = self.core.state.space.get(ext.dev);
                let why =
                    self.core.why(container, ext) + &self.core.compressed(ext) + &self.core.pin_words(key, offset, ext);
                ExtentWhy {
                    offset,
                    extent: ext.to_model(self.core.state.space.address(ext.dev)),
                    device: device.spec.name.clone(),
                    why,
                }
            })
            .collect();
        let mut notes = vec![format!(
            "container `{}` is {}: {}",
            container.label,
            container.spec.durability.word(),
            promise(container.spec.durability)
        )];
        notes.push(policy);
        notes.push(format!("last read or written {} s ago", self.core.state.now.s.saturating_sub(object.last.touched)));
        if container.is_tracked() {
            let state = if container.is_dirty() {
                format!(
                    "updates after epoch {} would be lost with the power; flush to prevent that",
                    container.durable.persisted
                )
            } else {
                "everything in it survives power loss".to_owned()
            };
            notes.push(format!(
                "its container survives power loss up to epoch {}: {state}",
                container.durable.persisted
            ));
        }
        if let Some(snapshot) = &container.snapshot {
            notes.push(format!(
                "it is in snapshot `{}` of epoch {}, and shares its bytes with the original as far as they did not change \
                 since",
                snapshot.name, snapshot.epoch
            ));
        }
        if let Some(cut) = container.durable.pending_cut.and_then(|cut| self.core.state.cuts.pending.get(&cut)) {
            let error = cut.tries.error.as_ref().map(|error| format!("; last error: {error}")).unwrap_or_default();
            notes.push(format!("a copy of its volatile data up to epoch {} is under way{error}", cut.epoch));
        }
        notes.extend(shares);
        notes.extend(next);
        if !self.core.observed.move_reason.is_empty() {
            notes.push(format!("moves are planned: {}", self.core.observed.move_reason));
        }
        if stat.extents as usize > RANGES_MAX {
            notes.push(format!("only the first {RANGES_MAX} of {} ranges are listed", stat.extents));
        }
        Ok(Explanation { stat, ranges, notes })
    }
}

fn promise(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "acknowledged when on a persistent tier and in the journal on media",
        Durability::Async => "acknowledged in the fast tier, copied to a persistent tier behind the compute",
        Durability::Scratch => "never copied for durability's sake; lost with the power",
        Durability::Bypass => "straight to the lowest persistent tier",
    }
}

impl Core {
    /// Returns how an extent's places are compressed, as text.
    fn compressed(&self, ext: &Ext) -> String {
        let hull = ext.hull();
        let about = |place: ExtentPlace<'_>| {
            let packed = place.packed()?;
            let (plain, stored) = (hull.len(), place.end_at(hull.end) - place.unit_at(hull.begin));
            let name = &self.state.space.get(place.dev).spec.name;
            let gain = f64::from(plain) / stored.max(1) as f64;
            Some(format!("; {plain} bytes in {stored} on `{name}` ({gain:.1}x), by {}", packed.describe()))
        };
        ext.places().filter_map(about).collect()
    }

    fn why(&self, container: &Container, ext: &Ext) -> String {
        let device = self.state.space.get(ext.dev);
        let copy = ext.device_of_copy(0).map(|dev| self.state.space.get(dev).spec.name.clone());
        match (device.is_volatile(), copy) {
            (true, Some(copy)) => format!(
                "in the fast tier with a copy on `{copy}`; leaves without I/O when `{}` passes {}‰",
                device.spec.name, device.spec.watermark_high_permille
            ),
            (true, None) if container.spec.durability == Durability::Scratch => {
                "in the fast tier, without a copy because its container is scratch".to_owned()
            }
            (true, None) if ext.born == container.durable.cuts => {
                "in the fast tier, newly written; copied to a persistent tier within seconds or at flush".to_owned()
            }
            (true, None) => "in the fast tier; its copy to a persistent tier is being made".to_owned(),
            (false, Some(copy)) => {
                format!("on a faster tier because it is used; `{copy}` still has it, so it leaves without I/O")
            }
            (false, None) => match container.spec.durability {
                Durability::Sync => "on a persistent tier because its container is sync".to_owned(),
                Durability::Bypass => "on a low persistent tier because its container is bypass".to_owned(),
                _ => "on a persistent tier: it was drained there, or faster tiers were full when it was written"
                    .to_owned(),
            },
        }
    }
}
