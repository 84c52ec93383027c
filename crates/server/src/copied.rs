//! Copies of a store directory: either made a store of their own, or the store itself if the original is gone.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cenote_device::rados_dir::{Address, Take};
use cenote_device::store_dir::make_private_dir;
use cenote_device::{SharedControl, StoreDir, StoreLock, SystemClock, SystemDevices, home};
use cenote_host::home::shm_base;
use cenote_model::{DeviceSpec, Error, ErrorKind, Result, StoreId};
use cenote_store::{Engine, Seams, StoreSummary};
use rustix::fs::Mode;

use crate::identity::{self, Identity, Standing};
use crate::metadata::{self, Metadata};

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
    meta: Metadata,
    summary: StoreSummary,
    standing: Standing,
    said: Identity,
}

/// Inspects the directory; the caller has the lock.
fn look(dir: &Path) -> Result<CopiedStore> {
    let meta = Metadata::open(dir, false, Take::Own)?;
    let summary = Engine::peek(meta.files.as_ref())?;
    let (standing, said) = identity::standing(dir, meta.local.as_ref(), &summary)?;
    Ok(CopiedStore { meta, summary, standing, said })
}

/// Declares that the directory is the store, since its original, or its newer state, is gone. `None` if a process has
/// the store open.
pub fn adopt(dir: &Path) -> Result<Option<Copied>> {
    if let Some(address) = metadata::home_of(dir)? {
        return adopt_from(dir, &address);
    }
    Engine::peek(&metadata::look(dir)?)?; // before a lock file is created
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
    identity::settle(dir, &meta, &said)?;
    let notes = identity::notes(dir, &meta.files)?;
    for (device, id) in summary.devices.iter().zip(&summary.ids).filter(|(device, _)| device.kind.is_object()) {
        notes
            .take_over(*id)
            .map_err(|error| error.try_next(format!("then tier `{}` is this store's again", device.name)))?;
    }
    Ok(Some(Copied { original: summary.id, store: summary.id, from: said.path, memory_lost }))
}

/// Takes over a store whose home is in a pool: from here on `dir` has it, and no other directory. What was in the memory
/// of another node alone is not in it. `None` if a process has the store open in this directory.
pub fn adopt_from(dir: &Path, address: &Address) -> Result<Option<Copied>> {
    make_private_dir(dir, Mode::RWXU).map_err(|error| Error::io(dir.display().to_string(), &error))?;
    let store_dir = StoreDir::open(dir)?;
    let Some(_lock) = StoreLock::acquire(dir)? else { return Ok(None) };
    let is_new = metadata::home_of(dir)?.is_none();
    if is_new && crate::holds_store(dir)? {
        return Err(refuse(dir, "it holds another store", "choose an empty directory"));
    }
    address.write(&store_dir)?;
    let taken = Metadata::take(dir, address).and_then(|meta| Ok((Engine::peek(meta.files.as_ref())?, meta)));
    let (summary, meta) = match taken {
        Err(error) if is_new => {
            let _ = metadata::forget_home(dir); // report the error of the take-over
            return Err(error);
        }
        taken => taken?,
    };
    if meta.has_moved() {
        home::remove_memory(&shm_base(), summary.id)?;
    }
    Identity::here(dir, summary.id)?.write(meta.local.as_ref())?;
    let memory_lost = meta.has_moved() && summary.devices.iter().any(|device| !device.kind.is_persistent());
    let from = meta.rados.as_ref().map_or_else(PathBuf::new, |rados| rados.taken_from().dir.clone().into());
    Ok(Some(Copied { original: summary.id, store: summary.id, from, memory_lost }))
}

/// Makes a copied directory a store of its own, with another id. All persistent tiers must be in the directory, since
/// tiers outside belong to the original. A copy does not contain what was only in shared memory. `None` if a process
/// has it open.
pub fn clone_copy(dir: &Path) -> Result<Option<Copied>> {
    if let Some(address) = metadata::home_of(dir)? {
        return Err(refuse(
            dir,
            format!("the store's home is {address}, of which this directory has a copy"),
            "make a store with a home and tiers of its own with `cenote init`, and copy into it what is wanted",
        ));
    }
    Engine::peek(&metadata::look(dir)?)?; // before a lock file is created
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
    Identity { becomes: Some(becomes), path: from.clone(), ..said }.write(meta.local.as_ref())?;
    Engine::move_devices(meta.files.as_ref(), &from, &here.path)?;
    let devices = SystemDevices::default();
    let seams = Seams {
        meta: Arc::clone(&meta.files),
        devices: Arc::new(devices.clone()),
        clock: Arc::new(SystemClock),
        control: Arc::new(SharedControl::default()),
    };
    Engine::change_id(seams, becomes, &mut |_, spec, from| devices.change_store(spec, from, becomes))?;
    Identity { store: becomes, ..here }.write(meta.local.as_ref())?;
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
