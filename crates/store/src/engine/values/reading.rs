//! Records are asked for. What is in memory is answered at once, the rest when a job has read it.

use std::ops::Bound;

use cenote_model::{Error, ErrorKind, IndexKey, NextFrom, Response, Result};

use super::super::Engine;
use super::super::failed;
use super::super::jobs::What;
use super::super::read::{BYTES_MAX, LIMIT_MAX};
use crate::copying::{Part, Unread};
use crate::index::{Away, ValueRef};
use crate::value_io::{ReadValues, Slice};
use crate::value_log::VALUE_LOG;
use crate::work::{Job, Work};
use crate::{Outcome, Ticket};

/// Attempts at reading, those at copies included.
const TRIES_MAX: u32 = 3;

/// Values that somebody waits for.
pub(in super::super) struct Reading {
    ticket: Ticket,
    index: IndexKey,
    /// The answer, in which they are missing.
    response: Response,
    /// The number of the record in it, and where its value is. As long as it is here, its batch is not given up.
    missing: Vec<(usize, Away)>,
    tries: u32,
}

impl Engine {
    /// Values by key.
    pub(in super::super) fn get_records(&mut self, index: IndexKey, keys: &[Vec<u8>]) -> Outcome {
        let records = match self.index(index) {
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
        if self.values.spills {
            for key in keys {
                self.values.recent.note(key);
            }
        }
        if bytes > u64::from(BYTES_MAX) && keys.len() > 1 {
            return failed(
                Error::new(ErrorKind::LimitExceeded, format!("an answer of {bytes} bytes from index {index}"))
                    .because("values that are not in memory are read at most 64 MiB at a time")
                    .try_next("ask for fewer keys at once"),
            );
        }
        self.when_read(index, Response::Values(values), missing)
    }

    /// Records in order.
    pub(in super::super) fn next_records(
        &mut self,
        index: IndexKey,
        from: &NextFrom,
        prefix: &[u8],
        (limit, bytes_max): (u32, u32),
    ) -> Outcome {
        let records = match self.index(index) {
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
        self.when_read(index, Response::Records { records, more }, missing)
    }

    fn when_read(&mut self, index: IndexKey, response: Response, missing: Vec<(usize, Away)>) -> Outcome {
        if missing.is_empty() {
            return Outcome::Ready(response);
        }
        let ticket = self.ticket();
        self.values.reads.push_back(Reading { ticket, index, response, missing, tries: 0 });
        Outcome::Wait(ticket)
    }

    /// The next job that reads values for somebody.
    pub(in super::super) fn next_values(&mut self) -> Option<Job> {
        loop {
            let mut reading = self.values.reads.pop_front()?;
            reading.tries += 1;
            let wanted: Vec<&Away> = reading.missing.iter().map(|(_, away)| away).collect();
            match self.reads_of(reading.index, &wanted, reading.tries > 1) {
                Ok(reads) => return Some(self.start(What::Values(Box::new(reading)), Work::ReadValues(reads))),
                Err(error) => self.finished.push((reading.ticket, Response::Failed(error))),
            }
        }
    }

    /// What has to be read for values; `at_copy`: where there is a copy, that.
    pub(super) fn reads_of(&self, index: IndexKey, wanted: &[&Away], at_copy: bool) -> Result<ReadValues> {
        let gone = || Error::new(ErrorKind::NotFound, format!("index {index}")).because("it was deleted meanwhile");
        let container = self.state.log_owner(index.container).ok_or_else(gone)?;
        let slot = self.state.containers.get(container).and_then(|it| it.objects.get(&VALUE_LOG)).ok_or_else(gone)?;
        let map = &self.state.objects.get(*slot).map;
        let (mut parts, mut values) = (Vec::<Part>::new(), Vec::new());
        let mut last: Option<(u8, u64)> = None;
        for away in wanted {
            let (from, to) = (away.offset(), away.offset() + u64::from(away.len));
            let mut slices = Vec::new();
            for (at, ext) in map.overlapping(from, to) {
                let skip = from.saturating_sub(at) as u32;
                let len = ((at + u64::from(ext.len)).min(to) - at.max(from)) as u32;
                let seen = self.readable(&ext.part(skip, len), at_copy).trimmed();
                // Neighbours are in the same units: these are read once.
                if last != Some((seen.dev, seen.run_offset)) || parts.last().is_none_or(|part| part.len < seen.run_len)
                {
                    let name = || self.state.space.get(seen.dev).spec.name.clone();
                    parts.push(self.part_of(&seen).ok_or_else(|| {
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

    pub(in super::super) fn finish_reading(
        &mut self,
        mut reading: Reading,
        result: std::result::Result<Vec<Vec<u8>>, Unread>,
    ) {
        match result {
            Ok(values) => {
                for ((number, _), value) in reading.missing.into_iter().zip(values) {
                    match &mut reading.response {
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
                self.finished.push((reading.ticket, reading.response));
            }
            // It may have moved, or have a copy that is good.
            Err(_) if reading.tries < TRIES_MAX => self.values.reads.push_back(reading),
            Err(unread) => {
                let mending = "`cenote verify` names the damage; put the records again, or delete them";
                let error = self.not_read(format!("values of index {}", reading.index), &unread, mending);
                self.finished.push((reading.ticket, Response::Failed(error)));
            }
        }
    }
}
