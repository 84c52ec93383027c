//! What a home needs so that other nodes have copies of it: its changes in order, and until when it may answer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cenote_device::control::boot_ns;
use cenote_device::mirror::{MirroredDevices, MirroredFiles, Source, Stream};
use cenote_device::{MetaDir, SharedControl};
use cenote_model::{Error, ErrorKind, HomeId, NodeId, Response};
use cenote_store::{Seams, file_kind};

use crate::Service;

/// See the module.
pub(crate) struct Mirroring {
    /// The changes.
    pub stream: Arc<Stream>,
    /// What a new copy begins with.
    pub source: Source,
    /// Tells this opening of the home from others.
    pub number: u64,
    lease: Lease,
    /// Until when the register's last answer counts, in nanoseconds of the same clock, whoever is the home's host.
    heard_until: AtomicU64,
    /// The table in which readers of this node see it.
    table: Arc<SharedControl>,
}

/// Once the register has been silent for so much longer than its last answer counts, requests fail. Before that it may be on
/// its way back, and whoever asks waits.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Until when a host may answer, in nanoseconds of the clock that goes on while the machine sleeps.
struct Lease(AtomicU64);

impl Mirroring {
    /// Wraps the seams of a home: all its changes are noted. `table`: that of the seams, which is attached before a lease
    /// is set. `number` must differ from that of other openings.
    pub fn wrap(seams: Seams, table: Arc<SharedControl>, number: u64) -> (Seams, Arc<Self>) {
        let stream = Arc::<Stream>::default();
        let inner: Arc<dyn MetaDir> = seams.meta.clone();
        let devices = Arc::new(MirroredDevices::new(seams.devices.clone(), stream.clone()));
        let source = Source::new(inner.clone(), &devices, stream.clone(), file_kind);
        let files = Arc::new(MirroredFiles::new(inner, stream.clone(), file_kind));
        let (lease, heard_until) = (Lease(AtomicU64::new(u64::MAX)), AtomicU64::new(boot_ns()));
        let this = Self { stream, source, number, lease, heard_until, table };
        (Seams { meta: files, devices, ..seams }, Arc::new(this))
    }
    /// Sets until when the home may answer.
    pub fn set_lease(&self, until_ns: u64) {
        self.lease.0.store(until_ns, Ordering::SeqCst);
        self.table.trust_until(until_ns);
    }
    /// The register has answered. That counts until this time.
    pub fn heard(&self, until_ns: u64) {
        self.heard_until.fetch_max(until_ns, Ordering::SeqCst);
    }
    /// Why requests are answered with an error by now: the register has been silent for long. What they asked may have been
    /// carried out, and may be lost if the home goes on elsewhere.
    pub fn refusal(&self, home: HomeId) -> Option<Error> {
        let silent_ns = boot_ns().saturating_sub(self.heard_until.load(Ordering::SeqCst));
        if self.may_act() || silent_ns < SILENCE_MAX.as_nanos() as u64 {
            return None;
        }
        Some(
            Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!(
                    "this node has not heard the cluster's register for {} s, so another node may be its host by now; a \
                     change may have been carried out or not",
                    silent_ns / 1_000_000_000
                ))
                .try_next("see with `cenote ha` which nodes are missing, start them or mend the network, and try again"),
        )
    }
    /// Returns true if the home may answer now, as far as time is concerned.
    pub fn may_act(&self) -> bool {
        self.lease_left_ns() > 0
    }
    /// For how long the home may still answer; `u64::MAX` if nobody grants leases.
    pub fn lease_left_ns(&self) -> u64 {
        let until = self.lease.0.load(Ordering::SeqCst);
        if until == u64::MAX { until } else { until.saturating_sub(boot_ns()) }
    }
    /// Returns true if an answer may be told that was given after so many changes.
    pub fn may_tell(&self, after: u64) -> bool {
        after <= self.stream.kept() && self.may_act()
    }
    /// Returns true if requests should be taken. Without a lease they are, too, and what they ask is not told.
    pub fn may_take(&self, home: HomeId) -> bool {
        !self.stream.is_full() || self.refusal(home).is_some()
    }
    /// Why a request that was taken is not carried out: what mirrors lack is too much already, and the register is silent.
    pub fn refusal_of_more(&self, home: HomeId) -> Option<Error> {
        if self.stream.is_full() { self.refusal(home) } else { None }
    }
    /// The answer to [`cenote_model::Request::Protect`], which may be told once the mirrors have all that was done before.
    pub fn protects(&self, home: HomeId, losses: u32) -> Response {
        let has = self.stream.required();
        if has >= losses as usize {
            return Response::Done;
        }
        Response::Failed(
            Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!("{has} nodes mirror it, and the loss of {losses} is to be survived"))
                .try_next("`cenote ha` shows what is being copied, and to which node"),
        )
    }
    /// Queues everything for a mirror. Blocks while the mirror is slow.
    pub fn copy_to(&self, service: &Service, node: NodeId, progress: &dyn Fn(u64, u64)) -> cenote_model::Result<()> {
        let used = |device| service.with_engine(|engine| engine.used_ranges(device)).unwrap_or_default();
        self.source.copy_to(node, &used, progress)
    }
}

