//! Blocks and large pieces in the memory tier, accessed by a client process of a daemon.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use cenote::{Durability, Mode, Object, Store};

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, memory};
use crate::reference::{Mapped, crc, filled_file, shuffled};

const MIB: usize = 1 << 20;
const BLOCK: usize = 4096;
/// Bytes that the accesses spread over: more than any cache.
const SPAN: usize = 256 * MIB;

/// A pause after everything was written, as between a program's steps: the daemon faults in memory meanwhile. The
/// measurement includes no first touch on either side.
const REST: Duration = Duration::from_secs(1);

struct Bench {
    store: Store,
    object: Object,
    place: BenchDir,
}

/// A store served by a daemon, with one object of `SPAN` bytes in the memory tier.
fn bench(name: &str) -> Outcome<Bench> {
    let mut place = BenchDir::in_memory(name)?;
    let store = place.store("store", Mode::Daemon, vec![memory(1024)])?;
    let container = container(&store, "bench", Durability::Scratch)?;
    let object = container.create_object(None, Some(12))?;
    let piece = vec![3u8; MIB];
    for at in (0..SPAN).step_by(MIB) {
        object.write_at(at as u64, &piece)?;
    }
    std::thread::sleep(REST);
    Ok(Bench { store, object, place })
}

/// 4 KiB gets at random.
pub fn get_4k(report: &mut Report) -> Outcome {
    let bench = bench("get4k")?;
    let mapped = Mapped::new(&bench.place.path().join("mapped"), SPAN)?;
    let file = filled_file(&bench.place.path().join("file"), SPAN)?;
    let count = report.settings.scaled(400_000);
    let blocks = shuffled((SPAN / BLOCK) as u64, count, 1);
    let (mut a, mut b, mut c) = (vec![0u8; BLOCK], vec![0u8; BLOCK], vec![0u8; BLOCK]);
    report.pairs(
        "store.get_4k",
        "1/s",
        &mut || {
            rate(count, || {
                for block in &blocks {
                    bench.object.read_at(block * BLOCK as u64, &mut a)?;
                    black_box(&mut a);
                }
                Ok(())
            })
        },
        &mut [
            Beside {
                name: "bare copy of the same blocks",
                wanted: Some(0.6),
                run: &mut || {
                    rate(count, || {
                        for block in &blocks {
                            let at = *block as usize * BLOCK;
                            b.copy_from_slice(&mapped.bytes()[at..at + BLOCK]);
                            black_box(&mut b);
                        }
                        Ok(())
                    })
                },
            },
            Beside {
                name: "tmpfs pread",
                wanted: Some(1.0),
                run: &mut || {
                    rate(count, || {
                        for block in &blocks {
                            file.read_exact_at(&mut c, block * BLOCK as u64)?;
                            black_box(&mut c);
                        }
                        Ok(())
                    })
                },
            },
        ],
    )
}

/// 4 KiB puts at random, pipelined.
pub fn put_4k(report: &mut Report) -> Outcome {
    let bench = bench("put4k")?;
    let store = bench.store.clone();
    let mapped = Mapped::new(&bench.place.path().join("mapped"), SPAN)?;
    let file = filled_file(&bench.place.path().join("file"), SPAN)?;
    let count = report.settings.scaled(100_000);
    let blocks = shuffled((SPAN / BLOCK) as u64, count, 2);
    let data = vec![5u8; BLOCK];
    report.pairs(
        "store.put_4k",
        "1/s",
        &mut || {
            rate(count, || {
                for block in &blocks {
                    let _op = bench.object.launch_write(block * BLOCK as u64, &data)?;
                }
                Ok(store.wait_all()?)
            })
        },
        &mut [
            Beside {
                name: "copy + CRC into mapped memory",
                wanted: Some(0.5),
                run: &mut || {
                    rate(count, || {
                        for block in &blocks {
                            let at = *block as usize * BLOCK;
                            mapped.bytes()[at..at + BLOCK].copy_from_slice(&data);
                            black_box(crc(&mapped.bytes()[at..at + BLOCK]));
                        }
                        Ok(())
                    })
                },
            },
            Beside {
                name: "tmpfs pwrite",
                wanted: Some(1.0),
                run: &mut || {
                    rate(count, || {
                        for block in &blocks {
                            file.write_all_at(&data, block * BLOCK as u64)?;
                        }
                        Ok(())
                    })
                },
            },
        ],
    )
}

