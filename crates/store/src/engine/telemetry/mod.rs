//! Telemetry of the engine. The engine counts what it applies and moves; clients count their reads in files of
//! their own, which the control table shows.

mod counting;
mod hot;
mod sweep;

use std::collections::BTreeMap;

use cenote_device::control::{ClientCounts, READS_SAMPLED_IN, WRITES_TIMED_IN};
use cenote_model::{
    ClientTelemetry, ContainerTelemetry, DeviceId, DeviceState, ErrorKind, Flow, FlowEnd, FlowWhy, HOT_MAX, HotObject,
    Latency, ObjectKey, Request, Response, Telemetry, Timed,
};

use super::{Core, Engine, Outcome};
use crate::StoreCosts;
use crate::map::{DeviceIndex, NO_DEVICE};
use crate::placing::{Action, Placing};

pub use counting::Counting;
pub use counting::REQUESTS_TIMED_IN;
pub(crate) use counting::SessionCounts;
pub use sweep::Sweep;

/// Most containers in an answer.
pub const CONTAINERS_MAX: usize = 256;
/// Most extents inspected for the tiers of one hot object…
const HOT_EXTENTS_MAX: usize = 16_384;
/// …and of all hot objects.
const HOT_EXTENTS_ALL: usize = 131_072;

impl Engine {
    /// Turns counting off, or on again. The counts stay.
    pub fn set_counting(&mut self, enabled: bool) {
        self.core.observed.counting.enabled = enabled;
    }

    /// Takes a duration that the engine's caller measured. Of requests it measures one in [`REQUESTS_TIMED_IN`].
    pub fn note_took(&mut self, what: Timed, ns: u64) {
        self.core.observed.counting.took(what, ns);
    }

    /// Returns what the store costs a node that has a copy of it.
    pub fn costs(&self) -> StoreCosts {
        let mut costs = StoreCosts { written: self.core.journal.position(), ..StoreCosts::default() };
        for slot in self.core.state.space.present().filter(|slot| !slot.spec.kind.is_object()) {
            let bytes = slot.used_bytes();
            let sum = if slot.spec.kind.is_persistent() { &mut costs.disk } else { &mut costs.memory };
            *sum = sum.saturating_add(bytes);
        }
        let written = &self.core.observed.counting.written;
        costs.written = written.iter().fold(costs.written, |sum, one| sum.saturating_add(one.bytes));
        costs
    }

    /// Returns the answer to [`Request::Telemetry`], for callers that have the engine and no session.
    pub fn telemetry(&mut self, hot: u32) -> Telemetry {
        self.core.update_clock();
        self.core.observed.sweep.step(&self.core.state);
        let seen = self.core.seams.control.client_counts();
        let mut devices = self.core.device_infos();
        devices.sort_by_key(|info| (info.spec.kind, info.id));
        let stats = match self.read(Request::Stats) {
            Ok(Response::Stats(stats)) => stats,
            _ => cenote_model::StoreStats::default(),
        };
        Telemetry {
            uptime_ns: self.core.state.now.ns.saturating_sub(self.core.store.opened_ns),
            unix_ms: self.core.seams.clock.unix_ms(),
            enabled: self.core.observed.counting.enabled,
            stats,
            devices,
            flows: self.core.flows(&seen),
            hot: self.core.hot_objects(hot.min(HOT_MAX) as usize),
            heat: self.core.observed.sweep.rows(&self.core.state),
            clients: self.core.clients(&seen),
            users: self.core.user_shares(),
            containers: self.core.container_uses(),
            latencies: self.core.latencies(&seen),
            counts: self.core.observed.counting.counts,
        }
    }
}

/// Returns the sum of all clients' counts.
fn sum_of(seen: &[ClientCounts]) -> ClientCounts {
    let mut all = ClientCounts::default();
    for client in seen {
        all.add(client);
    }
    all
}

impl Core {
    /// Counts leases that were not granted.
    pub fn note_lease(&mut self, outcome: Outcome) -> Outcome {
        if let Outcome::Ready(Response::Failed(error)) = &outcome {
            self.observed.counting.counts.stalls += u64::from(error.kind() == ErrorKind::Busy);
            self.observed.counting.counts.refusals += u64::from(error.kind() == ErrorKind::Full);
        }
        outcome
    }

    /// Counts a placing that is about to be done.
    pub fn note_placing(&mut self, placing: &Placing) {
        let (from, bytes) = (placing.was.dev, u64::from(placing.was.len));
        let (to, why) = match placing.action {
            Action::Copy { dev, .. } => (dev, FlowWhy::Durability),
            Action::Move { dev, .. } => {
                let (leaving, there) = (self.state.space.get(from), self.state.space.get(dev));
                let why = if from == dev {
                    FlowWhy::Rewrite
                } else if leaving.state == DeviceState::Draining {
                    FlowWhy::Evacuation
                } else if there.spec.kind < leaving.spec.kind {
                    FlowWhy::Promotion
                } else {
                    FlowWhy::Demotion
                };
                (dev, why)
            }
            Action::Promote { dev, .. } if self.note_prefetched(placing) => (dev, FlowWhy::Prefetch),
            Action::Promote { dev, .. } => (dev, FlowWhy::Promotion),
            Action::Evict { copy } => {
                let ext = self.state.target_mut(placing.target);
                let copy = ext.and_then(|ext| ext.device_of_copy(usize::from(copy)));
                (copy.unwrap_or(NO_DEVICE), FlowWhy::Eviction)
            }
            Action::Split { .. } | Action::DropCopy { .. } => return,
        };
        if !matches!(placing.action, Action::Copy { .. } | Action::Promote { .. }) {
            self.note_left(placing);
        }
        if to != NO_DEVICE {
            self.observed.counting.moved(from, to, why, bytes);
        }
    }

