//! The program that makes streams: started when it is first needed, asked in lines of text, one at a time, and gone when this process is.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use crate::sync::Mutex;
use cenote::{ErrorKind, fork_generation};

use crate::{FsError, FsResult};

/// How long an answer may take: a file with very many chunks takes some seconds.
const PATIENCE: Duration = Duration::from_mins(2);
/// Variables that would have the program go through a view itself.
const NOT_ITS: [&str; 2] = ["LD_PRELOAD", "HDF5_VOL_CONNECTOR"];

/// What it is asked.
pub enum Ask {
    /// That names are those of the HDF5 files there are.
    Names,
    /// That the stream at this path is what its file is.
    Stream(Vec<u8>),
}

/// The program, if it was started.
#[derive(Debug, Default)]
pub struct Maker(Mutex<Option<Running>>);

#[derive(Debug)]
struct Running {
    child: Child,
    to: ChildStdin,
    from: Receiver<String>,
    /// Fork generation of who started it: a child does not talk to its parent's.
    generation: u64,
}

impl Maker {
    /// Asks, and waits for the answer.
    pub fn ask(&self, store: &Path, what: &Ask) -> FsResult<()> {
        let line = match what {
            Ask::Names => "names\n".to_owned(),
            Ask::Stream(path) => {
                let hex: String = path.iter().map(|byte| format!("{byte:02x}")).collect();
                format!("stream {hex}\n")
            }
        };
        let mut running = self.0.lock();
        if let Some(other) = running.take_if(|running| running.generation != fork_generation()) {
            std::mem::forget(other); // the parent's: it goes on talking to it
        }
        let mut answer = None;
        // One that was stopped since is started again, once.
        for _ in 0..2 {
            if running.is_none() {
                *running = Some(Running::start(store)?);
            }
            if let Some(one) = &mut *running {
                answer = one.ask(&line);
            }
            if answer.is_some() {
                break;
            }
            if let Some(mut one) = running.take() {
                one.end();
            }
        }
        drop(running);
        match answer.as_deref().map(|answer| answer.split_once(' ').unwrap_or((answer, ""))) {
            Some(("ok", _)) => Ok(()),
            Some((_, told)) => {
                let (number, why) = told.split_once(' ').unwrap_or(("", told));
                Err(failed(number.parse().unwrap_or(libc::EIO), why))
            }
            None => Err(failed(libc::EIO, "the program that makes streams ended, or did not answer for two minutes")),
        }
    }
}

fn failed(errno: i32, why: &str) -> FsError {
    FsError::because(errno, ErrorKind::Io, "an HDF5 file as a stream", why)
}

impl Running {
    fn start(store: &Path) -> FsResult<Self> {
        let mut command = Command::new(cenote::program()?);
        command.arg("--store").arg(store).args(["streams", "--serve"]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        for name in NOT_ITS {
            command.env_remove(name);
        }
        let mut child = command.spawn().map_err(|error| failed(libc::EIO, &format!("`cenote streams`: {error}")))?;
        let (Some(to), Some(out)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(failed(libc::EIO, "the program that makes streams has no standard streams"));
        };
        let (tell, from) = channel();
        // Ends with the program's output.
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { child, to, from, generation: fork_generation() })
    }
    /// The answer; none if there comes none.
    fn ask(&mut self, line: &str) -> Option<String> {
        self.to.write_all(line.as_bytes()).ok()?;
        self.from.recv_timeout(PATIENCE).ok()
    }
    fn end(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.generation == fork_generation() {
            self.end();
        }
    }
}
