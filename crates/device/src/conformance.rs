//! What every implementation and wrapper of a seam must do. Called from tests; panics on a violation.
//!
//! Randomised parts take a seed and name it when they fail.

use std::thread;

use cenote_model::{DeviceId, DeviceSpec, ErrorKind, StoreId};

use crate::mem::SplitMix;
use crate::{Clock, Control, Device, Devices, MetaDir};

/// The seed in `CENOTE_SEED`, or one drawn from the clock and printed.
pub fn seed() -> u64 {
    let given = std::env::var("CENOTE_SEED").ok().and_then(|text| text.trim().parse().ok());
    let seed = given.unwrap_or_else(|| crate::SystemClock.unix_ms() ^ (u64::from(std::process::id()) << 32));
    eprintln!("CENOTE_SEED={seed}");
    seed
}

fn random_bytes(rng: &mut SplitMix, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// A device keeps every write at any offset and length, and refuses ranges outside. Needs a capacity of
/// at least 1 MiB; overwrites the first 8 MiB.
pub fn device(device: &dyn Device, seed: u64) {
    shape(device);
    against_oracle(device, seed);
    bounds(device);
    neighbours_in_parallel(device, seed);
    segments(device, seed);
    device.sync().expect("sync");
}

fn shape(device: &dyn Device) {
    let (capacity, unit, segment) = (device.capacity_bytes(), device.unit_bytes(), device.segment_bytes());
    assert!(matches!(unit, 512 | 4096), "unit of {unit}");
    assert!(capacity >= 1 << 20 && capacity.is_multiple_of(u64::from(unit)), "capacity of {capacity}");
    assert!(segment > 0 && segment.is_multiple_of(u64::from(unit)), "segments of {segment}");
}

fn against_oracle(device: &dyn Device, seed: u64) {
    let mut rng = SplitMix::new(seed);
    let span = device.capacity_bytes().min(8 << 20);
    let mut oracle = vec![0; span as usize];
    // Start from a known state: a device may begin with any bytes.
    for (i, chunk) in oracle.chunks(1 << 20).enumerate() {
        device.write_at((i as u64) << 20, chunk).expect("write zeros");
    }
    for round in 0..200 {
        let len_max = [64, 5_000, 70_000, 1_500_000][rng.below(4) as usize];
        let mut len = (1 + rng.below(len_max)).min(span);
        let mut offset = rng.below(span - len + 1);
        if rng.below(2) == 0 {
            offset &= !4095;
            len = len.next_multiple_of(4096).min(span - offset);
        }
        let range = offset as usize..(offset + len) as usize;
        if rng.below(2) == 0 {
            let bytes = random_bytes(&mut rng, len as usize);
            device.write_at(offset, &bytes).expect("write");
            oracle[range].copy_from_slice(&bytes);
        } else {
            let mut bytes = vec![0xa5; len as usize];
            device.read_at(offset, &mut bytes).expect("read");
            assert!(bytes == oracle[range], "seed {seed}, round {round}: {len} bytes at {offset} differ");
        }
        if rng.below(20) == 0 {
            device.sync().expect("sync");
        }
    }
    let mut bytes = vec![0; oracle.len()];
    device.read_at(0, &mut bytes).expect("read all");
    assert!(bytes == oracle, "seed {seed}: the whole differs");
    device.discard(0, span / 2).expect("discard");
    device.write_at(0, &oracle[..100]).expect("write after discard");
    device.read_at(0, &mut bytes[..100]).expect("read after discard");
    assert!(bytes[..100] == oracle[..100], "a discarded range takes writes again");
    device.read_at(span / 2, &mut bytes[..1000]).expect("read beside discard");
    assert!(bytes[..1000] == oracle[span as usize / 2..span as usize / 2 + 1000], "discard keeps to its range");
}

fn bounds(device: &dyn Device) {
    let end = device.capacity_bytes();
    let mut byte = [0];
    for offset in [end, end + 1, u64::MAX - 1, u64::MAX] {
        assert_eq!(device.read_at(offset, &mut byte).unwrap_err().kind(), ErrorKind::InvalidInput, "at {offset}");
        assert_eq!(device.write_at(offset, &byte).unwrap_err().kind(), ErrorKind::InvalidInput, "at {offset}");
        assert!(device.discard(offset, 2).is_err(), "discard at {offset}");
    }
    device.write_at(end - 1, &[7]).expect("the last byte");
    device.read_at(end - 1, &mut byte).expect("the last byte");
    assert_eq!(byte, [7]);
    device.read_at(end, &mut []).expect("nothing at the end");
    assert!(
        device.segment(end.div_ceil(device.segment_bytes())).is_ok_and(|s| s.is_none()) || {
            device.segment(end.div_ceil(device.segment_bytes())).is_err()
        }
    );
}

/// Threads that write adjacent units do not disturb each other.
fn neighbours_in_parallel(device: &dyn Device, seed: u64) {
    let unit = u64::from(device.unit_bytes());
    thread::scope(|scope| {
        for lane in 0..4_u64 {
            scope.spawn(move || {
                let mut rng = SplitMix::new(seed ^ lane);
                for round in 0..25 {
                    let offset = (round * 4 + lane) * unit;
                    let len = 1 + rng.below(unit) as usize;
                    let bytes = random_bytes(&mut rng, len);
                    device.write_at(offset, &bytes).expect("write");
                    let mut back = vec![0; bytes.len()];
                    device.read_at(offset, &mut back).expect("read");
                    assert!(back == bytes, "seed {seed}, lane {lane}, round {round}");
                }
            });
        }
    });
}

/// Bytes written through the device are read through a segment's descriptor, and the other way round.
fn segments(device: &dyn Device, seed: u64) {
    let Some(file) = device.segment(0).expect("segment 0") else { return };
    let read_only = file.read_only().expect("a read-only descriptor");
    let io = crate::SegmentIo::new(file.clone(), true, "segment 0").expect("I/O on segment 0");
    let viewer = crate::SegmentFile { fd: read_only.into(), ..file };
    let viewer = crate::SegmentIo::new(viewer, false, "segment 0").expect("reading segment 0");
    let mut rng = SplitMix::new(seed);
    for (offset, len) in [(0, 4096), (4096, 5000), (513, 100), (0, 600_000)] {
        let bytes = random_bytes(&mut rng, len);
        let mut back = vec![0; len];
        device.write_at(offset, &bytes).expect("write");
        viewer.read_at(offset, &mut back).expect("read through the descriptor");
        assert!(back == bytes, "seed {seed}: {len} bytes at {offset} through the descriptor");
        let bytes = random_bytes(&mut rng, len);
        if let Some(map) = io.map() {
            io.populate(offset, len).expect("populate");
            assert!(map.copy_in(offset, &bytes));
        } else {
            io.write_at(offset, &bytes).expect("write through the descriptor");
        }
        device.read_at(offset, &mut back).expect("read");
        assert!(back == bytes, "seed {seed}: {len} bytes at {offset} from the descriptor");
    }
    assert!(viewer.write_at(0, &[1]).is_err(), "a read-only descriptor takes no writes");
}

/// A factory creates, reopens and removes a device. `spec` must be free to use.
pub fn devices(devices: &dyn Devices, spec: &DeviceSpec, seed: u64) {
    let (store, id) = (StoreId(u128::from(seed) << 64 | 0xce), DeviceId(5));
    if spec.kind.is_persistent() {
        let refusal = devices.open(store, id, spec, false).err().expect("nothing is there yet");
        assert_eq!(refusal.kind(), ErrorKind::NotFound, "{refusal}");
    }
    let made = devices.open(store, id, spec, true).expect("create");
    assert!(!made.survived, "a new device holds nothing");
    device(&*made.device, seed);
    let last = made.device.capacity_bytes() - 3;
    made.device.write_at(last, b"end").expect("write");
    made.device.sync().expect("sync");
    drop(made);
    let again = devices.open(store, id, spec, false).expect("open");
    assert!(again.survived, "it was not gone");
    let mut end = [0; 3];
    again.device.read_at(last, &mut end).expect("read");
    assert_eq!(&end, b"end");
    drop(again);
    let anew = devices.open(store, id, spec, true).expect("the same device made anew");
    anew.device.write_at(0, b"anew").expect("write");
    drop(anew);
    devices.remove(store, id, spec).expect("remove");
    devices.remove(store, id, spec).expect("remove what is gone");
    let gone = devices.open(store, id, spec, false);
    if spec.kind.is_persistent() {
        assert_eq!(gone.err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    } else {
        assert!(!gone.expect("volatile devices are made anew").survived);
        devices.remove(store, id, spec).expect("remove");
    }
}

/// A directory keeps files and logs by name.
pub fn meta_dir(dir: &dyn MetaDir, seed: u64) {
    let mut rng = SplitMix::new(seed);
    files(dir, &mut rng);
    logs(dir, &mut rng);
    for bad in ["", ".", "..", ".hidden", "a/b", "../x", "nul\0"] {
        assert_eq!(dir.write_file(bad, b"x").unwrap_err().kind(), ErrorKind::InvalidInput, "name {bad:?}");
        assert_eq!(dir.create_log(bad, 4096).err().map(|e| e.kind()), Some(ErrorKind::InvalidInput), "name {bad:?}");
    }
}

fn files(dir: &dyn MetaDir, rng: &mut SplitMix) {
    assert_eq!(dir.read_file("one").unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(dir.remove("one").unwrap_err().kind(), ErrorKind::NotFound);
    // A long file may be read in parts.
    for len in [0, 10, 100_000, 5, (4 << 20) - 1, (9 << 20) + 5, 5] {
        let bytes = random_bytes(rng, len);
        dir.write_file("one", &bytes).expect("write_file");
        assert!(dir.read_file("one").expect("read_file") == bytes, "{len} bytes");
    }
    dir.write_file("another", b"x").expect("write_file");
    let names = dir.list().expect("list");
    assert!(names.is_sorted() && names.iter().any(|n| n == "one") && names.iter().any(|n| n == "another"), "{names:?}");
    dir.remove("another").expect("remove");
    assert!(!dir.list().expect("list").iter().any(|name| name == "another"));
    dir.remove("one").expect("remove");
}

fn logs(dir: &dyn MetaDir, rng: &mut SplitMix) {
    const CAPACITY: u64 = 100_000;
    assert_eq!(dir.open_log("log").err().map(|error| error.kind()), Some(ErrorKind::NotFound));
    let log = dir.create_log("log", CAPACITY).expect("create_log");
    assert_eq!(log.capacity(), CAPACITY);
    assert_eq!(dir.create_log("log", CAPACITY).err().map(|error| error.kind()), Some(ErrorKind::Exists));
    let mut oracle = vec![0; CAPACITY as usize];
    let mut bytes = vec![1; CAPACITY as usize];
    log.read(0, &mut bytes).expect("read");
    assert!(bytes == oracle, "a new log is all zero");
    for _ in 0..100 {
        let len = rng.below(9000) as usize;
        let offset = rng.below(CAPACITY - len as u64 + 1);
        let part = random_bytes(rng, len);
        log.write(offset, &part).expect("write");
        oracle[offset as usize..offset as usize + len].copy_from_slice(&part);
        if rng.below(10) == 0 {
            log.sync().expect("sync");
        }
    }
    log.read(0, &mut bytes).expect("read");
    assert!(bytes == oracle, "a log keeps what is written");
    for from in (0..CAPACITY).step_by(511) {
        let written = oracle[from as usize..].iter().position(|byte| *byte != 0).map(|at| from + at as u64);
        let said = log.data_from(from);
        assert!(said.is_none_or(|at| at >= from), "data from {from}: {said:?}");
        assert!(
            written.is_none_or(|at| said.is_some_and(|said| said <= at)),
            "data at {written:?}, not from {said:?} on"
        );
    }
    assert_eq!(log.data_from(CAPACITY), None);
    for offset in [CAPACITY, CAPACITY + 1, u64::MAX] {
        assert_eq!(log.write(offset, b"x").unwrap_err().kind(), ErrorKind::InvalidInput, "at {offset}");
        assert_eq!(log.read(offset, &mut [0]).unwrap_err().kind(), ErrorKind::InvalidInput, "at {offset}");
    }
    drop(log);
    let log = dir.open_log("log").expect("open_log");
    assert_eq!(log.capacity(), CAPACITY);
    log.read(0, &mut bytes).expect("read");
    assert!(bytes == oracle, "a log keeps what was written unsynced while nobody dies");
    assert!(dir.read_file("log").expect("read_file") == oracle);
    log.sync().expect("sync");
    drop(log);
    dir.remove("log").expect("remove");
}

/// A control table counts by key hash and reports whether it survived.
pub fn control(control: &dyn Control) {
    let store = StoreId(0x00c0_4701);
    assert!(!control.attach(store).expect("attach"), "a new table survived nothing");
    assert!(!control.attach(store).expect("attach again"), "nobody came to the end of an opening with it");
    let instance = control.instance_raise();
    assert!(control.instance_raise() > instance);
    let epoch = control.epoch();
    assert!(epoch >= 1);
    assert_eq!(control.epoch_raise(), epoch + 1);
    assert_eq!(control.epoch(), epoch + 1);
    for hash in [0, 1, 0xffff_ffff_ffff_ffff, 12_345] {
        let word = control.word(hash);
        assert_eq!(control.word_raise(hash), word + 1);
        assert_eq!(control.word(hash), word + 1);
    }
    assert_eq!(control.slots_min(), u64::MAX, "nobody reads");
    assert!(control.attach(store).expect("attach again"), "the table is still there");
    assert_eq!(control.epoch(), epoch + 1);
}
