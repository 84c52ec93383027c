//! What things are called.

use std::collections::HashMap;

use cenote_model::{DeviceId, FlowEnd, HotObject, Telemetry};

/// Names of tiers.
#[derive(Debug)]
pub struct Names<'a>(HashMap<DeviceId, &'a str>);

impl<'a> Names<'a> {
    /// Those of a store.
    pub fn of(telemetry: &'a Telemetry) -> Self {
        Self(telemetry.devices.iter().map(|device| (device.id, device.spec.name.as_str())).collect())
    }
    /// A tier's name; one that was removed is called by its number.
    pub fn tier(&self, id: DeviceId) -> String {
        self.0.get(&id).map_or_else(|| format!("tier {} (removed)", id.0), |name| (*name).to_owned())
    }
    /// One end of a flow.
    pub fn end(&self, end: FlowEnd) -> String {
        match end {
            FlowEnd::Client => "client".into(),
            FlowEnd::Engine => "engine".into(),
            FlowEnd::Tier(id) => self.tier(id),
        }
    }
    /// An object as the command line takes it.
    pub fn object(hot: &HotObject) -> String {
        format!("{}/{}", hot.label, hot.key.object)
    }
}
