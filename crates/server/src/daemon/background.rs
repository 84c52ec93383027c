//! A background daemon: a process in its own session, which reports when it serves or why it cannot.
#![allow(unsafe_code, reason = "no safe interface marks all descriptors at once")]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use cenote_device::StoreDir;
use cenote_model::{Error, ErrorKind, Result};
use cenote_wire::{Greeting, decode_greeting, encode_greeting};

use super::DaemonOptions;

/// Set in the environment of the process that becomes the background daemon.
const CHILD_VARIABLE: &str = "CENOTE_DAEMON_CHILD";
/// Its value if a client asked for the daemon.
const FOR_CLIENT: &str = "client";
/// Set by a client that starts a daemon: a start-up error goes to standard output, for [`read_report`].
pub const REPORT_VARIABLE: &str = "CENOTE_DAEMON_REPORT";
/// Log file of a background daemon, for what it would otherwise print.
pub const LOG_FILE: &str = "daemon.log";
/// The previous log file.
pub const LOG_FILE_BEFORE: &str = "daemon.log.1";
const LOG_BYTES_MAX: u64 = 1 << 20;
const READY: &str = "ready";

/// Returns true in the process that is to serve.
pub(super) fn is_child() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some()
}

/// Returns true in the process that is to serve, if a client started it.
pub(super) fn is_for_client() -> bool {
    std::env::var_os(CHILD_VARIABLE).is_some_and(|value| value == FOR_CLIENT)
}

/// Keeps inherited descriptors from the daemon: a pipe of the program that started this process would stay open as long
/// as the daemon lives, and a reader would wait that long for its end.
fn keep_descriptors_from_child() {
    const FIRST: libc::c_uint = 3;
    // SAFETY: marks descriptors to be closed by exec; closes none here.
    let done = unsafe {
        libc::syscall(libc::SYS_close_range, FIRST, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC as libc::c_uint)
    };
    if done == 0 {
        return;
    }
    // Kernels before 5.11: mark them one by one.
    let names = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let open: Vec<i32> = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    for fd in open.into_iter().filter(|fd| *fd >= FIRST as i32) {
        // SAFETY: as above; a number that is no longer a descriptor is an error that changes nothing.
        unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    }
}

/// Starts this program again as the daemon, and returns when that serves.
pub(super) fn start(dir: &Path, options: &DaemonOptions) -> Result<()> {
    let result = start_child(dir, options);
    if let Err(error) = &result
        && std::env::var_os(REPORT_VARIABLE).is_some()
    {
        println!("{}", encode_report(error));
    }
    result
}

fn start_child(dir: &Path, options: &DaemonOptions) -> Result<()> {
    let subject = || format!("daemon for {}", dir.display());
    let program = std::env::current_exe().map_err(|error| Error::io(subject(), &error))?;
    let mut command = Command::new(program);
    command.arg("serve").arg(dir);
    if let Some(patience) = options.idle_exit {
        command.arg("--idle-exit").arg(patience.as_secs().to_string());
    }
    if options.create {
        command.arg("--create");
    }
    command.args(&options.background_args);
    let log = open_log(dir)?;
    let asked_by = if std::env::var_os(REPORT_VARIABLE).is_some() { FOR_CLIENT } else { "user" };
    command.env(CHILD_VARIABLE, asked_by).env_remove(REPORT_VARIABLE);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log).process_group(0).current_dir("/");
    keep_descriptors_from_child();
    let mut child = command.spawn().map_err(|error| Error::io(subject(), &error))?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        let _ = BufReader::new(output).read_line(&mut line);
    }
    match line.trim() {
        READY => Ok(()),
        "" => {
            let _ = child.wait();
            // It may have been killed: another attempt may succeed.
            Err(Error::new(ErrorKind::Disconnected, subject())
                .because("it ended before it served")
                .try_next(format!("see {}", dir.join(LOG_FILE).display())))
        }
        report => {
            let _ = child.wait();
            Err(read_report(report).unwrap_or_else(|| Error::new(ErrorKind::Internal, subject()).because(report)))
        }
    }
}

/// Begins anew in this process, with the same arguments. Returns only if that fails.
pub(super) fn replace(dir: &Path) -> Error {
    let subject = || format!("daemon for {}", dir.display());
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return Error::io(subject(), &error),
    };
    keep_descriptors_from_child();
    let error = Command::new(program).args(std::env::args_os().skip(1)).exec();
    Error::io(subject(), &error)
}

/// The log file; nothing is logged if the directory does not exist yet or is full. A link in its place is an error.
fn open_log(dir: &Path) -> Result<Stdio> {
    let log = StoreDir::open(dir).and_then(|dir| dir.log(LOG_FILE, LOG_FILE_BEFORE, LOG_BYTES_MAX));
    match log {
        Ok(log) => Ok(log.into()),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Err(error),
        Err(_) => Ok(Stdio::null()),
    }
}

/// In the daemon: reports to the starting process that it serves, or why not, and leaves that process's session.
pub(super) fn report(error: Option<&Error>) {
    let _ = rustix::process::setsid();
    let mut output = std::io::stdout();
    let _ = match error {
        None => writeln!(output, "{READY}"),
        Some(error) => writeln!(output, "{}", encode_report(error)),
    };
    let _ = output.flush();
    // The reader sees the end of the pipe only when nobody holds the writing end.
    if let Ok(null) = OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}

/// An error as one line, for [`read_report`].
pub fn encode_report(error: &Error) -> String {
    let mut bytes = Vec::new();
    encode_greeting(&Greeting::Refused(error.clone()), &mut bytes);
    bytes.iter().fold(String::from("!"), |text, byte| text + &format!("{byte:02x}"))
}

/// Parses the error in a report, if it is one.
pub fn read_report(line: &str) -> Option<Error> {
    let hex = line.trim().strip_prefix('!')?;
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let bytes: Vec<u8> = digits?.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect();
    match decode_greeting(&bytes) {
        Ok(Greeting::Refused(error)) => Some(error),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_survive_the_report() {
        let error = Error::new(ErrorKind::VersionMismatch, "störe").because("why").try_next("next");
        assert_eq!(read_report(&encode_report(&error)), Some(error));
        assert_eq!(read_report("ready"), None);
        assert_eq!(read_report("!zz"), None);
        assert_eq!(read_report("!ä"), None);
    }
}
