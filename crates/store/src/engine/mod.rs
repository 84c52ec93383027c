//! The engine: requests in, answers and jobs out.

mod apply;
mod carry;
mod changes;
mod checkpoint;
mod copied;
mod create;
mod densify;
mod destroy;
pub(crate) mod devices;
mod drain;
mod explain;
mod failing;
#[cfg(test)]
mod filled;
mod finish;
mod flush;
mod jobs;
mod lease;
mod mending;
mod open;
mod pace;
mod persist;
mod profile;
mod read;
mod readable;
mod reopen;
mod repack;
mod rewrite;
mod rights;
mod session;
mod snapshot;
mod splitting;
mod telemetry;
mod tick;
mod tiering;
mod trouble;
mod values;
mod verify;

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceInfo, Error, ErrorKind, Request, Response, Result, StoreId};

use crate::apply::Txn;
use crate::journal::Journal;
use crate::space::Tag;
use crate::state::State;
use crate::{Outcome, Seams, SessionId, StoreSummary, Ticket, Tuning};
use jobs::Jobs;

pub(crate) use carry::Carried;

pub use crate::work::{Job, JobDone};
pub use profile::Measurement;
pub use telemetry::REQUESTS_TIMED_IN;
pub(crate) use telemetry::SessionCounts;
pub(crate) use trouble::Trouble;

/// The engine of one node. See ARCHITECTURE.md.
pub struct Engine {
    seams: Seams,
    id: StoreId,
    writers: Vec<u32>,
    readers: Vec<u32>,
    settings: Tuning,
    state: State,
    journal: Journal,
    jobs: Jobs,
    waiting: Vec<flush::Waiter>,
    finished: Vec<(Ticket, Response)>,
    tickets: u64,
    checkpoint: checkpoint::Checkpoints,
    verify: verify::Verify,
    drain: drain::Draining,
    rewrites: rewrite::Rewrites,
    /// The last request's, for its room.
    txn: Txn,
    opened_ns: u64,
    /// Sessions with lower ids began with an engine before this one: what they ask first may have been done by it.
    resumed_below: u64,
    journal_dirty_since_ns: Option<u64>,
    /// A journal that cannot be synced: when a checkpoint is tried again.
    journal_retry_ns: u64,
    /// Highest device id that was given to a device of which it is not known whether it was added.
    device_id_burnt: u16,
    /// Journal position after the last deletion of a container: who waits for one that is gone waits for that.
    container_deleted_at: u64,
    habits: crate::habits::Habits,
    moved_bytes: u64,
    progress: tick::Progress,
    pace: pace::Pace,
    profiles: profile::Profiles,
    counting: telemetry::Counting,
    sweep: telemetry::Sweep,
    tiering: tiering::Tiering,
    reopening: reopen::Reopening,
    changes: changes::Changes,
    mending: mending::Mending,
    repacking: repack::Repacking,
    carrying: carry::Carrying,
    values: values::Values,
    /// How long compressing takes.
    rates: Arc<crate::packing::Rates>,
}

impl Engine {
    /// The store's id.
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Id, devices and rights.
    pub fn summary(&self) -> StoreSummary {
        StoreSummary {
            id: self.id,
            devices: self.state.space.present().map(|slot| slot.spec.clone()).collect(),
            ids: self.state.space.present().map(|slot| slot.id).collect(),
            writers: self.writers.clone(),
            readers: self.readers.clone(),
        }
    }

    /// The epoch of the last update, the engine's own included.
    pub fn epoch(&self) -> u64 {
        self.state.epoch
    }

