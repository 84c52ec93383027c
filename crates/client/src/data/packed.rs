//! Reading what is compressed: the units that are wanted are read, decompressed and checked in this process.

use cenote_device::packing::Packer;
use cenote_device::sums::{SUM_UNIT_BYTES, sum_of};
use cenote_device::{SegmentIo, lane};
use cenote_model::{Error, Packed};

/// Units that are read at once.
const UNITS: usize = 32;

/// What is wrong: with which bytes of the target, from where on and how many; and why, if not their checksum.
pub(super) type Damage = (usize, usize, Option<Error>);

thread_local! {
    static PACKER: std::cell::RefCell<(Packer, Vec<u8>, Vec<u8>)> = std::cell::RefCell::default();
}

/// Fills `target` with what begins at `from` in a run that lies at `run_inside` of a segment. `sums` begin with that of
/// the first unit that is touched; the run has all of the units.
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

/// Decompresses one unit into its place in the target, or what of it is wanted by way of `whole`.
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
