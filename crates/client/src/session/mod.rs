//! A session: this process's standing with one store. Every handle of the store shares it.

pub(crate) mod attach;
pub(crate) mod destroy;
mod handover;
mod keeper;
pub(crate) mod local;
pub(crate) mod readers;
pub(crate) mod remote;
mod start;
pub(crate) use start::find_program;
pub(crate) mod transport;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cenote_device::{SegmentFile, fork};
use cenote_model::{
    ContainerId, DeviceId, Error, ErrorKind, IndexKey, ObjectKey, Request, Response, Result, Run, StoreId,
};
use rustix::time::{ClockId, clock_gettime};

use crate::OpenOptions;
use crate::data::arena::Arenas;
use crate::data::cache::{Objects, Version};
use crate::data::callbacks::Callbacks;
use crate::data::kept::Kept;
use crate::data::leaving::Leaving;
use crate::data::queue::Queue;
use crate::data::segments::Segments;
use crate::data::tiering::Tiering;
use crate::data::workers::Workers;
use crate::snapshot::Pins;
use crate::sync::lock;
use readers::Readers;
use transport::{Arrivals, Asked, Done, Pending, Slot, Transport, Unsent};

/// Calls that ask nobody look so often whether the store is there: who has one that is gone is told within a second.
const LOOK_EVERY_MS: u64 = 500;
/// How long a waiting thread sleeps at most before it looks whether the other end still lives.
const PATIENCE: Duration = Duration::from_millis(100);

/// After a failed attempt to find an engine: how long calls fail at once, before there is another one.
const AGAIN_AFTER: Duration = Duration::from_millis(900);

/// One engine that the session is, or was, attached to.
pub(crate) struct Attachment {
    pub store: StoreId,
    pub transport: Arc<dyn Transport>,
    pub readers: Readers,
    /// Value of the instance word that belongs to this engine.
    pub instance: u64,
    /// May it change anything?
    pub write: bool,
    /// Owners and modes of containers bind it: it maps nothing, and the daemon carries its bytes.
    pub bound: bool,
}

impl Attachment {
    /// False once another engine has taken over.
    #[inline]
    pub fn is_current(&self) -> bool {
        self.readers.instance() == self.instance
    }
    /// What an object's map must have been told at to be true now; the word's hash is the object's.
    #[inline]
    pub fn version(&self, hash: u64) -> Version {
        Version { instance: self.instance, word: self.readers.word(hash) }
    }
}

/// See the module.
pub(crate) struct Session {
    myself: Weak<Session>,
    /// Fork generation of the process that it belongs to.
    pub generation: u64,
    pub dir: PathBuf,
    pub options: OpenOptions,
    pub nonce: u128,
    /// Number of the next request.
    pub seq: Arc<AtomicU64>,
    attachment: ArcSwap<Attachment>,
    /// Held while the attachment is replaced; when and why that failed last.
    attaching: Mutex<Option<(Instant, Error)>>,
    pub arrivals: Arc<Arrivals>,
    pub objects: Objects,
    pub tiering: Tiering,
    pub segments: Segments,
    pub arenas: Arenas,
    pub queue: Queue,
    pub kept: Kept,
    pub leaving: Leaving,
    pub callbacks: Callbacks,
    pub workers: Workers,
    pub pins: Pins,
    labels: Mutex<HashMap<ContainerId, Arc<str>>>,
    /// Space to be given back by a thread that may send.
    to_unlease: Mutex<Vec<Run>>,
    closed: AtomicBool,
    /// When it was last seen that the store is there, in ms of the coarse clock.
    seen_there_ms: AtomicU64,
    /// In-process engines that may be handed over listen here.
    listener: Mutex<Option<handover::Answering>>,
    company: handover::Company,
    keeper: keeper::Keeper,
}

