//! Stores whose directory was moved or copied: corrects the paths and the store id in the metadata.

use std::path::Path;

use cenote_device::MetaDir;
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};

use super::Engine;
use crate::home::name_within;
use crate::superblock::{Stamp, Superblock};
use crate::{Seams, checkpoint, journal};

impl Engine {
    /// Moves the paths of devices that were inside the store's directory along with it. No engine may have the store
    /// open.
    pub fn move_devices(meta: &dyn MetaDir, from: &Path, to: &Path) -> Result<()> {
        let mut superblock = Superblock::read(meta)?;
        let mut moved = false;
        for device in &mut superblock.devices {
            device.spec.change_paths(|path| match path.strip_prefix(from) {
                Ok(within) if path.is_absolute() => {
                    moved = true;
                    to.join(within)
                }
                _ => path,
            });
        }
        if moved { superblock.write(meta) } else { Ok(()) }
    }

    /// Gives a copy of a store another id. `retag` does so for the files of a persistent device; the volatile devices
    /// begin empty, so that the copy opens as after a power loss. Can be repeated until it succeeds.
    #[allow(clippy::needless_pass_by_value, reason = "the seams are the engine's, as in every other way to open one")]
    pub fn change_id(
        seams: Seams,
        to: StoreId,
        retag: &mut dyn FnMut(DeviceId, &DeviceSpec, StoreId) -> Result<()>,
    ) -> Result<()> {
        let meta = seams.meta.as_ref();
        let mut superblock = Superblock::read(meta)?;
        let from = superblock.id;
        for device in superblock.devices.iter().filter(|device| !device.removed && device.spec.kind.is_persistent()) {
            retag(device.id, &device.spec, from)?;
            let opened = seams.devices.open(to, device.id, &device.spec, false)?;
            let mut bytes = vec![0; Stamp::LEN];
            opened.device.read_at(0, &mut bytes)?;
            let stamp = Stamp::decode(&bytes)?;
            check_owner(&format!("tier `{}`", device.spec.name), stamp.store, (from, to))?;
            Stamp { store: to, ..stamp }.write(opened.device.as_ref())?;
        }
        for name in meta.list()? {
            if checkpoint::sequence_of(name_within(&name)).is_some() {
                let mut bytes = meta.read_file(&name)?;
                check_owner(&name, checkpoint::store_of(&name, &bytes)?, (from, to))?;
                checkpoint::change_store(&mut bytes, to);
                meta.write_file(&name, &bytes)?;
            } else if journal::sequence_of(name_within(&name)).is_some() {
                let log = meta.open_log(&name)?;
                if let Some(store) = journal::store_of(&name, log.as_ref())? {
                    check_owner(&name, store, (from, to))?;
                    journal::change_store(log.as_ref(), to)?;
                }
            }
        }
        superblock.id = to;
        superblock.write(meta) // last: this completes the change
    }
}

fn check_owner(what: &str, found: StoreId, (from, to): (StoreId, StoreId)) -> Result<()> {
    if found == from || found == to {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Corrupt, what).because(format!("it belongs to store {found}, not to {from}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An earlier change of ids that did not complete has left both.
    #[test]
    fn what_belongs_to_neither_store_is_refused() {
        let ids = (StoreId(1), StoreId(2));
        assert!(check_owner("a file", ids.0, ids).is_ok() && check_owner("a file", ids.1, ids).is_ok());
        assert_eq!(check_owner("a file", StoreId(3), ids).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
