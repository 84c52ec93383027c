//! Random numbers from a seed.

pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16
    }
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }
}

/// Returns the seed in `CENOTE_SEED`, or a new one each time; prints it.
pub fn seed(test: &str) -> u64 {
    let drawn = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().subsec_nanos().into();
    let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(drawn);
    println!("{test}: CENOTE_SEED={seed}");
    seed
}

/// Returns the number of steps of a random test: `CENOTE_STEPS`, or the default.
pub fn steps(default: usize) -> usize {
    std::env::var("CENOTE_STEPS").ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
