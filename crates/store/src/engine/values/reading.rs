//! Reads of records. Values in memory are answered at once, others after a job has read them.

use std::ops::Bound;

use cenote_model::{Error, ErrorKind, IndexKey, NextFrom, Response, Result};

use super::Values;
use crate::apply::shortened_bytes;
use crate::copying::{Part, Unread};
use crate::engine::core::{BYTES_MAX, Core, Effect, LIMIT_MAX};
use crate::engine::failed;
use crate::index::{Away, ValueRef};
use crate::map::DeviceIndex;
use crate::value_io::{ReadValues, Slice};
use crate::value_log::VALUE_LOG;
use crate::work::Job;
use crate::{Outcome, Ticket};

/// Attempts to read a value, those at copies included.
const TRIES_MAX: u32 = 3;

/// Values that a request waits for.
pub struct Reading {
    ticket: Ticket,
    index: IndexKey,
    /// The keys, if the request was by key.
    keys: Vec<Vec<u8>>,
    /// The response, in which values are missing.
    response: Response,
    /// The number of each record in the response, and the place of its value. Holding the place keeps its batch.
    missing: Vec<(usize, Away)>,
    tries: u32,
}

impl Values {
    /// Returns values by key. Fails if the index does not exist or the answer is too long.
    pub fn get_records(&mut self, core: &mut Core, index: IndexKey, keys: &[Vec<u8>]) -> Outcome {
        let records = match core.index(index) {
            Ok(records) => records,
            Err(error) => return failed(error),
        };
        let (mut missing, mut bytes) = (Vec::new(), 0);
        let mut values = Vec::with_capacity(keys.len());
        for key in keys {
            values.push(records.get(key).map(|record| match record.value {
                ValueRef::Here(value) => (value.to_vec(), record.epoch),
                ValueRef::Away(away) => {
                    bytes += u64::from(away.len);
                    missing.push((values.len(), Away::clone(away)));
                    (Vec::new(), record.epoch)
                }
            }));
        }
        if self.spill.is_on {
            for key in keys {
                self.recent.note(key);
            }
        }
        if bytes > u64::from(BYTES_MAX) && keys.len() > 1 {
            return failed(
                Error::new(ErrorKind::LimitExceeded, format!("an answer of {bytes} bytes from index {index}"))
                    .because("values that are not in memory are read at most 64 MiB at a time")
                    .try_next("ask for fewer keys at once"),
            );
        }
        let keys = if missing.is_empty() { Vec::new() } else { keys.to_vec() };
        self.when_read(core, index, keys, Response::Values(values), missing)
    }

    /// Returns records in order of their keys. Fails if the index does not exist.
    pub fn next_records(
        &mut self,
        core: &mut Core,
        index: IndexKey,
        from: &NextFrom,
        prefix: &[u8],
        (limit, bytes_max): (u32, u32),
    ) -> Outcome {
        let records = match core.index(index) {
            Ok(records) => records,
            Err(error) => return failed(error),
        };
        let begin = match from {
            NextFrom::At(key) => Bound::Included(key.as_slice().max(prefix)),
            NextFrom::After(key) if key.as_slice() >= prefix => Bound::Excluded(key.as_slice()),
            NextFrom::Start | NextFrom::After(_) => Bound::Included(prefix),
        };
        let most = (limit.clamp(1, LIMIT_MAX) as usize, bytes_max.min(BYTES_MAX) as usize);
        let mut missing = Vec::new();
        let (records, more) = records.copy(begin, prefix, most, &mut missing);
        self.when_read(core, index, Vec::new(), Response::Records { records, more }, missing)
    }

    fn when_read(
        &mut self,
        core: &mut Core,
        index: IndexKey,
        keys: Vec<Vec<u8>>,
        response: Response,
        missing: Vec<(usize, Away)>,
    ) -> Outcome {
        if missing.is_empty() {
            return Outcome::Ready(response);
        }
        let ticket = core.ticket();
        self.reads.push_back(Reading { ticket, index, keys, response, missing, tries: 0 });
        Outcome::Wait(ticket)
    }

    /// Returns a job that reads values for the next request.
    pub fn next_values(&mut self, core: &mut Core) -> Option<Job> {
        loop {
            let mut reading = self.reads.pop_front()?;
            reading.tries += 1;
            let wanted: Vec<&Away> = reading.missing.iter().map(|(_, away)| away).collect();
            match reads_of(core, reading.index, &wanted, reading.tries > 1) {
                Ok(reads) => {
                    return Some(core.start(Effect::Other, reads, |values: &mut Self, core, (read, unread)| {
                        values.finish_reading(core, reading, read, unread);
                    }));
                }
                Err(error) => core.answers.finished.push((reading.ticket, Response::Failed(error))),
            }
        }
    }

