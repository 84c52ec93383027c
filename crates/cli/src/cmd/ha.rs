//! `ha`: the view of the cluster, what happened, what this node concludes, and why.

use std::path::PathBuf;

use cenote::model::size::human;
use cenote::{HaDecided, HaNode, HaReport, Mode, OpenOptions, Store};
use cenote_cluster::Members;
use clap::Args;
use serde_json::{Value, json};

use super::Context;
use crate::failure::Done;

/// Titles of [`home_rows`].
pub const HOME_TITLES: [&str; 8] = [">home", "host", "mirrors", ">wanted", ">term", ">memory", ">disk", ">written"];

/// Show the view of the cluster, what happened to its nodes, what is concluded from that, and why
#[derive(Args, Debug)]
pub struct HaArgs {
    /// Directory of a node [default: the selected store]
    dir: Option<PathBuf>,
    /// Only what would be repaired now; nothing is done because of this command
    #[arg(long)]
    dry_run: bool,
}

/// Shows the report of a node.
pub fn ha(context: &mut Context<'_>, args: &HaArgs) -> Done {
    let dir = args.dir.clone().map_or_else(|| context.dir(), Ok)?;
    // A daemon that is down is started, as for any other command.
    let options = OpenOptions { mode: Mode::Daemon, read_only: true, ..OpenOptions::default() };
    let report = Store::open_with(&dir, &options)?.ha_report()?;
    let homes_on = Members::read(&dir)?.and_then(|members| members.homes_on);
    if context.out.json {
        return context.out.document(&document(&report, args.dry_run));
    }
    if args.dry_run {
        return repairs(context, &report);
    }
    known(context, &report)?;
    if let Some(on) = homes_on {
        context.out.line(format!("homes lie in {on}-nN: any node can open them"))?;
    }
    context.out.line("")?;
    happened(context, &report)?;
    context.out.line("")?;
    concluded(context, &report)
}

