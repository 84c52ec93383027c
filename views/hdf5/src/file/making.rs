//! Making files: `H5Fcreate`.

use std::fs::File as PlainFile;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote::{Container, Error, ErrorKind, Index, IndexId, ObjectId, Store};

use crate::Result;
use crate::error::h5_id;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_EXCL, H5F_ACC_RDWR, H5F_ACC_SWMR_WRITE, H5F_ACC_TRUNC, hid_t};
use crate::meta::header::{Body, Header};
use crate::meta::{keys, objects};
use crate::props::GroupProps;
use crate::team;
use crate::vol::info;

use super::IMAGES;
use super::checkpoint;
use super::creation::Creation;
use super::identity::{self, StubTarget, There};
use super::in_use::{self, InUse, Use};
use super::kept;
use super::locks::Turn;
use super::open::{rule_of, store_of};
use super::opening::Opening;
use super::parallel::together;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{STATE_KEY, SUPER_INDEX, SUPER_KEY, Super};
use super::writers::{self, First};
use super::{File, path, random_u64};

/// Does `H5Fcreate`.
pub fn create(h5: &'static Api, name: &[u8], flags: u32, fcpl: hid_t, fapl: hid_t) -> Result<Arc<File>> {
    together(
        h5,
        "file_create",
        fapl,
        || {
            let how = How { flags, fcpl, fapl, of_empty: false };
            make(h5, name, how, None)?
                .ok_or_else(|| Error::new(ErrorKind::Internal, "a file").because("it was not made"))
        },
        |there| Opening { name, fapl, fcpl: Some(fcpl), ..there },
    )
}

/// Most bytes of a replaced file that are put back if the new file cannot be made.
const BEFORE_MAX: u64 = 1 << 20;

/// How to make a file.
#[derive(Clone, Copy)]
struct How {
    flags: u32,
    fcpl: hid_t,
    fapl: hid_t,
    /// Only if an empty file is there, which an open call turns into an HDF5 file.
    of_empty: bool,
}

/// Turns an empty file into an HDF5 file, as HDF5 does when one is opened for writing. Returns `None` if it is not empty any more.
pub(super) fn make_of_empty<'a>(
    h5: &'static Api,
    name: &'a [u8],
    fapl: hid_t,
    store: Option<(Store, PathBuf)>,
) -> Result<Option<Opening<'a>>> {
    // SAFETY: a plain call.
    let fcpl = h5_id(h5, "H5Pcreate", unsafe { (h5.H5Pcreate)(h5.H5P_CLS_FILE_CREATE_ID_g()) })?;
    let how = How { flags: H5F_ACC_TRUNC, fcpl: fcpl.get(), fapl, of_empty: true };
    let made = make(h5, name, how, store)?;
    Ok(made.map(|made| Opening { fcpl: None, ..made }))
}

