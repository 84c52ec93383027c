//! Finding files, opening and deleting them.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::{Container, ContainerId, Error, ErrorKind, Object, ObjectId, Store};

use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, hid_t};
use crate::team::{Call, Team};
use crate::vol::info;

use super::brought;
use super::checkpoint;
use super::making::metadata;
use super::opening::{Opening, finish};
use super::parallel::together;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{SUPER_INDEX, Super};
use super::{File, path, snapshot, store_for};

const LABEL_PREFIX: &str = "hdf5:";

/// Where the program wants its files: the store of its access properties.
pub(super) fn store_of(h5: &'static Api, fapl: hid_t) -> Result<(Store, PathBuf)> {
    store_for(info::store_of_fapl(h5, fapl).as_deref())
}

pub(super) fn label_of(path: &Path) -> String {
    format!("{LABEL_PREFIX}{}", path::label(path))
}

thread_local! {
    /// Name and access properties of the file that HDF5 asked about last on this thread.
    static ASKED: RefCell<Option<(Vec<u8>, hid_t)>> = const { RefCell::new(None) };
}

/// A file that HDF5 offers to every connector in the plugin path, because the native one did not know it, is asked about
/// and then opened with one list of access properties. HDF5 2 goes on to use what it gets as if it were native, and crashes.
fn check_chosen(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<()> {
    let asked = ASKED.take().is_some_and(|(asked, with)| asked == name && with == fapl);
    let is_preset = std::env::var_os("HDF5_VOL_CONNECTOR").is_some_and(|value| !value.is_empty());
    if !asked || is_preset || h5.version < (2, 0, 0) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("unable to open file: name = '{}'", String::from_utf8_lossy(name)))
        .because("it lives in a Cenote store, and HDF5 2 cannot use a connector that it has found by itself")
        .try_next("name it: HDF5_VOL_CONNECTOR='cenote store=/path'"))
}

/// `H5Fopen`.
pub fn open(h5: &'static Api, name: &[u8], flags: u32, fapl: hid_t) -> Result<Arc<File>> {
    check_chosen(h5, name, fapl)?;
    if let Some(native) = native_at(h5, name, flags, fapl, None)? {
        return Ok(native);
    }
    together(h5, "file_open", fapl, || look_up(h5, name, flags, fapl, None), |there| Opening { name, fapl, ..there })
}

/// Opens the file at `path` in `store`, read-only.
pub fn open_stored(h5: &'static Api, store: &Store, path: &Path) -> Result<Arc<File>> {
    // SAFETY: a plain call.
    let fapl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_FILE_ACCESS_ID_g()) })?;
    let bytes = path.as_os_str().as_encoded_bytes();
    if let Some(native) = native_at(h5, bytes, 0, fapl.get(), Some(store))? {
        return Ok(native);
    }
    let store_path = path::absolute(store.dir())?;
    finish(h5, look_up(h5, bytes, 0, fapl.get(), Some((store.clone(), store_path)))?)
}

/// A native file at this path, opened as it is. Ranks of a parallel program do so each by itself: nothing changes it.
pub(super) fn native_at(
    h5: &'static Api,
    name: &[u8],
    flags: u32,
    fapl: hid_t,
    store: Option<&Store>,
) -> Result<Option<Arc<File>>> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let seen = match stub::look(&path) {
        Ok(seen @ Seen::Native) => seen,
        Ok(Seen::Stub(stub)) if stub.staged => Seen::Stub(stub),
        _ => return Ok(None),
    };
    let (store, store_path) = match store {
        Some(store) => (store.clone(), path::absolute(store.dir())?),
        None => store_of(h5, fapl)?,
    };
    if let Seen::Stub(stub) = seen {
        let (container, sup) = find(&store, &store_path, &path, &stub)?;
        return super::native::open_staged(h5, &container, &path, name, flags, fapl, sup).map(Some);
    }
    super::native::open(h5, &store, &path, name, flags, fapl).map(Some)
}

/// Where the bytes of a staged file are: among the raw data of its generation, so that they go with it.
pub(super) fn staged_id(generation: u64) -> ObjectId {
    ObjectId(u128::from(generation) << 64 | 1)
}

/// True if a native file is at `path`.
pub fn is_native(path: &Path) -> bool {
    matches!(stub::look(path), Ok(Seen::Native))
}

