//! Placing (relocation): an extent gets a copy, moves to another device, or falls back to its copy.

use std::sync::Arc;

use cenote_model::{Birth, ContainerId, Durability, ObjectKey, Packed};

use crate::container::Container;
use crate::kin::is_same;
use crate::map::{DeviceIndex, Ext, ExtentMap, NewPlace, Pieces};
use crate::space::Tag;
use crate::state::EngineState;
use crate::sums::UNIT;
use crate::undo::Change;

/// Where an extent is found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Target {
    /// At this offset of a live object.
    Live { key: ObjectKey, offset: u64 },
    /// In an undo entry, the piece of this number.
    Undo { container: ContainerId, number: u64, piece: u32 },
    /// At this offset of the object whose deletion is this undo entry.
    Detached { container: ContainerId, number: u64, offset: u64 },
}

/// Most copies of an extent. Layouts with more are yet to come; maps and media take any number.
const COPIES_MAX: usize = 1;

/// What becomes of it. Copies are named by their index. A `base` is where its run would begin on the device or, if it is `packed` there, where the first
/// unit that it touches begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// It gets a copy: a further one, or one in place of another.
    Copy { dev: DeviceIndex, base: u64, packed: Option<Arc<Packed>>, replaces: Option<u8> },
    /// It moves there.
    Move { dev: DeviceIndex, base: u64, packed: Option<Arc<Packed>> },
    /// A copy becomes the first place; the former one is given up.
    Evict { copy: u8 },
    /// It gives up a copy that it does not need: its first place is persistent, or the data need not survive power
    /// loss.
    DropCopy { copy: u8 },
    /// It is read from there, and its old place is kept as its copy: going back costs no I/O.
    Promote { dev: DeviceIndex, base: u64, packed: Option<Arc<Packed>> },
    /// It is split at this byte of it, where a checksum unit begins: no device has room for a copy in one piece.
    Split { at: u32 },
}

impl Action {
    /// Returns how the extent is compressed at its new place.
    pub fn packed(&self) -> Option<&Arc<Packed>> {
        match self {
            Self::Copy { packed, .. } | Self::Move { packed, .. } | Self::Promote { packed, .. } => packed.as_ref(),
            Self::Evict { .. } | Self::DropCopy { .. } | Self::Split { .. } => None,
        }
    }
    /// Returns the device of the new place, if there is one.
    pub fn dev(&self) -> Option<DeviceIndex> {
        self.new_place(Birth::default()).map(|new| new.dev)
    }
    /// Returns true if a copy is given up without anything in its place.
    pub fn is_drop(&self) -> bool {
        matches!(self, Self::DropCopy { .. })
    }
    /// Returns the new place. `None`: the extent gets none.
    fn new_place(&self, birth: Birth) -> Option<NewPlace<'_>> {
        match self {
            Self::Copy { dev, base, packed, .. }
            | Self::Move { dev, base, packed }
            | Self::Promote { dev, base, packed } => {
                Some(NewPlace { dev: *dev, base: *base, birth, packed: packed.as_ref() })
            }
            Self::Evict { .. } | Self::DropCopy { .. } | Self::Split { .. } => None,
        }
    }
    /// Corrects the new place: it is at `at` instead of `from`.
    pub fn land(&mut self, from: u64, at: u64, landed: Option<Arc<Packed>>) {
        if let Self::Copy { base, packed, .. } | Self::Move { base, packed, .. } | Self::Promote { base, packed, .. } =
            self
        {
            *base = if landed.is_some() { at } else { base.wrapping_add(at).wrapping_sub(from) };
            *packed = landed;
        }
    }
}

/// Identity of an extent at its first place.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Identity {
    pub dev: DeviceIndex,
    pub run_offset: u64,
    pub skip: u32,
    pub len: u32,
}

/// An extent, and what becomes of it if it is unchanged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placing {
    pub target: Target,
    /// Identity of the extent when the placing was made.
    pub was: Identity,
    pub action: Action,
}

/// Returns the identity of an extent.
pub(crate) fn identity(ext: &Ext) -> Identity {
    Identity { dev: ext.dev, run_offset: ext.run_offset, skip: ext.skip, len: ext.len }
}

