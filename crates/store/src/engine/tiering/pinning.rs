//! What people pinned stays on its tier, and comes back to it.

use std::collections::BTreeMap;

use cenote_model::{
    Arrange, ArrangeTarget, Arrangement, ContainerId, DeviceId, DeviceState, Durability, Error, ErrorKind, ObjectKey,
    Result,
};
use cenote_policy::{Decision, Incoming, Reason};

use super::super::Engine;
use super::fate::Fate;
use super::relocate::Relocation;
use super::walk::Walk;
use crate::journal::Kind;
use crate::journal::record::encode_pins;
use crate::map::Ext;
use crate::pins::{PinChange, Pins, WHERE_IT_IS};
use crate::placing::{Action, Placing, Target, identity};

/// Between looks at whether what is pinned is where it should be.
const PAUSE_NS: u64 = 1_000_000_000;
/// Objects and extents looked at each time.
const OBJECTS: usize = 256;
const EXTENTS: usize = 1024;
/// Ranges of one request that pins, at most: what is pinned is in memory and in every checkpoint.
const RANGES_MAX: usize = 1 << 20;

/// Where the look at pinned things is.
#[derive(Default)]
pub(in super::super) struct Keeping {
    after: Option<ObjectKey>,
    next_ns: u64,
}

impl Engine {
    /// The place that a range is pinned to, if it is.
    pub(super) fn pin_of(&self, key: ObjectKey, offset: u64, ext: &Ext) -> Option<DeviceId> {
        self.state.pins.of(key, offset, offset + u64::from(ext.len))
    }

    /// True if an extent is to stay on the device where it is read. One that is being emptied keeps nothing.
    pub(in super::super) fn is_pinned_on(&self, key: ObjectKey, offset: u64, ext: &Ext) -> bool {
        let Some(place) = self.pin_of(key, offset, ext) else { return false };
        let slot = self.state.space.get(ext.dev);
        (place == WHERE_IT_IS || place == slot.id) && slot.state != DeviceState::Draining
    }

    /// True if a pin, its own or one of a twin's, does not let an extent go there.
    pub(in super::super) fn is_held(&mut self, placing: &Placing) -> bool {
        if self.state.pins.is_empty() {
            return false;
        }
        let Target::Live { key, offset } = placing.target else { return false };
        let Some(ext) = self.state.target_mut(placing.target).cloned() else { return false };
        let to = match placing.action {
            Action::Evict => ext.copy,
            Action::Move { dev, .. } | Action::Promote { dev, .. } => dev,
            Action::Copy { .. } | Action::Split { .. } | Action::DropCopy => return false,
        };
        if self.state.space.get(ext.dev).state == DeviceState::Draining {
            return false;
        }
        // What can be read only where its copy is has to leave there by becoming it.
        if self.state.space.get(to).state == DeviceState::Draining && !self.state.space.is_well(ext.dev) {
            return false;
        }
        let (here, to) = (self.state.space.get(ext.dev).id, self.state.space.get(to).id);
        let twins = self.state.twins(placing);
        let mut pins = [key].into_iter().chain(twins).filter_map(|key| self.pin_of(key, offset, &ext));
        pins.any(|place| place != to && (place == WHERE_IT_IS || place == here))
    }

    /// Bytes of an object that are pinned.
    pub(in super::super) fn pinned_bytes_of(&self, key: ObjectKey, slot: u32) -> u64 {
        if self.state.pins.is_empty() {
            return 0;
        }
        let extents = self.state.objects.get(slot).map.iter();
        extents.filter(|(at, ext)| self.pin_of(key, *at, ext).is_some()).map(|(_, ext)| u64::from(ext.len)).sum()
    }