    /// Takes read values: `values` are those before the first unreadable one (`unread`).
    pub fn finish_reading(
        &mut self,
        core: &mut Core,
        mut reading: Reading,
        values: Vec<Vec<u8>>,
        unread: Option<Unread>,
    ) {
        if !values.is_empty() {
            reading.tries = 0;
        }
        reading.take(values);
        let response = match unread {
            None => reading.response,
            // It may have moved, or have a good copy.
            Some(_) if reading.tries < TRIES_MAX => return self.reads.push_back(reading),
            Some(unread) => {
                let mending = "`cenote verify` names the damage; put the record again, or delete it";
                let error = core.not_read(reading.subject(), &unread, mending);
                reading.up_to_unread().unwrap_or(Response::Failed(error))
            }
        };
        core.answers.finished.push((reading.ticket, response));
    }
}

/// Returns the reads needed for values; `at_copy`: from copies where there are some. Fails if the index is gone or a
/// tier is not open.
pub fn reads_of(core: &Core, index: IndexKey, wanted: &[&Away], at_copy: bool) -> Result<ReadValues> {
    let gone = || Error::new(ErrorKind::NotFound, format!("index {index}")).because("it was deleted meanwhile");
    let container = core.state.log_owner(index.container).ok_or_else(gone)?;
    let slot =
        core.state.containers.get(container).and_then(|it| it.content.objects.get(&VALUE_LOG)).ok_or_else(gone)?;
    let map = &core.state.objects.get(*slot).map;
    let (mut parts, mut values) = (Vec::<Part>::new(), Vec::new());
    let mut last: Option<(DeviceIndex, u64)> = None;
    for away in wanted {
        let (from, to) = (away.offset(), away.offset() + u64::from(away.len));
        let mut slices = Vec::new();
        for (at, ext) in map.overlapping(from, to) {
            let skip = from.saturating_sub(at) as u32;
            let len = ((at + u64::from(ext.len)).min(to) - at.max(from)) as u32;
            let seen = core.readable(&ext.part(skip, len), at_copy).trimmed();
            // Neighbours share checksum units: read these once.
            if last != Some((seen.dev, seen.run_offset)) || parts.last().is_none_or(|part| part.len < seen.run_len) {
                let name = || core.state.space.get(seen.dev).spec.name.clone();
                parts.push(core.part_of(&seen).ok_or_else(|| {
                    Error::new(ErrorKind::Io, format!("values of index {index}"))
                        .because(format!("tier `{}`, on which they are, is not open", name()))
                        .try_next("bring it back (`cenote status` says what is wrong with it), and try again")
                })?);
                last = Some((seen.dev, seen.run_offset));
            }
            slices.push(Slice { part: parts.len() - 1, from: seen.skip, len });
        }
        values.push((away.len, slices));
    }
    Ok(ReadValues { parts, values })
}

impl Reading {
    /// Puts values into the response, for the first records in which they are missing.
    fn take(&mut self, values: Vec<Vec<u8>>) {
        let count = values.len().min(self.missing.len());
        for ((number, _), value) in self.missing.drain(..count).zip(values) {
            match &mut self.response {
                Response::Values(all) => {
                    if let Some(Some((place, _))) = all.get_mut(number) {
                        *place = value;
                    }
                }
                Response::Records { records, .. } => {
                    if let Some(place) = records.value_mut(number).filter(|place| place.len() == value.len()) {
                        place.copy_from_slice(&value);
                    }
                }
                _ => {}
            }
        }
    }

    /// Returns the record whose value cannot be read, as text.
    fn subject(&self) -> String {
        let number = self.missing.first().map_or(0, |(number, _)| *number);
        let key = match &self.response {
            Response::Records { records, .. } => records.get(number).map(|(key, _)| key),
            _ => self.keys.get(number).map(Vec::as_slice),
        };
        format!("the value of key `{}` of index {}", key.map(shortened_bytes).unwrap_or_default(), self.index)
    }

    /// Returns the records before the one whose value cannot be read, if any. A client that continues after them gets
    /// the error.
    fn up_to_unread(&mut self) -> Option<Response> {
        let number = self.missing.first().map(|(number, _)| *number).filter(|number| *number > 0)?;
        let Response::Records { records, .. } = &mut self.response else { return None };
        records.truncate(number);
        Some(Response::Records { records: std::mem::take(records), more: true })
    }
}
