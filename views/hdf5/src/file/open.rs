//! Finding, opening and deleting files.

use std::cell::RefCell;
use std::fs::{File as PlainFile, Metadata};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::{Container, ContainerId, Error, ErrorKind, Object, ObjectId, Store};

use crate::Result;
use crate::error::h5_id;
use crate::ffi::types::{H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, hid_t};
use crate::ffi::{Api, LibraryVersion};
use crate::team::{self, Call, Team};
use crate::vol::info;

use super::brought;
use super::checkpoint;
use super::identity::{self, STATE_SNAPSHOT, StubTarget, There, find};
use super::in_use::{InUse, Rule, Use};
use super::kept;
use super::locks::Turn;
use super::making::make_of_empty;
use super::making::metadata;
use super::opening::{Opening, finish};
use super::parallel::together;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{SUPER_INDEX, Super};
use super::{File, path, snapshot, store_for};

/// Prefix of the labels of HDF5 files' containers; the path follows.
pub(super) const LABEL_PREFIX: &str = "hdf5:";

/// The store named in the access properties.
pub(super) fn store_of(h5: &'static Api, fapl: hid_t) -> Result<(Store, PathBuf)> {
    store_for(info::store_of_fapl(h5, fapl).as_deref())
}

pub(super) fn label_of(path: &Path) -> String {
    format!("{LABEL_PREFIX}{}", path::label(path))
}

thread_local! {
    /// Name and access properties of the file that HDF5 last asked about on this thread.
    static ASKED: RefCell<Option<(Vec<u8>, hid_t)>> = const { RefCell::new(None) };
}

/// Refuses a file that HDF5 found by itself. HDF5 offers a file that the native connector did not know to every connector in
/// the plugin path: it asks about the file and opens it with one list of access properties. HDF5 2 then uses the result as
/// if it were native, and crashes.
fn check_chosen(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<()> {
    let asked = ASKED.take().is_some_and(|(asked, with)| asked == name && with == fapl);
    let is_preset = std::env::var_os("HDF5_VOL_CONNECTOR").is_some_and(|value| !value.is_empty());
    if !asked || is_preset || h5.version < LibraryVersion::new(2, 0) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Unsupported, format!("unable to open file: name = '{}'", String::from_utf8_lossy(name)))
        .because("it lives in a Cenote store, and HDF5 2 cannot use a connector that it has found by itself")
        .try_next("name it: HDF5_VOL_CONNECTOR='cenote store=/path'"))
}

/// Does `H5Fopen`.
pub fn open(h5: &'static Api, name: &[u8], flags: u32, fapl: hid_t) -> Result<Arc<File>> {
    check_chosen(h5, name, fapl)?;
    // What is looked at for reading need not be looked at again.
    let looked = Looked::at(name, false);
    if let Ok(looked) = &looked
        && let Some(native) = native_in(h5, looked, name, flags, fapl, None)?
    {
        return Ok(native);
    }
    let looked = looked.ok().filter(|_| flags & H5F_ACC_RDWR == 0);
    let first = || look_up_by(h5, name, flags, fapl, None, rule_of(h5, fapl), looked);
    together(h5, "file_open", fapl, first, |there| Opening { name, fapl, ..there })
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
    // The store's own views read beside any writer: HDF5's rule is for programs.
    finish(h5, look_up_by(h5, bytes, 0, fapl.get(), Some((store.clone(), store_path)), Rule::Free, None)?)
}

/// Opens the native file at this path in place. Each rank of a parallel program does so by itself, since nothing changes the
/// file.
pub(super) fn native_at(
    h5: &'static Api,
    name: &[u8],
    flags: u32,
    fapl: hid_t,
    store: Option<&Store>,
) -> Result<Option<Arc<File>>> {
    match Looked::at(name, false) {
        Ok(looked) => native_in(h5, &looked, name, flags, fapl, store),
        Err(_) => Ok(None), // reported by the code that opens it
    }
}

