//! Messages about locks of files: between the daemons of a cluster, and between a process and the daemon of its node; and
//! what a node has of the locks of a file, as its daemon tells all processes there.

use cenote_model::{HomeId, LockAnswer, LockHolder, LockHow, LockMode, LockSet, LockSpace, LockWish, Result};

use crate::codec::{Input, Wire, decode, encode, malformed, wire_enum, wire_struct};

/// A message about locks of the files of a home, between its arbiter and the agent of a node.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "each variant's line says what its fields are")]
pub enum NodeLock {
    /// To the arbiter: the node wants a lock, or to know who has a conflicting one. It is answered by number.
    Want { number: u64, file: u64, wish: LockWish, how: LockHow },
    /// To the arbiter: nobody waits for the answer to this one any more.
    Cancel { number: u64 },
    /// To the arbiter: the answer to `Revoke`. `holder`: who keeps the node from giving way; `None`: it has given way.
    Revoked { number: u64, file: u64, holder: Option<LockHolder> },
    /// To the arbiter: a revocation that a holder prevented may succeed by now.
    MayRetry { file: u64 },
    /// To the arbiter: the node has nothing of the file any more.
    GaveUp { file: u64 },
    /// To the arbiter, first on each connection: all that the node has, and the view that admitted the node when it got it.
    Reclaim { admitted: u64, locks: Vec<(u64, LockSet)> },
    /// To the agent: the node has the lock.
    Granted { number: u64 },
    /// To the agent: it has not; another node has this one. `None`: nobody has a conflicting one.
    Busy { number: u64, holder: Option<LockHolder> },
    /// To the agent: the node is to give way to this lock of another node, and to say later when it can, if it cannot now.
    Revoke { number: u64, file: u64, wish: LockWish },
    /// To the agent: what the node reclaimed of these files is gone.
    Lost { files: Vec<u64> },
    /// To the agent on the home's own node: no other node has anything of the file.
    Alone { file: u64 },
}

wire_enum!(NodeLock, 9, "message about locks", {
    60 => Want { number, file, wish, how },
    61 => Cancel { number },
    62 => Revoked { number, file, holder },
    63 => MayRetry { file },
    64 => GaveUp { file },
    65 => Reclaim { admitted, locks },
    66 => Granted { number },
    67 => Busy { number, holder },
    68 => Revoke { number, file, wish },
    69 => Lost { files },
    70 => Alone { file },
});

wire_struct!(LockHolder, 24, { node, pid, lock });

wire_enum!(LockAnswer, 1, "answer about a lock", {
    1 => Granted,
    2 => Busy(holder),
    3 => Lost,
});

/// A question of a process about the lock of a file, to the daemon of its node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockAsk {
    /// The home that has the file.
    pub home: HomeId,
    /// The file's number.
    pub file: u64,
    /// The lock.
    pub wish: LockWish,
    /// How the lock is wanted.
    pub how: LockHow,
    /// The term of the own node's home in the control table that the process sees.
    pub term: u64,
}
wire_struct!(LockAsk, 37, { home, file, wish, how, term });

/// What a node has of the locks of a file, for all its processes: the content of a small file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LockTokens {
    /// The home that has the file.
    pub home: HomeId,
    /// Since the node last had nothing: a lock that a process got under another number is gone.
    pub era: u64,
    /// Raised with each change.
    pub version: u64,
    /// The view that admitted the node when it got them.
    pub admitted: u64,
    /// Some are being given up, unless a process turns out to need them: look again.
    pub is_changing: bool,
    /// What processes of the node may lock without asking.
    pub has: LockSet,
}
wire_struct!(LockTokens, 31, { home, era, version, admitted, is_changing, has });

/// Appends the content of such a file.
pub fn encode_lock_tokens(tokens: &LockTokens, out: &mut Vec<u8>) {
    encode(0, tokens, out);
}

/// Decodes it from bytes that may be hostile.
///
/// # Errors
/// `Corrupt` or `VersionMismatch`: they are no such content, or that of another version.
pub fn decode_lock_tokens(bytes: &[u8]) -> Result<LockTokens> {
    decode(bytes).map(|(_, tokens)| tokens)
}

impl Wire for LockMode {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(if *self == Self::Shared { 1 } else { 2 });
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        match u8::take(input)? {
            1 => Ok(Self::Shared),
            2 => Ok(Self::Exclusive),
            _ => Err(malformed("an unknown mode of a lock")),
        }
    }
}

impl Wire for LockHow {
    const BYTES_MIN: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(match self {
            Self::Settle => 1,
            Self::Test => 2,
            Self::Try => 3,
            Self::Wait => 4,
        });
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        match u8::take(input)? {
            1 => Ok(Self::Settle),
            2 => Ok(Self::Test),
            3 => Ok(Self::Try),
            4 => Ok(Self::Wait),
            _ => Err(malformed("an unknown way to ask for a lock")),
        }
    }
}

impl Wire for LockWish {
    const BYTES_MIN: usize = 18;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(if self.space == LockSpace::Whole { 1 } else { 2 });
        self.first.put(out);
        self.last.put(out);
        self.mode.put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let space = match u8::take(input)? {
            1 => LockSpace::Whole,
            2 => LockSpace::Ranges,
            _ => return Err(malformed("an unknown kind of lock")),
        };
        let wish = Self { space, first: u64::take(input)?, last: u64::take(input)?, mode: LockMode::take(input)? };
        if wish.is_valid() { Ok(wish) } else { Err(malformed("a lock of no bytes")) }
    }
}

impl Wire for LockSet {
    const BYTES_MIN: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        self.locks().collect::<Vec<_>>().put(out);
    }
    fn take(input: &mut Input<'_>) -> Result<Self> {
        let mut set = Self::default();
        for lock in Vec::<LockWish>::take(input)? {
            set.raise(&lock);
        }
        Ok(set)
    }
}
