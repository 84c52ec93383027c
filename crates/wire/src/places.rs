//! Messages about places of tiers with a layout: from the host of a home to a node that keeps parts for it.

use cenote_model::{DeviceId, Error, HomeId, StoreId};

use crate::codec::{wire_enum, wire_struct};

/// A place of a tier, and who asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceOf {
    /// The home whose tier it is.
    pub home: HomeId,
    /// The term under which the asking node is its host.
    pub term: u64,
    /// Its store.
    pub store: StoreId,
    /// The tier.
    pub device: DeviceId,
    /// The number of the place in the tier, from 1.
    pub place: u16,
}
wire_struct!(PlaceOf, 30, { home, term, store, device, place });

/// What a place is asked, as `cenote_device::object::raid::Place` has it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum PlaceAsk {
    /// Whether it is there.
    Look,
    /// To store a file of so many bytes, which follow in pieces.
    Put { name: String, len: u64 },
    /// Up to `len` bytes of a file.
    Get { name: String, from: u64, len: u64 },
    /// The names that begin so.
    List { prefix: String },
    /// To delete a file.
    Delete { name: String },
    /// To become a place.
    Make,
    /// To be none any more.
    Remove,
}
wire_enum!(PlaceAsk, 1, "question to a place", {
    1 => Look,
    2 => Put { name, len },
    3 => Get { name, from, len },
    4 => List { prefix },
    5 => Delete { name },
    6 => Make,
    7 => Remove,
});

/// The answer of a place.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum PlaceAnswer {
    /// It is done.
    Done,
    /// The place is there, and has room for so many bytes.
    Looked { free_bytes: u64 },
    /// So many bytes, which follow in pieces.
    Bytes { len: u64 },
    /// Names of files.
    Names { names: Vec<String> },
    /// It refuses. `again`: the same may succeed in a moment.
    Refused { error: Error, again: bool },
}
wire_enum!(PlaceAnswer, 1, "answer of a place", {
    1 => Done,
    2 => Looked { free_bytes },
    3 => Bytes { len },
    4 => Names { names },
    5 => Refused { error, again },
});
