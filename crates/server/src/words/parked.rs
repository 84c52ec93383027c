//! Requests that were put aside, by session and in their order.

use std::collections::{BTreeMap, VecDeque};

use cenote_model::Request;
use cenote_store::SessionId;

use super::{Change, Holder};
use crate::service::Reply;

/// Something that waits.
pub enum Item {
    /// A request with its number, the node that it came from, and who gets the answer.
    Request(Box<(u64, Option<Holder>, Request, Reply)>),
    /// The end of the session.
    Close,
}

/// Something that waits, and the change that it makes.
pub struct Parked {
    /// `None` while it is carried out.
    item: Option<Item>,
    change: Change,
}

impl Parked {
    /// A request.
    pub fn request(seq: u64, from: Option<Holder>, request: Request, reply: Reply, change: Change) -> Self {
        Self { item: Some(Item::Request(Box::new((seq, from, request, reply)))), change }
    }
    /// The end of a session.
    pub fn close() -> Self {
        Self { item: Some(Item::Close), change: Change::default() }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<SessionId, VecDeque<Parked>>);

impl Queues {
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn has(&self, session: SessionId) -> bool {
        self.0.contains_key(&session)
    }
    pub fn push(&mut self, session: SessionId, parked: Parked) {
        self.0.entry(session).or_default().push_back(parked);
    }
    /// The first one of a session whose change `is_free`. It stays in its place until it [`Queues::went`].
    pub fn next(&mut self, is_free: impl Fn(&Change) -> bool) -> Option<(SessionId, Item)> {
        let mut firsts = self.0.iter_mut().filter_map(|(session, queue)| Some((*session, queue.front_mut()?)));
        firsts.find_map(|(session, parked)| {
            let is_free = parked.item.is_some() && is_free(&parked.change);
            if is_free { parked.item.take().map(|item| (session, item)) } else { None }
        })
    }
    /// Removes the first one of a session, and returns its change.
    pub fn went(&mut self, session: SessionId) -> Option<Change> {
        let queue = self.0.get_mut(&session)?;
        let parked = queue.pop_front()?;
        if queue.is_empty() {
            self.0.remove(&session);
        }
        Some(parked.change)
    }
}
