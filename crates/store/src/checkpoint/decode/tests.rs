//! Extents that contradict themselves.

use super::*;
use crate::codec::Encode;
use crate::engine::filled::a_file;
use crate::engine::slot_with;
use crate::packing::encode_packed;
use cenote_model::{Codec, Packed};

/// Arguments: the part of the run, the run's length, and the number of its checksums.
fn is_taken(offset: u64, part: (u32, u32), run_len: u32, sums: u32) -> bool {
    let is_taken = |version| read(version, offset, part, run_len, sums, &[&[]]).is_ok();
    assert_eq!(is_taken(5), is_taken(VERSION), "earlier versions are judged as this one is");
    is_taken(VERSION)
}

fn put_words(bytes: &mut Vec<u8>, words: [u32; 4]) {
    for word in words {
        bytes.put_u32(word);
    }
}

/// Reads an extent; `places`: for each place the run length of its packing, if it has one.
fn read(
    version: u32,
    offset: u64,
    (skip, len): (u32, u32),
    run_len: u32,
    sums: u32,
    places: &[&[u32]],
) -> Decoded<(u64, Ext)> {
    let mut bytes = Vec::new();
    let packed = |bytes: &mut Vec<u8>, place: &[u32]| {
        for run_len in place {
            encode_packed(bytes, &Packed::new(Codec::Lz4, 0, 12, *run_len, &[20]).unwrap());
        }
    };
    let put_sums = |bytes: &mut Vec<u8>| {
        for at in 0..=sums {
            bytes.put_u32(if at == 0 { sums } else { at });
        }
    };
    bytes.put_u64(offset);
    if version < 6 {
        bytes.put_u16(0);
        bytes.put_u16(1);
        bytes.put_u8(places.iter().enumerate().map(|(at, place)| (place.len() as u8) << at).sum());
        bytes.put_u64(1 << 20);
        put_words(&mut bytes, [run_len, skip, len, 0]);
        bytes.put_u16(places.len() as u16 - 1);
        bytes.put_u64(0);
        put_sums(&mut bytes);
        for place in places {
            packed(&mut bytes, place);
        }
    } else {
        put_words(&mut bytes, [run_len, skip, len, 0]);
        bytes.put_u64(9);
        bytes.put_u8(places.len() as u8);
        for place in places {
            bytes.put_u16(0);
            bytes.put_u16(1);
            bytes.put_u8(place.len() as u8);
            bytes.put_u64(1 << 20);
            packed(&mut bytes, place);
        }
        put_sums(&mut bytes);
    }
    read_bytes(version, &bytes)
}

fn read_bytes(version: u32, bytes: &[u8]) -> Decoded<(u64, Ext)> {
    let mut state = EngineState::default();
    state.space.slots.push(slot_with(DeviceId(1), &a_file(), None, 1 << 30, (4096, 1 << 30), 1));
    let (file, beside) = (Arc::default(), Beside::default());
    let reader = Reader { version, state: &mut state, file: &file, body_at: 0, beside, container: None, index: None };
    reader.extent(&mut Decoder::new(bytes))
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
    for version in [5, VERSION] {
        let is_taken = |places: &[&[u32]]| read(version, 5, (10, 20), 30, 1, places).is_ok();
        assert!(is_taken(&[&[], &[]]) && is_taken(&[&[30]]) && is_taken(&[&[], &[30]]) && is_taken(&[&[30], &[30]]));
        assert!(!is_taken(&[&[31]]) && !is_taken(&[&[], &[31]]) && !is_taken(&[&[30], &[31]]), "of another run");
    }
}

#[test]
fn places_are_read_in_any_number() {
    let (_, ext) = read(VERSION, 5, (10, 20), 30, 1, &[&[], &[30], &[]]).unwrap();
    assert_eq!((ext.places().count(), ext.birth, ext.copies()[1].dev + 1), (3, Birth(9), 1));
    assert!(ext.copies()[0].packed.is_some() && ext.copies()[1].packed.is_none());
    assert!(read(VERSION, 5, (10, 20), 30, 1, &[]).is_err(), "nowhere");
    assert_eq!(read(5, 5, (10, 20), 30, 1, &[&[], &[]]).unwrap().1.birth, Birth(0));
}

/// What later versions write is told from damage.
#[test]
fn other_nodes_and_encodings_name_what_reads_them() {
    let mut bytes = Vec::new();
    bytes.put_u64(5);
    put_words(&mut bytes, [30, 10, 20, 0]);
    bytes.put_u64(9);
    bytes.put_u8(1);
    let place = |node: u16, encoding: u8| {
        let mut bytes = bytes.clone();
        bytes.put_u16(node);
        bytes.put_u16(1);
        bytes.put_u8(encoding);
        bytes.resize(bytes.len() + 64, 0);
        read_bytes(VERSION, &bytes).unwrap_err().0
    };
    for (why, expected) in [(place(1, 0), OTHER_NODES), (place(0, 2), OTHER_ENCODINGS), (place(0, 4), OTHER_ENCODINGS)]
    {
        assert_eq!(why, expected);
        assert_eq!(corrupt("checkpoint-000001", 0, why).kind(), cenote_model::ErrorKind::VersionMismatch);
    }
}
