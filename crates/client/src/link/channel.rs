//! The channel to one engine in any process: requests go out, answers come in.
//!
//! If its engine is gone, a channel attaches again and sends the pending requests to the successor. This file must not
//! know the batching of requests, nor the location of bytes.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use cenote_device::SegmentFile;
use cenote_model::{DeviceId, Error, ErrorKind, HomeId, ObjectKey, Request, Response, Result, Run};
use rustix::time::{ClockId, clock_gettime};

use super::attach;
use super::attachment::Attachment;
use super::handover::{HandoverSocket, HandoverState};
use super::redo_log::RedoLog;
use super::shared::Shared;
use super::transport::{Done, Pending, RequestOutcome, Slot, Traffic, Unsent};
use crate::labels::plain;
use crate::sync::lock;
use crate::{Mode, OpenOptions};

/// Interval of checks that the store still exists, by calls that send no message: the loss of a store is reported
/// within a second.
const LOOK_EVERY_MS: u64 = 500;
/// Longest sleep of a waiting thread between checks that the other end is alive.
const PATIENCE: Duration = Duration::from_millis(100);
/// Time after a failed search for an engine during which calls fail at once, without another attempt.
const AGAIN_AFTER: Duration = Duration::from_millis(900);

/// The store and its options.
pub(super) struct Address {
    pub dir: PathBuf,
    /// The home of a cluster; 0 for that of the directory.
    pub home: HomeId,
    pub options: OpenOptions,
}

/// Whether the channel is open and its store exists.
struct Life {
    closed: AtomicBool,
    /// Time of the last check that found the store, in ms of the coarse clock.
    seen_there_ms: AtomicU64,
    /// Memory or files of the store were opened: what this process writes there must be those of the store still.
    has_mapped: AtomicBool,
    /// Its home is lost for good, with the node that had it.
    is_lost: AtomicBool,
}

/// A channel; see the module.
pub(crate) struct Channel {
    pub(super) myself: Weak<Channel>,
    pub(super) address: Address,
    pub(super) traffic: Traffic,
    attachment: ArcSwap<Attachment>,
    /// Held during a replacement of the attachment; contains time and error of the last failure.
    pub(super) attaching: Mutex<Option<(Instant, Error)>>,
    pub(super) redo_log: RedoLog,
    life: Life,
    pub(super) handover: HandoverState,
    pub shared: Arc<Shared>,
    /// Space that a thread which may send gives back later.
    to_unlease: Mutex<Vec<Run>>,
}

