//! Tiers whose places are on nodes: `path=@n1:@n2:@n3`, or `path=nodes` for all nodes that there are when the tier is added.

use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::model::node_of_place;
use cenote::{
    DeviceInfo, DeviceKind, DeviceSpec, Error, ErrorKind, HomeId, LayoutWish, Mode, OpenOptions, Result, Store,
};
use cenote_cluster::Members;
use cenote_device::object::raid::PLACE_FILE;
use cenote_server::daemon::PARTS_DIR;

use super::nodes::{Nodes, subject};
use crate::cmd::Context;
use crate::config;
use crate::failure::Done;

/// The word that stands for all nodes.
const ALL: &str = "nodes";
/// How long the nodes of a new cluster may take to know each other.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);

/// Returns true if a tier lies on nodes: it can only be added to a node that serves.
pub(super) fn is_on_nodes(spec: &DeviceSpec) -> bool {
    let is_named = || spec.paths().iter().any(|path| node_of_place(path).is_some());
    spec.kind == DeviceKind::Raid && (spec.path.as_os_str() == ALL || is_named())
}

/// Adds a tier to the store of a node in `dir`. If it lies on nodes, waits for these.
pub fn add(store: &Store, dir: &Path, spec: &mut DeviceSpec) -> Result<()> {
    let is_on_nodes = is_on_nodes(spec);
    if spec.kind == DeviceKind::Raid && spec.path.as_os_str() == ALL {
        let Some(members) = Members::read(dir)? else {
            return Err(Error::new(ErrorKind::InvalidInput, format!("tier `{}`", spec.name))
                .because(format!("the store in {} is no node of a cluster", dir.display()))
                .try_next("name directories, with `:` between them, or begin with `cenote cluster start`"));
        };
        let present = members.all.iter().filter(|member| !member.has_left);
        spec.path = present.map(|member| format!("@{}", member.name)).collect::<Vec<_>>().join(":").into();
    }
    config::make_absolute(spec)?;
    let begin = Instant::now();
    loop {
        match store.add_device(spec) {
            Err(error) if is_on_nodes && error.kind() == ErrorKind::Disconnected && begin.elapsed() < PATIENCE => {
                std::thread::sleep(PAUSE);
            }
            added => return added,
        }
    }
}

/// Makes a tier with a layout on the nodes of the cluster, for a home. `None` if this store is no node of one.
pub fn make_tier_with(dir: &Path, store: &Store, home: HomeId, wish: &LayoutWish) -> Result<Option<DeviceSpec>> {
    if Members::read(dir)?.is_none() {
        return Ok(None);
    }
    let layout = wish.layout();
    let is_disk = |device: &&DeviceInfo| matches!(device.spec.kind, DeviceKind::File | DeviceKind::Directory);
    let disks: u64 = store.devices_of(home)?.iter().filter(is_disk).map(|disk| disk.spec.capacity_bytes).sum();
    if disks == 0 {
        return Err(Error::new(ErrorKind::NotFound, format!("layout `{wish}`"))
            .because(format!(
                "home {home} has neither a tier with it nor a disk, by which the size of a new one is chosen"
            ))
            .try_next(format!("`cenote tier add name=NAME,kind=raid,path=nodes,layout={wish},size=SIZE`")));
    }
    let size = disks / layout.parts() as u64 * layout.data_parts() as u64;
    let scheme = wish.to_string();
    let name = format!("layout-{}", scheme.split(',').next().unwrap_or_default().replace('=', "-"));
    let unit = if layout.has_units() { format!(",unit={}", layout.unit_bytes()) } else { String::new() };
    let scheme = scheme.split(',').next().unwrap_or_default();
    let text = format!("name={name},kind=raid,path=nodes,layout={scheme}{unit},size={size}");
    let mut spec = super::node::parsed(&text)?;
    spec.name = format!("{home}/{name}");
    add(store, dir, &mut spec)?;
    Ok(Some(spec))
}

/// Adds tiers, one on each line of standard input, to the node in `dir`, unless it has them.
pub(super) fn add_to_node(dir: &Path) -> Done {
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).map_err(|error| Error::io("standard input", &error))?;
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let there = store.devices()?;
    for text in input.lines() {
        let mut spec = super::node::parsed(text)?;
        if !there.iter().any(|device| device.spec.name == spec.name) {
            add(&store, dir, &mut spec)?;
        }
    }
    Ok(())
}

/// Adds the tiers that lie on nodes to those nodes that `which` names.
pub(super) fn add_to_nodes(dir: &Path, nodes: &Nodes, which: impl Fn(&str) -> bool + Sync) -> Result<()> {
    let mut tiers = Vec::new();
    for text in &nodes.tiers {
        if is_on_nodes(&super::node::parsed(text)?) {
            tiers.push(text.as_str());
        }
    }
    if tiers.is_empty() {
        return Ok(());
    }
    let added = nodes.each(|_, node| {
        if !which(&node.name) {
            return Ok(String::new());
        }
        let place = dir.join(&node.name);
        nodes.run(node, &["cluster".as_ref(), "add-tiers".as_ref(), place.as_os_str()], tiers.join("\n").as_bytes())
    });
    super::nodes::all(added).map(drop)
}

/// Fails if a node keeps parts of tiers: nothing moves them away.
pub(super) fn may_leave(dir: &Path, nodes: &Nodes, name: &str) -> Result<()> {
    let Some((_, node)) = nodes.find(name) else { return Ok(()) };
    let place = dir.join(name);
    let kept = nodes.run(node, &["cluster".as_ref(), "count-parts".as_ref(), place.as_os_str()], &[])?;
    match kept.trim() {
        "0" => Ok(()),
        count => Err(Error::new(ErrorKind::Unsupported, subject(dir))
            .because(format!("node {name} keeps {count} places of tiers, and these do not move"))
            .try_next("on each node drain and remove the tiers that it is a place of: `cenote tiers` names them, then `cenote tier drain`, `cenote tier remove`")),
    }
}

/// Prints how many places of tiers the node in `dir` has.
pub(super) fn count_parts(context: &mut Context<'_>, dir: &Path) -> Done {
    let has_mark = |place: &std::fs::DirEntry| place.path().join(PLACE_FILE).exists();
    let places = std::fs::read_dir(dir.join(PARTS_DIR)).into_iter().flatten().flatten();
    context.out.line(places.filter(has_mark).count().to_string())
}
