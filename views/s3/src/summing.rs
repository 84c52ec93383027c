//! Checksums of a body in parallel with its write: while a piece is written and the next one arrives, another thread sums the previous one. The
//! checksums of a large body cost more than the rest of a PUT, so they bound its speed.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use s3s::{S3Result, s3_error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checksum::{Summed, Sums};

/// Maximum number of pieces of one body that wait for their checksums or are being summed.
const PIECES_MAX: u32 = 2;

/// Checksums computed on another thread. A thread is in use only while there is something to sum: slow clients hold none.
pub struct Summing {
    shared: Arc<Mutex<Shared>>,
    /// A permit for each piece.
    room: Arc<Semaphore>,
}

struct Shared {
    waiting: VecDeque<Piece>,
    /// `None` while a thread has them.
    sums: Option<Sums>,
}

struct Piece {
    bytes: Bytes,
    place: OwnedSemaphorePermit,
}

impl Summing {
    /// Continues `sums`.
    pub fn new(sums: Sums) -> Self {
        let shared = Shared { waiting: VecDeque::new(), sums: Some(sums) };
        Self { shared: Arc::new(Mutex::new(shared)), room: Arc::new(Semaphore::new(PIECES_MAX as usize)) }
    }
    /// Adds bytes in order. Waits if too many pieces are in progress.
    pub async fn update(&self, bytes: Bytes) -> S3Result<()> {
        let place = self.room.clone().acquire_owned().await.map_err(|_| lost())?;
        let idle = {
            let mut shared = self.shared.lock();
            shared.waiting.push_back(Piece { bytes, place });
            shared.sums.take()
        };
        if let Some(sums) = idle {
            let shared = self.shared.clone();
            tokio::task::spawn_blocking(move || work(&shared, sums));
        }
        Ok(())
    }
    /// Returns the checksums once all pieces are included.
    pub async fn finish(self) -> S3Result<Summed> {
        let _all = self.room.acquire_many(PIECES_MAX).await.map_err(|_| lost())?;
        let sums = self.shared.lock().sums.take().ok_or_else(lost)?;
        Ok(sums.finish())
    }
}

fn lost() -> s3s::S3Error {
    s3_error!(InternalError, "the sums of the body were lost")
}

/// Sums the waiting pieces, and puts the state back. The last piece's permit is released after that, so a holder of all permits finds the state.
fn work(shared: &Mutex<Shared>, mut sums: Sums) {
    let mut last = None;
    loop {
        let Piece { bytes, place } = {
            let mut shared = shared.lock();
            let Some(piece) = shared.waiting.pop_front() else {
                shared.sums = Some(sums);
                break;
            };
            piece
        };
        last.replace(place);
        sums.update(&bytes);
    }
    drop(last);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::Claims;

    #[test]
    fn pieces_are_summed_in_their_order() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        runtime.block_on(async {
            for pieces in [0, 1, 2, 3, 100] {
                let summing = Summing::new(Sums::of(&Claims::default()));
                let mut whole = Vec::new();
                for number in 0..pieces {
                    let piece = vec![number as u8; 1000 * (number % 7)];
                    whole.extend_from_slice(&piece);
                    summing.update(Bytes::from(piece)).await.unwrap();
                    if number % 5 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                let mut wanted = Sums::of(&Claims::default());
                wanted.update(&whole);
                assert_eq!(summing.finish().await.unwrap().md5, wanted.finish().md5, "{pieces} pieces");
            }
        });
    }
}
