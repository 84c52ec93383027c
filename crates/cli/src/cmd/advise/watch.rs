//! Runs the program with the tracer preloaded, and collects the traces of it and its children.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cenote::{Error, ErrorKind, Result};
use cenote_tally::{ProcessTally, Run, Tally, read};

use super::AdviseArgs;
use super::sample::Sampler;
use super::signals::{Came, Signals};

/// Required space for traces: those of several dozen processes at a time.
const ROOM_BYTES: u64 = 64 << 20;
/// Prefix of directories for traces; the number of the process that created them follows.
const DIR_BEGIN: &str = "cenote-trace-";
/// Extension of traces of living processes.
const ENDING: &str = ".tally";

/// Result of watching.
pub struct Seen {
    /// Files and memory.
    pub run: Run,
    /// Seconds from start to end.
    pub wall_s: f64,
    /// Exit code of the program, as a shell gives it.
    pub exit_code: u8,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Traces that could not be read, and why.
    pub damaged: Vec<String>,
    /// Number of memory samples.
    pub samples: u64,
}

/// A directory for traces, removed on drop.
struct TraceDir(PathBuf);

impl TraceDir {
    /// Creates it in shared memory if there is space, otherwise in the directory for temporary files.
    fn new() -> Result<Self> {
        let has_room =
            |dir: &Path| rustix::fs::statvfs(dir).is_ok_and(|found| found.f_bavail * found.f_frsize >= ROOM_BYTES);
        let places = [PathBuf::from("/dev/shm"), std::env::temp_dir()];
        let mut why = None;
        for place in places.iter().filter(|place| has_room(place)) {
            sweep(place);
            let dir = place.join(format!("{DIR_BEGIN}{}", std::process::id()));
            match fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Self(dir)),
                Err(error) => why = Some(Error::io(format!("directory {}", dir.display()), &error)),
            }
        }
        Err(why.unwrap_or_else(|| {
            Error::new(ErrorKind::Full, "directory for traces")
                .because("neither /dev/shm nor the directory for temporary files has 64 MiB free")
                .try_next("free some space, or set TMPDIR to another directory")
        }))
    }
}

/// Removes directories that killed commands have left.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(DIR_BEGIN)?.parse::<u32>().ok());
        let is_left =
            owner.is_some_and(|pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists());
        // Other users' directories cannot be removed, and root does not try.
        let own = rustix::process::geteuid().as_raw();
        if is_left && entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == own) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for TraceDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the program to its end.
pub fn watch(program: &Path, args: &AdviseArgs, tracer: &Path) -> Result<Seen> {
    let dir = TraceDir::new()?;
    let mut preload = OsString::from(tracer);
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    // Block signals before the program starts, so that none is lost; it still starts with an empty mask.
    let signals = Signals::hold();
    let begin = Instant::now();
    let mut child = Command::new(program)
        .arg0(&args.program[0])
        .args(&args.program[1..])
        .env("LD_PRELOAD", preload)
        .env("CENOTE_TRACE_DIR", &dir.0)
        .env("CENOTE_TRACE_MEMORY", args.memory.to_string())
        .spawn()
        .map_err(|error| Error::io(format!("program {}", program.display()), &error))?;
    let mut gathered = Gathered::new(dir.0.clone());
    let mut sampler = Sampler::new();
    let status = loop {
        let wait = sampler.next().saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        if let Came::Sent(signal) = signals.next(wait)
            && let Some(signal) = rustix::process::Signal::from_named_raw(signal)
            && let Ok(pid) = i32::try_from(child.id())
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            // The process was not waited for yet, so the number is still its own.
            let _ = rustix::process::kill_process(pid, signal);
        }
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(Error::io(format!("program {}", program.display()), &error)),
        }
        if Instant::now() >= sampler.next() {
            let living = gathered.look();
            sampler.sample(&living, &mut gathered.run);
        }
    };
    let wall_s = begin.elapsed().as_secs_f64();
    gathered.all();
    let signal = status.signal();
    let exit_code = match (status.code(), signal) {
        (Some(code), _) => code as u8,
        (None, signal) => 128 + signal.unwrap_or(0) as u8,
    };
    Ok(Seen { run: gathered.run, wall_s, exit_code, signal, damaged: gathered.damaged, samples: sampler.samples })
}

