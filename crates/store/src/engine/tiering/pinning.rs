//! Pinning: keeps what people pinned on its tier, and brings it back there.

use std::collections::BTreeMap;

use cenote_model::{
    Arrange, ArrangeTarget, Arrangement, ContainerId, DeviceId, DeviceState, Durability, Error, ErrorKind, ObjectKey,
    Result,
};
use cenote_policy::{Decision, Incoming, Reason};

use super::Tiering;
use super::disposition::Disposition;
use super::relocate::Relocation;
use super::walk::Walk;
use crate::engine::core::Core;
use crate::journal::Kind;
use crate::journal::record::encode_pins;
use crate::map::Ext;
use crate::pins::{PinChange, Pins, WHERE_IT_IS};
use crate::placing::{Placing, Target, identity};

/// Pause between checks of whether pinned data are where they should be.
const PAUSE_NS: u64 = 1_000_000_000;
/// Most objects and extents checked each time.
const OBJECTS: usize = 256;
const EXTENTS: usize = 1024;
/// Most ranges pinned by one request: pins are in memory and in every checkpoint.
const RANGES_MAX: usize = 1 << 20;

/// Position of the check of pins.
#[derive(Default)]
pub struct Keeping {
    after: Option<ObjectKey>,
    next_ns: u64,
}

impl Tiering {
    /// Moves some of the data that are pinned to a tier and not there.
    pub fn keep_pins(&mut self, core: &mut Core) {
        let now = core.state.now.ns;
        if core.state.pins.is_empty() || now < self.pinning.next_ns || !self.relocations.is_empty() {
            return;
        }
        self.pinning.next_ns = now + PAUSE_NS;
        let keys = self.pinned_objects(core);
        let mut evictions = Vec::new();
        let mut left = EXTENTS;
        for key in keys {
            let Some(slot) = core.state.find_object(key).filter(|_| left > 0) else { continue };
            let astray: Vec<(u64, Ext, DeviceId)> = (core.state.objects.get(slot).map.iter())
                .filter_map(|(at, ext)| Some((at, ext.clone(), core.pin_of(key, at, ext)?)))
                .filter(|(_, ext, place)| *place != WHERE_IT_IS && core.state.space.get(ext.dev).id != *place)
                .take(left)
                .collect();
            left -= astray.len();
            for (offset, ext, place) in astray {
                let Some(slot) = core.state.space.slot_of(place).map(|dev| core.state.space.get(dev)) else { continue };
                if slot.state != DeviceState::Online {
                    continue;
                }
                let to = Some(slot.spec.name.clone());
                let target = Target::Live { key, offset };
                match super::disposition::disposition_with_twins(core, key, offset, &ext, &Arrange::Pin { to }) {
                    Disposition::Go(how, dev) => {
                        let relocation =
                            Relocation { target, dev, how, waiter: None, ahead: false, short_since_ns: None };
                        self.relocations.push(relocation);
                    }
                    Disposition::Leave if !self.relocations.is_known(&target) => {
                        evictions.push(Placing {
                            target,
                            was: identity(&ext),
                            action: core.state.space.eviction(&ext),
                        });
                    }
                    Disposition::Leave | Disposition::Spare | Disposition::Already | Disposition::Stay(_) => {}
                }
            }
        }
        let mut twins = std::collections::HashSet::new();
        evictions.retain(|placing: &Placing| twins.insert(placing.was));
        if !evictions.is_empty() {
            let _ = core.place_all(&evictions); // if the journal does not take it: at the next check
        }
    }

    /// Returns the next objects with pinned ranges.
    fn pinned_objects(&mut self, core: &mut Core) -> Vec<ObjectKey> {
        let after = self.pinning.after;
        let mut keys: Vec<ObjectKey> = (core.state.pins.objects_from(after.unwrap_or_default()))
            .filter(|key| after != Some(*key))
            .take(OBJECTS)
            .collect();
        for container in core.state.pins.containers() {
            let from = match after {
                Some(after) if after.container == container => std::ops::Bound::Excluded(after.object),
                Some(after) if after.container > container => continue,
                _ => std::ops::Bound::Unbounded,
            };
            let Some(found) = core.state.containers.get(container) else { continue };
            let objects = found.content.objects.iter_from(from).take(OBJECTS);
            keys.extend(objects.map(|(object, _)| ObjectKey { container, object: *object }));
        }
        keys.sort_unstable();
        keys.dedup();
        keys.truncate(OBJECTS);
        self.pinning.after = if keys.len() < OBJECTS { None } else { keys.last().copied() };
        keys
    }
}

