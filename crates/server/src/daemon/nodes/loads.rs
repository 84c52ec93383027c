//! How loaded this node is, measured each second: what it has free for copies of homes, and what each home that is open here
//! costs. Other nodes are told with its beats (`cenote_ha::Loads`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cenote_ha::{Cost, Report, Room};
use cenote_model::HomeId;

use super::Nodes;
use crate::Host;
use crate::service::lock;

/// Interval of measurements.
const MEASURE_EVERY: Duration = Duration::from_secs(1);
/// Half-life of what was written each second.
const HALF_LIFE_S: f64 = 10.0;

/// What was measured last.
#[derive(Default)]
pub(super) struct Measured {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    at: Option<Instant>,
    homes: BTreeMap<HomeId, Written>,
}

/// How many bytes a home has written in all, and each second of late.
#[derive(Clone, Copy, Debug)]
struct Written {
    bytes: u64,
    each_second: f64,
}

impl Written {
    /// Takes in how many bytes there are so much later. A count that fell is that of another opening.
    fn later(self, bytes: u64, seconds: f64) -> Self {
        let now = bytes.saturating_sub(self.bytes) as f64 / seconds.max(1e-3);
        let kept = (-seconds / HALF_LIFE_S).exp2();
        Self { bytes, each_second: self.each_second * kept + now * (1.0 - kept) }
    }
}

/// Measures if it is time, and has the watch tell others. `hosts`: the homes of which this node is the host.
pub(super) fn look(nodes: &Nodes, hosts: &[(HomeId, Arc<Host>)]) {
    let mut state = lock(&nodes.measured.state);
    let elapsed = state.at.map(|at| at.elapsed());
    if elapsed.is_some_and(|elapsed| elapsed < MEASURE_EVERY) {
        return;
    }
    state.at = Some(Instant::now());
    let seconds = elapsed.map_or(1.0, |elapsed| elapsed.as_secs_f64());
    let mut reports = vec![Report::Room(room(&nodes.dir, &nodes.memory))];
    let mut homes = BTreeMap::new();
    for (home, host) in hosts {
        let Ok(costs) = host.service.with_engine(|engine| engine.costs()) else { continue };
        let before = state.homes.get(home).copied().unwrap_or(Written { bytes: costs.written, each_second: 0.0 });
        let written = before.later(costs.written, seconds);
        homes.insert(*home, written);
        let cost = Cost { memory: costs.memory, disk: costs.disk, written: written.each_second as u64 };
        reports.push(Report::Cost { home: cenote_ha::HomeId(home.0), cost });
    }
    state.homes = homes;
    nodes.watch.tell_loads(reports);
}

/// What is free where copies of homes lie: memory that files in `memory` may take, and the file system of `dir`.
fn room(dir: &Path, memory: &Path) -> Room {
    let free = |path: &Path| rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    Room { memory: free(memory).min(available_memory().unwrap_or(u64::MAX)), disk: free(dir) }
}

fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_each_second_follows_within_seconds_and_survives_a_new_opening() {
        let mut written = Written { bytes: 0, each_second: 0.0 };
        for second in 1..=60 {
            written = written.later(second << 20, 1.0);
        }
        assert!((written.each_second / f64::from(1 << 20) - 1.0).abs() < 0.05, "{written:?}");
        let anew = written.later(5, 1.0);
        assert!(anew.each_second < written.each_second && anew.each_second > 0.0, "{anew:?}");
        let rested = (0..100).fold(anew, |written, _| written.later(written.bytes, 1.0));
        assert!(rested.each_second < 2048.0, "{rested:?}");
    }

    #[test]
    fn a_node_has_memory_and_disk() {
        let room = room(Path::new("/"), Path::new("/"));
        assert!(room.memory > 0 && room.disk > 0, "{room:?}");
    }
}
