//! The file `profile` of the store directory: the speed of the devices.
//!
//! Nothing depends on it. A file that is missing, damaged or of another version or store is ignored: devices are
//! measured anew.

use cenote_model::{DeviceId, Profile, ProfilePoint, Speed, StoreId};

use crate::codec::{Decoded, Decoder, Encode, Malformed};
use crate::sidecar::{seal, unseal};

/// The file's name.
pub(crate) const PROFILE: &str = "profile";
const MAGIC: [u8; 8] = *b"CENOTEP\0";
const VERSION: u32 = 1;
/// Bytes of a point.
const POINT_BYTES: usize = 1 + 4 + 2 + 8 + 8 + 8;
/// Bytes of a device without points: its id, its speed, the time and the number of points.
const DEVICE_BYTES: usize = 2 + 1 + 8 + 4;

/// What is known of one device.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct DeviceProfile {
    pub device: DeviceId,
    pub speed: Option<Speed>,
    pub profile: Profile,
}

fn put_figure(out: &mut Vec<u8>, figure: f64) {
    out.put_u64(figure.to_bits());
}

fn figure(from: &mut Decoder<'_>) -> Decoded<f64> {
    let figure = f64::from_bits(from.u64()?);
    if figure.is_finite() { Ok(figure) } else { Err(Malformed("a figure that is no number")) }
}

/// Returns the bytes of the file.
pub(crate) fn encode(store: StoreId, known: &[DeviceProfile]) -> Vec<u8> {
    seal(MAGIC, VERSION, store, |out| put_all(out, known))
}

fn put_all(out: &mut Vec<u8>, known: &[DeviceProfile]) {
    out.put_u32(known.len() as u32);
    for DeviceProfile { device, speed, profile } in known {
        out.put_u16(device.0);
        out.put_u8(u8::from(speed.is_some()));
        if let Some(speed) = speed {
            for figure in [speed.read_latency_ns, speed.write_latency_ns, speed.read_bandwidth, speed.write_bandwidth] {
                put_figure(out, figure);
            }
        }
        out.put_u64(profile.unix_ms);
        out.put_u32(profile.points.len() as u32);
        for point in &profile.points {
            out.put_u8(u8::from(point.is_write));
            out.put_u32(point.bytes);
            out.put_u16(point.parallel);
            out.put_u64(point.p50_ns);
            out.put_u64(point.p99_ns);
            put_figure(out, point.bandwidth);
        }
    }
}

/// Returns the content of the file, if it is whole and this store's.
pub(crate) fn decode(store: StoreId, bytes: &[u8]) -> Option<Vec<DeviceProfile>> {
    unseal(MAGIC, VERSION, store, bytes, |from| {
        let count = from.count(DEVICE_BYTES)?;
        (0..count).map(|_| known(from)).collect()
    })
}

fn known(from: &mut Decoder<'_>) -> Decoded<DeviceProfile> {
    let device = DeviceId(from.u16()?);
    let speed = if from.flag()? { Some(speed(from)?) } else { None };
    let unix_ms = from.u64()?;
    let count = from.count(POINT_BYTES)?;
    let point = |from: &mut Decoder<'_>| -> Decoded<ProfilePoint> {
        let (is_write, bytes, parallel) = (from.flag()?, from.u32()?, from.u16()?);
        let (p50_ns, p99_ns, bandwidth) = (from.u64()?, from.u64()?, figure(from)?);
        Ok(ProfilePoint { is_write, bytes, parallel, p50_ns, p99_ns, bandwidth })
    };
    let points = (0..count).map(|_| point(from)).collect::<Decoded<_>>()?;
    Ok(DeviceProfile { device, speed, profile: Profile { unix_ms, points } })
}

fn speed(from: &mut Decoder<'_>) -> Decoded<Speed> {
    let (read_latency_ns, write_latency_ns) = (figure(from)?, figure(from)?);
    let (read_bandwidth, write_bandwidth) = (figure(from)?, figure(from)?);
    let speed = Speed { read_latency_ns, write_latency_ns, read_bandwidth, write_bandwidth };
    if speed.is_sane() { Ok(speed) } else { Err(Malformed("a speed that no device has")) }
}

#[cfg(test)]
mod tests {
    use cenote_model::DeviceKind;

    use super::*;

    fn some() -> Vec<DeviceProfile> {
        let point = |bytes| ProfilePoint {
            is_write: bytes % 3 == 0,
            bytes,
            parallel: 4,
            p50_ns: 77,
            p99_ns: 99,
            bandwidth: 1.5e9,
        };
        let profile = Profile { unix_ms: 1_700_000_000_000, points: (1..5).map(point).collect() };
        vec![
            DeviceProfile { device: DeviceId(1), speed: Some(Speed::usual(DeviceKind::File)), profile },
            DeviceProfile { device: DeviceId(9), speed: None, profile: Profile::default() },
        ]
    }

    #[test]
    fn comes_back_as_written() {
        let bytes = encode(StoreId(5), &some());
        assert_eq!(decode(StoreId(5), &bytes), Some(some()));
        assert_eq!(decode(StoreId(6), &bytes), None, "another store's");
    }

    #[test]
    fn damage_is_as_good_as_nothing() {
        let good = encode(StoreId(5), &some());
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(StoreId(5), &bad), None, "bit {bit}");
        }
        for len in 0..good.len() {
            assert_eq!(decode(StoreId(5), &good[..len]), None, "{len} bytes");
        }
    }

    /// A matching checksum is no proof of sense.
    #[test]
    fn nonsense_is_refused() {
        let mut known = some();
        known[0].profile.points[0].bandwidth = f64::NAN;
        assert_eq!(decode(StoreId(5), &encode(StoreId(5), &known)), None);
        let mut known = some();
        known[0].speed = known[0].speed.map(|speed| Speed { write_bandwidth: 0.0, ..speed });
        assert_eq!(decode(StoreId(5), &encode(StoreId(5), &known)), None);
    }
}
