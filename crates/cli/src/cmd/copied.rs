//! `adopt` and `clone`: how a copied store directory becomes usable.

use std::path::Path;

use cenote::model::size::{count, human};
use cenote::{Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_server::Copied;
use serde_json::json;

use super::Context;
use crate::failure::{Done, Failure};

pub fn adopt(context: &mut Context<'_>, dir: &Path) -> Done {
    let copied = cenote_server::adopt(dir)?.ok_or_else(|| busy(dir))?;
    let said = if copied.from == dir.canonicalize().unwrap_or_default() {
        format!("the store {} is what is in {}", copied.store, dir.display())
    } else {
        format!("the store {} is in {} now, no longer in {}", copied.store, dir.display(), copied.from.display())
    };
    finish(context, dir, &copied, &said)
}

pub fn clone(context: &mut Context<'_>, dir: &Path) -> Done {
    let copied = cenote_server::clone_copy(dir)?.ok_or_else(|| busy(dir))?;
    let said = format!("{} is a store of its own now, {}: a copy of {}", dir.display(), copied.store, copied.original);
    finish(context, dir, &copied, &said)
}

fn busy(dir: &Path) -> Error {
    let who = cenote_server::holder(dir).map_or_else(|| "another process".to_owned(), |who| who.to_string());
    Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
        .because(format!("{who} has it open"))
        .try_next("stop it first: `cenote stop` for a daemon")
}

/// Opens and verifies the resulting store: after a restore, people want to know how much of it is
/// intact.
fn finish(context: &mut Context<'_>, dir: &Path, copied: &Copied, said: &str) -> Done {
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() })?;
    let report = store.verify()?;
    store.close()?;
    if context.out.json {
        context.out.document(&json!({
            "store": copied.store.to_string(),
            "original": copied.original.to_string(),
            "from": copied.from.display().to_string(),
            "memory_lost": copied.memory_lost,
            "objects": report.objects,
            "bytes": report.bytes,
            "damaged": report.findings.len(),
        }))?;
    } else {
        context.out.line(said)?;
        if copied.memory_lost {
            context.out.line("  what was in memory alone is not in it: it is as after a power loss")?;
        }
        let (objects, bytes) = (count(report.objects), human(report.bytes));
        let verdict = match report.findings.len() {
            0 => "all is well".to_owned(),
            damaged => format!("{damaged} ranges are damaged: `cenote verify` lists them"),
        };
        context.out.line(format!("  {objects} objects, {bytes} looked at: {verdict}"))?;
    }
    if report.findings.is_empty() { Ok(()) } else { Err(Failure::Damage) }
}
