//! `promote`, `demote`, `evict`, `pin`, `unpin`, `archive`, `release`: explicit placement by people.

use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::model::size::{self, human};
use cenote::{Arrange, ArrangeTarget, Arrangement, Error, ErrorKind, ObjectId, Store};
use clap::Args;
use serde_json::json;

use super::{Access, Context};
use crate::copy::Progress;
use crate::failure::{Done, Failure};
use crate::target::{self, Target};

/// Interval of progress updates.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// Help on `--where`.
pub const QUERY_HELP: &str = "\
--where takes conditions joined by `and`, `or`, `not` and parentheses:

  size>=1GiB  age>7d  idle<10m      of the object; age since it was written, idle since it was used (ms, s, m, h, d, w)
  label=run-*  object=2a*           names: * stands for anything, ? for one character
  tier=nvme  copy=tape  pinned=yes  of each range: where it is read, where its copy is
  temperature=cold                  hot: used within a minute; warm: within an hour; cold

  cenote evict --where 'size>=1GiB and age>7d and tier=nvme' --dry-run";

/// What to move.
#[derive(Args, Debug)]
pub struct MoveArgs {
    /// CONTAINER/OBJECT, or CONTAINER for everything in it [default, with --where: everything]
    #[arg(required_unless_present = "query")]
    pub target: Option<OsString>,
    /// Only this part of an object: FROM-TO, as in 1GiB-2GiB
    #[arg(long, value_name = "FROM-TO", conflicts_with = "query")]
    pub range: Option<String>,
    /// Only what matches these conditions
    #[arg(long = "where", value_name = "QUERY")]
    pub query: Option<String>,
    /// Do nothing: print what would be moved, at what cost, and why
    #[arg(long)]
    pub dry_run: bool,
}

/// What to move, and where to.
#[derive(Args, Debug)]
pub struct MoveToArgs {
    #[command(flatten)]
    pub what: MoveArgs,
    /// The tier [default: the next one with space; for archives: the lowest]
    #[arg(long, value_name = "TIER")]
    pub to: Option<String>,
}

/// What to pin, and where.
#[derive(Args, Debug)]
pub struct PinArgs {
    #[command(flatten)]
    pub what: MoveArgs,
    /// Bring it to this tier, and keep it there [default: keep each part where it is]
    #[arg(long, value_name = "TIER")]
    pub tier: Option<String>,
}

pub fn promote(context: &mut Context<'_>, args: &MoveToArgs) -> Done {
    arrange(context, &args.what, &Arrange::Promote { to: args.to.clone() })
}

pub fn demote(context: &mut Context<'_>, args: &MoveToArgs) -> Done {
    arrange(context, &args.what, &Arrange::Demote { to: args.to.clone() })
}

pub fn evict(context: &mut Context<'_>, args: &MoveArgs) -> Done {
    arrange(context, args, &Arrange::Evict)
}

pub fn pin(context: &mut Context<'_>, args: &PinArgs) -> Done {
    arrange(context, &args.what, &Arrange::Pin { to: args.tier.clone() })
}

pub fn unpin(context: &mut Context<'_>, args: &MoveArgs) -> Done {
    arrange(context, args, &Arrange::Unpin)
}

pub fn archive(context: &mut Context<'_>, args: &MoveToArgs) -> Done {
    arrange(context, &args.what, &Arrange::Archive { to: args.to.clone() })
}

pub fn release(context: &mut Context<'_>, args: &MoveToArgs) -> Done {
    arrange(context, &args.what, &Arrange::Release { to: args.to.clone() })
}

fn arrange(context: &mut Context<'_>, args: &MoveArgs, what: &Arrange) -> Done {
    let store = context.open(if args.dry_run { Access::Read } else { Access::Write })?;
    let target = target_of(&store, args)?;
    let done = if args.dry_run || !context.progress() {
        store.arrange(&target, what, args.dry_run)?
    } else {
        watched(&store, &target, what)?
    };
    finish(context, &done, args.dry_run)
}

/// Reports what was done, or would be; fails if something was to move and did not.
pub fn finish(context: &mut Context<'_>, done: &Arrangement, is_dry: bool) -> Done {
    report(context, done, is_dry, "nothing there is meant")?;
    if !is_dry && done.staying_bytes > 0 {
        return Err(stayed(done));
    }
    Ok(())
}

/// Reports data that were to be moved and were not: an error even if others moved.
fn stayed(done: &Arrangement) -> Failure {
    Failure::Error(
        Error::new(ErrorKind::Unsupported, format!("{} of the selected data", human(done.staying_bytes)))
            .because(format!("they were not moved: {}", done.staying_why))
            .try_next("--dry-run lists what would be moved; --where narrows the selection"),
    )
}

pub fn target_of(store: &Store, args: &MoveArgs) -> cenote::Result<ArrangeTarget> {
    let query = |container| args.query.clone().map(|text| ArrangeTarget::Query { container, text });
    let Some(name) = &args.target else {
        return query(None).ok_or_else(|| Error::new(ErrorKind::InvalidInput, "the command line"));
    };
    match (target::either::<ObjectId>(store, name)?, &args.range) {
        (Target::Container(label), None) => {
            let id = store.container(label)?.id();
            Ok(query(Some(id)).unwrap_or(ArrangeTarget::Container(id)))
        }
        (Target::Container(label), Some(_)) => Err(Error::new(ErrorKind::InvalidInput, format!("container `{label}`"))
            .because("--range is about a part of an object")
            .try_next("name an object, as CONTAINER/OBJECT")),
        (Target::Inside(label, id), range) => {
            let key = store.container(label)?.object(id).key();
            match range {
                _ if args.query.is_some() => Err(Error::new(ErrorKind::InvalidInput, format!("object {key}"))
                    .because("--where is about a container, or about everything")
                    .try_next(format!("name the container and write: --where 'object={id} and ...'"))),
                None => Ok(ArrangeTarget::Object(key)),
                Some(text) => {
                    let (offset, len) = range_of(text)?;
                    Ok(ArrangeTarget::Range { key, offset, len })
                }
            }
        }
    }
}

