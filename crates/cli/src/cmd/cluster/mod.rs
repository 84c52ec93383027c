//! `cluster`: starts, shows, stops and deletes a store over several nodes.
//!
//! The directory of a cluster has a directory for each node, on that node's host, and the file [`NODES_FILE`], from which a
//! cluster that was stopped starts again. A node is begun by `cenote cluster node`, which a launcher (`ssh`, `srun`, or none)
//! runs on its host, with what the node has to know on its standard input.

mod change;
mod giving_up;
mod node;
mod nodes;
mod part;
mod places;
mod plan;
mod status;

use std::path::{Path, PathBuf};
use std::time::Instant;

use cenote::{Error, ErrorKind, HomeId, Mode, OpenOptions, Result, Store};
use cenote_cluster::{KEY_FILE, PROTECT_MAX, RegisterPlace};
use cenote_device::rados_dir::Address;
use cenote_rpc::net::ClusterKey;
use clap::{Args, Subcommand};
use serde_json::json;

use super::Context;
use super::destroy::confirm;
use crate::failure::Done;
use change::{JoinArgs, LeaveArgs};
use giving_up::GiveUpArgs;
use nodes::{Begin, Nodes, absolute, all, subject};
pub use places::{add as add_tier, make_tier_with};
use plan::{names, plan};

/// The file in the cluster's directory with what starts it again.
const NODES_FILE: &str = "nodes.json";
/// Where daemons listen, unless `--port` says otherwise.
const PORT: u16 = 7420;

/// The commands.
#[derive(Subcommand, Debug)]
pub enum ClusterCommand {
    /// Start a store over several nodes; makes it if the directory has none
    Start(Box<StartArgs>),
    /// Show nodes and homes: who is alive, and how full they are
    Status {
        /// Directory of the cluster
        dir: PathBuf,
    },
    /// Ask the daemons of all nodes to finish their work and exit
    Stop {
        /// Directory of the cluster
        dir: PathBuf,
    },
    /// Have one more node take part, with its memory and disks
    Join(JoinArgs),
    /// Have a node leave: its data move to other nodes first
    Leave(LeaveArgs),
    /// Go on without a node that is gone for good, and without what it alone had
    GiveUp(GiveUpArgs),
    /// Delete the store on all nodes with everything in it
    Destroy {
        /// Directory of the cluster
        dir: PathBuf,
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Leave what is on nodes that cannot be reached, and name it
        #[arg(short, long)]
        force: bool,
    },
    /// Begin a node on this host: what it has to know comes on standard input (used by `start`)
    #[command(hide = true)]
    Node {
        /// Directory of the node
        dir: PathBuf,
    },
    /// Ask the daemon of a node on this host for a change of the cluster (used by `join`, `leave` and `give-up`)
    #[command(hide = true)]
    ChangeNode {
        /// Directory of the node
        dir: PathBuf,
        /// The change
        change: String,
    },
    /// Tell what would be lost with another node (used by `give-up`)
    #[command(hide = true)]
    LossOf {
        /// Directory of a node on this host
        dir: PathBuf,
        /// Number of the node that is gone
        node: u16,
    },
    /// Add tiers on nodes to a node on this host: they come on standard input (used by `start`)
    #[command(hide = true)]
    AddTiers {
        /// Directory of the node
        dir: PathBuf,
    },
    /// Tell how many places of tiers, files and bytes a node on this host has (used by `leave`)
    #[command(hide = true)]
    CountParts {
        /// Directory of the node
        dir: PathBuf,
    },
    /// Tell which tiers of the cluster cannot do without a node (used by `leave`)
    #[command(hide = true)]
    TiersThatNeed {
        /// Directory of a node on this host
        dir: PathBuf,
        /// Name of the node that is to leave
        node: String,
    },
    /// Take the home of a node on this host back from whichever node had it (used by `destroy`)
    #[command(hide = true)]
    TakeHome {
        /// Directory of the node
        dir: PathBuf,
    },
    /// Stop a node on this host, with all others (used by `stop`)
    #[command(hide = true)]
    StopNode {
        /// Directory of the node
        dir: PathBuf,
        /// Identity of the cluster; nodes of others are left alone
        cluster: Option<String>,
    },
    /// Delete a node on this host (used by `destroy`)
    #[command(hide = true)]
    DestroyNode {
        /// Directory of the node
        dir: PathBuf,
        /// Identity of the cluster
        cluster: String,
        /// Number of the node's own home
        home: u16,
    },
}

