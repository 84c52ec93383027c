//! Names of tiers, flows and objects.

use std::collections::HashMap;

use cenote_model::{DeviceId, FlowEnd, HotObject, Telemetry};

/// Names of tiers.
#[derive(Debug)]
pub struct Names<'a>(HashMap<DeviceId, &'a str>);

impl<'a> Names<'a> {
    /// Collects the names of a store's tiers.
    pub fn of(telemetry: &'a Telemetry) -> Self {
        Self(telemetry.devices.iter().map(|device| (device.id, device.spec.name.as_str())).collect())
    }
    /// Returns a tier's name, or its number if it was removed.
    pub fn tier(&self, id: DeviceId) -> String {
        self.0.get(&id).map_or_else(|| format!("tier {} (removed)", id.0), |name| (*name).to_owned())
    }
    /// Returns the name of one end of a flow.
    pub fn end(&self, end: FlowEnd) -> String {
        match end {
            FlowEnd::Client => "client".into(),
            FlowEnd::Engine => "engine".into(),
            FlowEnd::Tier(id) => self.tier(id),
        }
    }
    /// Returns an object's name in the form of the command line.
    pub fn object(hot: &HotObject) -> String {
        format!("{}/{}", hot.label, hot.key.object)
    }
}