/// See [`super::staged_object`].
pub(super) fn staged(store: &Store, path: &Path) -> Result<Object> {
    let path = path::absolute(path)?;
    match stub::look(&path)? {
        Seen::Stub(stub) if stub.staged => {
            let (container, sup) = find(store, &path::absolute(store.dir())?, &path, &stub)?;
            Ok(container.object(staged_id(sup.generation)))
        }
        Seen::Nothing => Err(stub::refuse(&path, &Seen::Nothing)),
        _ => Err(Error::new(ErrorKind::InvalidInput, format!("file {}", path.display()))
            .because("it is not a native file that is staged in the store")
            .try_next("files of the store: `cenote export`")),
    }
}

/// HDF5 files of the store whose stubs are there: their paths, and the containers that they are.
pub fn files(store: &Store) -> Result<Vec<(PathBuf, ContainerId)>> {
    let all = store.containers(LABEL_PREFIX)?.into_iter();
    let named = all.map(|info| (path::of_label(&info.label[LABEL_PREFIX.len()..]), info.id));
    Ok(named.filter(|(path, _)| path.is_absolute() && super::is_stub(path)).collect())
}

/// The container and generation of the file at `path`; not of native files.
pub fn locate(store: &Store, path: &Path) -> Result<(Container, u64)> {
    let path = path::absolute(path)?;
    match stub::look(&path)? {
        Seen::Stub(stub) if !stub.staged => {
            let (container, sup) = find(store, &path::absolute(store.dir())?, &path, &stub)?;
            Ok((container, sup.generation))
        }
        Seen::Native | Seen::Stub(_) => Err(Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
            .because("it is a native HDF5 file, of which the store has no records")
            .try_next("look at it with h5ls, through the connector or without")),
        other => Err(stub::refuse(&path, &other)),
    }
}

/// Finds a file in the store given, or in that of the access properties.
pub(super) fn look_up<'a>(
    h5: &'static Api,
    name: &'a [u8],
    flags: u32,
    fapl: hid_t,
    store: Option<(Store, PathBuf)>,
) -> Result<Opening<'a>> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let writable = flags & H5F_ACC_RDWR != 0;
    let mut seen = stub::look(&path)?;
    if seen == Seen::Nothing && store.is_none() && brought::bring(h5, fapl, &path)? {
        seen = stub::look(&path)?;
    }
    let stub = match seen {
        Seen::Stub(stub) => stub,
        other => match snapshot::at(&path, &other)? {
            Some(there) => return snapshot::look_up(h5, name, flags, fapl, store, &there),
            None => return Err(stub::refuse(&path, &other)),
        },
    };
    if writable {
        // As with a native file, who may not write the stub may not write the file.
        std::fs::OpenOptions::new().write(true).open(&path).map_err(|e| stub::open_error(&path, &e))?;
    }
    // Only now: looking for a file that is not there must not make a store.
    let (store, store_path) = match store {
        Some(store) => store,
        None => store_of(h5, fapl)?,
    };
    let (mut container, mut sup) = find(&store, &store_path, &path, &stub)?;
    let mut writing = None;
    if writable {
        writing = checkpoint::enter(&store, &store_path, &container, sup.is_published, info::atomic_of_fapl(h5, fapl))?;
        if writing.is_some() {
            sup = super_of(&container, &path)?; // it may have gone back to what was published
        }
        sup.upgrade(&container.index(SUPER_INDEX))?;
    } else if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container, info::atomic_of_fapl(h5, fapl))?
    {
        sup = super_of(&published, &path)?;
        container = published;
    }
    let intent = flags & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE | H5F_ACC_SWMR_READ);
    let meta = metadata(&container, sup.generation);
    let user_block = stub.user_block;
    Ok(Opening {
        user_block,
        name,
        intent,
        writing,
        ..Opening::new(store, store_path, container, sup, meta, path, fapl)
    })
}

pub(super) fn super_of(container: &Container, path: &Path) -> Result<Super> {
    Super::read(container)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("unable to open file: name = '{}'", path.display()))
            .because("it holds no HDF5 file")
            .try_next("look at its snapshots: `cenote snapshot list`")
    })
}

