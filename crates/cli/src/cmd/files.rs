//! `cp` and `df`, and the parts of `clean` and `doctor` about HDF5 files: those whose stubs are gone, and those that wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cenote::model::size::{count, human};
use cenote::{Error, ErrorKind, Store};
use cenote_hdf5::file::copying;
use cenote_hdf5::file::kept::{self, Report, Waiting};
use clap::Args;
use serde_json::{Value, json};

use super::{Access, Context};
use crate::copy::Progress;
use crate::failure::Done;
use crate::out::escaped;

/// Help of `cp`.
pub const CP_HELP: &str = "\
  cenote cp run.h5 before.h5              a file of its own, whatever becomes of run.h5
  cenote cp run.bak restored.h5           where run.bak is a copy of the stub, and its state was kept
  cenote cp --current run.bak run.h5      the file that a copy of a stub stands for, as it is now

The stub of an HDF5 file is small text that only stands for it: `cp` copies the text, this copies the file.";

/// Arguments of `cp`.
#[derive(Args, Debug)]
pub struct CpArgs {
    /// HDF5 file of the store
    pub from: PathBuf,
    /// Path of the copy
    pub to: PathBuf,
    /// Replace an existing file
    #[arg(short, long)]
    pub force: bool,
    /// For a copied stub: copy the file as it is now, not as it was when the stub was copied
    #[arg(long)]
    pub current: bool,
}

pub fn cp(context: &mut Context<'_>, args: &CpArgs) -> Done {
    let to = if args.to.is_dir() { args.to.join(args.from.file_name().unwrap_or_default()) } else { args.to.clone() };
    if !args.force && to.symlink_metadata().is_ok() {
        return Err(Error::new(ErrorKind::Exists, format!("file {}", to.display()))
            .try_next("choose another path, or replace it with -f")
            .into());
    }
    let store = context.open(Access::Write)?;
    let progress = Progress::bytes(context.progress(), &args.from.display().to_string(), None);
    let mut done = 0;
    let mut tell = |bytes: u64| {
        done += bytes;
        progress.at(done);
    };
    let bytes = copying::copy(&store, &args.from, &to, args.current, &mut tell)?;
    progress.done();
    if context.out.json {
        return context.out.document(&json!({ "file": to.display().to_string(), "bytes": bytes }));
    }
    context.out.line(format!("{}: {}", to.display(), human(bytes)))
}

/// A file in the report.
struct FileRow {
    label: String,
    bytes: u64,
}

fn told(store: &Store, container: cenote::ContainerId) -> FileRow {
    // A file deleted meanwhile takes no space.
    let info = store.container_by_id(container).and_then(|container| container.info());
    info.map_or_else(
        |_| FileRow { label: format!("container {}", container.0), bytes: 0 },
        |info| FileRow {
            label: info.label.strip_prefix("hdf5:").unwrap_or(&info.label).to_owned(),
            bytes: info.stored_bytes,
        },
    )
}

fn waiting_document(store: &Store, waiting: &Waiting) -> Value {
    let told = told(store, waiting.container);
    json!({
        "file": told.label, "container": waiting.container.0, "stored_bytes": told.bytes, "why": waiting.why,
        "waits_s": waiting.since.elapsed().unwrap_or_default().as_secs(),
    })
}

