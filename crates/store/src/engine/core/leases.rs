//! Leases (reservations): space is granted to a session, and returned.

use cenote_model::{ContainerId, Error, ErrorKind, Lease, Response, Result, Run};

use super::Core;
use crate::SessionId;
use crate::codec::Encode;
use crate::journal::Kind;
use crate::journal::record::encode_runs;
use crate::map::DeviceIndex;
use crate::session::{Detail, Recorded};

impl Core {
    /// Returns the response to a repeated lease request, or `None` if it is new.
    pub fn leased_again(&self, session: SessionId, seq: u64) -> Option<Response> {
        self.leased_before(session, seq).map(|runs| Response::Lease(Lease { runs }))
    }

    /// Returns the use of each tier, as text.
    pub fn uses(&self) -> String {
        let mut views = self.state.space.views();
        views.sort_by_key(|view| (view.kind, view.id));
        views.iter().map(cenote_policy::DeviceView::use_words).collect::<Vec<_>>().join(", ")
    }

    /// Returns the runs granted to this session under this sequence number, or `None`.
    pub fn leased_before(&self, session: SessionId, seq: u64) -> Option<Vec<Run>> {
        match self.state.sessions.open.get(&session)?.recorded(seq)?.detail.as_deref() {
            Some(Detail::Leased { runs }) => Some(runs.clone()),
            _ => None,
        }
    }

    /// Records taken space as leased by the session. Fails if the journal does not take it; the
    /// space is free again then.
    pub fn grant(
        &mut self,
        (session, container): (SessionId, ContainerId),
        seq: u64,
        dev: DeviceIndex,
        taken: &[(u64, u64)],
    ) -> Result<Response> {
        let device = self.state.space.get(dev).id;
        let runs: Vec<Run> = taken.iter().map(|(offset, len)| Run { device, offset: *offset, len: *len }).collect();
        let mut draft = self.journal.draft(Kind::Lease);
        draft.bytes.put_u64(session.0);
        draft.bytes.put_u64(seq);
        encode_runs(&mut draft.bytes, &runs);
        if let Err(error) = self.journal.append(draft, self.state.epoch) {
            for (offset, len) in taken {
                self.state.space.get_mut(dev).unreserve(*offset, *len);
            }
            return Err(error);
        }
        self.note_journal_dirty();
        let bytes = taken.iter().map(|(_, len)| len).sum();
        self.note_leased(dev, bytes);
        self.observed.shares.took(dev, self.state.now.ns, self.taker(session, container), bytes);
        if let Some(session) = self.state.sessions.open.get_mut(&session) {
            for (offset, len) in taken {
                session.lease(dev, *offset, *len);
            }
            if seq != 0 {
                let detail = Some(Box::new(Detail::Leased { runs: runs.clone() }));
                session.record(Recorded { seq, epoch: self.state.epoch, detail });
            }
        }
        Ok(Response::Lease(Lease { runs }))
    }

    /// Takes leased runs back from a session. Fails, and changes nothing, if the session does not
    /// lease one of them or the journal does not take it.
    pub fn unlease(&mut self, session: SessionId, runs: &[Run]) -> Result<Response> {
        self.update_clock();
        let mut taken: Vec<(DeviceIndex, Run)> = Vec::new();
        for run in runs {
            let dev = self.state.space.slot_of(run.device);
            let owner = self.state.sessions.open.get_mut(&session);
            let consumed = match (dev, owner) {
                (Some(dev), Some(owner)) if run.len > 0 => owner.consume(dev, run.offset, run.len),
                _ => false,
            };
            let aligned = dev.is_some_and(|dev| {
                let unit = u64::from(self.state.space.get(dev).space.unit_bytes);
                run.offset.is_multiple_of(unit) && run.len.is_multiple_of(unit)
            });
            if let (Some(dev), true) = (dev, consumed) {
                taken.push((dev, *run));
            }
            if !consumed || !aligned {
                self.lease_again(session, &taken);
                return Err(Error::new(
                    ErrorKind::InvalidInput,
                    format!("a run at {} of device {}", run.offset, run.device),
                )
                .because("this session does not lease it"));
            }
        }
        let mut draft = self.journal.draft(Kind::Unlease);
        draft.bytes.put_u64(session.0);
        encode_runs(&mut draft.bytes, runs);
        if let Err(error) = self.journal.append(draft, self.state.epoch) {
            self.lease_again(session, &taken);
            return Err(error);
        }
        self.note_journal_dirty();
        for (dev, run) in taken {
            self.state.space.get_mut(dev).unreserve(run.offset, run.len);
        }
        Ok(Response::Done)
    }

    /// Puts runs back under a session's leases after a failed return.
    pub fn lease_again(&mut self, session: SessionId, taken: &[(DeviceIndex, Run)]) {
        if let Some(owner) = self.state.sessions.open.get_mut(&session) {
            for (dev, run) in taken {
                owner.lease(*dev, run.offset, run.len);
            }
        }
    }
}
