//! A machine of tiers with queues and a discrete clock, which runs the policies of this crate as the engine does.
//!
//! Each tier serves one request at a time, in order of arrival: `latency + bytes / bandwidth`. Background movement begins
//! only when both tiers are idle, or had less than a fifth of a busy one's time; a piece that has begun is not interrupted. Volatile bytes
//! are written back in the
//! background. A policy is asked where new bytes go, and every 20 ms (or when a tier is too full) what should move.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cenote_model::{ContainerId, DeviceId, DeviceKind, Durability, ObjectId, ObjectKey, Speed};
use cenote_policy::prefetch::{AccessProfile, Prefetcher};
use cenote_policy::{
    Action, Coming, Decision, DeviceView, FastFirst, Heat, Incoming, Limits, Policy, RangeView, Rhythm, check_decision,
    check_plan, excess_bytes,
};

use crate::traces::{Op, Trace};

mod background;

const PLAN_NS: u64 = 20_000_000;
const PRESSURE_NS: u64 = 200_000;
const MS: u64 = 1_000_000;

/// The tiers: speeds of the devices in document 003, capacities in the same proportions.
pub fn tiers() -> Vec<DeviceView> {
    let tier = |id: u16, name: &str, kind, mib: u64, latency_ns: f64, read: f64, write: f64| {
        let speed = Speed {
            read_latency_ns: latency_ns,
            write_latency_ns: latency_ns,
            read_bandwidth: read * 1e6,
            write_bandwidth: write * 1e6,
        };
        DeviceView { speed, ..DeviceView::new(DeviceId(id), name, kind, mib << 20) }
    };
    vec![
        tier(1, "ram", DeviceKind::SharedMemory, 64, 500.0, 13_000.0, 10_000.0),
        tier(2, "nvme", DeviceKind::File, 128, 20e3, 2_800.0, 1_900.0),
        tier(3, "ssd", DeviceKind::Directory, 512, 60e3, 550.0, 500.0),
        tier(4, "hdd", DeviceKind::Directory, 64 << 10, 4.16e6, 115.0, 95.0),
    ]
}

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Time that clients waited for I/O, on average, plus the final flush.
    pub io_s: f64,
    /// Time of the final flush, which `io_s` includes.
    pub flush_s: f64,
    /// Times of each range's reads, in ms: the knowledge of an oracle.
    pub reads: Vec<Vec<u32>>,
    pub decisions: u64,
    pub plans: u64,
    pub moved_bytes: u64,
    /// For each tier: reads, their waits in ms, writes, their waits in ms, background time in ms.
    pub by_tier: [[f64; 5]; 4],
}

struct Range {
    object: usize,
    number: u32,
    bytes: u64,
    device: usize,
    copy: Option<usize>,
    heat: Heat,
    exists: bool,
    scratch: bool,
    version: u32,
    moving: bool,
    coming: Option<(u64, f32)>,
    made_ms: u64,
}

struct Tier {
    view: DeviceView,
    busy_until: u64,
    /// Nanoseconds of background movement on it while it was busy.
    background_ns: u64,
    /// Nanoseconds of work for clients since the last plan, and the busy share before that.
    foreground_ns: u64,
    busy: f32,
}

#[derive(Clone, Copy)]
struct Client {
    at: usize,
    waited_ns: u64,
    since: u64,
    blocked: bool,
    retries: u32,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Ready(usize),
    Moved { range: usize, version: u32, to: usize, kind: u8 },
    Plan,
    Pump,
}

/// Knowledge of the future: reads of each range, in ms, from an earlier run.
pub type Future = Vec<Vec<u32>>;

pub struct Sim<'a> {
    trace: &'a Trace,
    policy: &'a dyn Policy,
    future: Option<&'a Future>,
    with_prefetch: bool,
    now: u64,
    tiers: Vec<Tier>,
    ranges: Vec<Range>,
    firsts: Vec<usize>,
    clients: Vec<Client>,
    prefetchers: Vec<Prefetcher>,
    rhythms: Vec<Rhythm>,
    /// For objects with many ranges.
    object_rhythms: Vec<Rhythm>,
    store_rhythm: Rhythm,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    moves: VecDeque<(usize, Action)>,
    dirty: VecDeque<usize>,
    waiting: usize,
    /// Space that writers wait for.
    wanted: Vec<(usize, DeviceId, u64)>,
    busy: f32,
    last_plan: u64,
    last_observed: u64,
    flushing: bool,
    blocked_io: usize,
    outcome: Outcome,
}

