//! Names of files: created, examined and removed by two processes, each in its own directory, as mdtest does; through
//! `cenote-posix` itself, on tmpfs, and on the file system of `--dir`.

use std::fs::OpenOptions as FileOptions;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use cenote::{Mode, OpenOptions, Store};
use cenote_posix::{Caller, FileSystem, Follow, Kind, Make, OpenFlags, Options, SetXattr};

use crate::Outcome;
use crate::measure::{Beside, Report};
use crate::places::{BenchDir, memory};

/// Number of processes.
const PROCESSES: usize = 2;
/// Files of each process in a round.
const FILES: u64 = 20_000;
/// Operations on the files, in this order.
const PHASES: [&str; 3] = ["create", "stat", "remove"];

/// The interface by which a child does the phases.
trait Names {
    fn begin(&mut self, dir: &str) -> Outcome;
    fn create(&mut self, path: &str) -> Outcome;
    fn stat(&mut self, path: &str) -> Outcome;
    fn remove(&mut self, path: &str) -> Outcome;
    /// Publishes the changes to the other process.
    fn end(&mut self) {}
}

/// Files of the kernel, below a directory.
struct Kernel(PathBuf);

impl Names for Kernel {
    fn begin(&mut self, dir: &str) -> Outcome {
        Ok(std::fs::create_dir_all(self.0.join(dir))?)
    }
    fn create(&mut self, path: &str) -> Outcome {
        FileOptions::new().read(true).write(true).create(true).truncate(false).open(self.0.join(path))?;
        Ok(())
    }
    fn stat(&mut self, path: &str) -> Outcome {
        std::fs::symlink_metadata(self.0.join(path))?;
        Ok(())
    }
    fn remove(&mut self, path: &str) -> Outcome {
        Ok(std::fs::remove_file(self.0.join(path))?)
    }
}

/// Files of a store, by their paths, as a preload library accesses them.
struct Files {
    fs: FileSystem,
    me: Caller,
    consistency: String,
    _store: Store,
}

impl Names for Files {
    fn begin(&mut self, dir: &str) -> Outcome {
        let what = Make { kind: Kind::Directory, mode: 0o755, rdev: 0, target: Vec::new() };
        let made = self.fs.make(&self.me, self.fs.root(), dir.as_bytes(), &what)?.ino;
        let word = self.consistency.as_bytes();
        Ok(self.fs.set_xattr(&self.me, made, b"user.cenote.consistency", word, SetXattr::Any)?)
    }
    fn create(&mut self, path: &str) -> Outcome {
        let (dir, name) = self.fs.resolve_parent(&self.me, self.fs.root(), path.as_bytes())?;
        let flags = OpenFlags { read: true, write: true, create: true, ..OpenFlags::default() };
        Ok(self.fs.open_at(&self.me, dir, name, flags, 0o644)?.0.close()?)
    }
    fn stat(&mut self, path: &str) -> Outcome {
        self.fs.resolve(&self.me, self.fs.root(), path.as_bytes(), Follow::No)?;
        Ok(())
    }
    fn remove(&mut self, path: &str) -> Outcome {
        let (dir, name) = self.fs.resolve_parent(&self.me, self.fs.root(), path.as_bytes())?;
        Ok(self.fs.unlink(&self.me, dir, name)?)
    }
    fn end(&mut self) {
        drop(self.fs.before_fork()); // publishes gathered names
    }
}

