//! A machine of tiers with queues and a discrete clock, on which the policies of this crate are run as the engine runs them.
//!
//! Each tier serves one request at a time, in order of arrival: `latency + bytes / bandwidth`. Background movement begins
//! only when both tiers are idle, or had less than a fifth of a busy one's time; a piece that has begun is not interrupted. Volatile bytes are written back in the
//! background. A policy is asked where new bytes go, and every 20 ms (or when a tier is too full) what should move.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use cenote_model::{ContainerId, DeviceId, DeviceKind, Durability, ObjectId, ObjectKey, Speed};
use cenote_policy::prefetch::{AccessProfile, Prefetcher};
use cenote_policy::{
    Action, Coming, Decision, DeviceView, Heat, Incoming, Limits, Policy, RangeView, Rhythm, check_decision,
    check_plan, excess_bytes,
};

use crate::traces::{Op, Trace};

const PLAN_NS: u64 = 20_000_000;
const PRESSURE_NS: u64 = 1_000_000;
/// Background movement may take so much of a tier's time even if the tier is always busy.
const BACKGROUND_SHARE: f64 = 0.2;
const MS: u64 = 1_000_000;

/// The tiers: speeds of the devices in document 003, capacities in the same order of magnitude to each other.
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

/// What a run took.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Time that clients waited for I/O, on average, and the final flush.
    pub io_s: f64,
    /// Of that the final flush.
    pub flush_s: f64,
    /// When each range was read, in ms: what an oracle knows.
    pub reads: Vec<Vec<u32>>,
    pub decisions: u64,
    pub plans: u64,
    pub moved_bytes: u64,
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
    /// Nanoseconds that background movement has had of it while it was busy.
    background_ns: u64,
    /// Nanoseconds at work for clients since the last plan, and the share of time before.
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

/// What is known of the future: reads of each range, in ms, from an earlier run.
pub type Future = Vec<Vec<u32>>;

pub struct Sim<'a> {
    trace: &'a Trace,
    policy: &'a dyn Policy,
    future: Option<&'a Future>,
    with_streams: bool,
    now: u64,
    tiers: Vec<Tier>,
    ranges: Vec<Range>,
    firsts: Vec<usize>,
    clients: Vec<Client>,
    streams: Vec<Prefetcher>,
    rhythms: Vec<Rhythm>,
    store_rhythm: Rhythm,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    moves: VecDeque<(usize, Action)>,
    dirty: VecDeque<usize>,
    waiting: usize,
    busy: f32,
    last_plan: u64,
    flushing: bool,
    blocked_io: usize,
    outcome: Outcome,
}

impl<'a> Sim<'a> {
    pub fn new(trace: &'a Trace, policy: &'a dyn Policy, future: Option<&'a Future>, with_streams: bool) -> Self {
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
            with_streams,
            now: 0,
            tiers,
            ranges,
            firsts,
            clients: vec![client; clients],
            streams: (0..clients).map(|_| Prefetcher::new(24, AccessProfile::default())).collect(),
            rhythms: vec![Rhythm::default(); labels],
            store_rhythm: Rhythm::default(),
            events: BinaryHeap::new(),
            sequence: 0,
            moves: VecDeque::new(),
            dirty: VecDeque::new(),
            waiting: 0,
            busy: 0.0,
            last_plan: 0,
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
    /// Containers are told apart by label.
    fn container(&self, object: usize) -> usize {
        let label = self.trace.objects[object].label;
        self.trace.objects.iter().position(|other| other.label == label).unwrap_or(object)
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
                    self.plan();
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
        self.occupies(client, until);
        let container = self.container(self.ranges[range].object);
        let heat = self.ranges[range].heat;
        self.rhythms[container].read(now_ms, &heat);
        self.ranges[range].heat.read(now_ms, bytes);
        self.ranges[range].coming = None;
        self.outcome.reads[range].push((self.now / MS) as u32);
        let (object, offset) = (self.ranges[range].object, u64::from(self.ranges[range].number) * bytes);
        let key = self.key(object);
        self.streams[client].read(now_ms, key, offset, bytes);
        if self.with_streams {
            for foreseen in self.streams[client].ahead() {
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
                            self.plan_at_once();
                            let until = self.now + expected_ns.clamp(20_000, 50_000_000);
                            self.occupies(client, until);
                            self.clients[client].retries += 1;
                            return;
                        }
                        let index = self.index(device);
                        if views[index].free_bytes() >= bytes { index } else { self.tiers.len() - 1 }
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
        self.occupies(client, until);
        self.clients[client].retries = 0;
        self.rhythms[container].wrote(now_ms, bytes);
        self.store_rhythm.wrote(now_ms, bytes);
        if excess_bytes(&self.tiers[tier].view) > 0 {
            self.plan_at_once();
        }
    }

    /// New bytes of a range are on a tier; the old ones are gone.
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
            self.plan();
        }
    }

