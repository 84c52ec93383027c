//! Room on devices for copies and moves, and its description in errors.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, Error, ErrorKind};
use cenote_policy::{PlaceRequest, place, place_copy};

use super::Core;
use crate::copying::Part;
use crate::map::{DeviceIndex, Ext};
use crate::placing::Target;
use crate::undo::Change;

impl Core {
    /// Returns the bytes of an extent as whole checksum units, or `None` if its device is not open.
    pub fn part_of(&self, ext: &Ext) -> Option<Part> {
        let device: Arc<dyn Device> = self.state.space.get(ext.dev).device.clone()?;
        let seen = ext.trimmed();
        Some(Part {
            device,
            offset: seen.run_offset,
            len: seen.run_len,
            sums: seen.sums().to_vec(),
            packed: seen.packed().cloned(),
        })
    }

    /// Takes room for stretches of these lengths on one persistent device (for moves, on the device that placement
    /// chooses): for as many stretches as fit, at least one. Fails if no device has room for the first.
    pub fn room_for(
        &mut self,
        lens: &[u32],
        moving: Option<(cenote_model::Durability, DeviceId)>,
    ) -> cenote_model::Result<(DeviceIndex, Vec<u64>)> {
        let leaving = moving.map(|(_, from)| from);
        let padded = |len: &u32| u64::from(*len).next_multiple_of(4096);
        let total: u64 = lens.iter().map(padded).sum();
        let first = lens.first().map_or(4096, padded);
        for wanted in [total, first] {
            let mut refused: Vec<DeviceId> = leaving.into_iter().collect();
            while let Some(dev) = self.device_for(wanted, moving, &refused) {
                // An extent that may stay must not fill the other device past its watermark, or it would come back.
                let may_stay = leaving.is_some_and(|from| !self.must_leave(from));
                let fitting = if may_stay && wanted < total { &lens[..1] } else { lens };
                let places = self.take_each(dev, fitting);
                if !places.is_empty() {
                    return Ok((dev, places));
                }
                refused.push(self.state.space.get(dev).id);
            }
        }
        Err(Error::new(ErrorKind::Full, "the persistent tiers")
            .because(format!("no room for a copy of {first} bytes: {}", self.uses()))
            .try_next("delete something or add a device; what was acknowledged stays readable"))
    }

    /// Returns the device where placement would put this many bytes, except the `refused` ones.
    pub fn device_for(
        &self,
        bytes: u64,
        moving: Option<(cenote_model::Durability, DeviceId)>,
        refused: &[DeviceId],
    ) -> Option<DeviceIndex> {
        let views = self.state.space.views();
        let among = |refused: &[DeviceId]| match moving {
            Some((durability @ cenote_model::Durability::Scratch, _)) => {
                place(&views, &PlaceRequest { durability, bytes, avoid: refused })
            }
            _ => place_copy(&views, bytes, refused),
        };
        let troubled = self.troubled();
        let well = if troubled.is_empty() { None } else { among(&[refused, &troubled].concat()).ok() };
        let decision = well.map_or_else(|| among(refused), Ok);
        let may_stay = moving.is_some_and(|(_, from)| !self.must_leave(from));
        // Moving an optional extent to another full device gains nothing.
        let decision = decision.ok().filter(|decision| !(decision.past_watermarks && may_stay))?;
        self.state.space.slot_of(decision.device)
    }

    /// Returns true if a device is being emptied.
    pub fn must_leave(&self, id: DeviceId) -> bool {
        let slot = self.state.space.slot_of(id);
        slot.is_some_and(|slot| self.state.space.get(slot).state == cenote_model::DeviceState::Draining)
    }

    /// Takes room for stretches of these lengths on a device: in one piece if possible, else one by one until one
    /// does not fit.
    pub fn take_each(&mut self, dev: DeviceIndex, lens: &[u32]) -> Vec<u64> {
        let slot = self.state.space.get_mut(dev);
        let padded: Vec<u64> = lens.iter().map(|len| slot.padded(u64::from(*len))).collect();
        let total: u64 = padded.iter().sum();
        if let [(offset, _)] = slot.take(total, total)[..] {
            let mut at = offset;
            let place = |len: &u64| {
                at += len;
                at - len
            };
            return padded.iter().map(place).collect();
        }
        let mut places = Vec::new();
        for len in padded {
            match slot.take(len, len)[..] {
                [(offset, _)] => places.push(offset),
                _ => break,
            }
        }
        places
    }

    /// Returns the target of a placing, as text.
    pub fn subject(&self, target: Target, len: u32) -> String {
        match target {
            Target::Live { key, offset } => format!("{len} bytes at {offset} of object {key}"),
            Target::Undo { container, number, piece } => {
                let undo = self
                    .state
                    .containers
                    .get(container)
                    .and_then(|c| c.back.undo.get(usize::try_from(number.checked_sub(c.back.undo_first)?).ok()?));
                match undo.map(|undo| &undo.change) {
                    Some(Change::Range { object, pieces, .. }) => {
                        let offset = pieces.get(piece as usize).map_or(0, |(offset, _)| offset);
                        format!("{len} bytes at {offset} of object {container}/{object}, as they were")
                    }
                    _ => format!("{len} bytes of container {container}, as they were"),
                }
            }
            Target::Detached { container, offset, .. } => {
                format!("{len} bytes at {offset} of a deleted object of container {container}")
            }
        }
    }
}
