//! `home`: where the homes of a cluster are, and their moves.

use std::time::{Duration, Instant};

use cenote::model::size::human;
use cenote::model::{ClusterChange, NodeId};
use cenote::{Error, ErrorKind, HaHome, HaLoad, HaMove, HaNode, HaReport, HomeId, Mode, OpenOptions, Result, Store};
use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::ha::{home_rows, home_table, named};
use crate::copy::Progress;
use crate::failure::Done;

/// How long a home may take to move without any sign of it.
const PATIENCE: Duration = Duration::from_mins(2);
/// Bytes of a home that are copied each second at least.
const COPIED_PER_S_MIN: u64 = 16 << 20;
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Show where the homes of the cluster are, and move them to other nodes
#[derive(Subcommand, Debug)]
pub enum HomeCommand {
    /// Show the host and the mirrors of each home
    List,
    /// Make another node the host of a home whose own node has left or is away; returns when it is
    Move {
        /// The home: n2, say
        home: String,
        /// The node, by its name or number
        #[arg(long)]
        to: String,
    },
    /// Move homes whose own nodes have left, and mirrors, from nodes with much load to nodes with little; returns when they are there
    Balance {
        /// Do nothing: print what would be moved, and why
        #[arg(long)]
        dry_run: bool,
    },
}

/// Shows or moves homes.
pub fn home(context: &mut Context<'_>, command: &HomeCommand) -> Done {
    let options = OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() };
    let store = Store::open_with(context.dir()?, &options)?;
    match command {
        HomeCommand::List => {
            let report = store.ha_report()?;
            if context.out.json {
                return context.out.document(&super::ha::document(&report, false)["homes"]);
            }
            home_table(context, &report)?;
            context.out.line("")?;
            load_table(context, &report)
        }
        HomeCommand::Balance { dry_run } => balance(context, &store, *dry_run),
        HomeCommand::Move { home, to } => {
            let report = store.ha_report()?;
            let (home, to) = (home_of(&report, home)?, node_of(&report, to)?);
            store.change_cluster(ClusterChange::MoveHome { home, to })?;
            let report = wait(context, &store, (home, to), |it| it.host == to)?;
            if context.out.json {
                return context.out.document(&json!({ "home": home.0, "host": to.0, "view": report.view }));
            }
            let mut rows = home_rows(&report).into_iter();
            let row = rows.find(|row| row[0] == home.to_string()).unwrap_or_default();
            context.out.line(format!("home {home}: host {}, mirrors {}", named(&report, to), row[2]))
        }
    }
}

fn home_of(report: &HaReport, text: &str) -> Result<HomeId> {
    let number = text.trim_start_matches('n').parse().ok();
    let home = report.homes.iter().map(|home| home.home).find(|home| Some(home.0) == number);
    home.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("home `{text}`"))
            .because("the cluster has no such home")
            .try_next("`cenote home list` shows all of them")
    })
}

fn node_of(report: &HaReport, text: &str) -> Result<NodeId> {
    let is = |name: &str, number: NodeId| name == text || number.0.to_string() == text;
    let node = report.nodes.iter().find(|node| is(&node.name, node.node)).map(|node| node.node);
    node.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("node `{text}`"))
            .because("the cluster has no such node")
            .try_next("`cenote ha` shows all of them")
    })
}

/// Moves one copy of a home after the other, as the daemons conclude from the load of nodes.
fn balance(context: &mut Context<'_>, store: &Store, dry_run: bool) -> Done {
    let planned = store.ha_report()?;
    if dry_run {
        return show_moves(context, &planned, &planned.moves);
    }
    let (mut done, mut report) = (Vec::new(), planned);
    // A copy is moved once: what was measured meanwhile may differ by what the move itself did.
    while let Some(next) = report.moves.iter().find(|next| !is_moved(&done, next)).cloned() {
        let HaMove { home, from, to, is_host, .. } = next;
        let change =
            if is_host { ClusterChange::MoveHome { home, to } } else { ClusterChange::MoveMirror { home, from, to } };
        store.change_cluster(change)?;
        let is_there = |it: &HaHome| {
            if is_host { it.host == to } else { it.mirrors.contains(&to) && !it.mirrors.contains(&from) }
        };
        report = wait(context, store, (home, to), is_there)?;
        if !context.out.json {
            let (role, from, to) = (role(&next), named(&report, from), named(&report, to));
            context.out.line(format!("home {home}: {role} {to} in place of {from}; {}", next.why))?;
        }
        done.push(next);
    }
    if context.out.json || done.is_empty() {
        return show_moves(context, &report, &done);
    }
    Ok(())
}

