//! `tiers`: use and speed of the tiers, as a table, as JSON, as a drawing.

use std::time::Duration;

use cenote::model::DeviceState;
use cenote::model::size::human;
use cenote::{Answered, DeviceInfo, Error, ErrorKind, Profile, Store};
use serde_json::{Value, json};

use super::{Access, Context, answered, tier, tiers_plot};
use crate::args::TiersArgs;
use crate::copy;
use crate::failure::Done;
use crate::out::{Out, bar};

const BAR_CELLS: usize = 10;
/// Measurement time of a new tier: enough for a rough profile, too short to notice.
const NEW: Duration = Duration::from_millis(100);

pub fn tiers(context: &mut Context<'_>, args: &TiersArgs) -> Done {
    let store = context.open(if args.measure.is_some() { Access::Write } else { Access::Read })?;
    if let Some(names) = &args.measure {
        measure(context, &store, names, Duration::from_secs_f64(args.seconds))?;
    }
    let Answered { found: devices, silent } = store.devices_answered()?;
    let profile = |device: &DeviceInfo| store.profile(&device.spec.name, Duration::ZERO);
    let profiles = devices.iter().map(profile).collect::<cenote::Result<Vec<Profile>>>()?;
    if let Some(file) = &args.plot {
        let drawn: Vec<_> =
            devices.iter().zip(&profiles).map(|(device, profile)| (device.spec.name.as_str(), profile)).collect();
        tiers_plot::draw(file, &drawn)?;
    }
    if context.out.json {
        context.out.document(&devices.iter().zip(&profiles).map(document).collect())?;
        return answered::all(silent);
    }
    table(context.out, &devices)?;
    if let Some(file) = &args.plot {
        context.out.line(format!("drawn in {}", file.display()))?;
    }
    answered::all(silent)
}

/// Measures the named tiers, or all that are online.
fn measure(context: &Context<'_>, store: &Store, names: &[String], time: Duration) -> Done {
    let devices = store.devices()?;
    if let Some(unknown) = names.iter().find(|name| !devices.iter().any(|device| device.spec.name == **name)) {
        let known: Vec<_> = devices.iter().map(|device| format!("`{}`", device.spec.name)).collect();
        return Err(Error::new(ErrorKind::NotFound, format!("tier `{unknown}`"))
            .try_next(format!("the store has {}", known.join(", ")))
            .into());
    }
    let wanted = |device: &&DeviceInfo| match names {
        [] => device.state == DeviceState::Online && device.spec.kind.is_shareable(),
        names => names.contains(&device.spec.name),
    };
    for device in devices.iter().filter(wanted) {
        let bar = copy::Progress::bytes(context.progress(), &format!("measuring {}", device.spec.name), None);
        let measured = store.profile(&device.spec.name, time);
        bar.done();
        measured?;
    }
    Ok(())
}

/// Measures new tiers briefly. Failure to measure, such as for a tier that is too full, is no error.
pub fn measure_new(store: &Store) -> cenote::Result<()> {
    for device in store.devices()? {
        if device.speed.is_none() && device.spec.kind.is_shareable() {
            let _ = store.profile(&device.spec.name, NEW);
        }
    }
    Ok(())
}

fn table(out: &mut Out, devices: &[DeviceInfo]) -> Done {
    let rows: Vec<Vec<String>> = devices.iter().map(row).collect();
    let titles =
        ["tier", "kind", "state", "use", ">free", ">capacity", ">read after", ">at", ">write after", ">at", "notes"];
    out.table(&titles, &rows)
}

fn row(device: &DeviceInfo) -> Vec<String> {
    let (spec, used) = (&device.spec, device.used_bytes);
    let percent = if spec.capacity_bytes == 0 { 0.0 } else { used as f64 * 100.0 / spec.capacity_bytes as f64 };
    let speed = |latency: fn(&cenote::Speed) -> f64, bandwidth: fn(&cenote::Speed) -> f64| match &device.speed {
        Some(speed) => [time(latency(speed)), rate(bandwidth(speed))],
        None => ["-".to_owned(), "-".to_owned()],
    };
    let [read_after, read_at] = speed(|speed| speed.read_latency_ns, |speed| speed.read_bandwidth);
    let [write_after, write_at] = speed(|speed| speed.write_latency_ns, |speed| speed.write_bandwidth);
    vec![
        spec.name.clone(),
        spec.kind.word().to_owned(),
        tier::state(device).to_owned(),
        format!("{} {percent:3.0}%", bar(used, spec.capacity_bytes, BAR_CELLS)),
        human(free_bytes(device)),
        human(spec.capacity_bytes),
        read_after,
        read_at,
        write_after,
        write_at,
        notes(device),
    ]
}

fn free_bytes(device: &DeviceInfo) -> u64 {
    device.spec.capacity_bytes.saturating_sub(device.used_bytes + device.reserved_bytes)
}

fn notes(device: &DeviceInfo) -> String {
    let path = device.spec.path.display().to_string();
    [device.note.clone(), device.compression().unwrap_or_default(), path]
        .into_iter()
        .filter(|note| !note.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

/// Formats nanoseconds for people.
pub fn time(ns: f64) -> String {
    match ns {
        ns if ns < 995.0 => format!("{ns:.0} ns"),
        ns if ns < 9950.0 => format!("{:.1} us", ns / 1e3),
        ns if ns < 995e3 => format!("{:.0} us", ns / 1e3),
        ns if ns < 995e6 => format!("{:.1} ms", ns / 1e6),
        ns => format!("{:.1} s", ns / 1e9),
    }
}

/// Formats bytes per second for people: decimal, as devices are sold.
pub fn rate(bytes_per_s: f64) -> String {
    match bytes_per_s {
        rate if rate < 995e3 => format!("{:.0} kB/s", rate / 1e3),
        rate if rate < 995e6 => format!("{:.0} MB/s", rate / 1e6),
        rate => format!("{:.1} GB/s", rate / 1e9),
    }
}

/// Converts everything known of a tier.
fn document((device, profile): (&DeviceInfo, &Profile)) -> Value {
    let points = profile.points.iter().map(|point| {
        json!({
            "write": point.is_write,
            "bytes": point.bytes,
            "parallel": point.parallel,
            "p50_ns": point.p50_ns,
            "p99_ns": point.p99_ns,
            "bytes_per_s": point.bandwidth,
        })
    });
    let mut document = tier::document(device);
    document["free_bytes"] = free_bytes(device).into();
    document["measured_unix_ms"] = profile.unix_ms.into();
    document["profile"] = points.collect();
    document
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_for_people() {
        let times = [3.2, 994.0, 999.0, 12_345.0, 999_000.0, 2e9].map(time);
        assert_eq!(times, ["3 ns", "994 ns", "1.0 us", "12 us", "1.0 ms", "2.0 s"]);
        assert_eq!([5e3, 2e8, 7.26e9].map(rate), ["5 kB/s", "200 MB/s", "7.3 GB/s"]);
    }
}
