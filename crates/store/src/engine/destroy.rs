//! Destruction of a store: its devices, then its files, the superblock last.

use cenote_model::{Error, Result};

use super::Engine;
use crate::habits::HABITS;
use crate::home::{SHARED, name_within};
use crate::superblock::{SUPERBLOCK, Superblock};
use crate::{Seams, checkpoint, journal};

impl Engine {
    /// Deletes a store that no engine has open. A device whose bytes cannot be removed fails the call, which can be
    /// repeated once that is mended. With `force` such a device is left, and named in the answer.
    #[allow(clippy::needless_pass_by_value, reason = "the seams are the engine's, as in every other way to open one")]
    pub fn destroy(seams: Seams, force: bool) -> Result<Vec<Error>> {
        let meta = &seams.meta;
        let superblock = Superblock::read(meta.as_ref())?;
        let mut left = Vec::new();
        for device in superblock.devices.iter().filter(|device| !device.removed) {
            match seams.devices.remove(superblock.id, device.id, &device.spec) {
                Err(error) if force => left.push(error),
                result => result?,
            }
        }
        for name in meta.list()? {
            let within = name_within(&name);
            if journal::sequence_of(within).is_some()
                || checkpoint::sequence_of(within).is_some()
                || within == HABITS
                || SHARED.contains(&name.as_str())
            {
                meta.remove(&name)?;
            }
        }
        meta.remove(SUPERBLOCK)?;
        Ok(left)
    }
}
