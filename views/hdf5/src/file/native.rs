//! Opening native HDF5 files, read-only: their metadata records are made on demand.

use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};

use cenote::{Container, Error, ErrorKind, IndexId, Object, Store};
use parking_lot::Mutex;

use super::ahead::Ahead;
use super::at_path::AtPath;
use super::open::staged_id;
use super::shared::Shared;
use super::superblock::Super;
use super::{Core, File, path, stub};
use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, H5F_ACC_SWMR_READ, hid_t};
use crate::foreign::Native;
use crate::foreign::records::NativeRecords;
use crate::meta::records::Meta;

/// Opens the native file at `path`. `store`: where the program's other files are.
pub fn open(h5: &'static Api, store: &Store, path: &Path, name: &[u8], flags: u32, fapl: hid_t) -> Result<Arc<File>> {
    refuse_writing(path, flags)?;
    let native = Native::open(h5, path)?;
    let seen = std::fs::metadata(path).map_err(|e| stub::open_error(path, &e))?;
    let uuid = u128::from(seen.dev()) << 64 | u128::from(seen.ino());
    // A file that another program has changed since counts as another file.
    let state = (seen.len(), seen.mtime(), seen.mtime_nsec(), h5.slot);
    let generation = BuildHasherDefault::<DefaultHasher>::default().hash_one(state);
    assemble(Arc::new(native), store, path, name, (uuid, generation), flags & H5F_ACC_SWMR_READ, fapl)
}

/// Opens a native file whose bytes are in `container`, and whose stub is at `path`.
pub(super) fn open_staged(
    h5: &'static Api,
    container: &Container,
    path: &Path,
    name: &[u8],
    flags: u32,
    fapl: hid_t,
    sup: Super,
) -> Result<Arc<File>> {
    refuse_writing(path, flags)?;
    let native = Native::open_staged(h5, path, &container.object(staged_id(sup.generation)))?;
    let id = (sup.uuid, sup.generation);
    assemble(Arc::new(native), container.store(), path, name, id, flags & H5F_ACC_SWMR_READ, fapl)
}

/// Opens a native file whose bytes are an object of the store. `path`: its name.
pub fn open_object(h5: &'static Api, object: &Object, path: &Path) -> Result<Arc<File>> {
    // SAFETY: a plain call.
    let fapl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()) })?;
    let native = Native::open_staged(h5, path, object)?;
    let id = (object.key().object.0, object.key().object.0 as u64);
    assemble(Arc::new(native), object.container().store(), path, path.as_os_str().as_encoded_bytes(), id, 0, fapl.get())
}

fn refuse_writing(path: &Path, flags: u32) -> Result<()> {
    if flags & H5F_ACC_RDWR == 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::PermissionDenied, format!("unable to open file: name = '{}'", path.display()))
        .because("it is a native HDF5 file, which the cenote connector reads as it is and does not change")
        .try_next(
            "open it read-only; or make it a file of the store: `cenote import`; or unset HDF5_VOL_CONNECTOR to change \
             the native file",
        ))
}

/// Opens the same file again.
pub fn reopen(file: &Arc<File>) -> Result<Arc<File>> {
    let Some(native) = file.native.clone() else {
        return Err(Error::new(ErrorKind::Internal, "a native file").because("it is not a native file"));
    };
    let intent = file.intent.load(std::sync::atomic::Ordering::Relaxed);
    let id = (file.uuid, file.generation);
    assemble(native, &file.store, &path::of_label(&file.path), &file.name, id, intent, file.fapl.get())
}

fn assemble(
    native: Arc<Native>,
    store: &Store,
    path: &Path,
    name: &[u8],
    (uuid, generation): (u128, u64),
    intent: u32,
    fapl: hid_t,
) -> Result<Arc<File>> {
    let h5 = native.h5;
    // SAFETY: the ids are valid; the name ends in NUL.
    let (fapl, connector) = unsafe {
        (
            h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(fapl))?,
            h5_id(h5, "H5VLget_connector_id_by_name", (h5.H5VLget_connector_id_by_name)(c"cenote".as_ptr()))?,
        )
    };
    let container = store.nowhere(&format!("native file {}", path.display()));
    let index = container.index(IndexId(0));
    let ahead = Ahead::new(&container, container.index(IndexId(0)), index.clone());
    let shared = Shared::join(PathBuf::from(path), &container, generation, (index.clone(), ahead));
    Ok(Arc::new_cyclic(|file| File {
        h5,
        core: Core {
            store: store.clone(),
            container,
            meta: Meta::made(index, Box::new(NativeRecords::new(native.clone(), file.clone()))),
            generation,
            uuid,
            state: 0,
            path: path::label(path),
            writable: false,
            shared,
            in_use: None,
        },
        native: Some(native),
        name: name.to_vec(),
        at_path: AtPath::default(),
        no_attrs_hint: AtomicBool::default(),
        intent: AtomicU32::new(intent),
        fapl,
        fcpl: None,
        connector,
        is_atomic: AtomicBool::new(false),
        is_parallel: false,
        team: None,
        regions: crate::regions::Regions::default(),
        writing: None,
        handles: Mutex::default(),
    }))
}
