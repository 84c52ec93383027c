//! The extent map of one object.

mod ext;
mod pieces;
#[cfg(test)]
mod tests;

use cenote_model::OffsetMap;

#[cfg(test)]
pub(crate) use ext::Run;
pub(crate) use ext::{DeviceIndex, Ext, ExtentPlace, NO_DEVICE, NewPlace, Replica, Replicas};
pub(crate) use pieces::Pieces;

use crate::space::Shared;

/// Extents of an object by the object offset at which they begin; they never overlap. Gaps are holes.
#[derive(Debug, Default)]
pub(crate) enum ExtentMap {
    #[default]
    Empty,
    One(u64, Ext),
    Many(Box<Tree>),
}

/// A map of more than one extent.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    extents: OffsetMap<Ext>,
    mapped_bytes: u64,
}

/// Whether cutting a range out split an extent at its begin or end, so that a revert can join it again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Splits {
    pub begin: bool,
    pub end: bool,
}

fn end_of(offset: u64, ext: &Ext) -> u64 {
    offset + u64::from(ext.len)
}

impl ExtentMap {
    pub fn extents(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(..) => 1,
            Self::Many(tree) => tree.extents.len() as u64,
        }
    }
    pub fn mapped_bytes(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::One(_, ext) => u64::from(ext.len),
            Self::Many(tree) => tree.mapped_bytes,
        }
    }
    /// Returns the extent that begins exactly at `offset`.
    pub fn get(&self, offset: u64) -> Option<&Ext> {
        match self {
            Self::One(at, ext) if *at == offset => Some(ext),
            Self::Many(tree) => tree.extents.get(offset),
            _ => None,
        }
    }
    /// Returns the extent that begins exactly at `offset`. Its length must not be changed.
    pub fn get_mut(&mut self, offset: u64) -> Option<&mut Ext> {
        match self {
            Self::One(at, ext) if *at == offset => Some(ext),
            Self::Many(tree) => tree.extents.get_mut(offset),
            _ => None,
        }
    }
    /// Extents that overlap `[from, to)`, ascending.
    pub fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Ext)> {
        let (one, many) = match self {
            Self::Empty => (None, None),
            Self::One(at, ext) => (Some((*at, ext)).filter(|(at, ext)| *at < to && end_of(*at, ext) > from), None),
            Self::Many(tree) => (None, (from < to).then(|| tree.overlapping(from, to))),
        };
        one.into_iter().chain(many.into_iter().flatten())
    }
    /// All extents, ascending.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Ext)> {
        self.overlapping(0, u64::MAX)
    }
    /// Checks the map: order, overlapping or empty extents, counts. Fails with what is wrong.
    pub fn check(&self) -> Result<(), &'static str> {
        if let Self::Many(tree) = self {
            tree.extents.check()?;
        }
        let (mut behind, mut mapped_bytes) = (0, 0);
        for (at, ext) in self.iter() {
            if ext.len == 0 {
                return Err("an extent is empty");
            }
            if at < behind {
                return Err("two extents overlap");
            }
            if ext.end() > ext.run_len {
                return Err("an extent ends behind its run");
            }
            behind = end_of(at, ext);
            mapped_bytes += u64::from(ext.len);
        }
        if mapped_bytes == self.mapped_bytes() { Ok(()) } else { Err("its bytes are counted wrongly") }
    }
    /// Changes extents in place; their lengths must not change.
    pub fn for_each_mut(&mut self, mut each: impl FnMut(u64, &mut Ext)) {
        match self {
            Self::Empty => {}
            Self::One(at, ext) => each(*at, ext),
            Self::Many(tree) => tree.extents.for_each_mut(each),
        }
    }
    /// Returns the last extent that begins before `offset`.
    pub fn before_mut(&mut self, offset: u64) -> Option<(u64, &mut Ext)> {
        match self {
            Self::One(at, ext) if *at < offset => Some((*at, ext)),
            Self::Many(tree) => tree.extents.floor_mut(offset.checked_sub(1)?),
            _ => None,
        }
    }
    /// Prefetches into the cache what changes at these offsets will read.
    pub fn touch(&self, offsets: impl IntoIterator<Item = u64>) {
        if let Self::Many(tree) = self {
            tree.extents.touch(offsets, |ext| ext.run_offset ^ u64::from(ext.dev));
        }
    }
    /// Adds an extent where there is a hole.
    pub fn insert(&mut self, offset: u64, ext: Ext) {
        match self {
            Self::Empty => *self = Self::One(offset, ext),
            Self::One(..) => {
                let Self::One(first_at, first) = std::mem::take(self) else { unreachable!("matched above") };
                let mut tree = Box::new(Tree::default());
                tree.insert(first_at, first);
                tree.insert(offset, ext);
                *self = Self::Many(tree);
            }
            Self::Many(tree) => tree.insert(offset, ext),
        }
    }
    /// Removes the extent that begins at `offset`.
    pub fn remove(&mut self, offset: u64) -> Option<Ext> {
        match self {
            Self::One(at, _) if *at == offset => {
                let Self::One(_, ext) = std::mem::take(self) else { unreachable!("matched above") };
                Some(ext)
            }
            Self::Many(tree) => {
                let removed = tree.remove(offset);
                if tree.extents.is_empty() {
                    *self = Self::Empty;
                }
                removed
            }
            _ => None,
        }
    }
    /// Changes the length of the extent at `offset` in place, together with its run.
    pub fn change_len(&mut self, offset: u64, change: impl FnOnce(&mut Ext)) {
        let Some(ext) = self.get_mut(offset) else { return };
        let before = ext.len;
        change(ext);
        let after = ext.len;
        if let Self::Many(tree) = self {
            tree.mapped_bytes = tree.mapped_bytes - u64::from(before) + u64::from(after);
        }
    }
    /// Splits the extent at `offset`, see [`Ext::split_in_two`].
    pub fn split_in_two(&mut self, offset: u64, at: u32) {
        let Some((first, second)) = self.get(offset).map(|ext| ext.split_in_two(at)) else { return };
        self.change_len(offset, |ext| *ext = first);
        self.insert(offset + u64::from(at), second);
    }
    /// Removes any extent, to give a map up piece by piece.
    pub fn pop(&mut self) -> Option<(u64, Ext)> {
        let offset = match self {
            Self::Empty => return None,
            Self::One(at, _) => *at,
            Self::Many(tree) => tree.extents.last()?.0,
        };
        self.remove(offset).map(|ext| (offset, ext))
    }
    /// Makes `[from, to)` a hole and returns its extents in `out`. Extents that reach over an edge are split.
    pub fn cut_out(&mut self, from: u64, to: u64, shared: &mut Shared, out: &mut Pieces) -> Splits {
        let mut splits = Splits::default();
        if from >= to {
            return splits;
        }
        loop {
            let Some((at, ext)) = self.overlapping(from, to).next() else { return splits };
            if at >= from && end_of(at, ext) <= to {
                if let Some(ext) = self.remove(at) {
                    out.push(at, ext);
                }
                continue;
            }
            splits.begin |= at < from;
            splits.end |= end_of(at, ext) > to;
            self.split_over(at, from, to, shared, out);
        }
    }
    fn split_over(&mut self, at: u64, from: u64, to: u64, shared: &mut Shared, out: &mut Pieces) {
        let Some(ext) = self.get(at).cloned() else { return };
        let begin = from.max(at);
        let end = to.min(end_of(at, &ext));
        let (cut_begin, cut_end) = ((begin - at) as u32, (end - at) as u32);
        if cut_begin > 0 {
            shared.split(&ext, ext.skip + cut_begin);
            self.change_len(at, |ext| ext.len = cut_begin);
        } else {
            self.remove(at);
        }
        if cut_end < ext.len {
            shared.split(&ext, ext.skip + cut_end);
            self.insert(end, ext.part(cut_end, ext.len - cut_end));
        }
        out.push(begin, ext.part(cut_begin, cut_end - cut_begin));
    }
    /// Undoes [`ExtentMap::cut_out`]: `[from, to)` must be a hole again.
    pub fn put_back(&mut self, from: u64, to: u64, pieces: Pieces, splits: Splits, shared: &mut Shared) {
        for (offset, ext) in pieces {
            self.insert(offset, ext);
        }
        if splits.begin {
            self.join(from, shared);
        }
        if splits.end {
            self.join(to, shared);
        }
    }
    /// Joins the two extents that meet at `offset` and were split there.
    fn join(&mut self, offset: u64, shared: &mut Shared) {
        let Some((left_at, left)) = self.before_mut(offset).map(|(at, ext)| (at, ext.clone())) else { return };
        let Some(right) = self.get(offset) else { return };
        if !left.continues(right) || end_of(left_at, &left) != offset {
            return;
        }
        let len = right.len;
        shared.join(&left, left.end());
        self.remove(offset);
        self.change_len(left_at, |ext| ext.len += len);
    }
}

impl Tree {
    fn insert(&mut self, offset: u64, ext: Ext) {
        self.mapped_bytes += u64::from(ext.len);
        let old = self.extents.insert(offset, ext);
        debug_assert!(old.is_none(), "an extent at {offset} already");
    }
    fn remove(&mut self, offset: u64) -> Option<Ext> {
        let ext = self.extents.remove(offset)?;
        self.mapped_bytes -= u64::from(ext.len);
        Some(ext)
    }
    fn overlapping(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, &Ext)> {
        let ahead = self.extents.from_floor(from).take_while(move |(at, _)| *at < to);
        ahead.skip_while(move |(at, ext)| end_of(*at, ext) <= from) // only the first can end before the range
    }
}