impl<'a> Sim<'a> {
    pub fn new(trace: &'a Trace, policy: &'a dyn Policy, future: Option<&'a Future>, with_prefetch: bool) -> Self {
        let mut tiers: Vec<Tier> = tiers()
            .into_iter()
            .map(|view| Tier { view, busy_until: 0, background_ns: 0, foreground_ns: 0, busy: 0.0 })
            .collect();
        let lowest = tiers.len() - 1;
        let (mut ranges, mut firsts) = (Vec::new(), Vec::new());
        for (object, it) in trace.objects.iter().enumerate() {
            firsts.push(ranges.len());
            for number in 0..it.ranges {
                if it.preloaded {
                    tiers[lowest].view.used_bytes += it.range_bytes;
                }
                ranges.push(Range {
                    object,
                    number,
                    bytes: it.range_bytes,
                    device: lowest,
                    copy: None,
                    heat: Heat::default(),
                    exists: it.preloaded,
                    scratch: it.scratch,
                    version: 0,
                    moving: false,
                    coming: None,
                    made_ms: 0,
                });
            }
        }
        let clients = trace.clients.len();
        let client = Client { at: 0, waited_ns: 0, since: 0, blocked: false, retries: 0, done: false };
        let outcome = Outcome { reads: vec![Vec::new(); ranges.len()], ..Outcome::default() };
        let labels = trace.objects.len();
        Self {
            trace,
            policy,
            future,
            with_prefetch,
            now: 0,
            tiers,
            ranges,
            firsts,
            clients: vec![client; clients],
            prefetchers: (0..clients).map(|_| Prefetcher::new(24, AccessProfile::default())).collect(),
            rhythms: vec![Rhythm::default(); labels],
            object_rhythms: vec![Rhythm::default(); labels],
            store_rhythm: Rhythm::default(),
            events: BinaryHeap::new(),
            sequence: 0,
            moves: VecDeque::new(),
            dirty: VecDeque::new(),
            waiting: 0,
            wanted: Vec::new(),
            busy: 0.0,
            last_plan: 0,
            last_observed: 0,
            flushing: false,
            blocked_io: 0,
            outcome,
        }
    }

    fn at(&mut self, when: u64, event: Event) {
        self.sequence += 1;
        self.events.push(Reverse((when, self.sequence, event)));
    }
    fn now_ms(&self) -> u64 {
        1_000 + self.now / MS
    }
    /// Labels distinguish containers.
    fn container(&self, object: usize) -> usize {
        let label = self.trace.objects[object].label;
        self.trace.objects.iter().position(|other| other.label == label).unwrap_or(object)
    }
    fn rhythm(&self, object: usize) -> &Rhythm {
        let own = &self.object_rhythms[object];
        if own.is_telling() { own } else { &self.rhythms[self.container(object)] }
    }
    fn key(&self, object: usize) -> ObjectKey {
        ObjectKey { container: ContainerId(1 + self.container(object) as u64), object: ObjectId(object as u128) }
    }

    pub fn run(mut self) -> Outcome {
        for client in 0..self.clients.len() {
            self.at(0, Event::Ready(client));
        }
        self.at(PLAN_NS, Event::Plan);
        let mut ended = None;
        while let Some(Reverse((when, _, event))) = self.events.pop() {
            self.now = when;
            match event {
                Event::Ready(client) => self.ready(client),
                Event::Moved { range, version, to, kind } => self.moved(range, version, to, kind),
                Event::Plan => {
                    self.plan(false);
                    if !self.flushing {
                        self.at(self.now + PLAN_NS, Event::Plan);
                    }
                }
                Event::Pump => {}
            }
            if ended.is_none() && self.clients.iter().all(|client| client.done) {
                ended = Some(self.now);
                self.flushing = true;
                self.moves.clear();
            }
            self.pump();
            if ended.is_some() && !self.ranges.iter().any(|range| self.is_dirty(range)) {
                break;
            }
        }
        let waited: u64 = self.clients.iter().map(|client| client.waited_ns).sum();
        self.outcome.flush_s = self.now.saturating_sub(ended.unwrap_or(self.now)) as f64 / 1e9;
        self.outcome.io_s = waited as f64 / 1e9 / self.clients.len() as f64 + self.outcome.flush_s;
        self.outcome
    }

