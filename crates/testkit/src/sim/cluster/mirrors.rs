//! The changes of a home on their way to its mirrors: as `server/src/daemon/nodes/mirrors.rs` and `copies.rs` do it.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use cenote_device::mirror::Replica;
use cenote_model::{DeviceId, HomeId, NodeId};
use cenote_store::file_kind;

use super::net::{ConnId, End};
use super::node::{Holding, Place, Sending, new_copy, store_of};
use super::process::{Message, Proc};
use super::{Check, Cluster, to_ha, trace};

const AGAIN_US: u64 = 60_000;
const BATCH_BYTES: usize = 64 << 10;
/// A connection to a mirror that confirms nothing for so long is made anew.
const SILENCE_US: u64 = 4_000_000;

impl Cluster {
    /// Begins to send the changes of a home to a node, unless that is under way.
    pub(super) fn send_to(&mut self, process: Proc, home: HomeId, to: NodeId) {
        let now = self.now_us;
        let fresh = Sending {
            conn: None,
            is_streaming: false,
            has: 0,
            complete_at: None,
            answered_us: now,
            began_us: None,
            again_us: 0,
        };
        self.node(process.node).sending.entry((home, to)).or_insert(fresh);
    }
    pub(super) fn stop_sending(&mut self, process: Proc, home: HomeId, to: NodeId) {
        let node = self.node(process.node);
        let sending = node.sending.remove(&(home, to));
        if let Some(open) = node.homes.get(&home) {
            open.stream.detach(to);
        }
        if let Some(conn) = sending.and_then(|sending| sending.conn) {
            self.hang_up(conn, 0);
        }
    }
    /// Connects to mirrors that are not connected, and goes on with the others.
    pub(super) fn tend_mirrors(&mut self, process: Proc) -> Check {
        let now = self.now_us;
        let all: Vec<(HomeId, NodeId)> = self.node(process.node).sending.keys().copied().collect();
        for (home, to) in all {
            let Some(sending) = self.nodes[usize::from(process.node.0)].sending.get(&(home, to)) else { continue };
            match sending.conn {
                None if sending.again_us <= now => self.call(process, home, to),
                Some(conn) if now - sending.answered_us > SILENCE_US || self.is_reset(conn, 0) => {
                    self.hang_up(conn, 0);
                    self.lost(process, conn);
                }
                _ => {}
            }
            self.pump(process, home);
        }
        Ok(())
    }
    fn call(&mut self, process: Proc, home: HomeId, to: NodeId) {
        let now = self.now_us;
        let Some((term, stream)) =
            self.node(process.node).homes.get(&home).and_then(|open| Some((open.term?, open.number)))
        else {
            return;
        };
        let conn = self.connect(End::Daemon(process), to);
        if let Some(conn) = conn {
            self.post(conn, 0, Message::Mirror { home, term, stream });
        }
        if let Some(sending) = self.node(process.node).sending.get_mut(&(home, to)) {
            (sending.conn, sending.is_streaming, sending.again_us) = (conn, false, now + AGAIN_US);
            if conn.is_some() {
                sending.answered_us = sending.answered_us.max(now.saturating_sub(SILENCE_US / 2));
            }
        }
    }
    fn sending_on(&mut self, process: Proc, conn: ConnId) -> Option<(HomeId, NodeId)> {
        let found = self.node(process.node).sending.iter().find(|(_, sending)| sending.conn == Some(conn));
        found.map(|(key, _)| *key)
    }
    /// A connection to a mirror is gone.
    fn lost(&mut self, process: Proc, conn: ConnId) {
        let again = self.now_us + AGAIN_US;
        if let Some(key) = self.sending_on(process, conn)
            && let Some(sending) = self.node(process.node).sending.get_mut(&key)
        {
            (sending.conn, sending.is_streaming, sending.again_us) = (None, false, again);
        }
    }
    /// A mirror has everything up to this chunk.
    pub(super) fn confirmed(&mut self, process: Proc, conn: ConnId, number: u64) -> Check {
        let now = self.now_us;
        let Some((home, to)) = self.sending_on(process, conn) else { return Ok(()) };
        let node = self.node(process.node);
        let Some(open) = node.homes.get(&home) else { return Ok(()) };
        let Some(sending) = node.sending.get_mut(&(home, to)) else { return Ok(()) };
        if sending.is_streaming {
            let was_caught_up = sending.complete_at.is_some_and(|at| sending.has >= at);
            (sending.has, sending.answered_us) = (number, now);
            let is_caught_up = sending.complete_at.is_some_and(|at| sending.has >= at);
            open.stream.confirm(to, number);
            self.count.copies += u64::from(is_caught_up && !was_caught_up);
        } else {
            sending.is_streaming = true;
            let is_whole = sending.complete_at.is_some();
            if is_whole && number > 0 && open.stream.resume(to, number, Box::new(|| ())) {
                self.count.resumed += 1;
            } else {
                self.copy(process, home, to)?;
            }
        }
        self.pump(process, home);
        Ok(())
    }
    /// Queues a copy of everything.
    fn copy(&mut self, process: Proc, home: HomeId, to: NodeId) -> Check {
        let now = self.now_us;
        let node = self.node(process.node);
        let (Some(open), Some(sending)) = (node.homes.get(&home), node.sending.get_mut(&(home, to))) else {
            return Ok(());
        };
        (sending.has, sending.complete_at) = (0, None);
        (sending.answered_us, sending.began_us) = (now, Some(now));
        open.stream.attach(to, Box::new(|| ()));
        let ranges: BTreeMap<DeviceId, Vec<(u64, u64)>> =
            open.engine.device_infos().iter().map(|info| (info.id, open.engine.used_ranges(info.id))).collect();
        let used = |id: DeviceId| ranges.get(&id).cloned().unwrap_or_default();
        if let Err(error) = open.source.copy_to(to, &used, &|_, _| ()) {
            if self.end_if_dead(process, home) {
                return Ok(());
            }
            return Err(format!("a copy of {home}: {error:?}"));
        }
        sending.complete_at = Some(open.stream.complete(to));
        trace!(self.trace, "  node {} copies {home} to node {}", process.node.0, to.0);
        Ok(())
    }
    /// Sends what waits to mirrors, and tells what may be told.
    pub(super) fn pump(&mut self, process: Proc, home: HomeId) {
        let now = self.now_us;
        let targets: Vec<(NodeId, ConnId)> = {
            let sending = self.node(process.node).sending.iter();
            let live = sending.filter(|((of, _), it)| *of == home && it.is_streaming);
            live.filter_map(|((_, to), it)| Some((*to, it.conn?))).collect()
        };
        for (to, conn) in targets {
            let Some(open) = self.nodes[usize::from(process.node.0)].homes.get(&home) else { return };
            let Some(chunks) = open.stream.take(to, BATCH_BYTES) else {
                // It fell too far behind, and gets a new copy.
                self.hang_up(conn, 0);
                self.lost(process, conn);
                continue;
            };
            let is_idle = chunks.is_empty() && open.stream.is_confirmed(to);
            if is_idle && let Some(sending) = self.node(process.node).sending.get_mut(&(home, to)) {
                sending.answered_us = now;
            }
            for chunk in chunks {
                self.post(conn, 0, Message::Chunk(chunk.number, chunk.bytes));
            }
        }
        self.tell(process, home);
    }
    /// Tells the answers that mirrors have what they need for, while the lease lasts.
    fn tell(&mut self, process: Proc, home: HomeId) {
        let now = self.now_us;
        let mut told = Vec::new();
        let node = self.node(process.node);
        let clock = node.clock_us(now);
        let Some(open) = node.homes.get_mut(&home) else { return };
        while clock < open.lease_us
            && !open.is_fenced
            && let Some((after, ..)) = open.held.front()
            && *after <= open.stream.kept()
        {
            told.extend(open.held.pop_front());
        }
        for (_, conn, seq, response) in told {
            self.post(conn, 1, Message::Response(seq, Box::new(response)));
        }
    }

