//! The contract of a place: what keeps files of parts, and may go away and come back.

use std::time::Duration;

use bytes::Bytes;
use cenote_model::{DeviceId, ErrorKind, NodeId};

use super::PlaceId;
use crate::object::service::{Answer, Refusal};

/// What keeps parts: a directory on a disk, or a node.
///
/// Calls may come from many threads at once, and each must return in bounded time. A refusal of kind `Disconnected` says
/// that the place is away: it is asked nothing more until [`Place::look`] finds it again. A refusal of kind `Corrupt` says
/// that something else is there than this place.
pub trait Place: Send + Sync {
    /// Its name for people.
    fn who(&self) -> String;
    /// Its name for the choice of places. Two places that are lost together share its node.
    fn id(&self) -> PlaceId;
    /// Looks whether the place is there, and is the one of this tier. Called before anything else, and again after the
    /// place was away or lost something.
    fn look(&self) -> Answer<Look>;
    /// Stores a file made of consecutive pieces, whole or not at all; it is durable on return. A file of that name is
    /// replaced: names contain what identifies the content.
    fn put(&self, name: &str, pieces: &[Bytes]) -> Answer<()>;
    /// Up to `len` bytes from `from` on; fewer if the file ends before. `NotFound` if there is none.
    fn get(&self, name: &str, from: u64, len: u64) -> Answer<Bytes>;
    /// Names of all files that begin with `prefix`, which ends with `/` or is empty.
    fn list(&self, prefix: &str) -> Answer<Vec<String>>;
    /// Deletes a file; no error if it does not exist.
    fn delete(&self, name: &str) -> Answer<()>;
    /// Prepares an empty place for a new tier. Refuses with `Exists` if something is there.
    fn make(&self) -> Answer<()>;
    /// Undoes [`Place::make`]. Whatever else is there stays.
    fn remove(&self) -> Answer<()>;
    /// Returns true if it is about to leave the tier: what it has moves to other places, and it takes nothing new. Asked
    /// often, so it costs nothing.
    fn leaves(&self) -> bool {
        false
    }
}

/// What a look at a place says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// Bytes that it can still take.
    pub free_bytes: u64,
    /// The file system that it lies on, if that is known: places with the same one are lost together.
    pub file_system: Option<u64>,
}

/// What identifies place `number` (from 1) of a tier: each place is a failure domain of its own.
pub fn id_of(number: u16) -> PlaceId {
    PlaceId { node: NodeId(0), device: DeviceId(number) }
}

/// The refusal of a place that is away.
pub fn away(why: impl Into<String>) -> Refusal {
    Refusal { again: true, ..Refusal::new(ErrorKind::Disconnected, why) }
}

/// How often and how fast things are done beside the calls of the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Repair on a thread of its own; else only when asked.
    pub background: bool,
    /// A place that is away is looked at again after this.
    pub look_again: Duration,
    /// Parts of a place that is away are made again elsewhere after this. Most places come back before, and it takes
    /// long to copy a disk.
    pub away_for: Duration,
    /// A place that refused a part is given no other one for so long.
    pub spared_for: Duration,
    /// Remains of interrupted puts are deleted after this.
    pub remains_for: Duration,
    /// The background repair works so many thousandths of the time while others use the tier.
    pub repair_permille: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            background: true,
            look_again: Duration::from_secs(2),
            away_for: Duration::from_mins(10),
            spared_for: Duration::from_secs(5),
            remains_for: Duration::from_mins(2),
            repair_permille: 500,
        }
    }
}

/// Returns true for names that a place may make a file of: plain words with `/` between them.
pub(super) fn is_plain_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.+@".contains(c);
    let word = |word: &str| !word.is_empty() && !word.starts_with('.') && word.len() < 250 && word.chars().all(plain);
    name.split('/').all(word) && name.split('/').count() <= DEPTH_MAX
}

/// Directories in each other.
pub(super) const DEPTH_MAX: usize = 6;
