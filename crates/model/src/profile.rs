//! How fast devices are: latency and bandwidth, as measured.

use crate::DeviceKind;

/// The speed of a device, as a straight line: a transfer of n bytes takes the latency plus n over the bandwidth.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Latency of a read, in nanoseconds.
    pub read_latency_ns: f64,
    /// Latency of a write, in nanoseconds.
    pub write_latency_ns: f64,
    /// Bytes per second of long reads, at the parallelism that suits the device best.
    pub read_bandwidth: f64,
    /// Bytes per second of long writes, likewise.
    pub write_bandwidth: f64,
}

impl Speed {
    /// Nanoseconds to read this many bytes on an idle device.
    pub fn read_ns(&self, bytes: u64) -> f64 {
        self.read_latency_ns + bytes as f64 * 1e9 / self.read_bandwidth
    }
    /// Nanoseconds to write this many bytes on an idle device.
    pub fn write_ns(&self, bytes: u64) -> f64 {
        self.write_latency_ns + bytes as f64 * 1e9 / self.write_bandwidth
    }
}

/// An observation of a device at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// True for writes, false for reads.
    pub is_write: bool,
    /// Number of accesses.
    pub accesses: u32,
    /// Total bytes.
    pub bytes: u64,
    /// Total nanoseconds, as if the accesses came one after the other.
    pub ns: u64,
    /// Number of threads doing the same at the time, this one included: each has its share of the bandwidth.
    pub sharing: u32,
}

impl Speed {
    /// Assumed speed of a device of this kind before any measurement.
    pub fn usual(kind: DeviceKind) -> Self {
        let (read_ns, write_ns, read_mb, write_mb) = match kind {
            DeviceKind::SharedMemory => (500.0, 500.0, 8e3, 8e3),
            DeviceKind::PersistentMemory => (1e3, 1e3, 6e3, 2e3),
            DeviceKind::File => (1e5, 1e5, 2e3, 1e3),
            DeviceKind::Directory => (2e5, 2e5, 1e3, 5e2),
            DeviceKind::Raid => (3e5, 3e6, 8e2, 4e2),
            DeviceKind::Rados => (1e6, 5e6, 3e2, 2e2),
            DeviceKind::S3 | DeviceKind::Swift => (2e7, 3e7, 2e2, 1e2),
        };
        let (read_bandwidth, write_bandwidth) = (read_mb * 1e6, write_mb * 1e6);
        Self { read_latency_ns: read_ns, write_latency_ns: write_ns, read_bandwidth, write_bandwidth }
    }
    /// Returns true if all figures are possible: finite, no negative latency, positive bandwidths.
    pub fn is_sane(&self) -> bool {
        let latencies = [self.read_latency_ns, self.write_latency_ns];
        let bandwidths = [self.read_bandwidth, self.write_bandwidth];
        latencies.iter().all(|ns| ns.is_finite() && *ns >= 0.0) && bandwidths.iter().all(|b| b.is_finite() && *b > 0.0)
    }
}

/// Learns the speed of a device from observations: fits a line through recent observations, with the prior belief in
/// place of missing ones. Long accesses teach about bandwidth and short ones about latency.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Learner {
    speed: Speed,
    read: Fit,
    write: Fit,
}

/// Sums of a least squares fit of (time = accesses x latency + bytes x time of a byte), each relative to the expected
/// time.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
struct Fit {
    accesses2: f64,
    accesses_bytes: f64,
    bytes2: f64,
    accesses_ns: f64,
    bytes_ns: f64,
}

impl Learner {
    /// Decay of earlier observations with each new one: about twenty are remembered.
    const KEPT: f64 = 0.95;
    /// Weight of the prior belief, in observations of each kind.
    const BELIEVED: f64 = 5.0;
    /// Bound on how many times slower or faster than believed a single observation can make a device.
    const DEVIATION_MAX: f64 = 4.0;

    /// Starts from a prior belief.
    pub fn new(speed: Speed) -> Self {
        let mut learner = Self { speed, read: Fit::default(), write: Fit::default() };
        for bytes in [4096.0, 4_194_304.0] {
            let of = |fit: &mut Fit, latency: f64, bandwidth: f64| {
                fit.add(1.0, bytes, latency + bytes * 1e9 / bandwidth, 1.0, Self::BELIEVED);
            };
            of(&mut learner.read, speed.read_latency_ns, speed.read_bandwidth);
            of(&mut learner.write, speed.write_latency_ns, speed.write_bandwidth);
        }
        learner
    }
    /// The current belief.
    pub fn speed(&self) -> Speed {
        self.speed
    }
    /// Takes in an observation.
    pub fn learn(&mut self, seen: &Seen) {
        let (fit, latency, bandwidth) = if seen.is_write {
            (&mut self.write, &mut self.speed.write_latency_ns, &mut self.speed.write_bandwidth)
        } else {
            (&mut self.read, &mut self.speed.read_latency_ns, &mut self.speed.read_bandwidth)
        };
        let (accesses, bytes) = (f64::from(seen.accesses), seen.bytes as f64 * f64::from(seen.sharing.max(1)));
        let expected = accesses * *latency + bytes * 1e9 / *bandwidth;
        if seen.ns == 0 || seen.bytes == 0 || !expected.is_normal() {
            return;
        }
        let deviation = (seen.ns as f64 / expected).clamp(1.0 / Self::DEVIATION_MAX, Self::DEVIATION_MAX);
        fit.fade(Self::KEPT);
        fit.add(accesses, bytes, expected, deviation, 1.0);
        if let Some((latency_ns, byte_ns)) = fit.line() {
            (*latency, *bandwidth) = (latency_ns, 1e9 / byte_ns);
            // Earlier observations are relative to the previous expectation: their weight changes by as much as the
            // expectation has changed.
            let changed = (accesses * latency_ns + bytes * byte_ns) / expected;
            fit.fade(1.0 / (changed * changed));
        }
    }
}

