//! The engines of a store with their threads. Of each: one thread ticks, some do its I/O, one syncs its journal. One
//! thread measures the devices.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cenote_device::Device;
use cenote_device::control::is_counting;
use cenote_host::{fork, memory};
use cenote_model::{DeviceId, DeviceInfo, Error, ErrorKind, Request, Response, Result, Telemetry, Timed};
use cenote_store::{Engine, Job, JobDone, SessionId, SessionInfo, Ticket};

use crate::clients::Served;
use crate::handling::Handling;
use crate::merging;
use crate::profile::QUIET;
use crate::words::Words;

/// Called once with the response to a request that could not be answered immediately.
pub type Reply = Box<dyn FnOnce(Response) + Send>;

/// See [`Service::watch`].
pub type Watch = Box<dyn Fn() -> Option<Error> + Send + Sync>;

const JOB_THREADS: usize = 2;
/// Interval of the checks whether the store still exists.
const WATCH_EVERY: Duration = Duration::from_millis(250);
/// Interval of ticks while there is work: a tenth of the journal's group commit.
const TICK_BUSY: Duration = Duration::from_millis(1);
/// Interval of ticks without work, for scrubbing and for time-driven events.
const TICK_IDLE: Duration = Duration::from_millis(250);
/// How long the service counts as busy after the last request: several group commits.
const BUSY_LINGER: Duration = Duration::from_millis(60);

/// The running engines of a store. Requests may come from any thread.
pub struct Service {
    /// In the order of their homes; the first is the landlord.
    pub(crate) homes: Vec<Arc<Shared>>,
    /// Held by requests that give a container a label, since no two engines may have the same.
    pub(crate) labels: Mutex<()>,
    /// In a cluster: which words of the home other nodes trust. There, and with several engines: which requests wait.
    pub(crate) words: OnceLock<Arc<Words>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Fork generation of the service: a forked child has a copy of the memory and must not touch the store with it.
    generation: u64,
}

/// One engine and what its threads share.
pub(crate) struct Shared {
    pub(crate) engine: Mutex<Guarded>,
    /// The tenants, for the landlord.
    tenants: OnceLock<Vec<Arc<Shared>>>,
    /// Syncs of the journal have their own queue and thread: copies to slow devices would delay them.
    brief_jobs: JobQueue,
    jobs: JobQueue,
    tick_lock: Mutex<()>,
    tick_wake: Condvar,
    /// The tick thread sleeps long; whoever brings work wakes it.
    pub(crate) idle: AtomicBool,
    /// Number of the service's own threads that want the engine. Threads with requests let them go first: locks are not
    /// fair, and a stream of requests must not keep the engine from syncing its journal.
    pub(crate) turns_due: AtomicUsize,
    pub(crate) requests: AtomicU64,
    pub(crate) stop: AtomicBool,
    /// Reports that the store was deleted or taken over while the engine runs.
    watch: OnceLock<Watch>,
    /// Set once the store is gone: nothing is acknowledged any more.
    pub(crate) gone: AtomicBool,
    /// Why; the landlord has it.
    pub(crate) gone_why: OnceLock<Error>,
    /// Set after some time without requests.
    pub(crate) quiet: AtomicBool,
    /// True if the engine has a device to measure.
    pub(crate) profile_due: Mutex<bool>,
    pub(crate) profile_wake: Condvar,
}

/// Jobs that wait for a thread.
#[derive(Default)]
struct JobQueue {
    jobs: Mutex<VecDeque<Job>>,
    wake: Condvar,
}

pub(crate) struct Guarded {
    /// `None` once closed.
    pub(crate) engine: Option<Engine>,
    /// Waiting requests, with their arrival times.
    pub(crate) waiters: HashMap<Ticket, (Reply, Instant)>,
    jobs_running: usize,
    /// Counts requests, for sampled timing.
    pub(crate) handled: u32,
}

