//! The place of each byte of the device: its pack, and the offset in it. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_model::OffsetMap;

use super::pack::Table;

/// Bytes of the device that are contiguous in one pack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Piece {
    pub pack: u64,
    /// Offset in the data of the pack.
    pub at: u32,
    pub len: u32,
}

/// A range of the device, and where its bytes are. `None`: never written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub offset: u64,
    pub len: u64,
    pub piece: Option<Piece>,
}

/// A pack as the map knows it.
pub(super) struct Pack {
    /// `None` while it is being filled.
    pub table: Option<Arc<Table>>,
    /// Bytes of the pack that the map refers to.
    pub live: u64,
    /// The latest pack that superseded bytes of this one: until that pack is acknowledged, a crash would need these
    /// bytes.
    pub robbed_by: u64,
    /// The pack's bytes cannot be read: it is left alone.
    pub damaged: bool,
}

/// The map.
#[derive(Default)]
pub(super) struct Map {
    pieces: OffsetMap<Piece>,
    packs: BTreeMap<u64, Pack>,
}

impl Map {
    pub fn packs(&self) -> impl Iterator<Item = (u64, &Pack)> {
        self.packs.iter().map(|(sequence, pack)| (*sequence, pack))
    }
    pub fn pack(&self, sequence: u64) -> Option<&Pack> {
        self.packs.get(&sequence)
    }
    pub fn pack_mut(&mut self, sequence: u64) -> Option<&mut Pack> {
        self.packs.get_mut(&sequence)
    }
    pub fn add_pack(&mut self, sequence: u64, table: Option<Arc<Table>>) {
        self.packs.insert(sequence, Pack { table, live: 0, robbed_by: 0, damaged: false });
    }
    /// Forgets a pack without live bytes.
    pub fn remove_pack(&mut self, sequence: u64) {
        debug_assert_eq!(self.packs.get(&sequence).map_or(0, |pack| pack.live), 0);
        self.packs.remove(&sequence);
    }
    /// Entries of the map, and their memory in bytes.
    pub fn size(&self) -> (usize, usize) {
        (self.pieces.len(), self.pieces.memory_bytes())
    }
    /// Moves these bytes to `piece`'s pack. `robber`: the pack that must be acknowledged before the previous bytes
    /// may be deleted.
    pub fn cover(&mut self, offset: u64, piece: Piece, robber: u64) {
        self.uncover(offset, u64::from(piece.len), robber);
        if let Some(pack) = self.packs.get_mut(&piece.pack) {
            pack.live += u64::from(piece.len);
        }
        if let Some((at, before)) = offset.checked_sub(1).and_then(|at| self.pieces.floor_mut(at))
            && at + u64::from(before.len) == offset
            && before.pack == piece.pack
            && before.at + before.len == piece.at
        {
            before.len += piece.len;
            return;
        }
        self.pieces.insert(offset, piece);
    }
    /// Marks bytes as no longer needed.
    pub fn uncover(&mut self, offset: u64, len: u64, robber: u64) {
        let end = offset + len;
        let found: Vec<(u64, Piece)> = self
            .pieces
            .from_floor(offset)
            .take_while(|(at, _)| *at < end)
            .filter(|(at, piece)| at + u64::from(piece.len) > offset)
            .map(|(at, piece)| (at, *piece))
            .collect();
        for (at, piece) in found {
            let piece_end = at + u64::from(piece.len);
            self.pieces.remove(at);
            if at < offset {
                self.pieces.insert(at, Piece { len: (offset - at) as u32, ..piece });
            }
            if piece_end > end {
                let skip = (end - at) as u32;
                self.pieces.insert(end, Piece { pack: piece.pack, at: piece.at + skip, len: piece.len - skip });
            }
            if let Some(pack) = self.packs.get_mut(&piece.pack) {
                pack.live -= piece_end.min(end) - at.max(offset);
                pack.robbed_by = pack.robbed_by.max(robber);
            }
        }
    }
    /// The spans of a range, without gaps.
    pub fn lookup(&self, offset: u64, len: u64) -> Vec<Span> {
        let end = offset + len;
        let mut spans = Vec::new();
        let mut at = offset;
        for (piece_at, piece) in self.pieces.from_floor(offset).take_while(|(at, _)| *at < end) {
            let piece_end = piece_at + u64::from(piece.len);
            if piece_end <= at {
                continue;
            }
            if piece_at > at {
                spans.push(Span { offset: at, len: piece_at - at, piece: None });
                at = piece_at;
            }
            let skip = (at - piece_at) as u32;
            let len = piece_end.min(end) - at;
            let piece = Piece { pack: piece.pack, at: piece.at + skip, len: len as u32 };
            spans.push(Span { offset: at, len, piece: Some(piece) });
            at += len;
        }
        if at < end {
            spans.push(Span { offset: at, len: end - at, piece: None });
        }
        spans
    }
    /// The live ranges of a pack whose table is known: ranges of the device, in the order of its data.
    pub fn live_of(&self, sequence: u64) -> Vec<Span> {
        let Some(table) = self.packs.get(&sequence).and_then(|pack| pack.table.clone()) else { return Vec::new() };
        let mut live = Vec::new();
        for run in &table.runs {
            live.extend(self.lookup(run.offset, u64::from(run.len)).into_iter().filter(|span| {
                // The pack may hold another copy of the same range, which is not this run.
                let place = run.at + (span.offset - run.offset) as u32;
                span.piece.is_some_and(|piece| piece.pack == sequence && piece.at == place)
            }));
        }
        live
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::SplitMix;

    /// Compares with a vector that holds the pack and the offset of every byte.
    #[test]
    fn agrees_with_a_plain_vector() {
        let mut rng = SplitMix::new(11);
        let mut map = Map::default();
        let mut plain: Vec<Option<(u64, u32)>> = vec![None; 2000];
        let mut filled = [0_u32; 6];
        (0..6).for_each(|pack| map.add_pack(pack, None));
        for _ in 0..3000 {
            let offset = rng.below(2000);
            let len = 1 + rng.below((2000 - offset).min(150));
            let range = offset as usize..(offset + len) as usize;
            if rng.below(4) == 0 {
                map.uncover(offset, len, 0);
                plain[range].fill(None);
            } else {
                let pack = rng.below(6);
                let at = filled[pack as usize];
                filled[pack as usize] += len as u32;
                map.cover(offset, Piece { pack, at, len: len as u32 }, 0);
                for (i, byte) in plain[range].iter_mut().enumerate() {
                    *byte = Some((pack, at + i as u32));
                }
            }
        }
        for pack in 0..6 {
            let live = plain.iter().flatten().filter(|(of, _)| *of == pack).count() as u64;
            assert_eq!(map.pack(pack).unwrap().live, live, "pack {pack}");
        }
        let spans = map.lookup(0, 2000);
        let mut seen = Vec::new();
        for span in spans {
            assert_eq!(span.offset, seen.len() as u64);
            seen.extend((0..span.len as u32).map(|i| span.piece.map(|piece| (piece.pack, piece.at + i))));
        }
        assert!(seen == plain);
    }
}
