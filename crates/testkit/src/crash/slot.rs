//! A client process, as the parent sees it: what it says, what the store must hold for it, and how long it was kept
//! waiting.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use cenote::Container;
use cenote_model::ContainerId;

use super::ops::{Op, draw};
use super::parent::{Check, Options, text};
use super::plain::{compare, read};
use crate::oracle::{Change, StoreState};

/// A line, and when it came.
type Line = (Instant, String);

/// A running client.
pub(super) struct Process {
    child: Child,
    log: Receiver<Line>,
    /// The directory of its node.
    pub place: PathBuf,
    pub started: Instant,
}

impl Process {
    /// Starts the client of a slot at the node in `place`.
    pub fn start(options: &Options, place: &Path, slot: u64, first: u64) -> Check<Self> {
        let mut child = Command::new(&options.program)
            // Daemons started by such a client spill record values to tiers.
            .env(cenote_server::VALUES_VARIABLE, "4KiB")
            .arg("client")
            .arg(place)
            .args([options.seed, slot, first, 1 << 24].map(|n| n.to_string()))
            .stdout(Stdio::piped())
            .spawn()
            .map_err(text)?;
        let pipe = child.stdout.take().ok_or("no pipe")?;
        let (send, log) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines() {
                let Ok(line) = line else { return };
                if send.send((Instant::now(), line)).is_err() {
                    return;
                }
            }
        });
        Ok(Self { child, log, place: place.to_path_buf(), started: Instant::now() })
    }
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
    pub fn kill(&mut self) -> Check {
        let _ = self.child.kill(); // it may have ended
        self.child.wait().map(drop).map_err(text)
    }
}

/// A client's number, its processes one after the other, and what its containers hold.
pub(super) struct Slot {
    pub number: u64,
    pub process: Process,
    pub state: StoreState,
    pub containers: [ContainerId; 2],
    /// End of the acknowledged operations.
    pub done: u64,
    /// The last operation that began, and when.
    pub begun: Option<(u64, Instant)>,
    pub acknowledged: u64,
    /// Longest time that an operation took.
    pub stall: Duration,
    /// Operations that were not acknowledged, and turned out not to be carried out when their process was dead.
    pub dropped: Vec<(u64, PathBuf, Instant)>,
}

impl Slot {
    /// Notes that its process ended by itself, if it did.
    pub fn ended(&mut self) -> Check<Option<String>> {
        let status = self.process.child.try_wait().map_err(text)?;
        Ok(status.map(|status| format!("client {} ended by itself: {status}", self.number)))
    }
    /// The labels of its containers.
    pub fn labels(number: u64) -> [String; 2] {
        ["a", "b"].map(|part| format!("slot{number}{part}"))
    }
    /// Takes in what its process has said so far. With `to_the_end`, until its pipe ends.
    pub fn listen(&mut self, seed: u64, to_the_end: bool) -> Check {
        let next = |log: &Receiver<Line>| if to_the_end { log.recv().ok() } else { log.try_recv().ok() };
        while let Some((at, line)) = next(&self.process.log) {
            let (kind, n) = line.split_once(' ').ok_or("a malformed line")?;
            let n: u64 = n.parse().map_err(text)?;
            if kind != "A" {
                self.begun = Some((n, at));
                continue;
            }
            if let Some((_, since)) = self.begun.take() {
                self.stall = self.stall.max(at - since);
            }
            self.acknowledged += 1;
            for change in changes_of(&draw(seed, self.number, n, self.containers)) {
                self.state.change(&change, 0);
            }
            self.done = n + 1;
        }
        Ok(())
    }
    /// For how long its process has waited for an operation.
    pub fn waits(&self) -> Duration {
        self.begun.map_or(Duration::ZERO, |(_, since)| since.elapsed())
    }
    /// Its process is dead, and so is whatever it left: compares its containers with the allowed states.
    pub fn compare(&mut self, seed: u64, containers: &[Container]) -> Check {
        let mut allowed = vec![self.state.clone()];
        let pending = self.begun.map(|(n, _)| draw(seed, self.number, n, self.containers));
        if let Some(op) = &pending {
            let whole = matches!(op, Op::Transaction(_));
            let mut state = self.state.clone();
            let changes = changes_of(op);
            for (at, change) in changes.iter().enumerate() {
                state.change(change, 0);
                if !whole || at + 1 == changes.len() {
                    allowed.push(state.clone());
                }
            }
        }
        let (number, done) = (self.number, self.done);
        self.state = settle(containers, &allowed).map_err(|message| {
            format!(
                "client {number}, {done} operations acknowledged, pending {pending:?}: {message}; not carried out: {:?}",
                self.dropped
            )
        })?;
        if let Some((n, _)) = self.begun.filter(|_| self.state == allowed[0] && allowed.len() > 1) {
            self.dropped.push((n, self.process.place.clone(), Instant::now()));
        }
        Ok(())
    }
    /// The operation with which another process goes on: what was not acknowledged is not repeated.
    pub fn next(&self) -> u64 {
        self.begun.map_or(self.done, |(n, _)| n + 1)
    }
    /// Goes on with another process.
    pub fn go_on(&mut self, process: Process) {
        self.done = self.next();
        (self.process, self.begun) = (process, None);
    }
}

/// Finds the allowed state that the containers have.
fn settle(containers: &[Container], allowed: &[StoreState]) -> Check<StoreState> {
    let mut last = String::new();
    let found: Vec<_> = containers.iter().map(|c| read(c).map_err(text)).collect::<Check<_>>()?;
    for state in allowed.iter().rev() {
        let verdict = containers.iter().zip(&found).try_for_each(|(container, found)| {
            let expected = state.containers.get(&container.id()).ok_or("no such container")?;
            compare(found, expected).map_err(|e| format!("container {}: {e}", container.id()))
        });
        match verdict {
            Ok(()) => return Ok(state.clone()),
            Err(message) => last = message,
        }
    }
    Err(last)
}

/// The changes of an operation to the slot's own containers.
fn changes_of(op: &Op) -> Vec<Change> {
    match op {
        Op::Single(change) => vec![change.clone()],
        Op::Transaction(changes) | Op::Launched(changes) => changes.clone(),
        Op::Transfer(..) | Op::Flush => Vec::new(),
    }
}
