//! A home that goes to another node on purpose.

use cenote_model::{Error, ErrorKind, HomeId, NodeId, Result};

use super::{Acts, lock};

/// A home that is on its way to another node; dropped, it stays unless the view says otherwise.
pub(in super::super) struct Yielding<'a> {
    acts: &'a Acts,
    pub(super) home: HomeId,
    pub(super) to: NodeId,
}

impl Yielding<'_> {
    /// Returns true once the copy on the other node is complete. Fails if nothing is sent there any more: the node was excluded
    /// meanwhile, and has to ask again.
    pub fn is_caught_up(&self) -> Result<bool> {
        let state = lock(&self.acts.nodes.homes.state);
        match state.mirrors.get(&(self.home, self.to)) {
            Some(mirror) => Ok(mirror.far().is_caught_up),
            None => Err(Error::new(ErrorKind::Busy, format!("home {}", self.home))
                .because("its copy was given up, since the node did not take part for a moment")),
        }
    }
    /// Lets nothing be told any more, until it is dropped. Returns how many changes may have been told.
    pub fn freeze(&self) -> u64 {
        let mut state = lock(&self.acts.nodes.homes.state);
        state.yielding.insert(self.home, (self.to, true));
        self.acts.require(&mut state);
        let hosted = state.hosted.get(&self.home);
        hosted.map_or(u64::MAX, |hosted| {
            hosted.mirroring.set_lease(0);
            hosted.mirroring.stream.end()
        })
    }
    /// Returns true if the other node has so many changes, as all other mirrors do.
    pub fn has(&self, changes: u64) -> bool {
        let state = lock(&self.acts.nodes.homes.state);
        state.hosted.get(&self.home).is_some_and(|hosted| hosted.mirroring.stream.kept() >= changes)
    }
}

impl Drop for Yielding<'_> {
    fn drop(&mut self) {
        lock(&self.acts.nodes.homes.state).yielding.remove(&self.home);
    }
}

impl Acts {
    /// Begins to send a home to the node that is to have it. Fails if this node is not its host.
    pub fn begin_yielding(&self, home: HomeId, to: NodeId) -> Result<Yielding<'_>> {
        let mut state = lock(&self.nodes.homes.state);
        let hosted = state.hosted.get(&home).cloned().filter(|_| state.is_host(self.me(), home));
        let hosted = hosted.ok_or_else(|| not_host(home))?;
        let is_live = state.view.as_ref().is_some_and(|view| view.is_live(to));
        if !is_live || state.yielding.contains_key(&home) {
            return Err(Error::new(ErrorKind::Busy, format!("home {home}"))
                .because(format!("node {} does not take part yet, or another node gets the home", to.0))
                .try_next("see `cenote ha`"));
        }
        state.yielding.insert(home, (to, false));
        if !self.share_homes() {
            self.send_to(&mut state, &hosted, to);
        }
        Ok(Yielding { acts: self, home, to })
    }
}

#[cold]
fn not_host(home: HomeId) -> Error {
    Error::new(ErrorKind::Conflict, format!("home {home}"))
        .because("this node is not its host")
        .try_next("see `cenote ha`")
}
