//! The record of a register: a view, the stamp that names the swap that brought it, and a checksum.
//!
//! A stamp is drawn at random for each attempt to swap and never again, so whoever is not answered finds out by reading:
//! the record has its own stamp, or another's. A record keeps the stamps of some views before it, so that the answer is
//! there for a while even after others have gone on.

use cenote_codec::{Decoder, Encode as _, Subject, u32_at};
use cenote_device::sums;
use cenote_ha::View;
use cenote_model::{Error, ErrorKind, Result};

use super::view;

/// Longest record, in bytes. etcd takes requests of up to 1.5 MiB; a member needs some 50 bytes.
pub(super) const RECORD_BYTES_MAX: usize = 1 << 20;
/// How many stamps of earlier views a record keeps.
pub(super) const EARLIER_MAX: usize = 15;

const MAGIC: [u8; 8] = *b"CNTVIEW\0";
const RECORD_VERSION: u16 = 5;
/// Magic, version, length of the body.
const HEAD_BYTES: usize = 8 + 2 + 4;
const SUM_BYTES: usize = 4;

/// Names one attempt to swap: drawn at random, never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Stamp(pub u128);

impl Stamp {
    /// A new one.
    pub fn draw() -> Result<Self> {
        let mut bytes = [0; 16];
        // The kernel answers a request of up to 256 bytes whole.
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|errno| {
            Error::io("a random stamp for the register", &errno.into())
                .try_next("let the process use the system call `getrandom`")
        })?;
        Ok(Self(u128::from_le_bytes(bytes)))
    }
}

/// An attempt to swap, by which its outcome can be found later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attempt {
    /// The number that its view was to have.
    pub number: u64,
    /// Its stamp.
    pub stamp: Stamp,
}

/// What became of an attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It took place.
    Won,
    /// It did not, and never will: another view has its number.
    Lost,
    /// Not yet: the register has the view before it. It may still be on its way.
    Open,
    /// So many views have followed that the record does not tell.
    Forgotten,
}

/// Says which record was seen: what a swap is to replace.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Token {
    pub(super) number: u64,
    pub(super) stamp: Stamp,
    /// Stamps of the views before, the last one first.
    pub(super) earlier: Vec<Stamp>,
}

impl Token {
    /// The number of the view.
    pub fn number(&self) -> u64 {
        self.number
    }
    /// The stamp of the swap that brought the view.
    pub fn stamp(&self) -> Stamp {
        self.stamp
    }
    /// What the record says of an attempt.
    pub fn tells(&self, attempt: &Attempt) -> Outcome {
        let Some(back) = self.number.checked_sub(attempt.number) else { return Outcome::Open };
        let had = match usize::try_from(back) {
            Ok(0) => Some(&self.stamp),
            Ok(back) => self.earlier.get(back - 1),
            Err(_) => None,
        };
        match had {
            Some(stamp) if *stamp == attempt.stamp => Outcome::Won,
            Some(_) => Outcome::Lost,
            // The first view has none before it, so nothing was forgotten.
            None if self.earlier.len() < EARLIER_MAX => Outcome::Lost,
            None => Outcome::Forgotten,
        }
    }
    /// The token of a view that follows this one.
    pub(super) fn following(seen: Option<&Self>, number: u64, stamp: Stamp) -> Self {
        let earlier = seen.map_or(Vec::new(), |seen| {
            std::iter::once(seen.stamp).chain(seen.earlier.iter().copied()).take(EARLIER_MAX).collect()
        });
        Self { number, stamp, earlier }
    }
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u64(self.number);
        out.put_u128(self.stamp.0);
        out.put_u8(self.earlier.len() as u8);
        for stamp in &self.earlier {
            out.put_u128(stamp.0);
        }
    }
    pub(super) fn decode<S: Subject>(from: &mut Decoder<'_, S>) -> Result<Self, S::Error> {
        let (number, stamp, count) = (from.u64()?, Stamp(from.u128()?), usize::from(from.u8()?));
        if count > EARLIER_MAX {
            return Err(from.malformed("more stamps than a record keeps"));
        }
        let earlier = (0..count).map(|_| from.u128().map(Stamp)).collect::<Result<_, _>>()?;
        Ok(Self { number, stamp, earlier })
    }
}

/// The bytes of a record. `subject`: the register, for errors.
pub(super) fn encode(subject: &str, token: &Token, view: &View) -> Result<Vec<u8>> {
    let mut out = Vec::with_capacity(512);
    out.extend_from_slice(&MAGIC);
    out.put_u16(RECORD_VERSION);
    out.put_u32(0);
    token.encode(&mut out);
    view::encode(view, &mut out);
    let body = (out.len() - HEAD_BYTES) as u32;
    out[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&body.to_le_bytes());
    out.put_u32(sums::sum_of(&out));
    if out.len() <= RECORD_BYTES_MAX {
        return Ok(out);
    }
    Err(Error::new(ErrorKind::LimitExceeded, format!("view {} for {subject}", view.number))
        .because(format!("it takes {} bytes; a register keeps {RECORD_BYTES_MAX}", out.len()))
        .try_next("remove members that have left for good: `cenote cluster`"))
}

/// The register whose bytes are decoded.
struct Of<'a>(&'a str);

impl Subject for Of<'_> {
    type Error = Error;
    fn malformed(&self, why: &'static str) -> Error {
        corrupt(self.0, why)
    }
}

/// The error for a record that is none.
#[cold]
pub(super) fn corrupt(subject: &str, why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, subject).because(format!("its record is no view: {}", why.into())).try_next(
        "nothing changes it until a person does: look who wrote it, then put a copy of the last good record there, or \
         remove it and let the cluster be started anew",
    )
}

/// Reads a record's bytes. `Corrupt` if they are none; `VersionMismatch` if they are a later version's.
pub(super) fn decode(subject: &str, bytes: &[u8]) -> Result<(View, Token)> {
    let body = body(subject, bytes)?;
    let mut from: Decoder<'_, Of<'_>> = Decoder::of(Of(subject), body);
    let token = Token::decode(&mut from)?;
    let view = view::decode(&mut from)?;
    from.end()?;
    if token.number != view.number {
        return Err(corrupt(subject, "two numbers of its view"));
    }
    Ok((view, token))
}

/// The body, once the frame around it is found whole.
fn body<'a>(subject: &str, bytes: &'a [u8]) -> Result<&'a [u8]> {
    if bytes.len() < HEAD_BYTES + SUM_BYTES || bytes.len() > RECORD_BYTES_MAX || bytes[..8] != MAGIC {
        return Err(corrupt(subject, "it does not begin as one, or is too short or too long"));
    }
    let version = u16::from_le_bytes([bytes[8], bytes[9]]);
    if version != RECORD_VERSION {
        return Err(Error::new(ErrorKind::VersionMismatch, subject)
            .because(format!("its record has version {version}, this program reads {RECORD_VERSION}"))
            .try_next("run the same version of Cenote on all nodes"));
    }
    let (framed, sum) = bytes.split_at(bytes.len() - SUM_BYTES);
    if u32_at(bytes, HEAD_BYTES - 4) as usize != framed.len() - HEAD_BYTES {
        return Err(corrupt(subject, "it is torn: its length is another"));
    }
    if sums::sum_of(framed) != u32_at(sum, 0) {
        return Err(corrupt(subject, "it does not match its checksum"));
    }
    Ok(&framed[HEAD_BYTES..])
}
