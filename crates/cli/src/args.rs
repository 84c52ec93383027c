//! The command line: every command, its arguments and its help.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use cenote::{DeviceSpec, model::size};
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::cmd::advise::AdviseArgs;
use crate::cmd::arrange::{MoveArgs, MoveToArgs, PinArgs, QUERY_HELP};
use crate::cmd::consistency::ConsistencyArgs;
use crate::cmd::container::{MkArgs, SetArgs};
use crate::cmd::copied::AdoptArgs;
use crate::cmd::files::{CP_HELP, CpArgs};
use crate::cmd::images::ImagesArgs;
use crate::cmd::index::IndexCommand;
use crate::cmd::init::InitArgs;
use crate::cmd::layout::{LAYOUT_HELP, LayoutArgs};
use crate::cmd::mount::{MOUNT_HELP, MountArgs, UnmountArgs};
use crate::cmd::policy::{PolicyCommand, RulesArgs};
use crate::cmd::run::{RUN_HELP, RunArgs};
use crate::cmd::s3::S3Args;
use crate::cmd::snapshot::SnapshotCommand;
use crate::cmd::weight::WeightArgs;
use crate::cmd::{cluster::ClusterCommand, ha::HaArgs, home::HomeCommand, verify::ProtectArgs};
use crate::config;
use crate::durability::DurabilityArg;
use crate::mode::{self, ModeChange};

const BEGIN: &str = "\
Begin with:
  cenote init                       make a store (memory in front of a directory) in the default place
  cenote mk runs                    make a container
  cenote put results.dat runs       copy a file in; prints the object's id
  cenote ls runs                    list what is there
  cenote explain runs/<id>          where each range is, and why
  cenote status                     tiers and their use

An object is named CONTAINER/ID, where ID is a hexadecimal number of up to 32 digits.
Sizes may be written 4096, 64KiB, 1.5GiB (binary) or 2GB (decimal).
Exit codes: 0 done, 1 it failed, 2 the command line makes no sense, 3 damage was found.";

/// A multi-tier object store: one copy of the data on every kind of memory and storage that a machine has.
#[derive(Parser, Debug)]
#[command(name = "cenote", version, after_help = BEGIN, max_term_width = 110)]
pub struct Cli {
    /// Directory of the store [default: $XDG_DATA_HOME/cenote/default]
    #[arg(short, long, global = true, env = "CENOTE_STORE", value_name = "DIR", hide_env_values = true)]
    pub store: Option<PathBuf>,
    /// Write JSON instead of tables
    #[arg(long, global = true)]
    pub json: bool,
    /// No progress bars
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// How to access the store
    #[arg(long, global = true, value_enum, default_value_t = ModeArg::Auto, value_name = "MODE")]
    pub mode: ModeArg,
    /// The command
    #[command(subcommand)]
    pub command: Command,
}

/// How to access the store.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ModeArg {
    /// Through the daemon that serves the store; without a daemon, in this process
    Auto,
    /// In this process; an error if another process has the store open
    InProcess,
    /// Through a daemon, started if there is none
    Daemon,
}

