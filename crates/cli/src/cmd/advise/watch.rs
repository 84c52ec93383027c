//! Running the program with the tracer in it, and gathering what it and its children leave.

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

/// Room that there must be for traces: that of some dozens of processes at a time.
const ROOM_BYTES: u64 = 64 << 20;
/// What directories of traces begin with; then comes the number of the process that made them.
const DIR_BEGIN: &str = "cenote-trace-";
/// Traces that are kept while processes live.
const ENDING: &str = ".tally";

/// What was seen.
pub struct Seen {
    /// Files and memory.
    pub run: Run,
    /// Seconds from the beginning to the end.
    pub wall_s: f64,
    /// How the program ended, as a shell says it.
    pub exit_code: u8,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Traces that could not be read, and why.
    pub damaged: Vec<String>,
    /// Samples of memory.
    pub samples: u64,
}

/// A directory for traces that goes with this.
struct TraceDir(PathBuf);

impl TraceDir {
    /// In memory where there is room for it, else where temporary files are.
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
            Error::new(ErrorKind::Full, "a place for traces")
                .because("neither /dev/shm nor the directory for temporary files has 64 MiB free")
                .try_next("make room, or set TMPDIR")
        }))
    }
}

/// Takes away what commands have left that were killed.
fn sweep(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(DIR_BEGIN)?.parse::<u32>().ok());
        let is_left =
            owner.is_some_and(|pid| pid == std::process::id() || !Path::new(&format!("/proc/{pid}")).exists());
        // Others' cannot be taken away, and are not even tried by root.
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
    // Held before the program is there, so that none is lost; it begins with an empty mask all the same.
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
            // Not waited for yet, so the number is still its own.
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

/// What processes have left, and leave.
struct Gathered {
    dir: PathBuf,
    run: Run,
    damaged: Vec<String>,
}

impl Gathered {
    fn new(dir: PathBuf) -> Self {
        Self { dir, run: Run::default(), damaged: Vec::new() }
    }
    /// Names of traces in the order of process and beginning.
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
        // What is not one is not read: it may be of any size.
        let found = if bytes == Tally::BYTES as u64 {
            read::read(&fs::read(&path).ok()?).map_err(|damage| damage.to_string())
        } else {
            Err(format!("{bytes} bytes, where a trace has {}", Tally::BYTES))
        };
        found.map_err(|why| self.damaged.push(format!("{name}: {why}"))).ok()
    }
    /// Takes what has ended, so that it does not take room, and gives what lives.
    fn look(&mut self) -> Vec<ProcessTally> {
        let names = self.names();
        let mut living = Vec::new();
        for (at, name) in names.iter().enumerate() {
            let Some((pid, _)) = place_of(name) else { continue };
            // A process that has a later one became another program.
            let is_last = names.get(at + 1).and_then(|next| place_of(next)).is_none_or(|(next, _)| next != pid);
            if is_last && Path::new(&format!("/proc/{pid}")).exists() {
                if self.wants_samples(name) {
                    let known = self.damaged.len();
                    living.extend(self.read(name));
                    // It may be in the making; in the end it counts.
                    self.damaged.truncate(known);
                }
            } else {
                self.take(name);
            }
        }
        living
    }
    /// Most processes have nothing to sample: their traces are not read each time.
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
    /// Takes everything.
    fn all(&mut self) {
        for name in self.names() {
            self.take(&name);
        }
    }
}

/// The process and the beginning that a name tells.
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
        // No process has this number: it is above the most that Linux gives.
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
