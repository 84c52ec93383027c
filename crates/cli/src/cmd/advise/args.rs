//! The command line of `cenote advise`.

use std::ffi::OsString;
use std::path::PathBuf;

use cenote::model::size;
use clap::Args;

const HELP: &str = "\
The program runs as it is, with its own standard streams and exit code; the report goes to standard error or --output.
Its files and its memory objects from 1 MiB on are watched, in all processes that it starts. Programs that are linked
statically or run with other rights than yours cannot be watched; that is said before they are started.

Without a store in the default place or --store, this machine's memory and disk are measured as `cenote init` would.

  cenote advise -- python3 simulate.py                   where do its files belong, and what would that gain?
  cenote advise --apply --plot gain.svg -- ./solver in   the same, drawn, and as the store's policy `user`";

/// Arguments of `advise`.
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub struct AdviseArgs {
    /// Write the report to this file instead of standard error
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Draw the current times and those on the recommended tiers
    #[arg(long, value_name = "FILE.svg")]
    pub plot: Option<PathBuf>,
    /// Write the store's policy file (policy.toml in its directory; an existing one is kept as policy.toml.old)
    #[arg(long)]
    pub apply: bool,
    /// Write the policy file here
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// Watch memory objects of at least this size; 0: none
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = size::parse)]
    pub memory: u64,
    /// Maximum number of files and memory objects in the report
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub top: usize,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}
