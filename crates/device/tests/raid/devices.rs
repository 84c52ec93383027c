//! Tiers in directories, through the interface of devices.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cenote_device::mem::MemMetaDir;
use cenote_device::object::ClaimNotes;
use cenote_device::object::raid::fake::Mood;
use cenote_device::object::raid::{ACCEPT, Pace, Place, PlaceMaker, RaidDevices};
use cenote_device::{Device, Devices, SystemDevices, conformance};
use cenote_model::{DeviceId, DeviceKind, DeviceSpec, ErrorKind, Result, StoreId, TierOptions};

use super::{STILL, bytes, places};

const STORE: StoreId = StoreId(0x000d_15c5);
const ID: DeviceId = DeviceId(2);

/// Directories of their own, deleted on drop.
struct Disks {
    base: PathBuf,
    count: usize,
}

impl Disks {
    fn new(count: usize) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let base = std::env::temp_dir().join(format!("cenote-raid-{}-{number}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        fs::create_dir_all(&base).unwrap();
        Self { base, count }
    }
    fn disk(&self, number: usize) -> PathBuf {
        self.base.join(format!("disk{number}"))
    }
    fn spec(&self, layout: &str) -> DeviceSpec {
        let all: Vec<String> = (1..=self.count).map(|number| self.disk(number).display().to_string()).collect();
        spec(&all.join(":"), layout, 20 << 20)
    }
    /// A disk goes, and an empty mount point stays.
    fn unmount(&self, number: usize) {
        fs::rename(self.disk(number), self.base.join(format!("gone{number}"))).unwrap();
        fs::create_dir(self.disk(number)).unwrap();
    }
    fn mount(&self, number: usize) {
        fs::remove_dir_all(self.disk(number)).unwrap();
        fs::rename(self.base.join(format!("gone{number}")), self.disk(number)).unwrap();
    }
    /// A new disk in the place of a lost one.
    fn replace(&self, number: usize) {
        let _ = fs::remove_dir_all(self.disk(number));
        fs::create_dir(self.disk(number)).unwrap();
        fs::write(self.disk(number).join(ACCEPT), "").unwrap();
    }
}

impl Drop for Disks {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

fn spec(path: &str, layout: &str, capacity_bytes: u64) -> DeviceSpec {
    let mut options = TierOptions::default();
    options.set("layout", layout);
    options.set("pack", "256KiB");
    DeviceSpec {
        name: "safe".into(),
        kind: DeviceKind::Raid,
        path: path.into(),
        capacity_bytes,
        watermark_high_permille: 900,
        watermark_low_permille: 800,
        options,
    }
}

fn still() -> RaidDevices {
    RaidDevices::default().at_pace(STILL)
}

fn open(spec: &DeviceSpec, make: bool) -> Result<Arc<dyn Device>> {
    still().open(STORE, ID, spec, make).map(|opened| opened.device)
}

fn mend_device(device: &dyn Device) {
    let mut from = device.mend(None).unwrap();
    while let Some(at) = from {
        from = device.mend(Some(&at)).unwrap();
    }
}

fn refused(spec: &DeviceSpec, make: bool) -> cenote_model::Error {
    open(spec, make).err().unwrap()
}

fn read(device: &dyn Device, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut found = vec![0xee; len];
    device.read_at(offset, &mut found).map(|()| found)
}

/// All files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

#[test]
fn suite() {
    for (layout, count) in [("mirror=2", 2), ("2+1", 3), ("stripe=2", 3)] {
        let disks = Disks::new(count);
        conformance::devices(&SystemDevices::default(), &disks.spec(layout), conformance::seed());
        let left: Vec<PathBuf> = (1..=count).flat_map(|number| files(&disks.disk(number))).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "{layout}: nothing is left behind");
    }
}

#[test]
fn suite_on_places_that_come_and_go() {
    let fakes = places(7);
    let maker = {
        let fakes = fakes.clone();
        PlaceMaker::new(move |_, _, number| Ok(Arc::new(fakes[usize::from(number) - 1].clone()) as Arc<dyn Place>))
    };
    let pace = Pace { background: true, look_again: std::time::Duration::from_millis(5), ..STILL };
    let devices = RaidDevices::default().at_pace(pace).with_places(Some(maker));
    let spec = spec("@a:@b:@c:@d:@e:@f:@g", "3+2", 20 << 20);
    let (over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
    let disturb = || {
        let mut turn = 0;
        while !over.load(Ordering::Relaxed) {
            fakes[turn % 7].set([Mood::Away, Mood::Full, Mood::Unreadable][turn % 3]);
            begun.store(true, Ordering::Relaxed);
            std::thread::sleep(std::time::Duration::from_millis(30));
            fakes[turn % 7].set(Mood::Well);
            turn += 1;
            std::thread::sleep(std::time::Duration::from_millis(30));
        }
    };
    std::thread::scope(|scope| {
        // The first opening must find that nothing is there.
        let nothing = devices.open(STORE, ID, &spec, false).err().unwrap();
        assert_eq!(nothing.kind(), ErrorKind::NotFound, "{nothing}");
        let made = devices.open(STORE, ID, &spec, true).unwrap();
        scope.spawn(disturb);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            conformance::device(&*made.device, conformance::seed());
        }));
        over.store(true, Ordering::Relaxed);
        done.unwrap();
    });
    assert!(begun.load(Ordering::Relaxed));
    devices.remove(STORE, ID, &spec).unwrap();
}

