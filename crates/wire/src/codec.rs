//! The primitives of the encoding, and the envelope of requests and responses.

use cenote_codec::{Decoder, Encode as _, Subject};
use cenote_model::{Error, ErrorKind, Request, Response, Result};

use crate::between::HEAD_BYTES;
use crate::{PART_LAST, WIRE_VERSION};

/// Kind of [`Response::Bytes`], which a test compares, and the bytes of a frame before those of the object.
const BYTES: u8 = 42;
const BYTES_HEAD: usize = 1 + HEAD_BYTES + 8 + 8 + 4;

/// A type with an encoding.
pub(crate) trait Wire: Sized {
    /// Fewest bytes of any value: bounds how much a list's count can make the decoder allocate.
    const BYTES_MIN: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn take(input: &mut Input<'_>) -> Result<Self>;
    /// Encodes the elements of a list. Bytes have a faster implementation.
    fn put_all(list: &[Self], out: &mut Vec<u8>) {
        out.reserve(list.len() * Self::BYTES_MIN);
        for value in list {
            value.put(out);
        }
    }
    /// Decodes `count` elements of a list; the caller has checked that the message is long enough.
    fn take_all(input: &mut Input<'_>, count: usize) -> Result<Vec<Self>> {
        let mut list = Vec::with_capacity(count);
        for _ in 0..count {
            list.push(Self::take(input)?);
        }
        Ok(list)
    }
}

/// What is left of a message being decoded.
pub(crate) type Input<'a> = Decoder<'a, Message>;

/// What errors of decoding are about.
pub(crate) struct Message;

impl Subject for Message {
    type Error = Error;
    fn malformed(&self, why: &'static str) -> Error {
        malformed(why)
    }
}

/// The error for malformed bytes.
#[cold]
pub(crate) fn malformed(why: &str) -> Error {
    Error::new(ErrorKind::InvalidInput, "message from another process").because(why)
}

macro_rules! wire_number {
    ($($kind:ty),*) => { $(
        impl Wire for $kind {
            const BYTES_MIN: usize = size_of::<$kind>();
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            #[inline]
            fn take(input: &mut Input<'_>) -> Result<Self> {
                Ok(Self::from_le_bytes(input.array()?))
            }
        }
    )* };
}
wire_number!(u16, u32, u64, u128);

impl Wire for u8 {
    const BYTES_MIN: usize = 1;
    #[inline]
    fn put(&self, out: &mut Vec<u8>) {
        out.push(*self);
    }
    #[inline]
    fn take(input: &mut Input<'_>) -> Result<Self> {
        Ok(input.array::<1>()?[0])
    }
    fn put_all(list: &[Self], out: &mut Vec<u8>) {
        out.extend_from_slice(list);
    }
    fn take_all(input: &mut Input<'_>, count: usize) -> Result<Vec<Self>> {
        input.take(count).map(<[u8]>::to_vec)
    }
}

impl Wire for bool {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        input.flag()
    }
}

/// Encodes a byte string: count and bytes.
pub(crate) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    out.put_bytes(bytes);
}

/// The counterpart of [`put_bytes`].
pub(crate) fn take_bytes<'a>(input: &mut Input<'a>) -> Result<&'a [u8]> {
    input.bytes()
}

impl Wire for String {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        put_bytes(self.as_bytes(), out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        input.text()
    }
}

impl<T: Wire> Wire for Option<T> {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        Ok(if bool::take(input)? { Some(T::take(input)?) } else { None })
    }
}

impl<T: Wire> Wire for Vec<T> {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        T::put_all(self, out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let count = input.count(T::BYTES_MIN)?;
        T::take_all(input, count)
    }
}

impl<T: Wire> Wire for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        T::take(input).map(Self::new)
    }
}

impl<const N: usize> Wire for [u64; N] {
    const BYTES_MIN: usize = 8 * N;
    fn put(&self, out: &mut Vec<u8>) {
        for number in self {
            number.put(out);
        }
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let mut all = [0; N];
        for number in &mut all {
            *number = u64::take(input)?;
        }
        Ok(all)
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    const BYTES_MIN: usize = A::BYTES_MIN + B::BYTES_MIN;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        Ok((A::take(input)?, B::take(input)?))
    }
}

/// Implements [`Wire`] for a structure, field by field.
macro_rules! wire_struct {
    ($name:ty, $min:expr, { $($field:ident),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            const BYTES_MIN: usize = $min;
            #[inline]
            fn put(&self, out: &mut Vec<u8>) {
                $( $crate::codec::Wire::put(&self.$field, out); )*
            }
            #[inline]
            fn take(input: &mut $crate::codec::Input<'_>) -> cenote_model::Result<Self> {
                $( let $field = $crate::codec::Wire::take(input)?; )*
                Ok(Self { $($field),* })
            }
        }
    };
}

