//! Asynchronous work: raw data transferred by a thread of the connector, and handles closed afterwards.
//!
//! One thread runs the jobs in the order of submission, so that each sees the effects of earlier ones. It must never
//! call libhdf5, which may not be thread-safe. Work that needs libhdf5 (closing a handle) is deferred until the jobs
//! before it are done, and carried out by the next thread of the program that is in an HDF5 call. A forked child starts
//! with no work in progress: its parent's work stays with the parent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use cenote::{Error, ErrorKind};
use parking_lot::{Condvar, Mutex};

use crate::Result;
use crate::error::fail;

/// The work of a task.
pub type Work = Box<dyn FnOnce() -> Result<()> + Send>;

/// The state of a task.
#[derive(Clone, Debug)]
pub enum Status {
    /// Not finished.
    UnderWay,
    /// Finished.
    Succeeded,
    /// Finished without success.
    Failed(Arc<Error>),
    /// Cancelled before it began.
    Canceled,
}

enum Phase {
    Waiting(Work),
    Running,
    Over(Status),
}

/// An asynchronous operation.
pub struct Task {
    process: u32,
    /// Number of jobs that must finish before, if it is not a job itself.
    after: Option<u64>,
    phase: Mutex<Phase>,
    times: Mutex<Times>,
}

/// Times of a task.
#[derive(Clone, Copy, Default)]
pub struct Times {
    /// When it began, in microseconds since 1970.
    pub begun_us: u64,
    /// How long it took, in nanoseconds.
    pub took_ns: u64,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Arc<Task>>,
    submitted: u64,
    finished: u64,
    /// Deferred work that waits for jobs and must not run on the thread.
    closings: VecDeque<Arc<Task>>,
}

/// The queue of this process; a forked child leaves the parent's queue alone.
static QUEUE: Mutex<Option<(u32, &'static Queue)>> = Mutex::new(None);
/// Number of unfinished jobs and closings, readable without the lock.
static OPEN: AtomicUsize = AtomicUsize::new(0);

fn queue() -> Result<&'static Queue> {
    let mut slot = QUEUE.lock();
    let process = std::process::id();
    if let Some((owner, queue)) = *slot
        && owner == process
    {
        return Ok(queue);
    }
    let queue: &'static Queue = Box::leak(Box::default());
    OPEN.store(0, Ordering::Release);
    start(queue)?;
    if slot.is_none() {
        // SAFETY: the function takes nothing and lives as long as the library, which is never unloaded.
        unsafe { libc::atexit(at_exit) };
    }
    *slot = Some((process, queue));
    Ok(queue)
}

/// Starts the thread with all signals blocked: signals are for the program.
fn start(queue: &'static Queue) -> Result<()> {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: both sets are places of ours; the first is filled before it is used.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), before.as_mut_ptr());
    }
    let started = std::thread::Builder::new().name("cenote-hdf5".into()).spawn(move || serve(queue));
    // SAFETY: the set was filled by the call above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started.map(drop).map_err(|e| Error::io("the thread for asynchronous reads and writes", &e))
}

/// Finishes the work in progress when a program ends without closing anything.
extern "C" fn at_exit() {
    let mine = QUEUE.lock().filter(|(owner, _)| *owner == std::process::id());
    if let Some((_, queue)) = mine {
        queue.wait_for_jobs(u64::MAX, None);
    }
}

fn serve(queue: &'static Queue) {
    loop {
        let task = {
            let mut jobs = queue.jobs.lock();
            loop {
                if let Some(task) = jobs.waiting.pop_front() {
                    break task;
                }
                queue.changed.wait(&mut jobs);
            }
        };
        task.carry_out();
        drop(task);
        queue.jobs.lock().finished += 1;
        OPEN.fetch_sub(1, Ordering::AcqRel);
        queue.changed.notify_all();
    }
}

