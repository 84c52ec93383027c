//! Disposition of an extent: what an arrangement or a rule does with it.

use cenote_model::{Arrange, ArrangeMove, Arrangement, DeviceState, Error, ErrorKind, ObjectKey, Result};
use cenote_policy::{DeviceView, order, tier_order};

use super::relocate::How;
use crate::engine::core::Core;
use crate::map::{DeviceIndex, Ext};
use crate::placing::{Action, Placing, Target, identity};

/// Most moves listed in a dry run.
pub const LISTED_MAX: usize = 10_000;

/// What becomes of an extent.
pub enum Disposition {
    /// It is moved there.
    Go(How, DeviceIndex),
    /// It is evicted: its copy is where it is to be, so nothing has to be moved.
    Leave,
    /// Its copy is dropped.
    Spare,
    /// Nothing: it is as it should be.
    Already,
    Stay(String),
}

/// Checks that the tiers an arrangement names exist, and take bytes where it brings some.
pub fn check_arrange(core: &Core, what: &Arrange) -> Result<()> {
    let (takes, name) = match what {
        Arrange::Promote { to } | Arrange::Demote { to } | Arrange::Pin { to } | Arrange::Archive { to } => (true, to),
        Arrange::Release { to } => (false, to),
        Arrange::Evict | Arrange::Unpin => return Ok(()),
    };
    let is_archive = matches!(what, Arrange::Archive { .. } | Arrange::Release { .. });
    let Some(name) = name else {
        if is_archive && lowest(core).is_none() {
            return Err(Error::new(ErrorKind::InvalidInput, "the archive")
                .because("no persistent tier is online")
                .try_next("add one, or wait until it is back"));
        }
        return Ok(());
    };
    let dev = core.named(name)?;
    if takes && let Some(error) = refusal_of(core, dev) {
        return Err(error);
    }
    if is_archive && core.state.space.is_volatile(dev) {
        return Err(no_target(name, "it does not survive power loss"));
    }
    Ok(())
}

/// Returns why a tier takes no new bytes, if it takes none.
pub fn refusal_of(core: &Core, dev: DeviceIndex) -> Option<Error> {
    let slot = core.state.space.get(dev);
    let cause = match slot.state {
        _ if slot.removed => "it was removed from the store",
        DeviceState::Draining => "it takes no new data: it is being emptied",
        DeviceState::Failed => "it takes no new data: it is away, or failed",
        DeviceState::Online if slot.device.is_none() => "it is not open",
        DeviceState::Online => return None,
    };
    Some(no_target(&slot.spec.name, cause))
}

/// Returns the slowest persistent tier that is online: the place of archives.
pub fn lowest(core: &Core) -> Option<DeviceIndex> {
    let views: Vec<_> = core.state.space.present().map(crate::space::DeviceSlot::view).collect();
    let lowest = order(&views).into_iter().rfind(|view| view.takes(true))?.id;
    core.state.space.slot_of(lowest)
}

/// Returns what an arrangement makes of an extent.
pub fn disposition(core: &Core, key: ObjectKey, offset: u64, ext: &Ext, what: &Arrange) -> Disposition {
    let mut views: Vec<_> = core.state.space.present().map(crate::space::DeviceSlot::view).collect();
    views.sort_by(tier_order);
    let here = core.state.space.get(ext.dev).id;
    let Some(at) = views.iter().position(|view| view.id == here) else {
        return Disposition::Stay("its device is gone".to_owned());
    };
    let disposition = disposition_among(core, &views, at, ext, what);
    let pinned_to = match &disposition {
        Disposition::Go(How::Promote | How::Move, dev) => Some(*dev),
        Disposition::Leave => Some(ext.copy_dev),
        _ => None,
    };
    if let Some(to) = pinned_to
        && !matches!(what, Arrange::Pin { .. })
        && core.is_pinned_on(key, offset, ext)
        && core.pin_of(key, offset, ext) != Some(core.state.space.get(to).id)
    {
        return Disposition::Stay(format!("it is pinned to `{}`: unpin it first", views[at].name));
    }
    disposition
}

/// Returns the same, unless a pin of a twin (the extent in a snapshot or its original) holds their
/// common place.
pub fn disposition_with_twins(core: &mut Core, key: ObjectKey, offset: u64, ext: &Ext, what: &Arrange) -> Disposition {
    let disposition = disposition(core, key, offset, ext, what);
    let action = match &disposition {
        Disposition::Leave => core.state.space.eviction(ext),
        Disposition::Go(How::Move | How::Promote, dev) => Action::Move { dev: *dev, base: 0, packed: None },
        _ => return disposition,
    };
    let placing = Placing { target: Target::Live { key, offset }, was: identity(ext), action };
    if !core.is_held(&placing) {
        return disposition;
    }
    let here = &core.state.space.get(ext.dev).spec.name;
    Disposition::Stay(format!(
        "it shares its place with a snapshot, or the original of one, that is pinned to `{here}`"
    ))
}