#[test]
fn one_disk_after_the_other_is_lost_and_replaced() {
    let disks = Disks::new(3);
    let spec = disks.spec("2+1");
    let content = bytes(1, 3 << 20);
    let device = open(&spec, true).unwrap();
    device.write_at(0, &content).unwrap();
    device.sync().unwrap();
    assert!(device.note().starts_with("2+1 on 3 places; "), "{}", device.note());
    for lost in 1..=3 {
        fs::remove_dir_all(disks.disk(lost)).unwrap();
        assert!(read(&*device, 0, content.len()).unwrap() == content, "without disk {lost}");
        let fresh = open(&spec, false).unwrap();
        assert!(read(&*fresh, 0, content.len()).unwrap() == content, "opened without disk {lost}");
        assert!(fresh.note().contains(&format!("disk{lost}: there is no such directory")), "{}", fresh.note());
        drop(fresh);
        // An empty directory alone is a mount point without its disk.
        fs::create_dir(disks.disk(lost)).unwrap();
        mend_device(&*device);
        assert!(files(&disks.disk(lost)).is_empty());
        assert!(device.note().contains("has no file `cenote-place`"), "{}", device.note());
        disks.replace(lost);
        mend_device(&*device);
        mend_device(&*device);
        assert!(!device.note().contains("DEGRADED"), "{}", device.note());
        assert!(!disks.disk(lost).join(ACCEPT).exists());
        assert!(files(&disks.disk(lost)).len() > 10, "its parts are there again");
    }
    drop(device);
    disks.unmount(2);
    let device = open(&spec, false).unwrap();
    assert!(read(&*device, 0, content.len()).unwrap() == content);
}

#[test]
fn with_too_many_disks_away_the_tier_is_away_and_comes_back() {
    let disks = Disks::new(3);
    let spec = disks.spec("2+1");
    let device = open(&spec, true).unwrap();
    device.write_at(0, &bytes(1, 500_000)).unwrap();
    device.sync().unwrap();
    disks.unmount(1);
    disks.unmount(3);
    let error = read(&*device, 0, 500_000).unwrap_err();
    assert!(error.kind() == ErrorKind::Io && error.cause().contains("disk1: it has no file"), "{error}");
    device.write_at(1 << 20, &bytes(2, 300_000)).unwrap();
    assert!(device.sync().is_err(), "nothing is acknowledged");
    let error = refused(&spec, false);
    assert!(error.kind() == ErrorKind::Io && error.cause().contains("2 of its 3 places are away"), "{error}");
    assert!(error.next_step().contains(ACCEPT) && error.cause().contains("disk3"), "{error}");
    disks.unmount(2);
    let error = refused(&spec, false);
    assert!(error.kind() == ErrorKind::NotFound && error.next_step().contains("mount its disks"), "{error}");
    (1..=3).for_each(|number| disks.mount(number));
    assert!(read(&*device, 0, 500_000).unwrap() == bytes(1, 500_000));
    device.sync().unwrap();
    drop(device);
    let device = open(&spec, false).unwrap();
    assert!(read(&*device, 1 << 20, 300_000).unwrap() == bytes(2, 300_000));
}

