//! Locks of files between the nodes of a cluster, as a process sees them: what its node has of a file's locks, and the
//! daemon of its node, which gets what the node has not.

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cenote_device::control::{LockWords, boot_ns};
use cenote_model::{Error, ErrorKind, HomeId, LockAnswer, LockHow, LockWish, Request, Result};
use cenote_rpc::Connection;
use cenote_server::daemon::SOCKET;
use cenote_wire::{Greeting, LockAsk, LockTokens, decode_greeting, decode_lock_tokens, encode_greeting};

use crate::Store;

/// Name of the directory of what the node has of locks, beside that of meeting files.
const SORT: &str = "lock-tokens";
/// Time limit for each step of talking to the daemon.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a daemon that is not there is waited for.
const DAEMON: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(20);

/// How a process waits for the answer to a question.
pub enum LockPatience<'a> {
    /// In a system call, which a signal ends (`EINTR`); the function gets the call, and makes it.
    Call(&'a dyn Fn(&mut dyn FnMut())),
    /// In pauses of so long, while the function returns true.
    While(Duration, &'a dyn Fn() -> bool),
}

/// The answer to a question about a lock. While it lives, for a moment, the node gives nothing of the file to others: whoever
/// was told that the node has a lock locks meanwhile.
#[derive(Debug)]
pub struct LockPromise {
    /// What was said.
    pub answer: LockAnswer,
    _connection: Connection,
}

impl Store {
    /// What the table of this node's home says of locks of files. Sends nothing, and enters the kernel for nothing.
    #[must_use]
    pub fn lock_words(&self) -> LockWords {
        self.root_lock_words()
    }
    /// Returns true if locks of processes of this node stand, as far as time is concerned.
    #[must_use]
    pub fn is_lock_lease_over(words: &LockWords) -> bool {
        words.lease_until != u64::MAX && boot_ns() > words.lease_until
    }
    /// What this node has of the locks of a file; `None` if its daemon says nothing of it.
    ///
    /// # Errors
    /// Those of reading a file; `InvalidData` if its content is damaged.
    pub fn lock_tokens(&self, file: u64) -> io::Result<Option<LockTokens>> {
        match std::fs::read(self.lock_tokens_path(file)?) {
            Ok(bytes) => decode_lock_tokens(&bytes).map(Some).map_err(|error| io::Error::other(error.to_string())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
    fn lock_tokens_path(&self, file: u64) -> io::Result<PathBuf> {
        let dir = if let Some(dir) = self.lock_tokens_dir().get() {
            dir
        } else {
            let dir = self.meeting_dir(SORT)?;
            self.lock_tokens_dir().get_or_init(|| dir)
        };
        Ok(dir.join(format!("{file:016x}")))
    }
    /// Asks the daemon of this node about a lock of a file, by a descriptor from `lowest` on. A daemon that ends meanwhile is
    /// waited for, and asked again.
    ///
    /// # Errors
    /// `Disconnected`: no daemon, or the file's home cannot be reached. `Interrupted` as the kind of an
    /// [`io::Error`] in the outer result: `patience` ended the wait.
    pub fn ask_lock(
        &self,
        (home, file, wish, how): (HomeId, u64, LockWish, LockHow),
        lowest: i32,
        patience: &LockPatience<'_>,
    ) -> io::Result<Result<LockPromise>> {
        let ask = LockAsk { home, file, wish, how, term: self.lock_words().term };
        let mut away_since = None;
        loop {
            match self.ask_lock_once(&ask, lowest, patience)? {
                Err(error) if error.kind() == ErrorKind::Disconnected || error.kind() == ErrorKind::NotFound => {
                    let since = *away_since.get_or_insert_with(Instant::now);
                    if since.elapsed() > DAEMON {
                        return Ok(Err(error));
                    }
                    if let LockPatience::While(_, goes_on) = patience
                        && !goes_on()
                    {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    std::thread::sleep(PAUSE);
                }
                done => return Ok(done),
            }
        }
    }
    fn ask_lock_once(
        &self,
        ask: &LockAsk,
        lowest: i32,
        patience: &LockPatience<'_>,
    ) -> io::Result<Result<LockPromise>> {
        let asked = Connection::connect(self.dir(), SOCKET, PATIENCE).and_then(|connection| {
            let (connection, mut bytes) = (connection.raised(lowest), Vec::new());
            encode_greeting(&Greeting::Lock { ask: ask.clone() }, &mut bytes);
            connection.send(&[&bytes], &[], PATIENCE)?;
            Ok(connection)
        });
        let connection = match asked {
            Ok(connection) => connection,
            Err(error) => return Ok(Err(error)),
        };
        match patience {
            LockPatience::Call(run) => {
                let mut waited = Ok(());
                run(&mut || waited = connection.wait_as_program());
                waited?;
            }
            LockPatience::While(pause, goes_on) => {
                while !connection.is_readable_within(*pause) {
                    if !goes_on() {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                }
            }
        }
        Ok(heard(&connection).map(|answer| LockPromise { answer, _connection: connection }))
    }
    /// Makes this process look whether another daemon has this node's home by now.
    ///
    /// # Errors
    /// Those of a request.
    pub fn meet_daemon(&self) -> Result<()> {
        self.session()?.root().request(Request::Stats).map(drop)
    }
}

fn heard(connection: &Connection) -> Result<LockAnswer> {
    let gone = || Error::new(ErrorKind::Disconnected, "daemon").because("it does not answer on its socket");
    let frame = connection.receive(PATIENCE)?.ok_or_else(gone)?;
    match decode_greeting(&frame.bytes)? {
        Greeting::LockIs { answer } => Ok(answer),
        Greeting::Refused(error) => Err(error),
        Greeting::Moving => Err(gone()),
        _ => Err(Error::new(ErrorKind::Internal, "daemon").because("its answer about a lock makes no sense")),
    }
}
