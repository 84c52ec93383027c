//! Access rights. This is the only place that judges them: every request passes here, whatever its transport, and the
//! match over the kinds of requests names all of them, so that a new one cannot be forgotten.
//!
//! A session that is not bound (the store owner's and root's) may do everything that it can do at all. A bound session
//! may do with a container what its owner, group and mode allow, and nothing that concerns the store as a whole.

use cenote_model::{
    Arrange, ArrangeTarget, Check, ContainerId, ContainerSpec, Error, ErrorKind, FlushTarget, Request, Result, Right,
    Telemetry, Update, WeightsAsk,
};

use super::Core;
use crate::container::Container;
use crate::state::EngineState;
use crate::{SessionId, SessionInfo};

/// Limit of what a session sees in answers about the whole store: `None` for all, or the user whose rights apply.
pub type Caller<'a> = Option<&'a SessionInfo>;

impl Core {
    /// Fails if this session may not make this request.
    pub fn check_rights(&self, who: &SessionInfo, request: &Request) -> Result<()> {
        if !who.write && request.changes() {
            return Err(only_reads(who));
        }
        if who.bound.is_none() {
            return Ok(());
        }
        let asker = Asker { state: &self.state, who };
        match request {
            Request::Apply { checks, updates, .. }
            | Request::Prepare { checks, updates, .. }
            | Request::Decide { checks, updates, .. } => asker.may_apply(checks, updates),
            Request::Lookup { key, .. }
            | Request::ObjectStat { key }
            | Request::Explain { key }
            | Request::Fetch { key, .. }
            | Request::Unreadable { key, .. }
            | Request::Read { key, .. } => asker.may(key.container, Right::Read),
            Request::Get { index, .. } | Request::Next { index, .. } => asker.may(index.container, Right::Read),
            Request::IndexExists { key } => asker.may(key.container, Right::Read),
            Request::ObjectList { container, .. }
            | Request::IndexList { container, .. }
            | Request::SnapshotList { container, .. }
            | Request::SnapshotByName { container, .. }
            | Request::Habit { container, .. }
            | Request::HabitLearned { container, .. } => asker.may(*container, Right::Read),
            Request::Deposit { container, .. } => asker.may(*container, Right::Write),
            Request::ContainerByLabel { label } => {
                let found = self.state.containers.by_label(label);
                found.map_or(Ok(()), |container| asker.may(container.id, Right::Find))
            }
            Request::ContainerById { id } => asker.may(*id, Right::Find),
            Request::ContainerContent { id, .. } => asker.may(*id, Right::Read),
            Request::Touched { reads } => reads.iter().try_for_each(|it| asker.may(it.key.container, Right::Read)),
            Request::Flush { target } => asker.may_target(*target, Right::Find, Ok(())),
            Request::Verify { target } => asker.may_target(*target, Right::Read, asker.refuse_store("to read all of it")),
            Request::Arrange { target, what, dry_run } => asker.may_arrange(target, what, *dry_run),
            // These show no content of containers, or only what this session may see: [`Self::may_see`].
            Request::ContainerList { .. }
            | Request::Telemetry { .. }
            | Request::HaReport
            | Request::Protect { .. }
            | Request::Devices
            | Request::Stats
            | Request::Moved
            | Request::Profile { measure_ms: 0, .. }
            | Request::Weights { ask: WeightsAsk::Show }
            // The session's own pins and leases.
            | Request::SnapshotUnpin { .. }
            | Request::Unlease { .. } => Ok(()),
            // Space that held others' bytes goes only to sessions that may map it.
            Request::Lease { .. } => Err(denied("the memory of this store").because(format!(
                "user {} gets no space that others had: bytes go through the daemon",
                who.uid
            ))),
            Request::DeviceAdd { .. }
            | Request::DeviceDrain { .. }
            | Request::DeviceRemove { .. }
            | Request::Profile { .. } => asker.refuse_store("to change its tiers"),
            Request::PolicySet { .. } | Request::PolicyShow | Request::RulesTry | Request::Progress => {
                asker.refuse_store("to see or change what moves all of its data")
            }
            Request::Weights { .. } => asker.refuse_store("to set the weights of users"),
            Request::ChangeCluster { .. } => asker.refuse_store("to change its cluster"),
            Request::Checkpoint | Request::Shutdown { .. } => asker.refuse_store("to stop its daemon or have it write a checkpoint"),
            Request::Settle { .. } | Request::Ask { .. } | Request::Forget { .. } => asker.refuse_store("to settle what others began"),
        }
    }

