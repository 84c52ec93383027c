//! Version words between nodes: what a gateway was told of the words of its home, and the messages about them in both
//! directions. What they mean is in `crate::words`.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use cenote_device::control::{SharedControl, WORDS, boot_ns};
use cenote_rpc::net::Class;
use cenote_wire::{Changed, WordsMessage, encode_words};

use super::foreign::Outgoing;
use super::outbox::ConnectionId;
use crate::service::lock;
use crate::words::{Table, Told, Word, Words};

/// Interval at which a gateway asks whether it may go on to trust what it was told.
pub(super) const ASK_EVERY: Duration = Duration::from_millis(250);

/// What a gateway knows of the words of its home.
#[derive(Default)]
pub(super) struct Trust(Mutex<State>);

#[derive(Default)]
struct State {
    told: Told,
    asked_at: Option<Instant>,
}

impl Table for SharedControl {
    fn word_of(&self, hash: u64) -> Word {
        (hash % WORDS) as Word
    }
    fn set(&self, word: Word, value: Option<u64>) {
        self.tell(word, value);
    }
}

impl Trust {
    /// Nothing counts any more: the connection has ended, or a new one begins.
    pub fn forget(&self, table: &SharedControl) {
        table.trust_until(0);
        let mut state = lock(&self.0);
        state.told.forget(table);
        state.asked_at = None;
    }
    /// A request is about to be sent: what it changes must not be trusted from here on.
    pub fn sending(&self, message: &[u8], table: Option<&SharedControl>) {
        if let Some(table) = table {
            let changed = Changed::by_encoded(message).unwrap_or(Changed::Everything);
            lock(&self.0).told.sending(&changed, table);
        }
    }
    /// Takes a message of the home. Returns the answer.
    pub fn take(&self, message: &WordsMessage, table: &SharedControl) -> Option<WordsMessage> {
        let state = &mut *lock(&self.0);
        match message {
            WordsMessage::Trusted { asked_ns, for_ms } => {
                table.trust_until(asked_ns.saturating_add(u64::from(*for_ms) * 1_000_000));
                None
            }
            WordsMessage::Told { upto, words } => {
                let is_first = state.told.is_empty();
                state.told.told(*upto, words, table);
                is_first.then(|| state.ask())
            }
            WordsMessage::Revoke { number, words } => {
                state.told.revoked(words, table);
                Some(WordsMessage::LetGo { number: *number })
            }
            WordsMessage::Trust { .. } | WordsMessage::LetGo { .. } => None,
        }
    }
    /// Asks, if it is time, whether what is known may be trusted on.
    pub fn ask_again(&self, now: Instant) -> Option<WordsMessage> {
        let state = &mut *lock(&self.0);
        let is_due = state.asked_at.is_none_or(|at| now.duration_since(at) >= ASK_EVERY);
        (is_due && (!state.told.is_empty() || state.asked_at.is_none())).then(|| state.ask())
    }
}

impl State {
    fn ask(&mut self) -> WordsMessage {
        self.asked_at = Some(Instant::now());
        WordsMessage::Trust { asked_ns: boot_ns() }
    }
}

/// A message about words, for the connection.
pub(super) fn outgoing(message: &WordsMessage) -> Outgoing {
    let mut bytes = Vec::new();
    encode_words(message, &mut bytes);
    Outgoing::new(Class::Control, bytes)
}

/// What the node behind a connection is to know of the words here.
pub(super) fn messages(words: Option<&Words>, connection: ConnectionId) -> Vec<Outgoing> {
    let messages = words.map(|words| words.messages(connection.number()));
    messages.unwrap_or_default().iter().map(outgoing).collect()
}
