//! The contract of a pool.

/// One namespace of one pool.
///
/// Calls may come from many threads at once; each returns in bounded time. A call that fails with
/// [`RefusalKind::Unanswered`] may have changed the object, now or later: RADOS carries out late what a client sent
/// before it died. Only a [`Check`] in each change keeps late operations out.
pub trait Pool: Send + Sync {
    /// Changes one object in one atomic operation, if all checks hold. On return the changes are durable on as many
    /// devices as the pool asks for. Fails with the first check that does not hold.
    fn change(&self, object: &str, checks: &[Check<'_>], changes: &[Change<'_>]) -> Answer<()>;
    /// Up to `len` bytes from `offset` on; fewer if the object ends before. `NotFound` if there is no object.
    fn read(&self, object: &str, offset: u64, len: usize) -> Answer<Vec<u8>>;
    /// Size in bytes; `None` if there is no object.
    fn size(&self, object: &str) -> Answer<Option<u64>>;
    /// An attribute; `None` if the object has none of that name. `NotFound` if there is no object.
    fn attribute(&self, object: &str, name: &str) -> Answer<Option<Vec<u8>>>;
    /// Up to `most` records of an object, by key, behind the key `after` (empty: from the first). `NotFound` if there is
    /// no object.
    fn records(&self, object: &str, after: &str, most: usize) -> Answer<Vec<(String, Vec<u8>)>>;
    /// Names of all objects of the namespace, sorted. Takes time in proportion to the whole pool.
    fn list(&self) -> Answer<Vec<String>>;
}

/// A condition of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Check<'a> {
    /// The object exists: `NotFound` otherwise.
    Exists,
    /// The object does not exist: `Exists` otherwise.
    Absent,
    /// An attribute has exactly these bytes (one that is absent has none): `Refused` otherwise.
    Attribute(&'a str, &'a [u8]),
}

/// A part of a change. All parts happen, in order, or none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change<'a> {
    /// Creates the object if it is absent.
    Create,
    /// Replaces all its bytes.
    Replace(&'a [u8]),
    /// Writes at an offset; a gap reads as zeros.
    Write(u64, &'a [u8]),
    /// Writes at its end.
    Append(&'a [u8]),
    /// Deletes it, with attributes and records. `NotFound` if it is absent.
    Remove,
    /// Sets an attribute.
    SetAttribute(&'a str, &'a [u8]),
    /// Sets a record.
    SetRecord(&'a str, &'a [u8]),
    /// Deletes a record, if it is there.
    RemoveRecord(&'a str),
}

/// The answer of a pool.
pub type Answer<T> = Result<T, Refusal>;

/// Why a pool did not do what was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// What a program can act on.
    pub kind: RefusalKind,
    /// For error messages.
    pub cause: String,
}

/// See [`Refusal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RefusalKind {
    /// No such object, pool or record store.
    NotFound,
    /// [`Check::Absent`] failed.
    Exists,
    /// [`Check::Attribute`] failed: somebody else has the object now.
    Refused,
    /// The pool or its quota is full.
    Full,
    /// The key does not allow it.
    Denied,
    /// The pool cannot do this: records in an erasure-coded pool.
    Unsupported,
    /// Nothing was answered in time, or the connection broke: whether it was done is unknown.
    Unanswered,
    /// Anything else.
    Failed,
}

impl Refusal {
    /// A refusal with a cause.
    pub fn new(kind: RefusalKind, cause: impl Into<String>) -> Self {
        Self { kind, cause: cause.into() }
    }
}
