/// How fast a device is, as a straight line: a transfer of n bytes takes the latency and n over the bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Before the first byte of a read, in nanoseconds.
    pub read_latency_ns: f64,
    /// Before the first byte of a write, in nanoseconds.
    pub write_latency_ns: f64,
    /// Bytes per second of long reads, as many at once as the device likes best.
    pub read_bandwidth: f64,
    /// Bytes per second of long writes.
    pub write_bandwidth: f64,
}

impl Speed {
    /// Nanoseconds that reading so many bytes takes while nobody else does anything.
    pub fn read_ns(&self, bytes: u64) -> f64 {
        self.read_latency_ns + bytes as f64 * 1e9 / self.read_bandwidth
    }
    /// Nanoseconds that writing so many bytes takes while nobody else does anything.
    pub fn write_ns(&self, bytes: u64) -> f64 {
        self.write_latency_ns + bytes as f64 * 1e9 / self.write_bandwidth
    }
}

/// One measurement of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfilePoint {
    /// Writes, or else reads.
    pub is_write: bool,
    /// Bytes of each access.
    pub bytes: u32,
    /// Accesses under way at once.
    pub parallel: u16,
    /// Nanoseconds of the median access.
    pub p50_ns: u64,
    /// Nanoseconds that one access of a hundred takes or exceeds.
    pub p99_ns: u64,
    /// Bytes per second of all together.
    pub bandwidth: f64,
}

/// What was measured of a device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// By direction, size and parallelism.
    pub points: Vec<ProfilePoint>,
}

impl Profile {
    /// The line that fits best: the latency of the smallest accesses one at a time, less what their bytes take; the best
    /// bandwidth of all. `None` without points of both directions.
    pub fn speed(&self) -> Option<Speed> {
        let line = |is_write: bool| -> Option<(f64, f64)> {
            let points = || self.points.iter().filter(move |point| point.is_write == is_write && point.bandwidth > 0.0);
            let bandwidth = points().map(|point| point.bandwidth).fold(0.0, f64::max);
            let least = points().min_by_key(|point| (point.parallel, point.bytes))?;
            let latency = least.p50_ns as f64 - f64::from(least.bytes) * 1e9 / bandwidth;
            Some((latency.max(0.0), bandwidth))
        };
        let ((read_latency_ns, read_bandwidth), (write_latency_ns, write_bandwidth)) = (line(false)?, line(true)?);
        Some(Speed { read_latency_ns, write_latency_ns, read_bandwidth, write_bandwidth })
    }
}
