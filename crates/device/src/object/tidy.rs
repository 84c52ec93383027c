//! Garbage collection: deletes packs that nothing needs, and repacks packs with few live bytes.
//!
//! A crash at any point leaves the old bytes, the new ones or both, never neither: a pack is deleted only when all
//! packs that supersede its bytes are acknowledged. Of bytes in two packs those born later win; of bytes born together
//! (the same bytes, repacked) either.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use cenote_model::{ErrorKind, Result};

use super::catalogue;
use super::device::{BucketState, Inner};
use super::map::{Piece, Span};
use super::pack::{Filling, RUNS_MAX};

/// Packs below this share of the pack size are small; at least `SMALL_MIN` of them are combined.
const SMALL_SHARE: u64 = 4;
const SMALL_MIN: usize = 16;
/// A catalogue is written when the last one lacks this many packs, or this share of all packs.
const UNCATALOGUED_MIN: usize = 64;
const UNCATALOGUED_SHARE: usize = 16;
/// Upper bound of packs examined for one new pack.
const VICTIMS_MAX: usize = 1024;

/// Bytes to repack.
struct Salvage {
    victims: Vec<u64>,
    spans: Vec<Span>,
    pieces: Vec<Piece>,
}

impl Inner {
    /// Collects garbage, on another thread if this device has any.
    pub fn tidy_soon(self: &Arc<Self>) {
        if !self.packing.background {
            // A failure is repeated after the next sync.
            let _ = self.tidy();
            return;
        }
        if self.tidying.is_locked() {
            return;
        }
        let inner = Arc::clone(self);
        let tidy = move || drop(inner.tidy());
        let _ = std::thread::Builder::new().name("cenote-tidy".into()).spawn(tidy);
    }

    /// Does nothing if another thread is collecting.
    pub fn tidy(&self) -> Result<()> {
        let Some(_alone) = self.tidying.try_lock() else { return Ok(()) };
        self.delete_dead()?;
        while !self.closing.load(Ordering::Relaxed) {
            let Some(salvage) = self.salvage() else { break };
            self.pack_anew(&salvage)?;
            self.delete_dead()?;
        }
        let state = self.state.lock();
        if Self::needs_catalogue(&state) {
            catalogue::write(self, state)?;
        }
        Ok(())
    }

    /// Returns true if the service has the pack and all packs that superseded bytes of it.
    fn is_settled(state: &BucketState, sequence: u64) -> bool {
        let unsent = state.unsent_from();
        let sent = sequence != state.filling.sequence && !state.sealed.contains_key(&sequence);
        sent && state.map.pack(sequence).is_some_and(|pack| pack.table.is_some() && pack.robbed_by < unsent)
    }

    fn delete_dead(&self) -> Result<()> {
        let mut state = self.state.lock();
        let dead: Vec<u64> = state
            .map
            .packs()
            .filter(|(sequence, pack)| pack.live == 0 && Self::is_settled(&state, *sequence))
            .map(|(sequence, _)| sequence)
            .collect();
        for sequence in dead {
            state.map.remove_pack(sequence);
            state.unwanted.push(sequence);
        }
        let unwanted = std::mem::take(&mut state.unwanted);
        drop(state);
        if !unwanted.is_empty()
            && let Err(error) = self.check_held(true)
        {
            self.state.lock().unwanted.extend_from_slice(&unwanted);
            return Err(error);
        }
        for (done, sequence) in unwanted.iter().enumerate() {
            if self.closing.load(Ordering::Relaxed) {
                break; // the next opening finds it to be garbage again
            }
            let key = self.place.pack_key(*sequence);
            if let Err(refusal) = self.service.delete(&key) {
                self.state.lock().unwanted.extend_from_slice(&unwanted[done..]);
                return Err(self.place.error(&key, &refusal));
            }
        }
        Ok(())
    }

    /// Packs to repack: less than half live, or small and many.
    fn victims(&self, state: &BucketState) -> Vec<u64> {
        let small_bytes = u64::from(self.packing.pack_bytes) / SMALL_SHARE;
        let (mut thin, mut small) = (Vec::new(), Vec::new());
        for (sequence, pack) in state.map.packs() {
            let Some(table) = pack.table.as_ref().filter(|_| !pack.damaged && pack.live > 0) else { continue };
            if !Self::is_settled(state, sequence) {
                continue;
            }
            if pack.live < table.data_bytes / 2 {
                thin.push(sequence);
            } else if pack.live < small_bytes {
                small.push(sequence);
            }
        }
        if small.len() >= SMALL_MIN {
            thin.append(&mut small);
        }
        // A single thin pack is worth it, since half of it is garbage.
        thin.truncate(VICTIMS_MAX);
        thin
    }

