//! `cluster join` and `cluster leave`: a node more, or one less, while the others go on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote::model::{ClusterChange, HomeId, NodeId};
use cenote::{Error, ErrorKind, Mode, OpenOptions, Result, Store};
use cenote_server::daemon::{encode_report, read_report};
use clap::Args;
use serde_json::{Value, json};

use super::nodes::{Node, Nodes, absolute, subject};
use super::plan::{address_of, check_name, free_addresses};
use crate::cmd::Context;
use crate::cmd::destroy::confirm;
use crate::copy::Progress;
use crate::failure::Done;

/// How long a node may take to say who it is, and how long the register may take to answer.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long nothing may be heard of the moves of a node that leaves.
const STILL: Duration = Duration::from_mins(2);
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The same for other hosts, where each look is a connection of the launcher.
const LOOK_FAR_EVERY: Duration = Duration::from_secs(2);

/// Arguments of `cluster join`.
#[derive(Args, Debug)]
pub struct JoinArgs {
    /// Directory of the cluster
    dir: PathBuf,
    /// Name of the host [default: one more node on this host]. A node that is about to leave stays
    host: Option<String>,
    /// Port on which its daemon listens [default: that of the first node]
    #[arg(long)]
    port: Option<u16>,
}

/// Arguments of `cluster leave`.
#[derive(Args, Debug)]
pub struct LeaveArgs {
    /// Directory of the cluster
    dir: PathBuf,
    /// Name of the node
    node: String,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
}

/// Asks the daemon of a node on this host for a change, for a command on another one: an error is printed as it can be read there.
pub(super) fn change_node(context: &mut Context<'_>, dir: &Path, change: &str) -> Done {
    change_here(dir, change).or_else(|error| context.out.line(encode_report(&error)))
}

/// Asks the daemon of a node for a change, again while it says that it cannot be yet.
fn change_here(dir: &Path, change: &str) -> Result<()> {
    let change = parse(change).ok_or_else(|| {
        Error::new(ErrorKind::InvalidInput, format!("change `{change}`"))
            .because("it is no change of a cluster")
            .try_next("run the same version of Cenote on all nodes")
    })?;
    // A node that is to be asked about another one may be lost as well: that is for a person to see, not to be changed by asking.
    if matches!(change, ClusterChange::GiveUp { .. }) && !cenote_server::is_locked(dir) {
        return Err(Error::new(ErrorKind::Disconnected, format!("daemon of {}", dir.display()))
            .because("it does not run")
            .try_next("`cenote cluster start DIR` starts the daemons of all nodes that are there"));
    }
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(dir, &options)?;
    if matches!(change, ClusterChange::GiveUp { .. }) {
        return within(PATIENCE, dir, move || store.change_cluster(change));
    }
    let begin = Instant::now();
    loop {
        match store.change_cluster(change) {
            Err(error) if error.kind() == ErrorKind::Busy && is_awaited(change) && begin.elapsed() < PATIENCE => {
                std::thread::sleep(LOOK_EVERY);
            }
            answer => return answer,
        }
    }
}

/// Asks on a thread of its own: a daemon whose mirrors are lost may take no more requests, and another one can be asked.
fn within(patience: Duration, dir: &Path, ask: impl FnOnce() -> Result<()> + Send + 'static) -> Result<()> {
    let (send, receive) = std::sync::mpsc::sync_channel(1);
    std::thread::spawn(move || send.send(ask())); // if nobody waits any more, it ends with the process
    receive.recv_timeout(patience).unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Disconnected, format!("daemon of {}", dir.display()))
            .because(format!("it did not answer within {} s", patience.as_secs()))
            .try_next("`cenote ha` there says what it waits for"))
    })
}

/// Whether a change only waits for a node to say who it is.
fn is_awaited(change: ClusterChange) -> bool {
    matches!(change, ClusterChange::Join { .. })
}

fn text(change: ClusterChange) -> String {
    match change {
        ClusterChange::Join { node } => format!("join:{}", node.0),
        ClusterChange::Leave { node } => format!("leave:{}", node.0),
        ClusterChange::Forget { node } => format!("forget:{}", node.0),
        ClusterChange::GiveUp { node, dry_run: false } => format!("give-up:{}", node.0),
        ClusterChange::GiveUp { node, dry_run: true } => format!("may-give-up:{}", node.0),
        ClusterChange::MoveMirror { home, from, to } => format!("move-mirror:{}:{}:{}", home.0, from.0, to.0),
        ClusterChange::MoveHome { .. } | ClusterChange::Reread => "nothing".into(), // not asked for in this way
    }
}

