//! A short crash test; `make crash` is the long one.
#![cfg(feature = "crash")]

use std::process::Command;

fn run(name: &str, options: &[&str]) {
    let seed = std::env::var("CENOTE_SEED").unwrap_or_else(|_| "1".into());
    let dir = std::env::temp_dir().join(format!("cenote-crash-test-{name}-{}", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_crash"))
        .args(options)
        .args(["--clients", "2", "--quiet", "--seed", &seed, "--dir"])
        .arg(&dir)
        .output()
        .expect("the crash test starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "CENOTE_SEED={seed}: {said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("0 failures"), "CENOTE_SEED={seed}: {said}");
}

#[test]
fn nothing_acknowledged_is_lost_when_processes_are_killed() {
    run("processes", &["--kills", "30", "--seconds", "8"]);
}

#[test]
fn nothing_acknowledged_is_lost_when_nodes_are_lost() {
    run("nodes", &["--nodes", "3", "--protect", "1", "--seconds", "20"]);
}
