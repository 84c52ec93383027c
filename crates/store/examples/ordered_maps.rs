//! Cenote's index beside ordered maps that are kept by others: the standard library's B-tree and one of dense leaves.
//!
//! Each map gets the same records (keys of 24 bytes, values of 120) in turns, so that the machine's noise falls on all.
//! `cargo run --release -p cenote-store --example ordered_maps -- [RECORDS [ROUNDS]]` prints medians and ratios.

#[allow(dead_code, reason = "the index as the engine has it; only some of it is measured")]
#[path = "../src/index/mod.rs"]
mod index;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::time::Instant;

use index::{Index, Key, Record};

const VALUE: [u8; 120] = [7; 120];

fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 31)).wrapping_mul(0x7FB5_D329_728E_A185);
    (n ^ (n >> 27)).wrapping_mul(0x81DA_DEF4_BC2D_D44D) ^ (n >> 33)
}

/// 24 bytes; `shape` 0: random from the first byte on; 1: a common beginning, as paths have.
fn key(shape: u8, n: u64) -> [u8; 24] {
    let mut key = *b"particles/step-000000000";
    let mixed = mixed(n);
    match shape {
        0 => [mixed, n, mixed].iter().enumerate().for_each(|(i, part)| {
            key[8 * i..8 * i + 8].copy_from_slice(&part.to_be_bytes());
        }),
        _ => key[16..].copy_from_slice(&mixed.to_be_bytes()),
    }
    key
}

/// What an index is asked for.
trait Map: Default {
    const NAME: &'static str;
    fn put(&mut self, key: &[u8], record: Record);
    fn get(&self, key: &[u8]) -> Option<u64>;
    fn sum_from(&self, key: &[u8], count: usize) -> u64;
    fn del(&mut self, key: &[u8]) -> bool;
}

impl Map for Index {
    const NAME: &'static str = "ours";
    fn put(&mut self, key: &[u8], record: Record) {
        black_box(Index::put(self, key, record));
    }
    fn get(&self, key: &[u8]) -> Option<u64> {
        Index::get(self, key).map(|record| record.epoch + u64::from(record.value[0]))
    }
    fn sum_from(&self, key: &[u8], count: usize) -> u64 {
        self.range(Bound::Included(key)).take(count).map(|(key, record)| u64::from(key[0] ^ record.value[0])).sum()
    }
    fn del(&mut self, key: &[u8]) -> bool {
        Index::del(self, key).is_some()
    }
}

impl Map for BTreeMap<Key, Record> {
    const NAME: &'static str = "std BTreeMap";
    fn put(&mut self, key: &[u8], record: Record) {
        black_box(self.insert(Key::new(key), record));
    }
    fn get(&self, key: &[u8]) -> Option<u64> {
        BTreeMap::get(self, key).map(|record| record.epoch + u64::from(record.value[0]))
    }
    fn sum_from(&self, key: &[u8], count: usize) -> u64 {
        let range = self.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        range.take(count).map(|(key, record)| u64::from(key.bytes()[0] ^ record.value[0])).sum()
    }
    fn del(&mut self, key: &[u8]) -> bool {
        self.remove(key).is_some()
    }
}

impl Map for indexset::BTreeMap<Key, Record> {
    const NAME: &'static str = "indexset (dense leaves)";
    fn put(&mut self, key: &[u8], record: Record) {
        black_box(self.insert(Key::new(key), record));
    }
    fn get(&self, key: &[u8]) -> Option<u64> {
        indexset::BTreeMap::get(self, key).map(|record| record.epoch + u64::from(record.value[0]))
    }
    fn sum_from(&self, key: &[u8], count: usize) -> u64 {
        let range = self.range::<[u8], _>((Bound::Included(key), Bound::Unbounded));
        range.take(count).map(|(key, record)| u64::from(key.bytes()[0] ^ record.value[0])).sum()
    }
    fn del(&mut self, key: &[u8]) -> bool {
        self.remove(key).is_some()
    }
}

const WHAT: [&str; 6] = ["put", "get", "next (100)", "put over", "delete", "memory"];

fn resident_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<f64>().ok()).unwrap_or(0.0) * 4096.0
}

/// Thousands a second of each operation, and bytes of memory a record.
fn measure<M: Map>(shape: u8, records: u64) -> [f64; 6] {
    let mut map = M::default();
    let before = resident_bytes();
    let rate = |from: Instant, count: u64| count as f64 / from.elapsed().as_secs_f64() / 1e3;
    let record = |epoch: u64| Record { epoch, value: VALUE.into() };
    let from = Instant::now();
    (0..records).for_each(|n| map.put(&key(shape, n), record(n)));
    let put = rate(from, records);
    let memory = (resident_bytes() - before) / records as f64;
    let from = Instant::now();
    let sum: u64 = (0..records).filter_map(|n| map.get(&key(shape, mixed(n) % records))).sum();
    let get = rate(from, records);
    let scans = records / 100;
    let from = Instant::now();
    let scanned: u64 = (0..scans).map(|n| map.sum_from(&key(shape, mixed(n) % records), 100)).sum();
    let next = rate(from, scans * 100);
    let from = Instant::now();
    (0..records).for_each(|n| map.put(&key(shape, mixed(n) % records), record(n)));
    let over = rate(from, records);
    let from = Instant::now();
    let gone = (0..records).filter(|n| map.del(&key(shape, *n))).count();
    let del = rate(from, records);
    black_box((sum, scanned, gone));
    [put, get, next, over, del, memory]
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let mut numbers =
        std::env::args().skip(1).map(|number| number.parse().unwrap_or_else(|_| panic!("not a number: {number}")));
    let (records, rounds) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(5));
    for (shape, name) in [(0, "random keys"), (1, "keys with a common beginning")] {
        println!("{name}: {records} records, medians of {rounds} rounds; thousand/s, and bytes of memory a record");
        let names = [Index::NAME, <BTreeMap<Key, Record> as Map>::NAME, <indexset::BTreeMap<Key, Record> as Map>::NAME];
        let all: Vec<[[f64; 6]; 3]> = (0..rounds)
            .map(|_| {
                [
                    measure::<Index>(shape, records),
                    measure::<BTreeMap<Key, Record>>(shape, records),
                    measure::<indexset::BTreeMap<Key, Record>>(shape, records),
                ]
            })
            .collect();
        for (map, name) in names.iter().enumerate() {
            print!("  {name:<24}");
            for (what, label) in WHAT.iter().enumerate() {
                let value = median(all.iter().map(|round| round[map][what]).collect());
                let ratio = median(all.iter().map(|round| round[0][what] / round[map][what]).collect());
                print!("  {label} {value:.0} (ours/it {ratio:.2})");
            }
            println!();
        }
    }
}
