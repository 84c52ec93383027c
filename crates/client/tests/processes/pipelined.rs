//! Writes and transactions that are pipelined on one precondition and travel in one message.

use cenote::{ContainerSpec, IndexId, Mode, Precondition};

use crate::tools::{Random, TestDir};

/// A process that has read an object sees its own later pipelined changes, in order, both writes and transactions.
pub fn read_in_order() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("together", &ContainerSpec::default()).unwrap();
        let [guard, records] = [1, 2].map(|number| container.create_index(Some(IndexId(number))).unwrap());
        let records = records.remembering();
        guard.put(&[(b"writer", b"me")]).unwrap();
        records.pin(&guard, guard.version().unwrap()).unwrap();
        let precondition = Precondition::new(&guard, b"writer", b"me");
        let objects = [(); 3].map(|()| container.create_object(None, None).unwrap());
        let mut images = [[0u8; 64]; 3];
        let mut random = Random::new(23);
        for round in 0..300 {
            let mut ops = Vec::new();
            for _ in 0..=random.below(6) {
                let number = random.below(3) as usize;
                let (object, image) = (&objects[number], &mut images[number]);
                let from = random.below(60) as usize;
                let bytes = random.bytes(4);
                image[from..from + 4].copy_from_slice(&bytes);
                if random.below(2) == 0 {
                    ops.push(object.launch_write_on(&precondition, from as u64, &bytes).unwrap());
                } else {
                    let mut tx = store.begin();
                    tx.write(object, from as u64, &bytes).unwrap();
                    tx.put(&records, b"round", &[round as u8]).unwrap();
                    ops.push(tx.launch(&precondition).unwrap());
                }
            }
            if random.below(2) == 0 {
                for op in ops {
                    op.wait().unwrap();
                }
            }
            for (object, image) in objects.iter().zip(&images) {
                let mut have = [0; 64];
                object.read_at(0, &mut have).unwrap();
                assert_eq!(have, *image, "{mode:?}, round {round}");
            }
        }
    }
}

/// The guard of a pin changes in the middle of a pipelined change: the process still sees its own change.
pub fn read_in_order_without_a_pin() {
    for mode in [Mode::InProcess, Mode::Daemon] {
        let place = TestDir::new();
        let store = place.make(mode);
        let container = store.create_container("together", &ContainerSpec::default()).unwrap();
        let [guard, records] = [1, 2].map(|number| container.create_index(Some(IndexId(number))).unwrap());
        let records = records.remembering();
        guard.put(&[(b"writer", b"me")]).unwrap();
        let precondition = Precondition::new(&guard, b"writer", b"me");
        for round in 0..100u8 {
            records.pin(&guard, guard.version().unwrap()).unwrap();
            let mut tx = store.begin();
            assert_eq!(tx.get(&records, b"k").unwrap(), (round > 0).then(|| vec![round - 1]));
            guard.put(&[(b"knock", &[round])]).unwrap();
            // From here on the whole index is cached, regardless of the guard.
            assert_eq!(records.get_one(&[round]).unwrap(), None);
            tx.put(&records, b"k", &[round]).unwrap();
            tx.put(&records, &[round], b"new").unwrap();
            let op = tx.launch(&precondition).unwrap();
            assert_eq!(records.get_one(b"k").unwrap(), Some(vec![round]), "{mode:?}, round {round}");
            assert_eq!(records.get_one(&[round]).unwrap().as_deref(), Some(&b"new"[..]), "{mode:?}, round {round}");
            op.wait().unwrap();
        }
    }
}
