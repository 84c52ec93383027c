//! Growth on paper: what becomes of a store on 10 to 10,000 nodes, by a model in simulated time that is driven by measured
//! figures and by the rooms that decide in the store: `layout` places, plans reads and rebuilds; `ha` decides.
//!
//! Pure but for [`places::cost_us`] and its like, which measure what those rooms take on this machine and say so.
//! [`docs/growth.md`](../../../../docs/growth.md) has the results.

pub mod bandwidth;
pub mod chart;
pub mod check;
pub mod failover;
pub mod figures;
pub mod flow;
pub mod names;
pub mod nodes;
pub mod places;
pub mod rebuild;
pub mod register;
pub mod sharing;
pub mod study;
pub mod world;
