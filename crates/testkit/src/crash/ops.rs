//! The operations of a client: operation `n` of a slot is always the same.

use std::sync::Arc;

use cenote_model::{ContainerId, IndexId, IndexKey, ObjectId, ObjectKey};
use cenote_workload::KeyShape;

use crate::content::{self, WriteId};
use crate::oracle::Change;
use crate::rng::Rng;

/// One operation.
#[derive(Clone, Debug)]
pub enum Op {
    /// Updates applied as one transaction.
    Transaction(Vec<Change>),
    /// One update by its own blocking call.
    Single(Change),
    /// Writes launched one after the other and then awaited: independent, in this order.
    Launched(Vec<Change>),
    /// Moves a unit from one shared record to another.
    Transfer(u64, u64),
    /// A flush.
    Flush,
}

const OBJECTS: u64 = 6;
const SPAN: u64 = 200_000;

/// The operation of that number. `containers` are the slot's two containers.
pub fn draw(seed: u64, slot: u64, number: u64, containers: [ContainerId; 2]) -> Op {
    let mut rng = Rng::new(seed ^ (slot << 48) ^ (number << 8));
    let mut parts = 0;
    let mut change = |rng: &mut Rng| {
        parts += 1;
        draw_change(rng, slot, number * 32 + parts, *rng.clone().pick(&containers))
    };
    match rng.below(100) {
        0..=34 => Op::Single(change(&mut rng)),
        35..=64 => Op::Transaction((0..rng.between(2, 6)).map(|_| change(&mut rng)).collect()),
        65..=84 => {
            let object = ObjectId(u128::from(rng.below(OBJECTS)));
            let key = ObjectKey { container: containers[0], object };
            let each = |rng: &mut Rng, n: u64| Change::Write {
                key,
                offset: rng.below(SPAN),
                len: rng.size(20_000),
                id: write_id(slot, number * 32 + n),
                from: 0,
            };
            Op::Launched((0..rng.between(2, 8)).map(|n| each(&mut rng, n)).collect())
        }
        85..=96 => Op::Transfer(rng.below(super::ACCOUNTS), rng.below(super::ACCOUNTS)),
        _ => Op::Flush,
    }
}

fn write_id(slot: u64, number: u64) -> WriteId {
    WriteId((slot << 22 | number) & 0xFF_FFFF)
}

fn draw_change(rng: &mut Rng, slot: u64, number: u64, container: ContainerId) -> Change {
    let key = ObjectKey { container, object: ObjectId(u128::from(rng.below(OBJECTS))) };
    let index = IndexKey { container, index: IndexId(1) };
    let few = vec![b'a' + rng.below(5) as u8, b'0' + rng.below(5) as u8];
    let (put, deleted) = slide(slot, number).unwrap_or_else(|| (few.clone(), few));
    let id = write_id(slot, number);
    match rng.below(20) {
        0..=9 => Change::Write { key, offset: rng.below(SPAN), len: rng.size(60_000), id, from: 0 },
        10 => Change::Punch { key, offset: rng.below(SPAN), len: rng.size(60_000) },
        11 => Change::Truncate { key, size: rng.below(SPAN) },
        12..=17 => {
            let len = rng.below(300) as usize;
            let value: Arc<[u8]> = content::bytes(id, 0, len).into();
            Change::Put { index, key: put, value, only_new: false }
        }
        _ => Change::Del { index, key: deleted },
    }
}

/// Two of three slots slide over keys, one up and one down. Returns the key to put at this number and the key to
/// delete, which was put some time before.
fn slide(slot: u64, number: u64) -> Option<(Vec<u8>, Vec<u8>)> {
    const KEYS_LIVE: u64 = 70;
    let shape = KeyShape::all(300)[(slot / 3 % 7) as usize];
    let step = number / 64;
    let ordinal = |step: u64| match slot % 3 {
        1 => Some((1 << 40) + step),
        2 => Some((1 << 40) - step),
        _ => None,
    };
    Some((shape.key(ordinal(step)?), shape.key(ordinal(step.saturating_sub(KEYS_LIVE))?)))
}

/// The initial content of a new slot: objects and an index in each container.
pub fn beginnings(container: ContainerId) -> Vec<Change> {
    let mut changes: Vec<Change> = (0..OBJECTS)
        .map(|n| Change::ObjectCreate {
            key: ObjectKey { container, object: ObjectId(u128::from(n)) },
            block_shift: 12,
        })
        .collect();
    changes.push(Change::IndexCreate { key: IndexKey { container, index: IndexId(1) } });
    changes
}
