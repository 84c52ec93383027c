//! Traces of clients, generated from seeds: ten for tuning, and others held out.

/// A small generator (`SplitMix64`), so that a trace is the same everywhere.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
    fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// Ranks drawn by Zipf's law.
struct Zipf(Vec<f64>);

impl Zipf {
    fn new(ranks: usize, exponent: f64) -> Self {
        let mut sums: Vec<f64> = Vec::with_capacity(ranks);
        for rank in 1..=ranks {
            sums.push(sums.last().copied().unwrap_or(0.0) + (rank as f64).powf(-exponent));
        }
        Self(sums)
    }
    fn draw(&self, rng: &mut Rng) -> usize {
        let at = rng.unit() * self.0.last().copied().unwrap_or(0.0);
        self.0.partition_point(|sum| *sum < at).min(self.0.len() - 1)
    }
}

/// One step of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Computes for this many nanoseconds.
    Think(u64),
    /// Reads a range.
    Read(u32),
    /// Writes a range.
    Write(u32),
    /// Waits for all clients.
    Barrier,
}

/// Ranges of one object.
pub struct Object {
    pub ranges: u32,
    pub range_bytes: u64,
    /// Never needs to be persistent.
    pub scratch: bool,
    /// On the lowest tier at first.
    pub preloaded: bool,
    pub label: &'static str,
}

/// The operations of some clients.
pub struct Trace {
    pub name: &'static str,
    pub objects: Vec<Object>,
    pub clients: Vec<Vec<Op>>,
}

impl Trace {
    fn new(name: &'static str, clients: usize) -> Self {
        Self { name, objects: Vec::new(), clients: vec![Vec::new(); clients] }
    }
    /// Adds an object; returns the number of its first range.
    fn object(&mut self, ranges: u32, range_bytes: u64, scratch: bool, preloaded: bool, label: &'static str) -> u32 {
        let first = self.objects.iter().map(|object| object.ranges).sum();
        self.objects.push(Object { ranges, range_bytes, scratch, preloaded, label });
        first
    }
    fn data(&mut self, ranges: u32) -> u32 {
        self.object(ranges, MIB, false, true, "data")
    }
    fn does(&mut self, client: usize, think_ms: f64, op: Op) {
        if think_ms > 0.0 {
            self.clients[client].push(Op::Think((think_ms * 1e6) as u64));
        }
        self.clients[client].push(op);
    }
    fn all(&mut self, op: Op) {
        self.clients.iter_mut().for_each(|ops| ops.push(op));
    }
}

const MIB: u64 = 1 << 20;

/// Scans data that was not read before.
fn sequential(name: &'static str, clients: usize, mib: u32, think_ms: f64, backward: bool) -> Trace {
    let mut trace = Trace::new(name, clients);
    for client in 0..clients {
        let first = trace.data(mib);
        for i in 0..mib {
            let at = if backward { mib - 1 - i } else { i };
            trace.does(client, think_ms, Op::Read(first + at));
        }
    }
    trace
}

/// Reads every `stride`th piece, once from each of the first `phases` pieces on.
fn strided(name: &'static str, mib: u32, stride: u32, phases: u32, think_ms: f64) -> Trace {
    let mut trace = Trace::new(name, 2);
    for client in 0..2 {
        let first = trace.data(mib);
        for phase in 0..phases {
            for at in (phase..mib).step_by(stride as usize) {
                trace.does(client, think_ms, Op::Read(first + at));
            }
        }
    }
    trace
}

/// Reads columns of a row-major matrix, block by block.
fn nested(name: &'static str, rows: u32, columns: u32, think_ms: f64) -> Trace {
    let mut trace = Trace::new(name, 1);
    let first = trace.data(rows * columns);
    for column in (0..columns).rev() {
        for row in 0..rows {
            trace.does(0, think_ms, Op::Read(first + row * columns + column));
        }
    }
    trace
}

