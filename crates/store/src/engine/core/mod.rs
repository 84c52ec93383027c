//! The core (state machine): the state that all activities work on, and the verbs that change it.
//!
//! The core decides nothing on its own account. It must not know any activity: it requests work from one by an
//! [`super::activity::Ask`].

mod answers;
mod apply;
mod audit;
mod cuts;
mod devices;
mod doubted;
mod isolate;
pub mod jobs;
pub mod leases;
mod lookup;
pub mod observed;
pub mod pins;
pub mod places;
mod pressure;
mod readable;
pub mod rights;
mod room;
mod session;
mod snapshot;
mod space;
mod splitting;
mod suspects;
mod times;
mod trouble;
mod two_phase;
mod weights;

use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{DeviceId, DeviceInfo, HomeId, StoreId, TransactionId, UserWeights};

use super::activity::Asks;
use crate::apply::Txn;
use crate::home::Home;
use crate::journal::Journal;
use crate::space::Tag;
use crate::state::EngineState;
use crate::superblock::Loan;
use crate::{Seams, Ticket, Tuning};

pub use answers::{Answers, Wait, Waiter};
pub use devices::{check_spec, make_device, make_stamped, slot_of, slot_of_tenant, slot_with};
pub use jobs::{CopyPart, Effect, Jobs, Purpose, Reserved, SpaceHold};
pub use lookup::{BYTES_MAX, LIMIT_MAX};
pub use observed::Observed;
pub use trouble::Trouble;

/// Identity of the store, its users, and when this engine opened it.
pub struct Identity {
    pub id: StoreId,
    pub writers: Vec<u32>,
    pub readers: Vec<u32>,
    pub opened_ns: u64,
    /// Sessions with lower ids began with an earlier engine, which may have carried out their first requests.
    pub resumed_below: u64,
    /// This engine among those of the store.
    pub home: Home,
    /// The space lent to each of them; empty if there is one.
    pub homes: Vec<Vec<Loan>>,
}

/// See the module.
pub(crate) struct Core {
    pub seams: Seams,
    pub store: Identity,
    pub settings: Tuning,
    /// The recoverable state: what the journal and the checkpoint describe.
    pub state: EngineState,
    pub journal: Journal,
    /// Transaction buffer of the last request, kept to reuse its memory.
    pub txn: Txn,
    pub jobs: Jobs,
    pub answers: Answers,
    pub observed: Observed,
    /// The weights of users.
    pub weights: UserWeights,
    pub asks: Asks,
    /// Transactions over several homes that were given up here, with the homes that are to be told. The others ask.
    pub abandoned: Vec<(TransactionId, HomeId)>,
}

impl Core {
    /// Returns a device for clients to map. `None` if it does not exist or could not be opened.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        let slot = self.state.space.slot_of(id)?;
        self.state.space.get(slot).device.clone()
    }

    /// Returns the devices and their use.
    pub fn device_infos(&self) -> Vec<DeviceInfo> {
        let prepared = self.state.two_phase.prepared.values().map(|prepared| &prepared.leases);
        let leased = self.state.sessions.leased_bytes(self.state.space.slots.len(), prepared);
        let slots = self.state.space.slots.iter().zip(leased).filter(|(slot, _)| !slot.removed);
        slots.map(|(slot, leased_bytes)| slot.info(leased_bytes)).collect()
    }

    /// Returns a new ticket (completion token).
    pub fn ticket(&mut self) -> Ticket {
        self.answers.tickets += 1;
        Ticket(self.answers.tickets)
    }

    /// Returns the tag for space that is retired now.
    pub fn tag(&self) -> Tag {
        Tag { epoch: self.seams.control.epoch(), journal: self.journal.position() }
    }

    /// Notes that the journal has records that are not on media.
    pub fn note_journal_dirty(&mut self) {
        if self.journal.media.dirty_since_ns.is_none() {
            self.journal.media.dirty_since_ns = Some(self.state.now.ns);
        }
    }

    /// Reads the clock into the state.
    pub fn update_clock(&mut self) {
        let now = self.seams.clock.now_ns();
        self.state.now.ns = now;
        self.state.now.s = (now.saturating_sub(self.store.opened_ns) / 1_000_000_000) as u32;
    }
}
