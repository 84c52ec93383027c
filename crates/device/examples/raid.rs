//! Measures a tier on several places: `cargo run --release -p cenote-device --example raid -- DIR [LAYOUT] [MIB]`. Makes
//! the places as directories in DIR, and compares, in the same run:
//!
//! - encoding and writing packs with writing the same bytes, parity included, to plain files there, each synced;
//! - reading with one place away with reading with all of them;
//! - making the parts of a lost place again with writing as many bytes.
//!
//! With all places on one disk the ratios hold and the times do not: each place should have a disk of its own.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cenote_device::mem::SplitMix;
use cenote_device::object::ObjectService;
use cenote_device::object::raid::{ACCEPT, DirectoryPlace, Owner, Pace, Place, RaidService};
use cenote_layout::Layout;
use cenote_model::{DeviceId, StoreId};

const PACK_BYTES: usize = 16 << 20;
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error>;

struct Bench {
    base: PathBuf,
    layout: Layout,
    packs: usize,
    content: Bytes,
}

impl Bench {
    fn disk(&self, number: usize) -> PathBuf {
        self.base.join(format!("disk{number}"))
    }
    fn service(&self) -> Result<RaidService, Failure> {
        let owner = Owner { store: StoreId(0xbe), device: DeviceId(1) };
        let place =
            |number: usize| Arc::new(DirectoryPlace::new(self.disk(number), owner, number as u16)) as Arc<dyn Place>;
        let places: Vec<_> = (1..=self.layout.parts()).map(place).collect();
        for place in &places {
            place.make().map_err(|refusal| refusal.cause)?;
        }
        Ok(RaidService::new(owner, self.layout, places, Pace { background: false, ..Pace::default() })?)
    }
    /// Seconds to write the bytes of all parts of the packs to plain files, as many at once as there are places.
    fn plain(&self, round: usize) -> Result<f64, Failure> {
        let dir = self.base.join("plain");
        fs::create_dir_all(&dir)?;
        let part = &self.content[..PACK_BYTES / self.layout.data_parts()];
        let begun = Instant::now();
        for pack in 0..self.packs {
            std::thread::scope(|scope| {
                let write = |number: usize| -> std::io::Result<()> {
                    let mut file = File::create(dir.join(format!("{round}-{pack}-{number}")))?;
                    file.write_all(part)?;
                    file.sync_all()
                };
                let all: Vec<_> = (0..self.layout.parts()).map(|number| scope.spawn(move || write(number))).collect();
                all.into_iter().try_for_each(|thread| thread.join().unwrap_or(Ok(())))
            })?;
        }
        let seconds = begun.elapsed().as_secs_f64();
        fs::remove_dir_all(&dir)?;
        Ok(seconds)
    }
    fn put(&self, service: &RaidService, round: usize) -> Result<f64, Failure> {
        let begun = Instant::now();
        for pack in 0..self.packs {
            let pieces = [Bytes::from(format!("{round:8}{pack:8}")), self.content.clone()];
            service.put(&format!("round-{round}/pack-{pack}"), &pieces, true).map_err(|refusal| refusal.cause)?;
        }
        Ok(begun.elapsed().as_secs_f64())
    }
    /// Seconds to read all packs in pieces of 4 MiB.
    fn get(&self, service: &RaidService, round: usize) -> Result<f64, Failure> {
        let begun = Instant::now();
        for pack in 0..self.packs {
            for at in (0..PACK_BYTES).step_by(4 << 20) {
                let key = format!("round-{round}/pack-{pack}");
                let found = service.get(&key, 16 + at as u64, 4 << 20).map_err(|refusal| refusal.cause)?;
                if found[..] != self.content[at..at + (4 << 20)] {
                    return Err("wrong bytes".into());
                }
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }
    /// Seconds to make the parts of a replaced place again.
    fn rebuild(&self, service: &RaidService) -> Result<f64, Failure> {
        fs::create_dir(self.disk(1))?;
        fs::write(self.disk(1).join(ACCEPT), "")?;
        service.list("").map_err(|refusal| refusal.cause)?;
        let begun = Instant::now();
        let mut from = None;
        loop {
            from = service.mend(from.as_deref().or(Some("~"))).map_err(|refusal| refusal.cause)?;
            if from.is_none() {
                break;
            }
        }
        Ok(begun.elapsed().as_secs_f64())
    }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn report(what: &str, bytes: f64, seconds: f64, beside: f64) {
    println!("{what:32} {:8.1} MB/s   ratio {:.2}", bytes / 1e6 / seconds, beside / seconds);
}

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let base =
        PathBuf::from(args.next().ok_or("name a directory")?).join(format!("cenote-bench-{}", std::process::id()));
    let layout: Layout = format!("{},domain=device", args.next().unwrap_or_else(|| "2+1".into())).parse()?;
    let packs = args.next().and_then(|mib| mib.parse::<usize>().ok()).unwrap_or(256).div_ceil(PACK_BYTES >> 20);
    let mut rng = SplitMix::new(1);
    let content: Vec<u8> = (0..PACK_BYTES / 8).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
    fs::create_dir_all(&base)?;
    let bench = Bench { base: base.clone(), layout, packs, content: content.into() };
    let measured = measure(&bench);
    clear(&base);
    measured
}

fn clear(base: &Path) {
    let _ = fs::remove_dir_all(base);
}

fn measure(bench: &Bench) -> Result<(), Failure> {
    let service = bench.service()?;
    let (mut plain, mut put, mut whole, mut degraded) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        plain.push(bench.plain(round)?);
        put.push(bench.put(&service, round)?);
    }
    // In turns, so that a slow moment of the machine is in both.
    let aside = bench.base.join("aside");
    for round in 0..ROUNDS {
        whole.push(bench.get(&service, round)?);
        fs::rename(bench.disk(1), &aside)?;
        degraded.push(bench.get(&service, round)?);
        fs::rename(&aside, bench.disk(1))?;
        std::thread::sleep(Pace::default().look_again);
        service.list("").map_err(|refusal| refusal.cause)?;
    }
    let bytes = (bench.packs * PACK_BYTES) as f64;
    let (plain, put, whole, degraded) = (median(plain), median(put), median(whole), median(degraded));
    report("plain writes of the same parts", bytes, plain, plain);
    report("encode and put", bytes, put, plain);
    report("read, all places there", bytes, whole, whole);
    report("read, one place away", bytes, degraded, whole);
    fs::remove_dir_all(bench.disk(1))?;
    let _ = service.get("round-0/pack-0", 0, 1 << 20);
    std::thread::sleep(Pace::default().look_again);
    let seconds = bench.rebuild(&service)?;
    let lost = bytes * ROUNDS as f64 / bench.layout.data_parts() as f64;
    let as_plain = plain * ROUNDS as f64 / bench.layout.parts() as f64;
    report("make a lost place's parts again", lost, seconds, as_plain);
    Ok(())
}
