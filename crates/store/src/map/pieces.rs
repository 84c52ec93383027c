//! What was cut out of a map: mostly one piece.

use super::Ext;

/// Extents with their object offsets: in ascending order as they were cut out, then the parts split off them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Pieces {
    #[default]
    None,
    One(u64, Ext),
    Many(Vec<(u64, Ext)>),
}

impl Pieces {
    pub fn push(&mut self, offset: u64, ext: Ext) {
        *self = match std::mem::take(self) {
            Self::None => Self::One(offset, ext),
            Self::One(first_offset, first) => Self::Many(vec![(first_offset, first), (offset, ext)]),
            Self::Many(mut many) => {
                many.push((offset, ext));
                Self::Many(many)
            }
        };
    }
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::One(..) => 1,
            Self::Many(many) => many.len(),
        }
    }
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    pub fn get(&self, i: usize) -> Option<(u64, &Ext)> {
        match self {
            Self::One(offset, ext) if i == 0 => Some((*offset, ext)),
            Self::Many(many) => many.get(i).map(|(offset, ext)| (*offset, ext)),
            _ => None,
        }
    }
    pub fn get_mut(&mut self, i: usize) -> Option<(u64, &mut Ext)> {
        match self {
            Self::One(offset, ext) if i == 0 => Some((*offset, ext)),
            Self::Many(many) => many.get_mut(i).map(|(offset, ext)| (*offset, ext)),
            _ => None,
        }
    }
    /// Splits piece `i`, see [`Ext::split_in_two`]. The second part goes to the end, so that the other pieces keep
    /// their numbers.
    pub fn split_in_two(&mut self, i: usize, at: u32) {
        let Some((offset, ext)) = self.get_mut(i) else { return };
        let (first, second) = ext.split_in_two(at);
        *ext = first;
        self.push(offset + u64::from(at), second);
    }
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Ext)> {
        (0..self.len()).filter_map(|i| self.get(i))
    }
}

impl IntoIterator for Pieces {
    type Item = (u64, Ext);
    type IntoIter = std::iter::Chain<std::option::IntoIter<(u64, Ext)>, std::vec::IntoIter<(u64, Ext)>>;
    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::None => (None, Vec::new()),
            Self::One(offset, ext) => (Some((offset, ext)), Vec::new()),
            Self::Many(many) => (None, many),
        };
        one.into_iter().chain(many)
    }
}
