//! Requests that were put aside, by session and in their order.

use std::collections::{BTreeMap, VecDeque};

use cenote_model::Request;
use cenote_store::SessionId;

use super::{Change, Holder};
use crate::service::Reply;

/// Something that waits.
pub enum Item {
    /// A request with its session and number, the node that it came from, and who gets the answer.
    Request(Box<(SessionId, u64, Option<Holder>, Request, Reply)>),
    /// The end of the session.
    Close(SessionId),
}

/// How a request waits for prepared transactions.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    /// It waits no longer than this.
    pub until_ns: u64,
    /// It is not tried again while this is [`super::Words::releases`].
    pub releases: u64,
}

/// Something that waits, and the change that it makes.
pub struct Parked {
    /// `None` while it is carried out.
    item: Option<Item>,
    change: Change,
    waiting: Option<Waiting>,
}

/// The first one of a queue, to be carried out.
pub struct Next {
    pub queue: SessionId,
    pub item: Item,
    pub waiting: Option<Waiting>,
}

impl Parked {
    /// A request. `waiting`: if it waits for a prepared transaction.
    pub fn request(
        (session, seq): (SessionId, u64),
        from: Option<Holder>,
        request: Request,
        reply: Reply,
        change: Change,
        waiting: Option<Waiting>,
    ) -> Self {
        Self { item: Some(Item::Request(Box::new((session, seq, from, request, reply)))), change, waiting }
    }
    /// The end of a session.
    pub fn close(session: SessionId) -> Self {
        Self { item: Some(Item::Close(session)), change: Change::default(), waiting: None }
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Queues(BTreeMap<SessionId, VecDeque<Parked>>);

impl Queues {
    pub fn len(&self) -> usize {
        self.0.len()
    }
    pub fn has(&self, queue: SessionId) -> bool {
        self.0.contains_key(&queue)
    }
    pub fn push(&mut self, queue: SessionId, parked: Parked) {
        self.0.entry(queue).or_default().push_back(parked);
    }
    /// Puts one behind the first of a queue, which is being carried out.
    pub fn push_next(&mut self, queue: SessionId, parked: Parked) {
        let all = self.0.entry(queue).or_default();
        all.insert(all.len().min(1), parked);
    }
    /// The first one of a queue that `may_go`. It stays in its place until it [`Queues::went`], or is put back.
    pub fn next(&mut self, may_go: impl Fn(&Change, Option<&Waiting>) -> bool) -> Option<Next> {
        let mut firsts = self.0.iter_mut().filter_map(|(queue, all)| Some((*queue, all.front_mut()?)));
        firsts.find_map(|(queue, parked)| {
            let may_go = parked.item.is_some() && may_go(&parked.change, parked.waiting.as_ref());
            let item = if may_go { parked.item.take() } else { None };
            item.map(|item| Next { queue, item, waiting: parked.waiting })
        })
    }
    /// Has one wait on that [`Queues::next`] gave.
    pub fn put_back(&mut self, next: Next, waiting: Waiting) {
        if let Some(parked) = self.0.get_mut(&next.queue).and_then(VecDeque::front_mut) {
            (parked.item, parked.waiting) = (Some(next.item), Some(waiting));
        }
    }
    /// Removes the first one of a queue, and returns its change.
    pub fn went(&mut self, queue: SessionId) -> Option<Change> {
        let all = self.0.get_mut(&queue)?;
        let parked = all.pop_front()?;
        if all.is_empty() {
            self.0.remove(&queue);
        }
        Some(parked.change)
    }
    /// When the first request has waited for long enough.
    pub fn until_ns(&self) -> Option<u64> {
        self.0.values().filter_map(|all| Some(all.front()?.waiting?.until_ns)).min()
    }
}
