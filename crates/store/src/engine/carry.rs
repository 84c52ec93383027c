//! Bytes for sessions, and from them, that may not map the store's devices, since not all that is there is for them:
//! the engine carries the bytes, by jobs. What such a session leases is space that already holds its own bytes, so that
//! it never comes by what others have left there.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote_device::Device;
use cenote_model::{
    CARRIED_BYTES_MAX, ContainerId, DeviceId, Durability, Error, ErrorKind, ObjectKey, Response, Result,
};

use super::jobs::What;
use super::lease::Wanted;
use super::{Engine, failed};
use crate::copying::{Part, Unread};
use crate::map::Ext;
use crate::work::{Job, Work};
use crate::{Outcome, SessionId, Ticket};

/// A lease is asked for in runs of this length at least.
const RUN_BYTES: u64 = 64 << 10;

/// What waits for a job.
#[derive(Default)]
pub(super) struct Carrying(VecDeque<Order>);

enum Order {
    Read { ticket: Ticket, key: ObjectKey, offset: u64, len: u32 },
    Deposit(Box<Deposit>, Vec<u8>),
}

/// Space that was taken for bytes, and is leased once they are there.
pub(super) struct Deposit {
    ticket: Ticket,
    who: (SessionId, ContainerId),
    seq: u64,
    dev: u8,
    runs: Vec<(u64, u64)>,
}

/// A range of a run, and where it goes in the answer.
pub(crate) struct Carried {
    pub part: Part,
    pub from: u32,
    pub len: u32,
    pub to: usize,
}

/// What a session brings.
pub(super) struct Brought {
    pub container: ContainerId,
    pub bytes: Vec<u8>,
    pub avoid: Vec<DeviceId>,
    pub durability: Option<Durability>,
}

impl Engine {
    /// Bytes of an object, to be read by a job.
    pub(super) fn carry_out_of(&mut self, key: ObjectKey, offset: u64, len: u32) -> Outcome {
        self.update_clock();
        if len > CARRIED_BYTES_MAX {
            return failed(too_long(format!("reading {len} bytes of object {key}")));
        }
        if let Err(error) = self.object(key) {
            return failed(error);
        }
        let ticket = self.ticket();
        self.carrying.0.push_back(Order::Read { ticket, key, offset, len });
        Outcome::Wait(ticket)
    }

    /// Space with bytes in it: written by a job, leased after that. It may be for less than all of the bytes.
    pub(super) fn carry_in(&mut self, session: SessionId, seq: u64, brought: Brought) -> Outcome {
        let Brought { container, bytes, avoid, durability } = brought;
        self.update_clock();
        if let Some(answer) = self.leased_again(session, seq) {
            return Outcome::Ready(answer);
        }
        if bytes.len() > CARRIED_BYTES_MAX as usize {
            return failed(too_long(format!("storing {} bytes in container {container}", bytes.len())));
        }
        let len = bytes.len() as u64;
        let wanted = Wanted { container, bytes: len, run_min: len.min(RUN_BYTES) as u32, avoid: &avoid, durability };
        match self.find_space(session, &wanted) {
            Err(error) => failed(error),
            Ok((dev, runs)) => {
                let ticket = self.ticket();
                let deposit = Deposit { ticket, who: (session, container), seq, dev, runs };
                self.carrying.0.push_back(Order::Deposit(Box::new(deposit), bytes));
                Outcome::Wait(ticket)
            }
        }
    }

    pub(super) fn next_carrying(&mut self) -> Option<Job> {
        while let Some(order) = self.carrying.0.pop_front() {
            let (ticket, job) = match order {
                Order::Read { ticket, key, offset, len } => (ticket, self.reading(ticket, key, offset, len)),
                Order::Deposit(deposit, bytes) => (deposit.ticket, self.depositing(deposit, bytes)),
            };
            match job {
                Ok(job) => return Some(job),
                Err(error) => self.finished.push((ticket, Response::Failed(error))),
            }
        }
        None
    }

