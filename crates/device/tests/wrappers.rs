//! The wrappers pass the suites without faults, and inject the faults that a
//! test asks for.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use cenote_device::faulty::{Fault, Faults, Faulty};
use cenote_device::mem::{Keep, MemControl, MemDevices, MemMetaDir};
use cenote_device::throttled::{Throttle, Throttled};
use cenote_device::{Control, Devices, MetaDir, conformance};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, StoreId};

fn spec(kind: DeviceKind) -> DeviceSpec {
    DeviceSpec {
        name: "tier".to_owned(),
        kind,
        path: PathBuf::new(),
        capacity_bytes: 4 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: cenote_model::TierOptions::default(),
    }
}

const STORE: StoreId = StoreId(1);
const DEVICE: DeviceId = DeviceId(1);

#[test]
fn wrappers_forward() {
    let seed = conformance::seed();
    let faults = Faults::default();
    conformance::devices(&Faulty::new(MemDevices::default(), &faults), &spec(DeviceKind::File), seed);
    conformance::meta_dir(&Faulty::new(MemMetaDir::default(), &faults), seed);
    assert!(faults.count() > 100 && faults.hits() == 0);
    let throttle = Throttle { bytes_per_s: 0, latency: Duration::ZERO };
    conformance::devices(&Throttled::new(MemDevices::default(), throttle), &spec(DeviceKind::File), seed);
}

#[test]
fn faults_hit_where_planned() {
    let faults = Faults::default();
    let devices = Faulty::new(MemDevices::default(), &faults);
    let device = devices.open(STORE, DEVICE, &spec(DeviceKind::File), true).unwrap().device;
    let mut buf = [0; 8];
    let n = faults.count();
    faults.at(n, Fault::Fail(ErrorKind::Full)).at(n + 1, Fault::Torn).at(n + 2, Fault::Lost).at(n + 4, Fault::FlipBit);
    assert_eq!(device.write_at(0, &[1; 8]).unwrap_err().kind(), ErrorKind::Full);
    assert_eq!(device.write_at(0, &[2; 8]).unwrap_err().kind(), ErrorKind::Io);
    device.write_at(0, &[3; 8]).unwrap();
    device.read_at(0, &mut buf).unwrap();
    assert_eq!(buf, [2, 2, 2, 2, 0, 0, 0, 0]);
    device.read_at(0, &mut buf).unwrap();
    let bits: u32 = buf.iter().zip([2, 2, 2, 2, 0, 0, 0, 0]).map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1);
    faults.from(0, Fault::FailAfter(ErrorKind::Io));
    assert!(device.sync().is_err() && device.write_at(0, &[9; 8]).is_err());
    faults.heal();
    device.read_at(0, &mut buf).unwrap();
    assert_eq!((buf, faults.hits()), ([9; 8], 6));
}

#[test]
fn throttling_takes_time() {
    let devices = Throttled::new(MemDevices::default(), Throttle { bytes_per_s: 20 << 20, latency: Duration::ZERO });
    let device = devices.open(STORE, DEVICE, &spec(DeviceKind::File), true).unwrap().device;
    let begin = Instant::now();
    device.write_at(0, &vec![0; 2 << 20]).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(90), "{:?}", begin.elapsed());
}

#[test]
fn power_loss_takes_what_was_not_synced() {
    for (keep, expected) in [(Keep::Nothing, [1, 0]), (Keep::Everything, [1, 2])] {
        let (devices, dir) = (MemDevices::default(), MemMetaDir::default());
        let memory = devices.open(STORE, DeviceId(0), &spec(DeviceKind::SharedMemory), true).unwrap().device;
        let file = devices.open(STORE, DEVICE, &spec(DeviceKind::File), true).unwrap().device;
        let log = dir.create_log("log", 4096).unwrap();
        memory.write_at(0, &[5]).unwrap();
        file.write_at(0, &[1]).unwrap();
        log.write(0, &[1]).unwrap();
        file.sync().unwrap();
        log.sync().unwrap();
        file.write_at(1, &[2]).unwrap();
        log.write(1, &[2]).unwrap();
        devices.power_loss(keep);
        dir.power_loss(keep);
        assert_eq!(file.read_at(0, &mut [0]).unwrap_err().kind(), ErrorKind::Io, "handles are dead");
        assert_eq!(log.write(0, &[0]).unwrap_err().kind(), ErrorKind::Io, "handles are dead");
        assert!(!devices.open(STORE, DeviceId(0), &spec(DeviceKind::SharedMemory), false).unwrap().survived);
        let mut buf = [9; 2];
        let file = devices.open(STORE, DEVICE, &spec(DeviceKind::File), false).unwrap();
        file.device.read_at(0, &mut buf).unwrap();
        assert_eq!((buf, file.survived), (expected, true));
        dir.open_log("log").unwrap().read(0, &mut buf).unwrap();
        assert_eq!(buf, expected);
    }
}

#[test]
fn one_seed_one_outcome() {
    let outcome = |seed| {
        let devices = MemDevices::default();
        let file = devices.open(STORE, DEVICE, &spec(DeviceKind::File), true).unwrap().device;
        for i in 0..100 {
            file.write_at(i * 700, &[i as u8 + 1; 1000]).unwrap();
        }
        devices.power_loss(Keep::Random(seed));
        let mut bytes = vec![0; 80_000];
        let file = devices.open(STORE, DEVICE, &spec(DeviceKind::File), false).unwrap().device;
        file.read_at(0, &mut bytes).unwrap();
        bytes
    };
    assert_eq!(outcome(1), outcome(1));
    assert_ne!(outcome(1), outcome(2));
    let control = MemControl::default();
    assert!(!control.attach(STORE).unwrap());
    assert!(!control.attach(STORE).unwrap(), "nobody came to the end of an opening with it");
    control.instance_raise();
    assert!(control.attach(STORE).unwrap());
    control.power_loss();
    assert!(!control.attach(STORE).unwrap());
}
