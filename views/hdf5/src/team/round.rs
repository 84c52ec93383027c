//! The messages of ranks in a round, and how ranks wait for them.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind};

use crate::Result;
use crate::ffi::mpi::Request;
use crate::meta::bytes::{Encode, Reader};

use super::Team;
use super::wire::{self, Wire};

/// The environment variable with the seconds after which a rank gives up waiting for others. Default: never.
const WAIT_ENV: &str = "CENOTE_HDF5_MPI_WAIT_S";
/// Waiting time after which a rank prints a message, once.
const TELL_AFTER: Duration = Duration::from_mins(1);
/// Length of the text about a call or a failure in a record.
const TEXT_BYTES: usize = 240;
const MARK_BYTES: usize = 512;
const RECORD_BYTES: usize = 16 + TEXT_BYTES + MARK_BYTES;
/// Bytes of the first broadcast; longer outcomes take a second one.
const FRAME_BYTES: usize = 1024;

/// A call that all ranks make.
pub struct Call<'a> {
    kind: &'static str,
    name: &'a [u8],
    number: u64,
    marks: Option<Box<Marks>>,
}

impl<'a> Call<'a> {
    /// A call identified by its kind alone.
    pub fn new(kind: &'static str) -> Self {
        Self { kind, name: &[], number: 0, marks: None }
    }
    /// Adds a name to the call's identity.
    #[must_use]
    pub fn named(mut self, name: &'a [u8]) -> Self {
        self.name = name;
        self
    }
    /// Adds a number to the call's identity: an object's, or anything that must be equal on all ranks.
    #[must_use]
    pub fn about(mut self, what: impl Hash) -> Self {
        self.number = hash(what);
        self
    }
    /// Adds marks for rank 0.
    #[must_use]
    pub fn marked(mut self, marks: Marks) -> Self {
        self.marks = Some(Box::new(marks));
        self
    }
}

impl fmt::Display for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " `{}`", String::from_utf8_lossy(self.name)) }
    }
}

/// A hash that is equal in all processes of one program.
fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// A set of objects that may contain more than was added (a Bloom filter).
#[derive(Clone)]
pub struct Marks([u8; MARK_BYTES]);

impl Default for Marks {
    fn default() -> Self {
        Self([0; MARK_BYTES])
    }
}

impl Marks {
    fn bit(oid: u64) -> (usize, u8) {
        let bit = (hash(oid) % (8 * MARK_BYTES as u64)) as usize;
        (bit / 8, 1 << (bit % 8))
    }
    /// Adds an object.
    pub fn add(&mut self, oid: u64) {
        let (byte, bit) = Self::bit(oid);
        self.0[byte] |= bit;
    }
    /// Returns false if the object was not added.
    pub fn may_have(&self, oid: u64) -> bool {
        let (byte, bit) = Self::bit(oid);
        self.0[byte] & bit != 0
    }
}

/// What a rank sends to rank 0: a hash of its call (8 bytes), whether it failed (1), text, marks.
pub struct Record(Box<[u8]>);

impl Record {
    pub fn of(call: &Call<'_>, failure: Option<&Error>) -> Self {
        let mut bytes = vec![0; RECORD_BYTES].into_boxed_slice();
        bytes[..8].copy_from_slice(&hash((call.kind, call.name, call.number)).to_le_bytes());
        bytes[8] = failure.map_or(0, |error| error.kind() as u8);
        let words = failure.map_or_else(|| call.to_string(), ToString::to_string);
        let n = words.len().min(TEXT_BYTES);
        bytes[16..16 + n].copy_from_slice(&words.as_bytes()[..n]);
        if let Some(marks) = &call.marks {
            bytes[16 + TEXT_BYTES..].copy_from_slice(&marks.0);
        }
        Self(bytes)
    }
    fn words(record: &[u8]) -> String {
        let words = &record[16..16 + TEXT_BYTES];
        let end = words.iter().position(|b| *b == 0).unwrap_or(TEXT_BYTES);
        String::from_utf8_lossy(&words[..end]).into_owned()
    }
    /// The verdict on a round that cannot be carried out.
    pub fn judge<T>(all: &[u8]) -> Option<Verdict<T>> {
        let ranks = || all.chunks_exact(RECORD_BYTES).enumerate();
        let (_, first) = ranks().next()?;
        if let Some((rank, other)) = ranks().find(|(_, record)| record[..8] != first[..8]) {
            let error = Error::new(ErrorKind::InvalidInput, Self::words(first))
                .because(format!(
                    "HDF5 asks for the same calls on all ranks: rank {rank} calls {} instead",
                    Self::words(other)
                ))
                .try_next("make every call that changes metadata on all ranks, or set CENOTE_HDF5_MPI=independent");
            return Some(Verdict::Parted(error));
        }
        let (rank, failed) = ranks().find(|(_, record)| record[8] != 0)?;
        let kind = ErrorKind::from_code(failed[8]).unwrap_or(ErrorKind::Internal);
        Some(Verdict::Done(Err(Error::new(kind, format!("rank {rank}")).because(Self::words(failed)))))
    }
    /// The union of the marks of all ranks.
    pub fn marks_of_all(all: &[u8]) -> Marks {
        let mut marks = Marks::default();
        for record in all.chunks_exact(RECORD_BYTES) {
            for (sum, byte) in marks.0.iter_mut().zip(&record[16 + TEXT_BYTES..]) {
                *sum |= byte;
            }
        }
        marks
    }
}

/// What rank 0 sends to all.
pub enum Verdict<T> {
    /// The outcome of the call.
    Done(Result<T>),
    /// The ranks made different calls.
    Parted(Error),
}

