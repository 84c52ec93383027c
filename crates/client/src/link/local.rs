//! The transport to an engine in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote_device::SegmentFile;
use cenote_model::{DeviceId, Error, ErrorKind, Request, Result};
use cenote_server::{Client, Host};

use super::transport::{Done, Pending, RequestOutcome, Slot, Traffic, Transport, Unsent};
use crate::sync::{lock, read, write};

/// A service in this process, and its session for this client.
pub(super) struct Local {
    host: Arc<Host>,
    client: Client,
    traffic: Traffic,
    /// Held for reading while requests are handed over, for writing by the thread that ends this.
    gate: std::sync::RwLock<()>,
    retired: AtomicBool,
}

impl Local {
    pub fn new(host: Arc<Host>, client: Client, traffic: Traffic) -> Self {
        Self { host, client, traffic, gate: std::sync::RwLock::default(), retired: AtomicBool::new(false) }
    }
}

impl Transport for Local {
    fn submit(&self, request: Request, done: Done) -> Result<(), Unsent> {
        let open = read(&self.gate);
        if self.retired.load(Ordering::Relaxed) {
            return Err(Unsent { request, done });
        }
        let mut done = Some(done);
        let ready = {
            let mut engine = self.host.service.lock();
            // Numbered under the lock, so that numbers reach the engine in order.
            let seq = self.traffic.seq.fetch_add(1, Ordering::Relaxed);
            engine.handle(self.client.session, seq, request, || {
                let (done, arrivals) = (done.take(), self.traffic.arrivals.clone());
                Box::new(move |response| {
                    if let Some(done) = done {
                        done(response);
                    }
                    arrivals.note();
                })
            })
        };
        drop(open);
        if let (Some(response), Some(done)) = (ready, done) {
            done(response);
            self.traffic.arrivals.note();
        }
        Ok(())
    }
    fn ask(&self, request: Request) -> RequestOutcome {
        let _open = read(&self.gate);
        if self.retired.load(Ordering::Relaxed) {
            return RequestOutcome::NotTaken(request);
        }
        let mut slot = None;
        let mut engine = self.host.service.lock();
        let seq = self.traffic.seq.fetch_add(1, Ordering::Relaxed);
        let ready = engine.handle(self.client.session, seq, request, || {
            let filled = slot.insert(Slot::default()).clone();
            let arrivals = self.traffic.arrivals.clone();
            Box::new(move |response| {
                *lock(&filled) = Some(response);
                arrivals.note();
            })
        });
        ready.map_or_else(|| RequestOutcome::Later(slot.unwrap_or_default()), RequestOutcome::Answered)
    }
    fn progress(&self, seen: u64, patience: Duration) -> bool {
        self.traffic.arrivals.wait(seen, patience);
        true
    }
    fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)> {
        let missing =
            || Error::new(ErrorKind::NotFound, format!("device {device}")).because("the store has no such device");
        let _open = read(&self.gate);
        if self.retired.load(Ordering::Relaxed) {
            // A closed engine has no devices, which does not mean that the store has none.
            return Err(Error::new(ErrorKind::Disconnected, "the store").because("its engine has left this process"));
        }
        let device = self.host.service.device(device).ok_or_else(missing)?;
        let segment = device.segment(number)?;
        segment.map(|segment| (segment, true)).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("segment {number}"))
                .because("its device cannot be shared with clients")
        })
    }
    fn retire(&self) -> Vec<Pending> {
        let _alone = write(&self.gate);
        self.retired.store(true, Ordering::SeqCst);
        Vec::new() // the service finishes waiting requests before it closes
    }
    fn close(&self) -> Result<()> {
        self.retire();
        self.host.service.session_close(self.client.session);
        let result = self.host.close();
        // Views may outlive the session: their slots count until the process ends.
        if self.client.file.slots().min() == u64::MAX {
            self.host.client_remove(self.client.file.number());
        }
        result
    }
    fn resend(&self, _pending: Vec<Pending>) {} // nothing is ever pending: see `retire`
    fn host(&self) -> Option<&Host> {
        Some(&self.host)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use cenote_model::{DeviceKind, DeviceSpec, StoreConfig, TierOptions};
    use cenote_server::{OpenHow, this_process};

    use super::*;

    #[test]
    fn an_engine_that_has_left_does_not_say_that_devices_are_missing() {
        let dir = std::env::temp_dir().join(format!("cenote-local-{}", std::process::id()));
        let memory = DeviceSpec {
            name: "memory".into(),
            kind: DeviceKind::SharedMemory,
            path: PathBuf::new(),
            capacity_bytes: 4 << 20,
            watermark_high_permille: 900,
            watermark_low_permille: 800,
            options: TierOptions::default(),
        };
        let config = StoreConfig { devices: vec![memory], ..StoreConfig::default() };
        let how = OpenHow {
            create: Some(&config),
            create_new: true,
            policy_plugin: None,
            world: None,
            mirrored: false,
            places: None,
            is_granted: false,
        };
        let host = Arc::new(Host::open(&dir, &how).unwrap().unwrap());
        let (client, _alive) = host.client(&this_process(7, true), 0).unwrap();
        let device = host.service.with_engine(|engine| engine.device_infos()[0].id).unwrap();
        let local = Local::new(host.clone(), client, Traffic::begin());
        assert!(local.segment(device, 0).is_ok());
        assert_eq!(local.segment(DeviceId(99), 0).unwrap_err().kind(), ErrorKind::NotFound);
        local.close().unwrap();
        assert_eq!(local.segment(device, 0).unwrap_err().kind(), ErrorKind::Disconnected);
        drop(local);
        drop(host);
        cenote_server::destroy(&dir, true).unwrap();
    }
}