    /// What is pinned of a range, in words to be added to why it is there.
    pub(in super::super) fn pin_words(&self, key: ObjectKey, offset: u64, ext: &Ext) -> String {
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

    /// New bytes of a container that is pinned to a tier go there while it has room.
    pub(super) fn place_pinned(
        &self,
        container: ContainerId,
        durability: Durability,
        bytes: u64,
        avoid: &[DeviceId],
    ) -> Option<Decision> {
        let place = self.state.pins.of_container(container).filter(|place| *place != WHERE_IT_IS)?;
        let view = self.state.space.get(self.state.space.slot_of(place)?).view();
        let incoming = Incoming { avoid, ..Incoming::new(durability, bytes) };
        let fits = incoming.may_use(&view) && view.below_high_with(bytes);
        let reason = Reason::First { tier: std::sync::Arc::clone(&view.name) };
        fits.then_some(Decision::Place { device: view.id, bytes, reason, past_watermarks: false })
    }

    /// Puts down what a request pins or unpins; refuses more than a tier can keep. Other requests do nothing here.
    pub(super) fn put_pins(
        &mut self,
        walk: &Walk,
        target: &ArrangeTarget,
        what: &Arrange,
        dry_run: bool,
        result: &mut Arrangement,
    ) -> Result<()> {
        let place = match what {
            Arrange::Pin { to: Some(name) } => Some(self.state.space.get(self.named(name)?).id),
            Arrange::Pin { to: None } => Some(WHERE_IT_IS),
            Arrange::Unpin => None,
            _ => return Ok(()),
        };
        let changes = self.pin_changes(walk.clone(), target, place, result)?;
        if matches!(what, Arrange::Unpin) {
            self.check_unpin(target)?;
        } else {
            self.check_room_for(&changes)?;
        }
        if dry_run || changes.is_empty() {
            return Ok(());
        }
        let mut draft = self.journal.draft(Kind::Keep);
        encode_pins(&mut draft.bytes, changes.iter().copied());
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        for change in changes {
            self.state.pins.change(change);
        }
        Ok(())
    }

    /// The changes that pin, or unpin, what is meant.
    fn pin_changes(
        &mut self,
        mut walk: Walk,
        target: &ArrangeTarget,
        place: Option<DeviceId>,
        result: &mut Arrangement,
    ) -> Result<Vec<PinChange>> {
        let is_query = matches!(target, ArrangeTarget::Query { .. });
        let mut changes = match target {
            ArrangeTarget::Container(id) => vec![PinChange::Container(*id, place)],
            ArrangeTarget::Object(key) => vec![PinChange::Range(*key, (0, u64::MAX), place)],
            ArrangeTarget::Range { key, offset, len } => {
                vec![PinChange::Range(*key, (*offset, offset.saturating_add(*len)), place)]
            }
            ArrangeTarget::Query { .. } => Vec::new(),
        };
        while let Some((key, extents, is_whole)) = self.next_meant(&mut walk) {
            result.pinned_bytes += extents.iter().map(|(_, ext)| u64::from(ext.len)).sum::<u64>();
            if !is_query || extents.is_empty() {
                continue;
            }
            if is_whole {
                changes.push(PinChange::Range(key, (0, u64::MAX), place));
                continue;
            }
            let mut ranges: Vec<(u64, u64)> = Vec::new();
            for (offset, ext) in extents {
                let to = offset + u64::from(ext.len);
                match ranges.last_mut() {
                    Some(last) if last.1 == offset => last.1 = to,
                    _ => ranges.push((offset, to)),
                }
            }
            changes.extend(ranges.into_iter().map(|range| PinChange::Range(key, range, place)));
            if changes.len() > RANGES_MAX {
                return Err(Error::new(ErrorKind::LimitExceeded, "the query")
                    .because(format!("it means more than {RANGES_MAX} ranges"))
                    .try_next("pin whole containers"));
            }
        }
        Ok(changes)
    }

    /// Nothing of a container that is pinned as a whole can be unpinned alone.
    fn check_unpin(&self, target: &ArrangeTarget) -> Result<()> {
        let container = match target {
            ArrangeTarget::Object(key) | ArrangeTarget::Range { key, .. } => key.container,
            _ => return Ok(()),
        };
        let Some(label) = self.state.pins.of_container(container).map(|_| self.container(container).map(|c| &c.label))
        else {
            return Ok(());
        };
        Err(Error::new(ErrorKind::InvalidInput, format!("container `{}`", label?))
            .because("it is pinned as a whole, with all that is in it")
            .try_next("unpin the container, and pin what is to stay of it"))
    }

    /// Refuses changes by which a tier would have to keep more than it may be filled.
    fn check_room_for(&self, changes: &[PinChange]) -> Result<()> {
        let mut pins = self.state.pins.clone();
        for change in changes {
            pins.change(*change);
        }
        let before = self.pinned_by_device(&self.state.pins);
        for (id, bytes) in self.pinned_by_device(&pins) {
            let Some(dev) = self.state.space.slot_of(id) else { continue };
            let view = self.state.space.get(dev).view();
            if bytes > view.high_bytes() && bytes > before.get(&id).copied().unwrap_or(0) {
                return Err(Error::new(ErrorKind::LimitExceeded, format!("tier `{}`", view.name))
                    .because(format!(
                        "{bytes} bytes would be pinned to it, and it is filled up to {} (its high watermark) at most",
                        view.high_bytes()
                    ))
                    .try_next("pin less, unpin something, or pin it to a larger tier (--tier)"));
            }
        }
        Ok(())
    }

    /// Bytes pinned to each device.
    fn pinned_by_device(&self, pins: &Pins) -> BTreeMap<DeviceId, u64> {
        let mut bytes = BTreeMap::new();
        let mut add = |key: ObjectKey, slot: u32| {
            for (offset, ext) in self.state.objects.get(slot).map.iter() {
                let Some(place) = pins.of(key, offset, offset + u64::from(ext.len)) else { continue };
                let place = if place == WHERE_IT_IS { self.state.space.get(ext.dev).id } else { place };
                *bytes.entry(place).or_default() += u64::from(ext.len);
            }
        };
        for id in pins.containers() {
            let Some(container) = self.state.containers.get(id) else { continue };
            container
                .objects
                .iter()
                .for_each(|(object, slot)| add(ObjectKey { container: id, object: *object }, *slot));
        }
        for key in pins.objects_from(ObjectKey::default()).filter(|key| pins.of_container(key.container).is_none()) {
            let slot = self.state.containers.get(key.container).and_then(|c| c.objects.get(&key.object));
            if let Some(slot) = slot {
                add(key, *slot);
            }
        }
        bytes
    }

    /// Has what is pinned to a tier and not there brought there, some of it.
    pub(in super::super) fn keep_pins(&mut self) {
        let now = self.state.now_ns;
        if self.state.pins.is_empty() || now < self.tiering.pinning.next_ns || !self.tiering.relocations.is_empty() {
            return;
        }
        self.tiering.pinning.next_ns = now + PAUSE_NS;
        let keys = self.pinned_objects();
        let mut evictions = Vec::new();
        let mut left = EXTENTS;
        for key in keys {
            let Some(slot) = self.state.find_object(key).filter(|_| left > 0) else { continue };
            let astray: Vec<(u64, Ext, DeviceId)> = (self.state.objects.get(slot).map.iter())
                .filter_map(|(at, ext)| Some((at, ext.clone(), self.pin_of(key, at, ext)?)))
                .filter(|(_, ext, place)| *place != WHERE_IT_IS && self.state.space.get(ext.dev).id != *place)
                .take(left)
                .collect();
            left -= astray.len();
            for (offset, ext, place) in astray {
                let Some(slot) = self.state.space.slot_of(place).map(|dev| self.state.space.get(dev)) else { continue };
                if slot.state != DeviceState::Online {
                    continue;
                }
                let to = Some(slot.spec.name.clone());
                let target = Target::Live { key, offset };
                match self.fate_with_twins(key, offset, &ext, &Arrange::Pin { to }) {
                    Fate::Go(how, dev) => {
                        let relocation =
                            Relocation { target, dev, how, waiter: None, ahead: false, short_since_ns: None };
                        self.tiering.relocations.push(relocation);
                    }
                    Fate::Leave if !self.tiering.relocations.is_known(&target) => {
                        evictions.push(Placing { target, was: identity(&ext), action: Action::Evict });
                    }
                    Fate::Leave | Fate::Spare | Fate::Already | Fate::Stay(_) => {}
                }
            }
        }
        let mut twins = std::collections::HashSet::new();
        evictions.retain(|placing: &Placing| twins.insert(placing.was));
        if !evictions.is_empty() {
            let _ = self.place_all(&evictions); // if the journal does not take it: at the next look
        }
    }

    /// The next objects of which something is pinned.
    fn pinned_objects(&mut self) -> Vec<ObjectKey> {
        let after = self.tiering.pinning.after;
        let mut keys: Vec<ObjectKey> = (self.state.pins.objects_from(after.unwrap_or_default()))
            .filter(|key| after != Some(*key))
            .take(OBJECTS)
            .collect();
        for container in self.state.pins.containers() {
            let from = match after {
                Some(after) if after.container == container => std::ops::Bound::Excluded(after.object),
                Some(after) if after.container > container => continue,
                _ => std::ops::Bound::Unbounded,
            };
            let Some(found) = self.state.containers.get(container) else { continue };
            let objects = found.objects.iter_from(from).take(OBJECTS);
            keys.extend(objects.map(|(object, _)| ObjectKey { container, object: *object }));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(OBJECTS);
        self.tiering.pinning.after = if keys.len() < OBJECTS { None } else { keys.last().copied() };
        keys
    }

    /// Forgets pins of what is gone for good.
    pub(in super::super) fn prune_pins(&mut self) {
        if self.state.pins.is_empty() {
            return;
        }
        let mut pins = std::mem::take(&mut self.state.pins);
        let containers = &self.state.containers;
        // A deletion may still be undone, after power loss: until then its pins stay.
        let is_there = |key: ObjectKey| {
            containers.get(key.container).is_some_and(|c| c.objects.contains_key(&key.object) || !c.undo.is_empty())
        };
        pins.prune(is_there, |id| containers.get(id).is_some());
        self.state.pins = pins;
    }
}