/// A time as people read it.
fn ago(us: u64) -> String {
    match us / 1_000_000 {
        0..60 => format!("{:.1} s", us as f64 / 1e6),
        seconds @ 60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        seconds => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

/// A node's name, for people.
pub fn named(report: &HaReport, node: cenote::model::NodeId) -> String {
    let name = report.nodes.iter().find(|it| it.node == node).map(|it| it.name.as_str()).unwrap_or_default();
    if name.is_empty() { format!("node {}", node.0) } else { name.to_owned() }
}

/// Whether a node takes part, in a word or two.
pub fn state(node: &HaNode) -> &'static str {
    match (node.live, node.owed, node.doubt.is_empty()) {
        _ if node.given_up => "given up",
        (true, _, true) if node.leaving => "leaving",
        (true, _, true) => "live",
        (true, _, false) => "in doubt",
        (false, true, _) => "excluded, owed",
        (false, false, _) => "excluded",
    }
}

fn known(context: &mut Context<'_>, report: &HaReport) -> Done {
    if report.view == 0 {
        context.out.line(format!("node {}: there is no view of the cluster yet", report.node.0))?;
    } else {
        let live = report.nodes.iter().filter(|node| node.live).count();
        let asked = report.asked_ago_us.map_or_else(|| "never".into(), |us| format!("{} ago", ago(us)));
        context.out.line(format!(
            "view {}, as {} holds it: {live} of {} nodes take part; the loss of {} is to be survived; the register was asked {asked}",
            report.view,
            named(report, report.node),
            report.nodes.len(),
            report.survives,
        ))?;
    }
    if !report.trouble.is_empty() {
        context.out.line(format!("  {}", report.trouble))?;
    }
    if report.view == 0 {
        return Ok(());
    }
    let silence = |node: &HaNode| node.silence_us.map(ago).unwrap_or_default();
    let row = |node: &HaNode| {
        let number = node.node.0.to_string();
        let since = format!("view {}", node.since_view);
        vec![
            number,
            node.name.clone(),
            node.address.clone(),
            state(node).into(),
            since,
            silence(node),
            node.doubt.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = report.nodes.iter().map(row).collect();
    context.out.table(&[">node", "name", "address", "state", "since", ">silent", "why in doubt"], &rows)?;
    context.out.line("")?;
    home_table(context, report)
}

/// Shows where homes are.
pub fn home_table(context: &mut Context<'_>, report: &HaReport) -> Done {
    context.out.table(&HOME_TITLES, &home_rows(report))
}

/// Where homes are: number, host, mirrors, how many are wanted, term, and what each copy costs.
pub fn home_rows(report: &HaReport) -> Vec<Vec<String>> {
    let row = |home: &cenote::HaHome| {
        let host = host(report, home);
        let (wanted, term) = (home.mirrors_wanted.to_string(), home.term.to_string());
        let load = home.load;
        let written = format!("{}/s", human(load.written_bytes_per_s));
        let costs = [human(load.memory_bytes), human(load.disk_bytes), written];
        [home.home.to_string(), host, mirrors(report, home), wanted, term].into_iter().chain(costs).collect()
    };
    report.homes.iter().map(row).collect()
}

/// The host of a home, for people, and the node that is to be its host, if that is another one.
fn host(report: &HaReport, home: &cenote::HaHome) -> String {
    let host = named(report, home.host);
    if home.lost {
        return format!("none: lost with {host}");
    }
    if home.host == home.wanted_host { host } else { format!("{host}, for {}", named(report, home.wanted_host)) }
}

/// The mirrors of a home, for people.
fn mirrors(report: &HaReport, home: &cenote::HaHome) -> String {
    let names: Vec<String> = home.mirrors.iter().map(|node| named(report, *node)).collect();
    let names = if names.is_empty() { "none".into() } else { names.join(", ") };
    let moving = home.moving.map(|(from, to)| format!(" ({} in place of {})", named(report, to), named(report, from)));
    names + &moving.unwrap_or_default()
}

fn happened(context: &mut Context<'_>, report: &HaReport) -> Done {
    context.out.line("What happened")?;
    if report.events.is_empty() {
        return context.out.line("  nothing since this daemon began");
    }
    for event in &report.events {
        context.out.line(format!("  {:>9} ago  {}", ago(event.ago_us), event.what))?;
    }
    Ok(())
}

fn concluded(context: &mut Context<'_>, report: &HaReport) -> Done {
    context.out.line("What this node concludes, and why")?;
    if report.decided.is_empty() {
        return context.out.line("  nothing has to be done");
    }
    for decided in &report.decided {
        context.out.line(format!("  {}: {}", decided.what, decided.why))?;
    }
    Ok(())
}

fn repairs(context: &mut Context<'_>, report: &HaReport) -> Done {
    let all: Vec<&HaDecided> = report.decided.iter().filter(|decided| decided.repairs).collect();
    if all.is_empty() {
        return context.out.line(format!("{} would repair nothing now", named(report, report.node)));
    }
    context
        .out
        .line(format!("{} would do this now; nothing was done because of this command", named(report, report.node)))?;
    for decided in all {
        context.out.line(format!("  {}: {}", decided.what, decided.why))?;
    }
    Ok(())
}

/// A report for programs.
pub fn document(report: &HaReport, dry_run: bool) -> Value {
    let decided = |it: &&HaDecided| json!({ "kind": it.kind, "repairs": it.repairs, "what": it.what, "why": it.why });
    let kept: Vec<&HaDecided> = report.decided.iter().filter(|it| !dry_run || it.repairs).collect();
    let decided: Vec<Value> = kept.iter().map(decided).collect();
    if dry_run {
        return json!({ "node": report.node.0, "view": report.view, "decided": decided });
    }
    json!({
        "node": report.node.0,
        "view": report.view,
        "survives": report.survives,
        "asked_ago_us": report.asked_ago_us,
        "trouble": report.trouble,
        "nodes": report.nodes.iter().map(node_document).collect::<Vec<_>>(),
        "homes": report.homes.iter().map(home_document).collect::<Vec<_>>(),
        "events": report.events.iter().map(|it| json!({ "ago_us": it.ago_us, "what": it.what })).collect::<Vec<_>>(),
        "decided": decided,
        "moves": report.moves.len(),
        "copies": report.copies.iter().map(copy_document).collect::<Vec<_>>(),
    })
}

fn copy_document(copy: &cenote::HaCopy) -> Value {
    json!({ "home": copy.home.0, "node": copy.node.0, "complete": copy.complete, "copied_bytes": copy.copied_bytes,
        "total_bytes": copy.total_bytes })
}

fn node_document(node: &HaNode) -> Value {
    json!({ "node": node.node.0, "name": node.name, "address": node.address, "state": state(node), "live": node.live, "leaving": node.leaving,
        "given_up": node.given_up, "owed": node.owed, "since_view": node.since_view, "silence_us": node.silence_us, "doubt": node.doubt,
        "load": load_document(&node.load), "free_memory_bytes": node.room.map(|room| room.0), "free_disk_bytes": node.room.map(|room| room.1) })
}

fn home_document(home: &cenote::HaHome) -> Value {
    json!({ "home": home.home.0, "host": home.host.0, "wanted_host": home.wanted_host.0, "mirrors": home.mirrors.iter().map(|node| node.0).collect::<Vec<_>>(),
        "mirrors_wanted": home.mirrors_wanted, "term": home.term, "lost": home.lost,
        "moving": home.moving.map(|(from, to)| json!({ "from": from.0, "to": to.0 })), "load": load_document(&home.load) })
}

fn load_document(load: &cenote::HaLoad) -> Value {
    json!({ "memory_bytes": load.memory_bytes, "disk_bytes": load.disk_bytes, "written_bytes_per_s": load.written_bytes_per_s })
}
