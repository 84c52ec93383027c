//! The bytes of records: whose they are, for errors. How numbers and strings lie in them is `cenote_codec`'s.

use cenote::{Error, ErrorKind};
use cenote_codec::{Decoder, Subject};

pub use cenote_codec::Encode;

/// A record by what errors call it.
#[derive(Clone, Copy, Debug)]
pub struct Record(&'static str);

impl From<&'static str> for Record {
    fn from(what: &'static str) -> Self {
        Self(what)
    }
}

impl Subject for Record {
    type Error = Error;
    fn malformed(&self, why: &'static str) -> Error {
        Error::new(ErrorKind::Corrupt, self.0).because(why).try_next("run `cenote verify` on the store")
    }
}

/// Takes a record apart; every step checks its bounds.
pub type Reader<'a> = Decoder<'a, Record>;
