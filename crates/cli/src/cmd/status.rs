//! `status`: tiers, counters, sessions, journal. `config`: the effective settings and their sources.

use cenote::{Answered, DeviceInfo, Mode, Store, StoreStats};
use serde_json::json;

use super::{Access, Context, answered, tier};
use crate::config;
use crate::failure::Done;
use cenote::model::size::{count, human};
use cenote_server::VALUES_VARIABLE;

pub fn status(context: &mut Context<'_>) -> Done {
    let store = context.open(Access::Read)?;
    let Answered { found: devices, silent } = store.devices_answered()?;
    let Some(stats) = store.stats_answered()?.found.pop() else { return answered::all(silent) };
    let engines = store.engines()?;
    if context.out.json {
        context.out.document(&document(&store, engines, &devices, &stats))?;
        return answered::all(silent);
    }
    let out = &mut *context.out;
    out.line(format!("store {} in {} ({})", store.id(), store.dir().display(), reached(&store)))?;
    if let Some((address, term)) = home_of(&store) {
        out.line(format!("home {address}, term {term}"))?;
    }
    out.line("")?;
    tier::table(out, &devices)?;
    out.line("")?;
    let rows = [
        ("containers", count(stats.containers)),
        ("objects", format!("{} in {} extents", count(stats.objects), count(stats.extents))),
        ("indices", format!("{} with {} records", count(stats.indices), count(stats.records))),
        ("sessions", count(stats.sessions)),
        ("engines", count(u64::from(engines))),
        ("epoch", count(stats.epoch)),
        ("journal", format!("{} since the last checkpoint", human(stats.journal_bytes))),
        ("moved", format!("{} between tiers since it was opened", human(stats.moved_bytes))),
        ("metadata", format!("{} of memory", human(stats.metadata_bytes))),
        ("values", values(&stats)),
        ("scrub", format!("{} bad ranges that it could not repair since it was opened", count(stats.scrub_findings))),
    ];
    for (name, value) in rows {
        out.line(format!("{name:<11} {value}"))?;
    }
    if stats.scrub_findings > 0 {
        out.line("damage was found: `cenote verify` lists it, and the daemon's log says of each range why it could not be repaired")?;
    }
    answered::all(silent)
}

/// The place of the store's home in a pool, and the number of its present opening.
fn home_of(store: &Store) -> Option<(String, u64)> {
    let address = cenote_server::home_of(store.dir()).ok()??;
    let term = cenote_device::rados_dir::term_noted(&store.dir().join(cenote_device::rados_dir::COPY_DIR))?;
    Some((address.to_string(), term))
}

fn reached(store: &Store) -> &'static str {
    if store.reached() == Mode::Daemon { "served by a daemon" } else { "no daemon; opened in this process" }
}

fn document(store: &Store, engines: u16, devices: &[DeviceInfo], stats: &StoreStats) -> serde_json::Value {
    json!({
        "store": store.id().to_string(),
        "dir": store.dir().display().to_string(),
        "engines": engines,
        "home": home_of(store).map(|(place, term)| json!({ "place": place, "term": term })),
        "daemon": store.reached() == Mode::Daemon,
        "tiers": devices.iter().map(tier::document).collect::<Vec<_>>(),
        "containers": stats.containers,
        "objects": stats.objects,
        "extents": stats.extents,
        "indices": stats.indices,
        "records": stats.records,
        "sessions": stats.sessions,
        "epoch": stats.epoch,
        "journal_bytes": stats.journal_bytes,
        "moved_bytes": stats.moved_bytes,
        "metadata_bytes": stats.metadata_bytes,
        "values_here_bytes": stats.values_here_bytes,
        "values_budget_bytes": stats.values_budget_bytes,
        "values_away_bytes": stats.values_away_bytes,
        "scrub_findings": stats.scrub_findings,
    })
}

/// Formats where the values of records are.
pub fn values(stats: &StoreStats) -> String {
    let (here, budget, away) = (stats.values_here_bytes, stats.values_budget_bytes, stats.values_away_bytes);
    format!("{} in memory (budget {}), {} on tiers", human(here), human(budget), human(away))
}

pub fn config(context: &mut Context<'_>) -> Done {
    let (dir, from) = config::store_dir(context.cli.store.as_deref())?;
    let mut rows: Vec<[String; 3]> = vec![
        ["store".into(), dir.display().to_string(), from.into()],
        ["mode".into(), format!("{:?}", context.cli.mode).to_lowercase(), "command line or default".into()],
    ];
    for name in [
        "CENOTE_STORE",
        "XDG_DATA_HOME",
        "CENOTE_BIN",
        "CENOTE_LOG",
        VALUES_VARIABLE,
        "HDF5_PLUGIN_PATH",
        "HDF5_VOL_CONNECTOR",
    ] {
        if let Some(value) = std::env::var_os(name) {
            rows.push([name.into(), value.to_string_lossy().into_owned(), "environment".into()]);
        }
    }
    match context.open(Access::Read) {
        Ok(store) => {
            rows.push(["id".into(), store.id().to_string(), "fixed when it was made".into()]);
            let budget = human(store.stats()?.values_budget_bytes);
            rows.push(["values in memory".into(), budget, format!("{VALUES_VARIABLE}, or the machine's memory")]);
            for device in store.devices()? {
                let mut value = format!("{}, {}", device.spec.kind.word(), human(device.spec.capacity_bytes));
                if !device.spec.path.as_os_str().is_empty() {
                    value = format!("{value}, {}", device.spec.path.display());
                }
                let (low, high) = (device.spec.watermark_low_permille, device.spec.watermark_high_permille);
                value = format!("{value}, drains at {}% to {}%", high / 10, low / 10);
                rows.push([format!("tier {}", device.spec.name), value, "store".into()]);
            }
        }
        Err(error) => rows.push(["store state".into(), error.to_string(), String::new()]),
    }
    for (name, value) in limits() {
        rows.push([name.into(), value, "format".into()]);
    }
    if context.out.json {
        let fields: Vec<_> =
            rows.iter().map(|[name, value, from]| json!({"name": name, "value": value, "from": from})).collect();
        return context.out.document(&fields.into());
    }
    let rows: Vec<Vec<String>> = rows.into_iter().map(Vec::from).collect();
    context.out.table(&["setting", "value", "from"], &rows)
}

fn limits() -> [(&'static str, String); 7] {
    use cenote::model as m;
    [
        ("block size", format!("{} to {}", human(1 << m::BLOCK_SHIFT_MIN), human(1 << m::BLOCK_SHIFT_MAX))),
        ("block size default", human(1 << m::BLOCK_SHIFT_DEFAULT)),
        ("object size max", human(m::OBJECT_BYTES_MAX)),
        ("index key max", human(m::KEY_BYTES_MAX as u64)),
        ("index value max", human(m::VALUE_BYTES_MAX as u64)),
        ("label max", human(m::LABEL_BYTES_MAX as u64)),
        ("checksum unit", human(1 << m::SUM_UNIT_SHIFT)),
    ]
}