impl Queue {
    /// Waits until the first `count` jobs are done (all, if there are fewer). Returns false on timeout.
    fn wait_for_jobs(&self, count: u64, until: Option<Instant>) -> bool {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.finished >= count.min(jobs.submitted) {
                return true;
            }
            match until {
                None => self.changed.wait(&mut jobs),
                Some(until) => {
                    if self.changed.wait_until(&mut jobs, until).timed_out() {
                        return jobs.finished >= count.min(jobs.submitted);
                    }
                }
            }
        }
    }

    /// Carries out deferred work that waits for no job any more.
    fn close_due(&self) {
        loop {
            let due = {
                let mut jobs = self.jobs.lock();
                let finished = jobs.finished;
                let is_due = jobs.closings.front().is_some_and(|task| task.after.unwrap_or(0) <= finished);
                if is_due { jobs.closings.pop_front() } else { None }
            };
            let Some(task) = due else { return };
            task.carry_out();
            OPEN.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Returns true if work is in progress.
pub fn any() -> bool {
    OPEN.load(Ordering::Acquire) > 0
}

/// Submits work to the thread. The thread also drops it, before the task is finished.
pub fn submit(work: Work) -> Result<Arc<Task>> {
    let queue = queue()?;
    let task = Arc::new(Task::new(None, work));
    let mut jobs = queue.jobs.lock();
    jobs.submitted += 1;
    jobs.waiting.push_back(task.clone());
    OPEN.fetch_add(1, Ordering::AcqRel);
    drop(jobs);
    queue.changed.notify_all();
    Ok(task)
}

/// Defers work until all present work is done; a thread inside an HDF5 call will carry it out.
pub fn put_off(work: Work) -> Result<Arc<Task>> {
    let queue = queue()?;
    let mut jobs = queue.jobs.lock();
    let task = Arc::new(Task::new(Some(jobs.submitted), work));
    jobs.closings.push_back(task.clone());
    OPEN.fetch_add(1, Ordering::AcqRel);
    Ok(task)
}

/// Waits for all work in progress. Call it from a thread inside an HDF5 call.
pub fn settle() -> Result<()> {
    if any() {
        let queue = queue()?;
        queue.wait_for_jobs(u64::MAX, None);
        queue.close_due();
    }
    Ok(())
}

impl Task {
    fn new(after: Option<u64>, work: Work) -> Self {
        let (phase, times) = (Mutex::new(Phase::Waiting(work)), Mutex::default());
        Self { process: std::process::id(), after, phase, times }
    }

    fn carry_out(&self) {
        let phase = std::mem::replace(&mut *self.phase.lock(), Phase::Running);
        let work = match phase {
            Phase::Waiting(work) => work,
            over => {
                *self.phase.lock() = over;
                return;
            }
        };
        let begun = Instant::now();
        let begun_us = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as u64);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
        *self.times.lock() = Times { begun_us, took_ns: begun.elapsed().as_nanos() as u64 };
        let status = match done {
            Ok(Ok(())) => Status::Succeeded,
            Ok(Err(error)) => Status::Failed(Arc::new(error)),
            Err(_) => Status::Failed(Arc::new(
                fail(ErrorKind::Internal, "asynchronous operation", "a bug in the connector (it panicked)")
                    .try_next("report this with the program that shows it"),
            )),
        };
        *self.phase.lock() = Phase::Over(status);
    }

    /// The present state.
    pub fn status(&self) -> Status {
        if self.process != std::process::id() {
            return Status::Failed(Arc::new(
                fail(
                    ErrorKind::InvalidInput,
                    "asynchronous operation",
                    "it is the business of the process that began it",
                )
                .try_next("wait for event sets before a fork"),
            ));
        }
        match &*self.phase.lock() {
            Phase::Over(status) => status.clone(),
            _ => Status::UnderWay,
        }
    }

    /// When it ran.
    pub fn times(&self) -> Times {
        *self.times.lock()
    }

    /// Waits until it is finished, or for `timeout_ns`. Call it from a thread inside an HDF5 call.
    pub fn wait(&self, timeout_ns: u64) -> Result<Status> {
        if self.process != std::process::id() {
            return Ok(self.status());
        }
        // A deadline that the clock cannot represent means none.
        let until = Instant::now().checked_add(Duration::from_nanos(timeout_ns)).filter(|_| timeout_ns != u64::MAX);
        let queue = queue()?;
        if let Some(after) = self.after {
            if queue.wait_for_jobs(after, until) {
                queue.close_due();
            }
            return Ok(self.status());
        }
        let mut jobs = queue.jobs.lock();
        loop {
            let status = self.status();
            if !matches!(status, Status::UnderWay) {
                return Ok(status);
            }
            match until {
                None => queue.changed.wait(&mut jobs),
                Some(until) => {
                    if queue.changed.wait_until(&mut jobs, until).timed_out() {
                        return Ok(self.status());
                    }
                }
            }
        }
    }

    /// Cancels the task, unless it has begun or is a closing, which must happen.
    pub fn cancel(&self) -> Status {
        if self.process == std::process::id() && self.after.is_none() {
            let mut phase = self.phase.lock();
            if matches!(*phase, Phase::Waiting(_)) {
                *phase = Phase::Over(Status::Canceled);
            }
        }
        self.status()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;
    use std::sync::mpsc;

    use super::*;

    /// The process has one queue: its tests take turns.
    static TURN: Mutex<()> = Mutex::new(());

    #[test]
    fn jobs_go_in_order_and_closings_after_them_on_the_callers_thread() {
        let _turn = TURN.lock();
        let (go, wait) = mpsc::channel::<()>();
        let last = Arc::new(AtomicU64::new(0));
        let first = submit(Box::new(move || wait.recv().map_err(|_| fail(ErrorKind::Io, "test", "no go")))).unwrap();
        for n in 1..=50 {
            let last = last.clone();
            let in_turn = move || {
                assert_eq!(last.swap(n, Ordering::SeqCst), n - 1);
                Ok(())
            };
            submit(Box::new(in_turn)).unwrap();
        }
        let (me, seen) = (std::thread::current().id(), last.clone());
        let closing = put_off(Box::new(move || {
            assert_eq!((std::thread::current().id(), seen.load(Ordering::SeqCst)), (me, 50));
            Ok(())
        }))
        .unwrap();
        assert!(matches!(closing.wait(1_000_000).unwrap(), Status::UnderWay));
        assert!(matches!(first.wait(0).unwrap(), Status::UnderWay));
        assert!(any());
        go.send(()).unwrap();
        assert!(matches!(closing.wait(u64::MAX).unwrap(), Status::Succeeded));
        assert!(matches!(first.status(), Status::Succeeded) && first.times().begun_us > 0);
        settle().unwrap();
        assert!(!any());
    }

    #[test]
    fn what_has_not_begun_can_be_taken_back_and_failures_are_told() {
        let _turn = TURN.lock();
        let (go, wait) = mpsc::channel::<()>();
        let first = submit(Box::new(move || wait.recv().map_err(|_| fail(ErrorKind::Io, "test", "no go")))).unwrap();
        let second = submit(Box::new(|| Err(fail(ErrorKind::Full, "second", "no room")))).unwrap();
        let third = submit(Box::new(|| panic!("must not run"))).unwrap();
        assert!(matches!(third.cancel(), Status::Canceled));
        go.send(()).unwrap();
        let Status::Failed(error) = second.wait(u64::MAX).unwrap() else { panic!("it cannot succeed") };
        assert_eq!(error.kind(), ErrorKind::Full);
        assert!(matches!(second.cancel(), Status::Failed(_)));
        assert!(matches!(third.wait(u64::MAX).unwrap(), Status::Canceled));
        assert!(matches!(first.wait(u64::MAX).unwrap(), Status::Succeeded));
        settle().unwrap();
    }
}
