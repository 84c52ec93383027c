//! Layouts for containers, objects and ranges: their bytes are pinned to a tier that has the layout.

use std::fmt;
use std::str::FromStr;

use cenote_layout::{Domain, Layout, Scheme};
use cenote_model::{
    Arrange, ArrangeTarget, Arrangement, ContainerId, DeviceId, DeviceInfo, DeviceKind, DeviceState, Error, ErrorKind,
    HomeId, Result, node_of_place,
};

use crate::store::Store;

/// A layout that a user asks for. What is not said, the unit and the failure domain, may be any.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LayoutWish {
    layout: Layout,
    names_unit: bool,
    names_domain: bool,
}

impl LayoutWish {
    /// The layout, with defaults for what was not said.
    pub fn layout(&self) -> Layout {
        self.layout
    }
    /// Returns true for the wish to have no layout any more.
    pub fn is_plain(&self) -> bool {
        self.layout.scheme() == Scheme::Plain
    }
    /// The same wish in this failure domain.
    ///
    /// # Errors
    /// `InvalidInput` if it names another one.
    pub fn in_domain(self, domain: Domain) -> Result<Self> {
        if self.names_domain && self.layout.domain() != domain {
            return Err(Error::new(ErrorKind::InvalidInput, format!("layout `{self}`"))
                .because("two failure domains are named")
                .try_next("leave one out"));
        }
        Ok(Self { layout: self.layout.in_domain(domain), names_domain: true, ..self })
    }
    /// Returns true if a tier keeps bytes as wished.
    fn suits(&self, tier: &LayoutTier) -> bool {
        let (wished, has) = (self.layout, tier.layout);
        // What is on several nodes is on several devices, too.
        let is_apart = !self.names_domain || wished.domain() == Domain::Device || has.domain() == Domain::Node;
        wished.scheme() == has.scheme() && (!self.names_unit || wished.unit_bytes() == has.unit_bytes()) && is_apart
    }
}

impl FromStr for LayoutWish {
    type Err = Error;

    /// `mirror=2`, `4+2,unit=256KiB`, `4+2,domain=node`, `plain`.
    fn from_str(text: &str) -> Result<Self> {
        let layout: Layout = text.parse()?;
        let names = |option: &str| text.split(',').skip(1).any(|word| word.trim().starts_with(option));
        Ok(Self { layout, names_unit: names("unit"), names_domain: names("domain") })
    }
}

impl fmt::Display for LayoutWish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.layout)?;
        let is_silent = self.layout.domain() == Domain::Node;
        if self.names_domain && is_silent { f.write_str(",domain=node") } else { Ok(()) }
    }
}

/// A tier that keeps its bytes in a layout.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LayoutTier {
    /// Its name at its home.
    pub name: String,
    /// Its id there.
    pub device: DeviceId,
    /// The layout. Its domain is `Node` if each place is on a node of its own.
    pub layout: Layout,
    /// Number of its places.
    pub places: usize,
    /// Bytes that it can still take.
    pub free_bytes: u64,
    /// What is to be known of it: places that are away, parts that are made again.
    pub note: String,
}

impl LayoutTier {
    /// The tier of a device; `None` if it has no layout, or takes nothing new.
    fn of(device: &DeviceInfo) -> Option<Self> {
        let spec = &device.spec;
        if spec.kind != DeviceKind::Raid || device.state != DeviceState::Online {
            return None;
        }
        let unit = spec.options.get("unit").map_or_else(String::new, |unit| format!(",unit={unit}"));
        let said: Layout = format!("{}{unit}", spec.options.get("layout")?).parse().ok()?;
        let places = spec.paths();
        let is_on_nodes = places.iter().all(|path| node_of_place(path).is_some());
        let domain = if is_on_nodes { Domain::Node } else { Domain::Device };
        Some(Self {
            name: spec.name.clone(),
            device: device.id,
            layout: said.in_domain(domain),
            places: places.len(),
            free_bytes: device.free_bytes(),
            note: device.note.clone(),
        })
    }
}

