//! The part of a batch that is sent, and the reported outcome.

use cenote_model::{ContainerSpec, DeviceKind, DeviceSpec, ErrorKind, StoreConfig, TierOptions};

use super::*;
use crate::{Mode, OpenOptions, Store};

/// A message omits updates whose bytes could not be written; a batch that is applied as a whole is then not sent at
/// all.
#[test]
fn updates_whose_bytes_came_to_nothing_are_not_sent() {
    let dir = std::env::temp_dir().join(format!("cenote-queue-{}", std::process::id()));
    let memory = DeviceSpec {
        name: "memory".into(),
        kind: DeviceKind::SharedMemory,
        path: "".into(),
        capacity_bytes: 4 << 20,
        watermark_high_permille: 900,
        watermark_low_permille: 700,
        options: TierOptions::default(),
    };
    let config = StoreConfig { devices: vec![memory], ..StoreConfig::default() };
    let options = OpenOptions { mode: Mode::InProcess, create: true, config, ..OpenOptions::default() };
    let store = Store::open_with(&dir, &options).unwrap();
    let index = store.create_container("c", &ContainerSpec::default()).unwrap().create_index(None).unwrap();
    let session = store.session().unwrap().clone();
    let queue = &session.root().queue;
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let push = |together: &Together, only_new: bool| {
        let put =
            |key: &&[u8]| Update::Put { index: index.key(), key: key.to_vec(), value: b"value".to_vec(), only_new };
        let subject = |_| Subject::Put { index: index.key(), bytes: 6 };
        let (updates, subjects) = (keys.iter().map(put).collect(), keys.iter().map(subject).collect());
        let ticket = queue.push(updates, subjects, keys.len(), together);
        for number in 0..keys.len() {
            let result = if number == 1 { Err(Error::new(ErrorKind::Io, "a test")) } else { Ok(()) };
            queue.io_done(&ticket, number, result);
        }
        queue.settle(ticket.batch.number);
        let one = |first| Ticket { first, count: 1, ..ticket.clone() }.outcome().map_err(|error| error.kind());
        [0, 1, 2].map(one)
    };
    let there = || index.get(&keys).unwrap().iter().map(Option::is_some).collect::<Vec<_>>();
    let io = Err(ErrorKind::Io);
    assert_eq!(push(&Together::Whole, false), [io; 3]);
    assert_eq!(there(), [false; 3]);
    assert_eq!(push(&Together::Not, false), [Ok(()), io, Ok(())]);
    assert_eq!(there(), [true, false, true]);
    // The engine's codes belong to the updates that were sent.
    let exists = Err(ErrorKind::Exists);
    assert_eq!(push(&Together::Not, true), [exists, io, exists]);
    store.close().unwrap();
    Store::destroy(&dir, true).unwrap();
    let _ = std::fs::remove_dir_all(&dir);
}
