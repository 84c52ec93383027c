//! Simulated client processes: their sessions, their unanswered requests, and resends.

use std::collections::VecDeque;

use cenote_model::{Arrange, ArrangeTarget, ContainerId, ErrorKind, ObjectKey, Request, Response, Run};
use cenote_store::{Outcome, SessionId, SessionInfo, Ticket};

use super::snapshot::Pin;
use super::{Check, Pinned, Sim, trace};
use crate::oracle;

const ANSWERS_KEPT: usize = 12;

/// What an answer is compared with.
#[derive(Clone, Debug)]
pub(super) enum Goal {
    /// Updates; the entry of the history that they made, if the model applied them.
    Apply { entry: Option<usize>, predicted: oracle::Outcome },
    /// A flush of a container or of all, requested when the history had `upto` entries.
    Flush { container: Option<ContainerId>, upto: usize },
    /// Space for a container.
    Lease { container: ContainerId },
    /// An answer, in place of which any of these kinds of failure may come.
    Other { may_fail: &'static [ErrorKind] },
    /// Records, as they were when they were requested: their values are read later. An epoch of 0 is unknown.
    Records { expected: Response },
}

/// A request without an answer.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) seq: u64,
    pub(super) request: Request,
    pub(super) goal: Goal,
    pub(super) ticket: Option<Ticket>,
    /// The oracle's view of its updates.
    pub(super) changes: Vec<oracle::Change>,
}

/// A client process.
pub(super) struct Client {
    pub(super) info: SessionInfo,
    pub(super) session: SessionId,
    pub(super) seq: u64,
    pub(super) leases: Vec<(ContainerId, Run)>,
    /// Snapshots that it reads.
    pub(super) pins: Vec<Pin>,
    pub(super) sent: Vec<Sent>,
    pub(super) answered: VecDeque<(u64, Request, Response)>,
    /// False once its process is gone but the engine does not know yet.
    pub(super) alive: bool,
}

