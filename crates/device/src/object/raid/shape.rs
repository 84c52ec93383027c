//! How the bytes of one object are cut into parts. Everything follows from four numbers, which the name of each part has.

use std::ops::Range;

use cenote_layout::plan::Segment;
use cenote_layout::{Domain, Layout, Place, Scheme, UNIT_BYTES_DEFAULT, part_lengths};

/// Objects up to this size are kept as copies that survive as many losses as the layout: claims, owners, small packs.
pub(super) const SMALL_BYTES: u64 = 64 << 10;
/// A shorter unit than this saves no room that is worth another access.
const UNIT_BYTES_LEAST: u64 = 64 << 10;

/// The cut of an object: data parts, parity parts, unit and length. With one data part, the parity parts are copies.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Shape {
    pub data: u8,
    pub parity: u8,
    /// 0 for copies, which have no unit.
    pub unit_log2: u8,
    /// Bytes of the object.
    pub len: u64,
}

impl Shape {
    /// How an object of so many bytes is kept. Of a short object the unit is shorter, so that it has bytes in every part.
    pub fn of(layout: &Layout, len: u64) -> Self {
        let layout = if len <= SMALL_BYTES { layout.fresh() } else { *layout };
        let (data, parity) = match layout.scheme() {
            Scheme::Plain => (1, 0),
            Scheme::Mirror { copies } => (1, copies - 1),
            Scheme::Stripe { width } => (width, 0),
            Scheme::Coded { data, parity } => (data, parity),
        };
        let even = len.div_ceil(u64::from(data)).next_power_of_two().max(UNIT_BYTES_LEAST);
        let unit_log2 = if layout.has_units() { layout.unit_bytes().min(even).trailing_zeros() as u8 } else { 0 };
        Self { data, parity, unit_log2, len }
    }
    /// The shape of these numbers, if it is one.
    pub fn checked(data: u8, parity: u8, unit_log2: u8, len: u64) -> Option<Self> {
        let has_unit = if data > 1 { (12..=30).contains(&unit_log2) } else { unit_log2 == 0 };
        let fits = data > 0 && u16::from(data) + u16::from(parity) <= 255 && len < 1 << 48;
        (has_unit && fits).then_some(Self { data, parity, unit_log2, len })
    }
    /// As a layout, of which no two parts lie in one `domain`.
    pub fn layout(&self, domain: Domain) -> Layout {
        let scheme = match (self.data, self.parity) {
            (1, 0) => Scheme::Plain,
            (1, copies) => Scheme::Mirror { copies: copies.saturating_add(1) },
            (width, 0) => Scheme::Stripe { width },
            (data, parity) => Scheme::Coded { data, parity },
        };
        let unit_bytes = if self.data > 1 { 1 << self.unit_log2 } else { UNIT_BYTES_DEFAULT };
        // `checked` admits what a layout does.
        Layout::new(scheme, unit_bytes, domain).unwrap_or_default()
    }
    pub fn is_copies(&self) -> bool {
        self.data == 1
    }
    pub fn parts(&self) -> usize {
        usize::from(self.data) + usize::from(self.parity)
    }
    /// Bytes of a part in one full stripe; of the whole object for copies.
    pub fn unit(&self) -> u64 {
        if self.is_copies() { self.len.max(1) } else { 1 << self.unit_log2 }
    }
    pub fn stripe_bytes(&self) -> u64 {
        self.unit() * u64::from(self.data)
    }
    /// Bytes of a part: its units of all stripes, one behind the other.
    pub fn part_len(&self, part: usize) -> u64 {
        if self.is_copies() {
            return self.len;
        }
        let (full, tail) = (self.len / self.stripe_bytes(), self.len % self.stripe_bytes());
        full * self.unit() + part_lengths(&self.layout(Domain::Device), tail)[part]
    }
    /// The parts that have bytes. Later data parts of a short object have none, and no file.
    pub fn held(&self) -> impl Iterator<Item = usize> + use<> {
        let this = *self;
        (0..this.parts()).filter(move |part| this.is_copies() || this.part_len(*part) > 0 || *part == 0)
    }
    /// How many of [`Self::held`] give all bytes.
    pub fn needed(&self) -> usize {
        self.held().filter(|part| *part < usize::from(self.data)).count()
    }
    /// The stripes that have bytes of the range, for `plan_read`; `places` are those of all parts.
    pub fn segments(&self, range: &Range<u64>, places: &[Place]) -> Vec<Segment> {
        let (layout, stripe) = (self.layout(Domain::Device), self.stripe_bytes());
        let segment = |number: u64| {
            let offset = number * stripe;
            Segment::new(&layout, offset, (self.len - offset).min(stripe), places.to_vec())
        };
        (range.start / stripe..range.end.min(self.len).div_ceil(stripe)).map(segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(layout: &str, len: u64) -> Shape {
        Shape::of(&layout.parse().unwrap(), len)
    }

    #[test]
    fn small_objects_are_copies_and_short_ones_have_short_units() {
        assert_eq!(shape("4+2", 100), Shape { data: 1, parity: 2, unit_log2: 0, len: 100 });
        assert_eq!(shape("4+2", 1 << 20).unit(), 256 << 10, "1.5 times the bytes, not three times");
        assert_eq!(shape("4+2", 20 << 20).unit(), 1 << 20);
        assert_eq!(shape("mirror=3", 1 << 30).parts(), 3);
        assert_eq!(shape("stripe=3", 10).held().collect::<Vec<_>>(), [0]);
        assert_eq!(shape("plain", 10).parts(), 1);
    }

    #[test]
    fn parts_together_have_every_byte() {
        for (layout, len) in [("2+1", 65537), ("4+2", 3_000_001), ("4+2,unit=4KiB", 1 << 20), ("5+1", 5 << 20)] {
            let shape = shape(layout, len);
            let data: u64 = (0..usize::from(shape.data)).map(|part| shape.part_len(part)).sum();
            assert_eq!(data, len, "{layout}");
            let longest = (0..shape.parts()).map(|part| shape.part_len(part)).max();
            assert_eq!(longest, Some(shape.part_len(shape.parts() - 1)), "parity is as long as the longest");
            assert!(shape.held().count() - shape.needed() == usize::from(shape.parity));
            let places = vec![Place::default(); shape.parts()];
            let segments = shape.segments(&(0..len), &places);
            assert_eq!(segments.iter().map(|segment| segment.len).sum::<u64>(), len);
        }
    }

    #[test]
    fn numbers_that_are_no_shape_are_refused() {
        for (data, parity, unit) in [(0, 1, 0), (1, 1, 20), (2, 1, 0), (2, 1, 11), (200, 56, 20), (2, 1, 31)] {
            assert_eq!(Shape::checked(data, parity, unit, 9), None, "{data}+{parity}, {unit}");
        }
        assert!(Shape::checked(2, 1, 20, u64::MAX).is_none());
        assert!(Shape::checked(2, 1, 20, 9).is_some());
    }
}