    /// A device, for clients to map. None if there is none, or it could not be opened.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        let slot = self.state.space.slot_of(id)?;
        self.state.space.get(slot).device.clone()
    }

    /// The devices and their use.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        let leased = self.state.sessions.leased_bytes(self.state.space.slots.len());
        let slots = self.state.space.slots.iter().zip(leased).filter(|(slot, _)| !slot.removed);
        slots.map(|(slot, leased_bytes)| slot.info(leased_bytes)).collect()
    }

    /// Answers a request. `seq` numbers a session's changes from 1; 0 for what needs no exactly-once.
    pub fn handle(&mut self, session: SessionId, seq: u64, request: Request) -> Outcome {
        let Some(open) = self.state.sessions.open.get_mut(&session) else {
            return failed(
                Error::new(ErrorKind::Disconnected, format!("session {}", session.0))
                    .because("it is not open here")
                    .try_next("attach again"),
            );
        };
        self.counting.asked(open, &request, self.state.now_s);
        let is_trusted = open.info.write && open.info.bound.is_none();
        if !is_trusted && let Err(error) = self.check_rights_of(session, &request) {
            return failed(error);
        }
        match request {
            Request::Apply { checks, updates, atomic } => self.apply(session, seq, &checks, updates, atomic),
            Request::Lease { container, bytes, run_min, avoid, durability } => {
                let wanted = lease::Wanted { container, bytes, run_min, avoid: &avoid, durability };
                let outcome = ready(self.lease(session, seq, &wanted));
                self.note_lease(outcome)
            }
            Request::Unlease { runs } => ready(self.unlease(session, &runs)),
            Request::SnapshotByName { container, name, pin } => ready(self.snapshot(session, container, &name, pin)),
            Request::SnapshotUnpin { id } => ready(self.pin(session, id, false).map(|()| Response::Done)),
            Request::Flush { target } => self.flush(target),
            Request::Fetch { key, ranges, ahead, must } => self.fetch(key, &ranges, ahead, must),
            Request::Touched { reads } => {
                self.update_clock();
                for read in reads {
                    self.note_read(read.key, read.offset, read.bytes);
                }
                Outcome::Ready(Response::Done)
            }
            Request::Arrange { target, what, dry_run } => self.arrange(&target, what, dry_run),
            Request::DeviceAdd { spec } => self.device_add(session, &spec).unwrap_or_else(failed),
            Request::DeviceDrain { name } => self.device_drain(&name),
            Request::DeviceRemove { name } => self.device_remove(session, &name).unwrap_or_else(failed),
            Request::Habit { container, program } => ready(Ok(self.habit(container, &program))),
            Request::HabitLearned { container, program, learned } => {
                ready(self.learn_habit(container, program, learned))
            }
            Request::Profile { name, measure_ms } => self.profile(&name, measure_ms),
            Request::Verify { target } => self.verify_begin(target),
            Request::Telemetry { hot } => {
                let mut told = self.telemetry(hot);
                self.keep_visible(self.seer(session), &mut told);
                ready(Ok(Response::Telemetry(Box::new(told))))
            }
            Request::ContainerList { after, limit } => {
                ready(Ok(self.list_containers(self.seer(session), after.as_deref(), limit)))
            }
            Request::Read { key, offset, len } => self.carry_out_of(key, offset, len),
            Request::Deposit { container, bytes, avoid, durability } => {
                let brought = carry::Brought { container, bytes, avoid, durability };
                let outcome = self.carry_in(session, seq, brought);
                self.note_lease(outcome)
            }
            Request::Checkpoint => self.checkpoint_begin(),
            Request::PolicySet { text, dry_run } => ready(self.policy_set(text.as_deref(), dry_run)),
            Request::PolicyShow => ready(Ok(Response::Policy(Box::new(self.policy_show())))),
            Request::RulesTry => ready(Ok(Response::Arranged(Box::new(self.rules_try())))),
            Request::Progress => ready(Ok(Response::Progress(self.arrangements()))),
            Request::Shutdown => Outcome::Ready(Response::Done),
            Request::Get { index, keys } => self.get_records(index, &keys),
            Request::Next { index, from, prefix, limit, bytes_max } => {
                self.next_records(index, &from, &prefix, (limit, bytes_max))
            }
            Request::Unreadable { key, ranges } => self.rescue(key, &ranges, !is_trusted),
            other => ready(self.read(other)),
        }
    }

    /// Answers to tickets that are ready now.
    pub fn take_finished(&mut self) -> Vec<(Ticket, Response)> {
        self.answer_waiters();
        std::mem::take(&mut self.finished)
    }

    /// The answer to one ticket, if it is ready.
    pub fn take_answer(&mut self, ticket: Ticket) -> Option<Response> {
        let at = self.finished.iter().position(|(finished, _)| *finished == ticket)?;
        Some(self.finished.swap_remove(at).1)
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    /// The tag for space given up now.
    fn tag(&self) -> Tag {
        Tag { epoch: self.seams.control.epoch(), journal: self.journal.position() }
    }

    /// The journal has something that is not on media.
    fn note_journal_dirty(&mut self) {
        if self.journal_dirty_since_ns.is_none() {
            self.journal_dirty_since_ns = Some(self.state.now_ns);
        }
    }

    fn update_clock(&mut self) {
        let now = self.seams.clock.now_ns();
        self.state.now_ns = now;
        self.state.now_s = (now.saturating_sub(self.opened_ns) / 1_000_000_000) as u32;
    }
}

fn failed(error: Error) -> Outcome {
    Outcome::Ready(Response::Failed(error))
}

fn ready(result: Result<Response>) -> Outcome {
    Outcome::Ready(result.unwrap_or_else(Response::Failed))
}
