//! Placing (relocation): an extent gets a copy, moves to another device, or falls back to its copy.

use std::sync::Arc;

use cenote_model::{ContainerId, Durability, ObjectKey, Packed};

use crate::container::Container;
use crate::kin::is_same;
use crate::map::{Ext, ExtentMap, NO_DEVICE, Pieces};
use crate::space::Tag;
use crate::state::State;
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

/// What becomes of it. A `base` is where its run would begin on the device or, if it is `packed` there, where the first
/// unit that it touches begins.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// It gets a copy: device slot and base.
    Copy { dev: u8, base: u64, packed: Option<Arc<Packed>> },
    /// It moves there.
    Move { dev: u8, base: u64, packed: Option<Arc<Packed>> },
    /// Its copy becomes the only place.
    Evict,
    /// It gives up a copy that it does not need: its first place is persistent, or the data need not survive power
    /// loss.
    DropCopy,
    /// It is read from there, and its old place is kept as its copy: going back costs no I/O.
    Promote { dev: u8, base: u64, packed: Option<Arc<Packed>> },
    /// It is split at this byte of it, where a checksum unit begins: no device has room for a copy in one piece.
    Split { at: u32 },
}

impl Action {
    /// Returns how the extent is compressed at its new place.
    pub fn packed(&self) -> Option<&Arc<Packed>> {
        match self {
            Self::Copy { packed, .. } | Self::Move { packed, .. } | Self::Promote { packed, .. } => packed.as_ref(),
            Self::Evict | Self::DropCopy | Self::Split { .. } => None,
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

/// Identity of an extent at its place: device slot, run offset, skip, length.
pub(crate) type Identity = (u8, u64, u32, u32);

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
    (ext.dev, ext.run_offset, ext.skip, ext.len)
}

/// Where extents are kept, and which one of them is meant.
enum Home<'a> {
    Map(&'a mut ExtentMap, u64),
    Pieces(&'a mut Pieces, usize),
}

impl State {
    fn home(&mut self, target: Target) -> Option<Home<'_>> {
        match target {
            Target::Live { key, offset } => {
                let slot = self.find_object(key)?;
                Some(Home::Map(&mut self.objects.get_mut(slot).map, offset))
            }
            Target::Undo { container, number, piece } => {
                match &mut self.containers.get_mut(container)?.undo_mut(number)?.change {
                    Change::Range { pieces, .. } => Some(Home::Pieces(pieces, piece as usize)),
                    _ => None,
                }
            }
            Target::Detached { container, number, offset } => {
                let undo = self.containers.get_mut(container)?.undo_mut(number)?;
                let Change::ObjectDeleted { slot, .. } = undo.change else { return None };
                Some(Home::Map(&mut self.objects.get_mut(slot).map, offset))
            }
        }
    }

    /// Returns the extent at a target, if it exists.
    pub fn target_mut(&mut self, target: Target) -> Option<&mut Ext> {
        match self.home(target)? {
            Home::Map(map, offset) => map.get_mut(offset),
            Home::Pieces(pieces, piece) => pieces.get_mut(piece).map(|(_, ext)| ext),
        }
    }

    /// Returns true if the extent is unchanged and the action is possible.
    pub fn can_place(&mut self, placing: &Placing) -> bool {
        let Placing { target, was, ref action } = *placing;
        let volatile = self.space.is_volatile(was.0);
        let is_kept = match target {
            Target::Live { key, .. } => {
                let container = self.containers.get(key.container);
                container.is_none_or(|it| it.durability_of(key.object) != Durability::Scratch)
            }
            Target::Undo { .. } | Target::Detached { .. } => true,
        };
        self.target_mut(target).is_some_and(|ext| {
            let copied = ext.copy != NO_DEVICE;
            identity(ext) == was
                && action.packed().is_none_or(|packed| packed.run_len() == ext.hull().len())
                && match *action {
                    // A copy may replace another one, whose device is being emptied.
                    Action::Copy { dev, .. } => ext.copy != dev,
                    Action::Move { .. } => true,
                    // The place kept as the copy must survive power loss.
                    Action::Promote { dev, .. } => ext.dev != dev && ext.copy != dev && (copied || !volatile),
                    Action::Evict => copied,
                    Action::DropCopy => copied && !(volatile && is_kept),
                    Action::Split { at } => at > 0 && at < ext.len && (ext.skip + at).is_multiple_of(UNIT),
                }
        })
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

    /// Applies a placing. Call only if [`State::can_place`] allows it, with the result of [`State::twins`]. The caller
    /// must raise the version words of live objects. `shares`: another extent has the new place already.
    pub fn place(&mut self, placing: &Placing, twins: &[ObjectKey], shares: bool, tag: Tag) {
        self.place_one(placing, tag);
        if shares {
            self.share_place(placing);
        } else if placing.action.packed().is_some()
            && let Some(ext) = self.target_mut(placing.target).cloned()
            && let Some(place) =
                if matches!(placing.action, Action::Copy { .. }) { ext.copy_place() } else { Some(ext.place()) }
        {
            let hull = ext.hull();
            self.space.count_packed(place, (hull.begin, hull.end));
        }
        let Target::Live { offset, .. } = placing.target else { return };
        for key in twins {
            let twin = Placing { target: Target::Live { key: *key, offset }, ..placing.clone() };
            self.place_one(&twin, tag);
            self.share_place(&twin);
        }
    }

    /// Counts the new place as shared with the extent that has it already.
    fn share_place(&mut self, placing: &Placing) {
        let Some(ext) = self.target_mut(placing.target).cloned() else { return };
        match placing.action {
            Action::Copy { .. } => {
                if let Some(copy) = ext.copy_place() {
                    self.space.shared.touch_place(&ext, copy);
                }
            }
            Action::Move { .. } | Action::Promote { .. } => self.space.shared.touch_place(&ext, ext.place()),
            Action::Evict | Action::DropCopy | Action::Split { .. } => {}
        }
    }

    fn place_one(&mut self, placing: &Placing, tag: Tag) {
        let Some(ext) = self.target_mut(placing.target) else { return };
        let before = ext.clone();
        if !matches!(placing.action, Action::Split { .. }) {
            self.space.discount_copied(&before);
        }
        self.replace(placing, &before, tag);
        if !matches!(placing.action, Action::Split { .. })
            && let Some(after) = self.target_mut(placing.target).cloned()
        {
            self.space.count_copied(&after);
        }
    }

    fn replace(&mut self, placing: &Placing, before: &Ext, tag: Tag) {
        let Some(ext) = self.target_mut(placing.target) else { return };
        match &placing.action {
            Action::Copy { dev, base, packed } => {
                *ext = before.with_copy(*dev, *base, packed.clone());
                if let Some(copy) = before.copy_place() {
                    self.space.drop_place(before, copy, tag);
                }
            }
            Action::DropCopy => {
                *ext = before.without_copy();
                if let Some(copy) = before.copy_place() {
                    self.space.drop_place(before, copy, tag);
                }
            }
            Action::Evict => {
                *ext = before.at_copy();
                self.space.drop_place(before, before.place(), tag);
            }
            Action::Move { dev, base, packed } => {
                // An existing copy stays if the new place is volatile; else it goes with the old place.
                *ext = before.with_copy(*dev, *base, packed.clone()).at_copy();
                self.space.drop_place(before, before.place(), tag);
                if let Some(copy) = before.copy_place() {
                    self.space.drop_place(before, copy, tag);
                }
            }
            Action::Promote { dev, base, packed } => {
                // Of two existing places, the slower one stays the copy.
                *ext = before.promoted(*dev, *base, packed.clone());
                if before.copy != NO_DEVICE {
                    self.space.drop_place(before, before.place(), tag);
                }
            }
            // Both parts stay where they are, and touch no unit together.
            Action::Split { at } => {
                let at = *at;
                self.space.extents += u64::from(matches!(placing.target, Target::Live { .. }));
                match self.home(placing.target) {
                    Some(Home::Map(map, offset)) => map.split_in_two(offset, at),
                    Some(Home::Pieces(pieces, piece)) => pieces.split_in_two(piece, at),
                    None => {}
                }
            }
        }
    }
}
