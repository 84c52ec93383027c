//! A helper program of Cenote that answers lines of text during the life of this process. It does what needs a library
//! that views are not linked to.
//!
//! It runs in the background like a daemon, so that a program that waits for its children or closes descriptors does
//! not notice it. It leaves when its socket is closed, at the latest at the end of this process. This room must not
//! know the questions.

use std::os::fd::OwnedFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote_host::fork::generation as fork_generation;
use cenote_model::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair};

use crate::link::find_program;

/// Variables that would make the helper itself go through a view.
const NOT_ITS: [&str; 2] = ["LD_PRELOAD", "HDF5_VOL_CONNECTOR"];
/// Tells the program to start itself again with these standard streams, and to exit.
const BACKGROUND: &str = "--background";

/// A running helper. After its drop the program ends by itself.
#[derive(Debug)]
pub struct Helper {
    socket: OwnedFd,
    /// Fork generation of the process that started it: a child must not use its parent's helper.
    generation: u64,
    /// Bytes received after the last answer.
    rest: Vec<u8>,
}

impl Helper {
    /// Starts `cenote` with these arguments and `--background`. Its descriptor here is at least `lowest` if possible.
    pub fn start(arguments: &[&std::ffi::OsStr], lowest: i32) -> Result<Self> {
        let program = find_program()?;
        let failed = |error: std::io::Error| Error::io(format!("program {}", program.display()), &error);
        let (ours, its) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
            .map_err(|error| failed(error.into()))?;
        let socket = fcntl_dupfd_cloexec(&ours, lowest).unwrap_or(ours);
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .arg(BACKGROUND)
            .stdin(its.try_clone().map_err(failed)?)
            .stdout(its)
            .stderr(Stdio::null());
        for name in NOT_ITS {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(failed)?;
        drop(command); // this also closes the program's end of the socket
        // It ends at once. A program that waits for all its children may be faster: then there is nothing to wait for.
        let _ = child.wait();
        Ok(Self { socket, generation: fork_generation(), rest: Vec::new() })
    }
    /// Returns false in a child that was forked since the start.
    pub fn is_own(&self) -> bool {
        self.generation == fork_generation()
    }
    /// Sends a line and returns the line that answers it, both without their ends. Fails if the program has ended, or
    /// does not answer in time: then the helper must not be used any more.
    pub fn ask(&mut self, line: &str, patience: Duration) -> Result<String> {
        let until = Instant::now() + patience;
        self.say(format!("{line}\n").as_bytes()).map_err(|errno| failed(&errno.to_string()))?;
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let answer = self.rest.drain(..=end).collect::<Vec<u8>>();
                return Ok(String::from_utf8_lossy(&answer[..end]).into_owned());
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(&format!("it did not answer within {} s", patience.as_secs())));
            }
            let left = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: i64::from(left.subsec_nanos()) };
            match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) | Err(Errno::INTR) => continue,
                Ok(_) => {}
                Err(errno) => return Err(failed(&errno.to_string())),
            }
            let mut buf = [0; 4096];
            match recv(&self.socket, &mut buf, RecvFlags::DONTWAIT) {
                Ok((0, _)) => return Err(failed("it has ended")),
                Ok((some, _)) => self.rest.extend_from_slice(&buf[..some]),
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(errno) => return Err(failed(&errno.to_string())),
            }
        }
    }
    /// Sends without a signal to this process if the other end is closed.
    fn say(&self, mut bytes: &[u8]) -> rustix::io::Result<()> {
        while !bytes.is_empty() {
            match send(&self.socket, bytes, SendFlags::NOSIGNAL) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }
}

fn failed(why: &str) -> Error {
    Error::new(ErrorKind::Io, "the helping program `cenote`").because(why)
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Lines are returned one by one, regardless of the arrival of the answers.
    #[test]
    fn each_line_gets_its_answer() {
        let (ours, its) = UnixStream::pair().unwrap();
        let program = std::thread::spawn(move || {
            let mut lines = BufReader::new(its.try_clone().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "one");
            (&its).write_all(b"1\n2\n").unwrap();
            assert_eq!(lines.next().unwrap().unwrap(), "two");
        });
        let mut helper = Helper { socket: ours.into(), generation: fork_generation(), rest: Vec::new() };
        let patience = Duration::from_secs(20);
        assert_eq!(helper.ask("one", patience).unwrap(), "1");
        assert_eq!(helper.ask("two", patience).unwrap(), "2");
        program.join().unwrap();
        assert!(helper.ask("three", patience).is_err(), "it has ended");
    }
}
