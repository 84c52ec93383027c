//! `cenote advise` on real, unmodified programs.

#[path = "../common/mod.rs"]
mod common;
mod programs;
mod reports;
mod watched;