impl Service {
    /// Starts the threads of the engines, which are in the order of their homes.
    pub fn start(engines: Vec<Engine>) -> Arc<Self> {
        let job_threads = (JOB_THREADS / engines.len().max(1)).max(1);
        let homes: Vec<Arc<Shared>> = engines.into_iter().map(Shared::of).collect();
        let mut threads = Vec::new();
        for shared in &homes {
            threads.push(spawn("cenote-tick", shared, Shared::tick_loop));
            threads.push(spawn("cenote-journal", shared, |shared| shared.job_loop(&shared.brief_jobs)));
            let job_loop: fn(&Shared) = |shared| shared.job_loop(&shared.jobs);
            threads.extend((0..job_threads).map(|_| spawn("cenote-job", shared, job_loop)));
        }
        if let [landlord, tenants @ ..] = homes.as_slice() {
            let _ = landlord.tenants.set(tenants.to_vec());
            threads.push(spawn("cenote-profile", landlord, Shared::profile_loop));
        }
        let generation = fork::generation();
        let (labels, words) = (Mutex::default(), OnceLock::new());
        Arc::new(Self { homes, labels, words, threads: Mutex::new(threads), generation })
    }
    /// The engine that knows the store as a whole.
    pub(crate) fn landlord(&self) -> &Shared {
        &self.homes[0]
    }
    /// Calls `watch` several times a second to check that the store is still this process's. Once it reports that it is
    /// not, every request fails with that error.
    pub fn watch(&self, watch: Watch) {
        let _ = self.landlord().watch.set(watch);
    }
    /// Returns true once it is being closed.
    pub(crate) fn is_stopping(&self) -> bool {
        self.landlord().stop.load(Ordering::SeqCst)
    }
    /// Locks the engine for a batch of requests. Of several, each request locks its own.
    pub fn lock(&self) -> Handling<'_> {
        Handling::of(self)
    }
    /// Number of batches of requests handled so far.
    pub fn requests(&self) -> u64 {
        self.homes.iter().map(|shared| shared.requests.load(Ordering::Relaxed)).sum()
    }
    /// Handles one request and waits for its response.
    pub fn call(&self, session: SessionId, seq: u64, request: Request) -> Response {
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let ready = self.lock().handle(session, seq, request, || Box::new(move |response| drop(send.send(response))));
        ready.unwrap_or_else(|| receive.recv().unwrap_or_else(|_| Response::Failed(closed())))
    }
    /// Opens a session with every engine, or finds the one with the same nonce. Its id is the landlord's.
    pub fn session_open(&self, who: &SessionInfo) -> Result<SessionId> {
        let session = self.with_engine(|engine| engine.session_open(who.clone()))??;
        for tenant in &self.homes[1..] {
            let opened = tenant.with_engine(|engine| engine.session_open_as(session, who.clone()));
            if let Err(error) = opened.flatten() {
                self.session_close(session);
                return Err(error);
            }
        }
        Ok(session)
    }
    /// Ends a session whose process left or died.
    pub(crate) fn session_end(&self, session: SessionId) {
        // The landlord last: a session that it does not know is closed.
        for shared in self.homes.iter().rev() {
            let _ = shared.with_engine(|engine| engine.session_close(session));
            shared.kick();
        }
    }
    /// The engines' sessions, including those of an earlier daemon.
    pub fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        let mut all = self.with_engine(|engine| engine.sessions()).unwrap_or_default();
        for tenant in &self.homes[1..] {
            let known = tenant.with_engine(|engine| engine.sessions()).unwrap_or_default();
            let fresh: Vec<_> = known.into_iter().filter(|(id, _)| all.iter().all(|(other, _)| other != id)).collect();
            all.extend(fresh);
        }
        all
    }
    /// The device with this id, for access to its segments.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        self.with_engine(|engine| engine.device(id)).ok()?
    }
    /// The devices and their use by all engines.
    pub fn device_infos(&self) -> Result<Vec<DeviceInfo>> {
        self.with_engines(|engine| engine.device_infos()).map(merging::devices)
    }
    /// The store's telemetry, of all engines.
    pub fn telemetry(&self, hot: u32) -> Result<Telemetry> {
        self.with_engines(|engine| engine.telemetry(hot)).map(|all| merging::telemetry(all, hot))
    }
    /// Calls the engine that knows the store as a whole for something that no request covers.
    pub fn with_engine<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> Result<T> {
        self.landlord().with_engine(ask)
    }
    /// Calls every engine, one after the other.
    fn with_engines<T>(&self, mut ask: impl FnMut(&mut Engine) -> T) -> Result<Vec<T>> {
        self.homes.iter().map(|shared| shared.with_engine(&mut ask)).collect()
    }
    /// Finishes running work, writes a checkpoint and closes the engine. Requests from then on fail with `Busy`. Does
    /// nothing the second time, or in a forked child.
    pub fn close(&self) -> Result<()> {
        if fork::generation() != self.generation {
            return Ok(());
        }
        self.drain();
        for shared in &self.homes {
            shared.stop.store(true, Ordering::SeqCst);
            shared.kick();
            shared.wake_job_threads();
            shared.profile_now();
        }
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            let _ = thread.join();
        }
        // The landlord last: its newest checkpoint tells which state of the directory a memory belongs to.
        let mut result = Ok(());
        for shared in self.homes.iter().rev() {
            let (engine, waiters) = {
                let mut guard = lock(&shared.engine);
                (guard.engine.take(), std::mem::take(&mut guard.waiters))
            };
            result = result.and(engine.map_or(Ok(()), |mut engine| engine.close()));
            for (_, (reply, _)) in waiters {
                reply(Response::Failed(closed()));
            }
        }
        result
    }
    /// Gives requests that wait for I/O a bounded time to finish.
    fn drain(&self) {
        const PATIENCE: Duration = Duration::from_secs(30);
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            self.homes.iter().for_each(|shared| shared.kick());
            if self.homes.iter().all(|shared| lock(&shared.engine).waiters.is_empty()) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Served for Service {
    fn session_open(&self, who: &SessionInfo) -> Result<SessionId> {
        Service::session_open(self, who)
    }
    fn session_close(&self, session: SessionId) {
        Service::session_close(self, session);
    }
    /// Not those of other nodes, which say themselves when they end.
    fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        let mut all = Service::sessions(self);
        all.retain(|(_, who)| who.node.is_none());
        all
    }
    fn carry_out(&self, session: SessionId, seq: u64, request: Request) -> Result<Option<Response>> {
        let answer = self.handle_or_wait(session, seq, request);
        if let Some(Response::Failed(_)) = answer {
            self.with_engine(|_| ())?; // it is being closed
        }
        Ok(answer)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if fork::generation() == self.generation {
            if let Err(error) = self.close() {
                tracing::error!(%error, "closing the store failed; its journal has everything that was acknowledged");
            }
        } else {
            // A forked child: the copy of the engine must not run its destructors on shared files.
            self.homes.iter().cloned().for_each(std::mem::forget);
            std::mem::take(&mut *lock(&self.threads)).into_iter().for_each(std::mem::forget);
        }
    }
}

