//! The policies: each is one file here, with its formula, and one line in the table below.

mod data_locality;
mod fast_first;
mod foresight;
mod hot_data;
mod max_bandwidth;
mod recent;

pub use data_locality::DataLocality;
pub use fast_first::FastFirst;
pub use foresight::Foresight;
pub use hot_data::HotData;
pub use max_bandwidth::MaxBandwidth;

use std::sync::Arc;

use crate::Policy;

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
