//! `run`: runs a program that sees the store as files, without a mount.

use std::ffi::OsString;
use std::io::Read;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use cenote::{Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_host::elf::{self, HEAD_BYTES, Program};
use clap::Args;

use super::Context;
use super::mount::ConsistencyArg;
use crate::failure::Done;

pub const RUN_HELP: &str = "\
The program, and all that it starts, see the store's containers as directories below /cenote, which need not exist.

  cenote run -- cp input.dat /cenote/runs/
  cenote run --at /scratch -- mpirun -n 4 ./solver /scratch/runs/out
  cenote run -- bash

It works for programs that are linked to the C library (glibc, x86-64); of others is said that they do not see the store.
The same without this command: LD_PRELOAD=.../libcenote_posix.so CENOTE_STORE=DIR PROGRAM. docs/run.md has all.";

/// The library, next to this command.
const LIBRARY: &str = "libcenote_posix.so";
/// Where the program sees the store by default.
const AT: &str = "/cenote";
/// Maximum depth of scripts that interpret scripts.
const SCRIPTS_MAX: usize = 4;

/// Arguments of `run`.
#[derive(Args, Debug)]
pub struct RunArgs {
    /// Where the program sees the store: an absolute path, which need not exist
    #[arg(long, value_name = "DIR", default_value = AT)]
    at: PathBuf,
    /// Show the files of this container, created if it does not exist [default: all containers]
    #[arg(short, long, value_name = "NAME")]
    container: Option<String>,
    /// Make the store read-only
    #[arg(short, long)]
    read_only: bool,
    /// Consistency of new containers: when others see changes
    #[arg(long, value_enum, default_value_t = ConsistencyArg::Strict, value_name = "CONSISTENCY")]
    consistency: ConsistencyArg,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Finds the library, or returns an error that says how to get it.
fn library() -> cenote::Result<PathBuf> {
    let missing = || {
        Error::new(ErrorKind::NotFound, format!("library {LIBRARY}"))
            .because("it is not beside this command")
            .try_next("build it (`scripts/build.sh`), or put it there")
    };
    let program = std::env::current_exe().and_then(|path| path.canonicalize()).map_err(|_| missing())?;
    let near = program.parent().into_iter().flat_map(|dir| [dir.to_path_buf(), dir.join("../lib")]);
    let found = near.map(|dir| dir.join(LIBRARY)).find(|path| path.is_file()).ok_or_else(missing)?;
    // Colons and spaces separate the entries of lists of libraries.
    if found.as_os_str().as_bytes().iter().any(|byte| matches!(byte, b':' | b' ')) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("library {}", found.display()))
            .because("LD_PRELOAD cannot name a path with a colon or a space in it")
            .try_next("install the command elsewhere"));
    }
    Ok(found)
}

/// Finds the file that would be executed.
fn find(program: &OsString) -> Option<PathBuf> {
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program));
    }
    let can_run =
        |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&std::env::var_os("PATH")?).map(|dir| dir.join(program)).find(can_run)
}

/// Returns why the program would not see the store, if so.
fn beyond(path: &Path, depth: usize) -> Option<&'static str> {
    let mut head = vec![0; HEAD_BYTES];
    let mut file = std::fs::File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    let read = file.read(&mut head).ok()?;
    match elf::look(&head[..read]) {
        Program::Beyond(why) => Some(why),
        Program::Script(interpreter, _) if depth < SCRIPTS_MAX => {
            beyond(&PathBuf::from(OsString::from_vec(interpreter)), depth + 1)
        }
        Program::Dynamic => {
            let other_user = meta.mode() & 0o4000 != 0 && meta.uid() != rustix::process::getuid().as_raw();
            let other_group = meta.mode() & 0o2000 != 0 && meta.gid() != rustix::process::getgid().as_raw();
            (other_user || other_group).then_some("it runs as another user or group (set-id)")
        }
        _ => None,
    }
}

pub fn run(context: &mut Context<'_>, args: &RunArgs) -> Done {
    let at = args.at.to_string_lossy().trim_end_matches('/').to_owned();
    if !at.starts_with('/') {
        return Err(Error::new(ErrorKind::InvalidInput, format!("--at {}", args.at.display()))
            .because("it must be an absolute path other than `/`")
            .into());
    }
    let dir = context.dir()?;
    let dir = std::path::absolute(&dir).map_err(|error| Error::io(dir.display().to_string(), &error))?;
    let library = library()?;
    if let Some(path) = find(&args.program[0])
        && let Some(why) = beyond(&path, 0)
    {
        return Err(Error::new(ErrorKind::Unsupported, format!("program {}", path.display()))
            .because(format!("the files below {at} would be invisible to it: {why}"))
            .try_next("use `cenote mount`, which works for every program")
            .into());
    }
    // Starts the daemon before the program needs it, so that errors of the store are reported here.
    let options = OpenOptions { mode: Mode::Daemon, read_only: args.read_only, ..OpenOptions::default() };
    let store = Store::open_with(&dir, &options)?;
    let mut command = Command::new(&args.program[0]);
    let before = std::env::var_os("LD_PRELOAD").filter(|value| !value.is_empty());
    let mut preload = library.into_os_string();
    if let Some(before) = before {
        preload.push(":");
        preload.push(before);
    }
    command.args(&args.program[1..]).env("LD_PRELOAD", preload).env("CENOTE_STORE", &dir).env("CENOTE_AT", &at);
    command.env("CENOTE_CONSISTENCY", args.consistency.word());
    command.env("CENOTE_READ_ONLY", if args.read_only { "1" } else { "0" });
    match &args.container {
        Some(container) => command.env("CENOTE_CONTAINER", container),
        None => command.env_remove("CENOTE_CONTAINER"),
    };
    if std::env::var_os("CENOTE_BIN").is_none()
        && let Ok(program) = std::env::current_exe()
    {
        command.env("CENOTE_BIN", program);
    }
    drop(store);
    let error = command.exec();
    Err(Error::io(format!("program {}", args.program[0].to_string_lossy()), &error).into())
}
