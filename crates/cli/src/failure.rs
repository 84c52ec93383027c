//! Failure of a command: its message on standard error, and its exit code.

use std::io;
use std::process::ExitCode;

use cenote::{Error, ErrorKind};

/// Why a command stopped.
#[derive(Debug)]
pub enum Failure {
    /// Error: exit code 1, or 3 if stored bytes are damaged.
    Error(Error),
    /// Damage was found, and listed on standard output: exit code 3.
    Damage,
    /// The reader of our output has left (`cenote ls | head`): no message, exit code 0.
    ReaderLeft,
    /// A program that was run for the user ended with this exit code, which becomes ours.
    Program(u8),
}

/// Result of every command.
pub type Done<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<io::Error> for Failure {
    /// Converts an error of standard output; errors of other files get their names where they occur.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ReaderLeft
        } else {
            Self::Error(Error::io("standard output", &error))
        }
    }
}

impl Failure {
    /// Prints the message on standard error and returns the exit code.
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
