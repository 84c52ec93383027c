//! `snapshot`: of containers, and of HDF5 files by path.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use cenote::model::size::{count, human};
use cenote::{Container, Error, ErrorKind, ObjectId, Result, SnapshotInfo, Store};
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Access, Context};
use crate::failure::Done;
use crate::out::escaped;
use crate::target;

/// Prefix of the labels of containers that are HDF5 files; the absolute path follows.
const HDF5_PREFIX: &str = "hdf5:";

/// Snapshot commands.
#[derive(Subcommand, Debug)]
pub enum SnapshotCommand {
    /// Keep the current content of a container for reading; no data are copied
    Create {
        /// CONTAINER, or the path of an HDF5 file that lives in the store
        container: OsString,
        /// Name of the snapshot
        name: String,
        /// Replace a snapshot of that name
        #[arg(short, long)]
        replace: bool,
        /// Further containers or files, all at one moment: each gets its snapshot, or none does
        #[arg(long, value_name = "CONTAINER", num_args = 1..)]
        also: Vec<OsString>,
    },
    /// List the snapshots
    List {
        /// CONTAINER, or the path of an HDF5 file
        container: OsString,
    },
    /// Create a file by which HDF5 programs read a snapshot of an HDF5 file; for other containers, list its objects
    Open {
        /// CONTAINER, or the path of an HDF5 file
        container: OsString,
        /// Name of the snapshot
        name: String,
        /// The file to create [default: FILE@NAME]
        stub: Option<PathBuf>,
    },
    /// Restore a container's content to that of a snapshot, which stays
    Rollback {
        /// CONTAINER, or the path of an HDF5 file
        container: OsString,
        /// Name of the snapshot
        name: String,
        /// Further containers or files: all are rolled back, or none is
        #[arg(long, value_name = "CONTAINER", num_args = 1..)]
        also: Vec<OsString>,
    },
    /// Delete snapshots
    Delete {
        /// CONTAINER, or the path of an HDF5 file
        container: OsString,
        /// Names of snapshots
        #[arg(required = true)]
        names: Vec<String>,
        /// Further containers or files with snapshots of these names
        #[arg(long, value_name = "CONTAINER", num_args = 1..)]
        also: Vec<OsString>,
    },
}

pub fn snapshot(context: &mut Context<'_>, command: &SnapshotCommand) -> Done {
    match command {
        SnapshotCommand::Create { container, name, replace, also } => {
            let store = context.open(Access::Write)?;
            let containers = all_of(&store, container, also)?;
            if *replace { store.replace_snapshot(&containers, name) } else { store.snapshot(&containers, name) }?;
            match &containers[..] {
                _ if !context.out.json => Ok(()),
                [one] => context.out.document(&document(&found(one, name)?)),
                all => {
                    let made: Result<Vec<SnapshotInfo>> = all.iter().map(|container| found(container, name)).collect();
                    context.out.document(&made?.iter().map(document).collect())
                }
            }
        }
        SnapshotCommand::List { container } => {
            let store = context.open(Access::Read)?;
            let snapshots = container_or_file(&store, container)?.snapshots()?;
            list(context, &snapshots)
        }
        SnapshotCommand::Open { container, name, stub } => {
            let store = context.open(Access::Read)?;
            open(context, &container_or_file(&store, container)?, name, stub.as_deref())
        }
        SnapshotCommand::Rollback { container, name, also } => {
            let store = context.open(Access::Write)?;
            let containers = all_of(&store, container, also)?;
            Ok(store.roll_back(&containers, name)?)
        }
        SnapshotCommand::Delete { container, names, also } => {
            let store = context.open(Access::Write)?;
            let containers = all_of(&store, container, also)?;
            for (container, name) in containers.iter().flat_map(|of| names.iter().map(move |name| (of, name))) {
                found(container, name)?; // a wrong name changes nothing
            }
            for name in names {
                store.delete_snapshot(&containers, name)?;
            }
            Ok(())
        }
    }
}

/// The containers or files of one command. Those that are named twice are there once.
fn all_of(store: &Store, first: &OsStr, also: &[OsString]) -> Result<Vec<Container>> {
    let mut all: Vec<Container> = Vec::new();
    for name in std::iter::once(first).chain(also.iter().map(OsString::as_os_str)) {
        let container = container_or_file(store, name)?;
        if all.iter().all(|known| known.id() != container.id()) {
            all.push(container);
        }
    }
    Ok(all)
}

/// Returns a container by its label, or an HDF5 file by its path.
fn container_or_file(store: &Store, name: &OsStr) -> Result<Container> {
    let text = target::label(name)?;
    match store.container(text) {
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        result => return result,
    }
    let path = std::path::absolute(Path::new(name)).map_err(|error| Error::io(format!("file {text}"), &error))?;
    if path.is_file() {
        match cenote_hdf5::file::open::container_at(store, &path) {
            Err(error) if error.kind() == ErrorKind::Corrupt => {} // another kind of file with that name
            result => return result,
        }
    }
    // The connector names files by the canonical path of their directory.
    let path = match (path.parent().map(std::fs::canonicalize), path.file_name()) {
        (Some(Ok(parent)), Some(name)) => parent.join(name),
        _ => path,
    };
    match store.container(&format!("{HDF5_PREFIX}{}", path.display())) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(Error::new(ErrorKind::NotFound, format!("container or HDF5 file `{text}`"))
                .because(format!(
                    "store {} has no container of that label, and none for the file {}",
                    store.dir().display(),
                    path.display()
                ))
                .try_next("`cenote ls` lists the containers; name another store with --store"))
        }
        result => result,
    }
}