impl Sim {
    pub(super) fn client_open(&mut self) -> Check {
        let nonce = self.next_nonce;
        self.next_nonce += 1;
        let info =
            SessionInfo { nonce, pid: 1000 + nonce as u32, started: 1, uid: 0, write: true, ..SessionInfo::default() };
        match self.engine().session_open(info.clone()) {
            Ok(session) => {
                trace!(self.trace, "client {nonce} opens session {session:?}");
                self.clients.push(Client {
                    info,
                    session,
                    seq: 0,
                    leases: Vec::new(),
                    pins: Vec::new(),
                    sent: Vec::new(),
                    answered: VecDeque::new(),
                    alive: true,
                });
            }
            Err(_) if self.world.faults.is_dead() => self.died = true,
            Err(error) if self.is_hurt() => {
                trace!(self.trace, "client {nonce} is refused: {error}");
            }
            Err(error) => return Err(format!("session_open: {error}")),
        }
        Ok(())
    }
    /// A random live client, if there is one.
    pub(super) fn any_client(&mut self) -> Option<usize> {
        let alive: Vec<usize> = (0..self.clients.len()).filter(|i| self.clients[*i].alive).collect();
        if alive.is_empty() { None } else { Some(*self.rng.pick(&alive)) }
    }
    /// Lets the process die; the engine does not know yet.
    pub(super) fn client_die(&mut self, at: usize) {
        trace!(self.trace, "client {} dies", self.clients[at].info.nonce);
        let nonce = self.clients[at].info.nonce;
        self.clients[at].alive = false;
        self.clients[at].sent.clear();
        self.drop_readers(|reader| reader.nonce == nonce);
    }
    /// Tells the engine that the process is gone.
    pub(super) fn client_bury(&mut self, at: usize) {
        let client = self.clients.remove(at);
        trace!(self.trace, "session {:?} of client {} closes", client.session, client.info.nonce);
        let nonce = client.info.nonce;
        self.drop_readers(|reader| reader.nonce == nonce);
        self.engine().session_close(client.session);
        self.note_death();
    }
    /// Returns true if a failure occurred that can make a request fail.
    fn is_hurt(&self) -> bool {
        let injected = self.world.faults.injected() + self.world.weather.hits();
        self.hurt || self.fails_at_random || injected > self.injected_seen
    }
    pub(super) fn note_death(&mut self) {
        self.died |= self.world.faults.is_dead();
        let injected = self.world.faults.injected() + self.world.weather.hits();
        self.hurt |= injected > self.injected_seen;
        self.injected_seen = injected;
    }
    /// Sends a request; `None`: the answer comes later or never.
    pub(super) fn send(&mut self, at: usize, request: Request, goal: Goal) -> Option<Response> {
        self.clients[at].seq += 1;
        let seq = self.clients[at].seq;
        self.send_as(at, seq, request, goal)
    }
    pub(super) fn send_as(&mut self, at: usize, seq: u64, request: Request, goal: Goal) -> Option<Response> {
        let session = self.clients[at].session;
        let outcome = self.engine().handle(session, seq, request.clone());
        self.note_death();
        let ticket = match outcome {
            Outcome::Ready(response) if !self.died => {
                trace!(self.trace, "  c{} #{seq} -> {}", self.clients[at].info.nonce, brief(&response));
                self.remember(at, seq, request, response.clone());
                return Some(response);
            }
            Outcome::Wait(ticket) if !self.died => Some(ticket),
            _ => None,
        };
        trace!(
            self.trace,
            "  c{} #{seq} -> no answer yet{}",
            self.clients[at].info.nonce,
            if self.died { ": DEAD" } else { "" }
        );
        self.clients[at].sent.push(Sent { seq, request, goal, ticket, changes: Vec::new() });
        None
    }
    fn remember(&mut self, at: usize, seq: u64, request: Request, response: Response) {
        self.summary.requests += 1;
        self.trace.note(seq);
        let answered = &mut self.clients[at].answered;
        answered.push_back((seq, request, response));
        if answered.len() > ANSWERS_KEPT {
            answered.pop_front();
        }
    }
    /// Takes the engine's answers to requests that waited.
    pub(super) fn take_answers(&mut self) -> Check {
        self.note_death();
        if self.died {
            return Ok(());
        }
        for (ticket, response) in self.engine().take_finished() {
            let place = self.clients.iter().enumerate().find_map(|(at, client)| {
                client.sent.iter().position(|sent| sent.ticket == Some(ticket)).map(|index| (at, index))
            });
            // A dead client's answer has no receiver.
            let Some((at, index)) = place else { continue };
            let sent = self.clients[at].sent.remove(index);
            trace!(self.trace, "  c{} #{} => {}", self.clients[at].info.nonce, sent.seq, brief(&response));
            self.remember(at, sent.seq, sent.request.clone(), response.clone());
            self.judge(at, &sent.goal, &sent.request, response)?;
        }
        Ok(())
    }
    /// Compares an answer with the expected one.
    pub(super) fn judge(&mut self, at: usize, goal: &Goal, request: &Request, response: Response) -> Check {
        self.note_pinned(request, &response);
        if let Response::Failed(error) = &response {
            let excusable =
                matches!(error.kind(), ErrorKind::Io | ErrorKind::Busy | ErrorKind::Full | ErrorKind::PermissionDenied);
            let corrupt = error.kind() == ErrorKind::Corrupt && self.flips > 0;
            // Bytes on a device that is gone cannot be copied, moved or synced.
            let about_device = matches!(request, Request::DeviceAdd { .. } | Request::DeviceRemove { .. });
            let late = error.kind() == ErrorKind::Exists && error.next_step().contains("open the store again");
            // It may have failed long before its answer comes.
            if self.profile.weather > 0 && (about_device || late) {
                return Ok(()); // a service may answer anything
            }
            if ((self.hurt || self.is_maimed()) && excusable) || corrupt {
                return Ok(());
            }
        }
        match (goal, response) {
            (Goal::Apply { entry, predicted }, response) => self.judge_applied(*entry, predicted, response),
            (Goal::Flush { container, upto }, Response::Done) => {
                self.oracle.flushed(*container, *upto);
                Ok(())
            }
            (Goal::Lease { container }, Response::Lease(lease)) => self.take_lease(at, *container, &lease.runs),
            (Goal::Lease { .. }, Response::Failed(error))
                if matches!(
                    error.kind(),
                    ErrorKind::Full | ErrorKind::Busy | ErrorKind::NotFound | ErrorKind::InvalidInput
                ) =>
            {
                Ok(())
            }
            // Without room on persistent tiers nothing can be flushed.
            (Goal::Flush { .. }, Response::Failed(error)) if error.kind() == ErrorKind::Full => Ok(()),
            // The target of the flush may be gone when the request is sent again.
            (Goal::Flush { .. }, Response::Failed(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Goal::Records { expected }, response @ (Response::Values(_) | Response::Records { .. })) => {
                compare_records(expected, &response).map_err(|why| format!("{request:?}, answered later: {why}"))
            }
            // Its index was deleted since.
            (Goal::Records { .. }, Response::Failed(error)) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Goal::Other { may_fail }, Response::Failed(error)) if may_fail.contains(&error.kind()) => Ok(()),
            (_, Response::Failed(error)) => Err(format!("{request:?} failed: {error:?}")),
            (Goal::Other { .. }, Response::Verified(report)) => {
                if let Some(contradiction) = report.contradictions.first() {
                    return Err(format!("verify found that memory contradicts itself: {contradiction}"));
                }
                // Unreadable ranges are found too, and reported as such.
                let maimed = self.is_maimed() || self.profile.weather > 0;
                let unread = |finding: &&cenote_model::Finding| {
                    (self.hurt && finding.what.contains("injected at I/O"))
                        || (maimed && !finding.what.contains("match"))
                };
                let finding = report.findings.iter().find(|finding| !unread(finding));
                if let (Some(finding), 0) = (finding, self.flips) {
                    return Err(format!("verify found {finding:?} where nothing was damaged"));
                }
                Ok(())
            }
            (Goal::Other { .. }, _) => Ok(()),
            (_, response) => Err(format!("{request:?} was answered by {response:?}")),
        }
    }
    /// Notes what the answer says about pins of a container.
    fn note_pinned(&mut self, request: &Request, response: &Response) {
        let Request::Arrange { target, what, dry_run: false } = request else { return };
        let ArrangeTarget::Container(id) = **target else { return };
        if self.pinned.get(&id) != Some(&Pinned::Asked) {
            return;
        }
        match (what, response) {
            (Arrange::Pin { .. }, Response::Arranged(_)) => drop(self.pinned.insert(id, Pinned::Yes)),
            (Arrange::Pin { .. } | Arrange::Unpin, _) => drop(self.pinned.remove(&id)),
            _ => {}
        }
    }
    /// Checks that pinned containers still are, with all their content.
    pub(super) fn check_pins(&mut self) -> Check {
        let Some(session) = self.clients.iter().find(|client| client.alive).map(|client| client.session) else {
            return Ok(());
        };
        let pinned = self.pinned.iter().filter(|(_, state)| **state == Pinned::Yes).map(|(id, _)| *id);
        for container in pinned.collect::<Vec<_>>() {
            let Some(found) = self.oracle.current().containers.get(&container) else { continue };
            for object in found.objects.keys().copied().collect::<Vec<_>>() {
                let key = ObjectKey { container, object };
                let answer = self.engine().handle(session, 0, Request::ObjectStat { key });
                if let Outcome::Ready(Response::Stat(stat)) = answer
                    && stat.pinned_bytes != stat.mapped_bytes
                {
                    return Err(format!("of {key}, in a pinned container, {stat:?} says that not all is pinned"));
                }
            }
        }
        Ok(())
    }
    fn take_lease(&mut self, at: usize, container: ContainerId, runs: &[Run]) -> Check {
        for run in runs {
            self.check_lease(*run)?;
            self.clients[at].leases.push((container, *run));
        }
        Ok(())
    }
    /// Checks alignment, bounds, and overlap with the space of others.
    fn check_lease(&mut self, run: Run) -> Check {
        let Some(device) = self.engine().device(run.device) else {
            return Err(format!("lease {run:?} on a device that is not there"));
        };
        let (unit, segment) = (u64::from(device.unit_bytes()), device.segment_bytes());
        let inside = run.len > 0 && run.offset + run.len <= device.capacity_bytes();
        if !inside || !run.offset.is_multiple_of(unit) || !run.len.is_multiple_of(unit) {
            return Err(format!("lease {run:?} is out of bounds or not aligned to {unit}"));
        }
        if run.offset / segment != (run.offset + run.len - 1) / segment {
            return Err(format!("lease {run:?} crosses segments of {segment}"));
        }
        for client in &self.clients {
            let taken = client.leases.iter().find(|(_, held)| {
                held.device == run.device && held.offset < run.offset + run.len && run.offset < held.offset + held.len
            });
            if let Some((_, held)) = taken {
                return Err(format!("lease {run:?} overlaps {held:?} of client {}", client.info.nonce));
            }
        }
        Ok(())
    }
    /// Sends an answered request again: the answer must be the same, and nothing must change.
    pub(super) fn resend(&mut self) -> Check {
        let Some(at) = self.any_client() else { return Ok(()) };
        let applies: Vec<(u64, Request, Response)> = (self.clients[at].answered.iter())
            .filter(|(_, request, response)| {
                matches!(request, Request::Apply { .. }) && matches!(response, Response::Applied { .. })
            })
            .cloned()
            .collect();
        if applies.is_empty() {
            return Ok(());
        }
        let (seq, request, before) = self.rng.pick(&applies).clone();
        trace!(self.trace, "c{} sends #{seq} again", self.clients[at].info.nonce);
        let session = self.clients[at].session;
        let outcome = self.engine().handle(session, seq, request.clone());
        self.note_death();
        match (outcome, before) {
            _ if self.died => Ok(()),
            (
                Outcome::Ready(Response::Applied { epoch, codes, created, .. }),
                Response::Applied { epoch: epoch_before, codes: codes_before, created: created_before, .. },
            ) => {
                if (epoch, &codes, created) == (epoch_before, &codes_before, created_before) {
                    Ok(())
                } else {
                    Err(format!("sent again: epoch {epoch} {codes:?}, before {epoch_before} {codes_before:?}"))
                }
            }
            (Outcome::Ready(Response::Failed(_)), _) if self.hurt => Ok(()),
            // It may have to wait for the journal again; nobody waits for this answer.
            (Outcome::Wait(_), _) => Ok(()),
            (Outcome::Ready(other), _) => Err(format!("sent again, {request:?} is answered by {other:?}")),
        }
    }
}

