//! `cluster status`: who is alive, how full, and who hosts and mirrors which home.

use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cenote::model::HomeId;
use cenote::model::size::{count, human};
use cenote::{Error, ErrorKind, HaReport, Mode, OpenOptions, Result, Store};
use cenote_server::daemon::waits_for_home;
use serde_json::json;

use super::nodes::{Node, Nodes, absolute, subject};
use crate::cmd::{Context, ha, tier};
use crate::failure::Done;
use crate::out::{Out, bar};

/// Width of the bar of a node's use.
const BAR: usize = 20;
/// How long the answer of a home is waited for.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is known of a node.
pub(super) struct Seen {
    /// Its use of each tier, or why it does not answer.
    answer: Result<Vec<cenote::DeviceInfo>>,
    stats: Option<cenote::StoreStats>,
    /// What its daemon tells of the cluster.
    report: Option<HaReport>,
}

pub(super) fn look(dir: &Path, nodes: &Nodes, home: HomeId, node: &Node) -> Seen {
    let look = || -> Result<_> {
        let store = open_served(dir, nodes, &dir.join(&node.name))?;
        let report = store.ha_report().ok();
        let (devices, stats) = use_of(store, home);
        Ok((devices, stats, report))
    };
    if waits_for_home(&dir.join(&node.name)) {
        let error = Error::new(ErrorKind::Busy, format!("node `{}`", node.name))
            .because("another node has its home, and its daemon waits for it")
            .try_next("`cenote ha` on another node");
        return Seen { answer: Err(error), stats: None, report: None };
    }
    match look() {
        Ok((answer, stats, report)) => Seen { answer, stats, report },
        Err(error) => Seen { answer: Err(error), stats: None, report: None },
    }
}

/// The use of a home. One that may not act now, since the register is away or its mirrors are, answers when it may again.
fn use_of(store: Store, home: HomeId) -> (Result<Vec<cenote::DeviceInfo>>, Option<cenote::StoreStats>) {
    let (send, receive) = sync_channel(1);
    let ask = move || {
        let told = (store.devices_of(home), store.stats_of(home).ok());
        let _ = send.send(told); // nobody waits any more
    };
    std::thread::spawn(ask);
    receive.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let why = format!("its home does not answer within {} s", PATIENCE.as_secs());
        (Err(Error::new(ErrorKind::Disconnected, format!("home {home}")).because(why)), None)
    })
}

/// Opens the store at a node of this host whose daemon runs: `place` if it is one.
pub(super) fn open_served(dir: &Path, nodes: &Nodes, place: &Path) -> Result<Store> {
    let here = nodes.present().map(|(_, node)| dir.join(&node.name));
    let served = |place: &PathBuf| place.is_dir() && cenote_server::is_locked(place);
    let place = if place.is_dir() { Some(place.to_path_buf()).filter(served) } else { here.into_iter().find(served) };
    let place = place.ok_or_else(|| {
        Error::new(ErrorKind::Disconnected, "its daemon")
            .because("it does not run")
            .try_next("`cenote cluster start DIR`")
    })?;
    Store::open_with(place, &OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() })
}

/// What the node with the latest view tells, and what makes nodes doubtful to others with that view.
fn known_by_all<'a>(reports: impl Iterator<Item = &'a HaReport> + Clone) -> Option<HaReport> {
    let latest = |report: &&HaReport| (report.view, Reverse(report.asked_ago_us.unwrap_or(u64::MAX)));
    let mut report = reports.clone().max_by_key(latest)?.clone();
    let view = report.view;
    for other in reports.filter(|other| other.view == view) {
        for (node, said) in report.nodes.iter_mut().zip(&other.nodes).filter(|(node, _)| node.doubt.is_empty()) {
            node.doubt.clone_from(&said.doubt);
        }
    }
    Some(report)
}

pub(super) fn status(context: &mut Context<'_>, dir: &Path) -> Done {
    let dir = absolute(dir)?;
    let nodes = Nodes::of(&dir)?;
    let seen: Vec<Seen> =
        nodes.each(|home, node| Ok(look(&dir, &nodes, home, node))).into_iter().filter_map(Result::ok).collect();
    let report = known_by_all(seen.iter().filter_map(|seen| seen.report.as_ref()));
    let report = report.as_ref();
    if context.out.json {
        return context.out.document(&json!({
            "dir": dir,
            "cluster": nodes.cluster,
            "register": nodes.register,
            "encrypt": nodes.encrypt,
            "homes_on": nodes.homes_on()?.map(|on| on.to_string()),
            "ha": report.map(|report| ha::document(report, false)),
            "nodes": nodes.present().zip(&seen).map(document).collect::<Vec<_>>(),
        }));
    }
    let alive = seen.iter().filter(|seen| seen.answer.is_ok()).count();
    context.out.line(format!("{}: {alive} of {} nodes are alive", subject(&dir), seen.len()))?;
    context.out.line("")?;
    table(context.out, &nodes, &seen)?;
    moved(context.out, &dir, &nodes)?;
    let members = nodes.members(HomeId(1))?;
    let keepers: Vec<String> = members.keepers().iter().map(|keeper| keeper.name.clone()).collect();
    report.map_or(Ok(()), |report| view(context.out, report, &nodes.register.text(&keepers)))?;
    if let Some(on) = nodes.homes_on()? {
        context.out.line(format!("homes lie in {on}-nN: any node can open them"))?;
    }
    if nodes.encrypt { context.out.line("what nodes say to each other is encrypted") } else { Ok(()) }
}