    fn plan(&mut self) {
        let elapsed = (self.now - self.last_plan) as f32;
        for tier in &mut self.tiers {
            let weight = (elapsed / 500e6).min(1.0);
            let share = (std::mem::take(&mut tier.foreground_ns) as f32 / elapsed.max(1.0)).min(1.0);
            tier.busy += weight * (share - tier.busy);
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
                let stream = range
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
                    coming: self.truth(*i).or(stream),
                    rhythm: Some(&self.rhythms[self.container(range.object)]),
                }
            })
            .collect();
        let limits = Limits {
            now_ms,
            now_unix_ms: now_ms,
            rhythm: Some(&self.store_rhythm),
            idle: (1.0 - self.busy).clamp(0.0, 1.0),
            ..Limits::default()
        };
        let plan = self.policy.plan(&views, &sample, &limits);
        check_plan(&plan, &views, &sample).expect("a sound plan");
        self.moves.clear();
        for planned in plan.moves {
            let range = ids[planned.range];
            if planned.action == Action::Evict {
                self.evict(range);
            } else {
                self.moves.push_back((range, planned.action));
            }
        }
    }

    fn evict(&mut self, range: usize) {
        let it = &mut self.ranges[range];
        if let Some(copy) = it.copy.take() {
            self.tiers[it.device].view.used_bytes -= it.bytes;
            it.device = copy;
            it.version += 1;
        }
    }

    fn is_idle(&self, tier: usize) -> bool {
        self.tiers[tier].busy_until <= self.now
    }

    /// True if background movement may use the tier: it is idle, or background movement had less than its share of it.
    fn has_time(&self, tier: usize) -> bool {
        let queued = self.tiers[tier].busy_until.saturating_sub(self.now);
        let share = (self.now as f64 * BACKGROUND_SHARE) as u64;
        queued == 0 || (queued < 50 * MS && self.tiers[tier].background_ns < share)
    }

    /// Starts what can be started in the background.
    fn pump(&mut self) {
        if self.flushing && self.dirty.is_empty() {
            self.dirty = (0..self.ranges.len()).filter(|i| self.is_dirty(&self.ranges[*i])).collect();
        }
        let mut kept = VecDeque::new();
        while let Some((range, action)) = self.moves.pop_front() {
            if (0..self.tiers.len()).filter(|tier| self.has_time(*tier)).count() < 2 {
                kept.push_back((range, action));
                break;
            }
            let (to, kind) = match action {
                Action::Promote(to) => (self.index(to), 0),
                Action::Demote(to) => (self.index(to), 1),
                Action::Copy(to) => (self.index(to), 2),
                Action::Evict => continue,
            };
            if !self.start(range, to, kind) && self.ranges[range].device != to {
                kept.push_back((range, action));
            }
        }
        kept.append(&mut self.moves);
        self.moves = kept;
        if !self.is_idle(0) {
            return;
        }
        for _ in 0..self.dirty.len().min(4) {
            let Some(range) = self.dirty.pop_front() else { return };
            if self.ranges[range].moving {
                self.dirty.push_back(range);
                continue;
            }
            if !self.is_dirty(&self.ranges[range]) {
                continue;
            }
            let bytes = self.ranges[range].bytes;
            let views = self.views();
            let durability = Durability::Async;
            let placed = self.policy.place_copy(&views, &Incoming::new(durability, bytes));
            let started = placed.is_ok_and(|placed| self.start(range, self.index(placed.device()), 2));
            if !started {
                self.dirty.push_front(range);
                return;
            }
            if !self.is_idle(0) {
                return;
            }
        }
    }

    fn start(&mut self, range: usize, to: usize, kind: u8) -> bool {
        let it = &self.ranges[range];
        let from = it.device;
        let bytes = it.bytes;
        if it.moving || !it.exists || from == to || it.copy == Some(to) && kind == 2 {
            return false;
        }
        if !self.has_time(from) || !self.has_time(to) || self.tiers[to].view.free_bytes() < bytes {
            return false;
        }
        self.tiers[to].view.reserved_bytes += bytes;
        let read = self.tiers[from].view.speed.read_ns(bytes) as u64;
        let write = self.tiers[to].view.speed.write_ns(bytes) as u64;
        let begin = self.now.max(self.tiers[from].busy_until).max(self.tiers[to].busy_until);
        for (tier, ns) in [(from, read), (to, write)] {
            self.tiers[tier].background_ns += if self.is_idle(tier) { 0 } else { ns };
            self.tiers[tier].busy_until = begin + ns;
        }
        // Read and written in pieces, one after the other: as long as the slower of both.
        let until = begin + read.max(write);
        self.ranges[range].moving = true;
        let version = self.ranges[range].version;
        self.at(until, Event::Moved { range, version, to, kind });
        self.at(begin + read.min(write), Event::Pump);
        true
    }

    fn moved(&mut self, range: usize, version: u32, to: usize, kind: u8) {
        let it = &mut self.ranges[range];
        it.moving = false;
        let bytes = it.bytes;
        self.tiers[to].view.reserved_bytes -= bytes;
        if it.version != version {
            return;
        }
        self.outcome.moved_bytes += bytes;
        self.tiers[to].view.used_bytes += bytes;
        it.version += 1;
        match kind {
            // Where it was stays as its copy, if that is persistent.
            0 => {
                let old = std::mem::replace(&mut it.device, to);
                let persistent = self.tiers[old].view.kind.is_persistent();
                if let Some(copy) = it.copy.filter(|_| persistent) {
                    self.tiers[copy].view.used_bytes -= bytes;
                    it.copy = None;
                }
                if persistent {
                    it.copy = Some(old);
                } else {
                    self.tiers[old].view.used_bytes -= bytes;
                }
                if it.copy == Some(to) {
                    it.copy = None;
                }
            }
            1 => {
                let old = std::mem::replace(&mut it.device, to);
                self.tiers[old].view.used_bytes -= bytes;
                if let Some(copy) = it.copy.take() {
                    self.tiers[copy].view.used_bytes -= bytes;
                }
            }
            _ => {
                if let Some(copy) = it.copy.replace(to) {
                    self.tiers[copy].view.used_bytes -= bytes;
                }
            }
        }
    }
}
