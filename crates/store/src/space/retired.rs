//! Retired space (a limbo list, as in epoch-based reclamation): in no map any more, but a reader may still look
//! at it.

use std::collections::VecDeque;

/// Condition for reusing retired space.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Tag {
    /// Every reader must have announced a later epoch.
    pub epoch: u64,
    /// On persistent devices the journal must be on media up to here: after power loss the record that gave the
    /// space up might be missing, and the old map must still find its bytes.
    pub journal: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Retired {
    pub tag: Tag,
    pub offset: u64,
    pub len: u64,
}

/// Retired space of one device, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct RetiredQueue {
    queue: VecDeque<Retired>,
    bytes: u64,
}

impl RetiredQueue {
    pub fn push(&mut self, tag: Tag, offset: u64, len: u64) {
        self.bytes += len;
        if let Some(last) = self.queue.back_mut().filter(|last| last.tag == tag) {
            if last.offset + last.len == offset {
                last.len += len;
                return;
            }
            if offset + len == last.offset {
                last.offset = offset;
                last.len += len;
                return;
            }
        }
        self.queue.push_back(Retired { tag, offset, len });
    }
    /// Takes the oldest entry, if all readers have announced a later epoch and the journal is on media far
    /// enough.
    pub fn pop_free(&mut self, readers_min: u64, journal_synced: u64) -> Option<Retired> {
        let first = self.queue.front()?;
        if first.tag.epoch >= readers_min || first.tag.journal > journal_synced {
            return None;
        }
        self.bytes -= first.len;
        self.queue.pop_front()
    }
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
    /// Bytes that no reader holds any more, if this is the oldest epoch that one has announced.
    pub fn bytes_before(&self, readers_min: u64) -> u64 {
        if self.queue.back().is_none_or(|last| last.tag.epoch < readers_min) {
            return self.bytes;
        }
        self.queue.iter().take_while(|retired| retired.tag.epoch < readers_min).map(|retired| retired.len).sum()
    }
    /// Checks the queue; `is_taken(offset, len)` says whether space is marked as used. Fails with what is
    /// wrong.
    pub fn check(&self, is_taken: impl Fn(u64, u64) -> bool) -> Result<(), &'static str> {
        if self.queue.iter().map(|retired| retired.len).sum::<u64>() != self.bytes {
            return Err("its bytes are counted wrongly");
        }
        if self.queue.iter().any(|retired| !is_taken(retired.offset, retired.len)) {
            return Err("some of it counts as free");
        }
        Ok(())
    }
    pub fn iter(&self) -> impl Iterator<Item = &Retired> {
        self.queue.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_readers_and_for_the_journal() {
        let mut queue = RetiredQueue::default();
        let tag = |epoch, journal| Tag { epoch, journal };
        queue.push(tag(5, 100), 0, 10);
        queue.push(tag(5, 100), 10, 10);
        queue.push(tag(6, 200), 50, 10);
        assert_eq!(queue.bytes(), 30);
        assert!(queue.pop_free(5, 1000).is_none(), "a reader of epoch 5 may hold it");
        assert!(queue.pop_free(u64::MAX, 99).is_none());
        assert_eq!(queue.pop_free(6, 100).map(|r| (r.offset, r.len)), Some((0, 20)));
        assert!(queue.pop_free(6, u64::MAX).is_none());
        assert_eq!(queue.pop_free(7, 200).map(|r| r.len), Some(10));
        assert_eq!(queue.bytes(), 0);
    }
}