/// Places new bytes of a pinned container on its tier while that has room.
pub fn place_pinned(
    core: &Core,
    container: ContainerId,
    durability: Durability,
    bytes: u64,
    avoid: &[DeviceId],
) -> Option<Decision> {
    let place = core.state.pins.of_container(container).filter(|place| *place != WHERE_IT_IS)?;
    let view = core.state.space.get(core.state.space.slot_of(place)?).view();
    let incoming = Incoming { avoid, ..Incoming::new(durability, bytes) };
    let fits = incoming.may_use(&view) && view.below_high_with(bytes);
    let reason = Reason::First { tier: std::sync::Arc::clone(&view.name) };
    fits.then_some(Decision::Place { device: view.id, bytes, reason, past_watermarks: false })
}

/// Sets or removes the pins that a request names; other requests do nothing here. Fails if a tier would have
/// to keep more than it can, or the journal does not take the pins.
pub fn put_pins(
    core: &mut Core,
    walk: &Walk,
    target: &ArrangeTarget,
    what: &Arrange,
    dry_run: bool,
    result: &mut Arrangement,
) -> Result<()> {
    let place = match what {
        Arrange::Pin { to: Some(name) } => Some(core.state.space.get(core.named(name)?).id),
        Arrange::Pin { to: None } => Some(WHERE_IT_IS),
        Arrange::Unpin => None,
        _ => return Ok(()),
    };
    let changes = pin_changes(core, walk.clone(), target, place, result)?;
    if matches!(what, Arrange::Unpin) {
        check_unpin(core, target)?;
    } else {
        check_room_for(core, &changes)?;
    }
    if dry_run || changes.is_empty() {
        return Ok(());
    }
    let mut draft = core.journal.draft(Kind::Keep);
    encode_pins(&mut draft.bytes, changes.iter().copied());
    core.journal.append(draft, core.state.epoch)?;
    core.note_journal_dirty();
    for change in changes {
        core.state.pins.change(change);
    }
    Ok(())
}

/// Returns the changes that pin, or unpin, what a request names.
fn pin_changes(
    core: &mut Core,
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
    while let Some((key, extents, is_whole)) = super::walk::next_meant(core, &mut walk) {
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

/// Refuses to unpin a part of a container that is pinned as a whole.
fn check_unpin(core: &Core, target: &ArrangeTarget) -> Result<()> {
    let container = match target {
        ArrangeTarget::Object(key) | ArrangeTarget::Range { key, .. } => key.container,
        _ => return Ok(()),
    };
    let Some(label) = core.state.pins.of_container(container).map(|_| core.container(container).map(|c| &c.label))
    else {
        return Ok(());
    };
    Err(Error::new(ErrorKind::InvalidInput, format!("container `{}`", label?))
        .because("it is pinned as a whole, with all that is in it")
        .try_next("unpin the container, and pin what is to stay of it"))
}

/// Refuses pins beyond a tier's high watermark.
fn check_room_for(core: &Core, changes: &[PinChange]) -> Result<()> {
    let mut pins = core.state.pins.clone();
    for change in changes {
        pins.change(*change);
    }
    let before = pinned_by_device(core, &core.state.pins);
    for (id, bytes) in pinned_by_device(core, &pins) {
        let Some(dev) = core.state.space.slot_of(id) else { continue };
        let view = core.state.space.get(dev).view();
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

/// Returns the bytes pinned to each device.
fn pinned_by_device(core: &Core, pins: &Pins) -> BTreeMap<DeviceId, u64> {
    let mut bytes = BTreeMap::new();
    let mut add = |key: ObjectKey, slot: u32| {
        for (offset, ext) in core.state.objects.get(slot).map.iter() {
            let Some(place) = pins.of(key, offset, offset + u64::from(ext.len)) else { continue };
            let place = if place == WHERE_IT_IS { core.state.space.get(ext.dev).id } else { place };
            *bytes.entry(place).or_default() += u64::from(ext.len);
        }
    };
    for id in pins.containers() {
        let Some(container) = core.state.containers.get(id) else { continue };
        container
            .content
            .objects
            .iter()
            .for_each(|(object, slot)| add(ObjectKey { container: id, object: *object }, *slot));
    }
    for key in pins.objects_from(ObjectKey::default()).filter(|key| pins.of_container(key.container).is_none()) {
        let slot = core.state.containers.get(key.container).and_then(|c| c.content.objects.get(&key.object));
        if let Some(slot) = slot {
            add(key, *slot);
        }
    }
    bytes
}
