//! `init`: creates a store.

use std::path::{Path, absolute};

use cenote::{Error, ErrorKind, OpenOptions, Store, StoreConfig};
use serde_json::json;

use super::Context;
use crate::args::InitArgs;
use crate::config;
use crate::failure::Done;
use cenote::model::size;

pub fn init(context: &mut Context<'_>, args: &InitArgs) -> Done {
    let dir = match &args.dir {
        Some(dir) => dir.clone(),
        None => context.dir()?,
    };
    let dir = absolute(&dir).map_err(|error| Error::io(format!("store directory {}", dir.display()), &error))?;
    let store_config = config_of(args)?;
    refuse_what_is_no_store(&dir)?;
    let options = OpenOptions {
        mode: context.mode(),
        create: true,
        create_new: !args.if_missing,
        config: store_config,
        ..OpenOptions::default()
    };
    let store = Store::open_with(&dir, &options)?;
    if !args.no_measure {
        super::tiers::measure_new(&store)?;
    }
    let devices = store.devices()?;
    if context.out.json {
        return context.out.document(&json!({
            "store": store.id().to_string(),
            "dir": dir.display().to_string(),
            "engines": store.engines()?,
            "tiers": devices.iter().map(super::tier::document).collect::<Vec<_>>(),
        }));
    }
    context.out.line(format!("store {} in {}", store.id(), dir.display()))?;
    for device in &devices {
        context.out.line(format!(
            "  tier {}: {}, {}",
            device.spec.name,
            device.spec.kind.word(),
            size::human(device.spec.capacity_bytes)
        ))?;
    }
    Ok(())
}

/// Refuses to mix a store with other files: the directory must be empty, or hold a store.
fn refuse_what_is_no_store(dir: &Path) -> cenote::Result<()> {
    // A failed attempt leaves its lock.
    let foreign = |entry: std::io::Result<std::fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != "lock");
    if !std::fs::read_dir(dir).is_ok_and(|mut entries| entries.any(foreign)) {
        return Ok(());
    }
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    match Store::open_with(dir, &options) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::Exists, format!("directory {}", dir.display()))
                .because("it holds files, and none of them is a store's")
                .try_next("choose an empty directory, or one that is not there yet"))
        }
        _ => Ok(()),
    }
}

/// Converts the arguments. Paths become absolute: a daemon has another working directory.
fn config_of(args: &InitArgs) -> cenote::Result<StoreConfig> {
    let mut wanted = match &args.config {
        Some(file) => config::read(file)?,
        None => StoreConfig { devices: args.tiers.clone(), ..StoreConfig::default() },
    };
    wanted.engines = args.engines;
    wanted.writers.extend(&args.writers);
    wanted.readers.extend(&args.readers);
    for (at, device) in wanted.devices.iter().enumerate() {
        if wanted.devices[..at].iter().any(|other| other.name == device.name) {
            return Err(Error::new(ErrorKind::InvalidInput, format!("tier `{}`", device.name))
                .because("two tiers have this name")
                .try_next("give each tier its own name"));
        }
    }
    wanted.devices.iter_mut().try_for_each(config::make_absolute)?;
    Ok(wanted)
}
