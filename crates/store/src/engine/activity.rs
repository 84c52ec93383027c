//! Activities (background services): what an engine does on its own account, beside answering requests.
//!
//! Each owns its fields and works on the [`Core`]. An activity must not know another one: it requests work from another
//! by an [`Ask`], and only this file knows which activity handles which kind. To add an activity: its file, and a line
//! in [`Activities`].

use std::collections::{HashSet, VecDeque};

use cenote_model::{Error, Finding, ObjectKey};

use super::Core;
use super::carrying::Carrying;
use super::cuts::Cutting;
use super::devices::Devices;
use super::draining::Draining;
use super::journaling::Journaling;
use super::repacking::Repacking;
use super::repairing::Repairing;
use super::tiering::Tiering;
use super::values::Values;
use super::verifying::Verifying;
use crate::map::{DeviceIndex, Ext};
use crate::placing::{Identity, Placing, Target};
use crate::work::Job;

/// Urgency of jobs, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// A response waits for it, or data that are to survive power loss.
    Awaited,
    /// Bytes that cannot be trusted where they are.
    Repair,
    /// Moves that readers, people and policies want.
    Move,
    /// Copies for cuts, and moves off a device.
    Copy,
    /// Keeps memory and the journal small.
    Housekeeping,
    /// When there is nothing else to do.
    Idle,
}

impl Urgency {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [Self::Awaited, Self::Repair, Self::Move, Self::Copy, Self::Housekeeping, Self::Idle];
}

/// What an activity owes the engine. Its jobs name their completion where they are started ([`Core::start`]).
pub trait Activity {
    /// Does what time demands. Called every few milliseconds.
    fn tick(&mut self, _core: &mut Core) {}
    /// Returns the next job of that urgency.
    fn next_job(&mut self, _core: &mut Core, _urgency: Urgency) -> Option<Job> {
        None
    }
}

/// An activity that the engine has.
pub trait Registered: Activity + 'static {
    /// Returns this activity.
    fn of(all: &mut Activities) -> &mut Self;
}

macro_rules! activities {
    ($($name:ident: $kind:ty,)+) => {
        /// All activities, in the order in which they are asked for jobs of the same urgency.
        #[derive(Default)]
        pub(crate) struct Activities {
            $(pub $name: $kind,)+
        }
        $(impl Registered for $kind {
            fn of(all: &mut Activities) -> &mut Self {
                &mut all.$name
            }
        })+
        impl Activities {
            /// Calls `visit` with each until it returns something.
            pub fn find<T>(&mut self, mut visit: impl FnMut(&mut dyn Activity) -> Option<T>) -> Option<T> {
                $(if let Some(found) = visit(&mut self.$name) {
                    return Some(found);
                })+
                None
            }
        }
    };
}

activities! {
    values: Values,
    cuts: Cutting,
    journaling: Journaling,
    carrying: Carrying,
    repairing: Repairing,
    draining: Draining,
    tiering: Tiering,
    verifying: Verifying,
    devices: Devices,
    repacking: Repacking,
}

/// A request (internal event) of one activity, or of the core, to another.
pub enum Ask {
    /// Give up copies that nobody needs.
    GiveUpCopies(Vec<Placing>),
    /// Read a doubted copy before the other place is given up. `place`: the range as text; `waiter`: the move for which
    /// a request waits.
    CheckCopy { key: ObjectKey, placing: Placing, place: String, waiter: Option<u64> },
    /// Let an extent that the scrub found bad fall back to its copy, if that is good.
    Rescue { key: ObjectKey, placing: Placing, finding: Finding },
    /// Write a bad copy again.
    Mend { target: Target, ext: Box<Ext>, copy: usize, finding: Finding },
    /// Record damage of an object's bytes.
    Report { key: ObjectKey, offset: u64, len: u32, dev: DeviceIndex, what: String },
    /// Record damage that the scrub could not repair.
    NotRepaired(Finding),
    /// Handle a failure to move bytes off this device.
    MovesFailed { error: Error, leaving: DeviceIndex },
    /// Count the end of one of the moves for which a reader or a person waits.
    MoveOver { waiter: u64, error: Option<Error> },
}

/// Requests not handled yet. All are handled before the call that made them returns.
#[derive(Default)]
pub struct Asks {
    queue: VecDeque<Ask>,
    /// Extents whose copy waits to be read before their eviction.
    pub doubted: HashSet<Identity>,
}

impl Asks {
    /// Queues a request.
    pub fn push(&mut self, ask: Ask) {
        self.queue.push_back(ask);
    }
}

impl Activities {
    /// Handles all queued requests.
    pub fn settle(&mut self, core: &mut Core) {
        while let Some(ask) = core.asks.queue.pop_front() {
            match ask {
                Ask::GiveUpCopies(copies) => self.repairing.give_up_copies(copies),
                Ask::CheckCopy { key, placing, place, waiter } => {
                    self.repairing.check_copy(key, placing, place, waiter);
                }
                Ask::Rescue { key, placing, finding } => self.repairing.rescue_found(key, placing, finding),
                Ask::Mend { target, ext, copy, finding } => {
                    self.repairing.mend_copy(core, target, (&ext, copy), finding);
                }
                Ask::Report { key, offset, len, dev, what } => {
                    self.verifying.add_finding(core, key, offset, len, dev, &what);
                }
                Ask::NotRepaired(finding) => self.verifying.not_repaired(finding),
                Ask::MovesFailed { error, leaving } => self.draining.moves_failed(core, &error, leaving),
                Ask::MoveOver { waiter, error } => self.tiering.one_over(core, waiter, error.as_ref()),
            }
        }
    }
    /// Ticks each activity.
    pub fn tick(&mut self, core: &mut Core) {
        self.find(|activity| -> Option<()> {
            activity.tick(core);
            None
        });
        self.settle(core);
    }
    /// Returns the most urgent job.
    pub fn next_job(&mut self, core: &mut Core) -> Option<Job> {
        let job = Urgency::ALL.into_iter().find_map(|urgency| self.find(|activity| activity.next_job(core, urgency)));
        self.settle(core);
        job
    }
}
