//! Moves between real tiers with a real daemon that dies at every step: afterwards every byte exists, nothing is stored
//! twice, and the move can be repeated.

mod moves;
mod steps;

use std::path::{Path, PathBuf};
use std::time::Duration;

pub use moves::{Options, Tally, run};

/// The daemon that the driver's client starts: `serve DIR`; other arguments of the client are ignored.
pub fn serve_main(words: &[String]) -> Result<(), String> {
    let dir = words.iter().find(|word| !word.starts_with('-')).ok_or("serve DIR")?;
    let options = cenote_server::daemon::DaemonOptions {
        idle_exit: Some(Duration::from_secs(10)),
        background: words.iter().any(|word| word == "--background"),
        create: words.iter().any(|word| word == "--create"),
        world: Some(steps::wrap),
        ..Default::default()
    };
    cenote_server::daemon::run(Path::new(dir), &options).map_err(|e| e.to_string())
}

/// The environment that a driver's daemons need: the variable, and the file that tells them when to die.
fn arm_file(dir: &Path) -> (&'static str, PathBuf) {
    (steps::ARM, dir.with_extension("arm"))
}

/// The same environment for the program that restarts itself with it.
pub fn environment(dir: &Path) -> (&'static str, PathBuf) {
    arm_file(dir)
}
