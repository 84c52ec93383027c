//! The trace of a run, kept only on request; always hashed, so that two runs of a seed can be compared.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use crate::rng::mix;

const LINES_KEPT: usize = 4000;

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// More options of the simulator that a replay needs.
    pub options: String,
    /// What was wrong.
    pub message: String,
    /// The trace up to the failure, oldest line first.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} FAILED: {}", self.seed, self.message)?;
        for line in self.trace.iter().skip(self.trace.len().saturating_sub(60)) {
            writeln!(f, "  {line}")?;
        }
        let (options, seed) = (&self.options, self.seed);
        write!(f, "replay: cargo run --release -p cenote-testkit --bin simulate -- {options}--seed {seed} --trace")
    }
}

#[derive(Default)]
struct Inner {
    keep: bool,
    print: bool,
    lines: VecDeque<String>,
    number: u64,
    hash: u64,
}

/// A shared handle to the trace of one run.
pub(super) struct Trace(Rc<RefCell<Inner>>);

impl Trace {
    pub(super) fn new(keep: bool, print: bool) -> Self {
        Self(Rc::new(RefCell::new(Inner { keep, print, ..Inner::default() })))
    }
    pub(super) fn clone_handle(&self) -> Self {
        Self(Rc::clone(&self.0))
    }
    pub(super) fn is_kept(&self) -> bool {
        self.0.borrow().keep
    }
    pub(super) fn add(&self, line: &str) {
        let mut inner = self.0.borrow_mut();
        inner.number += 1;
        let line = format!("{:5} {line}", inner.number);
        if inner.print {
            eprintln!("{line}");
        }
        if inner.lines.len() >= LINES_KEPT {
            inner.lines.pop_front();
        }
        inner.lines.push_back(line);
    }
    /// Mixes in a number that must be the same in every run of the seed.
    pub(super) fn note(&self, value: u64) {
        let mut inner = self.0.borrow_mut();
        inner.hash = mix(inner.hash ^ value).wrapping_add(1);
    }
    pub(super) fn hash(&self) -> u64 {
        self.0.borrow().hash
    }
    pub(super) fn lines(&self) -> Vec<String> {
        self.0.borrow().lines.iter().cloned().collect()
    }
}

/// Adds a line to a trace; formats it only if traces are kept.
macro_rules! trace {
    ($trace:expr, $($part:tt)*) => {
        if $trace.is_kept() {
            $trace.add(&format!($($part)*));
        }
    };
}
pub(super) use trace;
