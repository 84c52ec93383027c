//! A register in memory, for tests and simulations.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_model::Result;
use parking_lot::Mutex;

use super::cell::{Cell, Stored};
use super::{Stamp, away};

const NEXT: &str = "a test keeps it away; let it come back";

/// What goes wrong with a swap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It never arrives; nobody is told.
    Lost,
    /// It is carried out, and its answer is lost.
    Unanswered,
    /// It arrives when [`MemoryRegister::deliver_late`] is called; nobody is told before.
    Late,
}

/// A register of this process. Clones have the same record.
#[derive(Clone, Default)]
pub struct MemoryRegister {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    record: Option<(Stamp, Vec<u8>)>,
    faults: VecDeque<Fault>,
    late: Vec<Late>,
    is_away: bool,
}

/// A swap that is under way for a long time.
struct Late {
    seen: Option<Stamp>,
    stamp: Stamp,
    bytes: Vec<u8>,
}

impl MemoryRegister {
    /// Lets this happen to the next swap that has no fault yet.
    pub fn inject(&self, fault: Fault) {
        self.state.lock().faults.push_back(fault);
    }
    /// Lets swaps that are late arrive, in their order.
    pub fn deliver_late(&self) {
        let mut state = self.state.lock();
        for late in std::mem::take(&mut state.late) {
            state.store(late.seen, late.stamp, &late.bytes);
        }
    }
    /// Keeps everybody from it, or lets it come back.
    pub fn set_away(&self, is_away: bool) {
        self.state.lock().is_away = is_away;
    }
    /// Puts bytes into the place of the record's, whatever they are.
    pub fn damage(&self, bytes: &[u8]) {
        let mut state = self.state.lock();
        let stamp = state.record.as_ref().map_or(Stamp(0), |(stamp, _)| *stamp);
        state.record = Some((stamp, bytes.to_vec()));
    }
}

impl State {
    fn store(&mut self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored {
        if self.record.as_ref().map(|(stamp, _)| *stamp) != seen {
            return Stored::Other;
        }
        self.record = Some((stamp, bytes.to_vec()));
        Stored::Done
    }
}

impl Cell for MemoryRegister {
    fn subject(&self) -> String {
        "the register in memory".to_owned()
    }
    fn load(&self) -> Result<Option<Vec<u8>>> {
        let state = self.state.lock();
        if state.is_away {
            return Err(away(self.subject(), "it is away", NEXT));
        }
        Ok(state.record.as_ref().map(|(_, bytes)| bytes.clone()))
    }
    fn store(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored {
        let mut state = self.state.lock();
        if state.is_away {
            return Stored::Failed(away(self.subject(), "it is away", NEXT));
        }
        match state.faults.pop_front() {
            None => return state.store(seen, stamp, bytes),
            Some(Fault::Lost) => {}
            Some(Fault::Unanswered) => drop(state.store(seen, stamp, bytes)),
            Some(Fault::Late) => state.late.push(Late { seen, stamp, bytes: bytes.to_vec() }),
        }
        Stored::Unknown(away(self.subject(), "no answer", "read it to see what became of the swap"))
    }
}
