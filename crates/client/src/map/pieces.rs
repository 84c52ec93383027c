//! What a client knows of one object's map: pieces of known content, and gaps where it must ask.

use std::sync::Arc;

use cenote_model::{DeviceId, Extent, OffsetMap, UnitBytes};

/// Allocation units of devices that clients read, as stores have them.
const MEMORY_UNIT_BYTES: u64 = 512;
const FILE_UNIT_BYTES: u64 = 4096;

/// How this process gets a piece's bytes. `data::source` turns extents into sources, and sources into bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Nowhere: zeros.
    Hole,
    /// In mapped memory of a device, at this address. The segment table keeps the mapping for as long as the link lives.
    Mapped(usize, DeviceId),
    /// Where this process cannot read them: they come through the link to the engine, which brings them to another device first
    /// or carries them in its answers.
    ThroughLink,
    /// In a file: `skip` bytes into what the extent shows.
    File { extent: Arc<Extent>, skip: u32 },
}

impl Source {
    fn after(&self, bytes: u64) -> Self {
        match self {
            Self::Hole => Self::Hole,
            Self::ThroughLink => Self::ThroughLink,
            Self::Mapped(address, device) => Self::Mapped(address + bytes as usize, *device),
            Self::File { extent, skip } => Self::File { extent: extent.clone(), skip: skip + bytes as u32 },
        }
    }
}

/// Part of a read: `len` bytes from `source`, which go to `at` bytes into the caller's buffer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub at: usize,
    pub len: usize,
    pub source: Source,
}

/// What is looked for in a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seek {
    /// Bytes that were written.
    Data,
    /// What never was, or no longer is. The end of the object is one.
    Hole,
}

/// What was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sought {
    /// It begins here.
    At(u64),
    /// There is none before the object's end.
    None,
    /// None so far; from here on it is not known.
    Unknown(u64),
}

#[derive(Clone, Debug)]
struct Piece {
    len: u64,
    source: Source,
}

/// The known pieces, by the offset that each begins at. They do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Pieces(OffsetMap<Piece>);

