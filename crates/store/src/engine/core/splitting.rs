//! Splits extents that are too long for the room or the move at hand.

use cenote_model::DeviceId;

use super::Core;
use crate::map::Ext;
use crate::placing::{Action, Placing, Target, identity};
use crate::sums::UNIT;
use crate::undo::Change;

impl Core {
    /// Splits an extent that found no room in one piece: the first part is as long as the longest free piece. Returns
    /// the second part, or `None` if a split does not help.
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

    /// Splits an extent: the first part has as many whole checksum units as `bytes` hold. Returns the second part, or
    /// `None` if the extent has no such boundary or the journal does not take it.
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