    fn is_dirty(&self, range: &Range) -> bool {
        let volatile = !self.tiers[range.device].view.kind.is_persistent();
        range.exists && !range.scratch && volatile && range.copy.is_none()
    }

    fn ready(&mut self, client: usize) {
        if self.clients[client].blocked {
            self.clients[client].blocked = false;
            self.blocked_io -= 1;
            self.clients[client].waited_ns += self.now - self.clients[client].since;
        }
        let Some(op) = self.trace.clients[client].get(self.clients[client].at).copied() else {
            self.clients[client].done = true;
            return;
        };
        match op {
            Op::Think(ns) => {
                self.clients[client].at += 1;
                self.at(self.now + ns, Event::Ready(client));
            }
            Op::Barrier => {
                self.waiting += 1;
                self.clients[client].at += 1;
                if self.waiting == self.clients.len() {
                    self.waiting = 0;
                    (0..self.clients.len()).for_each(|client| self.at(self.now, Event::Ready(client)));
                }
            }
            Op::Read(range) => self.read(client, range as usize),
            Op::Write(range) => self.write(client, range as usize),
        }
    }

    fn occupies(&mut self, client: usize, until: u64) {
        if self.clients[client].retries == 0 {
            self.clients[client].since = self.now;
        }
        self.clients[client].blocked = true;
        self.blocked_io += 1;
        self.at(until, Event::Ready(client));
    }

    fn read(&mut self, client: usize, range: usize) {
        self.clients[client].at += 1;
        let now_ms = self.now_ms();
        let tier = self.ranges[range].device;
        let bytes = self.ranges[range].bytes;
        let begin = self.now.max(self.tiers[tier].busy_until);
        let until = begin + self.tiers[tier].view.speed.read_ns(bytes) as u64;
        self.tiers[tier].busy_until = until;
        self.tiers[tier].foreground_ns += until - begin;
        self.clients[client].retries = 0;
        self.outcome.by_tier[tier][0] += 1.0;
        self.outcome.by_tier[tier][1] += (until - self.now) as f64 / 1e6;
        self.occupies(client, until);
        let container = self.container(self.ranges[range].object);
        let heat = self.ranges[range].heat;
        self.rhythms[container].read(now_ms, &heat);
        let object = self.ranges[range].object;
        self.object_rhythms[object].read(now_ms, &heat);
        self.ranges[range].heat.read(now_ms, bytes);
        self.ranges[range].coming = None;
        self.outcome.reads[range].push((self.now / MS) as u32);
        let (object, offset) = (self.ranges[range].object, u64::from(self.ranges[range].number) * bytes);
        let key = self.key(object);
        self.prefetchers[client].read(now_ms, key, offset, bytes);
        if self.with_prefetch {
            for foreseen in self.prefetchers[client].ahead() {
                let Ok(object) = usize::try_from(foreseen.object.object.0) else { continue };
                let number = (foreseen.offset / self.trace.objects[object].range_bytes) as usize;
                if number < self.trace.objects[object].ranges as usize {
                    let due = now_ms + foreseen.in_ms as u64;
                    self.ranges[self.firsts[object] + number].coming = Some((due, foreseen.confidence.min(0.98)));
                }
            }
        }
    }

