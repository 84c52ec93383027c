//! Records of an index, beside the embedded key-value libraries that are best at it.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cenote::{Durability, Index, Mode, NextFrom, Store};
use heed::EnvOpenOptions;
use heed::types::Bytes;

use crate::Outcome;
use crate::measure::{Beside, Report, rate};
use crate::places::{BenchDir, container, memory};
use crate::reference::shuffled;

const KEY: usize = 24;
const VALUE: usize = 120;

fn key(n: u64) -> [u8; KEY] {
    let mut key = [0; KEY];
    key[..8].copy_from_slice(&n.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    key[8..16].copy_from_slice(&n.to_be_bytes());
    key
}

fn store_with_index(place: &mut BenchDir) -> Outcome<(Store, Index)> {
    let store = place.store("store", Mode::InProcess, vec![memory(64)])?;
    let index = container(&store, "bench", Durability::Async)?.create_index(None)?;
    Ok((store, index))
}

fn fill(index: &Index, count: u64) -> Outcome {
    let value = [7u8; VALUE];
    let keys: Vec<[u8; KEY]> = (0..count).map(key).collect();
    for chunk in keys.chunks(1000) {
        let records: Vec<(&[u8], &[u8])> = chunk.iter().map(|key| (&key[..], &value[..])).collect();
        index.put(&records)?;
    }
    Ok(())
}

/// Single puts with random keys; both sides sync their logs every 10 ms.
pub fn put(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let mut place = BenchDir::on_disk(&report.settings.dir, "indexput")?;
    let (_store, index) = store_with_index(&mut place)?;
    let database = fjall::Database::builder(place.path().join("fjall")).open()?;
    let keyspace = database.keyspace("bench", fjall::KeyspaceCreateOptions::default)?;
    let stop = Arc::new(AtomicBool::new(false));
    let syncer = {
        let (database, stop) = (database.clone(), Arc::clone(&stop));
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(10));
                let _ = database.persist(fjall::PersistMode::SyncData);
            }
        })
    };
    let count = report.settings.scaled(100_000);
    let value = [7u8; VALUE];
    let (mut round, mut other) = (0, 0);
    let result = report.pairs(
        "index.put",
        "1/s",
        &mut || {
            let base = round * count;
            round += 1;
            rate(count, || {
                for n in base..base + count {
                    index.put(&[(&key(n)[..], &value[..])])?;
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "fjall, synced every 10 ms",
            wanted: Some(1.0),
            run: &mut || {
                let base = other * count;
                other += 1;
                rate(count, || {
                    for n in base..base + count {
                        keyspace.insert(key(n), value)?;
                    }
                    Ok(())
                })
            },
        }],
    );
    stop.store(true, Ordering::Relaxed);
    let _ = syncer.join();
    result
}

struct Lmdb {
    env: heed::Env,
    database: heed::Database<Bytes, Bytes>,
}

#[allow(unsafe_code, reason = "opening an LMDB environment is unsafe by its interface")]
fn lmdb(place: &BenchDir, count: u64) -> Outcome<Lmdb> {
    let path = place.path().join("lmdb");
    std::fs::create_dir_all(&path)?;
    // SAFETY: the files are new, and only this process opens them, once.
    let env = unsafe { EnvOpenOptions::new().map_size(4 << 30).open(&path)? };
    let mut write = env.write_txn()?;
    let database = env.create_database(&mut write, None)?;
    for n in 0..count {
        database.put(&mut write, &key(n)[..], &[7u8; VALUE][..])?;
    }
    write.commit()?;
    Ok(Lmdb { env, database })
}

/// Single gets with random keys.
pub fn get(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let mut place = BenchDir::on_disk(&report.settings.dir, "indexget")?;
    let (_store, index) = store_with_index(&mut place)?;
    let records = report.settings.scaled(1_000_000);
    fill(&index, records)?;
    let lmdb = lmdb(&place, records)?;
    let count = report.settings.scaled(300_000);
    let order = shuffled(records, count, 3);
    report.pairs(
        "index.get",
        "1/s",
        &mut || {
            rate(count, || {
                for n in &order {
                    black_box(index.get_one(&key(*n))?.ok_or("a record is missing")?);
                }
                Ok(())
            })
        },
        &mut [Beside {
            name: "LMDB, a read transaction each",
            wanted: Some(1.0),
            run: &mut || {
                rate(count, || {
                    for n in &order {
                        let read = lmdb.env.read_txn()?;
                        black_box(lmdb.database.get(&read, &key(*n)[..])?.ok_or("a record is missing")?.to_vec());
                    }
                    Ok(())
                })
            },
        }],
    )
}

/// Records in order, a hundred at a time from a random key.
pub fn next(report: &mut Report) -> Outcome {
    std::fs::create_dir_all(&report.settings.dir)?;
    let mut place = BenchDir::on_disk(&report.settings.dir, "indexnext")?;
    let (_store, index) = store_with_index(&mut place)?;
    let records = report.settings.scaled(1_000_000);
    fill(&index, records)?;
    let lmdb = lmdb(&place, records)?;
    let calls = report.settings.scaled(10_000);
    let order = shuffled(records, calls, 4);
    report.pairs(
        "index.next",
        "records/s",
        &mut || {
            rate(calls * 100, || {
                for n in &order {
                    black_box(index.next(NextFrom::At(key(*n).to_vec()), 100)?);
                }
                Ok(())
            })
        },
        &mut [
            Beside {
                name: "LMDB range, copied into one buffer",
                wanted: Some(1.0),
                run: &mut || {
                    rate(calls * 100, || order.iter().try_for_each(|n| lmdb.copy_out(*n, &mut Flat::default())))
                },
            },
            Beside {
                name: "LMDB range, copied out one by one",
                wanted: None,
                run: &mut || rate(calls * 100, || order.iter().try_for_each(|n| lmdb.copy_out(*n, &mut Vec::new()))),
            },
        ],
    )
}

/// A destination of copied records.
trait Take {
    fn take(&mut self, key: &[u8], value: &[u8]);
}
impl Take for Vec<(Vec<u8>, Vec<u8>)> {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        self.push((key.to_vec(), value.to_vec()));
    }
}
/// The layout of [`cenote::Records`]: bytes, and the end of each key and value.
#[derive(Default)]
struct Flat {
    bytes: Vec<u8>,
    ends: Vec<(usize, usize)>,
}
impl Take for Flat {
    fn take(&mut self, key: &[u8], value: &[u8]) {
        if self.ends.is_empty() {
            self.bytes.reserve(100 * (KEY + VALUE));
            self.ends.reserve(100);
        }
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }
}

impl Lmdb {
    fn copy_out(&self, n: u64, to: &mut impl Take) -> Outcome {
        let read = self.env.read_txn()?;
        let from = key(n);
        let range = (std::ops::Bound::Included(&from[..]), std::ops::Bound::Unbounded);
        for record in self.database.range(&read, &range)?.take(100) {
            let (key, value) = record?;
            to.take(key, value);
        }
        black_box(to);
        Ok(())
    }
}