fn parse(text: &str) -> Option<ClusterChange> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let node = || rest.parse().ok().map(NodeId);
    match kind {
        "join" => Some(ClusterChange::Join { node: node()? }),
        "leave" => Some(ClusterChange::Leave { node: node()? }),
        "forget" => Some(ClusterChange::Forget { node: node()? }),
        "give-up" => Some(ClusterChange::GiveUp { node: node()?, dry_run: false }),
        "may-give-up" => Some(ClusterChange::GiveUp { node: node()?, dry_run: true }),
        "move-mirror" => {
            let numbers: Vec<u16> = rest.split(':').map(str::parse).collect::<std::result::Result<_, _>>().ok()?;
            let [home, from, to] = numbers[..] else { return None };
            Some(ClusterChange::MoveMirror { home: HomeId(home), from: NodeId(from), to: NodeId(to) })
        }
        _ => None,
    }
}

/// Has a node ask for a change.
pub(super) fn ask(dir: &Path, nodes: &Nodes, asked: &Node, change: ClusterChange) -> Result<()> {
    let place = dir.join(&asked.name);
    let words: [&std::ffi::OsStr; 4] =
        ["cluster".as_ref(), "change-node".as_ref(), place.as_os_str(), &std::ffi::OsString::from(text(change))];
    match read_report(&nodes.run(asked, &words, &[])?) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

pub(super) fn join(context: &mut Context<'_>, args: &JoinArgs) -> Done {
    let (dir, begin) = (absolute(&args.dir)?, Instant::now());
    let mut nodes = Nodes::of(&dir)?;
    if !nodes.has_begun {
        return Err(Error::new(ErrorKind::Busy, subject(&dir))
            .because("it has not begun yet")
            .try_next("`cenote cluster start DIR`")
            .into());
    }
    let name = match &args.host {
        Some(host) => host.trim().to_owned(),
        None if nodes.launcher.is_empty() => nodes.free_name(),
        None => {
            return Err(Error::new(ErrorKind::InvalidInput, subject(&dir))
                .because("its nodes are hosts, and no host is named")
                .try_next("name it: `cenote cluster join DIR HOST`")
                .into());
        }
    };
    let home = match nodes.find(&name) {
        Some((home, _)) => home, // about to leave, or a former attempt stopped here
        None => add(&dir, &mut nodes, args, &name)?,
    };
    tell(&dir, &nodes, Some(home))?;
    ask(&dir, &nodes, nodes.first(), ClusterChange::Join { node: NodeId(home.0) })?;
    super::places::add_to_nodes(&dir, &nodes, |node| node == name)?;
    let (seconds, place) = (begin.elapsed().as_secs_f64(), dir.join(&name));
    if context.out.json {
        return context
            .out
            .document(&json!({ "dir": dir, "node": name, "home": home.0, "store": place, "seconds": seconds }));
    }
    context.out.line(format!("node {name} takes part in the {} after {seconds:.2} s", subject(&dir)))?;
    context.out.line(format!("  use it there by its directory: CENOTE_STORE={}", place.display()))
}

/// Tells all nodes which members there are. A node that is away is told when the cluster is started again; that with the home
/// `needed` may not be.
fn tell(dir: &Path, nodes: &Nodes, needed: Option<HomeId>) -> Result<()> {
    for ((home, node), told) in nodes.present().zip(super::begin_all(dir, nodes)?) {
        match told {
            Err(error) if Some(home) == needed => return Err(error),
            Err(error) => eprintln!(
                "cenote: node {} does not know yet who takes part; run `cenote cluster start {}` when it is back: {error}",
                node.name,
                dir.display()
            ),
            Ok(_) => {}
        }
    }
    Ok(())
}

/// Adds a node to the file of the cluster.
fn add(dir: &Path, nodes: &mut Nodes, args: &JoinArgs, name: &str) -> Result<HomeId> {
    check_name(name)?;
    if dir.join(name).exists() {
        return Err(Error::new(ErrorKind::Exists, format!("directory {}", dir.join(name).display()))
            .because("a node that joins has none yet")
            .try_next("delete it if nothing in it is needed, or name another host"));
    }
    let address = if nodes.launcher.is_empty() {
        free_addresses(1)?[0]
    } else {
        let first = nodes.members.first().map_or(super::PORT, |node| node.address.port());
        address_of(name, args.port.unwrap_or(first))?
    };
    if let Some((_, other)) = nodes.present().find(|(_, node)| node.address == address) {
        return Err(Error::new(ErrorKind::Exists, format!("host `{name}`"))
            .because(format!("node `{}` has its address, {address}", other.name))
            .try_next("a host has one node; for a second one name another --port"));
    }
    let members = nodes.members(HomeId(1))?;
    super::plan::check_place(&members, HomeId(nodes.members.len() as u16 + 1))?;
    let keepers = members.keepers().len() as u16;
    nodes.keepers = Some(keepers);
    nodes.members.push(Node { name: name.to_owned(), address, left: false });
    nodes.write(dir)?;
    Ok(HomeId(nodes.members.len() as u16))
}

pub(super) fn leave(context: &mut Context<'_>, args: &LeaveArgs) -> Done {
    let dir = absolute(&args.dir)?;
    let mut nodes = Nodes::of(&dir)?;
    let Some((home, _)) = nodes.find(&args.node) else {
        return Err(Error::new(ErrorKind::NotFound, format!("node `{}`", args.node))
            .because("the cluster has no such node")
            .try_next("`cenote cluster status DIR` shows all of them")
            .into());
    };
    super::places::may_leave(&dir, &nodes, &args.node)?;
    if !args.yes {
        confirm(&format!(
            "Have node {} leave the {}? Its data move to other nodes, programs on it lose the store, its directory is deleted.",
            args.node,
            subject(&dir)
        ))?;
    }
    let (node, begin) = (NodeId(home.0), Instant::now());
    ask(&dir, &nodes, nodes.first(), ClusterChange::Leave { node })?;
    super::places::wait_until_moved(context, &dir, &nodes, &args.node, pause(&nodes))?;
    wait_until_empty(context, &dir, &nodes, node)?;
    // It is no member any more: nobody takes its end for a loss.
    let place = dir.join(&args.node);
    let gone = nodes.find(&args.node).map_or(Ok(()), |(_, left)| {
        nodes.run(left, &["-s".as_ref(), place.as_os_str(), "stop".as_ref()], &[])?;
        super::part::destroy(&dir, &nodes, (home, left)).map(drop)
    });
    nodes.members[usize::from(home.0) - 1].left = true;
    nodes.write(&dir)?;
    tell(&dir, &nodes, None)?;
    let seconds = begin.elapsed().as_secs_f64();
    if let Err(error) = &gone {
        eprintln!("cenote: node {} has left, and its directory stays where it is: {error}", args.node);
    }
    if context.out.json {
        return context.out.document(
            &json!({ "dir": dir, "node": args.node, "left": true, "deleted": gone.is_ok(), "seconds": seconds }),
        );
    }
    context.out.line(format!(
        "node {} has left the {} after {seconds:.2} s; all that it had is on other nodes",
        args.node,
        subject(&dir)
    ))
}

/// Time between looks at a node.
fn pause(nodes: &Nodes) -> Duration {
    if nodes.launcher.is_empty() { LOOK_EVERY } else { LOOK_FAR_EVERY }
}

/// Waits until a node that is to leave has nothing any more, and is no member.
fn wait_until_empty(context: &Context<'_>, dir: &Path, nodes: &Nodes, node: NodeId) -> Result<()> {
    let (mut progress, mut changed_at, mut known) = (None::<Progress>, Instant::now(), (String::new(), 0));
    let pause = pause(nodes);
    loop {
        let error = match ask(dir, nodes, nodes.first(), ClusterChange::Forget { node }) {
            Ok(()) => break,
            Err(error) => error,
        };
        let (copied, total) = copies(dir, nodes, node);
        if total > 0 {
            let bar = progress.get_or_insert_with(|| Progress::bytes(context.progress(), "moving away", Some(total)));
            bar.at(copied.min(total));
        }
        let now = (error.cause().to_owned(), copied);
        if now != known {
            (changed_at, known) = (Instant::now(), now);
        }
        if changed_at.elapsed() > STILL {
            return Err(error.try_next("`cenote ha` on each node shows what is in the way; the node goes on moving its data, and the same command waits for it again; `cenote cluster join DIR NODE` lets it stay"));
        }
        std::thread::sleep(pause);
    }
    if let Some(bar) = progress {
        bar.done();
    }
    Ok(())
}

/// What the daemon of a node tells of the cluster.
fn report(dir: &Path, nodes: &Nodes, node: &Node) -> Option<Value> {
    let place = dir.join(&node.name);
    let said = nodes.run(node, &["--json".as_ref(), "ha".as_ref(), place.as_os_str()], &[]).ok()?;
    serde_json::from_str(&said).ok()
}

/// Bytes of the copies by which a node that leaves gets rid of what it has, and how many there are. Asks only those that send them:
/// the node itself, for its homes, and the hosts of homes that it mirrors.
fn copies(dir: &Path, nodes: &Nodes, leaving: NodeId) -> (u64, u64) {
    let Some(view) = report(dir, nodes, nodes.first()) else { return (0, 0) };
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mirrors = |home: &Value| list(&home["mirrors"]).iter().any(|node| *node == leaving.0);
    let hosts = list(&view["homes"]).into_iter().filter(mirrors).filter_map(|home| home["host"].as_u64());
    let senders: BTreeSet<u64> = hosts.chain([leaving.0.into()]).collect();
    let senders = nodes.present().filter(|(home, _)| senders.contains(&home.0.into()));
    let mut sums = (0, 0);
    for report in senders.filter_map(|(_, node)| report(dir, nodes, node)) {
        for copy in list(&report["copies"]).iter().filter(|copy| copy["complete"] == false) {
            let number = |name: &str| copy[name].as_u64().unwrap_or(0);
            sums = (sums.0 + number("copied_bytes"), sums.1 + number("total_bytes"));
        }
    }
    sums
}
