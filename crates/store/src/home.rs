//! One engine of several in a store: which numbers it hands out, what space is lent to it, and where its files are.
//!
//! The engine of home 0 is the landlord: superblock, stamps, profiles and rules of the store are its. The others are
//! tenants. This module must not know what an engine does.

use std::sync::Arc;

use cenote_device::mirror::FileKind;
use cenote_device::{LogFile, MetaDir};
use cenote_model::{ContainerId, DeviceId, Error, ErrorKind, HomeId, Result, Update};

use crate::engine::POLICY_FILE;
use crate::habits::HABITS;
use crate::profile::PROFILE;
use crate::space::{DeviceSlot, STAMP_BYTES};
use crate::superblock::{HOMES_MAX, Loan, SUPERBLOCK};
use crate::weights::WEIGHTS;

/// Files of the store that tenants read and the landlord writes.
pub(crate) const SHARED: [&str; 3] = [PROFILE, POLICY_FILE, WEIGHTS];
/// Loans begin and end at multiples of this, where devices are large enough: huge pages have one owner.
const GRAIN_BYTES: u64 = 2 << 20;
/// The same on small devices.
const GRAIN_BYTES_SMALL: u64 = 64 << 10;
/// A device of fewer grains for each engine is small.
const GRAINS_MIN: u64 = 8;
/// Least space of a device for each engine, in bytes.
const LOAN_BYTES_MIN: u64 = 64 << 10;

/// The place of an engine among those of its store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Home {
    /// Its number, from 0.
    pub index: u16,
    /// Number of engines.
    pub count: u16,
    /// The home that the store is in a cluster; 0 for a store by itself.
    pub of_cluster: HomeId,
}

impl Home {
    /// Returns true if the superblock, stamps and the store's own files are this engine's.
    pub fn is_landlord(self) -> bool {
        self.index == 0
    }
    /// The first number from `from` on that this engine may hand out. An id modulo the number of engines is its home.
    pub fn next_id(self, from: u64) -> u64 {
        let (count, index) = (u64::from(self.count), u64::from(self.index));
        if count == 1 { from } else { from + (index + count - from % count) % count }
    }
    /// Fails if an update gives a new container or snapshot an id of another home.
    pub fn check_new(self, updates: &[Update]) -> Result<()> {
        let new = |update: &Update| match update {
            Update::ContainerCreate { id, .. } | Update::SnapshotCreate { id, .. } => (id.0 != 0).then_some(*id),
            _ => None,
        };
        match updates.iter().filter_map(new).find(|id| id.home() != self.of_cluster) {
            None => Ok(()),
            Some(id) => Err(Error::new(ErrorKind::InvalidInput, format!("container {id}"))
                .because(format!("this is home {}, which gives no such number", self.of_cluster))
                .try_next("give it the number 0: the store chooses one")),
        }
    }
    /// The first id from `from` on that this engine may give to a container or a snapshot.
    pub fn next_container(self, from: u64) -> u64 {
        self.next_id(from.max(ContainerId::first_of(self.of_cluster).0))
    }
}

/// Checks the number of engines of a new store.
pub(crate) fn check_count(engines: u16, of_cluster: HomeId, devices: &[cenote_model::DeviceSpec]) -> Result<()> {
    if engines > 1 && of_cluster.0 != 0 {
        return Err(Error::new(ErrorKind::Unsupported, "a new store")
            .because("a home of a cluster has one engine")
            .try_next("make the store with one engine"));
    }
    if usize::from(engines) > HOMES_MAX {
        return Err(Error::new(ErrorKind::InvalidInput, "a new store")
            .because(format!("{engines} engines"))
            .try_next(format!("give it 1 to {HOMES_MAX}")));
    }
    let object = devices.iter().find(|device| device.kind.is_object()).filter(|_| engines > 1);
    if let Some(device) = object {
        // What such a tier may forget is what no engine uses, and none of them knows the others'.
        return Err(Error::new(ErrorKind::Unsupported, format!("device `{}`", device.name))
            .because("a store with several engines cannot have tiers in object services yet")
            .try_next("make the store with one engine, or without this tier"));
    }
    Ok(())
}