#[test]
fn a_disk_that_missed_writes_and_deletions_does_no_harm() {
    let disks = Disks::new(3);
    let spec = disks.spec("mirror=2");
    let mut oracle = bytes(1, 2 << 20);
    let device = open(&spec, true).unwrap();
    device.write_at(0, &oracle).unwrap();
    device.sync().unwrap();
    for round in 0..6_usize {
        let away = round % 3 + 1;
        disks.unmount(away);
        for part in 0..4 {
            let offset = (round * 7 + part) * 100_000 % (oracle.len() - 200_000);
            let new = bytes((round * 10 + part) as u64, 200_000);
            oracle[offset..offset + new.len()].copy_from_slice(&new);
            device.write_at(offset as u64, &new).unwrap();
            device.sync().unwrap();
        }
        // A process that does not know what the disk missed.
        let stale = fs::read_dir(disks.base.join(format!("gone{away}"))).unwrap().count();
        assert!(stale > 1);
        let other = open(&spec, false).unwrap();
        disks.mount(away);
        assert!(read(&*other, 0, oracle.len()).unwrap() == oracle, "round {round}");
        drop(other);
        let other = open(&spec, false).unwrap();
        assert!(read(&*other, 0, oracle.len()).unwrap() == oracle, "round {round}, opened after its return");
        mend_device(&*device);
    }
    assert!(read(&*device, 0, oracle.len()).unwrap() == oracle);
}

#[test]
fn what_is_no_place_of_the_tier_is_refused_by_name() {
    let disks = Disks::new(3);
    let spec = disks.spec("2+1");
    drop(open(&spec, true).unwrap());
    // Two disks that changed their paths.
    fs::rename(disks.disk(1), disks.base.join("aside")).unwrap();
    fs::rename(disks.disk(2), disks.disk(1)).unwrap();
    fs::rename(disks.base.join("aside"), disks.disk(2)).unwrap();
    let error = refused(&spec, false);
    assert!(error.kind() == ErrorKind::Corrupt && error.cause().contains("it is place 2 of tier 2"), "{error}");
    assert!(error.cause().contains("disk1") && error.next_step().contains("mount the right disk"), "{error}");
    // A disk of another store.
    let error = still().open(StoreId(77), ID, &spec, false).err().unwrap();
    assert!(error.kind() == ErrorKind::Corrupt && error.cause().contains(&STORE.to_string()), "{error}");
    let error = still().open(StoreId(77), ID, &spec, true).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    // A damaged mark.
    fs::write(disks.disk(3).join("cenote-place"), "cenote-place 1\nsum 00000000\nstore 1\n").unwrap();
    assert_eq!(refused(&spec, false).kind(), ErrorKind::Corrupt);
    // A new disk with something on it.
    fs::remove_dir_all(disks.disk(3)).unwrap();
    disks.replace(3);
    fs::write(disks.disk(3).join("thesis"), "text").unwrap();
    fs::remove_dir_all(disks.disk(2)).unwrap();
    fs::rename(disks.disk(1), disks.disk(2)).unwrap();
    let error = refused(&spec, false);
    assert!(error.cause().contains("is not empty: it has `thesis`"), "{error}");
}

#[test]
fn bad_settings_are_refused_with_the_next_step() {
    let disks = Disks::new(3);
    let all = disks.spec("2+1").path.display().to_string();
    let one = disks.disk(1).display().to_string();
    let inside = format!("{one}:{one}/inside:{}", disks.disk(2).display());
    for (path, layout, cause) in [
        (all.as_str(), "4+2", "needs 6 places"),
        (all.as_str(), "raid6", "no scheme"),
        (all.as_str(), "2+1,domain=node", "needs 3 places"),
        (&format!("{one}:{one}:{one}"), "2+1", "same directory"),
        (&inside, "2+1", "one is in the other"),
        ("disk1:disk2:disk3", "2+1", "relative"),
        (&format!("{all}:"), "2+1", "empty path"),
    ] {
        let error = refused(&spec(path, layout, 1 << 20), true);
        assert!(
            error.kind() == ErrorKind::InvalidInput && error.to_string().contains(cause),
            "{path}, {layout}: {error}"
        );
        assert!(error.to_string().contains("`safe`") && !error.next_step().is_empty(), "{error}");
    }
    let mut without = disks.spec("2+1");
    without.options = TierOptions::default();
    assert!(refused(&without, true).next_step().contains("layout=mirror=2"));
    // A directory that is not empty, and one that cannot be made: nothing is left of the attempt.
    fs::create_dir(disks.disk(2)).unwrap();
    fs::write(disks.disk(2).join("thesis"), "text").unwrap();
    let error = refused(&disks.spec("2+1"), true);
    assert!(error.kind() == ErrorKind::Exists && error.cause().contains("thesis"), "{error}");
    assert!(files(&disks.disk(1)).is_empty(), "no mark stays");
    fs::remove_dir_all(disks.disk(2)).unwrap();
    let nowhere = spec(&format!("{one}:/nowhere/at/all:{}", disks.disk(3).display()), "2+1", 1 << 20);
    assert!(refused(&nowhere, true).cause().contains("/nowhere/at/all"));
}

