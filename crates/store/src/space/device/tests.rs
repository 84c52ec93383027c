//! Copies that were found bad.

use cenote_model::{Birth, Extent, Sums};

use super::*;
use crate::engine::filled::a_file;
use crate::engine::slot_with;
use crate::map::NewPlace;

/// A copy found bad stays untrusted until its space is given up; giving up other space does not change that.
#[test]
fn a_bad_copy_is_one_until_its_space_is_retired() {
    const MIB: u64 = 1 << 20;
    let mut space = Space::default();
    for id in [1, 2] {
        space.slots.push(slot_with(DeviceId(id), &a_file(), None, 64 * MIB, (4096, 64 * MIB), 1));
    }
    let sums = Sums::from_slice(&[1, 2, 3]);
    let ext = |at: u64| {
        let birth = Birth::default();
        let first = Extent::whole(DeviceId(1), at * MIB, 3 * UNIT, sums.clone());
        let copy = NewPlace { dev: 1, base: at * MIB, birth, packed: None };
        Ext::from_model(&first, 0, 0, birth).with_copy(copy, None)
    };
    let all = [ext(8), ext(16), ext(24)];
    for ext in &all {
        space.mark_bad_copy(ext, 0);
    }
    let bad = |space: &Space| all.each_ref().map(|ext| space.is_bad_copy(ext, 0));
    assert_eq!(bad(&space), [true; 3]);
    // The other place of the second one is at the same offset of another device.
    space.drop_place(&all[1], all[1].place(), Tag::default());
    assert_eq!(bad(&space), [true; 3]);
    space.drop_place(&all[1], all[1].copy_place(0).unwrap(), Tag::default());
    assert_eq!(bad(&space), [true, false, true]);
    for unit in 0..3 {
        assert!(
            !space.is_bad_copy(&all[1].part(unit * UNIT, UNIT), 0)
                && space.is_bad_copy(&all[0].part(unit * UNIT, UNIT), 0)
        );
    }
    space.unmark_bad_copy(&all[0], 0);
    assert_eq!(bad(&space), [false, false, true]);
}
