//! Workers that keep some operations under way, each of them stages of ways that run side by side.

use super::world::{Step, World};

/// The ways of a stage run side by side; the next stage begins when all have ended.
pub type Stages = Vec<Vec<Vec<Step>>>;

/// A way of its own stage.
pub fn one(way: Vec<Step>) -> Vec<Vec<Step>> {
    vec![way]
}

#[derive(Debug)]
struct Op {
    ways_left: u32,
    stages: std::vec::IntoIter<Vec<Vec<Step>>>,
    begun_ns: u64,
}

/// Operations under way in a world.
#[derive(Debug, Default)]
pub struct Flow {
    /// Stations and time.
    pub world: World,
    ops: Vec<Option<Op>>,
}

impl Flow {
    /// Begins an operation; its number is not in use.
    pub fn begin(&mut self, number: usize, stages: Stages) {
        if self.ops.len() <= number {
            self.ops.resize_with(number + 1, || None);
        }
        self.ops[number] = Some(Op { ways_left: 0, stages: stages.into_iter(), begun_ns: self.world.now_ns() });
        if !self.go_on(number) {
            // Without any stage: it ends at once, in its turn.
            self.launch(number, vec![Vec::new()]);
        }
    }
    /// Lets time pass until an operation ends; its number, and the nanoseconds that it took.
    pub fn run_on(&mut self) -> Option<(usize, u64)> {
        loop {
            let number = self.world.run_on()? as usize;
            let op = self.ops[number].as_mut()?;
            op.ways_left -= 1;
            if op.ways_left == 0 && !self.go_on(number) {
                let op = self.ops[number].take()?;
                return Some((number, self.world.now_ns() - op.begun_ns));
            }
        }
    }

    fn go_on(&mut self, number: usize) -> bool {
        let stages = self.ops[number].as_mut().map(|op| &mut op.stages);
        let Some(ways) = stages.and_then(|stages| stages.find(|ways| !ways.is_empty())) else { return false };
        self.launch(number, ways);
        true
    }

    fn launch(&mut self, number: usize, ways: Vec<Vec<Step>>) {
        if let Some(op) = &mut self.ops[number] {
            op.ways_left = ways.len() as u32;
        }
        for way in ways {
            self.world.launch(number as u64, way);
        }
    }
}

/// How much is to be done.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Load {
    /// Programs.
    pub workers: usize,
    /// Operations of each.
    pub each: u64,
    /// Operations that each keeps under way.
    pub under_way: u64,
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Pace {
    /// Operations.
    pub done: u64,
    /// Operations a second between the end of the first quarter and of the third: without begin and tail.
    pub per_s: f64,
    /// The same until the last one has ended.
    pub per_s_to_end: f64,
    /// Median and 99th percentile of an operation's time, in µs.
    pub p50_us: f64,
    /// See above.
    pub p99_us: f64,
    /// Seconds in all.
    pub seconds: f64,
}

/// Runs a load; `stages` makes the operation that a worker begins.
pub fn drive(flow: &mut Flow, load: Load, mut stages: impl FnMut(usize, u64) -> Stages) -> Pace {
    let begin_ns = flow.world.now_ns();
    let mut begun = vec![0_u64; load.workers];
    // Numbers of operations: a worker's slots.
    let slots = load.under_way.min(load.each) as usize;
    for (worker, begun) in begun.iter_mut().enumerate() {
        for slot in 0..slots {
            flow.begin(worker * slots + slot, stages(worker, *begun));
            *begun += 1;
        }
    }
    let all = load.workers as u64 * load.each;
    let mut took_ns: Vec<u64> = Vec::with_capacity(all as usize);
    let (mut quarter_ns, mut three_ns) = (begin_ns, begin_ns);
    while let Some((number, ns)) = flow.run_on() {
        took_ns.push(ns);
        let done = took_ns.len() as u64;
        quarter_ns = if done == (all / 4).max(1) { flow.world.now_ns() } else { quarter_ns };
        three_ns = if done == (all * 3 / 4).max(1) { flow.world.now_ns() } else { three_ns };
        let worker = number / slots;
        if begun[worker] < load.each {
            flow.begin(number, stages(worker, begun[worker]));
            begun[worker] += 1;
        }
    }
    let middle = (all * 3 / 4).max(1) - (all / 4).max(1);
    let per_s = |ops: u64, ns: u64| ops as f64 * 1e9 / ns.max(1) as f64;
    let ns = flow.world.now_ns() - begin_ns;
    took_ns.sort_unstable();
    let at = |part: f64| took_ns.get((took_ns.len() as f64 * part) as usize).map_or(0.0, |ns| *ns as f64 / 1e3);
    Pace {
        done: took_ns.len() as u64,
        per_s: per_s(middle, three_ns - quarter_ns),
        per_s_to_end: per_s(took_ns.len() as u64, ns),
        p50_us: at(0.5),
        p99_us: at(0.99),
        seconds: ns as f64 / 1e9,
    }
}

#[cfg(test)]
mod tests {
    use super::super::world::Spec;
    use super::*;

    #[test]
    fn stages_follow_each_other_and_ways_run_side_by_side() {
        let mut flow = Flow::default();
        let wait = |ns: f64| vec![Step::wait(ns)];
        flow.begin(3, vec![vec![wait(5.0), wait(9.0)], vec![], one(wait(2.0))]);
        flow.begin(0, vec![]);
        assert_eq!(flow.run_on(), Some((0, 0)));
        assert_eq!(flow.run_on(), Some((3, 11)));
        assert_eq!(flow.run_on(), None);
    }

    #[test]
    fn a_load_is_done_whole_at_the_pace_of_its_station() {
        let mut flow = Flow::default();
        let disk = flow.world.station(Spec::DEVICE);
        let load = Load { workers: 7, each: 40, under_way: 3 };
        let pace = drive(&mut flow, load, |_, _| vec![one(vec![Step::at(disk, 1000.0, 1, 0)])]);
        assert_eq!((pace.done, flow.world.meter(disk).bytes), (280, 280));
        assert!((pace.per_s - 1e6).abs() < 1.0 && (pace.per_s_to_end - 1e6).abs() < 1.0, "{pace:?}");
        // Each waits for the 21 that are under way.
        assert!((pace.p50_us - 21.0).abs() < 0.5, "{pace:?}");
    }
}
