//! The daemon: one process per node that serves a store directory to all other processes.
//!
//! Its threads: some handle the requests of clients from their rings, one for each engine as far as there are cores, and
//! each client has one of them; one accepts connections; one per client waits on its socket, to hand out segments and to
//! notice its end; one faults in memory ahead; the engines have their own threads.

mod ahead;
mod background;
mod greet;
pub(crate) mod location;
mod nodes;
mod peer;
mod restarting;
mod rings;
mod signals;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use cenote_cluster::Members;
use cenote_device::StoreLock;
use cenote_host::torn;
use cenote_model::{Error, ErrorKind, Result, StoreConfig, StoreId, Telemetry};
use cenote_rpc::{Doorbell, Listener};

use crate::service::lock;
use crate::{Host, OpenHow, Wrap};
use nodes::{Early, Nodes, Reach};
pub use nodes::{Known, PARTS_DIR};
use peer::Peer;

pub use peer::ring_memories;
pub use restarting::{RESTART_FILE, end_waiting, is_restarting, waits_for_home};

pub use background::{LOG_FILE, LOG_FILE_BEFORE, REPORT_VARIABLE, encode_report, read_report};

/// Name of the socket in the store's directory.
pub const SOCKET: &str = "socket";
/// Name of the file in the store's directory that holds the address of the store's web page, while the daemon serves
/// one.
pub const WEB_ADDRESS_FILE: &str = "web-address";
/// Log file of processes that serve mounts in the background; in the store's directory, beside [`LOG_FILE`].
pub const MOUNT_LOG_FILE: &str = "mount.log";
/// The previous mount log file.
pub const MOUNT_LOG_FILE_BEFORE: &str = "mount.log.1";
/// Bytes of each of a client's two rings.
const RING_BYTES: u64 = 256 << 10;
/// The same for clients of a home on another node, through whose rings the bytes of its objects go.
const FAR_RING_BYTES: u64 = 512 << 10;
/// Interval between searches for dead processes.
const REAP_EVERY: Duration = Duration::from_secs(1);
const ACCEPT_PATIENCE: Duration = Duration::from_millis(200);
/// Longest time from the end of a process to the end of all its locks.
const DYING: Duration = Duration::from_secs(2);
/// How long a daemon waits for a store that another process has: without a daemon, commands open a store for a moment.
const STORE_PATIENCE: Duration = Duration::from_secs(2);
const STORE_PAUSE: Duration = Duration::from_millis(5);

/// Settings of a daemon.
#[derive(Clone, Default)]
pub struct DaemonOptions {
    /// Exit after this time without clients. `None`: stay until told to exit.
    pub idle_exit: Option<Duration>,
    /// Continue in a process of its own session; the call returns once that process serves, or with its start-up error.
    pub background: bool,
    /// Create the store if the directory holds none.
    pub create: bool,
    /// Called when the store is served, to observe it; its result is kept until the daemon exits.
    pub observer: Option<Observer>,
    /// A shared library with a placement policy; `None`: the one stored with the store.
    pub policy_plugin: Option<PathBuf>,
    /// More arguments for the command line of a background daemon, which has to create the same observer there.
    pub background_args: Vec<OsString>,
    /// Wraps the engine's seams, for tests.
    pub world: Option<Wrap>,
}

/// See [`DaemonOptions::observer`]. An error of it keeps the daemon from serving.
pub type Observer = Arc<dyn Fn(Onlooker) -> Result<Box<dyn Send>> + Send + Sync>;

/// An observer's handle to a served store. Cheap to clone; does not delay the daemon's exit.
#[derive(Clone)]
pub struct Onlooker(Weak<Daemon>, StoreId);

impl Onlooker {
    /// The store.
    pub fn store(&self) -> StoreId {
        self.1
    }
    /// The store's telemetry; an error once the store is closed.
    pub fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        let gone = || Error::new(ErrorKind::Disconnected, format!("store {}", self.1)).because("its daemon is ending");
        let daemon = self.0.upgrade().filter(|daemon| !daemon.is_stopping()).ok_or_else(gone)?;
        daemon.host.service.telemetry(hot)
    }
    /// Returns true if this user may read the store.
    pub fn may_read(&self, uid: u32) -> bool {
        self.0.upgrade().is_some_and(|daemon| daemon.host.rights(uid).is_some())
    }
}

/// State shared by the daemon's threads.
struct Daemon {
    host: Arc<Host>,
    /// The other nodes, if the store is a home of a cluster.
    nodes: Option<Arc<Nodes>>,
    /// The ring threads.
    loops: Vec<Loop>,
    /// Number of clients that were given one.
    given: AtomicUsize,
    /// Number of clients that were admitted and have not left.
    connected: AtomicUsize,
    stop: AtomicBool,
    /// It is to begin anew in the same process, once it has stopped.
    again: AtomicBool,
    /// It was asked to end: then it does not begin anew.
    ends: AtomicBool,
}

