//! A file of the store as the byte image of a native file, made in the store: one object holds what HDF5 writes of its own,
//! and shares raw data in place, without copying them (see [`crate::foreign::making`]).

use std::path::Path;
use std::sync::Arc;

use cenote::{Changes, Container, Error, ErrorKind, IndexId, Object, ObjectId, Store};
use parking_lot::Mutex;

use super::export::{Onto, make};
use crate::Result;
use crate::data::HEAP_BIT;
use crate::ffi::Api;
use crate::file::{self, IMAGES, open};
use crate::foreign::making::{Lent, Making};
use crate::meta::header::{self, Body};
use crate::meta::keys;

/// Most bytes written by one message.
const MESSAGE_BYTES: usize = 4 << 20;
/// Ranges shared in one transaction.
const SHARED_MAX: usize = 512;
/// Attempts to make an image of a file that others change, before a snapshot is used.
const TRIES: u32 = 2;

/// A file as a byte image.
#[derive(Debug)]
pub struct Image {
    /// The object that has the bytes; nobody else knows it yet.
    pub object: Object,
    /// Length in bytes.
    pub size_bytes: u64,
    /// Bytes of it that were written for it.
    pub kept_bytes: u64,
    /// Bytes of it that are shared with datasets.
    pub shared_bytes: u64,
    /// The sources from which it was made.
    pub sources: Sources,
}

/// The sources of an image, which tell whether it still equals the file.
#[derive(Clone, Default, Debug)]
pub struct Sources {
    /// Indices of the file's container.
    pub indices: Vec<IndexId>,
    /// Objects.
    pub objects: Vec<ObjectId>,
    /// Change counts of all these when the image was made; 0: unknown.
    pub changes: Changes,
}

/// Makes an image of the file at `path`. The caller deletes the object if it is not needed.
pub fn image(h5: &'static Api, store: &Store, path: &Path) -> Result<Image> {
    if let Ok(staged) = file::staged_object(store, path) {
        return of_staged(&staged);
    }
    let (base, _) = open::locate(store, path)?;
    for _ in 0..TRIES {
        let before = sources(h5, store, path, &base)?;
        let made = made_of(h5, store, path, &base);
        let after = base.changes(&before.indices, &before.objects)?;
        match made {
            Ok(made) if after == before.changes => return Ok(Image { sources: before, ..made }),
            Ok(made) => base.delete_object(made.object.key().object)?,
            Err(error) if after == before.changes => return Err(error),
            Err(_) => {}
        }
    }
    of_snapshot(h5, store, path, &base)
}

/// Makes an image of a snapshot, for a file that is written all the time.
fn of_snapshot(h5: &'static Api, store: &Store, path: &Path, base: &Container) -> Result<Image> {
    let before = sources(h5, store, path, base)?;
    let name = format!("image-{}-{:x}", std::process::id(), crate::data::nonce());
    base.snapshot(&name)?;
    let mut at = path.as_os_str().to_owned();
    at.push("@");
    at.push(&name);
    let made = made_of(h5, store, Path::new(&at), base);
    base.delete_snapshot(&name)?;
    Ok(Image { sources: before, ..made? })
}

/// Makes an image of a staged file, which has the bytes of a native file.
fn of_staged(staged: &Object) -> Result<Image> {
    let container = staged.container().clone();
    let changes = container.changes(&[], &[staged.key().object])?;
    let size_bytes = staged.size()?;
    let object = container.create_object(Some(fresh_id()), None)?;
    let shared_bytes = object.share_from(0, staged, 0, size_bytes)?;
    let sources = Sources { indices: Vec::new(), objects: vec![staged.key().object], changes };
    Ok(Image { object, size_bytes, kept_bytes: 0, shared_bytes, sources })
}

fn fresh_id() -> ObjectId {
    ObjectId(u128::from(IMAGES) << 64 | u128::from(crate::data::nonce()))
}

/// The sources on which the file's content depends.
fn sources(h5: &'static Api, store: &Store, path: &Path, base: &Container) -> Result<Sources> {
    let file = open::open_stored(h5, store, path)?;
    let indices = vec![file::SUPER_INDEX, IndexId(u128::from(file.generation))];
    let mut objects = Vec::new();
    for record in file.meta.iter(&[keys::TAG_HEADER]) {
        let (key, value) = record?;
        if let Some(oid) = key.get(1..9).and_then(|oid| oid.try_into().ok()).map(u64::from_be_bytes)
            && matches!(header::Header::decode(&value)?.body, Body::Dataset { .. })
        {
            objects.extend([file.object_id(oid), file.object_id(oid | HEAP_BIT)]);
        }
    }
    // The checkpoint that readers see is replaced at the next flush, which changes nothing that could be compared.
    let is_still = file.container.id() != base.id();
    let changes = if is_still { Changes::default() } else { base.changes(&indices, &objects)? };
    Ok(Sources { indices, objects, changes })
}

fn made_of(h5: &'static Api, store: &Store, path: &Path, base: &Container) -> Result<Image> {
    let source = open::open_stored(h5, store, path)?;
    if source.native.is_some() {
        return Err(Error::new(ErrorKind::InvalidInput, format!("file {}", path.display()))
            .because("it is a native HDF5 file already"));
    }
    let making = Arc::new(Mutex::new(Making::default()));
    make(h5, &source, Onto::Store(&making), &mut |_| Ok(()))?;
    let making = making.lock();
    let object = base.create_object(Some(fresh_id()), None)?;
    let stored = stored(&object, &making);
    if stored.is_err() {
        // Report the first error, not one of this deletion.
        let _ = base.delete_object(object.key().object);
    }
    stored
}

fn stored(object: &Object, making: &Making) -> Result<Image> {
    let store = object.container().store();
    let (mut kept_bytes, mut shared_bytes) = (0, 0);
    let mut batch: Vec<(u64, &[u8])> = Vec::new();
    let mut bytes = 0;
    for (at, part) in making.kept() {
        batch.push((at, part));
        bytes += part.len();
        kept_bytes += part.len() as u64;
        if bytes >= MESSAGE_BYTES {
            object.writev(&batch)?;
            batch.clear();
            bytes = 0;
        }
    }
    if !batch.is_empty() {
        object.writev(&batch)?;
    }
    let lent = making.lent();
    for some in lent.chunks(SHARED_MAX) {
        let mut tx = store.begin();
        for (at, Lent { object: from, offset, bytes }) in some {
            // Ranges that were never written read as zeros in both.
            let there = match from.size() {
                Ok(size) => size.saturating_sub(*offset).min(*bytes),
                Err(error) if error.kind() == ErrorKind::NotFound => 0,
                Err(error) => return Err(error),
            };
            if there < *bytes {
                tx.punch(object, at + there, bytes - there)?;
            }
            if there > 0 {
                tx.share(object, *at, from, *offset, there)?;
                shared_bytes += there;
            }
        }
        if tx.is_empty() { tx.abort() } else { tx.commit().map(drop)? }
    }
    let size_bytes = making.size_bytes();
    object.truncate(size_bytes)?;
    Ok(Image { object: object.clone(), size_bytes, kept_bytes, shared_bytes, sources: Sources::default() })
}
