//! Random ids, drawn without coordination.

use std::cell::RefCell;

use cenote_host::fork;

/// Ids per request of random bytes from the system.
const BATCH: usize = 64;

struct Drawn {
    bytes: Vec<u8>,
    /// Fork generation of the draw: a child must not repeat its parent's ids.
    generation: u64,
}

/// 128 random bits from the system's generator.
pub(crate) fn random() -> u128 {
    thread_local! {
        static DRAWN: RefCell<Drawn> = const { RefCell::new(Drawn { bytes: Vec::new(), generation: 0 }) };
    }
    DRAWN.with_borrow_mut(|drawn| {
        if drawn.bytes.len() < 16 || drawn.generation != fork::generation() {
            drawn.bytes = draw();
            drawn.generation = fork::generation();
        }
        let rest = drawn.bytes.len() - 16;
        let mut id = [0; 16];
        id.copy_from_slice(&drawn.bytes[rest..]);
        drawn.bytes.truncate(rest);
        u128::from_le_bytes(id)
    })
}

fn draw() -> Vec<u8> {
    let mut bytes = vec![0; 16 * BATCH];
    let mut filled = 0;
    while filled < bytes.len() {
        match rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => filled += n,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("the system gives no random bytes: {errno}"),
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<u128> = (0..10_000).map(|_| super::random()).collect();
        assert_eq!(ids.len(), 10_000);
    }
}
