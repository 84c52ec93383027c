//! Requests: routes each to the core or to an activity.

use std::ops::Bound;

use cenote_model::{Error, ErrorKind, ObjectKey, Request, Response, Result, StoreStats, Touch};

use super::carrying::{Brought, Carrying, InPlace};
use super::core::{BYTES_MAX, Core, LIMIT_MAX};
use super::tiering::Wanted;
use super::{Activities, Engine, failed, ready};
use crate::{Outcome, SessionId};

impl Engine {
    /// Answers a request. `seq` numbers a session's changes from 1; it is 0 for requests that need no
    /// exactly-once. Fails if the session is not open or may not make the request.
    pub fn handle(&mut self, session: SessionId, seq: u64, request: Request) -> Outcome {
        let Some(open) = self.core.state.sessions.open.get_mut(&session) else {
            return failed(
                Error::new(ErrorKind::Disconnected, format!("session {}", session.0))
                    .because("it is not open here")
                    .try_next("attach again"),
            );
        };
        self.core.observed.counting.asked(open, &request, self.core.state.now.s);
        let is_trusted = open.is_trusted();
        if let Some(error) = self.refusal(session, &request, is_trusted) {
            return failed(error);
        }
        let outcome = self.answer(session, seq, request, is_trusted);
        self.activities.settle(&mut self.core);
        outcome
    }

    /// Why a session may not make a request, or not now: its rights, or what a prepared transaction holds.
    fn refusal(&self, session: SessionId, request: &Request, is_trusted: bool) -> Option<Error> {
        if !is_trusted && let Err(error) = self.core.check_rights_of(session, request) {
            return Some(error);
        }
        let holds_itself = matches!(request, Request::Apply { .. } | Request::Prepare { .. } | Request::Decide { .. });
        if holds_itself { None } else { self.core.held_error(request) }
    }

    /// The bytes of a range of an object where they lie in memory, for a session that may read it. `None`: ask for them by
    /// [`Engine::handle`], which copies them, or says what is wrong.
    pub fn lend(&mut self, session: SessionId, key: ObjectKey, offset: u64, len: u32) -> Option<InPlace> {
        let open = self.core.state.sessions.open.get(&session)?;
        let request = Request::Read { key, offset, len };
        let is_trusted = open.is_trusted();
        if self.refusal(session, &request, is_trusted).is_some() {
            return None;
        }
        let lent = Carrying::lend(&mut self.core, key, offset, len)?;
        let open = self.core.state.sessions.open.get_mut(&session)?;
        self.core.observed.counting.asked(open, &request, self.core.state.now.s);
        Some(lent)
    }

