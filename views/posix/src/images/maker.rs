//! The helper program that makes images: started when first needed, asked in lines of text, one at a time, and ended with this process.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use crate::sync::Mutex;
use cenote::{ErrorKind, Helper};

use crate::{FsError, FsResult};

/// Time limit of an answer; a file with very many chunks takes some seconds. The helper itself gives up slightly later.
const PATIENCE: Duration = Duration::from_mins(2);

/// Request to the helper.
pub enum Ask {
    /// Bring the names up to date with the existing HDF5 files.
    Names,
    /// Bring the image at this path up to date with its file.
    Image(Vec<u8>),
}

/// The helper, if it was started.
#[derive(Debug, Default)]
pub struct Maker(Mutex<Option<Helper>>);

impl Maker {
    /// Sends a request, and waits for the answer. `lowest`: see [`crate::Options::descriptors_from`].
    pub fn ask(&self, store: &Path, what: &Ask, lowest: i32) -> FsResult<()> {
        let line = match what {
            Ask::Names => "names".to_owned(),
            Ask::Image(path) => path.iter().fold("image ".to_owned(), |line, byte| line + &format!("{byte:02x}")),
        };
        let mut running = self.0.lock();
        // A forked child starts its own helper.
        let was_running = running.take_if(|helper| !helper.is_own()).is_none() && running.is_some();
        let mut answer = told(&mut running, store, &line, lowest);
        if was_running && answer.is_err() {
            answer = told(&mut running, store, &line, lowest); // restarts a helper that was stopped since, once
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
        // The helper leaves this process's working directory, so the path must be absolute.
        let store = std::path::absolute(store).unwrap_or_else(|_| store.to_path_buf());
        let arguments = [OsStr::new("--store"), store.as_os_str(), OsStr::new("images"), OsStr::new("--serve")];
        Helper::start(&arguments, lowest).map_err(|error| failed(libc::EIO, &error.to_string()))?
    };
    let answer = helper.ask(line, PATIENCE).map_err(|error| failed(libc::EIO, &error.to_string()))?;
    *running = Some(helper);
    Ok(answer)
}

fn failed(errno: i32, why: &str) -> FsError {
    FsError::because(errno, ErrorKind::Io, "byte image of an HDF5 file", why)
}
