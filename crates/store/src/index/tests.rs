//! An index beside a plain ordered map, for what it adds: counts, copies in bounded pieces, repair.

use std::collections::BTreeMap;
use std::sync::Arc;

use cenote_workload::property::{Held, Plan, hold, plans};
use cenote_workload::{Rng, Step, size_at_limits};
use proptest::prop_assert_eq;

use super::*;

fn record(epoch: u64, value: &[u8]) -> Record {
    Record { epoch, value: Value::Here(value.into()) }
}

#[test]
fn orders_short_and_long_keys_as_bytes() {
    assert!(size_of::<Key>() <= 32);
    let mut index = Index::default();
    let keys: Vec<Vec<u8>> = vec![vec![], vec![0], b"a".to_vec(), vec![b'a'; 30], vec![b'a'; 31], b"b".to_vec()];
    for key in keys.iter().rev() {
        assert!(index.put(key, record(1, b"")).is_none());
    }
    let found: Vec<Vec<u8>> = index.range(Bound::Unbounded).map(|(key, _)| key.to_vec()).collect();
    assert_eq!(found, keys);
    assert!(index.get(&[b'a'; 31]).is_some());
    assert!(index.del(&[b'a'; 31]).is_some() && index.del(&[b'a'; 31]).is_none());
    assert_eq!(index.bytes, 33);
}

struct Dice(u64);
impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
    fn key(&mut self) -> Vec<u8> {
        let n = self.below(4000);
        match n % 4 {
            0 => n.to_be_bytes()[6..].to_vec(),
            1 => format!("a common beginning/{n:05}").into_bytes(),
            2 => vec![b'z'; (n % 300) as usize],
            _ => (n * 0x1234_5678_9abc).to_le_bytes().to_vec(),
        }
    }
    fn value(&mut self, epoch: u64) -> Vec<u8> {
        let len = match self.below(20) {
            0 => 3000,
            1 => 1024,
            2 => 0,
            n => 20 * (n % 3),
        };
        vec![epoch as u8; len as usize]
    }
}

/// Under random changes the index equals a plain ordered map.
#[test]
fn agrees_with_an_ordered_map() {
    let mut dice = Dice(7);
    let mut index = Index::default();
    let mut plain: BTreeMap<Vec<u8>, Record> = BTreeMap::new();
    for epoch in 0..60_000 {
        let key = dice.key();
        // Phases of growth and of shrinkage, so that leaves split and go.
        if dice.below(10) < if epoch / 10_000 % 2 == 0 { 2 } else { 8 } {
            assert_eq!(index.del(&key), plain.remove(&key));
        } else {
            let record = record(epoch, &dice.value(epoch));
            assert_eq!(index.put(&key, record.clone()), plain.insert(key.clone(), record));
        }
        assert_eq!(index.len(), plain.len() as u64);
        let key = dice.key();
        assert_eq!(index.get(&key).map(RecordRef::to_owned), plain.get(&key).cloned());
        if epoch % 100 == 0 {
            for from in [Bound::Included(&key[..]), Bound::Excluded(&key[..]), Bound::Unbounded] {
                let ours = index.range(from).map(|(key, record)| (key.to_vec(), record.to_owned()));
                let theirs = plain.range::<[u8], _>((from, Bound::Unbounded));
                assert!(ours.eq(theirs.map(|(key, record)| (key.clone(), record.clone()))), "epoch {epoch}");
            }
            let prefix = &key[..key.len().min(dice.below(4) as usize)];
            let (limit, bytes_max) = (1 + dice.below(300) as usize, dice.below(9000) as usize);
            let (found, more) = index.copy(Bound::Included(&key), prefix, (limit, bytes_max), &mut Vec::new());
            let matching = plain.range(key.clone()..).take_while(|(key, _)| key.starts_with(prefix));
            let mut size = 0;
            let wanted = matching.clone().take(limit).enumerate().take_while(|(n, (key, record))| {
                size += key.len() + record.value.len();
                *n == 0 || size <= bytes_max
            });
            let wanted: Vec<_> =
                wanted.map(|(_, (key, record))| (&key[..], record.value.by_ref().here().unwrap())).collect();
            assert!(
                found.iter().eq(wanted.iter().copied()),
                "epoch {epoch}: {} of {} limit {limit} bytes {bytes_max} prefix {prefix:?}",
                found.len(),
                wanted.len()
            );
            assert_eq!(more, matching.count() > wanted.len(), "epoch {epoch}");
            let bytes: usize = plain.iter().map(|(key, record)| key.len() + record.value.len()).sum();
            assert_eq!(index.bytes, bytes as u64);
            assert!(index.memory_bytes() < 4 * index.bytes + 300 * index.len() + 16_384, "{}", index.memory_bytes());
        }
    }
    let mut left = 0;
    while !index.forget(100) {
        left += 1;
    }
    assert!(left <= plain.len() / 100);
}

