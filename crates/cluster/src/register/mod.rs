//! The register: one record with the cluster's view, changed by compare-and-swap.
//!
//! It is the only place where nodes agree. `cenote-ha` proposes a view, the register takes it if it still holds the view
//! that the proposal was made from, and whoever loses decides anew.
//!
//! | register | kept by | for |
//! |---|---|---|
//! | [`MemoryRegister`] | this process | tests and simulations: late and lost answers on demand |
//! | [`FileRegister`] | a file of the first node | clusters that need no other node's consent: two nodes, or no mirrors |
//! | [`GroupRegister`] | most of three or more nodes | clusters that survive the loss of any node |
//! | [`RadosRegister`] | an object of a pool | clusters with Ceph |
//! | [`EtcdRegister`] | a key of etcd | clusters with etcd |
//!
//! Other nodes ask the daemon of one that has it: [`RemoteRegister`], [`answer`].
//!
//! # What all of them promise
//!
//! *Linearisable*: reads and swaps take place one after the other, each between its call and its return. *Each number is
//! used once*: a swap is refused unless its view's number follows that of the view it replaces. *Guarded by a stamp*: each
//! attempt has a random [`Stamp`], which is in the record; a swap replaces the record with the stamp that was seen, no other. Stamps
//! never come back, so an attempt that arrives late, after the record has changed, changes nothing: whatever the network did.
//!
//! # An attempt without an answer
//!
//! A swap that is not answered ([`SwapError::Unknown`]) may have taken place, or may yet. The caller reads:
//! [`Token::tells`] finds its [`Attempt`] in the record or in the stamps of the 15 views before it. While the record is the one
//! that was seen, the attempt is *open*: the caller may send the same attempt again ([`Register::swap_as`] with its stamp: it takes place once
//! at most), or another one. Either settles it, since then the record has another stamp. [`settle`] reads until it is told.
//!
//! # Why the view has no incarnations
//!
//! The view is [`cenote_ha::View`] as it is. A daemon that is restarted within the memory of its machine changes nothing in it; what
//! counts for the view is who was admitted when (`MemberState::Live::since_view`) and whose disks these are (`Identity`). The
//! incarnation of a process travels in the hello of each connection.

mod cell;
pub mod conformance;
mod etcd;
mod file;
mod group;
mod memory;
mod messages;
mod rados;
mod record;
mod remote;
mod view;

use std::fmt;
use std::time::{Duration, Instant};

use cenote_ha::View;
use cenote_model::{Error, ErrorKind, Result};

pub use etcd::{EtcdOptions, EtcdRegister, Login, Tls};
pub use file::{FileRegister, VIEW_FILE, VIEW_LOCK_FILE};
pub use group::{Carry, GROUP_FILE, GROUP_LOCK_FILE, GroupRegister, GroupTimes};
pub use memory::{Fault, MemoryRegister};
pub use messages::{RegisterAnswer, RegisterRequest, answer};
pub(crate) use messages::{put_error, put_held, take_error, take_held};
pub use rados::RadosRegister;
pub use record::{Attempt, Outcome, Stamp, Token};
pub use remote::{Ask, RemoteRegister};

#[cfg(test)]
mod tests;

/// First pause between two looks for a change, and the longest.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// What a register holds.
pub type Held = (View, Token);

