//! Responses that wait: until an epoch survives power loss, or until a device is empty.

use std::collections::HashSet;

use cenote_model::{ContainerId, Durability, Error, ErrorKind, FlushTarget, Response};

use super::Core;
use crate::engine::failed;
use crate::map::DeviceIndex;
use crate::{Outcome, Ticket};

/// Responses that are pending, and those that are ready.
#[derive(Default)]
pub struct Answers {
    pub waiting: Vec<Waiter>,
    pub finished: Vec<(Ticket, Response)>,
    /// Number of tickets handed out so far.
    pub tickets: u64,
    /// Journal position after the last deletion of a container. A request that waits for a deleted container waits for
    /// this position.
    pub container_deleted_at: u64,
}

/// A pending response and its condition.
#[derive(Debug)]
pub struct Waiter {
    pub ticket: Ticket,
    pub what: Wait,
    pub response: Response,
}

/// The condition of a pending response.
#[derive(Debug)]
pub enum Wait {
    /// The journal is on media up to `journal`, and each container survives power loss up to its epoch. `any`: the
    /// response does not remember its containers, so it also covers every container that becomes `Sync` meanwhile.
    Durable { journal: u64, containers: Vec<(ContainerId, u64)>, any: bool },
    /// The device is empty.
    Drained { dev: DeviceIndex },
}

impl Core {
    /// Returns the response to a new change: at once, or when the `Sync` containers that it touched are durable.
    pub fn when_durable(&mut self, response: Response) -> Outcome {
        let mut containers = Vec::new();
        for id in &self.txn.touched {
            let Some(container) = self.state.containers.get(*id) else { continue };
            // A container that was `Sync` until now still promises this last change.
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

    /// Returns the response to a repeated change. The record of the change does not name its containers, so the
    /// response waits for all containers that are `Sync` now or become so.
    pub fn when_all_durable(&mut self, response: Response) -> Outcome {
        let sync = self.state.containers.iter().filter(|container| container.spec.durability == Durability::Sync);
        let mut containers: Vec<(ContainerId, u64)> = sync.map(|container| (container.id, container.epoch)).collect();
        containers.sort_unstable();
        self.wait_durable(containers, response, true)
    }

    /// Adds a container that has become `Sync` to the pending responses that do not remember their containers.
    pub fn became_sync(&mut self, id: ContainerId) {
        let Some(epoch) = self.state.containers.get(id).map(|container| container.epoch) else { return };
        for waiter in &mut self.answers.waiting {
            if let Wait::Durable { containers, any: true, .. } = &mut waiter.what {
                containers.push((id, epoch));
            }
        }
    }

    /// Returns when everything acknowledged so far within the target would survive power loss. Fails if the object or
    /// container does not exist.
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

    /// Waits until the journal up to here is on media and each container is persisted up to its epoch. Requests cuts
    /// for the containers that lag.
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

    /// Journal position that a pending response needs on media. Responses that also wait for a container count only
    /// after its mark (commit record), so that one sync is enough.
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

    /// Recomputes the set of containers that somebody waits for.
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

    /// Returns true if the condition holds.
    pub fn is_over(&self, what: &Wait) -> bool {
        match what {
            Wait::Durable { journal, containers, .. } => {
                let synced = self.journal.synced();
                *journal <= synced
                    && containers.iter().all(|(id, epoch)| {
                        let container = self.state.containers.get(*id);
                        // A deleted container could come back if its deletion is not yet on media.
                        let Some(c) = container else { return self.answers.container_deleted_at <= synced };
                        !c.is_tracked() || (c.durable.persisted >= *epoch && c.durable.persisted_at <= synced)
                    })
            }
            Wait::Drained { dev } => self.is_drained(*dev),
        }
    }

    /// Moves responses whose condition holds to `finished`.
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

    /// Fails all responses that wait for one of these containers to be persisted.
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

    /// Fails all responses whose condition fits.
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
