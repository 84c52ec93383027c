//! A network of queues in simulated time: jobs go from station to station, wait, are served, and end.
//!
//! A station is a thread, a processor's worth of clients, or one direction of a network card. It serves what waits in order of
//! arrival; a thread of a daemon takes all that waits at once and pays a system call for each peer, as the real one does,
//! so what batching gains under load comes out by itself. Nothing here draws random numbers or reads clocks: the same jobs
//! always give the same times.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

/// Numbers a station of a world.
pub type StationId = u32;

/// A part of a job's way.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Step {
    /// Where it is served; none: time passes.
    pub at: Option<StationId>,
    /// Nanoseconds of service, or of time that passes.
    pub ns: u64,
    /// Bytes that pass the station, for the books.
    pub bytes: u64,
    /// Jobs of one group that are served together share the station's [`Spec::group_ns`].
    pub group: u32,
}

impl Step {
    /// Time that passes, whatever else goes on.
    pub fn wait(ns: f64) -> Self {
        Self { at: None, ns: ns.round() as u64, bytes: 0, group: 0 }
    }
    /// Service at a station.
    pub fn at(station: StationId, ns: f64, bytes: u64, group: u32) -> Self {
        Self { at: Some(station), ns: ns.round() as u64, bytes, group }
    }
}

/// What a station is like.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spec {
    /// Jobs, or batches of them, that are served at once.
    pub servers: u32,
    /// A batch takes no further jobs once they need so many nanoseconds, or what two turns cost. 0: jobs one by one.
    pub batch_ns_max: u64,
    /// What each group of a batch costs besides its jobs.
    pub group_ns: u64,
    /// What each batch costs besides.
    pub turn_ns: u64,
    /// How long it sleeps on after a job has come…
    pub wake_ns: u64,
    /// …if it was idle for longer than this.
    pub spin_ns: u64,
    /// The processors that it needs one of, by [`World::processors`].
    pub cores: Option<u32>,
}

impl Spec {
    /// One job at a time, always awake: a wire, a disk.
    pub const DEVICE: Self =
        Self { servers: 1, batch_ns_max: 0, group_ns: 0, turn_ns: 0, wake_ns: 0, spin_ns: u64::MAX, cores: None };
}

/// What a station did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Meter {
    /// Nanoseconds for which it served, over all servers.
    pub busy_ns: u64,
    /// Jobs that it served.
    pub served: u64,
    /// Batches in which it did.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most jobs that waited at once.
    pub waiting_max: usize,
}

#[derive(Debug)]
struct Station {
    spec: Spec,
    waiting: VecDeque<u32>,
    serving: u32,
    is_waking: bool,
    is_wanting: bool,
    idle_since_ns: u64,
    meter: Meter,
}

#[derive(Debug)]
struct Job {
    token: u64,
    steps: Vec<Step>,
    next: usize,
}

/// Processors that stations share.
#[derive(Debug)]
struct Cores {
    free: u32,
    wanting: VecDeque<StationId>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Arrive(u32),
    Wake(StationId),
    Served(StationId, u32),
}

#[derive(PartialEq, Eq, Debug)]
struct Due {
    at_ns: u64,
    sequence: u64,
    event: Event,
}

