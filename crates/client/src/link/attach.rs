//! How a channel finds its engine: in this process, or behind a daemon's socket.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_cluster::MEMBERS_FILE;
use cenote_device::ClientFile;
use cenote_model::{Error, ErrorKind, HomeId, Request, Response, Result, StoreId};
use cenote_server::daemon::{end_waiting, is_restarting, waits_for_home};
use cenote_server::{Holder, Host, OpenHow, holds_store, this_process};

use cenote_wire::ClusterPlace;

use super::attachment::Attachment;
use super::channel::{self, Channel};
use super::handover::HandoverSocket;
use super::local::Local;
use super::readers::{Readers, Valid};
use super::remote::{self, Reached};
use super::start::start_daemon;
use super::transport::{Pending, Traffic};
use crate::sync::lock;
use crate::{Mode, OpenOptions};

/// Time limit while another process has the store.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// Time limit while another process hands the store over, which is slow only on a busy machine.
const MOVING_PATIENCE: Duration = Duration::from_mins(1);
/// Time limit after the loss of a daemon, before requests in flight fail.
const AGAIN_PATIENCE: Duration = Duration::from_secs(30);
/// The same for a home of another node that was not reached before: longer than it takes to notice that its host is lost, and
/// another node to become the host.
const FIRST_PATIENCE: Duration = Duration::from_secs(15);
/// The same after a failed attempt: a series of calls must not wait that long for each.
const STILL_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit from the end of the answers until the lock is free.
const LETTING_GO: Duration = Duration::from_millis(200);
/// Time limit from the release of the lock until the end of the process.
const ENDING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// Longest pause between failed attempts, each of which may start a daemon.
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The same while the daemon of this node answers that the home, on another node, cannot be reached.
const AWAY_PAUSE_MAX: Duration = Duration::from_millis(100);

/// The parameters of an attempt.
struct Attempt<'a> {
    dir: &'a Path,
    home: HomeId,
    options: &'a OpenOptions,
    traffic: &'a Traffic,
}

/// Finds or starts an engine. Also returns the socket for other processes if the engine is in this process.
pub(super) fn attach(
    dir: &Path,
    options: &OpenOptions,
    traffic: &Traffic,
) -> Result<(Attachment, Option<HandoverSocket>)> {
    let attempt = Attempt { dir, home: HomeId(0), options, traffic };
    if options.create_new && holds_store(dir)? {
        return Err(Error::new(ErrorKind::Exists, format!("store {}", dir.display()))
            .try_next("open it, or choose another directory"));
    }
    let mode = match options.mode {
        Mode::InProcess | Mode::Auto if !is_in_cluster(dir)? => options.mode,
        Mode::InProcess => return Err(in_a_cluster(dir)),
        Mode::Auto | Mode::Daemon => Mode::Daemon,
    };
    match mode {
        Mode::InProcess => attempt.in_process().map(|attachment| (attachment, None)),
        Mode::Auto => attempt.auto(),
        Mode::Daemon => attempt.daemon(BUSY_PATIENCE).map(|attachment| (attachment, None)),
    }
}

#[cold]
fn busy(dir: &Path) -> Error {
    let who = cenote_server::holder(dir).map_or_else(|| "another process".to_owned(), |who| who.to_string());
    Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
        .because(format!("{who} has it for itself"))
        .try_next("wait until that process is done, or let it open the store with Mode::Auto")
}

/// Returns true if the error means that no process listens on the socket.
fn is_nobody(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Disconnected)
}

impl<'a> Attempt<'a> {
    /// The parameters of a channel that had an engine already.
    fn of(channel: &'a Channel) -> Self {
        let address = &channel.address;
        Self { dir: &address.dir, home: address.home, options: &address.options, traffic: &channel.traffic }
    }
}

