//! Compressed units as a medium that was damaged, or somebody who may write to a tier, hands them out. The first two bytes of an
//! input choose how it is decompressed and to how many bytes; the rest is what is stored.

use cenote_device::packing::{PACKED_AT_ONCE, Packer, methods};

use crate::content::{WriteId, bytes};

/// Lengths that are asked for.
const LENGTHS: [usize; 6] = [0, 1, 100, 4096, 40_000, PACKED_AT_ONCE];

pub(super) fn unpack(input: &[u8]) {
    let [how, len, stored @ ..] = input else { return };
    let Some(method) = methods().nth(usize::from(how % 8)) else { return };
    let len = LENGTHS[usize::from(*len) % LENGTHS.len()];
    // What lies behind must stay as it is.
    let mut plain = vec![0x5A; len + 8];
    let mut packer = Packer::default();
    let done = packer.unpack(method, stored, &mut plain[..len]);
    assert_eq!(plain[len..], [0x5A; 8], "bytes past the end were written");
    // What came out, if anything did, goes back in.
    if done.is_ok() && len > 0 {
        let mut again = vec![0; len];
        if let Some(n) = packer.pack(method, &plain[..len], &mut again) {
            let mut back = vec![0; len];
            packer.unpack(method, &again[..n], &mut back).expect("what was packed is unpacked");
            assert!(back == plain[..len], "it came back different");
        }
    }
}

pub(super) fn unpack_seeds() -> Vec<Vec<u8>> {
    let mut packer = Packer::default();
    let mut seeds = Vec::new();
    for (how, method) in methods().enumerate() {
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let plain = bytes(WriteId(WriteId::COMPRESSIBLE | 5), 0, len);
            let mut out = vec![0; len];
            if let Some(n) = packer.pack(method, &plain, &mut out) {
                seeds.push([&[how as u8, number as u8][..], &out[..n]].concat());
            }
        }
    }
    seeds
}
