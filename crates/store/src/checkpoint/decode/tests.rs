//! Extents that contradict themselves.

use super::*;
use crate::codec::Encode;
use crate::engine::filled::a_file;
use crate::engine::slot_with;
use crate::packing::encode_packed;
use cenote_model::{Codec, Packed};

/// Arguments: the part of the run, the run's length, and the number of its checksums.
fn is_taken(offset: u64, part: (u32, u32), run_len: u32, sums: u32) -> bool {
    is_taken_with(offset, part, run_len, sums, (0, 0, &[]))
}

/// Also with the encoding, the device of the copy, and the run length in each compressed place.
fn is_taken_with(
    offset: u64,
    (skip, len): (u32, u32),
    run_len: u32,
    sums: u32,
    (encoding, copy, packed): (u8, u16, &[u32]),
) -> bool {
    let (mut state, mut bytes) = (State::default(), Vec::new());
    state.space.slots.push(slot_with(DeviceId(1), &a_file(), None, 1 << 30, (4096, 1 << 30), 1));
    bytes.put_u64(offset);
    bytes.put_u16(0);
    bytes.put_u16(1);
    bytes.put_u8(encoding);
    bytes.put_u64(1 << 20);
    for word in [run_len, skip, len, 0] {
        bytes.put_u32(word);
    }
    bytes.put_u16(copy);
    bytes.put_u64(0);
    (0..=sums).for_each(|at| bytes.put_u32(if at == 0 { sums } else { at }));
    for run_len in packed {
        encode_packed(&mut bytes, &Packed::new(Codec::Lz4, 0, 12, *run_len, &[20]).unwrap());
    }
    let (file, beside) = (Arc::default(), Beside::default());
    let reader =
        Reader { version: VERSION, state: &mut state, file: &file, body_at: 0, beside, container: None, index: None };
    reader.extent(&mut Decoder::new(&bytes)).is_ok()
}

#[test]
fn extents_that_contradict_themselves_are_refused() {
    assert!(is_taken(5, (10, 20), UNIT + 1, 2) && is_taken(u64::MAX - 20, (10, 20), 30, 1));
    for (skip, len) in [(10, 0), (10, 21), (u32::MAX, 20)] {
        assert!(!is_taken(5, (skip, len), 30, 1), "{len} from {skip}");
    }
    assert!(!is_taken(5, (0, 1), RUN_BYTES_MAX + 1, RUN_BYTES_MAX / UNIT + 1), "longer than any");
    assert!(!is_taken(5, (10, 20), 30, 2) && !is_taken(5, (10, 20), UNIT + 1, 1), "other checksums");
    assert!(!is_taken(u64::MAX - 19, (10, 20), 30, 1), "past all offsets");
}

#[test]
fn compressed_extents_that_contradict_themselves_are_refused() {
    let is_taken = |encoding, copy, packed: &[u32]| is_taken_with(5, (10, 20), 30, 1, (encoding, copy, packed));
    assert!(is_taken(0, 1, &[]) && is_taken(1, 0, &[30]) && is_taken(2, 1, &[30]) && is_taken(3, 1, &[30, 30]));
    assert!(!is_taken(1, 0, &[31]) && !is_taken(2, 1, &[31]) && !is_taken(3, 1, &[30, 31]), "of another run");
    assert!(!is_taken(2, 0, &[30]) && !is_taken(3, 0, &[30, 30]), "a copy that is not there");
    assert!(!is_taken(4, 1, &[30]), "an encoding of another time");
}