/// What others share with a ring thread.
struct Loop {
    /// Clients that it has not seen yet.
    fresh: Mutex<Vec<Peer>>,
    bell: Doorbell,
    /// Its clients that are active.
    at_work: AtomicUsize,
}

impl Loop {
    fn new() -> Result<Self> {
        Ok(Self { fresh: Mutex::default(), bell: Doorbell::new()?, at_work: AtomicUsize::new(0) })
    }
}

impl Daemon {
    /// The daemon of an opened store. Fails if it is a home of a cluster and nobody can reach it.
    fn of(dir: &Path, host: Host, early: Option<Early>) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let loops = (0..usize::from(host.summary.engines).min(cores).max(1)).map(|_| Loop::new());
        Ok(Self {
            nodes: early.map(|early| Nodes::open(dir, &host, early)).transpose()?,
            loops: loops.collect::<Result<_>>()?,
            given: AtomicUsize::new(0),
            host: Arc::new(host),
            connected: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            again: AtomicBool::new(false),
            ends: AtomicBool::new(false),
        })
    }
    /// The ring thread of the next client.
    fn loop_for_next(&self) -> &Loop {
        &self.loops[self.given.fetch_add(1, Ordering::Relaxed) % self.loops.len()]
    }
    fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.loops.iter().for_each(|at| at.bell.ring());
        self.nodes.iter().for_each(|nodes| nodes.wake());
    }
    /// Stops because somebody asked for it.
    fn end(&self) {
        self.ends.store(true, Ordering::SeqCst);
        self.stop();
    }
    /// Returns true if another node has the home of this one, from where all nodes reach it: nothing can be done with it here.
    fn begins_anew(&self) -> bool {
        self.host.lost().is_some() && self.nodes.as_ref().is_some_and(|nodes| nodes.share_homes())
    }
    /// Stops and begins anew: the home of this node lies elsewhere by now.
    fn restart(&self) {
        self.again.store(true, Ordering::SeqCst);
        self.stop();
    }
    /// Has all threads look at their clients.
    fn ring_all(&self) {
        self.loops.iter().for_each(|at| at.bell.ring());
        self.nodes.iter().for_each(|nodes| nodes.ring());
    }
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }
}

/// Serves the store in `dir` until told to exit (`Request::Shutdown`, SIGTERM, SIGINT) or idle for too long.
pub fn run(dir: &Path, options: &DaemonOptions) -> Result<()> {
    let dir = std::path::absolute(dir).map_err(|error| Error::io(dir.display().to_string(), &error))?;
    if options.background {
        return background::start(&dir, options);
    }
    let in_background = background::is_child();
    let result = serve(&dir, options, in_background);
    if let Ok(End::Restart) = result {
        return Err(background::replace(&dir));
    }
    if in_background && let Err(error) = &result {
        background::report(Some(error));
    }
    result.map(drop)
}

/// How a daemon ended.
enum End {
    Stopped,
    /// It is to begin anew.
    Restart,
}

