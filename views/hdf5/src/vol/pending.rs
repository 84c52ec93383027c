//! Deferred creation of an attribute that has no value yet.
//!
//! Programs create an attribute and write it with the next call. Creation is deferred until then, and both are one transaction:
//! other processes see the attribute with its value, never without. If any other call comes next, the attribute is created first
//! ([`settle`], with which every callback begins).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::Result;
use crate::file::File;
use crate::meta::attrs::{self, Attr};
use crate::meta::transact;
use crate::value::Stored;

/// At most one attribute: the next call settles it.
static PENDING: Mutex<Option<Pending>> = Mutex::new(None);
/// Whether one is pending, readable without the lock.
static IS_PENDING: AtomicBool = AtomicBool::new(false);

struct Pending {
    file: Arc<File>,
    oid: u64,
    name: Vec<u8>,
    attr: Attr,
    /// The process that owns it; a forked child leaves it to its parent.
    process: u32,
}

/// Callbacks that do not depend on a pending attribute.
const INDIFFERENT: [&str; 4] = ["attr_write", "attr_get", "blob_", "introspect_"];

/// Defers the creation of a new attribute.
pub fn put_off(file: &Arc<File>, oid: u64, name: &[u8], attr: &Attr) {
    let mut pending = PENDING.lock();
    let (file, name, attr) = (file.clone(), name.to_vec(), attr.clone());
    *pending = Some(Pending { file, oid, name, attr, process: std::process::id() });
    IS_PENDING.store(true, Ordering::Release);
}

/// Creates the pending attribute, unless `callback` does not depend on it.
pub fn settle(callback: &str) -> Result<()> {
    if !IS_PENDING.load(Ordering::Acquire) || INDIFFERENT.iter().any(|name| callback.starts_with(name)) {
        return Ok(());
    }
    let about = PENDING.lock().as_ref().map(|pending| pending.file.clone());
    match (settle_now(None), about) {
        // Closing an object must not fail, see `Handle::close`.
        (Err(error), Some(file)) if callback.ends_with("_close") && callback != "file_close" => {
            file.shared.tell_later(error);
            Ok(())
        }
        (settled, _) => settled,
    }
}

/// Creates the pending attribute. If it is the attribute `uid`, gives it its first value and returns true.
pub fn settle_with(uid: u64, value: &Stored) -> Result<bool> {
    if !IS_PENDING.load(Ordering::Acquire) {
        return Ok(false);
    }
    let is_it = PENDING.lock().as_ref().is_some_and(|pending| pending.attr.uid == uid);
    settle_now(is_it.then_some(value)).map(|()| is_it)
}

fn settle_now(value: Option<&Stored>) -> Result<()> {
    // Under the lock: a concurrent caller must find it created.
    let mut slot = PENDING.lock();
    let made = match slot.take().filter(|pending| pending.process == std::process::id()) {
        Some(Pending { file, oid, name, mut attr, .. }) => {
            if let Some(value) = value {
                attr.value = Some(value.clone());
            }
            let make = |attr: &mut Attr| transact(&file, |tx| attrs::create(tx, &file, oid, &name, attr));
            make(&mut attr).inspect_err(|_| {
                // A value that cannot be stored must not undo the creation: for the program the attribute exists, and it may
                // want to delete it now.
                if attr.value.take().is_some() {
                    let _ = make(&mut attr);
                }
            })
        }
        None => Ok(()),
    };
    IS_PENDING.store(false, Ordering::Release);
    drop(slot);
    made
}