impl Fit {
    fn fade(&mut self, kept: f64) {
        for sum in
            [&mut self.accesses2, &mut self.accesses_bytes, &mut self.bytes2, &mut self.accesses_ns, &mut self.bytes_ns]
        {
            *sum *= kept;
        }
    }
    /// Adds an observation that took `deviation` times as long as expected.
    fn add(&mut self, accesses: f64, bytes: f64, expected: f64, deviation: f64, weight: f64) {
        let (a, b) = (accesses / expected, bytes / expected);
        self.accesses2 += weight * a * a;
        self.accesses_bytes += weight * a * b;
        self.bytes2 += weight * b * b;
        self.accesses_ns += weight * a * deviation;
        self.bytes_ns += weight * b * deviation;
    }
    /// Nanoseconds of an access and of a byte; `None` if no possible line results.
    fn line(&self) -> Option<(f64, f64)> {
        let determinant = self.accesses2 * self.bytes2 - self.accesses_bytes * self.accesses_bytes;
        let both = (
            (self.accesses_ns * self.bytes2 - self.bytes_ns * self.accesses_bytes) / determinant,
            (self.bytes_ns * self.accesses2 - self.accesses_ns * self.accesses_bytes) / determinant,
        );
        let is_sound =
            |(access, byte): (f64, f64)| access.is_finite() && access >= 0.0 && byte.is_normal() && byte > 0.0;
        // If the observations do not separate the two, attribute everything to the bytes.
        let bytes_only = (0.0, self.bytes_ns / self.bytes2);
        [both, bytes_only].into_iter().find(|line| is_sound(*line))
    }
}

// Figures are measured or passed `is_sane`: never NaN.
impl Eq for Speed {}
impl Eq for ProfilePoint {}
impl Eq for Profile {}

/// One measurement of a device.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ProfilePoint {
    /// True for writes, false for reads.
    pub is_write: bool,
    /// Bytes of each access.
    pub bytes: u32,
    /// Accesses in flight at once.
    pub parallel: u16,
    /// Nanoseconds of the median access.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// Total bytes per second.
    pub bandwidth: f64,
}

/// The measurements of a device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Profile {
    /// Time of the measurement, in milliseconds since 1970.
    pub unix_ms: u64,
    /// Points by direction, size and parallelism.
    pub points: Vec<ProfilePoint>,
}

