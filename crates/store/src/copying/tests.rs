//! Copies land whole, and errors name the place.

use cenote_device::Devices;
use cenote_device::mem::{MemClock, MemDevices};
use cenote_model::{Codec, DeviceId, DeviceSpec, StoreId};

use super::*;
use crate::engine::filled::a_file;

fn device(media: &MemDevices, id: u16) -> Arc<dyn Device> {
    let spec = DeviceSpec { path: id.to_string().into(), capacity_bytes: 32 << 20, ..a_file() };
    media.open(StoreId(1), DeviceId(id), &spec, true).unwrap().device
}

/// `len` bytes at an offset of a device; no two units are equal.
fn part(device: &Arc<dyn Device>, offset: u64, len: u32) -> (Part, Vec<u8>) {
    let bytes: Vec<u8> = (0..len).map(|at| ((at / 1000 + at / UNIT) % 255) as u8 + 1).collect();
    device.write_at(offset, &bytes).unwrap();
    let sums = bytes.chunks(UNIT as usize).map(sum_of).collect();
    (Part { device: Arc::clone(device), offset, len, sums, packed: None }, bytes)
}

/// An error names the device offset of the bad unit, wherever reading began.
#[test]
fn a_bad_unit_is_named_by_its_place() {
    const AT: u64 = 1 << 20;
    let media = MemDevices::default();
    let device = device(&media, 1);
    let (mut part, _) = part(&device, AT, 3 * UNIT);
    let said = |part: &Part| {
        let error = part.read_range(UNIT, &mut vec![0; 2 * UNIT as usize], &mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.cause().to_owned()
    };
    let named = |at: u64| format!("the checksum of 64 KiB at {at} of the device does not match");
    media.corrupt(StoreId(1), DeviceId(1), AT + 2 * u64::from(UNIT) + 5, 1);
    assert_eq!(said(&part), named(AT + 2 * u64::from(UNIT)));
    // Uncompressed units take all of their room; the first of these is compressed.
    let packed = Packed::new(Codec::Lz4, 0, 12, 3 * UNIT, &[4096, UNIT, UNIT]).unwrap();
    part.sums = vec![0; 3];
    let mut unit = vec![0; UNIT as usize];
    device.read_at(AT + 4096, &mut unit).unwrap();
    part.sums[1] = sum_of(&unit);
    part.packed = Some(Arc::new(packed));
    assert_eq!(said(&part), named(AT + 4096 + u64::from(UNIT)));
}

/// A part longer than the buffer is written in pieces of whole units, and nothing after it is touched.
#[test]
fn parts_longer_than_the_buffer_land_whole_and_touch_nothing_else() {
    const AT: u64 = 8 << 20;
    let media = MemDevices::default();
    let (source, target) = (device(&media, 1), device(&media, 2));
    let (short, short_bytes) = part(&source, 1 << 20, 4096);
    let (long, long_bytes) = part(&source, 2 << 20, GATHERED_BYTES as u32 + 3 * UNIT + 4096);
    let end = AT + 4096 + u64::from(long.len);
    let behind = vec![0xee; 2 * GATHERED_BYTES];
    target.write_at(end, &behind).unwrap();
    let pieces = vec![Piece { part: short, at: AT, like: None }, Piece { part: long, at: AT + 4096, like: None }];
    let copy = Copy { pieces, target: Arc::clone(&target), syncs: None, packing: None, read_back: true };
    let (results, sync_failed) = copy.run(&MemClock::default(), &mut Vec::new());
    assert!(!sync_failed && results.iter().all(Result::is_ok), "{results:?}");
    let mut found = vec![0; (end - AT) as usize + behind.len()];
    target.read_at(AT, &mut found).unwrap();
    assert!(found == [short_bytes, long_bytes, behind].concat());
}
