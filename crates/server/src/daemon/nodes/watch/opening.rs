//! How a node reaches the register and the boards.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cenote_cluster::register::{GroupRegister, GroupTimes, Register, RemoteRegister};
use cenote_cluster::{Beat, Member, Members, Notice, RegisterPlace};
use cenote_ha::Settings;
use cenote_model::{ErrorKind, NodeId, Result};
use cenote_rpc::net::{ClusterKey, Introduction};

use super::super::roster::Roster;
use super::cached::Cached;
use super::keeper::Keeper;
use super::way::{Asking, Carrying, Way};

/// How long a question to the register may take, in shortest times of suspicion: an election fits in.
const QUESTION: u32 = 4;

/// A board to which a node tells that it lives.
pub(super) enum Board {
    /// This node has it.
    Here(Arc<Keeper>),
    There(Arc<Way>),
}

impl Board {
    /// The node that has it; `me`: this one.
    pub fn node(&self, me: NodeId) -> NodeId {
        match self {
            Self::Here(_) => me,
            Self::There(way) => way.node(),
        }
    }
    /// Tells it that this node lives. Returns what it knows of all nodes.
    pub fn beat(&self, beat: Beat) -> Result<Notice> {
        match self {
            Self::Here(keeper) => keeper.beat(beat),
            Self::There(way) => way.beat(&beat),
        }
    }
}

/// What a node opens.
pub(super) struct Opened {
    /// The register.
    pub register: Arc<dyn Register>,
    /// All boards.
    pub boards: Vec<Board>,
}

/// The ways of a node with these members.
pub(super) fn open(
    dir: &Path,
    roster: &Arc<Roster>,
    who: Introduction,
    key: &ClusterKey,
    settings: &Settings,
) -> Result<Opened> {
    let silence = Duration::from_micros(settings.silence_us_min);
    let members = &*roster.get();
    let others = members.keepers().iter().filter(|keeper| keeper.home != members.home);
    let way = |to: &Member| (NodeId(to.home.0), Arc::new(Way::new(to.clone(), who, key.clone(), silence)));
    let ways: BTreeMap<NodeId, Arc<Way>> = others.map(way).collect();
    let there = || ways.values().cloned().map(Board::There);
    let remote = || -> Arc<dyn Register> {
        let names: Vec<String> = members.keepers().iter().map(|keeper| format!("`{}`", keeper.name)).collect();
        let asking = Asking::new(ways.values().cloned().collect());
        Arc::new(RemoteRegister::new(asking, &format!("the nodes {}", names.join(", ")), silence * QUESTION))
    };
    if !members.is_keeper() {
        return Ok(Opened { register: remote(), boards: there().collect() });
    }
    let mut group = None;
    let register: Arc<dyn Register> = match &members.register {
        RegisterPlace::First => Arc::new(Cached::open(dir)?),
        RegisterPlace::Nodes => {
            group = open_group(dir, members, &ways, silence)?;
            match &group {
                Some(group) => group.clone(),
                None => remote(),
            }
        }
        outside => outside.open(members.cluster)?.unwrap_or_else(remote),
    };
    let keeper = Arc::new(Keeper::new(roster, register.clone(), group)?);
    let boards = std::iter::once(Board::Here(keeper)).chain(there()).collect();
    Ok(Opened { register, boards })
}

/// This node's part of the register; `None` if it was lost.
fn open_group(
    dir: &Path,
    members: &Members,
    ways: &BTreeMap<NodeId, Arc<Way>>,
    silence: Duration,
) -> Result<Option<Arc<GroupRegister>>> {
    let times = GroupTimes { silence, patience: silence * QUESTION };
    let group: Vec<NodeId> = members.keepers().iter().map(|keeper| NodeId(keeper.home.0)).collect();
    let me = NodeId(members.home.0);
    match GroupRegister::open(dir, me, &group, times, Arc::new(Carrying(ways.clone()))) {
        Ok(register) => Ok(Some(Arc::new(register))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            tracing::error!(%error, "this node keeps no part of the register any more");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
