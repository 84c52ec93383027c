//! Reads: unsent bytes from memory, the rest from the service in whole checksum units.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use cenote_model::{Error, ErrorKind, Result};
use parking_lot::Mutex;

use super::device::{BucketState, Inner};
use super::map::{Piece, Span};
use super::pack::{Table, UNIT};
use crate::sums::sum_of;

/// Upper bound of a request's bytes, unless a single run needs more.
const REQUEST_BYTES: u32 = 4 << 20;
/// A gap of up to this many bytes is read and discarded, to save a second request.
const GAP_BYTES: u32 = 64 << 10;
const REQUESTS_AT_ONCE: usize = 8;

/// Wanted bytes of one run.
#[derive(Clone)]
struct Want {
    pack: u64,
    table: Arc<Table>,
    /// Whole units in the data of the pack, and the index of the first one's checksum.
    begin: u32,
    end: u32,
    sum: u32,
    /// The wanted part of them, and its offset in the caller's buffer.
    at: u32,
    len: u32,
    into: usize,
}

/// Wants that one request serves.
struct Request {
    begin: u32,
    end: u32,
    wants: Vec<Want>,
}

impl Inner {
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let mut seen: Option<Vec<Span>> = None;
        loop {
            let (spans, wants) = self.plan(offset, buf)?;
            let Err(error) = self.fetch(wants, buf) else { return Ok(()) };
            // Bytes that moved meanwhile are in another pack; bytes damaged in transit may arrive whole.
            let repeated = seen.as_ref() == Some(&spans);
            if repeated || (seen.is_none() && !self.may_differ(&error)) {
                return Err(error);
            }
            seen = Some(spans);
        }
    }

    fn may_differ(&self, error: &Error) -> bool {
        matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound)
            && !self.closing.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Copies the bytes that are in memory; returns the spans of the range and what to request.
    fn plan(&self, offset: u64, buf: &mut [u8]) -> Result<(Vec<Span>, Vec<Want>)> {
        let state = self.state.lock();
        let spans = state.map.lookup(offset, buf.len() as u64);
        let mut wants = Vec::new();
        for span in &spans {
            let into = (span.offset - offset) as usize;
            let place = &mut buf[into..into + span.len as usize];
            match &span.piece {
                None => {
                    self.check_absent(&state, span)?;
                    place.fill(0);
                }
                Some(piece) => match state.in_memory(piece) {
                    Some(bytes) => place.copy_from_slice(bytes),
                    None => self.want(&state, piece, into, &mut wants)?,
                },
            }
        }
        Ok((spans, wants))
    }

    /// Fails if bytes that look unwritten may have been written and lost.
    fn check_absent(&self, state: &BucketState, span: &Span) -> Result<()> {
        if let Some(at) = state.lost_in(span.offset, span.len) {
            return Err(Error::new(ErrorKind::NotFound, self.place.object(&self.place.own))
                .because(format!("the pack that had the bytes at {at} of the device is not there"))
                .try_next("somebody deleted it: restore it from a copy, or write again what was in it"));
        }
        state.shadow.as_ref().map_or(Ok(()), |(_, error)| Err(error.clone()))
    }

    fn want(&self, state: &BucketState, piece: &Piece, mut into: usize, wants: &mut Vec<Want>) -> Result<()> {
        let Some(table) = Self::table(state, piece.pack) else {
            return Err(Error::new(ErrorKind::Internal, self.place.object(&self.place.pack_key(piece.pack)))
                .because("its table is missing"));
        };
        let (mut at, end) = (piece.at, piece.at + piece.len);
        while at < end {
            let run = table.run_at(at);
            if let Some((_, error)) = state.shadow.as_ref().filter(|(latest, _)| run.born <= *latest) {
                return Err(error.clone());
            }
            let begin_of_unit = at - (at - run.at) % UNIT;
            let len = ((run.at + run.len).min(end) - at).min(REQUEST_BYTES - (at - begin_of_unit));
            let (begin, until, sum) = table.units_of(at, len);
            wants.push(Want { pack: piece.pack, table: Arc::clone(&table), begin, end: until, sum, at, len, into });
            at += len;
            into += len as usize;
        }
        Ok(())
    }

    /// Reads ranges that the service has, each in one pack; in the given order.
    pub fn read_pieces(&self, pieces: &[Piece]) -> Result<Vec<u8>> {
        let mut buf = vec![0; pieces.iter().map(|piece| piece.len as usize).sum()];
        let mut wants = Vec::new();
        let mut into = 0;
        {
            let state = self.state.lock();
            for piece in pieces {
                self.want(&state, piece, into, &mut wants)?;
                into += piece.len as usize;
            }
        }
        self.fetch(wants, &mut buf)?;
        Ok(buf)
    }

    fn fetch(&self, wants: Vec<Want>, buf: &mut [u8]) -> Result<()> {
        let requests = gather(wants);
        if let [request] = requests.as_slice() {
            let bytes = self.ask(request)?;
            request.place(&bytes, buf);
            return Ok(());
        }
        let (next, answers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..requests.len().min(REQUESTS_AT_ONCE) {
                scope.spawn(|| {
                    while let Some(request) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                        let answer = self.ask(request);
                        let failed = answer.is_err();
                        answers.lock().push((request, answer));
                        if failed {
                            next.store(requests.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        for (request, answer) in answers.into_inner() {
            request.place(&answer?, buf);
        }
        Ok(())
    }

    /// Requests bytes and checks them.
    fn ask(&self, request: &Request) -> Result<Bytes> {
        let Some(first) = request.wants.first() else { return Ok(Bytes::new()) };
        let key = self.place.pack_key(first.pack);
        let len = request.end - request.begin;
        let from = first.table.data_offset + u64::from(request.begin);
        let bytes = self.service.get(&key, from, u64::from(len)).map_err(|refusal| self.place.error(&key, &refusal))?;
        if bytes.len() != len as usize {
            let why = format!("it ends after {} of {len} bytes at {from}", bytes.len());
            return Err(self.place.damaged(&key, why));
        }
        for want in &request.wants {
            let units = &bytes[(want.begin - request.begin) as usize..(want.end - request.begin) as usize];
            let sums = &want.table.sums[want.sum as usize..];
            let bad = units.chunks(UNIT as usize).zip(sums).position(|(unit, sum)| sum_of(unit) != *sum);
            if let Some(unit) = bad {
                let at = first.table.data_offset + u64::from(want.begin) + unit as u64 * u64::from(UNIT);
                return Err(self.place.damaged(&key, format!("the checksum of its bytes at {at} does not match")));
            }
        }
        Ok(bytes)
    }
}

impl Request {
    fn place(&self, bytes: &[u8], buf: &mut [u8]) {
        for want in &self.wants {
            let from = (want.at - self.begin) as usize;
            buf[want.into..want.into + want.len as usize].copy_from_slice(&bytes[from..from + want.len as usize]);
        }
    }
}

/// Combines wants into few requests.
fn gather(mut wants: Vec<Want>) -> Vec<Request> {
    wants.sort_by_key(|want| (want.pack, want.begin, want.end));
    let mut requests: Vec<Request> = Vec::new();
    for want in wants {
        if let Some(last) = requests.last_mut()
            && last.wants[0].pack == want.pack
            && want.begin <= last.end.saturating_add(GAP_BYTES)
            && want.end.max(last.end) - last.begin <= REQUEST_BYTES
        {
            last.end = last.end.max(want.end);
            last.wants.push(want);
        } else {
            requests.push(Request { begin: want.begin, end: want.end, wants: vec![want] });
        }
    }
    requests
}