/// Makes a new, empty file. Returns `None` if a file exists already and only an empty one was to be replaced.
fn make<'a>(
    h5: &'static Api,
    name: &'a [u8],
    how: How,
    store: Option<(Store, PathBuf)>,
) -> Result<Option<Opening<'a>>> {
    let path = path::absolute(path::from_bytes(name)?)?;
    let (props, user_block) = crate::props::file_props(h5, how.fcpl)?;
    let creation = Creation::of(h5, how.fcpl)?;
    creation.check(h5, how.fapl)?;
    // Whatever is there counts, also a directory or a dangling link.
    if how.flags & H5F_ACC_TRUNC == 0 && path::from_bytes(name)?.symlink_metadata().is_ok() {
        return Err(stub::create_error(&path, &std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let (store, store_path) = match store {
        Some(store) => store,
        None => store_of(h5, how.fapl)?,
    };
    // `cenote clean` reports what cannot be freed; making a file does not fail for it.
    let _ = kept::free_some(&store, &store_path);
    let asks = info::atomic_of_fapl(h5, how.fapl);
    let place = ReservedStub::reserve(&path, how.flags & H5F_ACC_EXCL != 0)?;
    let use_ = Use::of(true, how.flags & H5F_ACC_SWMR_WRITE != 0);
    place.in_use.claim(use_, rule_of(h5, how.fapl), &path)?;
    let turn = Turn::wait(&place.file, true).map_err(|e| stub::create_error(&path, &e))?;
    let seen = stub::look_in(&place.file, &path)?;
    if how.of_empty && seen != Seen::Empty {
        return Ok(None);
    }
    let (old, state) = match &seen {
        Seen::Stub(stub) => replaced(&store, &store_path, &path, stub)?,
        _ => (None, 0),
    };
    // Before any change: this removes what dead writers left, and readers see the published snapshot meanwhile.
    let mut writing = None;
    if let Some((container, sup)) = &old {
        writing = checkpoint::enter(&store, &store_path, container, sup.is_published, asks)?;
    }
    let new = New {
        store: &store,
        store_path: &store_path,
        path: &path,
        root: (&props, creation),
        user_block,
        is_alone: !team::is_mpio(h5, how.fapl),
    };
    let (Begun { container, sup, meta, .. }, first) =
        new.begin(&place, old.as_ref(), state + 1, seen == Seen::Empty)?;
    drop(turn);
    place.in_use.written();
    if old.is_some() {
        sweep(&store, &container, sup.generation)?;
    }
    if writing.is_none() {
        writing = checkpoint::enter(&store, &store_path, &container, false, asks)?;
    }
    let intent = H5F_ACC_RDWR | how.flags & H5F_ACC_SWMR_WRITE;
    Ok(Some(Opening {
        user_block,
        name,
        intent,
        fcpl: Some(how.fcpl),
        first: Some(first),
        writing,
        in_use: Some(place.in_use),
        ..Opening::new(store, store_path, container, sup, meta, path, how.fapl)
    }))
}

/// A file whose making has begun.
struct Begun {
    container: Container,
    sup: Super,
    meta: Index,
    /// Its first writer, this process, once its records are stored.
    first: Option<First>,
}

/// Parameters of a new file.
struct New<'a> {
    store: &'a Store,
    store_path: &'a Path,
    path: &'a Path,
    root: (&'a GroupProps, Creation),
    user_block: u64,
    /// Launched changes are allowed while the file has one writer.
    is_alone: bool,
}

impl New<'_> {
    /// Begins it at its place. `is_empty`: nothing is there yet; `old`: the file that it replaces.
    fn begin(
        &self,
        place: &ReservedStub,
        old: Option<&(Container, Super)>,
        state: u64,
        is_empty: bool,
    ) -> Result<(Begun, First)> {
        let begun = match old {
            Some((container, sup)) => Begun::over(container, sup, state),
            None => begin_new(self.store, self.path, state, self.root, self.is_alone),
        };
        let begun = begun.inspect_err(|_| place.give_up())?;
        let is_just_made = old.is_none() && place.new_at.is_some();
        let at = (self.store_path, self.path, self.user_block);
        let made = place.write(&begun, at, is_empty, is_just_made).and_then(|()| match begun.first {
            Some(first) => Ok(first),
            None => begun.begin(self.store, self.root, self.is_alone),
        });
        let first = made.inspect_err(|_| {
            place.give_up();
            if old.is_none() {
                // Nothing was made. The reason is reported, not a failure of this.
                let _ = self.store.delete_container_by_id(begun.container.id());
            }
        })?;
        Ok((begun, first))
    }
}

impl Begun {
    /// A new file in the container of another, with nothing stored yet.
    fn over(container: &Container, old: &Super, state: u64) -> Result<Self> {
        let sup = Super { state, ..Super::new(old.uuid, random_u64()?) };
        Ok(Self { meta: metadata(container, sup.generation), container: container.clone(), sup, first: None })
    }
    fn begin(&self, store: &Store, root: (&GroupProps, Creation), is_alone: bool) -> Result<First> {
        let is_alone = is_alone && !self.container.had_quota();
        begin_generation(store, &self.container, self.sup, &self.meta, root, is_alone)
    }
}

/// Makes a container with a new, empty file in it, in one message.
fn begin_new(
    store: &Store,
    path: &Path,
    state: u64,
    (root, creation): (&GroupProps, Creation),
    is_alone: bool,
) -> Result<Begun> {
    let sup = Super { state, ..Super::new(new_uuid()?, random_u64()?) };
    let writers = First::new(store, is_alone)?;
    let supers =
        vec![(SUPER_KEY, sup.encode()), (STATE_KEY, identity::record(state)), (writers::WRITERS_KEY, writers.record())];
    let (header_key, creation_key) = (keys::of(keys::TAG_HEADER, keys::ROOT), Creation::key());
    let mut records = vec![(&header_key[..], root_header(root).encode())];
    records.extend(creation.record().map(|record| (&creation_key[..], record)));
    let indices = [(SUPER_INDEX, supers), (index_id(sup.generation), records)];
    let (container, made) = identity::new_container(store, path, &indices)?;
    let [supers, meta] = made.try_into().map_err(|_| Error::new(ErrorKind::Internal, "the indices of a new file"))?;
    Ok(Begun { container, sup, meta: meta.index, first: Some(writers.made(supers.version)) })
}

fn root_header(root: &GroupProps) -> Header {
    Header { born_unix_s: objects::born(root.object.track_times), body: Body::Group(root.clone()) }
}

/// A random file id.
pub(super) fn new_uuid() -> Result<u128> {
    Ok(u128::from(random_u64()?) << 64 | u128::from(random_u64()?))
}

/// The container that a new file over this stub replaces, if the stub is the file's own, of whatever state; and the greatest known
/// state.
fn replaced(store: &Store, store_path: &Path, path: &Path, stub: &Stub) -> Result<(Option<(Container, Super)>, u64)> {
    Ok(match identity::know(store, store_path, path, stub)? {
        StubTarget::File(There { container, sup, .. }) | StubTarget::Stale(container, sup) => {
            if Shared::is_open(store_path, container.id()) {
                return Err(Error::new(ErrorKind::Busy, format!("unable to create file: name = '{}'", path.display()))
                    .because("unable to truncate a file which is already open")
                    .try_next("close it first"));
            }
            let state = sup.state.max(stub.state);
            (Some((container, sup)), state)
        }
        StubTarget::Copy(..) | StubTarget::Nothing => (None, 0),
    })
}

/// The file at a path, opened to become a stub.
struct ReservedStub {
    file: PlainFile,
    in_use: Arc<InUse>,
    /// Its path, if it did not exist before.
    new_at: Option<PathBuf>,
    /// Its former content, put back on failure.
    before: Vec<u8>,
}

impl ReservedStub {
    /// Reserves the name, which shows at once whether the directory is writable.
    fn reserve(path: &Path, is_exclusive: bool) -> Result<Self> {
        let wrap = |e: std::io::Error| stub::create_error(path, &e);
        let there = if is_exclusive {
            None
        } else {
            match PlainFile::options().read(true).write(true).open(path) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
                Err(e) => return Err(wrap(e)),
            }
        };
        let (file, new_at) = match there {
            Some(file) => (file, None),
            None => match stub::make(path) {
                Ok(file) => (file, Some(path.to_path_buf())),
                // Another program was faster.
                Err(_) if !is_exclusive && path.exists() => return Self::reserve(path, false),
                Err(error) => return Err(error),
            },
        };
        let about = file.metadata().map_err(wrap)?;
        let in_use = InUse::of(file.try_clone().map_err(wrap)?, &about, true).map_err(wrap)?;
        // A stub, or the beginning of a file that will be replaced anyway.
        let mut before = vec![0; about.len().min(BEFORE_MAX) as usize];
        if !before.is_empty() {
            let read = file.read_at(&mut before, 0).map_err(wrap)?;
            before.truncate(read);
        }
        Ok(Self { file, in_use, new_at, before })
    }
    /// Writes the stub of a begun file, and tells the store. `is_just_made`: neither container nor stub existed before.
    fn write(
        &self,
        begun: &Begun,
        (store_path, path, user_block): (&Path, &Path, u64),
        is_empty: bool,
        is_just_made: bool,
    ) -> Result<()> {
        let stub = Stub {
            uuid: begun.sup.uuid,
            container: Some(begun.container.id()),
            state: begun.sup.state,
            path: path::label(path),
            store: store_path.display().to_string(),
            user_block,
            staged: false,
        };
        let done = if is_empty {
            stub.put_into_empty(&self.file)
        } else {
            self.file.set_len(0).and_then(|()| stub.put(&self.file))
        };
        done.map_err(|e| stub::create_error(path, &e))?;
        in_use::touch(&self.file);
        kept::keep(store_path, begun.container.id(), stub.uuid, (&self.file, path), is_just_made);
        Ok(())
    }
    /// Undoes the reservation, which must not look like a file. A failure to remove it changes nothing.
    fn give_up(&self) {
        let _ = match &self.new_at {
            Some(path) => std::fs::remove_file(path),
            None => self.file.set_len(0).and_then(|()| self.file.write_all_at(&self.before, 0)),
        };
    }
}

