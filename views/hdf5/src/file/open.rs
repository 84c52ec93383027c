//! Creating, opening and deleting files.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use cenote::{Container, ContainerSpec, Error, ErrorKind, Index, IndexId, Object, ObjectId, Store};
use parking_lot::Mutex;

use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_EXCL, H5F_ACC_RDWR, H5F_ACC_SWMR_READ, H5F_ACC_SWMR_WRITE, H5F_ACC_TRUNC, hid_t};
use crate::meta::bytes::{Reader, Writer};
use crate::meta::header::{Body, Header};
use crate::meta::records::Meta;
use crate::meta::{keys, objects};
use crate::props::GroupProps;
use crate::team::{self, Call, Team};
use crate::vol::info;

use super::ahead::{Ahead, First};
use super::at_path::AtPath;
use super::checkpoint::{self, Writing};
use super::creation::{self, Creation};
use super::parallel::together;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::{File, path, random_u64, snapshot, store_for};

/// The index that holds only the superblock record, whatever the generation.
pub(super) const SUPER_INDEX: IndexId = IndexId(0);
const SUPER_KEY: &[u8] = b"super";
const VERSION: u8 = 1;
const LABEL_PREFIX: &str = "hdf5:";

/// Which incarnation of a file is current.
#[derive(Clone, Copy)]
pub(super) struct Super {
    pub uuid: u128,
    pub generation: u64,
    /// It is written in atomic checkpoints (see [`checkpoint`]). Not in the record: another one says so.
    pub is_published: bool,
}

