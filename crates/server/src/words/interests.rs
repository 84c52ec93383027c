//! Which nodes remember what of a home: their interests in version words, the revocations of these, and for how long each
//! node may trust what it was told. A pure state machine: times come from its caller, and messages go to it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use cenote_wire::WordsMessage;

/// The number of a version word in the control table.
pub type Word = u32;
/// The number of a connection from a node.
pub type Holder = u64;

/// A node may trust words for so long, by its own clock, from the moment that it asked.
pub const TRUST: Duration = Duration::from_secs(1);
/// The home waits for so much longer, by its own clock, from the moment that it answered: clocks run at different speeds,
/// and clients look at one that is late by some ms.
const ALLOWANCE: Duration = Duration::from_millis(200);
/// A home waits for so long from the moment that it answered, in nanoseconds.
pub const TRUSTED_FOR_NS: u64 = (TRUST.as_millis() + ALLOWANCE.as_millis()) as u64 * 1_000_000;

/// An interest of one node in one word.
#[derive(Clone, Copy, Debug)]
struct Interest {
    holder: Holder,
    /// The value that it was told.
    value: u64,
    /// The revocation by which it was asked to let go.
    revoked: Option<u64>,
}

/// A connection from a node, or what is left of one that has ended.
#[derive(Default, Debug)]
struct Node {
    number: u16,
    words: HashSet<Word>,
    /// The words of revocations that it has not answered.
    asked: BTreeMap<u64, Vec<Word>>,
    /// Until then it may trust what it was told, whatever happens to it.
    until_ns: u64,
    is_gone: bool,
    /// Words to be told with the next messages, and messages that are to be sent.
    told: Vec<(Word, u64)>,
    orders: Vec<WordsMessage>,
    /// Number of requests that were taken from it.
    taken: u64,
}

/// See the module.
#[derive(Default, Debug)]
pub struct Interests {
    words: HashMap<Word, Vec<Interest>>,
    nodes: BTreeMap<Holder, Node>,
    revocations: u64,
}

