//! Makes a checkpoint without the engine, from the last one and the journal since then, as a recovery does. It touches
//! no device and no memory of the engine, and must not know when checkpoints are due.

use cenote_device::MetaDir;
use cenote_model::{ContainerId, DeviceId, DeviceSpec, Error, ErrorKind, Result};

use crate::checkpoint::{Head, decode, encode, file_name};
use crate::engine::core::{Core, slot_with};
use crate::engine::open::{begin_replay, find_shared, replay_record};
use crate::journal::{Kind, read_between};
use crate::pins::Pins;
use crate::space::{DeviceSlot, RetiredQueue};
use crate::state::EngineState;
use crate::times::Times;

/// A checkpoint to be made: where it begins, and what the journal does not say.
pub struct Advance {
    /// Sequence number of the checkpoint from which it is made.
    from: u64,
    devices: Vec<Device>,
    /// The next ids of containers, sessions and cuts: the journal does not say which were drawn for what was refused.
    next_ids: [u64; 3],
    times: Times,
    /// The pins that the engine has. It drops those of deleted objects with each attempt at a checkpoint, also one that
    /// fails, and the journal does not say so.
    pins: Pins,
    /// The containers whose extents share space. An opening takes out those that stopped.
    sharing: Vec<ContainerId>,
    bytes_hint: usize,
}

/// A device as the checkpoint knows it.
struct Device {
    id: DeviceId,
    spec: DeviceSpec,
    removed: bool,
    incarnation: u64,
    capacity_bytes: u64,
    unit_bytes: u32,
    segment_bytes: u64,
    retired: RetiredQueue,
}

impl Device {
    fn of(slot: &DeviceSlot) -> Self {
        let space = &slot.space;
        Self {
            id: slot.id,
            spec: slot.spec.clone(),
            removed: slot.removed,
            incarnation: slot.incarnation,
            capacity_bytes: space.map.units() * u64::from(space.unit_bytes),
            unit_bytes: space.unit_bytes,
            segment_bytes: space.segment_bytes,
            retired: space.retired.clone(),
        }
    }
    /// Returns a slot without the device itself.
    fn slot(&self) -> DeviceSlot {
        let units = (self.unit_bytes, self.segment_bytes);
        let slot = slot_with(self.id, &self.spec, None, self.capacity_bytes, units, self.incarnation);
        DeviceSlot { removed: self.removed, ..slot }
    }
}

impl Advance {
    /// Takes from the engine what the journal does not say at its present position.
    pub fn new(core: &Core, from: u64, bytes_hint: usize) -> Self {
        let sharing = core.state.containers.ids_of(|container| container.shares);
        let devices = core.state.space.slots.iter().map(Device::of).collect();
        let state = &core.state;
        let next_ids = [state.containers.next_id, state.sessions.next_id, state.cuts.next_id];
        let (times, pins) = (state.times.clone(), state.pins.clone());
        Self { from, devices, next_ids, times, pins, sharing, bytes_hint }
    }

    /// Returns the bytes of the checkpoint. Fails if the checkpoint or the journal that it is made from cannot be read,
    /// or do not lead to where the engine was.
    pub fn encode(self, meta: &dyn MetaDir, head: &Head) -> Result<Vec<u8>> {
        let name = file_name(self.from);
        let mut state = EngineState::default();
        state.space.slots.extend(self.devices.iter().map(Device::slot));
        let (old, _) = decode(&name, &meta.read_file(&name)?.into(), &mut state)?;
        begin_replay(&mut state, &[]);
        find_shared(&mut state);
        let files = (old.journal_from, head.journal_from);
        let position = read_between(meta, head.store, files, &mut |record| match record.kind {
            Kind::Synced => Ok(()),
            _ => replay_record(&mut state, &record),
        })?;
        if (old.store, position, state.epoch) != (head.store, head.position, head.epoch) {
            return Err(Error::new(ErrorKind::Internal, format!("the checkpoint after `{name}`"))
                .because("it would not end where the engine was"));
        }
        state.space.replaying = false;
        for (slot, device) in state.space.slots.iter_mut().zip(self.devices) {
            (slot.incarnation, slot.space.retired) = (device.incarnation, device.retired);
        }
        [state.containers.next_id, state.sessions.next_id, state.cuts.next_id] = self.next_ids;
        state.times = self.times;
        for container in state.containers.iter_mut() {
            container.shares = self.sharing.binary_search(&container.id).is_ok();
        }
        state.pins = self.pins;
        Ok(encode(&state, head, self.bytes_hint))
    }
}
