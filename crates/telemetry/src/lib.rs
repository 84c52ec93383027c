//! Exporters: what a store tells of itself (`cenote_model::Telemetry`) as Prometheus text and as one JSON document, and
//! the rates between two such states.
//!
//! This room counts nothing and keeps nothing: numbers come from the engine and from clients. It must not know who asks,
//! by which protocol, or what a screen looks like.

mod json;
mod names;
mod prometheus;
mod rates;

pub use json::json;
pub use names::Names;
pub use prometheus::{CONTENT_TYPE, prometheus};
pub use rates::{FlowRate, Rates};
