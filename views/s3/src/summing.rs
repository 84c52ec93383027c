//! Sums of a body beside its way into the file: while a piece is written and the next one comes in, the one before is summed on another thread. Sums of
//! large bodies cost more than all the rest of a PUT, so it is as fast as its sums.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use s3s::{S3Result, s3_error};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::checksum::{Summed, Sums};

/// Pieces of one body that wait for their sums, or are being summed.
const PIECES_MAX: u32 = 2;

/// Sums that grow on another thread. A thread is held only while there is something to sum: clients that are slow hold none.
pub struct Summing {
    shared: Arc<Mutex<Shared>>,
    /// A place for each piece.
    room: Arc<Semaphore>,
}

struct Shared {
    waiting: VecDeque<Piece>,
    /// None while a thread has them.
    sums: Option<Sums>,
}

struct Piece {
    bytes: Bytes,
    place: OwnedSemaphorePermit,
}

impl Summing {
    /// Goes on with `sums`.
    pub fn new(sums: Sums) -> Self {
        let shared = Shared { waiting: VecDeque::new(), sums: Some(sums) };
        Self { shared: Arc::new(Mutex::new(shared)), room: Arc::new(Semaphore::new(PIECES_MAX as usize)) }
    }
    /// More bytes: in their turn, after those before. Waits if too many are under way.
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
    /// The sums, when all that came is in them.
    pub async fn finish(self) -> S3Result<Summed> {
        let _all = self.room.acquire_many(PIECES_MAX).await.map_err(|_| lost())?;
        let sums = self.shared.lock().sums.take().ok_or_else(lost)?;
        Ok(sums.finish())
    }
}

fn lost() -> s3s::S3Error {
    s3_error!(InternalError, "the sums of the body were lost")
}

/// Sums what waits, and puts the sums back. The place of the last piece becomes free after that, so who has all places finds the sums.
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
