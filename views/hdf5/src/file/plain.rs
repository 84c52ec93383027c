//! Files of the store opened without any libhdf5.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote::{Container, Error, ErrorKind, Store};

use super::ahead::Ahead;
use super::checkpoint;
use super::creation::Creation;
use super::identity::{self, find};
use super::in_use::{self, InUse};
use super::locks::Turn;
use super::making::{begin_generation, metadata, new_uuid};
use super::open::super_of;
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{SUPER_INDEX, Super};
use super::{Core, kept, path, random_u64};
use crate::Result;
use crate::meta::records::Meta;
use crate::props::GroupProps;

/// The store that the stub at `path` names; `None` if there is no stub.
pub fn store_dir(path: &Path) -> Result<Option<std::path::PathBuf>> {
    match stub::look(&path::absolute(path)?)? {
        Seen::Stub(stub) => Ok(Some(path::of_label(&stub.store))),
        _ => Ok(None),
    }
}

/// Opens the file at `path`. Changes are visible to all when their call returns; a process that writes the file through HDF5
/// is asked to await its changes as well. Of a file in atomic checkpoints the last one is read, and writing is refused.
pub fn open(store: &Store, path: &Path, writable: bool) -> Result<Arc<Core>> {
    let path = path::absolute(path)?;
    let stub = match stub::look(&path)? {
        Seen::Stub(stub) if !stub.staged => stub,
        Seen::Native | Seen::Stub(_) => {
            return Err(Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
                .because("it is a native HDF5 file, of which the store has no records")
                .try_next("make it a file of the store: `cenote import`"));
        }
        other => return Err(stub::refuse(&path, &other)),
    };
    let store_path = path::absolute(store.dir())?;
    let (mut container, mut sup) = find(store, &store_path, &path, &stub)?;
    let wrap = |e: std::io::Error| stub::open_error(&path, &e);
    let file = if writable {
        File::options().read(true).write(true).open(&path).map_err(wrap)?
    } else {
        stub::open_quietly(&path).map_err(wrap)?
    };
    identity::seen_at(store, &store_path, (&container, &sup), false, (&file, &path));
    if writable {
        if sup.is_published {
            return Err(Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
                .because("it is written in atomic checkpoints, which end with a flush of HDF5's")
                .try_next("write it by HDF5, or remove its checkpoint with the file"));
        }
        sup.upgrade(&container.index(SUPER_INDEX))?;
        identity::raise(&container, &mut sup, &stub, &file, &path)?;
    } else if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container, None)?
    {
        sup = super_of(&published, &path)?;
        container = published;
    }
    assemble(store, container, sup, &path, Some((file, writable)))
}

/// `stub`: the open stub, and whether it is open for writing.
fn assemble(
    store: &Store,
    container: Container,
    sup: Super,
    path: &Path,
    stub: Option<(File, bool)>,
) -> Result<Arc<Core>> {
    let writable = stub.as_ref().is_some_and(|(_, writable)| *writable);
    let in_use = stub.map(|(file, writable)| InUse::new(file, writable)).transpose();
    let in_use = in_use.map_err(|e| stub::open_error(path, &e))?;
    if let Some(in_use) = in_use.as_ref().filter(|_| writable) {
        in_use.written();
    }
    let meta = metadata(&container, sup.generation);
    let ahead = Ahead::new(&container, container.index(SUPER_INDEX), meta.clone());
    let store_path = path::absolute(store.dir())?;
    let shared = Shared::join(store_path, &container, sup.generation, (meta, ahead));
    if writable {
        shared.may_write(true);
        shared.writer_opened();
        shared.ahead().is_shared.store(true, Ordering::Relaxed);
    }
    let core = Arc::new(Core {
        store: store.clone(),
        meta: Meta::stored(shared.meta().clone()),
        container,
        generation: sup.generation,
        uuid: sup.uuid,
        state: sup.state,
        path: path::label(path),
        writable,
        shared,
        in_use,
    });
    if writable {
        // Makes a process that launches changes settle them now.
        core.shared.ahead().precondition()?;
    }
    Ok(core)
}

/// Makes a new, empty file at `path`, which must not exist.
pub fn create(store: &Store, path: &Path) -> Result<Arc<Core>> {
    let path = path::absolute(path)?;
    let store_path = path::absolute(store.dir())?;
    let file = stub::make(&path)?;
    let made = fill(store, &store_path, &path, &file);
    let (container, sup) = made.inspect_err(|_| {
        // Nothing was made; the reservation must not look like a file. A failure to remove it changes nothing.
        let _ = std::fs::remove_file(&path);
    })?;
    assemble(store, container, sup, &path, Some((file, true)))
}

fn fill(store: &Store, store_path: &Path, path: &Path, file: &File) -> Result<(Container, Super)> {
    let wrap = |e: std::io::Error| stub::create_error(path, &e);
    let _turn = Turn::wait(file, true).map_err(wrap)?;
    let (container, _) = identity::new_container(store, path, &[])?;
    let stub = Stub {
        uuid: new_uuid()?,
        container: Some(container.id()),
        state: 1,
        path: path::label(path),
        store: store_path.display().to_string(),
        user_block: 0,
        staged: false,
    };
    let sup = Super { state: stub.state, ..Super::new(stub.uuid, random_u64()?) };
    let root = (&GroupProps::defaults(), Creation::defaults());
    let made = stub.put(file).map_err(wrap).and_then(|()| {
        in_use::touch(file);
        kept::keep(store_path, container.id(), stub.uuid, (file, path), true);
        begin_generation(store, &container, sup, &metadata(&container, sup.generation), root, false)
    });
    made.inspect_err(|_| {
        // Report why the file could not be made, not a failure of this.
        let _ = store.delete_container_by_id(container.id());
    })?;
    Ok((container, sup))
}
