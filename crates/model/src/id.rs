//! Identifiers: numbers that differ in type, so that one kind cannot stand for another.

use std::fmt;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// Identifies a store for its whole life; written in every segment and journal header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct StoreId(pub u128);

/// Identifies a home of a cluster: an engine with its journal, which has the containers whose ids name it. 0 is the
/// home of a store that has no other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct HomeId(pub u16);

/// Identifies a container within a store. Never reused. The bits from [`ContainerId::HOME_SHIFT`] on name its home.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ContainerId(pub u64);

impl ContainerId {
    /// First bit of the home's number. The largest id stays below 2^60, the bound of ids on media.
    pub const HOME_SHIFT: u32 = 44;
    /// The smallest id that a home gives to a container.
    pub fn first_of(home: HomeId) -> Self {
        Self(u64::from(home.0) << Self::HOME_SHIFT | 1)
    }
    /// The home of the container.
    #[inline]
    pub fn home(self) -> HomeId {
        HomeId((self.0 >> Self::HOME_SHIFT) as u16)
    }
    /// Its number at its home.
    pub fn local(self) -> u64 {
        self.0 & ((1 << Self::HOME_SHIFT) - 1)
    }
    /// The number of the engine that has the container, of so many in its store (0 counts as 1).
    pub fn engine(self, engines: u16) -> u16 {
        (self.0 % u64::from(engines.max(1))) as u16
    }
}

/// Identifies an object within its container; chosen by the user or drawn at random, so that no coordination is needed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ObjectId(pub u128);

/// Identifies an index within its container; chosen or drawn at random, in a space separate from object ids.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct IndexId(pub u128);

/// Identifies a device within a store. Never reused, so a stale extent cannot point into a later device.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct DeviceId(pub u16);

/// The node that holds an extent. Always 0 today; media and wire reserve the field.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct NodeId(pub u16);

/// An object's full name: its container and its id there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct ObjectKey {
    /// The container that holds the object.
    pub container: ContainerId,
    /// The object's id in that container.
    pub object: ObjectId,
}

/// An index's full name: its container and its id there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct IndexKey {
    /// The container that holds the index.
    pub container: ContainerId,
    /// The index's id in that container.
    pub index: IndexId,
}

macro_rules! hex_id {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }
        impl FromStr for $name {
            type Err = Error;
            /// Parses up to 32 hexadecimal digits; dashes are ignored.
            fn from_str(text: &str) -> Result<Self> {
                let digits: String = text.chars().filter(|c| *c != '-').collect();
                let plain = digits.len() <= 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                plain.then(|| u128::from_str_radix(&digits, 16).ok()).flatten().map(Self).ok_or_else(|| {
                    Error::new(ErrorKind::InvalidInput, format!("{} id `{text}`", $what))
                        .because("not a hexadecimal number of up to 32 digits")
                })
            }
        }
    };
}
hex_id!(StoreId, "store");
hex_id!(ObjectId, "object");
hex_id!(IndexId, "index");

impl fmt::Display for ContainerId {
    /// `c7`; with a home in a cluster `n2c7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.home(), *self == Self(u64::MAX)) {
            (HomeId(0), _) | (_, true) => write!(f, "c{}", self.0),
            (home, false) => write!(f, "{home}c{}", self.local()),
        }
    }
}
impl fmt::Display for HomeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "n{}", self.0)
    }
}
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "d{}", self.0)
    }
}
impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.object)
    }
}
impl fmt::Display for IndexKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.container, self.index)
    }
}

/// Mixes the bits of a number.
#[inline]
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let value = (value ^ (value >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    value ^ (value >> 32)
}

#[inline]
fn word_hash(container: ContainerId, id: u128) -> u64 {
    let id = mix(id as u64 ^ mix((id >> 64) as u64));
    mix(id ^ container.0.wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// The word that is raised when a device begins to be emptied: clients that lease space on it return that space. Other
/// keys may share the word, so a new value only says that it is time to check.
pub const DEVICES_WORD: u64 = 0x6465_7669_6365_7321;

impl ObjectKey {
    /// Hash that selects the object's version word in the shared control table. It must be the same in every process
    /// and version that share a table: it is part of the table's format, so never change it without raising the table's
    /// version.
    #[inline]
    pub fn word_hash(self) -> u64 {
        word_hash(self.container, self.object.0)
    }
}

impl IndexKey {
    /// Hash that selects the index's version word, which every change of its records raises; as for objects.
    #[inline]
    pub fn word_hash(self) -> u64 {
        // Differs from the word of the object with the same id, since programs may give both the same number.
        word_hash(self.container, !self.index.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_shown_by_kind_and_number() {
        let (container, device) = (ContainerId(7), DeviceId(3));
        assert_eq!(format!("{container} {device}"), "c7 d3");
        let far = ContainerId(ContainerId::first_of(HomeId(65535)).0 + 6);
        assert_eq!((far.to_string().as_str(), far.home()), ("n65535c7", HomeId(65535)));
        assert!(far.0 < 1 << 60);
        assert_eq!((container.home(), container.engine(3), container.engine(0)), (HomeId(0), 1, 0));
        let object = ObjectKey { container, object: ObjectId(0x2a) };
        assert_eq!(object.to_string(), format!("c7/{}", ObjectId(0x2a)));
        assert_eq!(IndexKey { container, index: IndexId(9) }.to_string(), format!("c7/{}", IndexId(9)));
    }

    #[test]
    fn ids_are_read_as_they_are_shown_and_nothing_else_is() {
        let id = ObjectId(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!("01234567-89AB-cdef-0123-456789abcdef".parse(), Ok(id));
        assert_eq!("2a".parse(), Ok(IndexId(42)));
        for wrong in ["", "-", "+2a", "0x2a", "2g", &"0".repeat(33)] {
            let error = wrong.parse::<StoreId>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.subject().contains("store id"), "{error}");
        }
    }
}
