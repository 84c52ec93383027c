//! What is said on the store's socket, beside the rings: who comes, what it gets, and which segments it may have.

use cenote_model::{DeviceId, Error, Result, StoreId};

use crate::codec::{decode, encode, wire_enum};

/// A message on the store's socket. Descriptors travel beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum Greeting {
    /// From a client: the same nonce again means the same session. Who it is, the socket tells.
    Hello { nonce: u128, read_only: bool },
    /// To it: welcome. Beside it the descriptors of the control table, of the client's own file with its rings, of
    /// the daemon's doorbell, and of the lock by which the client tells that it lives: it lets go of it by its end.
    /// `bound`: owners and modes of containers bind it, and it gets no segments; bytes are carried to it and from it.
    Welcome { store: StoreId, instance: u64, write: bool, bound: bool },
    /// To it: this store is just being handed to a daemon; connect again in a moment.
    Moving,
    /// To it: no, and why.
    Refused(Error),
    /// From a client: a segment's descriptor, please.
    Segment { device: DeviceId, number: u64 },
    /// To it: here it is, beside this message. `mode` as in `cenote_device::SegmentMode`.
    SegmentIs { data_offset: u64, len: u64, mode: u8, write: bool },
    /// From a client: it leaves for good, its leases can go back.
    Bye,
}

wire_enum!(Greeting, 1, "greeting", {
    1 => Hello { nonce, read_only },
    2 => Welcome { store, instance, write, bound },
    3 => Moving,
    4 => Refused(error),
    5 => Segment { device, number },
    6 => SegmentIs { data_offset, len, mode, write },
    7 => Bye,
});

/// Appends a greeting to `out`.
pub fn encode_greeting(greeting: &Greeting, out: &mut Vec<u8>) {
    encode(0, greeting, out);
}

/// A greeting, from bytes that may be hostile.
pub fn decode_greeting(bytes: &[u8]) -> Result<Greeting> {
    decode(bytes).map(|(_, greeting)| greeting)
}
