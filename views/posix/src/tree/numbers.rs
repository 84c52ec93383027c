//! Inode numbers of new files, never reused in a tree: a counter in an index of its own, from which a process takes a
//! range at a time (twice as many each time, so that short programs waste few and long ones ask seldom).

use cenote_codec::Encode as _;
use std::ops::Range;

use crate::sync::Mutex;
use cenote::{Container, ErrorKind, Index};
use cenote_host::fork::generation as fork_generation;

use crate::numbering::Numbering;
use crate::records::{FIRST, PutFields as _, TakeFields as _, VERSION, keys, reader};
use crate::{FsError, FsResult};

/// Size of the first range, and of the largest.
const DRAW: Range<u64> = 64..1 << 16;

#[derive(Debug)]
pub struct Numbers {
    container: Container,
    counter: Index,
    drawn: Mutex<Drawn>,
}

#[derive(Debug, Default)]
struct Drawn {
    rest: Range<u64>,
    /// Size of the last range.
    size: u64,
    /// Fork generation of the range: a child must not use its parent's.
    generation: u64,
}

/// Initial value of the counter.
pub fn first() -> Vec<u8> {
    encode(FIRST)
}

fn encode(next: u64) -> Vec<u8> {
    let mut w = Vec::new();
    w.put_u8(VERSION);
    w.put_ino(next);
    w
}

impl Numbers {
    pub fn new(container: &Container) -> Self {
        let counter = container.index(keys::numbers_index());
        Self { container: container.clone(), counter, drawn: Mutex::default() }
    }
    /// Returns a number that nothing else has or had.
    pub fn draw(&self) -> FsResult<u64> {
        let mut drawn = self.drawn.lock();
        if drawn.generation != fork_generation() {
            *drawn = Drawn { generation: fork_generation(), ..Drawn::default() };
        }
        if drawn.rest.is_empty() {
            drawn.size = (drawn.size * 2).clamp(DRAW.start, DRAW.end);
            drawn.rest = self.reserve(drawn.size)?;
        }
        let number = drawn.rest.start;
        drawn.rest.start += 1;
        Ok(number)
    }
    fn reserve(&self, size: u64) -> FsResult<Range<u64>> {
        loop {
            let key = keys::superblock();
            let before = self.counter.get_one(&key)?;
            let mut next = FIRST;
            if let Some(before) = &before {
                let mut r = reader("counter of numbers", before)?;
                next = r.ino()?;
            }
            if next + size >= 1 << Numbering::of(self.container.store()).bits() {
                let words = "as many files and directories were made in this container as there are numbers for";
                return Err(FsError::because(libc::ENOSPC, ErrorKind::LimitExceeded, "numbers of files", words));
            }
            let mut txn = self.container.store().begin();
            txn.expect(&self.counter, &key, before.as_deref())?;
            txn.put(&self.counter, &key, &encode(next + size))?;
            match txn.commit() {
                Ok(_) => return Ok(next..next + size),
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
