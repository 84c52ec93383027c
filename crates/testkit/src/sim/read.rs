//! Reads: by fresh maps, by cached maps with their version words, and by readers that linger.

use cenote_device::Control as _;
use cenote_model::{ErrorKind, Extent, IndexKey, KeyCode, Lookup, NextFrom, ObjectKey, Request, Response};

use super::client::{Goal, compare_records};
use super::{Check, Sim, trace};

/// A reader between its announcement and its end: the bytes that it saw must not change.
pub(super) struct Reader {
    pub(super) nonce: u128,
    slot: usize,
    epoch: u64,
    pieces: Vec<(Extent, Vec<u8>)>,
}

/// A client's cached map, with the version word at which it was valid.
pub(super) struct CachedMap {
    key: ObjectKey,
    instance: u64,
    lookup: Lookup,
}

pub(super) const MISSING: &[ErrorKind] = &[ErrorKind::NotFound];

impl Sim {
    /// Reads a range of an object, and compares everything that the engine reports about it with the model.
    pub(super) fn read(&mut self) -> Check {
        let (Some(at), Some(key)) = (self.any_client(), self.any_object()) else { return Ok(()) };
        let size = self.oracle.current().object(key).map_or(100, |o| o.size);
        let offset = self.rng.below(size + 10);
        let len = self.rng.size(size.max(100) * 2);
        let limit = *self.rng.pick(&[1, 2, 100]);
        trace!(self.trace, "c{} reads {key} {offset}+{len}", self.clients[at].info.nonce);
        let request = Request::Lookup { key, offset, len, limit };
        let response = self.send(at, request.clone(), Goal::Other { may_fail: MISSING });
        match (response, self.oracle.current().object(key).is_some()) {
            (None, _) => Ok(()),
            (Some(Response::Lookup(lookup)), true) => {
                let end = lookup.covered_to.min(offset.saturating_add(len));
                self.check_map(key, &lookup, offset, end)?;
                if self.rng.chance(300) {
                    let instance = self.instance();
                    self.cached.push(CachedMap { key, instance, lookup });
                }
                Ok(())
            }
            (Some(Response::Failed(error)), false) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Some(response), _) => self
                .judge(at, &Goal::Other { may_fail: &[] }, &request, response)
                .and_then(|()| if self.hurt { Ok(()) } else { Err(format!("{request:?} contradicts the model")) }),
        }
    }
    fn instance(&self) -> u64 {
        self.openings
    }
    /// Compares a map with the model: header, order, bytes.
    fn check_map(&mut self, key: ObjectKey, lookup: &Lookup, offset: u64, end: u64) -> Check {
        let Some(object) = self.oracle.current().object(key).cloned() else {
            return Err(format!("{key} has a map but should not be there"));
        };
        let header = (lookup.size, lookup.block_shift);
        if header != (object.size, object.block_shift) {
            return Err(format!("{key}: size and shift {header:?}, expected {:?}", (object.size, object.block_shift)));
        }
        if object.epoch != 0 && lookup.epoch != object.epoch {
            return Err(format!("{key}: epoch {}, expected {}", lookup.epoch, object.epoch));
        }
        let word = self.world.control.word(key.word_hash());
        if lookup.version != word {
            return Err(format!("{key}: version {} in the map, {word} in the control table", lookup.version));
        }
        self.check_bytes(key, lookup, offset, end)
    }
    fn check_bytes(&mut self, key: ObjectKey, lookup: &Lookup, offset: u64, end: u64) -> Check {
        if end <= offset {
            return Err(format!("{key}: a map from {offset} covers to {end}"));
        }
        // Objects are sparse: read only a part at once.
        let end = end.min(offset.saturating_add(1 << 20));
        let Some(object) = self.oracle.current().object(key).cloned() else { return Ok(()) };
        let mut expected = vec![0; (end - offset) as usize];
        object.read(offset, &mut expected);
        let mut found = vec![0; (end - offset) as usize];
        let mut reached = 0;
        for (at, extent) in &lookup.extents {
            let until = at + u64::from(extent.len);
            if *at < reached {
                return Err(format!("{key}: extents overlap at {at}"));
            }
            reached = until;
            let (low, high) = ((*at).max(offset), until.min(end));
            if low >= high {
                continue;
            }
            let part = (low - offset) as usize..(high - offset) as usize;
            match self.read_extent(extent)? {
                Some(bytes) => found[part].copy_from_slice(&bytes[(low - at) as usize..(high - at) as usize]),
                None => found[part.clone()].copy_from_slice(&expected[part]),
            }
        }
        match (0..found.len()).find(|i| found[*i] != expected[*i]) {
            None => Ok(()),
            Some(bad) => Err(format!(
                "{key}: wrong byte {:02x} at {}, expected {:02x} (map {:?}, model {:?})",
                found[bad],
                offset + bad as u64,
                expected[bad],
                lookup.extents,
                object.map
            )),
        }
    }
    /// Reads by a cached map whose version word is unchanged: no message, and the bytes must be current.
    pub(super) fn read_cached(&mut self) -> Check {
        if self.cached.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.cached.len());
        let cached = self.cached.swap_remove(at);
        let current = cached.instance == self.instance()
            && self.world.control.word(cached.key.word_hash()) == cached.lookup.version;
        if !current {
            return Ok(());
        }
        trace!(self.trace, "cached map of {} still stands", cached.key);
        if self.oracle.current().object(cached.key).is_none() {
            return Err(format!("{} is gone but its version word did not change", cached.key));
        }
        let first = cached.lookup.extents.first().map_or(0, |(at, _)| *at);
        let end = cached.lookup.extents.last().map_or(first, |(at, extent)| at + u64::from(extent.len));
        let result = if first < end { self.check_bytes(cached.key, &cached.lookup, first, end) } else { Ok(()) };
        self.cached.push(cached);
        result
    }
    /// A reader announces itself, reads a map, and stays.
    pub(super) fn reader_begin(&mut self) -> Check {
        let (Some(at), Some(key)) = (self.any_client(), self.any_object()) else { return Ok(()) };
        let free: Vec<usize> =
            (0..64).filter(|slot| self.berth.has_slot(*slot) && !self.slots_taken.contains(slot)).collect();
        if free.is_empty() || self.oracle.current().object(key).is_none() {
            return Ok(());
        }
        let slot = *self.rng.pick(&free);
        let epoch = self.world.control.announce(slot);
        let size = self.oracle.current().object(key).map_or(0, |o| o.size);
        let request = Request::Lookup { key, offset: 0, len: size.max(1), limit: 1000 };
        let response = self.send(at, request, Goal::Other { may_fail: MISSING });
        let nonce = self.clients[at].info.nonce;
        let Some(Response::Lookup(lookup)) = response else {
            self.world.control.clear(slot);
            return Ok(());
        };
        trace!(self.trace, "c{nonce} lingers on {key} in slot {slot} at reader epoch {epoch}");
        let mut pieces = Vec::new();
        for (_, extent) in lookup.extents {
            if let Some(bytes) = self.read_extent(&extent)? {
                pieces.push((extent, bytes));
            }
        }
        self.slots_taken.insert(slot);
        self.readers.push(Reader { nonce, slot, epoch, pieces });
        Ok(())
    }
    /// A lingering reader reads once more and leaves.
    pub(super) fn reader_end(&mut self) -> Check {
        if self.readers.is_empty() {
            return Ok(());
        }
        let at = self.rng.index(self.readers.len());
        let reader = self.readers.swap_remove(at);
        trace!(self.trace, "c{} looks again and leaves slot {}", reader.nonce, reader.slot);
        for (extent, before) in &reader.pieces {
            // A removed device stays mapped in the client: there is nothing to check.
            if self.engine().device(extent.device).is_none() {
                continue;
            }
            let changed = match self.read_extent(extent) {
                Ok(Some(now)) => now != *before,
                Ok(None) => false,
                Err(_) => true,
            };
            if changed {
                return Err(format!("bytes changed under a reader of epoch {}: {extent:?}", reader.epoch));
            }
        }
        self.slots_taken.remove(&reader.slot);
        self.world.control.clear(reader.slot);
        Ok(())
    }
    /// Ends readers without another read: their process or the machine is gone.
    pub(super) fn drop_readers(&mut self, which: impl Fn(&Reader) -> bool) {
        let (gone, stay): (Vec<Reader>, Vec<Reader>) = self.readers.drain(..).partition(|reader| which(reader));
        self.readers = stay;
        for reader in gone {
            self.slots_taken.remove(&reader.slot);
            self.world.control.clear(reader.slot);
        }
    }
    /// Reads records by key and in order.
    pub(super) fn read_index(&mut self) -> Check {
        let (Some(at), Some(index)) = (self.any_client(), self.any_index()) else { return Ok(()) };
        if self.rng.chance(500) { self.get(at, index) } else { self.next(at, index) }
    }
    fn get(&mut self, at: usize, index: IndexKey) -> Check {
        let keys: Vec<Vec<u8>> = (0..self.rng.between(1, 4)).map(|_| self.draw_key()).collect();
        trace!(self.trace, "c{} gets {keys:?} of {index}", self.clients[at].info.nonce);
        let model = self.oracle.current().index(index);
        let expected = model.map(|records| {
            let value = |key: &Vec<u8>| records.get(key).map(|(value, epoch)| (value.to_vec(), *epoch));
            Response::Values(keys.iter().map(value).collect())
        });
        self.ask_records(at, &Request::Get { index, keys }, expected)
    }
    /// Requests records, which must equal the model's, or an index that does not exist.
    fn ask_records(&mut self, at: usize, request: &Request, expected: Option<Response>) -> Check {
        let goal = expected.clone().map_or(Goal::Other { may_fail: MISSING }, |expected| Goal::Records { expected });
        match (self.send(at, request.clone(), goal), expected) {
            (None, _) => Ok(()),
            (Some(Response::Failed(error)), None) if error.kind() == ErrorKind::NotFound => Ok(()),
            (Some(Response::Failed(_)), _) if self.hurt => Ok(()),
            (Some(response), Some(expected)) => {
                compare_records(&expected, &response).map_err(|why| format!("{request:?}: {why}"))
            }
            (Some(response), None) => Err(format!("{request:?}: {response:?}")),
        }
    }
    fn next(&mut self, at: usize, index: IndexKey) -> Check {
        let key = self.draw_key();
        let from = match self.rng.below(3) {
            0 => NextFrom::Start,
            1 => NextFrom::At(key),
            _ => NextFrom::After(key),
        };
        let prefix = if self.rng.chance(300) { self.draw_key()[..1].to_vec() } else { Vec::new() };
        let limit = self.rng.between(1, 6) as u32;
        trace!(self.trace, "c{} next {from:?} prefix {prefix:?} limit {limit} of {index}", self.clients[at].info.nonce);
        let request = Request::Next { index, from: from.clone(), prefix: prefix.clone(), limit, bytes_max: 1 << 20 };
        let model = self.oracle.current().index(index);
        let expected = model.map(|model| {
            let mut matching = model
                .iter()
                .filter(|(key, _)| match &from {
                    NextFrom::Start => true,
                    NextFrom::At(from) => *key >= from,
                    NextFrom::After(from) => *key > from,
                })
                .filter(|(key, _)| key.starts_with(&prefix));
            let records = matching.by_ref().take(limit as usize).map(|(key, (value, _))| (key, value)).collect();
            Response::Records { records, more: matching.next().is_some() }
        });
        self.ask_records(at, &request, expected)
    }
    /// A short key from a small space, so that keys collide; or an existing or former one, in the order of the
    /// run.
    pub(super) fn draw_key(&mut self) -> Vec<u8> {
        if let Some(orders) = &self.orders {
            let live = orders.keys.live();
            let beside = self.rng.below(3);
            let at = live.iter().nth(self.rng.index(live.len())).copied().unwrap_or(1 << 40);
            return orders.shape.key((at + beside).saturating_sub(1));
        }
        let first = b'a' + self.rng.below(3) as u8;
        let mut key = vec![first];
        for _ in 0..self.rng.below(3) {
            key.push(b'0' + self.rng.below(4) as u8);
        }
        key
    }
}

/// The kind of error of a refused transaction with that code.
pub(super) fn kind_of(code: KeyCode) -> Option<ErrorKind> {
    match code {
        KeyCode::Ok => None,
        KeyCode::NotFound => Some(ErrorKind::NotFound),
        KeyCode::Exists => Some(ErrorKind::Exists),
        KeyCode::Invalid => Some(ErrorKind::InvalidInput),
        KeyCode::Limit => Some(ErrorKind::LimitExceeded),
    }
}
