//! A store: opening, containers, devices, and operations on the whole store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use cenote_device::control::LockWords;
use cenote_device::home::Orphan;
use cenote_host::fork;
use cenote_model::{
    ClusterChange, ContainerId, Error, ErrorKind, FlushTarget, HaReport, HomeId, LABEL_BYTES_MAX, Request, Response,
    Result, StoreId, StoreStats, Telemetry, Update, VALUE_BYTES_MAX, VerifyReport,
};

use cenote_server::{Destroyed, Merge};

use crate::answer::{code_error, surprise};
use crate::answered::{Answered, each_home};
use crate::content;
use crate::directory::Directory;
use crate::labels;
use crate::link::queue::Settling;
use crate::link::{Link, attach};
use crate::session::Session;
use crate::transaction::Transaction;
use crate::{Mode, OpenOptions, destroy};

/// A store. Cheap to clone; clones share one session. Safe to use after `fork`: the child gets its own session.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    dir: PathBuf,
    options: OpenOptions,
    session: ArcSwap<Session>,
    /// Fork generation (plus one) of the process that is replacing the session: a lock that a child cannot inherit
    /// locked.
    replacing: AtomicU64,
    /// Where the daemon writes what this node has of locks of files.
    lock_tokens_dir: OnceLock<PathBuf>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let session = self.session.load_full();
        if session.generation != fork::generation() {
            std::mem::forget(session); // the parent's: none of its destructors may run here
        }
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("dir", &self.inner.dir).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the store in `dir`; creates one (with a memory tier and a directory tier sized for this machine) if there
    /// is none.
    pub fn open(dir: impl AsRef<Path>) -> Result<Self> {
        Self::open_with(dir, &OpenOptions { create: true, ..OpenOptions::default() })
    }
    /// Opens the store in `dir` with these options.
    pub fn open_with(dir: impl AsRef<Path>, options: &OpenOptions) -> Result<Self> {
        let dir = std::path::absolute(dir.as_ref())
            .map_err(|error| Error::io(format!("store {}", dir.as_ref().display()), &error))?;
        let session = Session::open(&dir, options).map_err(|error| of_store_in(&dir, error))?;
        // The options that created the store are spent: a session that attaches again must not create it anew.
        let options = OpenOptions { create: false, create_new: false, ..options.clone() };
        let (session, replacing) = (ArcSwap::new(session), AtomicU64::new(0));
        let inner = Inner { dir, options, session, replacing, lock_tokens_dir: OnceLock::new() };
        Ok(Self { inner: Arc::new(inner) })
    }
    /// Returns this process's session; after `fork`, a new one.
    #[inline]
    pub(crate) fn session(&self) -> Result<Guard<Arc<Session>>> {
        let session = self.inner.session.load();
        if session.generation != fork::generation() {
            drop(session);
            return self.session_in_child();
        }
        session.root().channel.check_usable()?;
        Ok(session)
    }
    #[cold]
    fn session_in_child(&self) -> Result<Guard<Arc<Session>>> {
        let me = fork::generation() + 1;
        loop {
            let seen = self.inner.replacing.load(Ordering::SeqCst);
            let mine = seen != me
                && self.inner.replacing.compare_exchange(seen, me, Ordering::SeqCst, Ordering::SeqCst).is_ok();
            let session = self.inner.session.load();
            if session.generation == fork::generation() {
                if mine {
                    self.inner.replacing.store(0, Ordering::SeqCst);
                }
                return Ok(session);
            }
            if !mine {
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
            let fresh = Session::open(&self.inner.dir, &self.inner.options);
            let result = fresh.map(|fresh| {
                // The parent's session must not be torn down here: its threads, rings and engine are the parent's.
                std::mem::forget(self.inner.session.swap(fresh));
                self.inner.session.load()
            });
            self.inner.replacing.store(0, Ordering::SeqCst);
            return result;
        }
    }
    /// Makes the directory in which a new cluster keeps the labels of its containers, unless it is there. Fails with
    /// `InvalidInput` if the store is no part of a cluster.
    pub fn make_label_directory(&self) -> Result<()> {
        let session = self.session()?;
        Directory::of(&session).ok_or_else(|| self.alone())?.make()
    }
    fn alone(&self) -> Error {
        Error::new(ErrorKind::InvalidInput, format!("store {}", self.dir().display()))
            .because("it is no part of a cluster")
            .try_next("start a cluster with `cenote cluster start`")
    }
    /// Returns the home of a cluster that this handle's node has; 0 if the store is no part of one.
    pub fn home(&self) -> HomeId {
        self.inner.session.load().links.own()
    }
    pub(crate) fn lock_tokens_dir(&self) -> &OnceLock<PathBuf> {
        &self.inner.lock_tokens_dir
    }
    pub(crate) fn root_lock_words(&self) -> LockWords {
        self.inner.session.load().root().channel.attachment().readers.lock_words()
    }
    /// Returns the homes of the cluster, ascending; empty if the store is no part of one.
    pub fn homes(&self) -> Vec<HomeId> {
        self.inner.session.load().links.homes()
    }
    /// Returns the counters of one home of the cluster. `Disconnected` if its node cannot be reached.
    pub fn stats_of(&self, home: HomeId) -> Result<StoreStats> {
        stats(self.session()?.links.to(home))
    }
    /// The counters of the home of this node.
    pub(crate) fn stats_here(&self) -> Result<StoreStats> {
        stats(self.session()?.root())
    }
    /// Returns true if only this process uses the store, whose engine is here. `tell` is called once, from another
    /// thread, before another process can see or change anything: until then, cached content of this process needs no
    /// check.
    pub fn is_alone_until(&self, tell: impl Fn() + Send + Sync + 'static) -> Result<bool> {
        Ok(self.session()?.root().channel.is_alone_until(Box::new(tell)))
    }
    /// Begins a transaction.
    pub fn begin(&self) -> Transaction {
        Transaction::new(self)
    }
    /// Returns when everything acknowledged so far survives power loss.
    pub fn flush(&self) -> Result<()> {
        self.flush_target(FlushTarget::Store)
    }
    pub(crate) fn flush_target(&self, target: FlushTarget) -> Result<()> {
        self.wait_all()?;
        self.ask_target(target, |target| Request::Flush { target }).map(drop)
    }
    /// Asks the home that has a target, or all of them.
    pub(crate) fn ask_target(&self, target: FlushTarget, request: impl Fn(FlushTarget) -> Request) -> Result<Response> {
        match target {
            FlushTarget::Store => self.ask_all(&request(target)),
            FlushTarget::Container(id) => self.session()?.home(id).request(request(target)),
            FlushTarget::Object(key) => self.session()?.home(key.container).request(request(target)),
        }
    }
    /// Asks all homes, and makes one answer of theirs.
    pub(crate) fn ask_all(&self, request: &Request) -> Result<Response> {
        let session = self.session()?;
        let mut all = Vec::new();
        for (_, link) in session.all() {
            match link.request(request.clone()) {
                // A home that is lost has nothing to say. Whoever used it is told when durability is asked for.
                Err(_) if link.channel.is_lost() && !is_missed(link, request) => {}
                answer => all.push(answer?),
            }
        }
        Ok(merged(request, all))
    }
    /// Reads and verifies everything.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_target(FlushTarget::Store)
    }
    pub(crate) fn verify_target(&self, target: FlushTarget) -> Result<VerifyReport> {
        match self.ask_target(target, |target| Request::Verify { target })? {
            Response::Verified(report) => Ok(report),
            other => Err(surprise("a report", &other)),
        }
    }
    /// Writes a checkpoint now, so that the next opening replays nothing.
    pub fn checkpoint(&self) -> Result<()> {
        self.session()?.root().channel.check_writable()?;
        self.ask_all(&Request::Checkpoint).map(drop)
    }
    /// Asks the daemon that serves the store in `dir` to finish its work and leave. Returns false if none serves it.
    pub fn stop_daemon(dir: impl AsRef<Path>) -> Result<bool> {
        attach::stop_daemon(dir.as_ref(), false)
    }
    /// [`Store::stop_daemon`] of a node of a cluster whose nodes are all being stopped: none takes over what others have.
    pub fn stop_node(dir: impl AsRef<Path>) -> Result<bool> {
        attach::stop_daemon(dir.as_ref(), true)
    }
    /// Destroys the store in `dir`: its segments in memory, the files of its tiers, its metadata, and last the
    /// directory, unless it has other files. An idle daemon is stopped. With other open sessions this fails with
    /// `Busy`, unless `force` is set: then they lose the store. `force` also skips tiers that cannot be removed.
    pub fn destroy(dir: impl AsRef<Path>, force: bool) -> Result<Destroyed> {
        destroy::destroy(dir.as_ref(), force)
    }
    /// Returns the unused shared memory of this user's stores whose directory was deleted by hand. A moved store counts
    /// until it has been opened in its new place.
    pub fn orphans() -> Result<Vec<Orphan>> {
        cenote_server::orphans()
    }
    /// Frees the memory of orphans.
    pub fn sweep(orphans: &[Orphan]) -> Result<()> {
        cenote_server::sweep(orphans)
    }
    /// Returns true if both are clones of one handle.
    pub(crate) fn is_same_handle(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
    /// Returns the store's id.
    pub fn id(&self) -> StoreId {
        self.inner.session.load().root().channel.attachment().store
    }
    /// Returns the directory of the opening.
    pub fn dir(&self) -> &Path {
        &self.inner.dir
    }
    /// Returns the current way to the engine: [`Mode::InProcess`] or [`Mode::Daemon`].
    pub fn reached(&self) -> Mode {
        let local = self.session().is_ok_and(|session| session.root().channel.attachment().is_local());
        if local { Mode::InProcess } else { Mode::Daemon }
    }
    /// Number of engines that share the store's tiers. A transaction has containers of one engine.
    pub fn engines(&self) -> Result<u16> {
        Ok(self.session()?.root().channel.attachment().engines)
    }
    /// Returns the counters.
    pub fn stats(&self) -> Result<StoreStats> {
        Ok(self.stats_answered()?.of_all()?.pop().unwrap_or_default())
    }
    /// The counters of the homes that answer, taken together: one [`StoreStats`] is found, if any home answers. See
    /// [`Answered`].
    pub fn stats_answered(&self) -> Result<Answered<StoreStats>> {
        let told = each_home(&*self.session()?, |_| true, |_, link| Ok(vec![link.request(Request::Stats)?]));
        let found = if told.found.is_empty() {
            Vec::new()
        } else {
            match merged(&Request::Stats, told.found) {
                Response::Stats(stats) => vec![stats],
                other => return Err(surprise("counters", &other)),
            }
        };
        Ok(Answered { found, silent: told.silent })
    }
    /// Returns the store's statistics, with the `hot` most used objects (at most 1,000); in a cluster, those of this node's
    /// home.
    pub fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        match self.session()?.root().request(Request::Telemetry { hot })? {
            Response::Telemetry(mut telemetry) => {
                for container in &mut telemetry.containers {
                    container.label = labels::outer_label(&container.label).to_owned();
                }
                Ok(*telemetry)
            }
            other => Err(surprise("telemetry", &other)),
        }
    }
    /// Returns what the daemon of this node tells of the cluster: the view, what happened, and what it concludes from that.
    /// `Unsupported` if the store is no part of one.
    pub fn ha_report(&self) -> Result<HaReport> {
        match self.session()?.root().request(Request::HaReport)? {
            Response::Ha(report) => Ok(*report),
            other => Err(surprise("a report of the cluster", &other)),
        }
    }
    /// Changes who takes part in the cluster, or where homes are. Returns once the register has it; what follows from it is in
    /// [`Store::ha_report`]. `Unsupported` if the store is no part of a cluster, `Busy` if it cannot be now.
    pub fn change_cluster(&self, change: ClusterChange) -> Result<()> {
        self.session()?.root().request(Request::ChangeCluster { change }).map(drop)
    }
    /// Returns when everything acknowledged so far, and all pipelined operations of this session, survive the loss of
    /// `losses` nodes. Waits for mirrors to come for up to `patience`, then `Busy`; `Unsupported` if homes are to have none.
    /// Independent of [`Store::flush`]: a loss of power of all nodes at once is another matter.
    pub fn protect(&self, losses: u32, patience: Duration) -> Result<()> {
        const PAUSE: Duration = Duration::from_millis(20);
        self.wait_all()?;
        let begin = Instant::now();
        for (_, link) in self.session()?.all() {
            loop {
                match link.request(Request::Protect { losses }) {
                    // A node that gets its home back begins anew with it, and is not there for a moment.
                    Err(error)
                        if matches!(error.kind(), ErrorKind::Busy | ErrorKind::Disconnected)
                            && begin.elapsed() < patience =>
                    {
                        std::thread::sleep(PAUSE);
                    }
                    answer => {
                        answer?;
                        break;
                    }
                }
            }
        }
        Ok(())
    }
    /// Waits for all pipelined operations of this session.
    pub fn wait_all(&self) -> Result<()> {
        self.session()?.links.try_for_each(|link| link.queue.settle_all())
    }
    /// Returns when the safe pipelined changes ([`Precondition`](crate::Precondition),
    /// [`Object::launch_write_kept`](crate::Object::launch_write_kept)) of all dead processes are carried out. An
    /// engine does that by itself when it notices a death, and before it accepts a client. A process that knows of a
    /// death calls this so as not to be faster.
    pub fn settle_dead(&self) -> Result<()> {
        self.session()?.root().channel.settle_dead()
    }
    /// Notifies `listener` of the progress of pipelined messages ([`crate::Op::message`]) for the home of a container: now, and whenever it
    /// changes, until the listener is dropped. A forked child has messages of its own, and notifies no listener.
    pub fn tell_settled(&self, container: ContainerId, listener: Weak<dyn Settling>) -> Result<()> {
        self.session()?.home(container).queue.tell(listener);
        Ok(())
    }
    /// Ends the session that this store shares with its clones, containers, objects and indices: waits for pipelined
    /// operations, gives leases back, and closes an engine in this process, so that the directory is free when this
    /// returns. Later calls through any of them fail with `InvalidInput`; views stay valid. A second call does nothing.
    pub fn close(&self) -> Result<()> {
        let session = self.inner.session.load_full();
        if session.generation != fork::generation() {
            std::mem::forget(session);
            return Ok(());
        }
        session.close()
    }
    /// Returns true once the store, or a clone of it, was closed.
    pub fn is_closed(&self) -> bool {
        self.inner.session.load().root().channel.check_open().is_err()
    }
    /// Applies one update; `subject` names its object in errors.
    pub(crate) fn change(&self, update: Update, subject: impl Fn() -> String) -> Result<()> {
        let session = self.session()?;
        match content::apply(session.home(update.container()), vec![update], &subject)? {
            Response::Applied { codes, .. } => match codes.first() {
                None | Some(cenote_model::KeyCode::Ok) => Ok(()),
                Some(code) => Err(code_error(*code, subject())),
            },
            other => Err(surprise("an outcome", &other)),
        }
    }
}

