//! Copies of a store directory: either made a store of their own, or the store itself if the original is gone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::{FsMetaDir, SharedControl, StoreLock, SystemClock, SystemDevices, home};
use cenote_host::home::shm_base;
use cenote_model::{DeviceSpec, Error, ErrorKind, Result, StoreId};
use cenote_store::{Engine, Seams, StoreSummary};

use crate::identity::{self, Identity, Standing};

/// The result of adopting or cloning a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Copied {
    /// The store that the directory was, or was copied from.
    pub original: StoreId,
    /// The store that it is now.
    pub store: StoreId,
    /// The directory's former path, or the path of its original.
    pub from: PathBuf,
    /// Shared memory was dropped: it belonged to another state of the directory.
    pub memory_lost: bool,
}

fn refuse(dir: &Path, why: impl Into<String>, next: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidInput, format!("store {}", dir.display())).because(why.into()).try_next(next.into())
}

struct CopiedStore {
    meta: Arc<FsMetaDir>,
    summary: StoreSummary,
    standing: Standing,
    said: Identity,
}

/// Inspects the directory; the caller has the lock.
fn look(dir: &Path) -> Result<CopiedStore> {
    let meta = Arc::new(FsMetaDir::open(dir)?);
    let summary = Engine::peek(meta.as_ref())?;
    let (standing, said) = identity::standing(dir, meta.as_ref(), &summary)?;
    Ok(CopiedStore { meta, summary, standing, said })
}

/// Declares that the directory is the store, since its original, or its newer state, is gone. `None` if a process has
/// the store open.
pub fn adopt(dir: &Path) -> Result<Option<Copied>> {
    Engine::peek(&FsMetaDir::open_to_look(dir)?)?; // before a lock file is created
    let Some(_lock) = StoreLock::acquire(dir)? else { return Ok(None) };
    let CopiedStore { meta, summary, standing, said } = look(dir)?;
    match standing {
        Standing::CopyOf(path) => {
            return Err(refuse(
                dir,
                format!("the store is still there in {}", path.display()),
                format!(
                    "destroy or remove that one first; or make a store of its own of this one: `cenote clone {}`",
                    dir.display()
                ),
            ));
        }
        Standing::HalfCloned => {
            return Err(refuse(
                dir,
                "making a store of its own of it was interrupted",
                format!("`cenote clone {}` brings it to its end", dir.display()),
            ));
        }
        Standing::Own | Standing::Lone(_) => {}
    }
    // Detects an engine on the same store in another directory.
    let control = SharedControl::new(shm_base());
    cenote_device::Control::attach(&control, summary.id)?;
    let memory_lost = !identity::memory_agrees(dir, summary.id);
    if memory_lost {
        home::remove_memory(&shm_base(), summary.id)?;
    }
    drop(control);
    let said = Identity { store: summary.id, ..said };
    identity::settle(dir, meta.as_ref(), &said)?;
    let notes = identity::notes(dir, &meta)?;
    for (device, id) in summary.devices.iter().zip(&summary.ids).filter(|(device, _)| device.kind.is_object()) {
        notes
            .take_over(*id)
            .map_err(|error| error.try_next(format!("then tier `{}` is this store's again", device.name)))?;
    }
    Ok(Some(Copied { original: summary.id, store: summary.id, from: said.path, memory_lost }))
}

/// Makes a copied directory a store of its own, with another id. All persistent tiers must be in the directory, since
/// tiers outside belong to the original. A copy does not contain what was only in shared memory. `None` if a process
/// has it open.
pub fn clone_copy(dir: &Path) -> Result<Option<Copied>> {
    Engine::peek(&FsMetaDir::open_to_look(dir)?)?; // before a lock file is created
    let Some(_lock) = StoreLock::acquire(dir)? else { return Ok(None) };
    let CopiedStore { meta, summary, standing, said } = look(dir)?;
    if standing == Standing::Own {
        return Err(refuse(
            dir,
            "it is the store itself, not a copy",
            format!(
                "copy its directory while nothing has it open: `cp -a {0} COPY`, then `cenote clone COPY`",
                dir.display()
            ),
        ));
    }
    let here = Identity::here(dir, summary.id)?;
    let from = match &standing {
        Standing::CopyOf(path) | Standing::Lone(path) => path.clone(),
        Standing::Own | Standing::HalfCloned => said.path.clone(),
    };
    let outside: Vec<&DeviceSpec> = (summary.devices.iter())
        .filter(|device| device.kind.is_persistent() || device.kind.is_object())
        .filter(|device| {
            device.kind.is_object() || !(device.path.starts_with(&from) || device.path.starts_with(&here.path))
        })
        .collect();
    if let [first, ..] = outside[..] {
        return Err(refuse(
            dir,
            format!(
                "its tier `{}` is outside of the directory, in {}, and the original's",
                first.name,
                first.path.display()
            ),
            "make a store with tiers of its own with `cenote init`, and copy into it what is wanted; or, if the original is \
             gone, `cenote adopt`",
        ));
    }
    let original = said.store;
    let becomes = match said.becomes {
        Some(becomes) => becomes,
        None => another_id(summary.id),
    };
    // From here on the directory is no store until the change is complete.
    Identity { becomes: Some(becomes), path: from.clone(), ..said }.write(meta.as_ref())?;
    Engine::move_devices(meta.as_ref(), &from, &here.path)?;
    let devices = SystemDevices::default();
    let seams = Seams {
        meta: meta.clone(),
        devices: Arc::new(devices.clone()),
        clock: Arc::new(SystemClock),
        control: Arc::new(SharedControl::default()),
    };
    Engine::change_id(seams, becomes, &mut |_, spec, from| devices.change_store(spec, from, becomes))?;
    Identity { store: becomes, ..here }.write(meta.as_ref())?;
    let volatile = summary.devices.iter().any(|device| !device.kind.is_persistent());
    Ok(Some(Copied { original, store: becomes, from, memory_lost: volatile }))
}

/// An id different from every known store.
fn another_id(known: StoreId) -> StoreId {
    use std::hash::{BuildHasher, Hasher};
    let random = |n: u128| {
        // The standard library seeds its hash maps from the system's source of randomness.
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u128(n);
        u128::from(hasher.finish())
    };
    StoreId(random(known.0) << 64 | random(!known.0))
}
