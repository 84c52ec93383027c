//! What plans begin with: how bytes are kept, and how fast places answer.

use std::ops::Range;

use crate::{Layout, Place};

/// How the bytes of a segment lie on its places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// Each place has all of them.
    Copies,
    /// Units in turns over the first `data` places; the others have parity.
    Stripe {
        /// Number of data parts.
        data: usize,
        /// Bytes of a part of the full stripe.
        unit_bytes: u64,
    },
}

/// A range of an object that is kept in one way: a range of copies, or a stripe. This is what a map says of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Segment {
    /// First byte in the object.
    pub offset: u64,
    /// Bytes of the object.
    pub len: u64,
    /// How they lie.
    pub form: Form,
    /// The place of each part: copies in any order, or data parts and then parity parts.
    pub places: Vec<Place>,
}

impl Segment {
    /// The segment that a layout makes of one stripe or span, whose bytes begin at `offset`.
    pub fn new(layout: &Layout, offset: u64, len: u64, places: Vec<Place>) -> Self {
        let stripe = Form::Stripe { data: layout.data_parts(), unit_bytes: layout.unit_bytes() };
        Self { offset, len, form: if layout.has_units() { stripe } else { Form::Copies }, places }
    }
    /// Its bytes in the object.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.len
    }
    /// The parts that have bytes. Later data parts of a short stripe have none: they are known without any place.
    pub fn held(&self) -> impl Iterator<Item = (usize, Place)> {
        self.places.iter().copied().enumerate().filter(|(part, _)| self.part_len(*part) > 0)
    }
    /// How many of [`held`](Self::held) give all bytes: one copy, or as many parts as there are data parts with bytes.
    pub fn sufficient(&self) -> usize {
        match self.form {
            Form::Copies => 1,
            Form::Stripe { data, .. } => (0..data).filter(|part| self.part_len(*part) > 0).count(),
        }
    }
    /// Bytes of one of its parts.
    pub fn part_len(&self, part: usize) -> u64 {
        match self.form {
            Form::Copies => self.len,
            Form::Stripe { data, unit_bytes } => {
                let first = if part < data { part as u64 * unit_bytes } else { 0 };
                self.len.saturating_sub(first).min(unit_bytes)
            }
        }
    }
}

/// How fast a place answers, as measured or learned.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Speed {
    /// Microseconds until the first byte of an answer, with what waits there now.
    pub latency_us: f64,
    /// Bytes per microsecond after that (MB/s).
    pub bytes_per_us: f64,
}

impl Speed {
    /// Expected microseconds of a read of so many bytes.
    pub fn expected_us(&self, bytes: u64) -> f64 {
        self.latency_us + bytes as f64 / self.bytes_per_us.max(f64::MIN_POSITIVE)
    }
}

/// What the caller knows of places: `None` for those that cannot be reached.
pub type Speeds<'a> = dyn Fn(Place) -> Option<Speed> + 'a;