    fn answer(&mut self, session: SessionId, seq: u64, request: Request, is_trusted: bool) -> Outcome {
        let Self { core, activities } = self;
        match request {
            Request::Apply { checks, updates, atomic } => {
                let outcome = core.apply(session, seq, &checks, updates, atomic);
                activities.values.when_values_fit(core, outcome)
            }
            Request::Prepare { .. }
            | Request::Decide { .. }
            | Request::Settle { .. }
            | Request::Ask { .. }
            | Request::Forget { .. } => self.of_two_phases(session, seq, request),
            Request::Lease { container, bytes, run_min, avoid, durability } => {
                let wanted = Wanted { container, bytes, run_min, avoid: &avoid, durability };
                let outcome = ready(self.lease(session, seq, &wanted));
                self.core.note_lease(outcome)
            }
            Request::Unlease { runs } => ready(core.unlease(session, &runs)),
            Request::SnapshotByName { container, name, pin } => ready(core.snapshot(session, container, &name, pin)),
            Request::SnapshotUnpin { id } => ready(core.pin(session, id, false).map(|()| Response::Done)),
            Request::Flush { target } => core.flush(target),
            Request::Fetch { key, ranges, ahead, must } => activities.tiering.fetch(core, key, &ranges, ahead, must),
            Request::Touched { reads } => touched(core, &reads),
            Request::Arrange { target, what, dry_run } => activities.tiering.arrange(core, &target, what, dry_run),
            Request::DeviceAdd { .. } | Request::DeviceDrain { .. } | Request::DeviceRemove { .. } => {
                change_devices(core, activities, session, request)
            }
            Request::Habit { container, program } => ready(Ok(activities.devices.habit(container, &program))),
            Request::HabitLearned { container, program, learned } => {
                ready(activities.devices.learn_habit(core, container, program, learned))
            }
            Request::Profile { name, measure_ms } => activities.devices.profile(core, &name, measure_ms),
            Request::Verify { target } => activities.verifying.verify_begin(core, target),
            Request::Telemetry { hot } => {
                let mut told = self.telemetry(hot);
                self.core.keep_visible(self.core.seer(session), &mut told);
                ready(Ok(Response::Telemetry(Box::new(told))))
            }
            Request::ContainerList { after, limit } => {
                ready(Ok(core.list_containers(core.seer(session), after.as_deref(), limit)))
            }
            Request::Read { key, offset, len } => activities.carrying.carry_out_of(core, key, offset, len),
            Request::Deposit { container, bytes, avoid, durability } => {
                let brought = Brought { container, bytes, avoid, durability };
                let outcome = self.carry_in(session, seq, brought);
                self.core.note_lease(outcome)
            }
            Request::Checkpoint => activities.journaling.checkpoint_begin(core),
            Request::PolicySet { text, dry_run } => {
                ready(activities.tiering.policy_set(core, text.as_deref(), dry_run))
            }
            Request::Weights { ask } => ready(core.weigh(ask)),
            Request::PolicyShow => ready(Ok(Response::Policy(Box::new(activities.tiering.policy_show(core))))),
            Request::RulesTry => ready(Ok(Response::Arranged(Box::new(activities.tiering.rules_try(core))))),
            Request::Progress => ready(Ok(Response::Progress(activities.tiering.arrangements(core)))),
            Request::Shutdown { .. } | Request::Protect { losses: 0 } => Outcome::Ready(Response::Done),
            // The daemon of a cluster's node answers it itself.
            Request::HaReport | Request::ChangeCluster { .. } => ready(Err(no_cluster())),
            Request::Protect { .. } => ready(Err(no_mirrors())),
            Request::Get { index, keys } => activities.values.get_records(core, index, &keys),
            Request::Next { index, from, prefix, limit, bytes_max } => {
                activities.values.next_records(core, index, &from, &prefix, (limit, bytes_max))
            }
            Request::Unreadable { key, ranges } => activities.repairing.rescue(core, key, &ranges, !is_trusted),
            other => ready(self.read(other)),
        }
    }

    fn lease(&mut self, session: SessionId, seq: u64, wanted: &Wanted<'_>) -> Result<Response> {
        self.core.update_clock();
        if let Some(answer) = self.core.leased_again(session, seq) {
            return Ok(answer);
        }
        let (dev, runs) = self.activities.tiering.find_space(&mut self.core, session, wanted)?;
        self.core.grant((session, wanted.container), seq, dev, &runs)
    }

    /// Writes bytes into new space by a job, and leases the space after that. The space may be for less than
    /// all of the bytes.
    fn carry_in(&mut self, session: SessionId, seq: u64, brought: Brought) -> Outcome {
        self.core.update_clock();
        if let Some(answer) = self.core.leased_again(session, seq) {
            return Outcome::Ready(answer);
        }
        let found =
            brought.wanted().and_then(|wanted| self.activities.tiering.find_space(&mut self.core, session, &wanted));
        match found {
            Err(error) => failed(error),
            Ok(space) => self.activities.carrying.carry_in(&mut self.core, session, seq, brought, space),
        }
    }

