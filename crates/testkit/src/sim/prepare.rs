//! A store with content and history, as a crash or a clean close leaves it, for sweeps over its bytes.

use cenote_model::{DeviceInfo, FlushTarget, Request, Response, StoreId};
use cenote_store::{Outcome, Tuning};

use super::client::Goal;
use super::trace::Trace;
use super::{Check, Inject, Sim};
use crate::oracle::Oracle;
use crate::survey::Used;
use crate::world::World;

/// A store at rest.
pub struct Prepared {
    /// Its world.
    pub world: World,
    /// Its id.
    pub id: StoreId,
    /// Its expected content.
    pub oracle: Oracle,
    /// Its devices.
    pub devices: Vec<DeviceInfo>,
    /// The settings that it was opened with.
    pub tuning: Tuning,
    /// The bytes of its devices that extents use.
    pub used: Vec<Used>,
}

/// Runs `steps` steps of a seed without faults. `clean`: then flushes and closes; otherwise the process just
/// dies.
pub fn prepare(seed: u64, steps: u64, clean: bool) -> Result<Prepared, String> {
    let trace = Trace::new(false, false);
    let mut sim = Sim::new(seed, &trace, Inject::Rest)?.ok_or("no store")?;
    sim.client_open()?;
    for _ in 0..steps {
        sim.step()?;
    }
    sim.leave(clean)
}

impl Sim {
    fn leave(mut self, clean: bool) -> Check<Prepared> {
        if clean {
            self.drop_readers(|_| true);
            while !self.clients.is_empty() {
                self.client_bury(0);
            }
            self.client_open()?;
            let upto = self.oracle.len();
            self.ask(0, &Request::Flush { target: FlushTarget::Store }, &Goal::Flush { container: None, upto })?;
            self.rest()?;
        }
        let used = self.survey()?.used;
        let session = self.observer()?;
        let Outcome::Ready(Response::Devices(devices)) = self.engine().handle(session, 0, Request::Devices) else {
            return Err("Devices must answer at once".into());
        };
        let id = self.engine().id();
        if clean {
            self.engine().close().map_err(|e| format!("close: {e:?}"))?;
        }
        self.engine = None;
        self.world.kill();
        let tuning = self.profile.tuning;
        Ok(Prepared { world: self.world.clone(), id, oracle: self.oracle.clone(), devices, tuning, used })
    }
}
