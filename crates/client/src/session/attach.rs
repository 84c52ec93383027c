//! How a session finds its engine: in this process, or behind a daemon's socket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use cenote_device::ClientFile;
use cenote_model::{Error, ErrorKind, Request, Response, Result};
use cenote_server::{Host, OpenHow, holds_store, this_process};

use super::handover::{self, Waiting};
use super::local::Local;
use super::readers::Readers;
use super::remote::{self, Reached};
use super::start::start_daemon;
use super::transport::{Arrivals, Pending};
use super::{Attachment, Session};
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
const PAUSE: Duration = Duration::from_millis(5);

/// The way that is tried.
struct Way<'a> {
    dir: &'a Path,
    options: &'a OpenOptions,
    nonce: u128,
    seq: &'a Arc<AtomicU64>,
    arrivals: &'a Arc<Arrivals>,
}

/// Finds or starts an engine. With one in this process: also what will wait for others.
pub(crate) fn attach(
    dir: &Path,
    options: &OpenOptions,
    nonce: u128,
    seq: &Arc<AtomicU64>,
    arrivals: &Arc<Arrivals>,
) -> Result<(Attachment, Option<Waiting>)> {
    let way = Way { dir, options, nonce, seq, arrivals };
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
    Error::new(ErrorKind::Busy, format!("store {}", dir.display()))
        .because("another process has it for itself")
        .try_next("wait until that process is done, or let it open the store with Mode::Auto")
}

/// True if the error says that nobody listens on the socket.
fn is_nobody(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Disconnected)
}

impl Way<'_> {
    fn host(&self) -> Result<Option<Host>> {
        let config = self.options.create.then_some(&self.options.config);
        let policy_plugin = self.options.policy_plugin.as_deref();
        let how = OpenHow { create: config, create_new: self.options.create_new, policy_plugin, world: None };
        Host::open(self.dir, &how)
    }
    fn connect(&self) -> Result<Reached> {
        remote::connect(self.dir, self.nonce, self.options.read_only, self.seq, self.arrivals)
    }
    fn local(&self, host: Host) -> Result<Attachment> {
        let host = Arc::new(host);
        let write = !self.options.read_only;
        let (client, alive) = host.client(this_process(self.nonce, write), 0)?;
        let own = client.file.fd().try_clone().map_err(|error| Error::io("client file", &error))?;
        let readers = Readers::new(host.control.read_only()?, ClientFile::map_held(own, alive)?)?;
        let (store, instance) = (host.id(), host.instance);
        let local = Arc::new(Local::new(host, client, self.seq.clone(), self.arrivals.clone()));
        Ok(Attachment { store, transport: local, readers, instance, write })
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
pub(crate) fn again(session: &Session, pending: Vec<Pending>, is_known: bool) -> Result<Attachment> {
    let result = reconnect(session, if is_known { STILL_PATIENCE } else { AGAIN_PATIENCE });
    match &result {
        Ok(attachment) => attachment.transport.resend(pending),
        Err(error) => super::fail_all(pending, error),
    }
    result
}

fn reconnect(session: &Session, patience: Duration) -> Result<Attachment> {
    let way = Way {
        dir: &session.dir,
        options: &session.options,
        nonce: session.nonce,
        seq: &session.seq,
        arrivals: &session.arrivals,
    };
    let begin = Instant::now();
    loop {
        let error = match way.daemon(Duration::ZERO) {
            Ok(attachment) => return Ok(attachment),
            Err(error) => error,
        };
        // Whoever may not start one waits for somebody who may.
        let may_pass = matches!(
            error.kind(),
            ErrorKind::Busy | ErrorKind::Disconnected | ErrorKind::NotFound | ErrorKind::PermissionDenied
        );
        if !session.dir.exists() {
            return Err(Error::new(ErrorKind::Disconnected, session.name())
                .because("it was destroyed, or its directory was moved or deleted"));
        }
        if !may_pass || begin.elapsed() > patience || session.check_open().is_err() {
            return Err(Error::new(ErrorKind::Disconnected, session.name())
                .because(format!("its daemon is gone, and there is no other: {error}"))
                .try_next("start one with `cenote serve DIR` and see its daemon.log"));
        }
        std::thread::sleep(PAUSE);
    }
}

/// After a handover that failed: an engine in this process again.
pub(crate) fn back_home(session: &Session) -> Result<(Attachment, Option<Waiting>)> {
    let way = Way {
        dir: &session.dir,
        options: &OpenOptions { create: false, create_new: false, ..session.options.clone() },
        nonce: session.nonce,
        seq: &session.seq,
        arrivals: &session.arrivals,
    };
    way.auto()
}

/// Begins to listen for other processes.
pub(crate) fn listen(session: &Arc<Session>, waiting: Option<Waiting>) {
    if let Some(waiting) = waiting {
        *lock(&session.listener) = Some(handover::listen(session, waiting));
    }
}

/// Returns when what dead processes left to be carried out is done.
pub(crate) fn settle_dead(session: &Session) -> Result<()> {
    if let Some(host) = session.attachment().transport.host() {
        host.reap();
        return Ok(());
    }
    // A daemon does so for everybody who comes; one that is started now does so at its start.
    let begin = Instant::now();
    loop {
        let (seq, arrivals) = (Arc::new(AtomicU64::new(1)), Arc::new(Arrivals::default()));
        match remote::connect(&session.dir, crate::ids::random(), true, &seq, &arrivals) {
            Ok(Reached::Daemon(attachment)) => return attachment.transport.close(),
            Ok(Reached::Moving) if begin.elapsed() < MOVING_PATIENCE => std::thread::sleep(PAUSE),
            Ok(Reached::Moving) => return Err(busy(&session.dir)),
            Err(error) if is_nobody(&error) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Asks the daemon of `dir` to leave, and waits until it has.
pub(crate) fn stop_daemon(dir: &Path) -> Result<bool> {
    let dir = std::path::absolute(dir).map_err(|error| Error::io(format!("store {}", dir.display()), &error))?;
    let arrivals = Arc::new(Arrivals::default());
    let attachment = match remote::connect(&dir, crate::ids::random(), false, &Arc::new(AtomicU64::new(1)), &arrivals) {
        Ok(Reached::Daemon(attachment)) => attachment,
        Ok(Reached::Moving) => return Err(busy(&dir)),
        Err(error) if is_nobody(&error) => return Ok(false),
        Err(error) => return Err(error),
    };
    let answer = Arc::new(std::sync::Mutex::new(None));
    let filled = answer.clone();
    let done = Box::new(move |response| *lock(&filled) = Some(response));
    if attachment.transport.submit(Request::Shutdown, done).is_err() {
        return Ok(true); // gone already
    }
    // It goes on until its store is closed; then the connection ends.
    let begin = Instant::now();
    while attachment.transport.progress(arrivals.count(), Duration::from_millis(20)) {
        if let Some(Response::Failed(error)) = lock(&answer).take() {
            return Err(error);
        }
        if begin.elapsed() > AGAIN_PATIENCE {
            return Err(Error::new(ErrorKind::Busy, format!("daemon of {}", dir.display()))
                .because("it was asked to leave and is still there")
                .try_next("see its daemon.log"));
        }
    }
    // The lock is free a moment after the connection ended.
    while begin.elapsed() < AGAIN_PATIENCE {
        match cenote_device::StoreLock::acquire(&dir) {
            Ok(None) => std::thread::sleep(PAUSE),
            _ => break,
        }
    }
    Ok(true)
}
