//! `adopt` and `clone`: how a copied store directory becomes usable.

use std::path::{Path, PathBuf, absolute};

use cenote::model::DeviceState;
use cenote::model::size::{count, human};
use cenote::{DeviceInfo, Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_device::rados_dir::Address;
use cenote_server::Copied;
use clap::Args;
use serde_json::json;

use super::Context;
use crate::failure::{Done, Failure};

/// Arguments of `adopt`.
#[derive(Args, Debug)]
pub struct AdoptArgs {
    /// The directory
    pub dir: PathBuf,
    /// Take over the store in this place, whichever node had it: rados:POOL[/NAME][,user=USER][,conf=FILE][,keyring=FILE]
    #[arg(long, value_name = "PLACE", value_parser = Address::parse)]
    pub from: Option<Address>,
}

pub fn adopt(context: &mut Context<'_>, args: &AdoptArgs) -> Done {
    let dir = &args.dir;
    let dir = &absolute(dir).map_err(|error| Error::io(dir.display().to_string(), &error))?;
    let copied = match &args.from {
        Some(address) => cenote_server::adopt_from(dir, address)?,
        None => cenote_server::adopt(dir)?,
    };
    let copied = copied.ok_or_else(|| busy(dir))?;
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
    let devices = store.devices()?;
    let away: Vec<_> = devices.iter().filter(|device| device.state == DeviceState::Failed).map(tier_and_why).collect();
    let report = store.verify()?;
    store.close()?;
    if context.out.json {
        context.out.document(&json!({
            "store": copied.store.to_string(),
            "original": copied.original.to_string(),
            "from": copied.from.display().to_string(),
            "memory_lost": copied.memory_lost,
            "tiers_away": devices.iter().filter(|device| device.state == DeviceState::Failed).map(|device| &device.spec.name).collect::<Vec<_>>(),
            "objects": report.objects,
            "bytes": report.bytes,
            "damaged": report.findings.len(),
        }))?;
    } else {
        context.out.line(said)?;
        if copied.memory_lost {
            context.out.line("  what was in memory alone is not in it: it is as after a power loss")?;
        }
        for tier in away {
            context.out.line(format!("  tier {tier}: what is only there cannot be read"))?;
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

fn tier_and_why(device: &DeviceInfo) -> String {
    format!("`{}` is away ({} {})", device.spec.name, device.spec.kind.word(), device.spec.path.display())
}
