//! Held extents: a dataset's larger extent becomes visible to others together with the data written there.
//!
//! The only writer of a file keeps a larger extent to itself until the dataset is written, or until dataset or file are flushed or
//! closed. Readers in other processes see the old extent meanwhile, never rows that are not written yet. A SWMR writer may need several
//! calls for the rows of one larger extent, so its readers see the extent only after a flush, as in native HDF5, where flush
//! dependencies put chunks and their index before the extent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote_host::fork::generation as fork_generation;
use parking_lot::Mutex;

use super::shared::Shared;
use crate::Result;
use crate::meta;
use crate::space::Extent;

/// The held extents of a file.
#[derive(Default)]
pub struct Held {
    /// Held extents by dataset.
    state: Mutex<HeldExtents>,
    /// This process is the file's SWMR writer, and so its only writer by HDF5's rule (see [`super::in_use`]).
    is_swmr: AtomicBool,
}

#[derive(Default)]
struct HeldExtents {
    /// Fork generation of the process that holds them.
    generation: u64,
    extents: BTreeMap<u64, Extent>,
}

impl HeldExtents {
    /// Forgets what the parent process held before the fork.
    fn own(&mut self) -> &mut BTreeMap<u64, Extent> {
        let generation = fork_generation();
        if self.generation != generation {
            *self = Self { generation, extents: BTreeMap::new() };
        }
        &mut self.extents
    }
}

impl Shared {
    /// The extent of a dataset as only this process sees it.
    pub fn held_extent(&self, oid: u64) -> Option<Extent> {
        self.held.state.lock().own().get(&oid).cloned()
    }
    /// Sets the extent of a dataset for this process only. Returns false if others may change the file, who must then see it.
    pub fn hold_extent(&self, oid: u64, extent: &Extent) -> Result<bool> {
        if !self.held.is_swmr.load(Ordering::Relaxed) && self.ahead().precondition()?.is_none() {
            return Ok(false);
        }
        self.held.state.lock().own().insert(oid, extent.clone());
        Ok(true)
    }
    /// Turns SWMR writing by this process on or off.
    pub fn write_for_readers(&self, on: bool) {
        self.held.is_swmr.store(on, Ordering::Relaxed);
    }
    /// Shows the extent of a dataset after a write to it is complete.
    pub fn show_written(&self, oid: u64) -> Result<()> {
        if self.held.is_swmr.load(Ordering::Relaxed) { Ok(()) } else { self.show_extents(Some(oid)) }
    }
    /// Makes the held extent of one dataset, or of all, visible to others.
    pub fn show_extents(&self, only: Option<u64>) -> Result<()> {
        loop {
            let next = {
                let mut state = self.held.state.lock();
                let mut all = state.own().iter().filter(|(oid, _)| only.is_none_or(|only| only == **oid));
                all.next().map(|(oid, extent)| (*oid, extent.clone()))
            };
            let Some((oid, extent)) = next else { return Ok(()) };
            let shown = meta::extent_show(self, oid, &extent);
            self.held.state.lock().own().retain(|other, now| *other != oid || *now != extent);
            shown?;
        }
    }
}
