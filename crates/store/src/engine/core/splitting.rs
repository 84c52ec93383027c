//! Extents that are too long for what is to be done with them are made two.

use cenote_model::DeviceId;

use super::Core;
use crate::map::Ext;
use crate::placing::{Action, Placing, Target, identity};
use crate::sums::UNIT;
use crate::undo::Change;

impl Core {
    /// There was no room for an extent in one piece: makes two of it, the first one as long as the longest piece of room.
    /// Gives the second one; `None` if that is of no use.
    pub fn split_for_room(
        &mut self,
        target: Target,
        ext: &Ext,
        moving: Option<(cenote_model::Durability, DeviceId)>,
    ) -> Option<Target> {
        let mut looked_at: Vec<DeviceId> = moving.iter().map(|(_, from)| *from).collect();
        let mut longest = 0;
        while let Some(dev) = self.device_for(u64::from(UNIT), moving, &looked_at) {
            let slot = self.state.space.get(dev);
            longest = slot.longest_free(u64::from(UNIT)).unwrap_or(0).max(longest);
            looked_at.push(slot.id);
        }
        self.split(target, ext, longest)
    }

    /// Makes two of an extent: the first has as many whole checksum units as `bytes` hold. Gives the second one; `None` if there
    /// is no such place in it, or the journal does not take it.
    pub fn split(&mut self, target: Target, ext: &Ext, bytes: u64) -> Option<Target> {
        let whole_units = bytes - bytes % u64::from(UNIT);
        if whole_units == 0 || whole_units >= u64::from(ext.hull().len()) {
            return None;
        }
        let at = ext.hull().begin + whole_units as u32 - ext.skip;
        self.place_all(&[Placing { target, was: identity(ext), action: Action::Split { at } }]).ok()?;
        Some(match target {
            Target::Live { key, offset } => Target::Live { key, offset: offset + u64::from(at) },
            Target::Detached { container, number, offset } => {
                Target::Detached { container, number, offset: offset + u64::from(at) }
            }
            Target::Undo { container, number, .. } => {
                let undo = self.state.containers.get_mut(container)?.undo_mut(number)?;
                let Change::Range { pieces, .. } = &undo.change else { return None };
                Target::Undo { container, number, piece: pieces.len() as u32 - 1 }
            }
        })
    }
}
