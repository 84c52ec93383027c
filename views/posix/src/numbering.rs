//! Inode numbers as programs see them, of 64 bits: the number of a tree, and that of the file within it. This file must not
//! know what a tree is.

use cenote::{ContainerId, HomeId, Store};

use crate::Ino;
use crate::records::INO_BITS;

/// How inode numbers are made. It must be the same in all processes and views of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Numbering {
    /// 24 bits of a container's number, 40 of a file's.
    Alone,
    /// In a cluster: 10 bits of the container's home, 18 of its number there, 36 of a file's.
    Cluster,
}

const LOCAL_BITS: u32 = 18;
const HOME_BITS: u32 = 10;
const CLUSTER_INO_BITS: u32 = 64 - LOCAL_BITS - HOME_BITS;

impl Numbering {
    /// That of a store.
    pub fn of(store: &Store) -> Self {
        if store.home() == HomeId(0) { Self::Alone } else { Self::Cluster }
    }
    /// Bits of a file's number within its tree.
    pub fn bits(self) -> u32 {
        match self {
            Self::Alone => INO_BITS,
            Self::Cluster => CLUSTER_INO_BITS,
        }
    }
    /// The number of the tree in a container; `None` if it has too many bits.
    pub fn tree(self, container: ContainerId) -> Option<u64> {
        let (home, local) = (u64::from(container.home().0), container.local());
        let number = match self {
            Self::Alone => Some(container.0).filter(|number| number >> (64 - INO_BITS) == 0),
            Self::Cluster if home >> HOME_BITS != 0 || local >> LOCAL_BITS != 0 => None,
            Self::Cluster => Some(home << LOCAL_BITS | local),
        };
        number.filter(|number| *number != 0)
    }
    /// The number of a file in a tree.
    pub fn whole(self, tree: u64, ino: u64) -> Ino {
        Ino(tree << self.bits() | ino)
    }
    /// The number of a tree, and of a file in it.
    pub fn split(self, ino: Ino) -> (u64, u64) {
        (ino.0 >> self.bits(), ino.0 & ((1 << self.bits()) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_split_as_they_were_made_and_none_is_used_twice() {
        let first = |home| ContainerId::first_of(HomeId(home)).0;
        let fits = [(Numbering::Alone, 1), (Numbering::Alone, (1 << 24) - 1), (Numbering::Cluster, first(1))];
        for (numbering, container) in fits.into_iter().chain([(Numbering::Cluster, first(1023) + (1 << 18) - 2)]) {
            let tree = numbering.tree(ContainerId(container)).unwrap();
            for ino in [1, 77, (1 << numbering.bits()) - 1] {
                assert_eq!(numbering.split(numbering.whole(tree, ino)), (tree, ino));
            }
        }
        assert_ne!(Numbering::Cluster.tree(ContainerId(first(2))), Numbering::Cluster.tree(ContainerId(first(1) + 1)));
        let too_large = [(Numbering::Alone, 0), (Numbering::Alone, 1 << 24), (Numbering::Cluster, first(1024))];
        for (numbering, container) in too_large.into_iter().chain([(Numbering::Cluster, first(1) + (1 << 18) - 1)]) {
            assert_eq!(numbering.tree(ContainerId(container)), None, "{container:x}");
        }
    }
}
