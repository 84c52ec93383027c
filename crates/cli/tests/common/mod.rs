//! A directory for a store, and the command run on it.
#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod cluster;
pub mod hosts;
pub mod programs;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// By what the times of the daemons of a cluster are multiplied.
pub fn factor() -> f64 {
    std::env::var("CENOTE_HA_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1.0)
}

/// A directory for a test; dropping it also removes its daemon and its shared memory.
pub struct TestDir {
    pub dir: PathBuf,
}

/// Result of a command.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: i32,
    pub out: String,
    pub err: String,
    pub bytes: Vec<u8>,
}

impl TestDir {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("cenote-cli-{}-{number}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        Self { dir }
    }
    /// Creates a store of two tiers and a container `runs`.
    pub fn with_store() -> Self {
        let place = Self::new();
        place.init("16MiB", "64MiB");
        place.ok(["mk", "runs"]);
        place
    }
    /// Creates the same store with a daemon: opening a store anew for each command takes time.
    pub fn served() -> Self {
        let place = Self::with_store();
        place.ok(["serve", "--background", "--idle-exit", "60"]);
        place
    }
    pub fn init(&self, memory: &str, disk: &str) {
        let memory = format!("name=memory,kind=memory,size={memory}");
        let disk = format!("name=disk,kind=directory,path={},size={disk}", self.path("disk").display());
        self.ok(["init", "--tier", &memory, "--tier", &disk]);
    }
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
    pub fn store(&self) -> PathBuf {
        self.path("store")
    }
    /// Creates a file of `len` bytes that are not all the same.
    pub fn file(&self, name: &str, len: usize) -> (PathBuf, Vec<u8>) {
        let bytes: Vec<u8> = (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u8).collect();
        let path = self.path(name);
        fs::write(&path, &bytes).unwrap();
        (path, bytes)
    }
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cenote"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            // Where an instrumented program records its branches.
            .envs(std::env::var_os("LLVM_PROFILE_FILE").map(|path| ("LLVM_PROFILE_FILE", path)))
            // How patient the nodes of a cluster are with each other.
            .envs(std::env::var_os("CENOTE_HA_FACTOR").map(|factor| ("CENOTE_HA_FACTOR", factor)))
            .env("CENOTE_STORE", self.store())
            .env("XDG_CONFIG_HOME", self.path("config"))
            .env("CENOTE_BIN", env!("CARGO_BIN_EXE_cenote"))
            .current_dir(&self.dir)
            .args(args);
        command
    }
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> CommandOutput {
        said(self.command(args).stdin(Stdio::null()))
    }
    /// Runs the command with additional environment variables.
    pub fn run_in<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>, more: &[(&str, &str)]) -> CommandOutput {
        said(self.command(args).stdin(Stdio::null()).envs(more.iter().copied()))
    }
    pub fn run_with_input<S: AsRef<OsStr>>(&self, input: &[u8], args: impl IntoIterator<Item = S>) -> CommandOutput {
        let mut child =
            self.command(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        CommandOutput::of(output)
    }
    /// Runs the command, which must succeed. Returns its output without the final line end.
    #[track_caller]
    pub fn ok<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> String {
        let said = self.run(args);
        assert_eq!(said.code, 0, "{said:?}");
        said.out.trim_end_matches('\n').to_owned()
    }
    #[track_caller]
    pub fn json<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> serde_json::Value {
        let mut all: Vec<std::ffi::OsString> = vec!["--json".into()];
        all.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        let out = self.ok(all);
        serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
    }
}

/// Runs a command to its end.
pub fn said(command: &mut Command) -> CommandOutput {
    CommandOutput::of(command.output().unwrap())
}

impl CommandOutput {
    fn of(output: std::process::Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            bytes: output.stdout,
        }
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        // For stores that a test moved or damaged, the shared memory is found by their notes.
        self.run(["destroy", "--yes", "--force"]);
        let homes = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        for memory in homes.map(|entry| entry.path()) {
            let ours = fs::read(memory.join("home"))
                .is_ok_and(|home| Path::new(OsStr::from_bytes(&home)).starts_with(&self.dir));
            if ours {
                let _ = fs::remove_dir_all(memory);
            }
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Returns all files below a directory, with their content.
pub fn tree(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                open.push(path);
            } else {
                found.push((path.clone(), fs::read(&path).unwrap_or_default()));
            }
        }
    }
    found.sort();
    found
}
