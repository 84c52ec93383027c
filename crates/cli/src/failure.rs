//! How a command ends when it does not end well: what is said on standard error, and with which exit code.

use std::io;
use std::process::ExitCode;

use cenote::{Error, ErrorKind};

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// It failed: exit code 1, or 3 if stored bytes are damaged.
    Error(Error),
    /// Damage was found, and has been listed on standard output: exit code 3.
    Damage,
    /// Whoever read our output has left (`cenote ls | head`): nothing to say, exit code 0.
    ReaderLeft,
    /// A program that was run for the user ended so: its exit code is ours.
    Program(u8),
}

/// What every command returns.
pub type Done<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Failure {
    /// An error of standard output; other files are given their names where they fail.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::Error(Error::io("standard output", &error))
        }
    }
}

impl Failure {
    /// Says it on standard error and gives the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Self::ReaderLeft => ExitCode::SUCCESS,
            Self::Damage => ExitCode::from(3),
            Self::Program(code) => ExitCode::from(code),
            Self::Error(error) => {
                eprintln!("cenote: {}: {}", error.subject(), error.kind().words());
                if !error.cause().is_empty() {
                    eprintln!("  cause: {}", error.cause());
                }
                if !error.next_step().is_empty() {
                    eprintln!("  next:  {}", error.next_step());
                }
                ExitCode::from(if error.kind() == ErrorKind::Corrupt { 3 } else { 1 })
            }
        }
    }
}
