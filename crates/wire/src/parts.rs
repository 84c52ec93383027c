//! Fragmentation: messages longer than a frame of the transport are split and reassembled.

use cenote_model::Result;

use crate::codec::malformed;

/// First byte of a frame that ends a message.
pub const PART_LAST: u8 = 0;
/// First byte of a frame that does not.
pub const PART_MORE: u8 = 1;
/// Longest message: fits a transaction of a million updates, or the largest values.
pub const MESSAGE_BYTES_MAX: usize = 256 << 20;

/// Splits a message into frames of at most `frame_max` bytes; yields the first byte and the rest
/// of each.
pub fn parts(message: &[u8], frame_max: usize) -> impl Iterator<Item = (u8, &[u8])> {
    let piece = frame_max.saturating_sub(1).max(1);
    let count = message.len().div_ceil(piece).max(1);
    (0..count).map(move |number| {
        let from = number * piece;
        let flag = if number + 1 == count { PART_LAST } else { PART_MORE };
        (flag, &message[from..message.len().min(from + piece)])
    })
}

/// Reassembles messages.
#[derive(Debug, Default)]
pub struct Assembly(Vec<u8>);

impl Assembly {
    /// Returns true if no message is begun.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Takes the next frame; if it completes a message, calls `use_it` with the message.
    pub fn take<T>(&mut self, frame: &[u8], use_it: impl FnOnce(&[u8]) -> T) -> Result<Option<T>> {
        let (flag, piece) = frame.split_first().ok_or_else(|| malformed("an empty frame"))?;
        match *flag {
            PART_LAST if self.0.is_empty() => Ok(Some(use_it(piece))),
            PART_LAST => {
                self.0.extend_from_slice(piece);
                let whole = std::mem::take(&mut self.0);
                Ok(Some(use_it(&whole)))
            }
            PART_MORE if self.0.len() + piece.len() <= MESSAGE_BYTES_MAX => {
                self.0.extend_from_slice(piece);
                Ok(None)
            }
            PART_MORE => Err(malformed("it is longer than any message")),
            _ => Err(malformed("a frame of an unknown kind")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_and_put_together() {
        for len in [0, 1, 9, 10, 11, 100, 101] {
            let message: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let mut assembly = Assembly::default();
            let mut whole = None;
            for (flag, piece) in parts(&message, 11) {
                assert!(piece.len() <= 10 && whole.is_none());
                let frame: Vec<u8> = std::iter::once(flag).chain(piece.iter().copied()).collect();
                whole = assembly.take(&frame, <[u8]>::to_vec).unwrap();
            }
            assert_eq!(whole, Some(message));
        }
        assert!(Assembly::default().take(&[], |_| ()).is_err());
        assert!(Assembly::default().take(&[7, 1], |_| ()).is_err());
    }
}
