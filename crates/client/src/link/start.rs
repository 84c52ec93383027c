//! Starting a daemon.
#![allow(unsafe_code, reason = "dladdr, to find the library that contains this code")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cenote_model::{Error, ErrorKind, Result};
use cenote_server::daemon::{REPORT_VARIABLE, read_report};

/// Names the daemon's program.
const PROGRAM_VARIABLE: &str = "CENOTE_BIN";
/// Idle seconds after which a daemon that a client started leaves.
const IDLE_VARIABLE: &str = "CENOTE_IDLE_EXIT";
const IDLE_EXIT: &str = "60";
const PROGRAM: &str = "cenote";

/// Starts a daemon for `dir`. Returns when it serves, or its start-up error (`Busy` if another process has the store).
pub(crate) fn start_daemon(dir: &Path) -> Result<()> {
    let program = find_program()?;
    let idle_exit = std::env::var(IDLE_VARIABLE).unwrap_or_else(|_| IDLE_EXIT.into());
    let output = Command::new(&program)
        .arg("serve")
        .arg(dir)
        .args(["--background", "--idle-exit", &idle_exit])
        .env(REPORT_VARIABLE, "1")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::io(format!("daemon program {}", program.display()), &error))?;
    if output.status.success() {
        return Ok(());
    }
    if let Some(signal) = output.status.signal() {
        // It was killed during its start: another attempt may succeed.
        return Err(Error::new(ErrorKind::Disconnected, format!("daemon for {}", dir.display()))
            .because(format!("{} was ended by signal {signal} before it served", program.display()))
            .try_next("see daemon.log in the store's directory"));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    Err(said.lines().find_map(read_report).unwrap_or_else(|| {
        let complaint = String::from_utf8_lossy(&output.stderr);
        // It was killed during its start, perhaps deliberately: another attempt may succeed.
        let kind = output.status.signal().map_or(ErrorKind::Internal, |_| ErrorKind::Disconnected);
        Error::new(kind, format!("daemon for {}", dir.display())).because(format!(
            "{} ended with {}: {}",
            program.display(),
            output.status,
            complaint.trim()
        ))
    }))
}

/// Finds the daemon's program: the one that `CENOTE_BIN` names, else `cenote` beside this program, beside the library
/// that contains this code, or in `PATH`.
pub(crate) fn find_program() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os(PROGRAM_VARIABLE).filter(|named| !named.is_empty()) {
        let named = PathBuf::from(named);
        if is_program(&named) {
            return Ok(named);
        }
        return Err(missing(&format!("{PROGRAM_VARIABLE} names {}, which cannot be run", named.display())));
    }
    let beside = [std::env::current_exe().ok(), this_library()].into_iter().flatten();
    let beside = beside.flat_map(|file| {
        let near = file.parent().map(Path::to_path_buf);
        let above = near.as_deref().and_then(Path::parent).map(Path::to_path_buf);
        [near, above].into_iter().flatten().collect::<Vec<_>>()
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    beside
        .chain(in_path)
        .map(|dir| dir.join(PROGRAM))
        .find(|program| is_program(program))
        .ok_or_else(|| missing("it is neither beside this program nor in PATH"))
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

#[cold]
fn missing(why: &str) -> Error {
    Error::new(ErrorKind::NotFound, "daemon program `cenote`")
        .because(why)
        .try_next(format!("install it, or name it in the environment variable {PROGRAM_VARIABLE}"))
}

/// The shared library (or program) that contains this code.
fn this_library() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = this_library as fn() -> Option<PathBuf> as *const libc::c_void;
    // SAFETY: any address may be asked about; `info` is filled when the answer is not 0.
    let found = unsafe { libc::dladdr(here, info.as_mut_ptr()) } != 0;
    // SAFETY: all zero is a valid `Dl_info`, and dladdr has filled it if it returned so.
    let info = unsafe { info.assume_init() };
    if !found || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gave a string that lives as long as the library, which contains this code.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(name.to_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_has_this_code_is_known() {
        let here = this_library().unwrap().canonicalize().unwrap();
        assert_eq!(here, std::env::current_exe().unwrap().canonicalize().unwrap());
    }
}
