//! Which nodes a cluster has, where they listen, the key that they share, the [`register`] of the view, and the [`Board`] on
//! which nodes tell each other that they live.
//!
//! This room must not know what else nodes say to each other, nor what a store is.

mod board;
mod change;
mod first_view;
mod giving_up;
mod members;
mod node_file;
mod place;
pub mod register;

pub use board::{Beat, Board, Notice};
pub use cenote_ha::Fate;
pub use change::{Heard, changed};
pub use first_view::first_view;
pub use members::{KEY_FILE, MEMBERS_FILE, Member, Members, PROTECT_MAX, losses};
pub use node_file::{NODE_FILE, NodeFile};
pub use place::{EtcdPlace, RadosPlace, RegisterPlace};
