//! Real tiers under a real daemon that vanish, fill up, refuse or slow down: data with another place stay readable,
//! errors name tier and cause, and the daemon lives on. No call may take longer than [`PATIENCE`].
#![cfg(feature = "crash")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cenote::{Container, ContainerSpec, Durability, Error, ErrorKind, Mode, OpenOptions, Store};
use cenote_model::{Arrange, ArrangeTarget, DeviceKind, DeviceSpec, ObjectId, StoreConfig, TierOptions};
use cenote_testkit::bucket::{Bucket, Mood};
use cenote_testkit::content::{WriteId, bytes};

/// A request to a service is tried six times within 60 s; then whoever waits for it gets the error.
const PATIENCE: Duration = Duration::from_secs(30);
const MIB: u64 = 1 << 20;

/// A store in its own directory, its daemon, and a client.
struct TestStore {
    dir: PathBuf,
    daemon: Child,
    client: Option<(Store, Container)>,
}

fn spec(name: &str, kind: DeviceKind, path: impl Into<PathBuf>, capacity_bytes: u64) -> DeviceSpec {
    let (high, low) = (950, 900);
    let options = TierOptions::default();
    let (path, name) = (path.into(), name.into());
    DeviceSpec { name, kind, path, capacity_bytes, watermark_high_permille: high, watermark_low_permille: low, options }
}

fn memory() -> DeviceSpec {
    spec("ram", DeviceKind::SharedMemory, "", 8 * MIB)
}

fn cold(dir: &Path, bucket: &Bucket) -> DeviceSpec {
    let secrets = dir.join("secrets");
    std::fs::write(&secrets, "[cold]\naccess_key_id = a\nsecret_access_key = b\n").unwrap();
    let mut cold = spec("cold", DeviceKind::S3, "bucket/it", 64 * MIB);
    cold.options.set("endpoint", &bucket.endpoint());
    cold.options.set("credentials", &format!("{}#cold", secrets.display()));
    cold.options.set("pack", "256KiB");
    cold
}

