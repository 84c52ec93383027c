//! Making files: `H5Fcreate`.

use std::sync::Arc;

use cenote::{Container, ContainerSpec, Error, ErrorKind, Index, IndexId, ObjectId, Store};

use crate::Result;
use crate::ffi::Api;
use crate::ffi::types::{H5F_ACC_EXCL, H5F_ACC_RDWR, H5F_ACC_SWMR_WRITE, H5F_ACC_TRUNC, hid_t};
use crate::meta::header::{Body, Header};
use crate::meta::{keys, objects};
use crate::props::GroupProps;
use crate::team;
use crate::vol::info;

use super::STREAMS;
use super::ahead::First;
use super::checkpoint;
use super::creation::Creation;
use super::open::{label_of, store_of};
use super::opening::Opening;
use super::parallel::together;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{SUPER_INDEX, SUPER_KEY, Super};
use super::{File, path, random_u64};

/// `H5Fcreate`.
pub fn create(h5: &'static Api, name: &[u8], flags: u32, fcpl: hid_t, fapl: hid_t) -> Result<Arc<File>> {
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
    // Whatever it is that is there: a directory, a link that leads to nothing.
    if flags & H5F_ACC_TRUNC == 0 && path::from_bytes(name)?.symlink_metadata().is_ok() {
        return Err(stub::create_error(&path, &std::io::Error::from_raw_os_error(libc::EEXIST)));
    }
    let there = stub::look(&path)?;
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
        writing = checkpoint::enter(&store, &store_path, &container, marked, info::atomic_of_fapl(h5, fapl))?;
    }
    // The stub comes first: it shows at once whether this directory may be written to, and reserves the name.
    let stub = Stub {
        uuid: u128::from(random_u64()?) << 64 | u128::from(random_u64()?),
        path: path::label(&path),
        store: store_path.display().to_string(),
        user_block,
        staged: false,
    };
    stub.write(&path, flags & H5F_ACC_EXCL != 0).inspect_err(|_| forget_empty(&store, &container, &label))?;
    let sup = Super::new(stub.uuid, random_u64()?);
    let meta = metadata(&container, sup.generation);
    let is_alone = !team::is_mpio(h5, fapl) && !container.had_quota();
    let (first, was_published) = begin_generation(&store, &container, sup, &meta, (&props, creation), is_alone)
        .inspect_err(|_| {
            if there == Seen::Nothing {
                // Nothing was made; the reservation must not look like a file. Failing to remove it changes nothing.
                let _ = std::fs::remove_file(&path);
                forget_empty(&store, &container, &label);
            }
        })?;
    if was_published && there == Seen::Nothing {
        checkpoint::forget(&store, &container)?;
    }
    sweep(&store, &container, sup.generation)?;
    if writing.is_none() {
        writing = checkpoint::enter(&store, &store_path, &container, false, info::atomic_of_fapl(h5, fapl))?;
    }
    let intent = H5F_ACC_RDWR | flags & H5F_ACC_SWMR_WRITE;
    Ok(Opening {
        user_block,
        name,
        intent,
        fcpl: Some(fcpl),
        first: Some(first),
        writing,
        ..Opening::new(store, store_path, container, sup, meta, path, fapl)
    })
}

/// Deletes the container of a file that could not be made, if there was none of that name before. Why it could not is what is
/// told.
fn forget_empty(store: &Store, container: &Container, label: &str) {
    if matches!(Super::read(container), Ok(None)) {
        let _ = store.delete_container(label);
    }
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
        let old: Vec<ObjectId> =
            page.iter().copied().filter(|id| ![generation, STREAMS].contains(&((id.0 >> 64) as u64))).collect();
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