/// The commands.
#[derive(Subcommand, Debug)]
pub enum Command {
    /// Create a store
    #[command(after_help = INIT_HELP)]
    Init(InitArgs),
    /// Serve a store to other processes until stopped (programs otherwise start a daemon by themselves)
    Serve(ServeArgs),
    /// Ask the daemon that serves the store to finish its work and exit
    Stop,
    /// Start, show and stop a store over several nodes
    #[command(subcommand)]
    Cluster(ClusterCommand),
    #[command(subcommand)]
    Home(HomeCommand),
    Ha(HaArgs),
    /// Delete a store and everything in it: memory, tiers, metadata, directory
    Destroy(DestroyArgs),
    /// Declare a copied or restored directory to be the store, or take over a store whose home is in a pool
    Adopt(AdoptArgs),
    /// Turn a copied store directory into a separate store with a new id
    Clone {
        /// The copy
        dir: PathBuf,
    },
    /// Release memory of stores whose directory was deleted by hand, and space of HDF5 files whose stubs were removed
    Clean {
        /// Do not ask for confirmation
        #[arg(short, long)]
        yes: bool,
        /// Only HDF5 files of the store
        #[arg(long)]
        files: bool,
        /// Also HDF5 files that may have been removed and wait for their grace period
        #[arg(long)]
        waiting: bool,
    },
    /// Show how full the tiers are, and how much space removed HDF5 files still take
    Df,
    /// Show tiers and their use, counters, sessions and the journal
    Status,
    /// List the tiers: use, speed, and anything special about them
    #[command(after_help = TIERS_HELP)]
    Tiers(TiersArgs),
    /// Watch the store at work: tiers, flows between them, hot objects, clients
    Top(TopArgs),
    /// Add, drain or remove a tier while the store is in use
    #[command(subcommand)]
    Tier(TierCommand),
    /// List containers, or the objects and indices of one
    Ls(LsArgs),
    /// Make a container
    Mk(MkArgs),
    /// Change a container's durability, quota or policy
    Set(SetArgs),
    Weight(WeightArgs),
    /// Change who may read (r) and write (w) containers: `chmod 0750 CONTAINER`, `chmod go-rwx CONTAINER`
    Chmod {
        /// Octal, or as for files: u, g, o, a; + - =; r, w, x
        #[arg(value_parser = mode::parse, value_name = "MODE")]
        rights: ModeChange,
        /// CONTAINER
        #[arg(required = true)]
        containers: Vec<OsString>,
    },
    /// Give containers to another user or group
    Chown {
        /// Numeric: UID, UID:GID, or :GID
        #[arg(value_parser = mode::parse_owner, value_name = "UID:GID")]
        to: (Option<u32>, Option<u32>),
        /// CONTAINER
        #[arg(required = true)]
        containers: Vec<OsString>,
    },
    /// Rename a container
    Rename {
        /// Its label
        from: OsString,
        /// Its new label
        to: OsString,
    },
    /// Delete objects, or (with -r) containers with everything in them
    Rm {
        /// CONTAINER/OBJECT, or CONTAINER with -r
        #[arg(required = true)]
        targets: Vec<OsString>,
        /// Delete containers with everything in them
        #[arg(short, long)]
        recursive: bool,
    },
    /// Create, list, open and delete snapshots of a container or an HDF5 file, and roll back to one
    #[command(subcommand)]
    Snapshot(SnapshotCommand),
    /// Copy a file into the store, completely or not at all; prints the object's name
    Put(PutArgs),
    /// Copy an object to a file
    Get {
        /// CONTAINER/OBJECT
        object: OsString,
        /// The file to create
        file: PathBuf,
        /// Replace the file if it exists
        #[arg(short, long)]
        force: bool,
    },
    /// Write an object, or a part of it, to standard output
    Cat {
        /// CONTAINER/OBJECT
        object: OsString,
        /// Start at this offset
        #[arg(long, default_value = "0", value_parser = size::parse)]
        offset: u64,
        /// Stop after this many bytes [default: at the end]
        #[arg(long, value_parser = size::parse)]
        length: Option<u64>,
    },
    /// Show what is known about an object or a container
    Stat {
        /// CONTAINER/OBJECT or CONTAINER
        target: OsString,
    },
    /// Copy an HDF5 file of the store, as `cp` copies files
    #[command(after_help = CP_HELP)]
    Cp(CpArgs),
    /// Import a native HDF5 file into the store, exactly, completely or not at all
    #[command(after_help = HDF5_HELP)]
    Import(InterchangeArgs),
    /// Export an HDF5 file of the store to a native file, exactly, completely or not at all
    #[command(after_help = HDF5_HELP)]
    Export(InterchangeArgs),
    /// Put the bytes of a native HDF5 file into the store; HDF5 programs read it there unchanged
    Stage(StageArgs),
    /// Write the bytes of a staged HDF5 file to a file
    Unstage(StageArgs),
    /// Show the content of an HDF5 file of the store: shapes, types, chunks, filters, and the tiers that hold it
    Tree {
        /// The file
        file: PathBuf,
        /// Maximum depth of groups [default: all]
        #[arg(short, long, value_name = "N")]
        depth: Option<usize>,
    },
    /// Set an object's size; what lies beyond is dropped
    Truncate {
        /// CONTAINER/OBJECT
        object: OsString,
        /// Its new size
        #[arg(value_parser = size::parse)]
        size: u64,
    },
    /// Records of ordered indices
    #[command(subcommand)]
    Index(IndexCommand),
    /// Show where each range of an object is, why, and what happens next
    Explain {
        /// CONTAINER/OBJECT
        object: OsString,
    },
    /// Move reads of an object or container to a faster tier; the old place stays as its copy
    #[command(after_help = QUERY_HELP)]
    Promote(MoveToArgs),
    /// Move an object or container to a slower tier, and off the faster ones
    #[command(after_help = QUERY_HELP)]
    Demote(MoveToArgs),
    /// Free space on a faster tier of data that have a copy on a slower one, without I/O
    #[command(after_help = QUERY_HELP)]
    Evict(MoveArgs),
    /// Keep an object, a part of it or a container on a tier, regardless of policies and watermarks
    #[command(after_help = QUERY_HELP)]
    Pin(PinArgs),
    /// Keep a container, an object or a part of it as copies, stripes or parity on several disks or nodes
    #[command(after_help = LAYOUT_HELP)]
    Layout(LayoutArgs),
    /// Undo a pin
    #[command(after_help = QUERY_HELP)]
    Unpin(MoveArgs),
    /// Copy to the lowest tier, with read-back and comparison; the faster tiers keep the data. Skips what is archived
    #[command(after_help = QUERY_HELP)]
    Archive(MoveToArgs),
    /// Free archived data from the faster tiers, without I/O; a read brings them back
    #[command(after_help = QUERY_HELP)]
    Release(MoveToArgs),
    /// Set, check and show your own rules: where data go, and what happens as they age
    #[command(subcommand)]
    Policy(PolicyCommand),
    Rules(RulesArgs),
    /// List the placement policies that a container can have
    Policies,
    /// Read everything and verify its checksums; exit code 3 if damage is found
    Verify {
        /// CONTAINER [default: everything]
        container: Option<OsString>,
    },
    /// Return when everything acknowledged so far survives power loss
    Flush {
        /// CONTAINER [default: everything]
        container: Option<OsString>,
    },
    Protect(ProtectArgs),
    /// Write a checkpoint now, so that the next opening replays nothing
    Checkpoint,
    /// Show the effective settings, and where each comes from
    Config,
    /// Check this machine for anything that would keep a store from working well
    Doctor,
    /// Watch a program's files and memory objects, and recommend a tier for each
    Advise(AdviseArgs),
    /// Show a store as directories and files that every program can use
    #[command(after_help = MOUNT_HELP)]
    Mount(MountArgs),
    /// Unmount; returns when everything written through the mount is on media
    Unmount(UnmountArgs),
    /// Serve a store to S3 clients, and manage their access keys
    #[command(after_help = crate::cmd::s3::HELP)]
    S3(S3Args),
    /// Make HDF5 files of the store available as ordinary .h5 files (byte images) in the container `hdf5`, and list them
    #[command(alias = "streams", after_help = crate::cmd::images::HELP)]
    Images(ImagesArgs),
    /// Run a program that sees a store as files, without a mount
    #[command(after_help = RUN_HELP)]
    Run(RunArgs),
    /// Show or set when others see changes in a directory: strict, commit or laminated
    #[command(after_help = crate::cmd::consistency::HELP)]
    Consistency(ConsistencyArgs),
}

