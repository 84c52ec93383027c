//! Two Python processes with h5py and one shared file in the store, beside a native file for each on tmpfs.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cenote::Mode;

use crate::Outcome;
use crate::measure::{Beside, Report};
use crate::places::{BenchDir, memory};

/// One run takes about two seconds on a quiet machine.
const PATIENCE: Duration = Duration::from_mins(2);

fn connector() -> Outcome<PathBuf> {
    let given = std::env::var_os("HDF5_PLUGIN_PATH").map(PathBuf::from);
    let built = [PathBuf::from("target/hdf5-plugin"), PathBuf::from("target/release")];
    for dir in given.into_iter().chain(built) {
        if dir.join("libcenote_hdf5.so").exists() {
            return Ok(dir.canonicalize()?);
        }
    }
    Err("the connector is not built (make build)".into())
}

fn python() -> PathBuf {
    let own = PathBuf::from(".venv/bin/python");
    if own.exists() { own } else { PathBuf::from("python3") }
}

/// Runs the pair of processes; returns MiB/s of write and of read. Fails if they do not end in time.
fn run(place: &Path, words: &[&str], settings: &[(&str, String)]) -> Outcome<[f64; 2]> {
    let (out, err) = (place.join("out"), place.join("err"));
    let mut command = Command::new(python());
    command.arg("benches/hdf5_pair.py").args(words).env_remove("HDF5_VOL_CONNECTOR");
    command.envs(settings.iter().map(|(name, value)| (name, value)));
    // Files rather than pipes: a process that inherits a pipe and lives on would delay the pipe's end.
    command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?).process_group(0);
    let mut child = command.spawn()?;
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if begin.elapsed() > PATIENCE {
            if let Some(group) = rustix::process::Pid::from_raw(child.id().cast_signed()) {
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            let _ = child.wait();
            let said = std::fs::read_to_string(&err).unwrap_or_default();
            let last = said.lines().last().unwrap_or("nothing").to_owned();
            return Err(format!("{} did not end within {PATIENCE:?}; it said: {last}", words.join(" ")).into());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    if !status.success() {
        let text = std::fs::read_to_string(&err).unwrap_or_default();
        return Err(text.lines().last().unwrap_or("the Python processes failed").to_owned().into());
    }
    let text = std::fs::read_to_string(&out)?;
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    figures.try_into().map_err(|_| format!("unexpected: {text}").into())
}

/// Runs that yield two figures each, for two bars: the second bar uses what the first has measured.
struct Runs<'a> {
    run: &'a dyn Fn() -> Outcome<[f64; 2]>,
    reads: RefCell<VecDeque<f64>>,
}

impl<'a> Runs<'a> {
    fn new(run: &'a dyn Fn() -> Outcome<[f64; 2]>) -> Self {
        Self { run, reads: RefCell::default() }
    }
    fn write(&self) -> Outcome<f64> {
        let [write, read] = (self.run)()?;
        self.reads.borrow_mut().push_back(read);
        Ok(write)
    }
    fn read(&self) -> Outcome<f64> {
        let kept = self.reads.borrow_mut().pop_front();
        kept.map_or_else(|| (self.run)().map(|[_, read]| read), Ok)
    }
}

/// Writes and reads, 1 MiB pieces, two processes.
pub fn both(report: &mut Report) -> Outcome {
    let plugins = connector()?;
    let mib = report.settings.scaled(1024).max(64).to_string();
    let mut place = BenchDir::in_memory("hdf5")?;
    // On a disk, with room for two versions: the bytes of one run are written back while those of the next
    // one are stored.
    let disk = BenchDir::on_disk(&report.settings.dir, "hdf5")?;
    let beneath = crate::places::file(disk.path().join("file-tier"), 3072);
    let store = place.store("store", Mode::Daemon, vec![memory(4096), beneath])?;
    let store_dir = place.path().join("store");
    let ours_env = [
        ("HDF5_PLUGIN_PATH", plugins.to_string_lossy().into_owned()),
        ("HDF5_VOL_CONNECTOR", "cenote".to_owned()),
        ("CENOTE_STORE", store_dir.to_string_lossy().into_owned()),
    ];
    let native = place.path().join("native");
    std::fs::create_dir_all(&native)?;
    let shared = place.path().join("shared.h5").to_string_lossy().into_owned();
    let native = native.to_string_lossy().into_owned();
    // Neither side is measured while the other's writes are still being written back.
    let calm = || -> Outcome { Ok(store.flush()?) };
    let ours = || calm().and_then(|()| run(place.path(), &["shared", &shared, &mib], &ours_env));
    let theirs = || calm().and_then(|()| run(place.path(), &["own", &native, &mib], &[]));
    let (ours, theirs) = (Runs::new(&ours), Runs::new(&theirs));
    let name = "native HDF5 on tmpfs, file per process";
    let (mut their_write, mut their_read) = (|| theirs.write(), || theirs.read());
    let write = Beside { name, wanted: Some(1.5), run: &mut their_write };
    report.pairs("hdf5.write_1m", "MiB/s", &mut || ours.write(), &mut [write])?;
    let read = Beside { name, wanted: Some(1.0), run: &mut their_read };
    report.pairs("hdf5.read_1m", "MiB/s", &mut || ours.read(), &mut [read])
}
