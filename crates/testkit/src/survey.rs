//! Reads the whole content of a store through an engine: the observation that the oracle judges, and the bytes of
//! each device that are in use.

use std::collections::BTreeMap;

use cenote_model::{
    ContainerId, ContainerInfo, DeviceId, Encoding, Extent, IndexId, IndexKey, NextFrom, OBJECT_BYTES_MAX, ObjectId,
    ObjectKey, Request, Response,
};
use cenote_store::{Engine, Outcome, SessionId};

use crate::access::read_extent;
use crate::oracle::{Observed, ObservedContainer, ObservedObject, ObservedRecords};

/// The object (value log) that holds those values of a container's records that are not in memory.
pub const VALUE_LOG: ObjectId = ObjectId(u128::MAX);

/// Bytes of a device that an extent views.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Used {
    /// The device.
    pub device: DeviceId,
    /// Start of the extent's bytes on it.
    pub offset: u64,
    /// Their length.
    pub len: u64,
    /// Start of the whole run.
    pub run_offset: u64,
    /// Its length.
    pub run_len: u64,
    /// Length of an uncompressed copy of its checksum units.
    pub plain_len: u64,
    /// The container that it belongs to, directly or by a snapshot: these may share bytes.
    pub family: ContainerId,
}

impl Used {
    /// Begin and end of the bytes that the device must keep: whole checksum units, since smaller parts cannot be
    /// verified.
    pub fn kept(&self) -> (u64, u64) {
        let unit = 1 << cenote_model::SUM_UNIT_SHIFT;
        let skip = self.offset - self.run_offset;
        let end = (skip + self.len).next_multiple_of(unit).min(self.run_len);
        (self.run_offset + skip / unit * unit, self.run_offset + end)
    }
}

/// The content of a store.
#[derive(Clone, Debug, Default)]
pub struct Survey {
    /// For the oracle.
    pub observed: Observed,
    /// For the allocator's check.
    pub used: Vec<Used>,
    /// Why ranges were refused.
    pub refusals: Vec<String>,
    /// Extents that are compressed in their place of reading.
    pub packed: u64,
}

/// Takes a survey, `page` entries at a time. `Err`: the store gave a wrong answer.
pub fn survey(engine: &mut Engine, session: SessionId, page: u32) -> Result<Survey, String> {
    let mut surveyor = Surveyor { engine, session, page, family: ContainerId(0), survey: Survey::default() };
    let Response::Stats(stats) = surveyor.ask(Request::Stats)? else { return Err("no stats".into()) };
    surveyor.survey.observed.epoch = stats.epoch;
    let mut after: Option<String> = None;
    loop {
        let request = Request::ContainerList { after: after.clone(), limit: page };
        let Response::Containers(containers) = surveyor.ask(request)? else { return Err("no containers".into()) };
        let Some(last) = containers.last() else { break };
        if after.as_ref().is_some_and(|after| containers.iter().any(|c| c.label <= *after)) {
            return Err(format!("ContainerList after {after:?} is out of order"));
        }
        after = Some(last.label.clone());
        for info in containers {
            surveyor.container(info)?;
        }
    }
    let survey = surveyor.survey;
    disjoint(&survey.used)?;
    Ok(survey)
}

/// Fails if two extents share bytes of a device although they do not belong to a container and its snapshots.
fn disjoint(used: &[Used]) -> Result<(), String> {
    let mut sorted = used.to_vec();
    sorted.sort_unstable();
    let mut farthest: Option<Used> = None;
    for used in sorted {
        let overlapped = farthest.filter(|it| it.device == used.device && it.offset + it.len > used.offset);
        if let Some(other) = overlapped.filter(|it| it.family != used.family) {
            return Err(format!("two extents share bytes: {other:?} and {used:?}"));
        }
        farthest = overlapped.filter(|it| it.offset + it.len > used.offset + used.len).or(Some(used));
    }
    Ok(())
}

/// The content of a container or a snapshot.
pub fn content(engine: &mut Engine, session: SessionId, id: ContainerId) -> Result<ObservedContainer, String> {
    let mut surveyor = Surveyor { engine, session, page: 1000, family: id, survey: Survey::default() };
    surveyor.content(id)
}