/// Where extents are kept, and which one of them is meant.
enum Holder<'a> {
    Map(&'a mut ExtentMap, u64),
    Pieces(&'a mut Pieces, usize),
}

impl EngineState {
    fn holder(&mut self, target: Target) -> Option<Holder<'_>> {
        match target {
            Target::Live { key, offset } => {
                let slot = self.find_object(key)?;
                Some(Holder::Map(&mut self.objects.get_mut(slot).map, offset))
            }
            Target::Undo { container, number, piece } => {
                match &mut self.containers.get_mut(container)?.undo_mut(number)?.change {
                    Change::Range { pieces, .. } => Some(Holder::Pieces(pieces, piece as usize)),
                    _ => None,
                }
            }
            Target::Detached { container, number, offset } => {
                let undo = self.containers.get_mut(container)?.undo_mut(number)?;
                let Change::ObjectDeleted { slot, .. } = undo.change else { return None };
                Some(Holder::Map(&mut self.objects.get_mut(slot).map, offset))
            }
        }
    }

    /// Returns the extent at a target, if it exists.
    pub fn target_mut(&mut self, target: Target) -> Option<&mut Ext> {
        match self.holder(target)? {
            Holder::Map(map, offset) => map.get_mut(offset),
            Holder::Pieces(pieces, piece) => pieces.get_mut(piece).map(|(_, ext)| ext),
        }
    }

    /// Returns true if the extent is unchanged and the action is possible.
    pub fn can_place(&mut self, placing: &Placing) -> bool {
        let Placing { target, was, ref action } = *placing;
        let volatile = self.space.is_volatile(was.dev);
        let is_kept = match target {
            Target::Live { key, .. } => {
                let container = self.containers.get(key.container);
                container.is_none_or(|it| it.durability_of(key.object) != Durability::Scratch)
            }
            Target::Undo { .. } | Target::Detached { .. } => true,
        };
        self.target_mut(target).is_some_and(|ext| {
            let has = |copy: u8| usize::from(copy) < ext.copy_count();
            let is_new = |dev: DeviceIndex| ext.dev != dev && ext.copy_on(dev).is_none();
            identity(ext) == was
                && action.packed().is_none_or(|packed| packed.run_len() == ext.hull().len())
                && match *action {
                    // A copy may replace another one, whose device is being emptied.
                    Action::Copy { dev, replaces, .. } => {
                        ext.copy_on(dev).is_none() && replaces.map_or(ext.copy_count() < COPIES_MAX, has)
                    }
                    Action::Move { .. } => true,
                    // The place kept as the copy must survive power loss.
                    Action::Promote { dev, .. } => is_new(dev) && (ext.has_copy() || !volatile),
                    Action::Evict { copy } => has(copy),
                    Action::DropCopy { copy } => has(copy) && !(volatile && is_kept && ext.copy_count() == 1),
                    Action::Split { at } => at > 0 && at < ext.len && (ext.skip + at).is_multiple_of(UNIT),
                }
        })
    }

    /// Corrects which copy a finished one replaces: while it was made, the extent may have got one or lost it. A copy
    /// beyond the most that there may be replaces the last.
    pub fn choose_replaced(&mut self, placing: &mut Placing) {
        let Action::Copy { replaces, .. } = &mut placing.action else { return };
        let Some(count) = self.target_mut(placing.target).map(|ext| ext.copy_count()) else { return };
        if replaces.map_or(count >= COPIES_MAX, |copy| usize::from(copy) >= count) {
            *replaces = (count >= COPIES_MAX).then(|| count as u8 - 1);
        }
    }

    /// Returns the twins of an extent: the same extent of the same object in snapshots, or in the original, which moves
    /// with it. Extents split since then move separately.
    pub fn twins(&mut self, placing: &Placing) -> Vec<ObjectKey> {
        let Target::Live { key, offset } = placing.target else { return Vec::new() };
        if self.containers.has_no_snapshots() {
            return Vec::new();
        }
        let Some(family) = self.containers.get(key.container).and_then(Container::family) else { return Vec::new() };
        let Some(ext) = self.target_mut(placing.target).cloned() else { return Vec::new() };
        let members = [family].into_iter().chain(self.containers.snapshots_of(family).iter().copied());
        let members: Vec<ContainerId> = members.filter(|member| *member != key.container).collect();
        let mut twins = Vec::new();
        for container in members {
            let key = ObjectKey { container, ..key };
            let same = |other: &Ext| is_same(&ext, other);
            let slot = self.find_object(key);
            if slot.is_some_and(|slot| self.objects.get(slot).map.get(offset).is_some_and(same)) {
                twins.push(key);
            }
        }
        twins
    }

    /// Applies a placing. Call only if [`EngineState::can_place`] allows it, with the result of [`EngineState::twins`]. The caller
    /// must raise the version words of live objects. `shares`: another extent has the new place already.
    pub fn place(&mut self, placing: &Placing, twins: &[ObjectKey], shares: bool, tag: Tag) {
        // Those who share a place share its birth. The journal says of new places alone whether they are shared.
        let gets_a_place = placing.action.dev().is_some();
        let birth = if gets_a_place { self.space.births.of_place(shares) } else { Birth::default() };
        self.place_one(placing, birth, tag);
        if shares {
            self.share_place(placing);
        } else if placing.action.packed().is_some()
            && let Some(ext) = self.target_mut(placing.target).cloned()
            && let Some(place) = placing.action.dev().and_then(|dev| at_device(&ext, dev))
        {
            let hull = ext.hull();
            self.space.count_packed(place, (hull.begin, hull.end));
        }
        let Target::Live { offset, .. } = placing.target else { return };
        for key in twins {
            let twin = Placing { target: Target::Live { key: *key, offset }, ..placing.clone() };
            self.place_one(&twin, birth, tag);
            self.share_place(&twin);
        }
    }

    /// Counts the new place as shared with the extent that has it already.
    fn share_place(&mut self, placing: &Placing) {
        let Some(ext) = self.target_mut(placing.target).cloned() else { return };
        if let Some(place) = placing.action.dev().and_then(|dev| at_device(&ext, dev)) {
            self.space.shared.touch_place(&ext, place);
        }
    }

    fn place_one(&mut self, placing: &Placing, birth: Birth, tag: Tag) {
        let Some(ext) = self.target_mut(placing.target) else { return };
        let before = ext.clone();
        if !matches!(placing.action, Action::Split { .. }) {
            self.space.discount_copied(&before);
        }
        self.replace(placing, &before, birth, tag);
        if !matches!(placing.action, Action::Split { .. })
            && let Some(after) = self.target_mut(placing.target).cloned()
        {
            self.space.count_copied(&after);
        }
    }

    fn replace(&mut self, placing: &Placing, before: &Ext, birth: Birth, tag: Tag) {
        let Some(ext) = self.target_mut(placing.target) else { return };
        let new = placing.action.new_place(birth);
        match (&placing.action, new) {
            (Action::Copy { replaces, .. }, Some(new)) => {
                let old = replaces.map(usize::from);
                *ext = before.with_copy(new, old);
                if let Some(copy) = old.and_then(|old| before.copy_place(old)) {
                    self.space.drop_place(before, copy, tag);
                }
            }
            (Action::DropCopy { copy }, _) => {
                let copy = usize::from(*copy);
                *ext = before.without_copy(copy);
                if let Some(copy) = before.copy_place(copy) {
                    self.space.drop_place(before, copy, tag);
                }
            }
            (Action::Evict { copy }, _) => {
                *ext = before.at_copy(usize::from(*copy));
                self.space.drop_place(before, before.place(), tag);
            }
            (Action::Move { .. }, Some(new)) => {
                *ext = before.moved(new);
                before.places().for_each(|place| self.space.drop_place(before, place, tag));
            }
            (Action::Promote { .. }, Some(new)) => {
                // If it has copies, these stay, and the former first place goes.
                *ext = before.promoted(new);
                if before.has_copy() {
                    self.space.drop_place(before, before.place(), tag);
                }
            }
            // Both parts stay where they are, and touch no unit together.
            (Action::Split { at }, _) => {
                let at = *at;
                self.space.extents += u64::from(matches!(placing.target, Target::Live { .. }));
                match self.holder(placing.target) {
                    Some(Holder::Map(map, offset)) => map.split_in_two(offset, at),
                    Some(Holder::Pieces(pieces, piece)) => pieces.split_in_two(piece, at),
                    None => {}
                }
            }
            (Action::Copy { .. } | Action::Move { .. } | Action::Promote { .. }, None) => {}
        }
    }
}

/// Returns the place of an extent on a device.
fn at_device(ext: &Ext, dev: DeviceIndex) -> Option<crate::map::ExtentPlace<'_>> {
    ext.places().find(|place| place.dev == dev)
}
