//! Targets for the content of a bucket, which anybody may write to. The first byte of an input selects what is mended,
//! and whether the object that follows is a pack or a catalogue.

use cenote_device::Device;
use cenote_device::object::fake::FakeService;
use cenote_device::object::{ObjectDevice, ObjectDevices, Patience};
use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};

use super::mend;

/// Bit of the first byte: mend nothing.
const RAW: u8 = 1;
const STORE: StoreId = StoreId(7);
const ID: DeviceId = DeviceId(3);
const CAPACITY: u64 = 1 << 20;

fn open(service: &FakeService, create: bool) -> Result<ObjectDevice> {
    let service = service.clone();
    let patience = Patience { tries: 1, ..Patience::default() };
    let devices = ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), false, patience);
    devices.open_one(STORE, ID, &format!("name=cold,kind=s3,path=b/p,size={CAPACITY},pack=64KiB").parse()?, create)
}

/// A bucket with some packs.
fn bucket(units: u64) -> FakeService {
    let service = FakeService::default();
    let fill = || {
        let device = open(&service, true)?;
        (0..units).try_for_each(|unit| device.write_at(unit * 8192, &[unit as u8; 5000]).and_then(|()| device.sync()))
    };
    fill().expect("a service in memory takes everything");
    service
}

fn objects(service: &FakeService, kind: &str) -> Vec<(String, Vec<u8>)> {
    let keys = service.keys().into_iter().filter(|key| key.contains(kind));
    let read = |key: String| {
        let mut bytes = Vec::new();
        service.meddle(&key, |object| {
            bytes = object.unwrap_or_default();
            Some(bytes.clone())
        });
        (key, bytes)
    };
    keys.map(read).collect()
}

fn used(bytes: &[u8], kind: &str, mend: fn(&mut [u8], StoreId, DeviceId)) {
    let Some((flags, rest)) = bytes.split_first() else { return };
    let mut object = rest.to_vec();
    if flags & RAW == 0 {
        mend(&mut object, STORE, ID);
    }
    let service = bucket(3);
    let packs = objects(&service, "/pack-");
    let Some((first, _)) = packs.first() else { return };
    // In place of the first pack, or as a catalogue beside all of them.
    let key = if kind == "/pack-" { first.clone() } else { first.replace("/pack-", "/map-") };
    service.meddle(&key, |_| Some(object));
    let Ok(device) = open(&service, false) else { return };
    let mut buf = vec![0; 100_000];
    for at in (0..CAPACITY - 100_000).step_by(90_000) {
        let _ = device.read_at(at, &mut buf);
    }
    let _ = device.write_at(10_000, &buf);
    let _ = device.discard(0, 50_000);
    let _ = device.sync();
    let _ = device.tidy();
    let _ = device.retain(&mut [(4096, 4096), (40_960, 65_536)].into_iter());
    let _ = device.read_at(0, &mut buf);
}

pub(super) fn pack(bytes: &[u8]) {
    used(bytes, "/pack-", mend::pack);
}
pub(super) fn pack_seeds() -> Vec<Vec<u8>> {
    objects(&bucket(3), "/pack-").into_iter().map(|(_, object)| [&[0][..], &object].concat()).collect()
}

pub(super) fn catalogue(bytes: &[u8]) {
    used(bytes, "/map-", mend::catalogue);
}
/// From a bucket with enough packs for a catalogue; all entries but the first few are cut away.
pub(super) fn catalogue_seeds() -> Vec<Vec<u8>> {
    const ENTRY_BYTES: usize = 32 + 24 + 4;
    let cut = |(_, object): (String, Vec<u8>)| {
        let mut input = vec![0];
        input.extend_from_slice(&object[..object.len().min(128 + 3 * ENTRY_BYTES)]);
        input[1 + 80] = 3;
        input
    };
    objects(&bucket(100), "/map-").into_iter().map(cut).collect()
}
