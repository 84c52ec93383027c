//! Messages on the store's socket, beside the rings: the client's greeting, its welcome, and requests for segments.

use cenote_model::{DeviceId, Error, HomeId, LockAnswer, Result, StoreId};

use crate::codec::{decode, encode, wire_enum, wire_struct};
use crate::locks::LockAsk;

/// A message on the store's socket. Descriptors travel with it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum Greeting {
    /// From a client: the same nonce means the same session. The socket identifies the client. `home`: the home of a
    /// cluster that it wants to reach; 0 for that of this daemon.
    Hello { nonce: u128, read_only: bool, home: HomeId },
    /// To it: admitted. With it come the descriptors of the control table, of the client's own file with its rings,
    /// of the daemon's doorbell, and of the lock that proves the client alive; the client holds the lock until its
    /// end. `bound`: owners and modes of containers bind the client, and it gets no segments; its bytes are carried
    /// (proxied I/O). `engines`: their number; a container's id modulo it says which one has the container, and space
    /// leased from one engine is for its containers alone.
    Welcome { store: StoreId, instance: u64, write: bool, bound: bool, engines: u16, place: ClusterPlace },
    /// To it: the store is being handed over to a daemon; connect again in a moment.
    Moving,
    /// To it: refused, with the cause.
    Refused(Error),
    /// To it: the home that it wants to reach is lost for good.
    Lost(Error),
    /// From a client: requests a segment's descriptor.
    Segment { device: DeviceId, number: u64 },
    /// To it: the descriptor, with this message. `mode` as in `cenote_device::SegmentMode`.
    SegmentIs { data_offset: u64, len: u64, mode: u8, write: bool },
    /// From a client: it leaves for good, so its leases can be returned.
    Bye,
    /// From a process, first on its connection and alone: a question about a lock of a file. The end of the connection takes
    /// it back.
    Lock { ask: LockAsk },
    /// To it: the answer.
    LockIs { answer: LockAnswer },
}

wire_enum!(Greeting, 1, "greeting", {
    1 => Hello { nonce, read_only, home },
    2 => Welcome { store, instance, write, bound, engines, place },
    3 => Moving,
    4 => Refused(error),
    5 => Segment { device, number },
    6 => SegmentIs { data_offset, len, mode, write },
    7 => Bye,
    8 => Lost(error),
    60 => Lock { ask },
    61 => LockIs { answer },
});

/// Where in a cluster a client is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterPlace {
    /// The home that it reached; 0 if the store is no part of a cluster.
    pub home: HomeId,
    /// Another node has this home: its bytes are carried, and the words of the table say nothing about its objects.
    pub far: bool,
    /// Another node may become the host of this home: words of the table count until the time that it says.
    pub leased: bool,
    /// All homes of the cluster, ascending.
    pub homes: Vec<HomeId>,
    /// Where the daemon listens for others that hosts this home, if that is another node: `address:port`, else empty.
    pub host: String,
}
wire_struct!(ClusterPlace, 12, { home, far, leased, homes, host });

/// Appends a greeting to `out`.
pub fn encode_greeting(greeting: &Greeting, out: &mut Vec<u8>) {
    encode(0, greeting, out);
}

/// Decodes a greeting from bytes that may be hostile.
pub fn decode_greeting(bytes: &[u8]) -> Result<Greeting> {
    decode(bytes).map(|(_, greeting)| greeting)
}
