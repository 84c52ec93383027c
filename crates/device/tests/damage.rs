//! Devices that are damaged, foreign, missing, misplaced or too large: clear errors, and nothing changed.

use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cenote_device::{Devices, StoreLock, SystemDevices};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, Error, ErrorKind, StoreId};

const STORE: StoreId = StoreId(0xdada);
const DEVICE: DeviceId = DeviceId(2);

struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cenote-damage-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
    fn devices(&self) -> SystemDevices {
        SystemDevices::with_shm_base(&self.0)
    }
    /// One device of each kind: its settings, and the file of its first segment.
    fn all(&self) -> [(DeviceSpec, PathBuf); 4] {
        let memory = self.0.join(format!("cenote-{STORE}")).join("dev-2-seg-0");
        [
            (spec(DeviceKind::SharedMemory, Path::new("")), memory),
            (spec(DeviceKind::PersistentMemory, &self.0.join("pmem")), self.0.join("pmem")),
            (spec(DeviceKind::File, &self.0.join("file")), self.0.join("file")),
            (spec(DeviceKind::Directory, &self.0.join("dir")), self.0.join("dir/seg-000000")),
        ]
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn spec(kind: DeviceKind, path: &Path) -> DeviceSpec {
    DeviceSpec {
        name: "tier-name".to_owned(),
        kind,
        path: path.to_owned(),
        capacity_bytes: 1 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options: cenote_model::TierOptions::default(),
    }
}

/// Checks that the error has this kind, names the tier and the path, and says what to do.
fn expect(error: &Error, kind: ErrorKind, path: &Path) {
    assert_eq!(error.kind(), kind, "{error}");
    let text = error.to_string();
    assert!(text.contains("tier-name") && text.contains(path.to_str().unwrap()), "{text}");
    assert!(!error.next_step().is_empty(), "no next step: {text}");
}

fn flip(path: &Path, bit: u64) {
    let mut file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.seek(SeekFrom::Start(bit / 8)).unwrap();
    file.read_exact(&mut byte).unwrap();
    file.seek(SeekFrom::Start(bit / 8)).unwrap();
    file.write_all(&[byte[0] ^ (1 << (bit % 8))]).unwrap();
}

#[test]
fn every_bit_of_a_header() {
    let scratch = Scratch::new("bits");
    let devices = scratch.devices();
    for (spec, path) in scratch.all() {
        devices.open(STORE, DEVICE, &spec, true).unwrap();
        for bit in (0..128 * 8).step_by(5) {
            flip(&path, bit);
            let error = devices.open(STORE, DEVICE, &spec, false).err().unwrap_or_else(|| panic!("bit {bit}"));
            expect(&error, ErrorKind::Corrupt, &path);
            flip(&path, bit);
        }
        assert!(devices.open(STORE, DEVICE, &spec, false).unwrap().survived, "mended");
    }
}

#[test]
fn files_cut_short() {
    let scratch = Scratch::new("short");
    let devices = scratch.devices();
    for (spec, path) in scratch.all() {
        devices.open(STORE, DEVICE, &spec, true).unwrap();
        for len in [100_000, 4096, 100, 0] {
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            file.set_len(len).unwrap();
            // Opening a memory device reads only its header; mapping it detects the rest.
            let opened = devices.open(STORE, DEVICE, &spec, false);
            let error = opened.and_then(|opened| opened.device.segment(0)).expect_err("cut short");
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.to_string().contains(path.to_str().unwrap()), "{error}");
        }
    }
}

#[test]
fn what_belongs_to_others_is_not_touched() {
    let scratch = Scratch::new("foreign");
    let devices = scratch.devices();
    for (spec, path) in scratch.all() {
        if spec.kind == DeviceKind::SharedMemory {
            continue; // its path contains the store's name
        }
        devices.open(STORE, DEVICE, &spec, true).unwrap().device.write_at(0, b"mine").unwrap();
        let before = std::fs::read(&path).unwrap();
        for (store, device) in [(StoreId(1), DEVICE), (STORE, DeviceId(3))] {
            expect(&devices.open(store, device, &spec, false).err().unwrap(), ErrorKind::Corrupt, &path);
            expect(&devices.open(store, device, &spec, true).err().unwrap(), ErrorKind::Exists, &path);
            assert!(devices.remove(store, device, &spec).is_err());
        }
        assert!(std::fs::read(&path).unwrap() == before, "untouched");
        std::fs::write(&path, "a letter to my aunt").unwrap();
        expect(&devices.open(STORE, DEVICE, &spec, true).err().unwrap(), ErrorKind::Exists, &path);
        assert!(devices.remove(STORE, DEVICE, &spec).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"a letter to my aunt");
    }
}