impl Ord for Due {
    /// The greatest is the next one: earliest, and first scheduled among equals.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ns, other.sequence).cmp(&(self.at_ns, self.sequence))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Stations, jobs and time.
#[derive(Debug, Default)]
pub struct World {
    now_ns: u64,
    sequence: u64,
    calendar: BinaryHeap<Due>,
    stations: Vec<Station>,
    cores: Vec<Cores>,
    jobs: Vec<Job>,
    free_jobs: Vec<u32>,
    batches: Vec<Vec<u32>>,
    free_batches: Vec<u32>,
    ended: VecDeque<u64>,
    /// Groups of the batch that is made; kept for its memory.
    groups: Vec<u32>,
    /// Events so far.
    pub events: u64,
}

impl World {
    /// Nanoseconds since the beginning.
    pub fn now_ns(&self) -> u64 {
        self.now_ns
    }
    /// Makes a station.
    pub fn station(&mut self, spec: Spec) -> StationId {
        let (waiting, meter) = (VecDeque::new(), Meter::default());
        let (is_waking, is_wanting) = (false, false);
        self.stations.push(Station { spec, waiting, serving: 0, is_waking, is_wanting, idle_since_ns: 0, meter });
        self.stations.len() as StationId - 1
    }
    /// Sets what each batch of a station costs besides its jobs and groups.
    pub fn set_turn_ns(&mut self, station: StationId, ns: f64) {
        self.stations[station as usize].spec.turn_ns = ns.round() as u64;
    }
    /// Makes processors that stations share.
    pub fn processors(&mut self, count: u32) -> u32 {
        self.cores.push(Cores { free: count, wanting: VecDeque::new() });
        self.cores.len() as u32 - 1
    }
    /// What a station did so far.
    pub fn meter(&self, station: StationId) -> Meter {
        self.stations[station as usize].meter
    }
    /// Jobs that are at a station: waiting or served in a batch of one. 0 once all is done.
    pub fn is_idle(&self, station: StationId) -> bool {
        let station = &self.stations[station as usize];
        station.waiting.is_empty() && station.serving == 0 && !station.is_waking
    }
    /// Begins a job now. [`run_on`](Self::run_on) gives the token when it has ended.
    pub fn launch(&mut self, token: u64, steps: Vec<Step>) {
        let job = Job { token, steps, next: 0 };
        let number = if let Some(number) = self.free_jobs.pop() {
            self.jobs[number as usize] = job;
            number
        } else {
            self.jobs.push(job);
            self.jobs.len() as u32 - 1
        };
        self.advance(number);
    }
    /// Lets time pass until a job ends, and gives its token. None: nothing is left to do.
    pub fn run_on(&mut self) -> Option<u64> {
        loop {
            if let Some(token) = self.ended.pop_front() {
                return Some(token);
            }
            let due = self.calendar.pop()?;
            self.now_ns = due.at_ns;
            self.events += 1;
            match due.event {
                Event::Arrive(job) => self.advance(job),
                Event::Wake(station) => {
                    self.stations[station as usize].is_waking = false;
                    self.begin(station);
                }
                Event::Served(station, batch) => self.served(station, batch),
            }
        }
    }

    fn schedule(&mut self, after_ns: u64, event: Event) {
        self.sequence += 1;
        self.calendar.push(Due { at_ns: self.now_ns + after_ns, sequence: self.sequence, event });
    }

    /// Sends a job to its next step.
    fn advance(&mut self, number: u32) {
        let job = &mut self.jobs[number as usize];
        let Some(step) = job.steps.get(job.next).copied() else {
            self.ended.push_back(job.token);
            job.steps = Vec::new();
            self.free_jobs.push(number);
            return;
        };
        let Some(station) = step.at else {
            job.next += 1;
            return self.schedule(step.ns, Event::Arrive(number));
        };
        let at = &mut self.stations[station as usize];
        at.waiting.push_back(number);
        at.meter.waiting_max = at.meter.waiting_max.max(at.waiting.len());
        let is_asleep = at.serving == 0 && self.now_ns - at.idle_since_ns > at.spec.spin_ns;
        if at.is_waking {
            return;
        }
        if is_asleep && at.spec.wake_ns > 0 {
            at.is_waking = true;
            let wake_ns = at.spec.wake_ns;
            return self.schedule(wake_ns, Event::Wake(station));
        }
        self.begin(station);
    }

    /// Serves what waits, as far as servers and processors go.
    fn begin(&mut self, number: StationId) {
        let station = &mut self.stations[number as usize];
        while station.serving < station.spec.servers && !station.waiting.is_empty() && !station.is_waking {
            if let Some(cores) = station.spec.cores {
                let cores = &mut self.cores[cores as usize];
                if cores.free == 0 {
                    if !station.is_wanting {
                        station.is_wanting = true;
                        cores.wanting.push_back(number);
                    }
                    return;
                }
                cores.free -= 1;
            }
            let batch = self.free_batches.pop().unwrap_or_else(|| {
                self.batches.push(Vec::new());
                self.batches.len() as u32 - 1
            });
            let ns = take(station, &self.jobs, &mut self.batches[batch as usize], &mut self.groups);
            station.serving += 1;
            self.sequence += 1;
            let event = Event::Served(number, batch);
            self.calendar.push(Due { at_ns: self.now_ns + ns, sequence: self.sequence, event });
        }
    }

