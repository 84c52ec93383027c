//! Jobs that read values of records from value logs and write them there.

use std::sync::Arc;

use cenote_device::Device;
use cenote_device::aligned::AlignedBuf;
use cenote_model::{Error, ErrorKind, Result, Timed};

use crate::copying::{Part, Unread};
use crate::index::digest;
use crate::sums::{UNIT, sum_of};
use crate::syncs::Syncs;
use crate::work::{Io, Work};

/// Values to be read.
pub(crate) struct ReadValues {
    /// The parts that hold them, each once.
    pub parts: Vec<Part>,
    /// Bytes of each value, and the slices that it consists of.
    pub values: Vec<(u32, Vec<Slice>)>,
}

/// Bytes of a part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slice {
    pub part: usize,
    pub from: u32,
    pub len: u32,
}

/// A batch to be written.
pub(crate) struct WriteValues {
    pub target: Arc<dyn Device>,
    pub syncs: Arc<Syncs>,
    /// Where on the target it goes.
    pub at: u64,
    /// Its bytes, and zeros up to a whole allocation unit.
    pub buffer: AlignedBuf,
    pub padded: usize,
    pub len: usize,
    /// Values of the batch to be read from a log first, and their places in the batch.
    pub reads: Option<(ReadValues, Vec<u32>)>,
    /// Place and length of each value in the batch.
    pub values: Vec<(u32, u32)>,
}

/// Checksums and digests of a written batch.
pub(crate) struct Batched {
    /// Checksums of its units.
    pub sums: Vec<u32>,
    /// Digest of each value.
    pub digests: Vec<u64>,
}

impl Work for ReadValues {
    type Output = (Vec<Vec<u8>>, Option<Unread>);
    const TIMED: Timed = Timed::Verify;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        self.parts.iter().map(|part| &part.device).collect()
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        Self::run(self)
    }
}

impl Work for WriteValues {
    type Output = Result<Batched>;
    const TIMED: Timed = Timed::Copy;
    fn devices(&self) -> Vec<&Arc<dyn Device>> {
        vec![&self.target]
    }
    fn run(self, _io: &mut Io<'_>) -> Self::Output {
        Self::run(self)
    }
}

impl ReadValues {
    /// Returns the bytes of each value up to the first that cannot be read, and the error of that
    /// one.
    pub fn run(self) -> (Vec<Vec<u8>>, Option<Unread>) {
        let mut values = Vec::with_capacity(self.values.len());
        let mut open = None;
        for (len, slices) in &self.values {
            match self.value(*len, slices, &mut open) {
                Ok(value) => values.push(value),
                Err(unread) => return (values, Some(unread)),
            }
        }
        (values, None)
    }

    /// Returns one value. `open`: the part that was read last, and its bytes.
    fn value(
        &self,
        len: u32,
        slices: &[Slice],
        open: &mut Option<(usize, Vec<u8>)>,
    ) -> std::result::Result<Vec<u8>, Unread> {
        let mut value = Vec::with_capacity(len as usize);
        for Slice { part, from, len } in slices {
            if open.as_ref().is_none_or(|(known, _)| known != part) {
                let wanted = self.parts.get(*part).ok_or_else(odd)?;
                *open = Some((*part, wanted.read().map_err(|error| wanted.unread(error))?));
            }
            let bytes = open.as_ref().and_then(|(_, bytes)| bytes.get(*from as usize..(*from + *len) as usize));
            value.extend_from_slice(bytes.ok_or_else(odd)?);
        }
        if value.len() != len as usize {
            let error = Error::new(ErrorKind::Corrupt, "a value log");
            let error = error.because("it has a hole where a value should be");
            return Err(Unread { device: None, error });
        }
        Ok(value)
    }
}

#[cold]
fn odd() -> Unread {
    let error = Error::new(ErrorKind::Internal, "a value log").because("a value lies outside of what was read for it");
    Unread { device: None, error }
}

impl WriteValues {
    /// Writes the batch, syncs it, and reads it back, because it becomes the only place of these
    /// values.
    pub fn run(mut self) -> Result<Batched> {
        if let Some((reads, places)) = self.reads.take() {
            let (values, unread) = reads.run();
            if let Some(unread) = unread {
                return Err(unread.error);
            }
            for (value, at) in values.into_iter().zip(places) {
                self.buffer[at as usize..at as usize + value.len()].copy_from_slice(&value);
            }
        }
        let bytes = &self.buffer[..self.len];
        let sums: Vec<u32> = bytes.chunks(UNIT as usize).map(sum_of).collect();
        let digests = self.values.iter().map(|(at, len)| digest(&bytes[*at as usize..(*at + *len) as usize])).collect();
        let failed_before = self.syncs.failed();
        self.target.write_at(self.at, &self.buffer[..self.padded])?;
        self.syncs.sync(self.target.as_ref())?;
        if self.syncs.failed() != failed_before {
            // A failed sync of another job in between may have dropped these bytes.
            return Err(Error::new(ErrorKind::Io, "a device").because("a sync of it failed meanwhile"));
        }
        let written =
            Part { device: self.target, offset: self.at, len: self.len as u32, sums: sums.clone(), packed: None };
        written.check(&mut Vec::new())?;
        Ok(Batched { sums, digests })
    }
}