/// Splits the space of all devices evenly: the loans of each engine, one run of each device.
pub(crate) fn split(slots: &[DeviceSlot], engines: u16) -> Result<Vec<Vec<Loan>>> {
    let count = u64::from(engines.max(1));
    if count == 1 {
        return Ok(Vec::new());
    }
    let mut homes = vec![Vec::new(); count as usize];
    for slot in slots {
        let unit = u64::from(slot.space.unit_bytes);
        let end = (slot.space.map.units() * unit).min(slot.spec.capacity_bytes);
        let grain = if end / count >= GRAINS_MIN * GRAIN_BYTES { GRAIN_BYTES } else { GRAIN_BYTES_SMALL };
        let grain = grain.next_multiple_of(unit);
        let bound = |home: u64| if home == count { end / unit * unit } else { end * home / count / grain * grain };
        for (home, loans) in (0..).zip(&mut homes) {
            let from = bound(home).max(STAMP_BYTES.next_multiple_of(unit));
            let to = bound(home + 1);
            if to < from + LOAN_BYTES_MIN {
                return Err(Error::new(ErrorKind::InvalidInput, format!("device `{}`", slot.spec.name))
                    .because(format!("{end} bytes are too few for {count} engines"))
                    .try_next("give it more, or the store fewer engines"));
            }
            loans.push(Loan { device: slot.id, offset: from, bytes: to - from });
        }
    }
    Ok(homes)
}

/// The home whose space a run is in.
pub(crate) fn lent_to(homes: &[Vec<Loan>], device: DeviceId, offset: u64) -> u16 {
    homes.iter().position(|loans| loans.iter().any(|loan| loan.has(device, offset))).unwrap_or(0) as u16
}

/// The files of a tenant: those of the store's directory whose names begin with `home-<k>.`. A directory for each would
/// be no safer, and metadata directories are flat wherever they are.
pub(crate) struct HomeDir {
    inner: Arc<dyn MetaDir>,
    prefix: String,
}

impl HomeDir {
    /// The files of a home; those of the landlord have no prefix.
    pub fn of(meta: &Arc<dyn MetaDir>, home: Home) -> Arc<dyn MetaDir> {
        if home.is_landlord() {
            return Arc::clone(meta);
        }
        Arc::new(Self { inner: Arc::clone(meta), prefix: prefix_of(home.index) })
    }
    fn name(&self, name: &str) -> String {
        if SHARED.contains(&name) { name.to_owned() } else { format!("{}{name}", self.prefix) }
    }
}

fn prefix_of(home: u16) -> String {
    format!("home-{home}.")
}

/// What a file of a store is, for copies of it on other nodes. `None`: it is none of the engines' files.
pub fn file_kind(name: &str) -> Option<FileKind> {
    let within = name_within(name);
    if crate::journal::sequence_of(within).is_some() {
        return Some(FileKind::Log);
    }
    let is_whole = crate::checkpoint::sequence_of(within).is_some()
        || [SUPERBLOCK, PROFILE, HABITS, POLICY_FILE, WEIGHTS].contains(&within);
    is_whole.then_some(FileKind::Whole)
}

/// The name of a file within its home.
pub(crate) fn name_within(name: &str) -> &str {
    let within = |home: u16| name.strip_prefix(&prefix_of(home));
    let begins = name.starts_with("home-");
    begins.then(|| (1..HOMES_MAX as u16).find_map(within)).flatten().unwrap_or(name)
}

impl MetaDir for HomeDir {
    fn create_log(&self, name: &str, capacity: u64) -> Result<Box<dyn LogFile>> {
        self.inner.create_log(&self.name(name), capacity)
    }
    fn open_log(&self, name: &str) -> Result<Box<dyn LogFile>> {
        self.inner.open_log(&self.name(name))
    }
    fn write_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        if SHARED.contains(&name) { Ok(()) } else { self.inner.write_file(&self.name(name), bytes) }
    }
    fn read_file(&self, name: &str) -> Result<Vec<u8>> {
        self.inner.read_file(&self.name(name))
    }
    fn list(&self) -> Result<Vec<String>> {
        let names = self.inner.list()?;
        Ok(names.iter().filter_map(|name| name.strip_prefix(&self.prefix)).map(str::to_owned).collect())
    }
    fn remove(&self, name: &str) -> Result<()> {
        if SHARED.contains(&name) { Ok(()) } else { self.inner.remove(&self.name(name)) }
    }
}

