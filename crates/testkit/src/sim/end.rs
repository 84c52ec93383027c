//! The end of a run: everybody leaves, the store comes to rest, and nothing may be lost, hang or leak.

use cenote_model::{FlushTarget, Request, Response};

use cenote_store::Outcome;

use super::client::Goal;
use super::{Check, Sim, trace};
use crate::survey::used_bytes;

const ROUNDS_MAX: usize = 400;

impl Sim {
    pub(super) fn end(&mut self) -> Check {
        trace!(self.trace, "the end: everybody leaves");
        self.world.faults.heal();
        self.window_open = false;
        if self.hurt || self.died {
            self.crash(false)?;
            self.world.faults.heal();
        }
        while !self.readers.is_empty() {
            self.reader_end()?;
        }
        self.rest()?;
        if let Some(client) = self.clients.iter().find(|client| client.alive && !client.sent.is_empty()) {
            return Err(format!(
                "HANG: {:?} of client {} never gets its answer",
                client.sent[0].request, client.info.nonce
            ));
        }
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.client_open()?;
        let upto = self.oracle.len();
        self.ask(0, &Request::Flush { target: FlushTarget::Store }, &Goal::Flush { container: None, upto })?;
        self.rest()?;
        if let (Some(sent), 0) = (self.clients[0].sent.first(), self.flips) {
            return Err(format!("HANG: {:?} never gets its answer", sent.request));
        }
        self.look_at_everything()?;
        if self.flips == 0 {
            self.check_space()?;
        }
        let power = self.rng.chance(500);
        trace!(self.trace, "and once more after a crash");
        self.crash(power)?;
        self.look_at_everything()
    }
    /// Background work until there is none left.
    pub(super) fn rest(&mut self) -> Check {
        let mut idle = 0;
        for _ in 0..ROUNDS_MAX {
            self.world.clock.advance_ns(20_000_000);
            self.tick()?;
            let before = self.summary.jobs;
            loop {
                self.job_take();
                if self.jobs.is_empty() {
                    break;
                }
                self.job_run();
            }
            while !self.jobs_done.is_empty() {
                self.job_finish()?;
            }
            self.take_answers()?;
            idle = if before == self.summary.jobs { idle + 1 } else { 0 };
            if idle > 3 {
                return Ok(());
            }
        }
        Err(format!("HANG: still busy after {ROUNDS_MAX} rounds"))
    }
    /// With nobody there and everything flushed, the space in use is that of the extents.
    fn check_space(&mut self) -> Check {
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.rest()?;
        let found = self.survey()?;
        let session = self.observer()?;
        let engine = self.engine();
        let expected = used_bytes(&found, engine);
        let Outcome::Ready(Response::Devices(devices)) = engine.handle(session, 0, Request::Devices) else {
            return Err("Devices must answer at once".into());
        };
        for device in devices {
            let live = expected.get(&device.id).copied().unwrap_or(0);
            if device.used_bytes != live || device.reserved_bytes != 0 {
                return Err(format!(
                    "device {} `{}`: {} bytes used and {} reserved at rest, but extents take {live}",
                    device.id, device.spec.name, device.used_bytes, device.reserved_bytes
                ));
            }
        }
        self.client_open()
    }
}
