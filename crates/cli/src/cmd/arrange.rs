//! `promote`, `demote`, `evict`: moves between tiers that people ask for; `policies`: who decides the others.

use std::ffi::OsString;

use cenote::model::size::{self, human};
use cenote::{Arrange, ArrangeTarget, Arrangement, Error, ErrorKind, ObjectId};
use clap::Args;
use serde_json::json;

use super::{Access, Context};
use crate::failure::Done;
use crate::target::{self, Target};

/// What is to be moved.
#[derive(Args, Debug)]
pub struct MoveArgs {
    /// CONTAINER/OBJECT, or CONTAINER for all that is in it
    pub target: OsString,
    /// Only this part of an object: FROM-TO, as in 1GiB-2GiB
    #[arg(long, value_name = "FROM-TO")]
    pub range: Option<String>,
    /// Move nothing: print what would be moved, at what cost, and why
    #[arg(long)]
    pub dry_run: bool,
}

/// The same, with where to.
#[derive(Args, Debug)]
pub struct MoveToArgs {
    #[command(flatten)]
    pub what: MoveArgs,
    /// The tier [default: the next one that has room]
    #[arg(long, value_name = "TIER")]
    pub to: Option<String>,
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

fn arrange(context: &mut Context<'_>, args: &MoveArgs, what: &Arrange) -> Done {
    let store = context.open(if args.dry_run { Access::Read } else { Access::Write })?;
    let target = match (target::either::<ObjectId>(&store, &args.target)?, &args.range) {
        (Target::Container(label), None) => ArrangeTarget::Container(store.container(label)?.id()),
        (Target::Container(label), Some(_)) => {
            return Err(Error::new(ErrorKind::InvalidInput, format!("container `{label}`"))
                .because("--range is about a part of an object")
                .try_next("name an object, as CONTAINER/OBJECT")
                .into());
        }
        (Target::Inside(label, id), range) => {
            let key = store.container(label)?.object(id).key();
            match range {
                None => ArrangeTarget::Object(key),
                Some(text) => {
                    let (offset, len) = range_of(text)?;
                    ArrangeTarget::Range { key, offset, len }
                }
            }
        }
    };
    let done = store.arrange(&target, what, args.dry_run)?;
    if context.out.json {
        return context.out.document(&document(&done));
    }
    show(context, &done, args.dry_run)
}

/// Offset and length of `FROM-TO`.
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
    let (moves, moved) = if is_dry { ("would move", "to be read and written") } else { ("moved", "read and written") };
    out.line(format!(
        "{moves} {} in {} ranges; {} {moved}, about {} of I/O",
        human(done.bytes),
        done.ranges,
        human(done.moved_bytes),
        milliseconds(done.cost_ns)
    ))?;
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
    })
}

pub fn policies(context: &mut Context<'_>) -> Done {
    let all: Vec<(String, String)> = cenote::policies().collect();
    if context.out.json {
        let list: Vec<_> = all.iter().map(|(name, about)| json!({ "name": name, "about": about })).collect();
        return context.out.document(&json!(list));
    }
    let rows: Vec<Vec<String>> = all.into_iter().map(|(name, about)| vec![name, about]).collect();
    context.out.table(&["policy", "what it does"], &rows)?;
    Ok(())
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
