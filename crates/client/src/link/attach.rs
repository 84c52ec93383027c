//! How a channel finds its engine: in this process, or behind a daemon's socket.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_device::ClientFile;
use cenote_model::{Error, ErrorKind, Request, Response, Result, StoreId};
use cenote_server::{Holder, Host, OpenHow, holds_store, this_process};

use super::attachment::Attachment;
use super::channel::{self, Channel};
use super::handover::Waiting;
use super::local::Local;
use super::readers::Readers;
use super::remote::{self, Reached};
use super::start::start_daemon;
use super::transport::{Pending, Traffic};
use crate::sync::lock;
use crate::{Mode, OpenOptions};

/// How long to try when another process has the store.
const BUSY_PATIENCE: Duration = Duration::from_secs(10);
/// The same while it is passing it on, which takes long only where a machine is busy.
const MOVING_PATIENCE: Duration = Duration::from_mins(1);
/// How long to try when the daemon is gone, before what is in flight fails.
const AGAIN_PATIENCE: Duration = Duration::from_secs(30);
/// The same when that was tried before, in vain: many calls, one after the other, must not each wait so long.
const STILL_PATIENCE: Duration = Duration::from_secs(1);
/// From the moment that nobody answers any more until the lock is free.
const LETTING_GO: Duration = Duration::from_millis(200);
/// From the moment that the lock is free until the process has ended.
const ENDING: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(5);
/// Between attempts that fail each time, at most: an attempt may start a daemon.
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// The way that is tried.
struct Way<'a> {
    dir: &'a Path,
    options: &'a OpenOptions,
    traffic: &'a Traffic,
}

/// Finds or starts an engine. With one in this process: also what will wait for others.
pub(super) fn attach(dir: &Path, options: &OpenOptions, traffic: &Traffic) -> Result<(Attachment, Option<Waiting>)> {
    let way = Way { dir, options, traffic };
    if options.create_new && holds_store(dir)? {
        return Err(Error::new(ErrorKind::Exists, format!("store {}", dir.display()))
            .try_next("open it, or choose another directory"));
    }
    match options.mode {
        Mode::InProcess => way.in_process().map(|attachment| (attachment, None)),
        Mode::Auto => way.auto(),
        Mode::Daemon => way.daemon(BUSY_PATIENCE).map(|attachment| (attachment, None)),
    }
}

#[cold]
fn busy(dir: &Path) -> Error {
    let who = cenote_server::holder(dir).map_or_else(|| "another process".to_owned(), |who| who.to_string());
    Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
        .because(format!("{who} has it for itself"))
        .try_next("wait until that process is done, or let it open the store with Mode::Auto")
}

/// True if the error says that nobody listens on the socket.
fn is_nobody(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Disconnected)
}

impl<'a> Way<'a> {
    /// That of a channel that had an engine already.
    fn of(channel: &'a Channel) -> Self {
        Self { dir: &channel.address.dir, options: &channel.address.options, traffic: &channel.traffic }
    }
}

