//! A node whose daemon hangs until another node has its home, and then goes on: it must change nothing any more, and its own
//! programs must not be answered from what it remembers.

use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::parent::{Check, Run, holder, signal, text};
use super::probe::{self, Probe};
use cenote::HomeId;

/// For how long a program's answer is waited for that should not come.
const ANSWER: Duration = Duration::from_millis(700);
/// For how long the daemon goes on after it hung.
const AFTER: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(20);

/// What is read on the node.
const READS: [&str; 2] = ["object", "record"];

/// A node that hangs, and programs there.
struct Hanging {
    home: HomeId,
    label: String,
    readers: [Probe; 2],
    writer: Probe,
}

/// Has the node hang until another one has its home, and then go on and get it back.
pub(super) fn hang(run: &mut Run<'_>, at: usize) -> Check {
    let (dir, home) = (run.stores[at].dir().to_path_buf(), run.stores[at].home());
    let label = format!("hang{}", run.tally.hangs);
    probe::make(&run.stores[at], &label).map_err(text)?;
    let start = || Probe::start(&run.options.program, &dir, &label);
    let mut hanging = Hanging { home, readers: [start()?, start()?], writer: start()?, label: label.clone() };
    for _ in 0..3 {
        let found = hanging.read(Duration::from_secs(10))?;
        if found.iter().any(|found| found != "0") {
            return Err(format!("the programs read {found:?} at first"));
        }
    }
    let Some(daemon) = holder(&dir) else { return Err("no daemon to stop".into()) };
    drop(run.stores.remove(at));
    signal(daemon, Signal::STOP);
    hanging.writer.ask("write 7")?;
    let verdict = hanging.meanwhile(run);
    signal(daemon, Signal::CONT);
    run.tally.failures.extend(verdict?);
    let wrong = hanging.afterwards()?;
    run.tally.failures.extend(wrong);
    run.take_back(at, home, &dir)?;
    run.wait_until_whole()?;
    let wrong = hanging.in_the_end(run)?;
    run.tally.failures.extend(wrong);
    Ok(())
}

impl Hanging {
    /// What the programs are answered in time; empty if they are not.
    fn read(&mut self, patience: Duration) -> Check<Vec<String>> {
        for (reader, what) in self.readers.iter_mut().zip(READS) {
            reader.ask(what)?;
        }
        Ok(self.readers.iter().map(|reader| reader.answer(patience).unwrap_or_default()).collect())
    }
    /// What they are answered out of what was once there.
    fn stale(&mut self) -> Check<Option<String>> {
        let found = self.read(ANSWER)?;
        let is_stale = |answer: &String| answer.parse::<u64>().is_ok_and(|value| value != 1);
        Ok(found.iter().any(is_stale).then(|| format!("programs there read {found:?} of {READS:?}")))
    }
    /// Waits until another node has the home, and changes what is read. Returns what is wrong.
    fn meanwhile(&mut self, run: &Run<'_>) -> Check<Option<String>> {
        let begin = Instant::now();
        run.wait_until_taken_over(self.home)?;
        // The one that hangs is not among them.
        let container = run.stores[0].container(&self.label).map_err(text)?;
        probe::change(&container, 1).map_err(text)?;
        let stale = self.stale()?;
        Ok(stale.map(|stale| format!("after home {} hung for {:?} {stale}", self.home, begin.elapsed())))
    }
    /// Looks what happens once it goes on. Returns what is wrong.
    fn afterwards(&mut self) -> Check<Option<String>> {
        let begin = Instant::now();
        while begin.elapsed() < AFTER {
            if let Some(stale) = self.stale()? {
                return Ok(Some(format!("{:?} after home {} went on {stale}", begin.elapsed(), self.home)));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(None)
    }
    /// What is there in the end. Returns what is wrong.
    fn in_the_end(&mut self, run: &Run<'_>) -> Check<Option<String>> {
        let stale = self.stale()?;
        let told = self.writer.answer(ANSWER);
        let is_told = told.as_deref() == Some("7");
        let container = run.stores[0].container(&self.label).map_err(text)?;
        let found = probe::read(&container).map_err(text)?;
        let is_right = found.theirs == [1, 1] && (found.ours == 7 || found.ours == 0 && !is_told);
        let (home, theirs, ours) = (self.home, found.theirs, found.ours);
        let wrong = || format!("after home {home} hung: {theirs:?}, {ours} (the program there: {told:?})");
        Ok((!is_right).then(wrong).or(stale))
    }
}
