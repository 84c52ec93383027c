//! `tier add`, `tier drain`, `tier remove`.

use cenote::model::DeviceState;
use cenote::{DeviceInfo, Store};
use serde_json::{Value, json};

use super::{Access, Context, cluster, tiers};
use crate::args::TierCommand;
use crate::copy;
use crate::failure::Done;
use crate::out::{Out, bar};
use cenote::model::size::human;

const BAR_CELLS: usize = 24;

pub fn tier(context: &mut Context<'_>, command: &TierCommand) -> Done {
    let store = context.open(Access::Write)?;
    match command {
        TierCommand::Add { spec } => {
            let mut spec = spec.clone();
            cluster::add_tier(&store, &context.dir()?, &mut spec)?;
            tiers::measure_new(&store)?;
            context.out.line(format!("tier {}: added, {}", spec.name, human(spec.capacity_bytes)))
        }
        TierCommand::Drain { name } => {
            drain(context, &store, name)?;
            context.out.line(format!("tier {name}: empty; it takes nothing new"))
        }
        TierCommand::Remove { name } => {
            store.remove_device(name)?;
            context.out.line(format!("tier {name}: removed"))
        }
    }
}

/// Drains, with a spinner that counts the remaining bytes.
fn drain(context: &Context<'_>, store: &Store, name: &str) -> cenote::Result<()> {
    let used = |store: &Store| {
        let devices = store.devices().unwrap_or_default();
        devices.iter().find(|device| device.spec.name == name).map_or(0, |device| device.used_bytes)
    };
    let bar = copy::Progress::bytes(context.progress(), &format!("draining {name}"), Some(used(store)));
    std::thread::scope(|scope| {
        let drained = scope.spawn(|| store.drain_device(name));
        while !drained.is_finished() {
            std::thread::sleep(std::time::Duration::from_millis(100));
            bar.left(used(store));
        }
        drained.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Prints the table of tiers, with their use as bars.
pub fn table(out: &mut Out, devices: &[DeviceInfo]) -> Done {
    let rows: Vec<Vec<String>> = devices
        .iter()
        .map(|device| {
            let (spec, used) = (&device.spec, device.used_bytes);
            let percent = if spec.capacity_bytes == 0 { 0.0 } else { used as f64 * 100.0 / spec.capacity_bytes as f64 };
            vec![
                spec.name.clone(),
                spec.kind.word().to_owned(),
                state(device).to_owned(),
                format!("{} {percent:3.0}%", bar(used, spec.capacity_bytes, BAR_CELLS)),
                human(used),
                human(device.reserved_bytes),
                human(device.free_bytes()),
                human(spec.capacity_bytes),
                format!("{}-{}%", spec.watermark_low_permille / 10, spec.watermark_high_permille / 10),
                spec.path.display().to_string(),
            ]
        })
        .collect();
    out.table(&["tier", "kind", "state", "use", ">used", ">reserved", ">free", ">capacity", "drains", "path"], &rows)
}

pub fn state(device: &DeviceInfo) -> &'static str {
    match device.state {
        DeviceState::Online => "online",
        DeviceState::Draining => "draining",
        DeviceState::Failed => "FAILED",
    }
}

/// Converts a tier for programs.
pub fn document(device: &DeviceInfo) -> Value {
    json!({
        "name": device.spec.name,
        "id": device.id.0,
        "kind": device.spec.kind.word(),
        "state": state(device).to_lowercase(),
        "path": device.spec.path.display().to_string(),
        "persistent": device.spec.kind.is_persistent(),
        "capacity_bytes": device.spec.capacity_bytes,
        "used_bytes": device.used_bytes,
        "reserved_bytes": device.reserved_bytes,
        "leased_bytes": device.leased_bytes,
        "free_bytes": device.free_bytes(),
        "watermark_high_permille": device.spec.watermark_high_permille,
        "watermark_low_permille": device.spec.watermark_low_permille,
        "unit_bytes": device.unit_bytes,
        "segment_bytes": device.segment_bytes,
        "note": device.note,
        "compress": device.spec.options.get("compress"),
        "packed_bytes": device.packed_bytes,
        "unpacked_bytes": device.unpacked_bytes,
        "speed": device.speed.map(|speed| json!({
            "read_latency_ns": speed.read_latency_ns,
            "write_latency_ns": speed.write_latency_ns,
            "read_bytes_per_s": speed.read_bandwidth,
            "write_bytes_per_s": speed.write_bandwidth,
        })),
    })
}