impl Pieces {
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// All that is known: offset, length, source.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, Source)> {
        self.0.from_floor(0).map(|(at, piece)| (at, piece.len, piece.source.clone()))
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether the map is sound and no two pieces overlap.
    #[cfg(test)]
    pub fn check(&self) -> Result<(), String> {
        self.0.check()?;
        let mut end = 0;
        for (at, len, _) in self.iter() {
            if at < end || len == 0 {
                return Err(format!("the piece of {len} bytes at {at} begins before {end} or is empty"));
            }
            end = at + len;
        }
        Ok(())
    }
    /// Appends the parts of `[offset, offset + len)` that are known without a gap; returns how many bytes they cover.
    pub fn parts(&self, offset: u64, len: usize, base: usize, parts: &mut impl Extend<Part>) -> usize {
        let mut done = 0usize;
        for (at, piece) in self.0.from_floor(offset) {
            let want = offset + done as u64;
            if done >= len || at > want {
                break;
            }
            let inside = want - at;
            if inside >= piece.len {
                continue; // only the first can end before the range
            }
            let n = (piece.len - inside).min((len - done) as u64) as usize;
            parts.extend([Part { at: base + done, len: n, source: piece.source.after(inside) }]);
            done += n;
        }
        done
    }
    /// The known parts of `[offset, offset + len)`, gaps or not.
    pub fn overlaps(&self, offset: u64, len: usize) -> Vec<Part> {
        let end = offset.saturating_add(len as u64);
        let inside = |(at, piece): (u64, &Piece)| {
            let (from, to) = (at.max(offset), (at + piece.len).min(end));
            (from < to).then(|| Part {
                at: (from - offset) as usize,
                len: (to - from) as usize,
                source: piece.source.after(from - at),
            })
        };
        self.0.from_floor(offset).take_while(|(at, _)| *at < end).filter_map(inside).collect()
    }
    /// Looks from `offset` on, in an object of `size` bytes, for data or a hole.
    pub fn seek(&self, offset: u64, size: u64, what: Seek) -> Sought {
        let mut at = offset;
        for (begin, piece) in self.0.from_floor(offset) {
            let end = begin + piece.len;
            if end <= at {
                continue; // only the first can end before the offset
            }
            if begin > at || at >= size {
                break;
            }
            if matches!(piece.source, Source::Hole) == (what == Seek::Hole) {
                return Sought::At(at);
            }
            at = end;
        }
        match what {
            _ if at < size => Sought::Unknown(at),
            Seek::Hole if offset < size => Sought::At(size),
            _ => Sought::None,
        }
    }
    /// Bytes that an object of `size` bytes takes, in allocation units; none if not all of it is known, or it is in too
    /// many pieces to count. What neighbours share counts once.
    pub fn taken(&self, size: u64) -> Option<u64> {
        const COUNTED_MAX: usize = 4096;
        let (mut at, mut taken) = (0, UnitBytes::default());
        for (begin, piece) in self.0.from_floor(0).take(COUNTED_MAX) {
            if begin > at || at >= size {
                break;
            }
            at = begin + piece.len;
            let len = at.min(size) - begin;
            match &piece.source {
                Source::Hole => {}
                Source::ThroughLink => taken.add_whole(len),
                Source::Mapped(address, device) => {
                    let from = *address as u64;
                    taken.add(*device, MEMORY_UNIT_BYTES, from, from + len);
                }
                Source::File { extent, skip } => {
                    let from = extent.run_offset + u64::from(extent.skip + skip);
                    taken.add(extent.device, FILE_UNIT_BYTES, from, from + len);
                }
            }
        }
        (at >= size).then(|| taken.bytes())
    }
    /// Brings into the cache what changes at these offsets will look at.
    pub fn touch(&self, offsets: impl IntoIterator<Item = u64>) {
        self.0.touch(offsets, |piece| piece.len);
    }
    /// Makes `[offset, offset + len)` known as `source`.
    pub fn set(&mut self, offset: u64, len: u64, source: Source) {
        if len == 0 {
            return;
        }
        // The common case: exactly one piece is replaced.
        if let Some(piece) = self.0.get_mut(offset)
            && piece.len == len
        {
            piece.source = source;
            return;
        }
        self.cut(offset, offset.saturating_add(len));
        // A run that goes on where the one before it ends is one piece.
        if let Some(last) = offset.checked_sub(1)
            && let Some((at, before)) = self.0.floor_mut(last)
            && at + before.len == offset
        {
            let joins = match (&before.source, &source) {
                (Source::Hole, Source::Hole) => true,
                (Source::Mapped(a, at), Source::Mapped(b, there)) => a + before.len as usize == *b && at == there,
                _ => false,
            };
            if joins {
                before.len += len;
                return;
            }
        }
        self.0.insert(offset, Piece { len, source });
    }
    /// Forgets `[from, to)`.
    fn cut(&mut self, from: u64, to: u64) {
        if let Some(last) = from.checked_sub(1)
            && let Some((at, piece)) = self.0.floor_mut(last)
        {
            let end = at + piece.len;
            if end > from {
                piece.len = from - at;
                if end > to {
                    let rest = Piece { len: end - to, source: piece.source.after(to - at) };
                    self.0.insert(to, rest);
                    return;
                }
            }
        }
        while let Some((at, piece)) = self.0.floor(to - 1).filter(|(at, _)| *at >= from) {
            let end = at + piece.len;
            let rest = (end > to).then(|| Piece { len: end - to, source: piece.source.after(to - at) });
            self.0.remove(at);
            if let Some(rest) = rest {
                self.0.insert(to, rest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_units_and_shared_ones_once() {
        let mut pieces = Pieces::default();
        let device = DeviceId(1);
        pieces.set(0, 1, Source::Mapped(1 << 21, device));
        pieces.set(1, 4, Source::Mapped((1 << 21) + 512, device));
        pieces.set(5, 5, Source::Hole);
        assert_eq!(pieces.taken(10), Some(1024), "each write has a unit of its own");
        pieces.set(10, 600, Source::Mapped(1 << 22, device));
        pieces.set(610, 300, Source::Mapped((1 << 22) + 600, device));
        assert_eq!(pieces.taken(910), Some(2048));
        assert_eq!(pieces.taken(911), None, "not all of it is known");
        let extent = Extent::whole(DeviceId(2), 8192, 9000, cenote_model::Sums::from_slice(&[1]));
        pieces.set(910, 9000, Source::File { extent: Arc::new(extent), skip: 0 });
        assert_eq!(pieces.taken(9910), Some(2048 + 12_288));
    }

    /// Compares with a plain array of cells under random changes.
    #[test]
    fn agrees_with_an_array() {
        const SIZE: usize = 200;
        let mut seed = 12_345u64;
        let mut next = |end: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % end
        };
        let mut pieces = Pieces::default();
        let mut cells = [None::<usize>; SIZE]; // Some(0): hole; Some(address)
        for round in 0..5000 {
            let from = next(SIZE);
            let len = 1 + next(SIZE - from);
            if next(4) == 0 {
                pieces.set(from as u64, len as u64, Source::Hole);
                cells[from..from + len].fill(Some(0));
            } else {
                let address = 1000 * (round + 1) + if next(3) == 0 { from } else { 0 };
                pieces.set(from as u64, len as u64, Source::Mapped(address, DeviceId(1)));
                for (i, cell) in cells[from..from + len].iter_mut().enumerate() {
                    *cell = Some(address + i);
                }
            }
            if next(50) == 0 {
                pieces.clear();
                cells.fill(None);
            }
            let from = next(SIZE);
            let len = 1 + next(SIZE - from);
            let mut parts = Vec::new();
            let known = pieces.parts(from as u64, len, 7, &mut parts);
            let expected = cells[from..from + len].iter().take_while(|cell| cell.is_some()).count();
            assert_eq!(known, expected, "round {round}");
            let mut at = 0;
            for part in parts {
                assert_eq!(part.at, 7 + at);
                for i in 0..part.len {
                    let found = match part.source {
                        Source::Mapped(address, _) => address + i,
                        _ => 0,
                    };
                    assert_eq!(Some(found), cells[from + at + i], "round {round}");
                }
                at += part.len;
            }
            assert_eq!(at, known);
        }
    }
}
