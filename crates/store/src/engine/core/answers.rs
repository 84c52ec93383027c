//! Answers: who waits until something survives power loss, or a device is empty, and what is ready.

use std::collections::HashSet;

use cenote_model::{ContainerId, Durability, Error, ErrorKind, FlushTarget, Response};

use super::Core;
use crate::engine::failed;
use crate::{Outcome, Ticket};

/// Answers that are to come, and those that are ready.
#[derive(Default)]
pub struct Answers {
    pub waiting: Vec<Waiter>,
    pub finished: Vec<(Ticket, Response)>,
    /// How many tickets there were.
    pub tickets: u64,
    /// Journal position after the last deletion of a container: who waits for one that is gone waits for that.
    pub container_deleted_at: u64,
}

/// Who waits for what.
#[derive(Debug)]
pub struct Waiter {
    pub ticket: Ticket,
    pub what: Wait,
    pub response: Response,
}

/// What is waited for.
#[derive(Debug)]
pub enum Wait {
    /// The journal is on media up to `journal`, and each container survives power loss up to its epoch. `any`: which
    /// containers it was about is not remembered, so it is about every one that becomes `Sync` meanwhile too.
    Durable { journal: u64, containers: Vec<(ContainerId, u64)>, any: bool },
    /// The device is empty.
    Drained { dev: u8 },
}

impl Core {
    /// The answer to a change that was just made: at once, or when `Sync` containers that it touched are durable.
    pub fn when_durable(&mut self, response: Response) -> Outcome {
        let mut containers = Vec::new();
        for id in &self.txn.touched {
            let Some(container) = self.state.containers.get(*id) else { continue };
            // One that was `Sync` until now promises this last change.
            if container.spec.durability == Durability::Sync || self.txn.ends_sync {
                containers.push((*id, container.epoch));
            }
        }
        if containers.is_empty() && !self.txn.ends_sync {
            Outcome::Ready(response)
        } else {
            self.wait_durable(containers, response, false)
        }
    }

    /// The answer to a change that was made before. Which containers it was about is not remembered: it waits for all
    /// that promise to be durable, be it from now on.
    pub fn when_all_durable(&mut self, response: Response) -> Outcome {
        let sync = self.state.containers.iter().filter(|container| container.spec.durability == Durability::Sync);
        let mut containers: Vec<(ContainerId, u64)> = sync.map(|container| (container.id, container.epoch)).collect();
        containers.sort_unstable();
        self.wait_durable(containers, response, true)
    }

    /// A container has become `Sync`: answers that are not given yet may promise its content too.
    pub fn became_sync(&mut self, id: ContainerId) {
        let Some(epoch) = self.state.containers.get(id).map(|container| container.epoch) else { return };
        for waiter in &mut self.answers.waiting {
            if let Wait::Durable { containers, any: true, .. } = &mut waiter.what {
                containers.push((id, epoch));
            }
        }
    }

    /// Returns when everything acknowledged so far within the target would survive power loss.
    pub fn flush(&mut self, target: FlushTarget) -> Outcome {
        self.update_clock();
        let ids = match target {
            FlushTarget::Store => self.state.containers.ids(),
            FlushTarget::Container(id) => vec![id],
            FlushTarget::Object(key) => {
                if let Err(error) = self.object(key) {
                    return failed(error);
                }
                vec![key.container]
            }
        };
        let mut containers = Vec::new();
        for id in ids {
            let Some(container) = self.state.containers.get(id) else {
                return failed(Error::new(ErrorKind::NotFound, format!("container {id}")));
            };
            if container.is_dirty() {
                containers.push((id, container.epoch));
            } else if container.is_tracked() && container.durable.persisted_at > self.journal.synced() {
                containers.push((id, container.durable.persisted));
            }
        }
        self.wait_durable(containers, Response::Done, false)
    }

