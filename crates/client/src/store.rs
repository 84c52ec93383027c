//! A store: opening, containers, devices, and operations on the whole store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, Guard};
use cenote_device::home::Orphan;
use cenote_host::fork;
use cenote_model::{
    Arrange, ArrangeProgress, ArrangeTarget, Arrangement, ContainerId, ContainerInfo, ContainerSpec, DeviceInfo,
    DeviceSpec, DeviceState, Error, ErrorKind, Explanation, FlushTarget, LABEL_BYTES_MAX, ObjectKey, PolicyState,
    Profile, Request, Response, Result, StoreId, StoreStats, Telemetry, Update, VALUE_BYTES_MAX, VerifyReport,
};

use cenote_server::Destroyed;

use crate::answer::{code_error, surprise};
use crate::container::Container;
use crate::content;
use crate::link::queue::Settling;
use crate::link::{attach, leaving};
use crate::session::Session;
use crate::transaction::Transaction;
use crate::{Mode, OpenOptions, destroy};

/// Containers per request.
const PAGE: u32 = 1000;
/// Time limit for clients to give back their leases on a device that is being removed.
const LEAVING_PATIENCE: Duration = Duration::from_secs(5);

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
        let inner = Inner { dir, options, session: ArcSwap::new(session), replacing: AtomicU64::new(0) };
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
    /// Opens an existing container.
    pub fn container(&self, label: &str) -> Result<Container> {
        let session = self.session()?;
        check_label(label)?;
        match session.root().request(Request::ContainerByLabel { label: label.into() })? {
            Response::Container(info) => Ok(Container::new(self, &session, &info)),
            other => Err(surprise("a container", &other)),
        }
    }
    /// Opens an existing container by its id, which a rename keeps.
    pub fn container_by_id(&self, id: ContainerId) -> Result<Container> {
        let session = self.session()?;
        match session.root().request(Request::ContainerById { id })? {
            Response::Container(info) => Ok(Container::new(self, &session, &info)),
            other => Err(surprise("a container", &other)),
        }
    }
    /// Opens the container of that label, or creates it if it does not exist.
    pub fn open_container(&self, label: &str, spec: &ContainerSpec) -> Result<Container> {
        match self.container(label) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => return result,
        }
        match self.create_container(label, spec) {
            Err(error) if error.kind() == ErrorKind::Exists => self.container(label), // another process was faster
            result => result,
        }
    }
    /// Returns a handle of no container: its content is never found. For views of data outside of a store.
    pub fn nowhere(&self, label: &str) -> Container {
        Container::nowhere(self, label)
    }
    /// Returns all containers whose label begins with `prefix`, in label order.
    pub fn containers(&self, prefix: &str) -> Result<Vec<ContainerInfo>> {
        let session = self.session()?;
        let mut all = Vec::new();
        let mut after = None;
        loop {
            let request = Request::ContainerList { after: after.take(), limit: PAGE };
            let Response::Containers(page) = session.root().request(request)? else { return Ok(all) };
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.label.clone());
            all.extend(page.into_iter().filter(|info| info.label.starts_with(prefix)));
        }
    }
    /// Renames a container.
    pub fn rename_container(&self, from: &str, to: &str) -> Result<()> {
        check_label(to)?;
        let id = self.container(from)?.id();
        self.change(Update::ContainerRename { id, label: to.into() }, || format!("container `{to}`"))
    }
    /// Renames a container, whatever its current label.
    pub fn rename_container_by_id(&self, id: ContainerId, to: &str) -> Result<()> {
        check_label(to)?;
        self.change(Update::ContainerRename { id, label: to.into() }, || format!("container `{to}`"))
    }
    /// Deletes a container and its whole content atomically, whatever its label.
    pub fn delete_container_by_id(&self, id: ContainerId) -> Result<()> {
        self.change(Update::ContainerDelete { id }, || format!("container {}", id.0))
    }
    /// Deletes a container and its whole content atomically.
    pub fn delete_container(&self, label: &str) -> Result<()> {
        let id = self.container(label)?.id();
        self.change(Update::ContainerDelete { id }, || format!("container `{label}`"))
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
        self.session()?.root().request(Request::Flush { target }).map(drop)
    }
    /// Returns the devices, fastest first.
    pub fn devices(&self) -> Result<Vec<DeviceInfo>> {
        match self.session()?.root().request(Request::Devices)? {
            Response::Devices(mut devices) => {
                devices.sort_by_key(|device| (device.spec.kind, device.id));
                Ok(devices)
            }
            other => Err(surprise("the devices", &other)),
        }
    }
    /// Adds a device.
    pub fn add_device(&self, spec: &DeviceSpec) -> Result<()> {
        self.command(Request::DeviceAdd { spec: spec.clone() })
    }
    /// Moves everything off a device.
    pub fn drain_device(&self, name: &str) -> Result<()> {
        self.command(Request::DeviceDrain { name: name.into() })
    }
    /// Removes an empty device. Clients with leases on it have a moment to give them back.
    pub fn remove_device(&self, name: &str) -> Result<()> {
        let begin = Instant::now();
        loop {
            match self.command(Request::DeviceRemove { name: name.into() }) {
                Err(error)
                    if error.kind() == ErrorKind::Busy
                        && begin.elapsed() < LEAVING_PATIENCE
                        && self.is_being_left(name)? =>
                {
                    std::thread::sleep(Duration::from_millis(20));
                }
                done => return done,
            }
        }
    }
    /// Returns true if a device has only space that clients give back soon, or have given back since the refusal.
    fn is_being_left(&self, name: &str) -> Result<bool> {
        let session = self.session()?;
        if leaving::is_due(&session.root().space) {
            leaving::look(&session.root().space);
        }
        let devices = self.devices()?;
        let is_left = |device: &DeviceInfo| {
            let is_draining = device.state == DeviceState::Draining;
            let is_leased = device.leased_bytes > 0 && !is_draining;
            device.used_bytes == 0 && (device.reserved_bytes > 0 || is_draining) && !is_leased
        };
        Ok(devices.iter().any(|device| device.spec.name == name && is_left(device)))
    }
    /// Returns the measured performance of a device. Unless `measure` is zero, it is measured now for about this long,
    /// in free space of the device.
    pub fn profile(&self, name: &str, measure: Duration) -> Result<Profile> {
        let measure_ms = u32::try_from(measure.as_millis()).unwrap_or(u32::MAX);
        match self.session()?.root().request(Request::Profile { name: name.into(), measure_ms })? {
            Response::Profile(profile) => Ok(profile),
            other => Err(surprise("a profile", &other)),
        }
    }
    /// Returns the location of each range of an object, and the reason for it.
    pub fn explain(&self, key: ObjectKey) -> Result<Explanation> {
        match self.session()?.root().request(Request::Explain { key })? {
            Response::Explanation(explanation) => Ok(explanation),
            other => Err(surprise("an explanation", &other)),
        }
    }
    /// Moves an object, a part of it or a container between tiers, and returns at the end of the move. With `dry_run`
    /// it moves nothing and only reports the moves with their cost and reason.
    pub fn arrange(&self, target: &ArrangeTarget, what: &Arrange, dry_run: bool) -> Result<Arrangement> {
        let session = self.session()?;
        if !dry_run {
            session.root().channel.check_writable()?;
        }
        match session.root().request(Request::Arrange {
            target: Box::new(target.clone()),
            what: what.clone(),
            dry_run,
        })? {
            Response::Arranged(arrangement) => Ok(*arrangement),
            other => Err(surprise("an arrangement", &other)),
        }
    }
    /// Returns the progress of all running arrangements, by any process.
    pub fn arrange_progress(&self) -> Result<Vec<ArrangeProgress>> {
        match self.session()?.root().request(Request::Progress)? {
            Response::Progress(all) => Ok(all),
            other => Err(surprise("progress", &other)),
        }
    }
    /// Sets the rules of the policy `user` and of the life cycle (`docs/policies.md` has the language); `None` removes
    /// them. Rules that do not fit the tiers are refused with every fault, and the old rules stay. With `dry_run` they
    /// are only checked.
    pub fn set_policy(&self, text: Option<&str>, dry_run: bool) -> Result<()> {
        let session = self.session()?;
        if !dry_run {
            session.root().channel.check_writable()?;
        }
        let request = Request::PolicySet { text: text.map(str::to_owned), dry_run };
        match session.root().request(request)? {
            Response::Done => Ok(()),
            other => Err(surprise("nothing", &other)),
        }
    }
    /// Returns the users' rules, their state, and the policies from plugins.
    pub fn policy(&self) -> Result<PolicyState> {
        match self.session()?.root().request(Request::PolicyShow)? {
            Response::Policy(state) => Ok(*state),
            other => Err(surprise("the policy", &other)),
        }
    }
    /// Returns the current actions of the life-cycle rules, without carrying them out.
    pub fn try_rules(&self) -> Result<Arrangement> {
        match self.session()?.root().request(Request::RulesTry)? {
            Response::Arranged(arrangement) => Ok(*arrangement),
            other => Err(surprise("an arrangement", &other)),
        }
    }
    /// Reads and verifies everything.
    pub fn verify(&self) -> Result<VerifyReport> {
        self.verify_target(FlushTarget::Store)
    }
    pub(crate) fn verify_target(&self, target: FlushTarget) -> Result<VerifyReport> {
        match self.session()?.root().request(Request::Verify { target })? {
            Response::Verified(report) => Ok(report),
            other => Err(surprise("a report", &other)),
        }
    }
    /// Writes a checkpoint now, so that the next opening replays nothing.
    pub fn checkpoint(&self) -> Result<()> {
        self.command(Request::Checkpoint)
    }
    /// Asks the daemon that serves the store in `dir` to finish its work and leave. Returns false if none serves it.
    pub fn stop_daemon(dir: impl AsRef<Path>) -> Result<bool> {
        attach::stop_daemon(dir.as_ref())
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
        match self.session()?.root().request(Request::Stats)? {
            Response::Stats(stats) => Ok(stats),
            other => Err(surprise("counters", &other)),
        }
    }
    /// Returns the store's statistics, with the `hot` most used objects (at most 1,000).
    pub fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        match self.session()?.root().request(Request::Telemetry { hot })? {
            Response::Telemetry(telemetry) => Ok(*telemetry),
            other => Err(surprise("telemetry", &other)),
        }
    }
    /// Waits for all pipelined operations of this session.
    pub fn wait_all(&self) -> Result<()> {
        self.session()?.root().queue.settle_all()
    }
    /// Returns when the safe pipelined changes ([`Precondition`](crate::Precondition),
    /// [`Object::launch_write_kept`](crate::Object::launch_write_kept)) of all dead processes are carried out. An
    /// engine does that by itself when it notices a death, and before it accepts a client. A process that knows of a
    /// death calls this so as not to be faster.
    pub fn settle_dead(&self) -> Result<()> {
        self.session()?.root().channel.settle_dead()
    }
    /// Notifies `listener` of the progress of pipelined messages ([`crate::Op::message`]): now, and whenever it
    /// changes, until the listener is dropped. A forked child has messages of its own, and notifies no listener.
    pub fn tell_settled(&self, listener: Weak<dyn Settling>) -> Result<()> {
        self.session()?.root().queue.tell(listener);
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
        match content::apply(session.root(), vec![update], &subject)? {
            Response::Applied { codes, .. } => match codes.first() {
                None | Some(cenote_model::KeyCode::Ok) => Ok(()),
                Some(code) => Err(code_error(*code, subject())),
            },
            other => Err(surprise("an outcome", &other)),
        }
    }
    fn command(&self, request: Request) -> Result<()> {
        let session = self.session()?;
        session.root().channel.check_writable()?;
        session.root().request(request).map(drop)
    }
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