const INIT_HELP: &str = "\
A tier is written name=NAME,kind=memory|pmem|file|directory|s3|swift|rados|raid,path=PATH,size=SIZE[,high=90%][,low=70%]. Fastest first.
Memory needs no path. Without tiers: memory in front of a directory beside the metadata, sized for this machine.
Of s3 and swift the path is BUCKET/PREFIX; endpoint=URL says where, credentials=FILE#PROFILE (or env:PREFIX) where the secrets are; of rados POOL/NAMESPACE, conf=FILE, user=NAME, keyring=FILE. Of raid it is DIR:DIR:DIR, each on a disk of its own; layout=mirror=2, 2+1 or 4+2 says how many may be lost.

  cenote init /data/store --tier name=ram,kind=memory,size=2GiB --tier name=disk,kind=directory,path=/data/tier,size=100GiB

The same as a file for --config:

  writers = [1001]          # users besides the owner who may read and write
  readers = []              # users who may only read
  [[tier]]
  name = \"ram\"
  kind = \"memory\"
  size = \"2GiB\"
  high = \"90%\"              # draining starts above this use...
  low = \"70%\"               # ...and goes down to this
  [[tier]]
  name = \"cold\"
  kind = \"s3\"
  path = \"bucket/prefix\"    # nobody else may use this prefix
  size = \"10TiB\"
  endpoint = \"https://s3.example.org\"
  region = \"us-east-1\"
  credentials = \"secrets.ini#cold\"";