impl TestStore {
    fn dir(test: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("cenote-layers-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        dir
    }
    fn new(dir: PathBuf, devices: Vec<DeviceSpec>) -> Self {
        let store = dir.join("store");
        let config = StoreConfig { devices, ..StoreConfig::default() };
        let how = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
        let made = Store::open_with(&store, &how).unwrap();
        made.create_container("c", &ContainerSpec { durability: Durability::Async, ..ContainerSpec::default() })
            .unwrap();
        made.close().unwrap();
        drop(made);
        let daemon = serve(&store);
        let mut test = Self { dir, daemon, client: None };
        test.attach();
        test
    }
    fn attach(&mut self) {
        let store = Store::open_with(self.dir.join("store"), &OpenOptions::default()).unwrap();
        let container = store.container("c").unwrap();
        self.client = Some((store, container));
    }
    fn store(&self) -> &Store {
        &self.client.as_ref().unwrap().0
    }
    fn container(&self) -> &Container {
        &self.client.as_ref().unwrap().1
    }
    /// Writes object `id` with the bytes of write `id`.
    fn put(&self, id: u64, len: usize) {
        self.try_put(id, len).unwrap();
    }
    fn try_put(&self, id: u64, len: usize) -> Result<(), Error> {
        let object = self.container().create_object(Some(ObjectId(u128::from(id))), None).unwrap();
        let begin = Instant::now();
        let result = object.write_at(0, &bytes(WriteId(id), 0, len));
        assert!(begin.elapsed() < PATIENCE, "a write took {:?}", begin.elapsed());
        result
    }
    fn is_whole(&self, id: u64, len: usize) -> Result<bool, Error> {
        let mut found = vec![0; len];
        let begin = Instant::now();
        let result = self.container().object(ObjectId(u128::from(id))).read_at(0, &mut found);
        assert!(begin.elapsed() < PATIENCE, "a read took {:?}", begin.elapsed());
        result.map(|n| n == len && found == bytes(WriteId(id), 0, len))
    }
    fn flush(&self) -> Result<(), Error> {
        let begin = Instant::now();
        let result = self.store().flush();
        assert!(begin.elapsed() < PATIENCE, "a flush took {:?}", begin.elapsed());
        result
    }
    fn arrange(&self, what: &Arrange) -> String {
        let target = ArrangeTarget::Container(self.container().id());
        self.store().arrange(&target, what, false).unwrap().staying_why
    }
    fn demote(&self, to: &str) -> String {
        self.arrange(&Arrange::Demote { to: Some(to.to_owned()) })
    }
    fn promote(&self, to: &str) -> String {
        self.arrange(&Arrange::Promote { to: Some(to.to_owned()) })
    }
    fn note(&self, name: &str) -> String {
        let devices = self.store().devices().unwrap();
        devices.into_iter().find(|info| info.spec.name == name).map(|info| info.note).unwrap()
    }
    fn assert_alive(&mut self) {
        let ended = self.daemon.try_wait().unwrap();
        assert!(ended.is_none(), "the daemon ended: {ended:?}");
    }
    /// Hands the store to another daemon, with `meanwhile` applied to the store at rest.
    fn restart(&mut self, meanwhile: impl FnOnce(&Path)) {
        self.client = None;
        self.stop();
        meanwhile(&self.dir);
        self.daemon = serve(&self.dir.join("store"));
        self.attach();
    }
    fn stop(&mut self) {
        let _ = Store::stop_daemon(self.dir.join("store"));
        let begin = Instant::now();
        while self.daemon.try_wait().unwrap().is_none() {
            if begin.elapsed() > PATIENCE {
                let _ = self.daemon.kill();
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for TestStore {
    fn drop(&mut self) {
        self.client = None;
        self.stop();
        let _ = Store::destroy(self.dir.join("store"), true);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn serve(store: &Path) -> Child {
    let child = Command::new(env!("CARGO_BIN_EXE_chaos"))
        .arg("serve")
        .arg(store)
        .stdin(Stdio::null())
        .spawn()
        .expect("the daemon starts");
    let begin = Instant::now();
    while std::os::unix::net::UnixStream::connect(store.join("socket")).is_err() && begin.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(2));
    }
    child
}

fn two_disks(dir: &Path) -> Vec<DeviceSpec> {
    vec![
        spec("fast", DeviceKind::File, dir.join("fast"), 16 * MIB),
        spec("slow", DeviceKind::Directory, dir.join("slow"), 64 * MIB),
    ]
}

#[test]
fn what_is_on_a_tier_that_is_cut_off_is_read_from_its_copy() {
    let dir = TestStore::dir("cut");
    let mut test = TestStore::new(dir.clone(), two_disks(&dir));
    test.put(1, 700_000);
    test.demote("slow");
    assert_eq!(test.promote("fast"), "");
    test.put(2, 300_000); // only on the fast tier
    test.flush().unwrap();
    assert!(test.is_whole(1, 700_000).unwrap() && test.is_whole(2, 300_000).unwrap());
    std::fs::OpenOptions::new().write(true).open(dir.join("fast")).unwrap().set_len(4096).unwrap();
    assert!(test.is_whole(1, 700_000).unwrap(), "it has another place");
    let error = test.is_whole(2, 300_000).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("fast") && text.contains("no copy on another tier"), "{text}");
    assert!(!error.next_step().is_empty(), "{text}");
    // Every reader finds it there from now on, and new data go to another tier.
    assert!(test.is_whole(1, 700_000).unwrap());
    test.put(3, 200_000);
    assert!(test.is_whole(3, 200_000).unwrap());
    test.assert_alive();
    // Reopened without that tier, the store has the same content.
    test.restart(|_| {});
    assert!(test.is_whole(1, 700_000).unwrap() && test.is_whole(3, 200_000).unwrap());
    let error = test.is_whole(2, 300_000).unwrap_err();
    assert!(error.to_string().contains("fast"), "{error}");
    assert!(!test.note("fast").is_empty(), "why it is not there");
}

#[test]
fn a_directory_that_is_removed_and_comes_back() {
    let dir = TestStore::dir("removed");
    let devices = vec![memory(), spec("slow", DeviceKind::Directory, dir.join("slow"), 64 * MIB)];
    let mut test = TestStore::new(dir.clone(), devices);
    test.put(1, 500_000);
    test.put(2, 500_000);
    test.flush().unwrap();
    test.demote("slow");
    // While the store is open, the tier's open files work without a name.
    std::fs::rename(dir.join("slow"), dir.join("elsewhere")).unwrap();
    assert!(test.is_whole(1, 500_000).unwrap());
    test.promote("ram");
    test.assert_alive();
    // Opened without the tier: memory, which survives, has the bytes; the tier reports what is wrong.
    test.restart(|_| {});
    assert!(test.note("slow").contains("slow"), "{}", test.note("slow"));
    assert!(test.is_whole(1, 500_000).unwrap() && test.is_whole(2, 500_000).unwrap());
    assert!(test.arrange(&Arrange::Evict).contains("away"), "nothing falls back to a tier that is away");
    assert!(test.is_whole(1, 500_000).unwrap());
    test.put(3, 100_000);
    let error = test.flush().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Full | ErrorKind::Io), "{error}");
    assert!(error.to_string().contains("tier") || error.to_string().contains("slow"), "{error}");
    let error = test.store().drain_device("slow").map(|()| test.note("slow"));
    assert!(error.is_err(), "there is nowhere to go: {error:?}");
    test.restart(|dir| std::fs::rename(dir.join("elsewhere"), dir.join("slow")).unwrap());
    for (id, len) in [(1, 500_000), (2, 500_000), (3, 100_000)] {
        assert!(test.is_whole(id, len).unwrap(), "object {id}");
    }
    assert!(test.store().verify().unwrap().findings.is_empty());
}

#[test]
fn a_file_system_that_is_full() {
    const LEN: usize = 8_000_000;
    let dir = TestStore::dir("full");
    let Some(mount) = Mount::new(&dir, 700) else { return };
    // The tier creates files of 256 MiB: there is room for one, and for two without the ballast.
    let ram = spec("ram", DeviceKind::SharedMemory, "", 64 * MIB);
    let devices = vec![ram, spec("slow", DeviceKind::Directory, mount.at.join("slow"), 1024 * MIB)];
    let mut test = TestStore::new(dir.clone(), devices);
    let ballast = mount.at.join("ballast");
    let file = std::fs::File::create(&ballast).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, 300 * MIB).unwrap();
    let mut failed = None;
    for id in 1..60 {
        if let Err(error) = test.try_put(id, LEN).and_then(|()| test.flush()) {
            failed = Some((id, error));
            break;
        }
    }
    let (last, error) = failed.expect("the file system is full");
    assert!(error.to_string().contains("slow") && error.kind() == ErrorKind::Full, "{error}");
    for id in 1..last {
        assert!(test.is_whole(id, LEN).unwrap(), "object {id} of {last}");
    }
    test.assert_alive();
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let begin = Instant::now();
    while let Err(error) = test.flush() {
        assert!(begin.elapsed() < PATIENCE, "there is room again: {error}");
        std::thread::sleep(Duration::from_millis(200));
    }
    assert!(test.store().verify().unwrap().findings.is_empty());
    test.restart(|_| {});
    assert!(test.is_whole(1, LEN).unwrap() && test.is_whole(last - 1, LEN).unwrap());
    drop(test);
    drop(mount);
}

#[test]
fn a_service_that_refuses_or_hangs_up() {
    let dir = TestStore::dir("service");
    let bucket = Bucket::serve().unwrap();
    let mut test = TestStore::new(dir.clone(), vec![memory(), cold(&dir, &bucket)]);
    test.put(1, 800_000);
    test.flush().unwrap();
    assert!(bucket.keys().iter().any(|key| key.contains("/pack-")), "{:?}", bucket.keys());
    for (number, mood) in [Mood::Says(403), Mood::Says(503), Mood::HangsUp].into_iter().enumerate() {
        bucket.set_mood(mood);
        let id = 10 + number as u64;
        test.put(id, 300_000);
        let error = test.flush().expect_err("it cannot be there");
        let text = error.to_string();
        assert!(text.contains("cold"), "{mood:?}: {text}");
        assert!(text.contains("403") || text.contains("503") || !text.is_empty(), "{mood:?}: {text}");
        if mood == Mood::Says(403) {
            assert!(text.contains("credentials"), "{text}");
        }
        assert!(test.is_whole(1, 800_000).unwrap() && test.is_whole(id, 300_000).unwrap(), "from memory");
        test.assert_alive();
        bucket.set_mood(Mood::Well);
        let begin = Instant::now();
        while let Err(error) = test.flush() {
            assert!(begin.elapsed() < PATIENCE, "{mood:?} is over: {error}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    // Bytes that are only there, while the service does not answer.
    test.demote("cold");
    bucket.set_mood(Mood::Says(503));
    let error = test.is_whole(1, 800_000).unwrap_err();
    assert!(error.to_string().contains("cold") && error.to_string().contains("503"), "{error}");
    bucket.set_mood(Mood::Slow(Duration::from_millis(100)));
    assert!(test.is_whole(1, 800_000).unwrap());
    bucket.set_mood(Mood::Well);
    assert!(test.store().verify().unwrap().findings.is_empty());
    test.assert_alive();
}

#[test]
fn a_bucket_that_others_delete_from() {
    let dir = TestStore::dir("meddled");
    let bucket = Bucket::serve().unwrap();
    let mut test = TestStore::new(dir.clone(), vec![memory(), cold(&dir, &bucket)]);
    test.put(1, 600_000);
    test.flush().unwrap();
    test.demote("cold");
    let first: Vec<String> = bucket.keys().into_iter().filter(|key| key.contains("/pack-")).collect();
    test.put(2, 600_000);
    test.flush().unwrap();
    for (number, key) in first.iter().enumerate() {
        bucket.meddle(key, |before| {
            let mut bytes = before.unwrap();
            let half = bytes.len() / 2;
            bytes[half] ^= 1;
            (number > 0).then_some(bytes)
        });
    }
    bucket.meddle("bucket/it/stranger", |_| Some(b"not ours".to_vec()));
    let error = test.is_whole(1, 600_000).unwrap_err();
    assert!(error.to_string().contains("cold"), "{error}");
    assert!(test.is_whole(2, 600_000).unwrap());
    let findings = test.store().verify().unwrap().findings;
    assert!(findings.iter().any(|finding| finding.device == "cold"), "{findings:?}");
    test.container().object(ObjectId(1)).write_at(0, &bytes(WriteId(1), 0, 600_000)).unwrap();
    test.flush().unwrap();
    assert!(test.is_whole(1, 600_000).unwrap(), "written again");
    test.assert_alive();
}

/// Takes as long as the time-outs: a service that accepts requests and never answers. Run by `make chaos`.
#[test]
#[ignore = "takes two minutes"]
fn a_service_that_says_nothing_holds_nobody_for_ever() {
    let dir = TestStore::dir("silent");
    let bucket = Bucket::serve().unwrap();
    let mut test = TestStore::new(dir.clone(), vec![memory(), cold(&dir, &bucket)]);
    test.put(1, 300_000);
    test.flush().unwrap();
    test.put(2, 300_000);
    bucket.set_mood(Mood::Silent);
    let begin = Instant::now();
    let error = test.store().flush().expect_err("it cannot be there");
    assert!(begin.elapsed() < Duration::from_secs(150), "{:?}", begin.elapsed());
    assert!(error.to_string().contains("cold"), "{error}");
    assert!(test.is_whole(1, 300_000).unwrap() && test.is_whole(2, 300_000).unwrap());
    bucket.set_mood(Mood::Well);
    test.store().flush().unwrap();
    test.assert_alive();
}

/// A small file system for a test.
struct Mount {
    at: PathBuf,
}

impl Mount {
    /// `None`, with the reason on standard error, where that is not possible.
    fn new(dir: &Path, mib: u64) -> Option<Self> {
        let (image, at) = (dir.join("image"), dir.join("mount"));
        std::fs::create_dir_all(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(mib * MIB).unwrap();
        let run = |program: &str, words: &[&std::ffi::OsStr]| {
            let done = Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status();
            done.is_ok_and(|status| status.success())
        };
        let word = std::ffi::OsStr::new;
        let made = run("mkfs.ext4", &[word("-q"), word("-F"), image.as_os_str()])
            && run("mount", &[word("-o"), word("loop"), image.as_os_str(), at.as_os_str()]);
        if !made {
            eprintln!("skipped: a file system in a file needs root, mkfs.ext4 and loop devices");
            let _ = std::fs::remove_dir_all(dir);
            return None;
        }
        Some(Self { at })
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}
