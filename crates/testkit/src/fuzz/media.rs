//! Targets for content on media and in shared memory. The first byte of an input selects the store, the second what is
//! mended; the file follows.

use std::os::fd::OwnedFd;

use cenote_device::control::{ClientFile, ControlView};
use cenote_device::header::{HEADER_BYTES, SegmentHeader};
use cenote_device::{Devices as _, MetaDir as _};
use cenote_model::{DeviceId, DeviceKind, Profile, ProfilePoint, StoreId};
use cenote_rpc::Consumer;
use cenote_server::daemon::ring_memories;
use rustix::fs::MemfdFlags;

use super::base::{Base, all, chosen};
use super::mend;

/// Bit of the second byte: mend nothing.
const RAW: u8 = 1;
const STAMP_BYTES: usize = 512;

/// Splits an input into store, file, and whether to mend it.
fn split(bytes: &[u8]) -> Option<(&'static Base, bool, Vec<u8>)> {
    let (head, rest) = bytes.split_first_chunk::<2>()?;
    Some((chosen(head[0]), head[1] & RAW == 0, rest.to_vec()))
}

fn seeds_of(content: impl Fn(&Base) -> Vec<u8>) -> Vec<Vec<u8>> {
    let with_head = |(number, base): (usize, &Base)| {
        let mut input = vec![number as u8, 0];
        input.extend(content(base));
        input
    };
    all().iter().enumerate().map(with_head).collect()
}

pub(super) fn superblock(bytes: &[u8]) {
    let Some((base, mended, mut file)) = split(bytes) else { return };
    if mended {
        let len = file.len();
        mend::head(&mut file, *b"CENOTE\0\0", len, Some((16, base.id)));
    }
    let world = base.world(|name| name == "superblock");
    if world.meta.write_file("superblock", &file).is_ok() {
        base.open_and_use(&world);
    }
}
pub(super) fn superblock_seeds() -> Vec<Vec<u8>> {
    seeds_of(|base| base.newest("superblock").1.to_vec())
}

/// Stamps of all devices, one after the other.
pub(super) fn stamp(bytes: &[u8]) {
    let Some((base, mended, mut stamps)) = split(bytes) else { return };
    let world = base.world(|_| false);
    for (info, stamp) in base.devices.iter().zip(stamps.chunks_mut(STAMP_BYTES)) {
        if mended {
            mend::head(stamp, *b"CENOTED\0", STAMP_BYTES, None);
        }
        if let Ok(opened) = world.devices.open(base.id, info.id, &info.spec, false) {
            let _ = opened.device.write_at(0, stamp);
        }
    }
    base.open_and_use(&world);
}
pub(super) fn stamp_seeds() -> Vec<Vec<u8>> {
    seeds_of(|base| {
        let world = base.world(|_| false);
        let mut stamps = Vec::new();
        for info in &base.devices {
            let mut stamp = vec![0; STAMP_BYTES];
            if let Ok(opened) = world.devices.open(base.id, info.id, &info.spec, false) {
                let _ = opened.device.read_at(0, &mut stamp);
            }
            stamps.extend(stamp);
        }
        stamps
    })
}

pub(super) fn checkpoint(bytes: &[u8]) {
    let Some((base, mended, mut file)) = split(bytes) else { return };
    if mended {
        mend::checkpoint(&mut file, base.id);
    }
    let (name, _) = base.newest("checkpoint-");
    let world = base.world(|other| other == name);
    if world.meta.write_file(name, &file).is_ok() {
        base.open_and_use(&world);
    }
}
pub(super) fn checkpoint_seeds() -> Vec<Vec<u8>> {
    seeds_of(|base| base.newest("checkpoint-").1.to_vec())
}

/// Profiles of the devices: whatever they contain, the store opens, and policies calculate with valid numbers.
pub(super) fn profile(bytes: &[u8]) {
    let Some((base, mended, mut file)) = split(bytes) else { return };
    if mended {
        let len = file.len();
        mend::head(&mut file, *b"CENOTEP\0", len, Some((16, base.id)));
    }
    let (world, mut engine, _) = base.open();
    let _ = engine.close();
    drop(engine);
    world.kill();
    if world.meta.write_file("profile", &file).is_ok() {
        base.open_and_use(&world);
    }
}
pub(super) fn profile_seeds() -> Vec<Vec<u8>> {
    seeds_of(|base| {
        let (world, mut engine, _) = base.open();
        let point =
            |is_write| ProfilePoint { is_write, bytes: 4096, parallel: 2, p50_ns: 9, p99_ns: 99, bandwidth: 1e9 };
        let profile = Profile { unix_ms: 7, points: vec![point(false), point(true)] };
        base.devices.iter().for_each(|info| engine.set_profile(info.id, profile.clone()));
        world.meta.read_file("profile").unwrap_or_default()
    })
}

