//! The section of transactions over several homes.

use cenote_model::ContainerId;

use super::decode::Reader;
use super::encode::Writer;
use crate::SessionId;
use crate::codec::{Decoded, Decoder, Encode, Malformed, Ordinals as _};
use crate::journal::two_phase::{
    decode_homes, decode_part, decode_transaction, encode_homes, encode_part, encode_transaction,
};
use crate::session::Session;
use crate::two_phase::{Decision, Prepared};

impl Writer<'_> {
    pub(super) fn two_phase(&mut self) {
        let two_phase = &self.state.two_phase;
        self.bytes.put_u32(two_phase.prepared.len() as u32);
        for (transaction, prepared) in &two_phase.prepared {
            encode_transaction(&mut self.bytes, *transaction);
            self.bytes.put_u64(prepared.session.0);
            self.leases(&prepared.leases);
            encode_part(&mut self.bytes, &prepared.checks, &prepared.updates);
        }
        self.bytes.put_u32(two_phase.decided.len() as u32);
        for (transaction, decision) in &two_phase.decided {
            encode_transaction(&mut self.bytes, *transaction);
            encode_homes(&mut self.bytes, decision.participants.iter());
            self.bytes.put_u64(decision.epoch);
            self.bytes.put_u32(decision.touched.len() as u32);
            decision.touched.iter().for_each(|id| self.bytes.put_u64(id.0));
        }
        self.bytes.put_u32(two_phase.given_up.len() as u32);
        two_phase.given_up.iter().for_each(|transaction| encode_transaction(&mut self.bytes, *transaction));
    }
}

impl Reader<'_> {
    pub(super) fn two_phase(&mut self, from: &mut Decoder<'_>) -> Decoded<()> {
        if !self.state.two_phase.is_empty() {
            return Err(Malformed("transactions over several homes twice"));
        }
        for _ in 0..from.count(38)? {
            let transaction = decode_transaction(from)?;
            let session = SessionId(from.u64()?);
            let mut leases = Session::default();
            self.leases(from, &mut leases)?;
            let (checks, updates) = decode_part(from)?;
            let prepared = Prepared { session, checks, updates, leases, since_ns: 0 };
            if self.state.two_phase.prepared.contains_key(&transaction) {
                return Err(Malformed("a transaction is prepared twice"));
            }
            self.state.two_phase.prepare(transaction, prepared);
        }
        for _ in 0..from.count(34)? {
            let transaction = decode_transaction(from)?;
            let participants = decode_homes(from)?.into_iter().collect();
            let epoch = from.ordinal()?;
            let touched = (0..from.count(8)?).map(|_| Ok(ContainerId(from.u64()?))).collect::<Decoded<_>>()?;
            self.state.two_phase.decided.insert(transaction, Decision { participants, epoch, touched, journal: 0 });
        }
        for _ in 0..from.count(18)? {
            let transaction = decode_transaction(from)?;
            self.state.two_phase.given_up.insert(transaction);
        }
        Ok(())
    }
}