impl Session {
    /// Attaches to the store in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions) -> Result<Arc<Self>> {
        let nonce = crate::ids::random();
        let seq = Arc::new(AtomicU64::new(1));
        let arrivals = Arc::new(Arrivals::default());
        let (attachment, listener) = attach::attach(dir, options, nonce, &seq, &arrivals)?;
        let session = Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            generation: fork::generation(),
            dir: dir.to_path_buf(),
            options: options.clone(),
            nonce,
            seq,
            attachment: ArcSwap::from_pointee(attachment),
            attaching: Mutex::default(),
            arrivals,
            objects: Objects::default(),
            tiering: Tiering::default(),
            segments: Segments::default(),
            arenas: Arenas::default(),
            queue: Queue::default(),
            kept: Kept::default(),
            leaving: Leaving::default(),
            callbacks: Callbacks::default(),
            workers: Workers::default(),
            pins: Pins::default(),
            labels: Mutex::default(),
            to_unlease: Mutex::default(),
            closed: AtomicBool::new(false),
            seen_there_ms: AtomicU64::new(coarse_ms()),
            listener: Mutex::new(None),
            company: handover::Company::default(),
            keeper: keeper::Keeper::default(),
        });
        session.kept.move_to(&session.attachment().readers)?;
        attach::listen(&session, listener);
        Ok(session)
    }
    /// Itself, for callbacks that may outlive it.
    pub fn myself(&self) -> Weak<Self> {
        self.myself.clone()
    }
    /// The engine that it is attached to now.
    #[inline]
    pub fn attachment(&self) -> arc_swap::Guard<Arc<Attachment>> {
        self.attachment.load()
    }
    /// True if the engine is in this process, so that nobody else uses the store; `tell` is called before that changes.
    pub fn is_alone_until(&self, tell: Box<dyn Fn() + Send + Sync>) -> bool {
        self.attachment.load().transport.host().is_some() && self.company.listen(tell)
    }
    /// Attaches to whichever engine serves the store now, after `seen` turned out to be gone. Requests that had no
    /// answer are sent again.
    pub fn attach_again(&self, seen: &Arc<Attachment>) -> Result<()> {
        let begin = Instant::now();
        let mut failed = lock(&self.attaching);
        if !Arc::ptr_eq(&self.attachment.load(), seen) {
            return Ok(()); // another thread was faster
        }
        let pending = seen.transport.retire();
        // Another thread has just tried for all of us: many that wait must not wait one after the other.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= begin) {
            fail_all(pending, error);
            self.arrivals.note();
            return Err(error.clone());
        }
        if let Err(error) = self.check_open() {
            fail_all(pending, &error);
            return Err(error);
        }
        // And not again and again, since each attempt may start a daemon: idle sessions of a store that is gone, too.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| at.elapsed() < AGAIN_AFTER) {
            // A daemon that somebody else started meanwhile is there for the asking.
            if let Some(found) = attach::look(self) {
                found.transport.resend(pending);
                *failed = None;
                self.replace_attachment(seen, found);
                return Ok(());
            }
            fail_all(pending, error);
            self.arrivals.note();
            return Err(error.clone());
        }
        let result = attach::again(self, pending, failed.is_some());
        self.arrivals.note(); // those who wait look again: at what failed, or for the new attachment
        *failed = result.as_ref().err().map(|error| (Instant::now(), error.clone()));
        self.replace_attachment(seen, result?);
        Ok(())
    }
    /// Puts another engine in the place of the one that is gone. The caller holds `attaching`.
    fn replace_attachment(&self, old: &Attachment, new: Attachment) {
        if new.store != old.store || new.bound != old.bound || !new.readers.same_table(&old.readers) {
            self.objects.forget_all();
        }
        // What had no answer was sent to the new engine already: from here on nothing in the old file is needed.
        if let Err(error) = self.kept.move_to(&new.readers) {
            tracing::warn!(%error, "what is launched is not safe before it is sent");
        }
        old.transport.take_back();
        self.attachment.store(Arc::new(new));
        self.arrivals.note();
    }
    /// Sends a request, whatever it takes; `done` gets the response.
    pub fn submit(&self, request: Request, done: Done) {
        let (mut request, mut done) = (request, done);
        loop {
            let attachment = self.attachment.load_full();
            match attachment.transport.submit(request, done) {
                Ok(()) => return,
                Err(Unsent { request: back, done: back_done }) => {
                    if let Err(error) = self.attach_again(&attachment) {
                        return back_done(Response::Failed(error));
                    }
                    (request, done) = (back, back_done);
                }
            }
        }
    }
    /// Sends a request at once and waits for its response.
    pub fn ask(&self, request: Request) -> Result<Response> {
        let asked = self.attachment.load().transport.ask(request);
        let response = match asked {
            Asked::Answer(response) => response,
            Asked::Later(slot) => self.wait_for(&slot),
            Asked::Not(request) => {
                let slot = Slot::default();
                let filled = slot.clone();
                self.submit(request, Box::new(move |response| *lock(&filled) = Some(response)));
                self.wait_for(&slot)
            }
        };
        if let Response::Failed(error) = response { Err(error) } else { Ok(response) }
    }
    fn wait_for(&self, slot: &Slot) -> Response {
        let mut answer = lock(slot).take();
        if answer.is_none() {
            self.wait_until(|| {
                answer = lock(slot).take();
                answer.is_some()
            });
        }
        answer.unwrap_or_else(|| Response::Failed(closed_error()))
    }
    /// Sends a request after everything that was launched before it, and waits for its response.
    pub fn request(&self, request: Request) -> Result<Response> {
        self.queue.send_all(self);
        self.ask(request)
    }
    /// A request is about to be sent that somebody waits for: the daemon may wake meanwhile.
    pub fn announce(&self) {
        self.attachment.load().transport.announce();
    }
    /// Sends without waiting for the response.
    pub fn tell(&self, request: Request) {
        self.submit(request, Box::new(|_| {}));
    }
    /// Returns when `is_true`; takes in responses meanwhile, and attaches again if the engine is gone.
    pub fn wait_until(&self, mut is_true: impl FnMut() -> bool) {
        loop {
            let seen = self.arrivals.count();
            if is_true() {
                return;
            }
            let attachment = self.attachment.load_full();
            if !attachment.transport.progress(seen, PATIENCE) {
                // On failure the requests without an answer were failed, so what is waited for comes true.
                let _ = self.attach_again(&attachment);
            }
        }
    }
    /// A segment's descriptor.
    pub fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)> {
        loop {
            let attachment = self.attachment.load_full();
            match attachment.transport.segment(device, number) {
                Err(error) if error.kind() == ErrorKind::Disconnected => self.attach_again(&attachment)?,
                result => return result,
            }
        }
    }
    /// Gives leased space back.
    pub fn unlease(&self, runs: Vec<Run>) {
        if !runs.is_empty() {
            self.tell(Request::Unlease { runs });
        }
    }
    /// Gives leased space back soon: for threads in the middle of taking in responses.
    pub fn unlease_later(&self, run: Run) {
        lock(&self.to_unlease).push(run);
    }
    /// What [`Session::unlease_later`] put off.
    pub fn unlease_now(&self) {
        let runs = std::mem::take(&mut *lock(&self.to_unlease));
        // One by one: a run that the engine did take after all must not keep the others from going back.
        for run in runs {
            self.unlease(vec![run]);
        }
    }
    /// Bytes of memory tiers.
    pub fn memory_bytes(&self) -> u64 {
        self.segments.memory_bytes()
    }
    /// An error unless changes are allowed.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        if self.options.read_only || !self.attachment.load().write {
            return Err(Error::new(ErrorKind::PermissionDenied, self.name())
                .because(if self.options.read_only {
                    "it was opened for reading only"
                } else {
                    "this user may only read it"
                })
                .try_next("open it for writing, as its owner or one of its writers"));
        }
        Ok(())
    }
    /// True if it maps nothing, so that bytes go through the daemon.
    #[inline]
    pub fn is_bound(&self) -> bool {
        self.attachment.load().bound
    }
    /// An error once closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Relaxed) { Err(closed_error()) } else { Ok(()) }
    }
    /// An error once closed, and once the store is gone: calls that find what they want in this process ask nobody else.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        self.check_open()?;
        let now = coarse_ms();
        if now.saturating_sub(self.seen_there_ms.load(Ordering::Relaxed)) < LOOK_EVERY_MS {
            return Ok(());
        }
        self.look(now)
    }
    #[cold]
    fn look(&self, now: u64) -> Result<()> {
        let attachment = self.attachment.load_full();
        if attachment.transport.is_gone()
            && let Some(error) = attach::gone(self, attachment.store)
        {
            return Err(error);
        }
        self.seen_there_ms.store(now, Ordering::Relaxed);
        Ok(())
    }
    /// Its name in errors.
    pub fn name(&self) -> String {
        format!("store {}", self.dir.display())
    }
    /// Remembers a container's label, for errors.
    pub fn learn_label(&self, id: ContainerId, label: &Arc<str>) {
        lock(&self.labels).insert(id, label.clone());
    }
    fn container_name(&self, id: ContainerId) -> String {
        lock(&self.labels).get(&id).map_or_else(|| format!("container {id}"), |label| format!("container `{label}`"))
    }
    /// An object's name in errors.
    #[cold]
    pub fn object_name(&self, key: ObjectKey) -> String {
        format!("object {} of {}", key.object, self.container_name(key.container))
    }
    /// An index's name in errors.
    #[cold]
    pub fn index_name(&self, key: IndexKey) -> String {
        format!("index {} of {}", key.index, self.container_name(key.container))
    }
    /// Starts what looks after launched operations while no thread waits.
    #[inline]
    pub fn keep(&self) {
        self.keeper.wake(self);
    }
    /// Starts what gives leased space back when its tier is to be emptied, though no call comes.
    pub fn watch(&self) {
        self.keeper.watch(self);
    }
    /// Finishes what was launched, gives everything back, and leaves.
    pub fn close(&self) -> Result<()> {
        if self.closed.load(Ordering::SeqCst) {
            return Ok(());
        }
        crate::data::tiering::keep_learned(self);
        let result = self.queue.settle_all(self);
        let _one = lock(&self.attaching); // not in the middle of a handover
        if self.closed.swap(true, Ordering::SeqCst) {
            return result;
        }
        drop(lock(&self.listener).take());
        let mut runs = self.arenas.take(|_| true);
        runs.append(&mut lock(&self.to_unlease));
        let attachment = self.attachment.load_full();
        if !runs.is_empty() {
            let _ = attachment.transport.submit(Request::Unlease { runs }, Box::new(|_| {}));
        }
        let left = attachment.transport.close();
        fail_all(attachment.transport.retire(), &closed_error());
        self.arrivals.note();
        self.keeper.stop();
        result.and(left)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.generation != fork::generation() {
            return; // a forked child's copy: the session is the parent's
        }
        // The last handle went without `close`: errors have nobody to go to but the log.
        if let Err(error) = self.close() {
            tracing::warn!(%error, "leaving the store");
        }
    }
}

/// Answers requests that no engine will.
fn fail_all(pending: Vec<Pending>, error: &Error) {
    for pending in pending {
        (pending.done)(Response::Failed(error.clone()));
    }
}

/// Milliseconds of a clock that takes some ns to read, and is some ms late.
#[inline]
fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cold]
fn closed_error() -> Error {
    Error::new(ErrorKind::InvalidInput, "store").because("it was closed").try_next("open it again")
}
