//! Directories being read: the kernel asks in pieces, each from the end of the previous one.

use cenote_posix::{DirCursor, DirEntry, FsResult};

/// One open directory.
#[derive(Debug)]
pub struct Reading {
    cursor: DirCursor,
    /// Position of the cursor; behind `ahead` if that is set.
    position: u64,
    /// Entry that was read and did not fit the last reply.
    ahead: Option<DirEntry>,
}

impl Reading {
    /// Starts at the beginning.
    pub fn new(cursor: DirCursor) -> Self {
        Self { cursor, position: 0, ahead: None }
    }
    /// Passes the entries from `position` on to `take`, until `take` has no room for one, or there are no more.
    pub fn read(&mut self, position: u64, mut take: impl FnMut(&DirEntry) -> FsResult<bool>) -> FsResult<()> {
        // 0 is `rewinddir`, which sees entries created meanwhile.
        if position != self.position || position == 0 {
            self.cursor.seek(position);
            (self.position, self.ahead) = (position, None);
        }
        loop {
            let entry = match self.ahead.take() {
                Some(entry) => entry,
                None => match self.cursor.next()? {
                    Some(entry) => entry,
                    None => return Ok(()),
                },
            };
            if !take(&entry)? {
                self.ahead = Some(entry);
                return Ok(());
            }
            self.position = entry.next;
        }
    }
}
