//! A redo log of frames for another process to find if this one dies: a ring whose writer takes back obsolete frames.

use std::sync::atomic::Ordering;

use cenote_model::Result;

use crate::ring::{Consumer, HEAD_AT, Producer, RingMemory, Waker};

/// The writing end of a ring that nobody reads while the writer lives; afterwards a [`Consumer`] of the same memory
/// reads it.
pub struct FrameLog {
    producer: Producer,
    memory: RingMemory,
}

impl FrameLog {
    /// Takes the writing end; there must be only one in all processes.
    pub fn new(memory: RingMemory) -> Result<Self> {
        Ok(Self { producer: Producer::new(memory.clone(), Waker::Futex)?, memory })
    }
    /// Longest frame that it accepts.
    pub fn frame_max(&self) -> usize {
        self.producer.frame_max()
    }
    /// Appends a frame. On true the frame survives the death of this process; false if there is no room now.
    #[inline]
    pub fn push(&mut self, parts: &[&[u8]]) -> Result<bool> {
        let is_in = self.producer.try_push(parts)?;
        self.producer.publish();
        Ok(is_in)
    }
    /// Returns true if frames of this many bytes in total are sure to fit now.
    pub fn has_room(&mut self, bytes: usize) -> Result<bool> {
        // The remainder at the end of the memory may be too short for the next frame.
        Ok(self.producer.free()? >= 2 * (bytes as u64 + 64))
    }
    /// A reader of the frames, to copy them elsewhere.
    pub fn frames(&self) -> Result<Consumer> {
        Consumer::new(self.memory.clone())
    }
    /// Position of the next frame.
    pub fn end(&self) -> u64 {
        self.producer.tail()
    }
    /// Takes back the frames before a position.
    pub fn take_back(&mut self, to: u64) {
        self.memory.u64_at(HEAD_AT).store(to, Ordering::Release);
    }
}