impl Shared {
    fn of(mut engine: Engine) -> Arc<Self> {
        engine.set_counting(is_counting());
        Arc::new(Self {
            engine: Mutex::new(Guarded { engine: Some(engine), waiters: HashMap::new(), jobs_running: 0, handled: 0 }),
            tenants: OnceLock::new(),
            brief_jobs: JobQueue::default(),
            jobs: JobQueue::default(),
            tick_lock: Mutex::new(()),
            tick_wake: Condvar::new(),
            idle: AtomicBool::new(false),
            turns_due: AtomicUsize::new(0),
            requests: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            watch: OnceLock::new(),
            gone: AtomicBool::new(false),
            gone_why: OnceLock::new(),
            quiet: AtomicBool::new(false),
            profile_due: Mutex::new(false),
            profile_wake: Condvar::new(),
        })
    }
    /// Calls the engine for something that no request covers.
    pub(crate) fn with_engine<T>(&self, ask: impl FnOnce(&mut Engine) -> T) -> Result<T> {
        lock(&self.engine).engine.as_mut().map(ask).ok_or_else(closed)
    }
    /// The other engines of the store, if this is the landlord's.
    pub(crate) fn tenants(&self) -> &[Arc<Shared>] {
        self.tenants.get().map_or(&[], Vec::as_slice)
    }
    /// Number of batches of requests that this engine, and if it is the landlord every other one, has handled.
    pub(crate) fn requests_seen(&self) -> u64 {
        let count = |shared: &Shared| shared.requests.load(Ordering::Relaxed);
        count(self) + self.tenants().iter().map(|tenant| count(tenant)).sum::<u64>()
    }
    #[cold]
    pub(crate) fn let_turns_go_first(&self) {
        const PATIENCE: Duration = Duration::from_micros(200);
        let begin = Instant::now();
        while self.turns_due.load(Ordering::Relaxed) > 0 && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    }
    /// Makes the tick thread tick now.
    pub(crate) fn kick(&self) {
        self.idle.store(false, Ordering::Relaxed);
        drop(lock(&self.tick_lock));
        self.tick_wake.notify_one();
    }
    fn wake_job_threads(&self) {
        for queue in [&self.brief_jobs, &self.jobs] {
            drop(lock(&queue.jobs));
            queue.wake.notify_all();
        }
    }
    fn tick_loop(&self) {
        let (mut seen, mut active_at, mut asked_at) = (0, Instant::now(), Instant::now());
        let (mut watched_at, mut seen_of_all) = (Instant::now(), 0);
        while !self.stop.load(Ordering::SeqCst) {
            if watched_at.elapsed() >= WATCH_EVERY {
                watched_at = Instant::now();
                self.look_whether_gone();
            }
            let Turn { working, due } = self.turn(None);
            let (requests, of_all) = (self.requests.load(Ordering::Relaxed), self.requests_seen());
            if of_all != seen_of_all {
                (seen_of_all, asked_at) = (of_all, Instant::now());
            }
            if requests != seen || working {
                (seen, active_at) = (requests, Instant::now());
            }
            let busy = active_at.elapsed() < BUSY_LINGER;
            self.quiet.store(asked_at.elapsed() >= QUIET, Ordering::SeqCst);
            let guard = lock(&self.tick_lock);
            self.idle.store(!busy, Ordering::SeqCst);
            if !busy && self.requests.load(Ordering::SeqCst) != seen {
                continue; // one came just now and may not have seen `idle`
            }
            let pause = if busy { TICK_BUSY } else { due.map_or(TICK_IDLE, |due| due.clamp(TICK_BUSY, TICK_IDLE)) };
            drop(self.tick_wake.wait_timeout(guard, pause));
        }
    }
    /// The error for requests once the store is gone.
    #[cold]
    pub(crate) fn gone_error(&self) -> Error {
        self.gone_why.get().cloned().unwrap_or_else(gone)
    }
    fn look_whether_gone(&self) {
        if self.gone.load(Ordering::Relaxed) {
            return;
        }
        let Some(error) = self.watch.get().and_then(|watch| watch()) else { return };
        tracing::error!(%error, "nothing is acknowledged any more");
        for shared in self.tenants().iter().map(Arc::as_ref).chain([self]) {
            let _ = shared.gone_why.set(error.clone());
            shared.gone.store(true, Ordering::SeqCst);
        }
    }
    fn job_loop(&self, queue: &JobQueue) {
        loop {
            let job = {
                let mut jobs = lock(&queue.jobs);
                loop {
                    if let Some(job) = jobs.pop_front() {
                        break job;
                    }
                    if self.stop.load(Ordering::SeqCst) {
                        return;
                    }
                    jobs = queue.wake.wait(jobs).unwrap_or_else(std::sync::PoisonError::into_inner);
                }
            };
            let (timed, begin) = (job.timed(), Instant::now());
            let done = run(job);
            self.turn(Some((done, timed, nanos(begin))));
        }
    }
    /// One turn of the engine: takes in a finished job, ticks, hands out jobs, delivers responses.
    fn turn(&self, done: Option<(JobDone, Timed, u64)>) -> Turn {
        let (mut brief, mut fresh) = (VecDeque::new(), VecDeque::new());
        let (finished, working, measure, due) = {
            self.turns_due.fetch_add(1, Ordering::SeqCst);
            let mut guard = lock(&self.engine);
            self.turns_due.fetch_sub(1, Ordering::SeqCst);
            let guard = &mut *guard;
            let Some(engine) = guard.engine.as_mut() else { return Turn::default() };
            if let Some((done, timed, ns)) = done {
                engine.note_took(timed, ns);
                engine.finish_job(done);
                guard.jobs_running -= 1;
            }
            engine.tick();
            if !self.stop.load(Ordering::SeqCst) {
                while let Some(job) = engine.next_job() {
                    guard.jobs_running += 1;
                    if job.is_brief() { brief.push_back(job) } else { fresh.push_back(job) }
                }
            }
            let finished: Vec<(Reply, Response)> = engine
                .take_finished()
                .into_iter()
                .filter_map(|(ticket, response)| {
                    let (reply, begin) = guard.waiters.remove(&ticket)?;
                    engine.note_took(Timed::Flush, nanos(begin));
                    Some((reply, response))
                })
                .collect();
            let is_mine = engine.home().0 == 0; // devices are the landlord's
            let measure = is_mine && engine.is_measuring_due(self.quiet.load(Ordering::SeqCst));
            for finding in engine.take_findings() {
                let (object, range, tier) = (finding.key, (finding.offset, finding.len), &finding.device);
                tracing::error!(%object, ?range, %tier, what = %finding.what, "damage that the scrub could not repair");
            }
            (finished, guard.jobs_running > 0, measure, engine.tick_due_in())
        };
        if measure {
            self.profile_now();
        }
        for (queue, mut fresh) in [(&self.brief_jobs, brief), (&self.jobs, fresh)] {
            if !fresh.is_empty() {
                lock(&queue.jobs).append(&mut fresh);
                queue.wake.notify_all();
            }
        }
        for (reply, response) in finished {
            reply(response);
        }
        Turn { working, due }
    }
}

