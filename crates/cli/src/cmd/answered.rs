//! Commands that show what all homes of a cluster have: what the others say is shown while one does not answer.

use std::io::{self, IsTerminal};
use std::time::Duration;

use cenote::{Answered, Error, ErrorKind, HomeId, Result};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::Context;
use crate::failure::Done;

/// Whoever waits for longer is told what for.
const SILENTLY: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Asks all homes. A home that is being taken over by another node answers after some seconds: meanwhile a terminal shows what
/// is waited for.
pub fn patiently<T: Send>(
    context: &Context<'_>,
    ask: impl FnOnce() -> Result<Answered<T>> + Send,
) -> Result<Answered<T>> {
    if !context.progress() || !io::stderr().is_terminal() {
        return ask();
    }
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if is_done.recv_timeout(SILENTLY) != Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                return;
            }
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            if let Ok(style) =
                ProgressStyle::with_template("waiting for homes that do not answer (`cenote ha`) {spinner} {elapsed}")
            {
                bar.set_style(style);
            }
            bar.enable_steady_tick(TICK);
            let _ = is_done.recv(); // the other end is dropped
            bar.finish_and_clear();
        });
        let told = ask();
        drop(done);
        told
    })
}

/// Fails if homes did not answer, once what the others say was shown.
pub fn all(silent: Vec<(HomeId, Error)>) -> Done {
    let homes: Vec<String> = silent.iter().map(|(home, _)| home.to_string()).collect();
    let Some((_, why)) = silent.into_iter().next() else { return Ok(()) };
    if let [_] = homes[..] {
        return Err(why.into());
    }
    let next = "`cenote ha` shows which nodes are missing; start them, or mend the network";
    let error = Error::new(ErrorKind::Disconnected, format!("homes {}", homes.join(", ")));
    Err(error.because(format!("none of them answers; of the first: {}", why.cause())).try_next(next).into())
}
