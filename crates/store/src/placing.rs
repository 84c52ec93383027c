//! Extents get a copy, move to another device, or fall back to their copy.

use cenote_model::{ContainerId, ObjectKey};

use crate::map::{Ext, ExtentMap, NO_DEVICE, Pieces};
use crate::space::Tag;
use crate::state::State;
use crate::sums::UNIT;
use crate::undo::Change;

/// Where an extent is to be found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Target {
    /// At this offset of a live object.
    Live { key: ObjectKey, offset: u64 },
    /// In an undo entry, the piece of this number.
    Undo { container: ContainerId, number: u64, piece: u32 },
    /// At this offset of the object whose deletion is this undo entry.
    Detached { container: ContainerId, number: u64, offset: u64 },
}

/// What becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// It gets a copy: device slot and base.
    Copy { dev: u8, base: u64 },
    /// It moves there.
    Move { dev: u8, base: u64 },
    /// It has a copy, and the copy becomes the only place.
    Evict,
    /// It becomes two, the second one from this byte of it on, where a checksum unit begins: no device has room for a
    /// copy in one piece.
    Split { at: u32 },
}

/// What identifies an extent at its place: device slot, run offset, skip, length.
pub(crate) type Identity = (u8, u64, u32, u32);

/// An extent, and what becomes of it if it still is what it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Placing {
    pub target: Target,
    /// What the extent was.
    pub was: Identity,
    pub action: Action,
}

/// What identifies an extent at a target.
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

    /// The extent at a target, if it is there.
    pub fn target_mut(&mut self, target: Target) -> Option<&mut Ext> {
        match self.home(target)? {
            Home::Map(map, offset) => map.get_mut(offset),
            Home::Pieces(pieces, piece) => pieces.get_mut(piece).map(|(_, ext)| ext),
        }
    }

    /// True if the extent is still what it was and what is to become of it makes sense.
    pub fn can_place(&mut self, placing: &Placing) -> bool {
        let Placing { target, was, action } = *placing;
        self.target_mut(target).is_some_and(|ext| {
            let copied = ext.copy != NO_DEVICE;
            identity(ext) == was
                && match action {
                    // A copy may take the place of another one, whose device is being emptied.
                    Action::Copy { dev, .. } => ext.copy != dev,
                    Action::Move { .. } => true,
                    Action::Evict => copied,
                    Action::Split { at } => at > 0 && at < ext.len && (ext.skip + at).is_multiple_of(UNIT),
                }
        })
    }

    /// Does it; to be called only if [`State::can_place`]. The version word of a live object must be raised by the caller
    /// between this and retiring: `retire` is called with the places given up.
    pub fn place(&mut self, placing: &Placing, tag: Tag) {
        let Some(ext) = self.target_mut(placing.target) else { return };
        let before = ext.clone();
        match placing.action {
            Action::Copy { dev, base } => {
                (ext.copy, ext.copy_base) = (dev, base);
                if before.copy != NO_DEVICE {
                    self.space.drop_place(&before, before.copy, before.copy_base, tag);
                }
            }
            Action::Evict => {
                *ext = before.at_copy();
                self.space.drop_place(&before, before.dev, before.run_offset, tag);
            }
            Action::Move { dev, base } => {
                // A copy that it had stays if the new place is volatile; else it goes with the old place.
                *ext = Ext { copy: dev, copy_base: base, ..before.clone() }.at_copy();
                self.space.drop_ext(&before, tag);
            }
            // Both parts stay where they are, and touch no unit together.
            Action::Split { at } => {
                self.extents += u64::from(matches!(placing.target, Target::Live { .. }));
                match self.home(placing.target) {
                    Some(Home::Map(map, offset)) => map.split_in_two(offset, at),
                    Some(Home::Pieces(pieces, piece)) => pieces.split_in_two(piece, at),
                    None => {}
                }
            }
        }
    }
}
