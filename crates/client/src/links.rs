//! The links of a session to the homes of a cluster: the root link to that of the own node, and one to each other home, made
//! when first wanted. This file must not know how to reach a home.

use std::sync::{Arc, OnceLock};

use cenote_model::{HomeId, Result};

use crate::link::Link;
use crate::link::attachment::Attachment;

/// Homes in one part of the table.
const PART: usize = 256;

type Part = Box<[OnceLock<Arc<Link>>]>;

/// The links; see the module.
pub(crate) struct Links {
    root: Arc<Link>,
    /// The home of the root link; 0 if the store is no part of a cluster.
    own: HomeId,
    others: Option<Others>,
}

/// Links to other homes, by number. References to them stay valid, since none is removed.
struct Others {
    /// What they are attached to until their first request.
    nowhere: Arc<Attachment>,
    parts: Box<[OnceLock<Part>]>,
}

impl Links {
    /// Only the root link, at first. Fails if the system gives no memory.
    pub fn of(root: Arc<Link>) -> Result<Self> {
        let own = root.channel.attachment().place.home;
        let others = if own == HomeId(0) { None } else { Some(Others::new()?) };
        Ok(Self { root, own, others })
    }
    /// The root link.
    #[inline]
    pub fn root(&self) -> &Arc<Link> {
        &self.root
    }
    /// The home of the root link; 0 if the store is no part of a cluster.
    pub fn own(&self) -> HomeId {
        self.own
    }
    /// The link to a home. In a store that is no part of a cluster there is only one.
    #[inline]
    pub fn to(&self, home: HomeId) -> &Arc<Link> {
        match &self.others {
            Some(others) if home != self.own && home != HomeId(0) => others.to(home, &self.root),
            _ => &self.root,
        }
    }
    /// Calls `each` with every link that was made, the root link last.
    pub fn for_each(&self, mut each: impl FnMut(&Arc<Link>)) {
        let parts = self.others.iter().flat_map(|others| others.parts.iter().filter_map(OnceLock::get));
        parts.flat_map(|part| part.iter().filter_map(OnceLock::get)).for_each(&mut each);
        each(&self.root);
    }
    /// The same for something that may fail: all are called, and the first error is returned.
    pub fn try_for_each(&self, mut each: impl FnMut(&Arc<Link>) -> Result<()>) -> Result<()> {
        let mut result = Ok(());
        self.for_each(|link| {
            let done = each(link);
            result = std::mem::replace(&mut result, Ok(())).and(done);
        });
        result
    }
    /// The home that keeps the labels of the cluster; `None` if the store is no part of one.
    pub fn first(&self) -> Option<HomeId> {
        if self.others.is_none() { None } else { self.homes().first().copied() }
    }
    /// The homes of the cluster, ascending; empty if the store is no part of one.
    pub fn homes(&self) -> Vec<HomeId> {
        self.root.channel.attachment().place.homes.clone()
    }
}

impl Others {
    fn new() -> Result<Self> {
        let parts = (0..=usize::from(u16::MAX) / PART).map(|_| OnceLock::new()).collect();
        Ok(Self { nowhere: Arc::new(Attachment::nowhere()?), parts })
    }
    fn to(&self, home: HomeId, root: &Arc<Link>) -> &Arc<Link> {
        let number = usize::from(home.0);
        let part = self.parts[number / PART].get_or_init(|| (0..PART).map(|_| OnceLock::new()).collect());
        part[number % PART].get_or_init(|| root.to_home(home, &self.nowhere))
    }
}
