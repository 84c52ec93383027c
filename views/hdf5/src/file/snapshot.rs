//! Snapshots of files, named by a path of the form `FILE@SNAPSHOT` or by a stub that stands for one.

use std::path::{Path, PathBuf};

use cenote::{Error, ErrorKind, Store};

use super::identity::find;
use super::making::metadata;
use super::open::{label_of, store_of, super_of};
use super::opening::Opening;
use super::path;
use super::stub::{self, Seen, Stub};
use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, H5F_ACC_SWMR_READ, hid_t};

/// A path that names a snapshot: the file's path, its stub if it exists, and the snapshot's name.
pub struct SnapshotAt {
    path: PathBuf,
    stub: Option<Stub>,
    name: String,
}

/// The snapshot that a path without a file names: as `FILE@SNAPSHOT`, or by a stub that stands for a
/// snapshot.
pub fn at(path: &Path, seen: &Seen) -> Result<Option<SnapshotAt>> {
    match seen {
        Seen::Snapshot(of, name) => {
            let path = path::of_label(of);
            let stub = if let Ok(Seen::Stub(stub)) = stub::look(&path) { Some(stub) } else { None };
            Ok(Some(SnapshotAt { path, stub, name: name.clone() }))
        }
        Seen::Nothing => {
            let Some((file, name)) = split(path) else { return Ok(None) };
            match stub::look(&file)? {
                Seen::Stub(stub) => Ok(Some(SnapshotAt { path: file, stub: Some(stub), name })),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }
}

/// Finds a snapshot of a file in the given store, or in that of the access properties.
pub fn look_up<'a>(
    h5: &'static Api,
    name: &'a [u8],
    flags: u32,
    fapl: hid_t,
    store: Option<(Store, PathBuf)>,
    at: &SnapshotAt,
) -> Result<Opening<'a>> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let subject = || format!("unable to open file: name = '{}'", path.display());
    if flags & H5F_ACC_RDWR != 0 {
        return Err(Error::new(ErrorKind::PermissionDenied, subject())
            .because(format!("it is snapshot `{}` of {}, which never changes", at.name, at.path.display()))
            .try_next("open it read-only; `cenote snapshot rollback` takes the file back to it"));
    }
    let (store, store_path) = match store {
        Some(store) => store,
        None => store_of(h5, fapl)?,
    };
    let file = match &at.stub {
        Some(stub) => find(&store, &store_path, &at.path, stub)?.0,
        None => store.container(&label_of(&at.path)).map_err(|error| {
            Error::new(error.kind(), subject()).because(format!(
                "it stands for a snapshot of {}, which is not in store {}",
                at.path.display(),
                store_path.display()
            ))
        })?,
    };
    let container = file.open_snapshot(&at.name).map_err(|error| {
        Error::new(error.kind(), subject())
            .because(format!("{} has no snapshot `{}`", at.path.display(), at.name))
            .try_next("`cenote snapshot list` lists the snapshots of a file")
    })?;
    let sup = super_of(&container, &path)?;
    let meta = metadata(&container, sup.generation);
    let intent = flags & H5F_ACC_SWMR_READ;
    Ok(Opening { name, intent, ..Opening::new(store, store_path, container, sup, meta, path, fapl) })
}

/// Splits a path of the form `FILE@SNAPSHOT` into file and snapshot name.
fn split(path: &Path) -> Option<(PathBuf, String)> {
    let (file, name) = path.file_name()?.to_str()?.rsplit_once('@')?;
    (!file.is_empty() && !name.is_empty()).then(|| (path.with_file_name(file), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshots_are_named_behind_the_last_at() {
        assert_eq!(split(Path::new("/a@b/f.h5@x")), Some((PathBuf::from("/a@b/f.h5"), "x".into())));
        assert_eq!(split(Path::new("/a/f@1@x")), Some((PathBuf::from("/a/f@1"), "x".into())));
        for none in ["/a@b/f.h5", "/a/@x", "/a/f@"] {
            assert_eq!(split(Path::new(none)), None, "{none}");
        }
    }
}