    // The mirror's side.

    /// The host of a home has changes for a copy here.
    pub(super) fn keep(&mut self, process: Proc, conn: ConnId, home: HomeId, term: u64, stream: u64) -> Check {
        let from = match self.net.peer(conn, 1) {
            Some(End::Daemon(peer)) => peer.node,
            _ => return Ok(()),
        };
        let view = self.view_of(process);
        let entry = view.as_ref().and_then(|view| view.home(to_ha(home)));
        let is_host = entry.is_some_and(|entry| entry.host == from && entry.term <= term || entry.term < term);
        let node = self.node(process.node);
        let is_served = node.homes.get(&home).is_some_and(|open| home != node.home || open.term.is_some());
        let has = match node.holding.get_mut(&home) {
            _ if !is_host || is_served => None,
            Some(Holding::Opening) => None,
            Some(Holding::Kept(of, replica, _, by)) if *of == stream => {
                *by = conn;
                Some(replica.has())
            }
            _ => {
                let world = new_copy(home)?;
                let seams = world.seams();
                let replica = Replica::new(store_of(home), seams.meta, Arc::clone(&seams.devices), file_kind);
                let boot = node.boot;
                let place =
                    Place { world, is_complete: false, term: None, boot, is_opened: false, is_rolled_back: false };
                node.holding.insert(home, Holding::Kept(stream, Box::new(replica), place, conn));
                Some(0)
            }
        };
        if let Some(has) = has {
            trace!(self.trace, "  node {} has {has} of {home} of opening {stream}", process.node.0);
            self.post(conn, 1, Message::Has(has));
            return Ok(());
        }
        trace!(self.trace, "  node {} takes no changes of {home} from node {}", process.node.0, from.0);
        self.post(conn, 1, Message::Declined);
        self.hang_up(conn, 1);
        Ok(())
    }
    pub(super) fn take_chunk(&mut self, process: Proc, conn: ConnId, number: u64, bytes: &Bytes) -> Check {
        let node = self.node(process.node);
        let kept = node.holding.iter_mut().find_map(|(home, holding)| match holding {
            Holding::Kept(_, replica, place, by) if *by == conn => Some((*home, replica, place)),
            _ => None,
        });
        let Some((home, replica, place)) = kept else {
            self.post(conn, 1, Message::Declined);
            self.hang_up(conn, 1);
            return Ok(());
        };
        if number != replica.has() + 1 {
            // The host began anew to send to this node: the next connection begins with nothing.
            node.holding.remove(&home);
            self.post(conn, 1, Message::Declined);
            self.hang_up(conn, 1);
            return Ok(());
        }
        replica
            .apply(number, bytes)
            .map_err(|error| format!("a copy of {home} on node {}: {error:?}", process.node.0))?;
        if replica.is_complete() && !place.is_complete {
            place.is_complete = true;
            node.copies.insert(home, place.clone());
            node.lost.remove(&home);
        }
        self.post(conn, 1, Message::Has(number));
        Ok(())
    }
    /// The other end takes no more of this.
    pub(super) fn declined(&mut self, process: Proc, conn: ConnId) -> Check {
        self.lost(process, conn);
        self.yielded(process, conn)
    }
    pub(super) fn connection_ended(&mut self, process: Proc, conn: ConnId) {
        self.lost(process, conn);
        let _ = self.yielded(process, conn);
        for open in self.node(process.node).homes.values_mut() {
            open.sessions.remove(&conn);
        }
    }
}
