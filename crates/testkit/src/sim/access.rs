//! Steps that inspect everything, and accesses to the engine's devices without injected faults.

use cenote_model::{DeviceId, Extent};
use cenote_store::{SessionId, SessionInfo};

use super::{Check, Sim, trace};
use crate::access::read_extent;
use crate::survey::{Survey, survey};

impl Sim {
    /// Reads an extent as a client does. `None`: refused because of injected damage.
    pub(super) fn read_extent(&mut self, extent: &Extent) -> Check<Option<Vec<u8>>> {
        let fault = self.is_faulty(extent.device);
        let Some(device) = self.engine().device(extent.device) else {
            if fault {
                return Ok(None);
            }
            return Err(format!("{extent:?} is on a device that is not there"));
        };
        self.world.faults.pause(true);
        let bytes = read_extent(&device, extent);
        self.world.faults.pause(false);
        match bytes {
            Ok(bytes) => Ok(Some(bytes)),
            Err(_) if self.flips > 0 => Ok(None),
            // Only an error is excused, never wrong bytes.
            Err(why) if fault && !why.starts_with("checksum") => Ok(None),
            Err(why) => Err(why),
        }
    }
    /// Turns faults off for the test's own accesses, which read what is on media.
    pub(super) fn pause(&self, on: bool) {
        self.world.faults.pause(on);
        self.world.weather.pause(on);
        self.world.service.quiet(on);
    }
    /// The session of the test itself.
    pub(super) fn observer(&mut self) -> Check<SessionId> {
        let info = SessionInfo { nonce: u128::MAX, pid: 1, started: 1, uid: 0, write: false, ..SessionInfo::default() };
        self.pause(true);
        let mut session = self.engine().session_open(info.clone());
        // A journal that could not be synced accepts nothing until a checkpoint is written, which is tried now and
        // then.
        for _ in 0..2 {
            if session.is_ok() || !self.hurt {
                break;
            }
            self.world.clock.advance_ns(3_000_000_000);
            self.job_take();
            session = self.engine().session_open(info.clone());
        }
        self.pause(false);
        session.map_err(|e| format!("observer: {e}"))
    }
    /// The content of the whole store.
    pub(super) fn survey(&mut self) -> Check<Survey> {
        let page = *self.rng.pick(&[1, 3, 100, 1000]);
        let session = self.observer()?;
        self.pause(true);
        let result = survey(self.engine(), session, page);
        self.pause(false);
        let found = result?;
        self.summary.packed += found.packed;
        let excused = |why: &&String| self.is_maimed() && !why.contains("checksum");
        if let (Some(why), 0) = (found.refusals.iter().find(|why| !excused(why)), self.flips) {
            return Err(format!("refused though nothing was damaged: {why}"));
        }
        for client in &self.clients {
            for (_, run) in &client.leases {
                let taken = found.used.iter().find(|used| {
                    used.device == run.device
                        && used.offset < run.offset + run.len
                        && run.offset < used.offset + used.len
                });
                if let Some(used) = taken {
                    return Err(format!("{run:?}, leased to client {}, is in use: {used:?}", client.info.nonce));
                }
            }
        }
        Ok(found)
    }
    /// Compares everything with the model.
    pub(super) fn look_at_everything(&mut self) -> Check {
        trace!(self.trace, "look at everything");
        let found = self.survey()?;
        found.observed.compare(self.oracle.current()).map_err(|e| format!("the store is not what it must be: {e}"))
    }
    /// Flips a bit of a byte that some extent uses, or of any byte.
    pub(super) fn flip(&mut self) -> Check {
        let found = self.survey()?;
        if found.used.is_empty() {
            return Ok(());
        }
        let used = *self.rng.pick(&found.used);
        let offset = used.offset + self.rng.below(used.len);
        let store = self.engine().id();
        let xor = 1u8 << self.rng.below(8);
        trace!(self.trace, "bit flip {xor:#x} at {offset} of {}", used.device);
        if self.world.devices.corrupt(store, DeviceId(used.device.0), offset, xor) {
            self.flips += 1;
        }
        Ok(())
    }
}
