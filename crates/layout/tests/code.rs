//! Coding: whatever m parts are lost, the others give them back.

use cenote_layout::{Code, Layout, part_lengths};
use cenote_model::ErrorKind;
use cenote_workload::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

fn bytes(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64() as u8).collect()
}

/// Encodes parts of these lengths, and returns all parts.
fn encoded(code: &Code, lengths: &[usize], rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut parts: Vec<Vec<u8>> = lengths.iter().map(|len| bytes(rng, *len)).collect();
    let (data, parity) = parts.split_at_mut(code.data());
    let data: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    code.encode(&data, &mut parity.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>()).unwrap();
    parts
}

fn lose_and_rebuild(code: &Code, parts: &[Vec<u8>], lost: &[usize]) -> Vec<Vec<u8>> {
    let present: Vec<Option<&[u8]>> =
        parts.iter().enumerate().map(|(part, bytes)| (!lost.contains(&part)).then_some(bytes.as_slice())).collect();
    let mut rebuilt: Vec<Vec<u8>> = lost.iter().map(|part| vec![0xa5; parts[*part].len()]).collect();
    let mut wanted: Vec<(usize, &mut [u8])> =
        lost.iter().copied().zip(rebuilt.iter_mut().map(Vec::as_mut_slice)).collect();
    code.rebuild(&present, &mut wanted).unwrap();
    rebuilt
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, rng_seed: RngSeed::Fixed(0), ..ProptestConfig::default()
    })]

    #[test]
    fn any_m_losses_are_undone(data in 2_usize..20, parity in 1_usize..8, unit_log in 0_u32..8, seed: u64) {
        let mut rng = Rng::new(seed);
        // Units of 4 KiB and more; the last stripe of an object has any length.
        let layout: Layout = format!("{data}+{parity},unit={}", 4096_u64 << (unit_log % 3)).parse().unwrap();
        let stripe_len = if unit_log < 3 { layout.stripe_bytes() } else { rng.size(layout.stripe_bytes()) };
        let lengths: Vec<usize> = part_lengths(&layout, stripe_len).iter().map(|len| *len as usize).collect();
        let code = Code::new(data, parity).unwrap();
        let parts = encoded(&code, &lengths, &mut rng);
        let mut order: Vec<usize> = (0..data + parity).collect();
        for at in 0..order.len() {
            let other = at + rng.index(data + parity - at);
            order.swap(at, other);
        }
        let lost = &order[..rng.between(0, parity as u64) as usize];
        for (part, rebuilt) in lost.iter().zip(lose_and_rebuild(&code, &parts, lost)) {
            prop_assert_eq!(&rebuilt, &parts[*part], "part {} of {:?}, {} bytes", part, lost, stripe_len);
        }
    }

    #[test]
    fn a_range_of_a_part_is_rebuilt_from_the_same_range_of_others(data in 2_usize..9, parity in 1_usize..4, seed: u64) {
        let mut rng = Rng::new(seed);
        let code = Code::new(data, parity).unwrap();
        let len = rng.between(1, 30_000) as usize;
        let parts = encoded(&code, &vec![len; data + parity], &mut rng);
        let begin = rng.index(len);
        let end = rng.between(begin as u64, len as u64) as usize;
        let lost = rng.index(data + parity);
        let present: Vec<_> = parts.iter().enumerate().map(|(part, all)| (part != lost).then(|| &all[begin..end])).collect();
        let mut rebuilt = vec![7; end - begin];
        code.rebuild(&present, &mut [(lost, &mut rebuilt)]).unwrap();
        prop_assert_eq!(&rebuilt[..], &parts[lost][begin..end]);
    }
}

#[test]
fn every_loss_of_small_codes_is_undone() {
    for (data, parity) in [(1, 3), (2, 2), (4, 2), (3, 3), (5, 4), (8, 3)] {
        let mut rng = Rng::new(data as u64);
        let code = Code::new(data, parity).unwrap();
        let parts = encoded(&code, &vec![33; data + parity], &mut rng);
        for set in 0_u32..1 << (data + parity) {
            let lost: Vec<usize> = (0..data + parity).filter(|part| set >> part & 1 == 1).collect();
            if lost.len() <= parity {
                let rebuilt = lose_and_rebuild(&code, &parts, &lost);
                assert!(
                    lost.iter().zip(rebuilt).all(|(part, bytes)| bytes == parts[*part]),
                    "{data}+{parity} {lost:?}"
                );
            }
        }
    }
}

#[test]
fn the_largest_codes_work() {
    let mut rng = Rng::new(1);
    for (data, parity) in [(251, 4), (128, 127), (1, 254), (255, 0)] {
        let code = Code::new(data, parity).unwrap();
        let parts = encoded(&code, &vec![16; data + parity], &mut rng);
        let lost: Vec<usize> = (0..parity).collect();
        let rebuilt = lose_and_rebuild(&code, &parts, &lost);
        assert!(lost.iter().zip(rebuilt).all(|(part, bytes)| bytes == parts[*part]), "{data}+{parity}");
    }
}

#[test]
fn the_code_is_the_one_of_the_format() {
    // Coded stripes outlive versions: these values never change.
    let code = Code::new(4, 3).unwrap();
    let (mut p, mut q, mut r) = ([0; 2], [0; 2], [0; 2]);
    code.encode(&[&[1, 0], &[0, 1], &[2, 9], &[0, 255]], &mut [&mut p, &mut q, &mut r]).unwrap();
    assert_eq!((p, q, r), FORMAT);
}
/// From the formula of `code.rs`, computed apart from this code.
const FORMAT: ([u8; 2], [u8; 2], [u8; 2]) = ([3, 247], [205, 23], [246, 114]);

#[test]
fn the_first_parity_is_the_exclusive_or() {
    let mut rng = Rng::new(5);
    for parity in 1..6 {
        let parts = encoded(&Code::new(7, parity).unwrap(), &vec![100; 7 + parity], &mut rng);
        let sum = |at: usize| parts[..7].iter().fold(0, |sum, part| sum ^ part[at]);
        assert!((0..100).all(|at| parts[7][at] == sum(at)), "parity {parity}");
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    for (data, parity) in [(0, 2), (250, 6), (256, 0)] {
        assert_eq!(Code::new(data, parity).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    let code = Code::new(2, 1).unwrap();
    let (one, two, mut parity) = ([1; 4], [2; 3], [0; 4]);
    let refused = |result: cenote_model::Result<()>| result.unwrap_err().to_string();
    assert_eq!(
        refused(code.encode(&[&one], &mut [&mut parity])),
        "code 2+1: invalid: 1 data and 1 parity parts were given"
    );
    let mut short = [0; 3];
    assert_eq!(
        refused(code.encode(&[&one, &two], &mut [&mut short])),
        "code 2+1: invalid: a parity part of 3 bytes for data parts of 4"
    );
    let mut out = [0; 4];
    assert_eq!(
        refused(code.rebuild(&[Some(&one), None, None], &mut [(1, &mut out)])),
        "code 2+1: invalid: 2 parts are needed and 1 are present"
    );
    assert_eq!(
        refused(code.rebuild(&[Some(&one), None, Some(&two)], &mut [(1, &mut out)])),
        "code 2+1: invalid: parity part 2 is shorter than what is wanted"
    );
    assert_eq!(
        refused(code.rebuild(&[Some(&one), None, Some(&one)], &mut [(3, &mut out)])),
        "code 2+1: invalid: parts 0 to 2 exist; others were given"
    );
}
