//! Jobs: I/O that runs without the engine, on any thread.

use std::sync::Arc;

use cenote_device::{Clock, Device};
use cenote_model::{Seen, Timed};

use crate::copying::{Copied, Copy, Part};
use crate::engine::{Activities, Core};

/// I/O that needs no engine, and its result.
pub(crate) trait Work: Send + 'static {
    /// The result.
    type Output: Send + 'static;
    /// The histogram that its time belongs to.
    const TIMED: Timed;
    /// True if it is short and others wait for it: it should not queue behind copies, which take long.
    const IS_BRIEF: bool = false;
    /// The devices whose space it reads or writes. Work that names none may take as long as a disk likes: space retired
    /// meanwhile becomes free all the same.
    fn devices(&self) -> Vec<&Arc<dyn Device>>;
    /// Returns true if it builds much in memory: it should run on a thread that ends with it, so that the allocator gets
    /// whole pages back.
    fn is_large(&self) -> bool {
        false
    }
    /// Does the work.
    fn run(self, io: &mut Io<'_>) -> Self::Output;
}

/// The context of running work.
pub(crate) struct Io<'a> {
    pub clock: &'a dyn Clock,
    /// Accesses of devices that copies have measured.
    pub seen: Vec<(Arc<dyn Device>, Seen)>,
}

/// What the engine does with a job's result.
pub(crate) type Finish = Box<dyn FnOnce(&mut Activities, &mut Core) + Send>;

/// I/O to be done without the engine.
pub struct Job {
    pub(crate) id: JobId,
    pub(crate) timed: Timed,
    pub(crate) is_brief: bool,
    pub(crate) is_large: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) run: Box<dyn FnOnce(&mut Io<'_>) -> Finish + Send>,
}

/// Identifies a job, and the engine that began it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobId {
    pub engine: u64,
    pub number: u64,
}

/// A job that was run, to be given to [`crate::Engine::finish_job`].
pub struct JobDone {
    pub(crate) id: JobId,
    pub(crate) finish: Finish,
    /// Accesses of devices that the job has measured.
    pub(crate) seen: Vec<(Arc<dyn Device>, Seen)>,
}

impl Job {
    /// The histogram that its time belongs to.
    pub fn timed(&self) -> Timed {
        self.timed
    }
    /// Returns true if it is short and others wait for its result: it should not queue behind copies, which take long.
    pub fn is_brief(&self) -> bool {
        self.is_brief
    }
    /// Returns true if it builds much in memory: it should run on a thread that ends with it, so that the allocator gets
    /// whole pages back.
    pub fn is_large(&self) -> bool {
        self.is_large
    }
    /// Does the I/O.
    pub fn run(self) -> JobDone {
        let mut io = Io { clock: &*self.clock, seen: Vec::new() };
        let finish = (self.run)(&mut io);
        JobDone { id: self.id, finish, seen: io.seen }
    }
}

impl Work for Copy {
    /// The result of each piece, and whether the target could not be synced.
    type Output = (Vec<Copied>, bool);
    const TIMED: Timed = Timed::Copy;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        self.pieces.iter().map(|piece| &piece.part.device).chain([&self.target]).collect()
    }
    fn run(self, io: &mut Io<'_>) -> Self::Output {
        Self::run(self, io.clock, &mut io.seen)
    }
}

/// Lets a device check and make good what no read sees, for about a second.
pub(crate) struct MendDevice {
    pub device: Option<Arc<dyn Device>>,
    /// Where the previous one ended.
    pub from: Option<String>,
}

impl Work for MendDevice {
    /// Where to go on.
    type Output = Option<String>;
    const TIMED: Timed = Timed::Verify;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        Vec::new() // it reads no space that the engine gives
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        // What it cannot make good, reads find.
        let mended = self.device.map_or(Ok(None), |device| device.mend(self.from.as_deref()));
        mended.unwrap_or_else(|error| {
            tracing::warn!(%error, "a device could not be checked");
            None
        })
    }
}

/// Reads parts and compares them with their checksums. Those that are bad are written again from another copy of their device,
/// if there is one.
pub(crate) struct CheckParts(pub Vec<Part>);

impl Work for CheckParts {
    /// What is wrong with each part.
    type Output = Vec<Option<String>>;
    const TIMED: Timed = Timed::Verify;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        self.0.iter().map(|part| &part.device).collect()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        let mut buffer = Vec::new();
        let look = |part: &Part| match part.check(&mut buffer) {
            Err(error) if !part.heal(&mut buffer) => Some(error.cause().to_owned()),
            _ => None,
        };
        self.0.iter().map(look).collect()
    }
}
