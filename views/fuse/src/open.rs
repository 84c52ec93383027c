//! Directories that are being read: the kernel asks in pieces, from where the last one ended.

use cenote_posix::{DirCursor, DirEntry, FsResult};

/// One open directory.
#[derive(Debug)]
pub struct Reading {
    cursor: DirCursor,
    /// Where the cursor is; behind `ahead` if there is one.
    position: u64,
    /// Read, and did not fit into the last reply.
    ahead: Option<DirEntry>,
}

impl Reading {
    /// From its beginning.
    pub fn new(cursor: DirCursor) -> Self {
        Self { cursor, position: 0, ahead: None }
    }
    /// Gives the entries from `position` on to `take`, until it says that it has no room for one, or there are no more.
    pub fn read(&mut self, position: u64, mut take: impl FnMut(&DirEntry) -> FsResult<bool>) -> FsResult<()> {
        // 0 is `rewinddir`, which sees what came meanwhile.
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
