//! What the head object says: which files there are, and who has the store.

use std::fmt;

use cenote_model::{Error, ErrorKind, Result};

/// Name of the head object.
pub(super) const HEAD: &str = "head";
/// Attribute of the head and of each part of a log: the holder's number, a `u64`, little-endian.
pub(super) const TERM: &str = "term";
/// Attribute of the same objects: which change was the last one, by a number that no other change has.
pub(super) const CHANGE: &str = "change";
/// Attribute of the head: a [`Holder`].
pub(super) const HOLDER: &str = "holder";
/// Record of the head that is no file: names of files do not begin with a dot. An erasure-coded pool refuses it.
pub(super) const FORMAT: &str = ".format";
/// Value of [`FORMAT`].
pub(super) const FORMAT_TEXT: &str = "cenote-home 1";

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Replaced as a whole.
    File,
    /// Changed in place; each part has the term as an attribute.
    Log,
}

/// A file: the value of the record with its name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Record {
    pub kind: Kind,
    /// First part of the names of its objects.
    pub object: String,
    /// Length of a file, or capacity of a log.
    pub bytes: u64,
    /// CRC-32C of a file.
    pub sum: u32,
}

impl Record {
    pub fn encode(&self) -> String {
        match self.kind {
            Kind::File => format!("file {} {} {:08x}", self.object, self.bytes, self.sum),
            Kind::Log => format!("log {} {}", self.object, self.bytes),
        }
    }
    /// Reads a record of the store at `subject`. `Corrupt` if it is none.
    pub fn decode(subject: &str, name: &str, bytes: &[u8]) -> Result<Self> {
        let words = std::str::from_utf8(bytes).unwrap_or("").split(' ').collect::<Vec<_>>();
        let record = match words[..] {
            ["file", object, bytes, sum] => Self::of(Kind::File, object, bytes, sum),
            ["log", object, bytes] => Self::of(Kind::Log, object, bytes, "0"),
            _ => None,
        };
        record.ok_or_else(|| {
            Error::new(ErrorKind::Corrupt, format!("file `{name}` of {subject}"))
                .because("its record in the head object cannot be read, or is of a later version")
                .try_next("open the store with the version that had it last")
        })
    }
    fn of(kind: Kind, object: &str, bytes: &str, sum: &str) -> Option<Self> {
        let (bytes, sum) = (bytes.parse().ok()?, u32::from_str_radix(sum, 16).ok()?);
        term_of(object).map(|_| Self { kind, object: object.to_owned(), bytes, sum })
    }
    /// Returns true if these are the file's bytes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        self.bytes == bytes.len() as u64 && self.sum == crate::sums::sum_of(bytes)
    }
}

/// First part of the names of a file's objects: the term in which it was made, and a number.
pub(super) fn object_name(term: u64, number: u64) -> String {
    format!("{term:010}-{number:06}")
}

/// The term in an object's name; `None` for names of other kinds.
pub(super) fn term_of(object: &str) -> Option<u64> {
    let (term, number) = object.split('.').next()?.split_once('-')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number(number).then_some(())?;
    is_number(term).then(|| term.parse().ok()).flatten()
}

/// Who has a store, or had it last.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// Number of the opening.
    pub term: u64,
    /// Name of the node.
    pub host: String,
    /// Process id there.
    pub pid: u32,
    /// Directory there, for people.
    pub dir: String,
    /// Since when, in milliseconds since 1970 by that node's clock.
    pub since_unix_ms: u64,
    /// For how long it may take changes without asking the pool, in milliseconds.
    pub trust_ms: u64,
    /// It let the store go.
    pub is_released: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = if self.is_released { "last opened" } else { "opened" };
        let Self { term, host, pid, dir, .. } = self;
        write!(f, "{verb} in {dir} on {host} by process {pid} (term {term})")
    }
}

/// The value of [`HOLDER`]. `nonce`: drawn by each opening, so that it knows itself.
pub(super) fn encode_holder(holder: &Holder, nonce: &str) -> String {
    let Holder { host, pid, dir, since_unix_ms, trust_ms, is_released, .. } = holder;
    let (host, dir) = (one_line(host), one_line(dir));
    format!(
        "nonce {nonce}\nhost {host}\npid {pid}\ndir {dir}\nsince {since_unix_ms}\ntrust {trust_ms}\nreleased {is_released}\n"
    )
}

fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// The holder and its nonce. What is missing or damaged stays at its default: the term alone decides who has the store.
pub(super) fn decode_holder(term: u64, bytes: &[u8]) -> (Holder, String) {
    let text = String::from_utf8_lossy(bytes);
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')).unwrap_or("");
    let holder = Holder {
        term,
        host: field("host").to_owned(),
        pid: field("pid").parse().unwrap_or(0),
        dir: field("dir").to_owned(),
        since_unix_ms: field("since").parse().unwrap_or(0),
        trust_ms: field("trust").parse().unwrap_or(super::Timing::default().trust.as_millis() as u64),
        is_released: field("released") == "true",
    };
    (holder, field("nonce").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written_and_others_refused() {
        for kind in [Kind::File, Kind::Log] {
            let sum = if kind == Kind::File { 0xfeed } else { 0 };
            let record = Record { kind, object: object_name(7, 12), bytes: 1 << 40, sum };
            assert_eq!(Record::decode("s", "f", record.encode().as_bytes()).unwrap(), record);
        }
        for bad in ["", "file", "file x 1 0", "dir 0000000007-000012 1", "log 0000000007-000012 -1", "log ../x 5"] {
            let error = Record::decode("s", "f", bad.as_bytes()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{bad}");
        }
    }

    #[test]
    fn names_of_objects_have_their_term_and_other_names_none() {
        assert_eq!(term_of(&object_name(u64::MAX, 3)), Some(u64::MAX));
        assert_eq!(term_of(&format!("{}.0003", object_name(9, 3))), Some(9));
        for other in [HEAD, "", "-", "7-", "-7", "x7-1", "7-x", "0.0"] {
            assert_eq!(term_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_holder_comes_back_and_is_one_line_a_field() {
        let dir = "/a\nreleased true\n".to_owned();
        let holder =
            Holder { term: 4, host: "n1".into(), pid: 77, dir, since_unix_ms: 5, trust_ms: 1500, is_released: false };
        let (read, nonce) = decode_holder(4, encode_holder(&holder, "abc").as_bytes());
        assert_eq!((nonce.as_str(), read.is_released, read.dir.as_str()), ("abc", false, "/a?released true?"));
        assert_eq!((read.host, read.pid, read.since_unix_ms), (holder.host, 77, 5));
        assert!(decode_holder(1, b"\xff").0.trust_ms > 0, "a successor waits, whatever it reads");
    }
}
