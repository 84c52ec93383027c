//! Profiles of devices with known speed, and bounds of the time that measuring takes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cenote_device::faulty::{Fault, Faults, Faulty};
use cenote_device::measure::{Probe, measure};
use cenote_device::mem::MemDevices;
use cenote_device::throttled::{Throttle, Throttled};
use cenote_device::{Device, Devices, SystemClock, SystemDevices};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, Profile, Result, StoreId, TierOptions};

fn spec(kind: DeviceKind, path: PathBuf) -> DeviceSpec {
    DeviceSpec {
        name: "tier".to_owned(),
        kind,
        path,
        capacity_bytes: 64 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: TierOptions::default(),
    }
}

fn made(devices: &impl Devices, kind: DeviceKind, path: PathBuf) -> Arc<dyn Device> {
    devices.open(StoreId(7), DeviceId(1), &spec(kind, path), true).expect("made").device
}

fn run(device: &dyn Device, kind: DeviceKind, budget: Duration, stop: bool) -> Result<Option<Profile>> {
    measure(&Probe {
        device,
        kind,
        offset: 1 << 20,
        len: 32 << 20,
        budget_ns: budget.as_nanos() as u64,
        clock: &SystemClock,
        sync: &|| device.sync(),
        stop: &|| stop,
    })
}

/// A throttled device in memory has the speed that it was given.
#[test]
fn a_known_speed_is_found() {
    for (latency_us, bytes_per_s) in [(2000, 200_000_000), (300, 50_000_000)] {
        let throttle = Throttle { bytes_per_s, latency: Duration::from_micros(latency_us) };
        let device = made(&Throttled::new(MemDevices::default(), throttle), DeviceKind::File, "x".into());
        let profile = run(&*device, DeviceKind::File, Duration::from_millis(1500), false).unwrap().expect("measured");
        let speed = profile.speed().expect("both directions");
        println!("{latency_us} us, {bytes_per_s} B/s: {speed:?}");
        for latency in [speed.read_latency_ns, speed.write_latency_ns] {
            let us = latency / 1000.0;
            assert!(us > latency_us as f64 * 0.8 && us < latency_us as f64 * 2.0 + 500.0, "{us} us of {latency_us}");
        }
        for bandwidth in [speed.read_bandwidth, speed.write_bandwidth] {
            let share = bandwidth / bytes_per_s as f64;
            assert!((0.5..1.3).contains(&share), "{share} of {bytes_per_s} B/s");
        }
    }
}

/// However slow a device is, it gets a line, and its measurement ends.
#[test]
fn a_slow_device_gets_fewer_points() {
    let throttle = Throttle { bytes_per_s: 10_000_000, latency: Duration::from_millis(20) };
    let device = made(&Throttled::new(MemDevices::default(), throttle), DeviceKind::File, "x".into());
    let begin = Instant::now();
    let profile = run(&*device, DeviceKind::File, Duration::from_millis(200), false).unwrap().expect("measured");
    assert!(begin.elapsed() < Duration::from_secs(3), "{:?}", begin.elapsed());
    assert!(profile.speed().is_some() && profile.points.len() < 16, "{profile:?}");
}

#[test]
fn memory_and_files_of_this_machine() {
    let base = PathBuf::from(format!("/dev/shm/cenote-measure-{}", std::process::id()));
    let dir = std::env::temp_dir().join(format!("cenote-measure-{}", std::process::id()));
    std::fs::create_dir_all(&base).unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    let devices = SystemDevices::with_shm_base(&base);
    for (kind, path) in [
        (DeviceKind::SharedMemory, PathBuf::new()),
        (DeviceKind::PersistentMemory, dir.join("pmem")),
        (DeviceKind::File, dir.join("file")),
        (DeviceKind::Directory, dir.join("dir")),
    ] {
        let device = made(&devices, kind, path);
        let mark = vec![0x5a; 4096];
        device.write_at((1 << 20) - 4096, &mark).unwrap();
        device.write_at(33 << 20, &mark).unwrap();
        let measured = || {
            let begin = Instant::now();
            let profile = run(&*device, kind, Duration::from_millis(400), false).unwrap().expect("measured");
            println!("{}: {:?} in {:?}", kind.word(), profile.speed(), begin.elapsed());
            assert!(begin.elapsed() < Duration::from_secs(5));
            profile
        };
        // One access that a busy disk delays by 0.4 s leaves no time for the other points.
        let mut profile = measured();
        for _ in 0..4 {
            if profile.points.len() <= 8 {
                profile = measured();
            }
        }
        assert!(profile.points.len() > 8, "{profile:?}");
        assert!(profile.points.iter().all(|point| point.p50_ns <= point.p99_ns && point.bandwidth > 0.0));
        let mut back = vec![0; 4096];
        for at in [(1 << 20) - 4096, 33 << 20] {
            device.read_at(at, &mut back).unwrap();
            assert!(back == mark, "what lies beside the range stays");
        }
    }
    let _ = std::fs::remove_dir_all(&base);
    let _ = std::fs::remove_dir_all(&dir);
}

#[test]
fn it_stops_when_told_and_says_what_fails() {
    let device = made(&MemDevices::default(), DeviceKind::File, "x".into());
    assert_eq!(run(&*device, DeviceKind::File, Duration::from_secs(5), true).unwrap(), None);
    let faults = Faults::default();
    let device = made(&Faulty::new(MemDevices::default(), &faults), DeviceKind::File, "x".into());
    faults.from(faults.count() + 3, Fault::Fail(ErrorKind::Io));
    assert!(run(&*device, DeviceKind::File, Duration::from_secs(5), false).is_err());
}
