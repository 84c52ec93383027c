//! The space of one engine's devices: open segments, and leased runs for writes. This file must not know the content of
//! the writes.

use std::sync::Arc;

use super::arena::Arenas;
use super::channel::Channel;
use super::keeper::Keeper;
use super::leaving::Leaving;
use super::segments::Segments;

/// The space; see the module.
pub(crate) struct Space {
    pub(super) channel: Arc<Channel>,
    pub(super) keeper: Arc<Keeper>,
    pub segments: Segments,
    pub arenas: Arenas,
    pub leaving: Leaving,
}

impl Space {
    pub(super) fn new(channel: &Arc<Channel>, keeper: &Arc<Keeper>) -> Self {
        Self {
            channel: channel.clone(),
            keeper: keeper.clone(),
            segments: Segments::new(channel),
            arenas: Arenas::default(),
            leaving: Leaving::default(),
        }
    }
    /// Starts the link's checks for tiers that are being emptied, since it has leased space.
    pub fn watch(&self) {
        self.keeper.watch();
    }
}