/// Arguments of `cluster start`.
#[derive(Args, Debug)]
pub struct StartArgs {
    /// Directory of the cluster; on every host, a directory for its node is made there
    pub dir: PathBuf,
    /// So many nodes on this host, for trying things out
    #[arg(long, value_name = "N", conflicts_with_all = ["hosts", "hostfile"], value_parser = clap::value_parser!(u16).range(1..=64))]
    pub local: Option<u16>,
    /// Names of hosts, with commas
    #[arg(long, value_name = "HOST,HOST", value_delimiter = ',', conflicts_with = "hostfile")]
    pub hosts: Vec<String>,
    /// A file with a host on each line; `#` begins a comment
    #[arg(long, value_name = "FILE")]
    pub hostfile: Option<PathBuf>,
    /// What runs a command on a host, `{host}` standing for its name [default: ssh -o BatchMode=yes {host}]
    #[arg(long, value_name = "COMMAND")]
    pub launcher: Option<String>,
    /// Port on which the daemons of hosts listen for each other
    #[arg(long, default_value_t = PORT)]
    pub port: u16,
    /// A tier of every node, as for `init`; repeat for more. Relative paths begin at the node's directory
    #[arg(long = "tier", value_name = "SPEC")]
    pub tiers: Vec<String>,
    /// Survive the loss of N nodes: each home is to have so many mirrors [default: 0]
    #[arg(long, visible_alias = "mirrors", value_name = "N", value_parser = clap::value_parser!(u8).range(..=i64::from(PROTECT_MAX)))]
    pub protect: Option<u8>,
    /// Keep the homes in a replicated pool of Ceph RADOS, so that any node can take over those of a lost one:
    /// rados:POOL[/NAME][,user=USER][,conf=FILE][,keyring=FILE]
    #[arg(long, value_name = "PLACE", value_parser = Address::parse)]
    pub on: Option<Address>,
    /// Where the view of the cluster is kept: kind=first, kind=nodes (three or more together), kind=etcd,endpoint=URL or
    /// kind=rados,pool=POOL [default: nodes with --protect or --on and three nodes, else first]
    #[arg(long, value_name = "SPEC")]
    pub register: Option<String>,
    /// Encrypt what nodes say to each other (TLS 1.3)
    #[arg(long)]
    pub encrypt: bool,
}

impl StartArgs {
    /// Whether anything is said that holds for as long as the cluster exists.
    fn has_choices(&self) -> bool {
        !self.tiers.is_empty() || self.protect.is_some() || self.on.is_some() || self.register.is_some() || self.encrypt
    }
}

pub fn cluster(context: &mut Context<'_>, command: &ClusterCommand) -> Done {
    match command {
        ClusterCommand::Start(args) => start(context, args),
        ClusterCommand::Status { dir } => status::status(context, dir),
        ClusterCommand::Stop { dir } => stop(context, dir),
        ClusterCommand::Join(args) => change::join(context, args),
        ClusterCommand::Leave(args) => change::leave(context, args),
        ClusterCommand::GiveUp(args) => giving_up::give_up(context, args),
        ClusterCommand::LossOf { dir, node } => giving_up::loss_of(context, dir, *node),
        ClusterCommand::ChangeNode { dir, change } => change::change_node(context, dir, change),
        ClusterCommand::Destroy { dir, yes, force } => destroy(context, dir, *yes, *force),
        ClusterCommand::Node { dir } => node::node(dir),
        ClusterCommand::AddTiers { dir } => places::add_to_node(dir),
        ClusterCommand::CountParts { dir } => places::count_parts(context, dir),
        ClusterCommand::TiersThatNeed { dir, node } => places::tiers_that_need(context, dir, node),
        ClusterCommand::TakeHome { dir } => node::take_home(dir),
        ClusterCommand::StopNode { dir, cluster } => part::stop_node(dir, cluster.as_deref()),
        ClusterCommand::DestroyNode { dir, cluster, home } => part::destroy_node(dir, cluster, *home),
    }
}

