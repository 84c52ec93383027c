//! Records of an index in contiguous memory.

use std::fmt;

/// Keys and values in the order in which they were added, in one buffer: a receiver of many small records pays for
/// their bytes, not for two allocations each.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Records {
    bytes: Vec<u8>,
    /// End of each key and of each value in `bytes`. A key begins at the end of the previous value.
    ends: Vec<(usize, usize)>,
}

impl Records {
    /// Empty, with capacity for this many records and this many bytes of keys and values.
    #[must_use]
    pub fn with_capacity(records: usize, bytes: usize) -> Self {
        Self { bytes: Vec::with_capacity(bytes), ends: Vec::with_capacity(records) }
    }
    /// Builds records from the lengths of keys and values, and their bytes. `None` if the lengths do not add up to the
    /// bytes.
    #[must_use]
    pub fn from_parts(lengths: impl Iterator<Item = (usize, usize)>, bytes: Vec<u8>) -> Option<Self> {
        let mut end = 0usize;
        let mut ends = Vec::with_capacity(lengths.size_hint().0);
        for (key, value) in lengths {
            let key_end = end.checked_add(key)?;
            end = key_end.checked_add(value)?;
            ends.push((key_end, end));
        }
        (end == bytes.len()).then_some(Self { bytes, ends })
    }
    /// All keys and values, concatenated.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
    /// Number of records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }
    /// Returns true if there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }
    /// Appends a record.
    #[inline]
    pub fn push(&mut self, key: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }
    /// Appends records that are concatenated in `bytes`, given the lengths of their keys and values.
    #[inline]
    pub fn push_run(&mut self, bytes: &[u8], lengths: impl Iterator<Item = (usize, usize)>) {
        let mut end = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        self.ends.extend(lengths.map(|(key, value)| {
            let key_end = end + key;
            end = key_end + value;
            (key_end, end)
        }));
        debug_assert_eq!(end, self.bytes.len());
    }
    /// Appends a record whose value is zeros until it is set through [`Self::value_mut`].
    pub fn push_zeros(&mut self, key: &[u8], len: usize) {
        self.bytes.extend_from_slice(key);
        let key_end = self.bytes.len();
        self.bytes.resize(key_end + len, 0);
        self.ends.push((key_end, self.bytes.len()));
    }
    /// The value of a record, mutable. Its length stays.
    pub fn value_mut(&mut self, at: usize) -> Option<&mut [u8]> {
        let (key_end, end) = *self.ends.get(at)?;
        self.bytes.get_mut(key_end..end)
    }
    /// Keeps the first `count` records.
    pub fn truncate(&mut self, count: usize) {
        self.ends.truncate(count);
        self.bytes.truncate(self.ends.last().map_or(0, |(_, end)| *end));
    }
    /// Appends all records of another value.
    pub fn append(&mut self, other: &Self) {
        let base = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|(key, value)| (base + key, base + value)));
    }
    /// Key and value of a record.
    #[inline]
    #[must_use]
    pub fn get(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let (key_end, end) = *self.ends.get(at)?;
        let begin = if at == 0 { 0 } else { self.ends[at - 1].1 };
        Some((&self.bytes[begin..key_end], &self.bytes[key_end..end]))
    }
    /// Key and value of the first record.
    #[must_use]
    pub fn first(&self) -> Option<(&[u8], &[u8])> {
        self.get(0)
    }
    /// Key and value of the last record.
    #[must_use]
    pub fn last(&self) -> Option<(&[u8], &[u8])> {
        self.get(self.len().wrapping_sub(1))
    }
    /// Keys and values in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        (0..self.len()).map(|at| self.get(at).unwrap_or_default())
    }
    /// Copies each record to a key and a value of its own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
    }
}

impl<K: AsRef<[u8]>, V: AsRef<[u8]>> FromIterator<(K, V)> for Records {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(records: I) -> Self {
        let mut all = Self::default();
        records.into_iter().for_each(|(key, value)| all.push(key.as_ref(), value.as_ref()));
        all
    }
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
        f.debug_map().entries(self.iter().map(|(key, value)| (text(key), text(value)))).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keep_keys_and_values_apart() {
        let all = [("", "a"), ("b", ""), ("cc", "dd")];
        let mut records: Records = all.iter().copied().collect();
        assert_eq!(records.len(), 3);
        assert_eq!(records.last(), Some((&b"cc"[..], &b"dd"[..])));
        assert_eq!(records.get(1), Some((&b"b"[..], &b""[..])));
        assert_eq!(records.get(3), None);
        records.append(&records.clone());
        assert!(records.to_vec()[3..].iter().map(|(k, v)| (&k[..], &v[..])).eq(records.iter().take(3)));
        let lengths = |records: &Records| records.iter().map(|(k, v)| (k.len(), v.len())).collect::<Vec<_>>();
        let again = Records::from_parts(lengths(&records).into_iter(), records.bytes().to_vec());
        assert_eq!(again.as_ref(), Some(&records));
        assert_eq!(Records::from_parts([(1, usize::MAX)].into_iter(), vec![1]), None);
        assert_eq!(Records::from_parts([(1, 1)].into_iter(), vec![1]), None);
        assert_eq!(Records::default().last(), None);
        let mut records = Records::default();
        records.push_zeros(b"k", 2);
        records.push(b"l", b"m");
        records.value_mut(0).unwrap().copy_from_slice(b"ab");
        assert!(records.value_mut(2).is_none());
        assert!(records.iter().eq([(&b"k"[..], &b"ab"[..]), (b"l", b"m")]));
    }

    #[test]
    fn runs_are_added_and_ends_taken_off_as_whole_records() {
        let mut records = Records::with_capacity(3, 8);
        assert!(records.is_empty() && records.first().is_none());
        records.push(b"a", b"1");
        records.push_run(b"bb2c", [(2, 1), (1, 0)].into_iter());
        let expected = [(&b"a"[..], &b"1"[..]), (b"bb", b"2"), (b"c", b"")];
        assert!(records.iter().eq(expected));
        records.truncate(9);
        assert_eq!((records.len(), records.first()), (3, Some(expected[0])));
        records.truncate(2);
        assert_eq!((records.bytes(), records.last()), (&b"a1bb2"[..], Some(expected[1])));
        assert_eq!(format!("{records:?}"), r#"{"a": "1", "bb": "2"}"#);
        records.truncate(0);
        assert_eq!(records, Records::default());
    }
}
