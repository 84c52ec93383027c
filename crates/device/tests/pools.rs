//! Tiers in pools of Ceph RADOS, with the pool in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cenote_device::Device;
use cenote_device::conformance::{self, seed};
use cenote_device::object::fake::FakeService;
use cenote_device::object::rados::RadosService;
use cenote_device::object::service::Answer;
use cenote_device::object::{ObjectDevices, ObjectService, Patience};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, StoreId, TierOptions};
use cenote_rados::{MemoryPool, Pool};

const STORE: StoreId = StoreId(0x000b_1ec7);
const ID: DeviceId = DeviceId(3);
const QUICK: Patience = Patience { tries: 4, pause: Duration::from_millis(1), total: Duration::from_secs(5) };

fn spec(capacity_bytes: u64, pack: &str) -> DeviceSpec {
    let mut options = TierOptions::default();
    options.set("pack", pack);
    DeviceSpec {
        name: "cold".into(),
        kind: DeviceKind::Rados,
        path: "pool/some".into(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options,
    }
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; len];
    device.read_at(offset, &mut bytes).unwrap();
    bytes
}

#[test]
fn suite_in_a_pool() {
    let pool: Arc<dyn Pool> = Arc::new(MemoryPool::default());
    let connected = Arc::clone(&pool);
    let service = move |_: &DeviceSpec| {
        let connected = Arc::clone(&connected);
        Ok(RadosService::new("some/", move |_| Ok(Arc::clone(&connected))))
    };
    let devices = ObjectDevices::new(service, true, QUICK);
    conformance::devices(&devices, &spec(20 << 20, "1MiB"), seed());
    assert_eq!(pool.list().unwrap(), Vec::<String>::new(), "nothing is left behind");
    let error = devices.open_one(STORE, ID, &spec(1 << 20, "65MiB"), true).err().unwrap();
    assert!(error.next_step().contains("to 64.0 MiB"), "one operation of RADOS takes no more: {error}");
}

/// A service whose objects are small, so that no catalogue holds all tables.
#[derive(Clone)]
struct Narrow(FakeService);

impl ObjectService for Narrow {
    fn put(&self, key: &str, parts: &[Bytes], only_new: bool) -> Answer<()> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        assert!(bytes as u64 <= self.object_bytes_max(), "{key} has {bytes} bytes");
        self.0.put(key, parts, only_new)
    }
    fn get(&self, key: &str, from: u64, len: u64) -> Answer<Bytes> {
        self.0.get(key, from, len)
    }
    fn list(&self, prefix: &str) -> Answer<Vec<(String, u64)>> {
        self.0.list(prefix)
    }
    fn delete(&self, key: &str) -> Answer<()> {
        self.0.delete(key)
    }
    fn object_bytes_max(&self) -> u64 {
        100 << 10
    }
}

#[test]
fn a_catalogue_holds_what_an_object_has_room_for() {
    let narrow = Narrow(FakeService::default());
    let service = narrow.clone();
    let devices = ObjectDevices::new(move |_: &DeviceSpec| Ok(service.clone()), false, QUICK);
    let spec = spec(64 << 20, "64KiB");
    let device = devices.open_one(STORE, ID, &spec, true).unwrap();
    // Tables of 100 runs each.
    let at = |pack: u64, run: u64| (pack * 100 + run) * 8192;
    for pack in 0..80 {
        for run in 0..100 {
            device.write_at(at(pack, run), &[pack as u8; 500]).unwrap();
        }
        device.sync().unwrap();
    }
    drop(device);
    assert!(narrow.0.keys().iter().any(|key| key.contains("/map-")), "there is a catalogue");
    let device = devices.open_one(STORE, ID, &spec, false).unwrap();
    for pack in 0..80 {
        for run in 0..100 {
            assert_eq!(read(&device, at(pack, run), 500), [pack as u8; 500], "{pack} {run}");
        }
    }
}