impl<T: Wire> Verdict<T> {
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::new();
        match self {
            Self::Done(Ok(outcome)) => {
                w.put_u8(0);
                outcome.encode(&mut w);
            }
            Self::Done(Err(error)) => {
                w.put_u8(1);
                wire::put_error(&mut w, error);
            }
            Self::Parted(error) => {
                w.put_u8(2);
                wire::put_error(&mut w, error);
            }
        }
        w
    }
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut r = Reader::of("outcome of a call made by rank 0", bytes);
        Ok(match r.u8()? {
            0 => Self::Done(Ok(T::decode(&mut r)?)),
            1 => Self::Done(Err(wire::error(&mut r)?)),
            _ => Self::Parted(wire::error(&mut r)?),
        })
    }
    /// The outcome. Calls `parted` if the ranks made different calls.
    pub fn take(self, parted: impl FnOnce()) -> Result<T> {
        match self {
            Self::Done(outcome) => outcome,
            Self::Parted(error) => {
                parted();
                Err(error)
            }
        }
    }
}

impl Team {
    /// Gathers every rank's record at rank 0.
    pub(super) fn gather(&self, call: &Call<'_>, mine: Record) -> Result<Vec<u8>> {
        let mut all = vec![0; if self.rank == 0 { RECORD_BYTES * self.size } else { 0 }];
        // SAFETY: both buffers are kept until the request is done, and leaked if it never is.
        let request = unsafe { self.mpi.gather(self.comm, &mine.0, &mut all) }?;
        match self.wait(call, request) {
            Ok(()) => Ok(all),
            Err(error) => {
                std::mem::forget((mine, all));
                Err(error)
            }
        }
    }

    /// Broadcasts rank 0's bytes.
    pub(super) fn broadcast(&self, call: &Call<'_>, bytes: Vec<u8>) -> Result<Vec<u8>> {
        let mut frame = vec![0; FRAME_BYTES];
        let room = FRAME_BYTES - 8;
        if self.rank == 0 {
            frame[..8].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
            let n = bytes.len().min(room);
            frame[8..8 + n].copy_from_slice(&bytes[..n]);
        }
        let frame = self.broadcast_all(call, frame)?;
        let length = Reader::of("broadcast of rank 0", &frame).u64()? as usize;
        if length <= room {
            return Ok(frame[8..8 + length].to_vec());
        }
        self.broadcast_all(call, if self.rank == 0 { bytes } else { vec![0; length] })
    }

    fn broadcast_all(&self, call: &Call<'_>, mut bytes: Vec<u8>) -> Result<Vec<u8>> {
        // SAFETY: the buffer is kept until the request is done, and leaked if it never is.
        let request = unsafe { self.mpi.broadcast(self.comm, &mut bytes) }?;
        match self.wait(call, request) {
            Ok(()) => Ok(bytes),
            Err(error) => {
                std::mem::forget(bytes);
                Err(error)
            }
        }
    }

    /// Waits in a way that suits long waits on a machine with fewer cores than ranks.
    fn wait(&self, call: &Call<'_>, mut request: Request) -> Result<()> {
        static WAIT_MAX: LazyLock<Option<Duration>> = LazyLock::new(|| {
            let seconds = std::env::var(WAIT_ENV).ok()?.parse().ok()?;
            Some(Duration::from_secs(seconds))
        });
        let begun = Instant::now();
        let mut tries = 0u32;
        let mut told = false;
        while !self.mpi.is_done(&mut request)? {
            tries = tries.saturating_add(1);
            match tries {
                0..50 => std::hint::spin_loop(),
                50..2_000 => std::thread::yield_now(),
                _ => std::thread::sleep(Duration::from_micros(u64::from(tries / 1000).min(1_000))),
            }
            if !tries.is_multiple_of(256) {
                continue;
            }
            let waited = begun.elapsed();
            if !told && waited > TELL_AFTER {
                told = true;
                eprintln!(
                    "cenote: rank {} of {} has waited for a minute in {call}, which all ranks must call",
                    self.rank, self.size
                );
            }
            if WAIT_MAX.is_some_and(|most| waited > most) {
                return Err(Error::new(ErrorKind::Busy, call.to_string())
                    .because(format!("not all ranks made this call within the {waited:?} of {WAIT_ENV}"))
                    .try_next("make every call that changes metadata on all ranks"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_calls_are_told_apart_and_failures_passed_on() {
        let same = |name: &'static [u8]| Record::of(&Call::new("group_create").named(name), None).0;
        let all = [same(b"a"), same(b"a")].concat();
        assert!(Record::judge::<()>(&all).is_none());
        let all = [same(b"a"), same(b"b")].concat();
        let Some(Verdict::<()>::Parted(error)) = Record::judge(&all) else { panic!("not noticed") };
        assert!(error.to_string().contains("rank 1 calls group_create `b`"), "{error}");
        let failure = Error::new(ErrorKind::Full, "every tier");
        let failed = Record::of(&Call::new("group_create").named(b"a"), Some(&failure)).0;
        let all = [same(b"a"), same(b"a"), failed].concat();
        let Some(verdict) = Record::judge::<()>(&all) else { panic!("not noticed") };
        let Verdict::Done(Err(error)) = Verdict::<()>::decode(&verdict.encode()).unwrap() else { panic!("no error") };
        assert_eq!((error.kind(), error.subject()), (ErrorKind::Full, "rank 2"));
    }

    #[test]
    fn marks_have_what_was_put_in() {
        let mut marks = Marks::default();
        let oids: Vec<u64> = (0..100u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        for oid in &oids {
            marks.add(*oid);
        }
        assert!(oids.iter().all(|oid| marks.may_have(*oid)));
        assert!((1..1000).filter(|oid| marks.may_have(*oid)).count() < 100);
    }
}
