//! What those homes of a cluster say that answer.

use cenote_model::{Error, HomeId, Result};

use crate::link::Link;
use crate::session::Session;

/// What was found at the homes of a cluster that answer, and which do not. Homes that are lost for good are neither: they have
/// nothing any more.
#[derive(Clone, Debug)]
pub struct Answered<T> {
    /// What was found.
    pub found: Vec<T>,
    /// The homes that do not answer, each with the reason.
    pub silent: Vec<(HomeId, Error)>,
}

impl<T> Answered<T> {
    /// What was found, if all homes answer; else the reason why one does not.
    pub fn of_all(self) -> Result<Vec<T>> {
        self.silent.into_iter().next().map_or(Ok(self.found), |(_, why)| Err(why))
    }
    /// What was found, if any home answers; else the reason why one does not.
    pub fn of_any(self) -> Result<Vec<T>> {
        if self.found.is_empty() { self.of_all() } else { Ok(self.found) }
    }
}

impl<T> From<Vec<T>> for Answered<T> {
    fn from(found: Vec<T>) -> Self {
        Self { found, silent: Vec::new() }
    }
}

/// Asks the homes that are wanted, all at once: those that do not answer make nobody wait for more than one of them.
pub(crate) fn each_home<T: Send>(
    session: &Session,
    is_wanted: impl Fn(HomeId) -> bool,
    ask: impl Fn(HomeId, &Link) -> Result<Vec<T>> + Sync,
) -> Answered<T> {
    let homes: Vec<_> = session.all().into_iter().filter(|(home, _)| is_wanted(*home)).collect();
    let told: Vec<Result<Vec<T>>> = if let [(home, link)] = homes[..] {
        vec![ask(home, link)]
    } else {
        std::thread::scope(|scope| {
            let ask = &ask;
            let threads: Vec<_> = homes.iter().map(|(home, link)| scope.spawn(move || ask(*home, link))).collect();
            let joined = threads.into_iter().map(std::thread::ScopedJoinHandle::join);
            joined.map(|told| told.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
        })
    };
    let mut all = Answered { found: Vec::new(), silent: Vec::new() };
    for ((home, link), told) in homes.into_iter().zip(told) {
        match told {
            Ok(mut found) => all.found.append(&mut found),
            Err(_) if link.channel.is_lost() => {}
            Err(error) => all.silent.push((home, error)),
        }
    }
    all
}
