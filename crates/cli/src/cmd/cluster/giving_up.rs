//! `cluster give-up`: the cluster goes on without a node that is gone for good. What is lost is said before.
//!
//! The register takes the change first; the files that say who is a member follow. Interrupted in between, the same command
//! does the rest: what is given up already is not given up twice.

use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use cenote::model::{ClusterChange, HomeId, NodeId};
use cenote::{Error, ErrorKind, HaHome, HaReport, Mode, OpenOptions, Result, Store};
use cenote_cluster::{Fate, Members, RegisterPlace};
use clap::Args;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::change::ask;
use super::node::parsed;
use super::nodes::{Node, Nodes, absolute, subject};
use super::places::is_on_nodes;
use crate::cmd::Context;
use crate::cmd::ha::{named, state};
use crate::failure::Done;
use crate::out::escaped;

/// How long the home with the names of all containers may take.
const NAMES: Duration = Duration::from_secs(5);
/// So many names of containers are shown; programs get all.
const SHOWN: usize = 20;

/// Arguments of `cluster give-up`.
#[derive(Args, Debug)]
pub struct GiveUpArgs {
    /// Directory of the cluster
    dir: PathBuf,
    /// Name of the node. Without --yes, only what would be lost is said
    node: String,
    /// The node is gone for good: go on without it, whatever is lost
    #[arg(short, long)]
    yes: bool,
}

/// What another node knows of the loss of a node.
#[derive(Serialize, Deserialize)]
pub(super) struct Loss {
    /// The nodes that take part and are not in doubt.
    live: Vec<u16>,
    /// The homes of which the node has a copy.
    homes: Vec<HomeLoss>,
}

#[derive(Serialize, Deserialize)]
struct HomeLoss {
    home: u16,
    /// `lost`, `goes on`, or `fewer mirrors`.
    fate: String,
    /// The nodes that have a copy, each with its state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    by: Vec<(String, String)>,
    /// What is lost with it, if that could be found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    containers: Option<Vec<String>>,
}

/// Tells what would be lost with a node: asked of the daemon of another one on this host.
pub(super) fn loss_of(context: &mut Context<'_>, dir: &Path, node: u16) -> Done {
    let options = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    let report = store.ha_report()?;
    let names = names_of(store);
    let is_lost = |fate: &Fate| *fate == Fate::Lost;
    let mut homes = Vec::new();
    for (home, fate) in report.homes.iter().filter_map(|home| Some((home, fate_of(&report, home, NodeId(node))?))) {
        let containers = if is_lost(&fate) { names(home.home) } else { None };
        homes.push(loss(&report, home, &fate, containers));
    }
    let live = report.nodes.iter().filter(|node| node.live && node.doubt.is_empty()).map(|node| node.node.0).collect();
    let loss = serde_json::to_string(&Loss { live, homes }).unwrap_or_default();
    context.out.line(loss)?;
    context.out.flush()?;
    // A thread may still ask a home that does not answer, and the store would wait for it.
    std::process::exit(0)
}

fn fate_of(report: &HaReport, home: &HaHome, node: NodeId) -> Option<Fate> {
    if home.lost {
        return (home.host == node).then_some(Fate::Lost); // given up already
    }
    let is_host_gone = report.nodes.iter().any(|it| it.node == home.host && it.given_up);
    Fate::of(home.host, &home.mirrors, is_host_gone, node)
}

fn loss(report: &HaReport, home: &HaHome, fate: &Fate, containers: Option<Vec<String>>) -> HomeLoss {
    let word = |node: &NodeId| {
        let known = report.nodes.iter().find(|it| it.node == *node);
        (named(report, *node), known.map_or("unknown", state).to_owned())
    };
    let (fate, by) = match fate {
        Fate::Lost => ("lost", Vec::new()),
        Fate::GoesOn { by } => ("goes on", by.iter().map(word).collect()),
        Fate::FewerMirrors => ("fewer mirrors", vec![word(&home.host)]),
    };
    HomeLoss { home: home.home.0, fate: fate.into(), by, containers }
}