fn random(name: &'static str, seed: u64, mib: u32, ops: u32, writes_percent: u64, think_ms: f64) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, 2);
    let first = trace.data(mib);
    for i in 0..ops {
        let at = first + rng.below(u64::from(mib)) as u32;
        let op = if rng.below(100) < writes_percent { Op::Write(at) } else { Op::Read(at) };
        trace.does(i as usize % 2, think_ms, op);
    }
    trace
}

/// Reads by Zipf's law; the favourites change `drifts` times.
fn zipf(name: &'static str, seed: u64, mib: u32, ops: u32, exponent: f64, drifts: u32) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, 4);
    let first = trace.data(mib);
    let law = Zipf::new(mib as usize, exponent);
    let mut places: Vec<u32> = (0..mib).collect();
    rng.shuffle(&mut places);
    for i in 0..ops {
        if drifts > 0 && i > 0 && i % (ops / (drifts + 1)) == 0 {
            rng.shuffle(&mut places);
        }
        let at = first + places[law.draw(&mut rng)];
        let op = if rng.below(100) < 10 { Op::Write(at) } else { Op::Read(at) };
        trace.does(i as usize % 4, 2.0, op);
    }
    trace
}

/// Uses working sets for a while and returns to them later.
fn phased(name: &'static str, seed: u64, sets: u32, set_mib: u32, visits: u32, ops: u32) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, 2);
    let first = trace.data(sets * set_mib);
    for visit in 0..visits {
        for i in 0..ops {
            let at = first + visit % sets * set_mib + rng.below(u64::from(set_mib)) as u32;
            trace.does(i as usize % 2, 3.0, Op::Read(at));
        }
        trace.all(Op::Think(300_000_000));
        trace.all(Op::Barrier);
    }
    trace
}

/// Computes, writes a checkpoint, computes; then reads the last one.
fn checkpoint(
    name: &'static str,
    seed: u64,
    clients: usize,
    mib_each: u32,
    phases: u32,
    compute_ms: u64,
    jitter: u64,
) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, clients);
    let mut last = vec![0; clients];
    for _ in 0..phases {
        let compute = compute_ms * (100 - jitter + rng.below(2 * jitter + 1)) / 100;
        trace.all(Op::Think(compute * 1_000_000));
        trace.all(Op::Barrier);
        for (client, last) in last.iter_mut().enumerate() {
            *last = trace.object(mib_each, MIB, false, false, "checkpoint");
            for i in 0..mib_each {
                trace.does(client, 0.0, Op::Write(*last + i));
            }
        }
        trace.all(Op::Barrier);
    }
    for (client, last) in last.into_iter().enumerate() {
        for i in 0..mib_each {
            trace.does(client, 0.0, Op::Read(last + i));
        }
    }
    trace
}

/// A producer writes pieces, which consumers read once, `lag` pieces later.
fn producer(name: &'static str, pieces: u32, lag: u32, consumers: usize, think_ms: f64) -> Trace {
    let mut trace = Trace::new(name, 1 + consumers);
    let first: Vec<u32> = (0..pieces).map(|_| trace.object(4, MIB, true, false, "sequential")).collect();
    for step in 0..pieces + lag {
        if step < pieces {
            (0..4).for_each(|i| trace.does(0, think_ms, Op::Write(first[step as usize] + i)));
        }
        if step >= lag {
            let piece = (step - lag) as usize;
            (1..=consumers).for_each(|consumer| {
                (0..4).for_each(|i| trace.does(consumer, think_ms, Op::Read(first[piece] + i)));
            });
        }
        trace.all(Op::Barrier);
    }
    trace
}

/// Writes temporary data and reads all of it repeatedly.
fn passes(name: &'static str, mib: u32, passes: u32, think_ms: f64, shuffled: Option<u64>) -> Trace {
    let mut trace = Trace::new(name, 2);
    for client in 0..2 {
        let mut rng = Rng::new(shuffled.unwrap_or(0) + client as u64);
        let first = trace.object(mib / 2, MIB, true, false, "temporary");
        let mut order: Vec<u32> = (first..first + mib / 2).collect();
        for at in &order {
            trace.does(client, 0.5, Op::Write(*at));
        }
        for _ in 0..passes {
            if shuffled.is_some() {
                rng.shuffle(&mut order);
            }
            for at in &order {
                trace.does(client, think_ms, Op::Read(*at));
            }
        }
    }
    trace
}

