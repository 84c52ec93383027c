//! Encodings of device speeds.

use cenote_model::{Profile, ProfilePoint, Result, Speed};

use crate::codec::{Input, Wire, malformed, wire_struct};

/// The bits of the number, which must be finite: code that compares or adds figures need not check.
impl Wire for f64 {
    const BYTES_MIN: usize = 8;
    fn put(&self, out: &mut Vec<u8>) {
        self.to_bits().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let value = Self::from_bits(u64::take(input)?);
        if value.is_finite() { Ok(value) } else { Err(malformed("a figure is no number")) }
    }
}

impl Wire for Speed {
    const BYTES_MIN: usize = 32;
    fn put(&self, out: &mut Vec<u8>) {
        for figure in [self.read_latency_ns, self.write_latency_ns, self.read_bandwidth, self.write_bandwidth] {
            figure.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let mut figure = || f64::take(input);
        let (read_latency_ns, write_latency_ns) = (figure()?, figure()?);
        let (read_bandwidth, write_bandwidth) = (figure()?, figure()?);
        let speed = Self { read_latency_ns, write_latency_ns, read_bandwidth, write_bandwidth };
        if speed.is_sane() { Ok(speed) } else { Err(malformed("no device has such a speed")) }
    }
}

wire_struct!(ProfilePoint, 31, { is_write, bytes, parallel, p50_ns, p99_ns, bandwidth });
wire_struct!(Profile, 12, { unix_ms, points });
