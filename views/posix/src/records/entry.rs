//! Directory entry.

use crate::{FsResult, Kind};
use cenote_codec::Encode as _;

use super::{Node, PutFields as _, TakeFields as _, VERSION, node, reader};

/// Target of a name. A file that has only this name and was never renamed has its node here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// File type.
    pub kind: Kind,
    /// Inode number in the tree.
    pub ino: u64,
    /// The node, or none if it is a record of its own.
    pub node: Option<Node>,
}

impl Entry {
    /// Creates an entry whose node is elsewhere.
    pub fn to(kind: Kind, ino: u64) -> Self {
        Self { kind, ino, node: None }
    }
    /// Encodes a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Vec::with_capacity(48);
        w.put_u8(VERSION);
        w.put_u8(self.kind as u8);
        w.put_ino(self.ino);
        if let Some(node) = &self.node {
            node.write(&mut w);
        }
        w
    }
    /// Decodes a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = reader("entry of a directory", record)?;
        let kind = node::kind(r.u8()?).ok_or_else(|| r.malformed("a kind that there is none of"))?;
        let ino = r.ino()?;
        let rest = r.rest();
        let node = if rest.is_empty() { None } else { Some(Node::decode(rest)?) };
        if node.as_ref().is_some_and(|node| node.kind != kind) {
            return Err(r.malformed("the kind is another one than its node's"));
        }
        Ok(Self { kind, ino, node })
    }
}
