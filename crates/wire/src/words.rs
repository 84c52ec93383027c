//! Messages between daemons about version words, and which words a request changes.

use cenote_model::{Check, ContainerId, HomeId, Request, Result, Run, TransactionId, Update};

use crate::between::HEAD_BYTES;
use crate::codec::{Input, Message, Wire as _, take_bytes, wire_enum};

/// Tags of [`Request::Apply`], [`Request::Prepare`], [`Request::Decide`] and [`Update::Fill`], which a test compares.
const APPLY: u8 = 1;
const PREPARE: u8 = 50;
const DECIDE: u8 = 51;
const FILL: u8 = 18;

/// A message about the version words of a home, between its daemon and one whose clients look at them.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum WordsMessage {
    /// To the home: for how long may words be trusted that were told? The time is the asker's, in nanoseconds.
    Trust { asked_ns: u64 },
    /// From the home: for so many milliseconds from then on.
    Trusted { asked_ns: u64, for_ms: u32 },
    /// From the home: numbers of words and their values, after this many requests of the connection. The home asks
    /// before it changes one of them.
    Told { upto: u64, words: Vec<(u32, u64)> },
    /// From the home: these words are about to change.
    Revoke { number: u64, words: Vec<u32> },
    /// To the home: nobody trusts the words of this revocation any more.
    LetGo { number: u64 },
}

wire_enum!(WordsMessage, 5, "message about words", {
    1 => Trust { asked_ns },
    2 => Trusted { asked_ns, for_ms },
    3 => Told { upto, words },
    4 => Revoke { number, words },
    5 => LetGo { number },
});

/// What a request changes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Changed {
    /// Nothing that anybody remembers.
    #[default]
    Nothing,
    /// What has words of these hashes ([`Update::word_hash`]); some may occur twice.
    Words(Vec<u64>),
    /// Perhaps everything in a container, and in its snapshots.
    Everything,
}

