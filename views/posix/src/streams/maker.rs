//! The program that makes streams: started when it is first needed, asked in lines of text, one at a time, and gone when this process is.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::sync::Mutex;
use cenote::{ErrorKind, Helper};

use crate::{FsError, FsResult};

/// How long an answer may take: a file with very many chunks takes some seconds. The program itself gives up a little later.
const PATIENCE: Duration = Duration::from_mins(2);

/// What it is asked.
pub enum Ask {
    /// That names are those of the HDF5 files there are.
    Names,
    /// That the stream at this path is what its file is.
    Stream(Vec<u8>),
}

/// The program, if it was started.
#[derive(Debug, Default)]
pub struct Maker(Mutex<Option<Helper>>);

impl Maker {
    /// Asks, and waits for the answer. `lowest`: see [`crate::Options::descriptors_from`].
    pub fn ask(&self, store: &Path, what: &Ask, lowest: i32) -> FsResult<()> {
        let line = match what {
            Ask::Names => "names".to_owned(),
            Ask::Stream(path) => path.iter().fold("stream ".to_owned(), |line, byte| line + &format!("{byte:02x}")),
        };
        let mut running = self.0.lock();
        // A forked child has one of its own.
        let was_running = running.take_if(|helper| !helper.is_own()).is_none() && running.is_some();
        let mut answer = told(&mut running, store, &line, lowest);
        if was_running && answer.is_err() {
            answer = told(&mut running, store, &line, lowest); // one that was stopped since is started again, once
        }
        drop(running);
        let answer = answer?;
        match answer.split_once(' ').unwrap_or((&answer, "")) {
            ("ok", _) => Ok(()),
            (_, told) => {
                let (number, why) = told.split_once(' ').unwrap_or(("", told));
                Err(failed(number.parse().unwrap_or(libc::EIO), why))
            }
        }
    }
}

fn told(running: &mut Option<Helper>, store: &Path, line: &str, lowest: i32) -> FsResult<String> {
    let mut helper = if let Some(helper) = running.take() {
        helper
    } else {
        // It leaves this process's directory.
        let store = std::path::absolute(store).unwrap_or_else(|_| store.to_path_buf());
        let arguments = [OsStr::new("--store"), store.as_os_str(), OsStr::new("streams"), OsStr::new("--serve")];
        Helper::start(&arguments, lowest).map_err(|error| failed(libc::EIO, &error.to_string()))?
    };
    let answer = helper.ask(line, PATIENCE).map_err(|error| failed(libc::EIO, &error.to_string()))?;
    *running = Some(helper);
    Ok(answer)
}

fn failed(errno: i32, why: &str) -> FsError {
    FsError::because(errno, ErrorKind::Io, "an HDF5 file as a stream", why)
}