/// The program: `--child names KIND DIR WHO FILES`, with KIND `kernel`, `strict` or `commit`. For each line
/// `PHASE ROUND` it does that phase and answers with the seconds that it took.
pub fn child(kind: &str, dir: &str, who: &str, files: &str) -> Outcome {
    let files: u64 = files.parse()?;
    let mut names: Box<dyn Names> = if kind == "kernel" {
        Box::new(Kernel(dir.into()))
    } else {
        let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() })?;
        let fs = FileSystem::new(&store, Options { container: Some("bench".into()), ..Options::default() })?;
        let me = Caller { uid: 0, gid: 0, groups: [].into(), is_checked: false };
        Box::new(Files { fs, me, consistency: kind.to_owned(), _store: store })
    };
    println!("ready");
    for line in std::io::stdin().lines() {
        let line = line?;
        let Some((phase, round)) = line.split_once(' ') else { return Err("no phase and round".into()) };
        let dir = format!("{kind}-{who}-{round}"); // one store holds the files of all kinds
        if phase == PHASES[0] {
            names.begin(&dir)?;
        }
        let paths: Vec<String> = (0..files).map(|n| format!("{dir}/file.{n}")).collect();
        let begin = Instant::now();
        for path in &paths {
            match phase {
                "create" => names.create(path)?,
                "stat" => names.stat(path)?,
                _ => names.remove(path)?,
            }
        }
        names.end();
        println!("{}", begin.elapsed().as_secs_f64());
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// A child, and the pipes to it.
struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Worker {
    fn start(kind: &str, dir: &Path, who: usize, files: u64) -> Outcome<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--child", "names", kind]).arg(dir).args([who.to_string(), files.to_string()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (to, from) = (child.stdin.take().ok_or("no way in")?, child.stdout.take().ok_or("no way out")?);
        let mut worker = Self { child, to, from: BufReader::new(from) };
        worker.answer()?;
        Ok(worker)
    }
    fn answer(&mut self) -> Outcome<String> {
        let mut line = String::new();
        if self.from.read_line(&mut line)? == 0 {
            return Err("a child failed".into());
        }
        Ok(line.trim().to_owned())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// All children of one kind, and the results of the last round.
struct Team {
    workers: Vec<Worker>,
    files: u64,
    round: u64,
    /// Operations per second of each phase, from rounds whose results are still unused.
    rates: [Vec<f64>; 3],
}

impl Team {
    fn start(kind: &str, dir: &Path, files: u64) -> Outcome<Self> {
        let workers = (0..PROCESSES).map(|who| Worker::start(kind, dir, who, files)).collect::<Outcome<_>>()?;
        Ok(Self { workers, files, round: 0, rates: [const { Vec::new() }; 3] })
    }
    /// One measurement of a phase. Each round measures all phases; the results of the others are kept for later calls.
    fn rate(&mut self, phase: usize) -> Outcome<f64> {
        if let Some(rate) = self.rates[phase].pop() {
            return Ok(rate);
        }
        self.round += 1;
        for (name, rates) in PHASES.iter().zip(&mut self.rates) {
            for worker in &mut self.workers {
                writeln!(worker.to, "{name} {}", self.round)?;
            }
            let mut longest = 0f64;
            for worker in &mut self.workers {
                longest = longest.max(worker.answer()?.parse()?);
            }
            rates.push((self.workers.len() as u64 * self.files) as f64 / longest);
        }
        self.rates[phase].pop().ok_or_else(|| "no rate".into())
    }
}

/// Both consistencies beside tmpfs and the file system of `--dir`.
pub fn names(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let mut disk = BenchDir::on_disk(&report.settings.dir, "names")?;
    let tmpfs = BenchDir::in_memory("names")?;
    let store = disk.store("store", Mode::Daemon, vec![memory(64)])?;
    let files = report.settings.scaled(FILES);
    let (dir, kernel) = (disk.path().join("store"), disk.path().join("files"));
    std::fs::create_dir_all(&kernel)?;
    let mut on_tmpfs = Team::start("kernel", tmpfs.path(), files)?;
    let mut on_disk = Team::start("kernel", &kernel, files)?;
    for (kind, wanted) in [("strict", 0.4), ("commit", 1.0)] {
        let mut ours = Team::start(kind, &dir, files)?;
        for (at, phase) in PHASES.iter().enumerate() {
            report.pairs(
                &format!("names.{kind}_{phase}"),
                "1/s",
                &mut || ours.rate(at),
                &mut [
                    Beside { name: "tmpfs", wanted: Some(wanted), run: &mut || on_tmpfs.rate(at) },
                    Beside {
                        name: "file system of --dir",
                        wanted: (at == 0).then_some(3.0),
                        run: &mut || on_disk.rate(at),
                    },
                ],
            )?;
        }
    }
    drop(store);
    Ok(())
}
