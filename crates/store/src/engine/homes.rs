//! Several engines in one store: made and opened together, the landlord first.
//!
//! The landlord opens the devices and decides which of them lost their bytes; each tenant compares that with its own
//! checkpoint. So a crash between two of them leaves those that had come to the end as they are, and the others find
//! the same loss again.

use cenote_model::{DeviceId, Result};

use super::Engine;
use crate::home::{Home, HomeDir, lent_to};
use crate::superblock::{Loan, Superblock};
use crate::{RecoveryReport, Seams, SessionId, SessionInfo, Tuning};

impl Tuning {
    /// The share of one of `engines` in what an engine alone may use.
    pub(in crate::engine) fn shared(self, engines: u16) -> Self {
        let count = usize::from(engines.max(1));
        Self {
            scrub_bytes_per_s: self.scrub_bytes_per_s / count as u64,
            value_bytes: self.value_bytes / count as u64,
            copy_jobs: (self.copy_jobs / count).max(1),
            ..self
        }
    }
}

impl Engine {
    /// Opens all engines of the store in `seams.meta`, in the order of their homes.
    pub fn open_all(seams: &Seams, settings: Tuning) -> Result<Vec<(Engine, RecoveryReport)>> {
        let superblock = Superblock::read(seams.meta.as_ref())?;
        Self::open_homes(seams, settings, &superblock)
    }

    pub(in crate::engine) fn open_homes(
        seams: &Seams,
        settings: Tuning,
        superblock: &Superblock,
    ) -> Result<Vec<(Engine, RecoveryReport)>> {
        let control_survived = seams.control.attach(superblock.id)?;
        let count = superblock.homes.len().max(1) as u16;
        let mut opened = Vec::new();
        for home in (0..count).map(|index| Home { index, count, of_cluster: superblock.home }) {
            let settings = settings.shared(count);
            let one = Self::open_home(seams_of(seams, home), settings, superblock, home, control_survived, &opened)?;
            opened.push(one);
        }
        // Last: the raised instance word shows that the recovery of all from a power loss is complete.
        seams.control.instance_raise();
        Ok(opened)
    }

    /// The number of this engine among those of the store, from 0, and their number. A container's id modulo that is
    /// the number of its engine.
    pub fn home(&self) -> (u16, u16) {
        (self.core.store.home.index, self.core.store.home.count)
    }

    /// The space lent to each engine of the store; empty if it has one.
    pub fn loans(&self) -> &[Vec<Loan>] {
        &self.core.store.homes
    }

    /// The engine that a run of a device is lent to.
    pub fn lent_to(&self, run: &cenote_model::Run) -> u16 {
        lent_to(&self.core.store.homes, run.device, run.offset)
    }

    /// Opens a session to which the landlord has given this id. The same nonce finds the same session.
    pub fn session_open_as(&mut self, id: SessionId, who: SessionInfo) -> Result<SessionId> {
        self.core.session_open_as(id, who)
    }

    /// Returns true if a container has this label.
    pub fn has_label(&self, label: &str) -> bool {
        self.core.state.containers.by_label(label).is_some()
    }

    /// The ranges of a device (offset, bytes) that are not free: all that a copy of it must have.
    pub fn used_ranges(&self, id: DeviceId) -> Vec<(u64, u64)> {
        let slot = self.core.state.space.slot_of(id).map(|dev| self.core.state.space.get(dev));
        slot.map(|slot| slot.used().collect()).unwrap_or_default()
    }

    /// The places of all extents and leases that are outside of what is lent to this engine. Tests expect none.
    pub fn outside_of_loans(&self) -> Vec<String> {
        let Some(loans) = self.core.store.homes.get(usize::from(self.core.store.home.index)) else { return Vec::new() };
        let mut wrong = Vec::new();
        for slot in &self.core.state.space.slots {
            let mine = |at: u64| loans.iter().any(|loan| loan.has(slot.id, at));
            let unit = u64::from(slot.space.unit_bytes);
            let mut at = 0;
            while let Some((first, len)) = slot.space.map.free_run(at, slot.space.map.units()) {
                at = first + len;
                if !mine(first * unit) || !mine((first + len) * unit - 1) {
                    wrong.push(format!("{len} units at {first} of device {} are free and not lent", slot.id));
                }
            }
        }
        wrong
    }
}

/// The seams of one engine: its own files, and all else of the store.
pub(in crate::engine) fn seams_of(seams: &Seams, home: Home) -> Seams {
    Seams { meta: HomeDir::of(&seams.meta, home), ..seams.clone() }
}