fn native_in(
    h5: &'static Api,
    looked: &Looked,
    name: &[u8],
    flags: u32,
    fapl: hid_t,
    store: Option<&Store>,
) -> Result<Option<Arc<File>>> {
    let (path, seen) = (&looked.path, &looked.seen);
    match seen {
        Seen::Native => {}
        Seen::Stub(stub) if stub.staged => {}
        _ => return Ok(None),
    }
    let (store, store_path) = match store {
        Some(store) => (store.clone(), path::absolute(store.dir())?),
        None => store_of(h5, fapl)?,
    };
    if let Seen::Stub(stub) = seen {
        let (container, sup) = find(&store, &store_path, path, stub)?;
        return super::native::open_staged(h5, &container, path, name, flags, fapl, sup).map(Some);
    }
    super::native::open(h5, &store, path, name, flags, fapl).map(Some)
}

/// The object with the bytes of a staged file: among the raw data of its generation, so that it is deleted with it.
pub(super) fn staged_id(generation: u64) -> ObjectId {
    ObjectId(u128::from(generation) << 64 | 1)
}

/// Returns true if a native file is at `path`.
pub fn is_native(path: &Path) -> bool {
    matches!(stub::look(path), Ok(Seen::Native))
}

/// The object of a staged file, see [`super::staged_object`].
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

/// The HDF5 files of the store whose stubs exist: their paths and containers.
pub fn files(store: &Store) -> Result<Vec<(PathBuf, ContainerId)>> {
    let all = store.containers(LABEL_PREFIX)?.into_iter();
    let named = all.map(|info| (path::of_label(&info.label[LABEL_PREFIX.len()..]), info.id));
    let is_of = |path: &Path, id: ContainerId| matches!(stub::look(path), Ok(Seen::Stub(stub)) if stub.container.is_none_or(|container| container == id));
    Ok(named.filter(|(path, id)| path.is_absolute() && is_of(path, *id)).collect())
}

/// The container of the file whose stub, or a copy of it, is at `path`.
pub fn container_at(store: &Store, path: &Path) -> Result<Container> {
    let path = path::absolute(path)?;
    match stub::look(&path)? {
        Seen::Stub(stub) => {
            let store_path = path::absolute(store.dir())?;
            match identity::know(store, &store_path, &path, &stub)? {
                StubTarget::File(There { container, .. })
                | StubTarget::Copy(container, _)
                | StubTarget::Stale(container, _) => Ok(container),
                other @ StubTarget::Nothing => Err(other.refusal(&store_path, &path, &stub)),
            }
        }
        Seen::Snapshot(of, _) => container_at(store, &path::of_label(&of)),
        other => Err(stub::refuse(&path, &other)),
    }
}

/// The container and generation of the file at `path`; native files have none.
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

/// What was found at a path, opened.
struct Looked {
    path: PathBuf,
    seen: Seen,
    /// The open file, with its file status from before it was read.
    file: Option<(PlainFile, Metadata)>,
}

impl Looked {
    /// Opens the file with this name for the intended use, and looks at it.
    fn at(name: &[u8], writable: bool) -> Result<Self> {
        Self::at_path(path::absolute(path::from_bytes(name)?)?, writable)
    }
    fn at_path(path: PathBuf, writable: bool) -> Result<Self> {
        let opened = if writable {
            // As with a native file, a user who may not write the stub may not write the file.
            PlainFile::options().read(true).write(true).custom_flags(libc::O_NOATIME).open(&path).or_else(|e| {
                let is_others = e.raw_os_error() == Some(libc::EPERM);
                if is_others { PlainFile::options().read(true).write(true).open(&path) } else { Err(e) }
            })
        } else {
            stub::open_quietly(&path)
        };
        match opened {
            Ok(file) => {
                let (seen, about) = stub::look_into(&file, &path)?;
                Ok(Self { path, seen, file: Some((file, about)) })
            }
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Self { path, seen: Seen::Nothing, file: None }),
            Err(e) => Err(stub::open_error(&path, &e)),
        }
    }
}

