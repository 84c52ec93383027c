//! A cluster on this host, for tests.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{CommandOutput, TestDir, said};

/// Long enough for a slow machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// A cluster; its nodes are n1, n2, … Dropped, it is destroyed, and nothing of it may be left.
pub struct Cluster {
    pub place: TestDir,
    nodes: usize,
}

impl Cluster {
    /// Starts so many nodes, with these options.
    #[track_caller]
    pub fn start(nodes: usize, options: &[&str]) -> Self {
        let cluster = Self { place: TestDir::new(), nodes };
        let (dir, count) = (cluster.dir(), nodes.to_string());
        cluster.place.ok(["cluster", "start", &dir, "--local", &count].iter().chain(options));
        cluster
    }
    pub fn dir(&self) -> String {
        self.place.path("cluster").to_str().unwrap().to_owned()
    }
    /// The directory of a node, counted from 1.
    pub fn node(&self, number: usize) -> PathBuf {
        self.place.path("cluster").join(format!("n{number}"))
    }
    /// Runs the command on a node.
    pub fn run(&self, number: usize, args: &[&str]) -> CommandOutput {
        said(self.place.command(args).env("CENOTE_STORE", self.node(number)).stdin(Stdio::null()))
    }
    #[track_caller]
    pub fn ok(&self, number: usize, args: &[&str]) -> String {
        let said = self.run(number, args);
        assert_eq!(said.code, 0, "on n{number} {args:?}: {said:?}");
        said.out.trim_end().to_owned()
    }
    #[track_caller]
    pub fn refused(&self, number: usize, args: &[&str], words: &[&str]) {
        let said = self.run(number, args);
        assert_ne!(said.code, 0, "on n{number} {args:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "on n{number} {args:?}: no `{word}` in {}", said.err);
        }
    }
    /// Runs a command on no node, which fails with these words.
    #[track_caller]
    pub fn refused_here(&self, args: &[&str], words: &[&str]) {
        let said = self.place.run(args);
        assert_ne!(said.code, 0, "{args:?}: {said:?}");
        for word in words {
            assert!(said.err.contains(word), "{args:?}: no `{word}` in {}", said.err);
        }
    }
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.place.ok(["--json", "cluster", "status", &self.dir()])).unwrap()
    }
    /// Starts the daemons that do not run.
    #[track_caller]
    pub fn again(&self) {
        self.place.ok(["cluster", "start", &self.dir()]);
    }
    /// What the daemon of a node tells of the cluster.
    #[track_caller]
    pub fn report(&self, number: usize) -> Value {
        serde_json::from_str(&self.ok(number, &["--json", "ha"])).unwrap()
    }
    /// Waits until a node tells what is wanted.
    #[track_caller]
    pub fn until(&self, number: usize, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let report = self.report(number);
            if is_so(&report) {
                return report;
            }
            assert!(begin.elapsed() < PATIENCE, "n{number} does not say {what}: {report:#}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    /// Kills the daemon of a node, and waits for its end.
    #[track_caller]
    pub fn kill(&self, number: usize) {
        let holder = cenote_server::holder(&self.node(number)).expect("a daemon has it");
        kill_process(Pid::from_raw(holder.pid as i32).unwrap(), Signal::KILL).unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while cenote_server::holder(&self.node(number)).is_some_and(|it| it.pid == holder.pid) {
            assert!(Instant::now() < until, "it does not die");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    #[track_caller]
    pub fn signal(&self, number: usize, signal: Signal) {
        assert!(self.try_signal(number, signal), "no daemon has n{number}");
    }
    /// Returns false if no daemon has the node.
    pub fn try_signal(&self, number: usize, signal: Signal) -> bool {
        let holder = cenote_server::holder(&self.node(number)).and_then(|it| Pid::from_raw(it.pid as i32));
        holder.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for number in 1..=self.nodes {
            self.try_signal(number, Signal::CONT); // whatever a failed test left
        }
        if std::thread::panicking() {
            print_logs(Path::new(&self.dir()));
        }
        let gone = self.place.run(["cluster", "destroy", &self.dir(), "--yes"]);
        if !std::thread::panicking() {
            if gone.code != 0 {
                print_logs(Path::new(&self.dir()));
            }
            assert_eq!(gone.code, 0, "{gone:?}");
            assert!(!self.place.path("cluster").exists(), "something is left in {}", self.dir());
        }
    }
}

/// Returns true if a report tells of so many homes, each with a mirror.
pub fn is_mirrored<const HOMES: usize>(report: &Value) -> bool {
    let homes = report["homes"].as_array().unwrap();
    homes.len() == HOMES && homes.iter().all(|home| !home["mirrors"].as_array().unwrap().is_empty())
}

/// The node that has a home, as a report tells it; 0 if it tells of none.
pub fn host(report: &Value, home: usize) -> u64 {
    report["homes"][home - 1]["host"].as_u64().unwrap_or_default()
}

/// Prints the last lines of the log of each node's daemon, for a test that fails.
pub fn print_logs(cluster: &Path) {
    const LINES: usize = 30;
    let Ok(nodes) = std::fs::read_dir(cluster) else { return };
    for node in nodes.flatten() {
        let Ok(log) = std::fs::read_to_string(node.path().join("daemon.log")) else { continue };
        let lines: Vec<&str> = log.lines().collect();
        println!("daemon of {}:", node.path().display());
        lines[lines.len().saturating_sub(LINES)..].iter().for_each(|line| println!("  {line}"));
    }
}
