//! Programs for these tests, and access to their reports.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

use crate::common::{CommandOutput, TestDir, said};

/// Path of the tracer, built if missing: nothing that Rust links needs it, so `cargo test` does not build it by
/// itself.
pub fn tracer() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("target");
        let built = Command::new(env!("CARGO"))
            .args(["build", "--quiet", "--locked", "--package", "cenote-trace"])
            .env("CARGO_TARGET_DIR", target)
            .status();
        assert!(built.expect("cargo runs").success());
        target.join("debug/libcenote_trace.so")
    })
}

/// Prepares `cenote advise` in a place.
pub fn advise<S: AsRef<OsStr>>(place: &TestDir, options: &[&str], program: impl IntoIterator<Item = S>) -> Command {
    let mut command = place.command(["advise"]);
    command.env("CENOTE_TRACE_LIBRARY", tracer()).args(options).arg("--").args(program).stdin(Stdio::null());
    command
}

/// Runs it with a JSON report.
pub fn watched<S: AsRef<OsStr>>(
    place: &TestDir,
    options: &[&str],
    program: impl IntoIterator<Item = S>,
) -> (CommandOutput, Value) {
    let report = place.path("report.json");
    let output = report.display().to_string();
    let all = [&["--json", "--output", &output][..], options].concat();
    let done = said(&mut advise(place, &all, program));
    let text = std::fs::read_to_string(&report).unwrap_or_else(|error| panic!("{error}: {done:?}"));
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    (done, value)
}

/// Returns the part of the report about a file.
#[track_caller]
pub fn file<'a>(report: &'a Value, path: &Path) -> &'a Value {
    let name = path.display().to_string();
    let items = report["items"].as_array().unwrap();
    items.iter().find(|item| item["name"] == name.as_str()).unwrap_or_else(|| panic!("{name} in {report:#}"))
}

/// Returns a number in it.
#[track_caller]
pub fn number(value: &Value, path: &str) -> u64 {
    value.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {value:#}"))
}

/// Compiles a C program, or prints why not.
pub fn compiled(place: &TestDir, source: &str, options: &[&str]) -> Option<PathBuf> {
    let (from, to) = (place.path("program.c"), place.path("program"));
    std::fs::write(&from, source).unwrap();
    let built = Command::new("cc").args(["-O1", "-o"]).arg(&to).arg(&from).args(options).output();
    match built {
        Ok(output) if output.status.success() => Some(to),
        Ok(output) => {
            println!("skipped: cc {options:?} does not work here: {}", String::from_utf8_lossy(&output.stderr));
            None
        }
        Err(error) => {
            println!("skipped: there is no C compiler: {error}");
            None
        }
    }
}