    fn views(&self) -> Vec<DeviceView> {
        let mut evictable = vec![0; self.tiers.len()];
        for range in self.ranges.iter().filter(|range| range.exists && range.copy.is_some()) {
            evictable[range.device] += range.bytes;
        }
        let view = |(i, tier): (usize, &Tier)| {
            let mut view = tier.view.clone();
            let busy_ns = tier.busy_until.saturating_sub(self.now) as f64;
            view.queued_write_bytes = (busy_ns * view.speed.write_bandwidth / 1e9) as u64;
            view.evictable_bytes = evictable[i];
            view.busy = tier.busy;
            view
        };
        self.tiers.iter().enumerate().map(view).collect()
    }

    fn truth(&self, range: usize) -> Option<Coming> {
        let future = self.future?;
        let now = (self.now / MS) as u32;
        let reads = &future[range];
        let next = reads.get(reads.partition_point(|at| *at <= now));
        Some(Coming { in_ms: next.map_or(u32::MAX, |at| at - now), confidence: 1.0 })
    }

    fn write(&mut self, client: usize, range: usize) {
        let now_ms = self.now_ms();
        let bytes = self.ranges[range].bytes;
        let object = self.ranges[range].object;
        let container = self.container(object);
        let views = self.views();
        let mut places = vec![0; self.tiers.len()];
        for other in &self.ranges[self.firsts[object]..][..self.trace.objects[object].ranges as usize] {
            places[other.device] += if other.exists { other.bytes } else { 0 };
        }
        let places: Vec<_> = places.iter().enumerate().map(|(i, bytes)| (self.tiers[i].view.id, *bytes)).collect();
        let heat = self.ranges[range].heat;
        let durability = if self.ranges[range].scratch { Durability::Scratch } else { Durability::Async };
        let incoming = Incoming {
            label: self.trace.objects[object].label,
            object: Some(self.key(object)),
            unit: Some(object as u64),
            unit_places: &places,
            heat: self.ranges[range].exists.then_some(&heat),
            coming: self.truth(range),
            rhythm: Some(&self.rhythms[container]),
            now_ms,
            now_unix_ms: now_ms,
            ..Incoming::new(durability, bytes)
        };
        self.outcome.decisions += 1;
        let decision = self.policy.place(&views, &incoming);
        let tier = match decision {
            Ok(decision) => {
                check_decision(&decision, &views, &incoming).expect("a sound decision");
                match decision {
                    Decision::Place { device, .. } => self.index(device),
                    Decision::Wait { device, expected_ns, .. } => {
                        let again = self.clients[client].retries < 20;
                        if again {
                            self.wanted.retain(|(other, ..)| *other != client);
                            self.wanted.push((client, device, bytes));
                            self.plan_at_once();
                            let until = self.now + expected_ns.clamp(50_000, 50_000_000);
                            self.occupies(client, until);
                            self.clients[client].retries += 1;
                            return;
                        }
                        // The patience is used up.
                        FastFirst
                            .place(&views, &incoming)
                            .map_or(self.tiers.len() - 1, |placed| self.index(placed.device()))
                    }
                }
            }
            Err(refusal) => panic!("{}: {}", self.policy.name(), refusal.reason),
        };
        self.clients[client].at += 1;
        self.put(range, tier, now_ms);
        let begin = self.now.max(self.tiers[tier].busy_until);
        let until = begin + self.tiers[tier].view.speed.write_ns(bytes) as u64;
        self.tiers[tier].busy_until = until;
        self.tiers[tier].foreground_ns += until - begin;
        self.outcome.by_tier[tier][2] += 1.0;
        self.outcome.by_tier[tier][3] += (until - self.now) as f64 / 1e6;
        self.occupies(client, until);
        self.clients[client].retries = 0;
        self.rhythms[container].wrote(now_ms, bytes);
        self.object_rhythms[object].wrote(now_ms, bytes);
        self.store_rhythm.wrote(now_ms, bytes);
        if excess_bytes(&self.tiers[tier].view) > 0 {
            self.plan_at_once();
        }
    }

