//! Random updates, alone, in vectors and in transactions, and the judgement of their answers.

use std::sync::Arc;

use cenote_model::{
    Check as Relied, ContainerId, ContainerSpec, Durability, ErrorKind, IndexId, IndexKey, KeyCode, ObjectId,
    ObjectKey, Request, Response, Run, Update,
};

use cenote_workload::Step;

use super::client::Goal;
use super::read::kind_of;
use super::{Check, Sim, trace};
use crate::access::write_run;
use crate::content::{self, WriteId};
use crate::oracle::{Change, Outcome};

impl Sim {
    pub(super) fn any_container(&mut self) -> Option<ContainerId> {
        let ids: Vec<ContainerId> = self.oracle.current().containers.keys().copied().collect();
        if ids.is_empty() { None } else { Some(*self.rng.pick(&ids)) }
    }
    /// A random object, mostly an existing one.
    pub(super) fn any_object(&mut self) -> Option<ObjectKey> {
        let container = self.any_container()?;
        let there: Vec<ObjectId> = self.oracle.current().containers[&container].objects.keys().copied().collect();
        let object = if there.is_empty() || self.rng.chance(50) {
            ObjectId(u128::from(self.rng.between(1, self.profile.ids)))
        } else {
            *self.rng.pick(&there)
        };
        Some(ObjectKey { container, object })
    }
    pub(super) fn any_index(&mut self) -> Option<IndexKey> {
        let container = self.any_container()?;
        Some(IndexKey { container, index: IndexId(u128::from(self.rng.between(1, 3))) })
    }
    fn new_object(&mut self) -> Option<ObjectKey> {
        let container = self.any_container()?;
        Some(ObjectKey { container, object: ObjectId(u128::from(self.rng.between(1, self.profile.ids))) })
    }

