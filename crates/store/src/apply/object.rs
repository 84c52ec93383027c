//! Creation and deletion of objects.

use cenote_model::{BLOCK_SHIFT_MAX, BLOCK_SHIFT_MIN, DeviceId, KeyCode, ObjectKey};

use super::{NO_CONTAINER, NO_OBJECT, Refusal, Step, Txn, refuse};
use crate::objects::Presence;
use crate::pins::PinChange;
use crate::state::EngineState;

impl EngineState {
    pub(super) fn object_create(&mut self, txn: &mut Txn, key: ObjectKey, block_shift: u8) -> Result<(), Refusal> {
        if !(BLOCK_SHIFT_MIN..=BLOCK_SHIFT_MAX).contains(&block_shift) {
            return Err(refuse(KeyCode::Invalid, "the block size must be 2^6 to 2^24 bytes"));
        }
        let at = self.containers.slot_of(key.container).ok_or(NO_CONTAINER)?;
        let container = self.containers.at_mut(at);
        let cuts = container.durable.cuts;
        if container.content.objects.contains_key(&key.object) {
            return Err(refuse(KeyCode::Exists, "the object exists already"));
        }
        let Some(slot) = self.objects.add(at, key.object, block_shift, txn.epoch, cuts) else {
            return Err(refuse(KeyCode::Limit, "a store holds at most 2^32 objects"));
        };
        self.containers.at_mut(at).content.objects.insert(key.object, slot);
        self.pins.forget(key);
        self.objects.get_mut(slot).last.touched = self.now.s;
        txn.steps.push(Step::ObjectCreated { slot });
        Ok(())
    }

    /// Pins a new object as a whole. The pin goes with the creation, if that is taken back.
    pub(super) fn object_keep(&mut self, txn: &Txn, key: ObjectKey, device: DeviceId) -> Result<(), Refusal> {
        let slot = self.find_object(key).ok_or(NO_OBJECT)?;
        if !txn.steps.iter().any(|step| matches!(step, Step::ObjectCreated { slot: new } if *new == slot)) {
            return Err(refuse(KeyCode::Invalid, "only an object that the same request creates can get a tier so"));
        }
        // A journal may name a tier that was removed later.
        if !self.space.replaying && self.space.slot_of(device).is_none() {
            return Err(refuse(KeyCode::NotFound, "no such tier"));
        }
        self.pins.change(PinChange::Range(key, (0, u64::MAX), Some(device)));
        Ok(())
    }

    pub(super) fn object_delete(&mut self, txn: &mut Txn, key: ObjectKey) -> Result<(), Refusal> {
        let slot = self.find_object(key).ok_or(NO_OBJECT)?;
        let object = self.objects.get_mut(slot);
        object.presence = Presence::Detached;
        let mapped = object.map.mapped_bytes();
        self.space.extents -= object.map.extents();
        let container = self.containers.at_mut(self.objects.get(slot).container);
        container.content.objects.remove(&key.object);
        container.content.stored_bytes -= mapped;
        txn.steps.push(Step::ObjectDeleted { slot });
        Ok(())
    }
}
