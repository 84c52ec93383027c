//! A real Ceph cluster that `scripts/ceph_cluster.py` starts once for all tests of a process, and that ends with the
//! process. Called from tests; panics on what must not happen.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The cluster, for one test at a time.
pub struct Cluster {
    /// Its configuration file.
    pub conf: String,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
    _script: Child,
}

/// The script's exit code if nothing is installed.
const SKIPPED: i32 = 77;

/// The cluster; `None`, with the reason printed, if Ceph is not installed.
pub fn cluster() -> Option<MutexGuard<'static, Cluster>> {
    static CLUSTER: OnceLock<Result<Mutex<Cluster>, String>> = OnceLock::new();
    match CLUSTER.get_or_init(start) {
        Ok(cluster) => Some(cluster.lock().unwrap_or_else(|poisoned| {
            // A test has failed, and may have left daemons stopped.
            cluster.clear_poison();
            let mut cluster = poisoned.into_inner();
            for daemon in ["mon", "osd.0", "osd.1", "osd.2"] {
                cluster.order(&format!("continue {daemon}"));
            }
            cluster
        })),
        Err(why) => {
            eprintln!("skipped: {}; `make objects` installs what it can", why.trim());
            None
        }
    }
}

fn start() -> Result<Mutex<Cluster>, String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/ceph_cluster.py");
    let directory = std::env::temp_dir().join(format!("cenote-ceph-{}", std::process::id()));
    let mut command = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    command.args([script.as_ref(), directory.as_os_str()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut script = command.spawn().map_err(|error| format!("python3: {error}"))?;
    let (orders, answers) = (script.stdin.take().unwrap(), script.stdout.take().unwrap());
    let mut answers = BufReader::new(answers);
    let mut line = String::new();
    answers.read_line(&mut line).unwrap();
    let conf = line.split_once("\"conf\": \"").and_then(|(_, rest)| rest.split_once('"'));
    if let Some((conf, _)) = conf {
        return Ok(Mutex::new(Cluster { conf: conf.to_owned(), orders, answers, _script: script }));
    }
    let ended = script.wait().expect("how it ended");
    assert_eq!(ended.code(), Some(SKIPPED), "a cluster that is installed must start: {line}");
    Err(line)
}

impl Cluster {
    /// Orders such as `kill osd.0` or `start osd.0`.
    pub fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        assert_eq!(line, "done\n", "{order}");
    }
    /// The output of a command of the administrator.
    pub fn ceph(&self, words: &str) -> String {
        let done = Command::new("ceph").args(["--conf", &self.conf]).args(words.split(' ')).output().unwrap();
        assert!(done.status.success(), "{words}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
    /// A tier of 64 MiB in a pool, in one line.
    pub fn tier(&self, name: &str, path: &str, user: &str) -> String {
        format!("name={name},kind=rados,path={path},size=64MiB,conf={},user={user},pack=1MiB", self.conf)
    }
}