/// What tells the labels of the containers of a home, `None` if the home that has all labels does not answer in time.
fn names_of(store: Store) -> impl Fn(HomeId) -> Option<Vec<String>> {
    let (send, receive) = sync_channel(1);
    let (ask, asked) = sync_channel::<HomeId>(1);
    std::thread::spawn(move || {
        for home in asked {
            let _ = send.send(store.labels_of(home).ok()); // nobody waits any more
        }
    });
    move |home| {
        ask.try_send(home).ok()?;
        receive.recv_timeout(NAMES).ok().flatten()
    }
}

pub(super) fn give_up(context: &mut Context<'_>, args: &GiveUpArgs) -> Done {
    let dir = absolute(&args.dir)?;
    let mut nodes = Nodes::of(&dir)?;
    let Some((home, _)) = nodes.find(&args.node) else {
        let was = nodes.members.iter().any(|node| node.name == args.node);
        let why = if was { "it has left the cluster, or was given up" } else { "the cluster has no such node" };
        return Err(Error::new(ErrorKind::NotFound, format!("node `{}`", args.node))
            .because(why)
            .try_next("`cenote cluster status DIR` shows all of them")
            .into());
    };
    let node = NodeId(home.0);
    let (asked, loss) = first_that_answers(&dir, &nodes, node)?;
    if !args.yes {
        return tell(context, &dir, &nodes, (&args.node, home), &loss, false);
    }
    ask(&dir, &nodes, asked, ClusterChange::GiveUp { node, dry_run: false })?;
    nodes.members[usize::from(home.0) - 1].left = true;
    nodes.write(&dir)?;
    // Others are told when they are started: that is not for this command to do.
    let told = super::begin_some(&dir, &nodes, |home| loss.live.contains(&home.0))?;
    for ((_, node), error) in nodes.present().zip(told).filter_map(|(node, told)| Some((node, told.err()?))) {
        eprintln!(
            "cenote: node {} does not know yet who is a member; run `cenote cluster start {}`: {error}",
            node.name,
            dir.display()
        );
    }
    tell(context, &dir, &nodes, (&args.node, home), &loss, true)
}

/// Has a node say what would be lost with another one, the first that can: whether that node may be given up is asked, too.
fn first_that_answers<'a>(dir: &Path, nodes: &'a Nodes, lost: NodeId) -> Result<(&'a Node, Loss)> {
    let mut last = Error::new(ErrorKind::Busy, subject(dir))
        .because("no node is left that could be asked")
        .try_next("start the daemon of another node: `cenote cluster start DIR`");
    for (home, node) in nodes.present().filter(|(home, _)| home.0 != lost.0) {
        match ask(dir, nodes, node, ClusterChange::GiveUp { node: lost, dry_run: true }) {
            Ok(()) => return Ok((node, told_by(dir, nodes, node, lost)?)),
            // It is away, too, or its daemon is.
            Err(error) if matches!(error.kind(), ErrorKind::Io | ErrorKind::Disconnected) => last = error,
            Err(error) => return Err(error),
        }
        tracing::debug!(%home, "another node is asked");
    }
    Err(last)
}

fn told_by(dir: &Path, nodes: &Nodes, asked: &Node, lost: NodeId) -> Result<Loss> {
    let (place, number) = (dir.join(&asked.name), lost.0.to_string());
    let said = nodes.run(asked, &["cluster".as_ref(), "loss-of".as_ref(), place.as_os_str(), number.as_ref()], &[])?;
    serde_json::from_str(&said).map_err(|error| {
        Error::new(ErrorKind::VersionMismatch, format!("node `{}`", asked.name))
            .because(format!("what it says of a loss cannot be read: {error}"))
            .try_next("run the same version of Cenote on all nodes")
    })
}

