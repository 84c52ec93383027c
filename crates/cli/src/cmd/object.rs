//! `put`, `get`, `cat`, `truncate`: copy bytes in and out.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use cenote::{Container, ContainerSpec, Error, ErrorKind, ObjectId};

use super::{Access, Context};
use crate::args::PutArgs;
use crate::copy::{self, Destination, Progress};
use crate::failure::Done;
use crate::target::{self, Target};

pub fn put(context: &mut Context<'_>, args: &PutArgs) -> Done {
    // Open the file first: if it cannot be read, the store is not touched.
    let (mut from, len) = source(&args.file)?;
    let store = context.open(Access::Write)?;
    let (label, id) = match target::either::<ObjectId>(&store, &args.target)? {
        Target::Container(label) => (label, None),
        Target::Inside(label, id) => (label, Some(id)),
    };
    let container = if args.parents {
        store.open_container(label, &ContainerSpec::default())?
    } else {
        store.container(label).map_err(|error| match error.kind() {
            ErrorKind::NotFound => error.try_next(format!("make it with `cenote mk {label}`, or put with -p")),
            _ => error,
        })?
    };
    let progress = Progress::bytes(context.progress(), &args.file.display().to_string(), len);
    let destination = destination(&container, id, args)?;
    let name = args.file.display().to_string();
    let (object, bytes) = copy::into_store(&destination, from.as_mut(), &progress, &name)?;
    progress.done();
    if args.flush {
        object.flush()?;
    }
    if context.out.json {
        let name = object.key().object.to_string();
        return context.out.document(&serde_json::json!({ "container": label, "object": name, "size": bytes }));
    }
    context.out.line(format!("{label}/{}", object.key().object))
}

fn source(file: &Path) -> cenote::Result<(Box<dyn Read>, Option<u64>)> {
    if file == Path::new("-") {
        return Ok((Box::new(io::stdin().lock()), None));
    }
    let failed = |error: io::Error| Error::io(format!("file {}", file.display()), &error);
    let opened = File::open(file).map_err(failed)?;
    let meta = opened.metadata().map_err(failed)?;
    if meta.is_dir() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", file.display()))
            .because("it is a directory")
            .try_next("put its files one by one"));
    }
    Ok((Box::new(opened), meta.is_file().then_some(meta.len())))
}

/// Returns the destination: a new object, or one that the user wants replaced.
fn destination<'a>(container: &'a Container, id: Option<ObjectId>, args: &PutArgs) -> cenote::Result<Destination<'a>> {
    let mut destination = Destination {
        container,
        id,
        block_shift: args.block_size,
        replace: false,
        mode: args.buffered.map(Into::into),
    };
    if let Some(id) = id {
        match container.object(id).stat() {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Ok(_) if args.force => destination.replace = true,
            Ok(_) => {
                return Err(Error::new(ErrorKind::Exists, format!("object {id}"))
                    .try_next("replace its content with -f, or omit the id to create another object"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(destination)
}

pub fn get(context: &mut Context<'_>, name: &OsStr, file: &Path, force: bool) -> Done {
    let store = context.open(Access::Read)?;
    let object = target::object(&store, name)?;
    let size = object.stat()?.size;
    if !force && file.symlink_metadata().is_ok() {
        return Err(Error::new(ErrorKind::Exists, format!("file {}", file.display()))
            .try_next("replace it with -f")
            .into());
    }
    let progress = Progress::bytes(context.progress(), &name.to_string_lossy(), Some(size));
    copy::into_file(&object, size, file, &progress)?;
    progress.done();
    if context.out.json {
        let shown = file.display().to_string();
        return context.out.document(&serde_json::json!({ "file": shown, "size": size }));
    }
    Ok(())
}

pub fn cat(context: &mut Context<'_>, name: &OsStr, offset: u64, length: Option<u64>) -> Done {
    let store = context.open(Access::Read)?;
    let object = target::object(&store, name)?;
    let size = object.stat()?.size;
    let end = length.map_or(size, |length| size.min(offset.saturating_add(length)));
    let mut piece = vec![0; copy::PIECE_BYTES];
    let mut at = offset;
    while at < end {
        let wanted = (end - at).min(piece.len() as u64) as usize;
        let got = object.read_at(at, &mut piece[..wanted])?;
        context.out.bytes(&piece[..got])?;
        if got < wanted {
            break;
        }
        at += got as u64;
    }
    Ok(())
}

pub fn truncate(context: &mut Context<'_>, name: &OsStr, size: u64) -> Done {
    let store = context.open(Access::Write)?;
    Ok(target::object(&store, name)?.truncate(size)?)
}
