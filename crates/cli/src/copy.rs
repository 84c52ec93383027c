//! Long copies between files and objects: in pieces, with holes for zeros, with progress and an ETA.

use std::fs::{self, File};
use std::io::{self, IsTerminal, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use cenote::{Container, Durability, Error, Object, ObjectId, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Bytes copied at once: enough for every tier's bandwidth, few enough to be negligible.
pub const PIECE_BYTES: usize = 4 << 20;
/// Maximum number of bytes in one transaction.
const TRANSACTION_BYTES: u64 = 16 << 30;
/// Smaller copies show no progress bar.
const SHOWN_FROM_BYTES: u64 = 64 << 20;

/// A progress bar on standard error, if that is a terminal and the copy is long enough.
pub struct Progress(ProgressBar);

impl Progress {
    /// Counts bytes; shows the rate and the remaining time.
    pub fn bytes(wanted: bool, name: &str, len: Option<u64>) -> Self {
        let shown = wanted && io::stderr().is_terminal() && len.is_none_or(|len| len >= SHOWN_FROM_BYTES);
        if !shown {
            return Self(ProgressBar::hidden());
        }
        let template = match len {
            Some(_) => "{prefix} [{bar:30}] {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}, {eta} left",
            None => "{prefix} {spinner} {binary_bytes}, {binary_bytes_per_sec}",
        };
        let bar = ProgressBar::with_draw_target(len, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("##."));
        }
        bar.set_prefix(crate::out::escaped(name.as_bytes()));
        Self(bar)
    }
    /// Adds to the count.
    pub fn add(&self, bytes: u64) {
        self.0.inc(bytes);
    }
    /// Sets the number of bytes done.
    pub fn at(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
    /// Sets the number of bytes left.
    pub fn left(&self, bytes: u64) {
        if let Some(all) = self.0.length() {
            self.0.set_position(all.saturating_sub(bytes));
        }
    }
    /// Removes the bar.
    pub fn done(&self) {
        self.0.finish_and_clear();
    }
}

/// Destination of a copy.
pub struct Destination<'a> {
    /// The container.
    pub container: &'a Container,
    /// The object's id; random if `None`.
    pub id: Option<ObjectId>,
    /// log2 of its block size; the container's if `None`.
    pub block_shift: Option<u8>,
    /// The object exists, and its content is to be replaced.
    pub replace: bool,
    /// Buffering; that of the container if `None`.
    pub mode: Option<Durability>,
}

/// Copies everything from `from` into an object as its whole content. Pieces of zeros become holes.
///
/// One transaction: the copy is complete or absent, whatever happens. Very long copies take several, one for each
/// [`TRANSACTION_BYTES`]; if a later one fails, a new object is deleted again.
pub fn into_store(to: &Destination<'_>, from: &mut dyn Read, progress: &Progress, name: &str) -> Result<(Object, u64)> {
    let mut committed = None;
    let copied = copy_in(to, from, progress, name, &mut committed);
    if let (Err(_), Some(half), false) = (&copied, committed, to.replace) {
        // A partial copy is useless; report the first error.
        let _ = to.container.delete_object(half);
    }
    copied
}

fn copy_in(
    to: &Destination<'_>,
    from: &mut dyn Read,
    progress: &Progress,
    name: &str,
    committed: &mut Option<ObjectId>,
) -> Result<(Object, u64)> {
    let store = to.container.store();
    let mut transaction = store.begin();
    let object = match to.id.filter(|_| to.replace) {
        Some(id) => {
            let object = to.container.object(id);
            transaction.truncate(&object, 0)?;
            object
        }
        None => transaction.create_object(to.container, to.id, to.block_shift)?,
    };
    let object = match to.mode {
        Some(mode) => object.buffered(mode)?,
        None => object,
    };
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, mut gathered) = (0, 0);
    loop {
        let got = fill(from, &mut piece).map_err(|error| Error::io(format!("file {name}"), &error))?;
        if got == 0 {
            break;
        }
        if !is_zero(&piece[..got]) {
            transaction.write(&object, at, &piece[..got])?;
            gathered += got as u64;
        }
        at += got as u64;
        progress.add(got as u64);
        if gathered >= TRANSACTION_BYTES {
            transaction.commit()?;
            *committed = Some(object.key().object);
            transaction = store.begin();
            gathered = 0;
        }
    }
    transaction.truncate(&object, at)?;
    transaction.commit()?;
    Ok((object, at))
}

/// Reads until `buf` is full or the input ends.
fn fill(from: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut got = 0;
    while got < buf.len() {
        match from.read(&mut buf[got..]) {
            Ok(0) => break,
            Ok(more) => got += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(got)
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, tail) = bytes.as_chunks::<64>();
    words.iter().all(|word| *word == [0; 64]) && tail.iter().all(|byte| *byte == 0)
}

/// Copies `size` bytes of `object` into a file: into a temporary one first, renamed when complete.
pub fn into_file(object: &Object, size: u64, file: &Path, progress: &Progress) -> Result<()> {
    let beside = beside(file);
    let copied = copy_out(object, size, &beside, progress).and_then(|()| {
        fs::rename(&beside, file).map_err(|error| Error::io(format!("file {}", file.display()), &error))
    });
    if copied.is_err() {
        // A partial copy must not be taken for the whole; report the first error.
        let _ = fs::remove_file(&beside);
    }
    copied
}

fn beside(file: &Path) -> PathBuf {
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    file.with_file_name(name)
}

fn copy_out(object: &Object, size: u64, path: &Path, progress: &Progress) -> Result<()> {
    let failed = |error: io::Error| Error::io(format!("file {}", path.display()), &error);
    let file = File::create_new(path).map_err(failed)?;
    file.set_len(size).map_err(failed)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    while at < size {
        let wanted = (size - at).min(piece.len() as u64) as usize;
        let got = object.read_at(at, &mut piece[..wanted])?;
        if got == 0 {
            // Truncated by another process meanwhile: the current content is the object.
            file.set_len(at).map_err(failed)?;
            break;
        }
        if !is_zero(&piece[..got]) {
            file.write_all_at(&piece[..got], at).map_err(failed)?;
        }
        at += got as u64;
        progress.add(got as u64);
    }
    Ok(())
}