/// The result of an engine's turn.
#[derive(Default)]
struct Turn {
    /// Jobs are running.
    working: bool,
    /// Time until the next turn, if nothing happens before.
    due: Option<Duration>,
}

/// Locks a mutex even if another thread panicked while holding it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Nanoseconds since `begin`.
pub(crate) fn nanos(begin: Instant) -> u64 {
    begin.elapsed().as_nanos() as u64
}

/// Runs a job. One that builds much in memory gets a thread that ends with it, so that the allocator gets whole pages
/// back.
fn run(job: Job) -> JobDone {
    if !job.is_large() {
        return job.run();
    }
    let job = Mutex::new(Some(job));
    let take = || lock(&job).take().map(Job::run);
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cenote-large".into()).spawn_scoped(scope, take);
        thread.ok().and_then(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    memory::release();
    done.or_else(take).expect("a job runs once")
}

fn spawn(name: &str, shared: &Arc<Shared>, body: fn(&Shared)) -> JoinHandle<()> {
    let shared = shared.clone();
    std::thread::Builder::new().name(name.into()).spawn(move || body(&shared)).expect("the system starts a thread")
}

#[cold]
pub(crate) fn gone() -> Error {
    Error::new(ErrorKind::Disconnected, "store")
        .because("its directory was deleted while it was open")
        .try_next("restore the directory from a copy, and open it anew")
}

#[cold]
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Busy, "store").because("it is being closed").try_next("open it again")
}
