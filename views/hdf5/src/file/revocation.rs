//! Revocation of a file's lease: asking its only writer to let another process in, and how long its silence must last to count as consent.
//!
//! A writer answers at its next change. One that makes no change has nothing under way after a while: what it launched was sent
//! within a millisecond, provided it got a processor. On a busy machine a thread may stand still for longer than that between its
//! look at the other writers and its change. So a silence lasts until all of the writer's threads that want a processor have had one.
//! A thread may also sleep because it waits, in the middle of a change, for the engine, which then gets no processor either. So there
//! are several silences, each after a request, which the engine answers later than what it was asked before. This module must not know
//! records.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::process::Process;

/// A writer is silent if it does nothing for this long, and has had a processor meanwhile if it wanted one.
const SILENCE: Duration = Duration::from_millis(35);
/// Number of silences after which everything that a writer launched has arrived: a change asks the engine fewer things.
const SILENCES: u32 = 3;
/// Longest wait for a writer that gets no processor. Changes that it launches later are refused, and it gets the error.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// A thread that has run for this long has finished the operation it was in.
const TURN_NS: u64 = 20_000_000;
/// Interval between two looks at the threads of others.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// The state of a process that asks to be let in.
pub struct Revocation {
    writers: Vec<Process>,
    /// Run time of the writers' threads, in nanoseconds, when the last request was answered.
    ran: Vec<HashMap<u32, u64>>,
    began: Instant,
    looked: Instant,
    is_silent: bool,
    requests: u32,
}

impl Revocation {
    /// Begins to ask these writers.
    pub fn at(writers: &[Process]) -> Self {
        let now = Instant::now();
        Self { writers: writers.to_vec(), ran: Vec::new(), began: now, looked: now, is_silent: true, requests: 0 }
    }
    /// Returns true if these writers are the ones asked.
    pub fn is_at(&self, writers: &[Process]) -> bool {
        self.writers == writers
    }
    /// Returns true if it is time to ask: at the beginning, and after each silence.
    pub fn is_due(&mut self) -> bool {
        self.is_silent()
    }
    /// Notes that the engine has answered a request.
    pub fn requested(&mut self) {
        let ran = |writer: &Process| threads(writer.pid).map(|(tid, thread)| (tid, thread.ran_ns)).collect();
        self.ran = self.writers.iter().map(ran).collect();
        self.requests += 1;
        self.began = Instant::now();
        self.is_silent = false;
    }
    /// Returns true if nobody has answered, so that the writers have nothing under way.
    pub fn is_over(&self) -> bool {
        self.requests > SILENCES
    }
    /// Returns true if the writers were silent for long enough.
    pub fn is_silent(&mut self) -> bool {
        if !self.is_silent && self.began.elapsed() >= SILENCE && self.looked.elapsed() >= LOOK_EVERY {
            self.looked = Instant::now();
            let had_their_turn =
                || self.writers.iter().zip(&self.ran).all(|(writer, ran)| had_its_turn(writer.pid, ran));
            self.is_silent = self.began.elapsed() >= SILENCE_MAX || had_their_turn();
        }
        self.is_silent
    }
}

/// Returns true if each thread of a process either wants no processor now or has run for a turn since the given times.
fn had_its_turn(pid: u32, ran: &HashMap<u32, u64>) -> bool {
    // This process's other threads see the wait; the one that wants a processor is this thread.
    pid == std::process::id()
        || threads(pid).all(|(tid, thread)| {
            let since_ns = thread.ran_ns.saturating_sub(ran.get(&tid).copied().unwrap_or(0));
            !thread.is_ready || since_ns >= TURN_NS
        })
}

struct Thread {
    /// Runs, or waits for a processor or the disk.
    is_ready: bool,
    ran_ns: u64,
}

/// The threads of a process, as far as the kernel shows them.
fn threads(pid: u32) -> impl Iterator<Item = (u32, Thread)> {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The state follows the name, which may contain anything.
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        let ran = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        let ran_ns = ran.split_ascii_whitespace().next()?.parse().ok()?;
        let tid = entry.file_name().to_str()?.parse().ok()?;
        Some((tid, Thread { is_ready: matches!(state, 'R' | 'D'), ran_ns }))
    })
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use super::*;

    fn program(name: &str, argument: &str) -> Child {
        Command::new(name).arg(argument).stdout(Stdio::null()).spawn().unwrap()
    }
    fn until_silent(pid: u32) -> Duration {
        let mut revocation = Revocation::at(&[Process { pid, started: 0, nonce: 0 }]);
        let began = Instant::now();
        for _ in 0..=SILENCES {
            assert!(!revocation.is_over());
            while !revocation.is_due() {
                std::thread::sleep(Duration::from_millis(1));
            }
            revocation.requested();
        }
        assert!(revocation.is_over() && !revocation.is_due());
        began.elapsed()
    }

    #[test]
    fn who_sleeps_or_runs_is_taken_to_be_silent_soon() {
        for (name, argument) in [("sleep", "100"), ("yes", "")] {
            let mut other = program(name, argument);
            let took = until_silent(other.id());
            other.kill().unwrap();
            other.wait().unwrap();
            assert!(took >= SILENCE * SILENCES && took < SILENCE_MAX, "{name}: {took:?}");
        }
    }

    #[test]
    fn who_wants_a_processor_and_has_not_had_one_is_waited_for() {
        let mut other = program("yes", "");
        std::thread::sleep(Duration::from_millis(50));
        // As if each thread had run far longer before.
        let ran = threads(other.id()).map(|(tid, thread)| (tid, thread.ran_ns + 3_600_000_000_000)).collect();
        let had = had_its_turn(other.id(), &ran);
        other.kill().unwrap();
        other.wait().unwrap();
        assert!(!had);
    }

    #[test]
    fn a_process_that_is_gone_or_this_one_needs_no_turn() {
        assert!(had_its_turn(u32::MAX, &HashMap::new()));
        assert!(had_its_turn(std::process::id(), &HashMap::new()));
    }
}
