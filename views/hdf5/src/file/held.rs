//! Extents that grew and that others do not see yet: a dataset's new extent is to be seen together with what is written there.
//!
//! The only writer of a file keeps a larger extent to itself until something is written to the dataset, or dataset or file are flushed
//! or closed; who reads in another process meanwhile sees the old extent, never rows of which it cannot know that they are still to be
//! written. Who writes for readers (SWMR) may make several calls for the rows of one larger extent, so that its readers see it with the
//! flush alone, as in native HDF5, where flush dependencies put chunks and their index before the extent.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use cenote::fork_generation;
use parking_lot::Mutex;

use super::shared::Shared;
use crate::Result;
use crate::meta;
use crate::space::Extent;

/// The held extents of a file.
#[derive(Default)]
pub struct Held {
    /// By dataset.
    state: Mutex<State>,
    /// This process writes the file for readers, and is its only writer by HDF5's rule (see [`super::in_use`]).
    is_swmr: AtomicBool,
}

#[derive(Default)]
struct State {
    /// Of the process that holds them.
    generation: u64,
    extents: BTreeMap<u64, Extent>,
}

impl State {
    /// Forgets what the process holds that this one was forked from.
    fn own(&mut self) -> &mut BTreeMap<u64, Extent> {
        let generation = fork_generation();
        if self.generation != generation {
            *self = Self { generation, extents: BTreeMap::new() };
        }
        &mut self.extents
    }
}

impl Shared {
    /// The extent of a dataset that only this process sees.
    pub fn held_extent(&self, oid: u64) -> Option<Extent> {
        self.held.state.lock().own().get(&oid).cloned()
    }
    /// Makes this the extent of a dataset for this process. False if others may change the file: then they are to see it.
    pub fn hold_extent(&self, oid: u64, extent: &Extent) -> Result<bool> {
        if !self.held.is_swmr.load(Ordering::Relaxed) && self.ahead().premise()?.is_none() {
            return Ok(false);
        }
        self.held.state.lock().own().insert(oid, extent.clone());
        Ok(true)
    }
    /// This process writes the file for readers from now on, or no more.
    pub fn write_for_readers(&self, on: bool) {
        self.held.is_swmr.store(on, Ordering::Relaxed);
    }
    /// Something was written to a dataset, in full.
    pub fn show_written(&self, oid: u64) -> Result<()> {
        if self.held.is_swmr.load(Ordering::Relaxed) { Ok(()) } else { self.show_extents(Some(oid)) }
    }
    /// Shows others the extent of one dataset, or of all.
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