#[test]
fn paths_that_cannot_be() {
    let scratch = Scratch::new("paths");
    let devices = scratch.devices();
    std::fs::write(scratch.0.join("plain"), "x").unwrap();
    for kind in [DeviceKind::PersistentMemory, DeviceKind::File, DeviceKind::Directory] {
        for create in [true, false] {
            let missing = scratch.0.join("no/such/place");
            let error = devices.open(STORE, DEVICE, &spec(kind, &missing), create).err().unwrap();
            expect(&error, ErrorKind::NotFound, &missing);
            let below = scratch.0.join("plain/below");
            assert!(devices.open(STORE, DEVICE, &spec(kind, &below), create).is_err());
            let error = devices.open(STORE, DEVICE, &spec(kind, Path::new("")), create).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
        }
    }
    assert!(devices.open(STORE, DEVICE, &spec(DeviceKind::File, &scratch.0), true).is_err(), "a directory as file");
    let plain = scratch.0.join("plain");
    assert!(devices.open(STORE, DEVICE, &spec(DeviceKind::Directory, &plain), true).is_err(), "a file as directory");
    for kind in [DeviceKind::PersistentMemory, DeviceKind::File] {
        assert!(devices.open(STORE, DEVICE, &spec(kind, Path::new("/dev/null")), true).is_err());
    }
    let read_only = Path::new("/proc/cenote-file");
    assert!(devices.open(STORE, DEVICE, &spec(DeviceKind::File, read_only), true).is_err());
}

#[test]
fn more_than_there_is() {
    let scratch = Scratch::new("large");
    for (mut spec, path) in scratch.all() {
        let devices = if spec.kind == DeviceKind::SharedMemory {
            SystemDevices::with_shm_base("/dev/shm")
        } else {
            scratch.devices()
        };
        spec.capacity_bytes = 10 << 40;
        if spec.kind == DeviceKind::Directory {
            continue; // allocates its space on demand
        }
        let error = devices.open(STORE, DEVICE, &spec, true).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(!error.next_step().is_empty());
        assert!(std::fs::metadata(&path).map_or(0, |file| file.len()) == 0, "nothing is left of it");
        let _ = devices.remove(STORE, DEVICE, &spec);
        for capacity in [0, 511, u64::MAX] {
            spec.capacity_bytes = capacity;
            let error = devices.open(STORE, DEVICE, &spec, true).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{capacity}: {error}");
        }
    }
}

#[test]
fn a_segment_that_is_lost_is_not_taken_for_an_empty_device() {
    let scratch = Scratch::new("lost");
    let devices = scratch.devices();
    for (spec, path) in scratch.all() {
        devices.open(STORE, DEVICE, &spec, true).unwrap();
        std::fs::remove_file(&path).unwrap();
        match devices.open(STORE, DEVICE, &spec, false) {
            Ok(opened) => assert!(!opened.survived && spec.kind == DeviceKind::SharedMemory),
            Err(error) => expect(&error, ErrorKind::NotFound, &path),
        }
    }
}

/// A child inherits a `flock`; the registry of descriptors prevents that.
#[test]
fn a_fork_does_not_keep_the_lock() {
    let scratch = Scratch::new("fork");
    let lock = StoreLock::acquire(&scratch.0).unwrap().unwrap();
    let pid = fork::fork_and_sleep();
    let holds_it = || {
        let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
        fds.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok()).any(|path| path.starts_with(&scratch.0))
    };
    let begin = Instant::now();
    while holds_it() && begin.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(1)); // the child has not run yet
    }
    let kept = holds_it();
    drop(lock);
    let again = StoreLock::acquire(&scratch.0).unwrap();
    fork::reap(pid);
    assert!(!kept && again.is_some(), "the child kept the lock");
}

mod fork {
    #![allow(unsafe_code, reason = "fork")]

    /// A child that does nothing for a while.
    pub fn fork_and_sleep() -> i32 {
        // SAFETY: the child only sleeps and exits, both async-signal-safe.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::usleep(20_000_000);
                    libc::_exit(0)
                }
                pid => pid,
            }
        }
    }
    /// Ends it.
    pub fn reap(pid: i32) {
        assert!(pid > 0, "fork failed");
        // SAFETY: our own child.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}
