//! The cached map of one object: pieces with known content, and gaps that need a lookup.

use std::sync::Arc;

use cenote_model::{DeviceId, Extent, OffsetMap, UnitBytes};

use super::kept::Kept;

/// Allocation units of the devices that clients read.
const MEMORY_UNIT_BYTES: u64 = 512;
const FILE_UNIT_BYTES: u64 = 4096;

/// The source of a piece's bytes. `data::source` turns extents into sources, and sources into bytes.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// No bytes: zeros.
    Hole,
    /// Mapped memory of a device, at this address. The segment table keeps the mapping as long as the link lives.
    Mapped(usize, DeviceId),
    /// Not readable by this process: the bytes come through the link to the engine, which first brings them to another
    /// device, or carries them in its answers.
    ThroughLink,
    /// Bytes of another node that this process keeps, from this offset on. Holes of the object are zeros there.
    Kept(Arc<Kept>, u32),
    /// A file: `skip` bytes into the range of the extent.
    File { extent: Arc<Extent>, skip: u32 },
}

impl Source {
    fn after(&self, bytes: u64) -> Self {
        match self {
            Self::Hole => Self::Hole,
            Self::ThroughLink => Self::ThroughLink,
            Self::Mapped(address, device) => Self::Mapped(address + bytes as usize, *device),
            Self::Kept(kept, skip) => Self::Kept(kept.clone(), skip + bytes as u32),
            Self::File { extent, skip } => Self::File { extent: extent.clone(), skip: skip + bytes as u32 },
        }
    }
}

/// A part of a read: `len` bytes from `source` for offset `at` of the caller's buffer.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub at: usize,
    pub len: usize,
    pub source: Source,
}

/// The target of a search in a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seek {
    /// Written bytes.
    Data,
    /// Bytes that were never written or were deleted. The end of the object is a hole.
    Hole,
}

/// The result of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SeekResult {
    /// The first match.
    At(u64),
    /// There is none before the object's end.
    None,
    /// There is none up to here; the rest is unknown.
    Unknown(u64),
}

#[derive(Clone, Debug)]
struct Piece {
    len: u64,
    source: Source,
}

/// The known pieces by their offset. They do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Pieces(OffsetMap<Piece>);

impl Pieces {
    pub fn clear(&mut self) {
        self.0.clear();
    }
    /// Iterates over the known pieces: offset, length, source.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64, Source)> {
        self.0.from_floor(0).map(|(at, piece)| (at, piece.len, piece.source.clone()))
    }
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Checks that the map is sound and that no two pieces overlap.
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
    /// Appends the parts of `[offset, offset + len)` up to the first gap. Returns their length in bytes.
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
    /// Copies the kept bytes and holes from `offset` on, up to the first piece of another kind. Returns their number.
    pub fn copy_kept(&self, offset: u64, buf: &mut [u8]) -> usize {
        let mut done = 0usize;
        for (at, piece) in self.0.from_floor(offset) {
            let want = offset + done as u64;
            if done >= buf.len() || at > want {
                break;
            }
            let inside = want - at;
            if inside >= piece.len {
                continue; // only the first can end before the range
            }
            let count = (piece.len - inside).min((buf.len() - done) as u64) as usize;
            let into = &mut buf[done..done + count];
            match &piece.source {
                Source::Hole => into.fill(0),
                Source::Kept(kept, skip) => {
                    let from = *skip as usize + inside as usize;
                    into.copy_from_slice(&kept.bytes[from..from + count]);
                }
                _ => break,
            }
            done += count;
        }
        done
    }
    /// Returns the known parts of `[offset, offset + len)`, regardless of gaps.
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
    /// Searches an object of `size` bytes from `offset` on for data or a hole.
    pub fn seek(&self, offset: u64, size: u64, what: Seek) -> SeekResult {
        let mut at = offset;
        for (begin, piece) in self.0.from_floor(offset) {
            let end = begin + piece.len;
            if end <= at {
                continue; // only the first can end before the offset
            }
            if begin > at || at >= size || matches!(piece.source, Source::Kept(..)) {
                break; // kept bytes do not tell whether they are data
            }
            if matches!(piece.source, Source::Hole) == (what == Seek::Hole) {
                return SeekResult::At(at);
            }
            at = end;
        }
        match what {
            _ if at < size => SeekResult::Unknown(at),
            Seek::Hole if offset < size => SeekResult::At(size),
            _ => SeekResult::None,
        }
    }
    /// Returns the bytes in use of an object of `size` bytes, in allocation units; `None` if a part is unknown, or if
    /// the pieces are too many to count. A unit shared by neighbours counts once.
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
                Source::Kept(..) => return None,
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
    /// Prefetches the nodes that changes at these offsets will visit.
    pub fn touch(&self, offsets: impl IntoIterator<Item = u64>) {
        self.0.touch(offsets, |piece| piece.len);
    }
    /// Sets the parts of `[offset, offset + len)` to `source` of which nothing is kept.
    pub fn set_around_kept(&mut self, offset: u64, len: u64, source: &Source) {
        let parts = self.overlaps(offset, usize::try_from(len).unwrap_or(usize::MAX));
        let kept = parts.iter().filter(|part| matches!(part.source, Source::Kept(..)));
        let mut at = 0;
        for (begin, end) in kept.map(|part| (part.at as u64, (part.at + part.len) as u64)).chain([(len, len)]) {
            self.set(offset + at, begin - at, source.after(at));
            at = end;
        }
    }
    /// Sets `[offset, offset + len)` to `source`.
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
        // A run that continues its predecessor extends it.
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
    /// Removes `[from, to)`.
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
