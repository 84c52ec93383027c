//! Sessions: open, close, list.

use std::collections::BTreeMap;

use cenote_model::{Error, ErrorKind, Result};

use super::Core;
use crate::codec::Encode;
use crate::journal::Kind;
use crate::journal::record::encode_info;
use crate::map::DeviceIndex;
use crate::session::Session;
use crate::{SessionId, SessionInfo};

impl Core {
    /// Opens a session. The same nonce finds the same session, with its recorded responses and leases. Fails if the
    /// journal does not take it.
    pub fn session_open(&mut self, who: SessionInfo) -> Result<SessionId> {
        self.update_clock();
        if let Some(id) = self.state.sessions.by_nonce(who.nonce) {
            if let Some(session) = self.state.sessions.open.get_mut(&id) {
                session.info = who;
            }
            return Ok(id);
        }
        let id = SessionId(self.store.home.next_id(self.state.sessions.next_id));
        self.session_begin(id, who)
    }

    /// Opens a session that the landlord has given its id. The same nonce finds the same session; another session with
    /// this id is one that the landlord has closed. Fails if the journal does not take it.
    pub fn session_open_as(&mut self, id: SessionId, who: SessionInfo) -> Result<SessionId> {
        self.update_clock();
        let is_stale = |(known, open): (&SessionId, &Session)| (*known == id) != (open.info.nonce == who.nonce);
        let stale: Vec<SessionId> =
            self.state.sessions.open.iter().filter(|it| is_stale(*it)).map(|(known, _)| *known).collect();
        for stale in stale {
            self.session_close(stale);
        }
        match self.state.sessions.open.get_mut(&id) {
            Some(session) if session.info.nonce == who.nonce => {
                session.info = who;
                Ok(id)
            }
            Some(_) => Err(Error::new(ErrorKind::Busy, format!("session {}", id.0))
                .because("an earlier one with its number cannot be closed")
                .try_next("try again when the journal takes records")),
            None => self.session_begin(id, who),
        }
    }

    fn session_begin(&mut self, id: SessionId, who: SessionInfo) -> Result<SessionId> {
        let mut draft = self.journal.draft(Kind::SessionOpen);
        draft.bytes.put_u64(id.0);
        encode_info(&mut draft.bytes, &who);
        self.journal.append(draft, self.state.epoch)?;
        self.note_journal_dirty();
        self.state.sessions.next_id = self.state.sessions.next_id.max(id.0 + 1);
        self.state.sessions.open.insert(id, Session::new(who));
        Ok(id)
    }

    /// Ends a session whose process is dead or done, and returns its leases. If the journal does not take it, the
    /// session stays open, to be closed later: space that the journal calls leased must not go to others.
    pub fn session_close(&mut self, session: SessionId) {
        self.update_clock();
        if !self.state.sessions.open.contains_key(&session) {
            return;
        }
        let mut draft = self.journal.draft(Kind::SessionClose);
        draft.bytes.put_u64(session.0);
        if self.journal.append(draft, self.state.epoch).is_err() {
            return;
        }
        self.note_journal_dirty();
        let Some(closed) = self.state.sessions.open.remove(&session) else { return };
        self.state.two_phase.session_closed(session);
        // Another process may still hold a view of bytes of this one. Leases were never visible, so nobody can be
        // reading them.
        for id in closed.pins {
            self.raise_words_of(id);
            self.state.let_go(id);
        }
        self.free_leases(closed.leases);
    }

    /// Gives up leased space, of which no record of the journal is needed.
    pub fn free_leases(&mut self, leases: BTreeMap<(DeviceIndex, u64), u64>) {
        for ((dev, offset), len) in leases {
            self.state.space.get_mut(dev).unreserve(offset, len);
        }
    }

    /// Returns all open sessions.
    pub fn sessions(&self) -> Vec<(SessionId, SessionInfo)> {
        self.state.sessions.open.iter().map(|(id, session)| (*id, session.info.clone())).collect()
    }
}
