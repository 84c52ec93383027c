//! The policies side by side on traces, in simulated time: `make policies`. Prints a table, writes an SVG if given a path.

mod report;
mod sim;
mod traces;

use cenote_policy::{Policy, by_name};

use crate::sim::{Outcome, Sim};
use crate::traces::Trace;

/// One trace on all policies.
pub struct Row {
    pub trace: &'static str,
    /// Seconds of I/O by policy, in the order of [`POLICIES`].
    pub io_s: Vec<f64>,
    /// Foresight without what streams foresee.
    pub blind_s: f64,
    /// What knowing the future gives.
    pub oracle_s: f64,
    /// No schedule whatever can be faster.
    pub bound_s: f64,
}

pub const POLICIES: [&str; 6] = ["fast-first", "max-bandwidth", "data-locality", "hot-data", "user", "foresight"];

fn policies() -> Vec<std::sync::Arc<dyn Policy>> {
    POLICIES.iter().filter_map(|name| by_name(name)).collect()
}

fn run(trace: &Trace) -> Row {
    let all = policies();
    let outcomes: Vec<Outcome> = all.iter().map(|policy| Sim::new(trace, policy.as_ref(), None, true).run()).collect();
    let foresight = all.last().expect("policies");
    let blind_s = Sim::new(trace, foresight.as_ref(), None, false).run().io_s;
    // The oracle knows when each range is read in its own run: it is run again with what the run before has shown.
    let mut future = outcomes.last().expect("outcomes").reads.clone();
    let mut oracle_s = outcomes.iter().map(|outcome| outcome.io_s).fold(blind_s, f64::min);
    for _ in 0..4 {
        let outcome = Sim::new(trace, foresight.as_ref(), Some(&future), false).run();
        oracle_s = oracle_s.min(outcome.io_s);
        future = outcome.reads;
    }
    let io_s = outcomes.iter().map(|outcome| outcome.io_s).collect();
    Row { trace: trace.name, io_s, blind_s, oracle_s, bound_s: report::bound_s(trace) }
}

fn main() {
    let only = std::env::var("TRACE").ok();
    let svg = std::env::args().nth(1);
    for (title, traces) in [("tuned on", traces::tuned()), ("held out", traces::held_out())] {
        let rows: Vec<Row> =
            traces.iter().filter(|trace| only.as_deref().is_none_or(|name| name == trace.name)).map(run).collect();
        report::print(title, &rows);
        if let Some(path) = &svg {
            let path = path.replace(".svg", &format!("-{}.svg", title.replace(' ', "-")));
            std::fs::write(&path, report::svg(title, &rows)).expect("the SVG can be written");
        }
    }
}
