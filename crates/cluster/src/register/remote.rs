//! The register of another node, asked by messages.

use std::time::Duration;

use cenote_ha::View;
use cenote_model::{Error, ErrorKind, Result};

use super::cell::check_follows;
use super::{Attempt, Held, Register, RegisterAnswer, RegisterRequest, Stamp, SwapError, Swapped, Token, away};

const NEXT: &str = "look whether the node that has the register is up; it works again by itself then";

/// Carries a question to the node that has the register, and brings the answer.
pub trait Ask: Send + Sync {
    /// The answer, within the time. Any error counts as no answer: the question may have arrived, or may yet arrive.
    fn ask(&self, request: &[u8], timeout: Duration) -> Result<Vec<u8>>;
}

/// A register that another node has and answers for with [`super::answer`].
pub struct RemoteRegister<A> {
    way: A,
    subject: String,
    timeout: Duration,
}

impl<A: Ask> RemoteRegister<A> {
    /// The register of `node` (for errors), which is asked in this way. Each call takes `timeout` at most.
    pub fn new(way: A, node: &str, timeout: Duration) -> Self {
        Self { way, subject: format!("the register of {node}"), timeout }
    }
    fn ask(&self, request: &RegisterRequest) -> Result<RegisterAnswer> {
        let answer = self.way.ask(&request.encode(), self.timeout).map_err(|error| {
            let next = if error.next_step().is_empty() { NEXT } else { error.next_step() };
            away(self.subject.clone(), format!("no answer: {}: {}", error.subject(), error.cause()), next)
        })?;
        RegisterAnswer::decode(&answer)
    }
    fn nonsense(&self) -> Error {
        Error::new(ErrorKind::Internal, self.subject.clone())
            .because("it answers another question")
            .try_next("this is a bug in Cenote: report it with the output of `cenote --json doctor`")
    }
}

impl<A: Ask> Register for RemoteRegister<A> {
    fn subject(&self) -> String {
        self.subject.clone()
    }
    fn read(&self) -> Result<Option<Held>> {
        match self.ask(&RegisterRequest::Read)? {
            RegisterAnswer::Held(held) => Ok(held),
            RegisterAnswer::Failed(error) => Err(error),
            _ => Err(self.nonsense()),
        }
    }
    fn swap_as(&self, seen: Option<&Token>, view: &View, stamp: Stamp) -> Result<Swapped, SwapError> {
        // Otherwise bytes would travel that the other side cannot read.
        check_follows(&self.subject, seen, view).map_err(SwapError::Failed)?;
        let attempt = Attempt { number: view.number, stamp };
        let unknown = |error| SwapError::Unknown(attempt, error);
        match self.ask(&RegisterRequest::Swap { seen: seen.cloned(), view: view.clone(), stamp }).map_err(unknown)? {
            RegisterAnswer::Won(token) => Ok(Swapped::Won(token)),
            RegisterAnswer::Lost(held) => Ok(Swapped::Lost(held)),
            RegisterAnswer::Failed(error) => Err(SwapError::Failed(error)),
            RegisterAnswer::Unknown(error) => Err(unknown(error)),
            RegisterAnswer::Held(_) => Err(unknown(self.nonsense())),
        }
    }
}
