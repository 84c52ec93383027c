//! Checksums of a body while it arrives: the MD5 for its ETag, and the checksums that clients send before or after it.

use std::collections::BTreeMap;

use http::HeaderMap;
use md5::{Digest as _, Md5};
use s3s::checksum::ChecksumHasher;
use s3s::crypto::{Checksum as _, Crc32, Crc32c, Crc64Nvme, Sha1, Sha256};
use s3s::{S3Result, s3_error};

use crate::meta::hex;

/// Checksum algorithm.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Algorithm {
    /// CRC-32
    Crc32,
    /// CRC-32C
    Crc32c,
    /// CRC-64/NVME
    Crc64Nvme,
    /// SHA-1
    Sha1,
    /// SHA-256
    Sha256,
}

impl Algorithm {
    /// All algorithms.
    pub const ALL: [Self; 5] = [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];
    /// Returns S3's name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }
    /// Parses S3's name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word().eq_ignore_ascii_case(word))
    }
    /// Returns its header.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }
    /// Returns the length of a checksum in bytes.
    fn len(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }
    /// Returns whether the checksums of parts combine to that of the whole.
    pub fn combines(self) -> bool {
        matches!(self, Self::Crc32 | Self::Crc32c | Self::Crc64Nvme)
    }
}

/// Checksums that a client claims for its body.
#[derive(Clone, Default, Debug)]
pub struct Claims {
    /// `Content-MD5`, decoded.
    pub md5: Option<[u8; 16]>,
    /// Checksums in headers, in base64.
    pub sums: BTreeMap<&'static str, String>,
    /// Algorithm to compute even if no checksum is given.
    pub algorithm: Option<Algorithm>,
    /// Algorithm whose checksum follows the body.
    pub trails: Option<Algorithm>,
}

impl Claims {
    /// Reads the claims in the headers of a request.
    pub fn of(headers: &HeaderMap) -> S3Result<Self> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let mut claims = Self::default();
        if let Some(sum) = text("content-md5") {
            let bytes = decode(sum).filter(|bytes| bytes.len() == 16);
            let bytes = bytes.ok_or_else(|| s3_error!(InvalidDigest, "Content-MD5 is 16 bytes in base 64"))?;
            claims.md5 = bytes.try_into().ok();
        }
        for algorithm in Algorithm::ALL {
            if let Some(sum) = text(algorithm.header()) {
                if decode(sum).is_none_or(|bytes| bytes.len() != algorithm.len()) {
                    return Err(s3_error!(BadDigest, "Value for {} header is invalid.", algorithm.header()));
                }
                claims.sums.insert(algorithm.word(), sum.to_owned());
            }
        }
        if claims.sums.len() > 1 {
            return Err(s3_error!(InvalidRequest, "Expecting a single x-amz-checksum- header."));
        }
        let trailer = text("x-amz-trailer").unwrap_or_default();
        claims.trails = Algorithm::ALL.into_iter().find(|algorithm| trailer.eq_ignore_ascii_case(algorithm.header()));
        let asked = text("x-amz-sdk-checksum-algorithm").or_else(|| text("x-amz-checksum-algorithm"));
        claims.algorithm = asked.and_then(Algorithm::parse);
        Ok(claims)
    }
    fn algorithms(&self) -> impl Iterator<Item = Algorithm> {
        let given = self.sums.keys().filter_map(|word| Algorithm::parse(word));
        given.chain(self.algorithm).chain(self.trails)
    }
}

/// Checksums in computation.
pub struct Sums {
    md5: Md5,
    others: ChecksumHasher,
    has_others: bool,
}

/// Checksums of a whole body.
pub struct Summed {
    /// MD5.
    pub md5: [u8; 16],
    /// The others by S3's name, in base64.
    pub checksums: BTreeMap<String, String>,
}

impl Sums {
    /// Starts the checksums needed for `claims`.
    pub fn of(claims: &Claims) -> Self {
        let mut sums = Self { md5: Md5::new(), others: ChecksumHasher::default(), has_others: false };
        for algorithm in claims.algorithms() {
            sums.add(algorithm);
        }
        sums
    }
    /// Adds an algorithm.
    pub fn add(&mut self, algorithm: Algorithm) {
        self.has_others = true;
        match algorithm {
            Algorithm::Crc32 => self.others.crc32 = Some(Crc32::new()),
            Algorithm::Crc32c => self.others.crc32c = Some(Crc32c::new()),
            Algorithm::Crc64Nvme => self.others.crc64nvme = Some(Crc64Nvme::new()),
            Algorithm::Sha1 => self.others.sha1 = Some(Sha1::new()),
            Algorithm::Sha256 => self.others.sha256 = Some(Sha256::new()),
        }
    }
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.md5.update(bytes);
        if self.has_others {
            self.others.update(bytes);
        }
    }
    /// Finishes the computation.
    pub fn finish(self) -> Summed {
        let sums = self.others.finalize();
        let checksums = [
            (Algorithm::Crc32, sums.checksum_crc32),
            (Algorithm::Crc32c, sums.checksum_crc32c),
            (Algorithm::Crc64Nvme, sums.checksum_crc64nvme),
            (Algorithm::Sha1, sums.checksum_sha1),
            (Algorithm::Sha256, sums.checksum_sha256),
        ];
        let checksums = checksums.into_iter().filter_map(|(algorithm, sum)| Some((algorithm.word().to_owned(), sum?)));
        Summed { md5: self.md5.finalize().into(), checksums: checksums.collect() }
    }
}