    /// Checks as [`Self::check_rights`] does, by session id. A session that is not open passes.
    #[cold]
    pub fn check_rights_of(&self, session: SessionId, request: &Request) -> Result<()> {
        match request {
            // It gives up its own.
            Request::Ask { transaction, .. } if transaction.session == session.0 => Ok(()),
            _ => self.state.sessions.open.get(&session).map_or(Ok(()), |open| self.check_rights(&open.info, request)),
        }
    }

    /// Returns the user whose rights limit an answer, or `None` for a session that is not bound.
    pub fn seer(&self, session: SessionId) -> Caller<'_> {
        self.state.sessions.open.get(&session).map(|open| &open.info).filter(|who| who.bound.is_some())
    }

    /// Returns true if the asker may know that this container exists.
    pub fn may_see(&self, seer: Caller<'_>, container: &Container) -> bool {
        seer.is_none_or(|who| Asker { state: &self.state, who }.allows(container, Right::Find))
    }

    /// Removes from the telemetry what concerns containers that the asker may not see, and other users' programs.
    pub fn keep_visible(&self, seer: Caller<'_>, told: &mut Telemetry) {
        let Some(who) = seer else { return };
        let sees = |id: ContainerId, right| Asker { state: &self.state, who }.may(id, right).is_ok();
        told.hot.retain(|hot| sees(hot.key.container, Right::Read));
        told.containers.retain(|container| sees(container.id, Right::Find));
        told.clients.retain(|client| client.uid == who.uid);
        told.users.retain(|user| user.uid == who.uid);
    }

    /// Sets the session's user and group as owners of a new container that names none.
    pub fn fill_in_owners(&self, session: SessionId, spec: &mut ContainerSpec) {
        let Some(session) = self.state.sessions.open.get(&session) else { return };
        spec.owner_uid = spec.owner_uid.or(Some(session.info.uid));
        spec.owner_gid = spec.owner_gid.or(Some(session.info.gid));
    }
}

/// A bound session and the state that it asks about.
#[derive(Clone, Copy)]
struct Asker<'a> {
    state: &'a EngineState,
    who: &'a SessionInfo,
}

