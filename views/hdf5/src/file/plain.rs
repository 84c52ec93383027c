//! Files of the store opened without any libhdf5.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote::{Container, ContainerSpec, Error, ErrorKind, Store};

use super::ahead::Ahead;
use super::checkpoint;
use super::creation::Creation;
use super::making::{begin_generation, metadata};
use super::open::{find, super_of};
use super::shared::Shared;
use super::stub::{self, Seen, Stub};
use super::superblock::{SUPER_INDEX, Super};
use super::{Core, path, random_u64};
use crate::Result;
use crate::meta::records::Meta;
use crate::props::GroupProps;

/// The store that the file at `path` says it is in; none if there is no stub of ours.
pub fn store_dir(path: &Path) -> Result<Option<std::path::PathBuf>> {
    match stub::look(&path::absolute(path)?)? {
        Seen::Stub(stub) => Ok(Some(path::of_label(&stub.store))),
        _ => Ok(None),
    }
}

/// Opens the file at `path`. What is changed through this is there for all when the call returns; who writes the file by
/// HDF5 is asked to do so too. Of a file that is written in atomic checkpoints its last one is read, and nothing is written.
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
    if writable {
        std::fs::OpenOptions::new().write(true).open(&path).map_err(|e| stub::open_error(&path, &e))?;
        if sup.is_published {
            return Err(Error::new(ErrorKind::Unsupported, format!("file {}", path.display()))
                .because("it is written in atomic checkpoints, which end with a flush of HDF5's")
                .try_next("write it by HDF5, or remove its checkpoint with the file"));
        }
        sup.upgrade(&container.index(SUPER_INDEX))?;
    } else if sup.is_published
        && let Some(published) = checkpoint::published(&store_path, &container, None)?
    {
        sup = super_of(&published, &path)?;
        container = published;
    }
    assemble(store, container, sup, &path, writable)
}

fn assemble(store: &Store, container: Container, sup: Super, path: &Path, writable: bool) -> Result<Arc<Core>> {
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
        path: path::label(path),
        writable,
        shared,
    });
    if writable {
        // Whoever launches changes settles them now.
        core.shared.ahead().premise()?;
    }
    Ok(core)
}

/// Makes a new, empty file at `path`, where nothing may be.
pub fn create(store: &Store, path: &Path) -> Result<Arc<Core>> {
    let path = path::absolute(path)?;
    let label = super::open::label_of(&path);
    let store_path = path::absolute(store.dir())?;
    let container = store.open_container(&label, &ContainerSpec::default())?;
    let stub = Stub {
        uuid: u128::from(random_u64()?) << 64 | u128::from(random_u64()?),
        path: path::label(&path),
        store: store_path.display().to_string(),
        user_block: 0,
        staged: false,
    };
    stub.write(&path, true)?;
    let sup = Super::new(stub.uuid, random_u64()?);
    let meta = metadata(&container, sup.generation);
    let root = (&GroupProps::preset(), Creation::preset());
    begin_generation(store, &container, sup, &meta, root, false).inspect_err(|_| {
        // Nothing was made; the reservation must not look like a file. Failing to remove it changes nothing.
        let _ = std::fs::remove_file(&path);
    })?;
    assemble(store, container, sup, &path, true)
}
