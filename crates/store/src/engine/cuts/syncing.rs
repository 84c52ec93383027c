//! Syncs devices for cuts.

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{Error, Result, Timed};

use super::Cutting;
use crate::engine::core::{Core, Effect};
use crate::map::DeviceIndex;
use crate::persist::{Cut, CutPhase, DeviceSet};
use crate::syncs::Syncs;
use crate::work::{Io, Job, Work};

/// Syncs devices.
struct SyncDevices(Vec<(Arc<dyn Device>, Arc<Syncs>)>);

impl Work for SyncDevices {
    /// The outcome for each device.
    type Output = Vec<Result<()>>;
    const TIMED: Timed = Timed::SyncDevices;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        self.0.iter().map(|(device, _)| device).collect()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        self.0.iter().map(|(device, syncs)| syncs.sync(device.as_ref())).collect()
    }
}

impl Cutting {
    /// Returns a job that syncs the next devices: those that cuts with complete copies have written to.
    pub fn next_sync_devices(&mut self, core: &mut Core) -> Option<Job> {
        core.advance_cuts();
        core.suspect_closed();
        let now = core.state.now.ns;
        let ready =
            |cut: &&Cut| cut.phase == CutPhase::Copied && cut.tries.retry_ns <= now && !core.state.has_suspect(cut);
        // A running sync may not cover writes made after it began, so wait for it.
        let busy = self.syncing;
        let present = core.state.space.present_set();
        let wrote = |cut: &Cut| cut.sync.wrote.common(present);
        let free = |cut: &&Cut| ready(cut) && !wrote(cut).meets(busy);
        let pending = &core.state.cuts.pending;
        let first = pending.values().filter(free).max_by_key(|cut| (cut.urgent, std::cmp::Reverse(cut.id)))?;
        // Sync each set of devices by itself: a slow device then holds up only cuts that wrote there.
        let set = wrote(first);
        let with = |cut: &&Cut| ready(cut) && wrote(cut).is_within(set);
        let cuts: Vec<u64> = pending.values().filter(with).map(|cut| cut.id).collect();
        for cut in &cuts {
            if let Some(cut) = core.state.cuts.get_mut(*cut) {
                cut.phase = CutPhase::Syncing;
            }
        }
        let mut slots = Vec::new();
        let mut devices = Vec::new();
        let mut synced = DeviceSet::default();
        for (i, slot) in core.state.space.slots.iter_mut().enumerate().filter(|(i, _)| set.has(*i as DeviceIndex)) {
            if let (true, Some(device)) = (std::mem::take(&mut slot.trust.unsynced), &slot.device) {
                synced.add(i as DeviceIndex);
                slots.push((i as DeviceIndex, slot.trust.failed_syncs));
                devices.push((Arc::clone(device), Arc::clone(&slot.trust.syncs)));
            }
        }
        self.syncing.add_all(synced);
        Some(core.start(Effect::FreesSpace, SyncDevices(devices), move |cutting: &mut Self, core, results| {
            cutting.syncing.remove_all(synced);
            finish_sync_devices(core, &slots, &cuts, results);
        }))
    }
}

fn finish_sync_devices(core: &mut Core, slots: &[(DeviceIndex, u64)], cuts: &[u64], results: Vec<Result<()>>) {
    let mut failure = None;
    let mut trusted = true;
    for ((dev, failed_before), result) in slots.iter().zip(results) {
        // An earlier sync may have failed and dropped pages, which this one does not report.
        core.look_at_syncs(*dev);
        trusted &= core.state.space.get(*dev).trust.failed_syncs == *failed_before;
        if let Err(error) = result {
            core.note_trouble(*dev, &error);
            let name = &core.state.space.get(*dev).spec.name;
            failure = Some(
                Error::new(error.kind(), format!("syncing device `{name}`"))
                    .because(if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() })
                    .try_next("check the device; what was written is written again and tried again"),
            );
        }
    }
    for id in cuts {
        let Some(cut) = core.state.cuts.get_mut(*id) else { continue };
        if failure.is_none() && trusted {
            // If the journal does not take the mark, the tick tries again from here.
            (cut.phase, cut.sync.is_needed) = (CutPhase::Drain, false);
            core.mark(*id);
        } else {
            cut.phase = CutPhase::Copied;
            if let Some(error) = &failure {
                core.cut_failed(*id, error);
            }
        }
    }
}