    /// Sends one request with updates.
    pub(super) fn apply(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        let count = *self.rng.pick(&[1, 1, 1, 2, 3, 6]);
        let atomic = self.rng.chance(600);
        let mut updates = Vec::new();
        let mut changes = Vec::new();
        for _ in 0..count {
            let drawn = self.draw(at)?;
            if self.died {
                return Ok(());
            }
            if let Some((update, change)) = drawn {
                updates.push(update);
                changes.push(change);
            }
        }
        if updates.is_empty() {
            return Ok(());
        }
        let checks = if atomic && self.rng.chance(300) { self.draw_checks() } else { Vec::new() };
        self.send_updates(at, checks, updates, &changes, atomic)
    }
    /// Sends updates and tells the oracle the result.
    pub(super) fn send_updates(
        &mut self,
        at: usize,
        checks: Vec<Relied>,
        updates: Vec<Update>,
        changes: &[Change],
        atomic: bool,
    ) -> Check {
        let nonce = self.clients[at].info.nonce;
        trace!(self.trace, "c{nonce} applies{} {checks:?} {changes:?}", if atomic { " atomically" } else { "" });
        let request = Request::Apply { checks, updates, atomic };
        self.clients[at].seq += 1;
        let seq = self.clients[at].seq;
        self.send_apply(at, seq, request, changes)
    }
    pub(super) fn send_apply(&mut self, at: usize, seq: u64, request: Request, changes: &[Change]) -> Check {
        let Request::Apply { checks, atomic, .. } = &request else { return Err("not an Apply".into()) };
        let atomic = *atomic;
        let (predicted, _) = self.oracle.predict(checks, changes, atomic);
        let goal = Goal::Apply { entry: None, predicted: predicted.clone() };
        // Ticks rewrite small adjacent extents, which uses epochs of its own.
        self.last_epoch = self.last_epoch.max(self.engine().epoch());
        let response = self.send_as(at, seq, request, goal);
        let effective: Vec<Change> = match &predicted {
            Outcome::Applied(codes) => {
                changes.iter().zip(codes).filter(|(_, code)| **code == KeyCode::Ok).map(|(c, _)| c.clone()).collect()
            }
            _ => Vec::new(),
        };
        match response {
            Some(Response::Applied { epoch, codes, words, created }) => {
                if let Outcome::Applied(_) = predicted {
                    if !words.iter().all(|(before, after)| before < after) {
                        return Err(format!("version words {words:?} did not rise"));
                    }
                    self.last_epoch = self.last_epoch.max(epoch);
                    let shared = effective.iter().filter(|change| matches!(change, Change::Share { .. }));
                    self.summary.shared += shared.count() as u64;
                    let entry = self.oracle.applied(epoch, effective, atomic);
                    self.summary.updates += 1;
                    return self.judge_applied(
                        Some(entry),
                        &predicted,
                        Response::Applied { epoch, codes, words, created },
                    );
                }
                Err(format!("applied at epoch {epoch}, expected {predicted:?}"))
            }
            Some(Response::Failed(error)) if self.hurt && error.kind() == ErrorKind::Io => Ok(()),
            Some(other) => self.judge_applied(None, &predicted, other),
            None => {
                if let Some(sent) = self.clients[at].sent.iter_mut().find(|sent| sent.seq == seq) {
                    sent.changes = changes.to_vec();
                }
                // It may or may not survive; if it does, then as the next entry.
                self.last_epoch = if self.died { self.last_epoch + 1 } else { self.engine().epoch() };
                if !effective.is_empty() {
                    let epoch = self.last_epoch;
                    let entry = self.oracle.applied(epoch, effective, atomic);
                    if let Some(sent) = self.clients[at].sent.iter_mut().find(|sent| sent.seq == seq) {
                        sent.goal = Goal::Apply { entry: Some(entry), predicted };
                    }
                }
                Ok(())
            }
        }
    }
    pub(super) fn judge_applied(&mut self, entry: Option<usize>, predicted: &Outcome, response: Response) -> Check {
        match (predicted, response) {
            (Outcome::Applied(expected), Response::Applied { epoch, codes, .. }) => {
                let all_fine = codes.is_empty();
                let same = if all_fine {
                    expected.iter().all(|code| *code == KeyCode::Ok)
                } else {
                    codes.len() == expected.len() && codes == *expected
                };
                let transaction = all_fine && expected.iter().all(|c| matches!(c, KeyCode::Ok | KeyCode::NotFound));
                if !same && !transaction {
                    return Err(format!("codes {codes:?}, expected {expected:?}"));
                }
                if let Some(entry) = entry {
                    self.oracle.acked(entry);
                }
                let _ = epoch;
                Ok(())
            }
            (Outcome::Refused(code), Response::Failed(error)) if Some(error.kind()) == kind_of(*code) => Ok(()),
            (Outcome::Conflict, Response::Failed(error)) if error.kind() == ErrorKind::Conflict => Ok(()),
            // Applied, but it cannot be made durable: persistent tiers have no room.
            (Outcome::Applied(_), Response::Failed(error)) if entry.is_some() && error.kind() == ErrorKind::Full => {
                Ok(())
            }
            (_, Response::Failed(error)) if self.hurt && matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy) => {
                Ok(())
            }
            (predicted, response) => Err(format!("{response:?}, expected {predicted:?}")),
        }
    }
    fn draw_checks(&mut self) -> Vec<Relied> {
        let mut checks = Vec::new();
        for _ in 0..self.rng.between(1, 2) {
            let check = match self.rng.below(6) {
                0 | 1 => self.any_object().map(|key| {
                    let epoch = self.oracle.current().object(key).map_or(0, |o| o.epoch);
                    Relied::Object { key, epoch: self.bend(epoch) }
                }),
                2 | 3 => self.any_index().map(|index| {
                    let key = self.draw_key();
                    let found = self.oracle.current().index(index).and_then(|i| i.get(&key)).map_or(0, |r| r.1);
                    Relied::Record { index, key, epoch: self.bend(found) }
                }),
                4 => self.any_index().map(|index| {
                    let mut prefix = self.draw_key();
                    prefix.truncate(self.rng.below(4) as usize);
                    Relied::NoKeys { index, prefix }
                }),
                _ => self.any_object().map(|key| {
                    let size = self.oracle.current().object(key).map_or(0, |o| o.size);
                    Relied::Size { key, size: self.bend(size) }
                }),
            };
            checks.extend(check);
        }
        checks
    }
    /// Mostly the true number, sometimes one less.
    fn bend(&mut self, epoch: u64) -> u64 {
        if self.rng.chance(250) { epoch.saturating_sub(1) } else { epoch }
    }
    /// One random update, as the store and as the oracle see it.
    fn draw(&mut self, at: usize) -> Check<Option<(Update, Change)>> {
        let kind = self.rng.weighted(&[12, 40, 6, 6, 4, 4, 2, 20, 8, self.profile.shares]);
        Ok(match kind {
            0 => self.new_object().map(|key| {
                let block_shift = *self.rng.pick(&[6, 9, 12, 12, 16, 24, 5]);
                (Update::ObjectCreate { key, block_shift }, Change::ObjectCreate { key, block_shift })
            }),
            1 => return self.draw_write(at),
            2 => self.any_object().map(|key| {
                let (offset, len) = (self.draw_offset(key), self.rng.size(self.profile.write_max));
                (Update::Punch { key, offset, len }, Change::Punch { key, offset, len })
            }),
            3 => self.any_object().map(|key| {
                let size = self.draw_offset(key);
                (Update::Truncate { key, size }, Change::Truncate { key, size })
            }),
            4 => self.any_object().map(|key| (Update::ObjectDelete { key }, Change::ObjectDelete { key })),
            5 => self.any_index().map(|key| (Update::IndexCreate { key }, Change::IndexCreate { key })),
            6 => self.any_index().map(|key| (Update::IndexDelete { key }, Change::IndexDelete { key })),
            7 | 8 => self.any_index().map(|index| {
                let (key, stays) = self.draw_record(kind == 7);
                if !stays {
                    return (Update::Del { index, key: key.clone() }, Change::Del { index, key });
                }
                let len = match self.rng.below(20) {
                    0 => 3000,
                    1..6 => 64 + self.rng.below(200) as usize,
                    _ => self.rng.below(60) as usize,
                };
                let value = content::bytes(self.write_id(), 0, len);
                let only_new = self.rng.chance(300);
                let shared: Arc<[u8]> = value.as_slice().into();
                (
                    Update::Put { index, key: key.clone(), value, only_new },
                    Change::Put { index, key, value: shared, only_new },
                )
            }),
            _ => self.draw_share(),
        })
    }
    /// The key of a record to put (true) or delete (false). `puts` decides where no order does.
    fn draw_record(&mut self, puts: bool) -> (Vec<u8>, bool) {
        let Some(orders) = &mut self.orders else { return (self.draw_key(), puts) };
        let step = orders.keys.step();
        (orders.shape.key(step.ordinal()), matches!(step, Step::Put(_)))
    }
    fn write_id(&mut self) -> WriteId {
        self.next_write += 1;
        let compressible = if self.next_write.is_multiple_of(3) { 0 } else { WriteId::COMPRESSIBLE };
        WriteId(self.next_write | compressible)
    }
    /// An offset in the object or not far behind it, often where something begins or ends.
    pub(super) fn draw_offset(&mut self, key: ObjectKey) -> u64 {
        let edges: Vec<u64> = self.oracle.current().object(key).map_or_else(Vec::new, |object| {
            object.map.iter().flat_map(|(at, segment)| [*at, at + segment.len]).collect()
        });
        let reach = self.profile.write_max * 4;
        if let Some(orders) = &mut self.orders
            && self.rng.chance(500)
        {
            return orders.offsets.step().ordinal() % 64 * self.profile.write_max.div_ceil(4) % reach;
        }
        match self.rng.below(8) {
            0..=2 if !edges.is_empty() => *self.rng.pick(&edges),
            3..=4 => self.rng.below(reach) / 4096 * 4096,
            5 if self.rng.chance(50) => (1 << 62) + self.rng.below(1 << 40),
            _ => self.rng.below(reach),
        }
    }
    /// A write into leased space, with its bytes already on the device.
    fn draw_write(&mut self, at: usize) -> Check<Option<(Update, Change)>> {
        let Some(key) = self.any_object() else { return Ok(None) };
        let offset = self.draw_offset(key);
        let len = self.rng.size(self.profile.write_max);
        self.write_leased(at, key, offset, len)
    }
    /// A write of at most `len` bytes into leased space. `None` if there is no room.
    pub(super) fn write_leased(
        &mut self,
        at: usize,
        key: ObjectKey,
        offset: u64,
        len: u64,
    ) -> Check<Option<(Update, Change)>> {
        let Some((run, len)) = self.space(at, key.container, len)? else { return Ok(None) };
        let id = self.write_id();
        let Some(device) = self.engine().device(run.device) else {
            return Err(format!("{run:?} is leased on a device that is not there"));
        };
        self.world.faults.pause(true);
        let extent = write_run(device.as_ref(), run.device, run.offset, &content::bytes(id, 0, len as usize));
        self.world.faults.pause(false);
        if extent.is_err() && self.is_faulty(run.device) {
            self.free(at, run)?;
            return Ok(None);
        }
        let extent = extent?;
        Ok(Some((Update::Write { key, offset, extent }, Change::Write { key, offset, len, id, from: 0 })))
    }
    /// Takes up to `len` bytes from the client's leases for a container, leasing more if there are none.
    fn space(&mut self, at: usize, container: ContainerId, len: u64) -> Check<Option<(Run, u64)>> {
        if !self.clients[at].leases.iter().any(|(of, _)| *of == container) {
            let bytes = len * self.rng.between(1, 4);
            let run_min = if self.rng.chance(500) { len as u32 } else { 1 };
            trace!(self.trace, "c{} leases {bytes} of at least {run_min} for {container}", self.clients[at].info.nonce);
            let request = Request::Lease { container, bytes, run_min, avoid: Vec::new(), durability: None };
            let goal = Goal::Lease { container };
            if let Some(response) = self.send(at, request.clone(), goal.clone()) {
                self.judge(at, &goal, &request, response)?;
            }
        }
        let leases = &mut self.clients[at].leases;
        let Some(index) = leases.iter().position(|(of, _)| *of == container) else { return Ok(None) };
        let run = leases[index].1;
        let Some(device) = self.engine().device(run.device) else { return Ok(None) };
        let unit = u64::from(device.unit_bytes());
        let len = len.min(run.len);
        let take = len.div_ceil(unit) * unit;
        let leases = &mut self.clients[at].leases;
        if take == run.len {
            leases.remove(index);
        } else {
            leases[index].1 = Run { offset: run.offset + take, len: run.len - take, ..run };
        }
        Ok(Some((Run { len: take, ..run }, len)))
    }
    /// Returns unused space.
    pub(super) fn unlease(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        if self.clients[at].leases.is_empty() {
            return Ok(());
        }
        let index = self.rng.index(self.clients[at].leases.len());
        let (_, run) = self.clients[at].leases.remove(index);
        self.free(at, run)
    }
    fn free(&mut self, at: usize, run: Run) -> Check {
        trace!(self.trace, "c{} gives back {run:?}", self.clients[at].info.nonce);
        let request = Request::Unlease { runs: vec![run] };
        let goal = Goal::Other { may_fail: &[] };
        match self.send(at, request.clone(), goal.clone()) {
            Some(response) => self.judge(at, &goal, &request, response),
            None => Ok(()),
        }
    }
    /// Creates, deletes and changes containers.
    pub(super) fn change_container(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        let there = self.any_container();
        let number = self.rng.below(6);
        let label = self.berth.label(number);
        let (update, change) = match (self.rng.below(10), there) {
            (0..=4, _) | (_, None) => {
                let id = self.new_container();
                let durability = *self.rng.pick(&[
                    Durability::Sync,
                    Durability::Async,
                    Durability::Async,
                    Durability::Async,
                    Durability::Scratch,
                    Durability::Bypass,
                ]);
                let policies = ["", "", "fast-first", "foresight", "hot-data", "max-bandwidth", "data-locality"];
                let policy = (*self.rng.pick(&policies)).to_owned();
                let spec = ContainerSpec {
                    durability,
                    policy,
                    owner_uid: Some(0),
                    owner_gid: Some(0),
                    ..ContainerSpec::default()
                };
                (
                    Update::ContainerCreate { id, label: label.clone(), spec: spec.clone() },
                    Change::ContainerCreate { id, label, spec },
                )
            }
            // A rename to the same label changes nothing and waits for nothing.
            (5 | 6, Some(id)) if self.oracle.current().containers[&id].label == label => return Ok(()),
            (5 | 6, Some(id)) => {
                (Update::ContainerRename { id, label: label.clone() }, Change::ContainerRename { id, label })
            }
            (7 | 8, Some(id)) => {
                let mut spec = self.oracle.current().containers[&id].spec.clone();
                // From and to `Scratch` only while the container is empty.
                if spec.durability != Durability::Scratch {
                    spec.durability = *self.rng.pick(&[Durability::Sync, Durability::Async, Durability::Bypass]);
                }
                (Update::ContainerSet { id, spec: spec.clone() }, Change::ContainerSet { id, spec })
            }
            (_, Some(id)) => (Update::ContainerDelete { id }, Change::ContainerDelete { id }),
        };
        self.send_updates(at, Vec::new(), vec![update], &[change], true)?;
        // Space leased for a deleted container is useless.
        let current = self.oracle.current();
        self.clients[at].leases.retain(|(of, _)| current.containers.contains_key(of));
        Ok(())
    }
}
