//! Frames that somebody else finds if this process dies: a ring whose writer takes back what is not needed any more.

use std::sync::atomic::Ordering;

use cenote_model::Result;

use crate::ring::{Consumer, HEAD_AT, Producer, RingMemory, Waker};

/// The writing end of a ring that nobody reads as long as the writer lives; then a [`Consumer`] of the same memory.
pub struct FrameLog {
    producer: Producer,
    memory: RingMemory,
}

impl FrameLog {
    /// Takes the writing end; there must be only one in all processes.
    pub fn new(memory: RingMemory) -> Result<Self> {
        Ok(Self { producer: Producer::new(memory.clone(), Waker::Futex)?, memory })
    }
    /// Longest frame that it takes.
    pub fn frame_max(&self) -> usize {
        self.producer.frame_max()
    }
    /// Adds a frame: it is there when this returns true, whatever happens to this process. False if there is no room now.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<bool> {
        let is_in = self.producer.try_push(parts)?;
        self.producer.publish();
        Ok(is_in)
    }
    /// True if frames of so many bytes together surely fit now.
    pub fn has_room(&mut self, bytes: usize) -> Result<bool> {
        // What is left at the end of the memory may be too short for the next frame.
        Ok(self.producer.free()? >= 2 * (bytes as u64 + 64))
    }
    /// What is in it, to be put elsewhere.
    pub fn frames(&self) -> Result<Consumer> {
        Consumer::new(self.memory.clone())
    }
    /// Where the next frame begins.
    pub fn end(&self) -> u64 {
        self.producer.tail()
    }
    /// Takes back the frames before a position.
    pub fn take_back(&mut self, to: u64) {
        self.memory.u64_at(HEAD_AT).store(to, Ordering::Release);
    }
}
