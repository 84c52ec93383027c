//! Resources of dropped handles are given back at once.

use cenote::{ContainerSpec, DeviceInfo, Durability, Mode, Store};
use cenote_model::RUN_BYTES_MAX;

use crate::tools::{Random, TestDir, eventually};

const MIB: usize = 1 << 20;
const MODES: [Mode; 2] = [Mode::InProcess, Mode::Daemon];

fn sum(store: &Store, of: impl Fn(&DeviceInfo) -> u64) -> u64 {
    store.devices().unwrap().iter().map(of).sum()
}

/// An uncommitted transaction and staged bytes do not leak space.
pub fn leased_space() {
    for mode in MODES {
        let place = TestDir::new();
        let store = place.make(mode);
        let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
        let bytes = vec![7; MIB];
        object.write_at(0, &bytes).unwrap();
        // A session keeps some space for its next writes.
        let most = sum(&store, |device| device.leased_bytes) + 12 * MIB as u64;
        for _ in 0..24 {
            store.begin().write(&object, 0, &bytes).unwrap();
        }
        eventually("what a transaction wrote goes back", || sum(&store, |device| device.leased_bytes) <= most);
        for _ in 0..24 {
            object.write_in_place(MIB).unwrap().bytes().fill(8);
        }
        eventually("what was staged goes back", || sum(&store, |device| device.leased_bytes) <= most);
        let mut found = vec![0; MIB];
        object.read_at(0, &mut found).unwrap();
        assert!(found == bytes, "{mode:?}");
    }
}

/// The bytes of a view are kept during its life; afterwards their overwritten space is free again.
pub fn what_views_held() {
    for mode in MODES {
        let place = TestDir::new();
        let store = place.make(mode);
        let spec = ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() };
        let object = store.create_container("c", &spec).unwrap().create_object(None, None).unwrap();
        object.write_at(0, &vec![1; MIB]).unwrap();
        let given_up = || sum(&store, |device| device.reserved_bytes - device.leased_bytes);
        let views = [0, 1000].map(|offset| object.view(offset, 1000).unwrap().expect("memory"));
        for round in 0..8 {
            object.write_at(0, &vec![round; MIB]).unwrap();
        }
        assert!(given_up() >= 8 * MIB as u64, "{mode:?}: {}", given_up());
        drop(views);
        eventually("what nobody looks at is free", || given_up() == 0);
    }
}

/// A deleted snapshot is kept as long as a handle is open, and no longer.
pub fn deleted_snapshots() {
    for mode in MODES {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("c", &ContainerSpec::default()).unwrap();
        let object = container.create_object(None, None).unwrap();
        object.write_at(0, &vec![1; 4 * MIB]).unwrap();
        container.snapshot("s").unwrap();
        object.truncate(0).unwrap();
        let handles = [container.open_snapshot("s").unwrap(), container.open_snapshot("s").unwrap()];
        container.delete_snapshot("s").unwrap();
        store.flush().unwrap();
        let used = || sum(&store, |device| device.used_bytes);
        let [one, other] = handles;
        drop(one);
        let mut found = vec![0; 4 * MIB];
        assert_eq!(other.object(object.key().object).read_at(0, &mut found).unwrap(), 4 * MIB, "{mode:?}");
        assert!(used() >= 4 * MIB as u64 && found.iter().all(|byte| *byte == 1), "{mode:?}");
        drop(other);
        eventually("what the snapshot alone had is free", || used() < MIB as u64);
    }
}

/// Writes longer than a run are split, in a transaction as well as outside.
pub fn written_in_pieces() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let object = store.create_container("c", &ContainerSpec::default()).unwrap().create_object(None, None).unwrap();
    let bytes = Random::new(91).bytes(RUN_BYTES_MAX as usize + 3 * MIB);
    let mut transaction = store.begin();
    transaction.write(&object, 12_345, &bytes).unwrap();
    let mut found = vec![0; bytes.len()];
    assert_eq!(transaction.read(&object, 12_345, &mut found).unwrap(), bytes.len());
    assert!(found == bytes, "as the transaction reads it");
    transaction.commit().unwrap();
    assert_eq!(object.stat().unwrap().size, 12_345 + bytes.len() as u64);
    assert_eq!(object.read_at(12_345, &mut found).unwrap(), bytes.len());
    assert!(found == bytes);
}
