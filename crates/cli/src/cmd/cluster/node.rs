//! The beginning of one node, on its host.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{ClusterChange, DeviceKind, DeviceSpec, Error, ErrorKind, Mode, OpenOptions, Result, Store, StoreConfig};
use cenote_cluster::register::GroupRegister;
use cenote_cluster::{KEY_FILE, Members, RegisterPlace};
use cenote_device::rados_dir::Address;
use cenote_rpc::net::ClusterKey;
use cenote_server::daemon::{self, DaemonOptions};

use super::nodes::{Begin, subject};
use super::places::is_on_nodes;
use crate::config;
use crate::failure::Done;

/// Longest time from the end of a process to the end of its locks.
const DYING: Duration = Duration::from_secs(2);

/// Begins a node on this host: makes its store if it has none, and starts its daemon.
pub(super) fn node(dir: &Path) -> Done {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).map_err(|error| Error::io("standard input", &error))?;
    let begin: Begin = serde_json::from_str(&input)
        .map_err(|error| Error::new(ErrorKind::InvalidInput, "what a node has to know").because(error.to_string()))?;
    let members = Members::parse(&begin.members, dir)?;
    if !super::part::is_made(dir, members.cluster, members.home)? {
        let devices = begin.tiers.iter().map(|tier| tier_of(tier, dir)).collect::<Result<Vec<DeviceSpec>>>()?;
        // Those on nodes are added once the nodes serve.
        let devices: Vec<DeviceSpec> = devices.into_iter().filter(|device| !is_on_nodes(device)).collect();
        let devices = match members.place_of(members.home) {
            Some(place) => shared_tiers(devices, &place, dir, begin.sharing)?,
            None if devices.is_empty() => default_tiers(dir, begin.sharing),
            None => devices,
        };
        std::fs::create_dir_all(dir.parent().unwrap_or(dir)).map_err(|error| Error::io(subject(dir), &error))?;
        let config = StoreConfig { devices, home: members.home, ..StoreConfig::default() };
        make_store(dir, &members, config)?;
    }
    let key = ClusterKey::from_hex(&begin.key)
        .ok_or_else(|| Error::new(ErrorKind::InvalidInput, "cluster key").because("it is not 64 hexadecimal digits"))?;
    if !dir.join(KEY_FILE).exists() {
        key.create_file(&dir.join(KEY_FILE))?;
    }
    members.write(dir)?;
    if begin.is_new && members.register == RegisterPlace::Nodes && members.is_keeper() {
        GroupRegister::make(dir)?;
    }
    if is_served(dir) {
        // Its home is with another node: it reads who the members are once it has it.
        if daemon::waits_for_home(dir) {
            return Ok(());
        }
        let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
        return Ok(Store::open_with(dir, &options)?.change_cluster(ClusterChange::Reread)?);
    }
    daemon::run(dir, &DaemonOptions { background: true, ..DaemonOptions::default() })?;
    Ok(())
}

/// Makes the store of a node, with its home in a pool if the members say so.
fn make_store(dir: &Path, members: &Members, config: StoreConfig) -> Result<()> {
    let options =
        OpenOptions { mode: Mode::InProcess, create: true, create_new: true, config, ..OpenOptions::default() };
    let is_set = match members.place_of(members.home) {
        Some(place) => cenote_server::set_home(dir, &place, &options.config)?,
        None => false,
    };
    let made = Store::open_with(dir, &options).and_then(|store| store.close());
    made.inspect_err(|_| {
        if is_set && !cenote_server::holds_store(dir).unwrap_or(true) {
            let _ = cenote_server::forget_home(dir); // report the error of the creation
        }
    })
}

/// Takes the home of a node back, so that it can be deleted: all nodes are stopped.
pub(super) fn take_home(dir: &Path) -> Done {
    if let Some(place) = cenote_server::home_of(dir)? {
        cenote_server::adopt_from(dir, &place)?.ok_or_else(|| {
            Error::new(ErrorKind::Busy, subject(dir))
                .because("a daemon has it")
                .try_next("`cenote cluster stop DIR`, and try again")
        })?;
    }
    Ok(())
}

/// Returns true if a daemon serves the store. One that was killed may have the lock for a moment longer.
fn is_served(dir: &Path) -> bool {
    let begin = Instant::now();
    while cenote_server::is_locked(dir) {
        if cenote_server::holder(dir).is_some() || begin.elapsed() > DYING {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// A tier; a relative path begins at the node's directory.
pub(super) fn tier_of(text: &str, dir: &Path) -> Result<DeviceSpec> {
    let mut tier = parsed(text)?;
    if !is_on_nodes(&tier) && !tier.kind.is_remote() {
        tier.change_paths(|path| dir.join(path)); // absolute ones stay
    }
    Ok(tier)
}

/// A tier, as it is written.
pub(super) fn parsed(text: &str) -> Result<DeviceSpec> {
    config::parse_tier(text).map_err(|why| Error::new(ErrorKind::InvalidInput, format!("tier `{text}`")).because(why))
}

/// Bytes of the tier in the pool that a home gets if no tiers are named: the pool is the limit.
const POOL_TIER_BYTES: u64 = 1 << 40;

/// The tiers of a home that lies in `place`: those in object services have a place for each home. If there are none, memory and
/// a namespace of the same pool.
fn shared_tiers(tiers: Vec<DeviceSpec>, place: &Address, dir: &Path, sharing: u16) -> Result<Vec<DeviceSpec>> {
    if tiers.is_empty() {
        let mut tiers = default_tiers(dir, sharing);
        tiers.retain(|tier| tier.kind == DeviceKind::SharedMemory);
        let mut text = format!("name=pool,kind=rados,path={}/{}-data,size={POOL_TIER_BYTES}", place.pool, place.name);
        let given = |path: &Path| path.display().to_string();
        for (name, value) in [("user", &place.user), ("conf", &given(&place.conf)), ("keyring", &given(&place.keyring))]
        {
            if !value.is_empty() {
                text = format!("{text},{name}={value}");
            }
        }
        tiers.push(parsed(&text)?);
        return Ok(tiers);
    }
    let which = place.name.rsplit_once('-').map_or("", |(_, which)| which);
    let of_home = |mut tier: DeviceSpec| {
        if tier.kind.is_remote() {
            let path = tier.path.display().to_string();
            tier.path =
                if path.contains('/') { format!("{path}-{which}").into() } else { format!("{path}/{which}").into() };
        }
        tier
    };
    Ok(tiers.into_iter().map(of_home).collect())
}

/// Memory and a directory, as for a store by itself, of which each node of this host has its share.
pub(super) fn default_tiers(dir: &Path, sharing: u16) -> Vec<DeviceSpec> {
    let sharing = u64::from(sharing.max(1));
    let place = dir.parent().unwrap_or(dir);
    let free = |path: &Path| rustix::fs::statvfs(path).map_or(0, |stat| stat.f_bavail.saturating_mul(stat.f_frsize));
    let info = rustix::system::sysinfo();
    let memory = info.totalram.saturating_mul(u64::from(info.mem_unit.max(1))) / 8 / sharing;
    let disk = free(place) / 2 / sharing;
    let text = [
        format!("name=memory,kind=memory,size={}", memory.clamp(32 << 20, 64 << 30).next_multiple_of(16 << 20)),
        format!("name=disk,kind=directory,path=disk,size={}", disk.clamp(64 << 20, 1 << 50).next_multiple_of(16 << 20)),
    ];
    text.iter().filter_map(|text| tier_of(text, dir).ok()).collect()
}
