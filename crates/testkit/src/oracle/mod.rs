//! The oracle: the required content of a store, and the allowed states after each kind of crash.
//!
//! * [`StoreState`] is a model of a store: containers, objects as maps from ranges to write ids, indices.
//! * [`Observed`] is the content actually read from a store, byte for byte.
//! * [`Oracle`] keeps the acknowledged history and decides whether an observation is allowed: after *process death*
//!   everything acknowledged and any prefix of what was in flight; after *power loss*, for each container, a prefix
//!   with at least what was flushed or synchronously acknowledged, and every transaction whole or not at all.

mod history;
mod observed;
mod share;
mod state;

pub use history::{Entry, Oracle};
pub use observed::{Lenience, Observed, ObservedContainer, ObservedObject, ObservedRecords};
pub use state::{Change, ContainerState, ObjectState, Outcome, Record, Segment, StoreState};
