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

/// Name and maker of each.
const POLICIES: &[(&str, Make)] = &[
    ("fast-first", || Arc::new(FastFirst)),
    ("max-bandwidth", || Arc::new(MaxBandwidth)),
    ("data-locality", || Arc::new(DataLocality)),
    ("hot-data", || Arc::new(HotData)),
    ("foresight", || Arc::new(Foresight)),
];

/// The policy of that name; the empty name means `fast-first`. `None`: there is none.
pub fn by_name(name: &str) -> Option<Arc<dyn Policy>> {
    let name = if name.is_empty() { "fast-first" } else { name };
    POLICIES.iter().find(|(known, _)| *known == name).map(|(_, make)| make())
}

/// True if the policy of that name moves what is read much, so that it has to know what is read. The empty name, and
/// `fast-first`, only look at what was not used for longest.
pub fn is_tracking(name: &str) -> bool {
    !name.is_empty() && name != "fast-first"
}

/// The policy `user` with a schema, once that was read and checked for these tiers; else every fault.
pub fn from_schema(text: &str, devices: &[DeviceView]) -> Result<Arc<dyn Policy>, Vec<Fault>> {
    let schema = Schema::parse(text).map_err(|fault| vec![fault])?;
    let faults = schema.check(devices);
    if faults.is_empty() { Ok(Arc::new(User::new(Arc::new(schema)))) } else { Err(faults) }
}

/// Names of all policies that need nothing but their name.
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
