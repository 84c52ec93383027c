//! Tiers whose places are on nodes: `path=@n1:@n2:@n3`, or `path=nodes` for all nodes that there are when the tier is added.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::model::node_of_place;
use cenote::{
    DeviceInfo, DeviceKind, DeviceSpec, Error, ErrorKind, HomeId, Layout, LayoutWish, Mode, OpenOptions, Result, Store,
};
use cenote_cluster::Members;
use cenote_device::object::raid::PLACE_FILE;
use cenote_server::daemon::PARTS_DIR;

use super::nodes::{Node, Nodes, subject};
use crate::cmd::Context;
use crate::config;
use crate::copy::Progress;
use crate::failure::Done;

/// The word that stands for all nodes.
const ALL: &str = "nodes";
/// How long the nodes of a new cluster may take to know each other.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(20);
/// How long a home may take to say what its tiers are.
const ANSWER: Duration = Duration::from_secs(3);
/// A node that leaves has kept no part for so long.
const SETTLED: Duration = Duration::from_secs(1);
/// How long no part of it may have moved.
const STILL: Duration = Duration::from_mins(2);

/// Returns true if a tier lies on nodes: it can only be added to a node that serves.
pub(super) fn is_on_nodes(spec: &DeviceSpec) -> bool {
    let is_named = || spec.paths().iter().any(|path| node_of_place(path).is_some());
    spec.kind == DeviceKind::Raid && (spec.path.as_os_str() == ALL || is_named())
}

