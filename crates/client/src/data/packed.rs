//! Reads compressed runs: this process reads, decompresses and verifies the requested units.

use cenote_device::packing::Packer;
use cenote_device::sums::{SUM_UNIT_BYTES, sum_of};
use cenote_device::{SegmentIo, lane};
use cenote_model::{Error, Packed};

/// Units read at once.
const UNITS: usize = 32;

/// A damaged part of the target: offset, length, and the error, or `None` for a wrong checksum.
pub(super) type Damage = (usize, usize, Option<Error>);

thread_local! {
    static PACKER: std::cell::RefCell<(Packer, Vec<u8>, Vec<u8>)> = std::cell::RefCell::default();
}

/// Fills `target` with the bytes from `from` on of a run at `run_inside` of a segment. `sums` begins with the checksum
/// of the first touched unit; the run has all of the units.
pub(super) fn read_units<'a>(
    io: &SegmentIo,
    run_inside: u64,
    packed: &Packed,
    sums: &mut impl Iterator<Item = &'a u32>,
    from: usize,
    target: &mut [u8],
) -> Result<(), Damage> {
    PACKER.with_borrow_mut(|(packer, stored, whole)| {
        let (first, end) = (from / SUM_UNIT_BYTES, (from + target.len()).div_ceil(SUM_UNIT_BYTES));
        if end > packed.units() {
            return Err((0, target.len(), None));
        }
        for batch in (first..end).step_by(UNITS) {
            let batch_end = (batch + UNITS).min(end);
            let (begin, stored_len) = (packed.start(batch), packed.start(batch_end) - packed.start(batch));
            stored.resize(stored_len as usize, 0);
            let wanted = (batch * SUM_UNIT_BYTES).max(from) - from;
            let read = lane::read_taken(io, run_inside + u64::from(begin), stored.len(), |piece, at| {
                stored[at..at + piece.len()].copy_from_slice(piece);
                Ok(())
            });
            read.map_err(|error| (wanted, SUM_UNIT_BYTES, Some(error)))?;
            for unit in batch..batch_end {
                let bytes = &stored[(packed.start(unit) - begin) as usize..];
                unpack(packer, packed, unit, bytes, sums.next(), (from, target), whole)?;
            }
        }
        Ok(())
    })
}

/// Decompresses one unit into the target, by way of `whole` if only a part of it is requested.
fn unpack(
    packer: &mut Packer,
    packed: &Packed,
    unit: usize,
    stored: &[u8],
    sum: Option<&u32>,
    (from, target): (usize, &mut [u8]),
    whole: &mut Vec<u8>,
) -> Result<(), Damage> {
    let unit_at = unit * SUM_UNIT_BYTES;
    let len = packed.plain_len_of(unit) as usize;
    let wanted = from.max(unit_at)..(from + target.len()).min(unit_at + len);
    let damage = |why| (wanted.start - from, wanted.len(), why);
    let into = &mut target[wanted.start - from..wanted.end - from];
    let is_whole = into.len() == len;
    if !is_whole {
        whole.resize(len, 0);
    }
    let plain = if is_whole { &mut *into } else { &mut whole[..] };
    packer.unpack_unit(packed, unit, stored, plain).map_err(|error| damage(Some(error)))?;
    if sum != Some(&sum_of(plain)) {
        return Err(damage(None));
    }
    if !is_whole {
        into.copy_from_slice(&whole[wanted.start - unit_at..wanted.end - unit_at]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cenote_device::{SegmentFile, SegmentMode};
    use cenote_model::Codec;
    use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

    use super::*;

    const ALL: usize = UNITS + 8;

    /// A run at the end of its segment, with units that did not shrink, and its bytes.
    fn a_run() -> (SegmentIo, Packed, Vec<u8>) {
        let bytes: Vec<u8> = (0..ALL * SUM_UNIT_BYTES).map(|at| (at / 1000) as u8).collect();
        let len = bytes.len() as u64;
        let fd = memfd_create("segment", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, len).unwrap();
        let file = SegmentFile { fd: Arc::new(fd), data_offset: 0, len, mode: SegmentMode::Buffered };
        let io = SegmentIo::new(file, true, "a segment").unwrap();
        io.write_at(0, &bytes).unwrap();
        let packed = Packed::new(Codec::Lz4, 0, 12, len as u32, &[SUM_UNIT_BYTES as u32; ALL]).unwrap();
        (io, packed, bytes)
    }

    fn read(io: &SegmentIo, packed: &Packed, bytes: &[u8], from: usize, len: usize) -> Result<Vec<u8>, Damage> {
        let sums: Vec<u32> = bytes.chunks(SUM_UNIT_BYTES).map(sum_of).collect();
        let mut target = vec![0; len];
        read_units(io, 0, packed, &mut sums[from / SUM_UNIT_BYTES..].iter(), from, &mut target).map(|()| target)
    }

    #[test]
    fn what_takes_several_reads_is_read_up_to_the_end_of_a_segment() {
        let (io, packed, bytes) = a_run();
        for from in [0, 5, SUM_UNIT_BYTES, 3 * SUM_UNIT_BYTES + 5] {
            assert!(read(&io, &packed, &bytes, from, bytes.len() - from).is_ok_and(|found| found == bytes[from..]));
        }
        assert!(read(&io, &packed, &bytes, 5, bytes.len()).is_err(), "past the end of the run");
    }

    /// Unreadable bytes are reported by their offset in the target.
    #[test]
    fn bytes_that_cannot_be_read_are_named() {
        let (io, packed, bytes) = a_run();
        ftruncate(&*io.file().fd, (UNITS as u64 + 4) * SUM_UNIT_BYTES as u64).unwrap();
        let (at, _, why) = read(&io, &packed, &bytes, SUM_UNIT_BYTES, (ALL - 1) * SUM_UNIT_BYTES).unwrap_err();
        assert!(at == UNITS * SUM_UNIT_BYTES && why.is_some(), "{at}");
    }
}
