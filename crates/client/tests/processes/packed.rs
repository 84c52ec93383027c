//! Tiers that compress: clients decompress their reads.

use cenote::{Arrange, ArrangeTarget, DeviceKind, Mode, OpenOptions, Store};

use crate::tools::{Random, TestDir};

const MIB: usize = 1 << 20;

/// Measurements of a slowly changing field, as 4-byte numbers with some noise in their low bits.
fn field(random: &mut Random, len: usize) -> Vec<u8> {
    let value = |i: usize, noise: u64| 273.0f32 + (i as f32 * 1e-3).sin() * 20.0 + noise as f32 * 1e-5;
    let mut bytes: Vec<u8> = (0..len.div_ceil(4)).flat_map(|i| value(i, random.below(16)).to_le_bytes()).collect();
    bytes.truncate(len);
    bytes
}

/// Any part reads as written, also during an overwrite of a part; and it takes less room.
pub fn read_in_parts() {
    for (mode, kind, compress) in [
        (Mode::InProcess, DeviceKind::Directory, "lz4"),
        (Mode::Daemon, DeviceKind::File, "lz4"),
        (Mode::Daemon, DeviceKind::Directory, "zstd"),
    ] {
        let place = TestDir::new();
        let mut config = place.config(64 << 20, 256 << 20);
        config.devices[1].kind = kind;
        config.devices[1].options.set("compress", compress);
        let options = OpenOptions { mode, create: true, config, ..OpenOptions::default() };
        let store = Store::open_with(place.dir(), &options).unwrap();
        let seed = crate::tools::seed();
        let mut random = Random::new(seed);
        let container = store.create_container("c", &cenote::ContainerSpec::default()).unwrap();
        let object = container.create_object(None, None).unwrap();
        let mut image = field(&mut random, 9 * MIB + 777);
        object.write_at(0, &image).unwrap();
        for round in 0..300 {
            if round % 60 == 0 {
                store.flush().unwrap();
                store.arrange(&ArrangeTarget::Object(object.key()), &Arrange::Evict, false).unwrap();
                let ranges = store.explain(object.key()).unwrap().ranges;
                assert!(ranges.iter().any(|range| range.device == "disk" && range.why.contains(compress)));
            }
            let longest = [100, 5000, 70_000, 3 * MIB as u64][random.below(4) as usize];
            let from = random.below(image.len() as u64 - 1) as usize;
            let len = (1 + random.below(longest) as usize).min(image.len() - from);
            if random.below(6) == 0 {
                let bytes = field(&mut random, len);
                object.write_at(from as u64, &bytes).unwrap();
                image[from..from + len].copy_from_slice(&bytes);
            }
            let mut have = vec![0; len];
            assert_eq!(object.read_at(from as u64, &mut have).unwrap(), len);
            assert!(have == image[from..from + len], "{mode:?}, {compress}, seed {seed}, round {round}");
        }
        let disk = store.devices().unwrap().into_iter().find(|device| device.spec.name == "disk").unwrap();
        assert!(disk.packed_bytes > 0 && disk.packed_bytes * 5 < disk.unpacked_bytes * 4, "{disk:?}");
        assert!(store.verify().unwrap().findings.is_empty());
        drop((object, container, store));
        let store = place.open(mode);
        let container = store.container("c").unwrap();
        let mut have = vec![0; image.len()];
        let object = container.object(container.objects(None, 1).unwrap().into_iter().next().unwrap());
        object.read_at(0, &mut have).unwrap();
        assert!(have == image, "{mode:?}, seed {seed}: after it was opened again");
    }
}
