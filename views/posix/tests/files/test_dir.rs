//! Stores for tests, and short forms of calls.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use cenote::{DeviceKind, DeviceSpec, Mode, OpenOptions, Store, StoreConfig};
use cenote_posix::{Caller, Clock, File, FileSystem, FsResult, Ino, Kind, Make, OpenFlags, Options, Time};

/// A store in its own directory; stopped and removed on drop.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = PathBuf::from(std::env::var_os(crate::BASE_VARIABLE).unwrap());
        let dir = base.join(format!("p{}", COUNT.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
    pub fn dir(&self) -> PathBuf {
        self.0.join("store")
    }
    pub fn make(&self, mode: Mode) -> Store {
        self.make_of(mode, vec![Self::memory(), self.disk(256 << 20)])
    }
    /// A slower tier for a store.
    pub fn disk(&self, capacity_bytes: u64) -> DeviceSpec {
        Self::tier("disk", DeviceKind::Directory, self.0.join("disk"), capacity_bytes)
    }
    /// Creates a store with these tiers.
    pub fn make_of(&self, mode: Mode, devices: Vec<DeviceSpec>) -> Store {
        let config = StoreConfig { devices, ..StoreConfig::default() };
        Store::open_with(self.dir(), &OpenOptions { mode, create: true, config, ..OpenOptions::default() }).unwrap()
    }
    /// A memory tier for a store.
    pub fn memory() -> DeviceSpec {
        Self::tier("memory", DeviceKind::SharedMemory, PathBuf::new(), 64 << 20)
    }
    fn tier(name: &str, kind: DeviceKind, path: PathBuf, capacity_bytes: u64) -> DeviceSpec {
        DeviceSpec {
            name: name.into(),
            kind,
            path,
            capacity_bytes,
            watermark_high_permille: 800,
            watermark_low_permille: 600,
            options: cenote::TierOptions::default(),
        }
    }
    /// Creates a store with an engine in this process, and one tree in it.
    pub fn tree(&self) -> (Store, FileSystem, Arc<TestClock>) {
        let store = self.make(Mode::InProcess);
        let clock = Arc::new(TestClock::default());
        let fs = FileSystem::with_clock(&store, one_tree(), clock.clone()).unwrap();
        (store, fs, clock)
    }
}

/// Opens another client of a store served by a daemon, and the one tree in it.
pub fn client(dir: &Path) -> (Store, FileSystem) {
    let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() }).unwrap();
    let fs = FileSystem::new(&store, one_tree()).unwrap();
    (store, fs)
}

/// Creates a file at the top of a tree.
pub fn made(fs: &FileSystem, name: &[u8]) -> File {
    fs.open_at(&root_user(), fs.root(), name, CREATE, 0o600).unwrap().0
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = Store::stop_daemon(self.dir());
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Options whose root is that of one container.
pub fn one_tree() -> Options {
    Options { container: Some("tree".into()), ..Options::default() }
}

/// A clock that advances by a microsecond with each reading.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    pub fn set(&self, s: u64) {
        self.0.store(s * 1_000_000, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Time {
        let us = self.0.fetch_add(1, Ordering::Relaxed);
        Time { s: (us / 1_000_000) as i64, ns: (us % 1_000_000) as u32 * 1000 }
    }
}

pub fn root_user() -> Caller {
    user(0, 0, &[])
}

pub fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.into(), is_checked: false }
}

pub fn what(kind: Kind, mode: u32) -> Make {
    let target = if kind == Kind::Symlink { b"target".to_vec() } else { Vec::new() };
    Make { kind, mode, rdev: 0, target }
}

pub const READ_WRITE: OpenFlags =
    OpenFlags { read: true, write: true, append: false, truncate: false, create: false, exclusive: false, sync: false };
pub const READ: OpenFlags = OpenFlags { write: false, ..READ_WRITE };
pub const CREATE: OpenFlags = OpenFlags { create: true, ..READ_WRITE };

/// Returns the number of an error.
#[track_caller]
pub fn errno<T: std::fmt::Debug>(result: FsResult<T>) -> i32 {
    result.unwrap_err().errno
}

/// Lists the names in a directory, without the dots.
pub fn names(fs: &FileSystem, dir: Ino) -> Vec<String> {
    let mut cursor = fs.read_dir(&root_user(), dir).unwrap();
    let mut all = Vec::new();
    while let Some(entry) = cursor.next().unwrap() {
        if entry.name != b"." && entry.name != b".." {
            all.push(String::from_utf8(entry.name).unwrap());
        }
    }
    all
}
