//! A daemon that begins anew in its own process lets go of the store for a moment. A note says so meanwhile, so that nobody
//! starts another daemon or takes the node for stopped.

use std::path::Path;

use cenote_device::StoreDir;
use cenote_host::process::started_of;
use cenote_model::Result;
use rustix::fs::Mode;
use rustix::process::{Pid, Signal, kill_process};

/// Name of the note in the store's directory: process id and when the process began.
pub const RESTART_FILE: &str = "daemon.restarts";

/// Notes that this process lets go of the store and will have it again.
pub(super) fn note(dir: &Path) -> Result<()> {
    let pid = std::process::id();
    let text = format!("{pid} {}\n", started_of(pid).unwrap_or(0));
    StoreDir::open(dir)?.write_text(RESTART_FILE, &text, Mode::RUSR | Mode::WUSR)
}

/// Removes the note, if it is of this process.
pub(super) fn clear(dir: &Path) {
    if process_in(dir).is_some_and(|(pid, _)| pid == std::process::id()) {
        let _ = std::fs::remove_file(dir.join(RESTART_FILE)); // one that stays names a process that has ended
    }
}

/// Returns true if a daemon has let go of the store in `dir` and will have it again in a moment.
pub fn is_restarting(dir: &Path) -> bool {
    process_in(dir).is_some_and(|(pid, started)| started_of(pid) == Some(started))
}

/// Returns true if the daemon of the node in `dir` waits for its home, which another node has. It has no socket meanwhile.
pub fn waits_for_home(dir: &Path) -> bool {
    is_restarting(dir) && super::location::is_away(dir)
}

/// Asks such a daemon to end.
pub fn end_waiting(dir: &Path) {
    let pid = process_in(dir).filter(|(pid, started)| started_of(*pid) == Some(*started)).map(|(pid, _)| pid);
    if let Some(pid) = pid.and_then(|pid| Pid::from_raw(pid.cast_signed())) {
        let _ = kill_process(pid, Signal::TERM); // it may have ended
    }
}

fn process_in(dir: &Path) -> Option<(u32, u64)> {
    let text = StoreDir::open(dir).ok()?.read_text(RESTART_FILE).ok()??;
    let (pid, started) = text.trim().split_once(' ')?;
    Some((pid.parse().ok()?, started.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_counts_while_its_process_lives() {
        let dir = std::env::temp_dir().join(format!("cenote-restarting-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        assert!(!is_restarting(&dir));
        note(&dir).unwrap();
        assert!(is_restarting(&dir));
        clear(&dir);
        assert!(!is_restarting(&dir) && !dir.join(RESTART_FILE).exists());
        for other in ["", "1", "x y", "4194303 1", &format!("{} 1", std::process::id())] {
            std::fs::write(dir.join(RESTART_FILE), other).unwrap();
            assert!(!is_restarting(&dir), "{other}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