/// Fails if nodes with these names cannot be the places of a tier.
pub(super) fn check_places(spec: &DeviceSpec, nodes: &[&str]) -> Result<()> {
    if !is_on_nodes(spec) {
        return Ok(());
    }
    let subject = || format!("tier `{}`", spec.name);
    let paths = spec.paths();
    let is_all = spec.path.as_os_str() == ALL;
    let named: Vec<&str> =
        if is_all { nodes.to_vec() } else { paths.iter().filter_map(|path| node_of_place(path)).collect() };
    if let Some(unknown) = named.iter().find(|name| !nodes.contains(name)) {
        return Err(Error::new(ErrorKind::NotFound, format!("node `{unknown}` of {}", subject()))
            .because(format!("the cluster has the nodes {}", nodes.join(", "))));
    }
    let Some(layout) = spec.options.get("layout") else { return Ok(()) };
    let (needed, there) = (layout.parse::<Layout>()?.parts(), if is_all { named.len() } else { paths.len() });
    if there < needed {
        return Err(Error::new(ErrorKind::InvalidInput, subject())
            .because(format!("layout {layout} needs {needed} nodes, and there are {there}"))
            .try_next("name more nodes, or choose a layout of fewer parts"));
    }
    Ok(())
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
    if let Some(members) = Members::read(dir)? {
        members.check_tier(spec)?;
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
    let scheme = layout.scheme().to_string();
    let name = format!("layout-{}", scheme.replace('=', "-"));
    let unit = if layout.has_units() { format!(",unit={}", layout.unit_bytes()) } else { String::new() };
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

/// Fails if a tier cannot do without a node: it has no other place for what lies there.
pub(super) fn may_leave(dir: &Path, nodes: &Nodes, name: &str) -> Result<()> {
    // One that is gone cannot be asked what it has, and nothing of it can move.
    let has_places =
        nodes.find(name).and_then(|(_, node)| kept_on(dir, nodes, node)).is_some_and(|[places, ..]| places > 0);
    if !has_places {
        return Ok(());
    }
    let asked = nodes.first();
    let place = dir.join(&asked.name);
    let words: [&OsStr; 4] = ["cluster".as_ref(), "tiers-that-need".as_ref(), place.as_os_str(), name.as_ref()];
    let said = nodes.run(asked, &words, &[])?;
    let tiers: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if tiers.is_empty() {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, subject(dir))
        .because(format!("node {name} is a place of tiers that have no other node for what lies there: {}", tiers.join("; ")))
        .try_next("drain and remove these tiers (`cenote tier drain`, `cenote tier remove`), or make ones on more nodes first"))
}

/// The devices of those homes that answer within this time. Others would have to be waited for, as for any request.
fn devices_within(time: Duration, store: &Store, homes: Vec<HomeId>) -> BTreeMap<HomeId, Vec<DeviceInfo>> {
    let (send, answers) = std::sync::mpsc::channel();
    let (until, mut asked) = (Instant::now() + time, homes.len());
    for home in homes {
        let (store, send) = (store.clone(), send.clone());
        // Whoever waits still ends with this process.
        std::thread::spawn(move || drop(send.send((home, store.devices_of(home)))));
    }
    let mut found = BTreeMap::new();
    while asked > 0
        && let Ok((home, answer)) = answers.recv_timeout(until.saturating_duration_since(Instant::now()))
    {
        asked -= 1;
        found.extend(answer.ok().map(|devices| (home, devices)));
    }
    found
}

/// Prints the tiers of all homes that would have fewer nodes than their layout has parts, without the node of this name.
pub(super) fn tiers_that_need(context: &mut Context<'_>, dir: &Path, name: &str) -> Done {
    let options = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let members = Members::read(dir)?.ok_or_else(|| Error::new(ErrorKind::NotFound, subject(dir)))?;
    let stays = |node: &str| node != name && members.all.iter().any(|it| it.name == node && !it.has_left);
    let homes = members.all.iter().filter(|member| !member.has_left).map(|member| member.home).collect();
    // A home that does not answer is gone, and so are its tiers; or it is away, and the node that leaves waits for it.
    for (home, devices) in devices_within(ANSWER, &store, homes) {
        for device in devices {
            let paths = device.spec.paths();
            let named: Vec<&str> = paths.iter().filter_map(|path| node_of_place(path)).collect();
            let Some(layout) = device.spec.options.get("layout").filter(|_| named.contains(&name)) else { continue };
            let parts = layout.parse::<Layout>()?.parts();
            let others = paths.len() - named.iter().filter(|node| !stays(node)).count();
            if others < parts {
                context.out.line(format!("{home}/{} ({layout} on {} nodes)", device.spec.name, others + 1))?;
            }
        }
    }
    context.out.flush()?;
    // A thread may still ask a home that does not answer, and the store would wait for it.
    std::process::exit(0)
}

/// Places of tiers, files and bytes on a node; `None` if it cannot be asked.
fn kept_on(dir: &Path, nodes: &Nodes, node: &Node) -> Option<[u64; 3]> {
    let place = dir.join(&node.name);
    let words: [&OsStr; 3] = ["cluster".as_ref(), "count-parts".as_ref(), place.as_os_str()];
    let said = nodes.run(node, &words, &[]).ok()?;
    let numbers: Vec<u64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

/// Waits until a node that is about to leave keeps no parts of tiers any more: the tiers' hosts move them to other nodes.
pub(super) fn wait_until_moved(
    context: &Context<'_>,
    dir: &Path,
    nodes: &Nodes,
    name: &str,
    pause: Duration,
) -> Result<()> {
    let Some((_, node)) = nodes.find(name) else { return Ok(()) };
    let (mut bar, mut changed_at, mut known, mut empty_since) =
        (None::<Progress>, Instant::now(), u64::MAX, None::<Instant>);
    loop {
        // A node that is gone has nothing that could be moved: its parts are made again from the others.
        let Some([places, files, bytes]) = kept_on(dir, nodes, node) else { return Ok(()) };
        if files == 0 {
            // A host that has just learned of it may write one more.
            let is_settled = empty_since.get_or_insert_with(Instant::now).elapsed() >= SETTLED;
            if places == 0 || is_settled {
                break;
            }
        } else {
            empty_since = None;
            bar.get_or_insert_with(|| Progress::bytes(context.progress(), "moving parts away", Some(bytes)))
                .left(bytes);
        }
        if files != known {
            (changed_at, known) = (Instant::now(), files);
        }
        if changed_at.elapsed() > STILL {
            return Err(Error::new(ErrorKind::Disconnected, subject(dir))
                .because(format!("{files} parts of tiers have stayed on node {name} for {} minutes", STILL.as_secs() / 60))
                .try_next("the notes of `cenote tiers` say what moves and what is in the way; parts go on moving, and the same command waits for them again"));
        }
        std::thread::sleep(pause);
    }
    if let Some(bar) = bar {
        bar.done();
    }
    Ok(())
}

/// Prints how many places of tiers the node in `dir` has, and how many files of parts with how many bytes they have.
pub(super) fn count_parts(context: &mut Context<'_>, dir: &Path) -> Done {
    let all = dir.join(PARTS_DIR);
    let has_mark = |place: &std::fs::DirEntry| place.path().join(PLACE_FILE).exists();
    let places = std::fs::read_dir(&all).into_iter().flatten().flatten().filter(has_mark).count();
    let (files, bytes) = parts_in(&all);
    context.out.line(format!("{places} {files} {bytes}"))
}

/// Number of files of parts in a directory and those below, and their bytes.
fn parts_in(dir: &Path) -> (u64, u64) {
    let mut sums = (0, 0);
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let Ok(found) = entry.metadata() else { continue };
        let some = match found.is_dir() {
            true => parts_in(&entry.path()),
            false if entry.file_name().to_string_lossy().contains('@') => (1, found.len()),
            false => (0, 0),
        };
        sums = (sums.0 + some.0, sums.1 + some.1);
    }
    sums
}
