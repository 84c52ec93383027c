//! Where a store's metadata are: in its directory, or in a pool of Ceph RADOS with a copy in the directory.

use std::path::Path;
use std::sync::Arc;

use cenote_device::rados_dir::{self, ADDRESS_FILE, Address, COPY_ASIDE_DIR, COPY_DIR, Take};
use cenote_device::{FsMetaDir, MetaDir, RadosMetaDir, StoreDir};
use cenote_model::{Error, ErrorKind, Result, StoreConfig};

use crate::host::make_dir;
use crate::identity;

/// Name of the file that a store has from its creation on.
const SUPERBLOCK_FILE: &str = "superblock";

/// The metadata of a store that is opened; the caller has the lock of its directory.
pub(crate) struct Metadata {
    /// The directory itself, which has its identity.
    pub local: Arc<FsMetaDir>,
    /// Superblock, checkpoints and journal.
    pub files: Arc<dyn MetaDir>,
    /// The same, if they are in a pool.
    pub rados: Option<Arc<RadosMetaDir>>,
}

impl Metadata {
    /// Opens it. `create`: a home in a pool is made if there is none. `take`: whether one in a pool may be another directory's.
    pub fn open(dir: &Path, create: bool, take: Take) -> Result<Self> {
        let local = Arc::new(FsMetaDir::open(dir)?);
        let Some(address) = Address::read(&StoreDir::open(dir)?)? else {
            return Ok(Self { files: Arc::clone(&local) as Arc<dyn MetaDir>, local, rados: None });
        };
        refuse_a_copy(dir, &local, &address)?;
        let place = address.connect(dir)?;
        let opened = match RadosMetaDir::open(&place, take) {
            // Held by another directory, or absent: whether the name is free is to be looked at.
            Err(error) if create && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput) => {
                RadosMetaDir::create(&place)?
            }
            opened => opened?,
        };
        Ok(Self::in_pool(local, opened))
    }
    /// Opens the copy of another node's home.
    pub fn of_copy(dir: &Path) -> Result<Self> {
        let local = Arc::new(FsMetaDir::open(dir)?);
        Ok(Self { files: Arc::clone(&local) as Arc<dyn MetaDir>, local, rados: None })
    }
    /// Takes the store over, whoever has it.
    pub fn take(dir: &Path, address: &Address) -> Result<Self> {
        let local = Arc::new(FsMetaDir::open(dir)?);
        Ok(Self::in_pool(local, RadosMetaDir::open(&address.connect(dir)?, Take::Any)?))
    }
    /// Opens the home in a pool that the view of a cluster has given to this directory.
    pub fn open_granted(dir: &Path, address: &Address) -> Result<Self> {
        let local = Arc::new(FsMetaDir::open(dir)?);
        Ok(Self::in_pool(local, RadosMetaDir::open(&address.connect(dir)?, Take::Granted)?))
    }
    fn in_pool(local: Arc<FsMetaDir>, opened: RadosMetaDir) -> Self {
        let rados = Arc::new(opened);
        Self { local, files: Arc::clone(&rados) as Arc<dyn MetaDir>, rados: Some(rados) }
    }
    /// Returns true if shared memory of this node cannot belong to the store's state.
    pub fn has_moved(&self) -> bool {
        self.rados.as_ref().is_some_and(|rados| rados.has_moved())
    }
}

/// Returns true if the home of the store in `dir` is in a pool, and another directory had it last.
pub(crate) fn is_elsewhere(dir: &Path) -> Result<bool> {
    match home_of(dir)? {
        Some(address) => RadosMetaDir::is_own(&address.connect(dir)?).map(|is_own| !is_own),
        None => Ok(false),
    }
}

/// A copy of a directory has the copy's notes too, and would take the store from its original.
fn refuse_a_copy(dir: &Path, local: &FsMetaDir, address: &Address) -> Result<()> {
    let Some(said) = identity::Identity::read(local, dir)? else { return Ok(()) };
    if said.is_same_directory(&identity::Identity::here(dir, said.store)?) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::InvalidInput, format!("store {}", dir.display()))
        .because(format!("this directory is a copy of {}, and the store's home is {address}", said.path.display()))
        .try_next(format!("use that one; if it is gone: `cenote adopt {} --from {address}`", dir.display())))
}

/// The place of a store's metadata, if it is in a pool.
pub fn home_of(dir: &Path) -> Result<Option<Address>> {
    Address::read(&StoreDir::look(dir)?)
}

/// Lets a directory without a store, which is made if it is absent, have its home in a pool from the store's creation on.
/// Returns false if it has that home already. `Exists` if it holds a store with another one.
pub fn set_home(dir: &Path, address: &Address, config: &StoreConfig) -> Result<bool> {
    if dir.exists() && home_of(dir)?.as_ref() == Some(address) {
        return Ok(false);
    }
    if crate::holds_store(dir)? {
        return Err(Error::new(ErrorKind::Exists, format!("store {}", dir.display()))
            .because("its home is elsewhere")
            .try_next("choose another directory; homes do not move yet"));
    }
    make_dir(dir, Some(config)).map_err(|error| Error::io(format!("store {}", dir.display()), &error))?;
    address.write(&StoreDir::open(dir)?).map(|()| true)
}

/// Takes back [`set_home`], for a creation that failed.
pub fn forget_home(dir: &Path) -> Result<()> {
    rados_dir::forget_copy(&dir.join(COPY_DIR))?;
    StoreDir::open(dir)?.remove(ADDRESS_FILE)
}

/// The files of a store's directory, to read them: those of the copy if the home is in a pool.
pub(crate) fn look(dir: &Path) -> Result<FsMetaDir> {
    if home_of(dir)?.is_some() {
        // While a copy is fetched anew, the one before it says which store it is.
        let copies = [COPY_DIR, COPY_ASIDE_DIR].map(|name| dir.join(name));
        if let Some(copy) = copies.iter().find(|copy| copy.join(SUPERBLOCK_FILE).exists()) {
            return FsMetaDir::open_to_look(copy);
        }
    }
    FsMetaDir::open_to_look(dir)
}
