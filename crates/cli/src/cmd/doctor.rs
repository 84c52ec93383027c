//! `doctor`: checks this machine for what would keep a store from working well.

use std::path::Path;

use rustix::process::{Resource, getrlimit};
use serde_json::json;

use super::{Access, Context, files};
use crate::failure::Done;
use cenote::model::DeviceState;
use cenote::model::size::human;

/// Each segment, ring and socket takes a descriptor; with a lower limit a store of many tiers runs out.
const OPEN_FILES_MIN: u64 = 1024;

struct Check {
    what: &'static str,
    good: bool,
    found: String,
    next: &'static str,
}

pub fn doctor(context: &mut Context<'_>) -> Done {
    let dir = context.dir()?;
    let checks = [memory(), space(&dir), open_files(), store(context), tiers(context), hdf5_files(context)];
    if context.out.json {
        let list = checks
            .iter()
            .map(|check| json!({"what": check.what, "good": check.good, "found": check.found, "next": check.next}));
        return context.out.document(&list.collect());
    }
    for check in checks {
        let mark = if check.good { "ok  " } else { "LOOK" };
        context.out.line(format!("{mark} {}: {}", check.what, check.found))?;
        if !check.good {
            context.out.line(format!("       next: {}", check.next))?;
        }
    }
    Ok(())
}

fn memory() -> Check {
    let free = free_bytes(Path::new("/dev/shm"));
    Check {
        what: "shared memory",
        good: free.is_some_and(|free| free >= 64 << 20),
        found: free.map_or("no /dev/shm".into(), |free| format!("{} free in /dev/shm", human(free))),
        next: "mount a tmpfs on /dev/shm, or make it larger: mount -o remount,size=4G /dev/shm",
    }
}

fn space(dir: &Path) -> Check {
    let there = dir.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let free = free_bytes(there);
    Check {
        what: "store directory",
        good: free.is_some_and(|free| free >= 256 << 20),
        found: format!("{} with {} free", there.display(), human(free.unwrap_or_default())),
        next: "choose a directory on a larger file system with --store",
    }
}

fn store(context: &Context<'_>) -> Check {
    let opened = context.open(Access::Read).and_then(|store| store.stats());
    Check {
        what: "store",
        good: opened.is_ok(),
        found: opened.map_or_else(|error| error.to_string(), |stats| format!("opens; epoch {}", stats.epoch)),
        next: "make one with `cenote init`, or name it with --store DIR",
    }
}

fn tiers(context: &Context<'_>) -> Check {
    let devices = context.open(Access::Read).and_then(|store| store.devices()).unwrap_or_default();
    let notes: Vec<String> = devices
        .iter()
        .filter(|device| !device.note.is_empty())
        .map(|device| format!("`{}`: {}", device.spec.name, device.note))
        .collect();
    Check {
        what: "tiers",
        good: !devices.iter().any(|device| {
            device.note.starts_with("no ") || device.note.starts_with("DEGRADED") || device.state == DeviceState::Failed
        }),
        found: if notes.is_empty() { format!("{} as their kinds say", devices.len()) } else { notes.join("; ") },
        next: "see docs/tiers.md; persistent memory wants a file system mounted with -o dax=always, files one with direct I/O",
    }
}

fn hdf5_files(context: &Context<'_>) -> Check {
    let (good, found) = files::health(context);
    Check {
        what: "HDF5 files",
        good,
        found,
        next: "`cenote df` shows what they take, `cenote clean` lists them, `cenote clean --waiting` frees them",
    }
}

fn free_bytes(path: &Path) -> Option<u64> {
    let stat = rustix::fs::statvfs(path).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

fn open_files() -> Check {
    // `None` means no limit.
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    Check {
        what: "open files",
        good: limit >= OPEN_FILES_MIN,
        found: format!("{limit} allowed"),
        next: "raise it: ulimit -n 4096",
    }
}