/// Implements [`Wire`] for an enumeration: a tag byte, then the fields in order.
macro_rules! wire_enum {
    ($name:ty, $min:literal, $what:literal, { $( $tag:literal => $variant:ident $( { $($field:ident),* $(,)? } )? $( ( $($item:ident),* ) )? ),* $(,)? }) => {
        impl $crate::codec::Wire for $name {
            const BYTES_MIN: usize = $min;
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $( Self::$variant $( { $($field),* } )? $( ( $($item),* ) )? => {
                        out.push($tag);
                        $( $( $crate::codec::Wire::put($field, out); )* )?
                        $( $( $crate::codec::Wire::put($item, out); )* )?
                    } )*
                }
            }
            fn take(input: &mut $crate::codec::Input<'_>) -> cenote_model::Result<Self> {
                match <u8 as $crate::codec::Wire>::take(input)? {
                    $( $tag => {
                        $( $( let $field = $crate::codec::Wire::take(input)?; )* )?
                        $( $( let $item = $crate::codec::Wire::take(input)?; )* )?
                        Ok(Self::$variant $( { $($field),* } )? $( ( $($item),* ) )?)
                    } )*
                    _ => Err($crate::codec::malformed(concat!("unknown ", $what))),
                }
            }
        }
    };
}
pub(crate) use {wire_enum, wire_struct};

/// Appends a message to `out`.
pub(crate) fn encode<T: Wire>(seq: u64, value: &T, out: &mut Vec<u8>) {
    out.push(WIRE_VERSION);
    seq.put(out);
    value.put(out);
}

/// Decodes a message that fills `bytes`.
pub(crate) fn decode<T: Wire>(bytes: &[u8]) -> Result<(u64, T)> {
    let mut input = Input::of(Message, bytes);
    let version = u8::take(&mut input)?;
    if version != WIRE_VERSION {
        return Err(Error::new(ErrorKind::VersionMismatch, "message from another process")
            .because(format!("it speaks version {version}, this process version {WIRE_VERSION}"))
            .try_next("use one version of Cenote on this node, and restart the daemon (`cenote stop DIR`)"));
    }
    let seq = u64::take(&mut input)?;
    let value = T::take(&mut input)?;
    input.end()?;
    Ok((seq, value))
}

/// Appends request number `seq` to `out`.
pub fn encode_request(seq: u64, request: &Request, out: &mut Vec<u8>) {
    encode(seq, request, out);
}

/// Decodes a request and its number from bytes that may be hostile.
pub fn decode_request(bytes: &[u8]) -> Result<(u64, Request)> {
    decode(bytes)
}

/// Appends the response to request `seq` to `out`.
pub fn encode_response(seq: u64, response: &Response, out: &mut Vec<u8>) {
    encode(seq, response, out);
}

/// Appends the response to request `seq` that brings bytes of an object, without these bytes: they are to follow.
pub fn encode_bytes_head(seq: u64, (size, version): (u64, u64), len: usize, out: &mut Vec<u8>) {
    encode_response(seq, &Response::Bytes { size, version, bytes: Vec::new() }, out);
    let at = out.len() - size_of::<u32>();
    out[at..].copy_from_slice(&(len as u32).to_le_bytes());
}

/// Where the bytes begin in a frame that is a whole response with bytes of an object, from the frame's beginning.
pub fn bytes_in_frame(frame: &[u8]) -> Option<usize> {
    let is_so = frame.first() == Some(&PART_LAST) && frame.get(HEAD_BYTES) == Some(&BYTES);
    (is_so && frame.len() >= BYTES_HEAD).then_some(BYTES_HEAD)
}

/// Decodes such a response, whose bytes lie apart, and the number of its request.
pub fn decode_bytes(head: &[u8], bytes: Vec<u8>) -> Result<(u64, Response)> {
    let (seq, size, version) = decode_bytes_head(head.get(1..).unwrap_or_default(), bytes.len())?;
    Ok((seq, Response::Bytes { size, version, bytes }))
}

/// Decodes what stands before so many bytes of an object, without the mark of a frame: the number of the request, the object's size
/// and its version.
fn decode_bytes_head(head: &[u8], bytes: usize) -> Result<(u64, u64, u64)> {
    let (head, len) = head.split_last_chunk::<4>().ok_or_else(|| malformed("no head"))?;
    if u32::from_le_bytes(*len) as usize != bytes {
        return Err(malformed("a count past the end"));
    }
    match decode_response(&[head, &[0; 4]].concat())? {
        (seq, Response::Bytes { size, version, .. }) => Ok((seq, size, version)),
        _ => Err(malformed("another response")),
    }
}

/// An answer with bytes of an object that another node has passed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PassedBytes {
    /// The number of the request.
    pub seq: u64,
    /// The object's size.
    pub size: u64,
    /// Its version.
    pub version: u64,
    /// Where the bytes begin in the answer; they are all of the rest.
    pub begin: usize,
}

/// Finds the bytes of an object in an encoded response, from bytes that may be hostile. `None` if it is another response.
pub fn passed_bytes(response: &[u8]) -> Result<Option<PassedBytes>> {
    let begin = BYTES_HEAD - 1; // without the mark of a frame
    let Some(head) = response.get(..begin).filter(|head| head[HEAD_BYTES - 1] == BYTES) else { return Ok(None) };
    let (seq, size, version) = decode_bytes_head(head, response.len() - begin)?;
    Ok(Some(PassedBytes { seq, size, version, begin }))
}

/// Decodes a response and the number of its request from bytes that may be hostile.
pub fn decode_response(bytes: &[u8]) -> Result<(u64, Response)> {
    decode(bytes)
}
