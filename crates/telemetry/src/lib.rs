//! Exporters: converts a store's telemetry (`cenote_model::Telemetry`) to Prometheus text and to one JSON document, and
//! computes rates between two states.
//!
//! This crate counts and keeps nothing: the engine and clients supply the numbers. It must not know who asks, by which
//! protocol, or what a screen looks like.

mod json;
mod names;
mod prometheus;
mod rates;

pub use json::json;
pub use names::Names;
pub use prometheus::{CONTENT_TYPE, prometheus};
pub use rates::{FlowRate, Rates};
