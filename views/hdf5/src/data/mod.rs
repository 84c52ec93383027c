//! Raw data of datasets: where the bytes of an element are, and how they get there and back.
//!
//! `runs` and `geometry` are pure arithmetic; `filter` turns chunks into stored bytes.
//! This module must not know links, groups or attributes.

pub mod filter;
pub mod geometry;
pub mod runs;
