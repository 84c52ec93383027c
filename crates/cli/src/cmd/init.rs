//! `init`: creates a store.

use std::path::{Path, PathBuf, absolute};

use cenote::{DeviceKind, DeviceSpec, Error, ErrorKind, OpenOptions, Store, StoreConfig};
use cenote_device::rados_dir::Address;
use clap::Args;
use serde_json::json;

use super::Context;
use crate::config;
use crate::failure::Done;
use cenote::model::size;

/// Arguments of `init`.
#[derive(Args, Debug)]
pub struct InitArgs {
    /// Directory of the store [default: as --store]
    pub dir: Option<PathBuf>,
    /// A tier; repeat for more
    #[arg(long = "tier", value_name = "SPEC", value_parser = config::parse_tier)]
    pub tiers: Vec<DeviceSpec>,
    /// Tiers and rights from a TOML file
    #[arg(long, value_name = "FILE", conflicts_with = "tiers")]
    pub config: Option<PathBuf>,
    /// Numeric id of a user besides the owner who may read and write; repeat for more
    #[arg(long = "writer", value_name = "UID")]
    pub writers: Vec<u32>,
    /// Numeric id of a user who may only read; repeat for more
    #[arg(long = "reader", value_name = "UID")]
    pub readers: Vec<u32>,
    /// Engines that share the tiers, each with a lock and a journal of its own (1 to 16): for many programs with containers
    /// of their own on many cores. Tiers cannot be added or removed later, and a transaction has containers of one engine
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=16))]
    pub engines: u16,
    /// Keep superblock, journal and checkpoints in a replicated pool of Ceph RADOS, so that another node can take the store over
    /// (`cenote adopt DIR --from`): rados:POOL[/NAME][,user=USER][,conf=FILE][,keyring=FILE]
    #[arg(long, value_name = "PLACE", value_parser = Address::parse)]
    pub on: Option<Address>,
    /// Succeed if the store exists already
    #[arg(long)]
    pub if_missing: bool,
    /// Do not measure the tiers now (a tenth of a second each); the store does so when it is first idle
    #[arg(long)]
    pub no_measure: bool,
}

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
    let store = make(&dir, &options, args)?;
    if !args.no_measure {
        super::tiers::measure_new(&store)?;
    }
    let devices = store.devices()?;
    if context.out.json {
        return context.out.document(&json!({
            "store": store.id().to_string(),
            "dir": dir.display().to_string(),
            "engines": store.engines()?,
            "home": args.on.as_ref().map(ToString::to_string),
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
    if let Some(address) = &args.on {
        context
            .out
            .line(format!("  home {address}: `cenote adopt DIR --from {address}` opens the store on another node"))?;
        if let Some(local) = local_tiers(&devices) {
            context.out.line(format!(
                "  of tier {local} another node has only what lies on a file system that it has too: drain to a tier in an object \
                 service what must outlive this node"
            ))?;
        }
    }
    Ok(())
}

/// Makes the store, with its home in a pool if the arguments say so.
fn make(dir: &Path, options: &OpenOptions, args: &InitArgs) -> cenote::Result<Store> {
    let Some(address) = &args.on else { return Store::open_with(dir, options) };
    if args.engines > 1 {
        return Err(Error::new(ErrorKind::Unsupported, "--on with --engines")
            .because("a store with several engines has its home in its directory yet")
            .try_next("make the store with one engine, or without --on"));
    }
    let is_set = cenote_server::set_home(dir, address, &options.config)?;
    Store::open_with(dir, options).inspect_err(|_| {
        if is_set && !cenote_server::holds_store(dir).unwrap_or(true) {
            let _ = cenote_server::forget_home(dir); // report the error of the creation
        }
    })
}

/// The tiers with bytes that outlive the memory of this node, and that other nodes may not reach.
fn local_tiers(devices: &[cenote::DeviceInfo]) -> Option<String> {
    let is_local = |kind: DeviceKind| kind.is_persistent() && !kind.is_remote();
    let names: Vec<_> =
        devices.iter().filter(|device| is_local(device.spec.kind)).map(|device| &*device.spec.name).collect();
    (!names.is_empty()).then(|| names.join(", "))
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
