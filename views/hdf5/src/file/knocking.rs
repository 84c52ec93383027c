//! Asking a file's only writer to be let in, and how long its silence must last to be an answer.
//!
//! A writer answers at its next change. One that makes none has nothing under way after a while: what it launched was sent within a
//! millisecond. But only if it got a processor: on a busy machine a thread may stand still for longer than that between its look at
//! who else is there and its change. So silence lasts until all its threads that want a processor have had one. And it may be asleep
//! because it waits for the engine in the middle of a change, which then gets no processor either: so there are several silences, and
//! before each a knock, which the engine answers later than what it was asked before. This room must not know records.

use std::collections::HashMap;
use std::fs;
use std::time::{Duration, Instant};

use super::process::Process;

/// A writer that does nothing for so long, and has had a processor meanwhile if it wanted one, is silent.
const SILENCE: Duration = Duration::from_millis(35);
/// Whatever a writer launched has arrived after so many silences: a change asks the engine fewer things.
const SILENCES: u32 = 3;
/// One that got no processor for so long is not waited for any more: what it launches late is refused, and it is told.
const SILENCE_MAX: Duration = Duration::from_secs(20);
/// A thread that ran for so long has had time for whatever it was about.
const TURN_NS: u64 = 20_000_000;
/// Between two looks at what others' threads do.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// See the module.
pub struct Knocking {
    writers: Vec<Process>,
    /// What their threads had run, in nanoseconds, when the last knock was answered.
    ran: Vec<HashMap<u32, u64>>,
    began: Instant,
    looked: Instant,
    is_silent: bool,
    knocks: u32,
}

impl Knocking {
    /// To be let in by these.
    pub fn at(writers: &[Process]) -> Self {
        let now = Instant::now();
        Self { writers: writers.to_vec(), ran: Vec::new(), began: now, looked: now, is_silent: true, knocks: 0 }
    }
    /// True if it is for these.
    pub fn is_at(&self, writers: &[Process]) -> bool {
        self.writers == writers
    }
    /// True if it is time to knock: at the beginning, and after each silence.
    pub fn is_due(&mut self) -> bool {
        self.is_silent()
    }
    /// The engine has answered a knock.
    pub fn knocked(&mut self) {
        let ran = |writer: &Process| threads(writer.pid).map(|(tid, thread)| (tid, thread.ran_ns)).collect();
        self.ran = self.writers.iter().map(ran).collect();
        self.knocks += 1;
        self.began = Instant::now();
        self.is_silent = false;
    }
    /// True if nobody has answered: they have nothing under way.
    pub fn is_over(&self) -> bool {
        self.knocks > SILENCES
    }
    /// True if they were silent for long enough.
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

/// True if each thread of a process either wants no processor now or has had one since it had run so long.
fn had_its_turn(pid: u32, ran: &HashMap<u32, u64>) -> bool {
    // Our own other threads see us wait; this one is what wants a processor.
    pid == std::process::id()
        || threads(pid).all(|(tid, thread)| {
            let since_ns = thread.ran_ns.saturating_sub(ran.get(&tid).copied().unwrap_or(0));
            !thread.is_ready || since_ns >= TURN_NS
        })
}

struct Thread {
    /// It runs, or waits for a processor or the disk.
    is_ready: bool,
    ran_ns: u64,
}

/// The threads of a process, as far as the kernel tells of them.
fn threads(pid: u32) -> impl Iterator<Item = (u32, Thread)> {
    let all = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    all.filter_map(|entry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // Behind the name, which may hold anything.
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
        let mut knocking = Knocking::at(&[Process { pid, started: 0, nonce: 0 }]);
        let began = Instant::now();
        for _ in 0..=SILENCES {
            assert!(!knocking.is_over());
            while !knocking.is_due() {
                std::thread::sleep(Duration::from_millis(1));
            }
            knocking.knocked();
        }
        assert!(knocking.is_over() && !knocking.is_due());
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
        // As if it had run far longer before than it has.
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