/// Applies the same changes to an index and to a plain map, and compares both.
#[derive(Default)]
struct Pair {
    index: Index,
    plain: BTreeMap<Vec<u8>, Record>,
    epoch: u64,
}

impl Pair {
    fn put(&mut self, key: &[u8], len: usize) {
        self.epoch += 1;
        let record = record(self.epoch, &vec![self.epoch as u8; len]);
        assert_eq!(self.index.put(key, record.clone()), self.plain.insert(key.to_vec(), record));
    }
    fn del(&mut self, key: &[u8]) {
        assert_eq!(self.index.del(key), self.plain.remove(key));
    }
    /// Moves a value to the value log, as far as the index is concerned.
    fn spill(&mut self, key: &[u8]) {
        let Some(record) = self.plain.get_mut(key) else { return };
        let Some(value) = record.value.by_ref().here() else { return };
        let len = value.len() as u32;
        let away = Away { batch: Arc::new(Batch { offset: self.epoch << 20, len }), at: 0, len, digest: digest(value) };
        self.index.spill(key, record.epoch + 1, &away); // of another epoch: nothing
        assert_eq!(self.index.get(key), Some(record.by_ref()));
        self.index.spill(key, record.epoch, &away);
        record.value = Value::Away(Box::new(away));
    }
    fn compare(&self) {
        let mut missing = Vec::new();
        let (copied, more) = self.index.copy(Bound::Unbounded, b"", (usize::MAX, usize::MAX), &mut missing);
        assert!(!more && copied.len() == self.plain.len());
        let away = self.plain.values().enumerate().filter_map(|(at, record)| match &record.value {
            Value::Away(away) => Some((at, Away::clone(away))),
            Value::Here(_) => None,
        });
        assert!(away.eq(missing));
        assert_eq!(self.index.check(), Ok(()));
        let ours = self.index.range(Bound::Unbounded).map(|(key, record)| (key.to_vec(), record.to_owned()));
        assert!(ours.eq(self.plain.iter().map(|(key, record)| (key.clone(), record.clone()))));
        assert!(self.plain.iter().all(|(key, record)| self.index.get(key) == Some(record.by_ref())));
    }
}

/// A program keeps its last steps: keys below the first leaf's former first key belong to that leaf again.
#[test]
fn a_window_that_slides_over_keys() {
    for (window, len) in [(70u32, 8), (100, 8), (100, 120), (3000, 8), (20_000, 8)] {
        let mut both = Pair::default();
        for step in 0..5 * window + 3000 {
            both.put(format!("step-{step}").as_bytes(), len);
            if let Some(gone) = step.checked_sub(window) {
                both.del(format!("step-{gone}").as_bytes());
            }
            if step % (window / 10) == 0 {
                both.compare();
            }
        }
        both.compare();
    }
}

