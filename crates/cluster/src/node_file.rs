//! What a node's directory says of the node itself: who it is, and the last view that it knew.

use std::path::{Path, PathBuf};

use cenote_device::StoreDir;
use cenote_ha::Identity;
use cenote_model::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

/// Name of the file, in the directory of a node's store.
pub const NODE_FILE: &str = "cluster.node";
/// Longest file, in bytes.
const BYTES_MAX: usize = 4096;

/// The file, which is written anew with each later view.
#[derive(Debug)]
pub struct NodeFile {
    dir: PathBuf,
    identity: Identity,
    view: u64,
    given_up: Option<u64>,
}

/// Its content.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    /// Hexadecimal.
    identity: String,
    view: u64,
    /// The view by which a person gave the node up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    given_up: Option<u64>,
}

impl NodeFile {
    /// The file of a node's directory; at the first start, the node draws who it is.
    pub fn open(dir: &Path) -> Result<Self> {
        if let Some(bytes) = StoreDir::open(dir)?.read_bytes(NODE_FILE, BYTES_MAX)? {
            return Self::parse(dir, &bytes);
        }
        let this = Self { dir: dir.to_owned(), identity: draw()?, view: 0, given_up: None };
        this.write()?;
        Ok(this)
    }
    fn parse(dir: &Path, bytes: &[u8]) -> Result<Self> {
        let wrong = |why: String| {
            Error::new(ErrorKind::Corrupt, subject(dir)).because(why).try_next(
                "if its disks are those of always, put a copy of the file there; else remove it: the node then is another one",
            )
        };
        let text = std::str::from_utf8(bytes).map_err(|error| wrong(error.to_string()))?;
        let text: Text = toml::from_str(text).map_err(|error| wrong(error.message().to_owned()))?;
        let identity = u128::from_str_radix(&text.identity, 16).map_err(|error| wrong(error.to_string()))?;
        Ok(Self { dir: dir.to_owned(), identity: Identity(identity), view: text.view, given_up: text.given_up })
    }
    /// Who the node is, for as long as its disks last.
    pub fn identity(&self) -> Identity {
        self.identity
    }
    /// The number of the last view that it knew; 0 if it knew none.
    pub fn view(&self) -> u64 {
        self.view
    }
    /// Notes that the node knows this view, durably. Earlier ones change nothing.
    pub fn note_view(&mut self, view: u64) -> Result<()> {
        if view <= self.view {
            return Ok(());
        }
        self.view = view;
        self.write()
    }
    /// The view by which a person gave the node up, if one did.
    pub fn given_up(&self) -> Option<u64> {
        self.given_up
    }
    /// Notes durably that a person gave the node up, as this view says.
    pub fn note_given_up(&mut self, view: u64) -> Result<()> {
        if self.given_up.is_some() {
            return Ok(());
        }
        self.given_up = Some(view);
        self.write()
    }
    fn write(&self) -> Result<()> {
        let identity = format!("{:032x}", self.identity.0);
        let text = Text { identity, view: self.view, given_up: self.given_up };
        let text = toml::to_string(&text)
            .map_err(|error| Error::new(ErrorKind::Internal, subject(&self.dir)).because(error.to_string()))?;
        let text =
            format!("# Who this node of a cluster is, and the last view that it knew. Written by its daemon.\n{text}");
        let dir = StoreDir::open(&self.dir)?;
        dir.prepare(NODE_FILE, text.as_bytes())?;
        dir.put_in_place(NODE_FILE)
    }
}

fn draw() -> Result<Identity> {
    let mut bytes = [0; 16];
    // The kernel answers a request of up to 256 bytes whole.
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).map_err(|errno| {
        Error::io("the identity of a node", &errno.into()).try_next("let the process use the system call `getrandom`")
    })?;
    Ok(Identity(u128::from_le_bytes(bytes)))
}

fn subject(dir: &Path) -> String {
    format!("who a node is, in {}", dir.join(NODE_FILE).display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_stays_who_it_is() {
        let dir = std::env::temp_dir().join(format!("cenote-node-file-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let mut first = NodeFile::open(&dir).unwrap();
        assert_eq!(first.view(), 0);
        first.note_view(7).unwrap();
        first.note_view(3).unwrap();
        let mut again = NodeFile::open(&dir).unwrap();
        assert_eq!((again.identity(), again.view(), again.given_up()), (first.identity(), 7, None));
        again.note_given_up(8).unwrap();
        again.note_given_up(9).unwrap();
        again.note_view(9).unwrap();
        let again = NodeFile::open(&dir).unwrap();
        assert_eq!((again.view(), again.given_up()), (9, Some(8)), "once and for all");
        for text in ["", "identity = 3", "identity = \"zz\"\nview = 1", "identity = \"1\"\nview = -1", "\u{0}"] {
            std::fs::write(dir.join(NODE_FILE), text).unwrap();
            let error = NodeFile::open(&dir).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}: {error}");
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
