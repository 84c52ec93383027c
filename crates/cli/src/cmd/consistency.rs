//! `consistency`: when others see changes in a directory of a store's trees.

use clap::{Args, ValueEnum};
use serde_json::json;

use super::directory::Directory;
use super::{Access, Context};
use crate::failure::Done;

/// The attribute by which programs set it, also through a mount.
const XATTR: &str = "user.cenote.consistency";

/// The consistencies.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConsistencyWord {
    /// As POSIX requires: changes are visible to all when the call returns
    Strict,
    /// New and removed names of files are visible to others at fsync or close, or after some 50 ms
    Commit,
    /// Nothing changes any more, and nothing is asked for twice
    Laminated,
}

/// Arguments of `consistency`.
#[derive(Args, Debug)]
pub struct ConsistencyArgs {
    /// CONTAINER or CONTAINER/DIRECTORY, or a directory of a mounted store
    path: std::ffi::OsString,
    /// New consistency, also for directories created in it later [default: show the current one]
    #[arg(value_enum)]
    word: Option<ConsistencyWord>,
    /// Also for all directories below
    #[arg(short, long, requires = "word")]
    recursive: bool,
}

pub const HELP: &str = "\
  strict      as POSIX has it: what a call did all see when it returns
  commit      new files and removals are seen by others at fsync, close or some 50 ms later; creating is some times faster
  laminated   nothing changes any more (EROFS), not by who had it open either; what is known of it is never asked for again

Directories inherit from the one that they are made in. Its owner can set it. The same by a mount: setfattr -n user.cenote.consistency.

  cenote consistency runs/checkpoints commit
  cenote consistency -r runs/done laminated";

pub fn consistency(context: &mut Context<'_>, args: &ConsistencyArgs) -> Done {
    let access = if args.word.is_some() { Access::Write } else { Access::Read };
    let directory = Directory::find(context, &args.path, access, "consistency")?;
    if let Some(word) = args.word {
        let wanted = match word {
            ConsistencyWord::Strict => "strict",
            ConsistencyWord::Commit => "commit",
            ConsistencyWord::Laminated => "laminated",
        };
        directory.set(XATTR, wanted, args.recursive)?;
    }
    let now = directory.get(XATTR)?.unwrap_or_default();
    if context.out.json {
        let path = args.path.to_string_lossy();
        return context.out.document(&json!({ "path": path, "consistency": now }));
    }
    if args.word.is_none() { context.out.line(now) } else { Ok(()) }
}
