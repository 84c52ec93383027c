//! Records decode to what was encoded, and damaged ones are refused.

use std::fmt::Write as _;

use super::*;
use crate::{Consistency, Kind, Time};

fn nodes() -> Vec<Node> {
    let now = Time { s: 1_700_000_000, ns: 5 };
    let mut all = Vec::new();
    for kind in
        [Kind::File, Kind::Directory, Kind::Symlink, Kind::Fifo, Kind::Socket, Kind::CharDevice, Kind::BlockDevice]
    {
        let mut node = Node::new(kind, 0o6754, (7, u32::MAX), now);
        all.push(node.clone());
        node.accessed = Time { s: -1, ns: 999_999_999 };
        node.has_object = kind == Kind::File;
        match kind {
            Kind::Directory => (node.parent, node.consistency) = ((1 << INO_BITS) - 1, Consistency::Laminated),
            Kind::Symlink => node.target = b"../a/\xff".to_vec(),
            Kind::CharDevice | Kind::BlockDevice => node.rdev = u64::MAX,
            _ => node.has_xattrs = true,
        }
        all.push(node.clone());
        (node.modified, node.changed) = (Time { s: 3, ns: 0 }, Time { s: i64::MAX, ns: 1 });
        all.push(node.clone());
        if kind == Kind::File {
            let object = cenote::ObjectId(u128::MAX - 7);
            node.image = Some(Box::new(cenote::ObjectKey { container: cenote::ContainerId(9), object }));
            all.push(node);
        }
    }
    all
}

#[test]
fn records_come_back_as_they_were() {
    for node in nodes() {
        assert_eq!(Node::decode(&node.encode()).unwrap(), node);
        let entry = Entry { kind: node.kind, ino: 0xfe_dcba_9876, node: Some(node) };
        assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
        let entry = Entry::to(entry.kind, entry.ino);
        assert_eq!(Entry::decode(&entry.encode()).unwrap(), entry);
    }
    let mut dir = Node::new(Kind::Directory, 0o755, (0, 0), Time { s: 1, ns: 2 });
    (dir.parent, dir.layout) = (ROOT, Some("4+2,domain=node".into()));
    assert_eq!(Node::decode(&dir.encode()).unwrap(), dir);
    assert!(Node::decode(&[&dir.encode()[..], b"\xff"].concat()).is_err(), "a layout is text");
    dir.layout = None;
    assert_eq!(Node::decode(&dir.encode()).unwrap(), dir);
    for note in [
        PageCacheNote { term: Some(u64::MAX), is_stored_to: true },
        PageCacheNote { term: Some(1), is_stored_to: false },
        PageCacheNote { term: None, is_stored_to: true },
    ] {
        assert_eq!(PageCacheNote::decode(&note.encode()).unwrap(), note);
    }
    assert!(PageCacheNote::decode(&[3]).is_err() && PageCacheNote::decode(&[2, 0, 1]).is_err());
    let two = [
        claimant::Claimant { pid: 1, started: 2, nonce: u64::MAX },
        claimant::Claimant { pid: u32::MAX, started: 0, nonce: 3 },
    ];
    assert_eq!(claimant::decode(Some(&claimant::encode(&two))).unwrap(), two);
    assert!(claimant::decode(Some(&claimant::encode(&two)[..30])).is_err());
    assert_eq!(claimant::decode(None).unwrap(), []);
    let source = Source {
        container: cenote::ContainerId(3),
        made: Time { s: 4, ns: 5 },
        changes: cenote::Changes { instance: 6, count: u64::MAX },
        indices: vec![cenote::IndexId(7)],
        objects: vec![cenote::ObjectId(8), cenote::ObjectId(u128::MAX)],
    };
    assert_eq!(Source::decode(&source.encode()).unwrap(), source);
    assert!(Source::decode(&source.encode()[..60]).is_err());
    let times = Times { modified: Time { s: -5, ns: 6 }, changed: Time { s: 7, ns: 8 } };
    assert_eq!(Times::decode(&times.encode()).unwrap(), times);
}

#[test]
fn what_is_cut_short_or_of_another_version_is_an_error_and_no_panic() {
    for node in nodes() {
        let whole = Entry { kind: node.kind, ino: 9, node: Some(node.clone()) }.encode();
        for len in 0..whole.len() {
            // The rest may be a whole record: an entry without its node, a link with a shorter target.
            let is_whole = len == 7 || (node.kind == Kind::Symlink && whole.len() - len <= node.target.len());
            assert_eq!(Entry::decode(&whole[..len]).is_ok(), is_whole, "{node:?} {len}");
        }
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut bent = whole.clone();
                bent[at] ^= 1 << bit;
                if let Ok(entry) = Entry::decode(&bent) {
                    assert!(Entry::decode(&entry.encode()).is_ok());
                }
            }
        }
        let mut newer = whole;
        newer[0] = 2;
        assert_eq!(Entry::decode(&newer).unwrap_err().errno, libc::EIO);
    }
}

#[test]
fn keys_lead_back() {
    let ino = 0x12_3456_789a;
    assert_eq!(keys::ino_in(&keys::node(ino)), Some(ino));
    assert_eq!(keys::ino_of_object(keys::object(ino)), Some(ino));
    assert_eq!(keys::ino_of_object(cenote::ObjectId(7)), None);
    assert_eq!(keys::entry_name(&keys::entry(b"a")), b"a");
    assert_eq!(keys::xattr_name(&keys::xattr(ino, b"user.a")), b"user.a");
    assert_ne!(keys::dir_index(1), keys::nodes_index());
    assert!(keys::node(255) < keys::node(256), "in the order of numbers");
}

/// Version 1 as existing stores have it, byte for byte.
#[test]
fn bytes_in_stores_stay_as_they_are() {
    let hex = |bytes: Vec<u8>| {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let mut node = Node::new(Kind::File, 0o6754, (7, u32::MAX), Time { s: 1_700_000_000, ns: 5 });
    (node.accessed, node.has_object, node.has_xattrs) = (Time { s: -1, ns: 999_999_999 }, true, true);
    (node.modified, node.changed) = (Time { s: 3, ns: 0 }, Time { s: i64::MAX, ns: 1 });
    let object = cenote::ObjectId(u128::MAX - 7);
    node.image = Some(Box::new(cenote::ObjectKey { container: cenote::ContainerId(9), object }));
    let entry = Entry { kind: Kind::File, ino: 0xfe_dcba_9876, node: Some(node) };
    let source = Source {
        container: cenote::ContainerId(3),
        made: Time { s: 4, ns: 5 },
        changes: cenote::Changes { instance: 6, count: 7 },
        indices: vec![cenote::IndexId(8)],
        objects: vec![cenote::ObjectId(9)],
    };
    let claimant = claimant::Claimant { pid: 1, started: 2, nonce: 3 };
    let alone = PageCacheNote::default();
    let in_cluster = PageCacheNote { term: Some(0x0102), is_stored_to: true };
    assert_eq!([hex(alone.encode()), hex(in_cluster.encode())], ["01", "02010201000000000000"]);
    assert_eq!(
        [hex(entry.encode()), hex(source.encode()), hex(claimant::encode(&[claimant]))],
        [
            "01017698badcfe01013fec0d0100000007000000ffffffff00f153650000000005000000ffffffffffffffffffc99a3b0300\
         00000000000000000000ffffffffffffff7f010000000900000000000000f8ffffffffffffffffffffffffffffff",
            "0103000000000000000400000000000000050000000600000000000000070000000000000001000000080000000000000000\
         0000000000000009000000000000000000000000000000",
            "010100000002000000000000000300000000000000"
        ]
    );
}