pub fn df(context: &mut Context<'_>) -> Done {
    let store = context.open(Access::Read)?;
    let (devices, report) = (store.devices()?, kept::look_at_all(&store, false, false)?);
    let stats = store.stats()?;
    let sum = |containers: &mut dyn Iterator<Item = cenote::ContainerId>| -> u64 {
        containers.map(|container| told(&store, container).bytes).sum()
    };
    let gone = sum(&mut report.gone.iter().copied());
    let waits = sum(&mut report.waiting.iter().map(|waiting| waiting.container));
    if context.out.json {
        let waiting: Vec<Value> = report.waiting.iter().map(|waiting| waiting_document(&store, waiting)).collect();
        return context.out.document(&json!({
            "tiers": devices.iter().map(super::tier::document).collect::<Vec<_>>(),
            "values": {
                "here_bytes": stats.values_here_bytes, "budget_bytes": stats.values_budget_bytes,
                "away_bytes": stats.values_away_bytes,
            },
            "hdf5": {
                "there": report.there, "gone_and_open": report.open, "gone": report.gone.len(), "gone_bytes": gone,
                "waiting": waiting, "waiting_bytes": waits,
            },
        }));
    }
    super::tier::table(context.out, &devices)?;
    context.out.line("")?;
    context.out.line(format!("values of records: {}", super::status::values(&stats)))?;
    context.out.line(format!("HDF5 files: {}, seen by their stubs", count(report.there as u64)))?;
    context.out.line(format!("  removed, open in programs:      {}", count(report.open as u64)))?;
    context.out.line(format!(
        "  removed, freed by and by:       {} with {}",
        count(report.gone.len() as u64),
        human(gone)
    ))?;
    context.out.line(format!(
        "  may be removed, and wait:       {} with {}",
        count(report.waiting.len() as u64),
        human(waits)
    ))?;
    if report.waiting.is_empty() { Ok(()) } else { context.out.line("`cenote clean` lists those that wait") }
}

/// Returns the result for `doctor`.
pub fn health(context: &Context<'_>) -> (bool, String) {
    let looked = context.open(Access::Read).and_then(|store| kept::look_at_all(&store, false, false));
    match looked {
        Ok(Report { there, open, gone, waiting }) => (
            waiting.is_empty(),
            format!(
                "{} there; {} removed and open, {} to be freed; {} may be removed and wait",
                count(there as u64),
                count(open as u64),
                count(gone.len() as u64),
                count(waiting.len() as u64)
            ),
        ),
        Err(error) if error.kind() == ErrorKind::NotFound => (true, "no store".into()),
        Err(error) => (false, error.to_string()),
    }
}

/// Frees removed HDF5 files, and lists those that may have been removed; `also_waiting` frees these too.
pub fn clean(context: &mut Context<'_>, also_waiting: bool) -> Done {
    let store = match context.open(Access::Write) {
        Ok(store) => store,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let report = kept::look_at_all(&store, true, also_waiting)?;
    if context.out.json {
        return Ok(());
    }
    if !report.gone.is_empty() {
        context.out.line(format!("{} HDF5 files that were removed: freed", count(report.gone.len() as u64)))?;
    }
    for waiting in &report.waiting {
        let told = told(&store, waiting.container);
        let hours = waiting.since.elapsed().unwrap_or_default().as_secs() / 3600;
        let (label, bytes) = (escaped(told.label.as_bytes()), human(told.bytes));
        context.out.line(format!("{label}: {bytes} wait since {hours} h: {}", waiting.why))?;
    }
    if !report.waiting.is_empty() {
        context.out.line(
            "`cenote clean --waiting` frees them now; else the grace period does (CENOTE_HDF5_GRACE_S, a week)",
        )?;
    }
    Ok(())
}

/// Interval at which a daemon looks at the stubs.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Frees removed files while this process serves the store, in a separate process: the daemon contains no client.
pub fn free_in_background(dir: &Path) {
    let dir = dir.to_path_buf();
    // Without the thread, the creation of new files frees the removed ones.
    let _ = std::thread::Builder::new().name("hdf5-stubs".into()).spawn(move || {
        loop {
            std::thread::sleep(LOOK_EVERY);
            if !kept::has_removed(&dir) {
                continue;
            }
            let Ok(program) = std::env::current_exe() else { return };
            let mut command = std::process::Command::new(program);
            command.arg("--store").arg(&dir).args(["--quiet", "clean", "--files"]);
            // A failure is retried in the next round, and reported to whoever asks.
            let _ = command.stdin(std::process::Stdio::null()).stdout(std::process::Stdio::null()).status();
        }
    });
}
