//! Directories, stores, randomness and child processes for the tests.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cenote::{DeviceKind, DeviceSpec, Mode, OpenOptions, Store, StoreConfig};

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn new(salt: u64) -> Self {
        Self(seed().wrapping_add(salt.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}

/// The seed of this run.
pub fn seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| {
        std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64)
        })
    })
}

/// A directory that is deleted at the end.
pub struct TestDir(PathBuf);

impl TestDir {
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let base = PathBuf::from(std::env::var_os(super::BASE_VARIABLE).expect("run through main"));
        // A long name, so that the path of the socket exceeds the limit of an address.
        let long = "a-directory-with-a-name-that-is-long-".repeat(3);
        let dir = base.join(format!("{}-{}-{long}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        std::fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }
    pub fn dir(&self) -> PathBuf {
        self.0.join("store")
    }
    pub fn config(&self, memory: u64, file: u64) -> StoreConfig {
        let tier = |name: &str, kind, path: PathBuf, capacity_bytes| DeviceSpec {
            name: name.into(),
            kind,
            path,
            capacity_bytes,
            watermark_high_permille: 800,
            watermark_low_permille: 600,
            options: cenote_model::TierOptions::default(),
        };
        let devices = vec![
            tier("memory", DeviceKind::SharedMemory, PathBuf::new(), memory),
            tier("disk", DeviceKind::Directory, self.0.join("disk"), file),
        ];
        // Most tests hold for any number of engines: `CENOTE_TEST_ENGINES=3` runs them with three.
        let engines = std::env::var("CENOTE_TEST_ENGINES").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
        StoreConfig { devices, engines, ..StoreConfig::default() }
    }
    pub fn make(&self, mode: Mode) -> Store {
        let config = self.config(64 << 20, 256 << 20);
        Store::open_with(self.dir(), &OpenOptions { mode, create: true, config, ..OpenOptions::default() }).unwrap()
    }
    pub fn open(&self, mode: Mode) -> Store {
        Store::open_with(self.dir(), &OpenOptions { mode, ..OpenOptions::default() }).unwrap()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = Store::stop_daemon(self.dir());
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The pid of the daemon of a directory.
pub fn daemon_pid(dir: &Path) -> u32 {
    let begin = Instant::now();
    loop {
        match cenote_rpc::Connection::connect(dir, cenote_server::daemon::SOCKET, Duration::from_secs(1)) {
            Ok(connection) => return connection.peer().unwrap().pid,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(10), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The daemon of a store, if there is one now.
pub fn daemon_pid_now(dir: &Path) -> Option<u32> {
    let connection =
        cenote_rpc::Connection::connect(dir, cenote_server::daemon::SOCKET, Duration::from_secs(1)).ok()?;
    Some(connection.peer().ok()?.pid)
}

/// Sends a signal to a process that the tests started.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: kill has no memory effects.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Another process in a role.
pub struct Other {
    pub child: Child,
    output: BufReader<ChildStdout>,
}

impl Other {
    pub fn start(role: &str, args: &[&str]) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.arg("child").arg(role).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }
    /// Returns its next line; empty at its end.
    pub fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }
    /// Waits for its end, which must be a success.
    pub fn finish(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the other process: {status}");
    }
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Other {
    /// A failed test must leave no process that keeps its output open.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Repeats until true; fails after ten seconds.
pub fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < Duration::from_secs(10), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