impl Super {
    pub fn encode(self) -> Vec<u8> {
        let mut w = Writer::default();
        w.u8(VERSION);
        w.u64(self.uuid as u64);
        w.u64((self.uuid >> 64) as u64);
        w.u64(self.generation);
        w.0
    }
    pub fn decode(record: &[u8]) -> Result<Self> {
        let mut r = Reader::new("superblock record of an HDF5 file", record);
        let version = r.u8()?;
        if version != VERSION {
            return Err(Error::new(ErrorKind::VersionMismatch, "superblock record of an HDF5 file")
                .because(format!("it has version {version}; this connector reads version {VERSION}"))
                .try_next("use the connector that wrote the file, or a newer one"));
        }
        let (low, high) = (r.u64()?, r.u64()?);
        Ok(Self { uuid: u128::from(high) << 64 | u128::from(low), generation: r.u64()?, is_published: false })
    }
    fn read(container: &Container) -> Result<Option<Self>> {
        match container.index(SUPER_INDEX).get(&[SUPER_KEY, checkpoint::WRITERS_KEY]) {
            Ok(mut records) => {
                let is_published = records.pop().flatten().is_some();
                let sup = records.pop().flatten().map(|record| Self::decode(&record)).transpose()?;
                Ok(sup.map(|sup| Self { is_published, ..sup }))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Where the program wants its files: the store of its access properties.
pub(super) fn store_of(h5: &'static Api, fapl: hid_t) -> Result<(Store, PathBuf)> {
    store_for(info::store_of_fapl(h5, fapl).as_deref())
}

pub(super) fn label_of(path: &Path) -> String {
    format!("{LABEL_PREFIX}{}", path::label(path))
}

/// Refuses file drivers that mean something else than a file on a disk: a program that asks for a file in memory, in an
/// image or spread over several files must not find it in a store.
fn check_driver(h5: &'static Api, fapl: hid_t) -> Result<()> {
    // SAFETY: plain queries. In HDF5 1.14 a driver's id comes from its init function.
    let (driver, plain) = unsafe {
        let init = |f: Option<unsafe extern "C" fn() -> hid_t>| f.map_or(-1, |f| f());
        (
            (h5.H5Pget_driver)(fapl),
            [
                h5.H5FD_SEC2_id_g(),
                h5.H5FD_STDIO_id_g(),
                h5.H5FD_LOG_id_g(),
                init(h5.H5FD_sec2_init),
                init(h5.H5FD_stdio_init),
                init(h5.H5FD_log_init),
            ],
        )
    };
    if driver <= 0 || plain.contains(&driver) || plain.iter().all(|id| *id <= 0) || team::is_mpio(h5, fapl) {
        return Ok(());
    }
    Err(crate::error::unsupported(
        "a file driver other than sec2, stdio, log or mpio (in-memory, file-like object, image, split, family, …)",
        "open such files with HDF5_VOL_CONNECTOR unset",
    ))
}

/// `H5Fcreate`.
pub fn create(h5: &'static Api, name: &[u8], flags: u32, fcpl: hid_t, fapl: hid_t) -> Result<Arc<File>> {
    check_driver(h5, fapl)?;
    together(
        h5,
        "file_create",
        fapl,
        || make(h5, name, flags, fcpl, fapl),
        |there| Opening { name, fapl, fcpl: Some(fcpl), ..there },
    )
}

/// Makes a new, empty file.
fn make<'a>(h5: &'static Api, name: &'a [u8], flags: u32, fcpl: hid_t, fapl: hid_t) -> Result<Opening<'a>> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let (props, user_block) = crate::props::file_props(h5, fcpl)?;
    let creation = Creation::of(h5, fcpl)?;
    creation.check(h5, fapl)?;
    let there = stub::look(&path)?;
    if flags & H5F_ACC_EXCL != 0 && there != Seen::Nothing {
        return Err(stub::create_error(&path, &std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    if flags & (H5F_ACC_EXCL | H5F_ACC_TRUNC) == 0 && there != Seen::Nothing {
        return Err(stub::create_error(&path, &std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let (store, store_path) = store_of(h5, fapl)?;
    let label = label_of(&path);
    let container = store.open_container(&label, &ContainerSpec::default())?;
    if there != Seen::Nothing && Shared::is_open(&store_path, container.id()) {
        return Err(Error::new(ErrorKind::Busy, format!("unable to create file: name = '{}'", path.display()))
            .because("unable to truncate a file which is already open")
            .try_next("close it first"));
    }
    // Before anything is changed: what dead writers left is gone then, and what they published is what readers see meanwhile.
    let mut writing = None;
    if there != Seen::Nothing {
        let marked = Super::read(&container)?.is_some_and(|sup| sup.is_published);
        writing = checkpoint::enter(&store, &store_path, &container, marked)?;
    }
    // The stub comes first: it shows at once whether this directory may be written to, and reserves the name.
    let stub = Stub {
        uuid: u128::from(random_u64()?) << 64 | u128::from(random_u64()?),
        path: path::label(&path),
        store: store_path.display().to_string(),
        user_block,
        staged: false,
    };
    stub.write(&path, flags & H5F_ACC_EXCL != 0)?;
    let sup = Super { uuid: stub.uuid, generation: random_u64()?, is_published: false };
    let meta = metadata(&container, sup.generation);
    let is_alone = !team::is_mpio(h5, fapl);
    let (first, was_published) = begin_generation(&store, &container, sup, &meta, (&props, creation), is_alone)
        .inspect_err(|_| {
            if there == Seen::Nothing {
                // Nothing was made; the reservation must not look like a file. Failing to remove it changes nothing.
                let _ = std::fs::remove_file(&path);
            }
        })?;
    if was_published && there == Seen::Nothing {
        checkpoint::forget(&store, &container)?;
    }
    sweep(&store, &container, sup.generation)?;
    if writing.is_none() {
        writing = checkpoint::enter(&store, &store_path, &container, false)?;
    }
    let intent = H5F_ACC_RDWR | flags & H5F_ACC_SWMR_WRITE;
    Ok(Opening {
        store,
        store_path,
        container,
        sup,
        meta,
        path,
        user_block,
        name,
        intent,
        fapl,
        fcpl: Some(fcpl),
        team: None,
        first: Some(first),
        writing,
    })
}

/// The index of a file's metadata, remembered by whoever reads it.
pub(super) fn metadata(container: &Container, generation: u64) -> Index {
    container.index(index_id(generation)).remembering()
}

/// Makes the container a new, empty file in one transaction. True if it was a file that was written in atomic checkpoints.
pub(super) fn begin_generation(
    store: &Store,
    container: &Container,
    sup: Super,
    meta: &Index,
    (root, creation): (&GroupProps, Creation),
    is_alone: bool,
) -> Result<(First, bool)> {
    let supers = container.open_index(SUPER_INDEX)?;
    let mut tx = store.begin();
    let mut was_published = false;
    if let Some(old) = tx.get(&supers, SUPER_KEY)? {
        was_published = tx.get(&supers, checkpoint::WRITERS_KEY)?.is_some();
        // A superblock that cannot be read belongs to some other version: its index stays, swept with the container.
        if let Ok(old) = Super::decode(&old) {
            tx.delete_index(&container.index(index_id(old.generation)))?;
        }
    }
    tx.create_index(container, Some(index_id(sup.generation)))?;
    tx.put(&supers, SUPER_KEY, &sup.encode())?;
    let first = First::put(&mut tx, &supers, is_alone)?;
    let header = Header { born_unix_s: objects::born(root.object.track_times), body: Body::Group(root.clone()) };
    tx.put(meta, &keys::of(keys::TAG_HEADER, keys::ROOT), &header.encode())?;
    tx.put(meta, &keys::of(keys::TAG_REFCOUNT, keys::ROOT), &1u32.to_le_bytes())?;
    creation.put(&mut tx, meta)?;
    tx.commit().map(|_| (first, was_published))
}

fn index_id(generation: u64) -> IndexId {
    IndexId(u128::from(generation))
}

/// Deletes raw data of earlier generations. What a crash leaves over is swept by the next creation.
fn sweep(store: &Store, container: &Container, generation: u64) -> Result<()> {
    let mut after = None;
    loop {
        let page = container.objects(after, 1024)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(*last);
        let mut tx = store.begin();
        let old: Vec<ObjectId> = page.iter().copied().filter(|id| (id.0 >> 64) as u64 != generation).collect();
        for id in &old {
            tx.delete_object(&container.object(*id))?;
        }
        if old.is_empty() {
            tx.abort();
        } else {
            tx.commit()?;
        }
    }
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
    check_driver(h5, fapl)?;
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
    let seen = stub::look(&path)?;
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
        writing = checkpoint::enter(&store, &store_path, &container, sup.is_published)?;
        if writing.is_some() {
            sup = super_of(&container, &path)?; // it may have gone back to what was published
        }
    } else if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container)?
    {
        sup = super_of(&published, &path)?;
        container = published;
    }
    let intent = flags & (H5F_ACC_RDWR | H5F_ACC_SWMR_WRITE | H5F_ACC_SWMR_READ);
    let meta = metadata(&container, sup.generation);
    let user_block = stub.user_block;
    Ok(Opening {
        store,
        store_path,
        container,
        sup,
        meta,
        path,
        user_block,
        name,
        intent,
        fapl,
        fcpl: None,
        team: None,
        first: None,
        writing,
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
    if let Some((_, sup)) = existing(store, &old_label)?
        && sup.uuid == stub.uuid
    {
        let original = Path::new(&stub.path);
        if matches!(stub::look(original), Ok(Seen::Stub(other)) if other.uuid == stub.uuid) {
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

/// A file that was found or made, before it counts as open.
pub(super) struct Opening<'a> {
    pub store: Store,
    pub store_path: PathBuf,
    pub container: Container,
    pub sup: Super,
    pub meta: Index,
    pub path: PathBuf,
    pub user_block: u64,
    pub name: &'a [u8],
    pub intent: u32,
    pub fapl: hid_t,
    pub fcpl: Option<hid_t>,
    pub team: Option<Arc<Team>>,
    /// Its first writer, this process, if it was made.
    pub first: Option<First>,
    pub writing: Option<Writing>,
}

pub(super) fn finish(h5: &'static Api, o: Opening<'_>) -> Result<Arc<File>> {
    // SAFETY: the ids are those that HDF5 passed; the name ends in NUL.
    let (fapl, fcpl, connector) = unsafe {
        (
            h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(o.fapl))?,
            o.fcpl.map(|id| h5_id(h5, "H5Pcopy", (h5.H5Pcopy)(id))).transpose()?,
            h5_id(h5, "H5VLget_connector_id_by_name", (h5.H5VLget_connector_id_by_name)(c"cenote".as_ptr()))?,
        )
    };
    creation::settle_page_buffer(&Meta::stored(o.meta.clone()), h5, fapl.get())?;
    let ahead = Ahead::new(&o.store, o.container.index(SUPER_INDEX), o.meta.clone());
    let shared = Shared::join(o.store_path, &o.container, o.sup.generation, (o.meta, ahead));
    let meta = Meta::stored(shared.meta().clone());
    let writable = shared.may_write(o.intent & H5F_ACC_RDWR != 0);
    if writable {
        shared.writer_opened();
    }
    let intent = if writable { o.intent | H5F_ACC_RDWR } else { o.intent };
    let file = Arc::new(File {
        h5,
        store: o.store,
        container: o.container,
        meta,
        native: None,
        generation: o.sup.generation,
        uuid: o.sup.uuid,
        path: path::label(&o.path),
        name: o.name.to_vec(),
        at_path: AtPath::new(o.user_block),
        no_attrs_hint: AtomicBool::default(),
        writable,
        intent: AtomicU32::new(intent),
        shared,
        fapl,
        fcpl,
        connector,
        is_parallel: o.team.is_some() || team::is_mpio(h5, o.fapl),
        team: o.team,
        is_atomic: AtomicBool::new(false),
        writing: o.writing,
        handles: Mutex::default(),
    });
    if file.team.is_some() {
        file.shared.ahead().never_alone()?;
    }
    match o.first {
        Some(first) => file.shared.ahead().begun(&first)?,
        None if writable => file.shared.ahead().premise().map(drop)?,
        None => {}
    }
    Ok(file)
}

/// The same file once more (`H5Freopen`).
pub fn reopen(file: &Arc<File>) -> Result<Arc<File>> {
    if file.native.is_some() {
        return super::native::reopen(file);
    }
    let team = if file.team.is_some() { Team::of(file.h5, file.fapl.get())? } else { None };
    finish(
        file.h5,
        Opening {
            store: file.store.clone(),
            store_path: file.shared.store_path().to_path_buf(),
            container: file.container.clone(),
            sup: Super { uuid: file.uuid, generation: file.generation, is_published: file.writing.is_some() },
            meta: file.meta.index().clone(),
            path: PathBuf::from(&file.path),
            user_block: file.at_path.user_block,
            name: &file.name,
            intent: file.intent.load(Ordering::Relaxed),
            fapl: file.fapl.get(),
            fcpl: file.fcpl.as_ref().map(crate::ffi::Hid::get),
            team,
            first: None,
            writing: file.writing.as_ref().map(Writing::again),
        },
    )
}

/// `H5Fis_accessible`: true for a file that `open` would open.
pub fn is_accessible(h5: &'static Api, name: &[u8], fapl: hid_t) -> Result<bool> {
    ASKED.set(Some((name.to_vec(), fapl)));
    let path = path::absolute(path::from_bytes(name)?)?;
    match stub::look(&path)? {
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
