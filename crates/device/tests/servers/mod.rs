//! Real services that `scripts/object_servers.py` starts once for all tests of a process. They end with the
//! process.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

type BucketListing = BTreeMap<String, BTreeMap<String, String>>;

struct Servers {
    found: Result<BucketListing, String>,
    /// Its standard input stays open as long as this process lives.
    _script: Option<Child>,
}

/// The script's exit code if nothing is installed.
const SKIPPED: i32 = 77;

static SERVERS: OnceLock<Servers> = OnceLock::new();

/// The settings of a service, by name; `None`, with the reason printed, if it is not available.
pub fn service(name: &str) -> Option<BTreeMap<String, String>> {
    let servers = SERVERS.get_or_init(start);
    let found = servers.found.as_ref().map(|found| found.get(name).cloned());
    match found {
        Ok(Some(service)) => return Some(service),
        Ok(None) => eprintln!("skipped: no {name} here; `make objects` installs what it can"),
        Err(why) => eprintln!("skipped: {}; `make objects` installs what it can", why.trim()),
    }
    None
}

fn start() -> Servers {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/object_servers.py");
    let directory = std::env::temp_dir().join(format!("cenote-services-{}", std::process::id()));
    let mut command = Command::new(std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into()));
    let started = command
        .args([script.as_ref(), directory.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    let mut child = match started {
        Ok(child) => child,
        Err(error) => return Servers { found: Err(format!("python3: {error}")), _script: None },
    };
    let mut line = String::new();
    if let Some(out) = child.stdout.take() {
        let _ = BufReader::new(out).read_line(&mut line);
    }
    if line.is_empty() {
        let ended = child.wait().expect("how it ended");
        assert_eq!(ended.code(), Some(SKIPPED), "services that are installed must start");
    }
    let found = serde_json::from_str::<serde_json::Value>(&line).map_err(|_| "no service is installed".to_owned());
    Servers { found: found.map(|value| parsed(&value)), _script: Some(child) }
}

fn parsed(value: &serde_json::Value) -> BucketListing {
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let entries = |value: &serde_json::Value| {
        value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), text(value))).collect()
    };
    value.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), entries(value))).collect()
}
