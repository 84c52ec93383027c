//! The end of a run: all clients leave, the store comes to rest, and nothing may be lost, hang or leak.

use std::collections::{BTreeMap, BTreeSet};

use cenote_model::{
    DeviceInfo, DeviceState, Durability, FlushTarget, ObjectId, ObjectKey, Request, Response, SUM_UNIT_SHIFT, Update,
};
use cenote_store::{Outcome, SessionId};

use super::client::Goal;
use super::{Check, Sim, copy_of, trace};
use crate::oracle::Change;
use crate::survey::{Survey, VALUE_LOG, used_bytes};

const ROUNDS_MAX: usize = 400;

impl Sim {
    pub(super) fn end(&mut self) -> Check {
        trace!(self.trace, "the end: everybody leaves");
        self.world.faults.heal();
        self.fails_at_random = false;
        if self.profile.weather > 0 {
            if self.rng.chance(600) {
                self.recover_in_place()?;
            }
            self.calm();
        }
        if self.hurt || self.died {
            self.crash(false)?;
            self.world.faults.heal();
        }
        if self.profile.weather > 0 {
            self.check_states()?;
        }
        while !self.readers.is_empty() {
            self.reader_end()?;
        }
        self.rest()?;
        self.check_answered()?;
        if self.flips == 0 && self.profile.full > 0 {
            self.empty_and_fill_again()?;
        }
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.client_open()?;
        self.flush_all()?;
        self.look_at_everything()?;
        if self.flips == 0 && self.is_flushed() {
            self.check_space(false)?;
        }
        let power = self.rng.chance(500);
        trace!(self.trace, "and once more after a crash");
        self.crash(power)?;
        self.look_at_everything()?;
        if self.profile.weather > 0 {
            self.flush_all()?;
            if self.is_flushed() {
                self.check_space(false)?;
            }
        }
        if self.flips == 0 && self.rng.chance(300) {
            self.delete_everything()?;
        }
        Ok(())
    }
    /// At rest no request may be without its answer.
    pub(super) fn check_answered(&self) -> Check {
        let waiting = self.clients.iter().find(|client| client.alive && !client.sent.is_empty());
        match (waiting, self.flips) {
            (Some(client), 0) => {
                Err(format!("HANG: {:?} of client {} never gets its answer", client.sent[0].request, client.info.nonce))
            }
            _ => Ok(()),
        }
    }
    /// Runs background work until none is left.
    pub(super) fn rest(&mut self) -> Check {
        let mut idle = 0;
        for _ in 0..ROUNDS_MAX {
            // First in small steps, then in steps long enough for retries of failed work.
            self.world.clock.advance_ns(if idle < 4 { 20_000_000 } else { 3_000_000_000 });
            self.tick()?;
            let before = self.summary.jobs;
            loop {
                self.job_take();
                if self.jobs.is_empty() {
                    break;
                }
                self.job_run();
            }
            while !self.jobs_done.is_empty() {
                self.job_finish()?;
            }
            self.take_answers()?;
            idle = if before == self.summary.jobs { idle + 1 } else { 0 };
            if idle > 8 {
                return Ok(());
            }
        }
        // Damaged bytes cannot be copied, and copying is retried for ever.
        if self.flips > 0 || self.is_maimed() {
            Ok(())
        } else {
            Err(format!("HANG: still busy after {ROUNDS_MAX} rounds"))
        }
    }
    /// Without clients and with everything flushed, the used space is that of the extents; bytes in volatile memory may
    /// have a copy on a persistent device. With all containers deleted, no space is used.
    pub(super) fn check_space(&mut self, empty: bool) -> Check {
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.rest()?;
        let session = self.observer()?;
        // Space released at the very end is free a moment later.
        let reserves = |device: &DeviceInfo| device.reserved_bytes != 0;
        if self.engine().device_infos().iter().any(reserves) {
            self.rest()?;
        }
        let found = self.survey()?;
        let engine = self.engine();
        let expected = used_bytes(&found, engine);
        let copies = self.copies(&found, session)?;
        let engine = self.engine();
        let Outcome::Ready(Response::Devices(devices)) = engine.handle(session, 0, Request::Devices) else {
            return Err("Devices must answer at once".into());
        };
        for device in devices {
            let live = expected.get(&device.id).copied().unwrap_or(0);
            let copies = copies.get(&device.spec.name).copied().unwrap_or(0);
            let most = live + copies;
            if !(live..=most).contains(&device.used_bytes) || device.reserved_bytes != 0 {
                return Err(format!(
                    "LEAK: device {} `{}`: {} bytes used and {} reserved at rest, but extents take {live}, copies {copies}",
                    device.id, device.spec.name, device.used_bytes, device.reserved_bytes
                ));
            }
            if device.packed_bytes > device.used_bytes || device.packed_bytes > device.unpacked_bytes {
                return Err(format!(
                    "device {}: {} bytes used, {} of them compressed from {}",
                    device.id, device.used_bytes, device.packed_bytes, device.unpacked_bytes
                ));
            }
            if empty && device.used_bytes + device.unpacked_bytes != 0 {
                return Err(format!(
                    "LEAK: device {} has {} bytes in use, and {} compressed, and the store is empty",
                    device.id, device.used_bytes, device.unpacked_bytes
                ));
            }
        }
        self.client_open()
    }
    /// Upper bound of the bytes of copies on each device. Each copy consists of whole checksum units, whatever its
    /// neighbours share with it; the same bytes in a snapshot have the same copy. Where objects share ranges, the same
    /// bytes may have one copy for each object: the engine's knowledge of sharing may be incomplete.
    pub(super) fn copies(&mut self, found: &Survey, session: SessionId) -> Check<BTreeMap<String, u64>> {
        let mut keys: Vec<ObjectKey> = Vec::new();
        for (id, container) in &found.observed.containers {
            let snapshots = container.snapshots.values().map(|(id, content)| (id, content));
            for (container, content) in snapshots.chain([(id, container)]) {
                keys.extend(content.objects.keys().map(|object| ObjectKey { container: *container, object: *object }));
            }
            let values = ObjectKey { container: *id, object: VALUE_LOG };
            let there = self.engine().handle(session, 0, Request::ObjectStat { key: values });
            if matches!(there, Outcome::Ready(Response::Stat(_))) {
                keys.push(values);
            }
        }
        let mut seen = BTreeSet::new();
        let mut copies = BTreeMap::new();
        for key in keys {
            let explained = self.engine().handle(session, 0, Request::Explain { key });
            let Outcome::Ready(Response::Explanation(explanation)) = explained else {
                return Err(format!("Explain of {key} must answer at once"));
            };
            for range in explanation.ranges {
                let (extent, unit) = (&range.extent, 1u64 << SUM_UNIT_SHIFT);
                let twice = [format!("`{}` still has it", range.device), format!("a copy on `{}`", range.device)];
                if twice.iter().any(|words| range.why.contains(words)) {
                    return Err(format!("DOUBLED: {key} at {} has two places on `{}`", range.offset, range.device));
                }
                let Some(copy) = copy_of(&range.why, &range.device) else { continue };
                let (begin, end) = (u64::from(extent.skip), u64::from(extent.skip + extent.len));
                let kept = end.next_multiple_of(unit).min(u64::from(extent.run_len)) - begin / unit * unit;
                let is_first = seen.insert((copy.clone(), extent.device, extent.run_offset, begin, end));
                if is_first || self.profile.shares > 0 {
                    *copies.entry(copy).or_default() += kept.next_multiple_of(4096);
                }
            }
        }
        Ok(copies)
    }
    /// Deletes everything and checks that all space is free again.
    pub(super) fn delete_everything(&mut self) -> Check {
        let ids: Vec<_> = self.oracle.current().containers.keys().copied().collect();
        for id in ids {
            let at = self.any_client().ok_or("nobody is there")?;
            let (update, change) = (Update::ContainerDelete { id }, Change::ContainerDelete { id });
            self.send_updates(at, Vec::new(), vec![update], &[change], true)?;
            self.rest()?;
        }
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.client_open()?;
        self.flush_all()?;
        if self.is_flushed() { self.check_space(true) } else { Ok(()) }
    }
    /// However full a store is, after deleting all its objects it accepts new ones, and flushes them.
    fn empty_and_fill_again(&mut self) -> Check {
        while !self.clients.is_empty() {
            self.client_bury(0);
        }
        self.client_open()?;
        self.delete_snapshots()?;
        let containers = self.oracle.current().containers.clone();
        let objects = containers
            .iter()
            .flat_map(|(id, it)| it.objects.keys().map(|object| ObjectKey { container: *id, object: *object }));
        let objects: Vec<ObjectKey> = objects.collect();
        for some in objects.chunks(3) {
            let updates = some.iter().map(|key| Update::ObjectDelete { key: *key }).collect();
            let changes: Vec<Change> = some.iter().map(|key| Change::ObjectDelete { key: *key }).collect();
            self.send_updates(0, Vec::new(), updates, &changes, false)?;
            self.tick()?;
        }
        self.rest()?;
        let session = self.observer()?;
        let Outcome::Ready(Response::Devices(devices)) = self.engine().handle(session, 0, Request::Devices) else {
            return Err("Devices must answer at once".into());
        };
        let usable = |device: &DeviceInfo| device.spec.kind.is_shareable() && device.state == DeviceState::Online;
        if !devices.iter().any(|device| usable(device) && device.spec.kind.is_persistent()) || self.is_maimed() {
            return Ok(());
        }
        trace!(self.trace, "all objects are deleted: there must be room");
        for (id, _) in containers.iter().filter(|(_, it)| it.spec.durability != Durability::Scratch).take(1) {
            let key = ObjectKey { container: *id, object: ObjectId(1) };
            let block_shift = 12;
            let (create, created) =
                (Update::ObjectCreate { key, block_shift }, Change::ObjectCreate { key, block_shift });
            self.send_updates(0, Vec::new(), vec![create], &[created], true)?;
            let Some((write, written)) = self.write_leased(0, key, 0, 3000)? else {
                return Err(format!("FULL: no room for container {id} after everything was deleted"));
            };
            self.send_updates(0, Vec::new(), vec![write], &[written], true)?;
            self.rest()?;
        }
        self.flush_all()?;
        if self.is_flushed() { Ok(()) } else { Err("FULL: a flush after everything was deleted".into()) }
    }
    /// Returns true if the last flush had room for everything: what was replaced since an earlier flush uses no more
    /// space.
    pub(super) fn is_flushed(&self) -> bool {
        matches!(self.clients.first().and_then(|c| c.answered.back()), Some((_, _, Response::Done)))
    }
    pub(super) fn flush_all(&mut self) -> Check {
        let upto = self.oracle.len();
        self.ask(0, &Request::Flush { target: FlushTarget::Store }, &Goal::Flush { container: None, upto })?;
        self.rest()?;
        match self.clients[0].sent.first() {
            Some(sent) if self.flips == 0 => Err(format!("HANG: {:?} never gets its answer", sent.request)),
            _ => Ok(()),
        }
    }
}
