//! Nodes that a person has given up, and the homes that are lost with them: who they are, whether this node is one of them, and
//! what has to be known of a node before it may be given up.

use cenote_cluster::Heard;
use cenote_ha::{History, MemberState, View};
use cenote_model::{ClusterChange, Error, ErrorKind, HomeId, NodeId, Result};

use super::Watch;
use super::opening::Board;
use super::times::now_us;
use crate::service::lock;

/// A node that is gone has been silent for so many of the shortest times of suspicion: no lease of it is left then.
const GONE_AFTER: u64 = 4;

impl Watch {
    /// Returns true if a person gave the node up, in the view that this node knows.
    pub fn is_given_up(&self, node: NodeId) -> bool {
        lock(&self.known).view().is_some_and(|view| view.is_given_up(node))
    }
    /// The homes of which no copy is left, each with the node that had the last one.
    pub fn lost_homes(&self) -> Vec<(HomeId, NodeId)> {
        let known = lock(&self.known);
        let Some(view) = known.view() else { return Vec::new() };
        let lost = view.homes.iter().filter(|home| view.is_lost(home));
        lost.map(|home| (HomeId(home.id.0), home.host)).collect()
    }
    /// Fails if this node was given up: by what it noted itself, or by what the first board says that answers. If none does, it
    /// may go on, as any node does while the register is away.
    pub fn check_member(&self) -> Result<()> {
        if let Some(view) = lock(&self.file).given_up() {
            return Err(self.was_given_up(view));
        }
        for told in &self.boards {
            let Board::There(way) = &told.board else { continue };
            let Ok(notice) = way.beat(&self.next_beat(told)) else { continue };
            let given_up = notice.held.and_then(|(view, _)| self.since(&view));
            return given_up.map_or(Ok(()), |view| Err(self.note_given_up(view)));
        }
        Ok(())
    }
    /// Notes that this node was given up, if the view says so. Returns true then.
    pub fn is_ended_by(&self, view: &View) -> bool {
        let Some(since) = self.since(view) else { return false };
        let error = self.note_given_up(since);
        tracing::error!(%error, "this daemon ends");
        true
    }
    /// The view that gave this node up, by what a view says.
    fn since(&self, view: &View) -> Option<u64> {
        match view.member(self.me)?.state {
            MemberState::GivenUp { since_view } => Some(since_view),
            _ => None,
        }
    }
    /// Notes it durably: the node is refused from now on, whoever can be asked.
    fn note_given_up(&self, view: u64) -> Error {
        if let Err(error) = lock(&self.file).note_given_up(view) {
            tracing::warn!(%error, "that this node was given up could not be noted");
        }
        self.was_given_up(view)
    }
    #[cold]
    fn was_given_up(&self, view: u64) -> Error {
        let dir = self.roster.dir().display().to_string();
        let name = self.roster.get().of(HomeId(self.me.0)).map_or_else(String::new, |member| member.name.clone());
        Error::new(ErrorKind::Unsupported, format!("node `{name}` in {dir}"))
            .because(format!(
                "it was given up (`cenote cluster give-up`, view {view}): its cluster goes on without what lies here"
            ))
            .try_next(format!(
                "delete what lies here, `cenote destroy {dir}`, and have the host join as a new node, `cenote cluster join`"
            ))
    }
    /// What this node has heard of the node that a change is about.
    pub(super) fn heard<'a>(&self, change: ClusterChange, history: &'a History) -> Heard<'a> {
        match change {
            ClusterChange::Join { node } => Heard { hello: history.hello(node), ..Heard::default() },
            ClusterChange::GiveUp { node, .. } => {
                // One that was never heard is as silent as this daemon is old.
                let us = history.silence_us(node).unwrap_or_else(|| now_us().saturating_sub(self.begun_us));
                Heard { silence: Some((us, us >= self.gone_us())), loads: history.loads(), ..Heard::default() }
            }
            ClusterChange::Leave { .. } => Heard { loads: history.loads(), ..Heard::default() },
            _ => Heard::default(),
        }
    }
    /// Fails if the register has not answered lately, so that nothing can be changed.
    pub(super) fn check_register(&self) -> Result<()> {
        let asked_us = lock(&self.known).history.asked_us();
        // Before its first answer: for as long as this daemon is there.
        let ago_us = now_us().saturating_sub(asked_us.unwrap_or(self.begun_us));
        if asked_us.is_some() && ago_us < self.gone_us() {
            return Ok(());
        }
        let ago = ago_us as f64 / 1e6;
        Err(Error::new(ErrorKind::Busy, "the register of the cluster")
            .because(format!(
                "it has not answered for {ago:.1} s: more than half of the nodes that keep it have to be there"
            ))
            .try_next(
                "start the daemons of those nodes, which `cenote cluster status` names, and try again in some seconds",
            ))
    }
    fn gone_us(&self) -> u64 {
        GONE_AFTER * self.settings.silence_us_min
    }
}
