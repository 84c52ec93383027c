//! Transports. Between the processes of one node: byte rings in shared memory for the many small messages; a unix socket
//! for attaching, for descriptors and for messages that do not fit a ring. Between nodes: [`net`].
//!
//! This room must not know what a message means, nor where the memory of a ring comes from. It trusts no peer: it
//! copies bytes out of shared memory once, then checks them; a damaged ring or frame is an error, never a wild read.

mod doorbell;
mod log;
pub mod net;
mod ring;
mod socket;
mod spin;

pub use doorbell::{Doorbell, Poller};
pub use log::FrameLog;
pub use ring::{Consumer, Producer, RING_HEADER_BYTES, RingMemory, Waker, ring_bytes_for};
pub use socket::{Connection, Credentials, FRAME_BYTES_MAX, FRAME_FDS_MAX, Frame, Listener};
pub use spin::Spin;
