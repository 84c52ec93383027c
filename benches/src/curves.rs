//! Cost per operation as objects grow: it must stay flat.

use std::hint::black_box;
use std::time::Instant;

use cenote::{Durability, Mode};

use crate::Outcome;
use crate::measure::Report;
use crate::places::{Place, container, memory};
use crate::reference::{Mapped, crc, shuffled};

const BLOCK: u64 = 512;

/// µs for a get and a put in objects of 10^3 to 10^6 blocks, of which each is its own write.
pub fn blocks(report: &mut Report) -> Outcome {
    curve(report, "blocks", &[1_000, 10_000, 100_000, 1_000_000], 1)
}

/// The same with 10^2 to 10^5 extents that cannot merge, since there are holes between them.
pub fn extents(report: &mut Report) -> Outcome {
    curve(report, "extents", &[100, 1_000, 10_000, 100_000], 2)
}

fn curve(report: &mut Report, name: &str, sizes: &[u64], stride: u64) -> Outcome {
    let mut first: Option<(f64, f64)> = None;
    for size in sizes {
        let mut place = Place::in_memory(name)?;
        let store = place.store("store", Mode::Daemon, vec![memory(1536)])?;
        let object = container(&store, "bench", Durability::Scratch)?.create_object(None, Some(9))?;
        let data = vec![1u8; BLOCK as usize];
        if stride == 1 {
            let piece = vec![1u8; BLOCK as usize * 500];
            for at in (0..*size).step_by(500) {
                let _op = object.launch_write(at * BLOCK, &piece)?;
            }
        } else {
            for at in 0..*size {
                let _op = object.launch_write(at * stride * BLOCK, &data)?;
            }
        }
        store.wait_all()?;
        let count = report.settings.scaled(50_000);
        let order = shuffled(*size, count, 5);
        let mut buf = vec![0u8; BLOCK as usize];
        let (mut get, mut put) = (f64::INFINITY, f64::INFINITY);
        for _ in 0..3 {
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
        let (get_first, put_first) = *first.get_or_insert((get, put));
        let (copy, copy_and_sum) = bare(&place, &order, size * stride, stride)?;
        report.note(&format!("curve.get_{size}_{name}"), "us", get, "bare copy of the same blocks", copy);
        report.note(&format!("curve.put_{size}_{name}"), "us", put, "copy + CRC to the same blocks", copy_and_sum);
        let smallest = sizes[0];
        report.note(&format!("curve.get_{size}_{name}"), "us", get, &format!("{smallest} {name}"), get_first);
        report.note(&format!("curve.put_{size}_{name}"), "us", put, &format!("{smallest} {name}"), put_first);
    }
    Ok(())
}

/// µs for copying such blocks out of mapped memory, and for copying and summing them into it: what the machine's caches
/// make of objects that grow, whoever keeps them.
fn bare(place: &Place, order: &[u64], blocks: u64, stride: u64) -> Outcome<(f64, f64)> {
    let len = BLOCK as usize;
    let mapped = Mapped::new(&place.path().join("mapped"), blocks as usize * len)?;
    let mut buf = vec![1u8; len];
    let (mut get, mut put) = (f64::INFINITY, f64::INFINITY);
    let us = |begin: Instant| begin.elapsed().as_secs_f64() * 1e6 / order.len() as f64;
    for _ in 0..3 {
        let begin = Instant::now();
        for at in order {
            let at = (at * stride) as usize * len;
            buf.copy_from_slice(&mapped.bytes()[at..at + len]);
            black_box(&mut buf);
        }
        get = get.min(us(begin));
        let begin = Instant::now();
        for at in order {
            let at = (at * stride) as usize * len;
            mapped.bytes()[at..at + len].copy_from_slice(&buf);
            black_box(crc(&mapped.bytes()[at..at + len]));
        }
        put = put.min(us(begin));
    }
    Ok((get, put))
}
