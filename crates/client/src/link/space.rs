//! The space of one engine's devices: segments that are open, and leased runs that writes fill. This file must not know
//! what is written.

use std::sync::Arc;

use super::arena::Arenas;
use super::channel::Channel;
use super::keeper::Keeper;
use super::leaving::Leaving;
use super::segments::Segments;

/// See the module.
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
    /// Space is leased from now on: the link looks now and then whether a tier is to be emptied, though no call comes.
    pub fn watch(&self) {
        self.keeper.watch();
    }
}