/// One client scans, one reads by Zipf's law, one writes checkpoints.
fn mixed(name: &'static str, seed: u64, scan_mib: u32, hot_mib: u32) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, 3);
    let scan = trace.data(scan_mib);
    (0..scan_mib).for_each(|i| trace.does(0, 15.0, Op::Read(scan + i)));
    let hot = trace.data(hot_mib);
    let law = Zipf::new(hot_mib as usize, 1.1);
    (0..4 * scan_mib).for_each(|_| trace.does(1, 4.0, Op::Read(hot + law.draw(&mut rng) as u32)));
    for _ in 0..8 {
        trace.clients[2].push(Op::Think(800_000_000));
        let first = trace.object(24, MIB, false, false, "checkpoint");
        (0..24).for_each(|i| trace.does(2, 0.0, Op::Write(first + i)));
    }
    trace
}

/// Many small objects, written once and read by Zipf's law.
fn small(name: &'static str, seed: u64, objects: u32, bytes: u64, reads: u32) -> Trace {
    let mut rng = Rng::new(seed);
    let mut trace = Trace::new(name, 4);
    let firsts: Vec<u32> = (0..objects).map(|i| trace.object(1, bytes, false, i % 2 == 0, "small")).collect();
    for (i, first) in firsts.iter().enumerate() {
        if i % 2 == 1 {
            trace.does(i % 4, 0.05, Op::Write(*first));
        }
    }
    trace.all(Op::Barrier);
    let law = Zipf::new(objects as usize, 0.9);
    for i in 0..reads {
        let at = law.draw(&mut rng) as u64 * 7919 % u64::from(objects);
        trace.does(i as usize % 4, 0.5, Op::Read(firsts[at as usize]));
    }
    trace
}

/// Reads, changes and writes one piece after the other, in several passes.
fn update(name: &'static str, mib: u32, rounds: u32, think_ms: f64) -> Trace {
    let mut trace = Trace::new(name, 2);
    for client in 0..2 {
        let first = trace.data(mib / 2);
        for _ in 0..rounds {
            for at in first..first + mib / 2 {
                trace.does(client, 0.0, Op::Read(at));
                trace.does(client, think_ms, Op::Write(at));
            }
        }
    }
    trace
}

/// The ten traces for tuning.
pub fn tuned() -> Vec<Trace> {
    vec![
        sequential("sequential", 2, 240, 20.0, false),
        strided("strided", 480, 4, 2, 24.0),
        random("random", 11, 300, 3000, 20, 4.0),
        zipf("zipf", 12, 600, 5000, 1.0, 0),
        phased("phased", 13, 6, 40, 18, 160),
        checkpoint("checkpoint", 14, 8, 12, 10, 1000, 0),
        producer("producer", 150, 20, 1, 2.0),
        passes("passes", 120, 12, 3.0, None),
        mixed("mixed", 15, 400, 120),
        small("small", 16, 3000, 64 << 10, 8000),
    ]
}

/// The traces that no policy is tuned on.
pub fn held_out() -> Vec<Trace> {
    vec![
        sequential("backward", 3, 150, 30.0, true),
        nested("columns", 24, 16, 18.0),
        random("random-small", 111, 120, 3000, 30, 3.0),
        zipf("zipf-drift", 112, 500, 6000, 0.9, 3),
        phased("phased-long", 113, 3, 90, 9, 260),
        checkpoint("bursts-uneven", 114, 6, 20, 8, 1500, 60),
        producer("two-consumers", 120, 35, 2, 3.0),
        passes("epochs-shuffled", 160, 8, 4.0, Some(117)),
        mixed("mixed-large", 115, 250, 300),
        small("small-objects", 116, 2000, 128 << 10, 6000),
        checkpoint("bursts-late", 117, 4, 30, 7, 1800, 40),
        update("update-sweep", 140, 6, 4.0),
    ]
}
