//! High availability as a function: what was seen of the nodes, and the view that the register holds, give actions,
//! each with its reason.
//!
//! This room must not know sockets, clocks, threads, stores or registers: times come with the events, the caller keeps
//! the [`History`], sends proposals to the register, and carries actions out. Nothing here changes a view: a proposal
//! counts once the register has taken it by compare-and-swap, and whoever loses decides anew.

mod action;
mod balance;
mod decide;
mod detector;
mod ending;
mod event;
mod explain;
mod give_up;
mod history;
mod lease;
mod load;
mod reason;
mod settings;
mod view;

pub use action::{Action, Contents, Debt, Decided, Proposal};
pub use balance::{Measure, Move, balance};
pub use decide::decide;
pub use detector::Detector;
pub use event::{Event, Hello, MirrorState, Report, Seen};
pub use explain::{explain, story};
pub use give_up::Fate;
pub use history::{History, LOG_EVENTS_MAX};
pub use lease::{acts_from_us, lease_until_us, leases_over_us, may_act};
pub use load::{Cost, Loads, Room};
pub use reason::Reason;
pub use settings::Settings;
pub use view::{ClusterId, Home, HomeId, Identity, Member, MemberState, View};