fn is_moved(done: &[HaMove], next: &HaMove) -> bool {
    done.iter().any(|it| it.home == next.home && (it.to == next.from || it.from == next.to))
}

/// What the node has of the home that moves.
fn role(it: &HaMove) -> &'static str {
    if it.is_host { "host" } else { "mirror" }
}

fn show_moves(context: &mut Context<'_>, report: &HaReport, moves: &[HaMove]) -> Done {
    if context.out.json {
        let document = |it: &HaMove| json!({ "home": it.home.0, "role": role(it), "from": it.from.0, "to": it.to.0, "why": it.why });
        return context.out.document(&json!({ "moves": moves.iter().map(document).collect::<Vec<_>>() }));
    }
    if moves.is_empty() {
        return context.out.line("nothing to move: the load of nodes is as even as moves of whole homes make it");
    }
    let row = |it: &HaMove| {
        vec![it.home.to_string(), role(it).into(), named(report, it.from), named(report, it.to), it.why.clone()]
    };
    let rows: Vec<_> = moves.iter().map(row).collect();
    context.out.table(&[">home", "role", "from", "to", "why"], &rows)
}

/// Shows how loaded nodes are.
fn load_table(context: &mut Context<'_>, report: &HaReport) -> Done {
    let row = |node: &HaNode| {
        let free = |part: fn((u64, u64)) -> u64| node.room.map_or_else(|| "?".into(), |room| human(part(room)));
        let HaLoad { memory_bytes, disk_bytes, written_bytes_per_s } = node.load;
        let written = format!("{}/s", human(written_bytes_per_s));
        vec![
            node.name.clone(),
            human(memory_bytes),
            free(|room| room.0),
            human(disk_bytes),
            free(|room| room.1),
            written,
        ]
    };
    let rows: Vec<_> = report.nodes.iter().filter(|node| node.live).map(row).collect();
    context.out.table(&["node", ">memory", ">free", ">disk", ">free", ">written"], &rows)
}

/// Waits until a copy of a home on a node is what it is to be.
fn wait(
    context: &Context<'_>,
    store: &Store,
    (home, to): (HomeId, NodeId),
    is_there: impl Fn(&HaHome) -> bool,
) -> Result<HaReport> {
    let mut progress = None;
    let (mut moved_at, mut known) = (Instant::now(), None);
    loop {
        let report = store.ha_report()?;
        if report.homes.iter().any(|it| it.home == home && is_there(it)) {
            return Ok(report);
        }
        let copy = report.copies.iter().find(|copy| copy.home == home && copy.node == to);
        if let Some(copy) = copy.filter(|copy| copy.total_bytes > 0) {
            let name = format!("home {home}");
            let bar =
                progress.get_or_insert_with(|| Progress::bytes(context.progress(), &name, Some(copy.total_bytes)));
            bar.at(copy.copied_bytes);
        }
        let now = Some((report.view, copy.map(|copy| (copy.complete, copy.copied_bytes))));
        if now != known {
            (moved_at, known) = (Instant::now(), now);
        }
        // Only its host sees how far a copy is, so elsewhere a large one takes its time without a sign.
        let cost = report.homes.iter().find(|it| it.home == home).map(|it| it.load).unwrap_or_default();
        let patience = PATIENCE + Duration::from_secs((cost.memory_bytes + cost.disk_bytes) / COPIED_PER_S_MIN);
        if moved_at.elapsed() > patience {
            return Err(Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!(
                    "{} is to have it, and nothing has happened for {} s",
                    named(&report, to),
                    patience.as_secs()
                ))
                .try_next("`cenote ha` shows what is in the way; the move goes on without this command"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
