//! How fast parity is computed and lost parts are rebuilt, beside `memcpy`, on one core:
//! `cargo run --release -p cenote-layout --example coding [UNIT_BYTES]`.
//!
//! Rates are bytes of the data parts a second, so that they compare with a read or write of these bytes. Medians of nine
//! rounds, in turns.

use std::hint::black_box;
use std::time::Instant;

use cenote_layout::Code;

const ROUNDS: usize = 9;
/// Bytes that a round goes over.
const ROUND_BYTES: usize = 256 << 20;

fn rate(data_bytes: usize, mut call: impl FnMut()) -> f64 {
    let calls = (ROUND_BYTES / data_bytes).max(1);
    let begin = Instant::now();
    (0..calls).for_each(|_| call());
    (calls * data_bytes) as f64 / begin.elapsed().as_secs_f64() / 1e9
}

/// Rates of: memcpy of the data, encode, rebuild of one data part, rebuild of as many as can be lost.
fn round(code: &Code, parts: &mut [Vec<u8>]) -> [f64; 4] {
    let (data, parity) = parts.split_at_mut(code.data());
    let bytes = data.iter().map(Vec::len).sum();
    let mut copy: Vec<Vec<u8>> = data.to_vec();
    let copied = rate(bytes, || copy.iter_mut().zip(&*data).for_each(|(to, from)| to.copy_from_slice(black_box(from))));
    let slices: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let encoded = rate(bytes, || {
        let mut parity: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
        code.encode(black_box(&slices), &mut parity).expect("parts fit");
    });
    let rebuilt = |lost: usize| {
        let lost = lost.min(code.data());
        let present: Vec<Option<&[u8]>> =
            slices.iter().enumerate().map(|(part, bytes)| (part >= lost).then_some(*bytes)).collect();
        let present: Vec<_> = present.into_iter().chain(parity.iter().map(|part| Some(part.as_slice()))).collect();
        let mut outputs = vec![vec![0; slices[0].len()]; lost];
        let rate = rate(bytes, || {
            let mut wanted: Vec<(usize, &mut [u8])> = outputs.iter_mut().map(Vec::as_mut_slice).enumerate().collect();
            code.rebuild(black_box(&present), &mut wanted).expect("parts fit");
        });
        assert!(outputs.iter().zip(&slices).all(|(output, part)| output == part), "rebuilt wrongly");
        rate
    };
    [copied, encoded, rebuilt(1), rebuilt(code.parity())]
}

fn main() {
    let unit = std::env::args().nth(1).map_or(256 << 10, |text| text.parse().expect("bytes of a unit"));
    println!("units of {unit} bytes, GB/s of data: memcpy, encode, rebuild one, rebuild all that may be lost");
    for (data, parity) in [(4, 1), (4, 2), (8, 2), (8, 3), (10, 4)] {
        let code = Code::new(data, parity).expect("a code");
        let byte = |at: usize| (at.wrapping_mul(2_654_435_761) >> 13) as u8;
        let mut parts: Vec<Vec<u8>> =
            (0..data + parity).map(|part| (0..unit).map(|at| byte(at * (part + 1))).collect()).collect();
        let mut rounds: Vec<[f64; 4]> = (0..ROUNDS).map(|_| round(&code, &mut parts)).collect();
        let median = |column: usize, rounds: &mut Vec<[f64; 4]>| {
            rounds.sort_by(|one, other| one[column].total_cmp(&other[column]));
            rounds[ROUNDS / 2][column]
        };
        let [copy, encode, one, all] = [0, 1, 2, 3].map(|column| median(column, &mut rounds));
        println!("{data}+{parity}: {copy:6.1} {encode:6.1} {one:6.1} {all:6.1}");
    }
}
