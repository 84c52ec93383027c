//! Measures a tier in an object service: `cargo run --release -p cenote-device --example objects -- SPEC [MIB]`. SPEC
//! has the form that `cenote init --tier` takes. Creates the tier, writes and syncs, reads, and removes it.

use std::time::Instant;

use cenote_device::mem::SplitMix;
use cenote_device::{Device, Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceSpec, Result, StoreId};

const CHUNK: usize = 4 << 20;
const STORE: StoreId = StoreId(0xbe);

fn timed(what: &str, bytes: u64, calls: u64, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let begun = Instant::now();
    act()?;
    let seconds = begun.elapsed().as_secs_f64();
    let (rate, each_ms) = (bytes as f64 / 1e6 / seconds, seconds * 1e3 / calls as f64);
    println!("{what:28} {rate:8.1} MB/s  {each_ms:8.2} ms each");
    Ok(())
}

fn measure(device: &dyn Device, bytes: u64) -> Result<()> {
    let mut rng = SplitMix::new(1);
    let chunk: Vec<u8> = (0..CHUNK).map(|_| rng.next_u64() as u8).collect();
    let chunks = bytes / CHUNK as u64;
    timed("write 4 MiB, sync at the end", bytes, chunks, || {
        (0..chunks).try_for_each(|i| device.write_at(i * CHUNK as u64, &chunk))?;
        device.sync()
    })?;
    timed("write and sync 4 MiB", 8 * CHUNK as u64, 8, || {
        (0..8).try_for_each(|i| device.write_at(i * CHUNK as u64, &chunk).and_then(|()| device.sync()))
    })?;
    let mut buf = vec![0; CHUNK];
    timed("read 4 MiB in order", bytes, chunks, || {
        (0..chunks).try_for_each(|i| device.read_at(i * CHUNK as u64, &mut buf))
    })?;
    let mut big = vec![0; 8 * CHUNK];
    timed("read 32 MiB in order", bytes, chunks / 8, || {
        (0..chunks / 8).try_for_each(|i| device.read_at(i * 8 * CHUNK as u64, &mut big))
    })?;
    for len in [4 << 10, 64 << 10] {
        timed(&format!("read {} KiB at random", len >> 10), 200 * len, 200, || {
            (0..200).try_for_each(|_| {
                let at = rng.below(bytes - len) & !4095;
                device.read_at(at, &mut buf[..len as usize])
            })
        })?;
    }
    Ok(())
}

fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let spec: DeviceSpec = args.next().unwrap_or_default().parse()?;
    let bytes = args.next().and_then(|mib| mib.parse::<u64>().ok()).unwrap_or(256) << 20;
    let (devices, id) = (SystemDevices::default(), DeviceId(1));
    let opened = devices.open(STORE, id, &spec, true)?;
    let measured = measure(opened.device.as_ref(), bytes);
    drop(opened);
    let begun = Instant::now();
    let reopened = devices.open(STORE, id, &spec, false)?;
    println!("open again                   {:8.2} ms", begun.elapsed().as_secs_f64() * 1e3);
    drop(reopened);
    devices.remove(STORE, id, &spec)?;
    measured
}