#[cfg(test)]
mod tests {
    use cenote_device::mem::MemMetaDir;

    use super::*;
    use crate::engine::filled::a_file;
    use crate::engine::slot_with;

    #[test]
    fn ids_are_their_homes() {
        for count in 1..=5 {
            for index in 0..count {
                let home = Home { index, count, of_cluster: HomeId(0) };
                for from in 1..40 {
                    let id = home.next_id(from);
                    assert!(id >= from && id < from + u64::from(count) && id % u64::from(count) == u64::from(index));
                }
            }
        }
        assert_eq!(Home { index: 0, count: 1, of_cluster: HomeId(0) }.next_id(17), 17);
        let third = Home { index: 0, count: 1, of_cluster: HomeId(3) };
        assert_eq!(third.next_container(1), 3 << ContainerId::HOME_SHIFT | 1);
        assert_eq!(third.next_container(3 << ContainerId::HOME_SHIFT | 9), 3 << ContainerId::HOME_SHIFT | 9);
        assert_eq!(third.next_id(5), 5);
    }

    #[test]
    fn every_byte_but_the_stamp_is_lent_once() {
        for (mib, engines) in [(64, 3), (64, 16), (1 << 12, 4), (2, 3)] {
            let mut slots: Vec<_> =
                [1, 2].map(|id| slot_with(DeviceId(id), &a_file(), None, mib << 20, (4096, 64 << 20), 1)).into();
            for slot in &mut slots {
                slot.spec.capacity_bytes = mib << 20;
            }
            let homes = split(&slots, engines).unwrap();
            assert_eq!(homes.len(), usize::from(engines));
            for slot in &slots {
                let mut at = STAMP_BYTES;
                for (home, loans) in homes.iter().enumerate() {
                    let loan = loans.iter().find(|loan| loan.device == slot.id).unwrap();
                    assert_eq!(loan.offset, at);
                    assert_eq!(lent_to(&homes, slot.id, at), home as u16);
                    at += loan.bytes;
                }
                assert_eq!(at, mib << 20);
            }
            let whole = slots[0].capacity_bytes();
            let parts: u64 = homes
                .iter()
                .map(|loans| {
                    slots[0].restrict(loans);
                    assert_eq!(slots[0].used_bytes(), 0);
                    slots[0].capacity_bytes()
                })
                .sum();
            assert_eq!(parts, whole);
        }
        let small = [slot_with(DeviceId(1), &a_file(), None, 256 << 10, (4096, 64 << 20), 1)];
        assert!(split(&small, 5).is_err());
    }

    #[test]
    fn a_tenant_has_files_of_its_own_and_reads_those_of_the_store() {
        let root: Arc<dyn MetaDir> = Arc::new(MemMetaDir::default());
        let home = HomeDir::of(&root, Home { index: 2, count: 3, of_cluster: HomeId(0) });
        home.write_file("checkpoint-000001", b"mine").unwrap();
        root.write_file("checkpoint-000002", b"the landlord's").unwrap();
        assert_eq!(home.list().unwrap(), ["checkpoint-000001"]);
        assert_eq!(
            name_within(&root.list().unwrap().concat()),
            name_within("checkpoint-000002home-2.checkpoint-000001")
        );
        assert_eq!((name_within("home-2.journal-000001"), name_within("home-x")), ("journal-000001", "home-x"));
        root.write_file(SHARED[1], b"rules").unwrap();
        home.write_file(SHARED[1], b"others").unwrap();
        home.remove(SHARED[1]).unwrap();
        assert_eq!(home.read_file(SHARED[1]).unwrap(), b"rules");
    }
}