/// Traces that processes have left so far.
struct Gathered {
    dir: PathBuf,
    run: Run,
    damaged: Vec<String>,
}

impl Gathered {
    fn new(dir: PathBuf) -> Self {
        Self { dir, run: Run::default(), damaged: Vec::new() }
    }
    /// Returns the names of traces in the order of process and start.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|name| name.ends_with(ENDING)).collect();
        names.sort_by_key(|name| place_of(name));
        names
    }
    fn read(&mut self, name: &str) -> Option<ProcessTally> {
        let path = self.dir.join(name);
        let bytes = fs::metadata(&path).ok()?.len();
        // A file that is no trace is not read: it may have any size.
        let found = if bytes == Tally::BYTES as u64 {
            read::read(&fs::read(&path).ok()?).map_err(|damage| damage.to_string())
        } else {
            Err(format!("{bytes} bytes, where a trace has {}", Tally::BYTES))
        };
        found.map_err(|why| self.damaged.push(format!("{name}: {why}"))).ok()
    }
    /// Takes and removes the traces of ended processes, to free their space, and returns those of living
    /// ones.
    fn look(&mut self) -> Vec<ProcessTally> {
        let names = self.names();
        let mut living = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let Some((pid, _)) = place_of(name) else { continue };
            // A process with a later trace has executed another program.
            let is_last = names.get(at + 1).and_then(|next| place_of(next)).is_none_or(|(next, _)| next != pid);
            if is_last && Path::new(&format!("/proc/{pid}")).exists() {
                if self.wants_samples(name) {
                    let known = self.damaged.len();
                    living.extend(self.read(name));
                    // A trace of a living process may be incomplete; damage counts only at the end.
                    self.damaged.truncate(known);
                }
            } else {
                self.take(name);
            }
        }
        living
    }
    /// Returns whether a process needs samples: most do not, and their traces are not read each time.
    fn wants_samples(&self, name: &str) -> bool {
        let mut header = [0; read::HEADER_BYTES];
        let file = fs::File::open(self.dir.join(name));
        file.and_then(|file| file.read_exact_at(&mut header, 0)).is_ok() && read::wants_samples(&header)
    }
    fn take(&mut self, name: &str) {
        if let Some(process) = self.read(name) {
            self.run.add(&process);
        }
        let _ = fs::remove_file(self.dir.join(name));
    }
    /// Takes all traces.
    fn all(&mut self) {
        for name in self.names() {
            self.take(&name);
        }
    }
}

/// Parses process and start in a name.
fn place_of(name: &str) -> Option<(u32, u64)> {
    let (pid, begin) = name.strip_suffix(ENDING)?.split_once('-')?;
    Some((pid.parse().ok()?, begin.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_killed_commands_left_is_taken_away() {
        let place = std::env::temp_dir().join(format!("cenote-advise-sweep-{}", std::process::id()));
        // No process has this number: it is above Linux's maximum.
        let names = ["cenote-trace-4194999", "cenote-trace-1", "cenote-trace-x", "other-4194999"];
        for name in names {
            fs::create_dir_all(place.join(name)).unwrap();
        }
        sweep(&place);
        let left = names.map(|name| place.join(name).exists());
        assert_eq!(left, [false, true, true, true]);
        fs::remove_dir_all(&place).unwrap();
        assert_eq!(place_of("12-345.tally"), Some((12, 345)));
        assert_eq!((place_of("12.tally"), place_of("a-1.tally"), place_of("1-2")), (None, None, None));
    }
}
