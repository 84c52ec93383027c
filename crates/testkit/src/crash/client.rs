//! A client process: does its operations one after the other until it is killed or told to stop.

use std::io::Write as _;
use std::path::Path;

use cenote::{Container, ErrorKind, Index, Mode, Object, OpenOptions, Result, Store};
use cenote_model::{ContainerId, IndexId, IndexKey, ObjectKey};

use super::ops::{Op, draw};
use super::{SHARED, UNITS};
use crate::content;
use crate::oracle::Change;

struct Client {
    store: Store,
    own: Vec<Container>,
    shared: Index,
}

/// `client DIR SEED SLOT FIRST LAST`: prints `B n` before and `A n` after each operation.
pub fn client_main(words: &[String]) -> std::result::Result<(), String> {
    let [dir, seed, slot, first, last] = words else { return Err("client DIR SEED SLOT FIRST LAST".into()) };
    let number = |text: &String| text.parse::<u64>().map_err(|e| format!("`{text}`: {e}"));
    let (seed, slot, first, last) = (number(seed)?, number(slot)?, number(first)?, number(last)?);
    let client = Client::open(Path::new(dir), slot).map_err(|e| format!("open: {e:?}"))?;
    let ids: Vec<ContainerId> = client.own.iter().map(Container::id).collect();
    let mut out = std::io::stdout();
    let mut say = |line: String| out.write_all(line.as_bytes()).and_then(|()| out.flush()).map_err(|e| e.to_string());
    for n in first..last {
        let op = draw(seed, slot, n, [ids[0], ids[1]]);
        say(format!("B {n}\n"))?;
        client.perform(&op).map_err(|e| format!("operation {n} {op:?}: {e:?}"))?;
        say(format!("A {n}\n"))?;
    }
    Ok(())
}

impl Client {
    fn open(dir: &Path, slot: u64) -> Result<Self> {
        let store = Store::open_with(dir, &OpenOptions { mode: Mode::Daemon, ..OpenOptions::default() })?;
        let own = vec![store.container(&format!("slot{slot}a"))?, store.container(&format!("slot{slot}b"))?];
        let shared = store.container(SHARED)?.index(IndexId(1));
        Ok(Self { store, own, shared })
    }
    fn container(&self, id: ContainerId) -> &Container {
        self.own.iter().find(|container| container.id() == id).unwrap_or(&self.own[0])
    }
    fn object(&self, key: ObjectKey) -> Object {
        self.container(key.container).object(key.object)
    }
    fn index(&self, key: IndexKey) -> Index {
        self.container(key.container).index(key.index)
    }
    fn perform(&self, op: &Op) -> Result<()> {
        match op {
            Op::Single(change) => self.single(change),
            Op::Transaction(changes) => self.transaction(changes),
            Op::Launched(changes) => {
                for change in changes {
                    if let Change::Write { key, offset, len, id, from } = change {
                        let _op =
                            self.object(*key).launch_write(*offset, &content::bytes(*id, *from, *len as usize))?;
                    }
                }
                self.store.wait_all()
            }
            Op::Transfer(from, to) => self.transfer(*from, *to),
            Op::Flush => self.own[0].flush(),
        }
    }
    fn single(&self, change: &Change) -> Result<()> {
        match change {
            Change::Write { key, offset, len, id, from } => {
                self.object(*key).write_at(*offset, &content::bytes(*id, *from, *len as usize))
            }
            Change::Punch { key, offset, len } => self.object(*key).punch(*offset, *len),
            Change::Truncate { key, size } => self.object(*key).truncate(*size),
            Change::Put { index, key, value, .. } => self.index(*index).put(&[(key, value)]).map(drop),
            Change::Del { index, key } => self.index(*index).del(&[key]).map(drop),
            _ => Ok(()),
        }
    }
    fn transaction(&self, changes: &[Change]) -> Result<()> {
        let mut transaction = self.store.begin();
        for change in changes {
            match change {
                Change::Write { key, offset, len, id, from } => {
                    transaction.write(&self.object(*key), *offset, &content::bytes(*id, *from, *len as usize))?;
                }
                Change::Punch { key, offset, len } => transaction.punch(&self.object(*key), *offset, *len)?,
                Change::Truncate { key, size } => transaction.truncate(&self.object(*key), *size)?,
                Change::Put { index, key, value, .. } => transaction.put(&self.index(*index), key, value)?,
                Change::Del { index, key } => transaction.del(&self.index(*index), key)?,
                _ => {}
            }
        }
        transaction.commit().map(drop)
    }
    /// Moves a unit, repeating the transaction until it has no conflict.
    fn transfer(&self, from: u64, to: u64) -> Result<()> {
        if from == to {
            return Ok(());
        }
        loop {
            let mut transaction = self.store.begin();
            transaction.detect_conflicts(true);
            let mut amount = |account: u64| -> Result<u64> {
                let value = transaction.get(&self.shared, &account.to_be_bytes())?;
                Ok(value.and_then(|v| v.try_into().ok()).map_or(UNITS, u64::from_be_bytes))
            };
            let (low, high) = (amount(from)?, amount(to)?);
            if low == 0 {
                return Ok(());
            }
            transaction.put(&self.shared, &from.to_be_bytes(), &(low - 1).to_be_bytes())?;
            transaction.put(&self.shared, &to.to_be_bytes(), &(high + 1).to_be_bytes())?;
            match transaction.commit() {
                Err(error) if error.kind() == ErrorKind::Conflict => {}
                other => return other.map(drop),
            }
        }
    }
}

/// The daemon that clients start: `serve DIR`; other arguments of the client are ignored.
pub fn serve_main(words: &[String]) -> std::result::Result<(), String> {
    let dir = words.iter().find(|word| !word.starts_with('-')).ok_or("serve DIR")?;
    let options = cenote_server::daemon::DaemonOptions {
        idle_exit: Some(std::time::Duration::from_secs(10)),
        background: words.iter().any(|word| word == "--background"),
        create: words.iter().any(|word| word == "--create"),
        ..Default::default()
    };
    cenote_server::daemon::run(Path::new(dir), &options).map_err(|e| e.to_string())
}
