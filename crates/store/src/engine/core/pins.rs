//! Pins: what must stay on its tier, as users have requested.

use cenote_model::{DeviceId, DeviceState, ObjectKey};

use super::Core;
use crate::map::Ext;
use crate::pins::WHERE_IT_IS;
use crate::placing::{Action, Placing, Target};

impl Core {
    /// Returns the place that a range is pinned to, if any.
    pub fn pin_of(&self, key: ObjectKey, offset: u64, ext: &Ext) -> Option<DeviceId> {
        self.state.pins.of(key, offset, offset + u64::from(ext.len))
    }

    /// Returns true if an extent is pinned to its first place. A device that is being emptied keeps nothing.
    pub fn is_pinned_on(&self, key: ObjectKey, offset: u64, ext: &Ext) -> bool {
        let Some(place) = self.pin_of(key, offset, ext) else { return false };
        let slot = self.state.space.get(ext.dev);
        (place == WHERE_IT_IS || place == slot.id) && slot.state != DeviceState::Draining
    }

    /// Returns true if a pin of the extent or of a twin (shared extent of a snapshot) forbids this placing.
    pub fn is_held(&mut self, placing: &Placing) -> bool {
        if self.state.pins.is_empty() {
            return false;
        }
        let Target::Live { key, offset } = placing.target else { return false };
        let Some(ext) = self.state.target_mut(placing.target).cloned() else { return false };
        let to = match placing.action {
            Action::Evict { copy } => match ext.copy_place(usize::from(copy)) {
                Some(copy) => copy.dev,
                None => return false,
            },
            Action::Move { dev, .. } | Action::Promote { dev, .. } => dev,
            Action::Copy { .. } | Action::Split { .. } | Action::DropCopy { .. } => return false,
        };
        if self.state.space.get(ext.dev).state == DeviceState::Draining {
            return false;
        }
        // If the first place cannot be read, a copy on a device being emptied can leave only by becoming the
        // first place.
        if self.state.space.get(to).state == DeviceState::Draining && !self.state.space.is_well(ext.dev) {
            return false;
        }
        let (here, to) = (self.state.space.get(ext.dev).id, self.state.space.get(to).id);
        let twins = self.state.twins(placing);
        let mut pins = [key].into_iter().chain(twins).filter_map(|key| self.pin_of(key, offset, &ext));
        pins.any(|place| place != to && (place == WHERE_IT_IS || place == here))
    }

    /// Pinned bytes of an object.
    pub fn pinned_bytes_of(&self, key: ObjectKey, slot: u32) -> u64 {
        if self.state.pins.is_empty() {
            return 0;
        }
        let extents = self.state.objects.get(slot).map.iter();
        extents.filter(|(at, ext)| self.pin_of(key, *at, ext).is_some()).map(|(_, ext)| u64::from(ext.len)).sum()
    }

    /// Returns the pin of a range as text, to append to the reason why it is there.
    pub fn pin_words(&self, key: ObjectKey, offset: u64, ext: &Ext) -> String {
        let Some(place) = self.pin_of(key, offset, ext) else { return String::new() };
        let here = self.state.space.get(ext.dev);
        if here.state == DeviceState::Draining {
            return format!("; pinned, but `{}` is being emptied, which goes before", here.spec.name);
        }
        if place == WHERE_IT_IS || place == here.id {
            return "; pinned: it stays here".to_owned();
        }
        match self.state.space.slot_of(place).map(|dev| self.state.space.get(dev)) {
            Some(slot) => format!("; pinned to `{}`, where it comes as soon as there is room", slot.spec.name),
            None => "; pinned to a tier that is gone".to_owned(),
        }
    }
}
