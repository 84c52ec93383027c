//! What a node was told of the version words of a home, and when it lets go of it: the other side of
//! [`super::interests`]. A pure state machine: the words themselves are in a table of its caller.

use std::collections::{HashMap, HashSet};

use cenote_wire::Changed;

use super::Word;

/// Where the words are that clients look at.
pub trait Table {
    /// The number of the word with this hash.
    fn word_of(&self, hash: u64) -> Word;
    /// From now on the word has this value; `None`: nobody knows.
    fn set(&self, word: Word, value: Option<u64>);
}

/// See the module.
#[derive(Default, Debug)]
pub struct Told {
    words: HashSet<Word>,
    /// Number of requests that were sent on this connection.
    sent: u64,
    /// For each word the number of the last of them that changes it, as long as an answer to an earlier one may come.
    changed: HashMap<Word, u64>,
    /// The same for requests that may change everything.
    all_changed: u64,
}

impl Told {
    /// Forgets everything: the connection has ended, or a new one begins.
    pub fn forget(&mut self, table: &impl Table) {
        self.words.drain().for_each(|word| table.set(word, None));
        *self = Self::default();
    }
    /// Returns true if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
    /// A request is about to be sent, which changes so much.
    pub fn sending(&mut self, changed: &Changed, table: &impl Table) {
        self.sent += 1;
        match changed {
            Changed::Nothing => {}
            Changed::Words(hashes) => {
                for hash in hashes {
                    let word = table.word_of(*hash);
                    self.changed.insert(word, self.sent);
                    self.let_go(word, table);
                }
            }
            Changed::Everything => {
                self.all_changed = self.sent;
                self.changed.clear();
                self.words.drain().for_each(|word| table.set(word, None));
            }
        }
    }
    fn let_go(&mut self, word: Word, table: &impl Table) {
        if self.words.remove(&word) {
            table.set(word, None);
        }
    }
    /// The home tells the values of words after this many requests.
    pub fn told(&mut self, upto: u64, words: &[(Word, u64)], table: &impl Table) {
        for (word, value) in words {
            if self.all_changed > upto || self.changed.get(word).is_some_and(|number| *number > upto) {
                continue; // the change is under way, or was made since: the home tells again
            }
            self.changed.remove(word);
            self.words.insert(*word);
            table.set(*word, Some(*value));
        }
    }
    /// The home is about to change words.
    pub fn revoked(&mut self, words: &[Word], table: &impl Table) {
        for word in words {
            self.let_go(*word, table);
        }
    }
}
