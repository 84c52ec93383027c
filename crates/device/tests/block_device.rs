//! File tiers on raw block devices: loop devices over files, which only root can make; skipped elsewhere.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_device::{Device, Devices, SegmentMode, SystemDevices, conformance};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, StoreId, TierOptions};

const STORE: StoreId = StoreId(0xb10c);
const DEVICE: DeviceId = DeviceId(2);
const BYTES: u64 = 24 << 20;

/// A loop device over a file of its own.
struct Loop {
    dir: PathBuf,
    file: PathBuf,
    node: PathBuf,
}

fn run(program: &str, words: &[&str]) -> Output {
    Command::new(program).args(words).output().unwrap_or_else(|error| panic!("{program}: {error}"))
}

impl Loop {
    fn new(name: &str, bytes: u64, sector_bytes: u32) -> Result<Self, String> {
        let dir = std::env::temp_dir().join(format!("cenote-block-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&dir).map_err(|e| e.to_string())?;
        let file = dir.join("backing");
        std::fs::File::create(&file).and_then(|file| file.set_len(bytes)).map_err(|e| e.to_string())?;
        let sector = sector_bytes.to_string();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector])
            .arg(&file)
            .output()
            .map_err(|error| format!("no losetup: {error}"))
            .and_then(|out| {
                let said = String::from_utf8_lossy(&out.stdout).trim().to_owned();
                if out.status.success() { Ok(said) } else { Err(String::from_utf8_lossy(&out.stderr).into_owned()) }
            });
        match made {
            Ok(node) => Ok(Self { dir, file, node: node.into() }),
            Err(why) => {
                let _ = std::fs::remove_dir_all(&dir);
                Err(why)
            }
        }
    }
    fn spec(&self, capacity_bytes: u64) -> DeviceSpec {
        DeviceSpec {
            name: "tier-name".to_owned(),
            kind: DeviceKind::File,
            path: self.node.clone(),
            capacity_bytes,
            watermark_high_permille: 900,
            watermark_low_permille: 800,
            options: TierOptions::default(),
        }
    }
    fn word(&self) -> &str {
        self.node.to_str().expect("a plain path")
    }
    /// Resizes the device to the new size of its file.
    fn resize(&self, bytes: u64) {
        std::fs::OpenOptions::new().write(true).open(&self.file).unwrap().set_len(bytes).unwrap();
        assert!(run("losetup", &["--set-capacity", self.word()]).status.success());
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["--detach", self.word()]).output();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The device; without one on this machine, prints that the test is skipped.
fn looped(name: &str, sector_bytes: u32) -> Option<Loop> {
    Loop::new(name, BYTES, sector_bytes).map_err(|why| println!("skipped: no loop device ({})", why.trim())).ok()
}

#[test]
fn conformance_at_both_sizes_of_sectors() {
    for sector_bytes in [512, 4096] {
        let Some(looped) = looped(&format!("suite-{sector_bytes}"), sector_bytes) else { return };
        let (devices, spec) = (SystemDevices::default(), looped.spec(20 << 20));
        let opened = devices.open(STORE, DEVICE, &spec, true).expect("made");
        let segment = opened.device.segment(0).expect("a segment").expect("shareable");
        assert_eq!(segment.mode, SegmentMode::Direct, "past the page cache");
        conformance::device(&*opened.device, conformance::seed());
        opened.device.write_at(77, b"kept").expect("write");
        opened.device.sync().expect("sync");
        drop(segment);
        drop(opened);
        let again = devices.open(STORE, DEVICE, &spec, false).expect("found again");
        let mut back = [0; 4];
        again.device.read_at(77, &mut back).expect("read");
        assert!(again.survived && &back == b"kept");
        drop(again);
        devices.remove(STORE, DEVICE, &spec).expect("remove");
        let left = std::fs::read(&looped.file).unwrap();
        let readable = left[..20 << 20].iter().position(|byte| *byte != 0);
        assert_eq!(readable, None, "something is left of what was stored");
        assert!(devices.open(STORE, DEVICE, &spec, false).is_err(), "its header is gone");
        assert!(looped.node.exists(), "a device node is not deleted");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(looped) = looped("small", 512) else { return };
    let devices = SystemDevices::default();
    let error = devices.open(STORE, DEVICE, &looped.spec(BYTES), true).err().expect("the header needs room too");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    assert!(error.next_step().contains(&(BYTES - 4096).to_string()), "{error}");
    let spec = looped.spec(BYTES - 4096);
    let opened = devices.open(STORE, DEVICE, &spec, true).expect("what was proposed fits");
    opened.device.write_at(BYTES - 8192, &[7; 4096]).expect("the last page");
    drop(opened);
    looped.resize(BYTES / 2);
    let error = devices.open(STORE, DEVICE, &spec, false).err().expect("it has shrunk");
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert!(error.to_string().contains(looped.word()), "{error}");
    looped.resize(BYTES);
    devices.open(STORE, DEVICE, &spec, false).expect("it has grown again");
}

/// A process that is being started has copies of all descriptors until its program runs: that of a former claim, too.
#[test]
fn processes_that_are_started_meanwhile_do_not_have_it() {
    let Some(looped) = looped("starts", 512) else { return };
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::SeqCst) {
                run("true", &[]);
            }
        });
        let refused =
            (0..200).find_map(|_| SystemDevices::default().open(STORE, DEVICE, &looped.spec(4 << 20), true).err());
        is_over.store(true, Ordering::SeqCst);
        assert!(refused.is_none(), "{refused:?}");
    });
}