/// Compares records with the expected ones.
pub(super) fn compare_records(expected: &Response, found: &Response) -> Check {
    let (Response::Values(wanted), Response::Values(values)) = (expected, found) else {
        return if expected == found { Ok(()) } else { Err(format!("{found:?}, expected {expected:?}")) };
    };
    let mut pairs = wanted.iter().zip(values);
    let same = pairs.all(|pair| match pair {
        (Some((wanted, epoch)), Some((value, found))) => wanted == value && (*epoch == 0 || epoch == found),
        (wanted, value) => wanted.is_none() && value.is_none(),
    });
    if wanted.len() == values.len() && same { Ok(()) } else { Err(format!("{values:?}, expected {wanted:?}")) }
}

/// Formats an answer in one line for the trace.
pub(super) fn brief(response: &Response) -> String {
    let mut text = match response {
        Response::Lookup(lookup) => format!(
            "lookup v{} e{} size {} to {}: {:?}",
            lookup.version,
            lookup.epoch,
            lookup.size,
            lookup.covered_to,
            lookup.extents.iter().map(|(at, x)| (*at, x.len, x.device.0, x.run_offset, x.skip)).collect::<Vec<_>>()
        ),
        Response::Failed(error) => format!("FAILED {error:?}"),
        other => format!("{other:?}"),
    };
    if text.len() > 400 {
        let cut = (0..=400).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(cut);
        text.push('…');
    }
    text
}