/// The counters of one home.
fn stats(link: &Link) -> Result<StoreStats> {
    match link.request(Request::Stats)? {
        Response::Stats(stats) => Ok(stats),
        other => Err(surprise("counters", &other)),
    }
}

/// One answer of those of several homes.
fn merged(request: &Request, mut all: Vec<Response>) -> Response {
    match all.pop() {
        Some(only) if all.is_empty() => only,
        last => {
            all.extend(last);
            Merge::of(request).merge(all)
        }
    }
}

/// Returns true if this session may have changed a home that is lost, and asks whether its changes survive.
fn is_missed(link: &Link, request: &Request) -> bool {
    matches!(request, Request::Flush { .. }) && link.channel.attachment().is_somewhere()
}

/// Adds the directory to errors of an opening, since the engine does not know it.
#[cold]
fn of_store_in(dir: &Path, error: Error) -> Error {
    let place = dir.display().to_string();
    if error.subject().contains(&place) {
        return error;
    }
    let subject = if error.subject() == "store" {
        format!("store {place}")
    } else {
        format!("{} of store {place}", error.subject())
    };
    Error::new(error.kind(), subject).because(error.cause()).try_next(error.next_step())
}

/// Refuses invalid labels of containers.
pub(crate) fn check_label(label: &str) -> Result<()> {
    if label.is_empty() || label.len() > LABEL_BYTES_MAX {
        return Err(Error::new(ErrorKind::InvalidInput, "container label")
            .because(format!("it has {} bytes; 1 to {LABEL_BYTES_MAX} are allowed", label.len())));
    }
    Ok(())
}

/// Refuses invalid values of records.
pub(crate) fn check_value(value: &[u8], subject: impl Fn() -> String) -> Result<()> {
    if value.len() <= VALUE_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, subject())
        .because(format!("a value of {} bytes; at most {VALUE_BYTES_MAX} are allowed", value.len())))
}
