//! Failure of a command: its message on standard error, and its exit code.

use std::io;
use std::process::ExitCode;

use cenote::{Error, ErrorKind};

/// What lines of an error begin with.
const NAME: &str = "cenote: ";
const CAUSE: &str = "  cause: ";
const NEXT: &str = "  next:  ";

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

/// The error that another process of this program has printed; `None` if what was printed is something else.
pub fn printed(text: &str) -> Option<Error> {
    let begin = text.lines().position(|line| line.starts_with(NAME))?;
    let mut lines = text.lines().skip(begin);
    let (subject, words) = lines.next()?.strip_prefix(NAME)?.rsplit_once(": ")?;
    let kind = (0..=u8::MAX).filter_map(ErrorKind::from_code).find(|kind| kind.words() == words)?;
    let (mut cause, mut next) = (String::new(), String::new());
    for line in lines {
        match (line.strip_prefix(CAUSE), line.strip_prefix(NEXT)) {
            (Some(said), _) if cause.is_empty() => cause.push_str(said),
            (_, Some(said)) if next.is_empty() => next.push_str(said),
            _ => {
                let last = if next.is_empty() { &mut cause } else { &mut next };
                *last = format!("{last}\n{line}");
            }
        }
    }
    Some(Error::new(kind, subject).because(cause).try_next(next))
}

impl Failure {
    /// Prints the message on standard error and returns the exit code.
    pub fn report(self) -> ExitCode {
        match self {
            Self::ReaderLeft => ExitCode::SUCCESS,
            Self::Damage => ExitCode::from(3),
            Self::Program(code) => ExitCode::from(code),
            Self::Error(error) => {
                eprintln!("{NAME}{}: {}", error.subject(), error.kind().words());
                if !error.cause().is_empty() {
                    eprintln!("{CAUSE}{}", error.cause());
                }
                if !error.next_step().is_empty() {
                    eprintln!("{NEXT}{}", error.next_step());
                }
                ExitCode::from(if error.kind() == ErrorKind::Corrupt { 3 } else { 1 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_process_prints_is_an_error_again() {
        let said = "warning\ncenote: file tier `a` in /x: y: not found\n  cause: no such\nfile\n  next:  check it\n";
        let error = printed(said).unwrap();
        assert_eq!((error.kind(), error.subject()), (ErrorKind::NotFound, "file tier `a` in /x: y"));
        assert_eq!((error.cause(), error.next_step()), ("no such\nfile", "check it"));
        let bare = printed("cenote: it: corrupt\n");
        assert!(bare.is_some_and(|error| error.kind() == ErrorKind::Corrupt && error.cause().is_empty()));
        for other in ["", "ssh: connect to host n2: refused", "cenote: it: wonderful", "cenote: nothing"] {
            assert!(printed(other).is_none(), "{other}");
        }
    }
}
