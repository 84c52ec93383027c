//! The policies: each is one file here, with its formula, and one line in the table below.

mod data_locality;
mod fast_first;
mod foresight;
mod hot_data;
mod max_bandwidth;
mod recent;
mod user;

pub use data_locality::DataLocality;
pub use fast_first::FastFirst;
pub use foresight::{Foresight, Next};
pub use hot_data::HotData;
pub use max_bandwidth::MaxBandwidth;
pub use user::User;

use std::sync::Arc;

use crate::schema::{Fault, Schema};
use crate::{DeviceView, Policy};

type Make = fn() -> Arc<dyn Policy>;

/// Name and constructor of each policy.
const POLICIES: &[(&str, Make)] = &[
    ("fast-first", || Arc::new(FastFirst)),
    ("max-bandwidth", || Arc::new(MaxBandwidth)),
    ("data-locality", || Arc::new(DataLocality)),
    ("hot-data", || Arc::new(HotData)),
    ("foresight", || Arc::new(Foresight)),
];

/// The policy of that name, if there is one; the empty name means `fast-first`.
pub fn by_name(name: &str) -> Option<Arc<dyn Policy>> {
    let name = if name.is_empty() { "fast-first" } else { name };
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// Returns true if the policy of that name moves ranges that are read much, so that it needs to know the reads. The
/// empty name and `fast-first` only use the time of the last use.
pub fn is_tracking(name: &str) -> bool {
    !name.is_empty() && name != "fast-first"
}

/// The policy `user` with a schema that is valid for these tiers; else every fault.
pub fn from_schema(text: &str, devices: &[DeviceView]) -> Result<Arc<dyn Policy>, Vec<Fault>> {
    let schema = Schema::parse(text).map_err(|fault| vec![fault])?;
    let faults = schema.check(devices);
    if faults.is_empty() { Ok(Arc::new(User::new(Arc::new(schema)))) } else { Err(faults) }
}

/// Names of all policies that need no parameters.
pub fn names() -> impl Iterator<Item = &'static str> {
    POLICIES.iter().map(|(name, _)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_found_by_the_name_that_it_says() {
        for name in names() {
            assert_eq!(by_name(name).unwrap().name(), name);
        }
        assert_eq!(by_name("").unwrap().name(), "fast-first");
        assert!(by_name("guess").is_none());
    }
}