impl Store {
    /// Returns the tiers of a home that have a layout and take new data.
    pub fn layout_tiers(&self, home: HomeId) -> Result<Vec<LayoutTier>> {
        Ok(self.devices_of(home)?.iter().filter_map(LayoutTier::of).collect())
    }
    /// Returns the tier of a home that a layout means: of several, one on nodes, and with the most free space.
    /// `NotFound` if there is none.
    pub fn tier_with(&self, home: HomeId, wish: &LayoutWish) -> Result<LayoutTier> {
        let tiers = self.layout_tiers(home)?;
        let best = tiers.iter().filter(|tier| wish.suits(tier));
        let best = best.max_by_key(|tier| (tier.layout.domain() == Domain::Node, tier.free_bytes));
        best.cloned().ok_or_else(|| none_with(wish, &tiers))
    }
    /// Keeps an object, a part of it or a container in a layout: what is there moves to a tier that has it, what comes
    /// goes there, and nothing moves it away. With the layout `plain` that ends. With `dry_run` it is only said what
    /// would move.
    ///
    /// # Errors
    /// `NotFound` if no tier of its home has the layout; `Full` if there is no room on it; `Unsupported` for a query.
    pub fn set_layout(&self, target: &ArrangeTarget, wish: &LayoutWish, dry_run: bool) -> Result<Arrangement> {
        let named = target.container().filter(|_| !matches!(target, ArrangeTarget::Query { .. }));
        let home = named.map(ContainerId::home).ok_or_else(|| {
            Error::new(ErrorKind::Unsupported, format!("layout `{wish}` for a query"))
                .because("a layout is for an object, a part of it or a container")
                .try_next("name it; `cenote pin --where QUERY --tier TIER` takes queries")
        })?;
        if wish.is_plain() {
            return self.arrange(target, &Arrange::Unpin, dry_run);
        }
        let tier = self.tier_with(home, wish)?;
        self.arrange(target, &Arrange::Pin { to: Some(tier.name) }, dry_run)
    }
}

#[cold]
fn none_with(wish: &LayoutWish, tiers: &[LayoutTier]) -> Error {
    let there: Vec<String> = tiers.iter().map(|tier| format!("{} has {}", tier.name, tier.layout)).collect();
    let cause = if there.is_empty() { "no tier has a layout".to_owned() } else { there.join(", ") };
    let unit = if wish.names_unit { format!(",unit={}", wish.layout.unit_bytes()) } else { String::new() };
    let scheme = wish.layout.scheme();
    Error::new(ErrorKind::NotFound, format!("layout `{wish}`")).because(cause).try_next(format!(
        "add a tier with it: `cenote tier add name=NAME,kind=raid,path=/disk1/c:/disk2/c:/disk3/c,layout={scheme}{unit},size=SIZE`, \
         or with path=nodes on the nodes of a cluster"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tier(layout: &str) -> LayoutTier {
        let layout = layout.parse().unwrap();
        LayoutTier { name: "t".into(), device: DeviceId(1), layout, places: 6, free_bytes: 0, note: String::new() }
    }
    fn wish(text: &str) -> LayoutWish {
        text.parse().unwrap()
    }

    #[test]
    fn a_tier_suits_if_it_has_what_is_named() {
        for (wished, has, suits) in [
            ("4+2", "4+2,domain=device", true),
            ("4+2", "4+2,unit=64KiB", true),
            ("4+2,unit=64KiB", "4+2,unit=64KiB", true),
            ("4+2,unit=1MiB", "4+2,unit=64KiB", false),
            ("4+2,domain=node", "4+2,domain=device", false),
            ("4+2,domain=node", "4+2", true),
            ("4+2,domain=device", "4+2", true),
            ("4+2", "4+1", false),
            ("mirror=2", "mirror=2,domain=device", true),
            ("mirror=2", "mirror=3", false),
        ] {
            assert_eq!(wish(wished).suits(&tier(has)), suits, "{wished} and {has}");
        }
        assert!(wish("plain").is_plain() && !wish("stripe=2").is_plain());
    }

    #[test]
    fn a_domain_is_named_once() {
        let node = wish("4+2").in_domain(Domain::Node).unwrap();
        assert_eq!((node.to_string().as_str(), node.suits(&tier("4+2,domain=device"))), ("4+2,domain=node", false));
        assert_eq!(wish(&node.to_string()), node);
        let error = wish("4+2,domain=device").in_domain(Domain::Node).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(wish("4+2,domain=device").in_domain(Domain::Device).unwrap().to_string(), "4+2,domain=device");
    }
}