/// The index of a file's metadata, which caches what was read.
pub(super) fn metadata(container: &Container, generation: u64) -> Index {
    container.index(index_id(generation)).remembering()
}

/// Makes the container a new, empty file in one transaction.
pub(super) fn begin_generation(
    store: &Store,
    container: &Container,
    sup: Super,
    meta: &Index,
    (root, creation): (&GroupProps, Creation),
    is_alone: bool,
) -> Result<First> {
    let supers = container.open_index(SUPER_INDEX)?;
    let mut tx = store.begin();
    if let Some(old) = tx.get(&supers, SUPER_KEY)? {
        // An unreadable superblock belongs to another version: its index stays, and is deleted with the container.
        if let Ok(old) = Super::decode(&old) {
            tx.delete_index(&container.index(index_id(old.generation)))?;
        }
    }
    tx.create_index(container, Some(index_id(sup.generation)))?;
    tx.put(&supers, SUPER_KEY, &sup.encode())?;
    tx.put(&supers, STATE_KEY, &identity::record(sup.state))?;
    let first = First::put(&mut tx, &supers, is_alone)?;
    tx.put(meta, &keys::of(keys::TAG_HEADER, keys::ROOT), &root_header(root).encode())?;
    creation.put(&mut tx, meta)?;
    tx.commit().map(|_| first)
}

/// The id of a generation's metadata index.
pub(super) fn index_id(generation: u64) -> IndexId {
    IndexId(u128::from(generation))
}

/// Deletes raw data of earlier generations. The next creation sweeps what a crash leaves over.
fn sweep(store: &Store, container: &Container, generation: u64) -> Result<()> {
    let mut after = None;
    loop {
        let page = container.objects(after, 1024)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(*last);
        let mut tx = store.begin();
        let old: Vec<ObjectId> =
            page.iter().copied().filter(|id| ![generation, IMAGES].contains(&((id.0 >> 64) as u64))).collect();
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