/// Bytes of extents on each device, in the device's units.
pub fn used_bytes(survey: &Survey, engine: &Engine) -> BTreeMap<DeviceId, u64> {
    let mut sorted: Vec<(DeviceId, u64, u64)> =
        survey.used.iter().map(|used| (used.device, used.kept().0, used.kept().1)).collect();
    sorted.sort_unstable();
    let units: BTreeMap<DeviceId, u64> =
        engine.device_infos().into_iter().map(|info| (info.id, u64::from(info.unit_bytes))).collect();
    let mut sums = BTreeMap::new();
    let mut reached: Option<(DeviceId, u64)> = None;
    for (device, begin, end) in sorted {
        let unit = units.get(&device).copied().unwrap_or(1);
        let begin = begin / unit * unit;
        let end = end.div_ceil(unit) * unit;
        let from = match reached {
            Some((same, until)) if same == device => begin.max(until),
            _ => begin,
        };
        if end > from {
            *sums.entry(device).or_insert(0) += end - from;
            reached = Some((device, end));
        }
    }
    sums
}

struct Surveyor<'a> {
    engine: &'a mut Engine,
    session: SessionId,
    page: u32,
    family: ContainerId,
    survey: Survey,
}

impl Surveyor<'_> {
    #[allow(clippy::needless_pass_by_value, reason = "each request is made for this one call")]
    fn ask(&mut self, request: Request) -> Result<Response, String> {
        match self.engine.handle(self.session, 0, request.clone()) {
            Outcome::Ready(Response::Failed(error)) => Err(format!("{request:?} failed: {error:?}")),
            Outcome::Ready(response) => Ok(response),
            Outcome::Wait(ticket) if matches!(request, Request::Get { .. } | Request::Next { .. }) => {
                // Jobs read the values that are not in memory.
                while let Some(job) = self.engine.next_job() {
                    self.engine.finish_job(job.run());
                    match self.engine.take_answer(ticket) {
                        Some(Response::Failed(error)) => return Err(format!("{request:?} failed: {error:?}")),
                        Some(response) => return Ok(response),
                        None => {}
                    }
                }
                Err(format!("{request:?} is never answered"))
            }
            Outcome::Wait(_) => Err(format!("{request:?} has to wait")),
        }
    }
    fn container(&mut self, info: ContainerInfo) -> Result<(), String> {
        self.family = info.id;
        let mut found = self.content(info.id)?;
        check_counts(info.id, &found, (info.objects, info.indices, info.records))?;
        let mut after: Option<String> = None;
        loop {
            let request = Request::SnapshotList { container: info.id, after: after.clone(), limit: self.page };
            let Response::Snapshots(snapshots) = self.ask(request)? else { return Err("no snapshots".into()) };
            let Some(last) = snapshots.last() else { break };
            if snapshots.first().is_some_and(|first| Some(&first.name) <= after.as_ref()) {
                return Err(format!("SnapshotList after {after:?} is out of order"));
            }
            after = Some(last.name.clone());
            for snapshot in snapshots {
                let content = self.content(snapshot.id)?;
                check_counts(snapshot.id, &content, (snapshot.objects, snapshot.indices, snapshot.records))?;
                found.snapshots.insert(snapshot.name, (snapshot.id, content));
            }
        }
        (found.label, found.spec) = (info.label, info.spec);
        self.survey.observed.containers.insert(info.id, found);
        Ok(())
    }
    /// Reads objects and indices.
    fn content(&mut self, container: ContainerId) -> Result<ObservedContainer, String> {
        let mut found = ObservedContainer::default();
        let mut after: Option<ObjectId> = None;
        loop {
            let request = Request::ObjectList { container, after, limit: self.page };
            let Response::Objects(ids) = self.ask(request)? else { return Err("no objects".into()) };
            if ids.first().is_some_and(|first| Some(*first) <= after) || !ids.is_sorted() {
                return Err(format!("ObjectList after {after:?} gives {ids:?}"));
            }
            let Some(last) = ids.last() else { break };
            after = Some(*last);
            for object in ids {
                let key = ObjectKey { container, object };
                found.objects.insert(object, self.object(key).map_err(|e| format!("object {key}: {e}"))?);
            }
        }
        self.value_log(container)?;
        self.indices(container, &mut found)?;
        Ok(found)
    }
    /// Reads the bytes of record values that are not in memory. No list contains their object.
    fn value_log(&mut self, container: ContainerId) -> Result<(), String> {
        let key = ObjectKey { container, object: VALUE_LOG };
        let request = Request::Lookup { key, offset: 0, len: OBJECT_BYTES_MAX, limit: 1 };
        let there = self.engine.handle(self.session, 0, request);
        if matches!(there, Outcome::Ready(Response::Failed(_))) { Ok(()) } else { self.object(key).map(drop) }
    }
    fn object(&mut self, key: ObjectKey) -> Result<ObservedObject, String> {
        let mut found = ObservedObject::default();
        let mut at = 0;
        while at < OBJECT_BYTES_MAX {
            let request = Request::Lookup { key, offset: at, len: OBJECT_BYTES_MAX - at, limit: self.page };
            let Response::Lookup(lookup) = self.ask(request)? else { return Err("no map".into()) };
            (found.size, found.block_shift, found.epoch) = (lookup.size, lookup.block_shift, lookup.epoch);
            if lookup.covered_to <= at {
                return Err(format!("Lookup from {at} covers to {} only", lookup.covered_to));
            }
            for (offset, extent) in &lookup.extents {
                // A page may begin with the last extent of the previous one.
                if *offset >= at || at == 0 {
                    self.piece(&mut found, *offset, extent);
                }
            }
            at = lookup.covered_to;
        }
        Ok(found)
    }
    fn piece(&mut self, found: &mut ObservedObject, offset: u64, extent: &Extent) {
        self.survey.used.push(self.used(extent));
        self.survey.packed += u64::from(extent.encoding != Encoding::Plain);
        let bytes = match self.engine.device(extent.device) {
            Some(device) => read_extent(&device, extent),
            None => Err(format!("device {} is not there", extent.device)),
        };
        match bytes {
            Ok(bytes) => found.pieces.push((offset, bytes)),
            Err(why) => {
                found.refused.push((offset, offset + u64::from(extent.len)));
                self.survey.refusals.push(format!("at {offset}: {why}"));
            }
        }
    }
    fn used(&self, extent: &Extent) -> Used {
        let unit = 1u32 << cenote_model::SUM_UNIT_SHIFT;
        let (first, end) = (extent.skip / unit, (extent.skip + extent.len).div_ceil(unit));
        let plain_len = u64::from((end * unit).min(extent.run_len) - first * unit);
        let (device, family) = (extent.device, self.family);
        if let Encoding::Packed(packed) = &extent.encoding {
            let begin = extent.run_offset + u64::from(packed.start(first as usize));
            let len = u64::from(packed.start(end as usize) - packed.start(first as usize));
            return Used { device, offset: begin, len, run_offset: begin, run_len: len, plain_len, family };
        }
        Used {
            device,
            offset: extent.device_offset(),
            len: u64::from(extent.len),
            run_offset: extent.run_offset,
            run_len: u64::from(extent.run_len),
            plain_len,
            family,
        }
    }
    fn indices(&mut self, container: ContainerId, found: &mut ObservedContainer) -> Result<(), String> {
        let mut after: Option<IndexId> = None;
        loop {
            let request = Request::IndexList { container, after, limit: self.page };
            let Response::Indices(ids) = self.ask(request)? else { return Err("no indices".into()) };
            if ids.first().is_some_and(|first| Some(*first) <= after) || !ids.is_sorted() {
                return Err(format!("IndexList after {after:?} gives {ids:?}"));
            }
            let Some(last) = ids.last() else { return Ok(()) };
            after = Some(*last);
            for index in ids {
                let records = self.records(IndexKey { container, index })?;
                found.indices.insert(index, records);
            }
        }
    }
    fn records(&mut self, index: IndexKey) -> Result<ObservedRecords, String> {
        let mut found = BTreeMap::new();
        let mut from = NextFrom::Start;
        loop {
            let request =
                Request::Next { index, from: from.clone(), prefix: Vec::new(), limit: self.page, bytes_max: 1 << 16 };
            let Response::Records { records, more } = self.ask(request)? else { return Err("no records".into()) };
            if more && records.is_empty() {
                return Err(format!("index {index}: nothing, and more to come"));
            }
            let keys: Vec<Vec<u8>> = records.iter().map(|(key, _)| key.to_vec()).collect();
            if !keys.is_sorted() || keys.first().is_some_and(|key| found.contains_key(key)) {
                return Err(format!("index {index}: out of order from {from:?}"));
            }
            if let Some(last) = keys.last() {
                from = NextFrom::After(last.clone());
                let Response::Values(values) = self.ask(Request::Get { index, keys: keys.clone() })? else {
                    return Err("no values".into());
                };
                for ((key, value), got) in records.to_vec().into_iter().zip(values) {
                    match got {
                        Some((same, epoch)) if same == value => found.insert(key, (value, epoch)),
                        other => return Err(format!("index {index}: NEXT and GET differ: {other:?}")),
                    };
                }
            }
            if !more {
                return Ok(found);
            }
        }
    }
}

/// Compares the store's counts with what was found.
fn check_counts(id: ContainerId, found: &ObservedContainer, counted: (u64, u64, u64)) -> Result<(), String> {
    let records: usize = found.indices.values().map(BTreeMap::len).sum();
    let there = (found.objects.len() as u64, found.indices.len() as u64, records as u64);
    if counted == there {
        return Ok(());
    }
    Err(format!("container {id}: counts {counted:?} of objects, indices, records, but there are {there:?}"))
}
