//! The filter pipeline of chunks: order, mask, and optional or mandatory filters, as in HDF5.
//!
//! Stored bytes are those that HDF5 itself would store, so that chunks are exported and imported unchanged. Nothing here knows
//! the store. A filter implements [`Codec`] and is found by [`codec`]; if any filter of a pipeline is not found, HDF5 applies
//! them all (`super::native`).

mod deflate;
mod fletcher32;
mod lzf;
mod shuffle;

use cenote::{Error, ErrorKind, Result};

/// `H5Z_FILTER_DEFLATE`.
pub const DEFLATE: u32 = 1;
/// `H5Z_FILTER_SHUFFLE`.
pub const SHUFFLE: u32 = 2;
/// `H5Z_FILTER_FLETCHER32`.
pub const FLETCHER32: u32 = 3;
/// The number that h5py registered for LZF.
pub const LZF: u32 = 32000;
/// `H5Z_FLAG_OPTIONAL`: the filter may fail, and is then left out of that chunk.
pub const FLAG_OPTIONAL: u32 = 1;
/// Most filters in a pipeline: the number of bits in a mask.
pub const FILTERS_MAX: usize = 32;

/// Parameters for decoding a chunk.
#[derive(Clone, Copy, Debug)]
pub struct Decode {
    /// Most output bytes: damaged input must not exhaust memory.
    pub bytes_max: usize,
    /// Skip checksums (`H5Pset_edc_check`).
    pub skip_checksums: bool,
}

/// One filter: transforms the bytes of a chunk and back.
pub trait Codec: Send + Sync {
    /// Raw to stored. On error an optional filter is left out of the chunk; a mandatory one fails the write.
    fn encode(&self, params: &[u32], raw: &[u8]) -> Result<Vec<u8>>;
    /// Stored to raw.
    fn decode(&self, params: &[u32], stored: &[u8], how: Decode) -> Result<Vec<u8>>;
}

/// The filter with this number, if this version has it.
pub fn codec(id: u32) -> Option<&'static dyn Codec> {
    match id {
        DEFLATE => Some(&deflate::Deflate),
        SHUFFLE => Some(&shuffle::Shuffle),
        FLETCHER32 => Some(&fletcher32::Fletcher32),
        LZF => Some(&lzf::Lzf),
        _ => None,
    }
}

/// The name of a filter, for people.
pub fn name(id: u32) -> String {
    match id {
        DEFLATE => "deflate".into(),
        SHUFFLE => "shuffle".into(),
        FLETCHER32 => "fletcher32".into(),
        4 => "szip".into(),
        5 => "nbit".into(),
        6 => "scaleoffset".into(),
        307 => "bzip2 (307)".into(),
        LZF => "lzf".into(),
        32001 => "blosc (32001)".into(),
        32004 => "lz4 (32004)".into(),
        32008 => "bitshuffle (32008)".into(),
        32015 => "zstd (32015)".into(),
        32026 => "blosc2 (32026)".into(),
        other => format!("number {other}"),
    }
}

/// A filter as a dataset's creation property list has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter {
    /// `H5Z_filter_t`.
    pub id: u32,
    /// `H5Z_FLAG_*`.
    pub flags: u32,
    /// Client data values.
    pub params: Vec<u32>,
}

/// The filters of a dataset, in the order in which they are applied on writing.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pipeline {
    /// The filters.
    pub filters: Vec<Filter>,
}

impl Pipeline {
    /// Returns true if chunks are stored unfiltered.
    pub fn is_empty(&self) -> bool {
        self.filters.is_empty()
    }

    /// Returns true if this library has all of its filters; otherwise HDF5 applies them.
    pub fn is_ours(&self) -> bool {
        self.filters.iter().all(|filter| codec(filter.id).is_some())
    }

    /// Refuses a pipeline that no dataset can have.
    pub fn check(&self, subject: &str) -> Result<()> {
        if self.filters.len() > FILTERS_MAX {
            return Err(Error::new(ErrorKind::LimitExceeded, subject).because("more than 32 filters"));
        }
        Ok(())
    }

    /// Applies the filters that `mask` does not exclude. Returns the stored bytes and the mask of those left out.
    pub fn encode(&self, raw: &[u8], mask: u32) -> Result<(Vec<u8>, u32)> {
        let mut bytes = std::borrow::Cow::Borrowed(raw);
        let mut left_out = 0;
        for (i, filter) in self.filters.iter().enumerate() {
            let bit = 1u32 << i;
            if mask & bit != 0 {
                left_out |= bit;
                continue;
            }
            let done = codec(filter.id)
                .ok_or_else(|| missing(filter.id))
                .and_then(|codec| codec.encode(&filter.params, &bytes));
            match done {
                Ok(next) => bytes = next.into(),
                Err(_) if filter.flags & FLAG_OPTIONAL != 0 => left_out |= bit,
                Err(error) => return Err(error),
            }
        }
        Ok((bytes.into_owned(), left_out))
    }

