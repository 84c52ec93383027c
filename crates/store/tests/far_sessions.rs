//! Clients on other nodes while the home loses its memory: they go on exactly if nothing is missing.

mod world;

use cenote_device::mem::Keep;
use cenote_model::*;
use cenote_store::{Outcome, SessionId, SessionInfo};
use world::*;

/// A store with a session of a client on another node, which leases memory, and one of a client on this node.
struct Far {
    world: World,
    key: ObjectKey,
    session: SessionId,
    run: Run,
}

fn far() -> Far {
    let mut world = World::new(&three_tiers(4 << 20, 8 << 20, 16 << 20));
    let container = world.container("c", Durability::Async);
    let key = object(container, 1);
    world.must(vec![Update::ObjectCreate { key, block_shift: 12 }]);
    let who = SessionInfo {
        nonce: 70,
        pid: 2,
        started: 1,
        uid: 0,
        write: true,
        node: Some(NodeId(3)),
        ..SessionInfo::default()
    };
    let session = world.engine().session_open(who).unwrap();
    let request = Request::Lease { container, bytes: 65536, run_min: 65536, avoid: vec![], durability: None };
    let run = match world.engine().handle(session, 1, request) {
        Outcome::Ready(Response::Lease(lease)) => lease.runs[0],
        other => panic!("{other:?}"),
    };
    Far { world, key, session, run }
}

impl Far {
    /// Writes as such a client does: the bytes come with the update, for memory that it leases.
    fn write(&mut self, seq: u64, bytes: &[u8]) -> Response {
        let run = Run { len: bytes.len() as u64, ..self.run };
        let extent = Extent::whole(run.device, run.offset, bytes.len() as u32, Sums::from_slice(&[crc(bytes)]));
        let fill = Update::Fill { container: self.key.container, run, bytes: bytes.to_vec() };
        let updates = vec![fill, Update::Write { key: self.key, offset: (seq - 2) * 4096, extent }];
        match self.world.engine().handle(self.session, seq, Request::Apply { checks: vec![], updates, atomic: true }) {
            Outcome::Ready(response) => {
                let is_done = matches!(response, Response::Applied { .. });
                if is_done {
                    (self.run.offset, self.run.len) = (run.offset + run.len, self.run.len - run.len);
                }
                response
            }
            other @ Outcome::Wait(_) => panic!("{other:?}"),
        }
    }
    fn sessions(&mut self) -> Vec<SessionId> {
        self.world.engine().sessions().into_iter().filter(|(_, who)| who.nonce >= 70).map(|(id, _)| id).collect()
    }
}

#[test]
fn after_an_orderly_close_with_everything_flushed_sessions_of_other_nodes_go_on() {
    let mut far = far();
    let first = far.write(2, &[1; 4096]);
    assert!(matches!(first, Response::Applied { .. }), "{first:?}");
    let local = SessionInfo { nonce: 71, pid: 3, started: 1, write: true, ..SessionInfo::default() };
    far.world.engine().session_open(local).unwrap();
    far.world.ask(Request::Flush { target: FlushTarget::Store });
    far.world.engine().close().unwrap();
    far.world.power_loss(Keep::Nothing);
    far.world.open().unwrap();
    assert!(far.world.report.power_lost && far.world.report.rolled_back.is_empty());
    let session = far.session;
    assert_eq!(far.sessions(), [session], "not that of a client which had its bytes in mapped memory");
    // A request that is sent again is not carried out again, and its lease is still good for the next one.
    let again = Request::Apply { checks: vec![], updates: vec![Update::ObjectDelete { key: far.key }], atomic: true };
    let answer = match far.world.engine().handle(session, 2, again) {
        Outcome::Ready(response) => response,
        Outcome::Wait(ticket) => {
            far.world.settle();
            let finished = far.world.engine().take_finished();
            finished.into_iter().find(|(found, _)| *found == ticket).expect("it is durable").1
        }
    };
    match (answer, first) {
        (Response::Applied { epoch, .. }, Response::Applied { epoch: before, .. }) => assert_eq!(epoch, before),
        other => panic!("{other:?}"),
    }
    let second = far.write(3, &[2; 4096]);
    assert!(matches!(second, Response::Applied { .. }), "{second:?}");
    far.world.work();
    assert_eq!(far.world.read(far.key).unwrap(), [[1; 4096], [2; 4096]].concat());
}

#[test]
fn if_anything_may_be_missing_no_session_goes_on() {
    // Not flushed; or not closed, so that nobody knows what else was told.
    for (is_flushed, is_closed) in [(false, true), (true, false), (false, false)] {
        let mut far = far();
        assert!(matches!(far.write(2, &[1; 4096]), Response::Applied { .. }));
        if is_flushed {
            far.world.ask(Request::Flush { target: FlushTarget::Store });
        }
        if is_closed {
            far.world.engine().close().unwrap();
        }
        far.world.power_loss(Keep::Nothing);
        far.world.open().unwrap();
        assert_eq!(far.sessions(), [], "flushed: {is_flushed}, closed: {is_closed}");
        let refused = far.write(3, &[2; 4096]);
        assert!(matches!(refused, Response::Failed(_)), "{refused:?}");
    }
}