/// The view: its number, where homes are, and what is wrong with which node.
fn view(out: &mut Out, report: &HaReport, register: &str) -> Done {
    out.line("")?;
    if report.view == 0 {
        return out.line(format!("there is no view of the cluster yet: {}", report.trouble));
    }
    out.line(format!("view {}, {register}: the loss of {} is to be survived", report.view, report.survives))?;
    if !report.trouble.is_empty() {
        out.line(format!("  {}", report.trouble))?;
    }
    for node in report.nodes.iter().filter(|node| ha::state(node) != "live") {
        let why = if node.doubt.is_empty() { String::new() } else { format!(": {}", node.doubt) };
        out.line(format!("  {}: {}, as of view {}{why}", node.name, ha::state(node), node.since_view))?;
    }
    out.table(&ha::HOME_TITLES, &ha::home_rows(report))
}

/// The homes of nodes that have left, which others have now.
fn moved(out: &mut Out, dir: &Path, nodes: &Nodes) -> Done {
    let left = (1_u16..).map(HomeId).zip(&nodes.members).filter(|(_, node)| node.left);
    for (home, node) in left {
        let used = open_served(dir, nodes, &dir.join(&nodes.first().name)).map(|store| use_of(store, home));
        let text = match used {
            Ok((Ok(devices), stats)) => {
                let bytes: u64 = devices.iter().map(|device| device.used_bytes).sum();
                let [containers, objects] = stats.map_or([0, 0], |stats| [stats.containers, stats.objects]).map(count);
                format!("containers: {containers}, objects: {objects}, {} stored", human(bytes))
            }
            Ok((Err(error), _)) | Err(error) => error.to_string(),
        };
        out.line(format!("home {home}, of node {}, which has left: {text}", node.name))?;
    }
    Ok(())
}

pub(super) fn table(out: &mut Out, nodes: &Nodes, seen: &[Seen]) -> Done {
    let rows: Vec<Vec<String>> = nodes.present().zip(seen).flat_map(rows).collect();
    let titles = ["node", "home", "address", "state", "tier", "use", ">used", ">capacity", ">containers", ">objects"];
    out.table(&titles, &rows)
}

pub(super) fn rows(((home, node), seen): ((HomeId, &Node), &Seen)) -> Vec<Vec<String>> {
    let head = |state: &str| vec![node.name.clone(), home.to_string(), node.address.to_string(), state.into()];
    let devices = match &seen.answer {
        Ok(devices) => devices,
        Err(error) => {
            let why = if error.cause().is_empty() { error.to_string() } else { error.cause().to_owned() };
            return vec![[head("away"), vec![why]].concat()];
        }
    };
    let numbers = seen
        .stats
        .as_ref()
        .map_or([String::new(), String::new()], |stats| [count(stats.containers), count(stats.objects)]);
    let row = |(at, device): (usize, &cenote::DeviceInfo)| {
        let (used, capacity) = (device.used_bytes, device.spec.capacity_bytes);
        let head = if at == 0 { head("alive") } else { vec![String::new(); 4] };
        let use_of = vec![device.spec.name.clone(), bar(used, capacity, BAR), human(used), human(capacity)];
        let numbers = if at == 0 { numbers.to_vec() } else { vec![String::new(); 2] };
        [head, use_of, numbers].concat()
    };
    devices.iter().enumerate().map(row).collect()
}

pub(super) fn document(((home, node), seen): ((HomeId, &Node), &Seen)) -> serde_json::Value {
    json!({
        "name": node.name,
        "home": home.0,
        "address": node.address.to_string(),
        "alive": seen.answer.is_ok(),
        "error": seen.answer.as_ref().err().map(ToString::to_string),
        "tiers": seen.answer.as_ref().map_or_else(|_| Vec::new(), |devices| devices.iter().map(tier::document).collect()),
        "containers": seen.stats.as_ref().map(|stats| stats.containers),
        "objects": seen.stats.as_ref().map(|stats| stats.objects),
    })
}