impl<'a> Asker<'a> {
    /// Returns the settings that decide rights. A snapshot has the present settings of its original.
    fn spec_of(self, container: &'a Container) -> &'a ContainerSpec {
        let of = container.snapshot.as_ref().and_then(|snapshot| self.state.containers.get(snapshot.of));
        &of.unwrap_or(container).spec
    }
    fn allows(self, container: &Container, right: Right) -> bool {
        self.spec_of(container).allows(self.who.uid, |gid| self.who.is_in_group(gid), right)
    }
    /// Checks the right to an existing container. The request itself reports a missing one.
    fn may(self, id: ContainerId, right: Right) -> Result<()> {
        match self.state.containers.get(id) {
            Some(container) if !self.allows(container, right) => Err(self.refusal(container, right)),
            _ => Ok(()),
        }
    }
    #[cold]
    fn refusal(self, container: &Container, right: Right) -> Error {
        let spec = self.spec_of(container);
        let id = |id: Option<u32>| id.map_or_else(|| "nobody".to_owned(), |id| id.to_string());
        let (to, bits) = match right {
            Right::Find => ("find", "rw"),
            Right::Read => ("read", "r"),
            Right::Write => ("change", "w"),
            Right::Own => ("rename, delete or set", ""),
        };
        // A user who may not find it learns only that it exists.
        let about = if self.allows(container, Right::Find) {
            format!(
                "user {} may not {to} it: it belongs to user {}, group {}, with mode {:04o}",
                self.who.uid,
                id(spec.owner_uid),
                id(spec.owner_gid),
                spec.mode
            )
        } else {
            format!("user {} may not {to} it", self.who.uid)
        };
        let label = if container.label.is_empty() { container.id.to_string() } else { container.label.clone() };
        let next = if bits.is_empty() {
            "ask its owner, or the owner of the store".to_owned()
        } else {
            format!("its owner can allow it: `cenote chmod go+{bits} {label}`")
        };
        denied(&format!("container `{label}`")).because(about).try_next(next)
    }
    #[cold]
    fn refuse_store(self, to: &str) -> Result<()> {
        Err(denied("this store")
            .because(format!("it is for its owner {to}, and user {} is not", self.who.uid))
            .try_next("ask the owner of the store"))
    }
    fn may_target(self, target: FlushTarget, right: Right, store: Result<()>) -> Result<()> {
        match target {
            FlushTarget::Store => store,
            FlushTarget::Container(id) => self.may(id, right),
            FlushTarget::Object(key) => self.may(key.container, right),
        }
    }
    fn may_arrange(self, target: &ArrangeTarget, what: &Arrange, dry_run: bool) -> Result<()> {
        let right = match what {
            // Promoted bytes also stay where they were, just as after a read.
            Arrange::Promote { .. } => Right::Read,
            _ if dry_run => Right::Read,
            Arrange::Demote { .. }
            | Arrange::Evict
            | Arrange::Pin { .. }
            | Arrange::Unpin
            | Arrange::Archive { .. }
            | Arrange::Release { .. } => Right::Write,
        };
        match target {
            ArrangeTarget::Object(key) | ArrangeTarget::Range { key, .. } => self.may(key.container, right),
            ArrangeTarget::Container(id) | ArrangeTarget::Query { container: Some(id), .. } => self.may(*id, right),
            ArrangeTarget::Query { container: None, .. } => self.refuse_store("to look through all containers"),
        }
    }
    /// Checks a transaction. Premises reveal content, so they need the right to read.
    fn may_apply(self, checks: &[Check], updates: &[Update]) -> Result<()> {
        let mut known = None;
        for check in checks {
            self.may_again(&mut known, check.container(), Right::Read)?;
        }
        for update in updates {
            match update {
                Update::ContainerCreate { spec, .. } => self.may_own_so(None, spec)?,
                Update::ContainerSet { id, spec } => {
                    self.may(*id, Right::Own)?;
                    self.may_own_so(self.state.containers.get(*id).map(|container| &container.spec), spec)?;
                }
                Update::ContainerRename { id, .. } | Update::ContainerDelete { id } => self.may(*id, Right::Own)?,
                Update::SnapshotCreate { .. } | Update::SnapshotDelete { .. } | Update::SnapshotRollback { .. } => {
                    self.may(update.container(), Right::Write)?;
                }
                Update::Share { from, .. } => {
                    self.may(from.container, Right::Read)?;
                    self.may(update.container(), Right::Write)?;
                }
                Update::ObjectCreate { .. }
                | Update::ObjectKeep { .. }
                | Update::ObjectDelete { .. }
                | Update::Write { .. }
                | Update::Fill { .. }
                | Update::Punch { .. }
                | Update::Truncate { .. }
                | Update::IndexCreate { .. }
                | Update::IndexDelete { .. }
                | Update::Put { .. }
                | Update::Del { .. } => self.may_again(&mut known, update.container(), Right::Write)?,
            }
        }
        Ok(())
    }
    /// Checks one update after the other, and skips the repeated check of the same container.
    fn may_again(self, known: &mut Option<(ContainerId, Right)>, id: ContainerId, right: Right) -> Result<()> {
        if *known != Some((id, right)) {
            self.may(id, right)?;
            *known = Some((id, right));
        }
        Ok(())
    }
    /// As for files: nobody gives a container to another user, or to a group that they are not in; nor a higher weight.
    fn may_own_so(self, was: Option<&ContainerSpec>, spec: &ContainerSpec) -> Result<()> {
        let is_given = spec.owner_uid.is_some_and(|uid| uid != self.who.uid)
            || was.is_some_and(|was| was.owner_uid != spec.owner_uid);
        let stays = |gid| was.is_some_and(|was| was.owner_gid == Some(gid));
        let is_foreign = spec.owner_gid.is_some_and(|gid| !stays(gid) && !self.who.is_in_group(gid));
        if is_given || is_foreign {
            return Err(denied("a container")
                .because(format!(
                    "user {} may not give it to {}",
                    self.who.uid,
                    if is_given { "another user" } else { "a group without being in it" }
                ))
                .try_next("ask the owner of the store"));
        }
        // A weight takes from all others.
        let had = was.map_or(1, |was| was.weight);
        if spec.weight > had {
            return Err(denied("a container")
                .because(format!("user {} may not raise its weight from {had} to {}", self.who.uid, spec.weight))
                .try_next("ask the owner of the store"));
        }
        Ok(())
    }
}

#[cold]
fn only_reads(who: &SessionInfo) -> Error {
    let why = if who.bound.is_some() {
        format!("user {} may only read it", who.uid)
    } else {
        "this session may only read it".to_owned()
    };
    denied("this store").because(why).try_next("open it for writing, as its owner or one of the writers that it names")
}

#[cold]
fn denied(subject: &str) -> Error {
    Error::new(ErrorKind::PermissionDenied, subject)
}