/// The last file of the journal. The input holds only the used part of its header, so that a fuzzer reaches records
/// soon.
pub(super) fn journal(bytes: &[u8]) {
    let Some((base, mended, rest)) = split(bytes) else { return };
    let (name, _) = base.newest("journal-");
    let head = rest.len().min(mend::JOURNAL_HEADER_USED);
    let mut file = vec![0; mend::JOURNAL_HEADER];
    file[..head].copy_from_slice(&rest[..head]);
    file.extend_from_slice(&rest[head..]);
    if mended {
        let sequence = name.rsplit('-').next().and_then(|digits| digits.parse().ok()).unwrap_or(1);
        mend::journal(&mut file, base.id, sequence);
    }
    file.resize((file.len() + 4096).next_multiple_of(4096), 0);
    let world = base.world(|other| other == name);
    if world.meta.write_file(name, &file).is_ok() {
        base.open_and_use(&world);
    }
}
pub(super) fn journal_seeds() -> Vec<Vec<u8>> {
    seeds_of(|base| {
        let (_, file) = base.newest("journal-");
        let mut input = file[..mend::JOURNAL_HEADER_USED.min(file.len())].to_vec();
        input.extend_from_slice(file.get(mend::JOURNAL_HEADER..).unwrap_or_default());
        input
    })
}

pub(super) fn segment(bytes: &[u8]) {
    let Some((mend_it, rest)) = bytes.split_first() else { return };
    let mut header = [0; HEADER_BYTES];
    let len = rest.len().min(HEADER_BYTES);
    header[..len].copy_from_slice(&rest[..len]);
    if mend_it & RAW == 0 {
        mend::tail_sum(&mut header, *b"CENOTSEG", HEADER_BYTES);
    }
    if let Ok(found) = SegmentHeader::decode(&header, "it") {
        let _ = found.check("it", StoreId(7), DeviceId(3), DeviceKind::File, 0);
        let again = SegmentHeader::decode(&found.encode(), "it").expect("what was read can be written and read");
        assert_eq!(found, again);
    }
}
pub(super) fn segment_seeds() -> Vec<Vec<u8>> {
    let kinds = [DeviceKind::SharedMemory, DeviceKind::File, DeviceKind::Directory];
    let header = |kind| SegmentHeader {
        store: StoreId(7),
        device: DeviceId(3),
        kind,
        unit_bytes: 4096,
        number: 2,
        segment_bytes: 1 << 20,
        data_offset: 4096,
        len: 1 << 20,
        capacity_bytes: 1 << 30,
        boot_id: [5; 16],
    };
    kinds.into_iter().map(|kind| [&[0][..], &header(kind).encode()].concat()).collect()
}

/// A file in shared memory with these bytes.
pub(super) fn memory_file(bytes: &[u8]) -> Option<OwnedFd> {
    let fd = rustix::fs::memfd_create("fuzz", MemfdFlags::CLOEXEC).ok()?;
    rustix::fs::ftruncate(&fd, bytes.len().next_multiple_of(4096) as u64).ok()?;
    rustix::io::pwrite(&fd, bytes, 0).ok()?;
    Some(fd)
}

/// Header and rings of a client's file, as a daemon finds them; and the same bytes as a control table.
pub(super) fn client_file(bytes: &[u8]) {
    let Some((flags, rest)) = bytes.split_first() else { return };
    let mut file = rest.to_vec();
    if flags & 2 != 0 {
        file.resize(file.len().max(80 << 10), 0);
    }
    if flags & RAW == 0 {
        mend::tail_sum(&mut file, *b"CENOTCLI", 128);
    }
    if let Some(client) = memory_file(&file).and_then(|fd| ClientFile::map(fd).ok()) {
        client.slots().min();
        client.counters().counts();
        if let Ok([requests, _]) = ring_memories(&client)
            && let Ok(mut ring) = Consumer::new(requests)
        {
            while let Ok(Some(_)) = ring.take() {}
        }
    }
    if flags & RAW == 0 {
        mend::tail_sum(&mut file, *b"CENOTCTL", 128);
    }
    if let Some(view) = memory_file(&file).and_then(|fd| ControlView::map(fd).ok()) {
        view.word(u64::MAX);
    }
}
pub(super) fn client_file_seeds() -> Vec<Vec<u8>> {
    let mut header = vec![0; 129];
    header[0] = 2;
    header[1 + 48] = 9; // its number
    header[1 + 60] = 64; // reader slots
    let mut with_rings = header.clone();
    with_rings[73..=80].copy_from_slice(&8192u64.to_le_bytes());
    vec![header, with_rings]
}
