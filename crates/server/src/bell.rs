//! A bell for one thread that sleeps between its turns. One that rings while the thread is awake ends its next sleep.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::service::lock;

/// See the module.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    wake: Condvar,
}

impl Bell {
    /// Wakes the thread.
    pub fn ring(&self) {
        *lock(&self.rung) = true;
        self.wake.notify_one();
    }
    /// Sleeps until the bell rings, for `patience` at most.
    pub fn wait(&self, patience: Duration) {
        let mut rung = lock(&self.rung);
        if !*rung {
            rung = self.wake.wait_timeout(rung, patience).unwrap_or_else(PoisonError::into_inner).0;
        }
        *rung = false;
    }
}
