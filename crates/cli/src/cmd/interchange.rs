//! `import` and `export`: whole HDF5 files between native files and the store.

use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind};
use cenote_hdf5::ffi::load;
use cenote_hdf5::interchange::{self, Copied};

use super::{Access, Context};
use crate::args::{InterchangeArgs, StageArgs};
use crate::copy::Progress;
use crate::failure::Done;

pub fn import(context: &mut Context<'_>, args: &InterchangeArgs) -> Done {
    let to = target(args)?;
    let size = std::fs::metadata(&args.from).map_err(|error| Error::io(shown(&args.from), &error))?.len();
    let h5 = load::library(args.hdf5.as_deref())?;
    let store = context.open(Access::Write)?;
    let progress = Progress::bytes(context.progress(), &args.from.display().to_string(), Some(size));
    let mut tell = |bytes: u64| {
        progress.at(bytes.min(size));
        Ok(())
    };
    let copied = interchange::import(h5, &store, &args.from, &to, &mut tell)?;
    progress.done();
    report(context, &to, &copied)
}

pub fn export(context: &mut Context<'_>, args: &InterchangeArgs) -> Done {
    if args.to.is_none() {
        return Err(Error::new(ErrorKind::InvalidInput, shown(&args.from))
            .because("a native file cannot be where the file of the store is")
            .try_next("choose another path for it")
            .into());
    }
    let to = target(args)?;
    let h5 = load::library(args.hdf5.as_deref())?;
    // A reader would suffice to read; but files are found by their stubs, and a renamed stub updates its
    // container's label.
    let store = context.open(Access::Write)?;
    let size = interchange::export::stored_bytes(h5, &store, &args.from)?;
    let progress = Progress::bytes(context.progress(), &args.from.display().to_string(), Some(size));
    let mut tell = |bytes: u64| {
        progress.at(bytes.min(size));
        Ok(())
    };
    let copied = interchange::export(h5, &store, &args.from, &to, &mut tell)?;
    progress.done();
    report(context, &to, &copied)
}

pub fn stage(context: &mut Context<'_>, args: &StageArgs) -> Done {
    check(&args.to, args.force)?;
    let size = std::fs::metadata(&args.from).map_err(|error| Error::io(shown(&args.from), &error))?.len();
    let store = context.open(Access::Write)?;
    let progress = Progress::bytes(context.progress(), &args.from.display().to_string(), Some(size));
    let mut tell = |bytes: u64| {
        progress.at(bytes);
        Ok(())
    };
    let bytes = interchange::stage(&store, &args.from, &args.to, &mut tell)?;
    progress.done();
    moved(context, &args.to, bytes)
}

pub fn unstage(context: &mut Context<'_>, args: &StageArgs) -> Done {
    check(&args.to, args.force)?;
    let store = context.open(Access::Write)?;
    let size = cenote_hdf5::file::staged_object(&store, &args.from)?.stat()?.size;
    let progress = Progress::bytes(context.progress(), &args.from.display().to_string(), Some(size));
    let mut tell = |bytes: u64| {
        progress.at(bytes);
        Ok(())
    };
    let bytes = interchange::unstage(&store, &args.from, &args.to, &mut tell)?;
    progress.done();
    moved(context, &args.to, bytes)
}

fn moved(context: &mut Context<'_>, to: &Path, bytes: u64) -> Done {
    if context.out.json {
        return context.out.document(&serde_json::json!({ "file": to.display().to_string(), "bytes": bytes }));
    }
    context.out.line(format!("{}: {}", to.display(), cenote::model::size::human(bytes)))
}

/// Returns the path of the copy; an error if something there may not be replaced.
fn target(args: &InterchangeArgs) -> cenote::Result<PathBuf> {
    let to = args.to.clone().unwrap_or_else(|| args.from.clone());
    check(&to, args.force)?;
    Ok(to)
}

fn check(to: &Path, force: bool) -> cenote::Result<()> {
    if !force && to.symlink_metadata().is_ok() {
        return Err(Error::new(ErrorKind::Exists, shown(to)).try_next("choose another path, or replace it with -f"));
    }
    Ok(())
}

fn shown(path: &Path) -> String {
    format!("file {}", path.display())
}

fn report(context: &mut Context<'_>, to: &Path, copied: &Copied) -> Done {
    let Copied { groups, datasets, datatypes, attributes, bytes } = *copied;
    if context.out.json {
        return context.out.document(&serde_json::json!({
            "file": to.display().to_string(), "groups": groups, "datasets": datasets, "datatypes": datatypes,
            "attributes": attributes, "stored_bytes": bytes,
        }));
    }
    let size = cenote::model::size::human(bytes);
    context.out.line(format!("{}: {groups} groups, {datasets} datasets, {attributes} attributes, {size}", to.display()))
}