    /// Takes as much as fits into one pack. `None` if nothing needs repacking.
    fn salvage(&self) -> Option<Salvage> {
        let state = self.state.lock();
        let mut salvage = Salvage { victims: Vec::new(), spans: Vec::new(), pieces: Vec::new() };
        let mut bytes = 0;
        for victim in self.victims(&state) {
            let live = state.map.pack(victim).map_or(0, |pack| pack.live);
            let full = bytes + live > u64::from(self.packing.pack_bytes) || salvage.pieces.len() > RUNS_MAX / 4;
            if bytes > 0 && full {
                break;
            }
            bytes += live;
            salvage.victims.push(victim);
            for span in state.map.live_of(victim) {
                salvage.pieces.extend(span.piece);
                salvage.spans.push(span);
            }
        }
        (!salvage.victims.is_empty()).then_some(salvage)
    }

    fn pack_anew(&self, salvage: &Salvage) -> Result<()> {
        let data = match self.read_pieces(&salvage.pieces) {
            Ok(data) => data,
            Err(error) => {
                if matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::NotFound) {
                    self.leave_damaged_alone(salvage);
                }
                return Err(error);
            }
        };
        let sequence = self.state.lock().sequence();
        let mut filling = Filling::new(sequence);
        let mut moved = Vec::with_capacity(salvage.spans.len());
        {
            let state = self.state.lock();
            let mut rest = data.as_slice();
            for (span, piece) in salvage.spans.iter().zip(&salvage.pieces) {
                let Some(table) = Self::table(&state, piece.pack) else { return Ok(()) };
                let (mut at, end) = (piece.at, piece.at + piece.len);
                while at < end {
                    let run = table.run_at(at);
                    let len = (run.at + run.len).min(end) - at;
                    let (bytes, later) = rest.split_at(len as usize);
                    let offset = span.offset + u64::from(at - piece.at);
                    let old = Piece { pack: piece.pack, at, len };
                    moved.push((offset, old, filling.push(offset, run.born, bytes)));
                    rest = later;
                    at += len;
                }
            }
        }
        self.check_held(false)?;
        let (table, head, body) = filling.seal(&self.owner, self.life);
        let key = self.place.pack_key(sequence);
        if let Err(refusal) = self.service.put(&key, &[head, body], true) {
            // It may have arrived all the same.
            self.state.lock().unwanted.push(sequence);
            return Err(self.place.error(&key, &refusal));
        }
        let mut state = self.state.lock();
        state.map.add_pack(sequence, Some(Arc::new(table)));
        state.uncatalogued += 1;
        for (offset, old, at) in moved {
            // Bytes that changed meanwhile are no longer where they were read.
            for span in state.map.lookup(offset, u64::from(old.len)) {
                let skip = (span.offset - offset) as u32;
                let Some(piece) = span.piece.filter(|piece| (piece.pack, piece.at) == (old.pack, old.at + skip)) else {
                    continue;
                };
                state.map.cover(span.offset, Piece { pack: sequence, at: at + skip, len: piece.len }, 0);
            }
        }
        Ok(())
    }

    /// Finds the packs that cannot be read: they stay as they are, and the others need not wait for them.
    fn leave_damaged_alone(&self, salvage: &Salvage) {
        for victim in &salvage.victims {
            let pieces: Vec<Piece> = salvage.pieces.iter().filter(|piece| piece.pack == *victim).copied().collect();
            if self.read_pieces(&pieces).is_err()
                && let Some(pack) = self.state.lock().map.pack_mut(*victim)
            {
                pack.damaged = true;
            }
        }
    }

    fn needs_catalogue(state: &BucketState) -> bool {
        let packs = state.map.packs().count();
        state.uncatalogued >= UNCATALOGUED_MIN.max(packs / UNCATALOGUED_SHARE)
    }

    /// Keeps only the bytes in use; bytes in use that no pack holds are recorded as lost.
    pub fn retain(&self, live: &mut dyn Iterator<Item = (u64, u64)>) {
        let mut state = self.state.lock();
        let mut at = 0;
        for (offset, len) in live {
            if offset > at {
                state.map.uncover(at, offset - at, 0);
            }
            at = at.max(offset + len);
            for span in state.map.lookup(offset, len) {
                if span.piece.is_none() {
                    state.lost.insert(span.offset, span.len);
                }
            }
        }
        let capacity = self.owner.capacity;
        if at < capacity {
            state.map.uncover(at, capacity - at, 0);
        }
    }
}