/// MiB per second of a pass over the span, one MiB after the other.
fn mib_rate(each: impl FnMut(usize) -> Outcome) -> Outcome<f64> {
    rate((SPAN / MIB) as u64, || (0..SPAN).step_by(MIB).try_for_each(each))
}

/// 1 MiB puts in order, over existing bytes.
pub fn put_1m(report: &mut Report) -> Outcome {
    let bench = bench("put1m")?;
    let mapped = Mapped::new(&bench.place.path().join("mapped"), SPAN)?;
    let file = filled_file(&bench.place.path().join("file"), SPAN)?;
    let data = vec![5u8; MIB];
    report.pairs(
        "store.put_1m",
        "MiB/s",
        &mut || {
            mib_rate(|at| {
                bench.object.write_at(at as u64, &data)?;
                Ok(())
            })
        },
        &mut [
            Beside {
                name: "memcpy",
                wanted: Some(0.8),
                run: &mut || {
                    mib_rate(|at| {
                        mapped.bytes()[at..at + MIB].copy_from_slice(&data);
                        Ok(())
                    })
                },
            },
            Beside {
                name: "tmpfs write",
                wanted: Some(1.5),
                run: &mut || {
                    mib_rate(|at| {
                        file.write_all_at(&data, at as u64)?;
                        Ok(())
                    })
                },
            },
        ],
    )
}

/// 1 MiB gets in order.
pub fn get_1m(report: &mut Report) -> Outcome {
    let bench = bench("get1m")?;
    let mapped = Mapped::new(&bench.place.path().join("mapped"), SPAN)?;
    let file = filled_file(&bench.place.path().join("file"), SPAN)?;
    let (mut a, mut b, mut c) = (vec![0u8; MIB], vec![0u8; MIB], vec![0u8; MIB]);
    report.pairs(
        "store.get_1m",
        "MiB/s",
        &mut || {
            mib_rate(|at| {
                bench.object.read_at(at as u64, &mut a)?;
                black_box(&mut a);
                Ok(())
            })
        },
        &mut [
            Beside {
                name: "memcpy",
                wanted: Some(0.8),
                run: &mut || {
                    mib_rate(|at| {
                        b.copy_from_slice(&mapped.bytes()[at..at + MIB]);
                        black_box(&mut b);
                        Ok(())
                    })
                },
            },
            Beside {
                name: "tmpfs read",
                wanted: Some(1.0),
                run: &mut || {
                    mib_rate(|at| {
                        file.read_exact_at(&mut c, at as u64)?;
                        black_box(&mut c);
                        Ok(())
                    })
                },
            },
        ],
    )
}

/// Reads by reference, from 4 KiB to 64 MiB: µs for each.
pub fn by_reference(report: &mut Report) -> Outcome {
    let mut place = BenchDir::in_memory("view")?;
    let store = place.store("store", Mode::Daemon, vec![memory(512)])?;
    let container = container(&store, "bench", Durability::Scratch)?;
    for size in [4096usize, 1 << 16, MIB, 16 * MIB, 64 * MIB] {
        let object = container.create_object(None, Some(12))?;
        object.write_at(0, &vec![9u8; size])?;
        let mut len = size;
        // A large write may lie in several extents: measure the longest view from the beginning.
        while len > 4096 && object.view(0, len)?.is_none() {
            len /= 2;
        }
        let count = 20_000u32;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let begin = Instant::now();
            for _ in 0..count {
                black_box(object.view(0, len)?.ok_or("no view of mapped memory")?[len - 1]);
            }
            best = best.min(begin.elapsed().as_secs_f64() * 1e6 / f64::from(count));
        }
        report.limit(&format!("store.get_by_ref_{}k", len >> 10), "us", best, "at most", 1.0);
    }
    Ok(())
}