fn start(context: &mut Context<'_>, args: &StartArgs) -> Done {
    let dir = absolute(&args.dir)?;
    let begin = Instant::now();
    let names = names(args)?;
    let (mut nodes, is_new) = match Nodes::read(&dir)? {
        Some(_) if !names.is_empty() || args.has_choices() => {
            return Err(Error::new(ErrorKind::Exists, subject(&dir))
                .because("it is made already, with nodes and tiers of its own")
                .try_next("start it again without options, or choose another directory")
                .into());
        }
        Some(nodes) => (nodes, false),
        None => (plan(args, names)?, true),
    };
    if is_new {
        make(&dir, &nodes)?;
    }
    if let Err(error) = bring_up(&dir, &mut nodes) {
        return Err(if is_new { undo(&dir, &nodes, error) } else { error }.into());
    }
    let seconds = begin.elapsed().as_secs_f64();
    if context.out.json {
        return context.out.document(&json!({ "dir": dir, "cluster": nodes.cluster, "seconds": seconds,
            "stores": nodes.present().map(|(_, node)| dir.join(&node.name)).collect::<Vec<_>>() }));
    }
    let count = nodes.present().count();
    context.out.line(format!("{count} nodes serve {} after {seconds:.2} s", subject(&dir)))?;
    if let Some(on) = nodes.homes_on()? {
        context.out.line(format!("  homes lie in {on}-nN: any node can open them"))?;
    }
    if (nodes.protect > 0 || nodes.homes_on.is_some()) && nodes.register == RegisterPlace::First {
        let first = &nodes.members[0].name;
        context.out.line(format!(
            "  while node {first} is away no home is taken over: it alone keeps the register (--register)"
        ))?;
    }
    let example = dir.join(&nodes.first().name);
    context.out.line(format!("  use it on a node by its directory there: CENOTE_STORE={}", example.display()))
}

/// Starts all nodes, and makes what is of all of them if they never were.
fn bring_up(dir: &Path, nodes: &mut Nodes) -> Result<()> {
    all(begin_all(dir, nodes)?)?;
    // The home of a node that was away may still be with another one.
    if !nodes.has_begun || nodes.homes_on.is_none() {
        open(dir, nodes)?.make_label_directory()?;
    }
    if !nodes.has_begun {
        places::add_to_nodes(dir, nodes, |_| true)?;
        nodes.has_begun = true;
        nodes.write(dir)?;
    }
    Ok(())
}

/// Deletes what was made of a cluster that could not be made. Returns the error that says why.
fn undo(dir: &Path, nodes: &Nodes, why: Error) -> Error {
    let _ = stop_all(dir, nodes); // those that did not begin
    // A store that is none of the cluster's is what `why` is about.
    for left in remove(dir, nodes, true).into_iter().flatten().filter(|left| left.kind() != ErrorKind::Exists) {
        eprintln!("cenote: something may be left on a node that could not be reached: {left}");
    }
    why
}

/// Tells all nodes which members there are, and starts the daemons that do not run; makes the stores that there are none of.
/// The results are in the order of the nodes.
fn begin_all(dir: &Path, nodes: &Nodes) -> Result<Vec<Result<String>>> {
    begin_some(dir, nodes, |_| true)
}