fn serve(dir: &Path, options: &DaemonOptions, in_background: bool) -> Result<End> {
    signals::block();
    torn::survive();
    let ending = Arc::new(Ending::default());
    let asked = ending.clone();
    signals::on_stop(move || asked.ask());
    let Some((host, early)) = open_here(dir, options, in_background, &ending)? else { return Ok(End::Stopped) };
    let listener = Listener::bind(dir, SOCKET)?;
    restarting::clear(dir);
    let daemon = Arc::new(Daemon::of(dir, host, early)?);
    abort_on_panic();
    let onlooker = Onlooker(Arc::downgrade(&daemon), daemon.host.id());
    let observing = options.observer.as_ref().map(|observe| observe(onlooker)).transpose()?;
    ending.concerns(&daemon);
    let start = |at: usize| {
        let for_rings = daemon.clone();
        std::thread::Builder::new()
            .name("cenote-rings".into())
            .spawn(move || rings::run(&for_rings, at))
            .map_err(|error| Error::io("a thread for the rings", &error))
    };
    let mut rings = (0..daemon.loops.len()).map(start).collect::<Result<Vec<_>>>()?;
    if let Some(nodes) = daemon.nodes.clone() {
        rings.extend(nodes.start(&daemon)?);
    }
    ahead::start(&daemon);
    if in_background {
        background::report(None);
    }
    tracing::info!(dir = %dir.display(), store = %daemon.host.id(), "serving");
    // Other nodes use a home of a cluster, whether or not this node has clients.
    accept(&daemon, &listener, options.idle_exit.filter(|_| daemon.nodes.is_none()));
    tracing::info!("leaving");
    drop(observing);
    // Releases the clients and closes the store; clients that arrive meanwhile are asked to come again.
    daemon.stop();
    let is_closed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_closed.load(Ordering::SeqCst) {
                if let Ok(Some(connection)) = listener.accept(Duration::from_millis(10)) {
                    greet::send_on(&connection);
                }
            }
        });
        for thread in rings {
            let _ = thread.join();
        }
        let others = daemon.nodes.as_ref().map_or(Ok(()), |nodes| nodes.close());
        let result = daemon.host.service.close().and(others);
        is_closed.store(true, Ordering::SeqCst);
        // Before the socket goes: who finds neither starts a daemon.
        let again = daemon.again.load(Ordering::SeqCst) && !daemon.ends.load(Ordering::SeqCst);
        let result = match result {
            // Whoever has its home by now lets it write nothing more.
            Err(error) if again => {
                tracing::warn!(%error, "the store could not be closed in order");
                Ok(())
            }
            result => result,
        };
        if again && let Err(error) = restarting::note(dir) {
            tracing::warn!(%error, "others may take the store before this daemon has it again");
        }
        // While the lock is held: afterwards the socket may be another daemon's.
        listener.unlink();
        daemon.host.unlock();
        result.map(|()| if again { End::Restart } else { End::Stopped })
    })
}

/// Whether the daemon was asked to end, from before it has a store.
#[derive(Default)]
struct Ending {
    is_asked: AtomicBool,
    daemon: Mutex<Weak<Daemon>>,
}

impl Ending {
    fn ask(&self) {
        self.is_asked.store(true, Ordering::SeqCst);
        if let Some(daemon) = lock(&self.daemon).upgrade() {
            daemon.end();
        }
    }
    /// The daemon ends if that was asked for, or is.
    fn concerns(&self, daemon: &Arc<Daemon>) {
        *lock(&self.daemon) = Arc::downgrade(daemon);
        if self.is_asked.load(Ordering::SeqCst) {
            daemon.end();
        }
    }
}

/// Returns true if the home of this node lies where all nodes reach it, and another one has it.
fn is_home_away(dir: &Path) -> Result<bool> {
    let is_shared = dir.exists() && Members::read(dir)?.is_some_and(|members| members.homes_on.is_some());
    Ok(is_shared && (location::is_away(dir) || crate::metadata::is_elsewhere(dir)?))
}

/// Waits until the view of the cluster gives the home back to this node. Returns false if the daemon was asked to end.
fn wait_for_home(dir: &Path, in_background: bool, ending: &Ending) -> Result<bool> {
    let begin = Instant::now();
    let held = loop {
        match StoreLock::acquire(dir)? {
            Some(held) => break held,
            None if begin.elapsed() < STORE_PATIENCE => std::thread::sleep(STORE_PAUSE),
            None => {
                return Err(Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
                    .because("another process has it")
                    .try_next("if a daemon serves it already, use that one"));
            }
        }
    };
    location::note_away(dir, true)?;
    // Nobody starts another daemon meanwhile, and `stop` finds this one.
    restarting::note(dir)?;
    if in_background {
        background::report(None);
    }
    let is_back = nodes::wait_for_home(dir, &|| ending.is_asked.load(Ordering::SeqCst));
    if !matches!(is_back, Ok(true)) {
        restarting::clear(dir);
    }
    drop(held);
    is_back.inspect_err(|error| tracing::error!(%error, "the home of this node does not come back"))
}

/// How to open the store. A home of a cluster may have tiers on other nodes, and mirrors.
fn how_to_open<'a>(
    dir: &Path,
    options: &'a DaemonOptions,
    config: &'a StoreConfig,
    reach: &Arc<Reach>,
    is_granted: bool,
) -> Result<OpenHow<'a>> {
    let members = Members::read(dir)?;
    Ok(OpenHow {
        create: options.create.then_some(config),
        policy_plugin: options.policy_plugin.as_deref(),
        world: options.world,
        mirrored: members.as_ref().is_some_and(Members::homes_move),
        places: members.map(|members| reach.maker(members.home)),
        is_granted,
        ..OpenHow::default()
    })
}