const HDF5_HELP: &str = "\
HDF5 1.14 or newer is used to read and write native files: the one that --hdf5 names, or the system's, or the copy that
h5py, netCDF4 or PyTables of `python3` brings.

  cenote import run.h5 /data/run.h5        /data/run.h5 stands for the file in the store from then on
  cenote import -f run.h5                  the file in the store takes the place of the native one
  cenote export /data/run.h5 copy.h5       copy.h5 is read by every HDF5 program";

/// Arguments of `import` and `export`.
#[derive(Args, Debug)]
pub struct InterchangeArgs {
    /// The file
    pub from: PathBuf,
    /// The other file [default of import: FROM, which is then replaced: needs -f]
    pub to: Option<PathBuf>,
    /// Replace an existing file
    #[arg(short, long)]
    pub force: bool,
    /// The libhdf5 to use (a shared library)
    #[arg(long, value_name = "LIBRARY", env = "CENOTE_HDF5_LIBRARY", hide_env_values = true)]
    pub hdf5: Option<PathBuf>,
}

/// Arguments of `stage` and `unstage`.
#[derive(Args, Debug)]
pub struct StageArgs {
    /// The file
    pub from: PathBuf,
    /// The other file
    pub to: PathBuf,
    /// Replace an existing file
    #[arg(short, long)]
    pub force: bool,
}

/// Arguments of `serve`.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Directory of the store [default: as --store]
    pub dir: Option<PathBuf>,
    /// Exit after this many seconds without a client [default: stay]
    #[arg(long, value_name = "SECONDS")]
    pub idle_exit: Option<u64>,
    /// Run in the background; returns once the daemon serves, or with its start-up error
    #[arg(long)]
    pub background: bool,
    /// Create the store if the directory holds none
    #[arg(long)]
    pub create: bool,
    /// Serve a page that shows the store at work, and its metrics (/metrics), on this loopback address or port. The setting
    /// is kept with the store and applies to daemons that programs start; `off` ends that
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, default_missing_value = "127.0.0.1:7117", value_parser = http)]
    pub http: Option<HttpArg>,
    /// Let containers choose the placement policy in this shared library (examples/policy-plugin). The setting is kept with
    /// the store and applies to programs that open it themselves; `off` ends that. Loading the library means trusting it
    #[arg(long, value_name = "LIBRARY")]
    pub policy_plugin: Option<PathBuf>,
}

/// Where the page is served.
#[derive(Clone, Copy, Debug)]
pub enum HttpArg {
    /// No page.
    Off,
    /// This address.
    At(SocketAddr),
}

fn http(text: &str) -> Result<HttpArg, String> {
    if text == "off" { Ok(HttpArg::Off) } else { web_address(text).map(HttpArg::At) }
}

/// Parses `PORT` or `ADDRESS:PORT`.
pub fn web_address(text: &str) -> Result<SocketAddr, String> {
    let whole = if text.contains(':') { text.to_owned() } else { format!("127.0.0.1:{text}") };
    let whole = whole.replacen("localhost:", "127.0.0.1:", 1);
    let address: SocketAddr =
        whole.parse().map_err(|_| "a port, or a loopback address and a port (127.0.0.1:7117)".to_owned())?;
    if address.ip().is_loopback() {
        Ok(address)
    } else {
        Err("only loopback addresses: the page has no passwords (`ssh -L` brings it to another machine)".to_owned())
    }
}

