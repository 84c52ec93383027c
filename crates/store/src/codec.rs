//! Integers and byte strings on media: those of `cenote_codec`, and ordinals.

pub(crate) use cenote_codec::{Decoder, Encode, Malformed};
use cenote_model::{Error, ErrorKind};

/// Ordinals stay below this: at one each nanosecond, for more than seventy years.
pub(crate) const ORDINALS_END: u64 = 1 << 61;

pub(crate) type Decoded<T> = Result<T, Malformed>;

/// Reads ordinals: epochs, sequence numbers, positions.
pub(crate) trait Ordinals {
    /// Reads an ordinal. A number so large that counting on would overflow is damage, whatever its
    /// checksum says.
    fn ordinal(&mut self) -> Decoded<u64>;
}

impl Ordinals for Decoder<'_> {
    fn ordinal(&mut self) -> Decoded<u64> {
        let number = self.u64()?;
        if number < ORDINALS_END { Ok(number) } else { Err(Malformed("a number that no counting reaches")) }
    }
}

/// Returns the number at the end of a file's name, of six digits or more.
pub(crate) fn ordinal_in_name(name: &str, prefix: &str) -> Option<u64> {
    let digits = name.strip_prefix(prefix)?;
    let is_number = digits.len() >= 6 && digits.bytes().all(|b| b.is_ascii_digit());
    digits.parse().ok().filter(|number| is_number && *number < ORDINALS_END)
}

/// Reasons why a build cannot read something that is whole: what it names is of a later one.
pub(crate) const OTHER_NODES: &str =
    "it names another node: only a version of Cenote with stores over many nodes reads it";
pub(crate) const OTHER_ENCODINGS: &str =
    "bytes are encoded in a way that this version does not know: only one with encryption or parity may read them";

/// Returns the error for something that cannot be read: damaged, or of a later version.
#[cold]
pub(crate) fn unreadable(subject: String, why: &str) -> Error {
    if [OTHER_NODES, OTHER_ENCODINGS].contains(&why) {
        return Error::new(ErrorKind::VersionMismatch, subject)
            .because(why)
            .try_next("use the version of Cenote that wrote it");
    }
    Error::new(ErrorKind::Corrupt, subject).because(why).try_next(crate::RESTORE)
}

#[cfg(test)]
mod tests {
    #[test]
    fn numbers_in_names() {
        let number = |name| super::ordinal_in_name(name, "journal-");
        assert_eq!((number("journal-000012"), number("journal-1234567")), (Some(12), Some(1_234_567)));
        for name in ["journal-12", "journal-+00012", "journal-18446744073709551615", "checkpoint-000012", "journal-"] {
            assert_eq!(number(name), None, "{name}");
        }
    }
}