/// Opens the store once this node has its home. `None` if the daemon was asked to end before.
fn open_here(
    dir: &Path,
    options: &DaemonOptions,
    in_background: bool,
    ending: &Ending,
) -> Result<Option<(Host, Option<Early>)>> {
    let is_away = is_home_away(dir)?;
    if is_away && !wait_for_home(dir, in_background, ending)? {
        return Ok(None);
    }
    let (config, reach) = (StoreConfig::default(), Arc::new(Reach::default()));
    let opened = open_announced(dir, &how_to_open(dir, options, &config, &reach, is_away)?, &reach)?;
    location::note_away(dir, false)?;
    Ok(Some(opened))
}

/// Opens the store; a node of a cluster tells the others meanwhile that it lives.
fn open_announced(dir: &Path, how: &OpenHow<'_>, reach: &Arc<Reach>) -> Result<(Host, Option<Early>)> {
    let is_busy = |early: &Result<Option<Early>>| matches!(early, Err(error) if error.kind() == ErrorKind::Busy);
    let mut early = Early::open(dir, reach);
    let is_open = Arc::new(AtomicBool::new(false));
    match &early {
        Ok(Some(early)) if !crate::is_locked(dir) => {
            early.announce(&is_open);
            if let Err(error) = early.check_member() {
                is_open.store(true, Ordering::SeqCst);
                return Err(error);
            }
        }
        // Another daemon still has the register: then it has the store, too.
        Err(error) if error.kind() != ErrorKind::Busy => return Err(error.clone()),
        _ => {}
    }
    let host = open(dir, how);
    is_open.store(true, Ordering::SeqCst);
    let host = host?.ok_or_else(|| {
        let who = crate::holder(dir).map_or_else(|| "another process".to_owned(), |who| who.to_string());
        Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
            .because(format!("{who} has it"))
            .try_next("if a daemon serves it already, use that one; else wait until that process is done")
    })?;
    // The system frees the locks of a process that died one after the other.
    let begin = Instant::now();
    while is_busy(&early) && begin.elapsed() < DYING {
        std::thread::sleep(STORE_PAUSE);
        early = Early::open(dir, reach);
        if let Ok(Some(early)) = &early {
            early.check_member()?;
        }
    }
    Ok((host, early?))
}

/// Opens the store, waiting for another process that has it for a moment. `None` if that takes too long.
fn open(dir: &Path, how: &OpenHow<'_>) -> Result<Option<Host>> {
    // Clients that start a daemon retry themselves, and connect to another daemon that was faster.
    let patience = if background::is_for_client() { Duration::ZERO } else { STORE_PATIENCE };
    let begin = Instant::now();
    loop {
        let host = open_home(dir, how)?;
        if host.is_some() || begin.elapsed() >= patience {
            return Ok(host);
        }
        std::thread::sleep(STORE_PAUSE);
    }
}

/// Opens the store where it lies. `None` if another process has it.
fn open_home(dir: &Path, how: &OpenHow<'_>) -> Result<Option<Host>> {
    let Some(place) = location::find(dir)? else { return Host::open(dir, how) };
    let Some(held) = StoreLock::acquire(dir)? else { return Ok(None) };
    let host = Host::open_copy(&place.dir, &place.base, how.policy_plugin, how.places.clone())?;
    host.keep_node_lock(held);
    Ok(Some(host))
}

/// Accepts clients until the daemon has to exit.
fn accept(daemon: &Arc<Daemon>, listener: &Listener, idle_exit: Option<Duration>) {
    let mut alone_since = Instant::now();
    let mut reaped_at = Instant::now();
    while !daemon.is_stopping() {
        match listener.accept(ACCEPT_PATIENCE) {
            Ok(Some(connection)) => greet::start(daemon, connection),
            Ok(None) => {}
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                std::thread::sleep(ACCEPT_PATIENCE); // most likely too many open files
            }
        }
        if daemon.connected.load(Ordering::SeqCst) > 0 {
            alone_since = Instant::now();
        } else if idle_exit.is_some_and(|patience| alone_since.elapsed() >= patience) {
            return;
        }
        if reaped_at.elapsed() >= REAP_EVERY {
            reaped_at = Instant::now();
            if daemon.host.is_deleted() {
                tracing::warn!("the store's directory was deleted: this daemon ends, and its memory goes back");
                return;
            }
            if let Some(error) = daemon.host.lost() {
                let begins_anew = daemon.begins_anew();
                tracing::error!(%error, begins_anew, "this daemon ends");
                if begins_anew {
                    daemon.restart(); // and asks for its home
                }
                return;
            }
            daemon.host.reap();
        }
    }
}

/// A panic may leave the engine half changed. Its journal is whole: the next daemon continues from there.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        std::process::abort();
    }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serving_what_is_no_store_says_so() {
        let dir = std::env::temp_dir().join(format!("cenote-no-store-{}", std::process::id()));
        let error = run(&dir, &DaemonOptions::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        assert!(!dir.exists());
    }
}
