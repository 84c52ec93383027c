//! What the registers that keep a record themselves have in common: they keep bytes beside a stamp, and the rest is here.

use std::time::Duration;

use cenote_ha::View;
use cenote_model::{Error, ErrorKind, Result};

use super::{Attempt, Held, Outcome, Register, Stamp, SwapError, Swapped, Token, poll_change, record, view};

/// Bytes that are replaced if the stamp is the one that was seen.
pub(super) trait Cell: Send + Sync {
    /// What it is, for errors.
    fn subject(&self) -> String;
    /// The bytes; `None` before the first ones.
    fn load(&self) -> Result<Option<Vec<u8>>>;
    /// Replaces the bytes with the stamp that was `seen` (`None`: none are there) by others with `stamp`.
    fn store(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored;
    /// [`Register::wait_change`].
    fn wait_change(&self, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>>
    where
        Self: Sized,
    {
        poll_change(self, after, timeout)
    }
}

/// What became of the bytes.
pub(super) enum Stored {
    /// They are there, durable.
    Done,
    /// Others are there, not those that were seen.
    Other,
    /// Nothing was changed, and nothing will be.
    Failed(Error),
    /// Nobody knows.
    Unknown(Error),
}

impl<C: Cell> Register for C {
    fn subject(&self) -> String {
        Cell::subject(self)
    }
    fn read(&self) -> Result<Option<Held>> {
        let Some(bytes) = self.load()? else { return Ok(None) };
        record::decode(&Cell::subject(self), &bytes).map(Some)
    }
    fn swap_as(&self, seen: Option<&Token>, view: &View, stamp: Stamp) -> Result<Swapped, SwapError> {
        let subject = Cell::subject(self);
        check_follows(&subject, seen, view).map_err(SwapError::Failed)?;
        let token = Token::following(seen, view.number, stamp);
        let bytes = record::encode(&subject, &token, view).map_err(SwapError::Failed)?;
        let attempt = Attempt { number: view.number, stamp };
        match self.store(seen.map(Token::stamp), stamp, &bytes) {
            Stored::Done => Ok(Swapped::Won(token)),
            Stored::Other => lost(self, seen, &attempt, token),
            Stored::Failed(error) => Err(SwapError::Failed(error)),
            Stored::Unknown(error) => Err(SwapError::Unknown(attempt, error)),
        }
    }
    fn wait_change(&self, after: Option<&Token>, timeout: Duration) -> Result<Option<Held>> {
        Cell::wait_change(self, after, timeout)
    }
}

/// Fails unless the view is sound and its number is the one after the view that was seen.
pub(super) fn check_follows(subject: &str, seen: Option<&Token>, proposed: &View) -> Result<()> {
    view::check(proposed, subject)?;
    match seen {
        Some(seen) if Some(proposed.number) != seen.number.checked_add(1) => {
            Err(Error::new(ErrorKind::InvalidInput, format!("view {} for {subject}", proposed.number))
                .because(format!("it is to follow view {}: each number is used once", seen.number))
                .try_next("read the register, and number the view after the one that it holds"))
        }
        _ => Ok(()),
    }
}

/// Something else was there than what was seen: it may be this attempt itself, which was sent before.
fn lost<C: Cell>(cell: &C, seen: Option<&Token>, attempt: &Attempt, token: Token) -> Result<Swapped, SwapError> {
    let held = cell.read().map_err(|error| SwapError::Unknown(*attempt, error))?;
    let is_seen = held.as_ref().map(|(_, held)| held.stamp()) == seen.map(Token::stamp);
    match &held {
        _ if is_seen => Err(SwapError::Unknown(*attempt, contradiction(&Cell::subject(cell)))),
        Some((_, held)) if held.tells(attempt) == Outcome::Won => Ok(Swapped::Won(token)),
        Some((_, held)) if held.tells(attempt) == Outcome::Forgotten => {
            Err(SwapError::Unknown(*attempt, forgotten(&Cell::subject(cell))))
        }
        _ => Ok(Swapped::Lost(held)),
    }
}

/// The attempt was sent more than once, and the answers came too late to tell what became of the first one.
#[cold]
fn forgotten(subject: &str) -> Error {
    Error::new(ErrorKind::Busy, subject)
        .because("so many views have followed that it does not tell what became of this one")
        .try_next("read it, and decide anew")
}

/// A cell says that the stamp is another one, and has a record with that stamp.
#[cold]
fn contradiction(subject: &str) -> Error {
    record::corrupt(subject, "the stamp beside it is not the one in it")
}
