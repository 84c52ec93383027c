//! Reads that share a round of messages: one that begins after a read was asked for serves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;

/// How long a round waits for more reads: those of several members come at once, since nodes beat at once.
const GATHER: Duration = Duration::from_millis(2);

/// See the module.
pub struct Rounds<T> {
    /// Rounds that have begun.
    begun: AtomicU64,
    /// The last one that has ended, and its answer; held while one is under way.
    last: Mutex<(u64, Option<T>)>,
}

impl<T> Default for Rounds<T> {
    fn default() -> Self {
        Self { begun: AtomicU64::new(0), last: Mutex::new((0, None)) }
    }
}

impl<T: Clone> Rounds<T> {
    /// The answer of a round that begins after this call did: its own, or one that another call makes.
    pub async fn ask<R: Future<Output = T>>(&self, round: impl FnOnce() -> R) -> T {
        let begun = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if let (number, Some(answer)) = &*last
            && *number > begun
        {
            return answer.clone();
        }
        tokio::time::sleep(GATHER).await;
        let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = round().await;
        *last = (number, Some(answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn run<T>(what: impl Future<Output = T>) -> T {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_time().build();
        runtime.unwrap().block_on(what)
    }

    /// Whatever was true when a read was asked for, its answer knows.
    #[test]
    fn an_answer_comes_from_a_round_that_began_after_the_call() {
        run(async {
            let (rounds, clock, made) =
                (Arc::new(Rounds::default()), Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
            let calls: Vec<_> = (0..400_u64)
                .map(|at| {
                    let (rounds, clock, made) = (rounds.clone(), clock.clone(), made.clone());
                    tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_micros(at * 77 % 40_000)).await;
                        let asked = clock.fetch_add(1, Ordering::SeqCst) + 1;
                        let round = || async {
                            made.fetch_add(1, Ordering::SeqCst);
                            let began = clock.load(Ordering::SeqCst);
                            tokio::time::sleep(Duration::from_micros(asked * 31 % 3000)).await;
                            began
                        };
                        let began = rounds.ask(round).await;
                        assert!(began >= asked, "asked at {asked}, answered by a round that began at {began}");
                    })
                })
                .collect();
            for call in calls {
                call.await.unwrap();
            }
            let made = made.load(Ordering::SeqCst);
            assert!(made < 100, "{made} rounds for 400 calls");
        });
    }

    /// A call that is given up in the middle of its round leaves nobody without an answer, and gives nobody half of one.
    #[test]
    fn a_round_that_is_given_up_answers_nobody() {
        run(async {
            let rounds = Rounds::default();
            let given_up = tokio::time::timeout(Duration::from_millis(20), rounds.ask(std::future::pending)).await;
            assert!(given_up.is_err());
            assert_eq!(rounds.ask(|| async { 7 }).await, 7);
            assert_eq!(rounds.ask(|| async { 8 }).await, 8);
        });
    }
}