/// The container that a stub stands for; follows a renamed stub.
pub(super) fn find(store: &Store, store_path: &Path, path: &Path, stub: &Stub) -> Result<(Container, Super)> {
    let here = existing(store, &label_of(path))?;
    if let Some((container, sup)) = here
        && (sup.uuid == stub.uuid || stub.path == path::label(path))
    {
        return Ok((container, sup));
    }
    let old_label = format!("{LABEL_PREFIX}{}", stub.path);
    if let Some(old) = existing(store, &old_label)?
        && old.1.uuid == stub.uuid
    {
        let original = path::of_label(&stub.path);
        if path::is_same(&original, path) {
            return Ok(old); // another hard link of the stub
        }
        if matches!(stub::look(&original), Ok(Seen::Stub(other)) if other.uuid == stub.uuid) {
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!("unable to open file: name = '{}'", path.display()),
            )
            .because(format!("it is a copy of the stub of {}, not of the file", stub.path))
            .try_next("open the original, or copy its contents with an HDF5 program"));
        }
        return adopt(store, store_path, path, stub, &old_label);
    }
    Err(Error::new(ErrorKind::NotFound, format!("unable to open file: name = '{}'", path.display()))
        .because(format!(
            "its stub is there, but store {} does not hold it (the stub names store {})",
            store_path.display(),
            stub.store
        ))
        .try_next(format!("name the right store: HDF5_VOL_CONNECTOR='cenote store={}' or CENOTE_STORE", stub.store)))
}

pub(super) fn existing(store: &Store, label: &str) -> Result<Option<(Container, Super)>> {
    match store.container(label) {
        Ok(container) => Ok(Super::read(&container)?.map(|sup| (container, sup))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The stub was renamed: the container follows.
fn adopt(store: &Store, store_path: &Path, path: &Path, stub: &Stub, old_label: &str) -> Result<(Container, Super)> {
    let label = label_of(path);
    match store.delete_container(&label) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    match store.rename_container(old_label, &label) {
        Ok(()) => {}
        // Another process was faster.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Exists) => {}
        Err(error) => return Err(error),
    }
    let renamed = Stub { path: path::label(path), store: store_path.display().to_string(), ..stub.clone() };
    // A stub that cannot be rewritten still names the file by its id.
    let _ = renamed.rewrite(path);
    existing(store, &label)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("unable to open file: name = '{}'", path.display()))
            .because("another process renamed it at the same time")
            .try_next("try again")
    })
}

/// `H5Fis_accessible`: true for a file that `open` would open.
pub fn is_accessible(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<bool> {
    ASKED.set(Some((name.to_vec(), fapl)));
    let path = path::absolute(path::from_bytes(name)?)?;
    let mut seen = stub::look(&path)?;
    if seen == Seen::Nothing && brought::bring(h5, fapl, &path)? {
        seen = stub::look(&path)?;
    }
    match seen {
        Seen::Stub(stub) => {
            let (store, store_path) = store_of(h5, fapl)?;
            Ok(find(&store, &store_path, &path, &stub).is_ok())
        }
        seen @ (Seen::Nothing | Seen::Snapshot(..)) => match snapshot::at(&path, &seen)? {
            Some(at) => Ok(snapshot::look_up(h5, name, 0, fapl, None, &at).is_ok()),
            None => Err(stub::refuse(&path, &seen)),
        },
        Seen::Native => Ok(!crate::foreign::is_opening()),
        Seen::Other => Ok(false),
    }
}

/// `H5Fdelete`.
pub fn delete(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<()> {
    match Team::of(h5, fapl)? {
        Some(team) => team.once(&Call::new("file_delete"), |_| remove(h5, name, fapl)),
        None => remove(h5, name, fapl),
    }
}

fn remove(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<()> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let stub = match stub::look(&path)? {
        Seen::Stub(stub) => stub,
        other => return Err(stub::refuse(&path, &other)),
    };
    let (store, store_path) = store_of(h5, fapl)?;
    let (container, _) = find(&store, &store_path, &path, &stub)?;
    if Shared::is_open(&store_path, container.id()) {
        return Err(
            Error::new(ErrorKind::Busy, format!("file {}", path.display())).because("it is open in this process")
        );
    }
    std::fs::remove_file(&path).map_err(|e| Error::io(format!("file {}", path.display()), &e))?;
    store.delete_container(&label_of(&path))
}