/// Arguments of `top`.
#[derive(Args, Debug)]
pub struct TopArgs {
    /// Directory of the store [default: as --store]
    pub dir: Option<PathBuf>,
    /// Print what happens during one second, and exit
    #[arg(long)]
    pub once: bool,
    /// Seconds between updates
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    pub interval: f64,
    /// Initial order of objects and clients
    #[arg(long, value_enum, default_value_t = SortArg::Heat, value_name = "ORDER")]
    pub sort: SortArg,
    /// Print the address of the page that shows the same in a browser; if no daemon serves one, serve it until stopped
    #[arg(long, conflicts_with = "once")]
    pub web: bool,
    /// Address of the page if this command serves it
    #[arg(long, value_name = "ADDRESS", value_parser = web_address, requires = "web", default_value = "127.0.0.1:0")]
    pub http: SocketAddr,
}

/// Order of lists.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum SortArg {
    /// Most used first
    Heat,
    /// Largest first
    Size,
    /// By name
    Name,
}

fn interval(text: &str) -> Result<f64, String> {
    let seconds: f64 = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    if (0.1..=3600.0).contains(&seconds) { Ok(seconds) } else { Err("0.1 to 3600 seconds".to_owned()) }
}

/// Arguments of `destroy`.
#[derive(Args, Debug)]
pub struct DestroyArgs {
    /// Directory of the store [default: as --store]
    pub dir: Option<PathBuf>,
    /// Do not ask for confirmation
    #[arg(short, long)]
    pub yes: bool,
    /// Even if programs use the store, and despite tiers that cannot be removed
    #[arg(short, long)]
    pub force: bool,
}

/// Tier commands.
#[derive(Subcommand, Debug)]
pub enum TierCommand {
    /// Add a tier
    Add {
        /// name=NAME,kind=memory|pmem|file|directory,path=PATH,size=SIZE[,high=90%][,low=70%]
        #[arg(value_parser = config::parse_tier)]
        spec: DeviceSpec,
    },
    /// Move everything off a tier; it takes no new data
    Drain {
        /// Name of the tier
        name: String,
    },
    /// Remove an empty tier from the store
    Remove {
        /// Name of the tier
        name: String,
    },
}

const TIERS_HELP: &str = "\
Latency is what an access costs before its first byte, bandwidth what long accesses reach, several at once. Both are
measured in free space of a tier: when the store is made, when it is first at rest, or now with --measure; and they follow
what moving data shows since.

  cenote tiers --measure --plot tiers.svg      latency and bandwidth of each tier over the size of accesses";

/// Arguments of `tiers`.
#[derive(Args, Debug)]
pub struct TiersArgs {
    /// Measure now: all tiers, or the named ones
    #[arg(short, long, value_name = "TIER", num_args = 0..)]
    pub measure: Option<Vec<String>>,
    /// Approximate seconds per measured tier
    #[arg(long, value_name = "SECONDS", default_value_t = 0.5, requires = "measure", value_parser = config::parse_seconds)]
    pub seconds: f64,
    /// Draw latency and bandwidth by access size
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
}

/// Arguments of `ls`.
#[derive(Args, Debug)]
pub struct LsArgs {
    /// A container [default: list the containers]
    pub container: Option<OsString>,
    /// Size and use of each object (one lookup each)
    #[arg(short, long)]
    pub long: bool,
    /// Maximum number of entries
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Start after this object id
    #[arg(long, value_name = "ID", requires = "container")]
    pub after: Option<String>,
}

/// Arguments of `put`.
#[derive(Args, Debug)]
pub struct PutArgs {
    /// The file; - for standard input
    pub file: PathBuf,
    /// CONTAINER (with a random object id) or CONTAINER/OBJECT
    pub target: OsString,
    /// Create the container if it does not exist
    #[arg(short, long)]
    pub parents: bool,
    /// Replace the object's content if it exists; readers see the old or the new content
    #[arg(short, long)]
    pub force: bool,
    /// Block size [default: the container's]
    #[arg(short, long, value_parser = config::parse_block_size, value_name = "SIZE")]
    pub block_size: Option<u8>,
    /// Return only when the copy survives power loss
    #[arg(long)]
    pub flush: bool,
    /// Buffer it differently: sync (write-through), async (write-back), bypass (straight to the lowest persistent tier)
    #[arg(long, value_enum, value_name = "MODE")]
    pub buffered: Option<DurabilityArg>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_holds_together() {
        super::Cli::command().debug_assert();
    }
}
