use std::sync::Arc;

use cenote_device::{Device, MetaDir};
use cenote_model::{DeviceId, Request, Response, Result, StoreConfig, StoreId};

use crate::{Outcome, RecoveryReport, Seams, SessionId, SessionInfo, StoreSummary, Ticket};

/// The engine. See ARCHITECTURE.md.
pub struct Engine;

/// I/O to be done without the engine.
pub struct Job;

/// A job that was run, to be given to [`Engine::finish_job`].
pub struct JobDone;

impl Job {
    /// Does the I/O.
    pub fn run(self) -> JobDone {
        JobDone
    }
}

#[allow(unused_variables, reason = "signatures first")]
impl Engine {
    /// Makes a store with an id drawn at random.
    pub fn create(seams: Seams, config: &StoreConfig) -> Result<Engine> {
        todo!()
    }
    /// Makes a store with a given id (for simulation, where nothing is random).
    pub fn create_with_id(seams: Seams, id: StoreId, config: &StoreConfig) -> Result<Engine> {
        todo!()
    }
    /// Opens the store in `seams.meta`.
    pub fn open(seams: Seams) -> Result<(Engine, RecoveryReport)> {
        todo!()
    }
    /// What the superblock says; `NotFound` if there is no store.
    pub fn peek(meta: &dyn MetaDir) -> Result<StoreSummary> {
        todo!()
    }
    /// The store's id.
    pub fn id(&self) -> StoreId {
        todo!()
    }
    /// Id, devices and rights.
    pub fn summary(&self) -> StoreSummary {
        todo!()
    }
    /// Opens a session; the same nonce finds the same session.
    pub fn session_open(&mut self, who: SessionInfo) -> Result<SessionId> {
        todo!()
    }
    /// Ends a session: its process is dead or done. Its leases return.
    pub fn session_close(&mut self, session: SessionId) {
        todo!()
    }
    /// All open sessions.
    pub fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        todo!()
    }
    /// Answers a request. `seq` numbers a session's changes; 0 for requests that need no exactly-once.
    pub fn handle(&mut self, session: SessionId, seq: u64, request: Request) -> Outcome {
        todo!()
    }
    /// Does what time demands: releases space, plans moves, asks for syncs and checkpoints. Call it every few ms.
    pub fn tick(&mut self) {
        todo!()
    }
    /// The next job to run on any thread. Several may run at once.
    pub fn next_job(&mut self) -> Option<Job> {
        todo!()
    }
    /// Takes a job's result.
    pub fn finish_job(&mut self, done: JobDone) {
        todo!()
    }
    /// Answers to tickets that are ready now.
    pub fn take_finished(&mut self) -> Vec<(Ticket, Response)> {
        todo!()
    }
    /// A device, for clients to map.
    pub fn device(&self, id: DeviceId) -> Option<Arc<dyn Device>> {
        todo!()
    }
    /// Flushes the journal and writes a checkpoint. No jobs may be running.
    pub fn close(&mut self) -> Result<()> {
        todo!()
    }
}
