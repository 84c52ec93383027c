//! The commands, one file per group, and how they access the store.

pub mod advise;
mod answered;
pub mod arrange;
pub mod cluster;
pub mod consistency;
pub mod container;
pub mod copied;
mod destroy;
mod directory;
mod doctor;
mod explain;
pub mod files;
pub mod ha;
pub mod home;
pub mod images;
pub mod index;
pub mod init;
mod interchange;
pub mod layout;
mod list;
mod log;
pub mod mount;
mod object;
pub mod policy;
pub mod run;
pub mod s3;
mod s3_zarr;
mod serve;
pub mod snapshot;
mod status;
mod tier;
mod tiers;
mod tiers_plot;
mod top;
mod tree;
pub mod verify;
mod waiting;
mod web;
pub mod weight;

use std::path::PathBuf;

use cenote::{Mode, OpenOptions, Store};

use crate::args::{Cli, Command, ModeArg};
use crate::config;
use crate::failure::Done;
use crate::out::Out;

/// What a command does to the store.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It changes nothing.
    Read,
    /// It may change something.
    Write,
}

/// Context of every command.
pub struct Context<'a> {
    cli: &'a Cli,
    /// Output.
    pub out: &'a mut Out,
}

impl Context<'_> {
    /// Returns the directory of the selected store.
    pub fn dir(&self) -> cenote::Result<PathBuf> {
        Ok(config::store_dir(self.cli.store.as_deref())?.0)
    }
    /// Opens the store, which must exist.
    pub fn open(&self, access: Access) -> cenote::Result<Store> {
        let options = OpenOptions { mode: self.mode(), read_only: access == Access::Read, ..OpenOptions::default() };
        let store = Store::open_with(self.dir()?, &options)?;
        if !store.homes().is_empty() && self.progress() {
            waiting::watch(store.dir().to_owned());
        }
        Ok(store)
    }
    /// Returns how to access the store.
    pub fn mode(&self) -> Mode {
        match self.cli.mode {
            ModeArg::Auto => Mode::Auto,
            ModeArg::InProcess => Mode::InProcess,
            ModeArg::Daemon => Mode::Daemon,
        }
    }
    /// Returns true if progress may be shown.
    pub fn progress(&self) -> bool {
        !self.cli.quiet
    }
}

/// Runs the command.
pub fn run(cli: &Cli, out: &mut Out) -> Done {
    let context = &mut Context { cli, out };
    match &cli.command {
        Command::Init(args) => init::init(context, args),
        Command::Serve(args) => serve::serve(context, args),
        Command::Stop => serve::stop(context),
        Command::Cluster(command) => cluster::cluster(context, command),
        Command::Ha(args) => ha::ha(context, args),
        Command::Home(command) => home::home(context, command),
        Command::Destroy(args) => destroy::destroy(context, args),
        Command::Adopt(args) => copied::adopt(context, args),
        Command::Clone { dir } => copied::clone(context, dir),
        Command::Clean { yes, files, waiting } => destroy::clean(context, *yes, *files, *waiting),
        Command::Df => files::df(context),
        Command::Status => status::status(context),
        Command::Config => status::config(context),
        Command::Doctor => doctor::doctor(context),
        Command::Tiers(args) => tiers::tiers(context, args),
        Command::Top(args) => top::top(context, args),
        Command::Tier(command) => tier::tier(context, command),
        Command::Ls(args) => list::ls(context, args),
        Command::Stat { target } => list::stat(context, target),
        Command::Mk(args) => container::make(context, args),
        Command::Set(args) => container::set(context, args),
        Command::Weight(args) => weight::weight(context, args),
        Command::Chmod { rights, containers } => container::chmod(context, rights, containers),
        Command::Chown { to, containers } => container::chown(context, *to, containers),
        Command::Rename { from, to } => container::rename(context, from, to),
        Command::Rm { targets, recursive } => container::remove(context, targets, *recursive),
        Command::Snapshot(command) => snapshot::snapshot(context, command),
        Command::Put(args) => object::put(context, args),
        Command::Get { object, file, force } => object::get(context, object, file, *force),
        Command::Cat { object, offset, length } => object::cat(context, object, *offset, *length),
        Command::Truncate { object, size } => object::truncate(context, object, *size),
        Command::Cp(args) => files::cp(context, args),
        Command::Import(args) => interchange::import(context, args),
        Command::Export(args) => interchange::export(context, args),
        Command::Stage(args) => interchange::stage(context, args),
        Command::Unstage(args) => interchange::unstage(context, args),
        Command::Tree { file, depth } => tree::tree(context, file, *depth),
        Command::Index(command) => index::index(context, command),
        Command::Explain { object } => explain::explain(context, object),
        Command::Promote(args) => arrange::promote(context, args),
        Command::Demote(args) => arrange::demote(context, args),
        Command::Evict(args) => arrange::evict(context, args),
        Command::Pin(args) => arrange::pin(context, args),
        Command::Layout(args) => layout::layout(context, args),
        Command::Unpin(args) => arrange::unpin(context, args),
        Command::Archive(args) => arrange::archive(context, args),
        Command::Release(args) => arrange::release(context, args),
        Command::Policy(command) => policy::policy(context, command),
        Command::Rules(args) => policy::rules(context, args),
        Command::Policies => policy::policies(context),
        Command::Verify { container } => verify::verify(context, container.as_deref()),
        Command::Protect(args) => verify::protect(context, args),
        Command::Flush { container } => verify::flush(context, container.as_deref()),
        Command::Checkpoint => verify::checkpoint(context),
        Command::Advise(args) => advise::advise(context, args),
        Command::Mount(args) => mount::mount(context, args),
        Command::Unmount(args) => mount::unmount(context, args),
        Command::S3(args) => s3::s3(context, args),
        Command::Images(args) => images::images(context, args),
        Command::Run(args) => run::run(context, args),
        Command::Consistency(args) => consistency::consistency(context, args),
    }
}
