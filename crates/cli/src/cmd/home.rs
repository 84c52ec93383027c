//! `home`: where the homes of a cluster are, and their moves.

use std::time::{Duration, Instant};

use cenote::model::{ClusterChange, NodeId};
use cenote::{Error, ErrorKind, HaReport, HomeId, Mode, OpenOptions, Result, Store};
use clap::Subcommand;
use serde_json::json;

use super::Context;
use super::ha::{home_rows, home_table, named};
use crate::copy::Progress;
use crate::failure::Done;

/// How long a home may take to move without any sign of it.
const PATIENCE: Duration = Duration::from_mins(2);
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
            home_table(context, &report)
        }
        HomeCommand::Move { home, to } => {
            let report = store.ha_report()?;
            let (home, to) = (home_of(&report, home)?, node_of(&report, to)?);
            store.change_cluster(ClusterChange::MoveHome { home, to })?;
            let report = wait(context, &store, home, to)?;
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

/// Waits until a node is the host of a home.
fn wait(context: &Context<'_>, store: &Store, home: HomeId, to: NodeId) -> Result<HaReport> {
    let mut progress = None;
    let (mut moved_at, mut known) = (Instant::now(), None);
    loop {
        let report = store.ha_report()?;
        if report.homes.iter().any(|it| it.home == home && it.host == to) {
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
        if moved_at.elapsed() > PATIENCE {
            return Err(Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!(
                    "{} asks for it, and nothing has happened for {} s",
                    named(&report, to),
                    PATIENCE.as_secs()
                ))
                .try_next("`cenote ha` shows what is in the way; the move goes on without this command"));
        }
        std::thread::sleep(LOOK_EVERY);
    }
}