    pub fn wait_durable(&mut self, containers: Vec<(ContainerId, u64)>, response: Response, any: bool) -> Outcome {
        let what = Wait::Durable { journal: self.journal.position(), containers, any };
        if self.is_over(&what) {
            return Outcome::Ready(response);
        }
        if let Wait::Durable { containers, .. } = &what {
            for (id, epoch) in containers {
                if self.state.containers.get(*id).is_some_and(|c| c.durable.persisted < *epoch) {
                    self.state.cuts.wanted.insert(*id);
                }
            }
        }
        let ticket = self.ticket();
        self.answers.waiting.push(Waiter { ticket, what, response });
        Outcome::Wait(ticket)
    }

    /// Journal position that somebody waits for. Who waits for a container too waits for its mark first: one sync is enough.
    pub fn journal_wanted(&self) -> u64 {
        let mut wanted = 0;
        for waiter in &self.answers.waiting {
            let Wait::Durable { journal, containers, .. } = &waiter.what else { continue };
            let mut position = *journal;
            let marked = containers.iter().all(|(id, epoch)| {
                let Some(container) = self.state.containers.get(*id) else { return true };
                position = position.max(container.durable.persisted_at);
                container.durable.persisted >= *epoch
            });
            if marked {
                wanted = wanted.max(position);
            }
        }
        wanted
    }

    /// Brings the list of wanted containers up to date.
    pub fn update_wanted(&mut self) {
        self.state.cuts.wanted.clear();
        for waiter in &self.answers.waiting {
            let Wait::Durable { containers, .. } = &waiter.what else { continue };
            for (id, epoch) in containers {
                if self.state.containers.get(*id).is_some_and(|c| c.durable.persisted < *epoch) {
                    self.state.cuts.wanted.insert(*id);
                }
            }
        }
    }

    pub fn is_over(&self, what: &Wait) -> bool {
        match what {
            Wait::Durable { journal, containers, .. } => {
                let synced = self.journal.synced();
                *journal <= synced
                    && containers.iter().all(|(id, epoch)| {
                        let container = self.state.containers.get(*id);
                        // A container that is gone could come back with what was not synced of the journal.
                        let Some(c) = container else { return self.answers.container_deleted_at <= synced };
                        !c.is_tracked() || (c.durable.persisted >= *epoch && c.durable.persisted_at <= synced)
                    })
            }
            Wait::Drained { dev } => self.is_drained(*dev),
        }
    }

    /// Moves what is over to the finished.
    pub fn answer_waiters(&mut self) {
        if self.answers.waiting.is_empty() {
            return;
        }
        let waiting = std::mem::take(&mut self.answers.waiting);
        for waiter in waiting {
            if self.is_over(&waiter.what) {
                self.answers.finished.push((waiter.ticket, waiter.response));
            } else {
                self.answers.waiting.push(waiter);
            }
        }
    }

    /// Tells everybody who waits for one of these containers that it failed.
    pub fn fail_waiters_of(&mut self, members: &HashSet<ContainerId>, error: &Error) {
        let waiting = std::mem::take(&mut self.answers.waiting);
        for waiter in waiting {
            let about = match &waiter.what {
                Wait::Durable { containers, .. } => containers.iter().any(|(id, epoch)| {
                    members.contains(id) && self.state.containers.get(*id).is_some_and(|c| c.durable.persisted < *epoch)
                }),
                Wait::Drained { .. } => false,
            };
            if about {
                self.answers.finished.push((waiter.ticket, Response::Failed(error.clone())));
            } else {
                self.answers.waiting.push(waiter);
            }
        }
    }

    /// Tells everybody who waits for something that fits.
    pub fn fail_waiters(&mut self, error: &Error, fits: impl Fn(&Wait) -> bool) {
        let waiting = std::mem::take(&mut self.answers.waiting);
        for waiter in waiting {
            if fits(&waiter.what) {
                self.answers.finished.push((waiter.ticket, Response::Failed(error.clone())));
            } else {
                self.answers.waiting.push(waiter);
            }
        }
    }
}