    /// Puts new bytes of a range on a tier; the old ones are dropped.
    fn put(&mut self, range: usize, tier: usize, now_ms: u64) {
        let it = &mut self.ranges[range];
        if it.exists {
            self.tiers[it.device].view.used_bytes -= it.bytes;
            if let Some(copy) = it.copy {
                self.tiers[copy].view.used_bytes -= it.bytes;
            }
        } else {
            it.made_ms = now_ms;
        }
        self.tiers[tier].view.used_bytes += it.bytes;
        (it.exists, it.device, it.copy, it.coming) = (true, tier, None, None);
        it.version += 1;
        it.heat.write(now_ms, it.bytes);
        if !self.tiers[tier].view.kind.is_persistent() && !it.scratch {
            self.dirty.push_back(range);
        }
    }

    fn index(&self, id: DeviceId) -> usize {
        self.tiers.iter().position(|tier| tier.view.id == id).expect("a known device")
    }

    fn plan_at_once(&mut self) {
        if self.now >= self.last_plan + PRESSURE_NS || self.last_plan == 0 {
            self.plan(true);
        }
    }

    /// Measures how busy devices have been since the last call.
    fn observe(&mut self) {
        let elapsed = (self.now - self.last_observed) as f32;
        for tier in &mut self.tiers {
            let weight = (elapsed / 500e6).min(1.0);
            let share = (std::mem::take(&mut tier.foreground_ns) as f32 / elapsed.max(1.0)).min(1.0);
            tier.busy += weight * (share - tier.busy);
        }
        self.last_observed = self.now;
    }

    fn plan(&mut self, room_only: bool) {
        if !room_only {
            self.observe();
        }
        self.last_plan = self.now;
        let share = self.blocked_io as f32 / self.clients.len() as f32;
        self.busy += 0.2 * (share - self.busy);
        self.outcome.plans += 1;
        let now_ms = self.now_ms();
        let ids: Vec<usize> =
            (0..self.ranges.len()).filter(|i| self.ranges[*i].exists && !self.ranges[*i].moving).collect();
        let views = self.views();
        let sample: Vec<RangeView<'_>> = ids
            .iter()
            .map(|i| {
                let range = &self.ranges[*i];
                let predicted = range
                    .coming
                    .filter(|(due, _)| due + 500 > now_ms)
                    .map(|(due, confidence)| Coming { in_ms: due.saturating_sub(now_ms) as u32, confidence });
                RangeView {
                    object: self.key(range.object),
                    offset: u64::from(range.number) * range.bytes,
                    bytes: range.bytes,
                    device: self.tiers[range.device].view.id,
                    copy: range.copy.map(|copy| self.tiers[copy].view.id),
                    durability: if range.scratch { Durability::Scratch } else { Durability::Async },
                    heat: range.heat,
                    is_pinned: false,
                    label: self.trace.objects[range.object].label,
                    name: None,
                    object_bytes: u64::from(self.trace.objects[range.object].ranges) * range.bytes,
                    age_ms: now_ms - range.made_ms,
                    unit: Some(range.object as u64),
                    coming: predicted,
                    rhythm: Some(self.rhythm(range.object)),
                }
            })
            .collect();
        let mut wanted: Vec<(DeviceId, u64)> = Vec::new();
        for &(_, id, bytes) in &self.wanted {
            match wanted.iter_mut().find(|(other, _)| *other == id) {
                Some((_, sum)) => *sum += bytes,
                None => wanted.push((id, bytes)),
            }
        }
        let limits = Limits {
            now_ms,
            now_unix_ms: now_ms,
            rhythm: Some(&self.store_rhythm),
            room_wanted: &wanted,
            room_only,
            idle: (1.0 - self.busy).clamp(0.0, 1.0),
            ..Limits::default()
        };
        let plan = self.policy.plan(&views, &sample, &limits);
        check_plan(&plan, &views, &sample).expect("a sound plan");
        self.wanted.clear();
        if !room_only {
            self.moves.clear();
        }
        for planned in plan.moves {
            let range = ids[planned.range];
            if planned.action == Action::Evict {
                self.evict(range);
            } else if planned.action == Action::DropCopy {
                if let Some(copy) = self.ranges[range].copy.take() {
                    self.tiers[copy].view.used_bytes -= self.ranges[range].bytes;
                }
            } else if room_only {
                self.moves.push_front((range, planned.action));
            } else {
                self.moves.push_back((range, planned.action));
            }
        }
    }
}