/// Says what is lost, or would be.
fn tell(
    context: &mut Context<'_>,
    dir: &Path,
    nodes: &Nodes,
    (name, home): (&str, HomeId),
    loss: &Loss,
    is_done: bool,
) -> Done {
    let members = nodes.members(HomeId(1))?;
    if context.out.json {
        return context.out.document(&json!({ "dir": dir, "node": name, "home": home.0, "given_up": is_done,
            "homes": loss.homes.iter().map(document).collect::<Vec<_>>(), "register": register(&members, home) }));
    }
    let out = &mut *context.out;
    if is_done {
        out.line(format!("node {name} is given up: the {} goes on without it", subject(dir)))?;
    } else {
        out.line(format!("If node {name} is given up, it never takes part in the {} again.", subject(dir)))?;
    }
    for home in &loss.homes {
        out.line(format!("  {}", sentence(home, is_done)))?;
    }
    if loss.homes.is_empty() {
        out.line("  No home is lost: it has no copy of any.")?;
    }
    if nodes.tiers.iter().filter_map(|tier| parsed(tier).ok()).any(|tier| is_on_nodes(&tier)) {
        out.line("  Tiers on nodes: what lies on it is computed from the parts on other nodes, as far as each layout allows.")?;
    }
    if let Some(text) = register_text(&members, home) {
        out.line(format!("  {text}"))?;
    }
    if is_done {
        let place = dir.join(name);
        return out.line(format!(
            "If the machine comes back: `cenote destroy {}` there, then `cenote cluster join` as a new node.",
            place.display()
        ));
    }
    out.line(format!(
        "Nothing was changed. If the node is gone for good: `cenote cluster give-up {} {name} --yes`",
        dir.display()
    ))
}

fn sentence(loss: &HomeLoss, is_done: bool) -> String {
    let home = HomeId(loss.home);
    let others: Vec<String> = loss.by.iter().map(|(name, state)| format!("{name} ({state})")).collect();
    let others = others.join(", ");
    match loss.fate.as_str() {
        "lost" => {
            let verb = if is_done { "is" } else { "would be" };
            format!("Home {home} {verb} LOST, with all that is in it: no other node has a copy. {}", containers(loss))
        }
        "goes on" => format!("Home {home} goes on, with all that was acknowledged, on one of its mirrors: {others}."),
        _ => format!("Home {home} goes on without a mirror on this node, with what its host has: {others}."),
    }
}

fn containers(loss: &HomeLoss) -> String {
    let Some(names) = &loss.containers else {
        return "Which containers it has could not be found out now.".into();
    };
    let shown: Vec<String> = names.iter().take(SHOWN).map(|name| escaped(name.as_bytes())).collect();
    match (names.len(), names.len().saturating_sub(SHOWN)) {
        (0, _) => "It has no containers.".into(),
        (count, 0) => format!("Its containers ({count}): {}.", shown.join(", ")),
        (count, more) => format!("Its containers ({count}): {}, and {more} more (--json lists all).", shown.join(", ")),
    }
}

fn document(loss: &HomeLoss) -> Value {
    let by: Vec<Value> = loss.by.iter().map(|(name, state)| json!({ "node": name, "state": state })).collect();
    json!({ "home": loss.home, "fate": loss.fate, "copies": by, "containers": loss.containers })
}

/// How many nodes keep the register, and how many of them are left without the node.
fn register(members: &Members, node: HomeId) -> Value {
    let left = members.keepers().iter().filter(|keeper| !keeper.has_left && keeper.home != node).count();
    let keeps = members.keepers().iter().any(|keeper| keeper.home == node);
    json!({ "keeps": keeps, "keepers": members.keepers().len(), "left": left })
}

fn register_text(members: &Members, node: HomeId) -> Option<String> {
    let keepers = members.keepers();
    keepers.iter().find(|keeper| keeper.home == node)?;
    let left = keepers.iter().filter(|keeper| !keeper.has_left && keeper.home != node).count();
    let needed = if members.register == RegisterPlace::Nodes { keepers.len() / 2 + 1 } else { 1 };
    let more = left.saturating_sub(needed);
    Some(format!(
        "The register: it is one of {} nodes that keep it, and no other takes its place. {left} are left, of which {more} may be lost.",
        keepers.len()
    ))
}
