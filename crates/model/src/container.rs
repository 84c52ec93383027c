//! Containers: their settings, and what a store tells of them.

use crate::{BLOCK_SHIFT_DEFAULT, ContainerId};

/// Durability class: when an update is acknowledged, and what survives then. `docs/semantics.md` has the full table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Durability {
    /// Acknowledged when the data are on a persistent tier and the journal is on media: survives power loss.
    Sync = 0,
    /// Acknowledged in the fastest tier with room. Survives the death of any process at once, and power loss after
    /// write-back (drain), which runs behind the compute; `flush` is the barrier.
    #[default]
    Async = 1,
    /// Never written back for durability: survives the death of processes, not power loss.
    Scratch = 2,
    /// Like `Async`, but data go straight to the lowest persistent tier and leave the faster tiers to others.
    Bypass = 3,
}

impl Durability {
    /// Its name: `sync`, `async`, `scratch`, `bypass`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Scratch => "scratch",
            Self::Bypass => "bypass",
        }
    }
    /// Returns true if a single call in a container of durability `own` may ask for this durability: one that promises
    /// more, or another place; never one that promises less, and no other one in a container that keeps nothing.
    pub fn may_be_in(self, own: Self) -> bool {
        match own {
            Self::Scratch => self == Self::Scratch,
            Self::Sync => matches!(self, Self::Sync),
            Self::Async | Self::Bypass => self != Self::Scratch,
        }
    }
}

/// Settings of a new container: what is fixed, and what can change later.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerSpec {
    /// Default block size of objects, as a power of two. 6 to 24.
    pub block_shift: u8,
    /// When updates are acknowledged.
    pub durability: Durability,
    /// Quota: upper bound of the bytes in the container's extents; 0 for no limit.
    pub quota_bytes: u64,
    /// Name of the placement policy; empty for the default (`fast-first`).
    pub policy: String,
    /// Numeric user that owns the container; if `None`, creation fills in the session's user. A container without an
    /// owner belongs to the store's owner.
    pub owner_uid: Option<u32>,
    /// Numeric group of the container; filled in the same way.
    pub owner_gid: Option<u32>,
    /// Permissions, as the nine bits of a file's mode: reading covers any content, writing any change of it. Execution
    /// bits are kept and mean nothing.
    pub mode: u16,
    /// Its part of a tier whose room is scarce, beside those of other containers: 1 to [`CONTAINER_WEIGHT_MAX`].
    pub weight: u16,
}

/// Largest weight of a container.
pub const CONTAINER_WEIGHT_MAX: u16 = 1000;

/// Default mode of a container.
pub const CONTAINER_MODE: u16 = 0o755;
/// Mode of a container that only its owner may use; also that of containers older than modes.
pub const CONTAINER_MODE_PRIVATE: u16 = 0o700;
/// All bits of a mode.
pub const CONTAINER_MODE_BITS: u16 = 0o777;

/// A right on a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Find it: see its label and settings. Granted to whoever may read or write it, and to its owner.
    Find,
    /// Read its content.
    Read,
    /// Change its content.
    Write,
    /// Rename it, delete it, change its settings.
    Own,
}

impl ContainerSpec {
    /// Returns true if a user with these groups has the right. Not for the owner of the store and root, who may do
    /// everything.
    #[must_use]
    pub fn allows(&self, uid: u32, is_in_group: impl Fn(u32) -> bool, right: Right) -> bool {
        let is_owner = self.owner_uid == Some(uid);
        let class = if is_owner {
            self.mode >> 6
        } else if self.owner_gid.is_some_and(is_in_group) {
            self.mode >> 3
        } else {
            self.mode
        };
        match right {
            Right::Find => is_owner || class & 0o6 != 0,
            Right::Read => class & 0o4 != 0,
            Right::Write => class & 0o2 != 0,
            Right::Own => is_owner,
        }
    }
}

impl Default for ContainerSpec {
    fn default() -> Self {
        Self {
            block_shift: BLOCK_SHIFT_DEFAULT,
            durability: Durability::default(),
            quota_bytes: 0,
            policy: String::new(),
            owner_uid: None,
            owner_gid: None,
            mode: CONTAINER_MODE,
            weight: 1,
        }
    }
}

/// A container's current state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerInfo {
    /// Its id, which stays the same after a rename.
    pub id: ContainerId,
    /// Its label, unique in the store.
    pub label: String,
    /// Its settings.
    pub spec: ContainerSpec,
    /// Number of its objects.
    pub objects: u64,
    /// Number of its indices.
    pub indices: u64,
    /// Number of its index records.
    pub records: u64,
    /// Bytes of its live extents on all devices.
    pub stored_bytes: u64,
}

/// A snapshot of a container. Its content is read like that of a container whose id is `id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// Id by which its objects and indices are read.
    pub id: ContainerId,
    /// Its container.
    pub of: ContainerId,
    /// Its name, unique among the snapshots of the container.
    pub name: String,
    /// Epoch of its creation, whose state it holds.
    pub epoch: u64,
    /// Time of its creation, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Number of its objects.
    pub objects: u64,
    /// Number of its indices.
    pub indices: u64,
    /// Number of its index records.
    pub records: u64,
    /// Bytes that its extents cover, including those shared with the container.
    pub stored_bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_group_and_others_have_the_bits_of_their_class() {
        let spec = ContainerSpec { owner_uid: Some(1), owner_gid: Some(7), mode: 0o241, ..ContainerSpec::default() };
        let rights = |spec: &ContainerSpec, uid, gid| {
            let all = [Right::Find, Right::Read, Right::Write, Right::Own];
            all.map(|right| spec.allows(uid, |group| group == gid, right))
        };
        assert_eq!(rights(&spec, 1, 7), [true, false, true, true], "the owner, whatever groups it is in");
        assert_eq!(rights(&spec, 2, 7), [true, true, false, false], "the group");
        assert_eq!(rights(&spec, 2, 8), [false; 4], "others");
        let shut = ContainerSpec { mode: 0, ..spec };
        assert_eq!(rights(&shut, 1, 8), [true, false, false, true], "an owner finds what it may not read");
    }

    #[test]
    fn a_call_may_ask_for_more_than_its_container_promises_and_for_nothing_less() {
        use Durability::{Async, Bypass, Scratch, Sync};
        let all = [Sync, Async, Scratch, Bypass];
        let may = |own: Durability| all.map(|asked| asked.may_be_in(own));
        assert_eq!(may(Sync), [true, false, false, false]);
        assert_eq!(may(Async), [true, true, false, true]);
        assert_eq!(may(Scratch), [false, false, true, false]);
        assert_eq!(may(Bypass), [true, true, false, true]);
    }
}
