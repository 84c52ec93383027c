//! Random inputs of the tests.

/// splitmix64: random enough for inputs, and no dependency.
pub struct Random(pub u64);

impl Random {
    /// From the seed in `CENOTE_SEED`, or from the clock; prints it.
    pub fn new() -> Self {
        let seed = std::env::var("CENOTE_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |d| d.as_nanos() as u64)
        });
        println!("CENOTE_SEED={seed}");
        Self(seed)
    }
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
