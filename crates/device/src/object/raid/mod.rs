//! A tier on several places with a layout (`kind=raid`): an object service that spreads each object as copies, stripes, or
//! k data and m parity parts, so that places may be lost. Packs never change, so parity is never changed in place.
//!
//! What this room must not know: what objects mean, and how a place keeps files ([`place::Place`] does it; here is the one
//! of directories).

mod devices;
mod directory;
pub mod fake;
mod get;
mod index;
mod part;
pub mod place;
mod places;
mod put;
mod repair;
mod service;
mod shape;

use cenote_layout::{Domain, Layout};

/// What identifies a place to layouts.
pub use cenote_layout::Place as PlaceId;
pub use devices::{PlaceMaker, RaidDevices};
pub use directory::{ACCEPT, DirectoryPlace, NAME as PLACE_FILE};
pub use part::Owner;
pub use place::{Look, Pace, Place};
pub use service::{RaidService, RaidState};

/// A layout for people who know that every place is a domain.
fn words(layout: &Layout) -> String {
    layout.in_domain(Domain::Node).to_string()
}