impl Profile {
    /// The line that fits best: its latency is that of the smallest accesses one at a time, minus the time of their
    /// bytes; its bandwidth the best one of long accesses, since short ones may stay in the caches. `None` without
    /// points of both directions.
    pub fn speed(&self) -> Option<Speed> {
        const LONG_BYTES: u32 = 1 << 20;
        let line = |is_write: bool| -> Option<(f64, f64)> {
            let points = || self.points.iter().filter(move |point| point.is_write == is_write && point.bandwidth > 0.0);
            let longest = points().map(|point| point.bytes).max()?.min(LONG_BYTES);
            let long = points().filter(|point| point.bytes >= longest);
            let bandwidth = long.map(|point| point.bandwidth).fold(0.0, f64::max);
            let least = points().min_by_key(|point| (point.parallel, point.bytes))?;
            let latency = least.p50_ns as f64 - f64::from(least.bytes) * 1e9 / bandwidth;
            // Whatever its bytes cost, some of a short access is latency.
            Some((latency.max(least.p50_ns as f64 / 10.0), bandwidth))
        };
        let ((read_latency_ns, read_bandwidth), (write_latency_ns, write_bandwidth)) = (line(false)?, line(true)?);
        Some(Speed { read_latency_ns, write_latency_ns, read_bandwidth, write_bandwidth })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(is_write: bool, bytes: u32, parallel: u16, p50_ns: u64, bandwidth: f64) -> ProfilePoint {
        ProfilePoint { is_write, bytes, parallel, p50_ns, p99_ns: p50_ns, bandwidth }
    }

    #[test]
    fn the_line_comes_from_short_and_long_accesses() {
        let both = |is_write| {
            [
                point(is_write, 4096, 1, 14_096, 0.3e9),
                point(is_write, 4096, 8, 90_000, 9e9),
                point(is_write, 1 << 20, 4, 0, 1e9),
            ]
        };
        let profile = Profile { unix_ms: 1, points: [both(false), both(true)].concat() };
        let speed = profile.speed().unwrap();
        assert!((speed.read_latency_ns - 10_000.0).abs() < 1.0, "{speed:?}");
        assert!((speed.write_bandwidth - 1e9).abs() < 1.0, "what short accesses reach in caches does not count");
        assert_eq!(Profile { unix_ms: 1, points: both(true).to_vec() }.speed(), None);
    }

    #[test]
    fn lines_are_latency_and_bytes_and_some_make_no_sense() {
        let speed = Speed { read_latency_ns: 5.0, write_latency_ns: 7.0, read_bandwidth: 1e9, write_bandwidth: 5e8 };
        assert_eq!((speed.read_ns(100).to_bits(), speed.write_ns(100).to_bits()), (105f64.to_bits(), 207f64.to_bits()));
        assert!(speed.is_sane());
        for wrong in [
            Speed { read_latency_ns: -1.0, ..speed },
            Speed { write_latency_ns: f64::NAN, ..speed },
            Speed { read_bandwidth: 0.0, ..speed },
            Speed { write_bandwidth: f64::INFINITY, ..speed },
        ] {
            assert!(!wrong.is_sane(), "{wrong:?}");
        }
    }

    /// Enough observations overcome any first belief.
    #[test]
    fn what_is_seen_is_learned() {
        let real = Speed { read_latency_ns: 5e4, write_latency_ns: 2e5, read_bandwidth: 3e8, write_bandwidth: 1e8 };
        let mut learner = Learner::new(Speed::usual(DeviceKind::SharedMemory));
        for round in 0..400 {
            for is_write in [false, true] {
                let (accesses, bytes) = if round % 2 == 0 { (1, 4096) } else { (2, 4 << 20) };
                let each = bytes / u64::from(accesses);
                let ns = if is_write { real.write_ns(each) } else { real.read_ns(each) } * f64::from(accesses);
                learner.learn(&Seen { is_write, accesses, bytes, ns: ns as u64, sharing: 1 });
            }
        }
        let speed = learner.speed();
        for bytes in [4096, 4 << 20] {
            assert!((speed.read_ns(bytes) / real.read_ns(bytes) - 1.0).abs() < 0.1, "{speed:?}");
            assert!((speed.write_ns(bytes) / real.write_ns(bytes) - 1.0).abs() < 0.1, "{speed:?}");
        }
        learner.learn(&Seen { is_write: true, accesses: 0, bytes: 0, ns: 5, sharing: 0 });
        learner.learn(&Seen { is_write: true, accesses: 1, bytes: 5, ns: 0, sharing: 1 });
        assert_eq!(learner.speed(), speed, "nothing is learned from nothing");
        learner.learn(&Seen { is_write: true, accesses: 1, bytes: 1 << 20, ns: u64::MAX, sharing: 1 });
        let hung = learner.speed();
        assert!(
            hung.is_sane() && hung.write_ns(1 << 20) < speed.write_ns(1 << 20) * 1.5,
            "one hang is one observation"
        );
    }

    /// Observing only long copies teaches their duration; the belief about short accesses stays.
    #[test]
    fn what_is_not_seen_stays_believed() {
        let mut learner = Learner::new(Speed::usual(DeviceKind::File));
        for _ in 0..25 {
            learner.learn(&Seen { is_write: true, accesses: 1, bytes: 4 << 20, ns: 40_000_000, sharing: 2 });
        }
        let speed = learner.speed();
        assert!(speed.is_sane());
        assert!((speed.write_ns(8 << 20) / 40e6 - 1.0).abs() < 0.1, "two shared the bandwidth: {speed:?}");
        assert!(speed.write_ns(4096) < 4e6, "{speed:?}");
        let untouched = Speed {
            write_latency_ns: speed.write_latency_ns,
            write_bandwidth: speed.write_bandwidth,
            ..Speed::usual(DeviceKind::File)
        };
        assert_eq!(speed, untouched, "nothing was read");
    }

    #[test]
    fn points_without_a_bandwidth_do_not_count() {
        let all = |bandwidth| [false, true].map(|is_write| point(is_write, 4096, 1, 5000, bandwidth)).to_vec();
        assert_eq!(Profile { unix_ms: 1, points: all(0.0) }.speed(), None);
        let points = [all(0.0), all(4.096e9)].concat();
        let speed = Profile { unix_ms: 1, points }.speed().unwrap();
        assert!(
            (speed.write_latency_ns - 4000.0).abs() < 1.0,
            "short accesses, where there are no long ones: {speed:?}"
        );
    }
}
