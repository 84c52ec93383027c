//! Pieces of ranges: each byte of an object is one byte of one part, and the other way round.

use std::collections::HashSet;

use cenote_layout::{Layout, Piece, UNIT_BYTES_MIN, WriteAs, part_lengths, pieces, plan_write};
use cenote_workload::Rng;

fn layout(rng: &mut Rng) -> Layout {
    let unit = UNIT_BYTES_MIN << rng.below(4);
    let text = match rng.below(4) {
        0 => "plain".into(),
        1 => format!("mirror={}", rng.between(2, 5)),
        2 => format!("stripe={},unit={unit}", rng.between(2, 9)),
        _ => format!("{}+{},unit={unit}", rng.between(2, 9), rng.between(1, 4)),
    };
    text.parse().unwrap()
}

#[test]
fn pieces_are_a_bijection() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let layout = layout(&mut rng);
        let begin = rng.below(5 * layout.stripe_bytes());
        let end = begin + rng.size(3 * layout.stripe_bytes());
        let mut at = begin;
        let mut places = HashSet::new();
        for piece in pieces(&layout, begin..end) {
            assert_eq!(piece.offset, at, "seed {seed}: a gap before {piece:?}");
            assert!(piece.len > 0 && piece.part < layout.data_parts(), "seed {seed}: {piece:?}");
            // Both ends of the piece go back to where they come from, and nothing else lies there.
            for byte in [0, piece.len - 1] {
                let back = Piece::object_offset(&layout, piece.stripe, piece.part, piece.part_offset + byte);
                assert_eq!(back, piece.offset + byte, "seed {seed}: {piece:?} of {layout}");
            }
            assert!(places.insert((piece.stripe, piece.part)), "seed {seed}: a part in two pieces");
            at += piece.len;
        }
        assert_eq!(at, end, "seed {seed}");
    }
}

#[test]
fn parts_hold_the_bytes_of_their_stripe() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let layout = layout(&mut rng);
        let len = rng.size(layout.stripe_bytes());
        let lengths = part_lengths(&layout, len);
        assert_eq!(lengths.len(), layout.parts(), "seed {seed}");
        let mut of_data = vec![0; layout.data_parts()];
        for piece in pieces(&layout, 0..len) {
            of_data[piece.part] += piece.len;
        }
        assert_eq!(lengths[..layout.data_parts()], of_data, "seed {seed}: {layout}, {len} bytes");
        assert!(lengths[layout.data_parts()..].iter().all(|parity| *parity == of_data[0]), "seed {seed}");
    }
}

#[test]
fn a_write_is_cut_at_stripes_and_only_whole_ones_are_encoded() {
    for seed in 0..3000 {
        let mut rng = Rng::new(seed);
        let layout = layout(&mut rng);
        let begin = rng.below(3) * layout.stripe_bytes() / (1 + rng.below(2)) + rng.below(2);
        let end = begin + rng.size(4 * layout.stripe_bytes());
        let mut at = begin;
        for write in plan_write(&layout, begin..end) {
            assert_eq!(write.range.start, at, "seed {seed}");
            at = write.range.end;
            let stripe = layout.stripe_bytes();
            assert_eq!((write.range.start / stripe, (at - 1) / stripe), (write.stripe, write.stripe), "seed {seed}");
            let is_whole = write.range.end - write.range.start == stripe;
            let has_parity = layout.parts() > layout.data_parts() && layout.has_units();
            let expected =
                if is_whole || !has_parity { WriteAs::Stripe } else { WriteAs::Copies(layout.losses_max() + 1) };
            assert_eq!(write.write_as, expected, "seed {seed}: {layout}");
        }
        assert_eq!(at, end, "seed {seed}");
    }
}
