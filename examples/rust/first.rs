//! A first program in Rust: make a store with two tiers, write, read, read without a copy, keep records, change
//! several things at once, and see where the bytes are.
//!
//! `cargo run --example first -- DIRECTORY`

use std::path::PathBuf;

use cenote::{ContainerSpec, ErrorKind, IndexId, OpenOptions, Store, StoreConfig};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let dir = PathBuf::from(std::env::args_os().nth(1).ok_or("usage: first DIRECTORY")?);

    // A store with memory in front of a directory. `Store::open(dir)` would choose tiers to fit this machine.
    let disk = format!("name=disk,kind=directory,path={},size=256MiB", dir.join("disk").display());
    let devices = vec!["name=memory,kind=memory,size=64MiB,high=90%,low=70%".parse()?, disk.parse()?];
    let config = StoreConfig { devices, ..StoreConfig::default() };
    let store = Store::open_with(dir.join("store"), &OpenOptions { create: true, config, ..OpenOptions::default() })?;

    // A container is a group of objects and indices with one policy.
    let runs = store.open_container("runs", &ContainerSpec::default())?;

    // An object is an array of bytes; any range may be written and read.
    let object = runs.create_object(None, None)?;
    let values: Vec<u8> = (0..100_000_u32).flat_map(|i| (f64::from(i) * 0.5).to_le_bytes()).collect();
    object.write_at(0, &values)?;
    let mut back = vec![0; values.len()];
    let got = object.read_at(0, &mut back)?;
    assert!(got == values.len() && back == values);

    // By reference: no copy, if the range is in one piece of mapped memory. It does not change while the view lives.
    if let Some(view) = object.view(0, 4096)? {
        assert_eq!(&view[..], &values[..4096]);
        println!("4096 bytes read without a copy");
    }

    // Asynchronous: launch, do other work, wait.
    let op = object.launch_write(values.len() as u64, &values)?;
    op.wait()?;

    // An index keeps ordered records.
    let index = runs.open_index(IndexId(1))?;
    index.put(&[(b"step", b"1")])?;

    // A transaction: all of it or nothing, even after a crash.
    let mut transaction = store.begin();
    transaction.write(&object, 0, b"changed")?;
    transaction.put(&index, b"step", b"2")?;
    transaction.commit()?;
    let step = index.get_one(b"step")?.unwrap_or_default();
    println!("step is now {}", String::from_utf8_lossy(&step));

    // The barrier: everything acknowledged before survives power loss.
    store.flush()?;
    for device in store.devices()? {
        println!("tier {:<8} {:>8} KiB used", device.spec.name, device.used_bytes / 1024);
    }
    for range in store.explain(object.key())?.ranges {
        println!("{} bytes at {} are on `{}`: {}", range.extent.len, range.offset, range.device, range.why);
    }

    // An error names its subject, its cause and the next step.
    match store.container("walks") {
        Err(error) if error.kind() == ErrorKind::NotFound => println!("as expected: {error}"),
        _ => return Err("there is no such container".into()),
    }
    store.close()?;
    println!("all is well");
    Ok(())
}