/// An index that is filled and then mostly emptied from its lowest key on takes low keys again.
#[test]
fn filled_and_emptied_from_below() {
    for seed in 0..200 {
        let (mut dice, mut both) = (Dice(seed), Pair::default());
        for _ in 0..6 {
            for _ in 0..2000 {
                both.put(&dice.below(100_000).to_be_bytes(), 16);
            }
            for _ in 0..1900 {
                let Some(lowest) = both.plain.keys().nth(dice.below(3) as usize).cloned() else { break };
                both.del(&lowest);
            }
            both.compare();
        }
    }
}

/// A checkpoint of an index that lost its order: the records set last are kept, and the disorder is reported.
#[test]
fn records_in_the_wrong_order_are_put_in_order() {
    let mut index = Index::new(0);
    let records = [("b", 5), ("d", 2), ("a", 3), ("b", 4), ("d", 6), ("e", 1)];
    let found =
        index.load(records.map(|(key, epoch)| (Key::new(key.as_bytes()), record(epoch, &[epoch as u8]))).into());
    assert_eq!(found, Disorder { misplaced: 3, twice: 2, blind: 0 });
    let left: Vec<_> = index.range(Bound::Unbounded).map(|(key, record)| (key, record.epoch)).collect();
    assert_eq!(left, [(&b"a"[..], 3), (b"b", 5), (b"d", 6), (b"e", 1)]);
    assert_eq!(index.check(), Ok(()));
    assert_eq!(Index::new(0).load(vec![(Key::new(b"a"), record(1, b""))]), Disorder::default());
    // Records in order load as if they were put one by one.
    let in_order: Vec<_> = (0..100u8).map(|n| (Key::new(&vec![n; 1 + usize::from(n)]), record(1, &[n]))).collect();
    let (mut loaded, mut put) = (Index::new(0), Index::new(0));
    assert_eq!(loaded.load(in_order.clone()), Disorder::default());
    for (key, record) in in_order {
        put.put(key.bytes(), record);
    }
    assert_eq!((loaded.check(), loaded.len(), loaded.bytes), (Ok(()), put.len(), put.bytes));
    assert_eq!(loaded.memory_bytes(), put.memory_bytes());
}

/// Records in order load at once; spillable bytes count as if they had been put.
#[test]
fn records_in_order_are_counted_as_if_they_were_put() {
    let mut loaded = Index::new(0);
    let mut put = Index::new(0);
    let records: Vec<_> =
        (0..200_u8).map(|at| (Key::new(&[at; 40]), record(1, &vec![at; usize::from(at) * 3]))).collect();
    for (key, record) in records.clone() {
        put.put(key.bytes(), record);
    }
    assert_eq!(loaded.load(records), Disorder::default());
    assert_eq!((loaded.check(), loaded.spillable), (Ok(()), put.spillable));
    assert!(loaded.forget(200) && loaded.check().is_ok());
}

fn follow(plan: &Plan) -> Held {
    let (mut rng, mut both) = (Rng::new(plan.seed), Pair::default());
    plan.each(|step| {
        let key = plan.shape.key(step.ordinal());
        match step {
            Step::Put(_) => both.put(&key, size_at_limits(&mut rng, &[30, 1024, 4096], 5000) as usize),
            Step::Del(_) => both.del(&key),
        }
        if rng.below(8) == 0 {
            both.spill(&key);
        }
        prop_assert_eq!(both.index.check(), Ok(()));
        prop_assert_eq!(both.index.len(), both.plain.len() as u64);
        Ok(())
    })?;
    both.compare();
    Ok(())
}

#[test]
fn keys_that_come_and_go_in_all_orders() {
    hold("index", 60, plans(80, 65_536), follow);
}

/// Records as checkpoints encode them.
fn encoded_bytes(records: &[(Vec<u8>, Record)]) -> Vec<u8> {
    use crate::codec::Encode;
    let mut bytes = Vec::new();
    for (key, record) in records {
        bytes.put_bytes(key);
        bytes.put_u64(record.epoch);
        bytes.put_u8(0);
        bytes.put_bytes(record.value.by_ref().here().unwrap());
    }
    bytes
}

