//! Which bytes of an object are which bytes of which part.
//!
//! Stripe `s` of an object holds its bytes from `s * stripe_bytes`. In a stripe, unit `i` is the whole of data part `i`;
//! so a part of a stripe is one run of at most a unit, or, without units, of at most a span.

use std::ops::Range;

use crate::Layout;

/// A range of an object that lies in one part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// The stripe of the object.
    pub stripe: u64,
    /// The data part. For mirrors 0: every copy has the same bytes.
    pub part: usize,
    /// First byte in that part.
    pub part_offset: u64,
    /// First byte in the object.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The pieces of a byte range, in order of the object's bytes. Together they are the range.
pub fn pieces(layout: &Layout, range: Range<u64>) -> impl Iterator<Item = Piece> + use<> {
    let (stripe_bytes, unit) = (layout.stripe_bytes(), part_bytes(layout));
    let mut at = range.start;
    std::iter::from_fn(move || {
        let left = range.end.checked_sub(at).filter(|left| *left > 0)?;
        let (stripe, within) = (at / stripe_bytes, at % stripe_bytes);
        let part_offset = within % unit;
        let len = left.min(unit - part_offset);
        let piece = Piece { stripe, part: (within / unit) as usize, part_offset, offset: at, len };
        at += len;
        Some(piece)
    })
}

/// Bytes of a part of a full stripe.
fn part_bytes(layout: &Layout) -> u64 {
    layout.stripe_bytes() / layout.data_parts() as u64
}

impl Piece {
    /// The first byte in the object of what lies at `part_offset` of a data part: the inverse of [`pieces`].
    pub fn object_offset(layout: &Layout, stripe: u64, part: usize, part_offset: u64) -> u64 {
        stripe * layout.stripe_bytes() + part as u64 * part_bytes(layout) + part_offset
    }
}

/// The bytes of each part of a stripe that has so many bytes of the object, parity last; every copy of a mirror. The last stripe of an object is
/// shorter: its later data parts are, and may have none, and parity is as long as the longest. Bytes that a data part
/// lacks count as zeros in parity and are not kept.
pub fn part_lengths(layout: &Layout, stripe_len: u64) -> Vec<u64> {
    let (unit, data) = (part_bytes(layout), layout.data_parts());
    let of_data = |part: u64| stripe_len.saturating_sub(part * unit).min(unit);
    // Parity is as long as the longest data part; a copy as long as the other copies.
    let longest = of_data(0);
    (0..layout.parts()).map(|part| if part < data { of_data(part as u64) } else { longest }).collect()
}

/// How the bytes of a write to one stripe are kept first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WriteAs {
    /// In the layout itself: it has no parity, or the stripe is written as a whole.
    Stripe,
    /// As so many copies, until the stripe is full (see [`Coverage`](crate::Coverage)) or quiet. They survive as many
    /// losses, and parity is never changed in place.
    Copies(usize),
}

/// The part of a write that falls into one stripe.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StripeWrite {
    /// The stripe of the object.
    pub stripe: u64,
    /// Bytes of the object.
    pub range: Range<u64>,
    /// How they are kept.
    pub write_as: WriteAs,
}

/// Cuts a write at stripes and says of each how its bytes are kept: full stripes are encoded, partial ones copied.
pub fn plan_write(layout: &Layout, range: Range<u64>) -> Vec<StripeWrite> {
    let stripe_bytes = layout.stripe_bytes();
    let (first, end) = (range.start / stripe_bytes, range.end.div_ceil(stripe_bytes));
    let fresh = layout.fresh();
    let cut = |stripe: u64| {
        let whole = stripe * stripe_bytes..stripe.saturating_add(1).saturating_mul(stripe_bytes);
        let within = range.start.max(whole.start)..range.end.min(whole.end);
        let is_final = fresh == *layout || within == whole;
        let write_as = if is_final { WriteAs::Stripe } else { WriteAs::Copies(fresh.parts()) };
        StripeWrite { stripe, range: within, write_as }
    };
    if range.is_empty() { Vec::new() } else { (first..end).map(cut).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_stripes_are_encoded_and_partial_ones_copied() {
        let layout: Layout = "4+2,unit=4KiB".parse().unwrap();
        let write = plan_write(&layout, 10_000..50_000);
        let kept: Vec<_> = write.iter().map(|one| (one.stripe, one.range.clone(), one.write_as)).collect();
        let copies = WriteAs::Copies(3);
        let expected =
            [(0, 10_000..16_384, copies), (1, 16_384..32_768, WriteAs::Stripe), (2, 32_768..49_152, WriteAs::Stripe)];
        assert_eq!(kept[..3], expected);
        assert_eq!(kept[3], (3, 49_152..50_000, copies));
        assert!(plan_write(&layout, 7..7).is_empty());
        let mirror: Layout = "mirror=2".parse().unwrap();
        assert_eq!(plan_write(&mirror, 5..9)[0].write_as, WriteAs::Stripe);
    }

    #[test]
    fn parts_of_a_short_stripe_have_what_is_there() {
        let layout: Layout = "3+2,unit=4KiB".parse().unwrap();
        assert_eq!(part_lengths(&layout, 12_288), [4096; 5]);
        assert_eq!(part_lengths(&layout, 5000), [4096, 904, 0, 4096, 4096]);
        assert_eq!(part_lengths(&layout, 10), [10, 0, 0, 10, 10]);
        assert_eq!(part_lengths(&"mirror=2".parse().unwrap(), 10), [10, 10]);
    }
}
