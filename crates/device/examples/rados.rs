//! Measures a tier in a pool of Ceph beside librados itself, in turns in one run:
//! `python3 scripts/ceph_cluster.py run -- cargo run --release -p cenote-device --example rados -- [ROUNDS]`, or with
//! CENOTE_TEST_CEPH=POOL@CONF (and CENOTE_TEST_CEPH_EC=POOL) on a cluster that is there.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cenote_device::mem::SplitMix;
use cenote_device::{Device, Devices, SystemDevices};
use cenote_model::{DeviceId, DeviceSpec, Error, ErrorKind, Result, StoreId};
use cenote_rados::{CephPool, Change, Check, Connect, Pool};

const MIB: usize = 1 << 20;
/// Data of one pack, a little less than its size, so that table and data are one object of 16 MiB at most.
const PACK: usize = 15 * MIB;
const STORE: StoreId = StoreId(0xbe);
const ID: DeviceId = DeviceId(1);
/// Packs that a tier sends at once.
const AT_ONCE: usize = 3;
const PACKS: usize = 12;
/// Bytes of the tier that a round takes.
const ROUND: usize = 256 * MIB;
const SETTLING: Duration = Duration::from_secs(3);

/// Both sides write new objects, in each round at another place, so that neither pays for garbage of the round before.
struct Bench {
    pool: CephPool,
    device: std::sync::Arc<dyn Device>,
    bytes: Vec<u8>,
    round: usize,
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
    fn name(&self, len: usize, n: usize) -> String {
        format!("raw-{}-{len}-{n}", self.round)
    }
    /// Where the tier has a piece: packs first, then pieces of 1 MiB.
    fn offset(&self, len: usize, n: usize) -> u64 {
        let begin = if len == MIB { PACKS * PACK } else { 0 };
        (self.round * ROUND + begin + n * len) as u64
    }
    fn raw_write(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            let changes = [Change::Replace(&self.bytes[..len])];
            self.pool.change(&self.name(len, n), &[Check::Absent], &changes).map_err(failed)
        })
    }
    fn tier_write(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            self.device.write_at(self.offset(len, n), &self.bytes[..len]).and_then(|()| self.device.sync())
        })
    }
    fn raw_read(&self, len: usize, count: usize) -> Result<()> {
        (0..count).try_for_each(|n| {
            let read = self.pool.read(&self.name(len, n), 0, len).map_err(failed)?;
            assert_eq!(read.len(), len);
            Ok(())
        })
    }
    fn tier_read(&self, len: usize, count: usize) -> Result<()> {
        let mut buf = vec![0; len];
        (0..count).try_for_each(|n| self.device.read_at(self.offset(len, n), &mut buf))
    }
    fn raw_stream(&self) -> Result<()> {
        let next = AtomicUsize::new(0);
        let write = || {
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= PACKS {
                    return Ok(());
                }
                let changes = [Change::Replace(&self.bytes[..])];
                self.pool.change(&self.name(PACK + 1, n), &[Check::Absent], &changes).map_err(failed)?;
            }
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(write)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
        })
    }
    fn tier_stream(&self) -> Result<()> {
        (0..PACKS).try_for_each(|n| self.device.write_at(self.offset(PACK, n), &self.bytes))?;
        self.device.sync()
    }
    /// Both sides of each figure, one after the other.
    fn round(&self) -> Result<Vec<(&'static str, f64, f64)>> {
        let pair = |what, bytes, raw: &dyn Fn() -> Result<()>, tier: &dyn Fn() -> Result<()>| {
            Ok((what, rate(bytes, raw)?, rate(bytes, tier)?))
        };
        let few = 16;
        let stream = PACKS * PACK;
        let all = vec![
            pair("write 180 MiB, 3 at once", stream, &|| self.raw_stream(), &|| self.tier_stream())?,
            pair("write 15 MiB, synced", 4 * PACK, &|| self.raw_write(PACK, 4), &|| self.tier_write(PACK, 4))?,
            pair("read 15 MiB", 4 * PACK, &|| self.raw_read(PACK, 4), &|| self.tier_read(PACK, 4))?,
            pair("write 1 MiB, synced", few * MIB, &|| self.raw_write(MIB, few), &|| self.tier_write(MIB, few))?,
            pair("read 1 MiB", few * MIB, &|| self.raw_read(MIB, few), &|| self.tier_read(MIB, few))?,
        ];
        for name in self.pool.list().map_err(failed)? {
            self.pool.change(&name, &[], &[Change::Remove]).map_err(failed)?;
        }
        self.device.discard((self.round * ROUND) as u64, ROUND as u64)?;
        self.device.sync()?;
        std::thread::sleep(SETTLING); // the tier collects its garbage
        Ok(all)
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
        format!("name=cold,kind=rados,path={pool}/bench-tier,size=4GiB,conf={conf},user=cenote").parse()?;
    let devices = SystemDevices::default();
    let mut rng = SplitMix::new(1);
    let mut bench = Bench {
        pool: CephPool::connect(&connect).map_err(failed)?,
        device: devices.open(STORE, ID, &spec, true)?.device,
        bytes: (0..PACK).map(|_| rng.next_u64() as u8).collect(),
        round: 0,
    };
    bench.round()?; // everything once, unmeasured
    let mut all = Vec::new();
    for round in 1..=rounds.min(15) {
        bench.round = round;
        all.push(bench.round()?);
    }
    for (at, (what, ..)) in all[0].iter().enumerate() {
        let raw = median(all.iter().map(|round| round[at].1).collect());
        let tier = median(all.iter().map(|round| round[at].2).collect());
        let ratio = median(all.iter().map(|round| round[at].2 / round[at].1).collect());
        println!("{pool:6} {what:26} librados {raw:7.1} MB/s   tier {tier:7.1} MB/s   ratio {ratio:.2}");
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
