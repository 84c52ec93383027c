//! A table of byte ranges of an object: what holds by default, and what was said for ranges; later words win.

use std::collections::BTreeMap;
use std::ops::Range;

/// A value for each byte of an object, such as its [`Layout`](crate::Layout) or [`Composite`](crate::Composite).
///
/// ```
/// # use cenote_layout::{Layout, Ranges};
/// let mut layouts: Ranges<Layout> = Ranges::new("4+2".parse().unwrap());
/// layouts.set(0..4096, "mirror=3".parse().unwrap());
/// assert_eq!(layouts.at(4095).to_string(), "mirror=3");
/// assert_eq!(layouts.at(4096).to_string(), "4+2");
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ranges<T> {
    default: T,
    /// End (exclusive) and value of each range by its begin. Ranges do not overlap; neighbours with one value are one.
    set: BTreeMap<u64, (u64, T)>,
}

impl<T: Clone + PartialEq> Ranges<T> {
    /// A table in which every byte has this value.
    pub fn new(default: T) -> Self {
        Self { default, set: BTreeMap::new() }
    }
    /// The value of bytes for which none was set.
    pub fn default_value(&self) -> &T {
        &self.default
    }
    /// Sets the value of these bytes; it replaces what was set before. An empty range changes nothing.
    pub fn set(&mut self, range: Range<u64>, value: T) {
        if range.is_empty() {
            return;
        }
        self.clear(range.clone());
        let (mut begin, mut end) = (range.start, range.end);
        if let Some((&before, (at, same))) = self.set.range(..begin).next_back()
            && *at == begin
            && *same == value
        {
            begin = before;
        }
        if self.set.get(&end).is_some_and(|(_, same)| *same == value)
            && let Some((after, _)) = self.set.remove(&end)
        {
            end = after;
        }
        self.set.insert(begin, (end, value));
    }
    /// Gives these bytes the default again.
    pub fn clear(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.split(range.start);
        self.split(range.end);
        let inside: Vec<u64> = self.set.range(range).map(|(begin, _)| *begin).collect();
        for begin in inside {
            self.set.remove(&begin);
        }
    }
    /// Makes no range contain both sides of this offset.
    fn split(&mut self, at: u64) {
        let Some((_, (end, value))) = self.set.range_mut(..at).next_back() else { return };
        if *end > at {
            let (rest_end, rest) = (*end, value.clone());
            *end = at;
            self.set.insert(at, (rest_end, rest));
        }
    }
    /// The value of the byte at this offset.
    pub fn at(&self, offset: u64) -> &T {
        let before = self.set.range(..=offset).next_back();
        before.filter(|(_, (end, _))| *end > offset).map_or(&self.default, |(_, (_, value))| value)
    }
    /// The values of a range: consecutive ranges that together are it, each with the value of all its bytes.
    pub fn over(&self, range: Range<u64>) -> Vec<(Range<u64>, &T)> {
        let mut found = Vec::new();
        if range.is_empty() {
            return found;
        }
        let mut at = range.start;
        let first = self.set.range(..=at).next_back().filter(|(_, (end, _))| *end > at).map_or(at, |(begin, _)| *begin);
        for (begin, (end, value)) in self.set.range(first..range.end) {
            if *begin > at {
                found.push((at..*begin, &self.default));
            }
            let end = (*end).min(range.end);
            found.push((at.max(*begin)..end, value));
            at = end;
        }
        if at < range.end {
            found.push((at..range.end, &self.default));
        }
        found
    }
    /// The ranges for which a value was set, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.set.iter().map(|(begin, (end, value))| (*begin..*end, value))
    }
}