/// Finds a file in the given store, or in that of the access properties. `rule`: who else may have it open.
pub(super) fn look_up<'a>(
    h5: &'static Api,
    name: &'a [u8],
    flags: u32,
    fapl: hid_t,
    store: Option<(Store, PathBuf)>,
    rule: Rule,
) -> Result<Opening<'a>> {
    look_up_by(h5, name, flags, fapl, store, rule, None)
}

/// The rule for files opened or made with these access properties.
pub(super) fn rule_of(h5: &'static Api, fapl: hid_t) -> Rule {
    let is_asked = checkpoint::is_asked(info::atomic_of_fapl(h5, fapl));
    Rule::of(h5, fapl, team::is_mpio(h5, fapl) || is_asked)
}

/// `rule`: who else may have it open. `looked`: what is there, if already looked at.
fn look_up_by<'a>(
    h5: &'static Api,
    name: &'a [u8],
    flags: u32,
    fapl: hid_t,
    store: Option<(Store, PathBuf)>,
    rule: Rule,
    looked: Option<Looked>,
) -> Result<Opening<'a>> {
    let writable = flags & H5F_ACC_RDWR != 0;
    let mut looked = looked.map_or_else(|| Looked::at(name, writable), Ok)?;
    if looked.seen == Seen::Nothing && store.is_none() && brought::bring(h5, fapl, &looked.path)? {
        looked = Looked::at_path(looked.path, writable)?;
    }
    let Looked { path, mut seen, file } = looked;
    if let Some((file, _)) = file.as_ref().filter(|_| seen == Seen::Empty) {
        // The file may be in the making.
        let _turn = Turn::wait(file, false).map_err(|e| stub::open_error(&path, &e))?;
        seen = stub::look_in(file, &path)?;
    }
    let (stub, (file, about)) = match (seen, file) {
        (Seen::Stub(stub), Some(file)) => (stub, file),
        // As in HDF5, an empty file becomes an HDF5 file.
        (Seen::Empty, Some(_)) if writable => match make_of_empty(h5, name, fapl, store.clone())? {
            Some(made) => return Ok(made),
            None => return look_up(h5, name, flags, fapl, store, rule),
        },
        (other, _) => match snapshot::at(&path, &other)? {
            Some(there) => return snapshot::look_up(h5, name, flags, fapl, store, &there),
            None => return Err(stub::refuse(&path, &other)),
        },
    };
    // Only now: looking for a missing file must not make a store.
    let (store, store_path) = match store {
        Some(store) => store,
        None => store_of(h5, fapl)?,
    };
    let wrap = |e: std::io::Error| stub::open_error(&path, &e);
    let in_use = InUse::of(file.try_clone().map_err(wrap)?, &about, writable).map_err(wrap)?;
    let mode = Use::of(writable, flags & (H5F_ACC_SWMR_WRITE | H5F_ACC_SWMR_READ) != 0);
    let asks = info::atomic_of_fapl(h5, fapl);
    let claimed = in_use.claim(mode, rule, &path);
    let (there, stub) = match know_settled(&store, &store_path, &path, stub, (&file, &about))? {
        (StubTarget::File(there), stub) => (there, stub),
        (other, stub) => {
            claimed?;
            let refusal = other.refusal(&store_path, &path, &stub);
            let kept = if writable { None } else { state_kept(other, &stub) };
            let (home, container, sup) = kept.ok_or(refusal)?;
            let meta = metadata(&container, sup.generation);
            let (user_block, intent) = (stub.user_block, flags & H5F_ACC_SWMR_READ);
            let opening = Opening::new(store, store_path, container, sup, meta, path, fapl);
            return Ok(Opening { user_block, name, intent, home, in_use: Some(in_use), ..opening });
        }
    };
    if !there.sup.is_published {
        claimed?; // a reader sees others' changes only as whole checkpoints anyway
    }
    identity::seen_at(&store, &store_path, (&there.container, &there.sup), there.is_kept, (&file, &path));
    if !writable {
        kept::mark_seen(&file, &about);
    }
    let found = FoundFile { store, store_path, there, stub, file };
    let begun = begin(found, path, flags, fapl, asks)?;
    if writable {
        in_use.written();
    }
    Ok(Opening { in_use: Some(in_use), name, ..begun })
}

