//! Encodings of what a daemon tells of its cluster.

use cenote_model::{ClusterChange, HaCopy, HaDecided, HaEvent, HaHome, HaLoad, HaMove, HaNode, HaReport};

use crate::codec::{wire_enum, wire_struct};

wire_struct!(HaLoad, 24, { memory_bytes, disk_bytes, written_bytes_per_s });
wire_struct!(HaMove, 11, { home, from, to, is_host, why });
wire_struct!(HaNode, 52, {
    node, name, address, live, leaving, given_up, owed, since_view, silence_us, doubt, load, room,
});
wire_struct!(HaHome, 52, { home, host, wanted_host, mirrors, mirrors_wanted, term, lost, moving, load });
wire_struct!(HaEvent, 12, { ago_us, what });
wire_struct!(HaDecided, 13, { kind, repairs, what, why });
wire_struct!(HaCopy, 21, { home, node, complete, copied_bytes, total_bytes });
wire_struct!(HaReport, 47, {
    node, view, survives, asked_ago_us, trouble, nodes, homes, events, decided, copies, moves,
});

wire_enum!(ClusterChange, 1, "change of the cluster", {
    0 => Reread,
    1 => Join { node },
    2 => Leave { node },
    3 => Forget { node },
    4 => MoveHome { home, to },
    5 => GiveUp { node, dry_run },
    6 => MoveMirror { home, from, to },
});

#[cfg(test)]
mod tests {
    use cenote_model::{HomeId, NodeId, Response};

    use super::*;
    use crate::{decode_response, encode_response};

    #[test]
    fn a_report_comes_back() {
        let report = HaReport {
            node: NodeId(2),
            view: 7,
            survives: 1,
            asked_ago_us: Some(40_000),
            trouble: "none".into(),
            nodes: vec![HaNode {
                node: NodeId(3),
                silence_us: Some(9),
                owed: true,
                given_up: true,
                room: Some((7, 9)),
                ..HaNode::default()
            }],
            homes: vec![HaHome {
                home: HomeId(1),
                mirrors: vec![NodeId(2)],
                term: 4,
                lost: true,
                moving: Some((NodeId(2), NodeId(3))),
                ..HaHome::default()
            }],
            events: vec![HaEvent { ago_us: 5, what: "it rained".into() }],
            copies: vec![HaCopy { home: HomeId(3), node: NodeId(1), copied_bytes: 5, ..HaCopy::default() }],
            moves: vec![HaMove { home: HomeId(3), to: NodeId(1), why: "even".into(), ..HaMove::default() }],
            decided: vec![HaDecided { kind: "wait".into(), why: "so".into(), ..HaDecided::default() }],
        };
        for report in [report, HaReport::default()] {
            let (mut bytes, response) = (Vec::new(), Response::Ha(Box::new(report)));
            encode_response(3, &response, &mut bytes);
            assert_eq!(decode_response(&bytes), Ok((3, response)));
            for len in 0..bytes.len() {
                assert!(decode_response(&bytes[..len]).is_err());
            }
        }
    }
}