fn disposition_among(core: &Core, views: &[DeviceView], at: usize, ext: &Ext, what: &Arrange) -> Disposition {
    let named = |name: &String| views.iter().position(|view| *view.name == **name);
    let bytes = u64::from(ext.len);
    let has_room = |i: &usize| views[*i].is_online() && views[*i].room_bytes() >= bytes;
    let has_copy = core.state.space.has_readable_copy(ext);
    let lowest = || views.iter().rposition(|view| view.takes(true));
    let to = match what {
        Arrange::Evict | Arrange::Release { .. } if ext.has_copy() && !has_copy => {
            let away = &core.state.space.get(ext.copy_dev).spec.name;
            return Disposition::Stay(format!("`{away}`, where its copy is, is away or fails"));
        }
        Arrange::Evict if has_copy => return Disposition::Leave,
        Arrange::Evict if at + 1 == views.len() => return Disposition::Already,
        Arrange::Evict => return Disposition::Stay("it has no copy on another tier".to_owned()),
        Arrange::Unpin | Arrange::Pin { to: None } => return Disposition::Already,
        Arrange::Promote { to: Some(name) }
        | Arrange::Demote { to: Some(name) }
        | Arrange::Archive { to: Some(name) }
        | Arrange::Release { to: Some(name) }
        | Arrange::Pin { to: Some(name) } => named(name),
        Arrange::Promote { to: None } if at == 0 => return Disposition::Already,
        Arrange::Promote { to: None } => (0..at).find(has_room),
        Arrange::Demote { to: None } => (at + 1..views.len()).find(has_room),
        Arrange::Archive { to: None } | Arrange::Release { to: None } => lowest(),
    };
    let Some(to) = to else { return Disposition::Stay(format!("no tier beyond `{}` has room for it", views[at].name)) };
    let Some(dev) = core.state.space.slot_of(views[to].id) else {
        return Disposition::Stay("that device is gone".to_owned());
    };
    match what {
        Arrange::Archive { .. } if ext.copy_on(dev).is_some() => Disposition::Already,
        Arrange::Release { .. } if ext.copy_on(dev).is_some() => Disposition::Leave,
        _ if to == at => Disposition::Already,
        Arrange::Archive { .. } if to > at => Disposition::Go(How::Archive, dev),
        Arrange::Archive { .. } | Arrange::Release { .. } if to < at => Disposition::Already, // below it
        Arrange::Release { .. } => {
            Disposition::Stay(format!("it has no copy on `{}`: archive it first", views[to].name))
        }
        Arrange::Pin { .. } if to < at => up(core, views, (at, to), ext, dev),
        Arrange::Promote { .. } if to > at => {
            Disposition::Stay(format!("`{}` is slower than `{}`, where it is", views[to].name, views[at].name))
        }
        Arrange::Promote { .. } => up(core, views, (at, to), ext, dev),
        _ if to < at => {
            Disposition::Stay(format!("`{}` is faster than `{}`, where it is", views[to].name, views[at].name))
        }
        _ if ext.copy_on(dev).is_some() && has_copy => Disposition::Leave,
        _ if !views[to].kind.is_persistent() => {
            Disposition::Stay(format!("`{}` does not survive power loss", views[to].name))
        }
        _ => Disposition::Go(How::Move, dev),
    }
}

/// Disposition of an extent that is to go to a faster tier.
#[allow(clippy::unused_self, reason = "one of the cases of what an arrangement makes of an extent")]
fn up(_core: &Core, views: &[DeviceView], (at, _to): (usize, usize), ext: &Ext, dev: DeviceIndex) -> Disposition {
    if !ext.has_copy() && !views[at].kind.is_persistent() {
        return Disposition::Stay("it has no copy that survives power loss yet: flush first".to_owned());
    }
    if ext.copy_on(dev).is_some() {
        // Its faster place is its copy: that becomes the only one.
        return Disposition::Leave;
    }
    Disposition::Go(How::Promote, dev)
}

/// Adds the disposition of an extent to an answer, and the move itself if `listed_why` is given.
pub fn tell(
    core: &Core,
    result: &mut Arrangement,
    (key, offset): (ObjectKey, u64),
    ext: &Ext,
    disposition: &Disposition,
    listed_why: Option<&str>,
) {
    let bytes = u64::from(ext.len);
    let from = core.state.space.get(ext.dev);
    let name = |dev: DeviceIndex| core.state.space.get(dev).spec.name.clone();
    let (to, cost_ns, why) = match disposition {
        Disposition::Stay(why) => {
            result.staying_bytes += bytes;
            if result.staying_why.is_empty() {
                result.staying_why.clone_from(why);
            }
            return;
        }
        Disposition::Already => {
            result.already_bytes += bytes;
            return;
        }
        Disposition::Spare => (String::new(), 0, "its copy is given up: what is read survives power loss itself"),
        Disposition::Leave => (name(ext.copy_dev), 0, "it has a copy there: it leaves without I/O"),
        Disposition::Go(how, dev) => {
            result.moved_bytes += bytes;
            let to = core.state.space.get(*dev).view().speed;
            let mut cost = from.view().speed.read_ns(bytes) + to.write_ns(bytes);
            let why = match how {
                How::Promote => "it stays where it is, too",
                How::Archive => {
                    cost += to.read_ns(bytes);
                    "a copy there, read back and compared"
                }
                How::Move | How::Copy => "as you said",
            };
            (name(*dev), cost as u64, why)
        }
    };
    result.ranges += 1;
    result.bytes += bytes;
    result.cost_ns += cost_ns;
    if let Some(rule) = listed_why
        && result.moves.len() < LISTED_MAX
    {
        let from = from.spec.name.clone();
        let why = if rule.is_empty() { why.to_owned() } else { format!("{rule}: {why}") };
        result.moves.push(ArrangeMove { key, offset, bytes, from, to, cost_ns, why });
    }
}

fn no_target(tier: &str, cause: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("tier `{tier}`")).because(cause).try_next("choose another tier")
}
