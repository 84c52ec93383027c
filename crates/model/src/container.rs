//! Containers: their settings, and what a store tells of them.

use crate::{BLOCK_SHIFT_DEFAULT, ContainerId};

/// When an update to a container is acknowledged, and what then survives. `docs/semantics.md` has the full table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum Durability {
    /// Acknowledged when the data are on a persistent tier and the journal is on media: survives power loss.
    Sync = 0,
    /// Acknowledged in the fastest tier with room: survives the death of any process at once,
    /// and power loss once drained, which happens behind the compute; `flush` is the barrier.
    #[default]
    Async = 1,
    /// Never drained for durability's sake: survives the death of processes, not power loss.
    Scratch = 2,
    /// Like `Async`, but data go straight to the lowest persistent tier and leave the faster ones to others.
    Bypass = 3,
}

impl Durability {
    /// The word for it: `sync`, `async`, `scratch`, `bypass`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Scratch => "scratch",
            Self::Bypass => "bypass",
        }
    }
    /// True if single calls in a container of durability `own` may ask for this: for more than that promises, or another
    /// place; never for less, and for nothing else where nothing is kept.
    pub fn may_be_in(self, own: Self) -> bool {
        match own {
            Self::Scratch => self == Self::Scratch,
            Self::Sync => matches!(self, Self::Sync),
            Self::Async | Self::Bypass => self != Self::Scratch,
        }
    }
}

/// What is fixed, and what is preset, when a container is made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerSpec {
    /// Block size (as a power of two) of objects that name none. 6 to 24.
    pub block_shift: u8,
    /// When updates are acknowledged.
    pub durability: Durability,
    /// Most bytes that the container's extents may take; 0 for no limit.
    pub quota_bytes: u64,
    /// Name of the placement policy; empty for the default (`fast-first`).
    pub policy: String,
    /// Numeric user that owns the container; filled in from the session's credentials when it is made, if `None`. A
    /// container without one is the store's owner's.
    pub owner_uid: Option<u32>,
    /// Numeric group of the container; filled in likewise.
    pub owner_gid: Option<u32>,
    /// Who may do what, as the nine bits of a file's mode: reading is looking at anything in it, writing is changing
    /// it. Bits for execution are kept and mean nothing.
    pub mode: u16,
}

/// Mode of a container for which none was asked.
pub const CONTAINER_MODE: u16 = 0o755;
/// Mode of a container that is its owner's alone; also that of containers made before there were modes.
pub const CONTAINER_MODE_PRIVATE: u16 = 0o700;
/// The bits that a mode can have.
pub const CONTAINER_MODE_BITS: u16 = 0o777;

/// What somebody may do with a container.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Right {
    /// Find it: see its label and settings. Whoever may read or write it, and its owner.
    Find,
    /// Look at what is in it.
    Read,
    /// Change what is in it.
    Write,
    /// Rename it, delete it, change its settings.
    Own,
}

impl ContainerSpec {
    /// True if a user with these groups may do that. The owner of the store and root may do all: they are not asked
    /// about here.
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
        }
    }
}

/// A container as it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ContainerInfo {
    /// Its id, which a rename keeps.
    pub id: ContainerId,
    /// Its label, unique in the store.
    pub label: String,
    /// Its settings.
    pub spec: ContainerSpec,
    /// Objects in it.
    pub objects: u64,
    /// Indices in it.
    pub indices: u64,
    /// Index records in it.
    pub records: u64,
    /// Bytes that its live extents take on all devices.
    pub stored_bytes: u64,
}

/// A snapshot of a container as it stands. Its content is read like that of a container whose id is `id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SnapshotInfo {
    /// What its objects and indices are read by.
    pub id: ContainerId,
    /// The container that it is of.
    pub of: ContainerId,
    /// Its name, unique among the snapshots of the container.
    pub name: String,
    /// Epoch at which it was made: it has what the container held then.
    pub epoch: u64,
    /// When it was made, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Objects in it.
    pub objects: u64,
    /// Indices in it.
    pub indices: u64,
    /// Index records in it.
    pub records: u64,
    /// Bytes that its extents cover, those that it shares with the container included.
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
