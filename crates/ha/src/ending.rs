//! What boards say of a node that was excluded: when it asked last.

use std::collections::BTreeMap;

use cenote_model::NodeId;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ending {
    /// The view that excluded the node.
    since_view: u64,
    /// The view by which this node learned of it: what a board says counts if it had this one, or a newer one.
    known_in: u64,
    /// For each board that has spoken since: when it had heard the node last. The first word of each counts: what the board
    /// hears later gives no lease.
    heard_us: BTreeMap<NodeId, u64>,
}

impl Ending {
    /// A node was excluded by one view, as this node learns by another.
    pub fn new(since_view: u64, known_in: u64) -> Self {
        Self { since_view, known_in, heard_us: BTreeMap::new() }
    }
    /// Returns true if it is about the exclusion by this view.
    pub fn is_by(&self, since_view: u64) -> bool {
        self.since_view == since_view
    }
    /// A board that had found this view said afterwards when it had heard the node last.
    pub fn said(&mut self, board: NodeId, view: u64, heard_us: u64) {
        if view >= self.known_in {
            self.heard_us.entry(board).or_insert(heard_us);
        }
    }
    /// When a board had heard the node last; none if it has not said so since the node was excluded.
    pub fn heard_us(&self, board: NodeId) -> Option<u64> {
        self.heard_us.get(&board).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_word_since_the_exclusion_counts() {
        let board = NodeId(2);
        let mut ending = Ending::new(7, 8);
        ending.said(board, 7, 100);
        assert_eq!(ending.heard_us(board), None, "it may not know yet");
        ending.said(board, 8, 200);
        ending.said(board, 9, 900);
        assert_eq!((ending.heard_us(board), ending.heard_us(NodeId(3))), (Some(200), None));
        assert!(ending.is_by(7) && !ending.is_by(8));
    }
}
