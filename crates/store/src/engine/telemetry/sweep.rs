//! Recency of use by tier: a sweep over all objects, a bounded number at a time.

use cenote_model::{HEAT_AGES, HEAT_AGES_S, HeatRow};

use crate::map::DeviceIndex;
use crate::objects::Presence;
use crate::state::EngineState;

/// Most objects inspected at a time.
const OBJECTS: u32 = 16_384;
/// Most extents inspected at a time.
const EXTENTS: usize = 32_768;

/// Position of the sweep.
#[derive(Default)]
pub struct Sweep {
    hand: u32,
    /// By device slot: results of the current round…
    now: Vec<Ages>,
    /// …and of the last complete one.
    whole: Vec<Ages>,
}

#[derive(Clone, Copy, Default)]
struct Ages {
    bytes: [u64; HEAT_AGES],
    objects: [u64; HEAT_AGES],
}

impl Sweep {
    /// Continues the sweep. Called whenever somebody asks for the results.
    pub fn step(&mut self, state: &EngineState) {
        let slots = state.objects.slots();
        let (mut objects, mut extents) = (0, 0);
        let mut seen = vec![0u64; state.space.slots.len()];
        loop {
            if self.hand >= slots {
                self.whole = std::mem::take(&mut self.now);
                self.hand = 0;
                return; // never more than one round at a time
            }
            if objects >= OBJECTS || extents >= EXTENTS {
                return;
            }
            let object = state.objects.get(self.hand);
            self.hand += 1;
            objects += 1;
            if object.presence != Presence::Live || !is_counted(state, object.container) {
                continue;
            }
            let idle_s = state.now.s.saturating_sub(object.last.touched);
            let age = HEAT_AGES_S.iter().position(|end| idle_s < *end).unwrap_or(HEAT_AGES - 1);
            let mut devices: Vec<DeviceIndex> = Vec::new();
            for (_, ext) in object.map.iter() {
                extents += 1;
                for dev in ext.places().map(|place| place.dev) {
                    if seen[dev as usize] == 0 {
                        devices.push(dev);
                    }
                    seen[dev as usize] += u64::from(ext.len);
                }
            }
            for dev in devices {
                let dev = dev as usize;
                if self.now.len() <= dev {
                    self.now.resize(dev + 1, Ages::default());
                }
                self.now[dev].bytes[age] += std::mem::take(&mut seen[dev]);
                self.now[dev].objects[age] += 1;
            }
        }
    }
    /// Returns the results of the last complete round, or those of the first round so far.
    pub fn rows(&self, state: &EngineState) -> Vec<HeatRow> {
        let ages = if self.whole.is_empty() { &self.now } else { &self.whole };
        let slots = state.space.slots.iter().enumerate().filter(|(_, slot)| !slot.removed);
        slots
            .map(|(dev, slot)| {
                let Ages { bytes, objects } = ages.get(dev).copied().unwrap_or_default();
                HeatRow { tier: slot.id, bytes, objects }
            })
            .collect()
    }
}

/// Returns true if the container exists, and its bytes are not those of another one.
fn is_counted(state: &EngineState, container: u32) -> bool {
    state.containers.is_taken(container) && {
        let container = state.containers.at(container);
        container.snapshot.is_none() && state.containers.get(container.id).is_some()
    }
}