impl Changed {
    /// What a request changes.
    pub fn by(request: &Request) -> Self {
        let mut changed = Self::Nothing;
        if let Request::Apply { updates, .. } | Request::Prepare { updates, .. } | Request::Decide { updates, .. } =
            request
        {
            for update in updates {
                changed.note(update);
            }
        }
        changed
    }
    /// What an encoded request changes. Reads over the bytes of objects.
    pub fn by_encoded(message: &[u8]) -> Result<Self> {
        let mut changed = Self::Nothing;
        let kind = message.get(HEAD_BYTES - 1).copied().unwrap_or_default();
        if ![APPLY, PREPARE, DECIDE].contains(&kind) {
            return Ok(changed);
        }
        let mut input = Input::of(Message, &message[HEAD_BYTES..]);
        if kind != APPLY {
            TransactionId::take(&mut input)?;
        }
        if kind == DECIDE {
            Vec::<HomeId>::take(&mut input)?;
            bool::take(&mut input)?;
        }
        Vec::<Check>::take(&mut input)?;
        for _ in 0..input.count(Update::BYTES_MIN)? {
            if input.as_slice().first() == Some(&FILL) {
                input.take(1)?;
                ContainerId::take(&mut input)?;
                Run::take(&mut input)?;
                take_bytes(&mut input)?;
            } else {
                changed.note(&Update::take(&mut input)?);
            }
        }
        Ok(changed)
    }
    fn note(&mut self, update: &Update) {
        match update {
            Update::SnapshotCreate { replace: false, .. } => {}
            Update::ContainerSet { .. }
            | Update::ContainerDelete { .. }
            | Update::SnapshotCreate { .. }
            | Update::SnapshotDelete { .. }
            | Update::SnapshotRollback { .. } => *self = Self::Everything,
            // Nobody knows an index of a container that the same request makes.
            Update::IndexCreate { key }
            | Update::IndexDelete { key }
            | Update::Put { index: key, .. }
            | Update::Del { index: key, .. }
                if key.container == ContainerId(0) => {}
            _ => update.word_hash().into_iter().for_each(|hash| self.word(hash)),
        }
    }
    fn word(&mut self, hash: u64) {
        match self {
            Self::Nothing => *self = Self::Words(vec![hash]),
            Self::Words(words) if words.last() != Some(&hash) => words.push(hash),
            Self::Words(_) | Self::Everything => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use cenote_model::{ContainerSpec, Decision, DeviceId, Extent, IndexId, IndexKey, ObjectId, ObjectKey, Sums};

    use super::*;
    use crate::{decode_request, encode_request};

    fn key(object: u128) -> ObjectKey {
        ObjectKey { container: ContainerId(5), object: ObjectId(object) }
    }

    fn apply(updates: Vec<Update>) -> Request {
        let checks = vec![Check::Object { key: key(9), epoch: 4 }];
        Request::Apply { checks, updates, atomic: false }
    }

    fn both(request: &Request) -> Changed {
        let mut bytes = Vec::new();
        encode_request(7, request, &mut bytes);
        let changed = Changed::by_encoded(&bytes).unwrap();
        assert_eq!(changed, Changed::by(request), "{request:?}");
        for len in HEAD_BYTES..bytes.len() {
            // Cut off, it is an error, never a panic, whether or not it is told from the whole.
            let _ = Changed::by_encoded(&bytes[..len]);
        }
        assert_eq!(decode_request(&bytes).unwrap().1, *request);
        changed
    }

    #[test]
    fn an_encoded_request_changes_what_it_changes_decoded() {
        let write = |object: u128| Update::Write {
            key: key(object),
            offset: 3,
            extent: Extent::whole(DeviceId(1), 4096, 10, Sums::from_slice(&[1])),
        };
        let run = Run { device: DeviceId(1), offset: 4096, len: 512 };
        let fill = || Update::Fill { container: ContainerId(5), run, bytes: vec![18; 300] };
        let index = IndexKey { container: ContainerId(5), index: IndexId(1) };
        let put = |index| Update::Put { index, key: vec![1], value: vec![2; 70], only_new: false };
        let words = |all: &[u64]| Changed::Words(all.to_vec());
        let [one, two] = [key(1), key(2)].map(ObjectKey::word_hash);
        assert_eq!(both(&apply(vec![fill(), write(1), fill(), write(1), write(2)])), words(&[one, two]));
        assert_eq!(both(&apply(vec![put(index), Update::Truncate { key: key(1), size: 0 }])), {
            words(&[index.word_hash(), one])
        });
        assert_eq!(both(&apply(vec![Update::ObjectCreate { key: key(1), block_shift: 12 }])), Changed::Nothing);
        let fresh = IndexKey { container: ContainerId(0), ..index };
        let create = Update::ContainerCreate { id: ContainerId(0), label: "l".into(), spec: ContainerSpec::default() };
        assert_eq!(both(&apply(vec![create, put(fresh)])), Changed::Nothing);
        let transaction = TransactionId { home: HomeId(3), session: 7, number: 9 };
        let checks = vec![Check::Object { key: key(9), epoch: 4 }];
        let prepare = Request::Prepare { transaction, checks: checks.clone(), updates: vec![write(1), put(index)] };
        assert_eq!(both(&prepare), words(&[one, index.word_hash()]));
        let participants = vec![HomeId(1), HomeId(2)];
        let decision = Box::new(Decision { transaction, participants, is_sync: true });
        let decide = Request::Decide { decision, checks, updates: vec![write(2)] };
        assert_eq!(both(&decide), words(&[two]));
        assert_eq!(both(&Request::Settle { transaction, commits: true }), Changed::Nothing);
        let delete = Update::ContainerDelete { id: ContainerId(5) };
        assert_eq!(both(&apply(vec![delete, write(1)])), Changed::Everything);
        assert_eq!(both(&Request::Devices), Changed::Nothing);
        assert_eq!(Changed::by_encoded(&[]).unwrap(), Changed::Nothing);
    }
}