    fn reading(&mut self, ticket: Ticket, key: ObjectKey, offset: u64, len: u32) -> Result<Job> {
        let slot = self.object(key)?;
        let now_s = self.state.now_s;
        self.state.objects.get_mut(slot).touched = now_s;
        let object = self.state.objects.get(slot);
        let size = object.size;
        let bytes = size.saturating_sub(offset).min(u64::from(len));
        let to = offset + bytes;
        let mut parts = Vec::new();
        for (at, ext) in object.map.overlapping(offset, to) {
            let (from, end) = (at.max(offset), (at + u64::from(ext.len)).min(to));
            let wanted = ext.part((from - at) as u32, (end - from) as u32).trimmed();
            let (part, skip) = self.carried_part(&wanted).ok_or_else(|| {
                Error::new(ErrorKind::Io, format!("object {key}"))
                    .because(format!("tier `{}` is not open", self.state.space.get(ext.dev).spec.name))
                    .try_next("see `cenote tiers`, and bring the tier back")
            })?;
            parts.push(Carried { part, from: skip, len: (end - from) as u32, to: (from - offset) as usize });
        }
        Ok(self.start(What::Read { ticket, key, size }, Work::Read { parts, bytes: bytes as usize }))
    }

    /// A place of an extent whose device is open, and where in it its bytes begin.
    fn carried_part(&self, ext: &Ext) -> Option<(Part, u32)> {
        let seen = self.readable(ext, false);
        self.part_of(&seen).map(|part| (part, seen.skip))
    }

    fn depositing(&mut self, deposit: Box<Deposit>, bytes: Vec<u8>) -> Result<Job> {
        let device: Option<Arc<dyn Device>> = self.state.space.get(deposit.dev).device.clone();
        let Some(device) = device else {
            self.take_back(&deposit);
            return Err(Error::new(ErrorKind::Io, format!("container {}", deposit.who.1))
                .because(format!(
                    "tier `{}`, which was chosen for it, is not open any more",
                    self.state.space.get(deposit.dev).spec.name
                ))
                .try_next("try again"));
        };
        let runs = deposit.runs.clone();
        Ok(self.start(What::Deposit(deposit), Work::Deposit { device, runs, bytes }))
    }

    pub(super) fn finish_carrying_out(
        &mut self,
        ticket: Ticket,
        key: ObjectKey,
        size: u64,
        read: std::result::Result<Vec<u8>, Unread>,
    ) {
        let response = match read {
            Ok(bytes) => Response::Bytes { size, bytes },
            Err(unread) => {
                let mending = "rewrite or delete that range; the rest of the store is not affected";
                Response::Failed(self.not_read(format!("object {key}"), &unread, mending))
            }
        };
        self.finished.push((ticket, response));
    }

    pub(super) fn finish_deposit(&mut self, deposit: &Deposit, written: Result<()>) {
        let is_there = self.state.sessions.open.contains_key(&deposit.who.0);
        let granted = match written {
            Ok(()) if is_there => self.grant(deposit.who, deposit.seq, deposit.dev, &deposit.runs),
            Ok(()) => {
                self.take_back(deposit);
                Err(Error::new(ErrorKind::Disconnected, format!("session {}", deposit.who.0.0)).because("it has ended"))
            }
            Err(error) => {
                self.note_trouble(deposit.dev, &error);
                self.take_back(deposit);
                let tier = &self.state.space.get(deposit.dev).spec.name;
                Err(Error::new(error.kind(), format!("container {}", deposit.who.1))
                    .because(format!("writing to tier `{tier}`: {error}"))
                    .try_next("try again: another tier is taken while this one fails"))
            }
        };
        self.finished.push((deposit.ticket, granted.unwrap_or_else(Response::Failed)));
    }

    fn take_back(&mut self, deposit: &Deposit) {
        for (offset, len) in &deposit.runs {
            self.state.space.get_mut(deposit.dev).give_back(*offset, *len);
        }
    }
}

#[cold]
fn too_long(subject: String) -> Error {
    Error::new(ErrorKind::LimitExceeded, subject)
        .because(format!("at most {CARRIED_BYTES_MAX} bytes are carried at a time"))
        .try_next("ask for less at a time")
}
