//! Chooses whether and how to compress bytes for a tier: from a measured sample, the codecs and the tier.

use cenote_model::{Codec, Speed};

/// The value of a tier's `compress` option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compress {
    /// Use this codec, at any cost, if it saves space.
    Only(Codec),
    /// Use whatever pays, if anything does.
    Auto,
}

impl Compress {
    /// Parses the option's value; `None` means no compression.
    pub fn from_option(value: Option<&str>) -> Option<Self> {
        match value? {
            "auto" => Some(Self::Auto),
            word => Codec::ALL.into_iter().find(|codec| codec.word() == word).map(Self::Only),
        }
    }
    /// Returns true if this codec is to be tried.
    pub fn tries(self, codec: Codec) -> bool {
        self == Self::Auto || self == Self::Only(codec)
    }
}

/// The result of compressing a sample.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Trial {
    /// The codec.
    pub codec: Codec,
    /// Base-two logarithm of the element size of the byte shuffle.
    pub stride_shift: u8,
    /// Bytes on the device for each byte of the sample, in whole allocation units.
    pub ratio: f64,
    /// Nanoseconds to compress a byte.
    pub pack_ns: f64,
    /// Nanoseconds to decompress a byte.
    pub unpack_ns: f64,
}

/// Stored bytes per plain byte above which compression gains nothing.
const RATIO_MAX: f64 = 0.94;

/// Index of the best trial; `None` if the bytes are better left plain.
///
/// The measure is the product of space and time: bytes that take half the space may take twice as long to write once
/// and read once. On a slow device less space also means less time, so that almost anything pays; on a fast one little
/// does.
pub fn choose_packing(wanted: Compress, speed: &Speed, trials: &[Trial]) -> Option<usize> {
    let device_ns = 1e9 / speed.write_bandwidth + 1e9 / speed.read_bandwidth;
    let cost = |trial: &Trial| match wanted {
        Compress::Only(_) => trial.ratio,
        Compress::Auto => trial.ratio * (trial.ratio * device_ns + trial.pack_ns + trial.unpack_ns),
    };
    let plain = match wanted {
        Compress::Only(_) => RATIO_MAX,
        Compress::Auto => device_ns,
    };
    let worth = |trial: &Trial| wanted.tries(trial.codec) && trial.ratio <= RATIO_MAX && cost(trial) < plain;
    let worth_it = trials.iter().enumerate().filter(|(_, trial)| worth(trial));
    worth_it.min_by(|(_, one), (_, other)| cost(one).total_cmp(&cost(other))).map(|(number, _)| number)
}

#[cfg(test)]
mod tests {
    use cenote_model::DeviceKind;

    use super::*;

    const fn trial(codec: Codec, ratio: f64, pack_ns: f64, unpack_ns: f64) -> Trial {
        Trial { codec, stride_shift: 0, ratio, pack_ns, unpack_ns }
    }
    const LZ4: Trial = trial(Codec::Lz4, 0.75, 1.5, 0.5);
    const ZSTD: Trial = trial(Codec::Zstd, 0.68, 3.0, 1.0);

    #[test]
    fn slow_tiers_take_what_is_smallest_and_quick_ones_what_is_quick() {
        let with = |bandwidth: f64| Speed {
            read_bandwidth: bandwidth,
            write_bandwidth: bandwidth,
            ..Speed::usual(DeviceKind::File)
        };
        let chosen = |bandwidth, trials: &[Trial]| choose_packing(Compress::Auto, &with(bandwidth), trials);
        assert_eq!(chosen(1e8, &[LZ4, ZSTD]), Some(1));
        assert_eq!(chosen(3e8, &[LZ4, ZSTD]), Some(0));
        assert_eq!(chosen(6e9, &[LZ4, ZSTD]), None);
        let sparse = trial(Codec::Lz4, 0.1, 0.3, 0.2);
        assert_eq!(chosen(6e9, &[sparse, ZSTD]), Some(0), "a tenth of the room pays even there");
    }

    #[test]
    fn what_is_asked_for_is_done_unless_nothing_comes_of_it() {
        let speed = Speed { read_bandwidth: 1e10, write_bandwidth: 1e10, ..Speed::usual(DeviceKind::File) };
        assert_eq!(choose_packing(Compress::Only(Codec::Zstd), &speed, &[LZ4, ZSTD]), Some(1));
        assert_eq!(choose_packing(Compress::Only(Codec::Lz4), &speed, &[ZSTD]), None);
        let noise = trial(Codec::Lz4, 1.0, 1.0, 1.0);
        let slow = Speed { read_bandwidth: 1e6, write_bandwidth: 1e6, ..speed };
        assert_eq!(choose_packing(Compress::Only(Codec::Lz4), &slow, &[noise]), None);
        assert_eq!(choose_packing(Compress::Auto, &slow, &[noise]), None);
        assert_eq!(Compress::from_option(Some("zstd")), Some(Compress::Only(Codec::Zstd)));
        assert_eq!((Compress::from_option(Some("none")), Compress::from_option(None)), (None, None));
    }
}