    /// Undoes the filters that `mask` does not exclude. The result must have `raw_len` bytes.
    pub fn decode(&self, stored: Vec<u8>, mask: u32, raw_len: usize, skip_checksums: bool) -> Result<Vec<u8>> {
        if self.filters.len() > FILTERS_MAX {
            return Err(Error::new(ErrorKind::Corrupt, "a filtered chunk").because("more than 32 filters"));
        }
        let how = Decode { bytes_max: raw_len.saturating_mul(2).saturating_add(1 << 16), skip_checksums };
        let mut bytes = stored;
        for (i, filter) in self.filters.iter().enumerate().rev() {
            if mask & (1u32 << i) == 0 {
                let codec = codec(filter.id).ok_or_else(|| missing(filter.id))?;
                bytes = codec.decode(&filter.params, &bytes, how)?;
            }
        }
        if bytes.len() == raw_len {
            return Ok(bytes);
        }
        Err(Error::new(ErrorKind::Corrupt, "a filtered chunk")
            .because(format!("it holds {} bytes after its filters, not {raw_len}", bytes.len())))
    }
}

fn missing(id: u32) -> Error {
    Error::new(ErrorKind::Unsupported, format!("filter {}", name(id))).because("it is not available in this process")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(len: usize) -> Vec<u8> {
        (0..len).map(|i| ((i / 7) as u8).wrapping_mul(3)).collect()
    }

    fn filter(id: u32, params: &[u32]) -> Filter {
        Filter { id, flags: 0, params: params.to_vec() }
    }

    #[test]
    fn every_order_of_filters_comes_back() {
        let all = [filter(DEFLATE, &[4]), filter(SHUFFLE, &[8]), filter(FLETCHER32, &[])];
        for order in [[0, 1, 2], [1, 0, 2], [2, 1, 0], [1, 2, 0], [0, 2, 1], [2, 0, 1]] {
            let pipeline = Pipeline { filters: order.iter().map(|i| all[*i].clone()).collect() };
            for len in [1, 7, 8, 9, 4096, 100_003] {
                let raw = sample(len);
                for mask in 0..8 {
                    let (stored, left_out) = pipeline.encode(&raw, mask).unwrap();
                    assert_eq!(left_out, mask);
                    assert_eq!(pipeline.decode(stored, left_out, len, false).unwrap(), raw);
                }
            }
        }
    }

    #[test]
    fn damage_is_an_error() {
        let pipeline = Pipeline { filters: vec![filter(SHUFFLE, &[4]), filter(FLETCHER32, &[])] };
        let (stored, mask) = pipeline.encode(&sample(4000), 0).unwrap();
        for at in [0, 1, 2000, 3999, 4000, 4003] {
            let mut bad = stored.clone();
            bad[at] ^= 0x10;
            assert_eq!(pipeline.decode(bad, mask, 4000, false).unwrap_err().kind(), ErrorKind::Corrupt);
        }
        assert_eq!(pipeline.decode(stored[..3].to_vec(), mask, 4000, false).unwrap_err().kind(), ErrorKind::Corrupt);
        let pipeline = Pipeline { filters: vec![filter(DEFLATE, &[1])] };
        let (stored, mask) = pipeline.encode(&sample(4000), 0).unwrap();
        for cut in [0, 1, 2, 5, stored.len() - 1] {
            assert!(pipeline.decode(stored[..cut].to_vec(), mask, 4000, false).is_err());
        }
        assert!(pipeline.decode(stored.clone(), mask, 3999, false).is_err());
        assert!(pipeline.decode(stored, 1, 4000, false).is_err());
    }

    #[test]
    fn a_bomb_is_refused() {
        let pipeline = Pipeline { filters: vec![filter(DEFLATE, &[9])] };
        let (stored, _) = pipeline.encode(&vec![0; 64 << 20], 0).unwrap();
        assert_eq!(pipeline.decode(stored, 0, 1000, false).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn optional_filters_step_aside_and_unknown_ones_are_named() {
        let mut bad = filter(DEFLATE, &[10]);
        assert!(Pipeline { filters: vec![bad.clone()] }.encode(&[1, 2, 3], 0).is_err());
        bad.flags = FLAG_OPTIONAL;
        assert_eq!(Pipeline { filters: vec![bad] }.encode(&[1, 2, 3], 0).unwrap(), (vec![1, 2, 3], 1));
        let unknown = Pipeline { filters: vec![filter(4, &[])] };
        assert!(!unknown.is_ours());
        assert!(unknown.encode(&[1, 2, 3], 0).unwrap_err().to_string().contains("szip"));
    }
}