    pub(in crate::engine) fn read(&mut self, request: Request) -> Result<Response> {
        match request {
            Request::Lookup { key, offset, len, limit } => {
                self.core.lookup(key, offset, len, limit).map(Response::Lookup)
            }
            Request::ObjectStat { key } => self.core.stat(key).map(Response::Stat),
            Request::ObjectList { container, after, limit } => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let found = self.core.container(container)?;
                let ids = found.content.objects.iter_from(from).map(|(id, _)| *id);
                let ids = ids.filter(|id| !found.is_value_log(*id));
                Ok(Response::Objects(ids.take(limit.min(LIMIT_MAX) as usize).collect()))
            }
            Request::IndexExists { key } => {
                let container = self.core.container(key.container)?;
                Ok(Response::Exists(container.content.indices.contains_key(&key.index)))
            }
            Request::IndexList { container, after, limit } => {
                let from = after.map_or(Bound::Unbounded, Bound::Excluded);
                let ids = self.core.container(container)?.content.indices.iter_from(from).map(|(id, _)| *id);
                Ok(Response::Indices(ids.take(limit.min(LIMIT_MAX) as usize).collect()))
            }
            Request::ContainerByLabel { label } => match self.core.state.containers.by_label(&label) {
                Some(container) => Ok(Response::Container(container.info())),
                None => Err(Error::new(ErrorKind::NotFound, format!("container `{label}`"))
                    .try_next("check the label, or create the container")),
            },
            Request::SnapshotList { container, after, limit } => {
                self.core.snapshots(container, after.as_deref(), limit)
            }
            Request::ContainerById { id } => Ok(Response::Container(self.core.info(id)?)),
            Request::ContainerContent { id, limit, bytes_max } => Ok(Response::Content(Box::new(self.core.content(
                id,
                limit.min(LIMIT_MAX),
                bytes_max.min(BYTES_MAX),
            )?))),
            Request::Devices => {
                let mut infos = self.core.device_infos();
                infos.sort_by_key(|info| (info.spec.kind, info.id));
                Ok(Response::Devices(infos))
            }
            Request::Explain { key } => self.explain(key).map(Response::Explanation),
            Request::Stats => Ok(Response::Stats(self.stats())),
            Request::Moved => Ok(Response::Moved(self.core.observed.counting.moved_bytes)),
            _ => Err(Error::new(ErrorKind::Internal, "a request").because("it does not read")),
        }
    }

    fn stats(&self) -> StoreStats {
        let mut stats = StoreStats {
            epoch: self.core.state.epoch,
            containers: self.core.state.containers.len() as u64 - self.core.state.containers.snapshots() as u64,
            extents: self.core.state.space.extents,
            journal_bytes: self.core.journal.position().saturating_sub(self.activities.journaling.last.position),
            moved_bytes: self.core.observed.counting.moved_bytes,
            sessions: self.core.state.sessions.open.len() as u64,
            scrub_findings: self.activities.verifying.scrub_findings,
            metadata_bytes: self.core.metadata_bytes(),
            values_budget_bytes: self.core.settings.value_bytes,
            ..StoreStats::default()
        };
        for index in self.core.state.containers.iter().flat_map(|container| container.content.indices.values()) {
            stats.values_here_bytes += index.spillable;
            stats.values_away_bytes += index.away_bytes;
        }
        for container in self.core.state.containers.iter().filter(|container| container.snapshot.is_none()) {
            stats.objects += container.objects_seen();
            stats.indices += container.content.indices.len() as u64;
            stats.records += container.content.records;
        }
        stats
    }
}

/// Notes reads that a client answered itself.
fn touched(core: &mut Core, reads: &[Touch]) -> Outcome {
    core.update_clock();
    for read in reads {
        core.note_read(read.key, read.offset, read.bytes);
    }
    Outcome::Ready(Response::Done)
}

/// Adds, drains or removes a device.
fn change_devices(core: &mut Core, activities: &mut Activities, session: SessionId, request: Request) -> Outcome {
    match request {
        _ if core.store.home.count > 1 => failed(several(core.store.home.count)),
        Request::DeviceAdd { spec } => activities.devices.device_add(core, session, &spec).unwrap_or_else(failed),
        Request::DeviceDrain { name } => core.device_drain(&name),
        Request::DeviceRemove { name } => activities
            .devices
            .device_remove(core, session, &name, |core| activities.journaling.sync_log_now(core))
            .unwrap_or_else(failed),
        _ => failed(Error::new(ErrorKind::Internal, "a request").because("it changes no device")),
    }
}

/// The error for a change of devices in a store with several engines.
#[cold]
fn several(engines: u16) -> Error {
    Error::new(ErrorKind::Unsupported, "a change of tiers")
        .because(format!("the store has {engines} engines, and its tiers are split among them for good"))
        .try_next("make a store with other tiers, or with one engine, and copy what is in this one")
}

#[cold]
fn no_mirrors() -> Error {
    Error::new(ErrorKind::Unsupported, "the loss of a node")
        .because("this store has no mirrors on other nodes")
        .try_next("start a cluster that has them: `cenote cluster start DIR --protect 1 …`")
}

#[cold]
fn no_cluster() -> Error {
    Error::new(ErrorKind::Unsupported, "the view of the cluster")
        .because("no daemon that is part of a cluster serves this store")
        .try_next("ask on a node of a cluster, with its daemon running: `cenote cluster start` starts one")
}
