//! Numbers of new objects.
//!
//! Parallel creators need no coordination: each draws the upper 43 bits at random and counts in the lower 20. Objects that
//! one process makes in sequence are therefore adjacent in the index, where they are read together. (Two processes collide
//! if both drew the same of 2^43 and count through the same stretch of 2^20; the second one then gets an error.)

use cenote_host::fork::generation as fork_generation;

use super::random_u64;
use crate::Result;

/// Number of bits that count.
const COUNT_BITS: u32 = 20;

/// The numbers of one file in one process.
#[derive(Default)]
pub struct Numbers {
    next: u64,
    left: u64,
    /// Fork generation: a forked child draws for itself.
    generation: u64,
}

impl Numbers {
    /// Takes an unused number.
    pub fn take(&mut self) -> Result<u64> {
        if self.left == 0 || self.generation != fork_generation() {
            let drawn = random_u64()?;
            // The start of the count is random as well, so that small files differ. Nothing below 2^48 is drawn, since
            // native files have addresses there.
            let begin = drawn & ((1 << COUNT_BITS) - 1);
            (self.next, self.left, self.generation) = (drawn, (1 << COUNT_BITS) - begin, fork_generation());
        }
        let number = self.next;
        self.next += 1;
        self.left -= 1;
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_follow_each_other_and_are_drawn_anew_at_the_end() {
        let mut numbers = Numbers::default();
        let first = numbers.take().unwrap();
        let left = numbers.left;
        assert_eq!(first + left, (first >> COUNT_BITS << COUNT_BITS) + (1 << COUNT_BITS) - 1);
        for after in 1..=left {
            assert_eq!(numbers.take().unwrap(), first + after);
        }
        assert_ne!(numbers.take().unwrap() >> COUNT_BITS, first >> COUNT_BITS);
    }
}