impl Attempt<'_> {
    fn host(&self) -> Result<Option<Host>> {
        let config = self.options.create.then_some(&self.options.config);
        let policy_plugin = self.options.policy_plugin.as_deref();
        let how = OpenHow {
            create: config,
            create_new: self.options.create_new,
            policy_plugin,
            world: None,
            mirrored: false,
            places: None,
            is_granted: false,
        };
        Host::open(self.dir, &how)
    }
    fn connect(&self) -> Result<Reached> {
        remote::connect(self.dir, self.home, self.options.read_only, self.traffic)
    }
    fn local(&self, host: Host) -> Result<Attachment> {
        let host = Arc::new(host);
        let write = !self.options.read_only;
        let (client, alive) = host.client(&this_process(self.traffic.nonce, write), 0)?;
        let own = client.file.fd().try_clone().map_err(|error| Error::io("client file", &error))?;
        let readers = Readers::new(host.control.read_only()?, ClientFile::map_held(own, alive)?, Valid::Always)?;
        let (store, instance, engines) = (host.id(), host.instance, host.summary.engines);
        let local = Arc::new(Local::new(host, client, self.traffic.clone()));
        let place = ClusterPlace::default();
        Ok(Attachment { store, transport: local, readers, instance, write, bound: false, engines, place })
    }
    fn in_process(&self) -> Result<Attachment> {
        let begin = Instant::now();
        loop {
            if let Some(host) = self.host()? {
                return self.local(host);
            }
            // A leaving daemon says so, until just before it lets go.
            let patience = if remote::is_moving(self.dir) { BUSY_PATIENCE } else { LETTING_GO };
            if begin.elapsed() > patience {
                return Err(busy(self.dir));
            }
            std::thread::sleep(PAUSE);
        }
    }
    fn auto(&self) -> Result<(Attachment, Option<HandoverSocket>)> {
        let begin = Instant::now();
        loop {
            let mut patience = BUSY_PATIENCE;
            match self.connect() {
                Ok(Reached::Daemon(attachment)) => return Ok((*attachment, None)),
                Ok(Reached::Moving) => patience = MOVING_PATIENCE,
                Err(error) if is_nobody(&error) => {
                    if let Some(host) = self.host()? {
                        // Before the engine is used: newcomers must find the socket.
                        let waiting = HandoverSocket::new(self.dir)?;
                        return Ok((self.local(host)?, Some(waiting)));
                    }
                }
                Ok(Reached::Away(error) | Reached::Lost(error)) | Err(error) => return Err(error),
            }
            if begin.elapsed() > patience {
                return Err(busy(self.dir));
            }
            std::thread::sleep(PAUSE);
        }
    }
    /// Starts a daemon unless another process is starting one: all clients notice the death of a daemon at once.
    /// Returns the reached engine if another process was faster.
    fn start(&self) -> Result<Option<Reached>> {
        if is_restarting(self.dir) {
            return Err(busy(self.dir));
        }
        match cenote_device::StartLock::acquire(self.dir) {
            Ok(None) => Err(busy(self.dir)),
            Ok(Some(_held)) => match self.connect() {
                Err(error) if is_nobody(&error) => start_daemon(self.dir).map(|()| None),
                reached => reached.map(Some),
            },
            Err(_) => start_daemon(self.dir).map(|()| None), // a file system without locks on directories
        }
    }
    fn daemon(&self, patience: Duration) -> Result<Attachment> {
        let begin = Instant::now();
        let mut made = false;
        loop {
            let mut patience = patience;
            let error = match self.connect() {
                Ok(Reached::Daemon(attachment)) => return Ok(*attachment),
                Ok(Reached::Moving) => {
                    if !patience.is_zero() {
                        patience = MOVING_PATIENCE;
                    }
                    busy(self.dir)
                }
                Err(error) if is_nobody(&error) => {
                    // The store is created here: the daemon's command line carries no configuration.
                    if self.options.create && !made && !holds_store(self.dir)? {
                        made = true;
                        self.host()?.map_or(Ok(()), |host| host.close())?;
                    }
                    match self.start() {
                        Ok(None) => continue,
                        Ok(Some(Reached::Daemon(attachment))) => return Ok(*attachment),
                        Ok(Some(Reached::Moving)) => busy(self.dir),
                        Ok(Some(Reached::Away(error) | Reached::Lost(error))) | Err(error) => error,
                    }
                }
                Ok(Reached::Away(error) | Reached::Lost(error)) | Err(error) => error,
            };
            // Busy: another process starts a daemon, or holds the store. Disconnected: the daemon died during its
            // start.
            if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Disconnected) || begin.elapsed() > patience {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Finds the successor engine or starts a daemon, and resends the pending requests; they fail if there is no engine.
/// `is_known`: an earlier attempt has failed.
pub(super) fn again(channel: &Channel, pending: Vec<Pending>, is_known: bool) -> Result<Attachment> {
    let known = channel.attachment().store;
    let patience = match (is_known, channel.attachment().is_somewhere()) {
        (true, _) => STILL_PATIENCE,
        (false, true) => AGAIN_PATIENCE,
        (false, false) => FIRST_PATIENCE,
    };
    let result = reconnect(channel, known, patience, is_known);
    match &result {
        Ok(attachment) => attachment.transport.resend(pending),
        Err(error) => channel::fail_all(pending, error),
    }
    result
}

/// Connects to the daemon of the channel's store if there is one; starts none.
pub(super) fn look(channel: &Channel) -> Option<Attachment> {
    let Ok(Reached::Daemon(found)) = Attempt::of(channel).connect() else { return None };
    if is_it(channel.attachment().store, found.store) && !is_elsewhere(channel, &found) {
        return Some(*found);
    }
    let _ = found.transport.close();
    None
}

/// Returns the error of a channel whose store was deleted or replaced in its directory.
pub(super) fn gone(channel: &Channel, known: StoreId) -> Option<Error> {
    if !channel.address.dir.exists() {
        return Some(lost(channel, "it was destroyed, or its directory was moved or deleted"));
    }
    if channel.address.home != HomeId(0) {
        return None; // the daemon knows what became of other homes
    }
    match cenote_server::store_in(&channel.address.dir) {
        Ok(Some(found)) if found != known => Some(replaced(channel, found, known)),
        Ok(None) => {
            Some(lost(channel, "its directory holds no store any more: it was destroyed, or its files were deleted"))
        }
        Ok(Some(_)) | Err(_) => None, // without the right to look, the daemon is asked
    }
}

fn replaced(channel: &Channel, found: StoreId, known: StoreId) -> Error {
    lost(channel, &format!("another store is in its directory now: {found}, not {known}"))
}

fn lost(channel: &Channel, why: &str) -> Error {
    Error::new(ErrorKind::Disconnected, channel.name()).because(why).try_next("open the store that is meant anew")
}

/// Returns true if a home lies elsewhere on this node than before, since another node had it meanwhile. What this process
/// copied into leased memory lies in the former place, and so does what cached maps name: none of it counts any more.
fn is_elsewhere(channel: &Channel, found: &Attachment) -> bool {
    let known = channel.attachment();
    let is_leased = found.place.leased && !found.place.far;
    channel.has_mapped() && known.is_somewhere() && is_leased && !found.readers.same_table(&known.readers)
}

/// Returns true if a found store is the known one; the first one that a link reaches is.
fn is_it(known: StoreId, found: StoreId) -> bool {
    known == StoreId(0) || known == found
}

#[cold]
fn no_daemon(channel: &Channel, error: &Error) -> Error {
    let home = channel.address.home;
    if home == HomeId(0) {
        return Error::new(ErrorKind::Disconnected, channel.name())
            .because(format!("its daemon is gone, and there is no other: {error}"))
            .try_next("start one with `cenote serve DIR` and see its daemon.log");
    }
    let next = if error.next_step().is_empty() {
        "`cenote cluster status` shows which nodes are alive"
    } else {
        error.next_step()
    };
    Error::new(ErrorKind::Disconnected, format!("home {home} of {}", channel.name()))
        .because(format!("its node cannot be reached: {error}"))
        .try_next(next)
}

/// Returns true if the store is a home of a cluster, which only a daemon opens: other nodes ask it too.
pub(crate) fn is_in_cluster(dir: &Path) -> Result<bool> {
    let file = dir.join(MEMBERS_FILE);
    file.try_exists().map_err(|error| Error::io(file.display().to_string(), &error))
}

#[cold]
fn in_a_cluster(dir: &Path) -> Error {
    Error::new(ErrorKind::Unsupported, format!("store {}", dir.display()))
        .because("it is a home of a cluster: other nodes use it, so that a daemon has to serve it")
        .try_next("open it through its daemon, which `cenote cluster start` starts")
}

/// `once`: an earlier attempt has failed, and at most one daemon is started.
fn reconnect(channel: &Channel, known: StoreId, patience: Duration, once: bool) -> Result<Attachment> {
    let attempt = Attempt::of(channel);
    let begin = Instant::now();
    let mut pause = PAUSE;
    loop {
        if let Some(error) = gone(channel, known) {
            return Err(error);
        }
        let mut longest = PAUSE_MAX;
        let reached = match attempt.connect() {
            Ok(Reached::Daemon(attachment)) => Ok(*attachment),
            // The home has gone on without what this program relies on.
            Ok(Reached::Away(error)) if error.kind() == ErrorKind::Conflict => {
                return Err(lost(channel, error.cause()));
            }
            Ok(Reached::Lost(error)) => {
                channel.note_lost();
                return Err(error);
            }
            Ok(Reached::Away(error)) => {
                longest = AWAY_PAUSE_MAX;
                Err(error)
            }
            Ok(Reached::Moving) | Err(_) => attempt.daemon(Duration::ZERO),
        };
        let error = match reached {
            Ok(attachment) if is_elsewhere(channel, &attachment) => {
                let _ = attachment.transport.close();
                return Err(lost(
                    channel,
                    "another node had its home meanwhile, which came back as a copy: what this program had on its way is not in it",
                ));
            }
            Ok(attachment) if is_it(known, attachment.store) => return Ok(attachment),
            Ok(attachment) => {
                let found = attachment.store;
                let _ = attachment.transport.close();
                return Err(replaced(channel, found, known));
            }
            Err(error) => error,
        };
        // A client without the right to start a daemon waits for another one that has it.
        let may_pass = matches!(
            error.kind(),
            ErrorKind::Busy | ErrorKind::Disconnected | ErrorKind::NotFound | ErrorKind::PermissionDenied
        );
        let is_tried = once && error.kind() != ErrorKind::Busy;
        if !may_pass || is_tried || begin.elapsed() > patience || channel.check_open().is_err() {
            return Err(no_daemon(channel, &error));
        }
        std::thread::sleep(pause);
        // Busy: another process is starting one, which takes a moment. Otherwise this attempt has failed to start one.
        pause = if error.kind() == ErrorKind::Busy { PAUSE } else { (2 * pause).min(longest) };
    }
}

/// Opens an engine in this process again after a failed handover.
pub(super) fn back_home(channel: &Channel) -> Result<(Attachment, Option<HandoverSocket>)> {
    let options = OpenOptions { create: false, create_new: false, ..channel.address.options.clone() };
    Attempt { options: &options, ..Attempt::of(channel) }.auto()
}

/// Returns when the recovery of dead clients is done.
pub(super) fn settle_dead(channel: &Channel) -> Result<()> {
    if let Some(host) = channel.attachment().transport.host() {
        host.reap();
        return Ok(());
    }
    // A daemon does this for each new client; a daemon that starts now does it at its start.
    let (dir, begin) = (channel.address.dir.as_path(), Instant::now());
    loop {
        match remote::connect(dir, HomeId(0), true, &Traffic::begin()) {
            Ok(Reached::Daemon(attachment)) => return attachment.transport.close(),
            Ok(Reached::Moving) if begin.elapsed() < MOVING_PATIENCE => std::thread::sleep(PAUSE),
            Ok(Reached::Moving) => return Err(busy(dir)),
            Err(error) if is_nobody(&error) => return Ok(()),
            Ok(Reached::Away(error) | Reached::Lost(error)) | Err(error) => return Err(error),
        }
    }
}

/// Asks the daemon of `dir` to leave, and waits until it has left. `cluster`: with all other nodes. Returns false if there was
/// none.
pub(crate) fn stop_daemon(dir: &Path, cluster: bool) -> Result<bool> {
    let dir = std::path::absolute(dir).map_err(|error| Error::io(format!("store {}", dir.display()), &error))?;
    let (begin, traffic) = (Instant::now(), Traffic::begin());
    let (mut was_there, mut holder) = (false, None);
    while begin.elapsed() < MOVING_PATIENCE {
        holder = cenote_server::holder(&dir).or(holder);
        let left = || if has_left(&dir, holder.as_ref(), begin) { Ok(true) } else { Err(busy(&dir)) };
        match remote::connect(&dir, HomeId(0), false, &traffic) {
            Ok(Reached::Daemon(attachment)) => {
                was_there = true;
                if ask_to_leave(&dir, &attachment, &traffic, cluster)? {
                    return left();
                }
            }
            Ok(Reached::Moving) => was_there = true,
            Err(error) if is_nobody(&error) && waits_for_home(&dir) => {
                end_waiting(&dir);
                return left();
            }
            Err(error) if is_nobody(&error) && is_restarting(&dir) => was_there = true,
            Err(error) if is_nobody(&error) && was_there => return left(),
            Err(error) if is_nobody(&error) => {
                // A daemon that has just removed its socket may not have let go of the store yet.
                while holder.is_some() && cenote_server::holder(&dir) == holder && begin.elapsed() < LETTING_GO {
                    std::thread::sleep(PAUSE);
                }
                return Ok(false);
            }
            Ok(Reached::Away(error) | Reached::Lost(error)) | Err(error) => return Err(error),
        }
        std::thread::sleep(PAUSE);
    }
    Err(busy(&dir))
}

/// Asks the daemon to leave, and waits for the end of the connection. Returns false if it did not say that it ends: it was
/// leaving already, hands the store over, or begins anew.
fn ask_to_leave(dir: &Path, attachment: &Attachment, traffic: &Traffic, cluster: bool) -> Result<bool> {
    let begin = Instant::now();
    let answer = Arc::new(std::sync::Mutex::new(None));
    let filled = answer.clone();
    let done = Box::new(move |response| *lock(&filled) = Some(response));
    // If the request fails, the daemon is gone or on its way out.
    let _ = attachment.transport.submit(Request::Shutdown { cluster }, done);
    let mut ends = false;
    // It runs until its store is closed; then the connection ends.
    while attachment.transport.progress(traffic.arrivals.count(), Duration::from_millis(20)) {
        match lock(&answer).take() {
            Some(Response::Done) => ends = true,
            Some(Response::Failed(error)) if error.kind() == ErrorKind::Busy => break,
            Some(Response::Failed(error)) => return Err(error),
            _ => {}
        }
        if begin.elapsed() > AGAIN_PATIENCE {
            return Err(Error::new(ErrorKind::Busy, format!("daemon of {}", dir.display()))
                .because("it was asked to leave and is still there")
                .try_next("see its daemon.log"));
        }
    }
    Ok(ends || matches!(lock(&answer).take(), Some(Response::Done)))
}

/// Waits until the previous holder has released the store's lock, and for the end of a daemon's process, which releases
/// its devices a moment after the lock.
fn has_left(dir: &Path, holder: Option<&Holder>, begin: Instant) -> bool {
    let is_locked = || match holder {
        Some(holder) => cenote_server::holder(dir).as_ref() == Some(holder),
        None => cenote_server::is_locked(dir),
    };
    while is_locked() {
        if begin.elapsed() > AGAIN_PATIENCE {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    let unlocked = Instant::now();
    let is_there = || holder.is_some_and(|holder| holder.pid != std::process::id() && holder.is_alive());
    while is_there() && unlocked.elapsed() < ENDING {
        std::thread::sleep(PAUSE);
    }
    true
}