impl Summed {
    /// Compares with the client's claims in headers or after the body.
    pub fn check(&self, claims: &Claims, trailers: Option<&HeaderMap>) -> S3Result<()> {
        if claims.md5.is_some_and(|md5| md5 != self.md5) {
            return Err(s3_error!(BadDigest, "The Content-MD5 you specified did not match what we received."));
        }
        let mut wanted: Vec<(Algorithm, String)> =
            claims.sums.iter().filter_map(|(word, sum)| Some((Algorithm::parse(word)?, sum.clone()))).collect();
        if let Some(algorithm) = claims.trails {
            let sum = trailers.and_then(|trailers| trailers.get(algorithm.header())).and_then(|sum| sum.to_str().ok());
            let sum =
                sum.ok_or_else(|| s3_error!(InvalidRequest, "the trailer {} did not come", algorithm.header()))?;
            wanted.push((algorithm, sum.trim().to_owned()));
        }
        for (algorithm, sum) in wanted {
            if self.checksums.get(algorithm.word()) != Some(&sum) {
                let word = algorithm.word();
                return Err(s3_error!(BadDigest, "The {word} you specified did not match the calculated checksum."));
            }
        }
        Ok(())
    }
    /// Returns the ETag.
    pub fn etag(&self) -> String {
        hex(&self.md5)
    }
}

/// Returns the composite checksum of an upload: the checksum of its parts' checksums.
pub fn composite(algorithm: Algorithm, sums: &[String]) -> Option<String> {
    let mut all = Vec::new();
    for sum in sums {
        all.extend(decode(sum)?);
    }
    let mut whole = Sums { md5: Md5::new(), others: ChecksumHasher::default(), has_others: false };
    whole.add(algorithm);
    whole.update(&all);
    let sum = whole.finish().checksums.remove(algorithm.word())?;
    Some(format!("{sum}-{}", sums.len()))
}

/// Returns the checksum of all bytes from those of the parts and their sizes, for algorithms that combine.
pub fn combined<'a>(algorithm: Algorithm, parts: impl Iterator<Item = (&'a String, u64)>) -> Option<String> {
    let (way, width) = match algorithm {
        Algorithm::Crc32 => (crc_fast::CrcAlgorithm::Crc32IsoHdlc, 4),
        Algorithm::Crc32c => (crc_fast::CrcAlgorithm::Crc32Iscsi, 4),
        Algorithm::Crc64Nvme => (crc_fast::CrcAlgorithm::Crc64Nvme, 8),
        Algorithm::Sha1 | Algorithm::Sha256 => return None,
    };
    let mut whole: Option<u64> = None;
    for (sum, size_bytes) in parts {
        let sum = decode(sum)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
        whole = Some(match whole {
            None => sum,
            Some(before) => crc_fast::checksum_combine(way, before, sum, size_bytes),
        });
    }
    Some(base64_simd::STANDARD.encode_to_string(&whole?.to_be_bytes()[8 - width..]))
}

/// Decodes base64.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    base64_simd::STANDARD.decode_to_vec(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_held_against_what_came() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-checksum-crc32", "NhCmhg==".parse().unwrap());
        let claims = Claims::of(&headers).unwrap();
        let sum = |bytes: &[u8]| {
            let mut sums = Sums::of(&claims);
            sums.update(bytes);
            sums.finish()
        };
        assert!(sum(b"hello").check(&claims, None).is_ok());
        assert_eq!(sum(b"hellp").check(&claims, None).unwrap_err().code().as_str(), "BadDigest");
        assert_eq!(sum(b"hello").etag(), "5d41402abc4b2a76b9719d911017c592");
    }

    #[test]
    fn a_promised_trailer_must_come() {
        let mut headers = HeaderMap::new();
        headers.insert("x-amz-trailer", "x-amz-checksum-crc32".parse().unwrap());
        let claims = Claims::of(&headers).unwrap();
        let mut sums = Sums::of(&claims);
        sums.update(b"hello");
        let sums = sums.finish();
        assert!(sums.check(&claims, None).is_err());
        let mut trailers = HeaderMap::new();
        trailers.insert("x-amz-checksum-crc32", "NhCmhg==".parse().unwrap());
        assert!(sums.check(&claims, Some(&trailers)).is_ok());
    }

    #[test]
    fn sums_of_parts_combine_to_that_of_the_whole() {
        for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.combines()) {
            let claims = Claims { algorithm: Some(algorithm), ..Claims::default() };
            let sum = |bytes: &[u8]| {
                let mut sums = Sums::of(&claims);
                sums.update(bytes);
                sums.finish().checksums.remove(algorithm.word()).unwrap()
            };
            let parts = [sum(b"hello "), sum(b""), sum(b"world")];
            let combined = combined(algorithm, parts.iter().zip([6, 0, 5]));
            assert_eq!(combined.unwrap(), sum(b"hello world"), "{algorithm:?}");
        }
    }

    #[test]
    fn claims_that_are_none_are_refused() {
        for (name, value) in [("content-md5", "abc"), ("content-md5", ""), ("x-amz-checksum-sha256", "AAAA")] {
            let mut headers = HeaderMap::new();
            headers.insert(http::HeaderName::from_static(name), value.parse().unwrap());
            assert!(Claims::of(&headers).is_err(), "{name}: {value}");
        }
    }
}
