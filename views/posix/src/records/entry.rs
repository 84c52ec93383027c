//! An entry of a directory.

use crate::{FsResult, Kind};

use super::{Node, Reader, VERSION, Writer, node};

/// What a name leads to. A file with this name only, which was never renamed, has its node here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Its kind.
    pub kind: Kind,
    /// Its number in the tree.
    pub ino: u64,
    /// All of it, or none if it is a record of its own.
    pub node: Option<Node>,
}

impl Entry {
    /// One whose node is elsewhere.
    pub fn to(kind: Kind, ino: u64) -> Self {
        Self { kind, ino, node: None }
    }
    /// As a record.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = Writer(Vec::with_capacity(48));
        w.u8(VERSION);
        w.u8(self.kind as u8);
        w.ino(self.ino);
        if let Some(node) = &self.node {
            node.write(&mut w);
        }
        w.0
    }
    /// From a record.
    pub fn decode(record: &[u8]) -> FsResult<Self> {
        let mut r = Reader::new("entry of a directory", record)?;
        let kind = node::kind(r.u8()?).ok_or_else(|| r.corrupt("a kind that there is none of"))?;
        let ino = r.ino()?;
        let rest = r.rest();
        let node = if rest.is_empty() { None } else { Some(Node::decode(rest)?) };
        if node.as_ref().is_some_and(|node| node.kind != kind) {
            return Err(r.corrupt("the kind is another one than its node's"));
        }
        Ok(Self { kind, ino, node })
    }
}
