//! `images`: HDF5 files of the store as byte images, for the command line and for views that start this command.

use std::ffi::OsString;
use std::io::{BufRead, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use cenote::model::size::human;
use cenote::{Error, ErrorKind, Store};
use cenote_device::store_dir::{Purpose, StoreDir};
use cenote_hdf5::ffi::{Api, load};
use cenote_hdf5::file;
use cenote_hdf5::interchange::{self, image::Image};
use cenote_posix::{FileSystem, FsError, IMAGES_CONTAINER, ImageFile, Options};
use clap::Args;
use rustix::fs::Mode;
use serde_json::{Value, json};

use super::mount::background::keep_descriptors_from_child;
use super::{Access, Context};
use crate::failure::{Done, Failure};

pub const HELP: &str = "\
The HDF5 file /data/run.h5 of the store is the file /hdf5/data/run.h5 of a mount, of programs under `cenote run`, and of Python's
store.files, and the key data/run.h5 of the bucket hdf5: bytes that every HDF5 reads without a plugin. They are made when they are
looked at, and anew when the file has changed. Raw data are not copied for it. This command makes all of them now.
The page docs/hdf5-files.md says what is there.";

/// Exit code of `--adopt` if there is nothing to adopt.
const NOTHING: u8 = 4;
/// Locked in the store's directory while a file is adopted. The name is that of earlier versions, which lock it too.
const LOCK_FILE: &str = "streams.lock";
/// Slightly longer than views wait for an answer.
const PATIENCE: Duration = Duration::from_secs(130);
/// Attempts if a file changes while it is adopted or looked at.
const TRIES: u32 = 5;

/// Arguments of `images`.
#[derive(Args, Debug)]
pub struct ImagesArgs {
    /// Make images on request from standard input (views use this)
    #[arg(long, hide = true)]
    serve: bool,
    /// Do so in a separate process, without waiting for it
    #[arg(long, hide = true, requires = "serve")]
    background: bool,
    /// Make the .h5 file that was put into the container `hdf5` a file of the store at this path, as HDF5 programs do when they open
    /// it; exit code 4 if none was put there
    #[arg(long, value_name = "PATH", conflicts_with = "serve")]
    adopt: Option<PathBuf>,
    /// The libhdf5 to use (a shared library)
    #[arg(long, value_name = "LIBRARY", env = "CENOTE_HDF5_LIBRARY", hide_env_values = true)]
    hdf5: Option<PathBuf>,
}

pub fn images(context: &mut Context<'_>, args: &ImagesArgs) -> Done {
    if args.background {
        return start_again();
    }
    let library = load::library(args.hdf5.as_deref());
    let opened = context.open(Access::Write).and_then(|store| {
        let fs = FileSystem::new(&store, Options { keeps_images: true, ..Options::default() }).map_err(told)?;
        Ok(Maker { library, store, fs })
    });
    if args.serve {
        return match opened {
            Ok(maker) => maker.serve(),
            Err(error) => answer(&Err(error)),
        };
    }
    let maker = opened?;
    if let Some(file) = &args.adopt {
        let file = std::path::absolute(file).map_err(|error| Error::io(format!("file {}", file.display()), &error))?;
        return if maker.adopt(&file)? { Ok(()) } else { Err(Failure::Program(NOTHING)) };
    }
    maker.names()?;
    let mut all = Vec::new();
    for (path, _) in maker.fs.images().map_err(told)? {
        all.push((shown(&path), maker.make(&path)));
    }
    if context.out.json {
        return context.out.document(&Value::Array(all.iter().map(document).collect()));
    }
    for (path, made) in &all {
        let what = match made {
            Ok(made) => {
                format!(
                    "{} ({} shared, {} written)",
                    human(made.size_bytes),
                    human(made.shared_bytes),
                    human(made.kept_bytes)
                )
            }
            Err(error) => error.to_string(),
        };
        context.out.line(format!("/{IMAGES_CONTAINER}{path}: {what}"))?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` takes it")]
fn lost(error: std::io::Error) -> Error {
    Error::io("standard streams of `cenote images`", &error)
}

/// Starts this command again in the background, with the same standard streams.
fn start_again() -> Done {
    let failed = |error: std::io::Error| Error::io("a process that makes images", &error);
    let words = crate::words().into_iter().skip(1).filter(|word| word != "--background");
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    command.args(words).current_dir("/").process_group(0);
    keep_descriptors_from_child();
    command.spawn().map_err(failed)?;
    Ok(())
}

/// Answers a request.
fn answer(done: &cenote::Result<()>) -> Done {
    let line = match done {
        Ok(()) => "ok".to_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => "ok".to_owned(), // the lookup that follows reports it
        Err(error) => {
            let errno = if error.kind() == ErrorKind::Exists { libc::EEXIST } else { libc::EIO };
            format!("error {errno} {}", error.to_string().replace('\n', " "))
        }
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(lost)?;
    Ok(())
}

/// Ends this process if a request does not end: the view no longer waits for it.
fn watch(told: &Receiver<()>) {
    while told.recv().is_ok() {
        if told.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
            std::process::exit(1);
        }
    }
}

fn document((path, made): &(String, cenote::Result<Image>)) -> Value {
    match made {
        Ok(made) => json!({
            "path": format!("/{IMAGES_CONTAINER}{path}"), "size_bytes": made.size_bytes,
            "shared_bytes": made.shared_bytes, "written_bytes": made.kept_bytes,
        }),
        Err(error) => json!({ "path": format!("/{IMAGES_CONTAINER}{path}"), "error": error.to_string() }),
    }
}

fn shown(path: &[u8]) -> String {
    format!("/{}", String::from_utf8_lossy(path))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` takes it")]
fn told(error: FsError) -> Error {
    let kind = error.kind().unwrap_or(ErrorKind::Io);
    Error::new(kind, "byte images of HDF5 files").because(error.to_string())
}

struct Maker {
    library: cenote::Result<&'static Api>,
    store: Store,
    fs: FileSystem,
}

impl Maker {
    fn library(&self) -> cenote::Result<&'static Api> {
        // A missing library must not look like a missing file.
        self.library.clone().map_err(|error| match error.kind() {
            ErrorKind::NotFound => {
                Error::new(ErrorKind::Unsupported, "byte image of an HDF5 file").because(error.to_string())
            }
            _ => error,
        })
    }

    /// Answers requests line by line until the input ends.
    fn serve(&self) -> Done {
        let (tell, told) = channel();
        std::thread::spawn(move || watch(&told));
        for line in std::io::stdin().lock().lines() {
            let line = line.map_err(lost)?;
            // Without the watching thread, the work continues.
            let _ = tell.send(());
            let done = match line.split_once(' ') {
                Some(("image" | "stream", hex)) => self.make(&of_hex(hex)).map(|_| ()),
                _ => self.names(),
            };
            let _ = tell.send(());
            answer(&done)?;
        }
        Ok(())
    }

    /// Makes an ordinary file that was put where `file` is shown a file of the store. Returns false if there is none.
    fn adopt(&self, file: &Path) -> cenote::Result<bool> {
        let path = in_tree(file);
        let failed = |error: std::io::Error| Error::io(format!("file {LOCK_FILE} of the store"), &error);
        let mode = Mode::RUSR | Mode::WUSR;
        let lock = StoreDir::open(self.store.dir())?.file_or_new(LOCK_FILE, Purpose::Write, mode)?;
        lock.lock().map_err(failed)?;
        for _ in 0..TRIES {
            if file.symlink_metadata().is_ok() {
                return Ok(true); // another process was faster
            }
            let Some((ino, object)) = self.fs.put_file(&path).map_err(told)? else { return Ok(false) };
            let h5 = self.library()?;
            let (container, key) = (object.container(), object.key());
            let before = container.changes(&[], &[key.object])?;
            interchange::import_object(h5, &object, file)?;
            let placed = if container.changes(&[], &[key.object])? == before {
                let (container, _) = file::open::locate(&self.store, file)?;
                let image = ImageFile { container: container.id(), in_place_of: Some(ino), ..of_stub(file) };
                self.fs.put_image(&path, &image).map_err(told)
            } else {
                Err(Error::new(ErrorKind::Busy, shown(&path)).because("it changed while it was imported"))
            };
            match placed {
                Ok(()) => return Ok(true),
                Err(error) => {
                    // Undo: the bytes that were put there are still in place.
                    std::fs::remove_file(file).map_err(|error| Error::io(shown(&path), &error))?;
                    if !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Exists | ErrorKind::Conflict) {
                        return Err(error);
                    }
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, shown(&path))
            .because(format!("it changed during each of {TRIES} attempts to import it"))
            .try_next("open it again when nobody writes it any more"))
    }

    /// Brings the names up to date with the existing files.
    fn names(&self) -> cenote::Result<()> {
        let files = file::open::files(&self.store)?;
        let there = self.fs.images().map_err(told)?;
        let is_new = |path: &[u8]| !there.iter().any(|(there, _)| *there == path);
        let new = files.iter().map(|(file, id)| (in_tree(file), ImageFile { container: *id, ..of_stub(file) }));
        // First what is new: the directories that it shares with what is gone stay, and nobody loses the way who passes through them.
        let late: Vec<_> =
            new.filter(|(path, image)| is_new(path) && self.fs.put_image(path, image).is_err()).collect();
        for (path, _) in &there {
            if !files.iter().any(|(file, _)| in_tree(file) == *path) {
                self.fs.drop_image(path).map_err(told)?;
            }
        }
        // Something that is gone now may have been in the way, as a file where a directory is to be.
        for (path, image) in late {
            match self.fs.put_image(&path, &image) {
                // An ordinary file keeps its name: a look at the image reports that.
                Err(error) if error.kind() == Some(ErrorKind::Exists) => {}
                done => done.map_err(told)?,
            }
        }
        Ok(())
    }

    /// Makes an image of a file. `NotFound`: there is no such file; what a file lacks for the moment is looked for again.
    fn image(&self, h5: &'static Api, file: &Path) -> cenote::Result<Image> {
        let mut tries = 0;
        loop {
            match interchange::image(h5, &self.store, file) {
                Err(error) if error.kind() == ErrorKind::NotFound && file::open::locate(&self.store, file).is_ok() => {
                    tries += 1;
                    if tries == TRIES {
                        let why = format!("in each of {TRIES} attempts, a part of it was not found: {error}");
                        return Err(Error::new(ErrorKind::Busy, file.display().to_string())
                            .because(why)
                            .try_next("look at it again when nobody writes it; else `cenote verify`"));
                    }
                }
                made => return made,
            }
        }
    }

    /// Brings the image at a path of the tree up to date with its file.
    fn make(&self, path: &[u8]) -> cenote::Result<Image> {
        let h5 = self.library()?;
        let file = PathBuf::from(OsString::from_vec([b"/", path].concat()));
        let made = match self.image(h5, &file) {
            Ok(made) => made,
            Err(error) => {
                if error.kind() == ErrorKind::NotFound {
                    self.fs.drop_image(path).map_err(told)?;
                }
                return Err(error);
            }
        };
        let key = made.object.key();
        let image = ImageFile {
            object: Some(key),
            container: key.container,
            changes: made.sources.changes,
            indices: made.sources.indices.clone(),
            objects: made.sources.objects.clone(),
            ..of_stub(&file)
        };
        if let Err(error) = self.fs.put_image(path, &image) {
            // Report the first error.
            let _ = made.object.container().delete_object(key.object);
            return Err(told(error));
        }
        Ok(made)
    }
}

/// Takes the rights of a file from its stub.
fn of_stub(file: &Path) -> ImageFile {
    match file.metadata() {
        Ok(stub) => ImageFile { mode: stub.mode(), uid: stub.uid(), gid: stub.gid(), ..ImageFile::default() },
        Err(_) => ImageFile { mode: 0o400, ..ImageFile::default() },
    }
}

fn in_tree(file: &Path) -> Vec<u8> {
    let bytes = file.as_os_str().as_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes).to_vec()
}

fn of_hex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).filter_map(|two| u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()).collect()
}