/// The same for the nodes with these homes alone.
fn begin_some(dir: &Path, nodes: &Nodes, is_one: impl Fn(HomeId) -> bool + Sync) -> Result<Vec<Result<String>>> {
    let key = ClusterKey::from_file(&dir.join(KEY_FILE))?;
    let sharing = if nodes.launcher.is_empty() { nodes.present().count() as u16 } else { 1 };
    Ok(nodes.each(|home, node| {
        if !is_one(home) {
            return Ok(String::new());
        }
        let members = nodes.members(home)?.to_text(dir)?;
        let is_new = !nodes.has_begun;
        let begin = Begin { members, key: key.to_hex(), tiers: nodes.tiers.clone(), sharing, is_new };
        let input = serde_json::to_vec(&begin).unwrap_or_default();
        let place = dir.join(&node.name);
        nodes.run(node, &["cluster".as_ref(), "node".as_ref(), place.as_os_str()], &input)
    }))
}

/// Makes the directory of a cluster, with its key.
fn make(dir: &Path, nodes: &Nodes) -> Result<()> {
    let file = dir.join(KEY_FILE);
    std::fs::create_dir_all(dir).map_err(|error| Error::io(subject(dir), &error))?;
    if !file.exists() {
        ClusterKey::draw()?.create_file(&file)?;
    }
    nodes.write(dir)
}

/// Opens the store at the first node.
fn open(dir: &Path, nodes: &Nodes) -> Result<Store> {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    Store::open_with(dir.join(&nodes.first().name), &options)
}

fn stop(context: &mut Context<'_>, dir: &Path) -> Done {
    let dir = absolute(dir)?;
    let nodes = Nodes::of(&dir)?;
    stop_all(&dir, &nodes)?;
    if context.out.json {
        return context.out.document(&json!({ "dir": dir, "stopped": nodes.present().count() }));
    }
    context.out.line(format!("{}: stopped", subject(&dir)))
}

fn stop_all(dir: &Path, nodes: &Nodes) -> Result<()> {
    let stopped = nodes.each(|_, node| {
        let place = dir.join(&node.name);
        let words = ["cluster".as_ref(), "stop-node".as_ref(), place.as_os_str(), nodes.cluster.as_ref()];
        nodes.run(node, &words, &[])
    });
    all(stopped).map(drop)
}

fn destroy(context: &mut Context<'_>, dir: &Path, yes: bool, force: bool) -> Done {
    let dir = absolute(dir)?;
    let nodes = Nodes::of(&dir)?;
    if !yes {
        confirm(&format!(
            "Delete the store of the {} with everything in it, on {} nodes?",
            subject(&dir),
            nodes.present().count()
        ))?;
    }
    stop_all(&dir, &nodes).or_else(|error| {
        let how = "`--force` leaves what is on nodes that cannot be reached";
        if force { Ok(()) } else { Err(error.clone().try_next(format!("{}; {how}", error.next_step()))) }
    })?;
    for left in remove(&dir, &nodes, force)? {
        context.out.line(format!("left: {left}"))?;
    }
    context.out.line(format!("{} is no more", subject(&dir)))
}

/// Deletes a cluster whose nodes are stopped. Returns why something stays: it is none of the cluster, or, with `force`, it could
/// not be deleted.
fn remove(dir: &Path, nodes: &Nodes, force: bool) -> Result<Vec<Error>> {
    let mut left = Vec::new();
    let mut stays = |done: Result<String>| match done {
        Err(error) if force || error.kind() == ErrorKind::Exists => {
            left.push(error);
            Ok(())
        }
        done => done.map(drop),
    };
    if nodes.homes_on.is_some() {
        let taken = nodes.each(|_, node| {
            let place = dir.join(&node.name);
            nodes.run(node, &["cluster".as_ref(), "take-home".as_ref(), place.as_os_str()], &[])
        });
        taken.into_iter().try_for_each(&mut stays)?;
    }
    nodes.each(|home, node| part::destroy(dir, nodes, (home, node))).into_iter().try_for_each(&mut stays)?;
    stays(nodes.register.remove(nodes.cluster.parse()?).map(|()| String::new()))?;
    for file in [NODES_FILE, KEY_FILE] {
        let _ = std::fs::remove_file(dir.join(file));
    }
    let _ = std::fs::remove_dir(dir); // unless it holds something else
    Ok(left)
}
