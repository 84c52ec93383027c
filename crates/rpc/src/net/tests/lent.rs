//! Messages whose bytes lie with somebody else, with a sum that is known before.

use std::sync::Arc;

use bytes::Bytes;
use crc_fast::CrcAlgorithm::Crc32Iscsi;

use super::*;

/// Bytes that somebody lends, and who wants to know when they are not needed any more.
struct Lent(Arc<Vec<u8>>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[test]
fn lent_bytes_are_checked_by_whoever_reads_them_and_can_be_taken_back() {
    let rest = Arc::new((0..200_000u32).map(|at| at as u8).collect::<Vec<_>>());
    let sum = crc_fast::checksum(Crc32Iscsi, &rest) as u32;
    for (defers, known, is_taken_back) in
        [(true, sum, false), (true, sum, true), (false, sum, true), (true, !sum, false)]
    {
        let mut ends = opened();
        if defers {
            ends[1].defer_checks();
        }
        let lent = Bytes::from_owner(Lent(rest.clone()));
        let parts = [lent.slice(..70_000), lent.slice(70_000..70_100), lent.slice(70_100..)];
        drop(lent);
        ends[0].send_summed(Class::Bulk, vec![1, 2, 3], parts, known).unwrap();
        let [one, two] = &mut ends;
        assert_eq!(pass(one, two, 1000).unwrap(), 1000);
        assert!(!one.is_sent());
        if is_taken_back {
            one.own_queued();
            assert_eq!(Arc::strong_count(&rest), 1);
        }
        settle_well(&mut ends);
        assert!(ends[0].is_sent());
        assert_eq!(Arc::strong_count(&rest), 1);
        let Some(Event::Message(message)) = ends[1].next_event() else { panic!("no message") };
        assert!(message.bytes[..3] == [1, 2, 3] && message.bytes[3..] == rest[..]);
        let unchecked = message.unchecked.filter(|unchecked| unchecked.from == 3);
        let intact = unchecked.map(|unchecked| unchecked.is_intact(sum, rest.len()));
        assert_eq!(intact, defers.then_some(known == sum));
    }
    let mut ends = opened();
    ends[0].send_summed(Class::Bulk, vec![1, 2, 3], [rest.to_vec().into()], !sum).unwrap();
    let [sent, taken] = settle(&mut ends);
    assert!(sent.is_err() && taken.is_err(), "a wrong sum is found where nobody else looks");
}