impl Interests {
    /// A node has connected.
    pub fn came(&mut self, holder: Holder, node: u16) {
        self.nodes.insert(holder, Node { number: node, ..Node::default() });
    }
    /// The number of the node behind a connection that has not asked for trust yet.
    pub fn is_new(&self, holder: Holder) -> Option<u16> {
        self.nodes.get(&holder).filter(|node| node.until_ns == 0).map(|node| node.number)
    }
    /// A node says that it trusts nothing that it was told on earlier connections. Returns the words that are free by this.
    pub fn begins(&mut self, holder: Holder, node: u16) -> Vec<Word> {
        let is_earlier = |known: &(&Holder, &Node)| *known.0 < holder && known.1.number == node;
        let earlier: Vec<Holder> = self.nodes.iter().filter(is_earlier).map(|(known, _)| *known).collect();
        earlier.into_iter().flat_map(|known| self.forget(known)).collect()
    }
    /// A connection has ended. What its node was told counts for as long as it may trust it.
    pub fn left(&mut self, holder: Holder, now_ns: u64) -> Vec<Word> {
        let Some(node) = self.nodes.get_mut(&holder) else { return Vec::new() };
        node.is_gone = true;
        node.told.clear();
        node.orders.clear();
        if node.words.is_empty() || node.until_ns <= now_ns { self.forget(holder) } else { Vec::new() }
    }
    fn forget(&mut self, holder: Holder) -> Vec<Word> {
        let Some(mut node) = self.nodes.remove(&holder) else { return Vec::new() };
        let words = std::mem::take(&mut node.words);
        words.into_iter().filter(|word| self.remove(holder, *word)).collect()
    }
    /// Removes an interest. Returns true if none is left in the word.
    fn remove(&mut self, holder: Holder, word: Word) -> bool {
        if let Some(node) = self.nodes.get_mut(&holder) {
            node.words.remove(&word);
        }
        let Some(interests) = self.words.get_mut(&word) else { return false };
        interests.retain(|interest| interest.holder != holder);
        let is_free = interests.is_empty();
        if is_free {
            self.words.remove(&word);
        }
        is_free
    }
    /// Returns true if nobody is interested in a word.
    pub fn is_free(&self, word: Word) -> bool {
        !self.words.contains_key(&word)
    }
    /// Returns true if nobody is interested in any word.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
    /// Counts a request of a node.
    pub fn take(&mut self, holder: Holder) {
        if let Some(node) = self.nodes.get_mut(&holder) {
            node.taken += 1;
        }
    }
    /// A node has looked at something with a word whose value is now this one. The caller makes sure that no change of it
    /// is under way.
    pub fn look(&mut self, holder: Holder, word: Word, value: u64) {
        let Some(node) = self.nodes.get_mut(&holder).filter(|node| !node.is_gone) else { return };
        let interests = self.words.entry(word).or_default();
        match interests.iter_mut().find(|interest| interest.holder == holder) {
            Some(interest) if interest.revoked.is_some() || interest.value == value => return,
            Some(interest) => interest.value = value,
            None => {
                interests.push(Interest { holder, value, revoked: None });
                node.words.insert(word);
            }
        }
        node.told.push((word, value));
    }
    /// A node changes a word, and let go of it before it asked for that. Returns whether it was interested, and not asked
    /// to let go.
    pub fn let_go(&mut self, holder: Holder, word: Word) -> bool {
        let Some(interests) = self.words.get(&word) else { return false };
        let Some(interest) = interests.iter().find(|interest| interest.holder == holder).copied() else { return false };
        self.remove(holder, word);
        if let Some(node) = self.nodes.get_mut(&holder) {
            node.told.retain(|(told, _)| *told != word);
        }
        interest.revoked.is_none()
    }
    /// A node changes perhaps everything, and let go of all words.
    pub fn let_go_of_all(&mut self, holder: Holder) -> Vec<Word> {
        let Some(node) = self.nodes.get_mut(&holder) else { return Vec::new() };
        node.told.clear();
        let words = std::mem::take(&mut node.words);
        words.into_iter().filter(|word| self.remove(holder, *word)).collect()
    }
    /// Asks all nodes that are interested in these words to let go of them.
    pub fn revoke(&mut self, words: impl IntoIterator<Item = Word>) {
        let mut of_nodes: BTreeMap<Holder, (u64, Vec<Word>)> = BTreeMap::new();
        for word in words {
            for interest in self.words.get_mut(&word).into_iter().flatten().filter(|it| it.revoked.is_none()) {
                let (number, words) = of_nodes.entry(interest.holder).or_insert_with(|| {
                    self.revocations += 1;
                    (self.revocations, Vec::new())
                });
                interest.revoked = Some(*number);
                words.push(word);
            }
        }
        for (holder, (number, words)) in of_nodes {
            let Some(node) = self.nodes.get_mut(&holder) else { continue };
            if !node.is_gone {
                node.flush_told();
                node.orders.push(WordsMessage::Revoke { number, words: words.clone() });
            }
            node.asked.insert(number, words);
        }
    }
    /// The same for all words.
    pub fn revoke_all(&mut self) {
        let all: Vec<Word> = self.words.keys().copied().collect();
        self.revoke(all);
    }
    /// A node has let go of the words of a revocation. Returns those in which nobody is interested now.
    pub fn acknowledged(&mut self, holder: Holder, number: u64) -> Vec<Word> {
        let words = self.nodes.get_mut(&holder).and_then(|node| node.asked.remove(&number)).unwrap_or_default();
        words.into_iter().filter(|word| self.is_revoked(holder, *word, number) && self.remove(holder, *word)).collect()
    }
    /// Returns true if a node's interest in a word is the one that was revoked so, not a later one.
    fn is_revoked(&self, holder: Holder, word: Word, number: u64) -> bool {
        let mut interests = self.words.get(&word).into_iter().flatten();
        interests.any(|interest| interest.holder == holder && interest.revoked == Some(number))
    }
    /// Answers a node that asks for how long it may trust what it was told: `most_ns` at most. `value`: the present one of a
    /// word. What was changed by the home itself is told again.
    pub fn trust(&mut self, holder: Holder, asked_ns: u64, most_ns: u64, now_ns: u64, value: impl Fn(Word) -> u64) {
        let Some(node) = self.nodes.get_mut(&holder) else { return };
        let for_ms = u64::min(TRUST.as_millis() as u64, most_ns / 1_000_000);
        node.until_ns = node.until_ns.max(now_ns + for_ms * 1_000_000 + ALLOWANCE.as_nanos() as u64);
        for word in &node.words {
            let interests = self.words.get_mut(word).into_iter().flatten();
            for interest in
                interests.filter(|it| it.holder == holder && it.revoked.is_none() && it.value != value(*word))
            {
                interest.value = value(*word);
                node.told.push((*word, interest.value));
            }
        }
        node.flush_told();
        node.orders.push(WordsMessage::Trusted { asked_ns, for_ms: for_ms as u32 });
    }
    /// Frees the words that nodes were asked for which may not trust them any more. Returns them.
    pub fn expire(&mut self, now_ns: u64) -> Vec<Word> {
        let over: Vec<Holder> =
            self.nodes.iter().filter(|(_, node)| node.until_ns <= now_ns).map(|(holder, _)| *holder).collect();
        let mut freed = Vec::new();
        for holder in over {
            let Some(node) = self.nodes.get(&holder) else { continue };
            if node.is_gone {
                freed.extend(self.forget(holder));
                continue;
            }
            let numbers: Vec<u64> = node.asked.keys().copied().collect();
            freed.extend(numbers.into_iter().flat_map(|number| self.acknowledged(holder, number)));
        }
        freed
    }
    /// The time until which something that is asked for, or that an ended connection left, may be trusted.
    pub fn expires_ns(&self) -> Option<u64> {
        let holding = self.nodes.values().filter(|node| node.is_gone || !node.asked.is_empty());
        holding.map(|node| node.until_ns).min()
    }
    /// The number of a node, and the time until which it may trust what it was told.
    pub fn trusted(&self, holder: Holder) -> Option<(u16, u64)> {
        self.nodes.get(&holder).map(|node| (node.number, node.until_ns))
    }
    /// The messages for a node.
    pub fn messages(&mut self, holder: Holder) -> Vec<WordsMessage> {
        let Some(node) = self.nodes.get_mut(&holder) else { return Vec::new() };
        node.flush_told();
        std::mem::take(&mut node.orders)
    }
    /// Returns true if there are messages for any node.
    pub fn has_messages(&self) -> bool {
        self.nodes.values().any(|node| !node.told.is_empty() || !node.orders.is_empty())
    }
}

impl Node {
    fn flush_told(&mut self) {
        if !self.told.is_empty() {
            let words = std::mem::take(&mut self.told);
            self.orders.push(WordsMessage::Told { upto: self.taken, words });
        }
    }
}