/// Carries out the request, and shows progress if it takes long.
fn watched(store: &Store, target: &ArrangeTarget, what: &Arrange) -> cenote::Result<Arrangement> {
    let all = store.arrange(target, what, true)?.bytes;
    let bar = Progress::bytes(true, "moving", Some(all));
    let is_done = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let looking = scope.spawn(|| {
            let mut number = None;
            while !is_done.load(Ordering::Relaxed) {
                std::thread::park_timeout(LOOK_EVERY);
                // The newest progress is that of this request, until another one comes.
                let running = store.arrange_progress().unwrap_or_default();
                number = number.or_else(|| running.iter().map(|one| one.number).max());
                if let Some(one) = running.iter().find(|one| Some(one.number) == number) {
                    bar.at(one.done_bytes);
                }
            }
        });
        let done = store.arrange(target, what, false);
        is_done.store(true, Ordering::Relaxed);
        looking.thread().unpark();
        done
    });
    bar.done();
    done
}

/// Reports what was done, or would be.
pub fn report(context: &mut Context<'_>, done: &Arrangement, is_dry: bool, nothing: &str) -> Done {
    if context.out.json {
        return context.out.document(&document(done));
    }
    if done.objects == 0 && done.pinned_bytes == 0 {
        return context.out.line(nothing);
    }
    show(context, done, is_dry)
}

/// Parses `FROM-TO` to offset and length.
fn range_of(text: &str) -> cenote::Result<(u64, u64)> {
    let bad = |why: String| {
        Error::new(ErrorKind::InvalidInput, format!("range `{text}`"))
            .because(why)
            .try_next("write FROM-TO, as in 0-64MiB")
    };
    let (from, to) = text.split_once('-').ok_or_else(|| bad("it has no `-`".to_owned()))?;
    let (from, to) = (size::parse(from).map_err(&bad)?, size::parse(to).map_err(&bad)?);
    if to <= from { Err(bad("it ends before it begins".to_owned())) } else { Ok((from, to - from)) }
}

fn show(context: &mut Context<'_>, done: &Arrangement, is_dry: bool) -> Done {
    let out = &mut *context.out;
    if is_dry && !done.moves.is_empty() {
        let rows: Vec<Vec<String>> = (done.moves.iter())
            .map(|one| {
                vec![
                    one.key.object.to_string(),
                    one.offset.to_string(),
                    human(one.bytes),
                    one.from.clone(),
                    one.to.clone(),
                    milliseconds(one.cost_ns),
                    one.why.clone(),
                ]
            })
            .collect();
        out.table(&["object", ">offset", ">bytes", "from", "to", ">I/O", "why"], &rows)?;
        if done.ranges > done.moves.len() as u64 {
            out.line(format!("and {} more ranges", done.ranges - done.moves.len() as u64))?;
        }
    }
    if done.pinned_bytes > 0 {
        let meant = if is_dry { "would be meant" } else { "are meant" };
        out.line(format!("{} {meant}", human(done.pinned_bytes)))?;
        if done.ranges == 0 && done.staying_why.is_empty() {
            return Ok(());
        }
    }
    let (moves, moved) = if is_dry { ("would move", "to be read and written") } else { ("moved", "read and written") };
    out.line(format!(
        "{moves} {} in {} ranges; {} {moved}, about {} of I/O",
        human(done.bytes),
        done.ranges,
        human(done.moved_bytes),
        milliseconds(done.cost_ns)
    ))?;
    if done.already_bytes > 0 {
        out.line(format!("{} are already as they should be", human(done.already_bytes)))?;
    }
    if !done.staying_why.is_empty() {
        out.line(format!("{} stay where they are: {}", human(done.staying_bytes), done.staying_why))?;
    }
    Ok(())
}

fn milliseconds(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn document(done: &Arrangement) -> serde_json::Value {
    let moves: Vec<_> = (done.moves.iter())
        .map(|one| {
            json!({
                "object": one.key.object.to_string(), "offset": one.offset, "bytes": one.bytes,
                "from": one.from, "to": one.to, "cost_ns": one.cost_ns, "why": one.why,
            })
        })
        .collect();
    json!({
        "moves": moves, "ranges": done.ranges, "bytes": done.bytes, "moved_bytes": done.moved_bytes,
        "cost_ns": done.cost_ns, "staying_bytes": done.staying_bytes, "staying_why": done.staying_why,
        "already_bytes": done.already_bytes, "pinned_bytes": done.pinned_bytes, "objects": done.objects,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_in_words() {
        assert_eq!(range_of("1MiB-3MiB").unwrap(), (1 << 20, 2 << 20));
        for bad in ["", "5", "2-1", "1-1", "a-b", "-"] {
            assert_eq!(range_of(bad).unwrap_err().kind(), ErrorKind::InvalidInput, "{bad}");
        }
    }
}
