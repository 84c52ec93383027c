//! The process that serves a mount, from its first to its last request.

use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind, HomeId, OpenOptions, Store};
use cenote_fuse::{Mount, Stopper};
use cenote_posix::{Consistency, FileSystem, FsError};
use tracing_subscriber::filter::LevelFilter;

use super::signals::Signals;
use super::{ConsistencyArg, MountArgs, Places, background, guard, subject};
use crate::cmd::Context;
use crate::failure::Done;

/// After a signal: time for the users of the mount to finish. A second signal ends it.
const GRACE: Duration = Duration::from_secs(10);
const AGAIN_EVERY: Duration = Duration::from_millis(100);
/// Maximum number of concurrent requests. Threads are created on demand.
const THREADS: usize = 64;
/// Time from the kernel's release until the last request is answered.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

pub fn serve(context: &mut Context<'_>, args: &MountArgs, places: &Places) -> Done {
    // Block the signals before any other thread exists: all threads leave them to this one.
    let signals = Signals::hold();
    log();
    let options = OpenOptions { mode: context.mode(), read_only: args.read_only, ..OpenOptions::default() };
    let store = Store::open_with(&places.store, &options)?;
    let _guarded = guard::start(&places.dir)
        .inspect_err(|error| tracing::warn!(%error, "if this process is killed, nobody unmounts in its place"));
    let mount = begin(&store, args, places)?;
    let stopper = mount.stopper();
    let (told, ending) = (store.clone(), !args.read_only);
    let watch = move || {
        signals.wait();
        stop(&signals, &stopper);
        // The main thread ends long before, unless a request hangs.
        std::thread::sleep(LAST_ANSWERS);
        std::process::exit(i32::from(end(&told, ending).is_err()));
    };
    std::thread::Builder::new()
        .name("cenote-signals".into())
        .spawn(watch)
        .map_err(|error| Error::io("a thread for signals", &error))?;
    if background::is_child() {
        background::ready(&places.store);
    } else {
        let (store, dir) = (places.store.display(), places.dir.display());
        context.out.line(format!("{store} is mounted on {dir}; Ctrl-C unmounts it"))?;
        context.out.flush()?;
    }
    if !is_of_one_machine(&store, args.container.as_deref())? {
        tracing::warn!(
            "programs of other nodes may map the same files, so `mmap` with MAP_SHARED is refused here (ENODEV): mount a container of this \
             node's home with --container to share its memory (docs/cluster.md)"
        );
    }
    mount.serve().map_err(|error| Error::io(subject(&places.dir), &error))?;
    end(&store, ending)?;
    Ok(())
}

/// Mounts, or returns why not.
fn begin(store: &Store, args: &MountArgs, places: &Places) -> cenote::Result<Mount> {
    let options = cenote_posix::Options {
        is_read_only: args.read_only,
        container: args.container.clone(),
        consistency: match args.consistency {
            ConsistencyArg::Strict => Consistency::Strict,
            ConsistencyArg::Commit => Consistency::Commit,
        },
        keeps_access_times: !args.read_only && !args.no_access_times,
        keeps_numbers: true,
        ..cenote_posix::Options::default()
    };
    let fs = FileSystem::new(store, options).map_err(|error| of_trees(&places.store, error))?;
    let options = cenote_fuse::Options {
        source: format!("cenote:{}", places.store.display()),
        is_read_only: args.read_only,
        allows_others: args.allow_other,
        remembers_strict: Duration::from_millis(args.remember_ms),
        is_write_back: args.write_back,
        maps_shared: is_of_one_machine(store, args.container.as_deref())?,
        is_passed_through: args.passthrough,
        starts_no_programs: args.no_exec,
        threads: args.threads.map_or(THREADS, usize::from),
    };
    let mount = Mount::start(fs, &places.dir, &options).map_err(|error| refused(&places.dir, &error))?;
    // Must precede the first answer. Without it the mount is slower, but equally correct.
    let alone = mount.remember_while_alone(|tell| store.is_alone_until(tell).unwrap_or(false));
    tracing::debug!(?alone, "the kernel remembers while nobody else uses the store");
    Ok(mount)
}

/// Returns true if all files have their home on this node, or the store is no part of a cluster: then programs of other nodes do not map them.
fn is_of_one_machine(store: &Store, container: Option<&str>) -> cenote::Result<bool> {
    let own = store.home();
    if own == HomeId(0) {
        return Ok(true); // no part of a cluster
    }
    container.map_or(Ok(false), |label| Ok(store.container(label)?.home() == own))
}

fn of_trees(store: &Path, error: FsError) -> Error {
    let subject = || format!("files of store {}", store.display());
    match error.cause {
        Some(cause) => *cause,
        None => Error::io(subject(), &io::Error::from_raw_os_error(error.errno)),
    }
}

/// Error if the kernel, or the helper, does not mount.
fn refused(dir: &Path, error: &io::Error) -> Error {
    let next = match error.kind() {
        io::ErrorKind::NotFound => {
            "load the kernel's module (`modprobe fuse`), or give the container /dev/fuse; without \
             fusermount3 (Debian: fuse3) only root can mount"
        }
        io::ErrorKind::PermissionDenied => {
            "be allowed to use /dev/fuse, and with --allow-other have user_allow_other in \
             /etc/fuse.conf; programs can use the store without a mount, too"
        }
        io::ErrorKind::Unsupported => "mount it without passthrough: it is slower, and else the same",
        _ => "see what the kernel says (`dmesg`)",
    };
    let kind = if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) {
        ErrorKind::InvalidInput
    } else {
        ErrorKind::Io
    };
    Error::new(kind, subject(dir)).because(error.to_string()).try_next(next)
}

/// Unmounts when nobody uses the mount any more, or, after a while or a second signal, in any case.
fn stop(signals: &Signals, stopper: &Stopper) {
    let begin = Instant::now();
    loop {
        match stopper.stop() {
            Ok(()) => return,
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => {
                tracing::warn!(%error, "it cannot be unmounted");
                break;
            }
            Err(_) if begin.elapsed() > GRACE => break,
            Err(_) => {}
        }
        if signals.next(AGAIN_EVERY) {
            break;
        }
    }
    tracing::warn!("the mount is taken away from programs that still use it");
    if let Err(error) = stopper.force() {
        tracing::warn!(%error, "it stays in the list of mounts: `umount -l` takes it out");
    }
}

/// Makes written data durable, and closes the store.
fn end(store: &Store, is_written: bool) -> cenote::Result<()> {
    let flushed = if is_written { store.flush() } else { Ok(()) };
    let closed = store.close();
    flushed.and(closed)
}

/// Logs to standard error; in the background that is the log file.
fn log() {
    let wanted = std::env::var("CENOTE_LOG").ok().and_then(|text| text.parse().ok());
    tracing_subscriber::fmt()
        .with_max_level(wanted.unwrap_or(LevelFilter::WARN))
        .with_writer(io::stderr)
        .with_ansi(false)
        .init();
}