/// A device that shrinks while it is open returns errors, never bytes that were not there.
#[test]
fn a_device_that_shrinks_under_way() {
    let Some(looped) = looped("shrinks", 512) else { return };
    let opened = SystemDevices::default().open(STORE, DEVICE, &looped.spec(BYTES - 4096), true).expect("made");
    let device: &dyn Device = &*opened.device;
    device.write_at(0, &[1; 8192]).expect("write");
    device.write_at(BYTES - 16384, &[2; 8192]).expect("write");
    looped.resize(BYTES / 2);
    let mut bytes = [0; 8192];
    assert!(device.read_at(BYTES - 16384, &mut bytes).is_err(), "behind the end");
    assert!(device.write_at(BYTES - 16384, &bytes).is_err(), "behind the end");
    device.read_at(0, &mut bytes).expect("what is left");
    assert!(bytes == [1; 8192]);
}

#[test]
fn what_is_in_use_is_refused() {
    let Some(looped) = looped("mounted", 512) else { return };
    let devices = SystemDevices::default();
    // The store had the device before somebody mounted it: its first bytes say nothing.
    let spec = looped.spec(16 << 20);
    let mount_at = looped.dir.join("mount");
    std::fs::create_dir_all(&mount_at).unwrap();
    let formatted = Command::new("mkfs.ext4").args(["-q", looped.word()]).output();
    let at = mount_at.to_str().unwrap();
    if formatted.is_ok_and(|out| out.status.success()) && run("mount", &[looped.word(), at]).status.success() {
        let before = std::fs::read(&looped.file).unwrap();
        let error = devices.open(STORE, DEVICE, &spec, true).err();
        let unmounted = run("umount", &[at]).status.success();
        let error = error.expect("it is mounted");
        assert!(unmounted);
        assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
        assert!(error.to_string().contains(looped.word()) && !error.next_step().is_empty(), "{error}");
        let error = devices.open(STORE, DEVICE, &spec, true).err().expect("a file system is on it");
        assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
        assert_eq!(before.len(), std::fs::read(&looped.file).unwrap().len());
        wipe(&looped.node);
    } else {
        println!("skipped in part: no mkfs.ext4 or mount");
    }
    let opened = devices.open(STORE, DEVICE, &spec, true).expect("free");
    // Clients' descriptors do not keep the device from the next engine.
    let segment = opened.device.segment(0).expect("a segment");
    let made = run("mkfs.ext4", &["-q", "-F", looped.word()]);
    assert!(!made.status.success(), "nobody formats a device that an engine has");
    drop(opened);
    let again = devices.open(STORE, DEVICE, &spec, false).expect("the next engine");
    drop((again, segment));
}

#[test]
fn nothing_is_readable_of_what_was_destroyed() {
    const SECRET: &[u8] = b"a secret of a store";
    let Some(looped) = looped("destroyed", 512) else { return };
    let devices = SystemDevices::default();
    let spec = looped.spec(16 << 20);
    let opened = devices.open(STORE, DEVICE, &spec, true).unwrap();
    let block: Vec<u8> = SECRET.iter().copied().cycle().take(64 << 10).collect();
    for at in [0, 5 << 20, opened.device.capacity_bytes() - (64 << 10)] {
        opened.device.write_at(at, &block).unwrap();
    }
    opened.device.sync().unwrap();
    drop(opened);
    let is_readable = || {
        let bytes = std::fs::read(&looped.node).unwrap();
        bytes.windows(SECRET.len()).any(|some| some == SECRET)
    };
    assert!(is_readable());
    let other = devices.remove(StoreId(1), DEVICE, &spec).expect_err("it is another store's");
    assert!(is_readable(), "{other}");
    devices.remove(STORE, DEVICE, &spec).unwrap();
    assert!(!is_readable());
    // The old content no longer belongs to a store: another store takes the device.
    drop(devices.open(StoreId(1), DEVICE, &spec, true).unwrap());
}

fn wipe(node: &Path) {
    let file = std::fs::OpenOptions::new().write(true).open(node).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &vec![0; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
}