#[test]
fn hostile_files_are_no_parts() {
    let disks = Disks::new(3);
    let spec = disks.spec("2+1");
    let device = open(&spec, true).unwrap();
    let content = bytes(3, 1 << 20);
    device.write_at(0, &content).unwrap();
    device.sync().unwrap();
    let part = |dir: &Path| files(dir).into_iter().find(|path| path.display().to_string().contains("/pack-")).unwrap();
    let one = part(&disks.disk(1));
    let good = fs::read(&one).unwrap();
    fs::remove_file(&one).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &one).unwrap();
    assert!(read(&*device, 0, content.len()).unwrap() == content);
    mend_device(&*device);
    assert!(!one.is_symlink() && fs::read(&one).unwrap() == good, "the link was replaced, not followed");
    for file in
        [Vec::new(), good[..good.len() / 2].to_vec(), [good.as_slice(), &[0; 9]].concat(), vec![0xff; good.len()]]
    {
        fs::write(&one, &file).unwrap();
        let fresh = open(&spec, false).unwrap();
        assert!(read(&*fresh, 0, content.len()).unwrap() == content);
    }
    // Files of others, and names that look like parts.
    let dir = one.parent().unwrap();
    for name in
        ["notes.txt", "pack-1@9.2+1.u20.10.0000000000000001", "pack-1@0.2+1.u20.ffffffffffffffff.0000000000000001"]
    {
        fs::write(dir.join(name), "x").unwrap();
    }
    fs::write(dir.join("other@0.1+1.u0.9.0000000000000001"), "short").unwrap();
    fs::create_dir(dir.join("pack-2@0.1+1.u0.9.0000000000000001")).unwrap();
    std::os::unix::fs::symlink("/", dir.join("loop")).unwrap();
    let temporary = disks.disk(2).join(".new-4194305-0-2");
    fs::write(&temporary, "left by a process that is gone").unwrap();
    drop(device);
    let device = open(&spec, false).unwrap();
    assert!(read(&*device, 0, content.len()).unwrap() == content);
    assert!(!temporary.exists());
}

#[test]
fn a_copy_of_the_stores_directory_does_not_get_the_tier() {
    let disks = Disks::new(2);
    let spec = disks.spec("mirror=2");
    let notes =
        |meta: &Arc<MemMetaDir>, dir: &str| ClaimNotes::new(Arc::clone(meta) as Arc<dyn cenote_device::MetaDir>, dir);
    let (meta, copy) = (Arc::new(MemMetaDir::default()), Arc::new(MemMetaDir::default()));
    let with = |meta, dir| still().noting(Some(notes(meta, dir)));
    drop(with(&meta, "/one").open(STORE, ID, &spec, true).unwrap());
    for name in cenote_device::MetaDir::list(meta.as_ref()).unwrap() {
        let bytes = cenote_device::MetaDir::read_file(meta.as_ref(), &name).unwrap();
        cenote_device::MetaDir::write_file(copy.as_ref(), &name, &bytes).unwrap();
    }
    let opened = with(&copy, "/two").open(STORE, ID, &spec, false).unwrap();
    let error = with(&meta, "/one").open(STORE, ID, &spec, false).err().unwrap();
    assert!(error.kind() == ErrorKind::Exists && error.to_string().contains("/two"), "{error}");
    drop(opened);
    // With a disk away the same holds.
    disks.unmount(1);
    let error = with(&meta, "/one").open(STORE, ID, &spec, false).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    let degraded = with(&copy, "/two").open(STORE, ID, &spec, false).unwrap();
    disks.mount(1);
    mend_device(&*degraded.device);
    drop(degraded);
    let error = with(&meta, "/one").open(STORE, ID, &spec, false).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    with(&copy, "/two").open(STORE, ID, &spec, false).unwrap();
}

#[test]
fn a_removal_that_was_interrupted_goes_on() {
    let disks = Disks::new(3);
    let spec = disks.spec("2+1");
    drop(open(&spec, true).unwrap());
    for file in (1..=3).flat_map(|number| files(&disks.disk(number))) {
        let is_mark = file.ends_with("cenote-place") && !file.starts_with(disks.disk(1));
        if !is_mark {
            fs::remove_file(file).unwrap();
        }
    }
    fs::remove_file(disks.disk(2).join("cenote-place")).unwrap();
    still().remove(STORE, ID, &spec).unwrap();
    assert!((1..=3).all(|number| files(&disks.disk(number)).is_empty()));
    drop(still().open(STORE, DeviceId(9), &spec, true).unwrap());
}
