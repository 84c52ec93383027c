//! Measures a tier in a pool of Ceph beside librados itself, in turns in one run:
//! `python3 scripts/ceph_cluster.py run -- cargo run --release -p cenote-device --example rados -- [ROUNDS]`, or with
//! CENOTE_TEST_CEPH=POOL@CONF (and CENOTE_TEST_CEPH_EC=POOL) on a cluster that is there.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use cenote_device::mem::SplitMix;
use cenote_device::{Device, Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};
use cenote_rados::{CephPool, Change, Connect, Pool};

const MIB: usize = 1 << 20;
/// Data of one pack, a little less than its size, so that table and data are one object of 16 MiB at most.
const PACK: usize = 15 * MIB;
const STORE: StoreId = StoreId(0xbe);
const ID: DeviceId = DeviceId(1);
/// Packs that a tier sends at once.
const AT_ONCE: usize = 3;
const PACKS: usize = 12;

struct Bench {
    pool: CephPool,
    device: std::sync::Arc<dyn Device>,
    bytes: Vec<u8>,
}

fn failed(refusal: cenote_rados::Refusal) -> Error {
    Error::new(ErrorKind::Io, "librados").because(refusal.cause)
}

/// MB/s of `act`, which moves so many bytes.
fn rate(bytes: usize, act: impl FnOnce() -> Result<()>) -> Result<f64> {
    let begun = Instant::now();
    act()?;
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}

impl Bench {
    fn raw_write(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            self.pool.change(&format!("raw-{n}"), &[], &[Change::Replace(&self.bytes[..len])]).map_err(failed)
        })
    }
    fn tier_write(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            self.device.write_at((n * len) as u64, &self.bytes[..len]).and_then(|()| self.device.sync())
        })
    }
    fn raw_read(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            let read = self.pool.read(&format!("raw-{n}"), 0, len).map_err(failed)?;
            assert_eq!(read.len(), len);
            Ok(())
        })
    }
    fn tier_read(&self, len: usize, count: usize) -> Result<()> {
        let mut buf = vec![0; len];
        (0..count).try_for_each(|n| self.device.read_at((n * len) as u64, &mut buf))
    }
    fn raw_stream(&self) -> Result<()> {
        let next = AtomicU64::new(0);
        let write = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= PACKS as u64 {
                    return Ok(());
                }
                self.pool.change(&format!("raw-{n}"), &[], &[Change::Replace(&self.bytes)]).map_err(failed)?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(write)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }
    fn tier_stream(&self) -> Result<()> {
        (0..PACKS).try_for_each(|n| self.device.write_at((n * PACK) as u64, &self.bytes))?;
        self.device.sync()
    }
    /// Both sides of each figure, one after the other.
    fn round(&self) -> Result<Vec<(&'static str, f64, f64)>> {
        let pair = |what, bytes, raw: &dyn Fn() -> Result<()>, tier: &dyn Fn() -> Result<()>| {
            Ok((what, rate(bytes, raw)?, rate(bytes, tier)?))
        };
        let few = 16;
        Ok(vec![
            pair("write 1 MiB, synced", few * MIB, &|| self.raw_write(MIB, few), &|| self.tier_write(MIB, few))?,
            pair("read 1 MiB", few * MIB, &|| self.raw_read(MIB, few), &|| self.tier_read(MIB, few))?,
            pair("write 15 MiB, synced", 4 * PACK, &|| self.raw_write(PACK, 4), &|| self.tier_write(PACK, 4))?,
            pair("read 15 MiB", 4 * PACK, &|| self.raw_read(PACK, 4), &|| self.tier_read(PACK, 4))?,
            pair("write 180 MiB, 3 at once", PACKS * PACK, &|| self.raw_stream(), &|| self.tier_stream())?,
        ])
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(pool: &str, conf: &str, rounds: usize) -> Result<()> {
    let connect = Connect {
        pool: pool.into(),
        namespace: "bench-raw".into(),
        conf: Some(conf.into()),
        user: Some("cenote".into()),
        keyring: None,
    };
    let spec: DeviceSpec =
        format!("name=cold,kind=rados,path={pool}/bench-tier,size=1GiB,conf={conf},user=cenote").parse()?;
    let devices = SystemDevices::default();
    let mut rng = SplitMix::new(1);
    let bench = Bench {
        pool: CephPool::connect(&connect).map_err(failed)?,
        device: devices.open(STORE, ID, &spec, true)?.device,
        bytes: (0..PACK).map(|_| rng.next_u64() as u8).collect(),
    };
    bench.round()?; // everything once, unmeasured
    let all = (0..rounds).map(|_| bench.round()).collect::<Result<Vec<_>>>()?;
    for (at, (what, ..)) in all[0].iter().enumerate() {
        let raw = median(all.iter().map(|round| round[at].1).collect());
        let tier = median(all.iter().map(|round| round[at].2).collect());
        let ratio = median(all.iter().map(|round| round[at].2 / round[at].1).collect());
        println!("{pool:6} {what:26} librados {raw:7.1} MB/s   tier {tier:7.1} MB/s   ratio {ratio:.2}");
    }
    for name in bench.pool.list().map_err(failed)? {
        bench.pool.change(&name, &[], &[Change::Remove]).map_err(failed)?;
    }
    drop(bench);
    devices.remove(STORE, ID, &spec)
}

fn main() -> Result<()> {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(5);
    let place = std::env::var("CENOTE_TEST_CEPH").unwrap_or_default();
    let Some((pool, conf)) = place.split_once('@') else {
        return Err(Error::new(ErrorKind::InvalidInput, "CENOTE_TEST_CEPH")
            .because("it names no pool of a cluster")
            .try_next("python3 scripts/ceph_cluster.py run -- cargo run --release -p cenote-device --example rados"));
    };
    measure(pool, conf, rounds)?;
    std::env::var("CENOTE_TEST_CEPH_EC").map_or(Ok(()), |pool| measure(&pool, conf, rounds))
}