    fn served(&mut self, number: StationId, batch: u32) {
        let jobs = std::mem::take(&mut self.batches[batch as usize]);
        let station = &mut self.stations[number as usize];
        station.serving -= 1;
        station.idle_since_ns = self.now_ns;
        if let Some(cores) = station.spec.cores {
            self.cores[cores as usize].free += 1;
            // Whoever waits for a processor comes first, this station among them if it has more to do.
            if let Some(next) = self.cores[cores as usize].wanting.pop_front() {
                self.stations[next as usize].is_wanting = false;
                self.begin(next);
            }
        }
        self.begin(number);
        for job in &jobs {
            self.jobs[*job as usize].next += 1;
            self.advance(*job);
        }
        let mut jobs = jobs;
        jobs.clear();
        self.batches[batch as usize] = jobs;
        self.free_batches.push(batch);
    }
}

/// Moves the next batch of a station out of its queue, and returns the nanoseconds that it takes.
fn take(station: &mut Station, jobs: &[Job], batch: &mut Vec<u32>, groups: &mut Vec<u32>) -> u64 {
    let spec = station.spec;
    // Whoever looks at many connections at once finds more.
    let ns_max = if spec.batch_ns_max > 0 { spec.batch_ns_max.max(2 * spec.turn_ns) } else { 0 };
    let mut ns = 0;
    groups.clear();
    while let Some(number) = station.waiting.front().copied() {
        let job = &jobs[number as usize];
        let step = job.steps[job.next];
        if !batch.is_empty() && ns + step.ns > ns_max {
            break;
        }
        ns += step.ns;
        if spec.group_ns > 0 && !groups.contains(&step.group) {
            groups.push(step.group);
        }
        station.meter.bytes += step.bytes;
        station.waiting.pop_front();
        batch.push(number);
    }
    ns += groups.len() as u64 * spec.group_ns + spec.turn_ns;
    station.meter.served += batch.len() as u64;
    station.meter.batches += 1;
    station.meter.busy_ns += ns;
    ns
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(group_ns: u64) -> Spec {
        Spec { batch_ns_max: 1_000_000, group_ns, wake_ns: 0, ..Spec::DEVICE }
    }

    #[test]
    fn jobs_wait_for_their_turn_and_all_leave() {
        let mut world = World::default();
        let disk = world.station(Spec::DEVICE);
        for token in 0..5 {
            world.launch(token, vec![Step::at(disk, 100.0, 10, 0), Step::wait(7.0)]);
        }
        let mut ends = Vec::new();
        while let Some(token) = world.run_on() {
            ends.push((token, world.now_ns()));
        }
        assert_eq!(ends, (0..5).map(|token| (token, 107 + token * 100)).collect::<Vec<_>>());
        let meter = world.meter(disk);
        assert_eq!((meter.busy_ns, meter.served, meter.bytes, meter.waiting_max), (500, 5, 50, 4));
        assert!(world.is_idle(disk));
    }

    #[test]
    fn what_waits_is_taken_together_and_pays_once_for_each_peer() {
        let mut world = World::default();
        let net = world.station(thread(1000));
        for token in 0..9 {
            world.launch(token, vec![Step::at(net, 10.0, 0, (token % 2) as u32)]);
        }
        while world.run_on().is_some() {}
        // The first alone, then eight of two peers.
        assert_eq!((world.now_ns(), world.meter(net).batches), (1010 + 2080, 2));
        world.set_turn_ns(net, 5.0);
        world.launch(9, vec![Step::at(net, 10.0, 0, 0)]);
        world.run_on();
        assert_eq!(world.now_ns(), 1010 + 2080 + 1015);
    }

    #[test]
    fn a_thread_that_sleeps_is_woken_and_one_that_spins_is_not() {
        let mut world = World::default();
        let net = world.station(Spec { wake_ns: 500, spin_ns: 50, ..thread(0) });
        world.launch(
            0,
            vec![Step::wait(1000.0), Step::at(net, 10.0, 0, 0), Step::wait(20.0), Step::at(net, 10.0, 0, 0)],
        );
        world.run_on();
        assert_eq!(world.now_ns(), 1000 + 500 + 10 + 20 + 10);
    }

    #[test]
    fn stations_share_processors() {
        let mut world = World::default();
        let cores = world.processors(2);
        let threads: Vec<StationId> =
            (0..3).map(|_| world.station(Spec { cores: Some(cores), ..Spec::DEVICE })).collect();
        for round in 0..10 {
            for (token, station) in threads.iter().enumerate() {
                world.launch(round * 3 + token as u64, vec![Step::at(*station, 100.0, 0, 0)]);
            }
        }
        while world.run_on().is_some() {}
        assert_eq!(world.now_ns(), 30 * 100 / 2);
        assert!(threads.iter().all(|station| world.meter(*station).busy_ns == 1000));
    }
}
