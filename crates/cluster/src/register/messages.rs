//! What nodes ask the node that has the register, and what it answers, as bytes. Whoever carries them knows nothing of them.

use cenote_codec::{Decoder, Encode as _, Subject};
use cenote_ha::View;
use cenote_model::{Error, ErrorKind, Result};

use super::{Attempt, Held, Register, Stamp, SwapError, Swapped, Token, view};

/// First byte of each message.
const MESSAGE_VERSION: u8 = 5;

const READ: u8 = 1;
const SWAP: u8 = 2;

const HELD: u8 = 1;
const WON: u8 = 2;
const LOST: u8 = 3;
const FAILED: u8 = 4;
const UNKNOWN: u8 = 5;

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterRequest {
    /// [`Register::read`].
    Read,
    /// [`Register::swap_as`].
    Swap {
        /// What is to be replaced.
        seen: Option<Token>,
        /// By what.
        view: View,
        /// Names the attempt.
        stamp: Stamp,
    },
}

/// The answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RegisterAnswer {
    /// What the register holds.
    Held(Option<Held>),
    /// The swap took place.
    Won(Token),
    /// It did not: the register holds this.
    Lost(Option<Held>),
    /// Nothing was done, for this reason.
    Failed(Error),
    /// Whether the swap takes place is unknown.
    Unknown(Error),
}

/// Answers a question of another node. Bytes that are none are answered, too.
pub fn answer(register: &dyn Register, request: &[u8]) -> Vec<u8> {
    let answer = match RegisterRequest::decode(request) {
        Err(error) => RegisterAnswer::Failed(error),
        Ok(RegisterRequest::Read) => register.read().map_or_else(RegisterAnswer::Failed, RegisterAnswer::Held),
        Ok(RegisterRequest::Swap { seen, view, stamp }) => match register.swap_as(seen.as_ref(), &view, stamp) {
            Ok(Swapped::Won(token)) => RegisterAnswer::Won(token),
            Ok(Swapped::Lost(held)) => RegisterAnswer::Lost(held),
            Err(SwapError::Failed(error)) => RegisterAnswer::Failed(error),
            Err(SwapError::Unknown(Attempt { .. }, error)) => RegisterAnswer::Unknown(error),
        },
    };
    answer.encode()
}

/// What errors of decoding are about.
struct Message;

impl Subject for Message {
    type Error = Error;
    fn malformed(&self, why: &'static str) -> Error {
        Error::new(ErrorKind::InvalidInput, "a message about the register")
            .because(why)
            .try_next("run the same version of Cenote on all nodes")
    }
}

type Input<'a> = Decoder<'a, Message>;

/// The message behind its version.
fn open(bytes: &[u8]) -> Result<Input<'_>> {
    let mut from: Input<'_> = Decoder::of(Message, bytes);
    match from.u8()? {
        MESSAGE_VERSION => Ok(from),
        version => Err(Error::new(ErrorKind::VersionMismatch, "a message about the register")
            .because(format!("it has version {version}, this program reads {MESSAGE_VERSION}"))
            .try_next("run the same version of Cenote on all nodes")),
    }
}

impl RegisterRequest {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![MESSAGE_VERSION];
        match self {
            Self::Read => out.put_u8(READ),
            Self::Swap { seen, view, stamp } => {
                out.put_u8(SWAP);
                out.put_u128(stamp.0);
                out.put_u8(u8::from(seen.is_some()));
                if let Some(seen) = seen {
                    seen.encode(&mut out);
                }
                view::encode(view, &mut out);
            }
        }
        out
    }
    /// From bytes that anybody may have sent.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open(bytes)?;
        let request = match from.u8()? {
            READ => Self::Read,
            SWAP => {
                let stamp = Stamp(from.u128()?);
                let seen = if from.flag()? { Some(Token::decode(&mut from)?) } else { None };
                Self::Swap { seen, view: view::decode(&mut from)?, stamp }
            }
            _ => return Err(from.malformed("an unknown question")),
        };
        from.end().map(|()| request)
    }
}

impl RegisterAnswer {
    /// As bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![MESSAGE_VERSION];
        match self {
            Self::Held(held) => put_held(HELD, held.as_ref(), &mut out),
            Self::Lost(held) => put_held(LOST, held.as_ref(), &mut out),
            Self::Won(token) => {
                out.put_u8(WON);
                token.encode(&mut out);
            }
            Self::Failed(error) => put_error(FAILED, error, &mut out),
            Self::Unknown(error) => put_error(UNKNOWN, error, &mut out),
        }
        out
    }
    /// From bytes that anybody may have sent.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = open(bytes)?;
        let answer = match from.u8()? {
            HELD => Self::Held(take_held(&mut from)?),
            LOST => Self::Lost(take_held(&mut from)?),
            WON => Self::Won(Token::decode(&mut from)?),
            FAILED => Self::Failed(take_error(&mut from)?),
            UNKNOWN => Self::Unknown(take_error(&mut from)?),
            _ => return Err(from.malformed("an unknown answer")),
        };
        from.end().map(|()| answer)
    }
}

pub(crate) fn put_held(kind: u8, held: Option<&Held>, out: &mut Vec<u8>) {
    out.put_u8(kind);
    out.put_u8(u8::from(held.is_some()));
    if let Some((view, token)) = held {
        token.encode(out);
        view::encode(view, out);
    }
}

pub(crate) fn take_held<S: Subject>(from: &mut Decoder<'_, S>) -> Result<Option<Held>, S::Error> {
    if !from.flag()? {
        return Ok(None);
    }
    let token = Token::decode(from)?;
    let view = view::decode(from)?;
    if token.number() != view.number {
        return Err(from.malformed("two numbers of its view"));
    }
    Ok(Some((view, token)))
}

pub(crate) fn put_error(kind: u8, error: &Error, out: &mut Vec<u8>) {
    out.put_u8(kind);
    out.put_u8(error.kind() as u8);
    for text in [error.subject(), error.cause(), error.next_step()] {
        out.put_bytes(text.as_bytes());
    }
}

pub(crate) fn take_error<S: Subject>(from: &mut Decoder<'_, S>) -> Result<Error, S::Error> {
    let kind = ErrorKind::from_code(from.u8()?).unwrap_or(ErrorKind::Internal);
    Ok(Error::new(kind, from.text()?).because(from.text()?).try_next(from.text()?))
}
