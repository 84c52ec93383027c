//! The register in a file of this node, answered from memory: only this process changes the file.

use std::path::Path;
use std::sync::Mutex;

use cenote_cluster::register::{FileRegister, Held, Register, Stamp, SwapError, Swapped, Token};
use cenote_ha::View;
use cenote_model::Result;

use crate::service::lock;

/// See the module.
pub(super) struct Cached {
    register: FileRegister,
    /// Held while the register is changed, and until `held` says so.
    changing: Mutex<()>,
    /// What the register holds.
    held: Mutex<Result<Option<Held>>>,
}

impl Cached {
    pub fn open(dir: &Path) -> Result<Self> {
        let register = FileRegister::open(dir)?;
        let held = register.read();
        if let Err(error) = &held {
            tracing::error!(%error, "the view of the cluster cannot be read");
        }
        Ok(Self { register, changing: Mutex::default(), held: Mutex::new(held) })
    }
}

impl Register for Cached {
    fn subject(&self) -> String {
        self.register.subject()
    }
    /// A swap that is under way does not hold it up.
    fn read(&self) -> Result<Option<Held>> {
        let held = lock(&self.held).clone();
        if held.is_ok() {
            return held;
        }
        // A person may have put the file right.
        let _changing = lock(&self.changing);
        let held = self.register.read();
        lock(&self.held).clone_from(&held);
        held
    }
    fn swap_as(&self, seen: Option<&Token>, view: &View, stamp: Stamp) -> Result<Swapped, SwapError> {
        let _changing = lock(&self.changing);
        let swapped = self.register.swap_as(seen, view, stamp);
        // Until it is known, nobody is told anything.
        let held = swapped.clone().map_or_else(|_| self.register.read(), |swapped| Ok(swapped.held(view)));
        *lock(&self.held) = held;
        swapped
    }
}
