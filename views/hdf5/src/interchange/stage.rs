//! Copies a native file's bytes into the store, and out of it, unchanged. Needs no libhdf5.

use std::fs::{self, File as Posix};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;

use cenote::{Error, ErrorKind, Store};

use super::Progress;
use crate::Result;
use crate::file::incoming::Staging;
use crate::file::{open, staged_object};

/// Bytes copied at a time.
const PIECE_BYTES: usize = 4 << 20;

/// Stages the bytes of the native file at `from` in `store`, as a file at `to`, replacing what is there. Returns their
/// number. Changes nothing unless everything succeeds.
pub fn stage(store: &Store, from: &Path, to: &Path, progress: Progress<'_>) -> Result<u64> {
    let failed = |e: std::io::Error| Error::io(format!("file {}", from.display()), &e);
    if !open::is_native(from) {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", from.display()))
            .because("it is not a native HDF5 file")
            .try_next("other files: `cenote put`"));
    }
    let mut file = Posix::open(from).map_err(failed)?;
    let staging = Staging::begin(store, to)?;
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let got = file.read(&mut piece).map_err(failed)?;
        if got == 0 {
            break;
        }
        staging.object.write_at(at, &piece[..got])?;
        at += got as u64;
        progress(at)?;
    }
    staging.place()?;
    Ok(at)
}

/// Writes the bytes staged as the file at `from` to a file at `to`, replacing what is there.
pub fn unstage(store: &Store, from: &Path, to: &Path, progress: Progress<'_>) -> Result<u64> {
    let object = staged_object(store, from)?;
    let size = object.stat()?.size;
    let failed = |e: std::io::Error| Error::io(format!("file {}", to.display()), &e);
    let beside = super::export::beside(to);
    let copied = (|| {
        let file = Posix::create(&beside).map_err(failed)?;
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = 0;
        while at < size {
            let wanted = (size - at).min(PIECE_BYTES as u64) as usize;
            if object.read_at(at, &mut piece[..wanted])? < wanted {
                return Err(Error::new(ErrorKind::Corrupt, format!("staged file {}", from.display()))
                    .because("it has become shorter"));
            }
            file.write_all_at(&piece[..wanted], at).map_err(failed)?;
            at += wanted as u64;
            progress(at)?;
        }
        file.sync_all().map_err(failed)?;
        fs::rename(&beside, to).map_err(failed)
    })();
    if copied.is_err() {
        // Report the first error, not one of this removal.
        let _ = fs::remove_file(&beside);
    }
    copied.map(|()| size)
}