fn encoded_index(sections: &[&[(Vec<u8>, Record)]]) -> Option<Index> {
    let bytes: Vec<Vec<u8>> = sections.iter().map(|records| encoded_bytes(records)).collect();
    let mut encoded = Encoded::new(std::sync::Arc::new(bytes.concat()));
    let mut counts = Counts::default();
    let mut at = 0;
    for (records, bytes) in sections.iter().zip(&bytes) {
        let mut from = crate::codec::Decoder::new(bytes);
        if !encoded.add(at, records.len(), &mut from, &mut counts).unwrap() {
            assert_eq!(from.left(), bytes.len(), "what cannot stay is not taken");
            return None;
        }
        from.end().unwrap();
        at += bytes.len();
    }
    Some(Index::of_encoded(3, encoded, counts))
}

/// Encoded records equal loaded ones, however they are read. The first read of a record decodes them; counting does
/// not.
#[test]
fn encoded_records_are_what_was_loaded() {
    let mut dice = Dice(11);
    let plain: BTreeMap<Vec<u8>, Record> =
        (0..500).map(|epoch| (dice.key(), record(epoch, &dice.value(epoch)))).collect();
    let records: Vec<(Vec<u8>, Record)> = plain.into_iter().collect();
    let make = || encoded_index(&[&records[..1], &records[1..300], &[], &records[300..]]).unwrap();
    let mut loaded = Index::new(3);
    loaded.load(records.iter().map(|(key, record)| (Key::new(key), record.clone())).collect());
    let counts = |index: &Index| (index.len(), index.bytes, index.spillable, index.away, index.created);
    let all = |index: &Index| -> Vec<_> {
        index.range(Bound::Unbounded).map(|(key, record)| (key.to_vec(), record.to_owned())).collect()
    };

    let mut index = make();
    index.check().unwrap();
    assert_eq!(counts(&index), counts(&loaded));
    assert!(index.memory_bytes() < loaded.memory_bytes());
    index.leave_checkpoint();
    let (copy, as_it_was) = (index.clone(), index.encoded().expect("nobody asked for a record"));
    assert_eq!(as_it_was.parts().map(|(count, _)| count).sum::<u32>(), records.len() as u32);
    assert_eq!(all(&index), records);
    assert!(index.encoded().is_none() && copy.encoded().is_some());
    index.check().unwrap();

    let (key, value) = &records[7];
    assert_eq!(make().get(key).map(RecordRef::to_owned).as_ref(), Some(value));
    let mut changed = make();
    assert_eq!(changed.del(key).as_ref(), Some(value));
    assert_eq!(changed.put(&records[400].0, record(999, b"new")).as_ref(), Some(&records[400].1));
    changed.check().unwrap();
    loaded.del(key);
    loaded.put(&records[400].0, record(999, b"new"));
    assert_eq!((counts(&changed), all(&changed)), (counts(&loaded), all(&loaded)));

    let mut dropped = make();
    dropped.drop_away();
    assert_eq!(all(&dropped), records);
    let mut forgotten = make();
    assert!(forgotten.forget(1), "at once: none of them has memory of its own");
    assert_eq!((counts(&forgotten), forgotten.check()), ((0, 0, 0, 0, 3), Ok(())));
}

/// Wrong counts are found without decoding, and records out of order do not stay encoded.
#[test]
fn encoded_records_are_looked_through() {
    let records =
        [(b"a".to_vec(), record(1, b"1")), (b"b".to_vec(), record(2, b"2")), (b"c".to_vec(), record(3, b"3"))];
    let twisted = [records[1].clone(), records[0].clone()];
    assert!(encoded_index(&[&twisted]).is_none());
    assert!(encoded_index(&[&records[1..], &records[..1]]).is_none(), "not across sections either");
    assert!(encoded_index(&[&records[..2], &records[1..]]).is_none(), "a key twice");
    let mut index = encoded_index(&[&records]).unwrap();
    index.bytes += 1;
    assert_eq!(index.check(), Err("it counts its bytes wrongly"));
}