impl Channel {
    /// Attaches to the store in `dir`.
    pub fn open(dir: &Path, options: &OpenOptions, shared: &Arc<Shared>) -> Result<Arc<Self>> {
        let traffic = Traffic::begin();
        let (attachment, waiting) = attach::attach(dir, options, &traffic)?;
        let address = Address { dir: dir.to_path_buf(), home: HomeId(0), options: options.clone() };
        let channel = Self::with(address, traffic, Arc::new(attachment), shared);
        channel.redo_log.move_to(&channel.attachment().readers)?;
        channel.listen(waiting);
        Ok(channel)
    }
    /// A channel to another home of the cluster, which its first request attaches; `nowhere` until then.
    pub fn to_home(home: HomeId, of: &Channel, nowhere: &Arc<Attachment>) -> Arc<Self> {
        let (dir, options) = (of.address.dir.clone(), of.address.options.clone());
        let options = OpenOptions { mode: Mode::Daemon, create: false, create_new: false, ..options };
        Self::with(Address { dir, home, options }, Traffic::begin(), nowhere.clone(), &of.shared)
    }
    fn with(address: Address, traffic: Traffic, attachment: Arc<Attachment>, shared: &Arc<Shared>) -> Arc<Self> {
        Arc::new_cyclic(|myself| Self {
            myself: myself.clone(),
            address,
            traffic,
            attachment: ArcSwap::new(attachment),
            attaching: Mutex::default(),
            redo_log: RedoLog::default(),
            life: Life {
                closed: AtomicBool::new(false),
                seen_there_ms: AtomicU64::new(coarse_ms()),
                has_mapped: AtomicBool::new(false),
                is_lost: AtomicBool::new(false),
            },
            handover: HandoverState::default(),
            shared: shared.clone(),
            to_unlease: Mutex::default(),
        })
    }
    /// Starts to listen for other processes.
    pub(super) fn listen(&self, waiting: Option<HandoverSocket>) {
        if let Some(waiting) = waiting {
            self.handover.listen(self, waiting);
        }
    }
    /// Returns the current attachment.
    #[inline]
    pub fn attachment(&self) -> arc_swap::Guard<Arc<Attachment>> {
        self.attachment.load()
    }
    /// Returns true if the engine is in this process, so that no other process uses the store; `tell` is called before
    /// that changes.
    pub fn is_alone_until(&self, tell: Box<dyn Fn() + Send + Sync>) -> bool {
        self.attachment.load().is_local() && self.handover.newcomers.listen(tell)
    }
    /// Returns when the recovery of dead clients is done.
    pub fn settle_dead(&self) -> Result<()> {
        attach::settle_dead(self)
    }
    /// Attaches to the current engine of the store after the loss of `seen`. Pending requests are sent again.
    pub fn attach_again(&self, seen: &Arc<Attachment>) -> Result<()> {
        let begin = Instant::now();
        let mut failed = lock(&self.attaching);
        if !Arc::ptr_eq(&self.attachment.load(), seen) {
            return Ok(()); // another thread was faster
        }
        let pending = seen.transport.retire();
        // Another thread has just tried for all: waiting threads must not try one after the other.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= begin) {
            fail_all(pending, error);
            self.traffic.arrivals.note();
            return Err(error.clone());
        }
        if let Err(error) = self.check_open() {
            fail_all(pending, &error);
            return Err(error);
        }
        // Attempts are rare, since each may start a daemon; this also holds for idle links of a lost store.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| at.elapsed() < AGAIN_AFTER) {
            // Another process may have started a daemon, which needs no attempt.
            if let Some(found) = attach::look(self) {
                found.transport.resend(pending);
                *failed = None;
                self.replace_attachment(seen, found);
                return Ok(());
            }
            fail_all(pending, error);
            self.traffic.arrivals.note();
            return Err(error.clone());
        }
        let result = attach::again(self, pending, failed.is_some());
        self.traffic.arrivals.note(); // wakes waiting threads, for the failure or the new attachment
        *failed = result.as_ref().err().map(|error| (Instant::now(), error.clone()));
        self.replace_attachment(seen, result?);
        Ok(())
    }
    /// Returns true if this process has opened memory or files of the store.
    pub(super) fn has_mapped(&self) -> bool {
        self.life.has_mapped.load(Ordering::SeqCst)
    }
    /// Its home is lost for good: a person gave up the node that had it.
    pub(super) fn note_lost(&self) {
        self.life.is_lost.store(true, Ordering::SeqCst);
    }
    /// Returns true if its home was found to be lost for good.
    pub fn is_lost(&self) -> bool {
        self.life.is_lost.load(Ordering::SeqCst)
    }
    /// Replaces a lost engine. The caller holds `attaching`.
    pub(super) fn replace_attachment(&self, old: &Attachment, new: Attachment) {
        let is_first = !old.is_somewhere(); // nothing was cached of it
        if !is_first && (new.store != old.store || new.bound != old.bound || !new.readers.same_table(&old.readers)) {
            self.shared.objects.forget_all();
        }
        // The pending requests were sent to the new engine already: nothing in the old file is needed any more.
        if let Err(error) = self.redo_log.move_to(&new.readers) {
            tracing::warn!(%error, "pipelined changes are not safe before they are sent");
        }
        old.transport.take_back();
        self.attachment.store(Arc::new(new));
        self.traffic.arrivals.note();
    }
    /// Sends a request, with further attempts if necessary; `done` gets the response.
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
        let outcome = self.attachment.load().transport.ask(request);
        let response = match outcome {
            RequestOutcome::Answered(response) => response,
            RequestOutcome::Later(slot) => self.wait_for(&slot),
            RequestOutcome::NotTaken(request) => {
                let slot = Slot::default();
                let filled = slot.clone();
                self.submit(request, Box::new(move |response| *lock(&filled) = Some(response)));
                self.wait_for(&slot)
            }
        };
        if let Response::Failed(error) = response { Err(plain(error)) } else { Ok(response) }
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
    /// Announces a request with a waiting caller, so that the daemon may wake up in the meantime.
    pub fn announce(&self) {
        self.attachment.load().transport.announce();
    }
    /// Sends a request without waiting for the response.
    pub fn tell(&self, request: Request) {
        self.submit(request, Box::new(|_| {}));
    }
    /// Returns when `is_true`. In the meantime it takes in responses, and attaches again if the engine is gone.
    pub fn wait_until(&self, mut is_true: impl FnMut() -> bool) {
        loop {
            let seen = self.traffic.arrivals.count();
            if is_true() {
                return;
            }
            // A failed attempt also fails the pending requests, so the condition comes true.
            self.progress(seen, PATIENCE);
        }
    }
    /// Takes in responses, and attaches again if the engine is gone. If nothing has come since `seen`, waits up to
    /// `patience`.
    fn progress(&self, seen: u64, patience: Duration) {
        let attachment = self.attachment.load_full();
        if !attachment.transport.progress(seen, patience) {
            let _ = self.attach_again(&attachment);
        }
    }
    /// Takes in the available responses without waiting.
    pub fn take_in(&self) {
        self.progress(self.traffic.arrivals.count(), Duration::ZERO);
    }
    /// Wakes threads that wait for a condition.
    pub fn note_arrival(&self) {
        self.traffic.arrivals.note();
    }
    /// Returns the descriptor of a segment.
    pub fn segment(&self, device: DeviceId, number: u64) -> Result<(SegmentFile, bool)> {
        loop {
            let attachment = self.attachment.load_full();
            self.life.has_mapped.store(true, Ordering::SeqCst); // first: what comes may be of an engine that is just lost
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
    /// Gives back the space of [`Channel::unlease_later`].
    pub fn unlease_now(&self) {
        let runs = std::mem::take(&mut *lock(&self.to_unlease));
        // One by one: a run that the engine did apply after all must not block the others.
        for run in runs {
            self.unlease(vec![run]);
        }
    }
    /// Returns an error unless changes are allowed.
    #[inline]
    pub fn check_writable(&self) -> Result<()> {
        let read_only = self.address.options.read_only;
        if read_only || !self.attachment.load().write {
            return Err(Error::new(ErrorKind::PermissionDenied, self.name())
                .because(if read_only { "it was opened for reading only" } else { "this user may only read it" })
                .try_next("open it for writing, as its owner or one of its writers"));
        }
        Ok(())
    }
    /// Returns true if the session maps nothing, so that its bytes go through the daemon.
    #[inline]
    pub fn is_bound(&self) -> bool {
        self.attachment.load().bound
    }
    /// Returns an error once the channel is closed.
    #[inline]
    pub fn check_open(&self) -> Result<()> {
        if self.life.closed.load(Ordering::Relaxed) { Err(closed_error()) } else { Ok(()) }
    }
    /// Returns an error once the channel is closed or the store is gone: calls that find their answer in this process
    /// send no message that would fail.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        self.check_open()?;
        let now = coarse_ms();
        if now.saturating_sub(self.life.seen_there_ms.load(Ordering::Relaxed)) < LOOK_EVERY_MS {
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
        self.life.seen_there_ms.store(now, Ordering::Relaxed);
        Ok(())
    }
    /// The store's name in errors.
    pub fn name(&self) -> String {
        self.shared.names.store()
    }
    /// An object's name in errors.
    #[cold]
    pub fn object_name(&self, key: ObjectKey) -> String {
        self.shared.names.object(key)
    }
    /// Gives back `runs` and postponed runs, and detaches from the engine. A second call does nothing.
    pub fn close(&self, runs: impl FnOnce() -> Vec<Run>) -> Result<()> {
        let _one = lock(&self.attaching); // not in the middle of a handover
        if self.life.closed.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.handover.stop_listening();
        let mut runs = runs();
        runs.append(&mut lock(&self.to_unlease));
        let attachment = self.attachment.load_full();
        if !runs.is_empty() {
            let _ = attachment.transport.submit(Request::Unlease { runs }, Box::new(|_| {}));
        }
        let left = attachment.transport.close();
        fail_all(attachment.transport.retire(), &closed_error());
        self.traffic.arrivals.note();
        left
    }
}

/// Fails requests that no engine will answer.
pub(super) fn fail_all(pending: Vec<Pending>, error: &Error) {
    for pending in pending {
        (pending.done)(Response::Failed(error.clone()));
    }
}

/// Returns the milliseconds of a clock that takes some ns to read and is some ms late.
#[inline]
fn coarse_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}

#[cold]
fn closed_error() -> Error {
    Error::new(ErrorKind::InvalidInput, "store").because("it was closed").try_next("open it again")
}
