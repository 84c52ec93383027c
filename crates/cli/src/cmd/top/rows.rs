//! Content as rows of words, the same on a screen and in tables.

use cenote::model::size::{count, human};
use cenote::model::{DeviceInfo, DeviceState, FlowEnd, FlowWhy, Timed};
use cenote_telemetry::{Names, Rates};

use super::Look;
use crate::args::SortArg;

pub const TIER_TITLES: [&str; 9] =
    ["tier", "kind", "state", "use", ">used", ">capacity", ">in", ">out", ">get p50/p99"];
pub const FLOW_TITLES: [&str; 6] = ["from", "", "to", "why", ">per second", ">in all"];
pub const HOT_TITLES: [&str; 5] = ["object", ">size", ">used of late", ">idle", "on"];
pub const CLIENT_TITLES: [&str; 9] =
    ["program", ">pid", ">user", ">weight", ">reads", ">writes", ">messages", ">read in all", ">written in all"];
pub const LATENCY_TITLES: [&str; 6] = ["operation", "tier", ">p50", ">p99", ">timed", "one in"];

const BAR_CELLS: usize = 16;

/// Characters that a terminal can show.
pub struct Marks {
    pub full: &'static str,
    /// Eighths of a cell.
    pub parts: &'static [&'static str],
    pub empty: &'static str,
    pub arrow: &'static str,
}

impl Marks {
    pub const fn ascii() -> Self {
        Self { full: "#", parts: &[], empty: ".", arrow: "->" }
    }
    pub const fn unicode() -> Self {
        Self { full: "█", parts: &["▏", "▎", "▍", "▌", "▋", "▊", "▉"], empty: "·", arrow: "→" }
    }
    /// Returns a bar of `cells`, filled to a fraction; any non-zero fraction is visible.
    pub fn bar(&self, part: f64, cells: usize) -> String {
        let steps = self.parts.len() + 1;
        let filled = (part.clamp(0.0, 1.0) * (cells * steps) as f64).round() as usize;
        let filled = if part > 0.0 { filled.max(1) } else { 0 };
        let mut bar = self.full.repeat(filled / steps);
        let mut shown = filled / steps;
        if !filled.is_multiple_of(steps) {
            bar.push_str(self.parts[filled % steps - 1]);
            shown += 1;
        }
        bar.push_str(&self.empty.repeat(cells - shown));
        bar
    }
}

/// Returns the title line.
pub fn title(look: &Look) -> String {
    let (stats, uptime) = (&look.now.stats, look.now.uptime_ns / 1_000_000_000);
    let up = match uptime {
        0..60 => format!("{uptime} s"),
        60..3600 => format!("{} min", uptime / 60),
        3600..86_400 => format!("{} h {} min", uptime / 3600, uptime / 60 % 60),
        _ => format!("{} d {} h", uptime / 86_400, uptime / 3600 % 24),
    };
    let stalls = look.now.counts.stalls + look.now.counts.refusals;
    let mut line = format!(
        "up {up}, {} objects in {} containers, {} messages/s, {} clients",
        count(stats.objects),
        count(stats.containers),
        count(look.rates.requests_per_s as u64),
        count(stats.sessions),
    );
    if stalls > 0 {
        line = format!("{line}, {} waits for space", count(stalls));
    }
    if !look.now.enabled {
        line.push_str(", counting is off (CENOTE_TELEMETRY=0)");
    }
    if stats.records > 0 {
        line = format!("{line}, values {}", crate::cmd::status::values(stats));
    }
    line
}

/// Formats bytes per second.
pub fn per_second(rate: f64) -> String {
    if rate < 1.0 { "-".to_owned() } else { format!("{}/s", human(rate as u64)) }
}

/// Returns how full a tier is.
pub fn fill(device: &DeviceInfo) -> f64 {
    device.used_bytes as f64 / (device.spec.capacity_bytes as f64).max(1.0)
}

pub fn tiers(look: &Look, marks: &Marks) -> Vec<Vec<String>> {
    let row = |device: &DeviceInfo| {
        let here = FlowEnd::Tier(device.id);
        let is_io = |why: FlowWhy| why != FlowWhy::Eviction;
        let sum = |fits: &dyn Fn(&cenote_telemetry::FlowRate) -> bool| -> f64 {
            look.rates.flows.iter().filter(|flow| is_io(flow.why) && fits(flow)).map(|flow| flow.bytes_per_s).sum()
        };
        let get =
            look.now.latencies.iter().find(|latency| (latency.what, latency.tier) == (Timed::Get, Some(device.id)));
        let get = get.map(|get| Rates::latency(look.before.as_ref(), get));
        let quantile = |part: f64| get.as_ref().and_then(|get| get.quantile_ns(part)).map_or("-".to_owned(), duration);
        vec![
            device.spec.name.clone(),
            device.spec.kind.word().to_owned(),
            state(device).to_owned(),
            format!("{} {:3.0}%", marks.bar(fill(device), BAR_CELLS), fill(device) * 100.0),
            human(device.used_bytes),
            human(device.spec.capacity_bytes),
            per_second(sum(&|flow| flow.to == here)),
            per_second(sum(&|flow| flow.from == here)),
            format!("{} / {}", quantile(0.5), quantile(0.99)),
        ]
    };
    look.now.devices.iter().map(row).collect()
}