/// One record with compare-and-swap. See the module for what each promises.
///
/// Every call returns in bounded time, if the disk of one in a file does: a register that is away gives `Disconnected`, and works
/// again once it is back.
pub trait Register: Send + Sync {
    /// What it is, for errors.
    fn subject(&self) -> String;
    /// What it holds now; `None` before the first view. `Corrupt` if the record is none.
    fn read(&self) -> Result<Option<Held>>;
    /// Replaces what was `seen` (`None`: nothing was there), as the attempt with this stamp. The view's number must follow
    /// that of the view that was seen. The same attempt may be made again if its outcome is unknown: it takes place once.
    fn swap_as(&self, seen: Option<&Token>, view: &View, stamp: Stamp) -> Result<Swapped, SwapError>;
    /// [`Register::swap_as`] with a new stamp.
    fn swap(&self, seen: Option<&Token>, view: &View) -> Result<Swapped, SwapError> {
        let stamp = Stamp::draw().map_err(SwapError::Failed)?;
        self.swap_as(seen, view, stamp)
    }
    /// Waits until it holds something else than `after`, at most for `timeout` and the time of one read. `None`: nothing
    /// changed. Fails only if the last read did, or with an error that time does not heal.
    fn wait_change(&self, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>> {
        poll_change(self, after, timeout)
    }
}

/// The answer to a swap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Swapped {
    /// The view is in force.
    Won(Token),
    /// The record was not the one that was seen: this one was there meanwhile. The attempt will not take place.
    Lost(Option<Held>),
}

impl Swapped {
    /// What the register held when it answered: the view that was proposed, or what was there before.
    pub fn held(self, proposed: &View) -> Option<Held> {
        match self {
            Self::Won(token) => Some((proposed.clone(), token)),
            Self::Lost(held) => held,
        }
    }
}

/// Why a swap was not answered as asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SwapError {
    /// This call changed nothing, and will change nothing.
    Failed(Error),
    /// Nobody knows: it was done, was not, or will yet be. Reading tells: [`Token::tells`].
    Unknown(Attempt, Error),
}

impl SwapError {
    /// The error.
    pub fn error(&self) -> &Error {
        match self {
            Self::Failed(error) | Self::Unknown(_, error) => error,
        }
    }
}

impl fmt::Display for SwapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failed(error) => error.fmt(f),
            Self::Unknown(attempt, error) => write!(f, "whether view {} was taken is unknown: {error}", attempt.number),
        }
    }
}

impl std::error::Error for SwapError {}

impl From<SwapError> for Error {
    fn from(error: SwapError) -> Self {
        match error {
            SwapError::Failed(error) | SwapError::Unknown(_, error) => error,
        }
    }
}

/// Reads until the register tells what became of an attempt, at most for `timeout`: [`Outcome::Open`] then, if it was
/// read at all. The view that tells is returned too.
pub fn settle(register: &dyn Register, attempt: &Attempt, timeout: Duration) -> Result<(Outcome, Option<Held>)> {
    let mut pauses = Pauses::new(timeout);
    loop {
        let read = register.read();
        let outcome = match &read {
            Ok(Some((_, token))) => token.tells(attempt),
            _ => Outcome::Open,
        };
        let is_final = matches!(&read, Err(error) if !error.kind().retry_helps());
        if outcome != Outcome::Open || is_final || !pauses.pause() {
            return read.map(|held| (outcome, held));
        }
    }
}

fn poll_change<R: Register + ?Sized>(register: &R, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>> {
    let mut pauses = Pauses::new(timeout);
    loop {
        let read = register.read();
        let is_final = match &read {
            Ok(held) => is_other(held.as_ref(), after),
            Err(error) => !error.kind().retry_helps(),
        };
        if is_final {
            return read;
        }
        if !pauses.pause() {
            return read.map(|_| None);
        }
    }
}

/// Returns true if this is not what the token says.
fn is_other(held: Option<&Held>, after: Option<&Token>) -> bool {
    held.map(|(_, token)| token.stamp) != after.map(|token| token.stamp)
}

/// Pauses, each longer than the one before, until a time is over.
struct Pauses {
    until: Instant,
    pause: Duration,
}

impl Pauses {
    fn new(timeout: Duration) -> Self {
        Self { until: Instant::now() + timeout, pause: PAUSE }
    }
    /// Pauses; false if the time is over.
    fn pause(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        std::thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 3 / 2).min(PAUSE_MAX);
        true
    }
}

/// The error of a register that is not there, or does not answer.
#[cold]
fn away(subject: impl Into<String>, why: impl Into<String>, next: &str) -> Error {
    Error::new(ErrorKind::Disconnected, subject).because(why).try_next(next)
}
