//! A register that is an object of a pool of Ceph RADOS.

use std::sync::Arc;

use cenote_model::{Error, ErrorKind, Result};
use cenote_rados::{Change, Check, Pool, Refusal, RefusalKind};

use super::Stamp;
use super::cell::{Cell, Stored};
use super::record::RECORD_BYTES_MAX;

/// Attribute of the object: the stamp of its record, 16 bytes, little-endian. Each replacement is guarded by it.
const STAMP: &str = "stamp";

const NEXT: &str = "check the Ceph cluster and the way to it (`ceph -s`); the register works again by itself then";

/// One object, whose bytes are the record and whose attribute guards them: both change in one atomic operation. RADOS carries out
/// late what a client sent before it died, so no swap goes without the guard.
///
/// Calls take as long as the pool's operations may: [`cenote_rados::OPERATION_S`] for a cluster.
pub struct RadosRegister {
    pool: Arc<dyn Pool>,
    object: String,
    subject: String,
}

impl RadosRegister {
    /// The register in this object of a replicated pool. `place`: the pool, for errors, as `POOL/NAMESPACE`.
    pub fn new(pool: Arc<dyn Pool>, place: &str, object: impl Into<String>) -> Self {
        let object = object.into();
        let subject = format!("the register in object `{object}` of pool {place}");
        Self { pool, object, subject }
    }
    /// Removes the record, for a cluster that is no more.
    pub fn remove(&self) -> Result<()> {
        match self.pool.change(&self.object, &[], &[Change::Remove]) {
            Err(refusal) if refusal.kind != RefusalKind::NotFound => Err(self.failed(refusal)),
            _ => Ok(()),
        }
    }
    fn failed(&self, refusal: Refusal) -> Error {
        let (kind, next) = match refusal.kind {
            RefusalKind::Unanswered => (ErrorKind::Disconnected, NEXT),
            RefusalKind::NotFound => (ErrorKind::NotFound, "make the pool, or name another one"),
            RefusalKind::Full => (ErrorKind::Full, "free space in the pool, or raise its quota"),
            RefusalKind::Denied => (ErrorKind::PermissionDenied, "let the user's key read and write this pool"),
            RefusalKind::Unsupported => (ErrorKind::Unsupported, "take a replicated pool, and install `librados2`"),
            _ => (ErrorKind::Io, NEXT),
        };
        Error::new(kind, self.subject.clone()).because(refusal.cause).try_next(next)
    }
}

impl Cell for RadosRegister {
    fn subject(&self) -> String {
        self.subject.clone()
    }
    fn load(&self) -> Result<Option<Vec<u8>>> {
        match self.pool.read(&self.object, 0, RECORD_BYTES_MAX + 1) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(refusal) if refusal.kind == RefusalKind::NotFound => Ok(None),
            Err(refusal) => Err(self.failed(refusal)),
        }
    }
    fn store(&self, seen: Option<Stamp>, stamp: Stamp, bytes: &[u8]) -> Stored {
        let (stamp, seen) = (stamp.0.to_le_bytes(), seen.map(|seen| seen.0.to_le_bytes()));
        let check = seen.as_ref().map_or(Check::Absent, |seen| Check::Attribute(STAMP, seen));
        let changes = [Change::Replace(bytes), Change::SetAttribute(STAMP, &stamp)];
        match self.pool.change(&self.object, &[check], &changes) {
            Ok(()) => Stored::Done,
            Err(refusal) => match refusal.kind {
                // `NotFound`: the object was removed.
                RefusalKind::Exists | RefusalKind::Refused | RefusalKind::NotFound => Stored::Other,
                RefusalKind::Full | RefusalKind::Denied | RefusalKind::Unsupported => {
                    Stored::Failed(self.failed(refusal))
                }
                RefusalKind::Unanswered | RefusalKind::Failed => Stored::Unknown(self.failed(refusal)),
            },
        }
    }
}