fn state(device: &DeviceInfo) -> &'static str {
    match device.state {
        DeviceState::Online => "online",
        DeviceState::Draining => "draining",
        DeviceState::Failed => "FAILED",
    }
}

pub fn flows(look: &Look, marks: &Marks) -> Vec<Vec<String>> {
    let names = Names::of(&look.now);
    let row = |flow: &cenote_telemetry::FlowRate| {
        vec![
            names.end(flow.from),
            marks.arrow.to_owned(),
            names.end(flow.to),
            flow.why.word().to_owned(),
            per_second(flow.bytes_per_s),
            human(flow.bytes),
        ]
    };
    look.rates.flows.iter().map(row).collect()
}

pub fn hot(look: &Look, sort: SortArg) -> Vec<Vec<String>> {
    let names = Names::of(&look.now);
    let mut hot: Vec<_> = look.now.hot.iter().collect();
    match sort {
        SortArg::Heat => {} // in the given order
        SortArg::Size => hot.sort_by_key(|hot| std::cmp::Reverse(hot.size)),
        SortArg::Name => hot.sort_by_cached_key(|hot| Names::object(hot)),
    }
    let row = |hot: &&cenote::model::HotObject| {
        let on = hot.tiers.iter().map(|(id, bytes)| format!("{} {}", names.tier(*id), human(*bytes)));
        vec![
            Names::object(hot),
            human(hot.size),
            human(hot.score),
            format!("{} s", hot.idle_ms / 1000),
            on.collect::<Vec<_>>().join(", "),
        ]
    };
    hot.iter().map(row).collect()
}

pub fn clients(look: &Look, sort: SortArg) -> Vec<Vec<String>> {
    let rates = |session: u64| look.rates.clients.get(&session).copied().unwrap_or_default();
    let mut clients: Vec<_> = look.now.clients.iter().collect();
    match sort {
        SortArg::Heat => clients.sort_by(|a, b| {
            let work = |session: u64| rates(session).0 + rates(session).1 + rates(session).2;
            work(b.session).total_cmp(&work(a.session)).then(a.session.cmp(&b.session))
        }),
        SortArg::Size => {
            clients.sort_by_key(|client| std::cmp::Reverse(client.read_bytes.saturating_add(client.written_bytes)));
        }
        SortArg::Name => clients.sort_by_key(|client| (&client.program, client.pid)),
    }
    let weight = |uid: u32| look.now.users.iter().find(|user| user.uid == uid).map_or(1, |user| user.weight);
    let row = |client: &&cenote::model::ClientTelemetry| {
        let (written, read, messages) = rates(client.session);
        vec![
            if client.program.is_empty() { "?".to_owned() } else { client.program.clone() },
            client.pid.to_string(),
            client.uid.to_string(),
            weight(client.uid).to_string(),
            per_second(read),
            per_second(written),
            format!("{}/s", count(messages as u64)),
            human(client.read_bytes),
            human(client.written_bytes),
        ]
    };
    clients.iter().map(row).collect()
}

pub fn latencies(look: &Look) -> Vec<Vec<String>> {
    let names = Names::of(&look.now);
    let row = |latency: &cenote::model::Latency| {
        let histogram = Rates::latency(look.before.as_ref(), latency);
        let quantile = |part: f64| histogram.quantile_ns(part).map_or("-".to_owned(), duration);
        vec![
            latency.what.word().replace('_', " "),
            latency.tier.map_or("-".to_owned(), |id| names.tier(id)),
            quantile(0.5),
            quantile(0.99),
            count(histogram.count()),
            latency.sampled_in.to_string(),
        ]
    };
    look.now.latencies.iter().map(row).collect()
}

/// Formats nanoseconds in the unit that people would choose.
pub fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "µs"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    if value < 10.0 && unit != "ns" { format!("{value:.1} {unit}") } else { format!("{value:.0} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_have_their_width() {
        for marks in [Marks::ascii(), Marks::unicode()] {
            for part in [0.0, 0.0001, 0.3, 0.999, 1.0, 7.0] {
                assert_eq!(marks.bar(part, 10).chars().count(), 10, "{part}");
            }
        }
        assert_eq!(Marks::ascii().bar(0.25, 4), "#...");
        assert_eq!(Marks::unicode().bar(0.375, 4), "█▌··");
        assert_eq!(Marks::unicode().bar(0.0001, 2), "▏·");
    }

    #[test]
    fn durations_have_a_unit() {
        let said: Vec<String> = [999, 1500, 25_000, 1_000_000, 3_200_000_000].into_iter().map(duration).collect();
        assert_eq!(said, ["999 ns", "1.5 µs", "25 µs", "1.0 ms", "3.2 s"]);
    }
}
