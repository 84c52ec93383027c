//! Bad input, full tiers and damaged bytes: each is a clear error.

use cenote::{ContainerSpec, Durability, ErrorKind, KeyCode, Mode, ObjectId, OpenOptions, Store};

use crate::tools::{Random, TestDir};

pub fn bad_input() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let invalid = |error: cenote::Error| assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    invalid(store.create_container("", &ContainerSpec::default()).unwrap_err());
    invalid(store.create_container(&"x".repeat(5000), &ContainerSpec::default()).unwrap_err());
    invalid(store.create_container("x", &ContainerSpec { block_shift: 30, ..ContainerSpec::default() }).unwrap_err());
    let container = store.create_container("x", &ContainerSpec::default()).unwrap();
    invalid(container.create_object(None, Some(5)).unwrap_err());
    invalid(container.create_object(None, Some(25)).unwrap_err());
    let object = container.create_object(None, None).unwrap();
    invalid(object.write_at(u64::MAX - 3, b"abc").unwrap_err());
    invalid(object.write_at(1 << 63, b"abc").unwrap_err());
    invalid(object.launch_write(u64::MAX, b"abc").map(drop).unwrap_err());
    invalid(object.punch(u64::MAX, 10).unwrap_err());
    invalid(object.truncate(u64::MAX).unwrap_err());
    invalid(object.write_blocks(std::slice::from_ref(&(u64::MAX - 1..u64::MAX)), &[0; 4096]).unwrap_err());
    #[allow(clippy::reversed_empty_ranges, reason = "that is the bad input")]
    invalid(object.read_blocks(std::slice::from_ref(&(5..1)), &mut [0; 4096]).unwrap_err());
    let mut buf = [0; 8];
    assert_eq!(object.read_at(u64::MAX, &mut buf).unwrap(), 0);
    let index = container.create_index(None).unwrap();
    invalid(index.get(&[&vec![1; cenote::model::KEY_BYTES_MAX + 1]]).unwrap_err());
    let long = vec![1; cenote::model::KEY_BYTES_MAX + 1];
    assert_eq!(index.put(&[(&long, b"v"), (b"k", b"v")]).unwrap(), [KeyCode::Invalid, KeyCode::Ok]);
    assert_eq!(index.put(&[(b"k", &vec![0; (16 << 20) + 1])]).unwrap(), [KeyCode::Invalid]);
    assert_eq!(index.put(&[(b"k", &vec![5; 16 << 20])]).unwrap(), [KeyCode::Ok]);
    assert!(index.get_one(b"k").unwrap().unwrap() == vec![5; 16 << 20]);
    assert!(store.drain_device("none").is_err() && store.remove_device("none").is_err());
    assert!("xyz".parse::<ObjectId>().is_err());
}

pub fn opening_wrongly() {
    let place = TestDir::new();
    let open = |options: &OpenOptions| Store::open_with(place.dir(), options);
    for mode in [Mode::Auto, Mode::InProcess, Mode::Daemon] {
        let error = open(&OpenOptions { mode, ..OpenOptions::default() }).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{mode:?}: {error}");
        assert!(!place.dir().exists());
    }
    let store = place.make(Mode::InProcess);
    let error = open(&OpenOptions { mode: Mode::InProcess, ..OpenOptions::default() }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy, "{error}");
    store.close().unwrap();
    for mode in [Mode::Auto, Mode::InProcess, Mode::Daemon] {
        let options = OpenOptions { mode, create: true, create_new: true, ..OpenOptions::default() };
        let error = open(&options).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists, "{mode:?}: {error}");
        let store = open(&OpenOptions { mode, read_only: true, ..OpenOptions::default() }).unwrap();
        let error = store.create_container("x", &ContainerSpec::default()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{mode:?}: {error}");
        store.close().unwrap();
        let _ = Store::stop_daemon(place.dir());
    }
    // A file in place of a directory.
    let file = place.dir().join("file");
    std::fs::write(&file, b"x").unwrap();
    assert!(Store::open(&file).is_err());
}

pub fn full_store() {
    let place = TestDir::new();
    let config = place.config(16 << 20, 32 << 20);
    let options = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(place.dir(), &options).unwrap();
    let container = store
        .create_container("c", &ContainerSpec { durability: Durability::Scratch, ..ContainerSpec::default() })
        .unwrap();
    let mut random = Random::new(7);
    let mut written = Vec::new();
    let error = loop {
        let object = container.create_object(None, None).unwrap();
        let bytes = random.bytes(1 << 20);
        match object.write_at(0, &bytes) {
            Ok(()) => written.push((object, bytes)),
            Err(error) => break error,
        }
        assert!(written.len() < 64, "more than the devices hold");
    };
    assert_eq!(error.kind(), ErrorKind::Full, "{error}");
    assert!(error.to_string().contains("memory") && error.to_string().contains("disk"), "{error}");
    assert!(written.len() >= 24, "only {} MiB of 48 could be used", written.len());
    // Nothing is being freed, so no call waits.
    let begin = std::time::Instant::now();
    let refused = container.create_object(None, None).unwrap().write_at(0, &vec![1; 1 << 20]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Full, "{refused}");
    assert!(begin.elapsed() < std::time::Duration::from_millis(1500), "{:?}", begin.elapsed());
    let mut back = vec![0; 1 << 20];
    for (object, bytes) in &written {
        object.read_at(0, &mut back).unwrap();
        assert!(back == *bytes);
    }
    // Deleting makes room.
    for (object, _) in written.drain(..8) {
        container.delete_object(object.key().object).unwrap();
    }
    container.create_object(None, None).unwrap().write_at(0, &back).unwrap();
}

pub fn flipped_bits() {
    let place = TestDir::new();
    let store = place.make(Mode::InProcess);
    let spec = ContainerSpec { durability: Durability::Bypass, ..ContainerSpec::default() };
    let container = store.create_container("on disk", &spec).unwrap();
    let object = container.create_object(Some(ObjectId(0xabc)), None).unwrap();
    let bytes = Random::new(8).bytes(1 << 20);
    object.write_at(0, &bytes).unwrap();
    let explanation = store.explain(object.key()).unwrap();
    assert_eq!(explanation.ranges[0].device, "disk");
    store.close().unwrap();
    let store = place.open(Mode::InProcess);
    let object = store.container("on disk").unwrap().object(ObjectId(0xabc));
    // Flips a bit of the written bytes, wherever they are in the files.
    let needle = &bytes[500_000..500_064];
    let mut flipped = 0;
    for entry in std::fs::read_dir(place.config(0, 0).devices[1].path.clone()).unwrap() {
        let path = entry.unwrap().path();
        let Ok(mut content) = std::fs::read(&path) else { continue };
        if let Some(at) = content.windows(needle.len()).position(|window| window == needle) {
            content[at] ^= 4;
            let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &content[at..=at], at as u64).unwrap();
            file.sync_all().unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
    let mut buf = vec![0; 4096];
    let error = object.read_at(500_000, &mut buf).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let text = error.to_string();
    assert!(text.contains("abc of container `on disk`") && text.contains("device `disk`"), "{text}");
    object.read_at(0, &mut buf).unwrap();
    assert!(buf == bytes[..4096]);
    assert!(!store.verify().unwrap().findings.is_empty());
}
