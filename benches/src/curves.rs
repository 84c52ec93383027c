//! Cost per operation as objects grow, which must stay flat.

use std::hint::black_box;
use std::sync::atomic::{Ordering, fence};
use std::time::Instant;

use cenote::{Durability, Mode};

use crate::Outcome;
use crate::measure::Report;
use crate::places::{BenchDir, container, memory};
use crate::reference::{Mapped, crc, shuffled};

const BLOCK: u64 = 512;

/// Rounds for each figure; the minimum counts.
const ROUNDS: usize = 5;
/// Bar: cost of a get or put in the largest object relative to the smallest, without the copies.
const RISE_MAX: f64 = 1.5;

/// µs of a get and a put in objects of 10^3 to 10^6 blocks, each written separately.
pub fn blocks(report: &mut Report) -> Outcome {
    curve(report, "blocks", &[1_000, 10_000, 100_000, 1_000_000], 1)
}

/// The same with 10^2 to 10^5 extents that cannot merge, because of holes between them.
pub fn extents(report: &mut Report) -> Outcome {
    curve(report, "extents", &[100, 1_000, 10_000, 100_000], 2)
}

/// All of `0..size`, each once, in an order without consecutive numbers.
fn scattered(size: u64) -> impl Iterator<Item = u64> {
    // Sizes are powers of ten: a step coprime to two and five visits all of them.
    let step = (size * 618 / 1000) / 10 * 10 + 1;
    (0..size).map(move |i| i * step % size)
}

fn curve(report: &mut Report, name: &str, sizes: &[u64], stride: u64) -> Outcome {
    let mut first: Option<(f64, f64)> = None;
    for size in sizes {
        let mut place = BenchDir::in_memory(name)?;
        let store = place.store("store", Mode::Daemon, vec![memory(1536)])?;
        let object = container(&store, "bench", Durability::Scratch)?.create_object(None, Some(9))?;
        let data = vec![1u8; BLOCK as usize];
        for at in scattered(*size) {
            let _op = object.launch_write(at * stride * BLOCK, &data)?;
        }
        store.wait_all()?;
        let count = report.settings.scaled(50_000);
        let order = shuffled(*size, count, 5);
        let mut buf = vec![0u8; BLOCK as usize];
        let (mut get, mut put) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            for at in &order {
                object.read_at(at * stride * BLOCK, &mut buf)?;
                black_box(&mut buf);
            }
            get = get.min(begin.elapsed().as_secs_f64() * 1e6 / count as f64);
            let begin = Instant::now();
            for at in &order {
                let _op = object.launch_write(at * stride * BLOCK, &data)?;
            }
            store.wait_all()?;
            put = put.min(begin.elapsed().as_secs_f64() * 1e6 / count as f64);
        }
        let bare = Bare::measure(&place, &order, size * stride, stride)?;
        let (get_net, put_net) = (get - bare.get_each, put - bare.put);
        let (get_first, put_first) = *first.get_or_insert((get_net, put_net));
        let (get_bar, put_bar) = (format!("curve.get_{size}_{name}"), format!("curve.put_{size}_{name}"));
        report.note(&get_bar, "us", get, "bare copy of the same blocks", bare.get);
        report.note(&get_bar, "us", get, "bare copy, one after the other", bare.get_each);
        report.note(&put_bar, "us", put, "copy + CRC to the same blocks", bare.put);
        let limit = format!("{RISE_MAX} x {} {name}, copies taken off", sizes[0]);
        report.limit(&get_bar, "us", get_net, &limit, RISE_MAX * get_first);
        report.limit(&put_bar, "us", put_net, &limit, RISE_MAX * put_first);
    }
    Ok(())
}

/// µs of copying such blocks out of mapped memory, and of copying and summing them into it: the effect of the machine's
/// caches on growing objects, without any store.
struct Bare {
    /// Copies that overlap: the processor begins many before the first has its bytes.
    get: f64,
    /// Each begun when the previous one has its bytes, like gets of a program that uses the bytes.
    get_each: f64,
    put: f64,
}

impl Bare {
    fn measure(place: &BenchDir, order: &[u64], blocks: u64, stride: u64) -> Outcome<Self> {
        let len = BLOCK as usize;
        let mapped = Mapped::new(&place.path().join("mapped"), blocks as usize * len)?;
        let mut buf = vec![1u8; len];
        let mut least = Self { get: f64::INFINITY, get_each: f64::INFINITY, put: f64::INFINITY };
        let us = |begin: Instant| begin.elapsed().as_secs_f64() * 1e6 / order.len() as f64;
        let range = |at: &u64| (at * stride) as usize * len..(at * stride) as usize * len + len;
        for _ in 0..ROUNDS {
            let begin = Instant::now();
            for at in order {
                buf.copy_from_slice(&mapped.bytes()[range(at)]);
                black_box(&mut buf);
            }
            least.get = least.get.min(us(begin));
            let begin = Instant::now();
            for at in order {
                buf.copy_from_slice(&mapped.bytes()[range(at)]);
                black_box(&mut buf);
                // Waits until the copied bytes are written, and so until they were read.
                fence(Ordering::SeqCst);
            }
            least.get_each = least.get_each.min(us(begin));
            let begin = Instant::now();
            for at in order {
                mapped.bytes()[range(at)].copy_from_slice(&buf);
                black_box(crc(&mapped.bytes()[range(at)]));
            }
            least.put = least.put.min(us(begin));
        }
        Ok(least)
    }
}
