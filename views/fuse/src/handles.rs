//! Open files and directories: handles for the kernel, values for this room.

use std::sync::Arc;

use parking_lot::RwLock;

/// A table of handles. Numbers are reused once removed.
pub struct Handles<T> {
    inner: RwLock<Inner<T>>,
}

struct Inner<T> {
    held: Vec<Option<Arc<T>>>,
    free: Vec<usize>,
}

impl<T> Default for Handles<T> {
    fn default() -> Self {
        Self { inner: RwLock::new(Inner { held: Vec::new(), free: Vec::new() }) }
    }
}

impl<T> Handles<T> {
    /// Adds a value; returns its handle.
    pub fn insert(&self, value: T) -> u64 {
        let (mut inner, value) = (self.inner.write(), Some(Arc::new(value)));
        let at = if let Some(at) = inner.free.pop() {
            inner.held[at] = value;
            at
        } else {
            inner.held.push(value);
            inner.held.len() - 1
        };
        at as u64
    }
    /// The value of a handle.
    pub fn get(&self, handle: u64) -> Option<Arc<T>> {
        self.inner.read().held.get(handle as usize)?.clone()
    }
    /// Returns true if `is_so` holds for some value.
    pub fn any(&self, is_so: impl Fn(&T) -> bool) -> bool {
        self.inner.read().held.iter().flatten().any(|value| is_so(value))
    }
    /// Removes a handle.
    pub fn remove(&self, handle: u64) -> Option<Arc<T>> {
        let mut inner = self.inner.write();
        let value = inner.held.get_mut(handle as usize)?.take()?;
        inner.free.push(handle as usize);
        Some(value)
    }
    /// Removes all handles.
    pub fn drain(&self) -> Vec<Arc<T>> {
        let mut inner = self.inner.write();
        inner.free.clear();
        inner.held.drain(..).flatten().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_values_do_not() {
        let table = Handles::default();
        let (a, b) = (table.insert('a'), table.insert('b'));
        assert_eq!(table.remove(a).as_deref(), Some(&'a'));
        assert!(table.remove(a).is_none() && table.get(a).is_none());
        assert_eq!(table.insert('c'), a);
        assert_eq!((table.get(a).as_deref(), table.get(b).as_deref()), (Some(&'c'), Some(&'b')));
        assert_eq!(table.drain().len(), 2);
        assert_eq!(table.get(b), None);
    }
}