impl Way<'_> {
    fn host(&self) -> Result<Option<Host>> {
        let config = self.options.create.then_some(&self.options.config);
        let policy_plugin = self.options.policy_plugin.as_deref();
        let how = OpenHow { create: config, create_new: self.options.create_new, policy_plugin, world: None };
        Host::open(self.dir, &how)
    }
    fn connect(&self) -> Result<Reached> {
        remote::connect(self.dir, self.options.read_only, self.traffic)
    }
    fn local(&self, host: Host) -> Result<Attachment> {
        let host = Arc::new(host);
        let write = !self.options.read_only;
        let (client, alive) = host.client(this_process(self.traffic.nonce, write), 0)?;
        let own = client.file.fd().try_clone().map_err(|error| Error::io("client file", &error))?;
        let readers = Readers::new(host.control.read_only()?, ClientFile::map_held(own, alive)?)?;
        let (store, instance) = (host.id(), host.instance);
        let local = Arc::new(Local::new(host, client, self.traffic.clone()));
        Ok(Attachment { store, transport: local, readers, instance, write, bound: false })
    }
    fn in_process(&self) -> Result<Attachment> {
        let begin = Instant::now();
        loop {
            if let Some(host) = self.host()? {
                return self.local(host);
            }
            // A daemon that leaves says so, until just before it lets go.
            let patience = if remote::is_moving(self.dir) { BUSY_PATIENCE } else { LETTING_GO };
            if begin.elapsed() > patience {
                return Err(busy(self.dir));
            }
            std::thread::sleep(PAUSE);
        }
    }
    fn auto(&self) -> Result<(Attachment, Option<Waiting>)> {
        let begin = Instant::now();
        loop {
            let mut patience = BUSY_PATIENCE;
            match self.connect() {
                Ok(Reached::Daemon(attachment)) => return Ok((*attachment, None)),
                Ok(Reached::Moving) => patience = MOVING_PATIENCE,
                Err(error) if is_nobody(&error) => {
                    if let Some(host) = self.host()? {
                        // Before the engine is used: whoever comes must find it.
                        let waiting = Waiting::new(self.dir)?;
                        return Ok((self.local(host)?, Some(waiting)));
                    }
                }
                Err(error) => return Err(error),
            }
            if begin.elapsed() > patience {
                return Err(busy(self.dir));
            }
            std::thread::sleep(PAUSE);
        }
    }
    /// Starts a daemon, unless another process does just now: when one dies, all its clients notice at once.
    /// What was reached, if another one was faster.
    fn start(&self) -> Result<Option<Reached>> {
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
                    // The store is made here: a daemon's command line does not carry a configuration.
                    if self.options.create && !made && !holds_store(self.dir)? {
                        made = true;
                        self.host()?.map_or(Ok(()), |host| host.close())?;
                    }
                    match self.start() {
                        Ok(None) => continue,
                        Ok(Some(Reached::Daemon(attachment))) => return Ok(*attachment),
                        Ok(Some(Reached::Moving)) => busy(self.dir),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
            };
            // Busy: another process starts one, or has the store for itself. Disconnected: it died on the way.
            if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Disconnected) || begin.elapsed() > patience {
                return Err(error);
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// Finds the engine that took over, or starts a daemon, and sends what had no response. If there is none to be had,
/// that fails. `is_known`: it did so before.
pub(super) fn again(channel: &Channel, pending: Vec<Pending>, is_known: bool) -> Result<Attachment> {
    let known = channel.attachment().store;
    let result = reconnect(channel, known, if is_known { STILL_PATIENCE } else { AGAIN_PATIENCE }, is_known);
    match &result {
        Ok(attachment) => attachment.transport.resend(pending),
        Err(error) => channel::fail_all(pending, error),
    }
    result
}

/// The daemon of the channel's store, if there is one; none is started.
pub(super) fn look(channel: &Channel) -> Option<Attachment> {
    let Ok(Reached::Daemon(found)) = Way::of(channel).connect() else { return None };
    if found.store == channel.attachment().store {
        return Some(*found);
    }
    let _ = found.transport.close();
    None
}

/// The error of a channel whose store is not in its directory any more: it was deleted, or another one is there.
pub(super) fn gone(channel: &Channel, known: StoreId) -> Option<Error> {
    if !channel.address.dir.exists() {
        return Some(lost(channel, "it was destroyed, or its directory was moved or deleted"));
    }
    match cenote_server::store_in(&channel.address.dir) {
        Ok(Some(found)) if found != known => Some(replaced(channel, found, known)),
        Ok(None) => {
            Some(lost(channel, "its directory holds no store any more: it was destroyed, or its files were deleted"))
        }
        Ok(Some(_)) | Err(_) => None, // who may not look finds out by asking the daemon
    }
}

fn replaced(channel: &Channel, found: StoreId, known: StoreId) -> Error {
    lost(channel, &format!("another store is in its directory now: {found}, not {known}"))
}

fn lost(channel: &Channel, why: &str) -> Error {
    Error::new(ErrorKind::Disconnected, channel.name()).because(why).try_next("open the store that is meant anew")
}

/// `once`: it was tried before, in vain, and no daemon is started more than once.
fn reconnect(channel: &Channel, known: StoreId, patience: Duration, once: bool) -> Result<Attachment> {
    let way = Way::of(channel);
    let begin = Instant::now();
    let mut pause = PAUSE;
    loop {
        if let Some(error) = gone(channel, known) {
            return Err(error);
        }
        let error = match way.daemon(Duration::ZERO) {
            Ok(attachment) if attachment.store == known => return Ok(attachment),
            Ok(attachment) => {
                let found = attachment.store;
                let _ = attachment.transport.close();
                return Err(replaced(channel, found, known));
            }
            Err(error) => error,
        };
        // Whoever may not start one waits for somebody who may.
        let may_pass = matches!(
            error.kind(),
            ErrorKind::Busy | ErrorKind::Disconnected | ErrorKind::NotFound | ErrorKind::PermissionDenied
        );
        let is_tried = once && error.kind() != ErrorKind::Busy;
        if !may_pass || is_tried || begin.elapsed() > patience || channel.check_open().is_err() {
            return Err(Error::new(ErrorKind::Disconnected, channel.name())
                .because(format!("its daemon is gone, and there is no other: {error}"))
                .try_next("start one with `cenote serve DIR` and see its daemon.log"));
        }
        std::thread::sleep(pause);
        // Busy: another process starts one, which takes a moment. Else this attempt has started one, in vain.
        pause = if error.kind() == ErrorKind::Busy { PAUSE } else { (2 * pause).min(PAUSE_MAX) };
    }
}

/// After a handover that failed: an engine in this process again.
pub(super) fn back_home(channel: &Channel) -> Result<(Attachment, Option<Waiting>)> {
    let options = OpenOptions { create: false, create_new: false, ..channel.address.options.clone() };
    Way { options: &options, ..Way::of(channel) }.auto()
}

/// Returns when what dead processes left to be carried out is done.
pub(super) fn settle_dead(channel: &Channel) -> Result<()> {
    if let Some(host) = channel.attachment().transport.host() {
        host.reap();
        return Ok(());
    }
    // A daemon does so for everybody who comes; one that is started now does so at its start.
    let (dir, begin) = (channel.address.dir.as_path(), Instant::now());
    loop {
        match remote::connect(dir, true, &Traffic::begin()) {
            Ok(Reached::Daemon(attachment)) => return attachment.transport.close(),
            Ok(Reached::Moving) if begin.elapsed() < MOVING_PATIENCE => std::thread::sleep(PAUSE),
            Ok(Reached::Moving) => return Err(busy(dir)),
            Err(error) if is_nobody(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Asks the daemon of `dir` to leave, and waits until it has.
pub(crate) fn stop_daemon(dir: &Path) -> Result<bool> {
    let dir = std::path::absolute(dir).map_err(|error| Error::io(format!("store {}", dir.display()), &error))?;
    let begin = Instant::now();
    let holder = cenote_server::holder(&dir);
    let traffic = Traffic::begin();
    let attachment = match remote::connect(&dir, false, &traffic) {
        Ok(Reached::Daemon(attachment)) => attachment,
        Ok(Reached::Moving) => {
            // It leaves already, or hands the store on.
            return if has_left(&dir, holder.as_ref(), false, begin) { Ok(true) } else { Err(busy(&dir)) };
        }
        Err(error) if is_nobody(&error) => {
            // One that has just taken its socket away may not have let go of the store yet.
            while holder.is_some() && cenote_server::holder(&dir) == holder && begin.elapsed() < LETTING_GO {
                std::thread::sleep(PAUSE);
            }
            return Ok(false);
        }
        Err(error) => return Err(error),
    };
    let answer = Arc::new(std::sync::Mutex::new(None));
    let filled = answer.clone();
    let done = Box::new(move |response| *lock(&filled) = Some(response));
    // If it cannot be asked, it is gone already, or on its way.
    let _ = attachment.transport.submit(Request::Shutdown, done);
    // It goes on until its store is closed; then the connection ends.
    while attachment.transport.progress(traffic.arrivals.count(), Duration::from_millis(20)) {
        if let Some(Response::Failed(error)) = lock(&answer).take() {
            return Err(error);
        }
        if begin.elapsed() > AGAIN_PATIENCE {
            return Err(Error::new(ErrorKind::Busy, format!("daemon of {}", dir.display()))
                .because("it was asked to leave and is still there")
                .try_next("see its daemon.log"));
        }
    }
    drop(attachment);
    if has_left(&dir, holder.as_ref(), true, begin) { Ok(true) } else { Err(busy(&dir)) }
}

/// Waits until nobody has the store's lock any more who had it, and for the end of a daemon's process: what that holds
/// of devices goes with it, a moment after the lock.
fn has_left(dir: &Path, holder: Option<&Holder>, is_daemon: bool, begin: Instant) -> bool {
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
    while is_daemon && is_there() && unlocked.elapsed() < ENDING {
        std::thread::sleep(PAUSE);
    }
    true
}
