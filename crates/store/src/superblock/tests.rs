//! Superblocks of all versions, damaged ones, and stamps.

use super::*;

fn example() -> Superblock {
    let spec = DeviceSpec {
        name: "fast".into(),
        kind: DeviceKind::File,
        path: "/somewhere/file".into(),
        capacity_bytes: 1 << 30,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: [("compress".to_owned(), "zstd".to_owned())].into_iter().collect(),
    };
    let device = SuperblockDevice {
        id: DeviceId(7),
        spec,
        removed: false,
        draining: true,
        is_damaged: true,
        unit_bytes: 4096,
        segment_bytes: 1 << 20,
        incarnation: 99,
    };
    let other = SuperblockDevice { id: DeviceId(8), ..device.clone() };
    let loan = |device, offset| Loan { device: DeviceId(device), offset, bytes: 1 << 20 };
    let homes = vec![vec![loan(7, 0), loan(8, 1 << 20)], vec![loan(7, 1 << 20)], vec![]];
    Superblock {
        id: StoreId(5),
        writers: vec![1, 2],
        readers: vec![],
        devices: vec![device, other],
        homes,
        home: HomeId(0),
    }
}
/// Bytes behind the devices in version 3 of a store with one engine: node, needs, homes, keys.
const TAIL: usize = 2 + 8 + 4 + 4;
/// Bytes behind each device in version 3.
const DEVICE_TAIL: usize = 2 + 4;

/// A superblock as version 1 or 2 wrote it.
fn earlier(superblock: &Superblock, version: u32) -> Vec<u8> {
    let mut bytes = Superblock { devices: Vec::new(), homes: Vec::new(), ..superblock.clone() }.encode();
    bytes.truncate(bytes.len() - TAIL - 4);
    bytes.put_u32(superblock.devices.len() as u32);
    for device in &superblock.devices {
        let mut encoded = Vec::new();
        device.encode(&mut encoded);
        encoded.truncate(encoded.len() - DEVICE_TAIL);
        if version == 1 {
            let numbers = encoded.split_off(encoded.len() - 20);
            let options: usize = device.spec.options.iter().map(|(name, value)| 8 + name.len() + value.len()).sum();
            encoded.truncate(encoded.len() - 2 - options);
            encoded.extend(numbers);
        }
        bytes.extend(encoded);
    }
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    seal(&mut bytes);
    bytes
}

#[test]
fn earlier_versions_have_one_engine() {
    let two = Superblock { homes: Vec::new(), ..example() };
    assert_eq!(Superblock::decode(&earlier(&two, 2)), Ok(two.clone()));
    let mut one = two;
    one.devices.iter_mut().for_each(|device| device.spec.options = TierOptions::default());
    assert_eq!(Superblock::decode(&earlier(&one, 1)), Ok(one));
}

#[test]
fn the_home_in_a_cluster_is_kept() {
    let third = Superblock { homes: Vec::new(), home: HomeId(3), ..example() };
    assert_eq!(Superblock::decode(&third.encode()), Ok(third.clone()));
    let both = Superblock { home: HomeId(3), ..example() };
    assert_eq!(Superblock::decode(&both.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut contradiction = third.encode();
    let at = contradiction.len() - TAIL;
    contradiction[at..at + 2].fill(0);
    seal(&mut contradiction);
    assert_eq!(Superblock::decode(&contradiction).unwrap_err().kind(), ErrorKind::Corrupt);
}

#[test]
fn a_feature_that_is_not_known_is_named() {
    let one = Superblock { homes: Vec::new(), ..example() };
    for (bit, name) in [(2, "parity"), (3, "encryption"), (40, "feature 40")] {
        let mut bytes = one.encode();
        let at = bytes.len() - TAIL + 2;
        bytes[at..at + 8].copy_from_slice(&(1u64 << bit).to_le_bytes());
        bytes.extend([7; 3]); // what a later version may add
        seal(&mut bytes);
        let error = Superblock::decode(&bytes).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::VersionMismatch);
        assert!(error.to_string().contains(name), "{error}");
    }
    let mut keys = one.encode();
    let at = keys.len() - 4;
    keys.truncate(at);
    keys.put_u32(1);
    keys.put_u16(1);
    keys.put_bytes(b"wrapped");
    seal(&mut keys);
    let error = Superblock::decode(&keys).unwrap_err();
    assert!(error.kind() == ErrorKind::VersionMismatch && error.to_string().contains("encryption"), "{error}");
}

#[test]
fn loans_are_disjoint_and_on_their_devices() {
    let mut twice = example();
    let first = twice.homes[0][0];
    twice.homes[2].push(first);
    let mut outside = example();
    outside.homes[2].push(Loan { device: DeviceId(7), offset: 1 << 30, bytes: 4096 });
    let mut nowhere = example();
    nowhere.homes[2].push(Loan { device: DeviceId(9), offset: 0, bytes: 4096 });
    for wrong in [twice, outside, nowhere] {
        assert_eq!(Superblock::decode(&wrong.encode()).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}

#[test]
fn every_flipped_bit_and_every_length_is_an_error() {
    let superblock = example();
    let bytes = superblock.encode();
    assert_eq!(Superblock::decode(&bytes), Ok(superblock));
    for at in 0..bytes.len() {
        let mut bad = bytes.clone();
        bad[at] ^= 1 << (at % 8);
        let error = Superblock::decode(&bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(Superblock::decode(&bytes[..at]).is_err());
    }
    let stamp = Stamp { store: StoreId(1), device: DeviceId(2), incarnation: 3 };
    assert_eq!(Stamp::decode(&stamp.encode()), Ok(stamp));
    assert!(Stamp::decode(&[0; STAMP_LEN]).is_err());
}

#[test]
fn a_newer_version_is_named() {
    let mut bytes = example().encode();
    bytes[8] = 4;
    seal(&mut bytes);
    assert_eq!(Superblock::decode(&bytes).unwrap_err().kind(), ErrorKind::VersionMismatch);
}