/// A file that was found, with its stub opened.
struct FoundFile {
    store: Store,
    store_path: PathBuf,
    there: There,
    stub: Stub,
    file: PlainFile,
}

/// Begins to write a found file, or to read the right snapshot of it.
fn begin<'a>(found: FoundFile, path: PathBuf, flags: u32, fapl: hid_t, asks: Option<bool>) -> Result<Opening<'a>> {
    let FoundFile { store, store_path, there, stub, file } = found;
    let There { mut container, mut sup, mut meta, .. } = there;
    let generation = sup.generation;
    let home = container.id();
    let mut writing = None;
    if flags & H5F_ACC_RDWR != 0 {
        writing = checkpoint::enter(&store, &store_path, &container, sup.is_published, asks)?;
        if writing.is_some() {
            sup = super_of(&container, &path)?; // it may have been rolled back to the published snapshot
        }
        sup.upgrade(&container.index(SUPER_INDEX))?;
        identity::raise(&container, &mut sup, &stub, &file, &path)?;
    } else if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container, asks)?
    {
        sup = super_of(&published, &path)?;
        container = published;
    }
    if container.id() != home || sup.generation != generation {
        meta = metadata(&container, sup.generation);
    }
    let intent = flags & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE | H5F_ACC_SWMR_READ);
    let user_block = stub.user_block;
    Ok(Opening {
        user_block,
        intent,
        writing,
        home,
        ..Opening::new(store, store_path, container, sup, meta, path, fapl)
    })
}

/// What a stub stands for. A result that looks wrong is checked again while nobody changes the stub.
fn know_settled(
    store: &Store,
    store_path: &Path,
    path: &Path,
    stub: Stub,
    (file, about): (&PlainFile, &Metadata),
) -> Result<(StubTarget, Stub)> {
    match identity::know_seen(store, store_path, path, &stub, about)? {
        known @ StubTarget::File(..) => Ok((known, stub)),
        known => {
            let again = {
                let _turn = Turn::wait(file, false).map_err(|e| stub::open_error(path, &e))?;
                Stub::read(file, path)?
            };
            let Some(again) = again else { return Ok((known, stub)) };
            Ok((identity::know(store, store_path, path, &again)?, again))
        }
    }
}

/// For a copy of a stub: the file's container and the snapshot of the state that the copy records, if one was kept.
fn state_kept(known: StubTarget, stub: &Stub) -> Option<(ContainerId, Container, Super)> {
    let (StubTarget::Copy(container, ..) | StubTarget::Stale(container, _)) = known else { return None };
    let kept = container.open_snapshot(&format!("{STATE_SNAPSHOT}{}", stub.state)).ok()?;
    let sup = Super::read(&kept).ok()??;
    Some((container.id(), kept, sup))
}

pub(super) fn super_of(container: &Container, path: &Path) -> Result<Super> {
    Super::read(container)?.ok_or_else(|| {
        Error::new(ErrorKind::NotFound, format!("unable to open file: name = '{}'", path.display()))
            .because("it holds no HDF5 file")
            .try_next("look at its snapshots: `cenote snapshot list`")
    })
}

/// Does `H5Fis_accessible`: true for a file that `open` would open.
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
        Seen::Other | Seen::Empty => Ok(false),
    }
}

/// Does `H5Fdelete`.
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
    let wrap = |e: std::io::Error| Error::io(format!("file {}", path.display()), &e);
    let file = stub::open_quietly(&path).map_err(wrap)?;
    if identity::is_kept_here(&store, &container) {
        kept::keep(&store_path, container.id(), stub.uuid, (&file, &path), false);
    }
    kept::mark(&file);
    std::fs::remove_file(&path).map_err(wrap)?;
    if file.metadata().map_err(wrap)?.nlink() == 0 {
        // No store keeps a link of it, and no other exists.
        return store.delete_container_by_id(container.id());
    }
    drop(file);
    kept::free_if_gone(&store, &store_path, container.id())
}
