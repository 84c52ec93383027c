//! The recovery of a dead client: untaken requests in its ring, and pipelined changes that it had not sent yet.
//!
//! A client reports some pipelined changes as safe once they are in the log of its file ([`cenote_rpc::FrameLog`], a
//! redo log); this module carries them out after its death, in its session, before its leases are returned. Requests in
//! the ring have numbers, so that none is carried out twice. Some entries of the log have none: changes that the client
//! had just sent when it died may still be there. They are refused, since their space is no longer leased and their
//! preconditions no longer hold.
#![allow(unsafe_code, reason = "rings lie in memory shared with the client")]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

use cenote_device::control::ClientFile;
use cenote_model::{Check, ErrorKind, Request, Response, Result, Update};
use cenote_rpc::{Consumer, RingMemory, ring_bytes_for};
use cenote_store::SessionId;
use cenote_wire::{Assembly, decode_request};

use crate::clients::Served;
use crate::service::lock;

/// Size of a client's redo log of pipelined changes, in bytes.
pub const LOG_BYTES: usize = 256 << 10;

/// Bytes of memory for the redo log.
pub(crate) fn log_memory_bytes() -> u64 {
    ring_bytes_for(LOG_BYTES) as u64
}

/// The redo log of a client's file; `None` if an earlier version created the file.
pub fn log_memory(file: &ClientFile) -> Result<Option<RingMemory>> {
    let wrap = |(base, len)| {
        // SAFETY: the memory belongs to the mapping, which the ring keeps alive; only rings use it.
        unsafe { RingMemory::new(base, len, file.mapping().clone()) }
    };
    file.log().map(wrap).transpose()
}

/// Decides who may take requests from a client's ring: the serving thread, until somebody takes over what the client
/// left.
#[derive(Default)]
pub(crate) struct Gate {
    is_shut: AtomicBool,
    taking: Mutex<()>,
}

impl Gate {
    /// Enters for one turn. `None` once the gate is shut.
    pub fn enter(&self) -> Option<MutexGuard<'_, ()>> {
        let taking = lock(&self.taking);
        (!self.is_shut.load(Ordering::SeqCst)).then_some(taking)
    }
    /// Shuts the gate for good; returns when nobody is within a turn.
    pub fn shut(&self) {
        let _taking = lock(&self.taking);
        self.is_shut.store(true, Ordering::SeqCst);
    }
}

/// Returns true if nothing is left in a client's file and none of its slots is in use.
pub(crate) fn is_spent(file: &ClientFile) -> bool {
    let is_empty = |memory: RingMemory| Consumer::new(memory).is_ok_and(|consumer| !consumer.is_ready());
    let rings = crate::daemon::ring_memories(file).map_or(true, |[requests, _]| is_empty(requests));
    rings && log_memory(file).is_ok_and(|log| log.is_none_or(is_empty)) && file.slots().min() == u64::MAX
}

/// Carries out the requests and changes that a dead client left in its file. Returns false if the home cannot be
/// reached, so that some of it is still to be carried out.
pub(crate) fn recover(home: &dyn Served, session: SessionId, file: &ClientFile) -> bool {
    if file.mapping().is_torn() {
        return true;
    }
    let results = [requests(home, session, file), redo(home, session, file)];
    let mut is_done = true;
    for error in results.into_iter().filter_map(Result::err) {
        is_done &= !matches!(error.kind(), ErrorKind::Busy | ErrorKind::Disconnected);
        tracing::warn!(%error, session = session.0, "what a dead client left is not carried out to its end");
    }
    is_done
}

fn requests(home: &dyn Served, session: SessionId, file: &ClientFile) -> Result<()> {
    let Ok([memory, _]) = crate::daemon::ring_memories(file) else { return Ok(()) };
    let mut ring = Consumer::new(memory)?;
    let mut assembly = Assembly::default();
    while let Some(frame) = taken(&mut ring)? {
        // The rest of a message that an earlier engine began to take cannot be decoded; the messages behind it can.
        let decoded = assembly.take(frame, decode_request);
        if let Ok(Some(Ok((seq, request @ Request::Apply { .. })))) = decoded {
            apply(home, session, seq, request)?;
        }
        ring.release();
    }
    Ok(())
}

fn redo(home: &dyn Served, session: SessionId, file: &ClientFile) -> Result<()> {
    let Some(memory) = log_memory(file)? else { return Ok(()) };
    let mut log = Consumer::new(memory)?;
    let mut message: Option<Message> = None;
    while let Some(frame) = taken(&mut log)? {
        let Some((number, part)) = frame.split_first_chunk() else { continue };
        let number = u64::from_le_bytes(*number);
        let (_, Request::Apply { checks, updates, atomic }) = decode_request(part)? else { continue };
        match &mut message {
            Some((current, all_checks, all, _)) if *current == number => {
                all_checks.extend(checks);
                all.extend(updates);
            }
            _ => send(home, session, message.replace((number, checks, updates, atomic)))?,
        }
    }
    send(home, session, message)?;
    log.release();
    Ok(())
}

/// The next frame; `None` at the end. Also reads a closed ring to its end.
fn taken(ring: &mut Consumer) -> Result<Option<&[u8]>> {
    if ring.is_ready() { ring.take() } else { Ok(None) }
}

type Message = (u64, Vec<Check>, Vec<Update>, bool);

fn send(home: &dyn Served, session: SessionId, message: Option<Message>) -> Result<()> {
    let Some((_, checks, updates, atomic)) = message.filter(|(_, _, updates, _)| !updates.is_empty()) else {
        return Ok(());
    };
    apply(home, session, 0, Request::Apply { checks, updates, atomic })
}

/// Fails if the home is being closed, or cannot be reached: the next one takes the rest.
fn apply(home: &dyn Served, session: SessionId, seq: u64, request: Request) -> Result<()> {
    if let Some(Response::Failed(error)) = home.carry_out(session, seq, request)? {
        tracing::info!(%error, session = session.0, "a change that a dead client left is not carried out");
    }
    Ok(())
}