fn found(container: &Container, name: &str) -> Result<SnapshotInfo> {
    let info = container.info()?;
    container.snapshots()?.into_iter().find(|snapshot| snapshot.name == name).ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("snapshot `{name}` of container `{}`", info.label))
            .try_next("`cenote snapshot list` lists the snapshots of a container")
    })
}

fn list(context: &mut Context<'_>, snapshots: &[SnapshotInfo]) -> Done {
    if context.out.json {
        return context.out.document(&snapshots.iter().map(document).collect());
    }
    let rows: Vec<Vec<String>> = snapshots
        .iter()
        .map(|snapshot| {
            vec![
                escaped(snapshot.name.as_bytes()),
                time(snapshot.unix_ms),
                count(snapshot.epoch),
                count(snapshot.objects),
                count(snapshot.indices),
                count(snapshot.records),
                human(snapshot.stored_bytes),
            ]
        })
        .collect();
    context.out.table(&["snapshot", "made (UTC)", ">epoch", ">objects", ">indices", ">records", ">bytes"], &rows)
}

fn document(snapshot: &SnapshotInfo) -> Value {
    json!({
        "name": snapshot.name,
        "id": snapshot.id.0,
        "made_unix_ms": snapshot.unix_ms,
        "epoch": snapshot.epoch,
        "objects": snapshot.objects,
        "indices": snapshot.indices,
        "records": snapshot.records,
        "stored_bytes": snapshot.stored_bytes,
    })
}

/// Formats a time as `2026-01-31 23:59:59`.
fn time(unix_ms: u64) -> String {
    let (days, seconds) = ((unix_ms / 86_400_000) as i64, unix_ms / 1000 % 86_400);
    // Days since 0000-03-01, in eras of 400 years; years begin in March, so that leap days come last.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

/// For an HDF5 file, creates a stub by which programs open the snapshot. For any other container, lists the snapshot.
fn open(context: &mut Context<'_>, container: &Container, name: &str, stub: Option<&Path>) -> Done {
    let label = container.info()?.label;
    let snapshot = found(container, name)?;
    if let Some(file) = label.strip_prefix(HDF5_PREFIX) {
        let path = stub.map_or_else(|| Path::new(&format!("{file}@{name}")).to_path_buf(), Path::to_path_buf);
        let text = stub_text(&container.store().dir().display().to_string(), file, name);
        write_new(&path, &text).map_err(|error| {
            Error::io(format!("file {}", path.display()), &error).try_next("choose another path for it")
        })?;
        if context.out.json {
            return context.out.document(&json!({ "file": path, "snapshot": document(&snapshot) }));
        }
        return context.out.line(path.display().to_string());
    }
    if stub.is_some() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("container `{label}`"))
            .because("it is not an HDF5 file, so its snapshot cannot be opened as a file")
            .try_next("omit the file name to list the objects of the snapshot")
            .into());
    }
    let opened = container.open_snapshot(name)?;
    let mut objects: Vec<ObjectId> = Vec::new();
    loop {
        let page = opened.objects(objects.last().copied(), 4096)?;
        if page.is_empty() {
            break;
        }
        objects.extend(page);
    }
    if context.out.json {
        let objects: Vec<String> = objects.iter().map(ToString::to_string).collect();
        return context.out.document(&json!({ "snapshot": document(&snapshot), "objects": objects }));
    }
    objects.iter().try_for_each(|object| context.out.line(object.to_string()))
}

/// Returns a stub in the format that `views/hdf5/src/file/stub.rs` reads.
fn stub_text(store: &str, file: &str, snapshot: &str) -> Vec<u8> {
    let mut text = b"\x89HDF\r\n\x1a\n\ncenote-hdf5-snapshot 1\n".to_vec();
    text.extend_from_slice(
        format!(
            "This is a snapshot of an HDF5 file that lives in a Cenote store; this text only stands for it.\n\
             Read it with any HDF5 program through the cenote VOL connector:\n\
             \x20 HDF5_PLUGIN_PATH=<directory of libcenote_hdf5.so> HDF5_VOL_CONNECTOR='cenote store={store}'\n\
             It may be copied, moved and removed at will.\n\
             snapshot: {snapshot}\npath: {file}\nstore: {store}\n"
        )
        .as_bytes(),
    );
    text
}

fn write_new(path: &Path, text: &[u8]) -> std::io::Result<()> {
    use std::io::Write;
    std::fs::OpenOptions::new().write(true).create_new(true).open(path)?.write_all(text)
}

#[cfg(test)]
mod tests {
    use super::time;

    #[test]
    fn moments_are_dates() {
        assert_eq!(time(0), "1970-01-01 00:00:00");
        assert_eq!(time(951_827_696_000), "2000-02-29 12:34:56");
        assert_eq!(time(1_798_761_599_999), "2026-12-31 23:59:59");
    }
}