/// Answers that may not be told yet, each with the number of changes that the mirrors must have first.
pub(crate) struct Held<T>(VecDeque<(u64, T)>);

impl<T> Default for Held<T> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Held<T> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Keeps an answer that was just given. Returns it if it may be told at once.
    pub fn keep(&mut self, mirroring: &Mirroring, answer: T) -> Option<T> {
        let after = mirroring.stream.end();
        if self.is_empty() && mirroring.may_tell(after) {
            return Some(answer);
        }
        self.0.push_back((after, answer));
        None
    }
    /// The next answer that may be told by now, with the error that is to be told in its place, if any.
    pub fn next(&mut self, mirroring: &Mirroring, home: HomeId) -> Option<(T, Option<Error>)> {
        let (after, _) = self.0.front()?;
        let refusal = if mirroring.may_tell(*after) { None } else { Some(mirroring.refusal(home)?) };
        self.0.pop_front().map(|(_, answer)| (answer, refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cenote_device::Control as _;
    use cenote_device::mem::{MemClock, MemControl, MemDevices, MemMetaDir};
    use cenote_model::{DeviceId, StoreId};

    #[test]
    fn a_host_without_a_lease_tells_nothing() {
        let seams = Seams {
            meta: Arc::new(MemMetaDir::default()),
            devices: Arc::new(MemDevices::new(1 << 20)),
            clock: Arc::<MemClock>::default(),
            control: Arc::new(MemControl::new(64)),
        };
        let base = std::env::temp_dir().join(format!("cenote-mirroring-{}", std::process::id()));
        std::fs::create_dir_all(&base).unwrap();
        let table = Arc::new(SharedControl::new(&base));
        table.attach(StoreId(1)).unwrap();
        let (seams, mirroring) = Mirroring::wrap(seams, table, 1);
        assert!(mirroring.may_tell(0) && mirroring.may_take(HomeId(1)));
        let spec = "name=m,kind=memory,size=1MiB".parse().unwrap();
        let device = seams.devices.open(StoreId(1), DeviceId(1), &spec, true).unwrap().device;
        mirroring.stream.require(&[NodeId(2)]);
        device.write_at(0, b"x").unwrap();
        assert!(!mirroring.may_tell(mirroring.stream.end()), "the mirror does not have it");
        mirroring.stream.require(&[]);
        assert!(mirroring.may_tell(mirroring.stream.end()));
        mirroring.set_lease(boot_ns().saturating_sub(1));
        assert!(!mirroring.may_tell(0));
        assert!(mirroring.refusal(HomeId(1)).is_none(), "the register may be back in a moment");
        mirroring.heard_until.store(boot_ns().saturating_sub(31_000_000_000), Ordering::SeqCst);
        assert_eq!(mirroring.refusal(HomeId(1)).unwrap().kind(), ErrorKind::Busy);
        mirroring.heard(boot_ns().saturating_sub(5));
        assert!(mirroring.refusal(HomeId(1)).is_none(), "it has been heard since, and others are host");
        mirroring.heard_until.store(0, Ordering::SeqCst);
        assert!(matches!(mirroring.protects(HomeId(1), 1), Response::Failed(error) if error.kind() == ErrorKind::Busy));
        mirroring.stream.require(&[NodeId(2)]);
        assert_eq!(mirroring.protects(HomeId(1), 1), Response::Done);
        mirroring.stream.require(&[]);
        mirroring.set_lease(boot_ns() + 3_600_000_000_000);
        assert!(mirroring.may_tell(0) && mirroring.refusal(HomeId(1)).is_none());
        std::fs::remove_dir_all(&base).unwrap();
    }
}
