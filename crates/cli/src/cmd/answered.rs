//! Commands that show what all homes of a cluster have: what the others say is shown while one does not answer.

use cenote::{Error, ErrorKind, HomeId};

use crate::failure::Done;

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
