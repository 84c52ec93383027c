//! Compressed units from a damaged medium, or from somebody who may write to a tier. The first two bytes of an input
//! select the method and the plain length; the rest is the stored bytes.

use cenote_device::packing::{PACKED_AT_ONCE, Packer, methods};

use crate::content::{WriteId, bytes};

/// Plain lengths.
const LENGTHS: [usize; 6] = [0, 1, 100, 4096, 40_000, PACKED_AT_ONCE];

pub(super) fn unpack(input: &[u8]) {
    let [how, len, stored @ ..] = input else { return };
    let Some(method) = methods().nth(usize::from(how % 8)) else { return };
    let len = LENGTHS[usize::from(*len) % LENGTHS.len()];
    // The bytes behind the buffer must stay unchanged.
    let mut plain = vec![0x5A; len + 8];
    let mut packer = Packer::default();
    let done = packer.unpack(method, stored, &mut plain[..len]);
    assert_eq!(plain[len..], [0x5A; 8], "bytes past the end were written");
    // Any result is compressed again.
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