    fn flows(&self, seen: &[ClientCounts]) -> Vec<Flow> {
        let mut flows = Vec::new();
        let mut add = |from, to, why, bytes, operations| {
            if operations > 0 {
                flows.push(Flow { from, to, why, bytes, operations });
            }
        };
        for (device, sum) in self.observed.counting.written.iter().enumerate() {
            let tier = FlowEnd::Tier(DeviceId(device as u16));
            add(FlowEnd::Client, tier, FlowWhy::Write, sum.bytes, sum.operations);
        }
        let all = sum_of(seen);
        for (tier, reads, bytes) in all.reads {
            let from = tier.map_or(FlowEnd::Engine, FlowEnd::Tier);
            add(from, FlowEnd::Client, FlowWhy::Read, bytes, reads);
        }
        let tier = |dev: DeviceIndex| FlowEnd::Tier(self.state.space.get(dev).id);
        for ((from, to, why), sum) in &self.observed.counting.moved {
            add(tier(*from), tier(*to), *why, sum.bytes, sum.operations);
        }
        for (dev, sum) in self.observed.counting.verified.iter().enumerate() {
            add(tier(dev as DeviceIndex), FlowEnd::Engine, FlowWhy::Verify, sum.bytes, sum.operations);
        }
        flows
    }

    fn hot_objects(&mut self, count: usize) -> Vec<HotObject> {
        let now_s = self.state.now.s;
        let mut budget = HOT_EXTENTS_ALL;
        let top = self.observed.counting.hot.top(count, now_s);
        top.into_iter().filter_map(|(key, score)| self.hot_object(key, score, &mut budget)).collect()
    }

    fn hot_object(&mut self, key: ObjectKey, score: u64, budget: &mut usize) -> Option<HotObject> {
        let Ok(slot) = self.object(key) else {
            self.observed.counting.hot.forget(key);
            return None;
        };
        let object = self.state.objects.get(slot);
        let mut tiers: BTreeMap<DeviceIndex, u64> = BTreeMap::new();
        for (_, ext) in object.map.iter().take(HOT_EXTENTS_MAX.min(*budget)) {
            *budget -= 1;
            for dev in ext.places().map(|place| place.dev) {
                *tiers.entry(dev).or_default() += u64::from(ext.len);
            }
        }
        Some(HotObject {
            key,
            label: self.state.containers.at(object.container).label.clone(),
            size: object.size,
            score,
            idle_ms: u64::from(self.state.now.s.saturating_sub(object.last.touched)) * 1000,
            tiers: tiers.into_iter().map(|(dev, bytes)| (self.state.space.get(dev).id, bytes)).collect(),
        })
    }

    fn clients(&self, seen: &[ClientCounts]) -> Vec<ClientTelemetry> {
        let client = |(id, session): (&crate::SessionId, &crate::session::Session)| {
            let mut own = ClientCounts::default();
            let files = seen.iter().filter(|counts| counts.session == id.0 && id.0 != 0);
            for counts in files {
                own.add(counts);
                own.program.clone_from(&counts.program);
            }
            ClientTelemetry {
                session: id.0,
                pid: session.info.pid,
                uid: session.info.uid,
                program: own.program,
                write: session.info.write,
                written_bytes: session.counts.written_bytes,
                writes: session.counts.writes,
                read_bytes: own.reads.iter().fold(0, |sum, (.., bytes)| sum.saturating_add(*bytes)),
                reads: own.reads.iter().fold(0, |sum, (_, reads, _)| sum.saturating_add(*reads)),
                requests: session.counts.requests,
                leased_bytes: session.leases.values().sum(),
            }
        };
        self.state.sessions.open.iter().map(client).collect()
    }

    fn container_uses(&self) -> Vec<ContainerTelemetry> {
        let containers = self.state.containers.iter().filter(|container| container.snapshot.is_none());
        let mut containers: Vec<_> = containers.filter(|container| !self.is_out_of_sight(container)).collect();
        let all: u64 = containers.iter().map(|container| container.content.stored_bytes).sum();
        containers.sort_by_key(|container| (std::cmp::Reverse(container.content.stored_bytes), container.id));
        containers.truncate(CONTAINERS_MAX);
        let share = |bytes: u64| (u128::from(bytes) * 1000 / u128::from(all.max(1))) as u16;
        containers
            .into_iter()
            .map(|container| ContainerTelemetry {
                id: container.id,
                label: container.label.clone(),
                objects: container.objects_seen(),
                stored_bytes: container.content.stored_bytes,
                quota_bytes: container.spec.quota_bytes,
                share_permille: share(container.content.stored_bytes),
            })
            .collect()
    }

    fn latencies(&self, seen: &[ClientCounts]) -> Vec<Latency> {
        let all = sum_of(seen);
        let by_clients = all.latencies.into_iter().map(|(what, tier, histogram)| {
            let sampled_in = if what == Timed::Get { READS_SAMPLED_IN } else { WRITES_TIMED_IN };
            Latency { what, tier, sampled_in, histogram }
        });
        let own = Timed::ALL.into_iter().filter(|what| !matches!(what, Timed::Get | Timed::Put)).map(|what| {
            let is_sampled = matches!(what, Timed::Apply | Timed::Ask | Timed::Lease);
            let sampled_in = if is_sampled { REQUESTS_TIMED_IN } else { 1 };
            Latency { what, tier: None, sampled_in, histogram: self.observed.counting.histogram(what) }
        });
        by_clients.chain(own).filter(|latency| !latency.histogram.counts.is_empty()).collect()
    }
}
