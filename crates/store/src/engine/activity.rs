//! Activities: what an engine does on its own account, beside answering requests.
//!
//! Each owns its fields and works on the [`Core`]. An activity must not know another one: what it wants of one, it asks
//! for ([`Ask`]), and whose matter that is stands here alone. To add one: its file, and a line in [`Activities`].

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
use crate::map::Ext;
use crate::placing::{Identity, Placing, Target};
use crate::work::Job;

/// How urgent jobs are, the most urgent first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Urgency {
    /// Somebody waits for the answer, or for what is to survive power loss.
    Awaited,
    /// Bytes that cannot be trusted where they are.
    Repair,
    /// Moves that readers, people and policies want.
    Move,
    /// Copies for cuts, and what is to leave a device.
    Copy,
    /// Memory and the journal stay small.
    Housekeeping,
    /// When there is nothing else to do.
    Idle,
}

impl Urgency {
    /// All of them, in order.
    pub const ALL: [Self; 6] = [Self::Awaited, Self::Repair, Self::Move, Self::Copy, Self::Housekeeping, Self::Idle];
}

/// What an activity owes the engine. A job's end is given where the job is started ([`Core::start`]).
pub trait Activity {
    /// What time demands; called every few milliseconds.
    fn tick(&mut self, _core: &mut Core) {}
    /// The next job of that urgency.
    fn next_job(&mut self, _core: &mut Core, _urgency: Urgency) -> Option<Job> {
        None
    }
}

/// An activity that the engine has.
pub trait Registered: Activity + 'static {
    /// It, among all.
    fn of(all: &mut Activities) -> &mut Self;
}

macro_rules! activities {
    ($($name:ident: $kind:ty,)+) => {
        /// All of them, in the order in which they are asked for jobs of the same urgency.
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
            /// Calls `visit` with each until it gives something.
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

/// What one activity, or the core, wants of another.
pub enum Ask {
    /// Copies that nobody needs are to go.
    GiveUpCopies(Vec<Placing>),
    /// Bytes are to leave for a copy that is doubted: it is read first. `place`: for a person; `waiter`: the move for which
    /// somebody waits.
    CheckCopy { key: ObjectKey, placing: Placing, place: String, waiter: Option<u64> },
    /// The scrub found bytes bad that have a copy: they fall back to it, if it is good.
    Rescue { key: ObjectKey, placing: Placing, finding: Finding },
    /// A copy was found bad, and is to be written again.
    Mend { target: Target, ext: Box<Ext>, finding: Finding },
    /// Something is wrong with bytes of an object.
    Report { key: ObjectKey, offset: u64, len: u32, dev: u8, what: String },
    /// The scrub found something that could not be repaired.
    NotRepaired(Finding),
    /// Bytes could not leave this device.
    MovesFailed { error: Error, leaving: u8 },
    /// One of the moves for which a reader or a person waits came to its end.
    MoveOver { waiter: u64, error: Option<Error> },
}

/// What was asked for and not done yet: at the end of the call in which it was asked it is.
#[derive(Default)]
pub struct Asks {
    queue: VecDeque<Ask>,
    /// Extents whose copy waits to be read before they leave for it.
    pub doubted: HashSet<Identity>,
}

impl Asks {
    /// Asks for something.
    pub fn push(&mut self, ask: Ask) {
        self.queue.push_back(ask);
    }
}

impl Activities {
    /// Has everything done that was asked for.
    pub fn settle(&mut self, core: &mut Core) {
        while let Some(ask) = core.asks.queue.pop_front() {
            match ask {
                Ask::GiveUpCopies(copies) => self.repairing.give_up_copies(copies),
                Ask::CheckCopy { key, placing, place, waiter } => {
                    self.repairing.check_copy(key, placing, place, waiter);
                }
                Ask::Rescue { key, placing, finding } => self.repairing.rescue_found(key, placing, finding),
                Ask::Mend { target, ext, finding } => self.repairing.mend_copy(core, target, &ext, finding),
                Ask::Report { key, offset, len, dev, what } => {
                    self.verifying.add_finding(core, key, offset, len, dev, &what);
                }
                Ask::NotRepaired(finding) => self.verifying.not_repaired(finding),
                Ask::MovesFailed { error, leaving } => self.draining.moves_failed(core, &error, leaving),
                Ask::MoveOver { waiter, error } => self.tiering.one_over(core, waiter, error.as_ref()),
            }
        }
    }
    /// What time demands of each.
    pub fn tick(&mut self, core: &mut Core) {
        self.find(|activity| -> Option<()> {
            activity.tick(core);
            None
        });
        self.settle(core);
    }
    /// The most urgent job.
    pub fn next_job(&mut self, core: &mut Core) -> Option<Job> {
        let job = Urgency::ALL.into_iter().find_map(|urgency| self.find(|activity| activity.next_job(core, urgency)));
        self.settle(core);
        job
    }
}
