//! Compares the policies on traces, in simulated time: `make policies`. Prints a table, and writes an SVG if given a
//! path.

mod oracle;
mod report;
mod sim;
mod traces;

use std::sync::Arc;

use cenote_policy::{Policy, by_name, from_schema};

use crate::sim::{Outcome, Sim};
use crate::traces::Trace;

/// Results of one trace with all policies.
struct Row {
    trace: &'static str,
    /// Seconds of I/O by policy, in the order of [`POLICIES`].
    io_s: Vec<f64>,
    /// Foresight without prefetch.
    blind_s: f64,
    /// With knowledge of the future.
    oracle_s: f64,
    /// Lower bound of every schedule.
    bound_s: f64,
}

const POLICIES: [&str; 6] = ["fast-first", "max-bandwidth", "data-locality", "hot-data", "user", "foresight"];

/// A schema by somebody who knows which kinds of data there are.
const SCHEMA: &str = r#"
version = 1
fallback = "hot-data"

[[rule]]
name = "sequential"
label = "sequential"
tier = ["ram", "nvme", "ssd"]
demote-after = "1s"
demote-to = "ssd"

[[rule]]
name = "checkpoints"
label = "checkpoint"
tier = ["ram", "nvme", "ssd"]
demote-after = "2s"
demote-to = "hdd"

[[rule]]
name = "temporary"
label = "temporary"
tier = ["ram", "nvme"]
pin = true
"#;

fn policies() -> Vec<Arc<dyn Policy>> {
    let user = || from_schema(SCHEMA, &sim::tiers()).expect("a sound schema");
    POLICIES.iter().map(|name| by_name(name).unwrap_or_else(user)).collect()
}

fn run(trace: &Trace) -> Row {
    let all = policies();
    let outcomes: Vec<Outcome> = all.iter().map(|policy| Sim::new(trace, policy.as_ref(), None, true).run()).collect();
    if std::env::var("VERBOSE").is_ok() {
        for (policy, outcome) in all.iter().zip(&outcomes) {
            println!(
                "{} {}: {:.3} s, flush {:.3}, {} decisions, {} plans, {} MiB moved",
                trace.name,
                policy.name(),
                outcome.io_s,
                outcome.flush_s,
                outcome.decisions,
                outcome.plans,
                outcome.moved_bytes >> 20
            );
            for (tier, it) in ["ram", "nvme", "ssd", "hdd"].iter().zip(outcome.by_tier) {
                println!(
                    "  {tier:<5} reads {:6.0} {:8.0} ms  writes {:6.0} {:8.0} ms  background {:8.0} ms",
                    it[0], it[1], it[2], it[3], it[4]
                );
            }
        }
    }
    let foresight = all.last().expect("policies");
    let blind_s = Sim::new(trace, foresight.as_ref(), None, false).run().io_s;
    let start = outcomes.last().expect("outcomes").reads.clone();
    let online_s = outcomes.iter().map(|outcome| outcome.io_s).fold(blind_s, f64::min);
    let oracle_s = oracle::best_s(trace, start).min(online_s);
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
