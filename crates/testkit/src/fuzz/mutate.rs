//! Mutations of seeds, of the kinds that find mistakes in decoders.

use crate::rng::Rng;

/// Longest input made.
const LEN_MAX: usize = 64 << 10;

/// One of the seeds, changed in a few places.
pub fn mutate(rng: &mut Rng, seeds: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = if seeds.is_empty() { Vec::new() } else { rng.pick(seeds).clone() };
    for _ in 0..=rng.below(rng.clone().below(8) + 1) {
        change(rng, &mut bytes, seeds);
    }
    bytes.truncate(LEN_MAX);
    bytes
}

fn change(rng: &mut Rng, bytes: &mut Vec<u8>, seeds: &[Vec<u8>]) {
    if bytes.is_empty() {
        bytes.extend((0..=rng.below(64)).map(|i| (i * 37) as u8));
        return;
    }
    let at = rng.index(bytes.len());
    match rng.below(9) {
        0 | 1 => bytes[at] ^= 1 << rng.below(8),
        2 => bytes[at] = rng.next_u64() as u8,
        3 | 4 => put(bytes, at, &number(rng).to_le_bytes()[..1 << rng.below(4)]),
        5 => bytes.truncate(at),
        6 => {
            let end = at + rng.size((bytes.len() - at) as u64) as usize;
            bytes.drain(at..end);
        }
        7 => {
            let end = at + rng.size((bytes.len() - at).min(512) as u64) as usize;
            let piece = bytes[at..end].to_vec();
            let to = rng.index(bytes.len());
            bytes.splice(to..to, piece);
        }
        _ => {
            let other = rng.pick(seeds);
            if !other.is_empty() {
                let from = rng.index(other.len());
                let len = rng.size((other.len() - from).min(512) as u64) as usize;
                if rng.chance(500) {
                    put(bytes, at, &other[from..from + len]);
                } else {
                    bytes.splice(at..at, other[from..from + len].iter().copied());
                }
            }
        }
    }
}

fn put(bytes: &mut [u8], at: usize, piece: &[u8]) {
    let len = piece.len().min(bytes.len() - at);
    bytes[at..at + len].copy_from_slice(&piece[..len]);
}

/// Numbers that are likely to break arithmetic.
fn number(rng: &mut Rng) -> u64 {
    let near = *rng.pick(&[0, 1, 4096, 65536, 1 << 31, 1 << 32, 1 << 40, 1 << 62, 1 << 63, u64::MAX]);
    match rng.below(4) {
        0 => near,
        1 => near.wrapping_add(rng.below(9)).wrapping_sub(4),
        2 => rng.below(300),
        _ => rng.next_u64() >> rng.below(64),
    }
}
